(** The slot-level specification as an OCaml program.  It does not mention the translated ledger. *)
From Coq Require Import Arith Extraction ExtrOcamlBasic ExtrOcamlNatInt.
From Sametree Require Import Core.
Definition accepts := Core.check_step nat Nat.eq_dec.
Definition granted := Core.post nat.
Extraction "spec.ml" accepts granted.

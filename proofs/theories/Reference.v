(** The cold reference: one request alone on an empty machine, one token at a time.  This is what every answer is compared
    with, so it is kept free of pages, slots, batches and steps. *)
From Coq Require Import List Arith.
Import ListNotations.

Definition upd {A} (f : nat -> A) (k : nat) (v : A) : nat -> A := fun x => if Nat.eqb x k then v else f x.

Section Reference.
Variables token cell logits params : Type.
(** The hypothesis about the kernels: what a row writes to its KV cell, and its logits, are a function of its own token,
    its position and the cells of the positions before it.  Nothing else about kernels is assumed. *)
Variable row_fn : token -> nat -> list cell -> cell * logits.
(** The sampler: a function of the request's parameters (seed, temperature, ...), the position and the logits. *)
Variable sample : params -> nat -> logits -> token.

Definition feed (cs : list cell) (t : token) : list cell := cs ++ [fst (row_fn t (length cs) cs)].
(** the cells of the history [h] *)
Definition canon (h : list token) : list cell := fold_left feed h [].
(** the logits after the last token of [h]; [None] for the empty history *)
Definition ref_logits (h : list token) : option logits :=
  match rev h with
  | [] => None
  | t :: _ => let cs := canon (removelast h) in Some (snd (row_fn t (length cs) cs))
  end.
(** the first [n] tokens generated after [h], each with the logits that it was sampled from *)
Fixpoint ref_gen (p : params) (h : list token) (n : nat) : list (token * logits) :=
  match n with
  | 0 => []
  | S k => match ref_logits h with
           | None => []
           | Some l => let t := sample p (length h) l in (t, l) :: ref_gen p (h ++ [t]) k
           end
  end.

(** a request as its client sees it: what it asked for, and the tokens and logits received so far *)
Record rq := Rq { prompt : list token; prm : params; gen : list (token * logits); live : bool }.
Definition hist (q : rq) := prompt q ++ map fst (gen q).
End Reference.

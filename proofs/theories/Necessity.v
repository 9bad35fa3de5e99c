(** Each ledger condition is needed: drop it, and a concrete plan gives wrong logits. *)
From Coq Require Import List Arith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference Core.

(** free model: a cell remembers all that it was computed from *)
Inductive tree := Node : nat -> list tree -> tree.
Definition rf (t p : nat) (cs : list tree) : tree * tree := (Node t cs, Node t cs).
Notation solution := (solution nat tree tree rf).
Notation seq_exec := (seq_exec nat tree tree rf).
Notation row_out := (row_out nat tree tree rf).
Notation ref_logits := (Reference.ref_logits nat tree tree rf).
Notation check_row := (check_row nat Nat.eq_dec).
Notation Inv := (Inv nat tree tree rf).
Notation row := (row nat).
Definition L0 : nat -> option (list nat) := fun _ => None.
Definition m0 : nat -> tree := fun _ => Node 99 [].

(** 1. write slots distinct *)
Definition w1 := Row nat 0 [] 1 [] 0 false.
Definition w2 := Row nat 1 [] 2 [] 0 false.
Example distinct_writes_needed :
  forallb (check_row (post nat L0 [w1; w2])) [w1; w2] = true /\            (* every other condition holds *)
  fst (seq_exec m0 [w1; w2]) 0 <> fst (seq_exec m0 [w2; w1]) 0 /\           (* the result depends on the order *)
  ~ Inv (post nat L0 [w1; w2]) (fst (seq_exec m0 [w2; w1])) /\              (* the ledger then lies *)
  ~ exists m', solution [w1; w2] m0 m'.                                     (* and there is no parallel meaning *)
Proof.
  split; [reflexivity|]. split; [discriminate|]. split.
  - intros H. destruct (H 0 [2] eq_refl) as [_ E]. discriminate E.
  - intros [m' [S _]]. pose proof (S w1 (or_introl eq_refl)) as A. pose proof (S w2 (or_intror (or_introl eq_refl))) as B.
    simpl in A, B. congruence.
Qed.

(** 2. read slots hold the row's own prefix *)
Definition r1 := Row nat 0 [5] 1 [0] 1 true.
Example reads_needed : nodupb (writes nat [r1]) = true /\
  forall m', solution [r1] m0 m' -> ref_logits (r_full nat r1) <> Some (snd (row_out m' r1)).
Proof.
  split; [reflexivity|]. intros m' [_ S]. assert (E : m' 0 = Node 99 []) by (apply S; simpl; lia).
  unfold Core.row_out. simpl. rewrite E. discriminate.
Qed.

(** 3. ... judged after this step's writes, not before them (write-after-read) *)
Definition L7 : nat -> option (list nat) := fun s => if Nat.eqb s 0 then Some [7] else None.
Definition m7 : nat -> tree := fun _ => Node 7 [].
Definition a1 := Row nat 0 [7] 1 [0] 1 true.
Definition a2 := Row nat 1 [] 8 [] 0 false.
Example post_ledger_needed : Inv L7 m7 /\
  forallb (check_row L7) [a1; a2] = true /\ nodupb (writes nat [a1; a2]) = true /\
  forall m', solution [a1; a2] m7 m' -> ref_logits (r_full nat a1) <> Some (snd (row_out m' a1)).
Proof.
  split; [|split; [reflexivity|split; [reflexivity|]]].
  - intros s h. unfold L7. destruct (Nat.eqb_spec s 0); [|discriminate]. intros [= <-]. split; [discriminate|reflexivity].
  - intros m' [S _]. pose proof (S a2 (or_intror (or_introl eq_refl))) as E. simpl in E.
    unfold Core.row_out. simpl. rewrite E. discriminate.
Qed.

(** 4. only rows whose context+token is the request's whole history may emit *)
Definition e1 := Row nat 0 [] 9 [] 0 true.
Example commit_gate_needed : check_step nat Nat.eq_dec L0 [e1] = true /\
  forall m', solution [e1] m0 m' -> ref_logits [3] <> Some (snd (row_out m' e1)).
Proof. split; [reflexivity|]. intros m' _. discriminate. Qed.

(** 5. NOT needed: ownership.  Overwriting a slot that another request relies on is
    accepted and sound: the ledger entry changes, the later read is refused. *)
Example ownership_not_needed : check_step nat Nat.eq_dec L7 [a2] = true /\
  check_step nat Nat.eq_dec (post nat L7 [a2]) [Row nat 0 [7] 1 [0] 1 true] = false.
Proof. split; reflexivity. Qed.

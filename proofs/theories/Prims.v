(** Rust primitives of the subset, in the option monad (None = panic). *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.

Definition bind {A B} (x : option A) (f : A -> option B) : option B :=
  match x with Some a => f a | None => None end.
Notation "'do' x <- a ; b" := (bind a (fun x => b)) (at level 200, x pattern, a at level 100, b at level 200).

Definition fits (bits : N) (n : nat) : bool := (N.of_nat n <? 2 ^ bits)%N.
Definition add_u (bits : N) (a b : nat) : option nat := if fits bits (a + b) then Some (a + b) else None.
Definition mul_u (bits : N) (a b : nat) : option nat := if fits bits (a * b) then Some (a * b) else None.
Definition sub_u (bits : N) (a b : nat) : option nat := if b <=? a then Some (a - b) else None.
Definition div_u (bits : N) (a b : nat) : option nat := if b =? 0 then None else Some (a / b).
(** [assert!] *)
Definition assert_u (c : bool) : option unit := if c then Some tt else None.
Definition get {A} (l : list A) (i : nat) : option A := nth_error l i.
Fixpoint set_nth {A} (l : list A) (i : nat) (v : A) : list A :=
  match l, i with
  | [], _ => []
  | _ :: l', 0 => v :: l'
  | x :: l', S i' => x :: set_nth l' i' v
  end.
Definition put {A} (l : list A) (i : nat) (v : A) : option (list A) :=
  if i <? length l then Some (set_nth l i v) else None.
(** [for i in a..b] over the tuple of assigned variables *)
Fixpoint for_n {S} (n i : nat) (f : nat -> S -> option S) (s : S) : option S :=
  match n with 0 => Some s | S n' => do s' <- f i s; for_n n' (i + 1) f s' end.
Definition for_range {S} (a b : nat) (s : S) (f : nat -> S -> option S) : option S := for_n (b - a) a f s.

Lemma set_nth_length {A} (l : list A) : forall i v, length (set_nth l i v) = length l.
Proof. induction l; intros [|i] v; simpl; auto. Qed.
Lemma nth_set_nth {A} (l : list A) : forall i v x j, nth_error l i = Some x ->
  nth_error (set_nth l i v) j = if Nat.eqb j i then Some v else nth_error l j.
Proof.
  induction l as [|a l IH]; intros [|i] v x [|j] H; simpl in *; try discriminate; auto.
  eapply IH; eauto.
Qed.

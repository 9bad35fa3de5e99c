(** Why [solution] is the right parallel semantics: a layer-by-layer engine that,
    in every layer, first writes the K/V of ALL rows, then lets ALL rows attend
    (one barrier between), computes a solution of Core's equations -- for any
    plan with distinct write slots, with no order between rows at all. *)
From Coq Require Import List Arith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference Core.

Section Layered.
Variables token hid lcell logits : Type.
Variable d : lcell.
Variable NL : nat.
Variable emb : token -> nat -> hid.                       (* token, position *)
Variable kv : nat -> hid -> nat -> lcell.                 (* layer, hidden, position *)
Variable att : nat -> hid -> list lcell -> lcell -> hid.  (* layer, hidden, cells 0..pos-1, own *)
Variable head : hid -> logits.

(** row function assembled from the per-layer kernels *)
Definition layer1 (cells : list (list lcell)) (pos : nat) (st : hid * list lcell) (l : nat) :=
  let k := kv l (fst st) pos in
  (att l (fst st) (map (fun c => nth l c d) cells) k, snd st ++ [k]).
Definition upto (n : nat) (t : token) (pos : nat) (cells : list (list lcell)) :=
  fold_left (layer1 cells pos) (seq 0 n) (emb t pos, []).
Definition row_fn (t : token) (pos : nat) (cells : list (list lcell)) : list lcell * logits :=
  let st := upto NL t pos cells in (snd st, head (fst st)).

(** the parallel engine *)
Definition lmem := nat -> nat -> lcell.                   (* layer, slot *)
Notation rowt := (row token).
Definition pos_of (r : rowt) := length (r_reads _ r).
Definition write_all (l : nat) (M : lmem) (plan : list (rowt * hid)) : lmem :=
  fold_left (fun M rh => fun l' s => if (Nat.eqb l' l && Nat.eqb s (r_write _ (fst rh)))%bool
                                     then kv l (snd rh) (pos_of (fst rh)) else M l' s) plan M.
Definition attend_all (l : nat) (M : lmem) (plan : list (rowt * hid)) : list (rowt * hid) :=
  map (fun rh => (fst rh, att l (snd rh) (map (M l) (r_reads _ (fst rh))) (kv l (snd rh) (pos_of (fst rh))))) plan.
Definition layer_step (st : lmem * list (rowt * hid)) (l : nat) :=
  let M' := write_all l (fst st) (snd st) in (M', attend_all l M' (snd st)).
Definition start (M : lmem) (plan : list rowt) :=
  (M, map (fun r => (r, emb (r_tok _ r) (pos_of r))) plan).
Definition engine (n : nat) (M : lmem) (plan : list rowt) := fold_left layer_step (seq 0 n) (start M plan).
(** a slot's cell is the vector of its layer cells *)
Definition cells_of (M : lmem) (s : nat) : list lcell := map (fun l => M l s) (seq 0 NL).

Lemma write_all_other l ph : forall M l' s,
  l' <> l \/ ~ In s (map (fun rh => r_write _ (fst rh)) ph) -> write_all l M ph l' s = M l' s.
Proof.
  induction ph as [|rh ph IH]; intros M l' s H; [reflexivity|].
  unfold write_all in *. simpl in *. rewrite IH by tauto.
  destruct (Nat.eqb_spec l' l); [|reflexivity]. destruct (Nat.eqb_spec s (r_write _ (fst rh))); [|reflexivity].
  exfalso. subst. tauto.
Qed.
Lemma write_all_in l ph : forall M rh, NoDup (map (fun rh => r_write _ (fst rh)) ph) -> In rh ph ->
  write_all l M ph l (r_write _ (fst rh)) = kv l (snd rh) (pos_of (fst rh)).
Proof.
  induction ph as [|q ph IH]; intros M rh N I; [destruct I|]. simpl in N. apply NoDup_cons_iff in N as [N1 N2].
  destruct I as [->|I]; [|apply IH; assumption].
  change (write_all l ?M (rh :: ph)) with
    (write_all l (fun l' s => if (Nat.eqb l' l && Nat.eqb s (r_write _ (fst rh)))%bool then kv l (snd rh) (pos_of (fst rh)) else M l' s) ph).
  rewrite write_all_other by tauto. rewrite !Nat.eqb_refl. reflexivity.
Qed.

Definition hid_of (n : nat) (M : lmem) (r : rowt) := upto n (r_tok _ r) (pos_of r) (map (cells_of M) (r_reads _ r)).

Lemma nth_cells M l s : l < NL -> nth l (cells_of M s) d = M l s.
Proof.
  intros H. unfold cells_of. rewrite nth_indep with (d' := (fun l => M l s) 0) by (rewrite map_length, seq_length; exact H).
  rewrite (map_nth (fun l => M l s)), seq_nth by exact H. reflexivity.
Qed.

Lemma seq_S n : seq 0 (S n) = seq 0 n ++ [n].
Proof. rewrite <- Nat.add_1_r, seq_app. reflexivity. Qed.

(** later layers do not change earlier layers' memory *)
Lemma engine_stable M plan l s : forall n k, l < n -> fst (engine (n + k) M plan) l s = fst (engine n M plan) l s.
Proof.
  intros n k. induction k as [|k IH]; intros H; [rewrite Nat.add_0_r; reflexivity|].
  rewrite <- IH by exact H. rewrite Nat.add_succ_r. unfold engine. rewrite seq_S, fold_left_app. simpl.
  apply write_all_other. left. lia.
Qed.

Lemma engine_fresh M plan s : forall n l, n <= l -> fst (engine n M plan) l s = M l s.
Proof.
  intros n. induction n as [|n IH]; intros l H; [reflexivity|].
  unfold engine. rewrite seq_S, fold_left_app. simpl. rewrite write_all_other by (left; lia). apply IH. lia.
Qed.

Lemma engine_hidden M plan : NoDup (writes _ plan) -> forall n, n <= NL ->
  let MF := fst (engine NL M plan) in
  snd (engine n M plan) = map (fun r => (r, fst (hid_of n MF r))) plan /\
  (forall r, In r plan -> map (fun l => MF l (r_write _ r)) (seq 0 n) = snd (hid_of n MF r)) /\
  (forall l s, l < n -> ~ In s (writes _ plan) -> MF l s = M l s).
Proof.
  intros N. intros n. induction n as [|n IH]; intros Hn MF.
  - split; [reflexivity|]. split; [reflexivity|]. intros; lia.
  - destruct (IH (Nat.lt_le_incl _ _ Hn)) as (H1 & H2 & H3). fold MF in H1, H2, H3.
    assert (St : forall s, MF n s = fst (engine (S n) M plan) n s).
    { intros s. unfold MF. replace NL with (S n + (NL - S n)) by lia. apply engine_stable. lia. }
    assert (Ws : map (fun rh : rowt * hid => r_write _ (fst rh)) (snd (engine n M plan)) = writes _ plan).
    { rewrite H1, map_map. reflexivity. }
    assert (E : engine (S n) M plan = layer_step (engine n M plan) n).
    { unfold engine. rewrite seq_S, fold_left_app. reflexivity. }
    assert (U : forall r, hid_of (S n) MF r = layer1 (map (cells_of MF) (r_reads _ r)) (pos_of r) (hid_of n MF r) n).
    { intros r. unfold hid_of, upto. rewrite seq_S, fold_left_app. reflexivity. }
    split; [|split].
    + assert (St' : forall s, MF n s = write_all n (fst (engine n M plan)) (snd (engine n M plan)) n s).
      { intros s. rewrite St, E. reflexivity. }
      rewrite E. unfold layer_step. simpl.
      generalize dependent (write_all n (fst (engine n M plan)) (snd (engine n M plan))). intros W St'.
      unfold attend_all. rewrite H1, map_map. apply map_ext_in.
      intros r I. simpl. rewrite U. unfold layer1. simpl. do 2 f_equal. rewrite map_map. apply map_ext. intros s.
      rewrite nth_cells by lia. rewrite St'. reflexivity.
    + intros r I. rewrite seq_S, map_app, (H2 r I), U. unfold layer1. simpl. do 2 f_equal.
      rewrite St, E. unfold layer_step. simpl.
      apply (write_all_in n (snd (engine n M plan)) _ (r, fst (hid_of n MF r))); [rewrite Ws; exact N|].
      rewrite H1. apply in_map_iff. exists r. auto.
    + intros l s Hl Hs. destruct (Nat.eq_dec l n) as [->|]; [|apply H3; [lia|exact Hs]].
      rewrite St, E. unfold layer_step. simpl. rewrite write_all_other by (right; rewrite Ws; exact Hs).
      apply engine_fresh. lia.
Qed.

Theorem layer_parallel_is_solution M plan : NoDup (writes _ plan) ->
  let E := engine NL M plan in
  solution _ _ _ row_fn plan (cells_of M) (cells_of (fst E)) /\
  map (fun rh => head (snd rh)) (snd E) = map (fun r => snd (row_out _ _ _ row_fn (cells_of (fst E)) r)) plan.
Proof.
  intros N E. destruct (engine_hidden M plan N NL (le_n _)) as (H1 & H2 & H3). fold E in H1, H2, H3.
  split; [split|].
  - intros r I. exact (H2 r I).
  - intros s Hs. unfold cells_of. apply map_ext_in. intros l Hl. apply in_seq in Hl. apply H3; [lia|exact Hs].
  - rewrite H1, map_map. reflexivity.
Qed.
End Layered.

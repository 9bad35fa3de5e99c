(** Within size bounds, the translated functions never panic in reachable states. *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference Core Prims LedgerTypes LedgerFns Pages FnsOk Spec EndToEnd.

Lemma fits_mono b n m : fits b m = true -> n <= m -> fits b n = true.
Proof. unfold fits. rewrite !N.ltb_lt. lia. Qed.
Lemma add_total b n m : fits b (n + m) = true -> add_u b n m = Some (n + m).
Proof. unfold add_u. intros ->. reflexivity. Qed.
Lemma mul_total b n m : fits b (n * m) = true -> mul_u b n m = Some (n * m).
Proof. unfold mul_u. intros ->. reflexivity. Qed.
Lemma sub_total b n m : m <= n -> sub_u b n m = Some (n - m).
Proof. unfold sub_u. intros H. rewrite (proj2 (Nat.leb_le _ _) H). reflexivity. Qed.
Lemma put_total {A} (l : list A) i v x : nth_error l i = Some x -> put l i v = Some (set_nth l i v).
Proof.
  intros H. unfold put. assert (i < length l) by (apply nth_error_Some; congruence).
  destruct (Nat.ltb_spec i (length l)); [reflexivity|lia].
Qed.
Lemma get_total {A} (l : list A) i : i < length l -> exists x, nth_error l i = Some x.
Proof. intros H. destruct (nth_error l i) eqn:E; [eauto|]. apply nth_error_None in E. lia. Qed.

(** a loop whose body is total while an invariant holds is total and keeps it *)
Lemma for_range_total {S} (I : nat -> S -> Prop) f a b s : a <= b ->
  (forall i x, a <= i < b -> I i x -> exists y, f i x = Some y /\ I (i + 1) y) ->
  I a s -> exists y, for_range a b s f = Some y /\ I b y.
Proof.
  intros Le Step Ia. unfold for_range.
  enough (G : forall n i x, i + n = b -> a <= i -> I i x -> exists y, for_n n i f x = Some y /\ I b y) by (apply G; auto; lia).
  intros n. induction n as [|n IH]; intros i x E La Ix; simpl.
  - exists x. split; [reflexivity|]. rewrite Nat.add_0_r in E. subst i. exact Ix.
  - destruct (Step i x ltac:(lia) Ix) as (y & -> & Iy). cbn [bind]. apply IH; [lia|lia|exact Iy].
Qed.

Section NoPanic.
Variable P : nat.
Hypothesis Ppos : 0 < P.
Notation page_at l p := (nth_error (Ledger_pages l) p).
Notation req_at l r := (nth_error (Ledger_reqs l) r).

(** the bounds of [Spec.within], and the one that [create] has checked *)
Record Bound (n : nat) (l : Ledger) : Prop := {
  B_within : within P n l;
  B_pages : fits 64 (P * length (Ledger_pages l)) = true }.
Lemma B_toks n l : Bound n l -> forall r q, req_at l r = Some q -> fits 64 (length (Req_toks q) + P + P) = true.
Proof. intros [(_ & _ & T) _]. exact T. Qed.
Lemma B_next n l m : Bound n l -> m <= n -> fits 64 (Ledger_next l + m) = true.
Proof. intros [(_ & N & _) _] Le. eapply fits_mono; [exact N|lia]. Qed.

Lemma count_le_1 (t : list nat) p : NoDup t -> count_occ Nat.eq_dec t p <= 1.
Proof. intros N. apply (NoDup_count_occ Nat.eq_dec). exact N. Qed.
Lemma pins_le_reqs D l p : PInv P D l -> pins l p <= length (Ledger_reqs l).
Proof.
  intros I. unfold pins. assert (N : forall r q, req_at l r = Some q -> NoDup (Req_table q)) by (intros r q; apply (table_nodup P Ppos D); exact I).
  revert N. generalize (Ledger_reqs l). clear. intros l. induction l as [|q rs IH]; intros N; [simpl; lia|]. simpl. rewrite count_occ_app.
  pose proof (count_le_1 _ p (N 0 q eq_refl)). specialize (IH (fun r => N (S r))). lia.
Qed.
(** a page that can be attached is not yet in the request's table *)
Lemma pins_lt_reqs D l r q p pg : PInv P D l -> req_at l r = Some q -> page_at l p = Some pg ->
  length (D (Page_parent pg)) = length (Req_table q) * P -> Page_pins pg + 1 <= length (Ledger_reqs l).
Proof.
  intros I Hq Hp Ln. rewrite (I_pins _ _ _ I _ _ Hp).
  assert (Z : count_occ Nat.eq_dec (Req_table q) p = 0).
  { apply count_occ_not_In. intros K. apply In_nth_error in K as [k K]. destruct (I_req _ _ _ I _ _ _ _ Hq K) as (pg' & suf & Hp' & Lk & _).
    rewrite Hp in Hp'. injection Hp' as <-. rewrite Ln in Lk. apply Nat.mul_cancel_r in Lk; [|lia].
    assert (k < length (Req_table q)) by (apply nth_error_Some; congruence). lia. }
  unfold pins. assert (N : forall r q, req_at l r = Some q -> NoDup (Req_table q)) by (intros r0 q0; apply (table_nodup P Ppos D); exact I).
  revert r Hq N. generalize (Ledger_reqs l). clear - Z. intros l. induction l as [|x rs IH]; intros [|r] Hq N; try discriminate; simpl; rewrite count_occ_app.
  - injection Hq as ->. rewrite Z. simpl. clear - N. enough (G : count_occ Nat.eq_dec (flat_map Req_table rs) p <= length rs) by lia.
    assert (N' : forall r q, nth_error rs r = Some q -> NoDup (Req_table q)) by (intros r; exact (N (S r))). clear N.
    induction rs as [|y rs IH]; [simpl; lia|]. simpl. rewrite count_occ_app. pose proof (count_le_1 _ p (N' 0 y eq_refl)).
    specialize (IH (fun r => N' (S r))). lia.
  - specialize (IH r Hq (fun r => N (S r))). pose proof (count_le_1 _ p (N 0 x eq_refl)). lia.
Qed.

Section At.
Variables (D : nat -> list nat) (n : nat) (l : Ledger) (r : nat) (q : Req).
Hypothesis I : PInv P D l.
Hypothesis Bd : Bound n l.
Hypothesis Hq : req_at l r = Some q.

Lemma kv_total : exists kv, kv_len l r = Some kv /\ kv <= length (Req_toks q) /\ length (Req_table q) * P <= length (Req_toks q) + P /\
  exists c, tail_cid l r = Some c.
Proof.
  unfold kv_len, tail_cid, get. rewrite Hq. cbn [bind]. cbv zeta.
  destruct (table_cases (Req_table q)) as [->|(t0 & p & T)]; [simpl; eauto 6 using Nat.le_0_l|].
  destruct (I_req _ _ _ I r q (length t0) p Hq) as (pg & suf & Hp & Ln & E & _).
  { rewrite T, nth_error_app2, Nat.sub_diag by lia. reflexivity. }
  assert (Le : length t0 * P + length (Page_toks pg) <= length (Req_toks q)) by (rewrite E, !app_length, Ln; lia).
  rewrite T, app_length. cbn [length]. destruct (Nat.eqb_spec (length t0 + 1) 0); [lia|].
  rewrite sub_total by lia. cbn [bind]. replace (length t0 + 1 - 1) with (length t0) by lia.
  rewrite nth_error_app2, Nat.sub_diag by lia. cbn [bind nth_error]. rewrite Hp, (I_psize _ _ _ I). cbn [bind].
  pose proof (B_toks _ _ Bd _ _ Hq) as F.
  rewrite mul_total by (eapply fits_mono; [exact F|lia]). cbn [bind].
  rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind]. eexists. split; [reflexivity|]. split; [exact Le|]. split; [nia|eauto].
Qed.

Lemma aligned_total : exists b, aligned l r = Some b.
Proof.
  destruct kv_total as (kv & K & _ & Le & _). unfold aligned, get. rewrite K, Hq. cbn [bind]. cbv zeta.
  rewrite (I_psize _ _ _ I), mul_total; [eexists; reflexivity|]. eapply fits_mono; [exact (B_toks _ _ Bd _ _ Hq)|lia].
Qed.
End At.

Ltac nextif := match goal with |- exists _ _, (if ?b then Some (_, _) else _) = _ => destruct b eqn:?; [eexists _, _; reflexivity|] end.

Theorem grow_total D n l r p : PInv P D l -> Bound n l -> exists l' b, grow l r p = Some (l', b).
Proof.
  intros I Bd. unfold grow. cbv zeta. nextif. prim.
  destruct (get_total (Ledger_reqs l) r) as [q Hq]; [assumption|]. destruct (get_total (Ledger_pages l) p) as [pg Hp]; [assumption|].
  destruct (kv_total D n l r q I Bd Hq) as (kv & K & _ & _ & c & Tc). destruct (aligned_total D n l r q I Bd Hq) as [a A].
  unfold get. rewrite Hq, A, Hp, Tc. cbn [bind]. destruct (negb (Req_live q)); cbn [bind].
  - eexists _, _; reflexivity.
  - nextif. nextif. rewrite (put_total _ _ _ _ Hp). cbn [bind]. simpl. rewrite Hq. cbn [bind]. rewrite (put_total _ _ _ _ Hq). cbn [bind]. eexists _, _; reflexivity.
Qed.

Theorem fill1_total D n l rows r : PInv P D l -> Bound n l -> 1 <= n -> exists l' rows' b, fill1 l rows r = Some (l', rows', b).
Proof.
  intros I Bd Ln. unfold fill1. destruct (Nat.leb_spec (length (Ledger_reqs l)) r); [eauto|].
  destruct (get_total (Ledger_reqs l) r) as [q Hq]; [assumption|].
  destruct (kv_total D n l r q I Bd Hq) as (kv & K & Kle & Tl & _). pose proof (B_toks _ _ Bd _ _ Hq) as F. pose proof (I_psize _ _ _ I) as Ps.
  unfold get at 1. rewrite Hq. cbn [bind]. destruct (negb (Req_live q)); [eauto|]. rewrite K. cbn [bind]. cbv zeta. unfold get. rewrite Hq. cbn [bind].
  rewrite Ps, (mul_total 64 (length (Req_table q)) P) by (eapply fits_mono; [exact F|lia]). cbn [bind].
  destruct (Nat.leb_spec (length (Req_toks q)) kv); cbn [bind]; [eauto|].
  destruct (Nat.leb_spec (length (Req_table q) * P) kv); [eauto|].
  destruct (table_cases (Req_table q)) as [T|(t0 & p & T)]; [rewrite T in *; simpl in *; lia|].
  destruct (I_req _ _ _ I r q (length t0) p Hq) as (pg & suf & Hp & _).
  { rewrite T, nth_error_app2, Nat.sub_diag by lia. reflexivity. }
  rewrite T, app_length. cbn [length]. rewrite sub_total by lia. cbn [bind]. replace (length t0 + 1 - 1) with (length t0) by lia.
  rewrite nth_error_app2, Nat.sub_diag by lia. cbn [bind nth_error].
  destruct (get_total (Req_toks q) kv) as [t Ht]; [assumption|]. rewrite Ht. cbn [bind].
  assert (Lp : p < length (Ledger_pages l)) by (apply nth_error_Some; congruence).
  destruct (I_page _ _ _ I _ _ Hp) as (_ & Lt & _).
  pose proof (B_pages _ _ Bd) as Fp.
  rewrite mul_total by (eapply fits_mono; [exact Fp|nia]). cbn [bind]. rewrite Hp. cbn [bind].
  rewrite add_total by (eapply fits_mono; [exact Fp|nia]). cbn [bind].
  rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind].
  rewrite (put_total _ _ _ _ Hp). cbn [bind]. simpl Ledger_pages.
  assert (G : forall v, nth_error (set_nth (Ledger_pages l) p v) p = Some v) by (intros v; rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl; reflexivity).
  rewrite !G. cbn [bind]. destruct (Nat.eqb _ _); cbn [bind]; [|eauto].
  rewrite (put_total _ _ _ _ (G _)). cbn [bind]. simpl. rewrite add_total by exact (B_next _ _ _ Bd Ln). cbn [bind]. eauto.
Qed.

Lemma for_total {S} f : forall n a (s : S), (forall i s, a <= i < a + n -> exists s', f i s = Some s') -> exists s', for_n n a f s = Some s'.
Proof.
  intros n. induction n as [|n IH]; intros a s H; [simpl; eauto|]. simpl. destruct (H a s ltac:(lia)) as [s1 ->]. cbn [bind]. apply IH. intros i x Hi. apply H. lia.
Qed.

Theorem attach_total D n l r p : PInv P D l -> Bound n l -> exists l' b, attach l r p = Some (l', b).
Proof.
  intros I Bd. unfold attach. cbv zeta. nextif. prim.
  destruct (get_total (Ledger_reqs l) r) as [q Hq]; [assumption|]. destruct (get_total (Ledger_pages l) p) as [pg Hp]; [assumption|].
  destruct (kv_total D n l r q I Bd Hq) as (kv & K & _ & Tl & c & Tc). destruct (aligned_total D n l r q I Bd Hq) as [a A].
  pose proof (B_toks _ _ Bd _ _ Hq) as F. pose proof (I_psize _ _ _ I) as Ps.
  assert (Hlen : length (Req_table q) * P + P <= length (Req_toks q) + P + P) by lia.
  unfold get. rewrite Hq, A, Hp, Tc, Ps. cbn [bind]. destruct (negb (Req_live q)); cbn [bind]; [eexists _, _; reflexivity|].
  nextif. nextif. nextif. rewrite mul_total by (eapply fits_mono; [exact F|lia]). cbn [bind].
  rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind].
  destruct (Nat.ltb_spec (length (Req_toks q)) (length (Req_table q) * P + P)); cbn [bind]; [eexists _, _; reflexivity|].
  nextif.
  match goal with |- context [for_range 0 P true ?f] => destruct (for_total f (P - 0) 0 true) as [same Sm] end.
  { intros i s Hi. prim. destruct (get_total (Page_toks pg) i) as [x ->]; [lia|]. cbn [bind].
    rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind].
    destruct (get_total (Req_toks q) (length (Req_table q) * P + i)) as [y ->]; [lia|]. cbn [bind]. destruct (negb _); eexists; reflexivity. }
  unfold for_range. rewrite Sm. cbn [bind]. nextif.
  assert (Fp : fits 32 (Page_pins pg + 1) = true).
  { prim. destruct Bd as [(Fr & _) _]. eapply fits_mono; [exact Fr|]. apply (pins_lt_reqs D l r q p pg I Hq Hp).
    match goal with E : Page_parent pg = c |- _ => rewrite E end.
    assert (Tf : tail_full P l q c) by (rewrite <- Ps; apply (tail_ok l r q c); [rewrite A; f_equal; assumption|exact Tc|exact Hq]).
    exact (proj1 (proj2 (tail_full_den P Ppos D l r q c I Hq Tf))). }
  rewrite add_total by exact Fp. cbn [bind]. rewrite (put_total _ _ _ _ Hp). cbn [bind].
  simpl. rewrite Hq. cbn [bind]. rewrite (put_total _ _ _ _ Hq). cbn [bind]. eexists _, _; reflexivity.
Qed.

Theorem adopt_total D n l p p2 : PInv P D l -> Bound n l -> exists l' b, adopt l p p2 = Some (l', b).
Proof.
  intros I Bd. unfold adopt. cbv zeta. nextif. prim.
  destruct (get_total (Ledger_pages l) p) as [pg Hp]; [assumption|]. destruct (get_total (Ledger_pages l) p2) as [pg2 Hp2]; [assumption|].
  unfold get. rewrite Hp, Hp2. cbn [bind].
  destruct (Nat.eqb_spec (length (Page_toks pg)) (Ledger_psize l)) as [F1|]; cbn [negb bind]; [|eexists _, _; reflexivity].
  destruct (Nat.eqb_spec (length (Page_toks pg2)) (Ledger_psize l)) as [F2|]; cbn [negb bind]; [|eexists _, _; reflexivity].
  nextif.
  match goal with |- context [for_range 0 ?m true ?f] => destruct (for_range_total (fun _ (_ : bool) => True) f 0 m true) as (same & Sm & _); [lia| |exact Logic.I|] end.
  { intros i b Hi _. destruct (get_total (Page_toks pg) i) as [x ->]; [lia|]. cbn [bind].
    destruct (get_total (Page_toks pg2) i) as [y ->]; [lia|]. cbn [bind]. destruct (Nat.eqb x y); (eexists; split; [reflexivity|exact Logic.I]). }
  rewrite Sm. cbn [bind]. nextif. rewrite (put_total _ _ _ _ Hp). cbn [bind]. eexists _, _; reflexivity.
Qed.

(* ------------------------------------------------------------------ *)
(** * Whole steps *)

(** a ledger on which [n] more rows can be filled without a panic *)
Definition Ready (n : nat) (l : Ledger) : Prop := exists D, PInv P D l /\ Bound n l.

Lemma micros_bounds l l' R : Pages.micros P l l' R ->
  Ledger_next l' <= Ledger_next l + length R /\ length (Ledger_pages l') = length (Ledger_pages l) /\
  length (Ledger_reqs l') = length (Ledger_reqs l).
Proof.
  induction 1 as [|l1 R l2 R2 M (A & B & C) Mi]; [simpl; auto with arith|]. rewrite <- B, <- C, app_length.
  destruct Mi; simpl; unfold upd_page, upd_req, fill_next; simpl; rewrite ?set_nth_length; repeat split; auto; try lia.
  destruct (Nat.eqb _ _); lia.
Qed.

Lemma ready_micros n l l' R : Ready (length R + n) l -> Pages.micros P l l' R -> Ready n l'.
Proof.
  intros (D & I & [(W1 & W2 & W3) Bp]) M. destruct (micros_bounds _ _ _ M) as (Nx & Lp & Lr).
  destruct (step_refines P Ppos D (abs P D l) l l' R I (fun s h E => E) M) as (D' & I' & _).
  exists D'. split; [exact I'|]. constructor; [|rewrite Lp; exact Bp]. split; [rewrite Lr; exact W1|]. split.
  - eapply fits_mono; [exact W2|lia].
  - intros r q Hq. pose proof (micros_reqs _ _ _ _ M r) as X. destruct (req_at l r) as [q0|] eqn:H0; [|congruence].
    destruct X as (q' & more & A & B & C & E). rewrite Hq in A. injection A as <-. rewrite C. exact (W3 r q0 H0).
Qed.

Lemma ready_less n m l : Ready m l -> n <= m -> Ready n l.
Proof.
  intros (D & I & [(W1 & W2 & W3) Bp]) Le. exists D. split; [exact I|]. constructor; [|exact Bp].
  split; [exact W1|]. split; [|exact W3]. eapply fits_mono; [exact W2|lia].
Qed.

Lemma ready_psize n l : Ready n l -> Ledger_psize l = P.
Proof. intros (D & I & _). exact (I_psize _ _ _ I). Qed.

Theorem fill_total n m l rows r : Ready (n + m) l -> exists l' rows' b, fill l rows r n = Some (l', rows', b) /\ Ready m l'.
Proof.
  intros Rd. unfold fill. cbv zeta.
  match goal with |- context [for_range 0 n ?s ?f] =>
    destruct (for_range_total (fun i (x : Ledger * list Launch * bool) => Ready ((n - i) + m) (fst (fst x))) f 0 n s) as ([[l1 r1] b1] & E & R1);
    [lia| |simpl; rewrite Nat.sub_0_r; exact Rd|] end.
  - intros i [[l1 rows1] ok1] Hi R1. cbn [fst] in R1. destruct ok1; cbn [bind].
    + pose proof (ready_psize _ _ R1) as Ps. destruct R1 as (D & I & Bd).
      destruct (fill1_total D _ l1 rows1 r I Bd ltac:(lia)) as (l2 & rows2 & b & F). rewrite F. cbn [bind]. eexists. split; [reflexivity|]. cbn [fst].
      destruct b.
      * apply fill1_ok in F as (g & _ & M & _); [|lia]. rewrite Ps in M. apply (ready_micros _ l1 l2 [row_of l2 g]).
        -- simpl. replace (Datatypes.S (n - (i + 1) + m)) with (n - i + m) by lia. exists D. auto.
        -- change [row_of l2 g] with ([] ++ [row_of l2 g]). eapply Ms_snoc; [apply Ms_nil|exact M].
      * apply fill1_false in F as [-> _]. apply (ready_less _ (n - i + m)); [exists D; auto|lia].
    + eexists. split; [reflexivity|]. cbn [fst]. apply (ready_less _ (n - i + m)); [exact R1|lia].
  - rewrite E. cbn [bind]. eexists _, _, _. split; [reflexivity|]. cbn [fst] in R1. rewrite Nat.sub_diag in R1. exact R1.
Qed.

Lemma ready_micro m l l' : Ready m l -> Pages.micro P l l' [] -> Ready m l'.
Proof. intros Rd M. apply (ready_micros m l l' []); [exact Rd|]. change (@nil (row nat)) with (@nil (row nat) ++ []). eapply Ms_snoc; [apply Ms_nil|exact M]. Qed.

Lemma asked_cons (ops : list Op) i o : nth_error ops i = Some o -> rows_asked (skipn i ops) = rows_asked [o] + rows_asked (skipn (i + 1) ops).
Proof.
  revert i. induction ops as [|x ops IH]; intros [|i] H; try discriminate.
  - injection H as ->. simpl. destruct o; simpl; lia.
  - simpl. apply IH. exact H.
Qed.

Theorem step_total m l rows ops : Ready (rows_asked ops + m) l -> exists l' rows' b, step l rows ops = Some (l', rows', b) /\ Ready m l'.
Proof.
  intros Rd. unfold step. cbv zeta.
  match goal with |- context [for_range 0 (length ops) ?s ?f] =>
    destruct (for_range_total (fun i (x : Ledger * list Launch * bool) => Ready (rows_asked (skipn i ops) + m) (fst (fst x))) f 0 (length ops) s)
      as ([[l1 r1] b1] & E & R1); [lia| |exact Rd|] end.
  - intros i [[l1 rows1] ok1] Hi R1. cbn [fst] in R1. destruct (get_total ops i) as [o Ho]; [lia|]. rewrite (asked_cons _ _ _ Ho) in R1.
    destruct ok1; cbn [bind].
    + unfold get. rewrite Ho. cbn [bind]. pose proof (ready_psize _ _ R1) as Ps. destruct o as [r p|r p|r n|p q]; cbn [rows_asked fold_right Nat.add] in R1.
      * destruct R1 as (D & I & Bd). destruct (attach_total D _ l1 r p I Bd) as (l2 & b & F). rewrite F. cbn [bind]. eexists. split; [reflexivity|]. cbn [fst].
        destruct b; [apply attach_ok in F; rewrite Ps in F; eapply ready_micro; [exists D; eauto|exact F]|apply attach_false in F as ->; exists D; auto].
      * destruct R1 as (D & I & Bd). destruct (grow_total D _ l1 r p I Bd) as (l2 & b & F). rewrite F. cbn [bind]. eexists. split; [reflexivity|]. cbn [fst].
        destruct b; [apply grow_ok in F; rewrite Ps in F; eapply ready_micro; [exists D; eauto|exact F]|apply grow_false in F as ->; exists D; auto].
      * rewrite Nat.add_0_r in R1. rewrite <- Nat.add_assoc in R1. destruct (fill_total n _ l1 rows1 r R1) as (l2 & rows2 & b & F & R2). rewrite F. cbn [bind]. eexists. split; [reflexivity|exact R2].
      * destruct R1 as (D & I & Bd). destruct (adopt_total D _ l1 p q I Bd) as (l2 & b & F). rewrite F. cbn [bind]. eexists. split; [reflexivity|]. cbn [fst].
        destruct b; [apply adopt_ok in F; rewrite Ps in F; eapply ready_micro; [exists D; eauto|exact F]|apply adopt_false in F as ->; exists D; auto].
    + eexists. split; [reflexivity|]. cbn [fst]. eapply ready_less; [exact R1|lia].
  - rewrite E. cbn [bind]. eexists _, _, _. split; [reflexivity|]. cbn [fst] in R1. rewrite skipn_all in R1. exact R1.
Qed.

(* ------------------------------------------------------------------ *)
(** * Between steps *)

Theorem commit_total n l r m t : Ready n l -> exists l' b, commit l r m t = Some (l', b).
Proof.
  intros (D & I & Bd). unfold commit. cbv zeta. nextif. prim.
  destruct (get_total (Ledger_reqs l) r) as [q Hq]; [assumption|]. pose proof (B_toks _ _ Bd _ _ Hq) as F.
  destruct (kv_total D n l r q I Bd Hq) as (kv & K & Kle & _). rewrite K. unfold get. rewrite Hq. cbn [bind].
  destruct (Req_live q); cbn [negb bind]; [|eexists _, _; reflexivity].
  destruct (Nat.eqb_spec m (Req_sure q)) as [->|]; cbn [negb orb bind]; [|eexists _, _; reflexivity].
  destruct (Nat.ltb_spec kv (Req_sure q)) as [|Le]; [eexists _, _; reflexivity|].
  destruct (Nat.ltb_spec (Req_sure q) (length (Req_toks q))) as [Lt|Ge]; cbn [negb bind].
  - destruct (get_total (Req_toks q) (Req_sure q) Lt) as [x ->]. cbn [bind]. nextif. rewrite Hq. cbn [bind].
    rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind]. rewrite (put_total _ _ _ _ Hq). cbn [bind]. eexists _, _; reflexivity.
  - rewrite (put_total _ _ _ _ Hq). cbn [bind]. simpl. rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. cbn [bind Req_sure set_Req_toks].
    rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind].
    rewrite (put_total _ _ _ (set_Req_toks q (Req_toks q ++ [t]))) by (rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl; reflexivity).
    cbn [bind]. eexists _, _; reflexivity.
Qed.

Theorem draft_total l r t : exists l' b, draft l r t = Some (l', b).
Proof.
  unfold draft. nextif. prim. destruct (get_total (Ledger_reqs l) r) as [q Hq]; [assumption|]. unfold get. rewrite Hq. cbn [bind].
  nextif. rewrite (put_total _ _ _ _ Hq). cbn [bind]. eexists _, _; reflexivity.
Qed.

Theorem release_total D l r q k : PInv P D l -> req_at l r = Some q -> exists l', release l r k = Some l'.
Proof.
  intros I Hq. unfold release. unfold get at 1. rewrite Hq. cbn [bind].
  match goal with |- context [for_range k ?m l ?f] => assert (E : exists l1, for_range k m l f = Some l1 /\ Ledger_reqs l1 = Ledger_reqs l) end.
  { destruct (Nat.le_gt_cases k (length (Req_table q))) as [Le|Gt].
    2: { exists l. unfold for_range. replace (length (Req_table q) - k) with 0 by lia. auto. }
    match goal with |- exists l1, for_range k ?m l ?f = _ /\ _ =>
      destruct (for_range_total (fun i x => Ledger_reqs x = Ledger_reqs l /\
        forall p, page_at x p = option_map (pins_less (back k i (Req_table q)) p) (page_at l p)) f k m l) as (l1 & E & (R1 & _)); [exact Le| | |exists l1; auto] end.
    - intros i x Hi (Rx & Px). unfold get. rewrite Rx, Hq. cbn [bind]. destruct (get_total (Req_table q) i) as [p Hp]; [lia|]. rewrite Hp. cbn [bind]. cbv zeta.
      destruct (I_req _ _ _ I _ _ _ _ Hq Hp) as (pg & suf & Hpg & _). pose proof (Px p) as Xp. rewrite Hpg in Xp. cbn [option_map] in Xp. rewrite Xp. cbn [bind].
      assert (Ge : count_occ Nat.eq_dec (Req_table q) p <= Page_pins pg) by (rewrite (I_pins _ _ _ I _ _ Hpg); apply (pins_ge P Ppos l r); exact Hq).
      assert (Cnt : count_occ Nat.eq_dec (back k i (Req_table q)) p + 1 <= count_occ Nat.eq_dec (Req_table q) p).
      { rewrite <- (firstn_skipn k (Req_table q)) at 2. rewrite count_occ_app, <- (firstn_skipn (i + 1 - k) (skipn k (Req_table q))), count_occ_app.
        fold (back k (i + 1) (Req_table q)). rewrite (back_more _ _ _ _ (proj1 Hi) Hp), count_occ_app. simpl. destruct (Nat.eq_dec p p); [lia|congruence]. }
      rewrite sub_total by (simpl; lia). cbn [bind]. rewrite (put_total _ _ _ _ Xp). cbn [bind]. eexists. split; [reflexivity|].
      simpl. split; [exact Rx|]. intros p'. rewrite (nth_set_nth _ _ _ _ _ Xp), (back_more _ _ _ _ (proj1 Hi) Hp).
      destruct (Nat.eqb_spec p' p) as [->|Ne].
      + rewrite Hpg. cbn [option_map]. rewrite pins_less_snoc, Nat.eqb_refl. reflexivity.
      + rewrite Px. destruct (page_at l p') as [pg'|]; [|reflexivity]. cbn [option_map]. rewrite pins_less_snoc. destruct (Nat.eqb_spec p' p); [contradiction|reflexivity].
    - split; [reflexivity|]. intros p. unfold back. rewrite Nat.sub_diag, firstn_O, pins_less_nil. reflexivity. }
  destruct E as (l1 & E & R1). rewrite E. cbn [bind]. unfold get. rewrite R1, Hq. cbn [bind]. rewrite (put_total _ _ _ _ Hq). cbn [bind]. eexists. reflexivity.
Qed.

Theorem truncate_total D n l r m : PInv P D l -> Bound n l -> exists l' b, truncate l r m = Some (l', b).
Proof.
  intros I Bd. unfold truncate. cbv zeta. nextif. prim.
  destruct (get_total (Ledger_reqs l) r) as [q Hq]; [assumption|]. pose proof (B_toks _ _ Bd _ _ Hq) as F. unfold get. rewrite Hq. cbn [bind].
  destruct (Req_live q); cbn [negb bind]; [|eexists _, _; reflexivity]. destruct (Nat.ltb m (Req_sure q)); cbn [bind]; [eexists _, _; reflexivity|].
  destruct (Nat.ltb_spec (length (Req_toks q)) m) as [|Le]; [eexists _, _; reflexivity|].
  rewrite (I_psize _ _ _ I). unfold div_u. destruct (Nat.eqb_spec P 0); [lia|]. cbn [bind].
  pose proof (Nat.div_mod m P ltac:(lia)) as Dm. set (whole := m / P) in *. assert (Wm : whole <= m) by nia.
  rewrite mul_total by (eapply fits_mono; [exact F|lia]). cbn [bind]. rewrite sub_total by lia. cbn [bind].
  assert (Sh : exists b, (do tmp10 <- (if 0 <? m - whole * P then Some (whole <? length (Req_table q)) else Some false);
    (if tmp10 then do tmp12 <- nth_error (Req_table q) whole; do tmp13 <- nth_error (Ledger_pages l) tmp12;
       do tmp15 <- (if m - whole * P <? length (Page_toks tmp13) then do tmp14 <- nth_error (Ledger_pages l) tmp12; Some (negb (Page_pins tmp14 =? 1)) else Some false);
       Some tmp15 else Some false)) = Some b).
  { destruct (0 <? m - whole * P); cbn [bind]; [|eauto]. destruct (Nat.ltb_spec whole (length (Req_table q))) as [Lt|]; [|eauto].
    destruct (get_total (Req_table q) whole Lt) as [p Hp]. rewrite Hp. cbn [bind]. destruct (I_req _ _ _ I _ _ _ _ Hq Hp) as (pg & suf & Hpg & _).
    rewrite Hpg. cbn [bind]. destruct (_ <? _); cbn [bind]; eauto. }
  (* what comes after the pages are given back *)
  assert (After : forall k, whole <= k -> exists l1 q1, release l r k = Some l1 /\ nth_error (Ledger_reqs l1) r = Some q1 /\
    forall p, nth_error (Req_table q1) whole = Some p -> exists pg, nth_error (Ledger_pages l1) p = Some pg).
  { intros k _. destruct (release_total D l r q k I Hq) as [l1 E]. exists l1, (set_Req_table q (firstn k (Req_table q))). split; [exact E|].
    apply release_ok in E as (q' & Hq' & _ & _ & R3 & R4). rewrite Hq in Hq'. injection Hq' as <-.
    rewrite R3, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. split; [reflexivity|]. intros p Hp. cbn [Req_table set_Req_table] in Hp. apply nth_firstn in Hp as [_ Hp].
    destruct (I_req _ _ _ I _ _ _ _ Hq Hp) as (pg & suf & Hpg & _). rewrite R4, Hpg. eexists. reflexivity. }
  destruct (Nat.ltb_spec 0 (m - whole * P)) as [Rp|Rz]; cbn [bind] in Sh |- *.
  - destruct Sh as [sh Sh]. rewrite Sh. cbn [bind]. nextif. rewrite add_total by (eapply fits_mono; [exact F|nia]). cbn [bind].
    destruct (After (whole + 1) ltac:(lia)) as (l1 & q1 & E & H1 & Pg). rewrite E. cbn [bind]. rewrite H1. cbn [bind].
    destruct (Nat.ltb_spec whole (length (Req_table q1))) as [Lt|]; cbn [bind].
    + destruct (get_total (Req_table q1) whole Lt) as [p Hp]. rewrite Hp. cbn [bind]. destruct (Pg p Hp) as [pg Hpg]. rewrite Hpg. cbn [bind].
      rewrite (put_total _ _ _ _ Hpg). cbn [bind]. simpl Ledger_reqs. rewrite H1. cbn [bind]. rewrite (put_total _ _ _ _ H1). cbn [bind]. eexists _, _; reflexivity.
    + rewrite H1. cbn [bind]. rewrite (put_total _ _ _ _ H1). cbn [bind]. eexists _, _; reflexivity.
  - destruct (After whole (Nat.le_refl _)) as (l1 & q1 & E & H1 & _). rewrite E. cbn [bind]. rewrite H1. cbn [bind].
    rewrite (put_total _ _ _ _ H1). cbn [bind]. eexists _, _; reflexivity.
Qed.

Theorem unpin_total D l r : PInv P D l -> exists l' b, unpin l r = Some (l', b) /\
  (r < length (Ledger_reqs l) -> exists q, nth_error (Ledger_reqs l') r = Some q).
Proof.
  intros I. unfold unpin. destruct (Nat.leb_spec (length (Ledger_reqs l)) r) as [Out|In]; [eexists _, _; split; [reflexivity|lia]|].
  destruct (get_total (Ledger_reqs l) r In) as [q Hq]. destruct (release_total D l r q 0 I Hq) as [l1 E]. rewrite E. cbn [bind].
  eexists _, _. split; [reflexivity|]. intros _. apply release_ok in E as (q' & _ & _ & _ & E & _). rewrite E, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. eauto.
Qed.

Theorem finish_total D l r : PInv P D l -> exists l' b, finish l r = Some (l', b).
Proof.
  intros I. destruct (unpin_total D l r I) as (l1 & b & E & Q). unfold finish. rewrite E. cbn [bind]. cbv zeta.
  destruct b; cbn [bind]; [|eexists _, _; reflexivity].
  assert (In : r < length (Ledger_reqs l)).
  { unfold unpin in E. destruct (Nat.leb_spec (length (Ledger_reqs l)) r); [congruence|assumption]. }
  destruct (Q In) as [q Hq]. unfold get. rewrite Hq. cbn [bind]. rewrite (put_total _ _ _ _ Hq). cbn [bind]. simpl.
  assert (Again : forall q1 q2, nth_error (set_nth (set_nth (Ledger_reqs l1) r q1) r q2) r = Some q2 /\ nth_error (set_nth (Ledger_reqs l1) r q2) r = Some q2).
  { intros q1 q2. rewrite set_nth_twice, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. auto. }
  rewrite (proj2 (Again q _)). cbn [bind]. rewrite (put_total _ _ _ _ (proj2 (Again q _))). cbn [bind]. simpl.
  rewrite (proj1 (Again _ _)). cbn [bind]. rewrite (put_total _ _ _ _ (proj1 (Again _ _))). cbn [bind]. eexists _, _; reflexivity.
Qed.

Theorem reset_total l : exists l', reset l = Some l'.
Proof.
  unfold reset.
  match goal with |- context [for_range 0 ?m l ?f] =>
    destruct (for_range_total (fun _ x => length (Ledger_reqs x) = length (Ledger_reqs l)) f 0 m l) as (l1 & E & _); [lia| |reflexivity|] end.
  { intros i x Hi Lx. destruct (get_total (Ledger_reqs x) i) as [q Hq]; [lia|]. unfold get. rewrite Hq. cbn [bind].
    rewrite (put_total _ _ _ _ Hq). cbn [bind]. eexists. split; [reflexivity|]. simpl. rewrite set_nth_length. exact Lx. }
  rewrite E. cbn [bind].
  match goal with |- context [for_range 0 ?m l1 ?f] =>
    destruct (for_range_total (fun _ x => length (Ledger_pages x) = length (Ledger_pages l1)) f 0 m l1) as (l2 & E2 & _); [lia| |reflexivity|] end.
  { intros i x Hi Lx. destruct (get_total (Ledger_pages x) i) as [pg Hp]; [lia|].
    rewrite (put_total _ _ _ _ Hp). cbn [bind]. eexists. split; [reflexivity|]. simpl. rewrite set_nth_length. exact Lx. }
  rewrite E2. cbn [bind]. eauto.
Qed.

Theorem readmit_total l r p : exists l' b, readmit l r p = Some (l', b).
Proof.
  unfold readmit. cbv zeta. nextif. prim. destruct (get_total (Ledger_reqs l) r) as [q Hq]; [assumption|]. unfold get. rewrite Hq. cbn [bind].
  nextif. rewrite (put_total _ _ _ _ Hq). cbn [bind]. eexists _, _; reflexivity.
Qed.
End NoPanic.

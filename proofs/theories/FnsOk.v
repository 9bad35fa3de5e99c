(** The translated Rust functions refine Pages' micro-operations and events. *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference Core Prims LedgerTypes LedgerFns Pages.

(* ---- inverting the option monad ---- *)
Lemma add_inv n a b c : add_u n a b = Some c -> c = a + b.
Proof. unfold add_u. destruct (fits n (a + b)); congruence. Qed.
Lemma mul_inv n a b c : mul_u n a b = Some c -> c = a * b.
Proof. unfold mul_u. destruct (fits n (a * b)); congruence. Qed.
Lemma sub_inv n a b c : sub_u n a b = Some c -> c = a - b /\ b <= a.
Proof. unfold sub_u. destruct (Nat.leb_spec b a); intros [= <-]; auto. Qed.
Lemma put_inv {A} (l l' : list A) i v : put l i v = Some l' -> l' = set_nth l i v.
Proof. unfold put. destruct (i <? length l); congruence. Qed.
Lemma for_n_inv {S} (I : nat -> S -> Prop) f : forall n a s s',
  (forall i s s', a <= i < a + n -> I i s -> f i s = Some s' -> I (i + 1) s') ->
  I a s -> for_n n a f s = Some s' -> I (a + n) s'.
Proof.
  induction n as [|n IH]; intros a s s' H Ia E; simpl in E.
  - injection E as <-. rewrite Nat.add_0_r. exact Ia.
  - destruct (f a s) as [s1|] eqn:F; [|discriminate]. replace (a + Datatypes.S n) with (a + 1 + n) by lia.
    eapply IH; [|eapply H; [lia|exact Ia|exact F]|exact E]. intros i x y Hi. apply H. lia.
Qed.
Lemma for_range_inv {S} (I : nat -> S -> Prop) f a b s s' : a <= b ->
  (forall i s s', a <= i < b -> I i s -> f i s = Some s' -> I (i + 1) s') ->
  I a s -> for_range a b s f = Some s' -> I b s'.
Proof.
  intros Le H Ia E. unfold for_range in E. replace b with (a + (b - a)) by lia.
  eapply for_n_inv; [|exact Ia|exact E]. intros i x y Hi. apply H. lia.
Qed.

Ltac inv1 H :=
  lazymatch type of H with
  | None = Some _ => discriminate H
  | Some _ = Some _ => injection H; clear H; intros; subst
  | bind ?x _ = Some _ => let E := fresh "E" in destruct x eqn:E; [cbn [bind] in H|discriminate H]
  | (let (_, _) := ?x in _) = Some _ => destruct x
  | (if ?b then _ else _) = Some _ => let E := fresh "B" in destruct b eqn:E
  end.
Ltac prim :=
  repeat match goal with
  | H : add_u _ _ _ = Some _ |- _ => apply add_inv in H; subst
  | H : mul_u _ _ _ = Some _ |- _ => apply mul_inv in H; subst
  | H : sub_u _ _ _ = Some _ |- _ => apply sub_inv in H; destruct H; subst
  | H : put _ _ _ = Some _ |- _ => apply put_inv in H; subst
  | H : (_ || _)%bool = false |- _ => apply orb_false_iff in H; destruct H
  | H : negb _ = false |- _ => apply negb_false_iff in H
  | H : negb _ = true |- _ => apply negb_true_iff in H
  | H : Nat.eqb _ _ = true |- _ => apply Nat.eqb_eq in H
  | H : Nat.eqb _ _ = false |- _ => apply Nat.eqb_neq in H
  | H : Nat.leb _ _ = false |- _ => apply Nat.leb_gt in H
  | H : Nat.ltb _ _ = false |- _ => apply Nat.ltb_ge in H
  | H : Nat.leb _ _ = true |- _ => apply Nat.leb_le in H
  | H : Nat.ltb _ _ = true |- _ => apply Nat.ltb_lt in H
  | H : (if _ then Some true else _) = Some false |- _ => inv1 H; try discriminate H
  | H : (if _ then Some _ else Some _) = Some _ |- _ => inv1 H
  | H : bind _ _ = Some _ |- _ => inv1 H
  | H : (let (_, _) := ?x in _) = Some _ |- _ => destruct x
  | H : Some _ = Some _ |- _ => injection H; clear H; intros; subst
  | H : (?x, _) = (_, _) |- _ => injection H; clear H; intros; subst
  | H : get ?l ?i = Some ?a, K : get ?l ?i = Some ?b |- _ => rewrite H in K; injection K; clear K; intros; subst
  end.
Ltac run H := cbv zeta in H; repeat (inv1 H; try discriminate; prim).

Lemma slice_eq (a : list nat) : forall kv q, kv + length a <= length q ->
  (forall j, j < length a -> nth_error a j = nth_error q (kv + j)) -> a = firstn (length a) (skipn kv q).
Proof.
  induction kv as [|kv IH]; intros q Le H.
  - simpl. revert q Le H. induction a as [|x a IH]; intros [|y q] Le H; simpl in *; try reflexivity; try lia.
    pose proof (H 0 ltac:(lia)) as E. injection E as ->. f_equal. apply IH; [lia|]. intros j Hj. apply (H (S j)). lia.
  - destruct q as [|y q]; [simpl in Le; lia|]. apply IH; [simpl in Le; lia|exact H].
Qed.

Notation page_at l p := (nth_error (Ledger_pages l) p).
Notation req_at l r := (nth_error (Ledger_reqs l) r).
Notation plen pg := (length (Page_toks pg)).
Notation micro l := (micro (Ledger_psize l) l).
Notation micros l := (micros (Ledger_psize l) l).

Lemma last_snoc (t : list nat) p : get t (length t - 1) = Some p -> 1 <= length t -> exists t0, t = t0 ++ [p] /\ length t0 = length t - 1.
Proof.
  destruct t as [|x t0] using rev_ind; [simpl; lia|]. clear IHt0. rewrite app_length. simpl. intros G _.
  unfold get in G. rewrite nth_error_app2 in G by lia. replace (length t0 + 1 - 1 - length t0) with 0 in G by lia.
  injection G as ->. exists t0. split; [reflexivity|lia].
Qed.

Lemma kv_len_ok l r q kv : kv_len l r = Some kv -> req_at l r = Some q ->
  (Req_table q = [] /\ kv = 0) \/
  exists t0 p pg, Req_table q = t0 ++ [p] /\ page_at l p = Some pg /\ kv = length t0 * Ledger_psize l + plen pg.
Proof.
  unfold kv_len. intros H Hq. fold (get (Ledger_reqs l) r) in Hq. rewrite Hq in H. cbn [bind] in H. run H.
  - left. destruct (Req_table q); [auto|discriminate].
  - right. apply last_snoc in E as (t0 & T & Lt); [|assumption]. exists t0, n, p. rewrite <- Lt. auto.
Qed.

Lemma tail_ok l r q c : aligned l r = Some true -> tail_cid l r = Some c -> req_at l r = Some q ->
  tail_full (Ledger_psize l) l q c.
Proof.
  unfold aligned, tail_cid. intros A C Hq. fold (get (Ledger_reqs l) r) in Hq. rewrite Hq in *. cbn [bind] in *. run A.
  destruct (kv_len_ok _ _ _ _ E Hq) as [[T Z]|(t0 & p' & pg & T & Hp & Z)].
  - rewrite T in C. simpl in C. injection C as <-. left. auto.
  - right. run C; [rewrite T, app_length in *; simpl in *; lia|].
    apply last_snoc in E0 as (t1 & T1 & Lt); [|assumption].
    rewrite T in T1. apply app_inj_tail in T1 as [-> ->]. unfold get in *. rewrite Hp in E1. injection E1 as <-.
    exists t1, n, pg. repeat split; auto. rewrite T, app_length in Z. simpl in Z. nia.
Qed.

Theorem attach_ok l r p l' : attach l r p = Some (l', true) -> micro l l' [].
Proof.
  intros H. unfold attach in H. run H. simpl in *. unfold get in *.
  match goal with H : nth_error _ r = Some ?a, K : nth_error _ r = Some ?b |- _ => rewrite H in K; injection K as <- end.
  apply (M_attach _ l r r0 p p0); auto.
  - apply tail_ok with (r := r); auto.
  - rewrite <- B at 1. apply slice_eq; [lia|].
    rewrite B. refine (for_range_inv (fun i (s : bool) => s = true -> forall j, j < i ->
        nth_error (Page_toks p0) j = nth_error (Req_toks r0) (length (Req_table r0) * Ledger_psize l + j)) _ _ _ _ _ _ _ _ E3 eq_refl).
    + lia.
    + intros i s s' _ IH F. run F; try discriminate. unfold get in *.
      destruct (Nat.eq_dec j i) as [->|]; [congruence|apply IH; [reflexivity|lia]].
    + intros _ j Hj. lia.
Qed.

Theorem grow_ok l r p l' : grow l r p = Some (l', true) -> micro l l' [].
Proof.
  intros H. unfold grow in H. run H. simpl in *. unfold get in *.
  match goal with H : nth_error _ r = Some ?a, K : nth_error _ r = Some ?b |- _ => rewrite H in K; injection K as <- end.
  apply (M_grow _ l r r0 p p0 n); auto. apply tail_ok with (r := r); auto.
Qed.

Theorem adopt_ok l p p2 l' : adopt l p p2 = Some (l', true) -> micro l l' [].
Proof.
  intros H. unfold adopt in H. run H. unfold get in *.
  apply (M_adopt _ l p p0 p2 p3); auto.
  assert (X : true = true -> forall j, j < Ledger_psize l -> nth_error (Page_toks p0) j = nth_error (Page_toks p3) j).
  { refine (for_range_inv (fun i (s : bool) => s = true -> forall j, j < i ->
        nth_error (Page_toks p0) j = nth_error (Page_toks p3) j) _ _ _ _ _ _ _ _ E0).
    + lia.
    + intros i s s' _ IH F. run F; try discriminate. unfold get in *.
      destruct (Nat.eq_dec j i) as [->|]; [congruence|apply IH; [reflexivity|lia]].
    + intros _ j Hj. lia. }
  rewrite (slice_eq (Page_toks p0) 0 (Page_toks p3)); [|lia|intros j Hj; apply X; [reflexivity|lia]].
  rewrite B0, <- H2. simpl. apply firstn_all.
Qed.

Lemma set_nth_twice {A} (l : list A) : forall i a b, set_nth (set_nth l i a) i b = set_nth l i b.
Proof. induction l; intros [|i] x y; simpl; congruence. Qed.

(** what a launch record means *)
Definition toks_of l r := match req_at l r with Some q => Req_toks q | None => [] end.
Definition table_of l r := match req_at l r with Some q => Req_table q | None => [] end.
Definition row_of (l : Ledger) (g : Launch) : row nat :=
  Row nat (Launch_req g) (firstn (Launch_pos g) (toks_of l (Launch_req g))) (Launch_tok g)
    (map (slot_of (Ledger_psize l) (table_of l (Launch_req g))) (seq 0 (Launch_pos g))) (Launch_slot g) (Launch_sample g).
Definition good (l : Ledger) (g : Launch) : Prop := exists q, req_at l (Launch_req g) = Some q /\
  Launch_pos g < length (Req_table q) * Ledger_psize l /\
  nth_error (Req_toks q) (Launch_pos g) = Some (Launch_tok g) /\
  Launch_sample g = Nat.eqb (Launch_pos g + 1) (length (Req_toks q)).

Lemma micro_reqs P l l' R : Pages.micro P l l' R -> forall r,
  match req_at l r with
  | Some q => exists q' more, req_at l' r = Some q' /\ Req_table q' = Req_table q ++ more /\ Req_toks q' = Req_toks q /\ Req_live q' = Req_live q
  | None => req_at l' r = None
  end.
Proof.
  intros M r0. destruct M as [r q p pg H _ _ _ _ | r q p pg c H _ _ _ | r q t0 p pg t b H _ _ _ _ | p pg p2 pg2 _ _ _ _ _ _]; simpl.
  1,2: rewrite (nth_set_nth _ _ _ _ _ H); destruct (Nat.eqb_spec r0 r) as [->|].
  1,3: rewrite H; eexists _, _; repeat split; reflexivity.
  all: destruct (req_at l r0) as [q0|]; [exists q0, []; rewrite app_nil_r; auto|reflexivity].
Qed.

Theorem fill1_ok l rows r l' rows' : 0 < Ledger_psize l -> fill1 l rows r = Some (l', rows', true) ->
  exists g, rows' = rows ++ [g] /\ micro l l' [row_of l' g] /\ good l' g.
Proof.
  intros Ps H. unfold fill1 in H. run H; try discriminate; simpl in *; unfold get in *.
  repeat match goal with H : nth_error ?l ?i = Some ?a, K : nth_error ?l ?i = Some ?b |- _ => rewrite H in K; injection K; clear K; intros; subst end.
  match goal with H : nth_error (Req_table r0) _ = Some ?x |- _ => rename H into Tl, x into pn end.
  match goal with H : nth_error (Ledger_pages l) pn = Some ?x |- _ => rename H into Hp, x into pg end.
  match goal with H : nth_error (Req_toks r0) _ = Some ?x |- _ => rename H into Ht, x into t end.
  match goal with H : kv_len l r = Some ?x |- _ => rename H into Hk, x into kv end.
  match goal with H : (if _ then _ else _) = Some l' |- _ => rename H into Hl end.
  match goal with H : kv < length (Req_table r0) * _ |- _ => rename H into Kb end.
  rename E into Hq.
  assert (Z : exists t0, Req_table r0 = t0 ++ [pn] /\ kv = length t0 * Ledger_psize l + plen pg).
  { apply last_snoc in Tl as (t0 & T & Lt); [|assumption]. exists t0. split; [exact T|].
    destruct (kv_len_ok _ _ _ _ Hk Hq) as [[T' Z]|(t1 & p' & pg' & T' & Hp' & Z)]; [rewrite T' in *; simpl in *; lia|].
    rewrite T in T'. apply app_inj_tail in T' as [<- <-]. congruence. }
  destruct Z as (t0 & T & Z).
  rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl in *.
  repeat match goal with K : Some _ = Some _ |- _ => injection K; clear K; intros; subst end.
  simpl in Hl. rewrite app_length in Hl. simpl in Hl.
  assert (Op : plen pg < Ledger_psize l) by (rewrite T, app_length in Kb; simpl in Kb; nia).
  set (kv := length t0 * Ledger_psize l + plen pg) in *.
  set (last := Nat.eqb (kv + 1) (length (Req_toks r0))).
  pose proof (M_fill _ l r r0 t0 pn pg t last Hq T Hp Op Ht) as M. fold kv in M.
  assert (Rq : Ledger_reqs l' = Ledger_reqs l /\ Ledger_psize l' = Ledger_psize l /\ micro l l' [fill_row (Ledger_psize l) r r0 kv t last]).
  { unfold fill_page, fill_next in M. inv1 Hl; run Hl; simpl in M |- *; rewrite ?set_nth_twice; auto. }
  destruct Rq as (Q1 & Q2 & Q3).
  exists (mkLaunch r kv t (pn * Ledger_psize l + plen pg) last). split; [reflexivity|].
  unfold row_of, good, toks_of, table_of. simpl. rewrite Q1, Q2, Hq. split; [|exists r0; auto].
  replace (pn * Ledger_psize l + plen pg) with (slot_of (Ledger_psize l) (Req_table r0) kv); [exact Q3|].
  unfold slot_of, kv. destruct (divmod (Ledger_psize l) Ps (length t0) (plen pg) Op) as [-> ->].
  rewrite T, app_nth2, Nat.sub_diag by lia. reflexivity.
Qed.
Lemma fill1_false l rows r l' rows' : fill1 l rows r = Some (l', rows', false) -> l' = l /\ rows' = rows.
Proof. intros H. unfold fill1 in H. run H; try discriminate; auto. Qed.
Lemma attach_false l r p l' : attach l r p = Some (l', false) -> l' = l.
Proof. intros H. unfold attach in H. run H; try discriminate; auto. Qed.
Lemma grow_false l r p l' : grow l r p = Some (l', false) -> l' = l.
Proof. intros H. unfold grow in H. run H; try discriminate; auto. Qed.
Lemma adopt_false l p q l' : adopt l p q = Some (l', false) -> l' = l.
Proof. intros H. unfold adopt in H. run H; try discriminate; auto. Qed.

Lemma step_psize l l' R : micros l l' R -> Ledger_psize l' = Ledger_psize l.
Proof. induction 1 as [|l1 R l2 R2 M IH Mi]; [reflexivity|]. rewrite <- IH. destruct Mi; reflexivity. Qed.

Lemma micros_app l l1 l2 R1 R2 : micros l l1 R1 -> Pages.micros (Ledger_psize l) l1 l2 R2 -> micros l l2 (R1 ++ R2).
Proof.
  intros M1 M2. induction M2 as [|l3 R l4 R3 M IH Mi]; [rewrite app_nil_r; exact M1|].
  rewrite app_assoc. eapply Ms_snoc; eassumption.
Qed.
Lemma micro_micros l l' R : micro l l' R -> micros l l' R.
Proof. intros M. change R with ([] ++ R). eapply Ms_snoc; [apply Ms_nil|exact M]. Qed.
Lemma micros_reqs P l l' R : Pages.micros P l l' R -> forall r,
  match req_at l r with
  | Some q => exists q' more, req_at l' r = Some q' /\ Req_table q' = Req_table q ++ more /\ Req_toks q' = Req_toks q /\ Req_live q' = Req_live q
  | None => req_at l' r = None
  end.
Proof.
  intros M r. induction M as [|l1 R l2 R2 M IH Mi].
  - destruct (req_at l r) as [q|]; [exists q, []; rewrite app_nil_r; auto|reflexivity].
  - pose proof (micro_reqs _ _ _ _ Mi r) as K. destruct (req_at l r) as [q|]; [|rewrite IH in K; exact K].
    destruct IH as (q1 & m1 & A & B & C & D). rewrite A in K. destruct K as (q2 & m2 & A2 & B2 & C2 & D2).
    exists q2, (m1 ++ m2). rewrite B2, B, C2, C, D2, D, app_assoc. auto.
Qed.

(** [l'] is reached from [l] by micro-operations that launch exactly [gs] *)
Definition steps_to (l l' : Ledger) (gs : list Launch) : Prop := micros l l' (map (row_of l') gs) /\ Forall (good l') gs.

Lemma good_stable l1 l2 R g : 0 < Ledger_psize l1 -> micros l1 l2 R -> good l1 g -> row_of l2 g = row_of l1 g /\ good l2 g.
Proof.
  intros Ps M (q & H & K & T & Sm). pose proof (micros_reqs _ _ _ _ M (Launch_req g)) as X. rewrite H in X.
  destruct X as (q' & more & A & B & C & D). pose proof (step_psize _ _ _ M) as Q. split.
  - unfold row_of, toks_of, table_of. rewrite H, A, B, C, Q. f_equal. apply map_ext_in. intros i Hi. apply in_seq in Hi.
    unfold slot_of. rewrite app_nth1; [reflexivity|]. apply Nat.div_lt_upper_bound; [lia|]. nia.
  - exists q'. rewrite B, C, Q, app_length. repeat split; auto. nia.
Qed.

Lemma steps_to_trans l l1 l2 g1 g2 : 0 < Ledger_psize l -> steps_to l l1 g1 -> steps_to l1 l2 g2 -> steps_to l l2 (g1 ++ g2).
Proof.
  intros Ps [M1 G1] [M2 G2]. pose proof (step_psize _ _ _ M1) as Q.
  assert (Ps1 : 0 < Ledger_psize l1) by lia. split.
  - rewrite map_app. eapply micros_app; [|rewrite <- Q; exact M2].
    replace (map (row_of l2) g1) with (map (row_of l1) g1); [exact M1|]. apply map_ext_in. intros g Ig. symmetry.
    rewrite Forall_forall in G1. exact (proj1 (good_stable l1 l2 _ g Ps1 M2 (G1 g Ig))).
  - apply Forall_app. split; [|exact G2]. eapply Forall_impl; [|exact G1]. intros g Hg. exact (proj2 (good_stable l1 l2 _ g Ps1 M2 Hg)).
Qed.
Lemma steps_to_nil l : steps_to l l [].
Proof. split; [apply Ms_nil|constructor]. Qed.
Lemma steps_to_micro l l' : micro l l' [] -> steps_to l l' [].
Proof. intros M. split; [apply micro_micros; exact M|constructor]. Qed.

Theorem fill_ok l rows r n l' rows' b : 0 < Ledger_psize l -> fill l rows r n = Some (l', rows', b) ->
  exists gs, rows' = rows ++ gs /\ steps_to l l' gs.
Proof.
  intros Ps H. unfold fill in H. run H. rename E into F.
  refine (for_range_inv (fun i (s : Ledger * list Launch * bool) => exists gs, snd (fst s) = rows ++ gs /\ steps_to l (fst (fst s)) gs) _ _ _ _ _ _ _ _ F).
  - lia.
  - intros i [[l1 r1] o] [[l2 r2] o2] _ (g1 & Hr1 & S1) E. simpl in *. subst r1. pose proof (step_psize _ _ _ (proj1 S1)) as Q.
    destruct o; run E; [|exists g1; auto]. destruct o2.
    + match goal with H : fill1 _ _ _ = Some _ |- _ => apply fill1_ok in H as (g & -> & M & G); [|lia] end.
      exists (g1 ++ [g]). split; [apply eq_sym, app_assoc|]. eapply steps_to_trans; [exact Ps|exact S1|].
      split; [apply micro_micros; exact M|constructor; [exact G|constructor]].
    + match goal with H : fill1 _ _ _ = Some _ |- _ => apply fill1_false in H as [-> ->] end. exists g1. auto.
  - exists []. rewrite app_nil_r. split; [reflexivity|apply steps_to_nil].
Qed.

Theorem step_ok l rows ops l' rows' b : 0 < Ledger_psize l -> step l rows ops = Some (l', rows', b) ->
  exists gs, rows' = rows ++ gs /\ steps_to l l' gs.
Proof.
  intros Ps H. unfold step in H. run H. rename E into F.
  refine (for_range_inv (fun i (s : Ledger * list Launch * bool) => exists gs, snd (fst s) = rows ++ gs /\ steps_to l (fst (fst s)) gs) _ _ _ _ _ _ _ _ F).
  - lia.
  - intros i [[l1 r1] o] [[l2 r2] o2] _ (g1 & Hr1 & S1) E. simpl in *. subst r1. pose proof (step_psize _ _ _ (proj1 S1)) as Q.
    destruct o; run E; [|exists g1; auto].
    assert (X : exists g2, r2 = (rows ++ g1) ++ g2 /\ steps_to l1 l2 g2).
    { match goal with H : match ?o with _ => _ end = Some _ |- _ => destruct o; run H end.
      - exists []. rewrite app_nil_r. split; [reflexivity|]. destruct o2; [apply steps_to_micro; eapply attach_ok; eassumption|].
        match goal with H : attach _ _ _ = _ |- _ => apply attach_false in H as -> end. apply steps_to_nil.
      - exists []. rewrite app_nil_r. split; [reflexivity|]. destruct o2; [apply steps_to_micro; eapply grow_ok; eassumption|].
        match goal with H : grow _ _ _ = _ |- _ => apply grow_false in H as -> end. apply steps_to_nil.
      - eapply fill_ok; [lia|eassumption].
      - exists []. rewrite app_nil_r. split; [reflexivity|]. destruct o2; [apply steps_to_micro; eapply adopt_ok; eassumption|].
        match goal with H : adopt _ _ _ = _ |- _ => apply adopt_false in H as -> end. apply steps_to_nil. }
    destruct X as (g2 & -> & S2). exists (g1 ++ g2). split; [apply eq_sym, app_assoc|]. eapply steps_to_trans; eassumption.
  - exists []. rewrite app_nil_r. split; [reflexivity|apply steps_to_nil].
Qed.

(** between steps *)
Theorem commit_ok l r t l' : commit l r t = Some (l', true) ->
  exists q, req_at l r = Some q /\ Req_live q = true /\ kv_len l r = Some (length (Req_toks q)) /\
            l' = upd_req l r (set_Req_toks q (Req_toks q ++ [t])).
Proof.
  intros H. unfold commit in H. run H; try discriminate. simpl in *. exists r0. unfold get in *. split; [assumption|]. split; [assumption|]. split; [congruence|reflexivity].
Qed.

Lemma unpin_loop l r q : req_at l r = Some q -> forall l', 
  for_range 0 (length (Req_table q)) l (fun i l =>
    do tmp2 <- get (Ledger_reqs l) r; do tmp3 <- get (Req_table tmp2) i; let p := tmp3 in
    do tmp4 <- get (Ledger_pages l) p; do tmp5 <- sub_u 32 (Page_pins tmp4) 1;
    do tmp6 <- get (Ledger_pages l) p; do tmp7 <- put (Ledger_pages l) p (set_Page_pins tmp6 tmp5);
    let l := set_Ledger_pages l tmp7 in Some l) = Some l' ->
  Ledger_psize l' = Ledger_psize l /\ Ledger_next l' = Ledger_next l /\ Ledger_reqs l' = Ledger_reqs l /\
  forall p, page_at l' p = option_map (fun pg => set_Page_pins pg (Page_pins pg - count_occ Nat.eq_dec (Req_table q) p)) (page_at l p).
Proof.
  intros Hq l' H.
  assert (G : Ledger_psize l' = Ledger_psize l /\ Ledger_next l' = Ledger_next l /\ Ledger_reqs l' = Ledger_reqs l /\
    forall p, page_at l' p = option_map (fun pg => set_Page_pins pg (Page_pins pg - count_occ Nat.eq_dec (firstn (length (Req_table q)) (Req_table q)) p)) (page_at l p));
    [|rewrite firstn_all in G; exact G].
  refine (for_range_inv (fun i x => Ledger_psize x = Ledger_psize l /\ Ledger_next x = Ledger_next l /\ Ledger_reqs x = Ledger_reqs l /\
    forall p, page_at x p = option_map (fun pg => set_Page_pins pg (Page_pins pg - count_occ Nat.eq_dec (firstn i (Req_table q)) p)) (page_at l p))
    _ _ _ _ _ _ _ _ H); [lia| |].
  - intros i x y Hi (I1 & I2 & I3 & I4) E. run E. simpl. repeat (split; [assumption|]). intros p0.
    unfold get in *. rewrite I3 in *. rewrite Hq in *.
    repeat match goal with K : Some _ = Some _ |- _ => injection K; clear K; intros; subst end.
    match goal with K : nth_error (Req_table _) i = Some ?n, G : nth_error (Ledger_pages x) ?n = Some ?pg |- _ => rename K into Ki, G into Gp end.
    rewrite (nth_set_nth _ _ _ _ _ Gp). 
    assert (F : firstn (i + 1) (Req_table r0) = firstn i (Req_table r0) ++ [n]).
    { clear - Ki. revert i Ki. generalize (Req_table r0). intros t. induction t as [|a t IH]; intros [|i] K; simpl in *; try discriminate.
      - congruence.
      - rewrite (IH i K). reflexivity. }
    rewrite F, count_occ_app. simpl. rewrite I4 in Gp.
    destruct (Nat.eqb_spec p0 n) as [->|Ne].
    + destruct (page_at l n) as [pg|]; [|discriminate]. injection Gp as <-. simpl. destruct (Nat.eq_dec n n); [|congruence].
      unfold set_Page_pins. simpl. do 2 f_equal. lia.
    + rewrite I4. destruct (Nat.eq_dec n p0); [congruence|]. rewrite Nat.add_0_r. reflexivity.
  - repeat (split; [reflexivity|]). intros p. simpl. destruct (page_at l p) as [pg|]; [|reflexivity]. simpl.
    rewrite Nat.sub_0_r. destruct pg; reflexivity.
Qed.

Theorem unpin_ok l r l' : unpin l r = Some (l', true) -> exists q, req_at l r = Some q /\ unpinned l r q l'.
Proof.
  intros H. unfold unpin in H. run H. rename E into Hq, E0 into F. apply (unpin_loop l r r0 Hq) in F as (F1 & F2 & F3 & F4).
  exists r0. split; [exact Hq|]. unfold unpinned. simpl. unfold get in *. rewrite F3 in *. rewrite Hq in *.
  repeat match goal with K : Some _ = Some _ |- _ => injection K; clear K; intros; subst end. auto.
Qed.

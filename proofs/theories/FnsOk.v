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
Lemma div_inv n a b c : div_u n a b = Some c -> c = a / b /\ b <> 0.
Proof. unfold div_u. destruct (Nat.eqb_spec b 0); intros [= <-]; auto. Qed.
Lemma for_n_inv {S} (I : nat -> S -> Prop) f : forall n a s s',
  (forall i s s', a <= i < a + n -> I i s -> f i s = Some s' -> I (i + 1) s') ->
  I a s -> for_n n a f s = Some s' -> I (a + n) s'.
Proof.
  intros n. induction n as [|n IH]; intros a s s' H Ia E; simpl in E.
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

(** [run H] follows an execution [H : f .. = Some result] to its end.  What it finds on the way gets names that no script
    may mention: scripts look for the facts that they need by their form. *)
Ltac inv1 H :=
  lazymatch type of H with
  | None = Some _ => discriminate H
  | Some _ = Some _ => injection H; clear H; intros; subst
  | bind ?x _ = Some _ => let v := fresh "found" in let E := fresh "found" in destruct x as [v|] eqn:E; [cbn [bind] in H|discriminate H]
  | (let (_, _) := ?x in _) = Some _ => destruct x
  | (if ?b then _ else _) = Some _ => let E := fresh "found" in destruct b eqn:E
  end.
Ltac prim :=
  repeat match goal with
  | H : add_u _ _ _ = Some _ |- _ => apply add_inv in H; subst
  | H : mul_u _ _ _ = Some _ |- _ => apply mul_inv in H; subst
  | H : sub_u _ _ _ = Some _ |- _ => apply sub_inv in H; destruct H; subst
  | H : div_u _ _ _ = Some _ |- _ => apply div_inv in H; destruct H; subst
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
  | H : (if _ then _ else Some false) = Some true |- _ => inv1 H; try discriminate H
  | H : (if _ then Some _ else Some _) = Some _ |- _ => inv1 H
  | H : bind _ _ = Some _ |- _ => inv1 H
  | H : (let (_, _) := ?x in _) = Some _ |- _ => destruct x
  | H : Some _ = Some _ |- _ => injection H; clear H; intros; subst
  | H : (?x, _) = (_, _) |- _ => injection H; clear H; intros; subst
  | H : get ?l ?i = Some ?a, K : get ?l ?i = Some ?b |- _ => rewrite H in K; injection K; clear K; intros; subst
  end.
Ltac run H := cbv zeta in H; repeat (inv1 H; try discriminate; prim).
(** name what is known of entry [r], page [p], a loop *)
Ltac same_req l r q Hq :=
  repeat match goal with K : nth_error (Ledger_reqs l) r = Some ?y |- _ => tryif unify y q then fail else (rewrite Hq in K; injection K as <-) end.
Ltac the_req l r q Hq :=
  match goal with H : nth_error (Ledger_reqs l) r = Some ?x |- _ => rename x into q, H into Hq end; same_req l r q Hq.
Ltac the_page l p pg Hp := match goal with H : nth_error (Ledger_pages l) p = Some ?x |- _ => rename x into pg, H into Hp end.
Ltac the_loop F := match goal with H : for_range _ _ _ _ = Some _ |- _ => rename H into F end.

Lemma slice_eq (a : list nat) : forall kv q, kv + length a <= length q ->
  (forall j, j < length a -> nth_error a j = nth_error q (kv + j)) -> a = firstn (length a) (skipn kv q).
Proof.
  intros kv. induction kv as [|kv IH]; intros q Le H.
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
  destruct t as [|x t0 _] using rev_ind; [simpl; lia|]. rewrite app_length. simpl. intros G _.
  unfold get in G. rewrite nth_error_app2 in G by lia. replace (length t0 + 1 - 1 - length t0) with 0 in G by lia.
  injection G as ->. exists t0. split; [reflexivity|lia].
Qed.

Lemma kv_len_ok l r q kv : kv_len l r = Some kv -> req_at l r = Some q ->
  (Req_table q = [] /\ kv = 0) \/
  exists t0 p pg, Req_table q = t0 ++ [p] /\ page_at l p = Some pg /\ kv = length t0 * Ledger_psize l + plen pg.
Proof.
  unfold kv_len. intros H Hq. fold (get (Ledger_reqs l) r) in Hq. rewrite Hq in H. cbn [bind] in H. run H.
  - left. destruct (Req_table q); [auto|discriminate].
  - right. match goal with Hl : get (Req_table q) _ = Some ?p, Hp : get (Ledger_pages l) ?p = Some ?pg |- _ =>
      apply last_snoc in Hl as (t0 & T & Lt); [|assumption]; exists t0, p, pg; rewrite <- Lt; auto end.
Qed.

Lemma tail_ok l r q c : aligned l r = Some true -> tail_cid l r = Some c -> req_at l r = Some q ->
  tail_full (Ledger_psize l) l q c.
Proof.
  unfold aligned, tail_cid. intros A C Hq. fold (get (Ledger_reqs l) r) in Hq. rewrite Hq in *. cbn [bind] in *. run A.
  match goal with H : kv_len l r = Some _ |- _ => destruct (kv_len_ok _ _ _ _ H Hq) as [[T Z]|(t0 & p' & pg & T & Hp & Z)] end.
  - rewrite T in C. simpl in C. injection C as <-. left. auto.
  - right. run C; [rewrite T, app_length in *; simpl in *; lia|].
    match goal with H : get (Req_table q) _ = Some ?n, K : get (Ledger_pages l) ?n = Some ?pg' |- _ => rename H into Hl, K into Hn, n into pn, pg' into pgn end.
    apply last_snoc in Hl as (t1 & T1 & Lt); [|assumption].
    rewrite T in T1. apply app_inj_tail in T1 as [-> ->]. unfold get in *. rewrite Hp in Hn. injection Hn as <-.
    exists t1, pn, pg. repeat split; auto. rewrite T, app_length in Z. simpl in Z. nia.
Qed.

(** a loop that compares two stretches of tokens, and finds no difference *)
Lemma compared {A} (get1 get2 : nat -> option A) n (body : nat -> bool -> option bool) :
  (forall i b b', body i b = Some b' -> b' = true -> b = true /\ get1 i = get2 i) ->
  for_range 0 n true body = Some true -> forall j, j < n -> get1 j = get2 j.
Proof.
  intros Body F j Hj.
  refine (for_range_inv (fun i (b : bool) => b = true -> forall j, j < i -> get1 j = get2 j) _ _ _ _ _ _ _ _ F eq_refl j Hj); [lia| |lia].
  intros i b b' _ IH E Eb x Hx. destruct (Body i b b' E Eb) as [B G]. destruct (Nat.eq_dec x i) as [->|Ne]; [exact G|apply (IH B); lia].
Qed.

Theorem attach_ok l r p l' : attach l r p = Some (l', true) -> micro l l' [].
Proof.
  intros H. unfold attach in H. run H; try discriminate. simpl in *. unfold get in *. the_req l r q Hq. the_page l p pg Hp. the_loop F.
  apply (M_attach _ l r q p pg); auto.
  - apply tail_ok with (r := r); auto.
  - assert (Full : plen pg = Ledger_psize l) by assumption. rewrite <- Full at 1. apply slice_eq; rewrite Full; [lia|].
    refine (compared (fun j => nth_error (Page_toks pg) j) (fun j => nth_error (Req_toks q) (length (Req_table q) * Ledger_psize l + j)) _ _ _ F).
    intros i b b' E Eb. subst b'. run E; try discriminate. unfold get in *. split; [reflexivity|congruence].
Qed.

Theorem grow_ok l r p l' : grow l r p = Some (l', true) -> micro l l' [].
Proof.
  intros H. unfold grow in H. run H. simpl in *. unfold get in *. the_req l r q Hq. the_page l p pg Hp.
  match goal with K : tail_cid l r = Some ?c |- _ => apply (M_grow _ l r q p pg c) end; auto. apply tail_ok with (r := r); auto.
Qed.

Theorem adopt_ok l p p2 l' : adopt l p p2 = Some (l', true) -> micro l l' [].
Proof.
  intros H. unfold adopt in H. run H. unfold get in *. the_loop F. the_page l p pg Hp. the_page l p2 pg2 Hp2.
  apply (M_adopt _ l p pg p2 pg2); auto.
  assert (Full : plen pg = Ledger_psize l) by assumption. assert (Full2 : plen pg2 = Ledger_psize l) by assumption.
  rewrite (slice_eq (Page_toks pg) 0 (Page_toks pg2)).
  - simpl. rewrite Full, <- Full2. apply firstn_all.
  - lia.
  - rewrite Full. refine (compared (fun j => nth_error (Page_toks pg) j) (fun j => nth_error (Page_toks pg2) j) _ _ _ F).
    intros i b b' E Eb. subst b'. run E; try discriminate. unfold get in *. split; [reflexivity|congruence].
Qed.

Lemma set_nth_twice {A} (l : list A) : forall i a b, set_nth (set_nth l i a) i b = set_nth l i b.
Proof. induction l as [|a l IH]; intros [|i] x y; simpl; [reflexivity|reflexivity|reflexivity|]. rewrite IH. reflexivity. Qed.

(** what a launch record means *)
Definition toks_of l r := match req_at l r with Some q => Req_toks q | None => [] end.
Definition table_of l r := match req_at l r with Some q => Req_table q | None => [] end.
Definition row_of (l : Ledger) (g : Launch) : row nat :=
  Row nat (Launch_req g) (firstn (Launch_pos g) (toks_of l (Launch_req g))) (Launch_tok g)
    (map (slot_of (Ledger_psize l) (table_of l (Launch_req g))) (seq 0 (Launch_pos g))) (Launch_slot g) (Launch_sample g).
Definition good (l : Ledger) (g : Launch) : Prop := exists q, req_at l (Launch_req g) = Some q /\
  Launch_pos g < length (Req_table q) * Ledger_psize l /\
  nth_error (Req_toks q) (Launch_pos g) = Some (Launch_tok g) /\
  Launch_sample g = Nat.leb (Req_sure q) (Launch_pos g + 1).

Lemma micro_reqs P l l' R : Pages.micro P l l' R -> forall r,
  match req_at l r with
  | Some q => exists q' more, req_at l' r = Some q' /\ Req_table q' = Req_table q ++ more /\ Req_toks q' = Req_toks q /\
      Req_live q' = Req_live q /\ Req_sure q' = Req_sure q
  | None => req_at l' r = None
  end.
Proof.
  intros M r0. destruct M as [r q p pg H _ _ _ _ _ | r q p pg c H _ _ _ | r q t0 p pg t b H _ _ _ _ | p pg p2 pg2 _ _ _ _ _ _]; simpl.
  1,2: rewrite (nth_set_nth _ _ _ _ _ H); destruct (Nat.eqb_spec r0 r) as [->|].
  1,3: rewrite H; eexists _, _; repeat split; reflexivity.
  all: destruct (req_at l r0) as [q0|]; [exists q0, []; rewrite app_nil_r; auto|reflexivity].
Qed.

Theorem fill1_ok l rows r l' rows' : 0 < Ledger_psize l -> fill1 l rows r = Some (l', rows', true) ->
  exists g, rows' = rows ++ [g] /\ micro l l' [row_of l' g] /\ good l' g.
Proof.
  intros Ps H. unfold fill1 in H. run H; try discriminate; simpl in *; unfold get in *. the_req l r q Hq.
  match goal with K : nth_error (Req_table q) _ = Some ?x |- _ => rename K into Tl, x into pn end. the_page l pn pg Hp.
  match goal with K : nth_error (Req_toks q) ?x = Some ?y |- _ => rename K into Ht, x into kv, y into t end.
  match goal with K : kv_len l r = Some kv |- _ => rename K into Hk end.
  match goal with K : (if _ then _ else _) = Some l' |- _ => rename K into Hl end.
  match goal with K : kv < length (Req_table q) * _ |- _ => rename K into Kb end.
  assert (Z : exists t0, Req_table q = t0 ++ [pn] /\ kv = length t0 * Ledger_psize l + plen pg).
  { apply last_snoc in Tl as (t0 & T & Lt); [|assumption]. exists t0. split; [exact T|].
    destruct (kv_len_ok _ _ _ _ Hk Hq) as [[T' Z]|(t1 & p' & pg' & T' & Hp' & Z)]; [rewrite T' in *; simpl in *; lia|].
    rewrite T in T'. apply app_inj_tail in T' as [<- <-]. congruence. }
  destruct Z as (t0 & T & Z).
  rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl in *.
  repeat match goal with K : Some _ = Some _ |- _ => injection K; clear K; intros; subst end.
  simpl in Hl. rewrite app_length in Hl. simpl in Hl.
  assert (Op : plen pg < Ledger_psize l) by (rewrite T, app_length in Kb; simpl in Kb; nia).
  set (kv := length t0 * Ledger_psize l + plen pg) in *.
  set (sm := Nat.leb (Req_sure q) (kv + 1)).
  pose proof (M_fill _ l r q t0 pn pg t sm Hq T Hp Op Ht) as M. fold kv in M.
  assert (Rq : Ledger_reqs l' = Ledger_reqs l /\ Ledger_psize l' = Ledger_psize l /\ micro l l' [fill_row (Ledger_psize l) r q kv t sm]).
  { unfold fill_page, fill_next in M. inv1 Hl; run Hl; simpl in M |- *; rewrite ?set_nth_twice; auto. }
  destruct Rq as (Q1 & Q2 & Q3).
  exists (mkLaunch r kv t (pn * Ledger_psize l + plen pg) sm). split; [reflexivity|].
  unfold row_of, good, toks_of, table_of. simpl. rewrite Q1, Q2, Hq. split; [|exists q; auto].
  replace (pn * Ledger_psize l + plen pg) with (slot_of (Ledger_psize l) (Req_table q) kv); [exact Q3|].
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
  | Some q => exists q' more, req_at l' r = Some q' /\ Req_table q' = Req_table q ++ more /\ Req_toks q' = Req_toks q /\
      Req_live q' = Req_live q /\ Req_sure q' = Req_sure q
  | None => req_at l' r = None
  end.
Proof.
  intros M r. induction M as [|l1 R l2 R2 M IH Mi].
  - destruct (req_at l r) as [q|]; [exists q, []; rewrite app_nil_r; auto|reflexivity].
  - pose proof (micro_reqs _ _ _ _ Mi r) as K. destruct (req_at l r) as [q|]; [|rewrite IH in K; exact K].
    destruct IH as (q1 & m1 & A & B & C & D & F). rewrite A in K. destruct K as (q2 & m2 & A2 & B2 & C2 & D2 & F2).
    exists q2, (m1 ++ m2). rewrite B2, B, C2, C, D2, D, F2, F, app_assoc. auto.
Qed.

(** [l'] is reached from [l] by micro-operations that launch exactly [gs] *)
Definition steps_to (l l' : Ledger) (gs : list Launch) : Prop := micros l l' (map (row_of l') gs) /\ Forall (good l') gs.

Lemma good_stable l1 l2 R g : 0 < Ledger_psize l1 -> micros l1 l2 R -> good l1 g -> row_of l2 g = row_of l1 g /\ good l2 g.
Proof.
  intros Ps M (q & H & K & T & Sm). pose proof (micros_reqs _ _ _ _ M (Launch_req g)) as X. rewrite H in X.
  destruct X as (q' & more & A & B & C & _ & F). pose proof (step_psize _ _ _ M) as Q. split.
  - unfold row_of, toks_of, table_of. rewrite H, A, B, C, Q. f_equal. apply map_ext_in. intros i Hi. apply in_seq in Hi.
    unfold slot_of. rewrite app_nth1; [reflexivity|]. apply Nat.div_lt_upper_bound; [lia|]. nia.
  - exists q'. rewrite B, C, F, Q, app_length. repeat split; auto. nia.
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
  intros Ps H. unfold fill in H. run H. the_loop F.
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
  intros Ps H. unfold step in H. run H. the_loop F.
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
Theorem commit_ok l r n t l' : commit l r n t = Some (l', true) ->
  exists q q' more kv, req_at l r = Some q /\ Req_live q = true /\ n = Req_sure q /\ kv_len l r = Some kv /\ n <= kv /\
    l' = upd_req l r q' /\ Req_live q' = true /\ Req_sure q' = n + 1 /\ Req_table q' = Req_table q /\
    Req_toks q' = Req_toks q ++ more /\
    (n <= length (Req_toks q) -> nth_error (Req_toks q') n = Some t /\ length (Req_toks q') = Nat.max (length (Req_toks q)) (n + 1)).
Proof.
  intros H. unfold commit in H. run H. simpl in *. unfold get in *. the_req l r q Hq.
  match goal with K : kv_len l r = Some ?x |- _ => rename K into Hk, x into kv end.
  match goal with K : (if _ then _ else Some l) = Some ?x |- _ => rename K into App, x into l8 end.
  match goal with K : nth_error (Ledger_reqs l8) r = Some ?x |- _ => rename K into H8, x into q8 end.
  match goal with K : (if _ then _ else Some false) = Some false |- _ => rename K into Guess end.
  destruct (Nat.ltb_spec (Req_sure q) (length (Req_toks q))) as [Lt|Ge]; simpl in App.
  - injection App as <-. rewrite Hq in H8. injection H8 as <-. run Guess.
    exists q, (set_Req_sure q (Req_sure q + 1)), [], kv. unfold upd_req, get in *. simpl. rewrite app_nil_r. repeat split; auto; [congruence|lia].
  - run App. simpl in *. rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl in H8. injection H8 as <-.
    exists q, (mkReq (Req_live q) (Req_sure q + 1) (Req_toks q ++ [t]) (Req_table q)), [t], kv. unfold upd_req. simpl. rewrite set_nth_twice.
    repeat split; auto.
    + rewrite nth_error_app2 by lia. replace (Req_sure q - length (Req_toks q)) with 0 by lia. reflexivity.
    + rewrite app_length. simpl. lia.
Qed.

Theorem draft_ok l r t l' : draft l r t = Some (l', true) ->
  exists q, req_at l r = Some q /\ Req_live q = true /\ l' = upd_req l r (set_Req_toks q (Req_toks q ++ [t])).
Proof. intros H. unfold draft in H. run H. unfold get in *. the_req l r q Hq. exists q. auto. Qed.

(** the pages of a table from its [k]-th on are given back *)
Definition released (l : Ledger) (r : nat) (q : Req) (k : nat) (l' : Ledger) : Prop :=
  Ledger_psize l' = Ledger_psize l /\ Ledger_next l' = Ledger_next l /\
  Ledger_reqs l' = set_nth (Ledger_reqs l) r (set_Req_table q (firstn k (Req_table q))) /\
  forall p, page_at l' p = option_map (fun pg => set_Page_pins pg (Page_pins pg - count_occ Nat.eq_dec (skipn k (Req_table q)) p)) (page_at l p).

Lemma firstn_S {A} (t : list A) i x : nth_error t i = Some x -> firstn (i + 1) t = firstn i t ++ [x].
Proof.
  revert i. induction t as [|a t IH]; intros [|i] H; simpl in *; try discriminate; [congruence|]. rewrite (IH i H). reflexivity.
Qed.
Lemma nth_skipn {A} : forall k (t : list A) i, nth_error (skipn k t) i = nth_error t (k + i).
Proof. intros k. induction k as [|k IH]; intros [|a t] i; simpl; try reflexivity; [destruct i; reflexivity|apply IH]. Qed.

Lemma nth_firstn_lt {A} : forall k (t : list A) i, i < k -> nth_error (firstn k t) i = nth_error t i.
Proof. intros k. induction k as [|k IH]; intros [|a t] [|i] Lt; simpl; try reflexivity; [lia|lia|apply IH; lia]. Qed.

(** what the loop has given back before it comes to position [i] *)
Definition back (k i : nat) (t : list nat) : list nat := firstn (i - k) (skipn k t).
Lemma back_more k i t p : k <= i -> nth_error t i = Some p -> back k (i + 1) t = back k i t ++ [p].
Proof.
  intros Le H. unfold back. replace (i + 1 - k) with (i - k + 1) by lia. apply firstn_S. rewrite nth_skipn. replace (k + (i - k)) with i by lia. exact H.
Qed.
Lemma back_all k t : back k (length t) t = skipn k t.
Proof. unfold back. apply firstn_all2. rewrite skipn_length. lia. Qed.

Definition pins_less (t : list nat) (p : nat) (pg : Page) : Page := set_Page_pins pg (Page_pins pg - count_occ Nat.eq_dec t p).
Lemma pins_less_nil p o : option_map (pins_less [] p) o = o.
Proof. destruct o as [pg|]; [|reflexivity]. unfold pins_less. simpl. rewrite Nat.sub_0_r. destruct pg; reflexivity. Qed.
Lemma pins_less_snoc t p p0 pg : pins_less (t ++ [p]) p0 pg =
  if Nat.eqb p0 p then set_Page_pins (pins_less t p0 pg) (Page_pins (pins_less t p0 pg) - 1) else pins_less t p0 pg.
Proof.
  unfold pins_less. rewrite count_occ_app. simpl. destruct (Nat.eqb_spec p0 p) as [->|Ne].
  - destruct (Nat.eq_dec p p); [|congruence]. unfold set_Page_pins. simpl. f_equal. lia.
  - destruct (Nat.eq_dec p p0); [congruence|]. rewrite Nat.add_0_r. reflexivity.
Qed.

Theorem release_ok l r k l' : release l r k = Some l' -> exists q, req_at l r = Some q /\ released l r q k l'.
Proof.
  intros H. unfold release in H. run H. simpl in *. unfold get in *. the_loop F. the_req l r q Hq.
  match type of F with _ = Some ?x => rename x into l1 end.
  match goal with K : nth_error (Ledger_reqs l1) r = Some ?x |- _ => rename x into q1, K into Hq1 end.
  assert (G : Ledger_psize l1 = Ledger_psize l /\ Ledger_next l1 = Ledger_next l /\ Ledger_reqs l1 = Ledger_reqs l /\
    forall p, page_at l1 p = option_map (pins_less (skipn k (Req_table q)) p) (page_at l p)).
  { destruct (Nat.le_gt_cases k (length (Req_table q))) as [Le|Gt].
    - rewrite <- back_all.
      refine (for_range_inv (fun i x => Ledger_psize x = Ledger_psize l /\ Ledger_next x = Ledger_next l /\ Ledger_reqs x = Ledger_reqs l /\
        forall p, page_at x p = option_map (pins_less (back k i (Req_table q)) p) (page_at l p)) _ _ _ _ _ _ _ _ F); [exact Le| |].
      + intros i x y Hi (I1 & I2 & I3 & I4) E. run E. simpl. repeat (split; [assumption|]). intros p0.
        unfold get in *. rewrite I3 in *. same_req l r q Hq.
        match goal with K : nth_error (Req_table q) i = Some ?n, G : nth_error (Ledger_pages x) ?n = Some ?pg |- _ => rename K into Ki, G into Gp, n into pn, pg into pgx end.
        rewrite (nth_set_nth _ _ _ _ _ Gp), (back_more _ _ _ _ (proj1 Hi) Ki). rewrite I4 in *.
        destruct (Nat.eqb_spec p0 pn) as [->|Ne].
        * destruct (page_at l pn) as [pg|]; [|discriminate]. cbn [option_map] in *. injection Gp as <-. rewrite pins_less_snoc, Nat.eqb_refl. reflexivity.
        * destruct (page_at l p0) as [pg|]; [|reflexivity]. cbn [option_map]. rewrite pins_less_snoc. destruct (Nat.eqb_spec p0 pn); [contradiction|reflexivity].
      + repeat (split; [reflexivity|]). intros p. unfold back. rewrite Nat.sub_diag, firstn_O, pins_less_nil. reflexivity.
    - unfold for_range in F. replace (length (Req_table q) - k) with 0 in F by lia. injection F as <-. rewrite skipn_all2 by lia.
      repeat (split; [reflexivity|]). intros p. rewrite pins_less_nil. reflexivity. }
  destruct G as (G1 & G2 & G3 & G4). rewrite G3, Hq in Hq1. injection Hq1 as <-.
  exists q. split; [exact Hq|]. unfold released. simpl. rewrite G3. auto.
Qed.

Theorem unpin_ok l r l' : unpin l r = Some (l', true) -> exists q, req_at l r = Some q /\ unpinned l r q l'.
Proof.
  intros H. unfold unpin in H. run H. match goal with K : release l r 0 = Some _ |- _ => apply release_ok in K as (q & Hq & Rl) end.
  exists q. split; [exact Hq|]. exact Rl.
Qed.

(** what [truncate] does after it has given pages back *)
Lemma truncated_by P l r q whole rest l1 l2 n : n = whole * P + rest -> rest < P -> n <= length (Req_toks q) -> req_at l r = Some q ->
  released l r q (held_on whole rest) l1 ->
  Ledger_psize l2 = Ledger_psize l1 -> Ledger_next l2 = Ledger_next l1 -> Ledger_reqs l2 = Ledger_reqs l1 ->
  (forall p, page_at l2 p = option_map (fun pg => if cut q whole rest p then set_Page_toks pg (firstn rest (Page_toks pg)) else pg) (page_at l1 p)) ->
  (forall p pg, page_at l p = Some pg -> cut q whole rest p = true -> rest < plen pg -> Page_pins pg = 1) ->
  req_at l2 r = Some (set_Req_table q (firstn (held_on whole rest) (Req_table q))) /\
  truncated P l r q whole rest (upd_req l2 r (set_Req_toks (set_Req_table q (firstn (held_on whole rest) (Req_table q))) (firstn n (Req_toks q)))).
Proof.
  intros -> Rl Nl Hq (A & B & C & D) A2 B2 C2 D2 Own. split.
  - rewrite C2, C, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. reflexivity.
  - split; [exact Rl|]. split; [exact Nl|]. split; [simpl; congruence|]. split; [simpl; congruence|]. split.
    + simpl. rewrite C2, C, set_nth_twice. reflexivity.
    + split; [exact Own|]. intros p. simpl. rewrite D2, D. destruct (page_at l p) as [pg|]; [|reflexivity]. cbn [option_map].
      unfold cut_page. destruct (cut q whole rest p); reflexivity.
Qed.

Theorem truncate_ok l r n l' : 0 < Ledger_psize l -> truncate l r n = Some (l', true) -> exists q whole rest,
  req_at l r = Some q /\ Req_live q = true /\ n = whole * Ledger_psize l + rest /\ Req_sure q <= n /\ truncated (Ledger_psize l) l r q whole rest l'.
Proof.
  intros Ps H. unfold truncate in H. set (P := Ledger_psize l) in *.
  pose proof (Nat.div_mod n P ltac:(lia)) as Dm. pose proof (Nat.mod_upper_bound n P ltac:(lia)) as Mb.
  assert (Er : n - n / P * P = n mod P) by lia. assert (En : n = n / P * P + n mod P) by lia.
  run H; try discriminate; simpl in *; unfold get in *; the_req l r q Hq; rewrite Er in *;
  match goal with K : release l r _ = Some ?x |- _ => rename x into l1, K into Rel; apply release_ok in Rel as (q' & Hq' & Rel) end;
  rewrite Hq in Hq'; injection Hq' as <-; pose proof (proj1 (proj2 (proj2 Rel))) as Rq;
  exists q, (n / P), (n mod P); (split; [exact Hq|]); (split; [assumption|]); (split; [exact En|]); (split; [assumption|]).
  - match goal with K : (if _ then _ else Some l1) = Some ?x |- _ => rename K into Cut, x into l2 end.
    match goal with K : (if _ then _ else Some false) = Some false |- _ => rename K into Shared end.
    match goal with K : 0 < n mod P |- _ => rename K into Rp end.
    match goal with K : nth_error (Ledger_reqs l1) r = Some ?x, K2 : nth_error (Ledger_reqs l2) r = Some ?y |- _ => rename K into Hr1, x into q1, K2 into Hr2, y into q2 end.
    rewrite Rq, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl in Hr1. injection Hr1 as <-. cbn [set_Req_table Req_table] in Cut. rewrite firstn_length in Cut.
    assert (Hd : held_on (n / P) (n mod P) = n / P + 1) by (unfold held_on; destruct (Nat.ltb_spec 0 (n mod P)); [reflexivity|lia]).
    rewrite <- Hd in Rel, Rq.
    assert (Own : forall p pg, page_at l p = Some pg -> cut q (n / P) (n mod P) p = true -> n mod P < plen pg -> Page_pins pg = 1).
    { clear Cut. intros p pg Hp C Lp. unfold cut in C. apply andb_true_iff in C as [_ C].
      destruct (nth_error (Req_table q) (n / P)) as [pn|] eqn:Np; [|discriminate]. apply Nat.eqb_eq in C as ->.
      assert (Lt : n / P < length (Req_table q)) by (apply nth_error_Some; congruence). apply Nat.ltb_lt in Lt, Lp.
      rewrite Lt in Shared. cbn [bind] in Shared. rewrite Hp in Shared. cbn [bind] in Shared. rewrite Lp in Shared. cbn [bind] in Shared.
      run Shared. assumption. }
    clear Shared.
    assert (Tb : Ledger_reqs l2 = Ledger_reqs l1 /\ Ledger_psize l2 = Ledger_psize l1 /\ Ledger_next l2 = Ledger_next l1 /\
      (forall p, page_at l2 p = option_map (fun pg => if cut q (n / P) (n mod P) p then set_Page_toks pg (firstn (n mod P) (Page_toks pg)) else pg) (page_at l1 p))).
    { unfold cut. destruct (Nat.ltb_spec 0 (n mod P)) as [_|]; [cbn [andb]|lia].
      destruct (Nat.ltb_spec (n / P) (length (Req_table q))) as [Lt|Ge].
      - destruct (nth_error (Req_table q) (n / P)) as [pn|] eqn:Np; [|apply nth_error_None in Np; lia].
        destruct (Nat.ltb_spec (n / P) (Nat.min (n / P + 1) (length (Req_table q)))) as [_|]; [|lia].
        rewrite nth_firstn_lt, Np in Cut by lia. cbn [bind] in Cut.
        destruct (nth_error (Ledger_pages l1) pn) as [pg1|] eqn:Hp1; [|discriminate]. cbn [bind] in Cut. run Cut. simpl.
        repeat (split; [reflexivity|]). intros p. rewrite (nth_set_nth _ _ _ _ _ Hp1). destruct (Nat.eqb_spec p pn) as [->|Ne].
        + rewrite Hp1. reflexivity.
        + destruct (nth_error (Ledger_pages l1) p); reflexivity.
      - rewrite (proj2 (nth_error_None _ _) Ge).
        destruct (Nat.ltb_spec (n / P) (Nat.min (n / P + 1) (length (Req_table q)))) as [|_]; [lia|]. injection Cut as <-.
        repeat (split; [reflexivity|]). intros p. destruct (nth_error (Ledger_pages l1) p); reflexivity. }
    destruct Tb as (T1 & T2 & T3 & T4).
    match goal with K : n <= length (Req_toks q) |- _ => destruct (truncated_by P l r q (n / P) (n mod P) l1 l2 n En Mb K Hq Rel T2 T3 T1 T4 Own) as [E T] end.
    rewrite E in Hr2. injection Hr2 as <-. exact T.
  - assert (Hd : held_on (n / P) (n mod P) = n / P) by (unfold held_on; destruct (Nat.ltb_spec 0 (n mod P)); [lia|reflexivity]).
    rewrite <- Hd in Rel. match goal with K : nth_error (Ledger_reqs l1) r = Some ?x |- _ => rename K into Hr1, x into q1 end.
    match goal with K : n <= length (Req_toks q) |- _ => destruct (truncated_by P l r q (n / P) (n mod P) l1 l1 n En Mb K Hq Rel eq_refl eq_refl eq_refl) as [E T] end.
    + intros p. unfold cut. destruct (Nat.ltb_spec 0 (n mod P)); [lia|]. destruct (page_at l1 p); reflexivity.
    + intros p pg _ C. unfold cut in C. destruct (Nat.ltb_spec 0 (n mod P)); [lia|discriminate].
    + rewrite E in Hr1. injection Hr1 as <-. exact T.
Qed.

(** The trace theorem about the translated Rust text itself. *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference Core Prims LedgerTypes LedgerFns Pages FnsOk Spec.

Lemma list_ext {A} : forall l1 l2 : list A, (forall i, nth_error l1 i = nth_error l2 i) -> l1 = l2.
Proof.
  intros l1. induction l1 as [|a l1 IH]; intros [|b l2] H; try reflexivity; try (specialize (H 0); discriminate).
  pose proof (H 0) as E. injection E as ->. f_equal. apply IH. intros i. exact (H (S i)).
Qed.

(** a loop that rewrites every element of a list *)
Lemma reset_ok l l' : reset l = Some l' ->
  l' = mkLedger (Ledger_psize l) (Ledger_next l) (map (fun _ => mkPage 0 0 0 []) (Ledger_pages l))
                (map (fun q => set_Req_table q []) (Ledger_reqs l)).
Proof.
  intros H. unfold reset in H. run H.
  match goal with H : for_range 0 (length (Ledger_reqs l)) _ _ = Some ?x |- _ => rename H into F1, x into l1 end.
  match goal with H : for_range 0 (length (Ledger_pages l1)) _ _ = Some _ |- _ => rename H into F2 end.
  assert (G1 : Ledger_psize l1 = Ledger_psize l /\ Ledger_next l1 = Ledger_next l /\ Ledger_pages l1 = Ledger_pages l /\
    forall i, nth_error (Ledger_reqs l1) i = option_map (fun q => if i <? length (Ledger_reqs l) then set_Req_table q [] else q) (nth_error (Ledger_reqs l) i)).
  { refine (for_range_inv (fun n x => Ledger_psize x = Ledger_psize l /\ Ledger_next x = Ledger_next l /\ Ledger_pages x = Ledger_pages l /\
      forall i, nth_error (Ledger_reqs x) i = option_map (fun q => if i <? n then set_Req_table q [] else q) (nth_error (Ledger_reqs l) i)) _ _ _ _ _ _ _ _ F1); [lia| |].
    - intros n x y Hn (A & B & C & E) K. run K. unfold get in *. simpl. repeat (split; [assumption|]). intros i.
      match goal with K : nth_error (Ledger_reqs x) n = Some ?q |- _ => rewrite (nth_set_nth _ _ _ _ _ K); rewrite E in K; rename K into Kn end.
      destruct (Nat.eqb_spec i n) as [->|Ne].
      + destruct (nth_error (Ledger_reqs l) n) as [q|]; [|discriminate]. injection Kn as <-. simpl.
        destruct (Nat.ltb_spec n (n + 1)); [|lia]. destruct (n <? n); reflexivity.
      + rewrite E. destruct (nth_error (Ledger_reqs l) i); [|reflexivity]. simpl.
        destruct (Nat.ltb_spec i n), (Nat.ltb_spec i (n + 1)); try lia; reflexivity.
    - repeat (split; [reflexivity|]). intros i. destruct (nth_error (Ledger_reqs l) i); reflexivity. }
  destruct G1 as (A & B & C & E).
  assert (G2 : Ledger_psize l' = Ledger_psize l1 /\ Ledger_next l' = Ledger_next l1 /\ Ledger_reqs l' = Ledger_reqs l1 /\
    forall i, nth_error (Ledger_pages l') i = option_map (fun q => if i <? length (Ledger_pages l1) then mkPage 0 0 0 [] else q) (nth_error (Ledger_pages l1) i)).
  { refine (for_range_inv (fun n x => Ledger_psize x = Ledger_psize l1 /\ Ledger_next x = Ledger_next l1 /\ Ledger_reqs x = Ledger_reqs l1 /\
      forall i, nth_error (Ledger_pages x) i = option_map (fun q => if i <? n then mkPage 0 0 0 [] else q) (nth_error (Ledger_pages l1) i)) _ _ _ _ _ _ _ _ F2); [lia| |].
    - intros n x y Hn (A' & B' & C' & E') K. cbv zeta in K. inv1 K. injection K as <-. simpl. repeat (split; [assumption|]). intros i.
      match goal with K : put _ _ _ = Some _ |- _ => apply put_inv in K; subst end.
      destruct (nth_error (Ledger_pages x) n) as [px|] eqn:Kn.
      + rewrite (nth_set_nth _ _ _ _ _ Kn). rewrite E' in Kn. destruct (Nat.eqb_spec i n) as [->|Ne].
        * destruct (nth_error (Ledger_pages l1) n); [|discriminate]. simpl. destruct (Nat.ltb_spec n (n + 1)); [reflexivity|lia].
        * rewrite E'. destruct (nth_error (Ledger_pages l1) i); [|reflexivity]. simpl.
          destruct (Nat.ltb_spec i n), (Nat.ltb_spec i (n + 1)); try lia; reflexivity.
      + rewrite E' in Kn. destruct (nth_error (Ledger_pages l1) n) eqn:Z; [discriminate|]. apply nth_error_None in Z. lia.
    - repeat (split; [reflexivity|]). intros i. destruct (nth_error (Ledger_pages l1) i); reflexivity. }
  destruct G2 as (A' & B' & C' & E').
  destruct l' as [ps nx pgs rqs]. simpl in *. subst ps nx rqs. rewrite A, B. f_equal.
  - apply list_ext. intros i. rewrite E', nth_error_map, C. destruct (nth_error (Ledger_pages l) i) eqn:Z; [|reflexivity]. simpl.
    assert (i < length (Ledger_pages l)) by (apply nth_error_Some; congruence). destruct (Nat.ltb_spec i (length (Ledger_pages l))); [reflexivity|lia].
  - apply list_ext. intros i. rewrite E, nth_error_map. destruct (nth_error (Ledger_reqs l) i) eqn:Z; [|reflexivity]. simpl.
    assert (i < length (Ledger_reqs l)) by (apply nth_error_Some; congruence). destruct (Nat.ltb_spec i (length (Ledger_reqs l))); [reflexivity|lia].
Qed.

Lemma admit_ok l p l' r : admit l p = Some (l', r) ->
  r = length (Ledger_reqs l) /\ l' = set_Ledger_reqs l (Ledger_reqs l ++ [mkReq true (length p) p []]).
Proof. unfold admit. intros [= <- <-]. auto. Qed.

Lemma finish_ok l r l' : finish l r = Some (l', true) -> exists l1 q,
  unpin l r = Some (l1, true) /\ nth_error (Ledger_reqs l1) r = Some q /\ l' = upd_req l1 r (mkReq false 0 [] (Req_table q)).
Proof.
  intros H. unfold finish in H. run H. simpl in *. eexists _, _. split; [reflexivity|]. unfold get in *. split; [eassumption|].
  repeat match goal with Hn : nth_error (set_nth _ _ _) _ = Some _, Ho : nth_error (Ledger_reqs _) _ = Some _ |- _ =>
    rewrite ?set_nth_twice, (nth_set_nth _ _ _ _ _ Ho), Nat.eqb_refl in Hn; injection Hn as <- end.
  unfold upd_req, set_Ledger_reqs. simpl. rewrite !set_nth_twice. reflexivity.
Qed.

Lemma readmit_ok l r p l' : readmit l r p = Some (l', true) -> exists q,
  nth_error (Ledger_reqs l) r = Some q /\ Req_live q = false /\ Req_table q = [] /\ l' = upd_req l r (mkReq true (length p) p []).
Proof.
  intros H. unfold readmit in H. run H. unfold get in *. eexists. split; [eassumption|]. split; [assumption|]. split; [|reflexivity].
  destruct (Req_table _); [reflexivity|discriminate].
Qed.

Lemma create_ok P n l : create P n = Some l -> l = init_ledger P n /\ 0 < P /\ fits 64 (P * n) = true.
Proof.
  intros H. unfold create, assert_u, mul_u in H. destruct (Nat.ltb_spec 0 P) as [Pp|]; [|discriminate]. cbn [bind] in H.
  destruct (fits 64 (P * n)) eqn:F; [|discriminate]. cbn [bind] in H. cbv zeta in H.
  assert (L : for_range 0 n [] (fun (_ : nat) (pages : list Page) => Some (pages ++ [mkPage 0 0 0 []])) = Some (repeat (mkPage 0 0 0 []) n)).
  { unfold for_range. rewrite Nat.sub_0_r. clear. enough (G : forall a acc, for_n n a (fun (_ : nat) (pages : list Page) => Some (pages ++ [mkPage 0 0 0 []])) acc = Some (acc ++ repeat (mkPage 0 0 0 []) n)) by apply G.
    induction n as [|n IH]; intros a acc; simpl; [rewrite app_nil_r; reflexivity|]. rewrite IH, <- app_assoc. reflexivity. }
  rewrite L in H. cbn [bind] in H. injection H as <-. auto.
Qed.

Lemma micros_shape Q l l' R : Pages.micros Q l l' R ->
  Ledger_next l <= Ledger_next l' /\ length (Ledger_pages l') = length (Ledger_pages l) /\ Ledger_psize l' = Ledger_psize l.
Proof.
  induction 1 as [|l1 R l2 R2 M (A & B & C) Mi]; [auto|]. rewrite <- B, <- C.
  destruct Mi; simpl; unfold upd_page, upd_req, fill_next; simpl; rewrite ?set_nth_length; repeat split; auto.
  destruct (Nat.eqb _ _); lia.
Qed.

Section EndToEnd.
Variables cell logits params : Type.
Variable row_fn : nat -> nat -> list cell -> cell * logits.
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.
Hypothesis Ppos : 0 < P.
Notation rq := (Reference.rq nat logits params).
Notation Rq := (Reference.Rq nat logits params).
Notation hist := (Reference.hist nat logits params).
Notation solution := (Core.solution nat cell logits row_fn).
Notation row_out := (Core.row_out nat cell logits row_fn).
Notation core_commit := (Core.commit nat cell logits params Nat.eq_dec row_fn sample).
Notation preachable := (Pages.preachable cell logits params row_fn sample P).
Notation Pst := (Pages.Pst cell logits params).
Notation req_at l r := (nth_error (Ledger_reqs l) r).
Notation machine := (Spec.machine cell logits params).
Notation Ma := (Spec.Ma cell logits params).
Notation x_mem := (Spec.x_mem cell logits params).
Notation x_led := (Spec.x_led cell logits params).
Notation x_rq := (Spec.x_rq cell logits params).
Notation x_past := (Spec.x_past cell logits params).
Notation event := (Spec.event cell logits params row_fn sample P).
Notation xreachable := (Spec.reachable cell logits params row_fn sample P).
Notation sampled := (Spec.sampled cell logits params row_fn sample).
Notation launch_out := (Spec.launch_out cell logits row_fn).
Notation runs := (Spec.runs cell logits row_fn).

(** a launch record as a row of [Core], with a flag of its own *)
Definition flagged (l : Ledger) (g : Launch) (b : bool) : row nat :=
  Row nat (Launch_req g) (r_ctx nat (row_of l g)) (Launch_tok g) (r_reads nat (row_of l g)) (Launch_slot g) b.
Lemma launch_out_row l m g b : launch_out l m g = row_out m (flagged l g b).
Proof.
  unfold Spec.launch_out, Core.row_out, Spec.launch_reads. simpl. rewrite !map_length, seq_length. reflexivity.
Qed.
Lemma runs_solution l gs m m' : runs l gs m m' <-> solution (map (row_of l) gs) m m'.
Proof.
  assert (Eq : forall g, launch_out l m' g = row_out m' (row_of l g)) by (intros g; exact (launch_out_row l m' g (Launch_sample g))).
  unfold Spec.runs, Core.solution, writes. rewrite map_map. simpl. split; intros [H1 H2]; (split; [|exact H2]).
  - intros r I. apply in_map_iff in I as [g [<- I]]. rewrite <- Eq. exact (H1 g I).
  - intros g I. rewrite Eq. exact (H1 (row_of l g) (in_map _ _ _ I)).
Qed.

Definition Sync (l : Ledger) (Q : nat -> option rq) : Prop := forall r,
  match req_at l r with
  | Some q => exists q0, Q r = Some q0 /\ Req_live q = live _ _ _ q0 /\
      (Req_live q = true -> Req_sure q <= length (Req_toks q) /\ firstn (Req_sure q) (Req_toks q) = hist q0)
  | None => Q r = None
  end.

(** how many positions of a request are computed *)
Definition kvn (l : Ledger) (q : Req) : nat :=
  match rev (Req_table q) with
  | [] => 0
  | p :: t => length t * Ledger_psize l + match nth_error (Ledger_pages l) p with Some pg => length (Page_toks pg) | None => 0 end
  end.
Lemma kvn_snoc l q t0 p pg : Req_table q = t0 ++ [p] -> nth_error (Ledger_pages l) p = Some pg ->
  kvn l q = length t0 * Ledger_psize l + length (Page_toks pg).
Proof. intros T Hp. unfold kvn. rewrite T, rev_app_distr. simpl. rewrite rev_length, Hp. reflexivity. Qed.
Lemma kv_kvn l r q kv : req_at l r = Some q -> kv_len l r = Some kv -> kvn l q = kv.
Proof.
  intros Hq K. destruct (kv_len_ok _ _ _ _ K Hq) as [[T ->]|(t0 & p & pg & T & Hp & ->)].
  - unfold kvn. rewrite T. reflexivity.
  - exact (kvn_snoc l q t0 p pg T Hp).
Qed.
Lemma table_cases (t : list nat) : t = [] \/ exists t0 p, t = t0 ++ [p].
Proof. destruct t as [|x t _] using rev_ind; [auto|right; eauto]. Qed.
Lemma kvn_last D l r q t0 p : PInv P D l -> req_at l r = Some q -> Req_table q = t0 ++ [p] -> exists pg, nth_error (Ledger_pages l) p = Some pg /\
  kvn l q = length t0 * P + length (Page_toks pg) /\ length (Page_toks pg) <= P /\ kvn l q <= length (Req_toks q).
Proof.
  intros I Hq T. destruct (I_req _ _ _ I r q (length t0) p Hq) as (pg & suf & Hp & Ln & E & _).
  { rewrite T, nth_error_app2, Nat.sub_diag by lia. reflexivity. }
  exists pg. split; [exact Hp|]. rewrite (kvn_snoc l q t0 p pg T Hp), (I_psize _ _ _ I). split; [reflexivity|].
  split; [exact (proj1 (proj2 (I_page _ _ _ I _ _ Hp)))|]. rewrite E, !app_length, Ln. lia.
Qed.
Lemma kvn_bound D l r q : PInv P D l -> req_at l r = Some q -> kvn l q <= length (Req_toks q).
Proof.
  intros I Hq. destruct (table_cases (Req_table q)) as [T|(t0 & p & T)]; [unfold kvn; rewrite T; simpl; lia|].
  destruct (kvn_last D l r q t0 p I Hq T) as (pg & _ & _ & _ & B). exact B.
Qed.

(** dropping guesses computes nothing, and changes no token that stays *)
Lemma truncated_kvn D l r q whole rest l' x qx qx' : PInv P D l -> req_at l r = Some q -> truncated P l r q whole rest l' ->
  req_at l x = Some qx -> req_at l' x = Some qx' ->
  kvn l' qx' <= kvn l qx /\ Req_toks qx' = firstn (length (Req_toks qx')) (Req_toks qx).
Proof.
  intros I Hq Tr Hx Hx'. pose proof Tr as (Rl & Nl & U1 & _ & U3 & _ & U4). destruct (truncated_inv P Ppos D l r q whole rest l' I Hq Tr) as [I' _].
  assert (Less : forall p pg pg', nth_error (Ledger_pages l) p = Some pg -> nth_error (Ledger_pages l') p = Some pg' -> length (Page_toks pg') <= length (Page_toks pg)).
  { intros p pg pg' Hp Hp'. rewrite U4, Hp in Hp'. injection Hp' as <-. destruct (cut_toks q whole rest p pg) as [more E]. rewrite E, app_length. lia. }
  rewrite U3, (nth_set_nth _ _ _ _ _ Hq) in Hx'. destruct (Nat.eqb_spec x r) as [->|Ne].
  - rewrite Hq in Hx. injection Hx as <-. injection Hx' as <-. assert (Hx' : req_at l' r = Some (cut_req P q whole rest)) by (rewrite U3, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl; reflexivity).
    split; [|cbn [cut_req Req_toks]; rewrite firstn_length, Nat.min_l by lia; reflexivity].
    destruct (table_cases (firstn (held_on whole rest) (Req_table q))) as [T'|(t0' & p' & T')]; [unfold kvn at 1; cbn [cut_req Req_table]; rewrite T'; simpl; lia|].
    destruct (kvn_last D l' r _ t0' p' I' Hx' T') as (pg' & Hp' & -> & Lp' & _).
    destruct (table_cases (Req_table q)) as [T|(t0 & p & T)]; [rewrite T, firstn_nil in T'; destruct t0'; discriminate|].
    destruct (kvn_last D l r q t0 p I Hq T) as (pg & Hp & -> & Lp & _).
    pose proof (f_equal (@length nat) T') as L'. pose proof (f_equal (@length nat) T) as L. rewrite firstn_length in L'. rewrite !app_length in *. simpl in L, L'.
    destruct (Nat.lt_ge_cases (held_on whole rest) (length (Req_table q))) as [Lt|Ge]; [nia|].
    rewrite firstn_all2, T in T' by lia. apply app_inj_tail in T' as [<- <-]. pose proof (Less p pg pg' Hp Hp'). lia.
  - rewrite Hx in Hx'. injection Hx' as <-. split; [|symmetry; apply firstn_all].
    destruct (table_cases (Req_table qx)) as [T|(t0 & p & T)]; [unfold kvn; rewrite T; simpl; lia|].
    destruct (kvn_last D l x qx t0 p I Hx T) as (pg & Hp & -> & _). assert (Hx' : req_at l' x = Some qx).
    { rewrite U3, (nth_set_nth _ _ _ _ _ Hq). destruct (Nat.eqb_spec x r); [contradiction|exact Hx]. }
    destruct (kvn_last D l' x qx t0 p I' Hx' T) as (pg' & Hp' & -> & _). pose proof (Less p pg pg' Hp Hp'). lia.
Qed.

(** from the step to its commits, nothing that is computed changes its meaning *)
Definition kept (l1 l : Ledger) : Prop := forall r q1, req_at l1 r = Some q1 ->
  exists q, req_at l r = Some q /\ firstn (kvn l q) (Req_toks q) = firstn (kvn l q) (Req_toks q1).
Lemma kept_refl l : kept l l.
Proof. intros r q H. exists q. auto. Qed.
Lemma firstn_less {A} (a b : list A) n m : firstn n a = firstn n b -> m <= n -> firstn m a = firstn m b.
Proof. intros E Le. rewrite <- (Nat.min_l m n Le), <- !firstn_firstn, E. reflexivity. Qed.

Lemma kept_truncated D l1 l r q whole rest l' : PInv P D l -> kept l1 l -> req_at l r = Some q -> truncated P l r q whole rest l' -> kept l1 l'.
Proof.
  intros I K Hq Tr x q1 H1. destruct (K x q1 H1) as (qx & Hx & E).
  assert (X : exists qx', req_at l' x = Some qx').
  { destruct Tr as (_ & _ & _ & _ & U3 & _). rewrite U3, (nth_set_nth _ _ _ _ _ Hq). destruct (Nat.eqb x r); eauto. }
  destruct X as [qx' Hx']. exists qx'. split; [exact Hx'|].
  destruct (truncated_kvn D l r q whole rest l' x qx qx' I Hq Tr Hx Hx') as [Le Et].
  destruct (truncated_inv P Ppos D l r q whole rest l' I Hq Tr) as [I' _]. pose proof (kvn_bound D l' x qx' I' Hx') as B.
  rewrite <- (firstn_less _ _ _ _ E Le), Et, firstn_firstn, Nat.min_l by exact B. reflexivity.
Qed.

Lemma append_kvn l r q q' x qx qx' : req_at l r = Some q -> Req_table q' = Req_table q -> req_at l x = Some qx ->
  req_at (upd_req l r q') x = Some qx' -> kvn (upd_req l r q') qx' = kvn l qx.
Proof.
  intros Hq Tq Hx Hx'. simpl in Hx'. rewrite (nth_set_nth _ _ _ _ _ Hq) in Hx'. unfold kvn. simpl. destruct (Nat.eqb_spec x r) as [->|Ne].
  - injection Hx' as <-. rewrite Hq in Hx. injection Hx as <-. rewrite Tq. reflexivity.
  - rewrite Hx in Hx'. injection Hx' as <-. reflexivity.
Qed.

Lemma sync_truncated l Q r q whole rest l' : Sync l Q -> req_at l r = Some q -> truncated P l r q whole rest l' -> Req_sure q <= whole * P + rest -> Sync l' Q.
Proof.
  intros Sy Hq (_ & Nl & _ & _ & U3 & _) Le x. rewrite U3, (nth_set_nth _ _ _ _ _ Hq). pose proof (Sy x) as X. destruct (Nat.eqb_spec x r) as [->|Ne]; [|exact X].
  rewrite Hq in X. destruct X as (q0 & X1 & X2 & X3). exists q0. split; [exact X1|]. split; [exact X2|]. cbn [cut_req Req_live Req_sure Req_toks].
  intros Lq. destruct (X3 Lq) as [X4 X5]. rewrite firstn_length, firstn_firstn, !Nat.min_l by lia. auto.
Qed.

Lemma sampled_ok D l1 m' l Q gs l2 Q2 : sampled l1 m' l Q gs l2 Q2 -> PInv P D l ->
  kept l1 l -> Sync l Q -> Forall (good l1) gs -> exists R',
  Forall2 same_row (map (row_of l1) gs) R' /\
  Q2 = fold_left (core_commit m') R' Q /\ Sync l2 Q2 /\
  (forall QF past, preachable (Pst m' l QF past) -> preachable (Pst m' l2 QF past)).
Proof.
  intros Rs. induction Rs as [l Q | l Q g gs l' Q' Rs IH | l Q g gs q0 lg t l2 l' Q' Sm Hq0 Elg Et Cm Rs IH | l Q gs r n l2 l' Q' Cm Rs IH]; intros I Kp Sy Go.
  - exists []. split; [constructor|]. split; [reflexivity|]. split; [exact Sy|auto].
  - apply Forall_cons_iff in Go as [Gg Ggs]. destruct (IH I Kp Sy Ggs) as (R' & F & E & S2 & Pr).
    exists (flagged l1 g false :: R'). split; [constructor; [repeat split|exact F]|]. split; [|split; [exact S2|exact Pr]].
    simpl. rewrite E. f_equal. unfold core_commit. simpl. destruct (Q (Launch_req g)); reflexivity.
  - apply Forall_cons_iff in Go as [Gg Ggs]. destruct Gg as (q1 & H1 & Kb & Tk & _).
    apply commit_ok in Cm as (q & q' & more & kv & Hq & Lq & En & Kv & Le & -> & Lq' & Sq' & Tq' & Mq' & Nt).
    destruct (Kp _ _ H1) as (q2 & Hq2 & Kq). rewrite Hq in Hq2. injection Hq2 as <-.
    apply (kv_kvn l _ q kv Hq) in Kv. rewrite Kv in Kq. apply (firstn_less _ _ _ _ Kq) in Le as Pre.
    pose proof (kvn_bound D l _ q I Hq) as Bd. rewrite Kv in Bd.
    pose proof (Sy (Launch_req g)) as X. rewrite Hq in X. destruct X as (q0' & X1 & X3 & X2). rewrite Hq0 in X1. injection X1 as <-.
    destruct (X2 Lq) as [X4 X5]. rewrite (launch_out_row l1 m' g true) in Elg. rewrite <- En in X4, X5.
    assert (Lh : length (hist q0) = Launch_pos g + 1) by (rewrite <- X5, firstn_length; lia).
    assert (Full : r_full nat (flagged l1 g true) = hist q0).
    { rewrite <- X5, Pre, (firstn_S _ _ _ Tk). unfold r_full, flagged, row_of, toks_of. simpl. rewrite H1. reflexivity. }
    assert (Cc : core_commit m' Q (flagged l1 g true) = upd Q (Launch_req g) (Some (Spec.received logits params q0 t lg))).
    { unfold Core.commit. change (r_req nat (flagged l1 g true)) with (Launch_req g). rewrite Hq0.
      change (r_samp nat (flagged l1 g true)) with true. rewrite <- X3, Lq.
      destruct (list_eq_dec Nat.eq_dec (r_full nat (flagged l1 g true)) (hist q0)) as [_|Ne]; [|contradiction]. cbn [andb].
      unfold Spec.received. rewrite <- Elg. subst t. rewrite Lh, <- X3, Lq. reflexivity. }
    destruct IH as (R' & F & E & S2 & Pr).
    + exact (append_inv P Ppos D l _ q q' more I Hq Tq' Mq').
    + intros x qx1 Hx1. destruct (Kp x qx1 Hx1) as (qx & Hx & Ex).
      assert (X : exists qx', req_at (upd_req l (Launch_req g) q') x = Some qx' /\ exists m, Req_toks qx' = Req_toks qx ++ m).
      { simpl. rewrite (nth_set_nth _ _ _ _ _ Hq). destruct (Nat.eqb_spec x (Launch_req g)) as [->|Ne].
        - rewrite Hq in Hx. injection Hx as <-. exists q'. eauto.
        - exists qx. split; [exact Hx|]. exists []. symmetry. apply app_nil_r. }
      destruct X as (qx' & Hx' & m & Em). exists qx'. split; [exact Hx'|]. rewrite (append_kvn l _ q q' x qx qx' Hq Tq' Hx Hx'), Em.
      pose proof (kvn_bound D l x qx I Hx) as Bx. rewrite firstn_app. replace (kvn l qx - length (Req_toks qx)) with 0 by lia.
      rewrite firstn_O, app_nil_r. exact Ex.
    + intros x. simpl. rewrite (nth_set_nth _ _ _ _ _ Hq). unfold upd. destruct (Nat.eqb_spec x (Launch_req g)) as [->|Ne]; [|exact (Sy x)].
      eexists. split; [reflexivity|]. split; [rewrite Lq', <- Lq; exact X3|]. intros _. destruct (Nt X4) as [Nt1 _]. rewrite Sq'. split.
      * enough (Launch_pos g + 1 < length (Req_toks q')) by lia. apply nth_error_Some. congruence.
      * rewrite (firstn_S _ _ _ Nt1), Mq', firstn_app. replace (Launch_pos g + 1 - length (Req_toks q)) with 0 by lia.
        rewrite firstn_O, app_nil_r, X5. unfold Reference.hist. simpl. rewrite map_app, app_assoc. reflexivity.
    + exact Ggs.
    + exists (flagged l1 g true :: R'). split; [constructor; [repeat split|exact F]|].
      split; [simpl; rewrite Cc; exact E|]. split; [exact S2|]. intros QF past R. apply Pr.
      eapply PR_event; [exact R|]. exact (PE_append _ _ _ _ _ _ (Pst m' l QF past) _ q q' more Hq Tq' Mq').
  - pose proof (I_psize _ _ _ I) as Ps.
    apply truncate_ok in Cm as (q & whole & rest & Hq & _ & En & Sq & Tr); [|lia]. rewrite Ps in En, Tr. subst n.
    destruct (truncated_inv P Ppos D l r q whole rest l2 I Hq Tr) as [I2 _].
    destruct (IH I2 (kept_truncated D l1 l r q whole rest l2 I Kp Hq Tr) (sync_truncated l Q r q whole rest l2 Sy Hq Tr Sq) Go) as (R' & F & E & S2 & Pr).
    exists R'. repeat (split; [assumption|]). intros QF past R. apply Pr. eapply PR_event; [exact R|].
    exact (PE_truncate _ _ _ _ _ _ (Pst m' l QF past) r q whole rest l2 Hq Tr).
Qed.

(** [reset] after a refused step forgets whatever the step did *)
Lemma reset_after l l1 R : Ledger_psize l = P -> Pages.micros P l l1 R ->
  map (fun q => set_Req_table q []) (Ledger_reqs l1) = map (fun q => set_Req_table q []) (Ledger_reqs l) /\
  map (fun _ : Page => mkPage 0 0 0 []) (Ledger_pages l1) = map (fun _ => mkPage 0 0 0 []) (Ledger_pages l).
Proof.
  intros Ps M. destruct (micros_shape _ _ _ _ M) as (_ & Lp & _). split.
  - apply list_ext. intros r. rewrite !nth_error_map. pose proof (micros_reqs _ _ _ _ M r) as X.
    destruct (req_at l r) as [q|]; [|rewrite X; reflexivity].
    destruct X as (q' & more & A & B & C & Dd & De). rewrite A. simpl. unfold set_Req_table. rewrite C, Dd, De. reflexivity.
  - revert Lp. generalize (Ledger_pages l1), (Ledger_pages l).
    intros u. induction u as [|a u IHu]; intros [|b v] Hl; simpl in *; try discriminate; [reflexivity|]. f_equal. apply IHu. congruence.
Qed.

Lemma sync_reset l Q : Sync l Q -> Sync (mkLedger (Ledger_psize l) (Ledger_next l) (map (fun _ => mkPage 0 0 0 []) (Ledger_pages l))
                (map (fun q => set_Req_table q []) (Ledger_reqs l))) Q.
Proof. intros Sy r. simpl. rewrite nth_error_map. pose proof (Sy r) as X. destruct (req_at l r); exact X. Qed.

Lemma sync_unpinned l Q r q l' : Sync l Q -> req_at l r = Some q -> unpinned l r q l' -> Sync l' Q.
Proof.
  intros Sy Hq (_ & _ & U & _) r'. rewrite U, (nth_set_nth _ _ _ _ _ Hq). pose proof (Sy r') as X.
  destruct (Nat.eqb_spec r' r) as [->|]; [rewrite Hq in X; exact X|exact X].
Qed.

Theorem xsim S : xreachable S -> preachable (Pst (x_mem S) (x_led S) (x_rq S) (x_past S)) /\ Sync (x_led S) (x_rq S).
Proof.
  induction 1 as [m n l Cr|S S' _ [IH Sy] E].
  - apply create_ok in Cr as [-> _]. split; [constructor|]. intros [|r]; reflexivity.
  - destruct (page_refines _ _ _ _ _ _ Ppos _ IH) as (D & L & I & Le & _). simpl in I, Le.
    pose proof (I_psize _ _ _ I) as Ps.
    destruct E as [p prs l' r A | r p prs l' q0 A Hq0 | ops l1 gs m' l2 Q2 St So Rs | ops l1 gs l2 St Re | l' Re | m' Sc | r t l' Dr | r n l' Cu | r l' U | r l' q0 F Hq0]; simpl.
    + apply admit_ok in A as [-> ->]. assert (Nn : x_rq S (length (Ledger_reqs (x_led S))) = None).
      { pose proof (Sy (length (Ledger_reqs (x_led S)))) as X. rewrite (proj2 (nth_error_None _ _) (le_n _)) in X. exact X. }
      split.
      * eapply PR_event; [exact IH|]. apply (PE_admit _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S))). exact Nn.
      * intros r. simpl. unfold upd. destruct (Nat.eqb_spec r (length (Ledger_reqs (x_led S)))) as [->|Ne].
        -- rewrite nth_error_app2, Nat.sub_diag by lia. eexists. split; [reflexivity|]. unfold Reference.hist. simpl. rewrite app_nil_r, firstn_all. auto.
        -- pose proof (Sy r) as X. destruct (Nat.lt_ge_cases r (length (Ledger_reqs (x_led S)))).
           ++ rewrite nth_error_app1 by assumption. exact X.
           ++ rewrite (proj2 (nth_error_None _ _)) in X by assumption. rewrite (proj2 (nth_error_None _ _)); [exact X|]. rewrite app_length. simpl. lia.
    + apply readmit_ok in A as (q & Hq & Dead & Tq & ->). pose proof (Sy r) as X. rewrite Hq in X. destruct X as (q0' & X1 & X2 & _).
      rewrite Hq0 in X1. injection X1 as <-. split.
      * eapply PR_event; [exact IH|]. apply (PE_readmit _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S)) r q); auto. congruence.
      * intros r'. simpl. rewrite (nth_set_nth _ _ _ _ _ Hq). unfold upd. destruct (Nat.eqb_spec r' r) as [->|]; [|exact (Sy r')].
        eexists. split; [reflexivity|]. unfold Reference.hist. simpl. rewrite app_nil_r, firstn_all. auto.
    + apply step_ok in St as (g2 & E & M & G); [|lia]. simpl in E. subst g2. rewrite Ps in M.
      destruct (step_refines _ Ppos D L _ _ _ I Le M) as (D' & I' & _ & _).
      assert (Sy1 : Sync l1 (x_rq S)).
      { intros r. pose proof (micros_reqs _ _ _ _ M r) as X. pose proof (Sy r) as Y. destruct (req_at (x_led S) r) as [q|].
        - destruct X as (q' & more & A & B & C & Dd & De). rewrite A, C, Dd, De. exact Y.
        - rewrite X. exact Y. }
      destruct (sampled_ok D' l1 m' l1 (x_rq S) gs l2 Q2 Rs I' (kept_refl l1) Sy1 G) as (R' & F & E & S2 & Pr).
      { split; [|exact S2]. apply Pr. rewrite E. eapply PR_event; [exact IH|].
        apply (PE_step _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S)) l1 (map (row_of l1) gs) R'); [exact M| |exact F].
        apply runs_solution. exact So. }
    + apply step_ok in St as (g2 & E & M & G); [|lia]. rewrite Ps in M.
      apply reset_ok in Re. destruct (micros_shape _ _ _ _ M) as (N1 & N2 & N3). destruct (reset_after _ _ _ Ps M) as [Rr Rp].
      rewrite Rr, Rp, N3 in Re. subst l2. split.
      * eapply PR_event; [exact IH|]. apply (PE_reset _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S))). exact N1.
      * exact (sync_reset _ _ Sy).
    + apply reset_ok in Re. subst l'. split; [|exact (sync_reset _ _ Sy)].
      eapply PR_event; [exact IH|]. apply (PE_reset _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S))). apply le_n.
    + split; [|exact Sy]. eapply PR_event; [exact IH|]. apply (PE_scribble _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S))).
      simpl. intros s pg Hs Lt. destruct (Sc s) as [Un|Eq]; [|exact Eq]. specialize (Un pg Hs). lia.
    + apply draft_ok in Dr as (q & Hq & Lq & ->). split.
      * eapply PR_event; [exact IH|]. apply (PE_append _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S)) r q _ [t]); auto.
      * intros x. simpl. rewrite (nth_set_nth _ _ _ _ _ Hq). pose proof (Sy x) as X. destruct (Nat.eqb_spec x r) as [->|]; [|exact X].
        rewrite Hq in X. destruct X as (q0 & X1 & X2 & X3). exists q0. split; [exact X1|]. split; [exact X2|]. simpl. intros Lv.
        destruct (X3 Lv) as [X4 X5]. rewrite app_length, firstn_app. simpl. replace (Req_sure q - length (Req_toks q)) with 0 by lia.
        rewrite firstn_O, app_nil_r. split; [lia|exact X5].
    + apply truncate_ok in Cu as (q & whole & rest & Hq & _ & En & Sq & Tr); [|lia]. rewrite Ps in En, Tr. subst n.
      split; [|exact (sync_truncated _ _ _ _ _ _ _ Sy Hq Tr Sq)].
      eapply PR_event; [exact IH|]. exact (PE_truncate _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S)) r q whole rest l' Hq Tr).
    + apply unpin_ok in U as (q & Hq & U). split; [|exact (sync_unpinned _ _ _ _ _ Sy Hq U)].
      eapply PR_event; [exact IH|]. eapply (PE_unpin _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S))); [exact Hq|exact U].
    + apply finish_ok in F as (l1 & q1 & U & H1 & ->). apply unpin_ok in U as (q & Hq & U).
      assert (P1 : preachable (Pst (x_mem S) l1 (x_rq S) (x_past S))).
      { eapply PR_event; [exact IH|]. eapply (PE_unpin _ _ _ _ _ _ (Pst (x_mem S) (x_led S) (x_rq S) (x_past S))); [exact Hq|exact U]. }
      pose proof (sync_unpinned _ _ _ _ _ Sy Hq U) as Sy1.
      assert (Tq : Req_table q1 = []).
      { destruct U as (_ & _ & U & _). rewrite U, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl in H1. injection H1 as <-. reflexivity. }
      rewrite Tq. split.
      * eapply PR_event; [exact P1|]. apply (PE_finish _ _ _ _ _ _ (Pst (x_mem S) l1 (x_rq S) (x_past S)) r q1); assumption.
      * intros r'. simpl. rewrite (nth_set_nth _ _ _ _ _ H1). unfold upd. pose proof (Sy1 r') as X.
        destruct (Nat.eqb_spec r' r) as [->|Ne]; [|exact X].
        eexists. split; [reflexivity|]. simpl. split; [reflexivity|discriminate].
Qed.

(** the page invariant holds in every reachable machine *)
Corollary reachable_inv S : xreachable S -> exists D, PInv P D (x_led S).
Proof. intros X. destruct (page_refines _ _ _ _ _ _ Ppos _ (proj1 (xsim S X))) as (D & _ & I & _). exists D. exact I. Qed.

(** END TO END: whatever plans an untrusted scheduler feeds to the translated Rust
    functions, every request has received exactly what a cold reference run gives. *)
Theorem end_to_end : Spec.equals_reference cell logits params row_fn sample P.
Proof. intros S q R H. exact (page_trace_sound _ _ _ _ _ _ Ppos _ q (proj1 (xsim S R)) H). Qed.
End EndToEnd.

(** No state is a trap: a request that fits the pool alone can always be brought to its end.  The plans used are the
    simplest ones: one row a step, on a page that nobody has pinned. *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.
From Sametree Require Import Prims Reference LedgerTypes LedgerFns Spec Core Pages FnsOk EndToEnd NoPanic Main.

Notation page_at l p := (nth_error (Ledger_pages l) p).
Notation req_at l r := (nth_error (Ledger_reqs l) r).
Notation plen pg := (length (Page_toks pg)).

(** * The functions accept what they should *)

Lemma kv_len_at l r q t0 p pg : req_at l r = Some q -> Req_table q = t0 ++ [p] -> page_at l p = Some pg ->
  fits 64 (length t0 * Ledger_psize l + plen pg) = true -> kv_len l r = Some (length t0 * Ledger_psize l + plen pg).
Proof.
  intros Hq T Hp F. unfold kv_len, get. rewrite Hq. cbn [bind]. cbv zeta. rewrite T, app_length. cbn [length].
  destruct (Nat.eqb_spec (length t0 + 1) 0); [lia|]. rewrite sub_total by lia. cbn [bind].
  replace (length t0 + 1 - 1) with (length t0) by lia. rewrite nth_error_app2, Nat.sub_diag by lia. cbn [bind nth_error].
  rewrite mul_total by (eapply fits_mono; [exact F|lia]). cbn [bind]. rewrite Hp. cbn [bind]. rewrite add_total by exact F. reflexivity.
Qed.
Lemma kv_len_empty l r q : req_at l r = Some q -> Req_table q = [] -> kv_len l r = Some 0.
Proof. intros Hq T. unfold kv_len, get. rewrite Hq. cbn [bind]. rewrite T. reflexivity. Qed.

Definition filled (l : Ledger) (p : nat) (pg : Page) (t : nat) : Ledger :=
  set_Ledger_next (upd_page l p (fill_page (Ledger_psize l) l pg t)) (fill_next (Ledger_psize l) l pg).

Lemma fill1_accepts l rows r q t0 p pg t : req_at l r = Some q -> Req_live q = true -> Req_table q = t0 ++ [p] ->
  page_at l p = Some pg -> plen pg < Ledger_psize l -> nth_error (Req_toks q) (length t0 * Ledger_psize l + plen pg) = Some t ->
  fits 64 (length (Req_toks q) + Ledger_psize l) = true -> fits 64 (p * Ledger_psize l + plen pg) = true ->
  fits 64 (Ledger_next l + 1) = true ->
  exists b, fill1 l rows r = Some (filled l p pg t,
    rows ++ [mkLaunch r (length t0 * Ledger_psize l + plen pg) t (p * Ledger_psize l + plen pg) b], true) /\
    b = Nat.leb (Req_sure q) (length t0 * Ledger_psize l + plen pg + 1).
Proof.
  intros Hq Lq T Hp Room Ht Ft Fs Fn. set (P := Ledger_psize l) in *. set (kv := length t0 * P + plen pg) in *.
  assert (Kl : kv < length (Req_toks q)) by (apply nth_error_Some; congruence).
  assert (In : r < length (Ledger_reqs l)) by (apply nth_error_Some; congruence).
  assert (Fk : fits 64 ((length t0 + 1) * P) = true) by (eapply fits_mono; [exact Ft|unfold kv in Kl; lia]).
  assert (K : kv_len l r = Some kv) by (apply (kv_len_at l r q t0 p pg Hq T Hp); fold P kv; eapply fits_mono; [exact Ft|lia]).
  unfold fill1. destruct (Nat.leb_spec (length (Ledger_reqs l)) r); [lia|]. unfold get. rewrite Hq. cbn [bind]. rewrite Lq, K. cbn [negb bind]. cbv zeta.
  destruct (Nat.leb_spec (length (Req_toks q)) kv); [lia|]. rewrite T, app_length. cbn [length]. fold P.
  rewrite mul_total by exact Fk. cbn [bind]. destruct (Nat.leb_spec ((length t0 + 1) * P) kv); [unfold kv in *; lia|].
  rewrite sub_total by lia. cbn [bind]. replace (length t0 + 1 - 1) with (length t0) by lia.
  rewrite nth_error_app2, Nat.sub_diag by lia. cbn [bind nth_error]. rewrite Ht. cbn [bind].
  rewrite mul_total by (eapply fits_mono; [exact Fs|lia]). cbn [bind]. rewrite Hp. cbn [bind].
  rewrite add_total by exact Fs. cbn [bind]. rewrite add_total by (eapply fits_mono; [exact Ft|lia]). cbn [bind].
  rewrite (put_total _ _ _ _ Hp). cbn [bind]. simpl Ledger_pages.
  assert (G : forall v, nth_error (set_nth (Ledger_pages l) p v) p = Some v) by (intros v; rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl; reflexivity).
  rewrite !G. cbn [bind]. unfold filled, fill_page, fill_next. fold P. cbn [Page_toks set_Page_toks]. rewrite app_length. cbn [length].
  change (Ledger_psize (set_Ledger_pages l (set_nth (Ledger_pages l) p (set_Page_toks pg (Page_toks pg ++ [t]))))) with P.
  eexists. split; [|reflexivity]. destruct (Nat.eqb (plen pg + 1) P); cbn [bind].
  - rewrite (put_total _ _ _ _ (G _)). cbn [bind]. simpl. rewrite add_total by exact Fn. cbn [bind]. rewrite set_nth_twice. reflexivity.
  - destruct l; reflexivity.
Qed.

Definition grown_by (l : Ledger) (r : nat) (q : Req) (p c : nat) : Ledger :=
  upd_req (upd_page l p (mkPage c 0 1 [])) r (set_Req_table q (Req_table q ++ [p])).

Lemma grow_accepts l r q p pg : req_at l r = Some q -> Req_live q = true -> aligned l r = Some true ->
  (exists c, tail_cid l r = Some c) -> page_at l p = Some pg -> Page_pins pg = 0 ->
  exists c, grow l r p = Some (grown_by l r q p c, true).
Proof.
  intros Hq Lq Al [c Tc] Hp Pin. exists c.
  assert (Ir : r < length (Ledger_reqs l)) by (apply nth_error_Some; congruence).
  assert (Ip : p < length (Ledger_pages l)) by (apply nth_error_Some; congruence).
  unfold grow. cbv zeta. destruct (Nat.leb_spec (length (Ledger_reqs l)) r); [lia|]. destruct (Nat.leb_spec (length (Ledger_pages l)) p); [lia|].
  cbn [orb]. unfold get. rewrite Hq. cbn [bind]. rewrite Lq. cbn [negb]. rewrite Al. cbn [bind negb]. rewrite Hp. cbn [bind]. rewrite Pin. cbn [Nat.eqb negb].
  rewrite Tc. cbn [bind]. rewrite (put_total _ _ _ _ Hp). cbn [bind]. simpl Ledger_reqs. rewrite Hq. cbn [bind].
  rewrite (put_total _ _ _ _ Hq). reflexivity.
Qed.

(** the commit of a request without guesses *)
Definition committed (q : Req) (t : nat) : Req := mkReq (Req_live q) (Req_sure q + 1) (Req_toks q ++ [t]) (Req_table q).
Lemma commit_accepts l r q t : req_at l r = Some q -> Req_live q = true -> Req_sure q = length (Req_toks q) -> kv_len l r = Some (length (Req_toks q)) ->
  fits 64 (length (Req_toks q) + 1) = true -> LedgerFns.commit l r (length (Req_toks q)) t = Some (upd_req l r (committed q t), true).
Proof.
  intros Hq Lq Sq K F. assert (Ir : r < length (Ledger_reqs l)) by (apply nth_error_Some; congruence).
  unfold LedgerFns.commit. destruct (Nat.leb_spec (length (Ledger_reqs l)) r); [lia|]. rewrite K. cbn [bind]. cbv zeta. unfold get. rewrite Hq. cbn [bind]. rewrite Lq, Sq.
  rewrite Nat.eqb_refl. cbn [negb orb bind]. rewrite Nat.ltb_irrefl. cbn [negb bind]. rewrite (put_total _ _ _ _ Hq). cbn [bind]. simpl.
  rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. cbn [bind Req_sure set_Req_toks]. rewrite Sq, add_total by exact F. cbn [bind].
  rewrite (put_total _ _ _ (set_Req_toks q (Req_toks q ++ [t]))) by (rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl; reflexivity).
  cbn [bind]. unfold upd_req, committed, set_Ledger_reqs, set_Req_sure, set_Req_toks. simpl. rewrite set_nth_twice, Sq, Lq. reflexivity.
Qed.

Lemma step_fill l r l1 rows : fill1 l [] r = Some (l1, rows, true) -> step l [] [Op_Fill r 1] = Some (l1, rows, true).
Proof. intros F. unfold step, fill, for_range. cbn [length Nat.sub for_n get nth_error bind Nat.add]. rewrite F. reflexivity. Qed.
Lemma step_grow_fill l r p l1 l2 rows : grow l r p = Some (l1, true) -> fill1 l1 [] r = Some (l2, rows, true) ->
  step l [] [Op_Grow r p; Op_Fill r 1] = Some (l2, rows, true).
Proof.
  intros G F. unfold step, fill, for_range. cbn [length Nat.sub for_n get nth_error bind Nat.add]. rewrite G. cbn [bind].
  rewrite F. reflexivity.
Qed.

(** a request without pages drops its guesses *)
Lemma truncate_guesses l r q : req_at l r = Some q -> Req_live q = true -> Req_table q = [] -> Req_sure q <= length (Req_toks q) ->
  0 < Ledger_psize l -> fits 64 (Req_sure q + 1) = true ->
  truncate l r (Req_sure q) = Some (upd_req l r (mkReq (Req_live q) (Req_sure q) (firstn (Req_sure q) (Req_toks q)) []), true).
Proof.
  intros Hq Lq T Le Ps F. set (P := Ledger_psize l) in *. assert (Ir : r < length (Ledger_reqs l)) by (apply nth_error_Some; congruence).
  unfold truncate. destruct (Nat.leb_spec (length (Ledger_reqs l)) r); [lia|]. unfold get. rewrite Hq. cbn [bind]. rewrite Lq. cbn [negb bind].
  rewrite Nat.ltb_irrefl. cbn [bind]. destruct (Nat.ltb_spec (length (Req_toks q)) (Req_sure q)); [lia|]. fold P. unfold div_u. destruct (Nat.eqb_spec P 0); [lia|]. cbn [bind]. cbv zeta.
  pose proof (Nat.div_mod (Req_sure q) P ltac:(lia)) as Dm. set (whole := Req_sure q / P) in *. assert (Wm : whole <= Req_sure q) by nia.
  rewrite mul_total by (eapply fits_mono; [exact F|lia]). cbn [bind]. rewrite sub_total by lia. cbn [bind]. rewrite T. cbn [length].
  assert (Rel : forall k, release l r k = Some (upd_req l r (set_Req_table q []))).
  { intros k. unfold release, for_range, get. rewrite Hq. cbn [bind]. rewrite T. cbn [length Nat.sub for_n bind]. rewrite Hq. cbn [bind].
    rewrite T, firstn_nil, (put_total _ _ _ _ Hq). reflexivity. }
  assert (W0 : whole <? 0 = false) by (apply Nat.ltb_ge; lia). rewrite W0.
  assert (Hq1 : req_at (upd_req l r (set_Req_table q [])) r = Some (set_Req_table q [])) by (simpl; rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl; reflexivity).
  destruct (0 <? Req_sure q - whole * P); cbn [bind].
  1: rewrite add_total by (eapply fits_mono; [exact F|lia]); cbn [bind].
  all: rewrite Rel; cbn [bind]; rewrite Hq1; cbn [bind Req_table set_Req_table length]; rewrite ?W0; cbn [bind]; rewrite ?Hq1; cbn [bind];
    rewrite (put_total _ _ _ _ Hq1); cbn [bind]; unfold upd_req, set_Ledger_reqs, set_Req_toks, set_Req_table; simpl; rewrite set_nth_twice, Lq; reflexivity.
Qed.

(** * A request that has the pool to itself *)

(** no other request holds a page *)
Definition alone (l : Ledger) (r : nat) : Prop := forall r' q', r' <> r -> req_at l r' = Some q' -> Req_table q' = [].

Section Solo.
Variable P : nat.
Hypothesis Ppos : 0 < P.

Lemma pins_alone l r q p : req_at l r = Some q -> alone l r -> pins l p = count_occ Nat.eq_dec (Req_table q) p.
Proof.
  unfold pins, alone. generalize (Ledger_reqs l). intros rs. revert r. induction rs as [|x rs IH]; intros [|r] Hq Al; try discriminate; simpl; rewrite count_occ_app.
  - injection Hq as ->. enough (Z : count_occ Nat.eq_dec (flat_map Req_table rs) p = 0) by lia.
    assert (E : forall r' q', nth_error rs r' = Some q' -> Req_table q' = []) by (intros r' q'; apply (Al (S r')); lia).
    clear - E. induction rs as [|y rs IH]; [reflexivity|]. simpl. rewrite (E 0 y eq_refl). apply IH. intros r'. exact (E (S r')).
  - rewrite (Al 0 x ltac:(lia) eq_refl). simpl. apply (IH r Hq). intros r' q' Ne H. apply (Al (S r') q'); [lia|exact H].
Qed.

(** more pages than table entries: some page is in no table *)
Lemma free_page D l r q : PInv P D l -> req_at l r = Some q -> alone l r -> length (Req_table q) < length (Ledger_pages l) ->
  exists p pg, page_at l p = Some pg /\ Page_pins pg = 0.
Proof.
  intros I Hq Al Lt.
  assert (X : exists p, In p (seq 0 (length (Ledger_pages l))) /\ ~ In p (Req_table q)).
  { destruct (existsb (fun p => if in_dec Nat.eq_dec p (Req_table q) then false else true) (seq 0 (length (Ledger_pages l)))) eqn:E.
    - apply existsb_exists in E as (p & Ip & E). exists p. split; [exact Ip|]. destruct (in_dec _ _ _) as [|N]; [discriminate|exact N].
    - exfalso. assert (Sub : incl (seq 0 (length (Ledger_pages l))) (Req_table q)).
      { intros p Ip. destruct (in_dec Nat.eq_dec p (Req_table q)) as [Y|N]; [exact Y|].
        assert (F : existsb (fun p => if in_dec Nat.eq_dec p (Req_table q) then false else true) (seq 0 (length (Ledger_pages l))) = true).
        { apply existsb_exists. exists p. split; [exact Ip|]. destruct (in_dec _ _ _); [contradiction|reflexivity]. }
        congruence. }
      pose proof (NoDup_incl_length (seq_NoDup _ 0) Sub) as Le. rewrite seq_length in Le. lia. }
  destruct X as (p & Ip & N). apply in_seq in Ip. destruct (get_total (Ledger_pages l) p ltac:(lia)) as [pg Hp].
  exists p, pg. split; [exact Hp|]. rewrite (I_pins _ _ _ I _ _ Hp), (pins_alone l r q p Hq Al). apply count_occ_not_In. exact N.
Qed.

(** from [l], one row [g] of [r] at position [kv] leads to [l1] *)
Definition advanced (l : Ledger) (r : nat) (q : Req) (kv : nat) (l1 : Ledger) (g : Launch) : Prop :=
  Launch_req g = r /\ Launch_pos g = kv /\ Launch_sample g = Nat.leb (Req_sure q) (kv + 1) /\ kv_len l1 r = Some (kv + 1) /\
  length (Ledger_pages l1) = length (Ledger_pages l) /\ Ledger_next l1 <= Ledger_next l + 1 /\
  (exists q1, req_at l1 r = Some q1 /\ Req_live q1 = true /\ Req_toks q1 = Req_toks q /\ Req_sure q1 = Req_sure q) /\ alone l1 r.

Section Advance.
Variables (D : nat -> list nat) (l : Ledger) (r : nat) (q : Req) (kv : nat).
Hypothesis I : PInv P D l.
Hypothesis Hq : req_at l r = Some q.
Hypothesis Lq : Req_live q = true.
Hypothesis Al : alone l r.
Hypothesis Kv : kv_len l r = Some kv.
Hypothesis Lt : kv < length (Req_toks q).
Hypothesis Ft : fits 64 (length (Req_toks q) + P + P) = true.
Hypothesis Fp : fits 64 (P * length (Ledger_pages l)) = true.
Hypothesis Fn : fits 64 (Ledger_next l + 1) = true.

(** a row on the last page [p] of [l0], which is [l] or [l] with a page more *)
Lemma fill_there l0 q0 t0 p pg : req_at l0 r = Some q0 -> Req_live q0 = true -> Req_toks q0 = Req_toks q -> Req_sure q0 = Req_sure q ->
  Req_table q0 = t0 ++ [p] -> page_at l0 p = Some pg -> plen pg < P -> kv = length t0 * P + plen pg ->
  Ledger_psize l0 = P -> length (Ledger_pages l0) = length (Ledger_pages l) -> Ledger_next l0 = Ledger_next l -> alone l0 r ->
  exists l1 g, fill1 l0 [] r = Some (l1, [g], true) /\ advanced l r q kv l1 g.
Proof.
  intros Hq0 Lq0 Tq0 Sq0 T0 Hp Room Ek Ps0 Lp0 Nx0 Al0.
  assert (Ip : p < length (Ledger_pages l)) by (rewrite <- Lp0; apply nth_error_Some; congruence).
  destruct (get_total (Req_toks q) kv Lt) as [t Ht].
  destruct (fill1_accepts l0 [] r q0 t0 p pg t Hq0 Lq0 T0 Hp) as (b & F & Eb).
  - rewrite Ps0. exact Room.
  - rewrite Ps0, Tq0, <- Ek. exact Ht.
  - rewrite Ps0, Tq0. eapply fits_mono; [exact Ft|lia].
  - rewrite Ps0. eapply fits_mono; [exact Fp|nia].
  - rewrite Nx0. exact Fn.
  - rewrite Ps0, <- Ek in F, Eb. rewrite Sq0 in Eb. eexists _, _. split; [exact F|]. split; [reflexivity|]. split; [reflexivity|]. split; [exact Eb|].
    assert (Ft0 : Page_toks (fill_page (Ledger_psize l0) l0 pg t) = Page_toks pg ++ [t]) by (unfold fill_page; destruct (Nat.eqb (plen pg + 1) (Ledger_psize l0)); reflexivity).
    split; [|split; [|split; [|split]]].
    + rewrite (kv_len_at (filled l0 p pg t) r q0 t0 p (fill_page (Ledger_psize l0) l0 pg t)).
      * rewrite Ft0, app_length. simpl. rewrite Ps0. f_equal. lia.
      * exact Hq0.
      * exact T0.
      * simpl. rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl. reflexivity.
      * rewrite Ft0, app_length. simpl. rewrite Ps0. eapply fits_mono; [exact Ft|lia].
    + simpl. rewrite set_nth_length. exact Lp0.
    + simpl. unfold fill_next. destruct (Nat.eqb (plen pg + 1) (Ledger_psize l0)); lia.
    + exists q0. auto.
    + exact Al0.
Qed.

Lemma full_aligned : kv <= length (Req_table q) * P /\ aligned l r = Some (Nat.eqb kv (length (Req_table q) * P)) /\ exists c, tail_cid l r = Some c.
Proof.
  pose proof (I_psize _ _ _ I) as Ps. assert (B : kv <= length (Req_table q) * P /\ length (Req_table q) * P <= length (Req_toks q) + P).
  { destruct (table_cases (Req_table q)) as [T|(t0 & p & T)].
    - rewrite (kv_len_empty l r q Hq T) in Kv. injection Kv as <-. rewrite T. simpl. lia.
    - destruct (kvn_last P Ppos D l r q t0 p I Hq T) as (pg & _ & K & Lp & Kb). rewrite (kv_kvn l r q kv Hq Kv) in *. rewrite T, app_length. simpl. nia. }
  split; [exact (proj1 B)|]. split.
  - unfold aligned, get. rewrite Kv, Hq. cbn [bind]. cbv zeta. rewrite Ps, mul_total by (eapply fits_mono; [exact Ft|lia]). reflexivity.
  - destruct (table_cases (Req_table q)) as [T|(t0 & p & T)].
    + exists 0. unfold tail_cid, get. rewrite Hq. cbn [bind]. rewrite T. reflexivity.
    + destruct (kvn_last P Ppos D l r q t0 p I Hq T) as (pg & Hp & _).
      exists (Page_cid pg). unfold tail_cid, get. rewrite Hq. cbn [bind]. cbv zeta. rewrite T, app_length. cbn [length].
      destruct (Nat.eqb_spec (length t0 + 1) 0); [lia|]. rewrite sub_total by lia. cbn [bind]. replace (length t0 + 1 - 1) with (length t0) by lia.
      rewrite nth_error_app2, Nat.sub_diag by lia. cbn [bind nth_error]. rewrite Hp. reflexivity.
Qed.

(** with room in the last page, a row is accepted *)
Lemma fill_advances : kv <> length (Req_table q) * P -> exists l1 g, fill1 l [] r = Some (l1, [g], true) /\ advanced l r q kv l1 g.
Proof.
  intros Room. pose proof (I_psize _ _ _ I) as Ps. pose proof (proj1 full_aligned) as Le. destruct (table_cases (Req_table q)) as [T|(t0 & p & T)].
  - rewrite T in *. simpl in *. lia.
  - destruct (kvn_last P Ppos D l r q t0 p I Hq T) as (pg & Hp & K & Lp & _). rewrite (kv_kvn l r q kv Hq Kv) in K. rewrite T, app_length in *. simpl in *.
    apply (fill_there l q t0 p pg); auto. lia.
Qed.

(** with all pages full, any page that nobody holds can be added, and then a row is accepted *)
Lemma grow_advances p pg : kv = length (Req_table q) * P -> page_at l p = Some pg -> Page_pins pg = 0 ->
  exists l0 l1 g, grow l r p = Some (l0, true) /\ fill1 l0 [] r = Some (l1, [g], true) /\ advanced l r q kv l1 g.
Proof.
  intros Ek Hp Pin. pose proof (I_psize _ _ _ I) as Ps. destruct full_aligned as (_ & Ag & Tc). rewrite Ek, Nat.eqb_refl in Ag.
  destruct (grow_accepts l r q p pg Hq Lq Ag Tc Hp Pin) as [c G]. exists (grown_by l r q p c).
  destruct (fill_there (grown_by l r q p c) (set_Req_table q (Req_table q ++ [p])) (Req_table q) p (mkPage c 0 1 [])) as (l1 & g & F & Rest).
  - simpl. rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. reflexivity.
  - exact Lq.
  - reflexivity.
  - reflexivity.
  - reflexivity.
  - simpl. rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl. reflexivity.
  - exact Ppos.
  - simpl. lia.
  - exact Ps.
  - simpl. apply set_nth_length.
  - reflexivity.
  - intros r' q' Ne H. simpl in H. rewrite (nth_set_nth _ _ _ _ _ Hq) in H. destruct (Nat.eqb_spec r' r); [contradiction|]. exact (Al r' q' Ne H).
  - exists l1, g. auto.
Qed.

(** One step for [r]: whatever state its table is in, a plan of one row is accepted. *)
Lemma can_advance : length (Req_toks q) <= P * length (Ledger_pages l) -> exists ops l1 g, step l [] ops = Some (l1, [g], true) /\ advanced l r q kv l1 g.
Proof.
  intros Cap. destruct (Nat.eq_dec kv (length (Req_table q) * P)) as [Ek|Room].
  - destruct (free_page D l r q I Hq Al) as (p & pg & Hp & Pin); [nia|]. destruct (grow_advances p pg Ek Hp Pin) as (l0 & l1 & g & G & F & Rest).
    exists [Op_Grow r p; Op_Fill r 1], l1, g. split; [exact (step_grow_fill _ _ _ _ _ _ G F)|exact Rest].
  - destruct (fill_advances Room) as (l1 & g & F & Rest). exists [Op_Fill r 1], l1, g. split; [exact (step_fill _ _ _ _ F)|exact Rest].
Qed.
End Advance.
End Solo.

(** * To the end *)
Section Finish.
Variables cell logits params : Type.
Variable row_fn : nat -> nat -> list cell -> cell * logits.
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.
Notation rq := (Reference.rq nat logits params).
Notation machine := (Spec.machine cell logits params).
Notation Ma := (Spec.Ma cell logits params).
Notation x_mem := (Spec.x_mem cell logits params).
Notation x_led := (Spec.x_led cell logits params).
Notation x_rq := (Spec.x_rq cell logits params).
Notation x_past := (Spec.x_past cell logits params).
Notation reachable := (Spec.reachable cell logits params row_fn sample P).
Notation event := (Spec.event cell logits params row_fn sample P).
Notation events := (Spec.events cell logits params row_fn sample P).
Notation launch_out := (Spec.launch_out cell logits row_fn).
Notation runs := (Spec.runs cell logits row_fn).
Notation prompt := (Reference.prompt nat logits params).
Notation prm := (Reference.prm nat logits params).
Notation gen := (Reference.gen nat logits params).
Notation live := (Reference.live nat logits params).
Notation hist := (Reference.hist nat logits params).

(** [k] positions of the live request [q] in entry [r] are computed, and nobody else holds a page *)
Record solo (S : machine) (r : nat) (q : rq) (k : nat) : Prop := {
  solo_reachable : reachable S;
  solo_request : x_rq S r = Some q;
  solo_live : live q = true;
  solo_kv : kv_len (x_led S) r = Some k;
  solo_more : k < length (hist q);
  solo_alone : alone (x_led S) r;
  solo_exact : forall e, nth_error (Ledger_reqs (x_led S)) r = Some e -> Req_toks e = hist q }.   (* no guesses *)

(** a step of one row has a parallel execution: the row does not read what it writes *)
Lemma one_row_runs S ops l1 g : reachable S -> step (x_led S) [] ops = Some (l1, [g], true) ->
  exists m', runs l1 [g] (x_mem S) m'.
Proof.
  intros R St. destruct (accepted _ _ _ _ _ _ S ops l1 [g] R St) as (L & _ & C). cbn [map] in C.
  set (c := fst (launch_out l1 (x_mem S) g)). exists (upd (x_mem S) (Launch_slot g) c).
  assert (Same : launch_out l1 (upd (x_mem S) (Launch_slot g) c) g = launch_out l1 (x_mem S) g).
  { unfold Spec.launch_out. f_equal. apply map_ext_in. intros s Is. apply upd_other. intros ->.
    pose proof (checked_read_written nat Nat.eq_dec L [row_of l1 g] (row_of l1 g) (row_of l1 g) C (or_introl eq_refl) (or_introl eq_refl) Is). lia. }
  split.
  - intros g' [<-|[]]. rewrite Same. unfold upd. rewrite Nat.eqb_refl. reflexivity.
  - intros s Ns. apply upd_other. intros ->. apply Ns. left. reflexivity.
Qed.

(** one event brings a solo request one position further, and to its next token when its history is computed *)
Lemma one_more S r q k total : solo S r q k -> length (hist q) <= total ->
  total <= P * length (Ledger_pages (x_led S)) -> fits 64 (total + P + P) = true -> fits 64 (Ledger_next (x_led S) + 1) = true ->
  exists S' q', event S S' /\ solo S' r q' (k + 1) /\ prompt q' = prompt q /\
    length (Ledger_pages (x_led S')) = length (Ledger_pages (x_led S)) /\ Ledger_next (x_led S') <= Ledger_next (x_led S) + 1 /\
    (k + 1 = length (hist q) /\ length (gen q') = length (gen q) + 1 \/ k + 1 < length (hist q) /\ gen q' = gen q).
Proof.
  intros [R Hq Lq Kv Lt Al Ex] Lh Cap Ft Fn. pose proof (reachable_Ppos _ _ _ _ _ _ S R) as Ppos.
  destruct (reachable_inv _ _ _ _ _ _ Ppos S R) as (D & I).
  pose proof (proj2 (xsim _ _ _ _ _ _ Ppos S R) r) as Sy. destruct (req_at (x_led S) r) as [e|] eqn:He; [|congruence].
  destruct Sy as (q0 & Q1 & Q2 & Q4). rewrite Hq in Q1. injection Q1 as <-. rewrite Lq in Q2. destruct (Q4 Q2) as [Q5 Q6].
  pose proof (Ex e eq_refl) as Q3. assert (Sure : Req_sure e = length (hist q)) by (apply (f_equal (@length nat)) in Q6; rewrite firstn_length in Q6; lia).
  destruct (can_advance P Ppos D (x_led S) r e k I He Q2 Al Kv) as (ops & l1 & g & St & Gr & Gp & Gs & K1 & Lp & Nx & (e1 & He1 & Le1 & Te1 & Se1) & Al1).
  - rewrite Q3. exact Lt.
  - rewrite Q3. eapply fits_mono; [exact Ft|lia].
  - exact (pool_size _ _ _ _ _ _ S R).
  - exact Fn.
  - rewrite Q3. lia.
  - rewrite Q3 in Te1. rewrite Sure in Gs, Se1. destruct (one_row_runs S ops l1 g R St) as [m' Rn].
    destruct (Nat.eqb_spec (k + 1) (length (hist q))) as [End|More].
    + (* the row is sampled *)
      set (lg := snd (launch_out l1 m' g)). set (t := sample (prm q) (Launch_pos g + 1) lg).
      assert (Cm : LedgerFns.commit l1 (Launch_req g) (Launch_pos g + 1) t = Some (upd_req l1 r (committed e1 t), true)).
      { rewrite Gr, Gp, End, <- Te1. apply commit_accepts; [exact He1|exact Le1|congruence|rewrite K1, Te1, End; reflexivity|].
        rewrite Te1. eapply fits_mono; [exact Ft|lia]. }
      set (l2 := upd_req l1 r (committed e1 t)) in *.
      rewrite End, Nat.leb_refl in Gs.
      exists (Ma m' l2 (upd (x_rq S) r (Some (received _ _ q t lg))) (x_past S)), (received _ _ q t lg).
      assert (Ev : event S (Ma m' l2 (upd (x_rq S) r (Some (received _ _ q t lg))) (x_past S))).
      { apply (E_step _ _ _ _ _ _ S ops l1 [g] m' l2); [exact St|exact Rn|]. rewrite <- Gr.
        apply (sampled_take _ _ _ _ _ l1 m' l1 (x_rq S) g [] q lg t l2); [exact Gs|rewrite Gr; exact Hq|reflexivity|reflexivity|exact Cm|apply sampled_none]. }
      assert (E2 : forall x, req_at l2 x = if Nat.eqb x r then Some (committed e1 t) else req_at l1 x) by (intros x; apply (nth_set_nth _ _ _ _ _ He1)).
      split; [exact Ev|]. split; [|split; [reflexivity|split; [exact Lp|split; [exact Nx|left; split; [exact End|simpl; rewrite app_length; reflexivity]]]]].
      constructor.
      * eapply Spec.R_event; [exact R|exact Ev].
      * simpl. unfold upd. rewrite Nat.eqb_refl. reflexivity.
      * exact Lq.
      * simpl. rewrite <- K1. unfold kv_len, get. rewrite E2, Nat.eqb_refl, He1. reflexivity.
      * unfold Reference.hist in *. simpl. rewrite map_app, app_assoc, app_length. simpl. lia.
      * simpl. intros x e2 Ne Hx. rewrite E2 in Hx. destruct (Nat.eqb_spec x r); [contradiction|]. exact (Al1 x e2 Ne Hx).
      * simpl. intros e2 He2. rewrite E2, Nat.eqb_refl in He2. injection He2 as <-. simpl. rewrite Te1. unfold Reference.hist. simpl. rewrite map_app, app_assoc. reflexivity.
    + exists (Ma m' l1 (x_rq S) (x_past S)), q.
      assert (Ev : event S (Ma m' l1 (x_rq S) (x_past S))).
      { apply (E_step _ _ _ _ _ _ S ops l1 [g] m' l1); [exact St|exact Rn|]. apply sampled_drop, sampled_none. }
      split; [exact Ev|]. split; [|split; [reflexivity|split; [exact Lp|split; [exact Nx|right; split; [lia|reflexivity]]]]].
      constructor; simpl; auto; [eapply Spec.R_event; [exact R|exact Ev]|lia|]. intros e2 He2. rewrite He1 in He2. injection He2 as <-. exact Te1.
Qed.

Lemma solo_finishes total n r : forall d S q k, solo S r q k -> total = length (prompt q) + n -> length (gen q) < n -> d = total - k ->
  total <= P * length (Ledger_pages (x_led S)) -> fits 64 (total + P + P) = true -> fits 64 (Ledger_next (x_led S) + d) = true ->
  exists S' q', events S S' /\ x_rq S' r = Some q' /\ prompt q' = prompt q /\ length (gen q') = n.
Proof.
  intros d. induction d as [|d IH]; intros S q k So Tn Gn Dk Cap Ft Fn.
  - exfalso. pose proof (solo_more _ _ _ _ So) as Lt. unfold Reference.hist in Lt. rewrite app_length, map_length in Lt. lia.
  - assert (Lh : length (hist q) = length (prompt q) + length (gen q)) by (unfold Reference.hist; rewrite app_length, map_length; reflexivity).
    destruct (one_more S r q k total So) as (S1 & q1 & Ev & So1 & Pr & Lp & Nx & Gen); [lia|exact Cap|exact Ft|eapply fits_mono; [exact Fn|lia]|].
    assert (Steps : forall S2, events S1 S2 -> events S S2).
    { intros S2 Es. induction Es as [|S3 S4 _ IH3 E4]; [eapply events_more; [apply events_none|exact Ev]|eapply events_more; [exact IH3|exact E4]]. }
    assert (Done : length (gen q1) = n \/ length (gen q1) < n) by (destruct Gen as [[_ G]|[_ G]]; rewrite G; lia).
    destruct Done as [G|G].
    + exists S1, q1. split; [apply Steps, events_none|]. split; [exact (solo_request _ _ _ _ So1)|auto].
    + destruct (IH S1 q1 (k + 1) So1) as (S' & q' & Es & Hq' & Pr' & G'); [rewrite Pr; exact Tn|exact G|lia|rewrite Lp; exact Cap|exact Ft|eapply fits_mono; [exact Fn|lia]|].
      exists S', q'. split; [apply Steps; exact Es|]. split; [exact Hq'|]. split; [congruence|exact G'].
Qed.

Theorem can_finish : Spec.can_finish cell logits params row_fn sample P.
Proof.
  intros S r q n R Hq Lq Np total l Gn Cap Ft Fn. destruct (Nat.eq_dec (length (gen q)) n) as [G|G].
  { exists S, q. split; [apply events_none|auto]. }
  pose proof (reachable_Ppos _ _ _ _ _ _ S R) as Ppos. destruct (reset_total P Ppos l) as [l' Re].
  set (S0 := Ma (x_mem S) l' (x_rq S) (x_past S)).
  assert (Ev : event S S0) by (apply E_reset; exact Re).
  pose proof (reset_ok _ _ Re) as El.
  assert (Tab : forall x e, req_at l' x = Some e -> Req_table e = []).
  { intros x e Hx. rewrite El in Hx. simpl in Hx. rewrite nth_error_map in Hx. destruct (req_at l x); [|discriminate]. injection Hx as <-. reflexivity. }
  assert (R0 : reachable S0) by (eapply Spec.R_event; [exact R|exact Ev]).
  pose proof (proj2 (xsim _ _ _ _ _ _ Ppos S0 R0) r) as Sy. simpl in Sy. destruct (req_at l' r) as [e|] eqn:He; [|congruence].
  destruct Sy as (q0 & Q1 & Q2 & Q3). rewrite Hq in Q1. injection Q1 as <-. rewrite Lq in Q2. destruct (Q3 Q2) as [Q4 Q5].
  assert (Lh : length (hist q) = length (prompt q) + length (gen q)) by (unfold Reference.hist; rewrite app_length, map_length; reflexivity).
  assert (Sure : Req_sure e = length (hist q)) by (rewrite <- Q5, firstn_length; lia).
  (* guesses are dropped, so that they do not count *)
  set (l2 := upd_req l' r (mkReq (Req_live e) (Req_sure e) (firstn (Req_sure e) (Req_toks e)) [])).
  assert (Ps : Ledger_psize l' = P) by (destruct (reachable_inv _ _ _ _ _ _ Ppos S0 R0) as (D0 & I0); exact (I_psize _ _ _ I0)).
  assert (Cu : truncate l' r (Req_sure e) = Some (l2, true)).
  { apply (truncate_guesses l' r e He Q2 (Tab r e He) Q4); [lia|]. eapply fits_mono; [exact Ft|]. lia. }
  set (S1 := Ma (x_mem S) l2 (x_rq S) (x_past S)).
  assert (Ev1 : event S0 S1) by (apply (E_truncate _ _ _ _ _ _ S0 r (Req_sure e)); exact Cu).
  assert (E2 : forall x, req_at l2 x = if Nat.eqb x r then Some (mkReq (Req_live e) (Req_sure e) (firstn (Req_sure e) (Req_toks e)) []) else req_at l' x) by (intros x; apply (nth_set_nth _ _ _ _ _ He)).
  assert (So : solo S1 r q 0).
  { constructor; simpl; auto.
    - eapply Spec.R_event; [exact R0|exact Ev1].
    - apply (kv_len_empty l2 r (mkReq (Req_live e) (Req_sure e) (firstn (Req_sure e) (Req_toks e)) [])); [rewrite E2, Nat.eqb_refl; reflexivity|reflexivity].
    - rewrite Lh. destruct (prompt q); [contradiction|simpl; lia].
    - intros x e2 Ne Hx. rewrite E2 in Hx. destruct (Nat.eqb_spec x r); [contradiction|]. exact (Tab x e2 Hx).
    - intros e2 Hx. rewrite E2, Nat.eqb_refl in Hx. injection Hx as <-. exact Q5. }
  assert (Lp : length (Ledger_pages (x_led S1)) = length (Ledger_pages l)) by (simpl; rewrite El; simpl; apply map_length).
  destruct (solo_finishes total n r total S1 q 0 So) as (S' & q' & Es & Hq' & Pr & G'); try reflexivity.
  - lia.
  - lia.
  - rewrite Lp. exact Cap.
  - exact Ft.
  - simpl. rewrite El. exact Fn.
  - exists S', q'. split; [|auto]. clear - Es Ev Ev1. induction Es as [|S3 S4 _ IH E4].
    + eapply events_more; [eapply events_more; [apply events_none|exact Ev]|exact Ev1].
    + eapply events_more; [exact IH|exact E4].
Qed.
End Finish.

(** Checking a step before the tokens that it continues are known.

    Nothing in the ledger depends on what a token is, only on which tokens are equal.  So a scheduler that runs ahead of
    the device may commit a *name* in place of a token that is still being computed: a number that no real token has, never
    used twice.  The ledger checks the next step with names in it; the device, which by then has the tokens, runs it.

    [named] below is the machine of [Spec.v] with such a ledger.  [mean] says which token each number stands for; the
    ledger never sees it.  The theorem: what every request receives is still what the cold reference gives. *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.
From Sametree Require Import Prims Reference LedgerTypes LedgerFns Spec Core Pages FnsOk EndToEnd NoPanic Main Progress.

Section Names.
Variable mean : nat -> nat.

(** * A ledger with its names replaced by what they stand for *)

Definition mean_page (pg : Page) : Page := mkPage (Page_parent pg) (Page_cid pg) (Page_pins pg) (map mean (Page_toks pg)).
Definition mean_req (q : Req) : Req := mkReq (Req_live q) (Req_sure q) (map mean (Req_toks q)) (Req_table q).
Definition mean_ledger (l : Ledger) : Ledger :=
  mkLedger (Ledger_psize l) (Ledger_next l) (map mean_page (Ledger_pages l)) (map mean_req (Ledger_reqs l)).
Definition mean_launch (g : Launch) : Launch :=
  mkLaunch (Launch_req g) (Launch_pos g) (mean (Launch_tok g)) (Launch_slot g) (Launch_sample g).
Definition mean_row (r : row nat) : row nat :=
  Row nat (r_req _ r) (map mean (r_ctx _ r)) (mean (r_tok _ r)) (r_reads _ r) (r_write _ r) (r_samp _ r).

Lemma map_set_nth {A B} (f : A -> B) (l : list A) : forall i v, map f (set_nth l i v) = set_nth (map f l) i (f v).
Proof. induction l as [|a l IH]; intros [|i] v; simpl; try reflexivity. rewrite IH. reflexivity. Qed.

Lemma mean_upd_page l p pg : mean_ledger (upd_page l p pg) = upd_page (mean_ledger l) p (mean_page pg).
Proof. unfold mean_ledger, upd_page, set_Ledger_pages. simpl. rewrite map_set_nth. reflexivity. Qed.
Lemma mean_upd_req l r q : mean_ledger (upd_req l r q) = upd_req (mean_ledger l) r (mean_req q).
Proof. unfold mean_ledger, upd_req, set_Ledger_reqs. simpl. rewrite map_set_nth. reflexivity. Qed.
Lemma mean_req_at l r q : req_at l r = Some q -> req_at (mean_ledger l) r = Some (mean_req q).
Proof. intros Hq. simpl. apply map_nth_error. exact Hq. Qed.
Lemma mean_page_at l p pg : page_at l p = Some pg -> page_at (mean_ledger l) p = Some (mean_page pg).
Proof. intros Hp. simpl. apply map_nth_error. exact Hp. Qed.
Lemma mean_page_inv l p pg' : page_at (mean_ledger l) p = Some pg' -> exists pg, page_at l p = Some pg /\ pg' = mean_page pg.
Proof. simpl. rewrite nth_error_map. destruct (page_at l p) as [pg|]; [|discriminate]. intros [= <-]. eauto. Qed.

Lemma mean_tail_full P l q c : tail_full P l q c -> tail_full P (mean_ledger l) (mean_req q) c.
Proof.
  intros [[T ->]|(t0 & p & pg & T & Hp & Full & ->)]; [left; auto|right]. exists t0, p, (mean_page pg).
  split; [exact T|]. split; [apply mean_page_at; exact Hp|]. split; [simpl; rewrite map_length; exact Full|reflexivity].
Qed.

(** * Every micro-operation that is accepted with names is accepted with their meanings *)
Lemma mean_micro P l l' R : Pages.micro P l l' R -> Pages.micro P (mean_ledger l) (mean_ledger l') (map mean_row R).
Proof.
  intros M. destruct M as [r q p pg Hq Hp Tf Full Tk Gd|r q p pg c Hq Hp Tf Pin|r q t0 p pg t b Hq T Hp Room Ht|p pg p2 pg2 Hp Hp2 F1 F2 E1 E2].
  - rewrite mean_upd_req, mean_upd_page. apply (M_attach P (mean_ledger l) r (mean_req q) p (mean_page pg)).
    + apply mean_req_at. exact Hq.
    + apply mean_page_at. exact Hp.
    + apply mean_tail_full. exact Tf.
    + simpl. rewrite map_length. exact Full.
    + simpl. rewrite Tk, skipn_map, firstn_map. reflexivity.
    + exact Gd.
  - rewrite mean_upd_req, mean_upd_page. apply (M_grow P (mean_ledger l) r (mean_req q) p (mean_page pg) c).
    + apply mean_req_at. exact Hq.
    + apply mean_page_at. exact Hp.
    + apply mean_tail_full. exact Tf.
    + exact Pin.
  - pose proof (M_fill P (mean_ledger l) r (mean_req q) t0 p (mean_page pg) (mean t) b) as F.
    assert (Lp : length (Page_toks (mean_page pg)) = length (Page_toks pg)) by apply map_length.
    rewrite Lp in F. specialize (F (mean_req_at _ _ _ Hq) T (mean_page_at _ _ _ Hp) Room (map_nth_error _ _ _ Ht)).
    assert (El : mean_ledger (set_Ledger_next (upd_page l p (fill_page P l pg t)) (fill_next P l pg)) =
                 set_Ledger_next (upd_page (mean_ledger l) p (fill_page P (mean_ledger l) (mean_page pg) (mean t))) (fill_next P (mean_ledger l) (mean_page pg))).
    { unfold fill_page, fill_next. rewrite Lp. unfold mean_ledger, set_Ledger_next, upd_page, set_Ledger_pages. simpl. rewrite map_set_nth.
      f_equal. f_equal. destruct (Nat.eqb (length (Page_toks pg) + 1) P); unfold mean_page, set_Page_cid, set_Page_toks; simpl; rewrite map_app; reflexivity. }
    rewrite El. unfold fill_row in *. simpl in *. unfold mean_row. simpl. rewrite <- firstn_map. exact F.
  - rewrite mean_upd_page. apply (M_adopt P (mean_ledger l) p (mean_page pg) p2 (mean_page pg2)); try (apply mean_page_at; assumption); simpl; rewrite ?map_length; auto.
    rewrite E2. reflexivity.
Qed.

Lemma mean_micros P l l' R : Pages.micros P l l' R -> Pages.micros P (mean_ledger l) (mean_ledger l') (map mean_row R).
Proof.
  induction 1 as [|l1 R l2 R2 _ IH Mi]; [constructor|]. rewrite map_app. eapply Ms_snoc; [exact IH|apply mean_micro; exact Mi].
Qed.

Lemma mean_row_of l g : mean_row (row_of l g) = row_of (mean_ledger l) (mean_launch g).
Proof.
  unfold mean_row, row_of, toks_of, FnsOk.table_of. simpl. rewrite nth_error_map. destruct (req_at l (Launch_req g)) as [q|]; simpl.
  - rewrite firstn_map. reflexivity.
  - rewrite !firstn_nil. reflexivity.
Qed.

Lemma mean_kv_len l r : kv_len (mean_ledger l) r = kv_len l r.
Proof.
  unfold kv_len, get. simpl. rewrite !nth_error_map. destruct (req_at l r) as [q|]; [|reflexivity]. cbn [option_map bind]. cbv zeta.
  change (Req_table (mean_req q)) with (Req_table q). destruct (Nat.eqb (length (Req_table q)) 0); [reflexivity|].
  destruct (sub_u 64 (length (Req_table q)) 1) as [k|]; [|reflexivity]. cbn [bind]. destruct (nth_error (Req_table q) k) as [p|]; [|reflexivity]. cbn [bind].
  destruct (mul_u 64 k (Ledger_psize l)) as [m|]; [|reflexivity]. cbn [bind]. rewrite nth_error_map.
  destruct (page_at l p) as [pg|]; [|reflexivity]. cbn [option_map bind]. simpl. rewrite map_length. reflexivity.
Qed.

(** * The machine with names *)
Variables cell logits params : Type.
Variable row_fn : nat -> nat -> list cell -> cell * logits.
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.
Notation rq := (Reference.rq nat logits params).
Notation Rq := (Reference.Rq nat logits params).
Notation prompt := (Reference.prompt nat logits params).
Notation prm := (Reference.prm nat logits params).
Notation gen := (Reference.gen nat logits params).
Notation hist := (Reference.hist nat logits params).
Notation Ma := (Spec.Ma cell logits params).
Notation machine := (Spec.machine cell logits params).
Notation x_mem := (Spec.x_mem cell logits params).
Notation x_led := (Spec.x_led cell logits params).
Notation x_rq := (Spec.x_rq cell logits params).
Notation x_past := (Spec.x_past cell logits params).
Notation launch_out := (Spec.launch_out cell logits row_fn).
Notation runs := (Spec.runs cell logits row_fn).
Notation preachable := (Pages.preachable cell logits params row_fn sample P).
Notation Pst := (Pages.Pst cell logits params).
Notation Sync := (EndToEnd.Sync logits params).

(** [Spec.sampled], with the name [a] committed for the token that the device samples *)
Inductive sampled (l1 : Ledger) (m' : nat -> cell) :
  Ledger -> (nat -> option rq) -> list Launch -> Ledger -> (nat -> option rq) -> Prop :=
| sampled_none l Q : sampled l1 m' l Q [] l Q
| sampled_drop l Q g gs l' Q' : sampled l1 m' l Q gs l' Q' -> sampled l1 m' l Q (g :: gs) l' Q'
| sampled_take l Q g gs q lg a l2 l' Q' :
    Launch_sample g = true -> Q (Launch_req g) = Some q ->
    lg = snd (launch_out l1 m' (mean_launch g)) -> mean a = sample (prm q) (Launch_pos g + 1) lg ->
    LedgerFns.commit l (Launch_req g) (Launch_pos g + 1) a = Some (l2, true) ->
    sampled l1 m' l2 (upd Q (Launch_req g) (Some (received _ _ q (mean a) lg))) gs l' Q' ->
    sampled l1 m' l Q (g :: gs) l' Q'
| sampled_truncate l Q gs r n l2 l' Q' :
    truncate l r n = Some (l2, true) -> sampled l1 m' l2 Q gs l' Q' -> sampled l1 m' l Q gs l' Q'.

Inductive event (S : machine) : machine -> Prop :=
| N_admit p prs l' r : map mean p = p -> admit (x_led S) p = Some (l', r) ->
    event S (Ma (x_mem S) l' (upd (x_rq S) r (Some (Rq p prs [] true))) (x_past S))
| N_readmit r p prs l' q : map mean p = p -> readmit (x_led S) r p = Some (l', true) -> x_rq S r = Some q ->
    event S (Ma (x_mem S) l' (upd (x_rq S) r (Some (Rq p prs [] true))) (q :: x_past S))
| N_step ops l1 gs m' l2 Q2 :
    step (x_led S) [] ops = Some (l1, gs, true) ->
    runs l1 (map mean_launch gs) (x_mem S) m' -> sampled l1 m' l1 (x_rq S) gs l2 Q2 ->
    event S (Ma m' l2 Q2 (x_past S))
| N_refuse ops l1 gs l2 : step (x_led S) [] ops = Some (l1, gs, false) -> reset l1 = Some l2 ->
    event S (Ma (x_mem S) l2 (x_rq S) (x_past S))
| N_resolve l' : mean_ledger l' = mean_ledger (x_led S) ->   (* names replaced by their tokens, anywhere *)
    event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| N_reset l' : reset (x_led S) = Some l' -> event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| N_scribble m' : (forall s, unclaimed P (x_led S) s \/ m' s = x_mem S s) ->
    event S (Ma m' (x_led S) (x_rq S) (x_past S))
| N_draft r t l' : draft (x_led S) r t = Some (l', true) -> event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| N_truncate r n l' : truncate (x_led S) r n = Some (l', true) -> event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| N_preempt r l' : unpin (x_led S) r = Some (l', true) -> event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| N_finish r l' q : finish (x_led S) r = Some (l', true) -> x_rq S r = Some q ->
    event S (Ma (x_mem S) l' (upd (x_rq S) r (Some (Rq (prompt q) (prm q) (gen q) false))) (x_past S)).
Inductive reachable : machine -> Prop :=
| N_init m n l : create P n = Some l -> reachable (Ma m l (fun _ => None) [])
| N_event S S' : reachable S -> event S S' -> reachable S'.

(** ** It is the machine of [Pages] on the ledger's meaning *)

Lemma mean_out l m g : launch_out (mean_ledger l) m g = launch_out l m g.
Proof.
  unfold Spec.launch_out. f_equal. f_equal. unfold launch_reads, slot_at, Spec.table_of. simpl. rewrite nth_error_map.
  destruct (req_at l (Launch_req g)); reflexivity.
Qed.
Lemma mean_runs l gs m m' : runs l gs m m' -> runs (mean_ledger l) gs m m'.
Proof. intros [R1 R2]. split; [|exact R2]. intros g Ig. rewrite mean_out. exact (R1 g Ig). Qed.

Lemma mean_reqs_length l : length (Ledger_reqs (mean_ledger l)) = length (Ledger_reqs l).
Proof. apply map_length. Qed.
Lemma mean_req_get l r : req_at (mean_ledger l) r = option_map mean_req (req_at l r).
Proof. apply nth_error_map. Qed.
Lemma mean_page_get l p : page_at (mean_ledger l) p = option_map mean_page (page_at l p).
Proof. apply nth_error_map. Qed.
Lemma mean_commit l r n a l2 : LedgerFns.commit l r n a = Some (l2, true) ->
  LedgerFns.commit (mean_ledger l) r n (mean a) = Some (mean_ledger l2, true).
Proof.
  unfold LedgerFns.commit. rewrite mean_kv_len. unfold get. rewrite mean_reqs_length.
  destruct (Nat.leb (length (Ledger_reqs l)) r); [discriminate|]. destruct (kv_len l r) as [kv|]; [|discriminate]. cbn [bind]. cbv zeta.
  rewrite mean_req_get. destruct (req_at l r) as [q|] eqn:Hq; [|discriminate]. cbn [option_map bind].
  change (Req_live (mean_req q)) with (Req_live q). change (Req_sure (mean_req q)) with (Req_sure q).
  destruct (Req_live q); cbn [negb bind]; [|discriminate]. destruct (negb (Nat.eqb n (Req_sure q))); cbn [bind]; [discriminate|].
  destruct (Nat.ltb kv n); [discriminate|]. assert (Ln : length (Req_toks (mean_req q)) = length (Req_toks q)) by apply map_length. rewrite Ln.
  destruct (Nat.ltb n (length (Req_toks q))); cbn [negb bind].
  - change (Req_toks (mean_req q)) with (map mean (Req_toks q)). rewrite nth_error_map. destruct (nth_error (Req_toks q) n) as [x|]; [|discriminate]. cbn [option_map bind].
    destruct (Nat.eqb_spec x a) as [->|]; cbn [negb]; [|discriminate]. rewrite Nat.eqb_refl. cbn [negb]. rewrite mean_req_get, Hq. cbn [option_map bind].
    change (Req_sure (mean_req q)) with (Req_sure q). destruct (add_u 64 (Req_sure q) 1) as [k|]; [|discriminate]. cbn [bind].
    rewrite (put_total _ _ _ _ Hq). rewrite (put_total _ _ _ (mean_req q)) by (apply map_nth_error; exact Hq). cbn [bind]. intros [= <-].
    change (set_Ledger_reqs l (set_nth (Ledger_reqs l) r (set_Req_sure q k))) with (upd_req l r (set_Req_sure q k)). rewrite mean_upd_req. reflexivity.
  - rewrite (put_total _ _ _ _ Hq). rewrite (put_total _ _ _ (mean_req q)) by (apply map_nth_error; exact Hq). cbn [bind]. simpl Ledger_reqs.
    rewrite (nth_set_nth _ _ _ _ _ Hq). rewrite (nth_set_nth (map mean_req (Ledger_reqs l)) r _ (mean_req q)) by (apply map_nth_error; exact Hq).
    rewrite Nat.eqb_refl. cbn [bind]. change (Req_sure (set_Req_toks (mean_req q) (map mean (Req_toks q) ++ [mean a]))) with (Req_sure q).
    change (Req_sure (set_Req_toks q (Req_toks q ++ [a]))) with (Req_sure q). destruct (add_u 64 (Req_sure q) 1) as [k|]; [|discriminate]. cbn [bind].
    rewrite (put_total _ _ _ (set_Req_toks q (Req_toks q ++ [a]))) by (rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl; reflexivity).
    rewrite (put_total _ _ _ (set_Req_toks (mean_req q) (map mean (Req_toks q) ++ [mean a])))
      by (rewrite (nth_set_nth _ _ _ (mean_req q)) by (apply map_nth_error; exact Hq); rewrite Nat.eqb_refl; reflexivity).
    cbn [bind]. intros [= <-]. unfold set_Ledger_reqs, mean_ledger. simpl. rewrite !set_nth_twice, map_set_nth. unfold mean_req, set_Req_sure, set_Req_toks. simpl. rewrite map_app. reflexivity.
Qed.

Definition mean_done (x : option (Ledger * bool)) : option (Ledger * bool) := option_map (fun lb => (mean_ledger (fst lb), snd lb)) x.
Lemma mean_for f : (forall i l, f i (mean_ledger l) = option_map mean_ledger (f i l)) ->
  forall n a l, for_n n a f (mean_ledger l) = option_map mean_ledger (for_n n a f l).
Proof.
  intros F n. induction n as [|n IH]; intros a l; [reflexivity|]. simpl. rewrite F. destruct (f a l) as [l1|]; [|reflexivity]. cbn [option_map bind]. apply IH.
Qed.
Lemma mean_put_page l p pg : put (Ledger_pages (mean_ledger l)) p (mean_page pg) = option_map (map mean_page) (put (Ledger_pages l) p pg).
Proof. unfold put. simpl. rewrite map_length. destruct (p <? length (Ledger_pages l)); [|reflexivity]. simpl. rewrite map_set_nth. reflexivity. Qed.
Lemma mean_put_req l r q : put (Ledger_reqs (mean_ledger l)) r (mean_req q) = option_map (map mean_req) (put (Ledger_reqs l) r q).
Proof. unfold put. simpl. rewrite map_length. destruct (r <? length (Ledger_reqs l)); [|reflexivity]. simpl. rewrite map_set_nth. reflexivity. Qed.

Lemma mean_release l r k : release (mean_ledger l) r k = option_map mean_ledger (release l r k).
Proof.
  unfold release, get. rewrite mean_req_get. destruct (req_at l r) as [q|]; [|reflexivity]. cbn [option_map bind].
  change (Req_table (mean_req q)) with (Req_table q). unfold for_range. rewrite mean_for.
  - match goal with |- context [option_map mean_ledger ?x] => destruct x as [l1|]; [|reflexivity] end. cbn [option_map bind]. cbv zeta. 
    rewrite mean_req_get. destruct (req_at l1 r) as [q1|]; [|reflexivity]. cbn [option_map bind].
    change (set_Req_table (mean_req q1) (firstn k (Req_table (mean_req q1)))) with (mean_req (set_Req_table q1 (firstn k (Req_table q1)))).
    rewrite mean_put_req. destruct (put (Ledger_reqs l1) r _); reflexivity.
  - intros i x. cbv zeta. rewrite mean_req_get. destruct (req_at x r) as [qx|]; [|reflexivity]. cbn [option_map bind].
    change (Req_table (mean_req qx)) with (Req_table qx). destruct (nth_error (Req_table qx) i) as [p|]; [|reflexivity]. cbn [bind]. 
    rewrite mean_page_get. destruct (page_at x p) as [pg|]; [|reflexivity]. cbn [option_map bind]. change (Page_pins (mean_page pg)) with (Page_pins pg).
    destruct (sub_u 32 (Page_pins pg) 1) as [k1|]; [|reflexivity]. cbn [bind]. change (set_Page_pins (mean_page pg) k1) with (mean_page (set_Page_pins pg k1)).
    rewrite mean_put_page. destruct (put (Ledger_pages x) p _); reflexivity.
Qed.

Lemma mean_truncate l r n : truncate (mean_ledger l) r n = mean_done (truncate l r n).
Proof.
  unfold truncate, get. rewrite mean_reqs_length. destruct (Nat.leb (length (Ledger_reqs l)) r); [reflexivity|]. 
  rewrite !mean_req_get. destruct (req_at l r) as [q|] eqn:Hq; [|reflexivity]. cbn [option_map bind].
  change (Req_live (mean_req q)) with (Req_live q). change (Req_sure (mean_req q)) with (Req_sure q).
  assert (Ln : length (Req_toks (mean_req q)) = length (Req_toks q)) by apply map_length. rewrite Ln.
  match goal with |- context [if negb (Req_live q) then Some true else Some ?b] => destruct (if negb (Req_live q) then Some true else Some b) as [c|]; [|reflexivity] end.
  cbn [bind]. match goal with |- context [if c then Some true else Some ?b] => destruct (if c then Some true else Some b) as [c2|]; [|reflexivity] end. cbn [bind].
  destruct c2; [reflexivity|]. change (Ledger_psize (mean_ledger l)) with (Ledger_psize l).
  destruct (div_u 64 n (Ledger_psize l)) as [whole|]; [|reflexivity]. cbn [bind]. cbv zeta. destruct (mul_u 64 whole (Ledger_psize l)) as [m|]; [|reflexivity]. cbn [bind].
  destruct (sub_u 64 n m) as [rest|]; [|reflexivity]. cbn [bind].
  change (Req_table (mean_req q)) with (Req_table q). clear.
  assert (Last : forall l1, (do tmp25 <- req_at (mean_ledger l1) r; do tmp26 <- req_at (mean_ledger l1) r;
      do tmp27 <- put (Ledger_reqs (mean_ledger l1)) r (set_Req_toks tmp26 (firstn n (Req_toks tmp25))); Some (set_Ledger_reqs (mean_ledger l1) tmp27, true)) =
    mean_done (do tmp25 <- req_at l1 r; do tmp26 <- req_at l1 r; do tmp27 <- put (Ledger_reqs l1) r (set_Req_toks tmp26 (firstn n (Req_toks tmp25)));
      Some (set_Ledger_reqs l1 tmp27, true))).
  { intros l1. rewrite mean_req_get. destruct (req_at l1 r) as [q1|]; [|reflexivity]. cbn [option_map bind].
    replace (set_Req_toks (mean_req q1) (firstn n (Req_toks (mean_req q1)))) with (mean_req (set_Req_toks q1 (firstn n (Req_toks q1))))
      by (unfold mean_req, set_Req_toks; simpl; rewrite firstn_map; reflexivity).
    rewrite mean_put_req. destruct (put (Ledger_reqs l1) r _); reflexivity. }
  assert (Rest : forall (b : bool) k, (do l0 <- release (mean_ledger l) r k;
      do tmp19 <- (if b then do tmp18 <- req_at l0 r; Some (whole <? length (Req_table tmp18)) else Some false);
      do l1 <- (if tmp19 then do tmp20 <- req_at l0 r; do tmp21 <- nth_error (Req_table tmp20) whole; do tmp22 <- page_at l0 tmp21; do tmp23 <- page_at l0 tmp21;
          do tmp24 <- put (Ledger_pages l0) tmp21 (set_Page_toks tmp23 (firstn rest (Page_toks tmp22))); Some (set_Ledger_pages l0 tmp24) else Some l0);
      do tmp25 <- req_at l1 r; do tmp26 <- req_at l1 r; do tmp27 <- put (Ledger_reqs l1) r (set_Req_toks tmp26 (firstn n (Req_toks tmp25)));
      Some (set_Ledger_reqs l1 tmp27, true)) =
    mean_done (do l0 <- release l r k;
      do tmp19 <- (if b then do tmp18 <- req_at l0 r; Some (whole <? length (Req_table tmp18)) else Some false);
      do l1 <- (if tmp19 then do tmp20 <- req_at l0 r; do tmp21 <- nth_error (Req_table tmp20) whole; do tmp22 <- page_at l0 tmp21; do tmp23 <- page_at l0 tmp21;
          do tmp24 <- put (Ledger_pages l0) tmp21 (set_Page_toks tmp23 (firstn rest (Page_toks tmp22))); Some (set_Ledger_pages l0 tmp24) else Some l0);
      do tmp25 <- req_at l1 r; do tmp26 <- req_at l1 r; do tmp27 <- put (Ledger_reqs l1) r (set_Req_toks tmp26 (firstn n (Req_toks tmp25)));
      Some (set_Ledger_reqs l1 tmp27, true))).
  { intros b k. rewrite mean_release. destruct (release l r k) as [l0|]; [|reflexivity]. cbn [option_map bind]. destruct b; cbn [bind]; [|apply Last].
    rewrite mean_req_get. destruct (req_at l0 r) as [q0|]; [|reflexivity]. cbn [option_map bind]. change (Req_table (mean_req q0)) with (Req_table q0).
    destruct (whole <? length (Req_table q0)); cbn [bind]; [|apply Last]. destruct (nth_error (Req_table q0) whole) as [p|]; [|reflexivity]. cbn [bind].
    rewrite mean_page_get. destruct (page_at l0 p) as [pg|]; [|reflexivity]. cbn [option_map bind].
    replace (set_Page_toks (mean_page pg) (firstn rest (Page_toks (mean_page pg)))) with (mean_page (set_Page_toks pg (firstn rest (Page_toks pg))))
      by (unfold mean_page, set_Page_toks; simpl; rewrite firstn_map; reflexivity).
    rewrite mean_put_page. destruct (put (Ledger_pages l0) p _) as [pgs|]; [|reflexivity]. cbn [option_map bind]. exact (Last (set_Ledger_pages l0 pgs)). }
  destruct (0 <? rest); cbn [bind]; [|exact (Rest false whole)].
  destruct (whole <? length (Req_table q)).
  - destruct (nth_error (Req_table q) whole) as [p|]; [|reflexivity]. cbn [bind]. rewrite mean_page_get. destruct (page_at l p) as [pg|]; [|reflexivity]. cbn [option_map bind].
    replace (length (Page_toks (mean_page pg))) with (length (Page_toks pg)) by (symmetry; apply map_length). change (Page_pins (mean_page pg)) with (Page_pins pg).
    destruct (rest <? length (Page_toks pg)); cbn [bind]; [destruct (negb (Nat.eqb (Page_pins pg) 1)); [reflexivity|]|];
      (destruct (add_u 64 whole 1) as [k|]; [cbn [bind]; exact (Rest true k)|reflexivity]).
  - destruct (add_u 64 whole 1) as [k|]; [cbn [bind]; exact (Rest true k)|reflexivity].
Qed.

Lemma mean_sampled l1 m' l Q gs l2 Q2 : sampled l1 m' l Q gs l2 Q2 ->
  Spec.sampled cell logits params row_fn sample (mean_ledger l1) m' (mean_ledger l) Q (map mean_launch gs) (mean_ledger l2) Q2.
Proof.
  induction 1 as [l Q|l Q g gs l' Q' _ IH|l Q g gs q lg a l2 l' Q' Sm Hq El Ea Cm _ IH|l Q gs r n l2 l' Q' Cu _ IH].
  - apply Spec.sampled_none.
  - apply Spec.sampled_drop. exact IH.
  - apply (Spec.sampled_take _ _ _ _ _ _ _ _ _ (mean_launch g) _ q lg (mean a) (mean_ledger l2)); auto.
    + rewrite mean_out. exact El.
    + apply mean_commit. exact Cm.
  - apply (Spec.sampled_truncate _ _ _ _ _ _ _ _ _ _ r n (mean_ledger l2)); [|exact IH]. rewrite mean_truncate, Cu. reflexivity.
Qed.

Lemma mean_good l g : good l g -> good (mean_ledger l) (mean_launch g).
Proof.
  intros (q & Hq & Kp & Tk & Sm). exists (mean_req q). split; [apply mean_req_at; exact Hq|]. split; [exact Kp|]. simpl.
  split; [apply map_nth_error; exact Tk|]. exact Sm.
Qed.
Lemma mean_unpinned l r q l' : unpinned l r q l' -> unpinned (mean_ledger l) r (mean_req q) (mean_ledger l').
Proof.
  intros (U1 & U2 & U3 & U4). split; [exact U1|]. split; [exact U2|]. split; [simpl; rewrite U3, map_set_nth; reflexivity|].
  intros p. simpl. rewrite !nth_error_map, U4. destruct (page_at l p); reflexivity.
Qed.
Lemma mean_reset l l' : reset l = Some l' -> mean_ledger l' = mkLedger (Ledger_psize l) (Ledger_next l)
  (map (fun _ => mkPage 0 0 0 []) (Ledger_pages (mean_ledger l))) (map (fun q => set_Req_table q []) (Ledger_reqs (mean_ledger l))).
Proof. intros Re. apply reset_ok in Re as ->. unfold mean_ledger. simpl. rewrite !map_map. reflexivity. Qed.

Theorem named_sim S : reachable S -> 0 < P /\
  preachable (Pst (x_mem S) (mean_ledger (x_led S)) (x_rq S) (x_past S)) /\ Sync (mean_ledger (x_led S)) (x_rq S).
Proof.
  induction 1 as [m n l Cr|S S' _ (Ppos & IH & Sy) E].
  - apply create_ok in Cr as (-> & Ppos & _). split; [exact Ppos|].
    assert (E : mean_ledger (init_ledger P n) = init_ledger P n).
    { unfold mean_ledger, init_ledger. simpl. f_equal. induction n as [|n IHn]; [reflexivity|]. simpl. rewrite IHn. reflexivity. }
    simpl. rewrite E. split; [constructor|]. intros [|r]; reflexivity.
  - split; [exact Ppos|]. destruct (page_refines _ _ _ _ _ _ Ppos _ IH) as (D & L & I & Le & _). simpl in I, Le.
    pose proof (I_psize _ _ _ I) as Ps. simpl in Ps. set (S0 := Pst (x_mem S) (mean_ledger (x_led S)) (x_rq S) (x_past S)) in *.
    destruct E as [p prs l' r Mp A|r p prs l' q0 Mp A Hq0|ops l1 gs m' l2 Q2 St So Rs|ops l1 gs l2 St Re|l' Em|l' Re|m' Sc|r t l' Dr|r n l' Cu|r l' U|r l' q0 F Hq0]; simpl.
    + apply admit_ok in A as [-> ->]. pose proof (Sy (length (Ledger_reqs (x_led S)))) as Nn.
      rewrite (proj2 (nth_error_None _ _)) in Nn by (simpl; rewrite map_length; apply le_n).
      assert (Em : mean_ledger (set_Ledger_reqs (x_led S) (Ledger_reqs (x_led S) ++ [mkReq true (length p) p []])) =
                   set_Ledger_reqs (mean_ledger (x_led S)) (Ledger_reqs (mean_ledger (x_led S)) ++ [mkReq true (length p) p []])).
      { unfold mean_ledger, set_Ledger_reqs. simpl. rewrite map_app. unfold mean_req at 2. simpl. rewrite Mp. reflexivity. }
      rewrite Em. assert (Ln : length (Ledger_reqs (x_led S)) = length (Ledger_reqs (mean_ledger (x_led S)))) by (simpl; rewrite map_length; reflexivity).
      rewrite Ln in *. split.
      * eapply PR_event; [exact IH|]. apply (PE_admit _ _ _ _ _ _ S0). exact Nn.
      * intros r. cbn [Ledger_reqs set_Ledger_reqs]. unfold upd. destruct (Nat.eqb_spec r (length (Ledger_reqs (mean_ledger (x_led S))))) as [->|Ne].
        -- rewrite nth_error_app2, Nat.sub_diag by lia. eexists. split; [reflexivity|]. unfold Reference.hist. simpl. rewrite app_nil_r, firstn_all. auto.
        -- pose proof (Sy r) as X. destruct (Nat.lt_ge_cases r (length (Ledger_reqs (mean_ledger (x_led S))))).
           ++ rewrite nth_error_app1 by assumption. exact X.
           ++ rewrite (proj2 (nth_error_None _ _)) in X by assumption. rewrite (proj2 (nth_error_None _ _)); [exact X|]. rewrite app_length. cbn [length]. lia.
    + apply readmit_ok in A as (q & Hq & Dead & Tq & ->). apply mean_req_at in Hq. pose proof (Sy r) as X. rewrite Hq in X. destruct X as (q0' & X1 & X2 & _).
      rewrite Hq0 in X1. injection X1 as <-. rewrite mean_upd_req. unfold mean_req at 1 2. simpl. rewrite Mp. split.
      * eapply PR_event; [exact IH|]. apply (PE_readmit _ _ _ _ _ _ S0 r (mean_req q)); auto. simpl in X2. congruence.
      * intros r'. simpl. rewrite (nth_set_nth _ _ _ _ _ Hq). unfold upd. destruct (Nat.eqb_spec r' r) as [->|]; [|exact (Sy r')].
        eexists. split; [reflexivity|]. unfold Reference.hist. simpl. rewrite app_nil_r, firstn_all. auto.
    + apply step_ok in St as (g2 & E & M & G); [|lia]. simpl in E. subst g2. rewrite Ps in M. apply mean_micros in M.
      rewrite map_map, (map_ext _ (fun g => row_of (mean_ledger l1) (mean_launch g)) (mean_row_of l1)), <- map_map in M.
      destruct (step_refines _ Ppos D L _ _ _ I Le M) as (D' & I' & _ & _).
      assert (Sy1 : Sync (mean_ledger l1) (x_rq S)).
      { intros r. pose proof (micros_reqs _ _ _ _ M r) as X. pose proof (Sy r) as Y. destruct (req_at (mean_ledger (x_led S)) r) as [q|].
        - destruct X as (q' & more & A & B & C & Dd & De). rewrite A, C, Dd, De. exact Y.
        - rewrite X. exact Y. }
      assert (G' : Forall (good (mean_ledger l1)) (map mean_launch gs)).
      { apply Forall_map. eapply Forall_impl; [|exact G]. intros g. apply mean_good. }
      apply mean_sampled in Rs.
      destruct (sampled_ok _ _ _ _ _ _ Ppos D' (mean_ledger l1) m' (mean_ledger l1) (x_rq S) _ _ Q2 Rs I' (kept_refl (mean_ledger l1)) Sy1 G') as (R' & F & E & S2 & Pr).
      { split; [|exact S2]. apply Pr. rewrite E. eapply PR_event; [exact IH|].
        apply (PE_step _ _ _ _ _ _ S0 (mean_ledger l1) (map (row_of (mean_ledger l1)) (map mean_launch gs)) R'); [exact M| |exact F].
        apply runs_solution, mean_runs. exact So. }
    + apply step_ok in St as (g2 & E & M & G); [|lia]. rewrite Ps in M. apply mean_micros in M.
      destruct (micros_shape _ _ _ _ M) as (N1 & N2 & N3). destruct (reset_after P (mean_ledger (x_led S)) (mean_ledger l1) _ Ps M) as [Rr Rp].
      rewrite (mean_reset _ _ Re), Rr, Rp. change (Ledger_psize l1) with (Ledger_psize (mean_ledger l1)). rewrite N3. split.
      * eapply PR_event; [exact IH|]. apply (PE_reset _ _ _ _ _ _ S0). exact N1.
      * exact (sync_reset _ _ _ _ Sy).
    + rewrite Em. split; [exact IH|exact Sy].
    + rewrite (mean_reset _ _ Re). split; [|exact (sync_reset _ _ _ _ Sy)].
      eapply PR_event; [exact IH|]. apply (PE_reset _ _ _ _ _ _ S0). apply le_n.
    + split; [|exact Sy]. eapply PR_event; [exact IH|]. apply (PE_scribble _ _ _ _ _ _ S0).
      intros s pg Hs Lt. apply mean_page_inv in Hs as (pg0 & Hs & ->). simpl in Lt. rewrite map_length in Lt.
      destruct (Sc s) as [Un|Eq]; [|exact Eq]. specialize (Un pg0 Hs). lia.
    + apply draft_ok in Dr as (q & Hq & Lq & ->). apply mean_req_at in Hq. rewrite mean_upd_req. split.
      * eapply PR_event; [exact IH|]. apply (PE_append _ _ _ _ _ _ S0 r (mean_req q) _ [mean t]); [exact Hq|reflexivity|]. simpl. apply map_app.
      * intros x. simpl. simpl in Hq. rewrite (nth_set_nth _ _ _ _ _ Hq). pose proof (Sy x) as X. simpl in X. destruct (Nat.eqb_spec x r) as [->|]; [|exact X].
        rewrite Hq in X. destruct X as (q0 & X1 & X2 & X3). exists q0. split; [exact X1|]. split; [exact X2|]. simpl in X3 |- *. intros Lv.
        destruct (X3 Lv) as [X4 X5]. rewrite map_length in *. rewrite app_length, map_app, firstn_app, map_length. simpl.
        replace (Req_sure q - length (Req_toks q)) with 0 by lia. rewrite firstn_O, app_nil_r. split; [lia|exact X5].
    + assert (Cm : truncate (mean_ledger (x_led S)) r n = Some (mean_ledger l', true)) by (rewrite mean_truncate, Cu; reflexivity).
      apply truncate_ok in Cm as (q & whole & rest & Hq & _ & En & Sq & Tr); [|simpl; rewrite Ps; exact Ppos].
      change (Ledger_psize (mean_ledger (x_led S))) with (Ledger_psize (x_led S)) in *. rewrite Ps in En, Tr. subst n.
      split; [|exact (sync_truncated _ _ _ Ppos _ _ _ _ _ _ _ Sy Hq Tr Sq)].
      eapply PR_event; [exact IH|]. exact (PE_truncate _ _ _ _ _ _ S0 r q whole rest _ Hq Tr).
    + apply unpin_ok in U as (q & Hq & U). apply mean_req_at in Hq. apply mean_unpinned in U. split; [|exact (sync_unpinned _ _ _ _ _ _ _ Sy Hq U)].
      eapply PR_event; [exact IH|]. eapply (PE_unpin _ _ _ _ _ _ S0); [exact Hq|exact U].
    + apply finish_ok in F as (l1 & q1 & U & H1 & ->). apply unpin_ok in U as (q & Hq & U). apply mean_req_at in Hq.
      assert (Tq : Req_table q1 = []).
      { destruct U as (_ & _ & U & _). rewrite U in H1. apply nth_error_In in H1 as In1. clear - H1 Hq.
        assert (Hn : exists q', req_at (x_led S) r = Some q' /\ Req_table q' = Req_table q).
        { simpl in Hq. rewrite nth_error_map in Hq. destruct (req_at (x_led S) r) as [q'|] eqn:E; [|discriminate]. exists q'. split; [reflexivity|]. injection Hq as A1 A2 A3 A4. exact A4. }
        destruct Hn as (q' & Hn & _). rewrite (nth_set_nth _ _ _ _ _ Hn), Nat.eqb_refl in H1. injection H1 as <-. reflexivity. }
      apply mean_unpinned in U. apply mean_req_at in H1.
      assert (P1 : preachable (Pst (x_mem S) (mean_ledger l1) (x_rq S) (x_past S))).
      { eapply PR_event; [exact IH|]. eapply (PE_unpin _ _ _ _ _ _ S0); [exact Hq|exact U]. }
      pose proof (sync_unpinned _ _ _ _ _ _ _ Sy Hq U) as Sy1. rewrite mean_upd_req, Tq. unfold mean_req. simpl. split.
      * eapply PR_event; [exact P1|]. apply (PE_finish _ _ _ _ _ _ (Pst (x_mem S) (mean_ledger l1) (x_rq S) (x_past S)) r (mean_req q1)); assumption.
      * intros r'. simpl. rewrite (nth_set_nth _ _ _ _ _ H1). unfold upd. pose proof (Sy1 r') as X.
        destruct (Nat.eqb_spec r' r) as [->|Ne]; [|exact X].
        eexists. split; [reflexivity|]. simpl. split; [reflexivity|discriminate].
Qed.

(** ** [resolve] puts a token in the place of its name, and nothing else *)

Lemma mean_renamed (ts : list nat) a t : mean a = mean t -> forall i, nth_error ts i = Some a -> map mean (set_nth ts i t) = map mean ts.
Proof.
  intros Em. induction ts as [|x ts IH]; intros [|i] Hi; simpl in *; try discriminate.
  - injection Hi as ->. rewrite Em. reflexivity.
  - rewrite (IH i Hi). reflexivity.
Qed.
Lemma set_nth_same {A} (l : list A) : forall i x, nth_error l i = Some x -> set_nth l i x = l.
Proof. induction l as [|y l IH]; intros [|i] x Hi; simpl in *; try discriminate; [congruence|]. rewrite (IH i x Hi). reflexivity. Qed.

Lemma mean_renamed_page l p pg i a t : mean a = mean t -> page_at l p = Some pg -> nth_error (Page_toks pg) i = Some a ->
  mean_ledger (set_Ledger_pages l (set_nth (Ledger_pages l) p (set_Page_toks pg (set_nth (Page_toks pg) i t)))) = mean_ledger l.
Proof.
  intros Em Hp Hi. change (mean_ledger (upd_page l p (set_Page_toks pg (set_nth (Page_toks pg) i t))) = mean_ledger l). rewrite mean_upd_page.
  assert (E : mean_page (set_Page_toks pg (set_nth (Page_toks pg) i t)) = mean_page pg) by (unfold mean_page; simpl; rewrite (mean_renamed _ a t Em i Hi); reflexivity).
  rewrite E. unfold upd_page. rewrite (set_nth_same _ _ _ (mean_page_at _ _ _ Hp)). reflexivity.
Qed.
Lemma mean_renamed_req l r q n a t : mean a = mean t -> req_at l r = Some q -> nth_error (Req_toks q) n = Some a ->
  mean_ledger (set_Ledger_reqs l (set_nth (Ledger_reqs l) r (set_Req_toks q (set_nth (Req_toks q) n t)))) = mean_ledger l.
Proof.
  intros Em Hq Hn. change (mean_ledger (upd_req l r (set_Req_toks q (set_nth (Req_toks q) n t))) = mean_ledger l). rewrite mean_upd_req.
  assert (E : mean_req (set_Req_toks q (set_nth (Req_toks q) n t)) = mean_req q) by (unfold mean_req; simpl; rewrite (mean_renamed _ a t Em n Hn); reflexivity).
  rewrite E. unfold upd_req. rewrite (set_nth_same _ _ _ (mean_req_at _ _ _ Hq)). reflexivity.
Qed.

Lemma mean_resolve l r n a t l' b : mean a = mean t -> resolve l r n a t = Some (l', b) -> mean_ledger l' = mean_ledger l.
Proof.
  intros Em. unfold resolve, get. destruct (Nat.leb (length (Ledger_reqs l)) r); [intros [= <- _]; reflexivity|].
  destruct (req_at l r) as [q|] eqn:Hq; [|discriminate]. cbn [bind]. destruct (Req_live q); cbn [negb bind]; [|intros [= <- _]; reflexivity].
  destruct (Nat.leb (length (Req_toks q)) n); cbn [bind]; [intros [= <- _]; reflexivity|].
  destruct (nth_error (Req_toks q) n) as [x|] eqn:Hx; [|discriminate]. cbn [bind].
  destruct (Nat.eqb_spec x a) as [->|]; cbn [negb]; [|intros [= <- _]; reflexivity].
  destruct (div_u 64 n (Ledger_psize l)) as [whole|]; [|discriminate]. cbn [bind]. cbv zeta.
  destruct (mul_u 64 whole (Ledger_psize l)) as [m|]; [|discriminate]. cbn [bind]. destruct (sub_u 64 n m) as [rest|]; [|discriminate]. cbn [bind].
  match goal with |- bind ?x _ = _ -> _ => destruct x as [l1|] eqn:E; [|discriminate] end. cbn [bind].
  assert (Pg : mean_ledger l1 = mean_ledger l /\ Ledger_reqs l1 = Ledger_reqs l).
  { destruct (whole <? length (Req_table q)); [|cbn [bind] in E; injection E as <-; auto]. destruct (nth_error (Req_table q) whole) as [p|]; [|discriminate E]. cbn [bind] in E.
    destruct (page_at l p) as [pg|] eqn:Hp; [|discriminate E]. cbn [bind] in E. destruct (rest <? length (Page_toks pg)); cbn [bind] in E; [|cbn [bind] in E; injection E as <-; auto].
    destruct (nth_error (Page_toks pg) rest) as [y|] eqn:Hy; [|discriminate E]. cbn [bind] in E.
    destruct (Nat.eqb_spec y a) as [->|]; cbn [bind] in E; [|cbn [bind] in E; injection E as <-; auto].
    rewrite (put_total _ _ _ _ Hy) in E. cbn [bind] in E. rewrite (put_total _ _ _ _ Hp) in E. cbn [bind] in E. injection E as <-.
    split; [exact (mean_renamed_page _ _ _ _ _ _ Em Hp Hy)|reflexivity]. }
  destruct Pg as [M R]. assert (H1 : req_at l1 r = Some q) by (rewrite R; exact Hq). rewrite H1. cbn [bind]. rewrite (put_total _ _ _ _ Hx). cbn [bind].
  rewrite (put_total _ _ _ _ H1). cbn [bind]. intros [= <- _]. rewrite <- M. exact (mean_renamed_req _ _ _ _ _ _ Em H1 Hx).
Qed.

(** What [resolve] does is the event [N_resolve], when the token is what the name stands for. *)
Theorem resolve_resolves S r n a t l' b : mean a = mean t -> resolve (x_led S) r n a t = Some (l', b) ->
  event S (Ma (x_mem S) l' (x_rq S) (x_past S)).
Proof. intros Em E. apply N_resolve. exact (mean_resolve _ _ _ _ _ _ _ Em E). Qed.

(** It does not panic, within the bounds of [Spec.within]. *)
Theorem resolve_never_panics S r n a t : reachable S -> Spec.within P 0 (x_led S) -> resolve (x_led S) r n a t <> None.
Proof.
  intros R (_ & _ & Ft). destruct (named_sim S R) as (Ppos & Pr & _). destruct (page_refines _ _ _ _ _ _ Ppos _ Pr) as (D & L & I & _). simpl in I.
  pose proof (I_psize _ _ _ I) as Ps. simpl in Ps. remember (x_led S) as l eqn:El. clear - Ppos Ft I Ps. unfold resolve, get.
  destruct (Nat.leb_spec (length (Ledger_reqs l)) r) as [|In]; [discriminate|]. destruct (get_total (Ledger_reqs l) r In) as [q Hq]. rewrite Hq. cbn [bind].
  destruct (Req_live q); cbn [negb bind]; [|discriminate]. destruct (Nat.leb_spec (length (Req_toks q)) n) as [|Ln]; cbn [bind]; [discriminate|].
  destruct (get_total (Req_toks q) n Ln) as [x Hx]. rewrite Hx. cbn [bind]. destruct (negb (Nat.eqb x a)); [discriminate|].
  unfold div_u. destruct (Nat.eqb_spec (Ledger_psize l) 0); [lia|]. cbn [bind]. cbv zeta. pose proof (Nat.div_mod n (Ledger_psize l) ltac:(lia)) as Dm.
  set (whole := n / Ledger_psize l) in *. rewrite mul_total by (eapply fits_mono; [exact (Ft _ _ Hq)|nia]). cbn [bind]. rewrite sub_total by nia. cbn [bind].
  match goal with |- bind ?x _ <> _ => assert (E : exists l1, x = Some l1 /\ Ledger_reqs l1 = Ledger_reqs l) end.
  { destruct (Nat.ltb_spec whole (length (Req_table q))) as [Lt|]; [|eauto]. destruct (get_total (Req_table q) whole Lt) as [p Hp]. rewrite Hp. cbn [bind].
    destruct (I_req _ _ _ I _ _ _ _ (mean_req_at _ _ _ Hq) Hp) as (pg' & suf & Hpg & _). apply mean_page_inv in Hpg as (pg & Hpg & _). rewrite Hpg. cbn [bind].
    destruct (Nat.ltb_spec (n - whole * Ledger_psize l) (length (Page_toks pg))) as [Lp|]; cbn [bind]; [|eauto].
    destruct (get_total (Page_toks pg) _ Lp) as [y Hy]. rewrite Hy. cbn [bind]. destruct (Nat.eqb y a); cbn [bind]; [|eauto].
    rewrite (put_total _ _ _ _ Hy). cbn [bind]. rewrite (put_total _ _ _ _ Hpg). cbn [bind]. eexists. split; reflexivity. }
  destruct E as (l1 & -> & R1). cbn [bind]. rewrite R1, Hq. cbn [bind]. rewrite (put_total _ _ _ _ Hx). cbn [bind]. rewrite (put_total _ _ _ _ Hq). discriminate.
Qed.

(** Running ahead changes nothing that a client can see. *)
Theorem named_equals_reference S q : reachable S -> Spec.served cell logits params S q ->
  gen q = ref_gen _ _ _ _ row_fn sample (prm q) (prompt q) (length (gen q)).
Proof. intros R V. destruct (named_sim S R) as (Ppos & Pr & _). exact (page_trace_sound _ _ _ _ _ _ Ppos _ q Pr V). Qed.
End Names.

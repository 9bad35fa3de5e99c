(** The policy that ships: [serve] is safe like every policy, always finds a step, and finishes every request. *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.
From Sametree Require Import Prims Reference LedgerTypes LedgerFns Spec Core Pages FnsOk EndToEnd NoPanic Main Progress.

Notation page_at l p := (nth_error (Ledger_pages l) p).
Notation req_at l r := (nth_error (Ledger_reqs l) r).
Notation plen pg := (length (Page_toks pg)).

(** * What giving pages back leaves as it is *)

Lemma kvn_same l l' e : Ledger_psize l' = Ledger_psize l ->
  (forall p, In p (Req_table e) -> option_map (fun pg => plen pg) (page_at l' p) = option_map (fun pg => plen pg) (page_at l p)) -> kvn l' e = kvn l e.
Proof.
  intros Ps Same. unfold kvn. destruct (rev (Req_table e)) as [|p t] eqn:E; [reflexivity|]. rewrite Ps. f_equal.
  assert (Ip : In p (Req_table e)) by (apply in_rev; rewrite E; left; reflexivity). specialize (Same p Ip).
  destruct (page_at l' p), (page_at l p); simpl in Same; congruence.
Qed.

Definition calm (l l' : Ledger) : Prop :=
  Ledger_next l' = Ledger_next l /\ length (Ledger_pages l') = length (Ledger_pages l) /\ length (Ledger_reqs l') = length (Ledger_reqs l) /\
  forall r q', req_at l' r = Some q' -> exists q, req_at l r = Some q /\ Req_live q' = Req_live q /\ Req_sure q' = Req_sure q /\ Req_toks q' = Req_toks q /\ kvn l' q' <= kvn l q.
Lemma calm_refl l : calm l l.
Proof. repeat (split; [reflexivity|]). intros r q Hq. exists q. auto. Qed.
Lemma calm_trans l1 l2 l3 : calm l1 l2 -> calm l2 l3 -> calm l1 l3.
Proof.
  intros (A & B & C & D) (A' & B' & C' & D'). split; [congruence|]. split; [congruence|]. split; [congruence|].
  intros r q3 H3. destruct (D' r q3 H3) as (q2 & H2 & E1 & E2 & E3 & E4). destruct (D r q2 H2) as (q1 & H1 & F1 & F2 & F3 & F4). exists q1. split; [exact H1|]. split; [congruence|]. split; [congruence|]. split; [congruence|lia].
Qed.
Lemma calm_within P n l l' : calm l l' -> within P n l -> within P n l'.
Proof.
  intros (A & B & C & D) (W1 & W2 & W3). split; [rewrite C; exact W1|]. split; [rewrite A; exact W2|].
  intros r q' Hq'. destruct (D r q' Hq') as (q & Hq & _ & _ & -> & _). exact (W3 r q Hq).
Qed.
Lemma calm_at l l' r q : calm l l' -> req_at l r = Some q -> exists q', req_at l' r = Some q' /\ Req_live q' = Req_live q /\ Req_sure q' = Req_sure q /\ Req_toks q' = Req_toks q /\ kvn l' q' <= kvn l q.
Proof.
  intros (_ & _ & C & D) Hq. destruct (get_total (Ledger_reqs l') r) as [q' Hq']; [rewrite C; apply nth_error_Some; congruence|].
  exists q'. split; [exact Hq'|]. destruct (D r q' Hq') as (q0 & H0 & E). rewrite Hq in H0. injection H0 as <-. exact E.
Qed.

Lemma unpin_calm l r l' : unpin l r = Some (l', true) -> calm l l'.
Proof.
  intros U. apply unpin_ok in U as (q & Hq & Ps & Nx & Rq & Pg). split; [exact Nx|]. split; [exact (mapped_length _ _ _ Pg)|].
  split; [rewrite Rq; apply set_nth_length|]. intros x qx Hx. rewrite Rq, (nth_set_nth _ _ _ _ _ Hq) in Hx. destruct (Nat.eqb_spec x r) as [->|Ne].
  - injection Hx as <-. exists q. repeat (split; [auto|]). unfold kvn at 1. simpl. lia.
  - exists qx. repeat (split; [auto|]). rewrite (kvn_same l l' qx Ps); [lia|]. intros p _. rewrite Pg. destruct (page_at l p); reflexivity.
Qed.
Lemma unpin_false l r l' : unpin l r = Some (l', false) -> l' = l /\ req_at l r = None.
Proof. intros H. unfold unpin in H. run H; try discriminate. split; [reflexivity|]. apply nth_error_None. assumption. Qed.
Lemma reset_calm l l' : reset l = Some l' -> calm l l'.
Proof.
  intros R. apply reset_ok in R as ->. unfold calm. simpl. rewrite !map_length. repeat (split; [reflexivity|]). intros r q' Hq'.
  rewrite nth_error_map in Hq'. destruct (req_at l r) as [q|]; [|discriminate]. injection Hq' as <-. exists q. repeat (split; [auto|]). unfold kvn at 1. simpl. lia.
Qed.

Section Serve.
Variables cell logits params : Type.
Variable row_fn : nat -> nat -> list cell -> cell * logits.
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.
Notation machine := (Spec.machine cell logits params).
Notation Ma := (Spec.Ma cell logits params).
Notation x_mem := (Spec.x_mem cell logits params).
Notation x_led := (Spec.x_led cell logits params).
Notation x_rq := (Spec.x_rq cell logits params).
Notation x_past := (Spec.x_past cell logits params).
Notation reachable := (Spec.reachable cell logits params row_fn sample P).
Notation event := (Spec.event cell logits params row_fn sample P).
Notation events := (Spec.events cell logits params row_fn sample P).
Notation waits := (Spec.waits P).
Notation roomy := (Spec.roomy P).

(** the machine [S] with another ledger *)
Definition on (S : machine) (l : Ledger) : machine := Ma (x_mem S) l (x_rq S) (x_past S).
Lemma on_self S : on S (x_led S) = S.
Proof. destruct S. reflexivity. Qed.
Lemma events_snoc S l l' : events S (on S l) -> event (on S l) (on S l') -> events S (on S l').
Proof. intros E V. exact (events_more _ _ _ _ _ _ _ _ _ E V). Qed.
Lemma events_reachable S S' : reachable S -> events S S' -> reachable S'.
Proof. intros R E. induction E as [|S1 S2 _ IH V]; [exact R|exact (Spec.R_event _ _ _ _ _ _ _ _ IH V)]. Qed.
Lemma events_trans S1 S2 S3 : events S1 S2 -> events S2 S3 -> events S1 S3.
Proof. intros A B. induction B as [|S4 S5 _ IH V]; [exact A|exact (events_more _ _ _ _ _ _ _ _ _ IH V)]. Qed.

Lemma unpin_one S l r : reachable S -> events S (on S l) -> exists l' b, unpin l r = Some (l', b) /\ events S (on S l') /\ calm l l' /\
  (forall q', req_at l' r = Some q' -> Req_table q' = []) /\
  forall x, x <> r -> req_at l' x = req_at l x /\ kv_len l' x = kv_len l x.
Proof.
  intros R E. pose proof (events_reachable _ _ R E) as R1. pose proof (reachable_Ppos _ _ _ _ _ _ _ R1) as Ppos.
  destruct (reachable_inv _ _ _ _ _ _ Ppos _ R1) as (D & I). destruct (unpin_total P Ppos D l r I) as (l' & b & U & _). exists l', b. split; [exact U|]. destruct b.
  - split; [apply (events_snoc S l); [exact E|]; exact (E_preempt _ _ _ _ _ _ (on S l) r l' U)|]. split; [exact (unpin_calm _ _ _ U)|].
    apply unpin_ok in U as (q & Hq & Ps & _ & Rq & Pg). split.
    + intros q' Hq'. rewrite Rq, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl in Hq'. injection Hq' as <-. reflexivity.
    + intros x Ne. assert (X : req_at l' x = req_at l x) by (rewrite Rq, (nth_set_nth _ _ _ _ _ Hq); destruct (Nat.eqb_spec x r); [contradiction|reflexivity]).
      split; [exact X|]. unfold kv_len, get. rewrite X, Ps. destruct (req_at l x) as [qx|]; [|reflexivity]. cbn [bind]. cbv zeta.
      destruct (Nat.eqb (length (Req_table qx)) 0); [reflexivity|]. destruct (sub_u 64 (length (Req_table qx)) 1) as [k|]; [|reflexivity]. cbn [bind].
      destruct (nth_error (Req_table qx) k) as [p|]; [|reflexivity]. cbn [bind]. destruct (mul_u 64 k (Ledger_psize l)) as [m|]; [|reflexivity]. cbn [bind].
      rewrite Pg. destruct (page_at l p) as [pg|]; reflexivity.
  - apply unpin_false in U as [-> N]. split; [exact E|]. split; [apply calm_refl|]. split; [intros q' Hq'; congruence|auto].
Qed.

(** all others give their pages back *)
Lemma clear_for_does S r : reachable S -> exists l', clear_for (x_led S) r = Some l' /\ events S (on S l') /\ calm (x_led S) l' /\
  alone l' r /\ req_at l' r = req_at (x_led S) r /\ kv_len l' r = kv_len (x_led S) r.
Proof.
  intros R. unfold clear_for. set (l := x_led S) in *.
  match goal with |- context [for_range 0 ?m l ?f] =>
    destruct (for_range_total (fun i x => events S (on S x) /\ calm l x /\ req_at x r = req_at l r /\ kv_len x r = kv_len l r /\
      forall j q, j < i -> j <> r -> req_at x j = Some q -> Req_table q = []) f 0 m l) as (l' & F & E & C & Q & K & T); [lia| | |] end.
  - intros i x Hi (E & C & Q & K & T). destruct (Nat.eqb_spec i r) as [->|Ne]; cbn [negb bind].
    + exists x. split; [reflexivity|]. repeat (split; [assumption|]). intros j q Lt Ne. apply T; [lia|exact Ne].
    + destruct (unpin_one S x i R E) as (x' & b & U & E' & C' & T' & O). rewrite U. cbn [bind]. exists x'. split; [reflexivity|].
      destruct (O r (not_eq_sym Ne)) as [O1 O2]. split; [exact E'|]. split; [exact (calm_trans _ _ _ C C')|]. split; [congruence|]. split; [congruence|].
      intros j q Lt Nj Hj. destruct (Nat.eq_dec j i) as [->|Nji]; [exact (T' q Hj)|]. rewrite (proj1 (O j Nji)) in Hj. apply (T j q); [lia|exact Nj|exact Hj].
  - split; [unfold l; rewrite on_self; apply events_none|]. split; [apply calm_refl|]. repeat (split; [reflexivity|]). intros j q Lt. lia.
  - rewrite F. cbn [bind]. exists l'. split; [reflexivity|]. split; [exact E|]. split; [exact C|]. split; [|auto].
    intros j q Nj Hj. apply (T j q); [|exact Nj|exact Hj]. destruct C as (_ & _ & Lr & _). rewrite <- Lr. apply nth_error_Some. congruence.
Qed.

(** the pages of a proposal's victims *)
Lemma preempt_does S pre : reachable S -> exists l', for_range 0 (length pre) (x_led S) (fun i l =>
    do tmp2 <- get pre i; do (l, tmp3) <- unpin l tmp2; Some l) = Some l' /\ events S (on S l') /\ calm (x_led S) l'.
Proof.
  intros R. match goal with |- context [for_range 0 ?m ?l ?f] =>
    destruct (for_range_total (fun i x => events S (on S x) /\ calm (x_led S) x) f 0 m l) as (l' & F & E & C); [lia| | |] end.
  - intros i x Hi (E & C). destruct (get_total pre i) as [v Hv]; [lia|]. unfold get. rewrite Hv. cbn [bind].
    destruct (unpin_one S x v R E) as (x' & b & U & E' & C' & _). rewrite U. cbn [bind]. exists x'. split; [reflexivity|]. split; [exact E'|exact (calm_trans _ _ _ C C')].
  - split; [rewrite on_self; apply events_none|apply calm_refl].
  - exists l'. auto.
Qed.

(** * One row for one request *)

Lemma unheld_finds l p0 pg0 : page_at l p0 = Some pg0 -> Page_pins pg0 = 0 -> fits 32 (length (Ledger_pages l)) = true ->
  exists p pg, unheld l = Some p /\ page_at l p = Some pg /\ Page_pins pg = 0.
Proof.
  intros H0 Z0 F. unfold unheld. cbv zeta.
  match goal with |- context [for_range 0 ?m ?s ?f] =>
    destruct (for_range_total (fun i (x : nat * bool) => if snd x then exists pg, page_at l (fst x) = Some pg /\ Page_pins pg = 0
      else fst x = i /\ forall j pg, j < i -> page_at l j = Some pg -> Page_pins pg <> 0) f 0 m s) as ([p b] & E & N); [lia| | |] end.
  - intros i [p b] Hi N. cbn [fst snd] in N. destruct b; cbn [negb bind].
    + eexists. split; [reflexivity|]. exact N.
    + destruct N as [-> N]. destruct (get_total (Ledger_pages l) i) as [pg Hp]; [lia|]. unfold get. rewrite Hp. cbn [bind].
      destruct (Nat.eqb_spec (Page_pins pg) 0) as [Z|Nz].
      * eexists. split; [reflexivity|]. simpl. eauto.
      * rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind]. eexists. split; [reflexivity|]. simpl. split; [reflexivity|].
        intros j pgj Lj Hj. destruct (Nat.eq_dec j i) as [->|Ne]; [congruence|apply (N j pgj); [lia|exact Hj]].
  - simpl. split; [reflexivity|]. intros j pg Lj. lia.
  - rewrite E. cbn [bind]. cbn [fst snd] in N. destruct b; [destruct N as (pg & Hp & Z); exists p, pg; auto|]. exfalso. destruct N as [-> N].
    apply (N p0 pg0); [apply nth_error_Some; congruence|exact H0|exact Z0].
Qed.

Lemma step_grow l r p l1 : grow l r p = Some (l1, true) -> step l [] [Op_Grow r p] = Some (l1, [], true).
Proof. intros G. unfold step, for_range. cbn [length Nat.sub for_n get nth_error bind Nat.add]. rewrite G. reflexivity. Qed.

(** whatever it does is an accepted step after some events *)
Lemma lone_row_is_step S r l1 gs b : reachable S -> lone_row (x_led S) [] r = Some (l1, gs, b) ->
  exists l0 ops0, events S (on S l0) /\ calm (x_led S) l0 /\ step l0 [] ops0 = Some (l1, gs, true).
Proof.
  intros R H. destruct (clear_for_does S r R) as (l0 & C & E & Ca & _). unfold lone_row in H. rewrite C in H. cbn [bind] in H. cbv zeta in H.
  exists l0. destruct (aligned l0 r) as [full|]; [|discriminate]. cbn [bind] in H.
  assert (Fill : forall l, (forall l2 g, fill1 l [] r = Some (l2, [g], true) -> exists ops0, step l0 [] ops0 = Some (l2, [g], true)) ->
     (exists ops0, step l0 [] ops0 = Some (l, [], true)) ->
     (do (l, rows, ok) <- (do (l, rows, tmp5) <- fill1 l [] r; Some (l, rows, tmp5)); Some (l, rows, ok)) = Some (l1, gs, b) ->
     Ledger_psize l = P -> exists ops0, events S (on S l0) /\ calm (x_led S) l0 /\ step l0 [] ops0 = Some (l1, gs, true)).
  { intros l Yes No H1 Ps. destruct (fill1 l [] r) as [[[l2 rows2] ok]|] eqn:F; [|discriminate]. cbn [bind] in H1. injection H1 as <- <- <-. destruct ok.
    - pose proof (reachable_Ppos _ _ _ _ _ _ S R) as Ppos. pose proof F as F2. apply fill1_ok in F2 as (g & Er & _); [|lia]. simpl in Er. subst rows2.
      destruct (Yes _ _ eq_refl) as [ops0 St]. exists ops0. auto.
    - apply fill1_false in F as [-> ->]. destruct No as [ops0 St]. exists ops0. auto. }
  assert (Ps : Ledger_psize l0 = P).
  { pose proof (events_reachable _ _ R E) as R1. pose proof (reachable_Ppos _ _ _ _ _ _ _ R1) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos _ R1) as (D & I). exact (I_psize _ _ _ I). }
  destruct full; cbn [bind] in H.
  - destruct (unheld l0) as [p|]; [|discriminate]. cbn [bind] in H. destruct (grow l0 r p) as [[l2 ok]|] eqn:G; [|discriminate]. cbn [bind] in H. destruct ok.
    + apply (Fill l2); [| |exact H|].
      * intros l3 g F. exists [Op_Grow r p; Op_Fill r 1]. exact (step_grow_fill _ _ _ _ _ _ G F).
      * exists [Op_Grow r p]. exact (step_grow _ _ _ _ G).
      * apply grow_ok in G. destruct (micros_shape _ _ _ _ (micro_micros _ _ _ G)) as (_ & _ & Q). congruence.
    + apply grow_false in G as ->. cbn [bind] in H. injection H as <- <- <-. exists []. split; [exact E|split; [exact Ca|reflexivity]].
  - apply (Fill l0); [| |exact H|exact Ps].
    + intros l3 g F. exists [Op_Fill r 1]. exact (step_fill _ _ _ _ F).
    + exists []. reflexivity.
Qed.

(** a request that waits gets its row *)
Lemma lone_row_advances S r e kv : reachable S -> waits (x_led S) r e kv -> roomy 1 (x_led S) ->
  exists l1 g, lone_row (x_led S) [] r = Some (l1, [g], true) /\ kv_len l1 r = Some (kv + 1).
Proof.
  intros R (He & Le & Sure & Kv & Lt & Cap) (W & F32). destruct (clear_for_does S r R) as (l0 & C & E & Ca & Al & Q & K).
  pose proof (events_reachable _ _ R E) as R1. pose proof (reachable_Ppos _ _ _ _ _ _ _ R1) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos _ R1) as (D & I). cbn [on Spec.x_led] in I.
  pose proof (pool_size _ _ _ _ _ _ _ R1) as Fp. cbn [on Spec.x_led] in Fp. destruct (calm_within P 1 _ _ Ca W) as (_ & Fn & Ft).
  pose proof (proj1 (proj2 Ca)) as Lp. rewrite <- Q in He. rewrite <- K in Kv. rewrite <- Lp in Cap, F32. specialize (Ft r e He).
  unfold lone_row. rewrite C. cbn [bind]. cbv zeta.
  destruct (full_aligned P Ppos D l0 r e kv I He Kv Lt Ft) as (_ & Ag & _). rewrite Ag. cbn [bind].
  destruct (Nat.eqb_spec kv (length (Req_table e) * P)) as [Ek|Room].
  - destruct (free_page P Ppos D l0 r e I He Al) as (p0 & pg0 & Hp0 & Z0); [nia|]. destruct (unheld_finds l0 p0 pg0 Hp0 Z0 F32) as (p & pg & U & Hp & Z). rewrite U. cbn [bind].
    destruct (grow_advances P Ppos D l0 r e kv I He Le Al Kv Lt Ft Fp Fn p pg Ek Hp Z) as (l2 & l1 & g & G & F & Ad). rewrite G. cbn [bind]. rewrite F. cbn [bind].
    exists l1, g. split; [reflexivity|]. exact (proj1 (proj2 (proj2 (proj2 Ad)))).
  - destruct (fill_advances P Ppos D l0 r e kv I He Le Al Kv Lt Ft Fp Fn Room) as (l1 & g & F & Ad). cbn [bind]. rewrite F. cbn [bind].
    exists l1, g. split; [reflexivity|]. exact (proj1 (proj2 (proj2 (proj2 Ad)))).
Qed.

(** * A proposal *)

(** The last certain token of a request is computed only by a row that gives its next token. *)
Lemma full_kvn D l r e c : 0 < P -> PInv P D l -> req_at l r = Some e -> tail_full P l e c -> kvn l e = length (Req_table e) * P.
Proof.
  intros Ppos I He [[T _]|(t0 & p & pg & T & Hp & Full & _)].
  - unfold kvn. rewrite T. reflexivity.
  - rewrite (kvn_snoc l e t0 p pg T Hp), (I_psize _ _ _ I), T, app_length. simpl. lia.
Qed.
Lemma micro_kvn D l l' R r e e' : 0 < P -> PInv P D l -> Pages.micro P l l' R -> req_at l r = Some e -> req_at l' r = Some e' ->
  kvn l' e' = kvn l e \/ kvn l' e' < Req_sure e \/ exists row, In row R /\ r_req nat row = r /\ length (r_ctx nat row) = kvn l e /\ kvn l' e' = kvn l e + 1.
Proof.
  intros Ppos I M He He'. pose proof (I_psize _ _ _ I) as Ps.
  destruct M as [r0 q p pg Hq Hp Tf Full Tk Gd|r0 q p pg c Hq Hp Tf Pin|r0 q t0 p pg t b Hq T Hp Room Ht|p pg p2 pg2 Hp Hp2 F1 F2 E1 E2]; simpl in He'.
  - rewrite (nth_set_nth _ _ _ _ _ Hq) in He'. assert (Pg : forall x, option_map (fun pg => plen pg) (page_at (upd_req (upd_page l p (set_Page_pins pg (Page_pins pg + 1))) r0 (set_Req_table q (Req_table q ++ [p]))) x) = option_map (fun pg => plen pg) (page_at l x)).
    { intros x. simpl. rewrite (nth_set_nth _ _ _ _ _ Hp). destruct (Nat.eqb_spec x p) as [->|]; [rewrite Hp|]; reflexivity. }
    destruct (Nat.eqb_spec r r0) as [->|Ne].
    + right. left. injection He' as <-. rewrite Hq in He. injection He as <-. rewrite (kvn_snoc _ _ (Req_table q) p (set_Page_pins pg (Page_pins pg + 1))).
      * simpl. rewrite Ps. lia.
      * reflexivity.
      * simpl. rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl. reflexivity.
    + left. rewrite He in He'. injection He' as <-. apply kvn_same; [reflexivity|]. intros x _. apply Pg.
  - left. rewrite (nth_set_nth _ _ _ _ _ Hq) in He'. destruct (Nat.eqb_spec r r0) as [->|Ne].
    + injection He' as <-. rewrite Hq in He. injection He as <-. rewrite (full_kvn D l r0 q c Ppos I Hq Tf), (kvn_snoc _ _ (Req_table q) p (mkPage c 0 1 [])).
      * simpl. rewrite Ps. lia.
      * reflexivity.
      * simpl. rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl. reflexivity.
    + rewrite He in He'. injection He' as <-. apply kvn_same; [reflexivity|]. intros x Ix. simpl. rewrite (nth_set_nth _ _ _ _ _ Hp).
      destruct (Nat.eqb_spec x p) as [->|]; [|reflexivity]. pose proof (pinned_in P Ppos l r e p pg D I He Ix Hp). lia.
  - rewrite He in He'. injection He' as <-.
    assert (Pl : plen (fill_page P l pg t) = plen pg + 1) by (unfold fill_page; destruct (Nat.eqb (plen pg + 1) P); simpl; rewrite app_length; reflexivity).
    destruct (Nat.eq_dec r r0) as [->|Ne].
    + right. right. rewrite Hq in He. injection He as <-. assert (K : kvn l q = length t0 * P + plen pg) by (rewrite (kvn_snoc l q t0 p pg T Hp), Ps; reflexivity).
      eexists. split; [left; reflexivity|]. split; [reflexivity|]. unfold fill_row. cbn [r_ctx]. rewrite firstn_length, K. split.
      * assert (length t0 * P + plen pg < length (Req_toks q)) by (apply nth_error_Some; congruence). lia.
      * rewrite (kvn_snoc _ q t0 p (fill_page P l pg t) T); [simpl; rewrite Ps, Pl; lia|]. simpl. rewrite (nth_set_nth _ _ _ _ _ Hp), Nat.eqb_refl. reflexivity.
    + left. apply kvn_same; [reflexivity|]. intros x Ix. simpl. rewrite (nth_set_nth _ _ _ _ _ Hp). destruct (Nat.eqb_spec x p) as [->|]; [|reflexivity]. exfalso.
      assert (Ip : In p (Req_table q)) by (rewrite T; apply in_or_app; right; left; reflexivity).
      pose proof (pins_two P Ppos l r e r0 q p He Hq Ne Ix Ip) as Two. rewrite <- (I_pins _ _ _ I _ _ Hp) in Two.
      destruct (I_page _ _ _ I _ _ Hp) as (_ & _ & _ & One). specialize (One Room). lia.
  - left. rewrite He in He'. injection He' as <-. apply kvn_same; [reflexivity|]. intros x _. simpl. rewrite (nth_set_nth _ _ _ _ _ Hp).
    destruct (Nat.eqb_spec x p) as [->|]; [rewrite Hp|]; reflexivity.
Qed.

Lemma micros_kvn D l l' R r e : 0 < P -> PInv P D l -> Pages.micros P l l' R -> req_at l r = Some e -> kvn l e < Req_sure e -> exists e', req_at l' r = Some e' /\
  (kvn l' e' < Req_sure e \/ exists row, In row R /\ r_req nat row = r /\ length (r_ctx nat row) + 1 = Req_sure e).
Proof.
  intros Ppos I M He Lt. induction M as [|l1 R l2 R2 M IH Mi].
  - exists e. auto.
  - destruct IH as (e1 & H1 & K1). pose proof (micros_reqs _ _ _ _ M r) as X. rewrite He in X. destruct X as (e1' & more & A & _ & _ & _ & Sr). rewrite H1 in A. injection A as <-.
    pose proof (micro_reqs _ _ _ _ Mi r) as Y. rewrite H1 in Y. destruct Y as (e2 & more2 & H2 & _). exists e2. split; [exact H2|].
    destruct (step_refines P Ppos D (abs P D l) l l1 R I (fun s h E => E) M) as (D1 & I1 & _).
    destruct K1 as [K1|(row & Ir & B & C)]; [|right; exists row; split; [apply in_or_app; left; exact Ir|auto]].
    destruct (micro_kvn D1 l1 l2 R2 r e1 e2 Ppos I1 Mi H1 H2) as [E|[Ls|(row & Ir & B & C & E)]].
    + left. rewrite E. exact K1.
    + left. rewrite Sr in Ls. exact Ls.
    + destruct (Nat.eq_dec (kvn l1 e1 + 1) (Req_sure e)) as [Q|Nq]; [right; exists row; split; [apply in_or_app; right; exact Ir|split; [exact B|lia]]|left; lia].
Qed.

Lemma step_ends D l ops l1 gs b r e : 0 < P -> PInv P D l -> step l [] ops = Some (l1, gs, b) -> req_at l r = Some e -> kvn l e < Req_sure e ->
  exists e1, req_at l1 r = Some e1 /\ Req_live e1 = Req_live e /\ Req_sure e1 = Req_sure e /\ Req_toks e1 = Req_toks e /\
  (kvn l1 e1 < Req_sure e \/ exists g, In g gs /\ Launch_req g = r /\ Launch_sample g = true).
Proof.
  intros Ppos I St He Lt. pose proof (I_psize _ _ _ I) as Ps. apply step_ok in St as (gs' & E & M & G); [|lia]. simpl in E. subst gs'. rewrite Ps in M.
  pose proof (micros_reqs _ _ _ _ M r) as X. rewrite He in X. destruct X as (e1 & more & H1 & _ & Tk & Lv & Sr).
  exists e1. repeat (split; [assumption|]). destruct (micros_kvn D l l1 _ r e Ppos I M He Lt) as (e1' & H1' & K). rewrite H1 in H1'. injection H1' as <-.
  destruct K as [K|(row & Ir & B & C)]; [left; exact K|right]. apply in_map_iff in Ir as (g & <- & Ig). exists g. split; [exact Ig|]. simpl in B. split; [exact B|].
  rewrite Forall_forall in G. destruct (G g Ig) as (q & Hq & _ & Tg & ->). subst r. rewrite H1 in Hq. injection Hq as <-. rewrite Sr. apply Nat.leb_le.
  unfold row_of, toks_of in C. cbn [r_ctx] in C. rewrite H1, firstn_length in C. lia.
Qed.

Lemma follow_is_steps S r pre ops l1 gs adv : reachable S -> follow (x_led S) [] r pre ops = Some (l1, gs, adv) ->
  exists l0 l2 rows b, events S (on S l0) /\ calm (x_led S) l0 /\ step l0 [] ops = Some (l2, rows, b) /\
  ((gs <> [] /\ b = true /\ l2 = l1 /\ rows = gs /\ (adv = true -> exists kv kv1, kv_len (x_led S) r = Some kv /\ kv_len l1 r = Some kv1 /\ kv < kv1)) \/
   (gs = [] /\ adv = false /\ reset l2 = Some l1 /\ events S (on S l1))).
Proof.
  intros R H. unfold follow in H. destruct (kv_len (x_led S) r) as [before|] eqn:K; [|discriminate]. cbn [bind] in H. cbv zeta in H.
  destruct (preempt_does S pre R) as (l0 & F & E & C). rewrite F in H. cbn [bind] in H. destruct (step l0 [] ops) as [[[l2 rows] ok]|] eqn:St; [|discriminate]. cbn [bind] in H.
  exists l0, l2, rows, ok. split; [exact E|]. split; [exact C|]. split; [exact St|].
  destruct (Nat.eqb_spec (length rows) 0) as [Z|Nz]; cbn [negb bind] in H.
  - right. destruct rows; [|discriminate]. destruct (reset l2) as [l3|] eqn:Re; [|discriminate]. cbn [bind] in H. injection H as <- <- <-. repeat (split; [reflexivity|]).
    destruct ok.
    + apply (events_snoc S l2); [|exact (E_reset _ _ _ _ _ _ (on S l2) l3 Re)]. apply (events_snoc S l0); [exact E|].
      apply (E_step _ _ _ _ _ _ (on S l0) ops l2 [] (x_mem S) l2 (x_rq S) St); [split; [intros g []|reflexivity]|apply sampled_none].
    + apply (events_snoc S l0); [exact E|]. exact (E_refuse _ _ _ _ _ _ (on S l0) ops l2 [] l3 St Re).
  - destruct ok; cbn [negb bind] in H.
    + left. destruct (kv_len l2 r) as [kv1|] eqn:K1; [|discriminate]. cbn [bind] in H. injection H as <- <- <-.
      split; [destruct rows; [contradiction|discriminate]|]. repeat (split; [reflexivity|]). intros Lt. apply Nat.ltb_lt in Lt. exists before, kv1. auto.
    + right. destruct (reset l2) as [l3|] eqn:Re; [|discriminate]. cbn [bind] in H. injection H as <- <- <-. repeat (split; [reflexivity|]).
      apply (events_snoc S l0); [exact E|]. exact (E_refuse _ _ _ _ _ _ (on S l0) ops l2 rows l3 St Re).
Qed.

(** for a request that waits, a proposal is followed without a panic, and either launches something or forgets everything *)
Lemma follow_does S r e kv pre ops : reachable S -> waits (x_led S) r e kv -> roomy (rows_asked ops + 1) (x_led S) ->
  exists l1 gs adv, follow (x_led S) [] r pre ops = Some (l1, gs, adv) /\
  (gs <> [] \/ exists e1, waits l1 r e1 0 /\ length (Req_toks e1) = length (Req_toks e) /\ roomy 1 l1).
Proof.
  intros R (He & Le & Sure & Kv & Lt & Cap) (W & F32). unfold follow. rewrite Kv. cbn [bind]. cbv zeta.
  destruct (preempt_does S pre R) as (l0 & F & E & C). rewrite F. cbn [bind].
  pose proof (events_reachable _ _ R E) as R1. pose proof (reachable_Ppos _ _ _ _ _ _ _ R1) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos _ R1) as (D & I). cbn [on Spec.x_led] in I.
  assert (Rd : Ready P (rows_asked ops + 1) l0).
  { exists D. split; [exact I|]. constructor; [exact (calm_within P _ _ _ C W)|exact (pool_size _ _ _ _ _ _ _ R1)]. }
  destruct (step_total P Ppos 1 l0 [] ops Rd) as (l2 & rows & ok & St & Rd2). rewrite St. cbn [bind].
  destruct (calm_at _ _ _ _ C He) as (e0 & He0 & L0 & S0 & T0 & _).
  pose proof (I_psize _ _ _ I) as Ps. pose proof St as M. apply step_ok in M as (gs' & _ & M & _); [|lia]. rewrite Ps in M.
  pose proof (micros_reqs _ _ _ _ M r) as X. rewrite He0 in X. destruct X as (e2 & more & H2 & _ & T2 & L2 & S2).
  destruct (reset_total P Ppos l2) as [l3 Re].
  assert (After : exists e1, waits l3 r e1 0 /\ length (Req_toks e1) = length (Req_toks e) /\ roomy 1 l3).
  { pose proof (reset_calm _ _ Re) as C3. pose proof (micros_bounds P Ppos _ _ _ M) as (_ & Lp & _). destruct C as (_ & Lp0 & _).
    exists (set_Req_table e2 []). assert (H3 : req_at l3 r = Some (set_Req_table e2 [])).
    { apply reset_ok in Re as ->. simpl. rewrite nth_error_map, H2. reflexivity. }
    split; [|split; [simpl; congruence|]].
    - split; [exact H3|]. simpl. split; [congruence|]. split; [congruence|]. split; [exact (kv_len_empty l3 r _ H3 eq_refl)|].
      rewrite (proj1 (proj2 C3)), Lp, Lp0, T2, T0. split; [lia|exact Cap].
    - destruct Rd2 as (D2 & _ & [W2 _]). split; [exact (calm_within P 1 _ _ C3 W2)|]. rewrite (proj1 (proj2 C3)), Lp, Lp0. exact F32. }
  destruct (Nat.eqb_spec (length rows) 0) as [Z|Nz]; cbn [negb bind].
  - rewrite Re. cbn [bind]. eexists _, _, _. split; [reflexivity|]. right. exact After.
  - destruct ok; cbn [negb bind].
    + destruct Rd2 as (D2 & I2 & Bd2). destruct (kv_total P Ppos D2 1 l2 r e2 I2 Bd2 H2) as (kv1 & K1 & _). rewrite K1. cbn [bind].
      eexists _, _, _. split; [reflexivity|]. left. destruct rows; [contradiction|discriminate].
    + rewrite Re. cbn [bind]. eexists _, _, _. split; [reflexivity|]. right. exact After.
Qed.

(** * The step under watch *)

Definition fresh_watch (w : Watch) (a : nat) : Watch := if Nat.eqb (Watch_age w) a then w else mkWatch a false.
Lemma serve_unfolded l r w a pre ops : r < length (Ledger_reqs l) -> serve l [] w a r pre ops =
  if Watch_alone (fresh_watch w a) then (do (l1, gs, b) <- lone_row l [] r; Some (l1, gs, fresh_watch w a, b))
  else do (l1, gs, adv) <- follow l [] r pre ops;
    if Nat.eqb (length gs) 0 then (do (l2, gs2, b) <- lone_row l1 gs r; Some (l2, gs2, mkWatch a (negb adv), b)) else Some (l1, gs, mkWatch a (negb adv), true).
Proof.
  intros Lt. unfold serve. destruct (Nat.leb_spec (length (Ledger_reqs l)) r); [lia|].
  unfold fresh_watch. destruct (Nat.eqb_spec (Watch_age w) a) as [Ea|Na]; cbn [negb bind]; cbv zeta.
  - destruct (Watch_alone w); cbn [negb bind]; [reflexivity|].
    destruct (follow l [] r pre ops) as [[[l1 gs] adv]|]; [|reflexivity]. cbn [bind]. unfold set_Watch_alone. rewrite Ea. reflexivity.
  - cbn [set_Watch_age set_Watch_alone Watch_alone Watch_age negb bind].
    destruct (follow l [] r pre ops) as [[[l1 gs] adv]|]; [|reflexivity]. reflexivity.
Qed.

Theorem serve_is_steps : Spec.serve_is_steps cell logits params row_fn sample P.
Proof.
  intros S w a r pre ops l1 gs w1 b R H.
  assert (None_yet : exists ops0, step (x_led S) [] ops0 = Some (x_led S, [], true)) by (exists []; reflexivity).
  destruct (Nat.lt_ge_cases r (length (Ledger_reqs (x_led S)))) as [Lt|Ge].
  2: { unfold serve in H. apply Nat.leb_le in Ge. rewrite Ge in H. injection H as <- <- _ _. destruct None_yet as [ops0 St]. exists S, ops0. split; [apply events_none|auto]. }
  rewrite (serve_unfolded _ _ _ _ _ _ Lt) in H. destruct (Watch_alone (fresh_watch w a)).
  - destruct (lone_row (x_led S) [] r) as [[[l2 gs2] b2]|] eqn:L; [|discriminate]. cbn [bind] in H. injection H as <- <- _ _.
    destruct (lone_row_is_step S r _ _ _ R L) as (l0 & ops0 & E & _ & St). exists (on S l0), ops0. auto.
  - destruct (follow (x_led S) [] r pre ops) as [[[l2 gs2] adv]|] eqn:F; [|discriminate]. cbn [bind] in H.
    destruct (follow_is_steps S r pre ops _ _ _ R F) as (l0 & l3 & rows & ok & E & _ & St & [(Ng & -> & -> & -> & _)|(-> & _ & _ & E1)]).
    + destruct (Nat.eqb_spec (length gs2) 0) as [Z|_]; [destruct gs2; [contradiction|discriminate]|]. injection H as <- <- _ _. exists (on S l0), ops. auto.
    + cbn [length Nat.eqb] in H. destruct (lone_row l2 [] r) as [[[l4 gs4] b4]|] eqn:L; [|discriminate]. cbn [bind] in H. injection H as <- <- _ _.
      pose proof (events_reachable _ _ R E1) as R1. destruct (lone_row_is_step (on S l2) r _ _ _ R1 L) as (l5 & ops0 & E5 & _ & St5).
      exists (on S l5), ops0. split; [exact (events_trans _ _ _ E1 E5)|auto].
Qed.

(** what a turn of [serve] does for a request that waits *)
Lemma serve_does S r e kv w a pre ops : reachable S -> waits (x_led S) r e kv -> roomy (rows_asked ops + 1) (x_led S) ->
  exists l1 gs w1 kv1, serve (x_led S) [] w a r pre ops = Some (l1, gs, w1, true) /\ gs <> [] /\ Watch_age w1 = a /\ kv_len l1 r = Some kv1 /\
  (if Watch_alone (fresh_watch w a) then Watch_alone w1 = true /\ kv1 = kv + 1 else Watch_alone w1 = true \/ kv < kv1).
Proof.
  intros R Wt Rm. assert (Lt : r < length (Ledger_reqs (x_led S))) by (destruct Wt as (He & _); apply nth_error_Some; congruence).
  assert (Age : Watch_age (fresh_watch w a) = a) by (unfold fresh_watch; destruct (Nat.eqb_spec (Watch_age w) a); [assumption|reflexivity]).
  rewrite (serve_unfolded _ _ _ _ _ _ Lt). destruct (Watch_alone (fresh_watch w a)) eqn:Al.
  - assert (Rm1 : roomy 1 (x_led S)) by (destruct Rm as ((W1 & W2 & W3) & F); split; [split; [exact W1|split; [eapply fits_mono; [exact W2|lia]|exact W3]]|exact F]).
    destruct (lone_row_advances S r e kv R Wt Rm1) as (l1 & g & L & K). rewrite L. cbn [bind]. exists l1, [g], (fresh_watch w a), (kv + 1).
    repeat (split; [first [reflexivity|discriminate|assumption]|]). auto.
  - destruct (follow_does S r e kv pre ops R Wt Rm) as (l1 & gs & adv & F & Cs). rewrite F. cbn [bind].
    destruct (follow_is_steps S r pre ops _ _ _ R F) as (l0 & l3 & rows & ok & E & C & St & [(Ng & -> & -> & -> & Adv)|(-> & -> & _ & E1)]).
    + destruct (Nat.eqb_spec (length gs) 0) as [Z|_]; [destruct gs; [contradiction|discriminate]|].
      destruct adv.
      * destruct (Adv eq_refl) as (kv0 & kv1 & K0 & K1 & L1). destruct Wt as (_ & _ & _ & K & _). rewrite K in K0. injection K0 as <-.
        exists l1, gs, (mkWatch a false), kv1. repeat (split; [first [reflexivity|assumption]|]). right. exact L1.
      * assert (K1 : exists kv1, kv_len l1 r = Some kv1).
        { unfold follow in F. destruct (kv_len (x_led S) r); [|discriminate]. cbn [bind] in F. cbv zeta in F. destruct (for_range _ _ _ _) as [lx|]; [|discriminate]. cbn [bind] in F.
          destruct (step lx [] ops) as [[[ly rows] okx]|]; [|discriminate]. cbn [bind] in F. destruct (Nat.eqb (length rows) 0) eqn:Z; cbn [negb bind] in F.
          - destruct (reset ly) as [lz|]; [|discriminate]. cbn [bind] in F. injection F as _ <-. destruct rows; [contradiction|discriminate].
          - destruct okx; cbn [negb bind] in F.
            + destruct (kv_len ly r) as [kv1|] eqn:K1; [|discriminate]. cbn [bind] in F. injection F as <- _ _. eauto.
            + destruct (reset ly) as [lz|]; [|discriminate]. cbn [bind] in F. injection F as _ <-. contradiction. }
        destruct K1 as [kv1 K1]. exists l1, gs, (mkWatch a true), kv1. repeat (split; [first [reflexivity|assumption]|]). left. reflexivity.
    + destruct Cs as [Ng|(e1 & Wt1 & _ & Rm1)]; [contradiction|]. cbn [length Nat.eqb].
      pose proof (events_reachable _ _ R E1) as R1. destruct (lone_row_advances (on S l1) r e1 0 R1 Wt1 Rm1) as (l4 & g & L & K). cbn [on Spec.x_led] in L. rewrite L. cbn [bind].
      exists l4, [g], (mkWatch a true), 1. repeat (split; [first [reflexivity|discriminate|assumption]|]). left. reflexivity.
Qed.

(** ** No panic, for any request *)
Lemma unheld_total l : fits 32 (length (Ledger_pages l)) = true -> exists p, unheld l = Some p.
Proof.
  intros F. unfold unheld. cbv zeta.
  match goal with |- context [for_range 0 ?m ?s ?f] => destruct (for_range_total (fun i (x : nat * bool) => fst x <= i) f 0 m s) as ([p b] & E & _); [lia| |apply Nat.le_refl|] end.
  - intros i [p b] Hi Le. cbn [fst] in Le. destruct b; cbn [negb bind]; [eexists; split; [reflexivity|simpl; lia]|].
    destruct (get_total (Ledger_pages l) i) as [pg Hp]; [lia|]. unfold get. rewrite Hp. cbn [bind]. destruct (Nat.eqb (Page_pins pg) 0).
    + eexists. split; [reflexivity|]. simpl. lia.
    + rewrite add_total by (eapply fits_mono; [exact F|lia]). cbn [bind]. eexists. split; [reflexivity|]. simpl. lia.
  - rewrite E. cbn [bind]. eauto.
Qed.

Lemma lone_row_total S r : reachable S -> r < length (Ledger_reqs (x_led S)) -> roomy 1 (x_led S) -> lone_row (x_led S) [] r <> None.
Proof.
  intros R Ir (W & F32). destruct (clear_for_does S r R) as (l0 & C & E & Ca & _). unfold lone_row. rewrite C. cbn [bind]. cbv zeta.
  pose proof (events_reachable _ _ R E) as R1. pose proof (reachable_Ppos _ _ _ _ _ _ _ R1) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos _ R1) as (D & I). cbn [on Spec.x_led] in I.
  assert (Bd : Bound P 1 l0) by (constructor; [exact (calm_within P 1 _ _ Ca W)|exact (pool_size _ _ _ _ _ _ _ R1)]).
  destruct (get_total (Ledger_reqs l0) r) as [q Hq]; [rewrite (proj1 (proj2 (proj2 Ca))); exact Ir|].
  destruct (aligned_total P Ppos D 1 l0 r q I Bd Hq) as [full A]. rewrite A. cbn [bind]. destruct full; cbn [bind].
  - destruct (unheld_total l0) as [p U]; [rewrite (proj1 (proj2 Ca)); exact F32|]. rewrite U. cbn [bind].
    destruct (grow_total P Ppos D 1 l0 r p I Bd) as (l1 & b & G). rewrite G. cbn [bind]. destruct b; cbn [bind]; [|discriminate].
    apply grow_ok in G. rewrite (I_psize _ _ _ I) in G. destruct (ready_micro P Ppos 1 l0 l1 (ex_intro _ D (conj I Bd)) G) as (D1 & I1 & Bd1).
    destruct (fill1_total P Ppos D1 1 l1 [] r I1 Bd1 (le_n _)) as (l2 & rows & b2 & F). rewrite F. discriminate.
  - destruct (fill1_total P Ppos D 1 l0 [] r I Bd (le_n _)) as (l2 & rows & b2 & F). rewrite F. discriminate.
Qed.

Theorem serve_never_panics : Spec.serve_never_panics cell logits params row_fn sample P.
Proof.
  intros S w a r pre ops R (W & F32). destruct (Nat.lt_ge_cases r (length (Ledger_reqs (x_led S)))) as [Lt|Ge].
  2: { unfold serve. apply Nat.leb_le in Ge. rewrite Ge. discriminate. }
  assert (W1 : within P 1 (x_led S)) by (destruct W as (A & B & C); split; [exact A|split; [eapply fits_mono; [exact B|lia]|exact C]]).
  rewrite (serve_unfolded _ _ _ _ _ _ Lt). destruct (Watch_alone (fresh_watch w a)).
  { pose proof (lone_row_total S r R Lt (conj W1 F32)) as L. destruct (lone_row (x_led S) [] r) as [[[l1 gs] b]|]; [discriminate|contradiction]. }
  pose proof (reachable_Ppos _ _ _ _ _ _ _ R) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos _ R) as (D0 & I0).
  assert (Bd0 : Bound P (rows_asked ops + 1) (x_led S)) by (constructor; [exact W|exact (pool_size _ _ _ _ _ _ _ R)]).
  destruct (get_total (Ledger_reqs (x_led S)) r Lt) as [q0 Hq0]. destruct (kv_total P Ppos D0 _ _ r q0 I0 Bd0 Hq0) as (kv & Kv & _).
  destruct (preempt_does S pre R) as (l0 & F & E & C). pose proof (events_reachable _ _ R E) as R1. destruct (reachable_inv _ _ _ _ _ _ Ppos _ R1) as (D & I). cbn [on Spec.x_led] in I.
  assert (Rd : Ready P (rows_asked ops + 1) l0) by (exists D; split; [exact I|constructor; [exact (calm_within P _ _ _ C W)|exact (pool_size _ _ _ _ _ _ _ R1)]]).
  destruct (step_total P Ppos 1 l0 [] ops Rd) as (l2 & rows & ok & St & D2 & I2 & Bd2).
  pose proof (I_psize _ _ _ I) as Ps. pose proof St as M. apply step_ok in M as (gs' & _ & M & _); [|lia]. rewrite Ps in M.
  pose proof (micros_bounds P Ppos _ _ _ M) as (_ & Lp & Lr). destruct C as (_ & Lp0 & Lr0 & _).
  assert (Tot : exists l1 gs adv, follow (x_led S) [] r pre ops = Some (l1, gs, adv) /\ (gs = [] -> roomy 1 l1 /\ r < length (Ledger_reqs l1))).
  { unfold follow. rewrite Kv. cbn [bind]. cbv zeta. rewrite F. cbn [bind]. rewrite St. cbn [bind]. destruct (reset_total P Ppos l2) as [l3 Re].
    pose proof (reset_calm _ _ Re) as C3. assert (Rm3 : roomy 1 l3 /\ r < length (Ledger_reqs l3)).
    { destruct Bd2 as [W2 _]. destruct C3 as (N3 & Lp3 & Lr3 & T3). split; [split; [exact (calm_within P 1 l2 l3 (conj N3 (conj Lp3 (conj Lr3 T3))) W2)|]|]; [congruence|lia]. }
    destruct (Nat.eqb_spec (length rows) 0) as [Z|Nz]; cbn [negb bind]; [rewrite Re; cbn [bind]; eexists _, _, _; split; [reflexivity|auto]|].
    destruct ok; cbn [negb bind]; [|rewrite Re; cbn [bind]; eexists _, _, _; split; [reflexivity|auto]].
    destruct (get_total (Ledger_reqs l2) r) as [q2 Hq2]; [lia|]. destruct (kv_total P Ppos D2 1 l2 r q2 I2 Bd2 Hq2) as (kv2 & K2 & _). rewrite K2. cbn [bind].
    eexists _, _, _. split; [reflexivity|]. intros ->. contradiction. }
  destruct Tot as (l1 & gs & adv & Fo & Rm1). rewrite Fo. cbn [bind]. destruct (Nat.eqb_spec (length gs) 0) as [Z|_]; [|discriminate].
  destruct gs; [|discriminate]. destruct (Rm1 eq_refl) as [Rm Ir].
  destruct (follow_is_steps S r pre ops _ _ _ R Fo) as (l4 & l5 & rows5 & ok5 & _ & _ & _ & [(Ng & _)|(_ & _ & _ & E5)]); [contradiction|].
  pose proof (lone_row_total (on S l1) r (events_reachable _ _ R E5) Ir Rm) as L. cbn [on Spec.x_led] in L.
  destruct (lone_row l1 [] r) as [[[l6 gs6] b6]|]; [discriminate|contradiction].
Qed.

Theorem always_a_step : Spec.always_a_step cell logits params row_fn sample P.
Proof.
  intros S r e kv w a pre ops R Wt Rm. destruct (serve_does S r e kv w a pre ops R Wt Rm) as (l1 & gs & w1 & kv1 & H & Ng & _). exists l1, gs, w1. auto.
Qed.

(** [step] and what [serve] does around it keep the request's tokens *)
Definition keeps (l l1 : Ledger) (r : nat) (e : Req) (gs : list Launch) : Prop := exists D e1, PInv P D l1 /\ req_at l1 r = Some e1 /\ Req_live e1 = true /\
  Req_sure e1 = length (Req_toks e1) /\ Req_toks e1 = Req_toks e /\ length (Ledger_pages l1) = length (Ledger_pages l) /\
  (kvn l1 e1 < length (Req_toks e) \/ exists g, In g gs /\ Launch_req g = r /\ Launch_sample g = true).

Lemma step_keeps S l l0 r e ops l1 gs b : reachable S -> events S (on S l0) -> calm l l0 -> req_at l r = Some e -> Req_live e = true ->
  Req_sure e = length (Req_toks e) -> kvn l e < length (Req_toks e) -> step l0 [] ops = Some (l1, gs, b) -> keeps l l1 r e gs.
Proof.
  intros R E C He Le Sure Kl St. pose proof (events_reachable _ _ R E) as R1. pose proof (reachable_Ppos _ _ _ _ _ _ _ R1) as Ppos.
  destruct (reachable_inv _ _ _ _ _ _ Ppos _ R1) as (D & I). cbn [on Spec.x_led] in I. destruct (calm_at _ _ _ _ C He) as (e0 & He0 & L0 & S0 & T0 & K0).
  destruct (step_ends D l0 ops l1 gs b r e0 Ppos I St He0 ltac:(lia)) as (e1 & H1 & L1 & S1 & T1 & K1).
  pose proof (I_psize _ _ _ I) as Ps. apply step_ok in St as (gs' & _ & M & _); [|lia]. rewrite Ps in M.
  destruct (step_refines P Ppos D (abs P D l0) l0 l1 _ I (fun s h E0 => E0) M) as (D1 & I1 & _). pose proof (micros_bounds P Ppos _ _ _ M) as (_ & Lp & _).
  exists D1, e1. split; [exact I1|]. split; [exact H1|]. split; [congruence|]. split; [congruence|]. split; [congruence|].
  split; [rewrite Lp; exact (proj1 (proj2 C))|]. rewrite S0, Sure in K1. exact K1.
Qed.

Lemma serve_keeps S r e w a pre ops l1 gs w1 b kv : reachable S -> waits (x_led S) r e kv -> roomy (rows_asked ops + 1) (x_led S) ->
  serve (x_led S) [] w a r pre ops = Some (l1, gs, w1, b) -> keeps (x_led S) l1 r e gs.
Proof.
  intros R Wt Rm H. pose proof Wt as (He & Le & Sure & Kv & Lt & Cap). pose proof (kv_kvn _ _ _ _ He Kv) as Kn.
  assert (Ir : r < length (Ledger_reqs (x_led S))) by (apply nth_error_Some; congruence). rewrite (serve_unfolded _ _ _ _ _ _ Ir) in H.
  destruct (Watch_alone (fresh_watch w a)).
  - destruct (lone_row (x_led S) [] r) as [[[l2 gs2] b2]|] eqn:L; [|discriminate]. cbn [bind] in H. injection H as <- <- _ _.
    destruct (lone_row_is_step S r _ _ _ R L) as (l0 & ops0 & E & C & St). apply (step_keeps S _ l0 r e ops0 _ _ true R E C He Le Sure); [lia|exact St].
  - destruct (follow_does S r e kv pre ops R Wt Rm) as (l2 & gs2 & adv & F & Cs). rewrite F in H. cbn [bind] in H.
    destruct (follow_is_steps S r pre ops _ _ _ R F) as (l0 & l3 & rows & ok & E & C & St & [(Ng & -> & -> & -> & _)|(-> & _ & Re & E1)]).
    + destruct (Nat.eqb_spec (length gs2) 0) as [Z|_]; [destruct gs2; [contradiction|discriminate]|]. injection H as <- <- _ _.
      apply (step_keeps S _ l0 r e ops _ _ true R E C He Le Sure); [lia|exact St].
    + destruct Cs as [Ng|(e1 & (He1 & Le1 & Sure1 & Kv1 & Lt1 & _) & _)]; [contradiction|]. cbn [length Nat.eqb] in H.
      destruct (lone_row l2 [] r) as [[[l4 gs4] b4]|] eqn:L; [|discriminate]. cbn [bind] in H. injection H as <- <- _ _.
      pose proof (events_reachable _ _ R E1) as R1. destruct (lone_row_is_step (on S l2) r _ _ _ R1 L) as (l5 & ops0 & E5 & C5 & St5). cbn [on Spec.x_led] in C5.
      pose proof (kv_kvn _ _ _ _ He1 Kv1) as Kn1.
      destruct (step_keeps (on S l2) l2 l5 r e1 ops0 l4 gs4 true R1 E5 C5 He1 Le1 Sure1 ltac:(lia) St5) as (D & e4 & I4 & H4 & L4 & S4 & T4 & Lp4 & K4).
      (* the reset kept the tokens and the pages *)
      assert (Same : Req_toks e1 = Req_toks e /\ length (Ledger_pages l2) = length (Ledger_pages (x_led S))).
      { destruct (calm_at _ _ _ _ C He) as (e0 & He0 & _ & _ & T0 & _). pose proof (reset_calm _ _ Re) as C3.
        pose proof (events_reachable _ _ R E) as R0. pose proof (reachable_Ppos _ _ _ _ _ _ _ R0) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos _ R0) as (D0 & I0). cbn [on Spec.x_led] in I0.
        pose proof (I_psize _ _ _ I0) as Ps. apply step_ok in St as (gs' & _ & M & _); [|lia]. rewrite Ps in M.
        pose proof (micros_reqs _ _ _ _ M r) as X. rewrite He0 in X. destruct X as (e3 & more & H3 & _ & T3 & _).
        destruct (calm_at _ _ _ _ C3 H3) as (e2 & H2 & _ & _ & T2 & _). rewrite He1 in H2. injection H2 as <-.
        pose proof (micros_bounds P Ppos _ _ _ M) as (_ & Lp & _). split; [congruence|]. rewrite (proj1 (proj2 C3)), Lp. exact (proj1 (proj2 C)). }
      destruct Same as [Te Lp]. exists D, e4. repeat (split; [first [assumption|congruence]|]). rewrite Te in K4. exact K4.
Qed.

(** * Turns *)

(** commits leave a request without guesses as one *)
Lemma sampled_exact D l1 m' l Q gs l2 Q2 r e : Spec.sampled cell logits params row_fn sample l1 m' l Q gs l2 Q2 -> 0 < P -> PInv P D l ->
  req_at l r = Some e -> Req_live e = true -> Req_sure e = length (Req_toks e) ->
  length (Ledger_pages l2) = length (Ledger_pages l) /\ exists e2, req_at l2 r = Some e2 /\ Req_live e2 = true /\ Req_sure e2 = length (Req_toks e2).
Proof.
  intros Rs. revert e. induction Rs as [l Q|l Q g gs l' Q' _ IH|l Q g gs q0 lg t l3 l' Q' _ Hq0 _ _ Cm _ IH|l Q gs x n l3 l' Q' Cu _ IH]; intros e Ppos I He Le Sure.
  - split; [reflexivity|]. exists e. auto.
  - exact (IH e Ppos I He Le Sure).
  - apply commit_ok in Cm as (q & q' & more & kv & Hq & _ & En & _ & _ & -> & Lq' & Sq' & Tq' & Mq' & Nt).
    pose proof (append_inv P Ppos D l _ q q' more I Hq Tq' Mq') as I'.
    destruct (Nat.eq_dec r (Launch_req g)) as [Er|Ne].
    + rewrite <- Er in *. rewrite Hq in He. injection He as <-. destruct (IH q' Ppos I') as [A B]; [simpl; rewrite (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl; reflexivity|exact Lq'| |].
      * destruct (Nt ltac:(lia)) as [_ Nl]. rewrite Sq', Nl. lia.
      * split; [rewrite A; reflexivity|exact B].
    + destruct (IH e Ppos I') as [A B]; [simpl; rewrite (nth_set_nth _ _ _ _ _ Hq); destruct (Nat.eqb_spec r (Launch_req g)); [contradiction|exact He]|exact Le|exact Sure|].
      split; [rewrite A; reflexivity|exact B].
  - pose proof (I_psize _ _ _ I) as Ps. apply truncate_ok in Cu as (q & whole & rest & Hq & _ & En & Sq & Tr); [|lia]. rewrite Ps in En, Tr.
    destruct (truncated_inv P Ppos D l x q whole rest l3 I Hq Tr) as [I' _]. pose proof Tr as (_ & Nl & _ & _ & U3 & _ & U4).
    assert (Lp : length (Ledger_pages l3) = length (Ledger_pages l)) by exact (mapped_length _ _ _ U4).
    destruct (Nat.eqb_spec r x) as [->|Ne].
    + rewrite Hq in He. injection He as <-. destruct (IH (cut_req P q whole rest) Ppos I') as [A B].
      * rewrite U3, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl. reflexivity.
      * exact Le.
      * simpl. rewrite firstn_length. lia.
      * split; [rewrite A; exact Lp|exact B].
    + destruct (IH e Ppos I') as [A B]; [rewrite U3, (nth_set_nth _ _ _ _ _ Hq); destruct (Nat.eqb_spec r x); [contradiction|exact He]|exact Le|exact Sure|].
      split; [rewrite A; exact Lp|exact B].
Qed.

Lemma aside_same r S S' : reachable S -> Spec.aside cell logits params row_fn sample P r S S' ->
  events S S' /\ x_rq S' r = x_rq S r /\ req_at (x_led S') r = req_at (x_led S) r /\ kv_len (x_led S') r = kv_len (x_led S) r /\
  length (Ledger_pages (x_led S')) = length (Ledger_pages (x_led S)).
Proof.
  intros R A. induction A as [|S1 S2 _ (E & B & C & D & Lp) V B' C' D'].
  - split; [apply events_none|auto].
  - split; [exact (events_more _ _ _ _ _ _ _ _ _ E V)|]. rewrite B', C', D'. repeat (split; [assumption|]).
    rewrite (event_pages _ _ _ _ _ _ S1 S2 (events_reachable _ _ R E) V). exact Lp.
Qed.

(** What is left to do for a request of which [total] positions are needed and [kv] computed: after a proposal that did not
    advance it, it starts over once, and is then served alone. *)
Definition left (w : Watch) (a total kv : nat) : nat := if Watch_alone (fresh_watch w a) then total - kv else total + 1 + (total - kv).

Lemma turn_does j S w S' w' : reachable S -> Spec.waiting cell logits params P S j ->
  Spec.turn cell logits params row_fn sample P j (S, w) (S', w') ->
  reachable S' /\ (Spec.tokens cell logits params S' (j_entry j) < j_tokens j -> Spec.waiting cell logits params P S' j) /\
  exists kv kv', kv_len (x_led S) (j_entry j) = Some kv /\ kv_len (x_led S') (j_entry j) = Some kv' /\
    left w' (j_age j) (j_total j) kv' < left w (j_age j) (j_total j) kv.
Proof.
  intros R (q & e & kv & Hq & Lq & Wt & Gn & Tn & Cap) Tu.
  inversion Tu as [S0 w0 S1 pre ops l1 gs w1 m' l2 Q2 r S2 As Rm Sv Rn Sa Tk Kk E1 E2]. subst S0 w0 S' w'. clear Tu.
  change (x_rq S r = Some q) in Hq. change (waits (x_led S) r e kv) in Wt.
  destruct (aside_same r S S1 R As) as (Ev & Eq & Ee & Ek & Ep). pose proof (events_reachable _ _ R Ev) as R1.
  assert (Wt1 : waits (x_led S1) r e kv).
  { destruct Wt as (A & B & C & D & F & G). unfold Spec.waits. rewrite Ee, Ek, Ep. exact (conj A (conj B (conj C (conj D (conj F G))))). }
  destruct (serve_does S1 r e kv w (j_age j) pre ops R1 Wt1 Rm) as (l1' & gs' & w1' & kv1 & Sv' & _ & Age & Kv1 & Al).
  rewrite Sv in Sv'. injection Sv' as <- <- <-.
  destruct (serve_keeps S1 r e w (j_age j) pre ops l1 gs w1 true kv R1 Wt1 Rm Sv) as (D & e1 & I1 & H1 & L1 & Su1 & T1 & Lp1 & Row).
  pose proof (kv_kvn _ _ _ _ H1 Kv1) as Kn1. pose proof (reachable_Ppos _ _ _ _ _ _ _ R) as Ppos.
  destruct (serve_is_steps S1 w (j_age j) r pre ops l1 gs w1 true R1 Sv) as (S3 & ops3 & Ev3 & Em3 & Er3 & Ep3 & St3).
  pose proof (events_reachable _ _ R1 Ev3) as R3.
  assert (Ev2 : event S3 S2).
  { unfold S2. rewrite <- Ep3. apply (E_step _ _ _ _ _ _ S3 ops3 l1 gs m' l2 Q2 St3); [rewrite Em3; exact Rn|rewrite Er3; exact Sa]. }
  assert (R2 : reachable S2) by exact (Spec.R_event _ _ _ _ _ _ _ _ R3 Ev2).
  split; [exact R2|].
  destruct (sampled_exact D l1 m' l1 _ gs l2 Q2 r e1 Sa Ppos I1 H1 L1 Su1) as (Lp2 & e2 & H2 & L2 & Su2).
  rewrite <- Eq in Hq. destruct (sampled_extends _ _ _ _ _ _ _ _ _ _ _ _ Sa r q Hq) as (q2 & more & Hq2 & Pq2 & _ & Gq2).
  assert (Hist : forall S4 l4 q4 e4, reachable S4 -> l4 = x_led S4 -> x_rq S4 r = Some q4 -> req_at l4 r = Some e4 -> Req_live e4 = true -> Req_sure e4 = length (Req_toks e4) ->
    length (Req_toks e4) = length (prompt _ _ _ q4) + length (gen _ _ _ q4) /\ live _ _ _ q4 = true).
  { intros S4 l4 q4 e4 R4 -> Hq4 He4 L4 Su4. pose proof (proj2 (xsim _ _ _ _ _ _ Ppos S4 R4) r) as Sy. rewrite He4 in Sy. destruct Sy as (q5 & Q1 & Q3 & Q4).
    rewrite Hq4 in Q1. injection Q1 as <-. destruct (Q4 L4) as [_ Q5]. rewrite Su4, firstn_all in Q5. rewrite Q5. unfold Reference.hist. rewrite app_length, map_length. split; [reflexivity|congruence]. }
  destruct Wt1 as (He1 & Le1 & Sue & Kv & Ltk & _).
  destruct (Hist S1 _ q e R1 eq_refl Hq He1 Le1 Sue) as [Len _]. destruct (Hist S2 l2 q2 e2 R2 eq_refl Hq2 H2 L2 Su2) as [Len2 Lq2]. rewrite Pq2 in Len2.
  assert (G2 : length (gen _ _ _ q2) = length (gen _ _ _ q) + length more) by (rewrite Gq2, app_length; reflexivity).
  assert (More : kv1 < length (Req_toks e2)).
  { pose proof (kvn_bound P Ppos D l1 r e1 I1 H1) as Bd. rewrite T1 in Bd. destruct Row as [Lt|Smp]; [lia|]. specialize (Tk Smp).
    unfold Spec.tokens in Tk. rewrite Hq in Tk. change (x_rq S2 r) with (Q2 r) in Tk. rewrite Hq2 in Tk. lia. }
  assert (Kv2 : kv_len (x_led S2) r = Some kv1) by (change (x_led S2) with l2; rewrite Kk; exact Kv1).
  split.
  - intros Few. unfold Spec.tokens in Few. fold r in Few. change (x_rq S2 r) with (Q2 r) in Few. rewrite Hq2 in Few.
    exists q2, e2, kv1. change (x_rq S2 (j_entry j)) with (Q2 r). split; [exact Hq2|]. split; [exact Lq2|].
    assert (Pages : length (Ledger_pages l2) = length (Ledger_pages (x_led S))) by congruence.
    split; [|split; [exact Few|split; [rewrite Pq2; exact Tn|change (x_led S2) with l2; rewrite Pages; exact Cap]]].
    change (x_led S2) with l2. change (j_entry j) with r. split; [exact H2|]. split; [exact L2|]. split; [exact Su2|]. split; [exact Kv2|]. split; [exact More|].
    rewrite Pages, Len2. lia.
  - exists kv, kv1. change (kv_len (x_led S) (j_entry j)) with (kv_len (x_led S) r). rewrite <- Ek. split; [exact Kv|]. split; [exact Kv2|].
    assert (Low : kv < j_total j) by lia. unfold left. replace (fresh_watch w1 (j_age j)) with w1 by (unfold fresh_watch; rewrite Age, Nat.eqb_refl; reflexivity).
    destruct (Watch_alone (fresh_watch w (j_age j))).
    + destruct Al as [-> ->]. lia.
    + destruct Al as [->|Lt]; [lia|]. destruct (Watch_alone w1); lia.
Qed.

Theorem waits_on : Spec.waits_on cell logits params row_fn sample P.
Proof. intros j S w S' w' R Wt Tu. exact (proj1 (proj2 (turn_does j S w S' w' R Wt Tu))). Qed.

Theorem every_request_ends : Spec.every_request_ends cell logits params row_fn sample P.
Proof.
  intros J S w k J' c' R Ru.
  enough (G : forall J c k J' c', Spec.run cell logits params row_fn sample P J c k J' c' -> reachable (fst c) ->
    k <= turns_for J /\ forall j J0 kv, J = j :: J0 -> kv_len (x_led (fst c)) (j_entry j) = Some kv -> k <= left (snd c) (j_age j) (j_total j) kv + 1 + turns_for J0).
  { exact (proj1 (G J (S, w) k J' c' Ru R)). }
  assert (Up : forall w a t kv, left w a t kv <= 2 * t + 1) by (intros w0 a t kv; unfold left; destruct (Watch_alone _); lia).
  clear - Up. intros J c k J' c' Ru. induction Ru as [J c|j J c c1 k J' c2 Wt Tu Few _ IH|j J c c1 S2 k J' c2 Wt Tu Ev _ IH|j J S w S2 k J' c2 Ev _ IH]; intros R.
  - split; [lia|]. intros. lia.
  - destruct c as [S w], c1 as [S1 w1]. cbn [fst snd] in *. destruct (turn_does j S w S1 w1 R Wt Tu) as (R1 & _ & kv & kv1 & K & K1 & Lt).
    destruct (IH R1) as [_ B]. specialize (B j J kv1 eq_refl K1). pose proof (Up w (j_age j) (j_total j) kv).
    split; [simpl; lia|]. intros j0 J0 kv0 [= <- <-] K0. rewrite K in K0. injection K0 as <-. lia.
  - destruct c as [S w], c1 as [S1 w1]. cbn [fst snd] in *. destruct (turn_does j S w S1 w1 R Wt Tu) as (R1 & _ & kv & kv1 & K & K1 & Lt).
    destruct (IH (events_reachable _ _ R1 Ev)) as [A _]. split; [simpl; lia|]. intros j0 J0 kv0 [= <- <-] K0. rewrite K in K0. injection K0 as <-. lia.
  - cbn [fst snd] in *. destruct (IH (events_reachable _ _ R Ev)) as [A _]. split; [simpl; lia|]. intros j0 J0 kv0 [= <- <-] _. lia.
Qed.
End Serve.

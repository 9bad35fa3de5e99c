(** The theorems: the statements of [Spec.v], and the way from an engine that works layer by layer to the machine there. *)
From Coq Require Import List Arith NArith Lia Bool.
Import ListNotations.
From Sametree Require Import Prims Reference LedgerTypes LedgerFns Spec Core Layered Pages FnsOk EndToEnd NoPanic.

Section Main.
Variables cell logits params : Type.
Variable row_fn : nat -> nat -> list cell -> cell * logits.
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.
Notation machine := (Spec.machine cell logits params).
Notation x_led := (Spec.x_led cell logits params).
Notation reachable := (Spec.reachable cell logits params row_fn sample P).

(** a machine exists only if [create] accepted the page size *)
Lemma reachable_Ppos S : reachable S -> 0 < P.
Proof. induction 1 as [m n l C|S S' _ IH _]; [exact (proj1 (proj2 (create_ok _ _ _ C)))|exact IH]. Qed.

Theorem equals_reference : Spec.equals_reference cell logits params row_fn sample P.
Proof. intros S q R. exact (end_to_end _ _ _ _ _ _ (reachable_Ppos S R) S q R). Qed.

Theorem deterministic : Spec.deterministic cell logits params row_fn sample P.
Proof.
  intros S1 S2 q1 q2 R1 R2 V1 V2 Ep Eq Le. rewrite (equals_reference S1 q1 R1 V1) at 1. rewrite (equals_reference S2 q2 R2 V2), Ep, Eq.
  rewrite (ref_gen_firstn _ _ _ _ _ _ _ _ _ _ Le). reflexivity.
Qed.

Lemma sampled_extends l1 m' l Q gs l2 Q2 : Spec.sampled cell logits params row_fn sample l1 m' l Q gs l2 Q2 -> forall r q, Q r = Some q ->
  exists q' more, Q2 r = Some q' /\ prompt _ _ _ q' = prompt _ _ _ q /\ prm _ _ _ q' = prm _ _ _ q /\ gen _ _ _ q' = gen _ _ _ q ++ more.
Proof.
  induction 1 as [l Q|l Q g gs l' Q' _ IH|l Q g gs q0 lg t l3 l' Q' _ Hq0 _ _ _ _ IH|l Q gs x n l3 l' Q' _ _ IH]; intros r q Hq.
  - exists q, []. rewrite app_nil_r. auto.
  - exact (IH r q Hq).
  - destruct (Nat.eq_dec r (Launch_req g)) as [->|Ne].
    + rewrite Hq in Hq0. injection Hq0 as <-.
      destruct (IH (Launch_req g) (received _ _ q t lg)) as (q' & more & A & B & C & D); [unfold upd; rewrite Nat.eqb_refl; reflexivity|].
      exists q', ((t, lg) :: more). simpl in *. rewrite <- app_assoc in D. auto.
    + apply IH. unfold upd. destruct (Nat.eqb_spec r (Launch_req g)); [contradiction|exact Hq].
  - exact (IH r q Hq).
Qed.

Lemma upd_other {A} (f : nat -> A) k v x : x <> k -> upd f k v x = f x.
Proof. intros Ne. unfold upd. destruct (Nat.eqb_spec x k); [contradiction|reflexivity]. Qed.

Theorem never_retracted : Spec.never_retracted cell logits params row_fn sample P.
Proof.
  intros S S' q R E V. unfold Spec.served in *.
  destruct E as [p prs l' r A|r p prs l' q0 A Hq0|ops l1 gs m' l2 Q2 St So Rs|ops l1 gs l2 St Re|l' Re|m' Sc|r t l' Dr|r n l' Cu|r l' U|r l' q0 F Hq0]; simpl.
  2: { (* readmit: the old request moves to the past *)
    exists q, []. rewrite app_nil_r. split; [|auto]. destruct V as [[i Hi]|Hi]; [|auto].
    destruct (Nat.eq_dec i r) as [->|Ne]; [right; left; congruence|]. left. exists i. simpl. rewrite upd_other by exact Ne. exact Hi. }
  2: { (* step *)
    destruct V as [[i Hi]|Hi]; [|exists q, []; rewrite app_nil_r; auto].
    destruct (sampled_extends _ _ _ _ _ _ _ Rs i q Hi) as (q' & more & A & B). exists q', more. eauto. }
  8: { (* finish *)
    destruct V as [[i Hi]|Hi]; [|exists q, []; rewrite app_nil_r; auto].
    destruct (Nat.eq_dec i r) as [->|Ne].
    - rewrite Hi in Hq0. injection Hq0 as <-. eexists _, []. rewrite app_nil_r. split; [left; exists r; simpl; unfold upd; rewrite Nat.eqb_refl; reflexivity|auto].
    - exists q, []. rewrite app_nil_r. split; [left; exists i; simpl; rewrite upd_other by exact Ne; exact Hi|auto]. }
  2,3,4,5,6,7: exists q, []; rewrite app_nil_r; auto.
  (* admit: its entry is new *)
  exists q, []. rewrite app_nil_r. split; [|auto]. destruct V as [[i Hi]|Hi]; [|auto]. left. exists i. simpl.
  destruct (Nat.eq_dec i r) as [->|Ne]; [|rewrite upd_other by exact Ne; exact Hi]. exfalso. apply admit_ok in A as [-> _].
  pose proof (proj2 (xsim _ _ _ _ _ _ (reachable_Ppos S R) S R) (length (Ledger_reqs (x_led S)))) as X.
  rewrite (proj2 (nth_error_None _ _) (le_n _)) in X. congruence.
Qed.

Theorem truncate_forgets : Spec.truncate_forgets cell logits params row_fn sample P.
Proof.
  intros S r n l' R Cu. pose proof (reachable_Ppos S R) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos S R) as (D & I). pose proof (I_psize _ _ _ I) as Ps.
  apply truncate_ok in Cu as (q & whole & rest & Hq & _ & En & _ & Tr); [|lia]. rewrite Ps in En, Tr. subst n.
  destruct (truncated_inv P Ppos D _ r q whole rest l' I Hq Tr) as [I' _]. pose proof Tr as (Rl & Nl & Ps' & _ & U3 & _ & U4).
  assert (Hr : nth_error (Ledger_reqs l') r = Some (cut_req P q whole rest)) by (rewrite U3, (nth_set_nth _ _ _ _ _ Hq), Nat.eqb_refl; reflexivity). split.
  - intros kv K. apply (kv_kvn _ _ _ _ Hr) in K. subst kv. pose proof (kvn_bound P Ppos D l' r _ I' Hr) as B. simpl in B. rewrite firstn_length in B. lia.
  - intros i Le Lt. rewrite Ps', Ps in Lt. unfold Spec.slot_at, Spec.table_of in *. rewrite Hr in *. cbn [cut_req Req_table] in *. rewrite Ps', Ps. intros pg Hp.
    pose proof (Nat.div_mod i P ltac:(lia)) as Dm. pose proof (Nat.mod_upper_bound i P ltac:(lia)) as Mb. rewrite firstn_length in Lt.
    assert (Wi : i / P = whole /\ 0 < rest /\ held_on whole rest = whole + 1).
    { unfold held_on in *. destruct (Nat.ltb_spec 0 rest); nia. }
    destruct Wi as (Wi & Rp & Hd). destruct (divmod P Ppos (nth (i / P) (firstn (held_on whole rest) (Req_table q)) 0) (i mod P) Mb) as [Sd Sm]. rewrite Sd in Hp. rewrite Sm.
    rewrite Wi in *. rewrite U4 in Hp. destruct (nth_error (Req_table q) whole) as [p|] eqn:Np; [|apply nth_error_None in Np; lia].
    assert (Nth : nth whole (firstn (held_on whole rest) (Req_table q)) 0 = p) by (apply nth_error_nth; rewrite nth_firstn_lt by lia; exact Np).
    rewrite Nth in Hp. destruct (nth_error (Ledger_pages (x_led S)) p) as [pg0|]; [|discriminate]. injection Hp as <-.
    unfold cut_page, cut. cbn [Page_toks]. rewrite Np, Nat.eqb_refl. destruct (Nat.ltb_spec 0 rest); [|lia]. cbn [andb]. rewrite firstn_length. lia.
Qed.

(** an accepted step, as [Core] sees it *)
Lemma accepted S ops l1 gs : reachable S -> step (x_led S) [] ops = Some (l1, gs, true) ->
  exists L, Inv nat cell logits row_fn L (Spec.x_mem _ _ _ S) /\ check_step nat Nat.eq_dec L (map (row_of l1) gs) = true.
Proof.
  intros R St. pose proof (reachable_Ppos S R) as Ppos.
  destruct (page_refines _ _ _ _ _ _ Ppos _ (proj1 (xsim _ _ _ _ _ _ Ppos S R))) as (D & L & I & Le & Re). simpl in I, Le, Re.
  pose proof (I_psize _ _ _ I) as Ps. apply step_ok in St as (g & E & M & _); [|lia]. simpl in E. subst g. rewrite Ps in M.
  destruct (step_refines _ Ppos D L _ _ _ I Le M) as (_ & _ & C & _).
  exists L. split; [exact (proj1 (trace_invariant _ _ _ _ _ _ _ _ Re))|exact C].
Qed.

Theorem order_free : Spec.order_free cell logits params row_fn sample P.
Proof.
  intros S ops l1 gs m1 m2 R St R1 R2. destruct (accepted S ops l1 gs R St) as (L & HI & C).
  apply runs_solution in R1, R2. destruct (order_irrelevant _ _ _ _ _ _ _ _ HI C _ _ R1 R2) as [Em Eo].
  split; [exact Em|]. intros g Ig. rewrite !(launch_out_row _ _ _ _ _ g (Launch_sample g)). exact (Eo (row_of l1 g) (in_map _ _ _ Ig)).
Qed.

(** ** No panic *)
Lemma mapped_length (f : nat -> Page -> Page) (pgs pgs' : list Page) :
  (forall p, nth_error pgs' p = option_map (f p) (nth_error pgs p)) -> length pgs' = length pgs.
Proof.
  intros Pg. assert (N : forall n, nth_error pgs' n = None <-> nth_error pgs n = None) by (intros n; rewrite Pg; destruct (nth_error pgs n); simpl; split; congruence).
  pose proof (proj1 (nth_error_None _ _) (proj1 (N _) (proj2 (nth_error_None _ _) (le_n _)))).
  pose proof (proj1 (nth_error_None _ _) (proj2 (N _) (proj2 (nth_error_None _ _) (le_n _)))). lia.
Qed.
Lemma event_pages S S' : reachable S -> Spec.event cell logits params row_fn sample P S S' ->
  length (Ledger_pages (x_led S')) = length (Ledger_pages (x_led S)).
Proof.
  intros R E. pose proof (reachable_Ppos S R) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos S R) as (D & I). pose proof (I_psize _ _ _ I) as Ps.
  assert (Map : forall l l' (f : nat -> Page -> Page), (forall p, nth_error (Ledger_pages l') p = option_map (f p) (nth_error (Ledger_pages l) p)) ->
    length (Ledger_pages l') = length (Ledger_pages l)) by (intros l l' f; apply mapped_length).
  assert (Unp : forall l r l', unpin l r = Some (l', true) -> length (Ledger_pages l') = length (Ledger_pages l)).
  { intros l r l' U. apply unpin_ok in U as (q & _ & _ & _ & _ & Pg). exact (Map l l' _ Pg). }
  assert (Tru : forall l r n l', 0 < Ledger_psize l -> truncate l r n = Some (l', true) -> length (Ledger_pages l') = length (Ledger_pages l)).
  { intros l r n l' Pp U. apply truncate_ok in U as (q & w & t & _ & _ & _ & _ & _ & _ & _ & _ & _ & _ & Pg); [|exact Pp]. exact (Map l l' _ Pg). }
  assert (Rst : forall l l', reset l = Some l' -> length (Ledger_pages l') = length (Ledger_pages l)).
  { intros l l' Re. apply reset_ok in Re. subst l'. simpl. apply map_length. }
  assert (Stp : forall ops l1 gs b, step (x_led S) [] ops = Some (l1, gs, b) -> length (Ledger_pages l1) = length (Ledger_pages (x_led S))).
  { intros ops l1 gs b St. apply step_ok in St as (g & _ & M & _); [|lia]. exact (proj1 (proj2 (micros_shape _ _ _ _ M))). }
  destruct E as [p prs l' r A|r p prs l' q0 A Hq0|ops l1 gs m' l2 Q2 St So Rs|ops l1 gs l2 St Re|l' Re|m' Sc|r t l' Dr|r n l' Cu|r l' U|r l' q0 F Hq0]; simpl.
  + apply admit_ok in A as [_ ->]. reflexivity.
  + apply readmit_ok in A as (q & _ & _ & _ & ->). reflexivity.
  + rewrite <- (Stp _ _ _ _ St). assert (P1 : 0 < Ledger_psize l1) by (apply step_ok in St as (g & _ & M & _); [|lia]; pose proof (step_psize _ _ _ M); lia).
    clear - Rs P1 Tru. revert P1. induction Rs as [l Q|l Q g gs l' Q' _ IH|l Q g gs q lg t l3 l' Q' _ _ _ _ Cm _ IH|l Q gs x n l3 l' Q' Cu _ IH]; intros P1; auto.
    * apply commit_ok in Cm as (q0 & q1 & more & kv & _ & _ & _ & _ & _ & -> & _). exact (IH P1).
    * rewrite <- (Tru _ _ _ _ P1 Cu). apply IH. apply truncate_ok in Cu as (q & w & t & _ & _ & _ & _ & _ & _ & E & _); [|exact P1]. lia.
  + rewrite (Rst _ _ Re). exact (Stp _ _ _ _ St).
  + exact (Rst _ _ Re).
  + reflexivity.
  + apply draft_ok in Dr as (q & _ & _ & ->). reflexivity.
  + refine (Tru _ _ _ _ _ Cu). lia.
  + exact (Unp _ _ _ U).
  + apply finish_ok in F as (l1 & q & U & _ & ->). exact (Unp _ _ _ U).
Qed.
Lemma pool_size S : reachable S -> fits 64 (P * length (Ledger_pages (x_led S))) = true.
Proof.
  induction 1 as [m n l C|S S' R IH E].
  - apply create_ok in C as (-> & _ & F). simpl. rewrite repeat_length. exact F.
  - rewrite (event_pages S S' R E). exact IH.
Qed.

Theorem never_panics : Spec.never_panics cell logits params row_fn sample P.
Proof.
  intros S R l. pose proof (reachable_Ppos S R) as Ppos. destruct (reachable_inv _ _ _ _ _ _ Ppos S R) as (D & I). fold l in I.
  assert (Rd : forall n, within P n l -> Ready P n l) by (intros n W; exists D; split; [exact I|constructor; [exact W|exact (pool_size S R)]]).
  split; [intros p; discriminate|].
  split; [intros r p; destruct (readmit_total l r p) as (l' & b & ->); discriminate|].
  split; [intros rows ops W; destruct (step_total P Ppos 0 l rows ops) as (l' & rows' & b & -> & _); [rewrite Nat.add_0_r; exact (Rd _ W)|discriminate]|].
  split; [intros ops l1 gs b _; destruct (reset_total P Ppos l1) as (l' & ->); discriminate|].
  split; [intros r n t W; destruct (commit_total P Ppos 0 l r n t (Rd _ W)) as (l' & b & ->); discriminate|].
  split; [intros r t; destruct (draft_total l r t) as (l' & b & ->); discriminate|].
  split; [intros r n W; destruct (Rd _ W) as (D' & I' & Bd); destruct (truncate_total P Ppos D' 0 l r n I' Bd) as (l' & b & ->); discriminate|].
  split.
  { intros r W In. destruct (Rd _ W) as (D' & I' & Bd). destruct (get_total (Ledger_reqs l) r In) as [q Hq].
    destruct (kv_total P Ppos D' 0 l r q I' Bd Hq) as (kv & -> & _ & _ & c & ->). destruct (aligned_total P Ppos D' 0 l r q I' Bd Hq) as [a ->].
    repeat split; discriminate. }
  split; [intros r; destruct (unpin_total P Ppos D l r I) as (l' & b & -> & _); discriminate|].
  split; [intros r; destruct (finish_total P Ppos D l r I) as (l' & b & ->); discriminate|].
  destruct (reset_total P Ppos l) as (l' & ->). discriminate.
Qed.
End Main.

(** ** The engine that works layer by layer *)
Section Engine.
Variables hid lcell logits params : Type.
Variable d : lcell.
Variable NL : nat.                                        (* layers *)
Variable emb : nat -> nat -> hid.
Variable kv : nat -> hid -> nat -> lcell.
Variable att : nat -> hid -> list lcell -> lcell -> hid.
Variable head : hid -> logits.
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.
Notation rf := (Layered.row_fn nat hid lcell logits d NL emb kv att head).
Notation engine := (Layered.engine nat hid lcell emb kv att NL).
Notation cells_of := (Layered.cells_of lcell NL).
Notation reachable := (Spec.reachable (list lcell) logits params rf sample P).
Notation Ma := (Spec.Ma (list lcell) logits params).

(** In every layer, first the keys and values of all rows are written, then all rows attend.  On an accepted step this
    computes exactly what [Spec.runs] asks for, and the logits of the rows' launch records. *)
Theorem layered_engine M l Q past ops l1 gs :
  reachable (Ma (cells_of M) l Q past) -> step l [] ops = Some (l1, gs, true) ->
  let E := engine M (map (row_of l1) gs) in
  Spec.runs (list lcell) logits rf l1 gs (cells_of M) (cells_of (fst E)) /\
  map (fun rh => head (snd rh)) (snd E) = map (fun g => snd (Spec.launch_out (list lcell) logits rf l1 (cells_of (fst E)) g)) gs.
Proof.
  intros R St E. destruct (accepted _ _ _ _ _ _ _ _ _ _ R St) as (L & _ & C). apply check_step_ok in C as [N _].
  destruct (layer_parallel_is_solution nat hid lcell logits d NL emb kv att head M (map (row_of l1) gs) N) as [So Lg]. fold E in So, Lg. split.
  - apply runs_solution. exact So.
  - rewrite Lg, map_map. apply map_ext. intros g. rewrite (launch_out_row _ _ _ _ _ g (Launch_sample g)). reflexivity.
Qed.
End Engine.

(** Slot-level ledger: the abstract theory. No axioms. *)
From Coq Require Import List Arith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference.

Section Core.
Variables token cell logits params : Type.
Variable teq : forall a b : token, {a = b} + {a <> b}.
(** Hypothesis of the kernel checker: a kernel row is a function of its own
    token, its position and the cells it reads -- of nothing else. *)
Variable row_fn : token -> nat -> list cell -> cell * logits.
Variable sample : params -> nat -> logits -> token.

Notation canon := (Reference.canon token cell logits row_fn).
Notation ref_logits := (Reference.ref_logits token cell logits row_fn).
Notation ref_gen := (Reference.ref_gen token cell logits params row_fn sample).
Notation rq := (Reference.rq token logits params).
Notation Rq := (Reference.Rq token logits params).
Notation prompt := (Reference.prompt token logits params).
Notation prm := (Reference.prm token logits params).
Notation gen := (Reference.gen token logits params).
Notation live := (Reference.live token logits params).
Notation hist := (Reference.hist token logits params).

(* ------------------------------------------------------------------ *)
(** * Step plans, the parallel semantics, the ledger *)

Record row := Row {
  r_req : nat;  r_ctx : list token;  r_tok : token;
  r_reads : list nat;  r_write : nat;  r_samp : bool }.

Definition mem := nat -> cell.
Definition ledger := nat -> option (list token).

Definition row_out (m : mem) (r : row) : cell * logits :=
  row_fn (r_tok r) (length (r_reads r)) (map m (r_reads r)).
Definition writes (plan : list row) := map r_write plan.

(** Parallel semantics: [m'] is a solution of the step's dataflow equations.
    No order between rows appears anywhere. *)
Definition solution (plan : list row) (m m' : mem) : Prop :=
  (forall r, In r plan -> m' (r_write r) = fst (row_out m' r)) /\
  (forall s, ~ In s (writes plan) -> m' s = m s).

Definition r_full (r : row) := r_ctx r ++ [r_tok r].
Definition post (L : ledger) (plan : list row) : ledger :=
  fold_left (fun L r => upd L (r_write r) (Some (r_full r))) plan L.
Definition prefixes (h : list token) := map (fun i => firstn (S i) h) (seq 0 (length h)).

Fixpoint nodupb (l : list nat) : bool :=
  match l with [] => true | a :: l' => negb (existsb (Nat.eqb a) l') && nodupb l' end.
Definition oeq (a b : option (list token)) : {a = b} + {a <> b}.
Proof. decide equality. apply (list_eq_dec teq). Defined.
Definition check_row (L' : ledger) (r : row) : bool :=
  if list_eq_dec oeq (map L' (r_reads r)) (map (@Some _) (prefixes (r_ctx r))) then true else false.
(** THE CHECK: write slots distinct; every read slot holds, after this step's
    writes, exactly the corresponding prefix of the row's own context. *)
Definition check_step (L : ledger) (plan : list row) : bool :=
  nodupb (writes plan) && forallb (check_row (post L plan)) plan.

(** slot [s] of [m] holds the canonical last cell of [h] *)
Definition holds (m : mem) (s : nat) (h : list token) : Prop :=
  h <> [] /\ nth_error (canon h) (length h - 1) = Some (m s).
Definition Inv (L : ledger) (m : mem) : Prop := forall s h, L s = Some h -> holds m s h.

(* ------------------------------------------------------------------ *)
(** * Lemmas on the reference *)

Lemma canon_snoc h t :
  canon (h ++ [t]) = canon h ++ [fst (row_fn t (length (canon h)) (canon h))].
Proof. unfold Reference.canon. rewrite fold_left_app. reflexivity. Qed.

Lemma canon_length h : length (canon h) = length h.
Proof.
  induction h as [|t h IH] using rev_ind; [reflexivity|].
  rewrite canon_snoc, !app_length, IH; reflexivity.
Qed.

Lemma ref_logits_snoc h t :
  ref_logits (h ++ [t]) = Some (snd (row_fn t (length h) (canon h))).
Proof. unfold Reference.ref_logits. rewrite rev_app_distr; simpl. rewrite removelast_last, canon_length. reflexivity. Qed.

Lemma holds_snoc m s h t :
  holds m s (h ++ [t]) <-> m s = fst (row_fn t (length h) (canon h)).
Proof.
  unfold holds. rewrite canon_snoc, app_length, canon_length. simpl.
  replace (length h + 1 - 1) with (length (canon h)) by (rewrite canon_length; lia).
  rewrite nth_error_app2, Nat.sub_diag by lia. simpl.
  split; [intros [_ E]; congruence | intros ->; split; [destruct h; discriminate|reflexivity]].
Qed.

Lemma prefixes_snoc h t : prefixes (h ++ [t]) = prefixes h ++ [h ++ [t]].
Proof.
  unfold prefixes. rewrite app_length. change (length [t]) with 1.
  rewrite seq_app, map_app. f_equal.
  - apply map_ext_in. intros i Hi. apply in_seq in Hi.
    rewrite firstn_app. replace (S i - length h) with 0 by lia. rewrite firstn_O, app_nil_r; reflexivity.
  - cbn [seq map]. rewrite firstn_all2; [reflexivity | rewrite app_length; simpl; lia].
Qed.

Lemma prefixes_in h p : In p (prefixes h) -> p <> [] /\ length p <= length h.
Proof.
  intros H. apply in_map_iff in H as [i [<- Hi]]. apply in_seq in Hi.
  rewrite firstn_length. split; [|lia]. destruct h; simpl in *; [lia|discriminate].
Qed.

(** if the read slots hold the prefixes, the row reads exactly the canonical cells *)
Lemma reads_canon (m : mem) (L : ledger) h : forall rs,
  map L rs = map (@Some _) (prefixes h) ->
  (forall s p, In s rs -> L s = Some p -> holds m s p) ->
  map m rs = canon h.
Proof.
  induction h as [|t h IH] using rev_ind; intros rs E H.
  - destruct rs; [reflexivity|discriminate].
  - rewrite prefixes_snoc, map_app in E. apply map_eq_app in E as (r1 & r2 & -> & E1 & E2).
    destruct r2 as [|s [|? ?]]; try discriminate. simpl in E2. inversion E2 as [E3].
    rewrite map_app, canon_snoc, (IH r1 E1) by (intros; apply H; auto; apply in_or_app; auto).
    simpl. do 2 f_equal. rewrite canon_length. apply holds_snoc.
    apply H; [apply in_or_app; right; left; reflexivity | exact E3].
Qed.

(* ------------------------------------------------------------------ *)
(** * Lemmas on the ledger *)

Lemma nodupb_ok l : nodupb l = true -> NoDup l.
Proof.
  induction l as [|a l IH]; simpl; intros H; constructor.
  - apply andb_true_iff in H as [H _]. apply negb_true_iff in H. intros I.
    rewrite (proj2 (existsb_exists _ _)) in H; [discriminate|].
    exists a; split; [exact I|apply Nat.eqb_refl].
  - apply andb_true_iff in H as [_ H]; auto.
Qed.

Lemma post_notin plan : forall L s, ~ In s (writes plan) -> post L plan s = L s.
Proof.
  induction plan as [|r plan IH]; intros L s H; [reflexivity|]. simpl in *.
  unfold post in *; simpl. rewrite IH by tauto. unfold upd.
  destruct (Nat.eqb_spec s (r_write r)); [subst; tauto|reflexivity].
Qed.

Lemma post_in plan : forall L r, NoDup (writes plan) -> In r plan ->
  post L plan (r_write r) = Some (r_full r).
Proof.
  induction plan as [|q plan IH]; intros L r N I; [destruct I|].
  simpl in N. apply NoDup_cons_iff in N as [N1 N2]. destruct I as [->|I].
  - unfold post; simpl. fold (post (upd L (r_write r) (Some (r_full r))) plan).
    rewrite post_notin by exact N1. unfold upd. rewrite Nat.eqb_refl. reflexivity.
  - exact (IH _ r N2 I).
Qed.

Lemma written_dec plan s : {r | In r plan /\ r_write r = s} + {~ In s (writes plan)}.
Proof.
  induction plan as [|q plan IH]; [right; intros []|].
  destruct (Nat.eq_dec (r_write q) s) as [E|E]; [left; exists q; simpl; auto|].
  destruct IH as [[r [I W]]|N]; [left; exists r; simpl; auto|right; simpl; tauto].
Qed.

Lemma check_step_ok L plan : check_step L plan = true ->
  NoDup (writes plan) /\
  forall r, In r plan -> map (post L plan) (r_reads r) = map (@Some _) (prefixes (r_ctx r)).
Proof.
  unfold check_step. rewrite andb_true_iff, forallb_forall. intros [N C].
  split; [apply nodupb_ok; exact N|]. intros r I. specialize (C r I). unfold check_row in C.
  destruct (list_eq_dec _ _ _) as [E|]; [exact E|discriminate].
Qed.

Lemma checked_read_written L plan r q :
  check_step L plan = true -> In r plan -> In q plan -> In (r_write q) (r_reads r) ->
  length (r_ctx q) < length (r_ctx r).
Proof.
  intros C I J R. apply check_step_ok in C as [N C]. specialize (C r I).
  apply (in_map (post L plan)) in R. rewrite C, (post_in _ L _ N J) in R.
  apply in_map_iff in R as [p [Ep Ip]]. inversion Ep; subst. apply prefixes_in in Ip as [_ Ip].
  unfold r_full in Ip. rewrite app_length in Ip; simpl in Ip. lia.
Qed.

(* ------------------------------------------------------------------ *)
(** * Step soundness *)

Theorem step_sound L m plan m' :
  Inv L m -> check_step L plan = true -> solution plan m m' ->
  Inv (post L plan) m' /\
  (forall r, In r plan -> ref_logits (r_full r) = Some (snd (row_out m' r))).
Proof.
  intros HI C [S1 S2]. pose proof (check_step_ok _ _ C) as [N CR].
  assert (W : forall n r, length (r_ctx r) < n -> In r plan ->
              map m' (r_reads r) = canon (r_ctx r)).
  { intros n. induction n as [|n IH]; [lia|]. intros r Hn I.
    apply reads_canon with (L := post L plan); [exact (CR r I)|].
    intros s p Is Ls. destruct (written_dec plan s) as [[q [Iq <-]]|Nw].
    - rewrite (post_in _ L _ N Iq) in Ls. inversion Ls; subst p. unfold r_full. apply holds_snoc.
      rewrite (S1 q Iq). pose proof (checked_read_written _ _ _ _ C I Iq Is).
      assert (E : map m' (r_reads q) = canon (r_ctx q)) by (apply IH; [lia|exact Iq]).
      unfold row_out. rewrite E, <- (canon_length (r_ctx q)), <- E, map_length. reflexivity.
    - rewrite post_notin in Ls by exact Nw. destruct (HI s p Ls) as [A B].
      split; [exact A|]. rewrite S2 by exact Nw. exact B. }
  assert (O : forall r, In r plan -> row_out m' r = row_fn (r_tok r) (length (r_ctx r)) (canon (r_ctx r))).
  { intros r I. pose proof (W (S (length (r_ctx r))) r (Nat.lt_succ_diag_r _) I) as E.
    unfold row_out. rewrite E, <- (canon_length (r_ctx r)), <- E, map_length. reflexivity. }
  split.
  - intros s h Ls. destruct (written_dec plan s) as [[q [Iq <-]]|Nw].
    + rewrite (post_in _ L _ N Iq) in Ls. inversion Ls; subst h. unfold r_full. apply holds_snoc.
      rewrite (S1 q Iq), (O q Iq). reflexivity.
    + rewrite post_notin in Ls by exact Nw. destruct (HI s h Ls) as [A B].
      split; [exact A|]. rewrite S2 by exact Nw. exact B.
  - intros r I. unfold r_full. rewrite ref_logits_snoc, (O r I). reflexivity.
Qed.

(* ------------------------------------------------------------------ *)
(** * Order independence: sequential executions are solutions, solutions are unique *)

Fixpoint seq_exec (m : mem) (plan : list row) : mem * list logits :=
  match plan with
  | [] => (m, [])
  | r :: rest => let '(c, l) := row_out m r in
                 let '(m', ls) := seq_exec (upd m (r_write r) c) rest in (m', l :: ls)
  end.

(** an order is admissible when no row reads a slot that itself or a later row writes *)
Inductive admissible : list row -> Prop :=
| adm_nil : admissible []
| adm_cons r plan : (forall s, In s (r_reads r) -> ~ In s (writes (r :: plan))) ->
                    admissible plan -> admissible (r :: plan).

Lemma seq_exec_notin plan : forall m s, ~ In s (writes plan) -> fst (seq_exec m plan) s = m s.
Proof.
  induction plan as [|r plan IH]; intros m s H; [reflexivity|]. simpl in *.
  destruct (row_out m r) as [c l]. specialize (IH (upd m (r_write r) c) s).
  destruct (seq_exec (upd m (r_write r) c) plan) as [m' ls]. simpl in *.
  rewrite IH by tauto. unfold upd. destruct (Nat.eqb_spec s (r_write r)); [subst; tauto|reflexivity].
Qed.

Lemma row_out_ext m m' r : (forall s, In s (r_reads r) -> m s = m' s) -> row_out m r = row_out m' r.
Proof. intros H. unfold row_out. rewrite (map_ext_in _ _ _ H). reflexivity. Qed.

Theorem seq_is_solution plan : NoDup (writes plan) -> admissible plan -> forall m,
  solution plan m (fst (seq_exec m plan)) /\
  snd (seq_exec m plan) = map (fun r => snd (row_out (fst (seq_exec m plan)) r)) plan.
Proof.
  intros N A. induction A as [|r plan R A IH]; intros m.
  - split; [split; [intros ? []|reflexivity]|reflexivity].
  - simpl in N. apply NoDup_cons_iff in N as [N1 N2].
    pose proof (seq_exec_notin (r :: plan) m) as K0.
    assert (E : row_out m r = row_out (fst (seq_exec m (r :: plan))) r).
    { apply row_out_ext. intros s Is. symmetry. apply K0. apply R. exact Is. }
    simpl in *. destruct (row_out m r) as [c l] eqn:Er.
    specialize (IH N2 (upd m (r_write r) c)). pose proof (seq_exec_notin plan (upd m (r_write r) c)) as K.
    destruct (seq_exec (upd m (r_write r) c) plan) as [m' ls]. simpl in *.
    destruct IH as [[S1 S2] LS]. split; [split|].
    + intros q [->|I]; [|exact (S1 q I)]. rewrite (K _ N1), <- E. unfold upd. rewrite Nat.eqb_refl. reflexivity.
    + intros s Hs. simpl in Hs. apply K0; tauto.
    + rewrite LS, <- E. reflexivity.
Qed.

(** any order with ascending positions is admissible once the ledger accepts *)
Inductive ascending : list row -> Prop :=
| asc_nil : ascending []
| asc_cons r plan : (forall q, In q plan -> length (r_ctx r) <= length (r_ctx q)) ->
                    ascending plan -> ascending (r :: plan).

Theorem order_irrelevant L m plan : Inv L m -> check_step L plan = true ->
  forall m1 m2, solution plan m m1 -> solution plan m m2 ->
  (forall s, m1 s = m2 s) /\ (forall r, In r plan -> row_out m1 r = row_out m2 r).
Proof.
  intros HI C m1 m2 A B. destruct (step_sound _ _ _ _ HI C A) as [I1 _]. destruct (step_sound _ _ _ _ HI C B) as [I2 _].
  assert (E : forall s, m1 s = m2 s).
  { intros s. destruct (written_dec plan s) as [[q [Iq <-]]|Nw].
    - apply check_step_ok in C as [N _]. pose proof (post_in _ L _ N Iq) as P.
      destruct (I1 _ _ P) as [_ X]. destruct (I2 _ _ P) as [_ Y]. congruence.
    - rewrite (proj2 A s Nw), (proj2 B s Nw). reflexivity. }
  split; [exact E|]. intros r I. apply row_out_ext. auto.
Qed.

Lemma solution_perm plan plan' m m' : (forall r, In r plan <-> In r plan') ->
  solution plan m m' -> solution plan' m m'.
Proof.
  intros P [S1 S2]. split; [intros r I; apply S1, P, I|]. intros s H. apply S2. intros K. apply H.
  apply in_map_iff in K as [r [<- I]]. apply in_map, P, I.
Qed.

Lemma adm_of plan : (forall pre r suf, plan = pre ++ r :: suf ->
    forall q, In q (r :: suf) -> ~ In (r_write q) (r_reads r)) -> admissible plan.
Proof.
  induction plan as [|r plan IH]; intros H; constructor.
  - intros s Is K. apply in_map_iff in K as [q [<- Iq]]. exact (H [] r plan eq_refl q Iq Is).
  - apply IH. intros pre r' suf -> q Iq. exact (H (r :: pre) r' suf eq_refl q Iq).
Qed.

(** Two sequential orders of one accepted step in which no row precedes a row
    that writes what it reads: same memory, same logits per row. *)
Theorem any_order L m plan p1 p2 : Inv L m -> check_step L plan = true ->
  (forall r, In r plan <-> In r p1) -> (forall r, In r plan <-> In r p2) ->
  NoDup (writes p1) -> NoDup (writes p2) -> admissible p1 -> admissible p2 ->
  forall s, fst (seq_exec m p1) s = fst (seq_exec m p2) s.
Proof.
  intros HI C P1 P2 N1 N2 A1 A2.
  apply (proj1 (order_irrelevant L m plan HI C _ _
    (solution_perm p1 plan _ _ (fun r => iff_sym (P1 r)) (proj1 (seq_is_solution p1 N1 A1 m)))
    (solution_perm p2 plan _ _ (fun r => iff_sym (P2 r)) (proj1 (seq_is_solution p2 N2 A2 m))))).
Qed.

(** Orders that keep each request's rows ascending are admissible, when rows of
    different requests do not read each other's writes of this very step. *)
Theorem per_request_ascending_admissible L plan p : check_step L plan = true ->
  (forall r, In r plan <-> In r p) ->
  (forall r q, In r plan -> In q plan -> In (r_write q) (r_reads r) -> r_req q = r_req r) ->
  (forall pre r suf, p = pre ++ r :: suf -> forall q, In q suf ->
     r_req q = r_req r -> length (r_ctx r) <= length (r_ctx q)) ->
  admissible p.
Proof.
  intros C P X A. apply adm_of. intros pre r suf -> q Iq Rd.
  assert (Ir : In r plan) by (apply P, in_or_app; right; left; reflexivity).
  assert (Iq' : In q plan) by (apply P, in_or_app; right; exact Iq).
  pose proof (checked_read_written _ _ _ _ C Ir Iq' Rd) as Lt.
  destruct Iq as [->|Iq]; [lia|]. specialize (A pre r suf eq_refl q Iq (X r q Ir Iq' Rd)). lia.
Qed.

Theorem ascending_admissible L plan p : check_step L plan = true ->
  (forall r, In r p -> In r plan) -> ascending p -> admissible p.
Proof.
  intros C P A. induction A as [|r p Hr A IH]; constructor.
  - intros s Is K. apply in_map_iff in K as [q [<- Iq]].
    pose proof (checked_read_written _ _ _ _ C (P r (or_introl eq_refl)) (P q Iq) Is) as Lt.
    destruct Iq as [->|Iq]; [lia|specialize (Hr q Iq); lia].
  - apply IH. intros q Iq. apply P. right. exact Iq.
Qed.

(* ------------------------------------------------------------------ *)
(** * Traces *)

(** [past] keeps the requests whose entry was given to a new one. *)
Record state := St { memo : mem; led : ledger; reqs : nat -> option rq; past : list rq }.
(** every request that the machine has ever seen, with what it has received so far *)
Definition served (st : state) (q : rq) : Prop := (exists i, reqs st i = Some q) \/ In q (past st).

(** Commit: a sampled row emits only if its context+token is the request's whole
    history at that moment.  (Rejected drafts and duplicates emit nothing.) *)
Definition commit (m' : mem) (Q : nat -> option rq) (r : row) : nat -> option rq :=
  match Q (r_req r) with
  | Some q =>
      if (r_samp r && live q && if list_eq_dec teq (r_full r) (hist q) then true else false)%bool
      then let l := snd (row_out m' r) in
           upd Q (r_req r) (Some (Rq (prompt q) (prm q)
              (gen q ++ [(sample (prm q) (length (hist q)) l, l)]) (live q)))
      else Q
  | None => Q
  end.

Inductive event (st : state) : state -> Prop :=
| Ev_arrive i p prs : reqs st i = None ->
    event st (St (memo st) (led st) (upd (reqs st) i (Some (Rq p prs [] true))) (past st))
| Ev_reuse i q p prs : reqs st i = Some q -> live q = false ->
    event st (St (memo st) (led st) (upd (reqs st) i (Some (Rq p prs [] true))) (q :: past st))
| Ev_finish i q : reqs st i = Some q ->
    event st (St (memo st) (led st) (upd (reqs st) i (Some (Rq (prompt q) (prm q) (gen q) false))) (past st))
| Ev_forget (f : nat -> bool) :      (* eviction: any set of ledger entries *)
    event st (St (memo st) (fun s => if f s then None else led st s) (reqs st) (past st))
| Ev_scribble m' : (forall s, led st s <> None -> m' s = memo st s) ->   (* unledgered memory is anybody's *)
    event st (St m' (led st) (reqs st) (past st))
| Ev_copy s d :                      (* page copy: swap, offload, copy-on-write *)
    event st (St (upd (memo st) d (memo st s)) (upd (led st) d (led st s)) (reqs st) (past st))
| Ev_step plan m' : check_step (led st) plan = true -> solution plan (memo st) m' ->
    event st (St m' (post (led st) plan) (fold_left (commit m') plan (reqs st)) (past st)).

Inductive reachable : state -> Prop :=
| R_init m : reachable (St m (fun _ => None) (fun _ => None) [])
| R_event st st' : reachable st -> event st st' -> reachable st'.

Definition req_ok (q : rq) := gen q = ref_gen (prm q) (prompt q) (length (gen q)).
Definition all_ok (Q : nat -> option rq) := forall i q, Q i = Some q -> req_ok q.

Lemma ref_gen_snoc p : forall n h l, length (ref_gen p h n) = n ->
  ref_logits (h ++ map fst (ref_gen p h n)) = Some l ->
  ref_gen p h (S n) = ref_gen p h n ++ [(sample p (length (h ++ map fst (ref_gen p h n))) l, l)].
Proof.
  intros n. induction n as [|n IH]; intros h l Hn Hl.
  - simpl in *. rewrite app_nil_r in *. rewrite Hl. reflexivity.
  - change (ref_gen p h (S (S n))) with
      (match ref_logits h with None => [] | Some l => let t := sample p (length h) l in (t,l) :: ref_gen p (h ++ [t]) (S n) end).
    simpl in Hn, Hl |- *. destruct (ref_logits h) as [l0|]; [|discriminate].
    set (t := sample p (length h) l0) in *. simpl in Hn, Hl |- *. injection Hn as Hn.
    change (h ++ t :: map fst (ref_gen p (h ++ [t]) n)) with (h ++ [t] ++ map fst (ref_gen p (h ++ [t]) n)) in *.
    rewrite app_assoc in *. specialize (IH (h ++ [t]) l Hn Hl). simpl in IH. rewrite IH. reflexivity.
Qed.

Lemma commit_ok m' plan : (forall r, In r plan -> ref_logits (r_full r) = Some (snd (row_out m' r))) ->
  forall Q, all_ok Q -> all_ok (fold_left (commit m') plan Q).
Proof.
  induction plan as [|r plan IH]; intros HR Q HQ; [exact HQ|]. simpl. apply IH.
  - intros q I. apply HR. right. exact I.
  - unfold commit. destruct (Q (r_req r)) as [q|] eqn:Eq; [|exact HQ].
    destruct (r_samp r && live q && _)%bool eqn:G; [|exact HQ].
    apply andb_true_iff in G as [_ G]. destruct (list_eq_dec teq (r_full r) (hist q)) as [E|]; [|discriminate].
    intros i q' Hq'. unfold upd in Hq'. destruct (Nat.eqb_spec i (r_req r)) as [->|Ne]; [|exact (HQ i q' Hq')].
    injection Hq' as <-. pose proof (HQ _ _ Eq) as K. unfold req_ok in *. simpl.
    rewrite app_length. simpl. rewrite Nat.add_1_r.
    pose proof (HR r (or_introl eq_refl)) as Lg. rewrite E in Lg. unfold hist in *. rewrite K in Lg at 1.
    rewrite (ref_gen_snoc (prm q) (length (gen q)) (prompt q) _ (f_equal (@length _) (eq_sym K)) Lg).
    rewrite <- K. reflexivity.
Qed.

Theorem trace_invariant st : reachable st ->
  Inv (led st) (memo st) /\ all_ok (reqs st) /\ forall q, In q (past st) -> req_ok q.
Proof.
  induction 1 as [m|st st' _ (HI & HQ & HP) E]; [split; [discriminate|split; [discriminate|intros ? []]]|].
  destruct E as [i p prs N | i q0 p prs Hq0 Dead | i q Q | f | m' H | s d | plan m' C S]; simpl.
  - split; [exact HI|]. split; [|exact HP]. intros j q. unfold upd. destruct (Nat.eqb j i); [intros [= <-]; reflexivity|apply HQ].
  - split; [exact HI|]. split.
    + intros j q. unfold upd. destruct (Nat.eqb j i); [intros [= <-]; reflexivity|apply HQ].
    + intros q [<-|I]; [exact (HQ i q0 Hq0)|exact (HP q I)].
  - split; [exact HI|]. split; [|exact HP]. intros j q'. unfold upd. destruct (Nat.eqb j i); [intros [= <-]; exact (HQ i q Q)|apply HQ].
  - split; [|split; [exact HQ|exact HP]]. intros s h. destruct (f s); [discriminate|apply HI].
  - split; [|split; [exact HQ|exact HP]]. intros s h L. destruct (HI s h L) as [A B]. split; [exact A|].
    rewrite H by congruence. exact B.
  - split; [|split; [exact HQ|exact HP]]. intros x h. unfold upd, holds. destruct (Nat.eqb x d); apply HI.
  - destruct (step_sound _ _ _ _ HI C S) as [I L]. split; [exact I|]. split; [apply commit_ok; assumption|exact HP].
Qed.

(** TRACE SOUNDNESS *)
Theorem trace_sound st q : reachable st -> served st q ->
  gen q = ref_gen (prm q) (prompt q) (length (gen q)).
Proof. intros R [[i E]|I]; [exact (proj1 (proj2 (trace_invariant _ R)) i q E)|exact (proj2 (proj2 (trace_invariant _ R)) q I)]. Qed.

Lemma ref_gen_firstn p : forall n k h, n <= k -> ref_gen p h n = firstn n (ref_gen p h k).
Proof.
  intros n. induction n as [|n IH]; intros [|k] h H; try reflexivity; [lia|].
  simpl. destruct (ref_logits h); [|reflexivity]. simpl. rewrite <- IH by lia. reflexivity.
Qed.

(** DETERMINISM over any two traces (tokens AND logits) *)
Theorem determinism st1 st2 q1 q2 : reachable st1 -> reachable st2 -> served st1 q1 -> served st2 q2 ->
  prompt q1 = prompt q2 -> prm q1 = prm q2 -> length (gen q1) <= length (gen q2) ->
  gen q1 = firstn (length (gen q1)) (gen q2).
Proof.
  intros R1 R2 S1 S2 Ep Eq Le.
  rewrite (trace_sound _ _ R1 S1) at 1. rewrite (trace_sound _ _ R2 S2), Ep, Eq.
  rewrite (ref_gen_firstn _ _ _ _ Le). reflexivity.
Qed.

(** what was emitted is never retracted, and prompt/params never change *)
Lemma commits_extend m' plan : forall Q i q, Q i = Some q ->
  exists q' more, fold_left (commit m') plan Q i = Some q' /\ prompt q' = prompt q /\ prm q' = prm q /\ gen q' = gen q ++ more.
Proof.
  induction plan as [|r plan IH]; intros Q i q H; [exists q, []; rewrite app_nil_r; auto|]. simpl.
  assert (K : exists q1 m1, commit m' Q r i = Some q1 /\ prompt q1 = prompt q /\ prm q1 = prm q /\ gen q1 = gen q ++ m1).
  { unfold commit. destruct (Q (r_req r)) as [q0|] eqn:E0; [|exists q, []; rewrite app_nil_r; auto].
    destruct (_ && _)%bool; [|exists q, []; rewrite app_nil_r; auto].
    unfold upd. destruct (Nat.eqb_spec i (r_req r)) as [->|]; [|exists q, []; rewrite app_nil_r; auto].
    rewrite H in E0. injection E0 as <-. eexists _, _. simpl. repeat split; reflexivity. }
  destruct K as (q1 & m1 & K1 & K2 & K3 & K4).
  destruct (IH _ _ _ K1) as (q2 & m2 & A & B & C & D).
  exists q2, (m1 ++ m2). rewrite D, K4, B, C, app_assoc. auto.
Qed.

Theorem emitted_stays st st' q : event st st' -> served st q ->
  exists q' more, served st' q' /\ prompt q' = prompt q /\ prm q' = prm q /\ gen q' = gen q ++ more.
Proof.
  intros E S. unfold served in *.
  assert (Same : forall Q', reqs st' = Q' -> past st' = past st ->
            (forall i, reqs st i = Some q -> exists q' more, Q' i = Some q' /\ prompt q' = prompt q /\ prm q' = prm q /\ gen q' = gen q ++ more) ->
            exists q' more, ((exists i, reqs st' i = Some q') \/ In q' (past st')) /\ prompt q' = prompt q /\ prm q' = prm q /\ gen q' = gen q ++ more).
  { intros Q' EQ EP F. rewrite EQ, EP. destruct S as [[i H]|I].
    - destruct (F i H) as (q' & more & A & B). exists q', more. eauto.
    - exists q, []. rewrite app_nil_r. auto. }
  destruct E as [k p prs N | k q0 p prs Hq0 Dead | k q0 Q | f | m' _ | s d | plan m' _ _]; simpl in *.
  - apply (Same _ eq_refl eq_refl). intros i H. exists q, []. rewrite app_nil_r. unfold upd. destruct (Nat.eqb_spec i k); [congruence|auto].
  - exists q, []. rewrite app_nil_r. split; [|auto]. destruct S as [[i H]|I]; [|auto].
    destruct (Nat.eq_dec i k) as [->|Ne]; [right; left; congruence|left; exists i; unfold upd].
    destruct (Nat.eqb_spec i k); [contradiction|exact H].
  - apply (Same _ eq_refl eq_refl). intros i H. unfold upd. destruct (Nat.eqb_spec i k) as [->|].
    + rewrite H in Q. injection Q as <-. eexists _, []. rewrite app_nil_r. simpl. auto.
    + exists q, []. rewrite app_nil_r. auto.
  - apply (Same _ eq_refl eq_refl). intros i H. exists q, []. rewrite app_nil_r. auto.
  - apply (Same _ eq_refl eq_refl). intros i H. exists q, []. rewrite app_nil_r. auto.
  - apply (Same _ eq_refl eq_refl). intros i H. exists q, []. rewrite app_nil_r. auto.
  - apply (Same _ eq_refl eq_refl). intros i H. exact (commits_extend m' plan _ i q H).
Qed.
End Core.


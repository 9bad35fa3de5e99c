(** Page-level ledger: incremental, O(rows + new pages) per step; refines Core. *)
From Coq Require Import List Arith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference Core LedgerTypes Prims.

Lemma prefix_firstn {A} (all x y : list A) n : all = x ++ y -> length x <= n -> firstn n all = x ++ firstn (n - length x) y.
Proof. intros -> Le. rewrite firstn_app, firstn_all2 by exact Le. reflexivity. Qed.

Lemma nth_firstn {A} : forall n (t : list A) k x, nth_error (firstn n t) k = Some x -> k < n /\ nth_error t k = Some x.
Proof.
  intros n. induction n as [|n IH]; intros [|a t] [|k] x H; simpl in *; try discriminate; [split; [lia|exact H]|].
  apply IH in H as [Lt H]. split; [lia|exact H].
Qed.

Section Pages.
Variables cell logits params : Type.
Variable row_fn : nat -> nat -> list cell -> cell * logits.
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.
Hypothesis Ppos : 0 < P.

Notation row := (Core.row nat).
Notation solution := (Core.solution nat cell logits row_fn).
Notation check_step := (Core.check_step nat Nat.eq_dec).
Notation post := (Core.post nat).
Notation writes := (Core.writes nat).
Notation rq := (Reference.rq nat logits params).
Notation event := (Core.event nat cell logits params Nat.eq_dec row_fn sample).
Notation reachable := (Core.reachable nat cell logits params Nat.eq_dec row_fn sample).

(* ------------------------------------------------------------------ *)
(** * Micro-operations: the clean specification of attach/grow/fill/adopt *)

Definition upd_page (l : Ledger) p pg := set_Ledger_pages l (set_nth (Ledger_pages l) p pg).
Definition upd_req (l : Ledger) r q := set_Ledger_reqs l (set_nth (Ledger_reqs l) r q).
Notation page_at l p := (nth_error (Ledger_pages l) p).
Notation req_at l r := (nth_error (Ledger_reqs l) r).
Notation plen pg := (length (Page_toks pg)).
Notation tlen q := (length (Req_table q)).

(** all the request's pages are full, and [c] is the chain id of the last one *)
Definition tail_full (l : Ledger) (q : Req) (c : nat) : Prop :=
  (Req_table q = [] /\ c = 0) \/
  exists t0 p pg, Req_table q = t0 ++ [p] /\ page_at l p = Some pg /\ plen pg = P /\ c = Page_cid pg.

Definition slot_of (table : list nat) (i : nat) : nat := nth (i / P) table 0 * P + i mod P.
Definition fill_page (l : Ledger) (pg : Page) (t : nat) : Page :=
  let pg1 := set_Page_toks pg (Page_toks pg ++ [t]) in
  if Nat.eqb (plen pg + 1) P then set_Page_cid pg1 (Ledger_next l) else pg1.
Definition fill_next (l : Ledger) (pg : Page) : nat :=
  if Nat.eqb (plen pg + 1) P then Ledger_next l + 1 else Ledger_next l.
Definition fill_row (r : nat) (q : Req) (kv t : nat) (b : bool) : row :=
  Row nat r (firstn kv (Req_toks q)) t (map (slot_of (Req_table q)) (seq 0 kv)) (slot_of (Req_table q) kv) b.

Inductive micro (l : Ledger) : Ledger -> list row -> Prop :=
| M_attach r q p pg :
    req_at l r = Some q -> page_at l p = Some pg -> tail_full l q (Page_parent pg) -> plen pg = P ->
    Page_toks pg = firstn P (skipn (tlen q * P) (Req_toks q)) -> tlen q * P + P < Req_sure q ->
    micro l (upd_req (upd_page l p (set_Page_pins pg (Page_pins pg + 1))) r
                     (set_Req_table q (Req_table q ++ [p]))) []
| M_grow r q p pg c :
    req_at l r = Some q -> page_at l p = Some pg -> tail_full l q c -> Page_pins pg = 0 ->
    micro l (upd_req (upd_page l p (mkPage c 0 1 [])) r (set_Req_table q (Req_table q ++ [p]))) []
| M_fill r q t0 p pg t b :
    req_at l r = Some q -> Req_table q = t0 ++ [p] -> page_at l p = Some pg -> plen pg < P ->
    nth_error (Req_toks q) (length t0 * P + plen pg) = Some t ->
    micro l (set_Ledger_next (upd_page l p (fill_page l pg t)) (fill_next l pg))
            [fill_row r q (length t0 * P + plen pg) t b]
| M_adopt p pg p2 pg2 :
    page_at l p = Some pg -> page_at l p2 = Some pg2 -> plen pg = P -> plen pg2 = P ->
    Page_parent pg = Page_parent pg2 -> Page_toks pg = Page_toks pg2 ->
    micro l (upd_page l p (set_Page_cid pg (Page_cid pg2))) [].

Inductive micros (l : Ledger) : Ledger -> list row -> Prop :=
| Ms_nil : micros l l []
| Ms_snoc l1 R l2 R2 : micros l l1 R -> micro l1 l2 R2 -> micros l l2 (R ++ R2).

(* ------------------------------------------------------------------ *)
(** * Invariant; [D] is the ghost denotation of chain ids *)

Definition page_ok (D : nat -> list nat) (nx : nat) (pg : Page) : Prop :=
  Page_parent pg < nx /\ plen pg <= P /\
  (plen pg = P -> Page_cid pg < nx /\ D (Page_cid pg) = D (Page_parent pg) ++ Page_toks pg) /\
  (plen pg < P -> Page_pins pg <= 1).
Definition entry_ok (D : nat -> list nat) (l : Ledger) (q : Req) (k p : nat) : Prop :=
  exists pg suf, page_at l p = Some pg /\ length (D (Page_parent pg)) = k * P /\
    Req_toks q = (D (Page_parent pg) ++ Page_toks pg) ++ suf /\ (S k < tlen q -> plen pg = P).
Definition pins (l : Ledger) (p : nat) : nat := count_occ Nat.eq_dec (flat_map Req_table (Ledger_reqs l)) p.

Record PInv (D : nat -> list nat) (l : Ledger) : Prop := {
  I_psize : Ledger_psize l = P;
  I_root : D 0 = [] /\ 0 < Ledger_next l;
  I_page : forall p pg, page_at l p = Some pg -> page_ok D (Ledger_next l) pg;
  I_req : forall r q k p, req_at l r = Some q -> nth_error (Req_table q) k = Some p -> entry_ok D l q k p;
  I_pins : forall p pg, page_at l p = Some pg -> Page_pins pg = pins l p }.

(** the slot-level ledger that the pages denote *)
Definition abs (D : nat -> list nat) (l : Ledger) (s : nat) : option (list nat) :=
  match page_at l (s / P) with
  | Some pg => if s mod P <? plen pg then Some (D (Page_parent pg) ++ firstn (S (s mod P)) (Page_toks pg)) else None
  | None => None
  end.
Definition le_ledger (L1 L2 : nat -> option (list nat)) : Prop := forall s h, L1 s = Some h -> L2 s = Some h.

(* ------------------------------------------------------------------ *)
(** * Lemmas *)

Lemma pins_set l r q q' p : req_at l r = Some q ->
  count_occ Nat.eq_dec (flat_map Req_table (set_nth (Ledger_reqs l) r q')) p + count_occ Nat.eq_dec (Req_table q) p
  = pins l p + count_occ Nat.eq_dec (Req_table q') p.
Proof.
  unfold pins. generalize (Ledger_reqs l). intros rs. revert r. clear.
  induction rs as [|x rs IH]; intros [|r] H; simpl in *; try discriminate; rewrite !count_occ_app.
  - injection H as ->. lia.
  - specialize (IH r H). lia.
Qed.

Lemma pins_ge l r q p : req_at l r = Some q -> count_occ Nat.eq_dec (Req_table q) p <= pins l p.
Proof. intros H. pose proof (pins_set l r q (set_Req_table q []) p H). simpl in *. lia. Qed.

Lemma pins_two l r1 q1 r2 q2 p : req_at l r1 = Some q1 -> req_at l r2 = Some q2 -> r1 <> r2 ->
  In p (Req_table q1) -> In p (Req_table q2) -> 2 <= pins l p.
Proof.
  intros H1 H2 Ne I1 I2. apply (count_occ_In Nat.eq_dec) in I1, I2.
  pose proof (pins_set l r1 q1 (set_Req_table q1 []) p H1) as E. simpl in E.
  assert (X : req_at (upd_req l r1 (set_Req_table q1 [])) r2 = Some q2).
  { simpl. rewrite (nth_set_nth _ _ _ _ _ H1). destruct (Nat.eqb_spec r2 r1); congruence. }
  apply pins_ge with (p := p) in X. unfold pins in X at 1. simpl in X. lia.
Qed.

Lemma pinned_in l r q p pg D : PInv D l -> req_at l r = Some q -> In p (Req_table q) -> page_at l p = Some pg -> 0 < Page_pins pg.
Proof.
  intros I H J K. rewrite (I_pins _ _ I _ _ K). pose proof (pins_ge l r q p H).
  apply (count_occ_In Nat.eq_dec) in J. lia.
Qed.

Lemma tail_full_den D l r q c : PInv D l -> req_at l r = Some q -> tail_full l q c ->
  c < Ledger_next l /\ length (D c) = tlen q * P /\ exists suf, Req_toks q = D c ++ suf.
Proof.
  intros I H [[T ->]|(t0 & p & pg & T & Hp & Fl & ->)].
  - destruct (I_root _ _ I) as [R0 R1]. rewrite R0, T. simpl. eauto.
  - destruct (I_req _ _ I r q (length t0) p H) as (pg' & suf & Hp' & Ln & E & _).
    { rewrite T, nth_error_app2, Nat.sub_diag by lia. reflexivity. }
    rewrite Hp in Hp'. injection Hp' as <-. destruct (I_page _ _ I _ _ Hp) as (_ & _ & C & _).
    destruct (C Fl) as [C1 C2]. rewrite C2. split; [exact C1|]. split; [|eauto].
    rewrite T, !app_length, Ln, Fl. simpl. lia.
Qed.

Lemma divmod a b : b < P -> (a * P + b) / P = a /\ (a * P + b) mod P = b.
Proof.
  intros H. split.
  - symmetry. apply Nat.div_unique with b; lia.
  - symmetry. apply Nat.mod_unique with a; lia.
Qed.

Lemma abs_some D l s h : abs D l s = Some h <-> exists pg, page_at l (s / P) = Some pg /\ s mod P < plen pg /\
  h = D (Page_parent pg) ++ firstn (S (s mod P)) (Page_toks pg).
Proof.
  unfold abs. destruct (page_at l (s / P)) as [pg|]; [|split; [discriminate|intros (?&?&_); discriminate]].
  destruct (Nat.ltb_spec (s mod P) (plen pg)).
  - split; [intros [= <-]; eauto|]. intros (pg' & [= <-] & _ & ->). reflexivity.
  - split; [discriminate|]. intros (pg' & [= <-] & ? & _). lia.
Qed.

(** the verified positions of a request *)
Lemma verified_read D l r q t0 p pg i : PInv D l -> req_at l r = Some q -> Req_table q = t0 ++ [p] ->
  page_at l p = Some pg -> i < length t0 * P + plen pg ->
  abs D l (slot_of (Req_table q) i) = Some (firstn (S i) (Req_toks q)) /\
  exists pg', page_at l (slot_of (Req_table q) i / P) = Some pg' /\ 0 < Page_pins pg' /\ slot_of (Req_table q) i mod P < plen pg'.
Proof.
  intros I H T Hp Hi.
  pose proof (Nat.div_mod i P ltac:(lia)) as Dm. pose proof (Nat.mod_upper_bound i P ltac:(lia)) as Mb.
  destruct (I_page _ _ I _ _ Hp) as (_ & Lp & _).
  assert (K : i / P < tlen q).
  { rewrite T, app_length. simpl. apply Nat.div_lt_upper_bound; nia. }
  destruct (nth_error (Req_table q) (i / P)) as [p'|] eqn:N; [|apply nth_error_None in N; lia].
  destruct (I_req _ _ I r q _ _ H N) as (pg' & suf & Hp' & Ln & E & Fl).
  assert (S0 : slot_of (Req_table q) i = p' * P + i mod P).
  { unfold slot_of. rewrite (nth_error_nth _ _ _ N). reflexivity. }
  destruct (divmod p' (i mod P) Mb) as [E1 E2]. rewrite <- S0 in E1, E2.
  assert (J : i mod P < plen pg').
  { destruct (Nat.eq_dec (S (i / P)) (tlen q)) as [Q|Q]; [|rewrite Fl by lia; exact Mb].
    rewrite T, app_length in Q. simpl in Q. assert (Q' : i / P = length t0) by lia.
    rewrite T, Q', nth_error_app2, Nat.sub_diag in N by lia. injection N as <-.
    rewrite Hp in Hp'. injection Hp' as <-. rewrite Q' in Dm. nia. }
  split.
  - apply abs_some. exists pg'. rewrite E1, E2. repeat split; auto.
    rewrite E, <- app_assoc, firstn_app, Ln.
    rewrite firstn_all2 by lia. f_equal. rewrite firstn_app.
    replace (S i - i / P * P) with (S (i mod P)) by nia.
    replace (S (i mod P) - plen pg') with 0 by lia. rewrite firstn_O, app_nil_r. reflexivity.
  - exists pg'. rewrite E1, E2. repeat split; auto.
    eapply pinned_in; eauto. eapply nth_error_In; eauto.
Qed.

(* ------------------------------------------------------------------ *)
(** * One micro-operation *)

Definition touched (l : Ledger) (s : nat) : Prop :=
  exists pg, page_at l (s / P) = Some pg /\ 0 < Page_pins pg /\ s mod P < plen pg.
(** running invariant of a step: [L0] at its start, [R] the rows so far *)
Record JInv (D : nat -> list nat) (L0 : nat -> option (list nat)) (l : Ledger) (R : list row) : Prop := {
  J_inv : PInv D l;
  J_abs : le_ledger (abs D l) (post L0 R);
  J_nodup : NoDup (writes R);
  J_reads : forall r, In r R -> map (post L0 R) (r_reads _ r) = map (@Some _) (prefixes _ (r_ctx _ r));
  J_touch : forall r s, In r R -> In s (r_write _ r :: r_reads _ r) -> touched l s }.

(** pages only gain tokens and never lose pins while pinned *)
Definition page_mono (l l' : Ledger) : Prop := forall p pg, page_at l p = Some pg -> 0 < Page_pins pg ->
  exists pg', page_at l' p = Some pg' /\ 0 < Page_pins pg' /\ plen pg <= plen pg'.
Lemma touched_mono l l' s : page_mono l l' -> touched l s -> touched l' s.
Proof. intros M (pg & H & K & Lt). destruct (M _ _ H K) as (pg' & ? & ? & ?). exists pg'. repeat split; auto. lia. Qed.

Lemma len_firstn {A} n (l : list A) : n <= length l -> length (firstn n l) = n.
Proof. intros. rewrite firstn_length. lia. Qed.

(** pushing page [p] with content [pg'] on the table of [r]; covers attach and grow *)
Lemma push_ok D l r q p pg pg' :
  PInv D l -> req_at l r = Some q -> page_at l p = Some pg -> tail_full l q (Page_parent pg') ->
  Page_pins pg' = Page_pins pg + 1 ->
  (Page_pins pg = 0 \/ (Page_parent pg' = Page_parent pg /\ Page_toks pg' = Page_toks pg)) ->
  page_ok D (Ledger_next l) pg' ->
  (exists suf, Req_toks q = (D (Page_parent pg') ++ Page_toks pg') ++ suf) ->
  let l' := upd_req (upd_page l p pg') r (set_Req_table q (Req_table q ++ [p])) in
  PInv D l' /\ (Page_parent pg' = Page_parent pg -> Page_toks pg' = Page_toks pg -> page_mono l l').
Proof.
  intros I H Hp T Pi Own Ok Suf l'.
  assert (GP : forall x, page_at l' x = if Nat.eqb x p then Some pg' else page_at l x).
  { intros x. simpl. apply (nth_set_nth _ _ _ _ _ Hp). }
  assert (GR : forall x, req_at l' x = if Nat.eqb x r then Some (set_Req_table q (Req_table q ++ [p])) else req_at l x).
  { intros x. simpl. apply (nth_set_nth _ _ _ _ _ H). }
  destruct (tail_full_den _ _ _ _ _ I H T) as (_ & Ln & _).
  (* entries that existed before are unaffected *)
  assert (Old : forall r2 q2 k2 p2, req_at l r2 = Some q2 -> nth_error (Req_table q2) k2 = Some p2 ->
            exists pg2 suf, page_at l' p2 = Some pg2 /\ length (D (Page_parent pg2)) = k2 * P /\
              Req_toks q2 = (D (Page_parent pg2) ++ Page_toks pg2) ++ suf /\
              (S k2 < tlen q2 -> plen pg2 = P) /\ exists pg0, page_at l p2 = Some pg0 /\ Page_toks pg2 = Page_toks pg0).
  { intros r2 q2 k2 p2 H2 N2. destruct (I_req _ _ I _ _ _ _ H2 N2) as (pg2 & suf & A & B & C & F).
    rewrite GP. destruct (Nat.eqb_spec p2 p) as [->|Ne].
    - rewrite Hp in A. injection A as <-. destruct Own as [Z|[E1 E2]].
      + exfalso. pose proof (pinned_in _ _ _ _ _ _ I H2 (nth_error_In _ _ N2) Hp). lia.
      + exists pg', suf. rewrite E1, E2. repeat split; eauto.
    - exists pg2, suf. repeat split; eauto. }
  split; [split|].
  - exact (I_psize _ _ I).
  - exact (I_root _ _ I).
  - intros x px. rewrite GP. destruct (Nat.eqb x p); [intros [= <-]; exact Ok|apply (I_page _ _ I)].
  - intros r2 q2 k2 p2. rewrite GR. destruct (Nat.eqb_spec r2 r) as [->|Ne].
    + intros [= <-]. simpl. intros N2. unfold entry_ok. simpl.
      destruct (Nat.lt_ge_cases k2 (tlen q)) as [Lt|Ge].
      * rewrite nth_error_app1 in N2 by exact Lt.
        destruct (Old _ _ _ _ H N2) as (pg2 & suf & A & B & C & F & pg0 & G1 & G2).
        exists pg2, suf. repeat split; auto. rewrite app_length. simpl. intros _.
        destruct (Nat.eq_dec (S k2) (tlen q)) as [Q|Q]; [|apply F; lia].
        destruct T as [[T _]|(t0 & pl & pgl & T & Hl & Fl & _)]; [rewrite T in Lt; simpl in Lt; lia|].
        rewrite T, app_length in Q. simpl in Q. rewrite T, nth_error_app2 in N2 by lia.
        replace (k2 - length t0) with 0 in N2 by lia. injection N2 as <-.
        rewrite G2. rewrite Hl in G1. injection G1 as <-. exact Fl.
      * assert (K : k2 = tlen q). { apply nth_error_Some_lt in N2 || idtac.
          assert (X : k2 < length (Req_table q ++ [p])) by (apply nth_error_Some; congruence).
          rewrite app_length in X. simpl in X. lia. }
        subst k2. rewrite nth_error_app2, Nat.sub_diag in N2 by lia. injection N2 as <-.
        destruct Suf as [suf Suf]. exists pg', suf. change (page_at l' p = Some pg' /\ length (D (Page_parent pg')) = tlen q * P /\
          Req_toks q = (D (Page_parent pg') ++ Page_toks pg') ++ suf /\ (S (tlen q) < length (Req_table q ++ [p]) -> plen pg' = P)).
        rewrite GP, Nat.eqb_refl. repeat split; auto. rewrite app_length. simpl. lia.
    + intros H2 N2. destruct (Old _ _ _ _ H2 N2) as (pg2 & suf & A & B & C & F & _). exists pg2, suf. auto.
  - intros x px. rewrite GP. unfold pins. simpl. pose proof (pins_set l r q (set_Req_table q (Req_table q ++ [p])) x H) as E.
    simpl in E. rewrite count_occ_app in E. simpl in E.
    destruct (Nat.eqb_spec x p) as [->|Ne].
    + intros [= <-]. pose proof (I_pins _ _ I _ _ Hp). destruct (Nat.eq_dec p p); [lia|congruence].
    + intros Hx. pose proof (I_pins _ _ I _ _ Hx). destruct (Nat.eq_dec p x); [congruence|lia].
  - intros E1 E2 x px Hx Kx. rewrite GP. destruct (Nat.eqb_spec x p) as [->|Ne].
    + rewrite Hp in Hx. injection Hx as <-. exists pg'. rewrite E2. repeat split; auto. lia.
    + exists px. auto.
Qed.

Lemma micro_step D L0 l R l' R2 : JInv D L0 l R -> micro l l' R2 -> exists D', JInv D' L0 l' (R ++ R2).
Proof.
  intros [I A N C T] M. destruct M as [r q p pg H Hp Tf Fl Tk _ | r q p pg c H Hp Tf Z | r q t0 p pg t b H Tb Hp Op Nt | p pg p2 pg2 Hp Hp2 F1 F2 E1 E2].
  - (* attach *)
    exists D. rewrite app_nil_r. destruct (tail_full_den _ _ _ _ _ I H Tf) as (_ & Ln & suf & Sf).
    assert (X : exists suf, Req_toks q = (D (Page_parent pg) ++ Page_toks pg) ++ suf).
    { rewrite Sf, <- Ln, skipn_app, Nat.sub_diag, skipn_all in Tk. simpl in Tk.
      exists (skipn P suf). rewrite Tk, <- app_assoc, firstn_skipn. exact Sf. }
    destruct (I_page _ _ I _ _ Hp) as (P1 & P2 & P3 & P4).
    destruct (push_ok D l r q p pg (set_Page_pins pg (Page_pins pg + 1)) I H Hp Tf eq_refl (or_intror (conj eq_refl eq_refl))) as [I' Mo].
    + repeat split; simpl; auto; try (apply P3; auto). intros; lia.
    + exact X.
    + specialize (Mo eq_refl eq_refl). constructor; auto.
      * intros s h Hs. apply A. apply abs_some in Hs as (px & Hx & Lt & ->). apply abs_some. simpl in Hx.
        rewrite (nth_set_nth _ _ _ _ _ Hp) in Hx. destruct (Nat.eqb_spec (s / P) p) as [Q|Q].
        -- injection Hx as <-. exists pg. rewrite Q. auto.
        -- exists px. auto.
      * intros r' s Ir Is. eapply touched_mono; eauto.
  - (* grow *)
    exists D. rewrite app_nil_r. destruct (tail_full_den _ _ _ _ _ I H Tf) as (Lc & Ln & suf & Sf).
    destruct (push_ok D l r q p pg (mkPage c 0 1 []) I H Hp Tf) as [I' _].
    + simpl. lia.
    + left. exact Z.
    + unfold page_ok. simpl. split; [exact Lc|]. split; [lia|]. split; intros; lia.
    + exists suf. simpl. rewrite app_nil_r. exact Sf.
    + constructor; auto.
      * intros s h Hs. apply A. apply abs_some in Hs as (px & Hx & Lt & ->). apply abs_some. simpl in Hx.
        rewrite (nth_set_nth _ _ _ _ _ Hp) in Hx. destruct (Nat.eqb_spec (s / P) p) as [Q|Q].
        -- injection Hx as <-. simpl in Lt. lia.
        -- exists px. auto.
      * intros r' s Ir Is. destruct (T r' s Ir Is) as (px & Hx & Kx & Lx). exists px. simpl.
        rewrite (nth_set_nth _ _ _ _ _ Hp). destruct (Nat.eqb_spec (s / P) p) as [Q|Q]; auto.
        rewrite Q, Hp in Hx. injection Hx as <-. lia.
  - (* fill *)
    set (kv := length t0 * P + plen pg) in *. set (nx := Ledger_next l) in *.
    set (D' := fun c => if Nat.eqb c nx then D (Page_parent pg) ++ Page_toks pg ++ [t] else D c).
    set (l' := set_Ledger_next (upd_page l p (fill_page l pg t)) (fill_next l pg)).
    assert (DE : forall c, c < nx -> D' c = D c).
    { intros c Hc. unfold D'. destruct (Nat.eqb_spec c nx); [lia|reflexivity]. }
    assert (FT : Page_toks (fill_page l pg t) = Page_toks pg ++ [t]) by (unfold fill_page; destruct (Nat.eqb _ P); reflexivity).
    assert (FP : Page_parent (fill_page l pg t) = Page_parent pg) by (unfold fill_page; destruct (Nat.eqb _ P); reflexivity).
    assert (FI : Page_pins (fill_page l pg t) = Page_pins pg) by (unfold fill_page; destruct (Nat.eqb _ P); reflexivity).
    assert (GP : forall x, page_at l' x = if Nat.eqb x p then Some (fill_page l pg t) else page_at l x).
    { intros x. simpl. apply (nth_set_nth _ _ _ _ _ Hp). }
    assert (NX : nx <= Ledger_next l') by (simpl; unfold fill_next; destruct (Nat.eqb _ P); fold nx; lia).
    assert (PO : page_ok D nx pg) by exact (I_page _ _ I _ _ Hp).
    assert (Nl : nth_error (Req_table q) (length t0) = Some p) by (rewrite Tb, nth_error_app2, Nat.sub_diag by lia; reflexivity).
    destruct (I_req _ _ I _ _ _ _ H Nl) as (pg0 & suf & Hp0 & Ln & Sf & _).
    rewrite Hp in Hp0. injection Hp0 as <-.
    assert (Sf' : exists suf', Req_toks q = (D (Page_parent pg) ++ Page_toks pg ++ [t]) ++ suf').
    { assert (K : length (D (Page_parent pg) ++ Page_toks pg) = kv) by (rewrite app_length; unfold kv; lia).
      rewrite Sf, nth_error_app2, K, Nat.sub_diag in Nt by lia.
      destruct suf as [|t' suf]; [discriminate|]. injection Nt as ->. exists suf. rewrite Sf, <- !app_assoc. reflexivity. }
    assert (Pin : 0 < Page_pins pg) by (eapply pinned_in; eauto; eapply nth_error_In; eauto).
    assert (SW : slot_of (Req_table q) kv = p * P + plen pg).
    { unfold slot_of, kv. destruct (divmod (length t0) (plen pg) Op) as [-> ->]. rewrite (nth_error_nth _ _ _ Nl). reflexivity. }
    destruct (divmod p (plen pg) Op) as [W1 W2]. rewrite <- SW in W1, W2.
    set (w := slot_of (Req_table q) kv) in *.
    assert (Kv : kv < length (Req_toks q)) by (apply nth_error_Some; congruence).
    assert (Fk : firstn kv (Req_toks q) = D (Page_parent pg) ++ Page_toks pg).
    { rewrite Sf. rewrite firstn_app, firstn_all2, app_length by (rewrite app_length; unfold kv; lia).
      replace (kv - (length (D (Page_parent pg)) + plen pg)) with 0 by (unfold kv; lia). rewrite firstn_O, app_nil_r. reflexivity. }
    assert (Mo : page_mono l l').
    { intros x px Hx Kx. rewrite GP. destruct (Nat.eqb_spec x p) as [->|Ne]; [|eauto].
      rewrite Hp in Hx. injection Hx as <-. eexists. split; [reflexivity|]. rewrite FI, FT, app_length. split; [auto|lia]. }
    assert (NW : forall s, touched l s -> s <> w).
    { intros s (px & Hx & _ & Lt) ->. rewrite W1, Hp in Hx. injection Hx as <-. rewrite W2 in Lt. lia. }
    assert (Rds : forall i, i < kv -> abs D l (slot_of (Req_table q) i) = Some (firstn (S i) (Req_toks q)) /\ touched l (slot_of (Req_table q) i)).
    { intros i Hi. exact (verified_read D l r q t0 p pg i I H Tb Hp Hi). }
    assert (PA : forall s, s <> w -> post L0 (R ++ [fill_row r q kv t b]) s = post L0 R s).
    { intros s Hs. unfold Core.post. rewrite fold_left_app. simpl. unfold upd. fold w. destruct (Nat.eqb_spec s w); congruence. }
    assert (PW : post L0 (R ++ [fill_row r q kv t b]) w = Some (firstn kv (Req_toks q) ++ [t])).
    { unfold Core.post. rewrite fold_left_app. simpl. unfold upd. fold w. rewrite Nat.eqb_refl. reflexivity. }
    exists D'. constructor.
    + constructor.
      * exact (I_psize _ _ I).
      * destruct (I_root _ _ I) as [R0 R1]. split; [|fold nx in R1; lia]. rewrite DE by exact R1. exact R0.
      * intros x px. rewrite GP. destruct (Nat.eqb_spec x p) as [->|Ne].
        -- intros [= <-]. destruct PO as (Q1 & Q2 & Q3 & Q4). unfold page_ok. rewrite FP, FT, FI, app_length. simpl.
           repeat split; try lia; unfold fill_page, fill_next; destruct (Nat.eqb_spec (plen pg + 1) P); simpl; fold nx; try lia.
           unfold D' at 1. rewrite Nat.eqb_refl, DE by exact Q1. reflexivity.
        -- intros Hx. destruct (I_page _ _ I _ _ Hx) as (Q1 & Q2 & Q3 & Q4). fold nx in Q1, Q3.
           split; [lia|]. split; [exact Q2|]. split; [|exact Q4].
           intros F. destruct (Q3 F) as [Q5 Q6]. split; [lia|]. rewrite !DE by assumption. exact Q6.
      * intros r2 q2 k2 px2 H2 N2. change (req_at l r2 = Some q2) in H2.
        destruct (I_req _ _ I _ _ _ _ H2 N2) as (pg2 & suf2 & X1 & X2 & X3 & X4).
        assert (Q1 : Page_parent pg2 < nx) by exact (proj1 (I_page _ _ I _ _ X1)).
        unfold entry_ok. rewrite GP. destruct (Nat.eqb_spec px2 p) as [->|Ne].
        -- rewrite Hp in X1. injection X1 as <-.
           assert (r2 = r). { destruct (Nat.eq_dec r2 r) as [|Nr]; [assumption|exfalso].
             pose proof (pins_two l r2 q2 r q p H2 H Nr (nth_error_In _ _ N2) (nth_error_In _ _ Nl)).
             destruct PO as (_ & _ & _ & Q4). pose proof (I_pins _ _ I _ _ Hp). specialize (Q4 Op). lia. }
           subst r2. rewrite H in H2. injection H2 as <-.
           destruct Sf' as [suf' Sf']. exists (fill_page l pg t), suf'. rewrite FP, FT, DE by exact Q1. repeat split; auto.
           intros Q. specialize (X4 Q). lia.
        -- exists pg2, suf2. rewrite DE by exact Q1. auto.
      * intros x px. rewrite GP. unfold pins. simpl. destruct (Nat.eqb_spec x p) as [->|Ne].
        -- intros [= <-]. rewrite FI. exact (I_pins _ _ I _ _ Hp).
        -- intros Hx. exact (I_pins _ _ I _ _ Hx).
    + intros s h Hs. destruct (Nat.eq_dec s w) as [->|Ne].
      * rewrite PW, Fk. apply abs_some in Hs as (px & Hx & Lt & ->). rewrite W1, GP, Nat.eqb_refl in Hx. injection Hx as <-.
        rewrite FP, FT, W2, DE by exact (proj1 PO). rewrite firstn_all2 by (rewrite app_length; simpl; lia). rewrite app_assoc. reflexivity.
      * rewrite PA by exact Ne. apply A. apply abs_some in Hs as (px & Hx & Lt & ->). apply abs_some.
        rewrite GP in Hx. destruct (Nat.eqb_spec (s / P) p) as [Q|Q].
        -- injection Hx as <-. rewrite FT, app_length in Lt. simpl in Lt. exists pg. rewrite Q. split; [exact Hp|].
           assert (s mod P < plen pg). { assert (s mod P <> plen pg); [|lia]. intros Y. apply Ne. rewrite (Nat.div_mod s P) by lia. lia. }
           split; [assumption|]. rewrite FP, FT, DE by exact (proj1 PO). f_equal. rewrite firstn_app.
           replace (S (s mod P) - plen pg) with 0 by lia. rewrite firstn_O, app_nil_r. reflexivity.
        -- exists px. split; [exact Hx|]. split; [exact Lt|]. rewrite DE by exact (proj1 (I_page _ _ I _ _ Hx)). reflexivity.
    + unfold Core.writes. rewrite map_app. simpl. fold w.
      apply NoDup_rev in N. rewrite <- (rev_involutive (map _ R ++ [w])). apply NoDup_rev.
      rewrite rev_app_distr. simpl. constructor; [|exact N].
      intros K. apply in_rev in K. apply in_map_iff in K as [r' [E Ir]]. apply (NW w); [|reflexivity].
      rewrite <- E. apply (T r' _ Ir). left. reflexivity.
    + intros r' Ir. apply in_app_or in Ir as [Ir|[<-|[]]].
      * rewrite <- (C r' Ir). apply map_ext_in. intros s Is. apply PA, NW, (T r' s Ir). right. exact Is.
      * simpl. rewrite map_map. unfold prefixes. rewrite map_map, (len_firstn kv) by lia. apply map_ext_in.
        intros i Hi. apply in_seq in Hi. destruct (Rds i ltac:(lia)) as [Y1 Y2].
        rewrite PA by (apply NW; exact Y2). rewrite (A _ _ Y1). rewrite firstn_firstn. rewrite Nat.min_l by lia. reflexivity.
    + intros r' s Ir Is. apply in_app_or in Ir as [Ir|[<-|[]]].
      * eapply touched_mono; eauto.
      * destruct Is as [<-|Is]; simpl in *.
        -- fold w. exists (fill_page l pg t). rewrite W1, W2. split; [exact (eq_trans (GP p) ltac:(rewrite Nat.eqb_refl; reflexivity))|].
           rewrite FI, FT, app_length. simpl. split; [exact Pin|lia].
        -- apply in_map_iff in Is as [i [<- Hi]]. apply in_seq in Hi. eapply touched_mono; eauto. apply Rds. lia.
  - (* adopt *)
    exists D. rewrite app_nil_r. set (l' := upd_page l p (set_Page_cid pg (Page_cid pg2))).
    assert (GP : forall x, page_at l' x = if Nat.eqb x p then Some (set_Page_cid pg (Page_cid pg2)) else page_at l x).
    { intros x. simpl. apply (nth_set_nth _ _ _ _ _ Hp). }
    destruct (I_page _ _ I _ _ Hp) as (P1 & P2 & P3 & P4). destruct (I_page _ _ I _ _ Hp2) as (O1 & O2 & O3 & O4).
    constructor; auto.
    + constructor; try apply I.
      * intros x px. rewrite GP. destruct (Nat.eqb_spec x p) as [->|Ne]; [|apply (I_page _ _ I)].
        intros [= <-]. repeat split; simpl; auto; try (apply O3; auto). rewrite E1, E2. apply O3. auto.
      * intros r2 q2 k2 px2 H2 N2. destruct (I_req _ _ I _ _ _ _ H2 N2) as (pgx & suf2 & X1 & X2 & X3 & X4).
        unfold entry_ok. rewrite GP. destruct (Nat.eqb_spec px2 p) as [->|Ne]; [|exists pgx, suf2; auto].
        rewrite Hp in X1. injection X1 as <-. eexists _, suf2. simpl. eauto.
      * intros x px. rewrite GP. destruct (Nat.eqb_spec x p) as [->|Ne]; [|apply (I_pins _ _ I)].
        intros [= <-]. exact (I_pins _ _ I _ _ Hp).
    + intros s h Hs. apply A. apply abs_some in Hs as (px & Hx & Lt & ->). apply abs_some. rewrite GP in Hx.
      destruct (Nat.eqb_spec (s / P) p) as [Q|Q]; [injection Hx as <-; exists pg; rewrite Q|exists px]; auto.
    + intros r' s Ir Is. destruct (T r' s Ir Is) as (px & Hx & Kx & Lx). unfold touched. rewrite GP.
      destruct (Nat.eqb_spec (s / P) p) as [Q|Q]; [|eauto]. rewrite Q, Hp in Hx. injection Hx as <-. eexists. eauto.
Qed.

(* ------------------------------------------------------------------ *)
(** * A step of micro-operations is one accepted step of the slot-level ledger *)

Lemma nodupb_complete l : NoDup l -> nodupb l = true.
Proof.
  induction 1 as [|a l Na _ IH]; [reflexivity|]. simpl. rewrite IH, andb_true_r. apply negb_true_iff.
  destruct (existsb (Nat.eqb a) l) eqn:E; [|reflexivity]. apply existsb_exists in E as [x [I Q]].
  apply Nat.eqb_eq in Q. subst. contradiction.
Qed.

Theorem step_refines D L l l' R : PInv D l -> le_ledger (abs D l) L -> micros l l' R ->
  exists D', PInv D' l' /\ check_step L R = true /\ le_ledger (abs D' l') (post L R).
Proof.
  intros I Le M.
  assert (X : exists D', JInv D' L l' R).
  { induction M as [|l1 R l2 R2 M IH Mi].
    - exists D. constructor; [exact I|exact Le|constructor|intros ? []|intros ? ? []].
    - destruct IH as [D1 J]. exact (micro_step _ _ _ _ _ _ J Mi). }
  destruct X as [D' [I' A N C _]]. exists D'. split; [exact I'|]. split; [|exact A].
  unfold Core.check_step. rewrite (nodupb_complete _ N). simpl. apply forallb_forall. intros r Ir.
  unfold check_row. destruct (list_eq_dec _ _ _) as [|Ne]; [reflexivity|]. exfalso. apply Ne, C, Ir.
Qed.

(* ------------------------------------------------------------------ *)
(** * Traces *)

Definition unpinned (l : Ledger) (r : nat) (q : Req) (l' : Ledger) : Prop :=
  Ledger_psize l' = Ledger_psize l /\ Ledger_next l' = Ledger_next l /\
  Ledger_reqs l' = set_nth (Ledger_reqs l) r (set_Req_table q []) /\
  forall p, page_at l' p = option_map (fun pg => set_Page_pins pg (Page_pins pg - count_occ Nat.eq_dec (Req_table q) p)) (page_at l p).

(** The request keeps its first [whole * P + rest] tokens and what is computed for them: pages beyond are given back, the
    page that the cut goes through loses its tail. *)
Definition cut (q : Req) (whole rest p : nat) : bool :=
  (0 <? rest) && match nth_error (Req_table q) whole with Some p' => Nat.eqb p p' | None => false end.
Definition held_on (whole rest : nat) : nat := if 0 <? rest then whole + 1 else whole.
Definition cut_page (q : Req) (whole rest p : nat) (pg : Page) : Page :=
  mkPage (Page_parent pg) (Page_cid pg) (Page_pins pg - count_occ Nat.eq_dec (skipn (held_on whole rest) (Req_table q)) p)
    (if cut q whole rest p then firstn rest (Page_toks pg) else Page_toks pg).
Definition cut_req (q : Req) (whole rest : nat) : Req :=
  mkReq (Req_live q) (Req_sure q) (firstn (whole * P + rest) (Req_toks q)) (firstn (held_on whole rest) (Req_table q)).
Definition truncated (l : Ledger) (r : nat) (q : Req) (whole rest : nat) (l' : Ledger) : Prop :=
  rest < P /\ whole * P + rest <= length (Req_toks q) /\
  Ledger_psize l' = Ledger_psize l /\ Ledger_next l' = Ledger_next l /\
  Ledger_reqs l' = set_nth (Ledger_reqs l) r (cut_req q whole rest) /\
  (forall p pg, page_at l p = Some pg -> cut q whole rest p = true -> rest < plen pg -> Page_pins pg = 1) /\
  forall p, page_at l' p = option_map (cut_page q whole rest p) (page_at l p).

(** a request has a page at most once: the page's parent says at which depth *)
Lemma table_nodup D l r q : PInv D l -> req_at l r = Some q -> NoDup (Req_table q).
Proof.
  intros I Hq. apply NoDup_nth_error. intros i j Li E.
  destruct (nth_error (Req_table q) i) as [p|] eqn:Ei; [|apply nth_error_None in Ei; lia].
  destruct (I_req _ _ I _ _ _ _ Hq Ei) as (pg1 & s1 & H1 & L1 & _).
  destruct (I_req _ _ I _ _ _ _ Hq (eq_sym E)) as (pg2 & s2 & H2 & L2 & _).
  rewrite H1 in H2. injection H2 as <-. rewrite L1 in L2. apply Nat.mul_cancel_r in L2; [exact L2|lia].
Qed.

Lemma cut_toks q whole rest p pg : exists more, Page_toks pg = Page_toks (cut_page q whole rest p pg) ++ more.
Proof.
  unfold cut_page. cbn [Page_toks]. destruct (cut q whole rest p).
  - exists (skipn rest (Page_toks pg)). symmetry. apply firstn_skipn.
  - exists []. symmetry. apply app_nil_r.
Qed.

(** what another request holds is not cut *)
Lemma cut_foreign D l r q whole rest l' r2 q2 p pg : PInv D l -> req_at l r = Some q -> truncated l r q whole rest l' -> r2 <> r ->
  req_at l r2 = Some q2 -> In p (Req_table q2) -> page_at l p = Some pg -> Page_toks (cut_page q whole rest p pg) = Page_toks pg.
Proof.
  intros I Hq (Rl & _ & _ & _ & _ & Own & _) Ne Hq2 In2 Hp. unfold cut_page. cbn [Page_toks]. destruct (cut q whole rest p) eqn:C; [|reflexivity].
  destruct (Nat.lt_ge_cases rest (plen pg)) as [Lt|Ge]; [|apply firstn_all2; exact Ge]. exfalso.
  specialize (Own p pg Hp C Lt). rewrite (I_pins _ _ I _ _ Hp) in Own.
  assert (In1 : In p (Req_table q)).
  { unfold cut in C. destruct (nth_error (Req_table q) whole) as [p'|] eqn:N; [|rewrite andb_false_r in C; discriminate].
    apply andb_true_iff in C as [_ C]. apply Nat.eqb_eq in C as ->. exact (nth_error_In _ _ N). }
  pose proof (pins_two l r2 q2 r q p Hq2 Hq Ne In2 In1). lia.
Qed.

Theorem truncated_inv D l r q whole rest l' : PInv D l -> req_at l r = Some q -> truncated l r q whole rest l' ->
  PInv D l' /\ le_ledger (abs D l') (abs D l).
Proof.
  intros I Hq Tr. pose proof Tr as (Rl & Nl & U1 & U2 & U3 & Own & U4).
  assert (Cl : forall p pg, plen (cut_page q whole rest p pg) <= plen pg).
  { intros p pg. destruct (cut_toks q whole rest p pg) as [more E]. rewrite E, app_length. lia. }
  assert (Cut : forall p, cut q whole rest p = true -> 0 < rest /\ nth_error (Req_table q) whole = Some p).
  { intros p C. unfold cut in C. apply andb_true_iff in C as [C1 C2]. apply Nat.ltb_lt in C1. split; [exact C1|].
    destruct (nth_error (Req_table q) whole) as [p'|]; [|discriminate]. apply Nat.eqb_eq in C2 as ->. reflexivity. }
  assert (Held : held_on whole rest <= whole + 1 /\ (whole < held_on whole rest -> 0 < rest)).
  { unfold held_on. destruct (Nat.ltb_spec 0 rest); split; lia. }
  split.
  - constructor.
    + rewrite U1. apply I.
    + rewrite U2. apply I.
    + intros p pg' Hp. rewrite U4 in Hp. destruct (page_at l p) as [pg|] eqn:H0; [|discriminate]. injection Hp as <-. rewrite U2.
      destruct (I_page _ _ I _ _ H0) as (Y1 & Y2 & Y3 & Y4). pose proof (Cl p pg) as Le.
      unfold page_ok. split; [exact Y1|]. split; [lia|]. split.
      * intros F. assert (E : Page_toks (cut_page q whole rest p pg) = Page_toks pg).
        { destruct (cut_toks q whole rest p pg) as [more E]. rewrite E. destruct more as [|x more]; [symmetry; apply app_nil_r|].
          apply (f_equal (@length nat)) in E. rewrite app_length in E. simpl in E, F. lia. }
        rewrite E in *. apply Y3. exact F.
      * intros F. cbn [cut_page Page_pins]. enough (Page_pins pg <= 1) by lia. destruct (cut q whole rest p) eqn:C.
        -- destruct (Nat.lt_ge_cases rest (plen pg)) as [Lt|Ge]; [rewrite (Own p pg H0 C Lt); lia|apply Y4; lia].
        -- apply Y4. unfold cut_page in F. rewrite C in F. exact F.
    + intros r2 q2 k p H2 Hk. rewrite U3, (nth_set_nth _ _ _ _ _ Hq) in H2. unfold entry_ok. rewrite U4. destruct (Nat.eqb_spec r2 r) as [->|Ne].
      * injection H2 as <-. cbn [cut_req Req_table Req_toks] in *. pose proof Hk as Hk2. apply nth_firstn in Hk2 as [Lk Hk2].
        destruct (I_req _ _ I _ _ _ _ Hq Hk2) as (pg & suf & X1 & X2 & X3 & X4). rewrite X1. cbn [option_map].
        destruct (I_page _ _ I _ _ X1) as (_ & Y2 & _ & _). destruct (cut_toks q whole rest p pg) as [more Em].
        eexists _, _. split; [reflexivity|]. cbn [cut_page Page_parent]. split; [exact X2|]. split.
        -- apply prefix_firstn with (y := more ++ suf).
           ++ rewrite X3. rewrite Em. rewrite <- !app_assoc. reflexivity.
           ++ rewrite app_length, X2. pose proof (Cl p pg). destruct (Nat.lt_ge_cases k whole) as [Lt|Ge]; [nia|].
              assert (k = whole) by lia. subst k. unfold cut_page, cut. cbn [Page_toks]. rewrite Hk2, Nat.eqb_refl.
              destruct (Nat.ltb_spec 0 rest); [|lia]. cbn [andb]. rewrite firstn_length. lia.
        -- intros Lt. rewrite firstn_length in Lt. unfold cut_page. cbn [Page_toks]. destruct (cut q whole rest p) eqn:C; [|apply X4; lia].
           apply Cut in C as [_ C]. exfalso. enough (k = whole) by lia.
           apply (proj1 (NoDup_nth_error (Req_table q)) (table_nodup D l r q I Hq)); [apply nth_error_Some; congruence|congruence].
      * destruct (I_req _ _ I _ _ _ _ H2 Hk) as (pg & suf & X1 & X2 & X3 & X4). rewrite X1. cbn [option_map].
        pose proof (cut_foreign D l r q whole rest l' r2 q2 p pg I Hq Tr Ne H2 (nth_error_In _ _ Hk) X1) as E.
        exists (cut_page q whole rest p pg), suf. rewrite E. auto.
    + intros p pg' Hp. rewrite U4 in Hp. destruct (page_at l p) as [pg|] eqn:H0; [|discriminate]. injection Hp as <-.
      cbn [cut_page Page_pins]. rewrite (I_pins _ _ I _ _ H0). unfold pins at 2. rewrite U3.
      pose proof (pins_set _ _ _ (cut_req q whole rest) p Hq) as E. cbn [cut_req Req_table] in E.
      rewrite <- (firstn_skipn (held_on whole rest) (Req_table q)) in E at 1. rewrite count_occ_app in E. lia.
  - intros s h Hs. apply abs_some in Hs as (pg' & Hp & Lt & ->). rewrite U4 in Hp. destruct (page_at l (s / P)) as [pg|] eqn:H0; [|discriminate].
    injection Hp as <-. apply abs_some. exists pg. split; [exact H0|]. pose proof (Cl (s / P) pg). split; [lia|].
    cbn [cut_page Page_parent]. f_equal. destruct (cut_toks q whole rest (s / P) pg) as [more E]. rewrite E.
    rewrite firstn_app. replace (S (s mod P) - plen (cut_page q whole rest (s / P) pg)) with 0 by lia. rewrite firstn_O, app_nil_r. reflexivity.
Qed.

(** appending tokens to a history *)
Lemma append_inv D l r q q' more : PInv D l -> req_at l r = Some q -> Req_table q' = Req_table q -> Req_toks q' = Req_toks q ++ more ->
  PInv D (upd_req l r q').
Proof.
  intros I Hq Tq Mq. constructor; try apply I.
  - intros r2 q2 k x H2 Hk. simpl in H2. rewrite (nth_set_nth _ _ _ _ _ Hq) in H2. destruct (Nat.eqb_spec r2 r) as [->|].
    + injection H2 as <-. rewrite Tq in Hk. destruct (I_req _ _ I _ _ _ _ Hq Hk) as (pg & suf & X1 & X2 & X3 & X4).
      exists pg, (suf ++ more). rewrite Mq, Tq, app_assoc, <- X3. auto.
    + exact (I_req _ _ I _ _ _ _ H2 Hk).
  - intros x pg Hx. rewrite (I_pins _ _ I _ _ Hx). unfold pins at 2. simpl.
    pose proof (pins_set _ _ _ q' x Hq) as E. rewrite Tq in E. simpl in *. lia.
Qed.

(** rows that differ only in whether their logits are sampled *)
Definition same_row (a b : row) : Prop := r_req _ a = r_req _ b /\ r_ctx _ a = r_ctx _ b /\ r_tok _ a = r_tok _ b /\
  r_reads _ a = r_reads _ b /\ r_write _ a = r_write _ b.

Record pst := Pst { p_mem : nat -> cell; p_led : Ledger; p_rq : nat -> option rq; p_past : list rq }.
Inductive pevent (S : pst) : pst -> Prop :=
| PE_admit p prs : p_rq S (length (Ledger_reqs (p_led S))) = None ->
    pevent S (Pst (p_mem S) (set_Ledger_reqs (p_led S) (Ledger_reqs (p_led S) ++ [mkReq true (length p) p []]))
      (upd (p_rq S) (length (Ledger_reqs (p_led S))) (Some (Rq _ _ _ p prs [] true))) (p_past S))
| PE_readmit r q q0 p prs : req_at (p_led S) r = Some q -> Req_table q = [] -> p_rq S r = Some q0 -> Reference.live _ _ _ q0 = false ->
    pevent S (Pst (p_mem S) (upd_req (p_led S) r (mkReq true (length p) p []))
      (upd (p_rq S) r (Some (Rq _ _ _ p prs [] true))) (q0 :: p_past S))
| PE_step l' R R' m' : micros (p_led S) l' R -> solution R (p_mem S) m' ->
    Forall2 same_row R R' ->           (* the runner may drop the logits of a row *)
    pevent S (Pst m' l' (fold_left (commit _ _ _ _ Nat.eq_dec row_fn sample m') R' (p_rq S)) (p_past S))
| PE_append r q q' more : req_at (p_led S) r = Some q -> Req_table q' = Req_table q -> Req_toks q' = Req_toks q ++ more ->
    pevent S (Pst (p_mem S) (upd_req (p_led S) r q') (p_rq S) (p_past S))
| PE_truncate r q whole rest l' : req_at (p_led S) r = Some q -> truncated (p_led S) r q whole rest l' ->
    pevent S (Pst (p_mem S) l' (p_rq S) (p_past S))
| PE_unpin r q l' : req_at (p_led S) r = Some q -> unpinned (p_led S) r q l' -> pevent S (Pst (p_mem S) l' (p_rq S) (p_past S))
| PE_finish r q q0 : req_at (p_led S) r = Some q -> Req_table q = [] -> p_rq S r = Some q0 ->
    pevent S (Pst (p_mem S) (upd_req (p_led S) r (mkReq false 0 [] []))
                  (upd (p_rq S) r (Some (Rq _ _ _ (prompt _ _ _ q0) (prm _ _ _ q0) (gen _ _ _ q0) false))) (p_past S))
| PE_scribble m' :                     (* memory that no page claims is anybody's: padding rows, warm-up, reuse *)
    (forall s pg, page_at (p_led S) (s / P) = Some pg -> s mod P < plen pg -> m' s = p_mem S s) ->
    pevent S (Pst m' (p_led S) (p_rq S) (p_past S))
| PE_reset nx : Ledger_next (p_led S) <= nx -> pevent S (Pst (p_mem S) (mkLedger (Ledger_psize (p_led S)) nx
      (map (fun _ => mkPage 0 0 0 []) (Ledger_pages (p_led S))) (map (fun q => set_Req_table q []) (Ledger_reqs (p_led S)))) (p_rq S) (p_past S)).

Definition init_ledger (npages : nat) := mkLedger P 1 (repeat (mkPage 0 0 0 []) npages) [].
Inductive preachable : pst -> Prop :=
| PR_init m n : preachable (Pst m (init_ledger n) (fun _ => None) [])
| PR_event S S' : preachable S -> pevent S S' -> preachable S'.

Lemma flat_tables_nil rs : flat_map Req_table (map (fun q => set_Req_table q []) rs) = [].
Proof. induction rs; simpl; auto. Qed.

Lemma same_rows_writes R R' : Forall2 same_row R R' -> writes R' = writes R /\ forall L, post L R' = post L R.
Proof.
  induction 1 as [|a b R R' (E1 & E2 & E3 & E4 & E5) _ [IW IP]]; [split; reflexivity|]. split.
  - simpl. rewrite IW, E5. reflexivity.
  - intros L. unfold Core.post. simpl. unfold r_full. rewrite E2, E3, E5. apply IP.
Qed.
Lemma same_rows_check L R R' : Forall2 same_row R R' -> check_step L R = true -> check_step L R' = true.
Proof.
  intros F. destruct (same_rows_writes _ _ F) as [EW EP]. unfold Core.check_step. rewrite EW, EP, !andb_true_iff.
  intros [N C]. split; [exact N|]. revert C. generalize (post L R). intros L'. clear - F.
  induction F as [|a b R R' (E1 & E2 & E3 & E4 & E5) _ IH]; [auto|]. simpl. rewrite !andb_true_iff. intros [Ca C].
  split; [|exact (IH C)]. unfold check_row in *. rewrite <- E2, <- E4. exact Ca.
Qed.
Lemma same_rows_solution R R' m m' : Forall2 same_row R R' -> solution R m m' -> solution R' m m'.
Proof.
  intros F [S1 S2]. split.
  - clear S2. induction F as [|a b R R' (E1 & E2 & E3 & E4 & E5) _ IH]; [intros ? []|]. intros r [<-|I].
    + specialize (S1 a (or_introl eq_refl)). unfold Core.row_out in *. rewrite <- E3, <- E4, <- E5. exact S1.
    + apply IH; [|exact I]. intros x Ix. apply S1. right. exact Ix.
  - intros s H. apply S2. rewrite <- (proj1 (same_rows_writes _ _ F)). exact H.
Qed.

(** replacing a request entry that has no pages, by one that has none *)
Lemma upd_req_empty D l r q q' : PInv D l -> req_at l r = Some q -> Req_table q = [] -> Req_table q' = [] ->
  PInv D (upd_req l r q').
Proof.
  intros I Hq T T'. constructor; try apply I.
  - intros r2 q2 k x H2 Hk. simpl in H2. rewrite (nth_set_nth _ _ _ _ _ Hq) in H2. destruct (Nat.eqb_spec r2 r) as [->|].
    + injection H2 as <-. rewrite T' in Hk. destruct k; discriminate.
    + exact (I_req _ _ I _ _ _ _ H2 Hk).
  - intros x pg Hx. rewrite (I_pins _ _ I _ _ Hx). unfold pins at 2. simpl.
    pose proof (pins_set _ _ _ q' x Hq) as E. rewrite T, T' in E. simpl in *. lia.
Qed.

Theorem page_refines S : preachable S ->
  exists D L, PInv D (p_led S) /\ le_ledger (abs D (p_led S)) L /\ reachable (St _ _ _ _ (p_mem S) L (p_rq S) (p_past S)).
Proof.
  induction 1 as [m n|S S' _ (D & L & I & Le & Re) E].
  - exists (fun _ => []), (fun _ => None). assert (G : forall p pg, nth_error (repeat (mkPage 0 0 0 []) n) p = Some pg -> pg = mkPage 0 0 0 []).
    { intros p pg Hp. apply nth_error_In, repeat_spec in Hp. exact Hp. }
    split; [|split].
    + constructor; simpl; auto.
      * intros p pg Hp. apply G in Hp as ->. unfold page_ok. simpl. repeat split; try lia.
      * intros [|r] q k p Hq; discriminate.
      * intros p pg Hp. apply G in Hp as ->. reflexivity.
    + intros s h Hs. apply abs_some in Hs as (pg & Hp & Lt & _). apply G in Hp as ->. simpl in Lt. lia.
    + constructor.
  - destruct E as [p prs Nn | r q q0 p prs Hq Tq Hq0 Dead | l' R R' m' M So Sr | r q q' more Hq Tq Mq | r q whole rest l' Hq Tr | r q l' Hq U | r q q0 Hq Tq Hq0 | m' Sc | nx Hnx ]; simpl.
    + exists D, L. split; [|split; [exact Le|eapply R_event; [exact Re|apply Ev_arrive; exact Nn]]].
      constructor; try apply I.
      * intros r q k x Hq Hk. simpl in Hq. destruct (Nat.lt_ge_cases r (length (Ledger_reqs (p_led S)))).
        -- rewrite nth_error_app1 in Hq by assumption. exact (I_req _ _ I _ _ _ _ Hq Hk).
        -- rewrite nth_error_app2 in Hq by assumption. destruct (r - _) as [|[|?]]; try discriminate.
           injection Hq as <-. destruct k; discriminate.
      * intros x pg Hx. rewrite (I_pins _ _ I _ _ Hx). unfold pins. simpl. rewrite flat_map_app, count_occ_app. simpl. lia.
    + exists D, L. split; [apply (upd_req_empty D _ r q); auto|]. split; [exact Le|].
      eapply R_event; [exact Re|]. apply (Ev_reuse _ _ _ _ Nat.eq_dec row_fn sample (St _ _ _ _ (p_mem S) L (p_rq S) (p_past S))); assumption.
    + destruct (step_refines D L _ _ R I Le M) as (D' & I' & C & Le').
      exists D', (post L R'). split; [exact I'|]. split; [rewrite (proj2 (same_rows_writes _ _ Sr)); exact Le'|].
      eapply R_event; [exact Re|]. apply (Ev_step _ _ _ _ Nat.eq_dec row_fn sample (St _ _ _ _ (p_mem S) L (p_rq S) (p_past S))).
      * exact (same_rows_check _ _ _ Sr C).
      * exact (same_rows_solution _ _ _ _ Sr So).
    + exists D, L. split; [|split; [exact Le|exact Re]]. exact (append_inv D _ r q q' more I Hq Tq Mq).
    + exists D, L. destruct (truncated_inv D _ r q whole rest l' I Hq Tr) as [I' Less]. split; [exact I'|]. split; [|exact Re].
      intros s h Hs. apply Le, Less. exact Hs.
    + destruct U as (U1 & U2 & U3 & U4). exists D, L.
      assert (B : forall p pg', page_at l' p = Some pg' -> exists pg, page_at (p_led S) p = Some pg /\ Page_toks pg' = Page_toks pg /\
                Page_parent pg' = Page_parent pg /\ Page_cid pg' = Page_cid pg /\ Page_pins pg' = Page_pins pg - count_occ Nat.eq_dec (Req_table q) p).
      { intros p pg' Hp. rewrite U4 in Hp. destruct (page_at (p_led S) p) as [pg|]; [|discriminate]. injection Hp as <-. exists pg. auto. }
      split; [|split; [|exact Re]].
      * constructor.
        -- rewrite U1. apply I.
        -- rewrite U2. apply I.
        -- intros p pg' Hp. destruct (B _ _ Hp) as (pg & X1 & X2 & X3 & X4 & X5). rewrite U2.
           destruct (I_page _ _ I _ _ X1) as (Y1 & Y2 & Y3 & Y4). unfold page_ok. rewrite X2, X3, X4, X5.
           repeat split; auto; try (apply Y3; assumption). intros F. specialize (Y4 F). lia.
        -- intros r2 q2 k x H2 Hk. rewrite U3, (nth_set_nth _ _ _ _ _ Hq) in H2. destruct (Nat.eqb_spec r2 r) as [->|].
           ++ injection H2 as <-. destruct k; discriminate.
           ++ destruct (I_req _ _ I _ _ _ _ H2 Hk) as (pg & suf & X1 & X2 & X3 & X4). unfold entry_ok. rewrite U4, X1. simpl.
              eexists _, suf. simpl. eauto.
        -- intros p pg' Hp. destruct (B _ _ Hp) as (pg & X1 & X2 & X3 & X4 & X5). rewrite X5, (I_pins _ _ I _ _ X1).
           unfold pins at 2. rewrite U3. pose proof (pins_set _ _ _ (set_Req_table q []) p Hq). simpl in *. lia.
      * intros s h Hs. apply Le. apply abs_some in Hs as (pg' & Hp & Lt & ->). destruct (B _ _ Hp) as (pg & X1 & X2 & X3 & X4 & X5).
        apply abs_some. exists pg. rewrite X2, X3 in *. auto.
    + exists D, L. split; [apply (upd_req_empty D _ r q); auto|]. split; [exact Le|].
      eapply R_event; [exact Re|]. apply (Ev_finish _ _ _ _ Nat.eq_dec row_fn sample (St _ _ _ _ (p_mem S) L (p_rq S) (p_past S))). exact Hq0.
    + exists D, (fun s => if match abs D (p_led S) s with None => true | _ => false end then None else L s).
      split; [exact I|]. split.
      * intros s h Hs. rewrite Hs. exact (Le s h Hs).
      * eapply R_event; [eapply R_event; [exact Re|apply Ev_forget]|]. simpl.
        apply (Ev_scribble _ _ _ _ Nat.eq_dec row_fn sample (St _ _ _ _ (p_mem S) (fun s => if match abs D (p_led S) s with None => true | _ => false end then None else L s) (p_rq S) (p_past S))).
        simpl. intros s. destruct (abs D (p_led S) s) as [h|] eqn:A; [|intros K; contradiction]. intros _.
        apply abs_some in A as (pg & Hp & Lt & _). exact (Sc s pg Hp Lt).
    + exists D, L.
      assert (G : forall p pg, nth_error (map (fun _ => mkPage 0 0 0 []) (Ledger_pages (p_led S))) p = Some pg -> pg = mkPage 0 0 0 []).
      { intros p pg Hp. apply nth_error_In, in_map_iff in Hp as (? & <- & _). reflexivity. }
      split; [|split; [|exact Re]].
      * destruct (I_root _ _ I) as [R0 R1]. constructor; simpl; try apply I.
        -- split; [exact R0|lia].
        -- intros p pg Hp. apply G in Hp as ->. unfold page_ok. simpl. repeat split; try lia.
        -- intros r q k p Hq Hk. apply nth_error_In, in_map_iff in Hq as (? & <- & _). destruct k; discriminate.
        -- intros p pg Hp. apply G in Hp as ->. unfold pins. simpl. rewrite flat_tables_nil. reflexivity.
      * intros s h Hs. apply abs_some in Hs as (pg & Hp & Lt & _). simpl in Hp. apply G in Hp as ->. simpl in Lt. lia.
Qed.

Definition p_served (S : pst) (q : rq) : Prop := (exists i, p_rq S i = Some q) \/ In q (p_past S).
Corollary page_trace_sound S q : preachable S -> p_served S q ->
  gen _ _ _ q = ref_gen _ _ _ _ row_fn sample (prm _ _ _ q) (prompt _ _ _ q) (length (gen _ _ _ q)).
Proof. intros R H. destruct (page_refines _ R) as (D & L & _ & _ & Re). exact (trace_sound _ _ _ _ _ _ _ _ q Re H). Qed.
End Pages.

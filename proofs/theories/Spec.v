(** What is proved, to be read in ten minutes.  [Reference.v] (the cold reference) comes first; then this file; the text of
    the ledger is [proofs/ledger/src/proved.rs], its translation [LedgerFns.v], the meaning of the translation [Prims.v].
    The theorems that inhabit the statements at the end are in [Main.v].

    The machine below is an inference server as seen by its clients: a memory of KV cells with arbitrary initial contents,
    the ledger (every change to it is a call of a translated Rust function), and what each request has received.  The
    scheduler is absent: any event may happen at any time, with any plan. *)
From Coq Require Import List Arith NArith.
Import ListNotations.
From Sametree Require Import Prims Reference LedgerTypes LedgerFns.

Section Spec.
Variables cell logits params : Type.
Variable row_fn : nat -> nat -> list cell -> cell * logits.    (* the kernels; see Reference.v *)
Variable sample : params -> nat -> logits -> nat.
Variable P : nat.                                              (* tokens per page *)
Notation rq := (rq nat logits params).
Notation Rq := (Rq nat logits params).

(** * What kernels do with the launch records of an accepted step *)

Definition table_of (l : Ledger) (r : nat) : list nat :=
  match nth_error (Ledger_reqs l) r with Some q => Req_table q | None => [] end.
(** the slot of position [i], by the block table *)
Definition slot_at (l : Ledger) (r i : nat) : nat :=
  nth (i / Ledger_psize l) (table_of l r) 0 * Ledger_psize l + i mod Ledger_psize l.
Definition launch_reads (l : Ledger) (g : Launch) : list nat :=
  map (slot_at l (Launch_req g)) (seq 0 (Launch_pos g)).
(** what row [g] computes when memory is [m] *)
Definition launch_out (l : Ledger) (m : nat -> cell) (g : Launch) : cell * logits :=
  row_fn (Launch_tok g) (Launch_pos g) (map m (launch_reads l g)).
(** All rows of a step run at once, in no order: memory [m'] afterwards is any solution of the step's equations.  That
    the engine's way of running it (layer by layer, first all writes, then all reads) is one is [layered_engine]. *)
Definition runs (l : Ledger) (gs : list Launch) (m m' : nat -> cell) : Prop :=
  (forall g, In g gs -> m' (Launch_slot g) = fst (launch_out l m' g)) /\
  (forall s, ~ In s (map Launch_slot gs) -> m' s = m s).

(** * What the runner does with the logits: for each row, in order, it takes the sampled token or drops it.  A row after
    a guess gives a token too; the ledger refuses to commit it unless the guess was right.  Guesses may be dropped between. *)

Definition received (q : rq) (t : nat) (lg : logits) : rq :=
  Rq (prompt _ _ _ q) (prm _ _ _ q) (gen _ _ _ q ++ [(t, lg)]) (live _ _ _ q).

Inductive sampled (l1 : Ledger) (m' : nat -> cell) :
  Ledger -> (nat -> option rq) -> list Launch -> Ledger -> (nat -> option rq) -> Prop :=
| sampled_none l Q : sampled l1 m' l Q [] l Q
| sampled_drop l Q g gs l' Q' : sampled l1 m' l Q gs l' Q' -> sampled l1 m' l Q (g :: gs) l' Q'
| sampled_take l Q g gs q lg t l2 l' Q' :
    Launch_sample g = true -> Q (Launch_req g) = Some q ->
    lg = snd (launch_out l1 m' g) -> t = sample (prm _ _ _ q) (Launch_pos g + 1) lg ->
    commit l (Launch_req g) (Launch_pos g + 1) t = Some (l2, true) ->
    sampled l1 m' l2 (upd Q (Launch_req g) (Some (received q t lg))) gs l' Q' ->
    sampled l1 m' l Q (g :: gs) l' Q'
| sampled_truncate l Q gs r n l2 l' Q' :
    truncate l r n = Some (l2, true) -> sampled l1 m' l2 Q gs l' Q' -> sampled l1 m' l Q gs l' Q'.

(** * The machine *)

Record machine := Ma { x_mem : nat -> cell; x_led : Ledger;
  x_rq : nat -> option rq;      (* the request in each entry of the ledger *)
  x_past : list rq }.           (* requests whose entry was given to another *)

(** memory that no page claims *)
Definition unclaimed (l : Ledger) (s : nat) : Prop :=
  forall pg, nth_error (Ledger_pages l) (s / P) = Some pg -> length (Page_toks pg) <= s mod P.

Inductive event (S : machine) : machine -> Prop :=
| E_admit p prs l' r : admit (x_led S) p = Some (l', r) ->
    event S (Ma (x_mem S) l' (upd (x_rq S) r (Some (Rq p prs [] true))) (x_past S))
| E_readmit r p prs l' q : readmit (x_led S) r p = Some (l', true) -> x_rq S r = Some q ->
    event S (Ma (x_mem S) l' (upd (x_rq S) r (Some (Rq p prs [] true))) (q :: x_past S))
| E_step ops l1 gs m' l2 Q2 :                    (* any plan that the ledger accepts *)
    step (x_led S) [] ops = Some (l1, gs, true) ->
    runs l1 gs (x_mem S) m' -> sampled l1 m' l1 (x_rq S) gs l2 Q2 ->
    event S (Ma m' l2 Q2 (x_past S))
| E_refuse ops l1 gs l2 :                        (* any plan that it refuses *)
    step (x_led S) [] ops = Some (l1, gs, false) -> reset l1 = Some l2 ->
    event S (Ma (x_mem S) l2 (x_rq S) (x_past S))
| E_reset l' : reset (x_led S) = Some l' ->
    event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| E_scribble m' : (forall s, unclaimed (x_led S) s \/ m' s = x_mem S s) ->   (* padding rows, warm-up, anything *)
    event S (Ma m' (x_led S) (x_rq S) (x_past S))
| E_draft r t l' : draft (x_led S) r t = Some (l', true) ->            (* a guess for a next token, right or wrong *)
    event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| E_truncate r n l' : truncate (x_led S) r n = Some (l', true) ->      (* guesses are dropped *)
    event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| E_preempt r l' : unpin (x_led S) r = Some (l', true) ->
    event S (Ma (x_mem S) l' (x_rq S) (x_past S))
| E_finish r l' q : finish (x_led S) r = Some (l', true) -> x_rq S r = Some q ->
    event S (Ma (x_mem S) l' (upd (x_rq S) r (Some (Rq (prompt _ _ _ q) (prm _ _ _ q) (gen _ _ _ q) false))) (x_past S)).

Inductive reachable : machine -> Prop :=
| R_init m n l : create P n = Some l -> reachable (Ma m l (fun _ => None) [])
| R_event S S' : reachable S -> event S S' -> reachable S'.

(** every request that the server has ever had *)
Definition served (S : machine) (q : rq) : Prop := (exists r, x_rq S r = Some q) \/ In q (x_past S).

(** * The statements *)

(** What a request has received, tokens and logits, is what the cold reference gives, as far as it goes. *)
Definition equals_reference : Prop := forall S q, reachable S -> served S q ->
  gen _ _ _ q = ref_gen _ _ _ _ row_fn sample (prm _ _ _ q) (prompt _ _ _ q) (length (gen _ _ _ q)).

(** Two servers, two traces, two requests with equal prompts and parameters: one answer is a prefix of the other. *)
Definition deterministic : Prop := forall S1 S2 q1 q2, reachable S1 -> reachable S2 -> served S1 q1 -> served S2 q2 ->
  prompt _ _ _ q1 = prompt _ _ _ q2 -> prm _ _ _ q1 = prm _ _ _ q2 -> length (gen _ _ _ q1) <= length (gen _ _ _ q2) ->
  gen _ _ _ q1 = firstn (length (gen _ _ _ q1)) (gen _ _ _ q2).

(** What was received is never taken back. *)
Definition never_retracted : Prop := forall S S' q, reachable S -> event S S' -> served S q ->
  exists q' more, served S' q' /\ prompt _ _ _ q' = prompt _ _ _ q /\ prm _ _ _ q' = prm _ _ _ q /\
                  gen _ _ _ q' = gen _ _ _ q ++ more.

(** The order of an accepted step's rows is free: all solutions agree, on memory and on every row's output. *)
Definition order_free : Prop := forall S ops l1 gs m1 m2, reachable S ->
  step (x_led S) [] ops = Some (l1, gs, true) -> runs l1 gs (x_mem S) m1 -> runs l1 gs (x_mem S) m2 ->
  (forall s, m1 s = m2 s) /\ (forall g, In g gs -> launch_out l1 m1 g = launch_out l1 m2 g).

(** What is dropped is gone: afterwards the request counts nothing behind [n], and no slot of its pages behind [n] is claimed. *)
Definition truncate_forgets : Prop := forall S r n l', reachable S -> truncate (x_led S) r n = Some (l', true) ->
  (forall kv, kv_len l' r = Some kv -> kv <= n) /\
  (forall i, n <= i -> i / Ledger_psize l' < length (table_of l' r) -> unclaimed l' (slot_at l' r i)).

(** ** No panic *)

Definition rows_asked (ops : list Op) : nat :=
  fold_right (fun o n => match o with Op_Fill _ k => k + n | _ => n end) 0 ops.
(** The bounds: fewer than 2^32 request entries; no history within two pages of 2^64 tokens; [n] more full pages can
    still be numbered below 2^64.  The pool's size is checked once, by [create]. *)
Definition within (n : nat) (l : Ledger) : Prop :=
  fits 32 (length (Ledger_reqs l)) = true /\ fits 64 (Ledger_next l + n) = true /\
  forall r q, nth_error (Ledger_reqs l) r = Some q -> fits 64 (length (Req_toks q) + P + P) = true.

(** No function panics, whatever its arguments, on the ledger of a reachable machine within the bounds.  (The three that
    only read want an entry that exists.) *)
Definition never_panics : Prop := forall S, reachable S -> let l := x_led S in
  (forall p, admit l p <> None) /\ (forall r p, readmit l r p <> None) /\
  (forall rows ops, within (rows_asked ops) l -> step l rows ops <> None) /\
  (forall ops l1 gs b, step l [] ops = Some (l1, gs, b) -> reset l1 <> None) /\
  (forall r n t, within 0 l -> commit l r n t <> None) /\ (forall r t, draft l r t <> None) /\
  (forall r n, within 0 l -> truncate l r n <> None) /\
  (forall r, within 0 l -> r < length (Ledger_reqs l) -> kv_len l r <> None /\ aligned l r <> None /\ tail_cid l r <> None) /\
  (forall r, unpin l r <> None) /\ (forall r, finish l r <> None) /\ reset l <> None.

(** ** Progress *)

Inductive events (S : machine) : machine -> Prop :=
| events_none : events S S
| events_more S1 S2 : events S S1 -> event S1 S2 -> events S S2.

(** A live request that would fit the pool alone can always be brought to its [n]-th token, whatever the ledger holds and
    whatever has happened before: no state is a trap. *)
Definition can_finish : Prop := forall S r q n, reachable S ->
  x_rq S r = Some q -> live _ _ _ q = true -> prompt _ _ _ q <> [] ->
  let total := length (prompt _ _ _ q) + n in let l := x_led S in
  length (gen _ _ _ q) <= n -> total <= P * length (Ledger_pages l) ->
  fits 64 (total + P + P) = true -> fits 64 (Ledger_next l + total) = true ->
  exists S' q', events S S' /\ x_rq S' r = Some q' /\ prompt _ _ _ q' = prompt _ _ _ q /\ length (gen _ _ _ q') = n.

(** ** The policy that ships *)

(** The engine takes every step by [serve], which is given the oldest live request and whatever plan the scheduler proposes.
    It does nothing but events, and then one accepted step. *)
Definition serve_is_steps : Prop := forall S w a r pre ops l1 gs w1 b, reachable S ->
  serve (x_led S) [] w a r pre ops = Some (l1, gs, w1, b) ->
  exists S0 ops0, events S S0 /\ x_mem S0 = x_mem S /\ x_rq S0 = x_rq S /\ x_past S0 = x_past S /\
                  step (x_led S0) [] ops0 = Some (l1, gs, true).

(** Bounds as above, and fewer than 2^32 pages. *)
Definition roomy (n : nat) (l : Ledger) : Prop := within n l /\ fits 32 (length (Ledger_pages l)) = true.
Definition serve_never_panics : Prop := forall S w a r pre ops, reachable S -> roomy (rows_asked ops + 1) (x_led S) ->
  serve (x_led S) [] w a r pre ops <> None.

(** Request [e] in entry [r] waits for its next row: [kv] of its tokens are computed, not all, and none is a guess.  It fits
    the pool alone. *)
Definition waits (l : Ledger) (r : nat) (e : Req) (kv : nat) : Prop :=
  nth_error (Ledger_reqs l) r = Some e /\ Req_live e = true /\ Req_sure e = length (Req_toks e) /\
  kv_len l r = Some kv /\ kv < length (Req_toks e) /\ length (Req_toks e) <= P * length (Ledger_pages l).

(** Whatever is proposed, there is an accepted step, and it is not empty. *)
Definition always_a_step : Prop := forall S r e kv w a pre ops, reachable S -> waits (x_led S) r e kv ->
  roomy (rows_asked ops + 1) (x_led S) ->
  exists l1 gs w1, serve (x_led S) [] w a r pre ops = Some (l1, gs, w1, true) /\ gs <> [].

(** A request in entry [j_entry], which arrived as number [j_age], wants [j_tokens] tokens; [j_total] bounds the positions that
    have to be computed for them. *)
Record job := Job { j_age : nat; j_entry : nat; j_tokens : nat; j_total : nat }.
Definition waiting (S : machine) (j : job) : Prop := exists q e kv,
  x_rq S (j_entry j) = Some q /\ live _ _ _ q = true /\ waits (x_led S) (j_entry j) e kv /\ length (gen _ _ _ q) < j_tokens j /\
  length (prompt _ _ _ q) + j_tokens j <= j_total j + 1 /\ j_total j <= P * length (Ledger_pages (x_led S)).
Definition tokens (S : machine) (r : nat) : nat := match x_rq S r with Some q => length (gen _ _ _ q) | None => 0 end.

(** Others come and go: any events that leave the request in entry [r] and its pages as they are. *)
Inductive aside (r : nat) (S : machine) : machine -> Prop :=
| aside_none : aside r S S
| aside_more S1 S2 : aside r S S1 -> event S1 S2 -> x_rq S2 r = x_rq S1 r ->
    nth_error (Ledger_reqs (x_led S2)) r = nth_error (Ledger_reqs (x_led S1)) r -> kv_len (x_led S2) r = kv_len (x_led S1) r -> aside r S S2.

(** One turn of the engine with [j] as its oldest request.  Whatever is proposed, [serve] takes a step; the kernels run; and
    of [j]'s tokens those that were sampled are taken, and none is given back. *)
Inductive turn (j : job) : machine * Watch -> machine * Watch -> Prop :=
| a_turn S w S1 pre ops l1 gs w1 m' l2 Q2 : let r := j_entry j in let S2 := Ma m' l2 Q2 (x_past S1) in
    aside r S S1 -> roomy (rows_asked ops + 1) (x_led S1) ->
    serve (x_led S1) [] w (j_age j) r pre ops = Some (l1, gs, w1, true) ->
    runs l1 gs (x_mem S1) m' -> sampled l1 m' l1 (x_rq S1) gs l2 Q2 ->
    ((exists g, In g gs /\ Launch_req g = r /\ Launch_sample g = true) -> tokens S1 r < tokens S2 r) -> kv_len l2 r = kv_len l1 r ->
    turn j (S, w) (S2, w1).

(** The engine serves its live requests in the order of their arrival: [run J c k J' c'], [k] turns from [c] with the requests
    [J] to [c'] with [J'] left.  A request leaves when it has its tokens, or before, when it is cancelled or stops by itself. *)
Inductive run : list job -> machine * Watch -> nat -> list job -> machine * Watch -> Prop :=
| run_none J c : run J c 0 J c
| run_turn j J c c' k J' c'' : waiting (fst c) j -> turn j c c' -> tokens (fst c') (j_entry j) < j_tokens j ->
    run (j :: J) c' k J' c'' -> run (j :: J) c (S k) J' c''
| run_last j J c c' S2 k J' c'' : waiting (fst c) j -> turn j c c' -> events (fst c') S2 -> run J (S2, snd c') k J' c'' ->
    run (j :: J) c (S k) J' c''
| run_leave j J S w S2 k J' c'' : events S S2 -> run J (S2, w) k J' c'' -> run (j :: J) (S, w) k J' c''.

(** A turn leaves its request waiting as before, unless it has its tokens now. *)
Definition waits_on : Prop := forall j S w S' w', reachable S -> waiting S j -> turn j (S, w) (S', w') ->
  tokens S' (j_entry j) < j_tokens j -> waiting S' j.

(** Every request ends: whatever is proposed, and however many arrive behind it, there are at most [turns_for J] turns before
    all of [J] are served. *)
Definition turns_for (J : list job) : nat := fold_right (fun j n => 2 * j_total j + 2 + n) 0 J.
Definition every_request_ends : Prop := forall J S w k J' c', reachable S -> run J (S, w) k J' c' -> k <= turns_for J.
End Spec.

(** The root: what is not reached from here is not part of the proof, and [check.sh] rejects it. *)
From Sametree Require Import Spec Main Progress Serve Names Necessity Async.

Print Assumptions equals_reference.
Print Assumptions deterministic.
Print Assumptions never_retracted.
Print Assumptions order_free.
Print Assumptions truncate_forgets.
Print Assumptions never_panics.
Print Assumptions serve_never_panics.
Print Assumptions layered_engine.
Print Assumptions named_equals_reference.
Print Assumptions resolve_resolves.
Print Assumptions resolve_never_panics.
Print Assumptions serve_is_steps.
Print Assumptions always_a_step.
Print Assumptions waits_on.
Print Assumptions every_request_ends.
Print Assumptions can_finish.
Print Assumptions can_advance.
Print Assumptions Core.step_sound.
Print Assumptions Core.any_order.
Print Assumptions Core.per_request_ascending_admissible.
Print Assumptions Pages.step_refines.
Print Assumptions symbolic_check_sound.
Print Assumptions distinct_writes_needed.
Print Assumptions reads_needed.
Print Assumptions post_ledger_needed.
Print Assumptions commit_gate_needed.
Print Assumptions ownership_not_needed.

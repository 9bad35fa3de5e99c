//! Atomics: which of them hang on the order in which programs arrive, and what the others combine.

use super::site::{Solved, instances};
use super::verdict::Problem;
use crate::eval::{Site, SiteKind};
use crate::ir::AtomicOp;
use crate::term::{Arena, Node, VarId, VarKind};
use std::collections::BTreeSet;

/// Float atomics add in the order of arrival unless one instance at most reaches an element; several kinds on one pointer do not
/// commute.
pub(super) fn atomic_problems(sites: &[Site<'_>]) -> Vec<Problem> {
    let kinds: BTreeSet<String> = sites.iter().map(|s| format!("{:?}", s.kind)).collect();
    let mut out = Vec::new();
    let any_atomic = sites.iter().any(|s| s.kind != SiteKind::Store);
    if any_atomic && kinds.len() > 1 {
        out.push(Problem::Schedule {
            why: "different atomic operations and stores on one pointer do not commute".into(),
        });
    }
    for s in sites {
        match s.kind {
            SiteKind::Atomic(AtomicOp::FAdd | AtomicOp::Exchange) => {
                let what =
                    if s.kind == SiteKind::Atomic(AtomicOp::FAdd) { "float atomic adds" } else { "atomic exchanges" };
                out.push(Problem::Schedule { why: format!("{what} happen in the order in which programs arrive") });
            }
            SiteKind::Atomic(_) if s.elem.is_some_and(|e| e.is_float()) => {
                out.push(Problem::Schedule { why: "an atomic on floats".into() });
            }
            _ => {}
        }
    }
    out
}

/// An order-free integer atomic combines all instances that reach an element: what is not a coordinate becomes the variable of a sum.
pub(super) fn aggregate(arena: &mut Arena, solved: &mut Solved<'_>) -> Vec<VarId> {
    if !matches!(solved.site.kind, SiteKind::Atomic(_)) {
        return vec![];
    }
    let mut free = instances(arena, solved.value);
    free.extend(instances(arena, solved.guard));
    free.sort_unstable();
    free.dedup();
    for v in &free {
        // Bound from now on: the value is a sum over it.
        arena.vars[v.0 as usize].kind = match arena.vars[v.0 as usize].kind {
            k @ VarKind::Pid(_) => k,
            _ => VarKind::Bound,
        };
    }
    arena.rules.insert("order-free-atomic");
    solved.left.clear();
    free
}

/// A summed program id that no guard limits makes the sum depend on the grid.
pub(super) fn bound_by_grid(arena: &mut Arena, solved: &Solved<'_>, v: VarId, axis: u8, problems: &mut Vec<Problem>) {
    let t = arena.var_term(v);
    let limited = arena.conjuncts(solved.guard).iter().any(|&c| match arena.node(c) {
        Node::Ge0(p) => arena.poly(*p).terms.iter().any(|(m, k)| *k < 0 && m.as_slice() == [t]),
        _ => false,
    });
    let in_value = arena.contains_var(solved.value, v);
    if !limited && !in_value {
        let param = arena.intern(Node::NumPrograms(axis), crate::term::Sort::Int);
        problems.push(Problem::Batch { param, how: "decides how many programs are combined by the atomic" });
    }
}

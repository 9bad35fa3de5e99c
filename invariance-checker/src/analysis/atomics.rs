//! Atomics: which of them hang on the order in which programs arrive, and what the others combine.

use super::site::{Solved, instances};
use super::usage::is_param;
use super::verdict::{Condition, Problem};
use crate::eval::{Effects, Evaluator, Site, SiteKind};
use crate::ir::AtomicOp;
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Node, Poly, TermId, VarId, VarKind};
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
    free.retain(|v| !determined(arena, solved, *v));
    free
}

/// `0 <= e - k*v <= k - 1` has the one solution `v = floor(e / k)`: then `v` is no variable of the sum. Which program makes an element of a
/// tile is of this kind.
fn determined(arena: &mut Arena, solved: &mut Solved<'_>, v: VarId) -> bool {
    if !matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_)) {
        return false;
    }
    let t = arena.var_term(v);
    let parts = arena.conjuncts(solved.guard);
    let linear = |arena: &Arena, c: TermId| match *arena.node(c) {
        Node::Ge0(p) => {
            let rest = arena.poly(p).terms.into_iter().filter(|(m, _)| m.as_slice() != [t]);
            let alone = rest.into_iter().all(|(m, _)| m.iter().all(|&x| !arena.contains_var(x, v)));
            alone.then_some(p)
        }
        _ => None,
    };
    let sides: Vec<(TermId, TermId, i128)> = parts
        .iter()
        .filter_map(|&c| linear(arena, c).map(|p| (c, p, arena.poly(p).coeff(&[t]))))
        .filter(|(.., k)| *k != 0)
        .collect();
    for &(low, p, k) in sides.iter().filter(|s| s.2 < 0) {
        for &(high, q, _) in sides.iter().filter(|s| s.2 == -k) {
            let sum = arena.add(p, q);
            if arena.as_int(sum) != Some(-k - 1) {
                continue;
            }
            // p = e - |k|*v.
            let e = arena.add_scaled(p, t, -k);
            let size = arena.int(-k);
            let place = arena.div(e, size);
            let map = HashMap::from_iter([(t, place)]);
            let others: Vec<TermId> = parts.iter().copied().filter(|c| *c != low && *c != high).collect();
            let guard = arena.and(others);
            solved.guard = arena.subst(guard, &map);
            solved.value = arena.subst(solved.value, &map);
            solved.facts.assume(arena, solved.guard);
            arena.rules.insert("one-program");
            return true;
        }
    }
    false
}

/// A summed program id must be limited by something else than the grid, else a larger grid adds more: by the guard, or because what the
/// programs beyond add is nothing (zero, for operations of which zero is the neutral element).
pub(super) fn bound_by_grid(arena: &mut Arena, solved: &Solved<'_>, v: VarId, axis: u8, problems: &mut Vec<Problem>) {
    let neutral_zero = matches!(solved.site.kind, SiteKind::Atomic(AtomicOp::Add | AtomicOp::Or | AtomicOp::Xor));
    if limited_by_guard(arena, solved, v) || neutral_zero && adds_nothing_beyond(arena, solved, v) {
        return;
    }
    let param = arena.intern(Node::NumPrograms(axis), crate::term::Sort::Int);
    problems.push(Problem::Batch { param, how: "decides how many programs are combined by the atomic" });
}

/// Every program of an axis adds the same to the same cell: how many there are is in the sum, though nothing of it names the program. Where
/// the result is a ticket that numbers what is stored, the counter is no output of its own.
pub(super) fn uncounted(
    e: &mut Evaluator<'_>,
    effects: &Effects<'_>,
    solved: &Solved<'_>,
    problems: &mut Vec<Problem>,
) {
    if !matches!(solved.site.kind, SiteKind::Atomic(AtomicOp::Add | AtomicOp::Xor)) {
        return;
    }
    if is_ticket(&e.arena, effects, &solved.site) {
        return;
    }
    for (axis, v) in e.pids_used() {
        let site = &solved.site;
        if ![site.offset, site.value, site.guard].iter().any(|x| e.arena.contains_var(*x, v)) {
            let param = e.arena.intern(Node::NumPrograms(axis), crate::term::Sort::Int);
            problems.push(Problem::Batch { param, how: "decides how many programs are combined by the atomic" });
        }
    }
}

/// The result of an atomic numbers what another store writes.
pub fn is_ticket(arena: &Arena, effects: &Effects<'_>, site: &Site<'_>) -> bool {
    let number = site.op.number;
    let result = |n: &Node| matches!(n, Node::Opaque(_, at, _) if *at == number);
    let atomic = matches!(site.kind, SiteKind::Atomic(_));
    atomic && effects.sites.iter().any(|s| s.op.number != number && arena.any(s.offset, result))
}

/// A part of the guard is false from some number of `v` on, which neither the grid nor another instance can move.
fn limited_by_guard(arena: &mut Arena, solved: &Solved<'_>, v: VarId) -> bool {
    let t = arena.var_term(v);
    arena.conjuncts(solved.guard).into_iter().any(|c| {
        let Node::Ge0(p) = *arena.node(c) else { return false };
        let p = arena.poly(p);
        p.coeff(&[t]) < 0 && p.terms.iter().all(|(m, k)| m.as_slice() == [t] || bounded_above(arena, m, *k))
    })
}

/// A term of arguments and coordinates, or one of instances that a constant bounds.
fn bounded_above(arena: &mut Arena, m: &[TermId], k: i128) -> bool {
    let fixed = |arena: &Arena, t: TermId| {
        let of_coords = arena.free_vars(t).iter().all(|v| matches!(arena.vars[v.0 as usize].kind, VarKind::Coord(_)));
        of_coords && !arena.any(t, |n| matches!(n, Node::Opaque(..)))
    };
    m.iter().all(|&t| fixed(arena, t)) || arena.poly_range(&Poly { terms: vec![(m.to_vec(), k)] }).hi.is_some()
}

/// From some number of `v` on every mask of the value is false, and what is left is zero.
fn adds_nothing_beyond(arena: &mut Arena, solved: &Solved<'_>, v: VarId) -> bool {
    let t = arena.var_term(v);
    let mut masks = Vec::new();
    arena.walk(solved.value, |_, n| {
        if let Node::Ge0(p) = n {
            masks.push(*p);
        }
    });
    masks.into_iter().any(|p| {
        let p = arena.poly(p);
        let step = -p.coeff(&[t]);
        // What lanes take away only makes it false earlier.
        let rest: Vec<_> = p.terms.iter().filter(|(m, _)| m.as_slice() != [t]).cloned().collect();
        let (lanes, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(m, k)| {
            m.iter().any(|&x| arena.free_vars(x).iter().any(|v| arena.vars[v.0 as usize].kind == VarKind::Bound))
                && arena.poly_range(&Poly { terms: vec![(m.clone(), *k)] }).hi.is_some_and(|hi| hi <= 0)
        });
        drop(lanes);
        if step <= 0 || !rest.iter().all(|(m, k)| bounded_above(arena, m, *k)) {
            return false;
        }
        // step * v > rest.
        let rest = arena.from_poly(Poly { terms: rest });
        let way = arena.scale(t, step);
        let past = arena.lt(rest, way);
        let beyond = solved.facts.with(arena, past);
        let value = arena.simplify(solved.value, &beyond);
        vanishes(arena, value)
    })
}

/// Zero: a constant, a product with zero, or a count of nothing.
fn vanishes(arena: &Arena, t: TermId) -> bool {
    match arena.node(t) {
        Node::Poly(p) => p.terms.iter().all(|(m, _)| m.iter().any(|&x| vanishes(arena, x))),
        Node::Reduce(r) => {
            let adds = arena.text(r.combiner).starts_with("histogram ");
            r.at.is_none() && adds && r.bodies.iter().all(|&b| vanishes(arena, b))
        }
        Node::Ite(_, a, b) => vanishes(arena, *a) && vanishes(arena, *b),
        _ => false,
    }
}

/// Cells whose place in the row is a number that was read: where nothing limits the number, it may name a cell of another row, and what
/// the atomic adds there is not that row's own.
pub(super) fn places_in_row(arena: &mut Arena, base: &Facts, solved: &Solved<'_>) -> Vec<Condition> {
    let mut out = Vec::new();
    if !matches!(solved.site.kind, SiteKind::Atomic(_)) {
        return out;
    }
    let guard = base.with(arena, solved.guard);
    // What a part of the guard says that something is at most: a constant, or a sum of arguments.
    let mut uppers = Vec::new();
    for p in guard.inequalities() {
        let (limit, limited): (Vec<_>, Vec<_>) =
            p.terms.iter().cloned().partition(|(m, _)| m.iter().all(|&t| is_param(arena, t)));
        if matches!(limited.as_slice(), [(_, -1)]) {
            uppers.push(arena.from_poly(Poly { terms: limit }));
        }
    }
    for c in solved.coords.list.iter().skip(1) {
        let mut numbers = None;
        arena.walk(c.definition, |_, n| {
            if let Node::Load(l) = n {
                numbers = Some(l.base);
            }
        });
        let Some(numbers) = numbers else { continue };
        let low = guard.proves_hard(arena, c.term);
        let high = uppers.iter().any(|&most| {
            let room = arena.sub(most, c.term);
            guard.proves_hard(arena, room)
        });
        if !low || !high {
            let text = format!("{} within its row", arena.vars[c.var.0 as usize].name);
            out.push(Condition::Within { numbers, base: solved.site.base, text });
        }
    }
    out
}

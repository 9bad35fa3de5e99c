//! Whether an element is written at all, where its coordinates do not say it.
//!
//! Which program writes an element, and in which tile, is no matter of its row. But where a place is read from memory, or a program id names
//! no place (the j-th of a row's forbidden tokens), what a guard asks decides what the row holds: `if flag[row, j] > 0: y[row, place[row, j]] = 0`.
//! Whether a row is written as a whole says that it exists, so the place of the outermost coordinate is not looked at.

use super::address::loads;
use super::listed;
use super::site::{Solved, instances};
use super::usage::{Role, Walk};
use crate::eval::SiteKind;
use crate::term::Set as HashSet;
use crate::term::{Arena, Facts, Node, Sort, TermId, VarId, VarKind};

/// Walks what decides whether an element is written: parts of the guard with instance variables that are left, and places that are read.
pub(super) fn visit(walk: &mut Walk<'_>, solved: &Solved<'_>, facts: &Facts) {
    let mut decides = guards(walk.arena, solved);
    if solved.site.kind == SiteKind::Store {
        decides.extend(places(walk.arena, solved));
    }
    let before = walk.usage.clone();
    for c in decides {
        walk.visit(c, facts, Role::Tree);
    }
    // What moves all elements alike belongs to S. Where all are one value, nothing but the places is said, so arguments count as well.
    if walk.arena.free_vars(solved.value).is_empty() {
        walk.visit(solved.coords.rest, facts, Role::Shift);
    }
    for c in loads(walk.arena, solved.coords.rest) {
        walk.visit(c, facts, Role::Index);
    }
    // Any of the programs may be the one that writes; where a tile lies in the row's sequence, and how many there are, is like that.
    walk.usage.instances = before.instances;
    if solved.owner.is_some() {
        (walk.usage.bounds, walk.usage.indexed, walk.usage.params) = (before.bounds, before.indexed, before.params);
    }
}

/// Parts of the guard that read integers for an instance (data is looked at elsewhere), or compare an instance that names no place with an
/// argument.
fn guards(arena: &mut Arena, solved: &Solved<'_>) -> Vec<TermId> {
    let mut placing = HashSet::default();
    for c in &solved.coords.list {
        placing_vars(arena, c.definition, &mut placing);
    }
    let mut out = Vec::new();
    for c in arena.conjuncts(solved.guard) {
        let left = instances(arena, c);
        if left.is_empty() || solved.coords.range_facts.contains(&c) || listed::exists(arena, solved, c) {
            continue;
        }
        let reads = arena.any(c, |n| matches!(n, Node::Load(_) | Node::Opaque(..)));
        let mut data = false;
        arena.walk(c, |t, n| {
            data |= matches!(n, Node::Reduce(_)) || matches!(n, Node::Load(_)) && arena.sort(t) == Sort::Data
        });
        let limited = left.iter().all(|v| !placing.contains(v)) && arena.any(c, |n| matches!(n, Node::Arg(_)));
        if reads && !data || !reads && limited {
            out.push(c);
        }
    }
    out
}

/// What is read to place an element within its row.
fn places(arena: &mut Arena, solved: &Solved<'_>) -> Vec<TermId> {
    let mut out = Vec::new();
    for (i, c) in solved.coords.list.iter().enumerate() {
        if c.listed || i == 0 && (solved.owner.is_some() || names_row(arena, c.definition)) {
            continue;
        }
        let mut others = solved.coords.solution.clone();
        others.retain(|atom, _| Some(*atom) != c.solved);
        let place = arena.subst(c.definition, &others);
        out.extend(loads(arena, place));
    }
    out
}

/// What is read lies above everything else: it is where the row lies, not a place within it.
fn names_row(arena: &Arena, place: TermId) -> bool {
    let p = arena.poly(place);
    let (read, other): (Vec<_>, Vec<_>) =
        p.terms.iter().partition(|(m, _)| m.iter().any(|t| arena.any(*t, |n| matches!(n, Node::Load(_)))));
    let block =
        |t: &TermId| instances(arena, *t).iter().all(|v| matches!(arena.vars[v.0 as usize].kind, VarKind::Index(..)));
    let above = other.iter().filter(|(m, _)| !m.iter().all(block)).map(|(_, k)| k.abs()).max();
    read.iter().all(|(_, k)| above.is_none_or(|a| a <= k.abs()))
}

/// Variables of a place that are no part of what is read for it.
fn placing_vars(arena: &Arena, place: TermId, out: &mut HashSet<VarId>) {
    arena.walk_while(place, |_, n| {
        if let Node::Var(v) = n {
            out.insert(*v);
        }
        !matches!(n, Node::Load(_))
    });
}

//! Paged views: memory that is read at places which loaded integers name, `k[table[row, j]*stride + ..]`.
//!
//! Where a page lies is the allocator's choice, so two launches may hold the same logical content in different pages. A value does not
//! notice that if the number of a page does nothing but move what is read by whole pages: it is multiplied with one stride, what is added
//! stays within the page, and it enters neither a mask nor the value, nor the address of anything that has no pages of that number. Anything
//! else is a function of the numbers themselves and of the memory as a whole, which then belongs to S.

use super::home::{Home, Planes, home};
use super::usage::{LoadUse, Role, Usage, is_param};
use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Node, Range, Sort, TermId, VarKind};
use std::collections::{BTreeMap, BTreeSet};

/// What the numbers at some pointers may do.
#[derive(Debug, Default)]
pub struct Views {
    /// Pointers whose memory belongs to S, since the numbers that place it are no mere page numbers.
    pub whole: BTreeSet<TermId>,
    /// Layout: that pages do not overlap.
    pub conditions: BTreeSet<Condition>,
}

/// Judges every pair of (memory, numbers it is read through).
pub fn judge(
    arena: &mut Arena,
    usage: &Usage,
    placed: &BTreeSet<(TermId, TermId)>,
    planes: &Planes,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Views {
    let mut out = Views::default();
    let mut as_numbers: BTreeSet<TermId> =
        usage.loads.iter().filter(|u| matches!(u.role, Role::Tree | Role::Value)).map(|u| u.load.base).collect();
    let mut strides: BTreeMap<(TermId, TermId), TermId> = BTreeMap::new();
    for &(base, through) in placed {
        for u in usage.loads.iter().filter(|u| u.load.base == base) {
            match page(arena, u, through, planes, show) {
                Some(Home::Absent) => {}
                Some(Home::Row(stride, conditions)) => {
                    if *strides.entry((base, through)).or_insert(stride) != stride {
                        as_numbers.insert(through);
                    }
                    out.conditions.extend(conditions.into_iter().map(as_layout));
                }
                _ => {
                    as_numbers.insert(through);
                }
            }
        }
    }
    for &(base, through) in placed {
        if as_numbers.contains(&through) || base == through {
            out.whole.insert(base);
        }
    }
    out
}

/// How one load follows the integer read at `through`: as a row follows its number, or not. `None` if two of them enter.
fn page(
    arena: &mut Arena,
    u: &LoadUse,
    through: TermId,
    planes: &Planes,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Option<Home> {
    let mut numbers = Vec::new();
    arena.walk(u.load.offset, |t, n| {
        if matches!(n, Node::Load(l) if l.base == through) && !numbers.contains(&t) {
            numbers.push(t);
        }
    });
    let number = match numbers.as_slice() {
        [] => return Some(Home::Absent),
        [one] => *one,
        _ => return None,
    };
    debug_assert_eq!(arena.sort(number), Sort::Int);
    let var = arena.var(VarKind::Coord(u32::MAX), "page", Range { lo: Some(0), hi: None });
    let term = arena.var_term(var);
    let mut moved = u.clone();
    moved.load.offset = arena.subst(u.load.offset, &HashMap::from_iter([(number, term)]));
    // No address of an output is meant: what is stored lies elsewhere.
    let nowhere = arena.int(-1);
    match home(arena, &moved, var, nowhere, false, planes, show) {
        Home::Mixed(_) => constant_size(arena, &moved, term, show),
        home => Some(home),
    }
}

/// Pages of a constant size, where nothing bounds what is added to their start (the number of a head, say): that it stays below is layout.
fn constant_size(
    arena: &mut Arena,
    u: &LoadUse,
    number: TermId,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Option<Home> {
    let p = arena.poly(u.load.offset);
    let size = p.coeff(&[number]);
    let rest = arena.add_scaled(u.load.offset, number, -size);
    let elsewhere = arena.any(rest, |n| *n == *arena.node(number));
    let shift = arena.poly(rest).terms.iter().any(|(m, _)| !m.is_empty() && m.iter().all(|&t| is_param(arena, t)));
    let beyond = arena.add_const(rest, -size);
    if size <= 0 || elsewhere || shift || !u.facts.proves_hard(arena, rest) || u.facts.proves_hard(arena, beyond) {
        return None;
    }
    let stride = arena.int(size);
    let room = arena.sub(stride, rest);
    let room = arena.add_const(room, -1);
    let text = format!("{} < {size}", show(arena, rest));
    Some(Home::Row(stride, vec![Condition::Extent { base: u.load.base, text, room }]))
}

/// Pages are the launch's own layout, as rows are.
fn as_layout(c: Condition) -> Condition {
    match c {
        Condition::Padded { base, text, room } => Condition::Extent { base, text, room },
        c => c,
    }
}

//! Paged views: memory that is read at places which loaded integers name, `k[table[row, j]*stride + ..]`.
//!
//! Where a page lies is the allocator's choice, so two launches may hold the same logical content in different pages. A value does not
//! notice that if the number of a page does nothing but move what is read by whole pages: it is multiplied with one stride, what is added
//! stays within the page, and it enters neither a mask nor the value, nor the address of anything that has no pages of that number. Anything
//! else is a function of the numbers themselves and of the memory as a whole, which then belongs to S.

use super::address::numbers_in;
use super::home::{Home, Planes, home};
use super::usage::{LoadUse, Role, Usage, is_param};
use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Node, Poly, Range, Sort, TermId, VarId, VarKind};
use std::collections::{BTreeMap, BTreeSet};

/// What the numbers at some pointers may do.
#[derive(Debug, Default)]
pub struct Views {
    /// Pointers whose memory belongs to S, since the numbers that place it are no mere page numbers.
    pub whole: BTreeSet<TermId>,
    /// Memory with the pointer to the numbers of its pages.
    pub pages: BTreeSet<(TermId, TermId)>,
    /// Layout: that pages do not overlap.
    pub conditions: BTreeSet<Condition>,
}

/// Judges every pointer of `placed` (memory, numbers it is read through). An address may hang on more than the number of a page (on where a
/// split of the row begins, say): those numbers are data, for every pointer.
pub fn judge(
    arena: &mut Arena,
    usage: &Usage,
    placed: &BTreeSet<(TermId, TermId)>,
    lists: &BTreeSet<TermId>,
    planes: &Planes,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Views {
    let mut out = Views::default();
    let mut as_data: BTreeSet<TermId> =
        usage.loads.iter().filter(|u| matches!(u.role, Role::Tree | Role::Value)).map(|u| u.load.base).collect();
    let mut strides: BTreeMap<(TermId, TermId), TermId> = BTreeMap::new();
    // For each load of memory that is placed: through which pointers, and which of them may be those of its pages.
    let mut through: Vec<(TermId, Vec<TermId>, Vec<TermId>)> = Vec::new();
    for u in &usage.loads {
        let base = u.load.base;
        let numbers = numbers_in(arena, u.load.offset);
        if !placed.iter().any(|(b, _)| *b == base) {
            // A place within the row.
            as_data.extend(numbers);
            continue;
        }
        let mut paged = Vec::new();
        for &pointer in &numbers {
            match page(arena, u, pointer, lists, planes, show) {
                Some(Home::Row(stride, conditions)) => {
                    if *strides.entry((base, pointer)).or_insert(stride) != stride {
                        as_data.insert(pointer);
                    }
                    out.conditions.extend(conditions.into_iter().map(as_layout));
                    paged.push(pointer);
                }
                _ => {
                    as_data.insert(pointer);
                }
            }
        }
        through.push((base, numbers, paged));
    }
    for (base, numbers, paged) in through {
        let pages: Vec<TermId> = paged.into_iter().filter(|p| !as_data.contains(p)).collect();
        if pages.is_empty() && !numbers.is_empty() || placed.contains(&(base, base)) {
            out.whole.insert(base);
        }
        out.pages.extend(pages.into_iter().map(|p| (base, p)));
    }
    out
}

/// How one load follows the integer read at `through`: as a row follows its number, or not. `None` if two of them enter.
fn page(
    arena: &mut Arena,
    u: &LoadUse,
    through: TermId,
    lists: &BTreeSet<TermId>,
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
    if arena.sort(number) != Sort::Int {
        return None;
    }
    let var = arena.var(VarKind::Coord(u32::MAX), "page", Range { lo: Some(0), hi: None });
    let term = arena.var_term(var);
    let parts = parts_of(arena, u.load.offset, number, term);
    // The quotient alone names several pages at once: what lies there is shared with whoever has the others. An entry of the list of rows is
    // the row itself, of which there may be several to a token.
    if parts.len() == 1 && !parts.contains_key(&number) && !lists.contains(&through) {
        return None;
    }
    let mut moved = u.clone();
    moved.load.offset = arena.subst(u.load.offset, &parts);
    if arena.any(moved.load.offset, |n| n == arena.node(number)) {
        return None;
    }
    // No address of an output is meant: what is stored lies elsewhere.
    let nowhere = arena.int(-1);
    if let Some((slot, offset)) = slot_of(arena, &moved, term) {
        moved.load.offset = offset;
        return Some(home(arena, &moved, slot, nowhere, false, planes, show));
    }
    match home(arena, &moved, var, nowhere, false, planes, show) {
        Home::Mixed(_) => constant_size(arena, &moved, term, show),
        home => Some(home),
    }
}

/// What names the page in the address: the loaded number, or its quotient by one size; then the remainder is a place within the page.
fn parts_of(arena: &mut Arena, offset: TermId, number: TermId, page: TermId) -> HashMap<TermId, TermId> {
    let (mut quotients, mut remainders) = (Vec::new(), Vec::new());
    arena.walk(offset, |t, n| match n {
        Node::Div(a, size) | Node::TDiv(a, size) if *a == number => quotients.push((t, *size)),
        Node::Mod(a, size) | Node::TRem(a, size) if *a == number => remainders.push((t, *size)),
        _ => {}
    });
    let &[(quotient, size)] = quotients.as_slice() else { return HashMap::from_iter([(number, page)]) };
    let mut parts = HashMap::from_iter([(quotient, page)]);
    for (t, _) in remainders.into_iter().filter(|(_, s)| *s == size) {
        let range = Range { lo: Some(0), hi: arena.as_int(size).map(|k| k - 1) };
        let slot = arena.var(VarKind::Coord(u32::MAX), "slot", range);
        parts.insert(t, arena.var_term(slot));
    }
    parts
}

/// `P*(k*page + j) + rest` with `0 <= j < k` proved: slots are numbered through all pages, and each has the stride P. The slot and the
/// address by it.
fn slot_of(arena: &mut Arena, u: &LoadUse, page: TermId) -> Option<(VarId, TermId)> {
    let p = arena.poly(u.load.offset);
    let of_page: Vec<_> = p.terms.iter().filter(|(m, _)| m.contains(&page)).cloned().collect();
    let [(m, k)] = of_page.as_slice() else { return None };
    let stride: Vec<TermId> = m.iter().copied().filter(|&t| t != page).collect();
    if stride.is_empty() || stride.len() + 1 != m.len() || !stride.iter().all(|&t| is_param(arena, t)) || *k <= 1 {
        return None;
    }
    let (mut index, mut rest) = (Poly::default(), Poly::default());
    for (m, c) in &p.terms {
        let mut left = m.clone();
        let whole = stride.iter().all(|s| left.iter().position(|t| t == s).map(|i| left.remove(i)).is_some());
        let (part, term) = if whole { (&mut index, left) } else { (&mut rest, m.clone()) };
        *part = part.add_scaled(&Poly { terms: vec![(term, *c)] }, 1)?;
    }
    let index = arena.from_poly(index);
    let j = arena.add_scaled(index, page, -k);
    let room = arena.scale(j, -1);
    let room = arena.add_const(room, k - 1);
    if !u.facts.proves_hard(arena, j) || !u.facts.proves_hard(arena, room) {
        return None;
    }
    let slot = arena.var(VarKind::Coord(u32::MAX), "slot", Range { lo: Some(0), hi: None });
    let by = arena.var_term(slot);
    let stride = arena.from_poly(Poly { terms: vec![(stride, 1)] });
    let (at, rest) = (arena.mul(stride, by), arena.from_poly(rest));
    Some((slot, arena.add(at, rest)))
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
    // A number of whole pages beyond is another page.
    let whole = arena.poly(rest).terms.iter().any(|(_, k)| k.abs() >= size);
    if size <= 0
        || whole
        || elsewhere
        || shift
        || !u.facts.proves_hard(arena, rest)
        || u.facts.proves_hard(arena, beyond)
    {
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

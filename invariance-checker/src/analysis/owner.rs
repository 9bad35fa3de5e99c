//! Sequences of a batch and groups of a list: to which one a row belongs, and what that says of an address.
//!
//! A packed batch has prefix sums, `cu[s] <= row < cu[s + 1]` or, where `cu[s]` is the end, `cu[s - 1] <= row < cu[s]` from zero. The
//! kernel computes s in some way from its program id (a binary search, a table). If the guard of the store implies the inequality, and cu does
//! not decrease, then s is a function of the row and of cu, however it was computed; so s may be replaced by a coordinate. That cu holds
//! prefix sums is the user's to confirm: it is a printed condition. Where the row is the sequence itself, s is a coordinate already.
//!
//! A list of rows may be cut into groups, `start[g] <= place < start[g] + size[g]`. If groups do not overlap, the place determines g.

use super::home::{Home, Planes, home};
use super::usage::{LoadUse, is_param};
use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Load, Node, Poly, Range, TermId, VarId, VarKind};

/// A row's sequence or group.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The row coordinate; none where the row is the sequence itself.
    pub row: Option<TermId>,
    /// The sequence coordinate.
    pub sequence: VarId,
    /// Where it begins.
    pub begin: TermId,
    /// Where it ends; of a group, how many places it has.
    pub end: TermId,
    /// A group of a list: where it lies and how many share it is not the row's own.
    pub group: bool,
}

impl Owner {
    /// True for the two numbers that say where the sequence lies.
    pub fn is_bound(&self, t: TermId) -> bool {
        t == self.begin || t == self.end
    }

    /// The numbers that a row may use as differences: the position in its sequence, and its length.
    pub fn relative(&self) -> Vec<TermId> {
        if self.group { vec![] } else { self.row.into_iter().chain([self.begin, self.end]).collect() }
    }
}

/// The conditions that [`find`] makes.
pub fn needed(c: &Condition) -> bool {
    matches!(c, Condition::PrefixSum { .. } | Condition::NotBefore { .. } | Condition::Groups { .. })
}

/// Two numbers that may bound a sequence, with the index by which both are read.
struct Bounds {
    begin: TermId,
    end: TermId,
    /// Of `begin`, or of `end` where that is the index of the sequence.
    index: TermId,
    start: TermId,
    size: Option<TermId>,
}

/// Looks for the sequence or group of one of the coordinates `rows`, of which those in `listed` are places in a list; on success the
/// substitution and the conditions.
pub fn find(
    arena: &mut Arena,
    facts: &Facts,
    roots: &[TermId],
    rows: &[(TermId, bool)],
    number: u32,
) -> Option<(Owner, HashMap<TermId, TermId>, Vec<Condition>)> {
    for b in bounds(arena, roots) {
        let Some(atom) = sequence_atom(arena, b.index) else { continue };
        for &(row, listed) in rows {
            if b.size.is_some() && !listed {
                continue;
            }
            let end = if b.size.is_some() { arena.add(b.begin, b.end) } else { b.end };
            let room = arena.sub(end, row);
            let room = arena.add_const(room, -1);
            let above = arena.sub(row, b.begin);
            if !facts.proves_hard(arena, room) {
                continue;
            }
            let known = facts.proves_hard(arena, above);
            let mut conditions = match b.size {
                Some(sizes) if known => vec![Condition::Groups { starts: b.start, sizes }],
                Some(_) => continue,
                None => vec![Condition::PrefixSum { base: b.start }],
            };
            if !known {
                conditions.push(Condition::NotBefore { base: b.start });
            }
            match b.size {
                Some(_) => arena.rules.insert("group-of-list"),
                None => arena.rules.insert("prefix-sum-owner"),
            };
            let sequence = arena.var(VarKind::Coord(number), "seq", Range { lo: Some(0), hi: None });
            let s = arena.var_term(sequence);
            // A program id that numbers the sequences does so for everything else too, be their bounds cu[s], cu[s + 1] or
            // cu[s - 1], cu[s].
            let others = arena.sub(b.index, atom);
            let by_program =
                matches!(arena.node(atom), Node::Var(v) if matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_)));
            let value = if by_program && arena.as_int(others).is_some() { s } else { arena.sub(s, others) };
            let map = HashMap::from_iter([(atom, value)]);
            let (begin, end) = (arena.subst(b.begin, &map), arena.subst(b.end, &map));
            let owner = Owner { row: Some(row), sequence, begin, end, group: b.size.is_some() };
            return Some((owner, map, conditions));
        }
    }
    None
}

/// The row is itself a sequence of packed data: one of the coordinates is the index of its bounds.
pub fn own(arena: &mut Arena, roots: &[TermId], coordinates: &[(VarId, TermId)]) -> Option<(Owner, Condition)> {
    for b in bounds(arena, roots) {
        let sequence = coordinates.iter().find(|(_, t)| *t == b.index).map(|(v, _)| *v);
        if let (Some(sequence), None) = (sequence, b.size) {
            arena.rules.insert("prefix-sum-owner");
            let owner = Owner { row: None, sequence, begin: b.begin, end: b.end, group: false };
            return Some((owner, Condition::PrefixSum { base: b.start }));
        }
    }
    None
}

/// Pairs of loaded numbers of the forms `cu[s], cu[s + 1]`, `s == 0 ? 0 : cu[s - 1], cu[s]`, and `start[g], size[g]`.
fn bounds(arena: &mut Arena, roots: &[TermId]) -> Vec<Bounds> {
    let mut loads: Vec<(TermId, Load)> = Vec::new();
    let mut choices: Vec<(TermId, TermId, Load)> = Vec::new();
    for &r in roots {
        arena.walk(r, |t, n| match n {
            Node::Load(l)
                if arena.as_bool(l.mask) == Some(true)
                    && !arena.free_vars(l.offset).is_empty()
                    && !loads.contains(&(t, *l)) =>
            {
                loads.push((t, *l));
            }
            Node::Ite(c, zero, x) => {
                if let (Node::Eq0(s), Some(0), Node::Load(l)) = (arena.node(*c), arena.as_int(*zero), arena.node(*x))
                    && !choices.contains(&(t, *s, *l))
                {
                    choices.push((t, *s, *l));
                }
            }
            _ => {}
        });
    }
    let mut out = Vec::new();
    for &(begin, s, a) in &choices {
        let before = arena.add_const(s, -1);
        let at = loads.iter().find(|(_, b)| b.base == a.base && b.offset == s && a.offset == before);
        if let (Some(&(end, _)), Some(true)) = (at, arena.as_bool(a.mask)) {
            out.push(Bounds { begin, end, index: s, start: a.base, size: None });
        }
    }
    for &(begin, a) in &loads {
        let next = arena.add_const(a.offset, 1);
        for &(end, b) in &loads {
            if a.base == b.base && b.offset == next {
                out.push(Bounds { begin, end, index: a.offset, start: a.base, size: None });
            } else if a.base != b.base && b.offset == a.offset {
                out.push(Bounds { begin, end, index: a.offset, start: a.base, size: Some(b.base) });
            }
        }
    }
    out
}

/// The instance-dependent atom with coefficient one in the index into the prefix sums.
fn sequence_atom(arena: &Arena, offset: TermId) -> Option<TermId> {
    let p = arena.poly(offset);
    let inst: Vec<_> = p.terms.iter().filter(|(m, _)| m.iter().any(|&t| arena.has_instance(t))).collect();
    match inst.as_slice() {
        [(m, 1)] if m.len() == 1 => Some(m[0]),
        _ => None,
    }
}

/// True if a number hangs on the row only by its place in the sequence: where row and sequence begin later by the same amount, it is the same.
pub fn is_relative(arena: &mut Arena, o: &Owner, number: TermId) -> bool {
    if o.group || o.row.is_none() {
        return false;
    }
    let by = arena.var(VarKind::Coord(99), "later", Range::default());
    let by = arena.var_term(by);
    let later: HashMap<TermId, TermId> = o.relative().into_iter().map(|t| (t, arena.add(t, by))).collect();
    arena.subst(number, &later) == number
}

/// The home rule for what is read from where a sequence lies: `s * (begin + j) + rest` with `0 <= j < end - begin` is element `rest` of the
/// row `begin + j` of the sequence. `None` if the address does not name the bounds.
pub fn home_of_sequence(
    arena: &mut Arena,
    u: &LoadUse,
    o: &Owner,
    guarded: bool,
    planes: &Planes,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Option<Home> {
    let p = arena.poly(u.load.offset);
    let named = |m: &[TermId]| m.iter().any(|&t| o.is_bound(t));
    if o.group || !p.terms.iter().any(|(m, _)| named(m)) {
        return None;
    }
    let out = Home::Mixed(format!("may read outside of the sequence: {}", show(arena, u.load.offset)));
    let mut stride = Poly::default();
    for (m, k) in p.terms.iter().filter(|(m, _)| named(m)) {
        let mut rest = m.clone();
        rest.remove(m.iter().position(|&t| o.is_bound(t))?);
        if rest.iter().any(|&t| !is_param(arena, t)) {
            return Some(out);
        }
        stride = stride.add_scaled(&Poly { terms: vec![(rest, *k)] }, 1)?;
    }
    // The row's own number beside the bounds is a position, not an address of packed data.
    let by_row = o.row.is_some_and(|r| p.terms.iter().any(|(m, _)| m.contains(&r)));
    let [(factors, k)] = stride.terms.as_slice() else { return Some(out) };
    if by_row || *k <= 0 {
        return Some(out);
    }
    let s = arena.from_poly(stride.clone());
    let from = arena.mul(s, o.begin);
    let within = arena.sub(u.load.offset, from);
    let (mut rows, mut rest) = (Poly::default(), Poly::default());
    for (m, c) in arena.poly(within).terms {
        let mut left = m.clone();
        let whole = factors.iter().all(|f| left.iter().position(|t| t == f).map(|i| left.remove(i)).is_some());
        let part = if whole && c % k == 0 { Poly { terms: vec![(left, c / k)] } } else { Poly::default() };
        match part.terms.is_empty() {
            true => rest = rest.add_scaled(&Poly { terms: vec![(m, c)] }, 1)?,
            false => rows = rows.add_scaled(&part, 1)?,
        }
    }
    let j = arena.from_poly(rows);
    let len = arena.sub(o.end, o.begin);
    let room = arena.sub(len, j);
    let room = arena.add_const(room, -1);
    if !u.facts.proves_hard(arena, j) || !u.facts.proves_hard(arena, room) {
        return Some(out);
    }
    let row = arena.var(VarKind::Coord(99), "row", Range::default());
    let at = arena.var_term(row);
    let (at, rest) = (arena.mul(s, at), arena.from_poly(rest));
    let offset = arena.add(at, rest);
    let one = LoadUse { load: Load { offset, ..u.load }, ..u.clone() };
    Some(home(arena, &one, row, u.load.offset, guarded, planes, show))
}

//! The prefix-sum view: a packed batch of sequences, where `cu[s] <= row < cu[s + 1]` names the sequence of a row.
//!
//! The kernel computes s in some way from its program id (a binary search, a table). If the guard of the store implies
//! `cu[s] <= row < cu[s + 1]`, and cu does not decrease, then s is a function of the row and of cu, however it was computed; so s may
//! be replaced by a coordinate. That cu is a prefix sum is the user's to confirm: it is a printed condition.

use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Node, TermId, VarId, VarKind};

/// A row's sequence.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The row coordinate.
    pub row: TermId,
    /// The sequence coordinate.
    pub sequence: VarId,
    /// `cu[s]`.
    pub begin: TermId,
    /// `cu[s + 1]`.
    pub end: TermId,
    /// The pointer argument that holds the prefix sums.
    pub base: TermId,
}

/// Looks for a sequence of one of the coordinates `rows`; on success the substitution and the conditions.
pub fn find(
    arena: &mut Arena,
    facts: &Facts,
    roots: &[TermId],
    rows: &[TermId],
    number: u32,
) -> Option<(Owner, HashMap<TermId, TermId>, Vec<Condition>)> {
    let mut loads = Vec::new();
    for &r in roots {
        arena.walk(r, |t, n| {
            if let Node::Load(l) = n
                && !loads.contains(&(t, *l))
            {
                loads.push((t, *l));
            }
        });
    }
    for &(begin, a) in &loads {
        if !arena.has_instance(a.offset) {
            continue;
        }
        for &(end, b) in &loads {
            let step = arena.sub(b.offset, a.offset);
            let plain = arena.as_bool(a.mask) == Some(true) && arena.as_bool(b.mask) == Some(true);
            if a.base != b.base || arena.as_int(step) != Some(1) || !plain {
                continue;
            }
            for &row in rows {
                let room = arena.sub(end, row);
                let room = arena.add_const(room, -1);
                if !facts.proves(arena, room) {
                    continue;
                }
                let Some(atom) = sequence_atom(arena, a.offset) else { continue };
                let above = arena.sub(row, begin);
                let mut conditions = vec![Condition::PrefixSum { base: a.base }];
                if !facts.proves(arena, above) {
                    conditions.push(Condition::NotBefore { base: a.base });
                }
                arena.rules.insert("prefix-sum-owner");
                let range = crate::term::Range { lo: Some(0), hi: None };
                let sequence = arena.var(VarKind::Coord(number), "seq", range);
                let s = arena.var_term(sequence);
                // A program id that numbers the sequences does so for everything else too, be their bounds cu[s], cu[s + 1] or
                // cu[s - 1], cu[s].
                let others = arena.sub(a.offset, atom);
                let by_program = matches!(arena.node(atom), Node::Var(v) if matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_)));
                let value = if by_program && arena.as_int(others).is_some() { s } else { arena.sub(s, others) };
                let map = HashMap::from_iter([(atom, value)]);
                let (begin, end) = (arena.subst(begin, &map), arena.subst(end, &map));
                return Some((Owner { row, sequence, begin, end, base: a.base }, map, conditions));
            }
        }
    }
    None
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

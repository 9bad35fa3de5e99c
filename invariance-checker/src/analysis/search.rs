//! A binary search over prefix sums: the sequence of a row without a guard that shows it.

use super::owner::Owner;
use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Load, Node, TermId, VarKind};

/// The sequence that a binary search over prefix sums finds for a row: the loop `while l < r { m = (l + r) / 2; if cu[m] <= row
/// { l = m + 1 } else { r = m } }` from `l = 0` ends with l = r, the least index with `cu[l] > row` (or the number of sequences, if there is
/// none). As cu does not decrease, `cu[l - 1] <= row < cu[l]`: the result is 1 + the row's sequence, whatever the number of sequences.
pub fn find(
    arena: &mut Arena,
    root: TermId,
    rows: &[TermId],
    number: u32,
) -> Option<(Owner, HashMap<TermId, TermId>, Vec<Condition>)> {
    let mut searches: Vec<TermId> = Vec::new();
    arena.walk(root, |t, n| {
        if matches!(n, Node::Fold(f) if f.while_cond.is_some()) {
            searches.push(t);
        }
    });
    for t in searches {
        let Some((row, load)) = searched(arena, t) else { continue };
        if !rows.contains(&row) {
            continue;
        }
        arena.rules.insert("search-of-prefix-sums");
        let range = crate::term::Range { lo: Some(0), hi: None };
        let sequence = arena.var(VarKind::Coord(number), "seq", range);
        let s = arena.var_term(sequence);
        let next = arena.add_const(s, 1);
        let map = HashMap::from_iter([(t, next)]);
        let [begin, end] = [s, next].map(|offset| arena.load(Load { offset, ..load }, crate::term::Sort::Int));
        let conditions = vec![Condition::PrefixSum { base: load.base }];
        return Some((Owner { row: Some(row), sequence, begin, end, group: false }, map, conditions));
    }
    None
}

/// The row and the load `cu[m]` of a loop that is such a search.
fn searched(arena: &mut Arena, t: TermId) -> Option<(TermId, Load)> {
    let Node::Fold(f) = arena.node(t).clone() else { return None };
    let [x, y] = f.slots.as_slice() else { return None };
    let carry = |arena: &mut Arena, i: u32| arena.intern(Node::Carry(f.binder, i, vec![]), crate::term::Sort::Int);
    let carries = [carry(arena, 0), carry(arena, 1)];
    // The result is either end: the loop leaves with both equal.
    let zero_first = arena.as_int(x.init) == Some(0);
    let (left, right, low, high) =
        if zero_first { (carries[0], carries[1], x, y) } else { (carries[1], carries[0], y, x) };
    if arena.as_int(low.init) != Some(0) || !super::usage::is_param(arena, high.init) {
        return None;
    }
    let go = arena.lt(left, right);
    if f.while_cond != Some(go) {
        return None;
    }
    let (sum, two) = (arena.add(left, right), arena.int(2));
    let middles = [arena.tdiv(sum, two), arena.div(sum, two)];
    let Node::Ite(c, yes, no) = *arena.node(low.body) else { return None };
    let middle = middles.into_iter().find(|m| {
        let up = arena.add_const(*m, 1);
        [yes, no].contains(&up)
    })?;
    let up = arena.add_const(middle, 1);
    let found = if yes == up { c } else { arena.not(c) };
    let (want_low, want_high) = (arena.ite(found, up, left), arena.ite(found, right, middle));
    if low.body != want_low || high.body != want_high {
        return None;
    }
    // cu[m] <= row.
    let Node::Ge0(p) = *arena.node(found) else { return None };
    let poly = arena.poly(p);
    let at = poly.terms.iter().find_map(|(m, k)| match m.as_slice() {
        [l] if *k == -1 => match arena.node(*l) {
            Node::Load(load) if load.offset == middle && matches!(arena.node(load.base), Node::ArgPtr(_)) => {
                Some((*l, *load))
            }
            _ => None,
        },
        _ => None,
    });
    let (l, load) = at.filter(|(_, load)| arena.as_bool(load.mask) == Some(true) && load.epoch == 0)?;
    let row = arena.add(p, l);
    (!arena.contains_var(row, f.binder)).then_some((row, load))
}

//! Rows that a list names: `out[list[p]]` is the row of place p. What the host knows of such a list.

use super::address::outside_of_loads;
use super::judge::Judged;
use super::site::Solved;
use super::usage::{LoadUse, Role};
use super::verdict::{Condition, Problem};
use crate::term::{Arena, Node, Poly, Sort, TermId, VarId};

/// The coordinates that number places: whoever lists rows means those of the batch.
pub(super) fn rows(j: &Judged<'_>) -> Vec<VarId> {
    j.solved.coords.list.iter().filter(|c| c.listed).map(|c| c.var).collect()
}

/// A part of the guard that says no more than that the row exists: how long the list is (`p < n[0]`, with n a number in memory), which of
/// its entries count (`list[p] < n`), or which places the row's group has.
pub(super) fn exists(arena: &Arena, solved: &Solved<'_>, c: TermId) -> bool {
    let Node::Ge0(room) = *arena.node(c) else { return false };
    let p = arena.poly(room);
    let place = |t: &TermId| solved.coords.list.iter().any(|c| c.listed && c.term == *t);
    let count = |t: &TermId| {
        matches!(arena.node(*t), Node::Load(l) if arena.free_vars(l.offset).is_empty() && l.epoch == 0
            && arena.as_bool(l.mask) == Some(true))
    };
    let lists = |base: TermId| solved.conditions.contains(&Condition::Distinct { base });
    let entry = |t: &TermId| {
        matches!(arena.node(*t), Node::Load(l) if lists(l.base) && arena.as_bool(l.mask) == Some(true)
            && arena.poly(l.offset).terms.iter().all(|(m, _)| m.is_empty() || matches!(m.as_slice(), [t] if place(t))))
    };
    let each = |f: &dyn Fn(&TermId, i128) -> bool| {
        p.terms.iter().all(|(m, k)| match m.as_slice() {
            [] => true,
            [t] => f(t, *k),
            _ => false,
        })
    };
    each(&|t, k| k < 0 && place(t) || k == 1 && count(t))
        || each(&|t, k| k == -1 && entry(t) || k == 1 && matches!(arena.node(*t), Node::Arg(_)))
        || of_group(solved, &p)
}

/// `start <= p` or `p < start + size`, and nothing else.
fn of_group(solved: &Solved<'_>, room: &Poly) -> bool {
    let Some(o) = solved.owner.as_ref().filter(|o| o.group) else { return false };
    let Some(place) = o.row else { return false };
    let is = |parts: &[(TermId, i128)], constant: i128| {
        room.terms.len() == parts.len() + usize::from(constant != 0)
            && room.constant_part() == constant
            && parts.iter().all(|(t, k)| room.coeff(&[*t]) == *k)
    };
    is(&[(place, 1), (o.begin, -1)], 0) || is(&[(place, -1), (o.begin, 1), (o.end, 1)], -1)
}

/// Places that are numbered by two digits, block and place in the block. What is read by one of them alone is shared by the rows of a
/// block, or depends on the place: not the row's own. An integer of the block that only places or selects may be the number of every row
/// that is listed there (its expert), if the host says so.
pub(super) fn blocks(arena: &mut Arena, j: &mut Judged<'_>) {
    let list = j.solved.coords.list.clone();
    let mut mixed: Vec<(TermId, &str)> = Vec::new();
    for (i, high) in list.iter().enumerate().filter(|(_, c)| c.listed) {
        for low in list[i + 1..].iter().filter(|l| l.listed && l.stride == high.stride) {
            let places = high.packed.map_or(0, |p| p.at);
            for u in &j.usage.loads {
                let by_high = outside_of_loads(arena, u.load.offset, high.var);
                if by_high == outside_of_loads(arena, u.load.offset, low.var) {
                    continue;
                }
                match by_high {
                    // The list itself names each row: no entry of it is that of a whole block.
                    true if selects(arena, u) && !j.conditions.contains(&Condition::Distinct { base: u.load.base }) => {
                        j.conditions.insert(Condition::OwnerOfBlock { base: u.load.base, places });
                        arena.rules.insert("owner-of-block");
                    }
                    true => mixed.push((u.load.base, "is shared by the rows of a block")),
                    false => mixed.push((u.load.base, "is read at the place of a row in its block")),
                }
            }
        }
    }
    for (base, why) in mixed {
        let p = Problem::Mixed { base, why: why.into() };
        if !j.problems.contains(&p) {
            j.problems.push(p);
        }
    }
}

/// An integer that is used in addresses, masks and branches alone.
fn selects(arena: &Arena, u: &LoadUse) -> bool {
    arena.sort(u.term) == Sort::Int && matches!(u.role, Role::Index | Role::Tree)
}

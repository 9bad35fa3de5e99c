//! Rows that were taken apart into digits: what shows that the high digit is the row, and when its size is a condition.

use super::coords::Coord;
use super::judge::Judged;
use super::verdict::{Condition, Problem};
use crate::term::{Arena, Node, TermId, VarId};
use std::collections::BTreeSet;

/// A row that is a digit above other coordinates: what lies below may be columns or rows of a tile. Columns show themselves as the
/// index into data that all rows share (a weight, a table), and the row as what an argument strides over in all that is read; otherwise
/// the size of the row is a condition. Where a declared batch argument counts the digit below one by one, that digit numbers rows, and the
/// one above tiles of them.
pub(super) fn packed_rows(arena: &mut Arena, j: &mut Judged<'_>, declared: &BTreeSet<TermId>) {
    let list = j.solved.coords.list.clone();
    for (i, c) in list.iter().enumerate() {
        let Some(packed) = c.packed.filter(|_| j.rows.contains(&c.var) && !c.listed) else { continue };
        let column = |arena: &Arena, low: TermId| {
            j.usage.loads.iter().any(|u| {
                !j.by_row.contains(&u.load.base)
                    && arena.poly(u.load.offset).terms.iter().any(|(m, _)| m.as_slice() == [low])
            })
        };
        let counted = |arena: &Arena, low: TermId| {
            arena.conjuncts(j.solved.guard).iter().any(|&part| {
                let Node::Ge0(p) = *arena.node(part) else { return false };
                let p = arena.poly(p);
                let (step, above) = (-p.coeff(&[low]), -p.coeff(&[c.term]));
                step > 0 && above > 0 && declared.iter().any(|&t| p.coeff(&[t]) == step)
            })
        };
        let numbered = numbered_by_argument(arena, j, c.var);
        let below = || list[i + 1..].iter().filter(|l| l.stride == c.stride);
        if numbered && below().any(|l| !column(arena, l.term)) {
            arena.rules.insert("row-by-stride");
        }
        if below().next().is_some_and(|l| rejoined(arena, j.solved.value, c, l)) {
            continue;
        }
        if below().any(|l| counted(arena, l.term)) {
            let coordinate = arena.show(c.definition, &|i| format!("arg{i}"));
            j.problems.push(Problem::Instance { vars: format!("the tile of rows {coordinate}") });
        } else if below().any(|l| !numbered && !column(arena, l.term)) {
            j.conditions.insert(Condition::Packed { outputs: packed.outputs, stride: c.stride.clone() });
        }
    }
    for c in &list {
        if c.remainder && j.usage.indexed.contains_key(&c.var) {
            let coordinate = arena.show(c.definition, &|i| format!("arg{i}"));
            j.problems.push(Problem::Index { coordinate });
        }
    }
}

/// Everything that is read by row `c` has one argument as the stride of the row and nothing else that an argument multiplies: it says
/// that the rows of what is read are numbered by c, whatever their length, and then what is stored for one of them is its row.
fn numbered_by_argument(arena: &mut Arena, j: &Judged<'_>, c: VarId) -> bool {
    let ct = arena.var_term(c);
    let mut found = false;
    for u in j.usage.loads.iter().filter(|u| arena.contains_var(u.load.offset, c)) {
        let p = arena.poly(u.load.offset);
        let (of_row, rest): (Vec<_>, Vec<_>) = p.terms.iter().partition(|(m, _)| m.contains(&ct));
        let by_argument = matches!(of_row.as_slice(), [(m, 1)]
            if m.len() == 2 && m.iter().any(|&t| matches!(arena.node(t), Node::Arg(_))));
        let plain = |arena: &Arena, m: &[TermId]| {
            m.iter().all(|&t| !super::usage::is_param(arena, t) && !arena.contains_var(t, c))
        };
        if !by_argument || !rest.iter().all(|(m, _)| plain(arena, m)) {
            return false;
        }
        found = true;
    }
    found
}

/// True if the value sees the two digits only as the number that they were split from.
fn rejoined(arena: &mut Arena, value: TermId, high: &Coord, low: &Coord) -> bool {
    if low.factor == 0 || high.factor % low.factor != 0 {
        return false;
    }
    // With `low = whole - k*high` the high digit cancels wherever the whole number was meant.
    let rest = arena.add_scaled(low.term, high.term, -(high.factor / low.factor));
    let map = crate::term::Map::from_iter([(low.term, rest)]);
    let value = arena.subst(value, &map);
    !arena.contains_var(value, high.var)
}

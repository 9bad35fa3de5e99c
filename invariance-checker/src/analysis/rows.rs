//! Which coordinates of an output number the rows of the batch.

use super::coords::Coord;
use super::home::{Home, home, planes_of};
use super::judge::Judged;
use super::listed;
use super::site::{Solved, instances};
use super::verdict::Problem;
use crate::eval::Evaluator;
use crate::term::{Arena, Node, TermId, VarId, VarKind};
use std::collections::BTreeSet;

/// True if the guard limits an inner coordinate by an argument or a loaded number: `c < N`. That a part of the work is not empty
/// (`c*w < n` with w computed from n) says nothing about the length of a row, nor does where a program lies.
pub fn inner_guarded(arena: &Arena, solved: &Solved<'_>) -> bool {
    let inner: Vec<TermId> = solved.coords.list.iter().skip(1).map(|c| c.term).collect();
    let inner = if inner.is_empty() { solved.coords.list.iter().map(|c| c.term).collect() } else { inner };
    arena.conjuncts(solved.guard).iter().any(|&c| {
        let limits = match *arena.node(c) {
            Node::Ge0(p) => inner.iter().any(|t| arena.poly(p).coeff(&[*t]) != 0),
            _ => inner.iter().any(|t| arena.free_vars(*t).iter().any(|v| arena.contains_var(c, *v))),
        };
        limits && !arena.has_instance(c) && arena.any(c, |n| matches!(n, Node::Arg(_) | Node::Load(_)))
    })
}

/// Arguments that the guard compares a coordinate with.
pub(super) fn guard_params(arena: &Arena, solved: &Solved<'_>, c: VarId) -> BTreeSet<TermId> {
    let mut out = BTreeSet::new();
    for part in arena.conjuncts(solved.guard) {
        // Where a program lies says which elements it makes, not how many there are.
        let (args, vars) = compared(arena, part);
        if vars.contains(&c) && !arena.has_instance(part) {
            out.extend(args);
        }
    }
    out
}

/// Arguments and variables of a condition, but for those that only say where something is read.
fn compared(arena: &Arena, condition: TermId) -> (BTreeSet<TermId>, BTreeSet<VarId>) {
    let (mut args, mut vars) = (BTreeSet::new(), BTreeSet::new());
    arena.walk_while(condition, |t, n| {
        match n {
            Node::Arg(_) => {
                args.insert(t);
            }
            Node::Var(v) => {
                vars.insert(*v);
            }
            _ => {}
        }
        !matches!(n, Node::Load(_))
    });
    (args, vars)
}

/// The batch coordinates: those that a declared batch argument limits; else the outermost one that follows the rule.
pub(super) fn pick_rows(
    e: &mut Evaluator<'_>,
    j: &Judged<'_>,
    declared: &BTreeSet<TermId>,
    guarded: bool,
    summed: &[VarId],
) -> Vec<VarId> {
    if let Some(o) = &j.solved.owner
        && let Some(row) = j.solved.coords.list.iter().find(|c| Some(c.term) == o.row)
    {
        return vec![row.var, o.sequence];
    }
    let mut rows = rows_by_address(e, j, declared, guarded, summed);
    let sequence = j.solved.owner.as_ref().map(|o| o.sequence);
    rows.extend(sequence.filter(|s| !rows.contains(s)));
    rows
}

fn rows_by_address(
    e: &mut Evaluator<'_>,
    j: &Judged<'_>,
    declared: &BTreeSet<TermId>,
    guarded: bool,
    summed: &[VarId],
) -> Vec<VarId> {
    let by_guard: Vec<VarId> = j
        .solved
        .coords
        .list
        .iter()
        .filter(|c| !c.remainder)
        .filter(|c| {
            !guard_params(&e.arena, &j.solved, c.var).is_disjoint(declared) || counted_by_stride(j, c, declared)
        })
        .map(|c| c.var)
        .collect();
    let name = |a: &Arena, t: TermId| a.show(t, &|i| format!("arg{i}"));
    let planes = planes_of(&mut e.arena, &j.usage.loads);
    // A coordinate that only a compound bound limits (flat < M*N) is one of several factors: fine, it is the row.
    if let Some(first) = by_guard.first() {
        // Where the declared argument limits several coordinates, each that is used as a row counts.
        let used: Vec<VarId> = by_guard
            .iter()
            .copied()
            .filter(|c| {
                j.usage
                    .loads
                    .iter()
                    .any(|u| home(&mut e.arena, u, *c, j.solved.offset, guarded, &planes, &name) != Home::Absent)
            })
            .collect();
        let mut rows = if used.is_empty() { vec![*first] } else { used };
        rows.extend(listed::rows(j).into_iter().filter(|c| !by_guard.contains(c)));
        return rows;
    }
    let listed = listed::rows(j);
    if !listed.is_empty() {
        return listed;
    }
    let mut skipped = Vec::new();
    // A row of the batch is found through the program id (or a ticket), not by a loop or a lane alone.
    let by_program = |c: &Coord| {
        e.arena.any(c.definition, |n| match n {
            Node::Var(v) => matches!(e.arena.vars[v.0 as usize].kind, VarKind::Pid(_)),
            _ => false,
        })
    };
    // What an atomic combines over is no row: the bins of a histogram over all programs belong to the whole batch.
    let combined = |c: &Coord| {
        let vars = instances(&e.arena, c.definition);
        !summed.is_empty() && vars.iter().all(|v| summed.contains(v))
    };
    let placed: Vec<bool> = j.solved.coords.list.iter().map(|c| by_program(c) && !combined(c)).collect();
    let any = placed.contains(&true) || j.solved.coords.list.iter().any(combined);
    for (c, by_program) in j.solved.coords.list.iter().zip(placed) {
        if any && !by_program {
            continue;
        }
        let follows = j
            .usage
            .loads
            .iter()
            .any(|u| home(&mut e.arena, u, c.var, j.solved.offset, guarded, &planes, &name) != Home::Absent);
        if follows || !j.usage.indexed.contains_key(&c.var) {
            skipped.push(c.var);
            return skipped;
        }
        skipped.push(c.var);
    }
    skipped
}

/// Where the stride of another coordinate is that of this one times a number of rows, this one numbers rows: r of `k*M + r`.
fn counted_by_stride(j: &Judged<'_>, c: &Coord, counts: &BTreeSet<TermId>) -> bool {
    j.solved.coords.list.iter().any(|above| {
        let mut left = above.stride.clone();
        let inside = c.stride.iter().all(|t| left.iter().position(|x| x == t).map(|i| left.remove(i)).is_some());
        inside && matches!(left.as_slice(), [t] if counts.contains(t))
    })
}

/// The number of a row that enters the value.
pub(super) fn index_problems(j: &mut Judged<'_>) {
    for &c in &j.rows {
        if j.usage.indexed.contains_key(&c) {
            let def = j.solved.coords.list.iter().position(|x| x.var == c);
            let coordinate = def.map_or_else(|| "seq".to_owned(), |i| j.coordinates[i].clone());
            j.problems.push(Problem::Index { coordinate });
        }
    }
}

//! Integer terms of one launch as numbers: coordinates, arguments, the grid, and integers that the launch finds in memory.

use super::fill::Trial;
use crate::interp::{Buffer, Memory};
use crate::term::{Arena, Load, Node, Poly, TermId, VarId};
use std::collections::HashMap;

/// Where the numbers come from.
pub(crate) struct Env<'a> {
    /// Coordinates and instance variables.
    pub vars: HashMap<VarId, i128>,
    /// Arguments and grid.
    pub trial: &'a Trial,
    /// Memory before the launch; without it nothing that is loaded is known.
    pub memory: Option<(&'a Memory, &'a HashMap<u32, Buffer>)>,
}

impl<'a> Env<'a> {
    /// Without memory.
    pub fn new(vars: &HashMap<VarId, i128>, trial: &'a Trial) -> Env<'a> {
        Env { vars: vars.clone(), trial, memory: None }
    }
}

/// The value of an integer term; `None` if it hangs on something that has no number here.
pub(crate) fn number(arena: &Arena, t: TermId, env: &Env<'_>) -> Option<i128> {
    let sub = |t: &TermId| number(arena, *t, env);
    Some(match arena.node(t) {
        Node::Poly(p) => polynomial(arena, p, env)?,
        Node::Var(v) => *env.vars.get(v)?,
        Node::Arg(i) => i128::from(*env.trial.ints.get(i)?),
        Node::NumPrograms(axis) => i128::from(env.trial.grid[*axis as usize]),
        Node::Div(a, b) => sub(a)?.checked_div_euclid(sub(b).filter(|b| *b > 0)?)?,
        Node::Mod(a, b) => sub(a)?.checked_rem_euclid(sub(b).filter(|b| *b > 0)?)?,
        Node::TDiv(a, b) => sub(a)?.checked_div(sub(b)?)?,
        Node::TRem(a, b) => sub(a)?.checked_rem(sub(b)?)?,
        Node::Min(a, b) => sub(a)?.min(sub(b)?),
        Node::Max(a, b) => sub(a)?.max(sub(b)?),
        Node::Ite(c, a, b) => match truth(arena, *c, env)? {
            true => sub(a)?,
            false => sub(b)?,
        },
        Node::Load(l) => loaded(arena, l, env)?,
        _ => return None,
    })
}

/// What an integer load reads; not of memory that the kernel writes.
fn loaded(arena: &Arena, l: &Load, env: &Env<'_>) -> Option<i128> {
    let (memory, buffers) = env.memory.filter(|_| l.epoch == 0)?;
    if !truth(arena, l.mask, env)? {
        return number(arena, l.other, env);
    }
    let Node::ArgPtr(i) = *arena.node(l.base) else { return None };
    let at = usize::try_from(number(arena, l.offset, env)?).ok()?;
    memory.int_at(*buffers.get(&i)?, at).map(i128::from)
}

fn polynomial(arena: &Arena, p: &Poly, env: &Env<'_>) -> Option<i128> {
    let mut sum = 0i128;
    for (factors, coefficient) in &p.terms {
        let mut part = *coefficient;
        for x in factors {
            part = part.checked_mul(number(arena, *x, env)?)?;
        }
        sum = sum.checked_add(part)?;
    }
    Some(sum)
}

/// Whether a condition holds; `None` if it hangs on something that has no number here.
pub(crate) fn truth(arena: &Arena, t: TermId, env: &Env<'_>) -> Option<bool> {
    match arena.node(t) {
        Node::Bool(b) => Some(*b),
        Node::Ge0(p) => number(arena, *p, env).map(|n| n >= 0),
        Node::Eq0(p) => number(arena, *p, env).map(|n| n == 0),
        Node::Not(x) => truth(arena, *x, env).map(|b| !b),
        Node::And(ts) => ts.iter().try_fold(true, |b, t| Some(b && truth(arena, *t, env)?)),
        Node::Or(ts) => ts.iter().try_fold(false, |b, t| Some(b || truth(arena, *t, env)?)),
        _ => None,
    }
}

//! Witnesses: two concrete launches, run in the interpreter, that store different bits for one logical element.
//!
//! What was not proved says what to change (a batch argument, the grid, the other rows, the place of a row, the order of programs).
//! Everything that belongs to the row stays the same, memory is filled with floats whose order of addition shows, and the same
//! logical element is compared. Nothing found within the budget means UNKNOWN, not VARIANT.

mod attack;
mod fill;
mod sides;

use crate::analysis::measure::{Holds, Numbers, holds};
use crate::analysis::{Analysis, Problem};
use crate::eval::Evaluator;
use crate::interp::{Buffer, Launch, Memory, Options, run};
use crate::ir::Module;
use crate::term::{Arena, Node, Poly, TermId, VarId, VarKind};
use attack::{Attack, attacks};
use fill::{Plan, Trial};
use std::collections::HashMap;
use std::time::Duration;

pub use sides::Sides;

/// Two launches that differ.
#[derive(Clone, Debug)]
pub struct Witness {
    /// What was changed between them.
    pub change: String,
    /// The first launch, as text: arguments and grid.
    pub first: String,
    /// The second.
    pub second: String,
    /// Which output pointer.
    pub pointer: u32,
    /// Which element of it, in the first launch.
    pub element: usize,
    /// Its coordinates, where they are known.
    pub coordinates: Vec<(String, i128)>,
    /// The bits in the first and the second launch.
    pub bits: (u64, u64),
    /// The trees of the element in the two launches.
    pub sides: Sides,
}

/// An element that differs.
struct Found {
    pointer: u32,
    /// Which site wrote it, if that is known.
    site: Option<usize>,
    /// Where it lies in each launch.
    elements: [usize; 2],
    /// Its coordinates in each launch, where they are known.
    points: [HashMap<VarId, i128>; 2],
    bits: (u64, u64),
}

/// Looks for a witness against one of the problems.
pub fn search(
    e: &mut Evaluator<'_>,
    a: &Analysis<'_>,
    batch_pointers: &[u32],
    budget: Duration,
) -> Option<(Witness, Problem)> {
    // CPU time, so that other load on the machine does not decide.
    let start = cpu_time::ThreadTime::now();
    let plan = Plan::new(e, a)?;
    let list = attacks(e, a, batch_pointers);
    for round in 0..60u64 {
        for (i, (attack, problem)) in list.iter().enumerate() {
            if start.elapsed() > budget {
                return None;
            }
            let seed = round * 1000 + i as u64;
            if let Some(w) = try_one(e, a, &plan, attack, seed) {
                return Some((w, problem.clone()));
            }
        }
        if list.is_empty() {
            return None;
        }
    }
    None
}

fn options() -> Options {
    Options { max_steps: 40_000_000, max_live: 1 << 22, ..Options::default() }
}

/// What a launch left in the output pointers.
struct Ran {
    outputs: HashMap<u32, Output>,
}

/// One output pointer.
struct Output {
    /// Its bytes before the launch.
    before: Vec<u8>,
    /// The same after it.
    after: Vec<u8>,
    /// Bytes of an element.
    size: usize,
}

impl Output {
    /// The bits of an element that the launch changed.
    fn written(&self, at: usize) -> Option<u64> {
        let range = at.checked_mul(self.size)?..at.checked_add(1)?.checked_mul(self.size)?;
        let (before, after) = (self.before.get(range.clone())?, self.after.get(range)?);
        let mut word = [0; 8];
        word[..self.size].copy_from_slice(after);
        (before != after).then_some(u64::from_le_bytes(word))
    }
}

impl Ran {
    fn written(&self, pointer: u32, at: usize) -> Option<u64> {
        self.outputs.get(&pointer)?.written(at)
    }

    /// Both launches left the same.
    fn agrees(&self, other: &Ran) -> bool {
        self.outputs.iter().all(|(o, x)| other.outputs.get(o).is_some_and(|y| x.after == y.after))
    }
}

fn run_trial(module: &Module, plan: &Plan, trial: &Trial, options: &Options) -> Option<Ran> {
    let mut memory = Memory::new();
    let (launch, buffers): (Launch, _) = fill::build(plan, trial, &mut memory)?;
    let written: Vec<(u32, Buffer)> = plan.outputs.iter().filter_map(|o| Some((*o, *buffers.get(o)?))).collect();
    let before: Vec<Vec<u8>> = written.iter().map(|(_, b)| memory.bytes(*b).to_vec()).collect();
    run(module, &launch, &mut memory, options).ok()?;
    let outputs = written.into_iter().zip(before).map(|((o, buffer), before)| {
        let after = memory.bytes(buffer).to_vec();
        (o, Output { before, after, size: memory.elem(buffer).bytes() })
    });
    Some(Ran { outputs: outputs.collect() })
}

fn try_one(e: &mut Evaluator<'_>, a: &Analysis<'_>, plan: &Plan, attack: &Attack, seed: u64) -> Option<Witness> {
    let mut first = plan.trial(seed);
    let (mut opt_a, mut opt_b) = (options(), options());
    opt_a.order = crate::interp::ProgramOrder::Ascending;
    attack.prepare(plan, &mut first);
    let mut second = first.clone();
    if !attack.apply(e, a, plan, &mut first, &mut second, (&mut opt_a, &mut opt_b), seed) {
        return None;
    }
    let x = run_trial(e.module, plan, &first, &opt_a)?;
    let y = match attack {
        Attack::Move { .. } => None,
        _ => Some(run_trial(e.module, plan, &second, &opt_b)?),
    };
    let found = compare(e, a, plan, attack, (&first, &second), &x, y.as_ref().unwrap_or(&x))?;
    if !fair(e, a, plan, attack, [(&first, &opt_a), (&second, &opt_b)]) {
        return None;
    }
    let other = if y.is_some() { (&second, &opt_b) } else { (&first, &opt_a) };
    let mut coordinates: Vec<(String, i128)> =
        found.points[0].iter().map(|(v, n)| (e.arena.vars[v.0 as usize].name.clone(), *n)).collect();
    coordinates.sort();
    Some(Witness {
        change: attack.describe(plan, &first, &second),
        first: plan.describe(&first, &opt_a),
        second: plan.describe(other.0, other.1),
        pointer: found.pointer,
        element: found.elements[0],
        coordinates,
        bits: found.bits,
        sides: sides::sides(e, a, plan, attack, &found, [(&first, &opt_a), other]),
    })
}

/// True if a host could make these launches: rows lie apart as the conditions on the layout say, and, unless the order of programs is what
/// is shown, no two programs write different bits to one element.
fn fair(
    e: &mut Evaluator<'_>,
    a: &Analysis<'_>,
    plan: &Plan,
    attack: &Attack,
    launches: [(&Trial, &Options); 2],
) -> bool {
    for (trial, _) in launches {
        let numbers = Numbers { ints: trial.ints.clone(), grid: trial.grid };
        for j in &a.sites {
            for (condition, facts) in &j.rooms {
                let room = condition.room().expect("only those with room are kept");
                if condition.is_layout() && holds(&mut e.arena, room, facts, &numbers, 6) == Holds::No {
                    return false;
                }
            }
        }
    }
    let plain = a.effects.sites.iter().all(|s| {
        let loads = e.arena.any(s.offset, |n| matches!(n, Node::Load(_)));
        !loads && plan.tiers.values().all(|t| *t < 2)
    });
    // Without atomics, the order shows only where programs write one element, which rows that were guessed wrong may do.
    let order_counts = attack::ordered(a) || plain;
    match attack {
        Attack::Order => return order_counts,
        Attack::Undefined => return true,
        _ => {}
    }
    let by_order = |p: &Problem| matches!(p, Problem::Schedule { .. } | Problem::Instance { .. });
    if !order_counts && reads_back(a) {
        // Places that data decides may meet, and each program that meets there adds its part.
        return false;
    }
    let suspected = a.sites.iter().flat_map(|j| &j.problems).chain(&a.problems).any(by_order);
    launches.into_iter().all(|(trial, opt)| {
        let back = Options { order: crate::interp::ProgramOrder::Descending, ..opt.clone() };
        match (run_trial(e.module, plan, trial, opt), run_trial(e.module, plan, trial, &back)) {
            (Some(x), Some(y)) => x.agrees(&y) || order_counts && suspected,
            _ => false,
        }
    })
}

/// The kernel reads memory that it writes.
fn reads_back(a: &Analysis<'_>) -> bool {
    a.sites.iter().flat_map(|j| &j.usage.loads).any(|u| u.load.epoch > 0)
}

/// Environment for numbers: coordinates, arguments, grid.
pub(crate) struct Env<'a> {
    pub vars: HashMap<VarId, i128>,
    pub trial: &'a Trial,
}

/// The value of an integer term without loads.
pub(crate) fn number(arena: &Arena, t: TermId, env: &Env<'_>) -> Option<i128> {
    let sub = |t: &TermId| number(arena, *t, env);
    Some(match arena.node(t) {
        Node::Poly(p) => polynomial(arena, p, env)?,
        Node::Var(v) => *env.vars.get(v)?,
        Node::Arg(i) => i128::from(*env.trial.ints.get(i)?),
        Node::NumPrograms(axis) => i128::from(env.trial.grid[*axis as usize]),
        Node::Div(a, b) => sub(a)?.checked_div_euclid(sub(b)?).filter(|_| sub(b).is_some_and(|b| b > 0))?,
        Node::Mod(a, b) => sub(a)?.checked_rem_euclid(sub(b)?).filter(|_| sub(b).is_some_and(|b| b > 0))?,
        Node::TDiv(a, b) => sub(a)?.checked_div(sub(b)?)?,
        Node::TRem(a, b) => sub(a)?.checked_rem(sub(b)?)?,
        Node::Min(a, b) => sub(a)?.min(sub(b)?),
        Node::Max(a, b) => sub(a)?.max(sub(b)?),
        _ => return None,
    })
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

fn compare(
    e: &Evaluator<'_>,
    a: &Analysis<'_>,
    plan: &Plan,
    attack: &Attack,
    (first, second): (&Trial, &Trial),
    x: &Ran,
    y: &Ran,
) -> Option<Found> {
    // By coordinates where they are known.
    for (site, j) in a.sites.iter().enumerate() {
        let Node::ArgPtr(o) = *e.arena.node(j.solved.site.base) else { continue };
        for point in points(j, attack) {
            let env = |trial, p: &HashMap<VarId, i128>| Env { vars: p.clone(), trial };
            let (p, q) = attack.pair(j, &point);
            if !exists(&e.arena, j, &env(first, &p)) || !exists(&e.arena, j, &env(second, &q)) {
                continue;
            }
            let at = number(&e.arena, j.solved.offset, &env(first, &p)).and_then(|n| usize::try_from(n).ok());
            let bt = number(&e.arena, j.solved.offset, &env(second, &q)).and_then(|n| usize::try_from(n).ok());
            let (Some(at), Some(bt)) = (at, bt) else { continue };
            if let (Some(u), Some(v)) = (x.written(o, at), y.written(o, bt))
                && u != v
                && !plan.both_nan(o, u, v)
            {
                return Some(Found { pointer: o, site: Some(site), elements: [at, bt], points: [p, q], bits: (u, v) });
            }
        }
    }
    if !attack.by_address(e, a) {
        return None;
    }
    for &o in &plan.outputs {
        let (left, right) = (x.outputs.get(&o)?, y.outputs.get(&o)?);
        if left.after == right.after {
            continue;
        }
        for at in 0..left.after.len() / left.size {
            if let (Some(u), Some(v)) = (x.written(o, at), y.written(o, at))
                && u != v
                && !plan.both_nan(o, u, v)
            {
                return Some(Found {
                    pointer: o,
                    site: None,
                    elements: [at, at],
                    points: [HashMap::new(), HashMap::new()],
                    bits: (u, v),
                });
            }
        }
    }
    None
}

/// True if the guard admits the element and a program of the grid makes it, as far as that can be computed; a condition on an inner coordinate
/// must be known to hold, or the address could be that of another row's element.
fn exists(arena: &Arena, j: &crate::analysis::Judged<'_>, env: &Env<'_>) -> bool {
    if !j.solved.coords.solution.iter().all(|(place, solution)| in_grid(arena, *place, *solution, env)) {
        return false;
    }
    let cases = &j.solved.cases;
    if !cases.is_empty() && !cases.iter().any(|c| truth(arena, *c, env) == Some(true)) {
        return false;
    }
    arena.conjuncts(j.solved.guard).into_iter().all(|c| match truth(arena, c, env) {
        Some(b) => b,
        // Which program stores it is another matter.
        None if arena.has_instance(c) => true,
        None => !j.solved.coords.list.iter().any(|x| !j.rows.contains(&x.var) && arena.contains_var(c, x.var)),
    })
}

/// False if the place is a program id that the grid does not have.
fn in_grid(arena: &Arena, place: TermId, solution: TermId, env: &Env<'_>) -> bool {
    let Node::Var(var) = *arena.node(place) else { return true };
    let VarKind::Pid(axis) = arena.vars[var.0 as usize].kind else { return true };
    let programs = i128::from(env.trial.grid[axis as usize]);
    number(arena, solution, env).is_none_or(|id| (0..programs).contains(&id))
}

fn truth(arena: &Arena, t: TermId, env: &Env<'_>) -> Option<bool> {
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

/// Coordinates to compare: small rows, some places of the inner ones.
fn points(j: &crate::analysis::Judged<'_>, attack: &Attack) -> Vec<HashMap<VarId, i128>> {
    let mut out = vec![HashMap::new()];
    let row_only = attack.row();
    for c in &j.solved.coords.list {
        let row = j.rows.contains(&c.var);
        let values: Vec<i128> = match (row, row_only) {
            (true, Some(r)) => vec![r],
            (true, None) => (0..12).collect(),
            _ => vec![0, 1, 2, 3, 5, 17, 40, 63],
        };
        if out.len() * values.len() > 6000 {
            continue;
        }
        out = out
            .into_iter()
            .flat_map(|p| {
                values.iter().map(move |v| {
                    let mut p = p.clone();
                    p.insert(c.var, *v);
                    p
                })
            })
            .collect();
    }
    out
}

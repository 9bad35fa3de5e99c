//! Witnesses: two concrete launches, run in the interpreter, that store different bits for one logical element.
//!
//! What was not proved says what to change (a batch argument, the grid, the other rows, the place of a row, the order of programs).
//! Everything that belongs to the row stays the same, memory is filled with floats whose order of addition shows, and the same
//! logical element is compared. What counts as a witness is said, and checked, in `valid`. Nothing found within the budget means UNKNOWN,
//! not VARIANT.

mod attack;
mod fill;
mod number;
mod recipe;
mod sides;
mod valid;

use crate::analysis::atomics::is_ticket;
use crate::analysis::{Analysis, Judged, Problem};
use crate::eval::{Evaluator, Site};
use crate::interp::{Buffer, Memory, Options, ProgramOrder, run};
use crate::ir::Module;
use crate::term::{Arena, Node, TermId, VarId, VarKind};
use attack::{Attack, Target, attacks};
use fill::{Plan, Trial};
use number::{Env, number, truth};
use std::collections::HashMap;
use std::time::Duration;
use valid::{Element, Side};

pub use recipe::{Place, Recipe};
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
    /// Where it lies in each launch.
    pub places: [Place; 2],
    /// The launches, to be made again.
    pub recipes: [Recipe; 2],
}

/// Places that may differ, as far as the search can tell.
struct Candidate {
    pointer: u32,
    /// Where it lies in each launch.
    elements: [usize; 2],
    bits: (u64, u64),
}

/// An element that differs.
struct Found {
    pointer: u32,
    /// Where it lies in each launch.
    places: [usize; 2],
    /// The element in each launch.
    elements: [Element; 2],
    bits: (u64, u64),
}

/// Candidates of one pair of launches that are looked at closely.
const CANDIDATES_MAX: usize = 48;

/// Looks for a witness against one of the problems.
pub fn search(
    e: &mut Evaluator<'_>,
    a: &Analysis<'_>,
    batch_pointers: &[u32],
    budget: Duration,
) -> Option<(Witness, Problem)> {
    let clock = Clock { start: cpu_time::ThreadTime::now(), budget };
    let plan = Plan::new(e, a)?;
    let list = attacks(e, a, batch_pointers);
    for round in 0..60u64 {
        for (i, target) in list.iter().enumerate() {
            if clock.over() {
                return None;
            }
            let seed = round * 1000 + i as u64;
            if let Some(w) = try_one(e, a, &plan, target, seed, &clock) {
                return Some((w, target.problem.clone()));
            }
        }
        if list.is_empty() {
            return None;
        }
    }
    None
}

/// When the search ends: CPU time, so that other load on the machine does not decide.
struct Clock {
    start: cpu_time::ThreadTime,
    budget: Duration,
}

impl Clock {
    fn over(&self) -> bool {
        self.start.elapsed() > self.budget
    }
}

fn options() -> Options {
    Options { max_steps: 10_000_000, max_live: 1 << 22, ..Options::default() }
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
    let (launch, buffers) = fill::build(&plan.kinds, &plan.outputs, trial, &mut memory);
    let written: Vec<(u32, Buffer)> = plan.outputs.iter().filter_map(|o| Some((*o, *buffers.get(o)?))).collect();
    let before: Vec<Vec<u8>> = written.iter().map(|(_, b)| memory.bytes(*b).to_vec()).collect();
    run(module, &launch, &mut memory, options).ok()?;
    let outputs = written.into_iter().zip(before).map(|((o, buffer), before)| {
        let after = memory.bytes(buffer).to_vec();
        (o, Output { before, after, size: memory.elem(buffer).bytes() })
    });
    Some(Ran { outputs: outputs.collect() })
}

fn try_one(
    e: &mut Evaluator<'_>,
    a: &Analysis<'_>,
    plan: &Plan,
    target: &Target,
    seed: u64,
    clock: &Clock,
) -> Option<Witness> {
    let attack = &target.attack;
    let mut first = roomy(e, a, plan, attack, seed)?;
    let (mut opt_a, mut opt_b) = (options(), options());
    opt_a.order = ProgramOrder::Ascending;
    let mut second = first.clone();
    let differs = attack.apply(e, a, plan, &mut first, &mut second, (&mut opt_a, &mut opt_b), seed);
    let moved = second.ints != first.ints || second.grid != first.grid;
    if !differs || moved && !valid::laid_out(e, a, &second) {
        return None;
    }
    if clock.over() {
        return None;
    }
    let x = run_trial(e.module, plan, &first, &opt_a)?;
    if clock.over() {
        return None;
    }
    let y = match attack {
        Attack::Move { .. } => None,
        _ => Some(run_trial(e.module, plan, &second, &opt_b)?),
    };
    let one = y.is_none();
    let candidates = compare(e, a, plan, target, (&first, &second), &x, y.as_ref().unwrap_or(&x));
    if candidates.is_empty() || clock.over() {
        return None;
    }
    let launches = [(&first, &opt_a), if one { (&first, &opt_a) } else { (&second, &opt_b) }];
    let sides = both(e, plan, &candidates, launches)?;
    let found = candidates.iter().find_map(|c| look(e, a, target, c, &sides))?;
    let rans = [(launches[0].0, launches[0].1, &x), (launches[1].0, launches[1].1, y.as_ref().unwrap_or(&x))];
    if !valid::ordered_alike(e, a, plan, attack, if one { &rans[..1] } else { &rans }) {
        return None;
    }
    let point = &found.elements[0].point;
    let mut coordinates: Vec<(String, i128)> =
        point.iter().map(|(v, n)| (e.arena.vars[v.0 as usize].name.clone(), *n)).collect();
    coordinates.sort();
    Some(Witness {
        change: attack.describe(plan, &first, &second),
        first: plan.describe(&first, &opt_a),
        second: plan.describe(launches[1].0, launches[1].1),
        pointer: found.pointer,
        element: found.places[0],
        coordinates,
        bits: found.bits,
        places: found.places.map(|element| Place { pointer: found.pointer, element }),
        recipes: [(&first, &opt_a), launches[1]].map(|(trial, options)| plan.recipe(trial, options)),
        sides: sides::sides(e, a, plan, attack, &found, &sides, [opt_a.undefined, opt_b.undefined]),
    })
}

/// A launch to start from, with strides wide enough for what is read by them.
fn roomy(e: &mut Evaluator<'_>, a: &Analysis<'_>, plan: &Plan, attack: &Attack, seed: u64) -> Option<Trial> {
    let mut trial = plan.trial(seed);
    attack.prepare(plan, &mut trial);
    for _ in 0..3 {
        if valid::laid_out(e, a, &trial) {
            return Some(trial);
        }
        plan.widen(&mut trial);
    }
    None
}

/// The launches once more, with all candidates watched.
fn both<'t>(
    e: &Evaluator<'_>,
    plan: &Plan,
    candidates: &[Candidate],
    launches: [(&'t Trial, &Options); 2],
) -> Option<[Side<'t>; 2]> {
    let places = |i: usize| candidates.iter().map(|c| (c.pointer, c.elements[i])).collect::<Vec<_>>();
    Some([Side::of(e, plan, &places(0), launches[0])?, Side::of(e, plan, &places(1), launches[1])?])
}

/// A candidate that is one logical element, written and existing in both launches.
fn look(e: &Evaluator<'_>, a: &Analysis<'_>, target: &Target, c: &Candidate, sides: &[Side<'_>; 2]) -> Option<Found> {
    let changed = target.param();
    let by_order = target.attack == Attack::Order;
    let [p, q] = [0, 1].map(|i| sides[i].element(e, a, c.pointer, c.elements[i], by_order));
    let (p, q) = (p?, q?);
    let counts = p.site.is_none_or(|i| target.covers(i))
        && valid::same_element(a, &target.attack, (&p, &q), [sides[0].trial, sides[1].trial])
        && valid::exists(&e.arena, a, &sides[0], &p, changed)
        && valid::exists(&e.arena, a, &sides[1], &q, changed);
    counts.then_some(Found { pointer: c.pointer, places: c.elements, elements: [p, q], bits: c.bits })
}

/// Places that hold different bits: by coordinates where those say the address, else by address.
fn compare(
    e: &Evaluator<'_>,
    a: &Analysis<'_>,
    plan: &Plan,
    target: &Target,
    (first, second): (&Trial, &Trial),
    x: &Ran,
    y: &Ran,
) -> Vec<Candidate> {
    let attack = &target.attack;
    let mut out: Vec<Candidate> = Vec::new();
    let mut add = |pointer: u32, elements: [usize; 2]| {
        if let (Some(u), Some(v)) = (x.written(pointer, elements[0]), y.written(pointer, elements[1]))
            && u != v
            && !plan.both_nan(pointer, u, v)
            && !out.iter().any(|c| c.pointer == pointer && c.elements == elements)
        {
            out.push(Candidate { pointer, elements, bits: (u, v) });
        }
        out.len() < CANDIDATES_MAX
    };
    let ticket = |s: &Site<'_>| is_ticket(&e.arena, &a.effects, s);
    for j in a.sites.iter().enumerate().filter(|(i, _)| target.covers(*i)).map(|(_, j)| j) {
        let Node::ArgPtr(o) = *e.arena.node(j.solved.site.base) else { continue };
        if ticket(&j.solved.site) {
            continue;
        }
        for point in points(j, attack) {
            let (p, q) = attack.pair(j, &point);
            let (p, q) = (Env::new(&p, first), Env::new(&q, second));
            if !may_exist(&e.arena, j, &p) || !may_exist(&e.arena, j, &q) {
                continue;
            }
            let at = |env| number(&e.arena, j.solved.offset, env).and_then(|n| usize::try_from(n).ok());
            if let (Some(at), Some(bt)) = (at(&p), at(&q))
                && !add(o, [at, bt])
            {
                return out;
            }
        }
    }
    if attack.by_address(e, a) {
        let counters: Vec<TermId> = a.effects.sites.iter().filter(|s| ticket(s)).map(|s| s.base).collect();
        let counter = |o: u32| counters.iter().any(|b| *e.arena.node(*b) == Node::ArgPtr(o));
        for &o in plan.outputs.iter().filter(|o| !counter(**o)) {
            let (Some(left), Some(right)) = (x.outputs.get(&o), y.outputs.get(&o)) else { continue };
            if left.after != right.after && !(0..left.after.len() / left.size).all(|at| add(o, [at, at])) {
                break;
            }
        }
    }
    out
}

/// False if the guard or the grid excludes the element, as far as that is known before the launch is looked at closely.
fn may_exist(arena: &Arena, j: &Judged<'_>, env: &Env<'_>) -> bool {
    let cases = &j.solved.cases;
    j.solved.coords.solution.iter().all(|(place, solution)| in_grid(arena, *place, *solution, env))
        && (cases.is_empty() || cases.iter().any(|c| truth(arena, *c, env) != Some(false)))
        && arena.conjuncts(j.solved.guard).into_iter().all(|c| truth(arena, c, env) != Some(false))
}

/// False if the place is a program id that the grid does not have.
fn in_grid(arena: &Arena, place: TermId, solution: TermId, env: &Env<'_>) -> bool {
    let Node::Var(var) = *arena.node(place) else { return true };
    let VarKind::Pid(axis) = arena.vars[var.0 as usize].kind else { return true };
    let programs = i128::from(env.trial.grid[axis as usize]);
    number(arena, solution, env).is_none_or(|id| (0..programs).contains(&id))
}

/// Coordinates to compare: small rows, some places of the inner ones.
fn points(j: &Judged<'_>, attack: &Attack) -> Vec<HashMap<VarId, i128>> {
    let mut out = vec![HashMap::new()];
    for c in &j.solved.coords.list {
        let values: Vec<i128> = match (j.rows.contains(&c.var), attack.row()) {
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

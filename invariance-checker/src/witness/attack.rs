//! What to change between two launches, so that nothing that belongs to the compared row changes.

use super::fill::{Fill, Kind, Plan, Trial, mix};
use super::number::{Env, number};
use crate::analysis::measure::{Holds, holds};
use crate::analysis::usage::is_param;
use crate::analysis::{Analysis, Judged, Problem};
use crate::eval::{Evaluator, SiteKind};
use crate::interp::{Options, ProgramOrder};
use crate::term::{Load, Node, Poly, Range, TermId, VarId};
use std::collections::HashMap;

/// Lanes of a wider block are not tried one by one.
const LANES_MAX: i128 = 64;

/// One way to make two launches.
#[derive(Clone, Debug, PartialEq)]
pub enum Attack {
    /// Another value of an integer argument.
    Param(u32),
    /// Another extent of a grid axis.
    Grid(usize),
    /// Other data in the other rows of a pointer; the row's stride.
    Others(u32, TermId),
    /// All rows hold the same data; two rows of one launch are compared.
    Move {
        /// The row coordinate.
        coordinate: VarId,
    },
    /// Another order of programs.
    Order,
    /// Other bits in undefined lanes.
    Undefined,
    /// Other content behind a pointer that belongs to the batch.
    Content(u32),
}

/// An attack, with what it may show.
#[derive(Clone, Debug)]
pub struct Target {
    /// The attack.
    pub attack: Attack,
    /// What it is about.
    pub problem: Problem,
    /// The outputs that have the problem; none if it is the kernel's. What is changed may be shared by all rows of another output.
    sites: Option<Vec<usize>>,
}

impl Target {
    /// The argument whose value differs.
    pub fn param(&self) -> Option<TermId> {
        match (&self.attack, &self.problem) {
            (Attack::Param(_), Problem::Batch { param, .. }) => Some(*param),
            _ => None,
        }
    }

    /// True if the output has the problem.
    pub fn covers(&self, site: usize) -> bool {
        self.sites.as_ref().is_none_or(|s| s.contains(&site))
    }
}

/// The attacks that the problems suggest.
pub fn attacks(e: &mut Evaluator<'_>, a: &Analysis<'_>, batch_pointers: &[u32]) -> Vec<Target> {
    let mut out: Vec<Target> = Vec::new();
    let all: Vec<(Option<usize>, &Problem)> = a
        .problems
        .iter()
        .map(|p| (None, p))
        .chain(a.sites.iter().enumerate().flat_map(|(i, j)| j.problems.iter().map(move |p| (Some(i), p))))
        .collect();
    for (site, p) in all {
        let j = site.map(|i| &a.sites[i]);
        let mut add = |attack: Attack, p: &Problem| push(&mut out, attack, p, site);
        match p {
            Problem::Batch { param, .. } => match *e.arena.node(*param) {
                Node::Arg(i) => add(Attack::Param(i), p),
                Node::NumPrograms(axis) => add(Attack::Grid(axis as usize), p),
                // What programs read at different places may belong to the rows that they make: only the user can say that it does not.
                Node::ArgPtr(i) if batch_pointers.contains(&i) || read_alike(e, a, i) => add(Attack::Content(i), p),
                _ => {}
            },
            Problem::Mixed { base, .. } => {
                // The other rows of packed data are not found by a stride alone.
                let packed = j.is_some_and(|j| j.solved.owner.is_some());
                if let (Node::ArgPtr(i), Some(j), false) = (e.arena.node(*base).clone(), j, packed)
                    && !bounds(e, j, *base)
                {
                    for s in row_strides(e, j, *base).0 {
                        add(Attack::Others(i, s), p);
                    }
                }
            }
            Problem::Index { .. } => {
                for c in j.into_iter().flat_map(|j| j.rows.clone()) {
                    add(Attack::Move { coordinate: c }, p);
                }
            }
            Problem::Instance { .. } => {
                add(Attack::Order, p);
                (0..3).for_each(|axis| add(Attack::Grid(axis), p));
                for c in j.into_iter().flat_map(|j| j.rows.clone()) {
                    add(Attack::Move { coordinate: c }, p);
                }
            }
            Problem::Schedule { .. } => {
                add(Attack::Order, p);
                (0..3).for_each(|axis| add(Attack::Grid(axis), p));
            }
            Problem::Undefined { .. } => add(Attack::Undefined, p),
            // Without an atomic the order matters only to programs that write one element, and such a launch shows nothing.
            Problem::Opaque { .. } if ordered(a) => add(Attack::Order, p),
            Problem::Opaque { .. } => {}
        }
    }
    let mut add = |attack: Attack, p: &Problem| push(&mut out, attack, p, None);
    let declared = Problem::Schedule { why: "an argument that may differ between batches".into() };
    for t in &a.batch {
        if let Node::Arg(i) = *e.arena.node(*t) {
            add(Attack::Param(i), &Problem::Batch { param: *t, how: "changes the bits" });
        }
    }
    for &i in batch_pointers {
        add(Attack::Content(i), &declared);
    }
    out
}

/// One attack that several outputs suggest is made once, against all of them.
fn push(out: &mut Vec<Target>, attack: Attack, problem: &Problem, site: Option<usize>) {
    match out.iter_mut().find(|t| t.attack == attack) {
        None => out.push(Target { attack, problem: problem.clone(), sites: site.map(|i| vec![i]) }),
        Some(t) => match (&mut t.sites, site) {
            (Some(sites), Some(i)) => sites.push(i),
            (all, _) => *all = None,
        },
    }
}

/// Every program reads the pointer at the same places, whichever output it makes.
fn read_alike(e: &Evaluator<'_>, a: &Analysis<'_>, pointer: u32) -> bool {
    a.sites.iter().all(|j| {
        let mut reads = j.usage.loads.iter().filter(|u| *e.arena.node(u.load.base) == Node::ArgPtr(pointer));
        reads.all(|u| {
            let own = j.solved.coords.list.iter().any(|c| e.arena.contains_var(u.load.offset, c.var));
            !own && !e.arena.has_instance(u.load.offset)
        })
    })
}

/// Two integers that stand side by side are read: where a sequence begins and ends. The second one belongs to the row as the first does,
/// although it is also the next row's first.
fn bounds(e: &mut Evaluator<'_>, j: &Judged<'_>, base: TermId) -> bool {
    let of_base: Vec<(TermId, TermId)> =
        j.usage.loads.iter().filter(|u| u.load.base == base).map(|u| (u.term, u.load.offset)).collect();
    let integers = of_base.iter().all(|(t, _)| e.arena.sort(*t) == crate::term::Sort::Int);
    integers
        && of_base.iter().any(|(_, a)| {
            of_base.iter().any(|(_, b)| {
                let step = e.arena.sub(*b, *a);
                e.arena.as_int(step) == Some(1)
            })
        })
}

/// The kernel's programs may see each other: through atomics or effects that are not followed.
pub fn ordered(a: &Analysis<'_>) -> bool {
    !a.effects.unknown.is_empty() || a.effects.sites.iter().any(|s| s.kind != SiteKind::Store)
}

/// Strides with which a row coordinate enters the addresses of a pointer, and whether it also lies within something computed there (a
/// remainder, a product), whose factor says nothing about the length of a row.
fn row_strides(e: &mut Evaluator<'_>, j: &Judged<'_>, base: TermId) -> (Vec<TermId>, bool) {
    let (mut out, mut computed) = (Vec::new(), false);
    for u in j.usage.loads.iter().filter(|u| u.load.base == base) {
        for (m, k) in &e.arena.poly(u.load.offset).terms {
            let (params, index): (Vec<TermId>, Vec<TermId>) = m.iter().partition(|t| is_param(&e.arena, **t));
            if !index.iter().any(|&t| j.rows.iter().any(|c| e.arena.contains_var(t, *c))) {
                continue;
            }
            let &[t] = index.as_slice() else {
                computed = true;
                continue;
            };
            computed |= !matches!(e.arena.node(t), Node::Var(_));
            for step in steps(e, t, &j.rows) {
                let s = e.arena.from_poly(Poly { terms: vec![(params.clone(), k.abs() * step)] });
                if !out.contains(&s) {
                    out.push(s);
                }
            }
        }
    }
    (out, computed)
}

/// How far a number moves with the next row, where that is plain: the row itself, or a sum with it as one side of a minimum or maximum (the row
/// after, but for the last).
fn steps(e: &Evaluator<'_>, t: TermId, rows: &[VarId]) -> Vec<i128> {
    let of_row = |v: &VarId| rows.contains(v);
    match *e.arena.node(t) {
        Node::Var(v) => rows.contains(&v).then_some(1).into_iter().collect(),
        Node::Min(a, b) | Node::Max(a, b) => {
            let sides = [a, b].map(|side| e.arena.poly(side).terms);
            let plain = |m: &[TermId]| matches!(m, [t] if matches!(e.arena.node(*t), Node::Var(v) if of_row(v)));
            sides.iter().flatten().filter(|(m, _)| plain(m)).map(|(_, k)| k.abs()).collect()
        }
        _ => vec![],
    }
}

/// What is read beside `stride * row` stays within the row, whatever the row's number, in a launch with these arguments.
fn within_row(
    e: &mut Evaluator<'_>,
    j: &Judged<'_>,
    base: TermId,
    (row, stride, size): (VarId, TermId, i128),
    trial: &Trial,
) -> bool {
    let numbers = trial.numbers();
    let row = e.arena.var_term(row);
    let begin = e.arena.mul(row, stride);
    j.usage.loads.iter().filter(|u| u.load.base == base).all(|u| {
        let rest = e.arena.sub(u.load.offset, begin);
        let room = e.arena.scale(rest, -1);
        let room = e.arena.add_const(room, size - 1);
        [rest, room].into_iter().all(|t| holds(&mut e.arena, t, &u.facts, &numbers, 6) != Holds::No)
    })
}

impl Attack {
    /// Changes that both launches need.
    pub fn prepare(&self, plan: &Plan, t: &mut Trial) {
        if let Attack::Move { .. } | Attack::Others(..) | Attack::Grid(_) = self {
            for axis in 0..3 {
                if plan.axes[axis] && t.grid[axis] == 1 {
                    t.grid[axis] = 4.min(plan.grid_max[axis]);
                }
            }
        }
    }

    /// Makes the second launch different from the first; false if that is not possible here.
    #[allow(clippy::too_many_arguments)]
    pub fn apply(
        &self,
        e: &mut Evaluator<'_>,
        a: &Analysis<'_>,
        plan: &Plan,
        first: &mut Trial,
        second: &mut Trial,
        (opt_a, opt_b): (&mut Options, &mut Options),
        seed: u64,
    ) -> bool {
        match self {
            Attack::Param(i) => {
                let other = plan.trial(mix(seed) ^ 77).ints.get(i).copied();
                let Some(v) = other.filter(|v| Some(v) != first.ints.get(i)) else { return false };
                second.ints.insert(*i, v);
                same_data(e, a, plan, &Node::Arg(*i), [first, second])
            }
            Attack::Grid(axis) => {
                let g = [1, 2, 3, 4, 5, 8][(mix(seed) % 6) as usize].min(plan.grid_max[*axis]);
                let changed = plan.axes[*axis] && g != first.grid[*axis] || !plan.axes[*axis] && g > 1;
                second.grid[*axis] = g;
                changed && plan.axes[*axis] && same_data(e, a, plan, &Node::NumPrograms(*axis as u8), [first, second])
            }
            Attack::Others(i, stride) => {
                let env = Env::new(&HashMap::new(), first);
                let Some(s) = number(&e.arena, *stride, &env).and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0)
                else {
                    return false;
                };
                // The row is a contiguous piece only if no other stride of the pointer is larger.
                if strides_of(e, a, *i, *stride).iter().any(|t| number(&e.arena, *t, &env).is_none_or(|n| n > s.into()))
                {
                    return false;
                }
                let r = self.row().unwrap_or(0) as u64;
                if plan.outputs.contains(i) {
                    first.fill.insert(*i, Fill::Random);
                    second.fill.insert(*i, Fill::Random);
                }
                second.disturb.insert(*i, (s * r, s * r + s));
                true
            }
            Attack::Move { coordinate } => {
                for j in &a.sites {
                    if j.solved.owner.is_some() {
                        // A row of a packed batch cannot be moved without its sequence.
                        return false;
                    }
                    if !j.rows.contains(coordinate) {
                        continue;
                    }
                    for u in &j.usage.loads {
                        let Node::ArgPtr(i) = *e.arena.node(u.load.base) else { return false };
                        let (strides, computed) = row_strides(e, j, u.load.base);
                        let env = Env::new(&HashMap::new(), first);
                        let numbers: Vec<Option<i128>> = strides.iter().map(|s| number(&e.arena, *s, &env)).collect();
                        let fill = match numbers.as_slice() {
                            [] if !computed && !e.arena.has_instance(u.load.offset) => continue,
                            // One stride, and the outermost: whole rows repeat.
                            [Some(s)]
                                if *s > 1
                                    && (!computed
                                        || within_row(e, j, u.load.base, (*coordinate, strides[0], *s), first)) =>
                            {
                                Fill::Period(*s as u64)
                            }
                            _ => Fill::Constant,
                        };
                        first.fill.insert(i, fill.clone());
                        second.fill.insert(i, fill);
                    }
                    // What an atomic adds to belongs to the row as well.
                    if let (SiteKind::Atomic(_), Node::ArgPtr(i)) =
                        (j.solved.site.kind, e.arena.node(j.solved.site.base))
                    {
                        first.fill.insert(*i, Fill::Constant);
                        second.fill.insert(*i, Fill::Constant);
                    }
                }
                true
            }
            Attack::Order => {
                opt_a.order = ProgramOrder::Ascending;
                opt_b.order =
                    if seed.is_multiple_of(2) { ProgramOrder::Descending } else { ProgramOrder::Shuffled(seed) };
                true
            }
            Attack::Undefined => {
                opt_a.undefined = 0x3f80_0000_3f80_3f80;
                opt_b.undefined = 0x4049_0fdb_4049_4049;
                true
            }
            Attack::Content(i) => {
                second.replaced.push(*i);
                !plan.outputs.contains(i)
            }
        }
    }

    /// The row that is compared, if only one may be.
    pub fn row(&self) -> Option<i128> {
        match self {
            Attack::Others(..) => Some(1),
            _ => None,
        }
    }

    /// The coordinates in the first and the second launch.
    pub fn pair(&self, j: &Judged<'_>, p: &HashMap<VarId, i128>) -> (HashMap<VarId, i128>, HashMap<VarId, i128>) {
        let mut q = p.clone();
        if let Attack::Move { coordinate } = self
            && j.rows.contains(coordinate)
            && let Some(v) = q.get_mut(coordinate)
        {
            *v += 1;
        }
        (p.clone(), q)
    }

    /// True if equal addresses are equal elements in both launches, and every element may be compared.
    pub fn by_address(&self, e: &Evaluator<'_>, a: &Analysis<'_>) -> bool {
        match self {
            Attack::Param(i) => !a.effects.sites.iter().any(|s| e.arena.any(s.offset, |n| *n == Node::Arg(*i))),
            Attack::Grid(axis) => {
                !a.effects.sites.iter().any(|s| e.arena.any(s.offset, |n| *n == Node::NumPrograms(*axis as u8)))
            }
            Attack::Order | Attack::Undefined | Attack::Content(_) => true,
            Attack::Others(..) | Attack::Move { .. } => false,
        }
    }

    /// A sentence on the change.
    pub fn describe(&self, plan: &Plan, first: &Trial, second: &Trial) -> String {
        let name = |i: &u32| plan.names[*i as usize].clone();
        match self {
            Attack::Param(i) => {
                format!("{} is {} in one launch and {} in the other", name(i), first.ints[i], second.ints[i])
            }
            Attack::Grid(axis) => {
                format!(
                    "grid axis {axis} has {} programs in one launch and {} in the other",
                    first.grid[*axis], second.grid[*axis]
                )
            }
            Attack::Others(i, _) => {
                format!("the other rows of {} hold other data; the compared row holds the same", name(i))
            }
            Attack::Move { .. } => "all rows hold the same data; the row is compared with the next one".into(),
            Attack::Order => "the programs run in another order".into(),
            Attack::Undefined => "undefined lanes hold other bits".into(),
            Attack::Content(i) => format!("{} points to other numbers of the batch", name(i)),
        }
    }
}

/// What changes may be a stride of what is read: then only data that is the same everywhere stays the same. False if that cannot be had.
fn same_data(e: &mut Evaluator<'_>, a: &Analysis<'_>, plan: &Plan, what: &Node, launches: [&mut Trial; 2]) -> bool {
    if !strides_depend(e, a, what) {
        return true;
    }
    for (p, k) in plan.kinds.iter().enumerate() {
        if matches!(k, Kind::Ints(..)) && int_reads_depend(e, a, p as u32, what) {
            return false;
        }
    }
    for t in launches {
        for (p, k) in plan.kinds.iter().enumerate() {
            if matches!(k, Kind::Data(_)) {
                t.fill.insert(p as u32, Fill::Constant);
            }
        }
        for o in &plan.outputs {
            if !a.args.iter().any(|r| r.index == *o && r.role == "rows, read and written") {
                t.fill.remove(o);
            }
        }
    }
    true
}

/// True if it is a stride or a shift of what is read, so that it moves the data itself. How far a loop goes in one step, or
/// where a part of the row begins, only says what is read when.
fn strides_depend(e: &mut Evaluator<'_>, a: &Analysis<'_>, what: &Node) -> bool {
    a.sites.iter().any(|j| {
        let (moved, still): (Vec<&Load>, Vec<&Load>) =
            j.usage.loads.iter().map(|u| &u.load).partition(|l| lays_out(e, j, l.offset, what, true));
        moved.into_iter().any(|l| !still.iter().any(|block| lane_of(e, block, l)))
    })
}

/// True if `one` is a lane of `block` by itself (a reshape and a split take lanes out), so it reads what the block reads.
fn lane_of(e: &mut Evaluator<'_>, block: &Load, one: &Load) -> bool {
    block.base == one.base
        && e.arena.free_vars(block.offset).to_vec().into_iter().any(|v| {
            let Range { lo: Some(lo), hi: Some(hi) } = e.arena.vars[v.0 as usize].range else { return false };
            let term = e.arena.var_term(v);
            lo >= 0
                && hi < LANES_MAX
                && (lo..=hi).any(|lane| {
                    let lane = e.arena.int(lane);
                    e.arena.subst_one(block.offset, term, lane) == one.offset
                })
        })
}

fn lays_out(e: &Evaluator<'_>, j: &Judged<'_>, offset: TermId, what: &Node, outer: bool) -> bool {
    let mentions = |t: TermId| e.arena.any(t, |n| n == what);
    let step = |v: &VarId| {
        let var = &e.arena.vars[v.0 as usize];
        var.name.starts_with('n') || matches!(var.kind, crate::term::VarKind::Coord(_)) && !j.rows.contains(v)
    };
    e.arena.poly(offset).terms.iter().any(|(m, _)| {
        m.iter().enumerate().any(|(at, &t)| match e.arena.node(t) {
            _ if !mentions(t) => false,
            Node::Arg(_) => outer || m.len() > 1,
            _ if is_param(&e.arena, t) => {
                let others = m.iter().enumerate().filter(|(k, _)| *k != at).map(|(_, x)| *x);
                let vars: Vec<VarId> = others.flat_map(|x| e.arena.free_vars(x).to_vec()).collect();
                if vars.is_empty() { outer } else { !vars.iter().all(step) }
            }
            Node::Div(x, y) | Node::Mod(x, y) | Node::TDiv(x, y) | Node::TRem(x, y) => {
                e.arena.node(*y) == what || lays_out(e, j, *x, what, false)
            }
            Node::Min(x, y) | Node::Max(x, y) => lays_out(e, j, *x, what, false) || lays_out(e, j, *y, what, false),
            // A number that was computed from data or chosen by a condition: what it points to is the kernel's doing.
            _ => false,
        })
    })
}

/// Everything by which an index into a pointer is multiplied, and what is added to it that is no number of rows.
fn strides_of(e: &mut Evaluator<'_>, a: &Analysis<'_>, pointer: u32, row: TermId) -> Vec<TermId> {
    let mut out = Vec::new();
    let rows: Vec<Vec<TermId>> = e.arena.poly(row).terms.into_iter().map(|(m, _)| m).collect();
    let loads = a.sites.iter().flat_map(|j| j.usage.loads.iter().map(move |u| (j, u)));
    for (j, u) in loads {
        if *e.arena.node(u.load.base) != Node::ArgPtr(pointer) {
            continue;
        }
        let terms = e.arena.poly(u.load.offset).terms;
        // What rows are counted down from is no plane.
        let of_row = |t: &TermId| j.rows.iter().any(|c| e.arena.contains_var(*t, *c));
        let reversed = terms.iter().any(|(m, k)| *k < 0 && m.iter().any(of_row));
        for (m, k) in &terms {
            let (params, index): (Vec<TermId>, Vec<TermId>) = m.iter().partition(|&&t| is_param(&e.arena, t));
            let s = e.arena.from_poly(Poly { terms: vec![(params, k.abs())] });
            let planes = index.is_empty() && !m.is_empty() && !reversed && !rows.contains(m);
            if (planes || !index.is_empty()) && !out.contains(&s) {
                out.push(s);
            }
        }
    }
    out
}

fn int_reads_depend(e: &Evaluator<'_>, a: &Analysis<'_>, pointer: u32, what: &Node) -> bool {
    a.sites
        .iter()
        .flat_map(|j| &j.usage.loads)
        .filter(|u| *e.arena.node(u.load.base) == Node::ArgPtr(pointer))
        .any(|u| e.arena.any(u.load.offset, |n| n == what))
}

//! The two trees of a witness: the value of the compared element in each launch.
//!
//! Only what differs between the launches is put in as a number (an argument, the grid, a moved coordinate, a loaded count, the
//! program that wrote); the rest stays a name. So the trees part where the launches make them part. Where the launches differ in
//! data alone, leaves that read other data carry a prime in the second tree. An element that was written more than once shows its
//! writes in the order in which the interpreter made them.

use super::attack::Attack;
use super::fill::{self, Plan, Trial};
use super::{Env, Found, number, truth};
use crate::analysis::{Analysis, Judged};
use crate::eval::{Evaluator, SiteKind};
use crate::interp::{Buffer, Memory, Options, Write, run};
use crate::term::{Arena, Load, Node, Sort, TermId, VarId, VarKind};
use crate::tree::Trees;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

/// Both trees as text, and what their marks mean.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    /// First launch, second launch.
    pub trees: [String; 2],
    /// How to read them.
    pub legend: Vec<String>,
}

/// Time for making both trees.
const BUDGET: Duration = Duration::from_secs(5);
/// Numbers from here on name variables, in place of an argument's.
const NAMED: u32 = 1 << 20;
/// Numbers from here on name a pointer whose data differs in the second launch.
const PRIMED: u32 = 1 << 21;
/// Most places of a load that are looked at.
const PLACES_MAX: u64 = 1 << 14;
/// Most writes that are listed.
const WRITES_MAX: usize = 40;

/// One launch with what it left behind.
struct Side<'t> {
    trial: &'t Trial,
    point: HashMap<VarId, i128>,
    before: Memory,
    buffers: HashMap<u32, Buffer>,
    initial: u64,
    writes: Vec<Write>,
}

/// The two trees of what was found.
pub(super) fn sides(
    e: &mut Evaluator<'_>,
    a: &Analysis<'_>,
    plan: &Plan,
    attack: &Attack,
    found: &Found,
    launches: [(&Trial, &Options); 2],
) -> Sides {
    e.arena.more_time(BUDGET);
    let mut both = Vec::new();
    for (i, (trial, options)) in launches.into_iter().enumerate() {
        let Some(side) = rerun(e, plan, found, i, trial, options) else { return Sides::default() };
        both.push(side);
    }
    let [x, y] = [&both[0], &both[1]];
    let site = found.site.or_else(|| {
        let of_pointer = |j: &Judged<'_>| *e.arena.node(j.solved.site.base) == Node::ArgPtr(found.pointer);
        let mut sites = a.sites.iter().enumerate().filter(|(_, j)| of_pointer(j));
        sites.next().filter(|_| sites.next().is_none()).map(|(i, _)| i)
    });
    let mut legend = Vec::new();
    let mut trees = [String::new(), String::new()];
    for (i, side) in both.iter().enumerate() {
        if x.writes.len().max(y.writes.len()) > 1 {
            trees[i] = arrivals(side);
        }
        let Some(j) = site.map(|s| &a.sites[s]) else { continue };
        let atomic = matches!(j.solved.site.kind, SiteKind::Atomic(_));
        if atomic && !trees[i].is_empty() {
            trees[i].push_str("what each program adds\n");
        }
        let undefined = launches[i].1.undefined;
        let (primed, memo, lens) = Default::default();
        let mut put = Put { names: &plan.names, x, y, second: i == 1, attack, atomic, undefined, primed, memo, lens };
        let value = put.value(&mut e.arena, j);
        let name = |n: u32| put.name(&e.arena.vars, n);
        let named: HashMap<u32, String> = put.numbers(&e.arena, value).into_iter().map(|n| (n, name(n))).collect();
        let lookup = |n: u32| named.get(&n).cloned().unwrap_or_else(|| format!("arg{n}"));
        trees[i].push_str(&Trees::new(&mut e.arena, &lookup, None).tree(value).pretty());
        for (p, why) in put.primed {
            legend.push(format!("{}' is {} {why}", plan.names[p as usize], plan.names[p as usize]));
        }
    }
    Sides { trees, legend }
}

/// The launch once more, with the element watched.
fn rerun<'t>(
    e: &Evaluator<'_>,
    plan: &Plan,
    found: &Found,
    which: usize,
    trial: &'t Trial,
    options: &Options,
) -> Option<Side<'t>> {
    let mut memory = Memory::new();
    let (launch, buffers) = fill::build(plan, trial, &mut memory)?;
    let before = memory.clone();
    let buffer = *buffers.get(&found.pointer)?;
    let element = found.elements[which];
    memory.watch(buffer, element);
    run(e.module, &launch, &mut memory, options).ok()?;
    let initial = before.bits_at(buffer, element)?;
    let point = found.points[which].clone();
    Some(Side { trial, point, initial, writes: memory.writes().to_vec(), before, buffers })
}

/// What the element held, write by write.
fn arrivals(side: &Side<'_>) -> String {
    let mut out = format!("the element, in the order of its writes\n+- before the launch: {:#x}\n", side.initial);
    for (i, w) in side.writes.iter().take(WRITES_MAX).enumerate() {
        let [x, y, z] = w.program;
        let _ = writeln!(out, "+- {}: program ({x}, {y}, {z}) leaves {:#x}", i + 1, w.bits);
    }
    if side.writes.len() > WRITES_MAX {
        let _ = writeln!(out, "+- and {} writes more", side.writes.len() - WRITES_MAX);
    }
    out
}

/// Puts the numbers of one launch into a term.
struct Put<'s> {
    names: &'s [String],
    x: &'s Side<'s>,
    y: &'s Side<'s>,
    second: bool,
    attack: &'s Attack,
    /// Every program contributes, so none is the one that wrote.
    atomic: bool,
    undefined: u64,
    primed: BTreeMap<u32, &'static str>,
    memo: HashMap<TermId, TermId>,
    /// Iterations of the binders in sight.
    lens: HashMap<VarId, i128>,
}

impl Put<'_> {
    fn here(&self) -> &Side<'_> {
        if self.second { self.y } else { self.x }
    }

    fn value(&mut self, arena: &mut Arena, j: &Judged<'_>) -> TermId {
        let value = j.solved.value;
        let mut lens = Vec::new();
        arena.walk(value, |_, n| match n {
            Node::Reduce(r) => lens.push((r.binder, Err(r.len))),
            Node::Chain(c) => lens.push((c.binder, Err(c.len))),
            Node::Fold(f) => lens.push((f.binder, Ok(f.trip))),
            _ => {}
        });
        for (binder, len) in lens {
            let env = Env { vars: self.here().point.clone(), trial: self.here().trial };
            let len = match len {
                Ok(trip) => number(arena, trip, &env),
                Err(len) => Some(i128::from(len)),
            };
            if let Some(len) = len {
                self.lens.insert(binder, len);
            }
        }
        self.put(arena, value)
    }

    fn put(&mut self, arena: &mut Arena, t: TermId) -> TermId {
        if let Some(&r) = self.memo.get(&t) {
            return r;
        }
        if arena.stopped() {
            return t;
        }
        let r = match arena.node(t).clone() {
            Node::Arg(i) if self.x.trial.ints.get(&i) != self.y.trial.ints.get(&i) => {
                arena.int(i128::from(self.here().trial.ints[&i]))
            }
            Node::NumPrograms(axis) if self.x.trial.grid != self.y.trial.grid => {
                arena.int(i128::from(self.here().trial.grid[axis as usize]))
            }
            Node::Var(v) => self.variable(arena, t, v),
            Node::Load(l) => self.load(arena, t, l),
            Node::Undef(n) if *self.attack == Attack::Undefined => {
                let sort = arena.sort(t);
                let name = format!("undefined lane {n}, here {:#x}", self.undefined);
                arena.op(&name, vec![], sort)
            }
            _ => arena.map_children(t, |arena, c| self.put(arena, c)),
        };
        self.memo.insert(t, r);
        r
    }

    /// A moved coordinate and the program that wrote become numbers; other places in the launch keep their name.
    fn variable(&self, arena: &mut Arena, t: TermId, v: VarId) -> TermId {
        let (p, q) = (self.x.point.get(&v), self.y.point.get(&v));
        match arena.vars[v.0 as usize].kind {
            VarKind::Coord(_) if p != q => match self.here().point.get(&v) {
                Some(n) => arena.int(*n),
                None => t,
            },
            VarKind::Pid(axis) => match self.here().writes.last().filter(|_| !self.atomic) {
                Some(w) => arena.int(i128::from(w.program[axis as usize])),
                None => arena.intern(Node::Arg(NAMED + v.0), Sort::Int),
            },
            kind if kind.is_instance() => arena.intern(Node::Arg(NAMED + v.0), Sort::Int),
            _ => t,
        }
    }

    fn load(&mut self, arena: &mut Arena, t: TermId, l: Load) -> TermId {
        if let Some(n) = self.count(arena, &l) {
            return arena.int(n);
        }
        let (mask, other) = (self.put(arena, l.mask), self.put(arena, l.other));
        let base = match *arena.node(l.base) {
            Node::ArgPtr(i) if self.second => match self.differs(arena, i, &l) {
                Some(why) => {
                    self.primed.insert(i, why);
                    arena.intern(Node::ArgPtr(PRIMED + i), Sort::Data)
                }
                None => l.base,
            },
            _ => self.put(arena, l.base),
        };
        // A row selects data that is the same in every row, so its number says nothing here.
        let rows: crate::term::Map<TermId, TermId> = match self.attack {
            Attack::Move { coordinate } => {
                let c = arena.var_term(*coordinate);
                std::iter::once((c, arena.intern(Node::Arg(NAMED + coordinate.0), Sort::Int))).collect()
            }
            _ => crate::term::Map::default(),
        };
        let offset = arena.subst(l.offset, &rows);
        let offset = self.put(arena, offset);
        let sort = arena.sort(t);
        arena.load(Load { base, offset, mask, other, ..l }, sort)
    }

    /// The number behind an integer pointer whose content the launches do not share.
    fn count(&self, arena: &Arena, l: &Load) -> Option<i128> {
        let Node::ArgPtr(i) = *arena.node(l.base) else { return None };
        if l.epoch != 0 || !self.y.trial.replaced.contains(&i) {
            return None;
        }
        let at = |side: &Side<'_>| {
            let buffer = *side.buffers.get(&i)?;
            if !side.before.elem(buffer).is_int() {
                return None;
            }
            let env = Env { vars: side.point.clone(), trial: side.trial };
            let at = usize::try_from(number(arena, l.offset, &env)?).ok()?;
            side.before.ints(buffer).get(at).map(|n| i128::from(*n))
        };
        let (a, b) = (at(self.x)?, at(self.y)?);
        (a != b).then_some(if self.second { b } else { a })
    }

    /// Why a load of this pointer may see other data in the second launch.
    fn differs(&self, arena: &Arena, i: u32, l: &Load) -> Option<&'static str> {
        if self.y.trial.replaced.contains(&i) {
            return Some("of the second launch, which holds other data");
        }
        let (lo, hi) = self.y.trial.disturb.get(&i)?;
        let own = |at: i128| at >= i128::from(*lo) && at < i128::from(*hi);
        let mut binders: Vec<(VarId, i128)> = Vec::new();
        for v in arena.free_vars(l.offset).iter().chain(arena.free_vars(l.mask)) {
            if let Some(n) = self.lens.get(v)
                && !binders.iter().any(|(b, _)| b == v)
            {
                binders.push((*v, *n));
            }
        }
        let places = binders.iter().try_fold(1u64, |n, (_, len)| n.checked_mul(u64::try_from(*len).ok()?));
        let places = places.unwrap_or(u64::MAX).min(PLACES_MAX);
        for n in 0..places {
            let mut vars = self.y.point.clone();
            let mut rest = i128::from(n);
            for (v, len) in &binders {
                vars.insert(*v, rest % len);
                rest /= len;
            }
            let env = Env { vars, trial: self.y.trial };
            let read = truth(arena, l.mask, &env) != Some(false);
            if read && !number(arena, l.offset, &env).is_some_and(own) {
                return Some("of another row, which holds other data in the second launch");
            }
        }
        None
    }

    /// Arguments and pointers in a term, the made-up ones included.
    fn numbers(&self, arena: &Arena, t: TermId) -> Vec<u32> {
        let mut out = Vec::new();
        arena.walk(t, |_, n| {
            if let Node::Arg(i) | Node::ArgPtr(i) = n {
                out.push(*i);
            }
        });
        out
    }

    fn name(&self, vars: &[crate::term::Var], n: u32) -> String {
        match n {
            n if n >= PRIMED => format!("{}'", self.names[(n - PRIMED) as usize]),
            n if n >= NAMED => vars[(n - NAMED) as usize].name.clone(),
            n => self.names.get(n as usize).cloned().unwrap_or_else(|| format!("arg{n}")),
        }
    }
}

//! The two trees of a witness: the value of the compared element in each launch.
//!
//! Only what differs between the launches is put in as a number (an argument, the grid, a moved coordinate, a loaded count, the
//! program that wrote); the rest stays a name. So the trees part where the launches make them part. Where the launches differ in
//! data alone, leaves that read other data carry a prime in the second tree. An element that was written more than once shows its
//! writes in the order in which the interpreter made them.

use super::Found;
use super::attack::Attack;
use super::fill::Plan;
use super::number::{Env, number, truth};
use super::valid::{Element, Side};
use crate::analysis::{Analysis, Judged};
use crate::eval::{Evaluator, SiteKind};
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

/// The two trees of what was found.
pub(super) fn sides(
    e: &mut Evaluator<'_>,
    a: &Analysis<'_>,
    plan: &Plan,
    attack: &Attack,
    found: &Found,
    launches: &[Side<'_>; 2],
    undefined: [u64; 2],
) -> Sides {
    e.arena.more_time(BUDGET);
    let of_pointer = |i: &usize| *e.arena.node(a.sites[*i].solved.site.base) == Node::ArgPtr(found.pointer);
    let mut sites = (0..a.sites.len()).filter(of_pointer);
    let only = sites.next().filter(|_| sites.next().is_none());
    let site = found.elements[0].site.or(only);
    let several = found.elements.iter().any(|e| e.writes.len() > 1);
    let mut legend = Vec::new();
    let mut trees = [String::new(), String::new()];
    for (i, side) in launches.iter().enumerate() {
        if several {
            let Some(initial) = side.initial(found.pointer, found.places[i]) else { return Sides::default() };
            trees[i] = arrivals(initial, &found.elements[i]);
        }
        let Some(j) = site.map(|s| &a.sites[s]) else { continue };
        let atomic = matches!(j.solved.site.kind, SiteKind::Atomic(_));
        if atomic && several {
            trees[i].push_str("what each program adds\n");
        }
        let (primed, memo, lens) = Default::default();
        let second = i == 1;
        let mut put = Put {
            names: &plan.names,
            launches,
            elements: &found.elements,
            second,
            attack,
            atomic,
            undefined: undefined[i],
            primed,
            memo,
            lens,
        };
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

/// What the element held, write by write.
fn arrivals(initial: u64, element: &Element) -> String {
    let mut out = format!("the element, in the order of its writes\n+- before the launch: {initial:#x}\n");
    for (i, w) in element.writes.iter().take(WRITES_MAX).enumerate() {
        let [x, y, z] = w.by.program;
        let _ = writeln!(out, "+- {}: program ({x}, {y}, {z}) leaves {:#x}", i + 1, w.bits);
    }
    if element.writes.len() > WRITES_MAX {
        let _ = writeln!(out, "+- and {} writes more", element.writes.len() - WRITES_MAX);
    }
    out
}

/// Puts the numbers of one launch into a term.
struct Put<'s> {
    names: &'s [String],
    launches: &'s [Side<'s>; 2],
    elements: &'s [Element; 2],
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
        &self.launches[usize::from(self.second)]
    }

    fn element(&self) -> &Element {
        &self.elements[usize::from(self.second)]
    }

    /// Names stay names: nothing is read from memory.
    fn env(&self) -> Env<'_> {
        Env::new(&self.element().point, self.here().trial)
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
            let env = self.env();
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
        let [x, y] = [self.launches[0].trial, self.launches[1].trial];
        if let Some(&r) = self.memo.get(&t) {
            return r;
        }
        if arena.stopped() {
            return t;
        }
        let r = match arena.node(t).clone() {
            Node::Arg(i) if x.ints.get(&i) != y.ints.get(&i) => arena.int(i128::from(self.here().trial.ints[&i])),
            Node::NumPrograms(axis) if x.grid != y.grid => arena.int(i128::from(self.here().trial.grid[axis as usize])),
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
        let (p, q) = (self.elements[0].point.get(&v), self.elements[1].point.get(&v));
        match arena.vars[v.0 as usize].kind {
            VarKind::Coord(_) if p != q => match self.element().point.get(&v) {
                Some(n) => arena.int(*n),
                None => t,
            },
            VarKind::Pid(axis) => match self.element().writes.last().filter(|_| !self.atomic) {
                Some(w) => arena.int(i128::from(w.by.program[axis as usize])),
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
        if l.epoch != 0 || !self.launches[1].trial.replaced.contains(&i) {
            return None;
        }
        let at = |i: usize| number(arena, l.offset, &Env::new(&self.elements[i].point, self.launches[i].trial));
        let read = |k: usize| {
            let side = &self.launches[k];
            side.before.int_at(*side.buffers.get(&i)?, usize::try_from(at(k)?).ok()?).map(i128::from)
        };
        let (a, b) = (read(0)?, read(1)?);
        (a != b).then_some(if self.second { b } else { a })
    }

    /// Why a load of this pointer may see other data in the second launch.
    fn differs(&self, arena: &Arena, i: u32, l: &Load) -> Option<&'static str> {
        if self.launches[1].trial.replaced.contains(&i) {
            return Some("of the second launch, which holds other data");
        }
        let (lo, hi) = self.launches[1].trial.disturb.get(&i)?;
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
            let mut vars = self.elements[1].point.clone();
            let mut rest = i128::from(n);
            for (v, len) in &binders {
                vars.insert(*v, rest % len);
                rest /= len;
            }
            let env = Env::new(&vars, self.launches[1].trial);
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

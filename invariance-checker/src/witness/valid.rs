//! What makes two launches a witness. The search guesses; here, and nowhere else, it is decided whether what it found counts.
//!
//! Two launches that store different bits in an element show that a kernel is not invariant only if
//!
//! 1. **a host could make them**: every access is in bounds (the interpreter ended without a trap), no layout condition and no inequality
//!    that the analysis relied on is broken, the grid covers what an atomic combines, and, unless the order of programs is what is shown,
//!    both orders leave the same memory;
//! 2. **the element is written, and by one program**, in both launches, as the interpreter saw it; several programs may only meet in
//!    an atomic, or where their order is what is shown and a program id that the value has is not in the address: then no grid keeps them apart;
//! 3. **it is one logical element**: from the program, lane and iteration that wrote it follow its coordinates, and these are the same in both
//!    launches (where a row is moved: the next row), at one output. Where only the order of programs differs, one address is one element;
//! 4. **it exists in both**: its coordinates are below every extent that the kernel states, those by which it masks what it reads for
//!    the element included. What an unmasked store leaves past the last column is no element;
//! 5. **it reads the same**: the launches differ only in what the attack changes, and that is not the row's own;
//! 6. **the bits differ**, and are not two NaNs.
//!
//! 5 and 6 are the search's doing ([`super::attack`], [`super::compare`]); the rest is looked at here, for the element that was found.

use super::attack::{self, Attack};
use super::fill::{self, Plan, Trial};
use super::number::{Env, number, truth};
use super::{Ran, run_trial};
use crate::analysis::measure::{Holds, Numbers, holds};
use crate::analysis::usage::{LoadUse, is_param};
use crate::analysis::{Analysis, Judged, Problem};
use crate::eval::{Evaluator, Site, SiteKind};
use crate::interp::{Buffer, Instance, Memory, Options, ProgramOrder, Write, run};
use crate::term::{Arena, Node, Poly, TermId, VarId, VarKind};
use std::collections::HashMap;

/// Largest integer that a launch finds in memory, as far as inequalities are measured.
const LOADED_MAX: i64 = 6;

/// One launch with what it left behind.
pub(super) struct Side<'t> {
    /// Arguments.
    pub trial: &'t Trial,
    /// Memory before it.
    pub before: Memory,
    /// By pointer argument.
    pub buffers: HashMap<u32, Buffer>,
    writes: Vec<Write>,
}

/// An element of a launch, with what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Element {
    /// Which site, if it is known.
    pub site: Option<usize>,
    /// Its coordinates; none if the site is not known.
    pub point: HashMap<VarId, i128>,
    /// Its writes, in order.
    pub writes: Vec<Write>,
}

impl<'t> Side<'t> {
    /// The launch once more, with these elements watched.
    pub fn of(
        e: &Evaluator<'_>,
        plan: &Plan,
        elements: &[(u32, usize)],
        (trial, options): (&'t Trial, &Options),
    ) -> Option<Side<'t>> {
        let mut memory = Memory::new();
        let (launch, buffers) = fill::build(&plan.kinds, &plan.outputs, trial, &mut memory);
        let before = memory.clone();
        for (pointer, element) in elements {
            memory.watch(*buffers.get(pointer)?, *element);
        }
        run(e.module, &launch, &mut memory, options).ok()?;
        if memory.log_is_full() {
            return None;
        }
        Some(Side { trial, writes: memory.writes().to_vec(), before, buffers })
    }

    /// What the launch finds in memory, and the numbers of its arguments.
    pub fn env(&self, vars: HashMap<VarId, i128>) -> Env<'_> {
        Env { vars, trial: self.trial, memory: Some((&self.before, &self.buffers)) }
    }

    /// The bits of an element before the launch.
    pub fn initial(&self, pointer: u32, element: usize) -> Option<u64> {
        self.before.bits_at(*self.buffers.get(&pointer)?, element)
    }

    /// The element at a place: one program wrote it, or several met in atomics, and they name one place of one output. With `by_order`,
    /// whatever was written there.
    pub fn element(
        &self,
        e: &Evaluator<'_>,
        a: &Analysis<'_>,
        pointer: u32,
        at: usize,
        by_order: bool,
    ) -> Option<Element> {
        let buffer = *self.buffers.get(&pointer)?;
        let writes: Vec<Write> =
            self.writes.iter().filter(|w| w.buffer == buffer && w.element == at).cloned().collect();
        let one_program = writes.windows(2).all(|w| w[0].by.program == w[1].by.program);
        if by_order {
            let (meant, other): (Vec<&Write>, Vec<&Write>) = writes.iter().partition(|w| may_meet(e, a, w));
            let counts =
                one_program || !meant.is_empty() && other.windows(2).all(|w| w[0].by.program == w[1].by.program);
            return (counts && !writes.is_empty()).then(|| Element { site: None, point: HashMap::new(), writes });
        }
        if !writes.is_empty() && writes.iter().all(|w| self.fixed_atomic(e, a, w)) {
            return Some(Element { site: None, point: HashMap::new(), writes });
        }
        let mut found: Option<(usize, Vec<i128>)> = None;
        let mut atomic = true;
        for w in &writes {
            let (site, point, kind) = self.coordinates(e, a, pointer, at, &w.by)?;
            atomic &= matches!(kind, SiteKind::Atomic(_));
            // Several atomics on one pointer are outputs of their own, over coordinates of one shape.
            if found.as_ref().is_some_and(|(_, p)| *p != point) {
                return None;
            }
            found = Some((found.map_or(site, |(s, _)| s.min(site)), point));
        }
        let (site, values) = found.filter(|_| one_program || atomic)?;
        let point = a.sites[site].solved.coords.list.iter().map(|c| c.var).zip(values).collect();
        Some(Element { site: Some(site), point, writes })
    }

    /// The output and the coordinates that an instance of a store writes, if its address is the one that was seen.
    fn coordinates(
        &self,
        e: &Evaluator<'_>,
        a: &Analysis<'_>,
        pointer: u32,
        at: usize,
        by: &Instance,
    ) -> Option<(usize, Vec<i128>, SiteKind)> {
        for (i, j) in a.sites.iter().enumerate() {
            if *e.arena.node(j.solved.site.base) != Node::ArgPtr(pointer) {
                continue;
            }
            for part in &j.solved.parts {
                let Some(vars) = instance(e, &part.site, by) else { continue };
                let env = self.env(vars);
                if number(&e.arena, part.site.offset, &env).and_then(|n| usize::try_from(n).ok()) != Some(at) {
                    continue;
                }
                let values: Vec<i128> =
                    part.definitions.iter().map(|d| number(&e.arena, *d, &env)).collect::<Option<_>>()?;
                return (values.len() == j.solved.coords.list.len()).then_some((i, values, part.site.kind));
            }
        }
        None
    }

    /// An atomic that could not be split into coordinates with the others on its pointer, at one place whatever the launch: that place is the
    /// element.
    fn fixed_atomic(&self, e: &Evaluator<'_>, a: &Analysis<'_>, w: &Write) -> bool {
        let judged = |s: &Site<'_>| a.sites.iter().flat_map(|j| &j.solved.parts).any(|p| p.site.order == s.order);
        let env = self.env(HashMap::new());
        let mut sites = a.effects.sites.iter().filter(|s| s.op.op.at == w.by.at).peekable();
        sites.peek().is_some()
            && sites.all(|s| {
                let fixed = matches!(s.kind, SiteKind::Atomic(_)) && e.arena.as_int(s.offset).is_some();
                fixed && !judged(s) && covered(&e.arena, s.guard, s.value, &env)
            })
    }
}

/// Programs that write one element here do so by the kernel's will: in an atomic, in an effect that is not followed, or because the address
/// does not name a program id that the value names.
fn may_meet(e: &Evaluator<'_>, a: &Analysis<'_>, w: &Write) -> bool {
    let mut sites = a.effects.sites.iter().filter(|s| s.op.op.at == w.by.at).peekable();
    if sites.peek().is_none() {
        return !a.effects.unknown.is_empty();
    }
    sites.all(|s| {
        let free = |v: VarId| e.arena.contains_var(s.value, v) && !e.arena.contains_var(s.offset, v);
        matches!(s.kind, SiteKind::Atomic(_)) || e.pids_used().into_iter().any(|(_, v)| free(v))
    })
}

/// The numbers of the instance variables of a store.
fn instance(e: &Evaluator<'_>, site: &Site<'_>, by: &Instance) -> Option<HashMap<VarId, i128>> {
    if site.op.op.at != by.at || site.iterations.len() != by.iterations.len() {
        return None;
    }
    let pids = e.pids_used().into_iter().map(|(axis, v)| (v, i128::from(by.program[axis as usize])));
    let iterations = site.iterations.iter().zip(&by.iterations).map(|(v, n)| (*v, i128::from(*n)));
    let mut out: HashMap<VarId, i128> = pids.chain(iterations).collect();
    let mut lane = by.lane as i128;
    for v in site.indices.iter().rev() {
        let extent = e.arena.vars[v.0 as usize].range.hi? + 1;
        out.insert(*v, lane % extent);
        lane /= extent;
    }
    Some(out)
}

/// Both launches name one element: the same coordinates, or those of the next row where a row is moved.
pub(super) fn same_element(
    a: &Analysis<'_>,
    attack: &Attack,
    (x, y): (&Element, &Element),
    [first, second]: [&Trial; 2],
) -> bool {
    let (Some(site), Some(other)) = (x.site, y.site) else { return x.site == y.site && attack.row().is_none() };
    let j = &a.sites[site];
    let (p, q) = attack.pair(j, &x.point);
    let row = |r| j.rows.iter().all(|v| x.point.get(v).is_none_or(|n| *n == r));
    // By number: joined outputs have coordinates of one shape, each its own variables.
    let values = |site: usize, point: &HashMap<VarId, i128>| -> Vec<Option<i128>> {
        a.sites[site].solved.coords.list.iter().map(|c| point.get(&c.var).copied()).collect()
    };
    // One place of two outputs that tile a row: with equal arguments it is one element of the row.
    let of_row = |site: usize, point: &HashMap<VarId, i128>| -> Vec<Option<i128>> {
        a.sites[site].rows.iter().map(|v| point.get(v).copied()).collect()
    };
    let tiled = site != other
        && first.ints == second.ints
        && !a.sites[site].rows.is_empty()
        && of_row(site, &q) == of_row(other, &y.point);
    a.sites[other].solved.site.base == j.solved.site.base
        && p == x.point
        && (tiled || values(site, &q) == values(other, &y.point))
        && attack.row().is_none_or(row)
}

/// The element is below every extent that the kernel states.
pub(super) fn exists(
    arena: &Arena,
    a: &Analysis<'_>,
    side: &Side<'_>,
    element: &Element,
    changed: Option<TermId>,
) -> bool {
    let Some(j) = element.site.map(|i| &a.sites[i]) else { return true };
    let env = side.env(element.point.clone());
    let rooms = j.rooms.iter().filter_map(|(c, _)| c.room());
    let masks = extents(arena, j, changed);
    let guard = arena.conjuncts(j.solved.guard).into_iter().map(|c| (c, true));
    let atomic = matches!(j.solved.site.kind, SiteKind::Atomic(_));
    (!atomic || covered(arena, j.solved.guard, j.solved.value, &env))
        && rooms.into_iter().all(|room| number(arena, room, &env).is_none_or(|n| n >= 0))
        && masks.into_iter().chain(guard).all(|(c, holds)| truth(arena, c, &env) != Some(!holds))
}

/// No program beyond the grid would have a part in what an atomic combines: what limits a program id, be it the guard or the masks of what is
/// added, ends within the grid.
fn covered(arena: &Arena, guard: TermId, value: TermId, env: &Env<'_>) -> bool {
    let mut conditions = arena.conjuncts(guard);
    arena.walk(value, |t, n| {
        if matches!(n, Node::Ge0(_)) {
            conditions.push(t);
        }
    });
    let mut free: Vec<VarId> = conditions.iter().flat_map(|c| arena.free_vars(*c).to_vec()).collect();
    free.sort_unstable();
    free.dedup();
    // The first lane of the first program that is not there.
    let least = free.iter().map(|v| (*v, arena.vars[v.0 as usize].range.lo.unwrap_or(0)));
    let mut first: HashMap<VarId, i128> = least.collect();
    first.extend(&env.vars);
    free.iter().all(|v| {
        let VarKind::Pid(axis) = arena.vars[v.0 as usize].kind else { return true };
        let mut vars = first.clone();
        vars.insert(*v, i128::from(env.trial.grid[axis as usize]));
        let beyond = Env { vars, trial: env.trial, memory: env.memory };
        let limit = |c: &TermId| match *arena.node(*c) {
            Node::Ge0(p) => {
                let grid = arena.any(p, |n| matches!(n, Node::NumPrograms(_)));
                !grid && arena.poly(p).terms.iter().any(|(m, k)| *k < 0 && m.iter().any(|t| arena.contains_var(*t, *v)))
            }
            _ => false,
        };
        let mut limits = conditions.iter().filter(|c| limit(c)).peekable();
        limits.peek().is_none() || limits.any(|c| truth(arena, *c, &beyond) == Some(false))
    })
}

/// Comparisons of its coordinates with an argument, `c < n`, each with what it must be: the masks of what is read at the element's own place,
/// and, where `n` is what the launches differ in, the branches of its value.
fn extents(arena: &Arena, j: &Judged<'_>, changed: Option<TermId>) -> Vec<(TermId, bool)> {
    let mut out = Vec::new();
    let coordinate =
        |m: &[TermId]| m.iter().any(|t| j.solved.coords.list.iter().any(|c| arena.contains_var(*t, c.var)));
    let place = arena.poly(j.solved.offset);
    let argument = |m: &[TermId]| m.iter().any(|t| matches!(arena.node(*t), Node::Arg(_)));
    let mut add = |c: TermId, branch: bool| {
        let Node::Ge0(p) = *arena.node(c) else { return };
        let p = arena.poly(p);
        let whole = p.terms.len() <= 3 && p.terms.iter().all(|(m, k)| !coordinate(m) || k.abs() == 1);
        // `n - c - 1 >= 0` must hold, `c - n >= 0` must not.
        for (holds, sign) in [(true, 1), (false, -1)] {
            let below = p.terms.iter().any(|(m, k)| k * sign < 0 && coordinate(m));
            // `c0*64 + c1 < n` where the element lies at `c0*64 + c1`: another place may be masked for the element that there is.
            let own = || p.terms.iter().filter(|(m, _)| coordinate(m)).all(|(m, k)| place.coeff(m) == -k * sign);
            let limit = match branch {
                // The number of rows itself, not a half of it.
                true => whole && changed.is_some_and(|n| p.coeff(&[n]) == sign),
                false => holds && p.constant_part() == -1 && own() && p.terms.iter().any(|(m, _)| argument(m)),
            };
            if below && limit && !out.contains(&(c, holds)) {
                out.push((c, holds));
            }
        }
    };
    arena.walk(j.solved.value, |_, n| match n {
        Node::Load(l) => arena.conjuncts(l.mask).into_iter().for_each(|c| add(c, false)),
        Node::Ite(c, ..) => arena.conjuncts(*c).into_iter().for_each(|c| add(c, true)),
        _ => {}
    });
    out
}

/// A host could make a launch with these numbers: what the analysis took for granted of sizes and strides holds.
pub(super) fn laid_out(e: &mut Evaluator<'_>, a: &Analysis<'_>, trial: &Trial) -> bool {
    let numbers = trial.numbers();
    let fits = a.sites.iter().flat_map(|j| &j.rooms).all(|(condition, facts)| {
        let room = condition.room().expect("only those with room are kept");
        // Whether the compared row exists is asked of its coordinates.
        let of_launch = !matches!(condition, crate::analysis::Condition::Exists { .. });
        !of_launch || holds(&mut e.arena, room, facts, &numbers, LOADED_MAX) != Holds::No
    });
    fits && a.sites.iter().all(|j| {
        let mixed = |base: TermId| j.problems.iter().any(|p| matches!(p, Problem::Mixed { base: b, .. } if *b == base));
        // What reads other rows need not stay within its own.
        let mut own = j.usage.loads.iter().filter(|u| !mixed(u.load.base));
        own.all(|u| nested(&mut e.arena, u, trial, &numbers))
    })
}

/// With the strides of this launch, the places within a row, plane or batch end before the next one begins. Where a kernel reads
/// whole rows further on purpose, that is a constant number of strides, which is not looked at.
fn nested(arena: &mut Arena, u: &LoadUse, trial: &Trial, numbers: &Numbers) -> bool {
    if arena.any(u.load.offset, |n| matches!(n, Node::Load(_))) {
        // Where data says the place, no order of strides is meant.
        return true;
    }
    let env = Env::new(&HashMap::new(), trial);
    // What each stride adds to the address, and whether that names a coordinate: how far a loop goes in one step is no dimension.
    let mut parts: Vec<(i128, bool, Vec<TermId>, Poly)> = Vec::new();
    for (m, k) in arena.poly(u.load.offset).terms {
        let (params, index): (Vec<TermId>, Vec<TermId>) = m.iter().partition(|t| is_param(arena, **t));
        if index.is_empty() {
            continue;
        }
        let Some(stride) = params.iter().try_fold(k.abs(), |n, t| n.checked_mul(number(arena, *t, &env)?)) else {
            return true;
        };
        let of_tensor = |v: &VarId| matches!(arena.vars[v.0 as usize].kind, VarKind::Coord(_));
        let outer = index.iter().any(|t| arena.free_vars(*t).iter().any(of_tensor));
        match parts.iter_mut().find(|(s, _, p, _)| *s == stride && *p == params) {
            Some((_, row, _, sum)) => {
                *row |= outer;
                sum.terms.push((m, k));
            }
            None => parts.push((stride, outer, params, Poly { terms: vec![(m, k)] })),
        }
    }
    parts.sort_by_key(|(stride, outer, ..)| (*stride, *outer));
    let mut below = arena.int(0);
    for (stride, coordinate, _, part) in parts {
        let room = arena.scale(below, -1);
        let room = arena.add_const(room, stride - 1);
        if coordinate && holds(arena, room, &u.facts, numbers, LOADED_MAX) == Holds::No {
            return false;
        }
        let part = arena.from_poly(part);
        below = arena.add(below, part);
    }
    true
}

/// Programs do not race: unless their order is what is shown, both orders leave the same.
pub(super) fn ordered_alike(
    e: &Evaluator<'_>,
    a: &Analysis<'_>,
    plan: &Plan,
    attack: &Attack,
    launches: &[(&Trial, &Options, &Ran)],
) -> bool {
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
    launches.iter().all(|(trial, opt, ran)| {
        let back = Options { order: ProgramOrder::Descending, ..(*opt).clone() };
        run_trial(e.module, plan, trial, &back).is_some_and(|y| ran.agrees(&y) || order_counts && suspected)
    })
}

/// The kernel reads memory that it writes.
fn reads_back(a: &Analysis<'_>) -> bool {
    a.sites.iter().flat_map(|j| &j.usage.loads).any(|u| u.load.epoch > 0)
}

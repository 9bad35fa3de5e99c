//! Judging one kernel: what its value uses, the set S, conditions and problems.

use super::address::{loads, params_of};
use super::atomics::{aggregate, atomic_problems, bound_by_grid, places_in_row, uncounted};
use super::roles::{ArgReport, arg_reports};
use super::rows::{index_problems, inner_guarded, pick_rows};
use super::site::{Solved, describe, instances, launch_facts};
use super::usage::{Role, Usage, Walk};
use super::verdict::{Condition, Problem};
use super::{digits, inplace, listed, owner, union};
use crate::eval::{Effects, Evaluator, Site, SiteKind};
use crate::term::{Arena, Facts, Node, TermId, VarId, VarKind};
use std::collections::{BTreeMap, BTreeSet};

/// What the user said about arguments (by position).
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// May differ between batches (a pointer: what it points to).
    pub batch: BTreeSet<u32>,
    /// Never differ between batches.
    pub fixed: BTreeSet<u32>,
}

/// What is known of one memory region that is written.
#[derive(Clone, Debug)]
pub struct Judged<'m> {
    /// The joined site.
    pub solved: Solved<'m>,
    /// What it depends on.
    pub usage: Usage,
    /// The batch coordinates.
    pub rows: Vec<VarId>,
    /// Names of the coordinates, with their definitions.
    pub coordinates: Vec<String>,
    /// Pointers read without a batch coordinate.
    pub shared: BTreeSet<TermId>,
    /// Pointers read through a loaded integer: pointer, through which.
    pub placed: BTreeSet<(TermId, TermId)>,
    /// Pointers of those whose memory belongs to S, as the integers are more than numbers of pages.
    pub whole: BTreeSet<TermId>,
    /// Pointers read by row.
    pub by_row: BTreeSet<TermId>,
    /// Conditions used.
    pub conditions: BTreeSet<Condition>,
    /// Those that are inequalities, with what holds where they must.
    pub rooms: Vec<(Condition, Facts)>,
    /// The stride of the rows of each pointer, by row coordinate.
    pub strides: BTreeMap<(TermId, VarId), TermId>,
    /// Why it is not proved; empty if it is.
    pub problems: Vec<Problem>,
}

/// The whole answer, before witnesses.
#[derive(Clone, Debug)]
pub struct Analysis<'m> {
    /// One for each written pointer.
    pub sites: Vec<Judged<'m>>,
    /// Effects that are not followed, and what is wrong with the kernel as a whole.
    pub problems: Vec<Problem>,
    /// Arguments and `num_programs` that count as batch-dependent.
    pub batch: BTreeSet<TermId>,
    /// S: arguments, `num_programs`, and pointers read without a batch coordinate.
    pub given: BTreeSet<TermId>,
    /// Every condition used.
    pub conditions: BTreeSet<Condition>,
    /// By argument.
    pub args: Vec<ArgReport>,
    /// The stores.
    pub effects: Effects<'m>,
}

/// Analyses the kernel of a module.
pub fn analyse<'m>(e: &mut Evaluator<'m>, roles: &Roles) -> Option<Analysis<'m>> {
    let effects = e.effects()?;
    let divisors = divisors(e, &effects);
    if !divisors.is_empty() {
        e.arena.assume_positive(divisors.iter().copied());
        e.arena.rules.insert("positive-divisor");
    }
    let facts = launch_facts(e, &effects.assumed);
    let mut problems: Vec<Problem> =
        effects.unknown.iter().map(|u| Problem::Opaque { what: u.what.clone(), op: u.op.number }).collect();
    let mut bases: Vec<TermId> = Vec::new();
    for s in &effects.sites {
        if !bases.contains(&s.base) {
            bases.push(s.base);
        }
    }
    if bases.iter().filter(|b| !matches!(e.arena.node(**b), Node::ArgPtr(_))).count() > 0 && bases.len() > 1 {
        problems.push(Problem::Opaque { what: "a store through a pointer of unknown origin".into(), op: u32::MAX });
    }
    let mut out = Analysis {
        sites: Vec::new(),
        problems,
        batch: BTreeSet::new(),
        given: BTreeSet::new(),
        conditions: divisors.into_iter().map(|arg| Condition::Positive { arg }).collect(),
        args: Vec::new(),
        effects,
    };
    let mut joined = Vec::new();
    for base in bases {
        let sites: Vec<Site<'m>> = out.effects.sites.iter().filter(|s| s.base == base).cloned().collect();
        for (group, solved) in union::join(&mut e.arena, &facts, &sites) {
            let mut atomic = atomic_problems(&group);
            match solved {
                Ok(solved) => joined.push((solved, atomic, group.len() == 1)),
                Err(what) => {
                    out.problems.push(Problem::Opaque { what, op: group[0].op.number });
                    out.problems.append(&mut atomic);
                }
            }
        }
    }
    let declared: BTreeSet<TermId> = roles.batch.iter().filter_map(|&i| scalar_arg(e, i)).collect();
    for (mut solved, mut atomic, alone) in joined {
        if alone && one_instance(e, &solved) {
            atomic.retain(|p| !matches!(p, Problem::Schedule { why } if why.starts_with("float atomic adds")));
        }
        let judged = judge(e, &out.effects, solved.clone(), atomic.clone(), &declared);
        // A loop bound that is larger than the row needs: try again with the row's own bound.
        let shaped = judged.usage.params.iter().any(|(_, r)| r.contains(&Role::Tree)) || !judged.problems.is_empty();
        if shaped
            && needs_extension(&judged, &declared)
            && super::extension::apply(&mut e.arena, &mut solved, &declared)
        {
            let again = judge(e, &out.effects, solved, atomic, &declared);
            out.sites.push(again);
        } else {
            out.sites.push(judged);
        }
    }
    one_row_for_atomics(&mut out.sites);
    let batch = batch_params(e, &out, &declared, roles);
    settle(e, &mut out, batch, roles);
    Some(out)
}

/// Integer arguments that something is divided by. What a host divides indices by is a size: a launch where it is not positive traps, or
/// counts backwards out of its buffers.
fn divisors(e: &Evaluator<'_>, effects: &Effects<'_>) -> BTreeSet<TermId> {
    let mut out = BTreeSet::new();
    for s in &effects.sites {
        for t in [s.offset, s.value, s.guard] {
            e.arena.walk(t, |_, n| {
                if let Node::Div(_, d) | Node::Mod(_, d) | Node::TDiv(_, d) | Node::TRem(_, d) = n
                    && matches!(e.arena.node(*d), Node::Arg(_))
                {
                    out.insert(*d);
                }
            });
        }
    }
    out
}

/// What several atomics add to one cell must belong to one row.
fn one_row_for_atomics(sites: &mut [Judged<'_>]) {
    let place = |j: &Judged<'_>| {
        let rows = j.solved.coords.list.iter().enumerate().filter(|(_, c)| j.rows.contains(&c.var));
        (j.solved.coords.shape(), rows.map(|(i, _)| i).collect::<Vec<_>>())
    };
    for i in 1..sites.len() {
        let (before, rest) = sites.split_at_mut(i);
        let j = &mut rest[0];
        let atomic = j.solved.site.kind != SiteKind::Store;
        let base = j.solved.site.base;
        if atomic && before.iter().any(|k| k.solved.site.base == base && place(k) != place(j)) {
            j.problems
                .push(Problem::Schedule { why: "several atomics on one pointer count for different rows".into() });
        }
    }
}

/// Only where something is wrong: each use of the rule may add conditions.
fn needs_extension(j: &Judged<'_>, declared: &BTreeSet<TermId>) -> bool {
    !j.problems.is_empty() || j.usage.params.iter().any(|(p, r)| declared.contains(p) && r.contains(&Role::Tree))
}

/// At most one instance reaches an element: every instance variable follows from the coordinates.
fn one_instance(e: &mut Evaluator<'_>, solved: &Solved<'_>) -> bool {
    let mut all: Vec<VarId> = solved.site.indices.iter().chain(&solved.site.iterations).copied().collect();
    all.extend(e.pids_used().into_iter().map(|(_, v)| v));
    all.into_iter().all(|v| {
        let t = e.arena.var_term(v);
        solved.coords.solution.get(&t).is_some_and(|&x| !e.arena.has_instance(x))
    })
}

pub(super) fn scalar_arg(e: &mut Evaluator<'_>, i: u32) -> Option<TermId> {
    let f = e.module.kernel()?;
    let ty = f.ty(f.params.get(i as usize)?.value);
    if ty.pointee().is_some() {
        return None;
    }
    let sort = crate::eval::sort_of(ty);
    Some(e.arena.intern(Node::Arg(i), sort))
}

fn judge<'m>(
    e: &mut Evaluator<'m>,
    effects: &Effects<'m>,
    mut solved: Solved<'m>,
    problems: Vec<Problem>,
    declared: &BTreeSet<TermId>,
) -> Judged<'m> {
    let summed = aggregate(&mut e.arena, &mut solved);
    let mut rows: BTreeSet<VarId> = solved.coords.list.iter().map(|c| c.var).collect();
    loop {
        let mut with = solved.clone();
        let used = rows_exist(&mut e.arena, &mut with, &rows);
        let out = judge_rows(e, effects, with, problems.clone(), declared, &summed);
        // Which coordinates are rows shows only now.
        if used.iter().all(|v| out.rows.contains(v)) {
            return out;
        }
        rows.retain(|v| out.rows.contains(v));
    }
}

fn judge_rows<'m>(
    e: &mut Evaluator<'m>,
    effects: &Effects<'m>,
    mut solved: Solved<'m>,
    mut problems: Vec<Problem>,
    declared: &BTreeSet<TermId>,
    summed: &[VarId],
) -> Judged<'m> {
    if solved.owner.is_none() {
        let coordinates: Vec<(VarId, TermId)> = solved.coords.list.iter().map(|c| (c.var, c.term)).collect();
        if let Some((o, condition)) = owner::own(&mut e.arena, &[solved.value, solved.guard], &coordinates) {
            // No two rows have one number in prefix sums that do not decrease: every sequence has a row.
            let distinct = |c: &Condition| matches!((c, &condition), (Condition::Distinct { base: x }, Condition::PrefixSum { base: y }) if x == y);
            if solved.conditions.iter().any(distinct) {
                let more = e.arena.lt(o.begin, o.end);
                solved.facts.assume(&mut e.arena, more);
            }
            solved.owner = Some(o);
            solved.conditions.push(condition);
        }
    }
    let base = launch_facts(e, &effects.assumed);
    let alone = effects.sites.iter().filter(|s| s.base == solved.site.base).count() == 1;
    let usage = use_of(&mut e.arena, &base, &solved, !summed.is_empty(), alone);
    uncounted(e, effects, &solved, &mut problems);
    for v in summed {
        if let VarKind::Pid(axis) = e.arena.vars[v.0 as usize].kind {
            bound_by_grid(&mut e.arena, &solved, *v, axis, &mut problems);
        }
    }
    for (i, c) in solved.coords.list.iter().enumerate() {
        // Numbered outermost first, so that equal trees of different kernels name them alike.
        let v = &mut e.arena.vars[c.var.0 as usize];
        v.kind = VarKind::Coord(i as u32);
        v.name = format!("c{i}");
    }
    if let Some(o) = solved.owner.as_ref().filter(|o| o.row.is_some()) {
        // Digits were split off since it was made; its number must differ from theirs.
        e.arena.vars[o.sequence.0 as usize].kind = VarKind::Coord(solved.coords.list.len() as u32);
    }
    let coordinates = name_coordinates(e, &solved);
    let mut out = Judged {
        rows: Vec::new(),
        coordinates,
        shared: BTreeSet::new(),
        placed: BTreeSet::new(),
        whole: BTreeSet::new(),
        by_row: BTreeSet::new(),
        conditions: solved.conditions.iter().cloned().collect(),
        rooms: solved
            .conditions
            .iter()
            .filter(|c| c.room().is_some())
            .map(|c| (c.clone(), solved.facts.clone()))
            .collect(),
        strides: BTreeMap::new(),
        problems,
        usage,
        solved,
    };
    out.conditions.extend(places_in_row(&mut e.arena, &base, &out.solved));
    value_problems(e, effects, &mut out, summed);
    let guarded = inner_guarded(&e.arena, &out.solved);
    out.rows = pick_rows(e, &out, declared, guarded, summed);
    super::home::rule(e, &mut out, guarded);
    index_problems(&mut out);
    digits::packed_rows(&mut e.arena, &mut out, declared);
    listed::blocks(&mut e.arena, &mut out);
    for u in &out.usage.loads {
        if u.load.volatile {
            out.conditions.insert(Condition::Quiet { base: u.load.base });
        }
    }
    out
}

/// A load masked by `row < extent`: the claim is about rows that exist in both launches, so the mask holds. That what is stored beyond is padding
/// is a condition. Only of the coordinates `rows`: how many places of a row are read says what the row
/// holds. Those that it was used of.
fn rows_exist(arena: &mut Arena, solved: &mut Solved<'_>, rows: &BTreeSet<VarId>) -> Vec<VarId> {
    let mut masks = Vec::new();
    arena.walk(solved.value, |_, n| {
        if let Node::Load(l) = n {
            masks.push(*l);
        }
    });
    let mut found = Vec::new();
    for l in masks {
        for c in arena.conjuncts(l.mask) {
            let Node::Ge0(p) = *arena.node(c) else { continue };
            let p = arena.poly(p);
            let coords: Vec<_> =
                p.terms.iter().filter(|(m, _)| m.iter().any(|&t| !super::usage::is_param(arena, t))).collect();
            let [(m, k)] = coords.as_slice() else { continue };
            let of_row = solved.coords.list.iter().any(|x| rows.contains(&x.var) && m.as_slice() == [x.term]);
            let named = p.terms.iter().any(|(m, _)| m.iter().any(|&t| super::usage::is_param(arena, t)));
            let (base, extent) = (l.base, c);
            if of_row && *k < 0 && named && !found.contains(&(base, extent)) {
                found.push((base, extent));
            }
        }
    }
    let mut used = Vec::new();
    for (base, extent) in found {
        used.extend(solved.coords.list.iter().map(|c| c.var).filter(|v| arena.contains_var(extent, *v)));
        solved.facts.assume(arena, extent);
        let text = arena.show(extent, &|i| format!("arg{i}"));
        let Node::Ge0(room) = *arena.node(extent) else { continue };
        let parts = arena.poly(room).terms.into_iter().flat_map(|(m, _)| m).collect::<Vec<_>>();
        let row = parts.iter().copied().find(|t| solved.coords.list.iter().any(|c| c.term == *t));
        let of_tensor =
            |t: &TermId| matches!(arena.node(*t), Node::Op(name, _) if arena.text(*name).starts_with("desc.shape"));
        let described = parts.iter().all(|t| Some(*t) == row || of_tensor(t));
        for t in parts {
            if let (Some(row), Node::Arg(_)) = (row, arena.node(t)) {
                solved.limits.push((row, t));
            }
        }
        // What a descriptor has no row for is no row. An argument may be anything: elements beyond it are stored as well, as far as the
        // store's own extent or the grid goes, and are padding only by agreement.
        solved.conditions.push(match described {
            true => Condition::Extent { base, text: format!("the row exists: {text}"), room },
            false => Condition::Exists { base, text, room },
        });
        arena.rules.insert("row-exists");
    }
    solved.value = arena.simplify(solved.value, &solved.facts);
    used
}

fn use_of(arena: &mut Arena, base: &Facts, solved: &Solved<'_>, with_guard: bool, alone: bool) -> Usage {
    let mut walk_guard = Vec::new();
    // Where another part of a guard fails, what this one says does not matter; parts that read nothing go before those that do.
    let plain = arena.conjuncts(solved.guard).into_iter().filter(|c| !arena.any(*c, |n| matches!(n, Node::Load(_))));
    let plain: Vec<TermId> = plain.collect();
    let plain = arena.and(plain);
    let outside = base.with(arena, plain);
    // Whether the element is written at all: conditions that are not the extent of a coordinate.
    let coordinate_only = |arena: &Arena, c: TermId| {
        !arena.any(c, |n| matches!(n, Node::Load(_)))
            && arena.free_vars(c).iter().all(|v| matches!(arena.vars[v.0 as usize].kind, VarKind::Coord(_)))
    };
    let arena_parts: Vec<TermId> =
        arena.conjuncts(solved.guard).into_iter().filter(|c| !coordinate_only(arena, *c)).collect();
    // The outermost coordinate below a number that all rows share: the claim is about rows that exist in both launches, however many there
    // are. A second store to the pointer could write what this one leaves out, and a limit on places within a row says what the row holds.
    let extent = |arena: &Arena, c: TermId| {
        let Node::Ge0(p) = *arena.node(c) else { return false };
        let Some(outermost) = solved.coords.list.first() else { return false };
        let p = arena.poly(p);
        let mut of_rows = p.terms.iter().filter(|(m, _)| m.iter().any(|&t| !arena.free_vars(t).is_empty()));
        let program = |v: &VarId| matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_));
        let by_program = arena.free_vars(outermost.definition).iter().any(program);
        let below =
            matches!((of_rows.next(), of_rows.next()), (Some((m, k)), None) if *k < 0 && *m == [outermost.term]);
        alone && by_program && below
    };
    // Where one part of a guard fails nothing is stored, whatever the parts after it read; those that read least go first.
    let mut parts = arena.conjuncts(solved.guard);
    parts.sort_by_key(|c| loads(arena, *c).len());
    let cases: Vec<TermId> = solved.cases.iter().flat_map(|c| arena.conjuncts(*c)).collect();
    let guard = parts.len();
    let mut before = base.clone();
    for (i, c) in parts.into_iter().chain(cases).enumerate() {
        let free = !arena.free_vars(c).is_empty();
        let reads = !loads(arena, c).is_empty() || arena.any(c, |n| matches!(n, Node::Opaque(..)));
        // An integer that a program reads for itself (a length, a table) says which elements it makes; data, and what is reduced over
        // the lanes of a block, say something about other elements.
        let mut of_block = false;
        arena.walk(c, |t, n| match n {
            Node::Load(_) => of_block |= arena.sort(t) == crate::term::Sort::Data,
            Node::Reduce(_) => of_block = true,
            _ => {}
        });
        let placed = instances(arena, c).is_empty();
        let counts_rows = i < guard && (!of_block && extent(arena, c) || listed::exists(arena, solved, c));
        if (reads || !free) && (placed || (reads && of_block)) && !counts_rows {
            walk_guard.push((c, before.clone()));
        }
        if i < guard && (placed || !reads) {
            before.assume(arena, c);
        }
    }
    let mut walk = Walk::new(arena, solved.owner.clone());
    walk.visit(solved.value, &solved.facts, Role::Value);
    for (c, facts) in walk_guard {
        walk.visit(c, &facts, Role::Tree);
    }
    super::written::visit(&mut walk, solved, &outside);
    for &c in &solved.chosen {
        walk.visit(c, &outside, Role::Tree);
    }
    if with_guard {
        // What decides which instances are combined; the range of a coordinate does not.
        for c in arena_parts {
            walk.visit(c, &outside, Role::Tree);
        }
    }
    walk.usage
}

fn value_problems(e: &mut Evaluator<'_>, effects: &Effects<'_>, out: &mut Judged<'_>, summed: &[VarId]) {
    for (why, op) in &out.usage.opaque {
        let p = match why.as_str() {
            "atomic result" => {
                Problem::Schedule { why: "the result of an atomic, which depends on the schedule, is used".into() }
            }
            _ => Problem::Opaque { what: why.clone(), op: *op },
        };
        out.problems.push(p);
    }
    let left: Vec<VarId> = out.usage.instances.iter().copied().filter(|v| !summed.contains(v)).collect();
    if !left.is_empty() {
        let vars = left.iter().map(|v| describe(&e.arena, *v)).collect::<Vec<_>>().join(", ");
        out.problems.push(Problem::Instance { vars });
    }
    for &op in &out.usage.undefined {
        out.problems.push(Problem::Undefined { op });
    }
    for u in out.usage.loads.clone() {
        if u.load.epoch > 0 {
            let base = launch_facts(e, &effects.assumed);
            match inplace::fault(&mut e.arena, &base, effects, &out.solved, &u) {
                Ok(needs) => {
                    let rooms = needs.iter().filter(|c| c.room().is_some()).map(|c| (c.clone(), u.facts.clone()));
                    out.rooms.extend(rooms);
                    out.conditions.extend(needs);
                }
                Err(why) => out.problems.push(Problem::Schedule { why }),
            }
        }
    }
    if !out.usage.bounds.is_empty() {
        let coordinate = "of its sequence or group".to_owned();
        out.problems.push(Problem::Index { coordinate });
    }
}

fn name_coordinates(e: &Evaluator<'_>, solved: &Solved<'_>) -> Vec<String> {
    let arg = |i: u32| arg_name(e, i);
    solved
        .coords
        .list
        .iter()
        .map(|c| format!("{} = {}", e.arena.vars[c.var.0 as usize].name, e.arena.show(c.definition, &arg)))
        .collect()
}

/// The name of an argument, by its position.
pub fn arg_name(e: &Evaluator<'_>, i: u32) -> String {
    e.module
        .kernel()
        .and_then(|f| f.params.get(i as usize).and_then(|p| f.name_of(p.value)))
        .map_or_else(|| format!("arg{i}"), str::to_owned)
}

/// Arguments that count as batch-dependent.
fn batch_params(
    e: &mut Evaluator<'_>,
    a: &Analysis<'_>,
    declared: &BTreeSet<TermId>,
    roles: &Roles,
) -> BTreeSet<TermId> {
    let mut batch = declared.clone();
    if declared.is_empty() && roles.batch.is_empty() {
        for j in &a.sites {
            batch.extend(super::infer::limits_of_rows(&mut e.arena, j));
        }
        batch.extend(super::infer::by_name(e));
    }
    for &i in &roles.fixed {
        if let Some(t) = scalar_arg(e, i) {
            batch.remove(&t);
        }
    }
    batch
}

/// Puts S together and compares it with what may differ between batches.
fn settle(e: &mut Evaluator<'_>, out: &mut Analysis<'_>, batch: BTreeSet<TermId>, roles: &Roles) {
    out.batch = batch;
    let mut roles_seen: BTreeMap<TermId, BTreeSet<Role>> = BTreeMap::new();
    for j in &mut out.sites {
        for (&p, r) in &j.usage.params {
            roles_seen.entry(p).or_default().extend(r.iter().copied());
            if r.iter().all(|r| *r == Role::Address) {
                continue;
            }
            out.given.insert(p);
            let how = match r.iter().max() {
                Some(Role::Tree) => "shapes the tree",
                Some(Role::Value) => "enters the value",
                _ => "moves what is read",
            };
            let grid = matches!(e.arena.node(p), Node::NumPrograms(_));
            if grid || out.batch.contains(&p) {
                j.problems.push(Problem::Batch { param: p, how });
            }
        }
        // A stride that is computed from an argument of the batch cuts the output into other rows in another batch.
        let strides = j.solved.coords.list.iter().flat_map(|c| c.stride.clone());
        let computed = strides.filter(|t| !matches!(e.arena.node(*t), Node::Arg(_)));
        let params: BTreeSet<TermId> = computed.flat_map(|t| params_of(&e.arena, t)).collect();
        for param in params.into_iter().filter(|p| out.batch.contains(p)) {
            j.problems.push(Problem::Batch { param, how: "decides what a row is" });
        }
        for &p in &j.shared {
            out.given.insert(p);
            let declared = matches!(e.arena.node(p), Node::ArgPtr(i) if roles.batch.contains(i));
            let fixed = matches!(e.arena.node(p), Node::ArgPtr(i) if roles.fixed.contains(i));
            let integer_shapes = j
                .usage
                .loads
                .iter()
                .any(|u| u.load.base == p && u.in_tree && e.arena.sort(u.term) == crate::term::Sort::Int);
            // What launches agree on is read at the same places of it, so nothing of the batch may say where.
            let moved =
                j.usage.loads.iter().filter(|u| u.load.base == p).flat_map(|u| params_of(&e.arena, u.load.offset));
            let moved: BTreeSet<TermId> = moved.collect();
            for param in moved {
                let grid = matches!(e.arena.node(param), Node::NumPrograms(_));
                let problem = Problem::Batch { param, how: "moves what is read" };
                if (grid || out.batch.contains(&param)) && !j.problems.contains(&problem) {
                    j.problems.push(problem);
                }
            }
            if declared || (integer_shapes && !fixed && !j.rows.is_empty()) {
                let how = if integer_shapes {
                    "points to a number of the whole batch that shapes the tree"
                } else {
                    "points to data of the whole batch"
                };
                j.problems.push(Problem::Batch { param: p, how });
            }
        }
        for &p in &j.whole {
            out.given.insert(p);
            if matches!(e.arena.node(p), Node::ArgPtr(i) if roles.batch.contains(i)) {
                j.problems.push(Problem::Batch { param: p, how: "is read at numbers that are not those of pages" });
            }
        }
        out.conditions.extend(j.conditions.iter().cloned());
    }
    out.args = arg_reports(e, out, &roles_seen);
}

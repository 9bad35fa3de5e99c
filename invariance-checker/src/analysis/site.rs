//! One store: its value over output coordinates, and what is left that is not a coordinate.

use super::coords::{Coord, Coords, Packed};
use super::owner::{self, Owner};
use super::verdict::Condition;
use crate::eval::{Evaluator, Site, SiteKind};
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Node, TermId, VarId, VarKind};

/// A site after its coordinates were solved for.
#[derive(Clone, Debug)]
pub struct Solved<'m> {
    /// The store.
    pub site: Site<'m>,
    /// Its coordinates.
    pub coords: Coords,
    /// What is stored, over coordinates.
    pub value: TermId,
    /// When, over coordinates; with the ranges of what was solved for.
    pub guard: TermId,
    /// Address, over coordinates.
    pub offset: TermId,
    /// The guard as facts.
    pub facts: Facts,
    /// One condition for each store that was joined, beside the common guard.
    pub cases: Vec<TermId>,
    /// The stores that were joined, each with the coordinates over its own instances.
    pub parts: Vec<Part<'m>>,
    /// What keeps the store from meeting another one to the same memory, if that hangs on their guards.
    pub chosen: Vec<TermId>,
    /// The row's sequence.
    pub owner: Option<Owner>,
    /// What was used on trust.
    pub conditions: Vec<Condition>,
    /// Instance variables that are left in the value.
    pub left: Vec<VarId>,
    /// Arguments that the mask of a load compares a coordinate with: coordinate, argument.
    pub limits: Vec<(TermId, TermId)>,
}

/// A store, and what each coordinate is for an instance of it.
#[derive(Clone, Debug)]
pub struct Part<'m> {
    /// The store.
    pub site: Site<'m>,
    /// By coordinate.
    pub definitions: Vec<TermId>,
}

impl<'m> Part<'m> {
    /// The one store of a site that is not joined.
    pub fn of(solved: &Solved<'m>) -> Part<'m> {
        let definitions = solved.coords.list.iter().map(|c| c.definition).collect();
        Part { site: solved.site.clone(), definitions }
    }
}

/// How another store to the same memory was taken apart.
#[derive(Clone, Debug, Default)]
pub struct Like {
    /// Its rows are places in a list of rows.
    pub listed: bool,
    /// Its digits: stride of the coordinate, and where it was split.
    pub splits: Vec<(crate::term::Mono, i128)>,
}

/// Facts that hold in every launch: program ids are below the grid size, and what the kernel assumes.
pub fn launch_facts(e: &mut Evaluator<'_>, assumed: &[TermId]) -> Facts {
    let mut facts = Facts::default();
    for (axis, v) in e.pids_used() {
        let n = e.arena.intern(Node::NumPrograms(axis), crate::term::Sort::Int);
        let p = e.arena.var_term(v);
        let c = e.arena.lt(p, n);
        facts.assume(&mut e.arena, c);
    }
    for &c in assumed {
        facts.assume(&mut e.arena, c);
    }
    facts
}

/// Instance variables of a term.
pub fn instances(arena: &Arena, t: TermId) -> Vec<VarId> {
    arena.free_vars(t).iter().copied().filter(|v| arena.vars[v.0 as usize].kind.is_instance()).collect()
}

/// Solves a site, its coordinates at least as in `like`.
pub fn solve<'m>(arena: &mut Arena, base: &Facts, site: &Site<'m>, like: &Like) -> Solved<'m> {
    // In one form, so that what is solved for in the address is found in the value and in the guard.
    let guard = arena.simplify(site.guard, base);
    let guard = settled(arena, base, guard);
    let original = base.with(arena, guard);
    let guard = inequalities_in_form(arena, &original, guard);
    let original = base.with(arena, guard);
    let offset = arena.simplify(site.offset, &original);
    let site = &Site { guard, value: arena.simplify(site.value, &original), ..site.clone() };
    let mut coords = Coords::of_address(arena, offset);
    let mut conditions = Vec::new();
    if like.listed {
        let all = instances(arena, offset);
        coords.scatter(arena, &all, &mut conditions);
    }
    for split in &like.splits {
        coords.split_at(arena, &original, split);
    }
    let atomic = matches!(site.kind, SiteKind::Atomic(_));
    if atomic && (site.is_float() || !coords.split_data(arena, &original)) {
        // What the atomic combines depends on which instances reach an element, so every digit is made a coordinate.
        let all = instances(arena, offset);
        while coords.split(arena, &original, &all) {}
    }
    let mut owner: Option<Owner> = None;
    let mut extra: HashMap<TermId, TermId> = HashMap::default();
    let mut rounds = 0;
    loop {
        let mut out = apply(arena, base, site, offset, &coords, &extra);
        out.owner.clone_from(&owner);
        out.conditions.clone_from(&conditions);
        rounds += 1;
        if rounds > 20 || arena.stopped() {
            return finish(arena, out);
        }
        if owner.is_none() {
            // A row of the batch is found through the program id.
            let program = |arena: &Arena, t: TermId| {
                let pid = |v: &VarId| matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_));
                arena.free_vars(t).iter().any(pid)
            };
            let by_program = coords.list.iter().filter(|c| !c.remainder && program(arena, c.definition));
            let rows: Vec<TermId> = by_program.map(|c| c.term).collect();
            if let Some((o, map, needs)) = super::search::find(arena, out.value, &rows, coords.list.len() as u32) {
                owner = Some(o);
                conditions.extend(needs);
                extra.extend(map);
                continue;
            }
        }
        if out.left.is_empty() {
            // What an atomic reads to decide whether it counts matters like what it adds.
            let open = if atomic { reading_instances(arena, out.guard) } else { vec![] };
            if !open.is_empty() && coords.split(arena, &original, &open) {
                continue;
            }
            return finish(arena, out);
        }
        if coords.scatter(arena, &out.left, &mut conditions) {
            (owner, extra) = (None, HashMap::default());
            conditions.retain(|c| !owner::needed(c));
            continue;
        }
        if owner.is_none() {
            let rows: Vec<(TermId, bool)> = coords.list.iter().map(|c| (c.term, c.listed)).collect();
            let roots = [out.value, out.guard];
            if let Some((o, map, needs)) = owner::find(arena, &out.facts, &roots, &rows, coords.list.len() as u32) {
                owner = Some(o);
                conditions.extend(needs);
                extra.extend(map);
                continue;
            }
        }
        if coords.split(arena, &original, &out.left) {
            // The coordinates are new ones: their sequence is looked for again.
            (owner, extra) = (None, HashMap::default());
            conditions.retain(|c| !owner::needed(c));
            continue;
        }
        return finish(arena, out);
    }
}

/// Instance variables of what a guard reads.
fn reading_instances(arena: &mut Arena, guard: TermId) -> Vec<VarId> {
    let parts = arena.conjuncts(guard);
    let reads = parts.into_iter().filter(|c| arena.any(*c, |n| matches!(n, Node::Load(_))));
    let mut out: Vec<VarId> = reads.flat_map(|c| instances(arena, c)).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// The guard with what is read in it simplified by the rest of it: of `o < n and x[o | o < n] >= 0` the second part reads `x[o]`.
fn settled(arena: &mut Arena, base: &Facts, guard: TermId) -> TermId {
    let mut parts = arena.conjuncts(guard);
    for i in 0..parts.len() {
        if arena.any(parts[i], |n| matches!(n, Node::Load(_))) {
            let others =
                arena.and(parts.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, c)| *c).collect::<Vec<_>>());
            let facts = base.with(arena, others);
            parts[i] = arena.simplify(parts[i], &facts);
        }
    }
    arena.and(parts)
}

/// The guard with its inequalities in the form that numbers have where it holds: of `pid rem d < m`, which says that d is positive, the
/// remainder is the one of floor division, as it is in the address. The old parts stay, since only together do they say so.
fn inequalities_in_form(arena: &mut Arena, original: &Facts, guard: TermId) -> TermId {
    let mut parts = arena.conjuncts(guard);
    for i in 0..parts.len() {
        if let Node::Ge0(p) = *arena.node(parts[i]) {
            let p = arena.simplify(p, original);
            parts.push(arena.ge0(p));
        }
    }
    arena.and(parts)
}

fn finish<'m>(arena: &mut Arena, mut out: Solved<'m>) -> Solved<'m> {
    for &(axis, max) in &out.coords.grid_bounds {
        out.conditions.push(Condition::Grid { axis, max });
    }
    out.conditions.sort();
    out.conditions.dedup();
    arena.rules.insert("solve-coordinates");
    out
}

/// Splits coordinates where the value divides them. Stores that are joined are joined first: another one may not divide.
pub fn divide(arena: &mut Arena, out: &mut Solved<'_>) {
    for _ in 0..4 {
        if !by_division(arena, out) {
            break;
        }
    }
}

/// Where the value uses `c div k` or `c mod k`, the coordinate is two: `c = k*q + d` with `0 <= d < k` holds for every integer c.
fn by_division(arena: &mut Arena, out: &mut Solved<'_>) -> bool {
    let mut found: Option<(usize, i128)> = None;
    for (i, c) in out.coords.list.iter().enumerate() {
        if out.owner.as_ref().is_some_and(|o| o.row == Some(c.term)) {
            // The absolute number of a row of a packed batch stays one number, so that a use of it shows.
            continue;
        }
        let mut sizes = Vec::new();
        arena.walk(out.value, |_, n| {
            if let Node::Div(a, b) | Node::Mod(a, b) = n
                && *a == c.term
                && let Some(k) = arena.as_int(*b)
                && k > 1
            {
                sizes.push(k);
            }
        });
        if let Some(k) = sizes.into_iter().max() {
            found = Some((i, k));
            break;
        }
    }
    let Some((i, k)) = found else { return false };
    let old = out.coords.list[i].clone();
    let kt = arena.int(k);
    let mut parts = Vec::new();
    for (name, definition, factor, packed) in [
        ("q", arena.div(old.definition, kt), old.factor * k, Some(Packed { at: k, outputs: k * old.factor })),
        ("d", arena.modulo(old.definition, kt), old.factor, old.packed),
    ] {
        let number = (out.coords.list.len() + parts.len()) as u32 + 8;
        let label = format!("{}{name}", arena.vars[old.var.0 as usize].name);
        let var = arena.var(VarKind::Coord(number), label, crate::term::Range::default());
        let term = arena.var_term(var);
        parts.push(Coord {
            var,
            term,
            stride: old.stride.clone(),
            factor,
            also: old.also * (factor / old.factor),
            definition,
            packed,
            solved: None,
            remainder: name == "d",
            listed: old.listed,
        });
    }
    let high = arena.scale(parts[0].term, k);
    let whole = arena.add(high, parts[1].term);
    let low = arena.ge0(parts[1].term);
    let room = arena.lt(parts[1].term, kt);
    let map = HashMap::from_iter([(old.term, whole)]);
    let mut guard = arena.subst(out.guard, &map);
    // p >= 0 with a negative multiple of d >= 0 in it: without that part it holds as well, and its content divides out.
    let d = parts[1].term;
    for c in arena.conjuncts(guard) {
        if let Node::Ge0(p) = *arena.node(c) {
            let k = arena.poly(p).coeff(&[d]);
            if k < 0 {
                let q = arena.add_scaled(p, d, -k);
                let q = arena.ge0(q);
                guard = arena.and([guard, q]);
            }
        }
    }
    out.guard = arena.and([guard, low, room]);
    if out.facts.proves(arena, old.term) {
        // 0 <= k*q + d with d < k: q is not negative.
        let up = arena.ge0(parts[0].term);
        out.facts.assume(arena, up);
    }
    out.facts.assume(arena, out.guard);
    let value = arena.subst(out.value, &map);
    out.value = arena.simplify(value, &out.facts);
    out.offset = arena.subst(out.offset, &map);
    for c in out.cases.iter_mut().chain(&mut out.chosen) {
        *c = arena.subst(*c, &map);
    }
    for v in out.coords.solution.values_mut() {
        *v = arena.subst(*v, &map);
    }
    out.coords.list.splice(i..=i, parts);
    for p in &mut out.parts {
        let whole = p.definitions[i];
        let digits = [arena.div(whole, kt), arena.modulo(whole, kt)];
        p.definitions.splice(i..=i, digits);
    }
    out.left = instances(arena, out.value);
    arena.rules.insert("coordinate-digits");
    true
}

fn apply<'m>(
    arena: &mut Arena,
    base: &Facts,
    site: &Site<'m>,
    offset: TermId,
    coords: &Coords,
    extra: &HashMap<TermId, TermId>,
) -> Solved<'m> {
    let both = |arena: &mut Arena, t: TermId| {
        let t = arena.subst(t, &coords.solution);
        if extra.is_empty() { t } else { arena.subst(t, extra) }
    };
    let mut guard = both(arena, site.guard);
    for &f in &coords.range_facts {
        let f = if extra.is_empty() { f } else { arena.subst(f, extra) };
        guard = arena.and([guard, f]);
    }
    if matches!(site.kind, SiteKind::Atomic(_)) {
        for c in &coords.list {
            let Some(atom) = c.solved.filter(|t| !matches!(arena.node(*t), Node::Var(_))) else { continue };
            let Some(&value) = coords.solution.get(&atom) else { continue };
            let others: HashMap<TermId, TermId> =
                coords.solution.iter().filter(|(k, _)| **k != atom).map(|(k, v)| (*k, *v)).collect();
            let here = arena.subst(atom, &others);
            let hit = arena.eq(here, value);
            guard = arena.and([guard, hit]);
        }
    }
    for &(axis, max) in &coords.grid_bounds {
        let pid = arena.vars.iter().position(|v| v.kind == VarKind::Pid(axis)).map(|i| VarId(i as u32));
        if let Some(v) = pid {
            let p = arena.var_term(v);
            let p = arena.subst(p, &coords.solution);
            let m = arena.int(max);
            let c = arena.lt(p, m);
            guard = arena.and([guard, c]);
        }
    }
    let mut facts = base.with(arena, guard);
    let low = coords.not_negative(arena);
    facts.assume(arena, low);
    for (atom, value) in coords.solution.clone() {
        // A program id that was solved for is still below the size of its axis.
        if let Node::Var(v) = *arena.node(atom)
            && let VarKind::Pid(axis) = arena.vars[v.0 as usize].kind
        {
            let n = arena.intern(Node::NumPrograms(axis), crate::term::Sort::Int);
            let below = arena.lt(value, n);
            facts.assume(arena, below);
        }
    }
    let value = both(arena, site.value);
    let value = arena.simplify(value, &facts);
    let offset = both(arena, offset);
    let left = instances(arena, value);
    Solved {
        site: site.clone(),
        coords: coords.clone(),
        value,
        guard,
        offset,
        facts,
        cases: vec![],
        parts: vec![],
        chosen: vec![],
        owner: None,
        conditions: vec![],
        left,
        limits: vec![],
    }
}

/// A name for a variable in reports.
pub fn describe(arena: &Arena, v: VarId) -> String {
    match arena.vars[v.0 as usize].kind {
        VarKind::Pid(axis) => format!("program id {axis}"),
        VarKind::Index(_, axis) => format!("position in the block along axis {axis}"),
        VarKind::Iter(_) => "iteration of the loop around the store".into(),
        _ => arena.vars[v.0 as usize].name.clone(),
    }
}

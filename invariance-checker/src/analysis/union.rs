//! Several stores to one pointer are one site, by cases: the later one wins, and which case applies must itself be a function of the
//! coordinates and of S. Judged one by one, two stores chosen by program id would both look invariant.

use super::site::{Like, Part, Solved, instances, solve};
use super::usage::is_param;
use super::verdict::Condition;
use crate::eval::{Site, SiteKind};
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Node, Poly, TermId, VarId, VarKind};

/// The sites of one base, sorted into groups that never meet in one element, each joined; an error says why a group cannot be.
pub fn join<'m>(
    arena: &mut Arena,
    base: &Facts,
    sites: &[Site<'m>],
) -> Vec<(Vec<Site<'m>>, Result<Solved<'m>, String>)> {
    let mut groups: Vec<Vec<Site<'m>>> = Vec::new();
    // By operation: the parts of its guard without which it would meet another store.
    let mut chosen: HashMap<u32, Vec<TermId>> = HashMap::default();
    for s in sites {
        let mut meets_any = |arena: &mut Arena, g: &Vec<Site<'m>>| {
            g.iter().any(|t| match apart(arena, base, s, t) {
                Some(by) => {
                    for (site, parts) in [s, t].iter().zip(by) {
                        chosen.entry(site.op.number).or_default().extend(parts);
                    }
                    false
                }
                None => true,
            })
        };
        let (meets, apart): (Vec<_>, Vec<_>) =
            std::mem::take(&mut groups).into_iter().partition(|g| meets_any(arena, g));
        groups = apart;
        // Program order decides which store is the later one.
        let mut all: Vec<Site<'m>> = meets.into_iter().flatten().chain([s.clone()]).collect();
        all.sort_by_key(|s| s.order);
        groups.push(all);
    }
    groups.sort_by_key(|g| g[0].order);
    let mut out = Vec::new();
    for g in groups {
        let mut joined = match g.len() > 1 && g.iter().any(|s| s.kind != SiteKind::Store) {
            true => added_up(arena, base, &g),
            false => vec![join_group(arena, base, &g)],
        };
        for one in joined.iter_mut().flatten() {
            if one.parts.is_empty() {
                one.parts = vec![Part::of(one)];
            }
            super::site::divide(arena, one);
            for c in g.iter().filter_map(|s| chosen.get(&s.op.number)).flatten() {
                let c = arena.subst(*c, &one.coords.solution);
                one.chosen.push(c);
            }
        }
        out.extend(joined.into_iter().map(|one| (g.clone(), one)));
    }
    out
}

/// Atomics on one pointer all count: no later one takes the place of an earlier one. Each is judged by itself, over the same coordinates.
fn added_up<'m>(arena: &mut Arena, base: &Facts, sites: &[Site<'m>]) -> Vec<Result<Solved<'m>, String>> {
    match alike(arena, base, sites) {
        Some((solved, pins)) if pins.iter().all(Option::is_none) => solved.into_iter().map(Ok).collect(),
        _ => vec![Err("atomics on one pointer whose addresses split into different coordinates".into())],
    }
}

/// Sites solved for coordinates of one shape, if there is one.
fn alike<'m>(arena: &mut Arena, base: &Facts, sites: &[Site<'m>]) -> Option<(Vec<Solved<'m>>, Pins)> {
    let mut solved: Vec<Solved<'m>> = sites.iter().map(|s| solve(arena, base, s, &Like::default())).collect();
    let listed = solved.iter().any(|s| s.coords.list.iter().any(|c| c.listed));
    let mut splits: Vec<(crate::term::Mono, i128)> = solved.iter().flat_map(|s| s.coords.splits()).collect();
    splits.extend(
        solved.iter().flat_map(|s| &s.coords.list).filter(|c| c.factor > 1).map(|c| (c.stride.clone(), c.factor)),
    );
    splits.sort_unstable();
    splits.dedup();
    splits.reverse();
    if solved.iter().any(|s| s.coords.shape() != solved[0].coords.shape()) {
        let like = Like { listed, splits };
        solved = sites.iter().map(|s| solve(arena, base, s, &like)).collect();
    }
    let pins = pinned(arena, &mut solved);
    let (shape, rest) = (solved[0].coords.shape(), solved[0].coords.rest);
    solved.iter().all(|s| s.coords.shape() == shape && s.coords.rest == rest).then_some((solved, pins))
}

/// Whether two stores to one pointer cannot reach one element: the parts of each guard that this hangs on. Those say which of the two makes
/// an element, like the cases of stores that are joined.
fn apart(arena: &mut Arena, base: &Facts, a: &Site<'_>, b: &Site<'_>) -> Option<[Vec<TermId>; 2]> {
    let mut guards = [arena.conjuncts(a.guard), arena.conjuncts(b.guard)];
    let free = arena.bool(true);
    let (bare_a, bare_b) = (Site { guard: free, ..a.clone() }, Site { guard: free, ..b.clone() });
    if never_meet(arena, base, &bare_a, &bare_b) {
        return Some(Default::default());
    }
    if !never_meet(arena, base, a, b) {
        return None;
    }
    for side in 0..2 {
        for part in guards[side].clone() {
            let mut fewer = guards.clone();
            fewer[side].retain(|c| *c != part);
            let all = fewer.clone().map(|parts| arena.and(parts));
            let (a, b) = (Site { guard: all[0], ..a.clone() }, Site { guard: all[1], ..b.clone() });
            if never_meet(arena, base, &a, &b) {
                guards = fewer;
            }
        }
    }
    Some(guards)
}

/// True if two stores to one pointer cannot reach one element, whatever programs make them. What is added to the same strides must differ:
/// by range, or modulo the common factor of everything else. That rows do not overlap is assumed throughout.
fn never_meet(arena: &mut Arena, base: &Facts, a: &Site<'_>, b: &Site<'_>) -> bool {
    let ((far_a, near_a), (far_b, near_b)) = (parts(arena, a.offset), parts(arena, b.offset));
    if far_a != far_b {
        return false;
    }
    let (pa, pb) = (arena.poly(near_a), arena.poly(near_b));
    let step = pa.terms.iter().chain(&pb.terms).filter(|(m, _)| !m.is_empty()).fold(0, |g, (_, c)| gcd(g, c.abs()));
    if step > 1 && (pa.constant_part() - pb.constant_part()) % step != 0 {
        return true;
    }
    // By range, where both count positions in the block alone, or are computed from the program id that the row itself determines: any
    // other program id, and the iteration of a loop around both, may differ between the two.
    let owner = row_program(arena, a.offset).filter(|p| row_program(arena, b.offset).as_ref() == Some(p));
    let local = |arena: &Arena, t: TermId, other: &Site<'_>| {
        arena.free_vars(t).iter().all(|v| match arena.vars[v.0 as usize].kind {
            VarKind::Index(..) => true,
            VarKind::Pid(_) => owner.as_ref().is_some_and(|(pid, _)| pid == v),
            VarKind::Iter(_) => owner.is_some() && !other.iterations.contains(v),
            _ => false,
        }) && !arena.any(t, |n| matches!(n, Node::Opaque(..)) || owner.is_none() && matches!(n, Node::Load(_)))
    };
    if !local(arena, near_a, b) || !local(arena, near_b, a) || far_a.is_empty() {
        return false;
    }
    let facts = base.with(arena, a.guard).with(arena, b.guard);
    let above = arena.sub(near_b, near_a);
    let (up, down) = (arena.add_const(above, -1), arena.scale(above, -1));
    let down = arena.add_const(down, -1);
    facts.proves(arena, up) || facts.proves(arena, down)
}

/// The program id whose product with strides is all that an address has beside the position in its row, and that product: equal rows are
/// then made by equal programs.
fn row_program(arena: &Arena, offset: TermId) -> Option<(VarId, (Vec<TermId>, i128))> {
    let p = arena.poly(offset);
    let mut far = p.terms.iter().filter(|(m, _)| m.iter().any(|&t| is_param(arena, t)));
    let (m, c) = far.next()?;
    let index: Vec<TermId> = m.iter().copied().filter(|&t| !is_param(arena, t)).collect();
    match (index.as_slice(), far.next()) {
        ([t], None) => match arena.node(*t) {
            Node::Var(v) if matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_)) => Some((*v, (m.clone(), *c))),
            _ => None,
        },
        _ => None,
    }
}

/// Strides by which an address is made of more than positions in one row, and what has no stride.
fn parts(arena: &mut Arena, offset: TermId) -> (Vec<Vec<TermId>>, TermId) {
    let (mut far, mut near) = (Vec::new(), Poly::default());
    for (m, c) in &arena.poly(offset).terms {
        let stride: Vec<TermId> = m.iter().copied().filter(|&t| is_param(arena, t)).collect();
        if stride.is_empty() {
            near.terms.push((m.clone(), *c));
        } else if !far.contains(&stride) {
            far.push(stride);
        }
    }
    (far, arena.from_poly(near))
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// For each store the coordinate that it does not number itself, and the place in it.
type Pins = Vec<Option<(usize, TermId)>>;

/// A store that hits one place of a coordinate that the others number (`y[r*64 + M % 64]` beside `y[r*64 + o]`) gets that coordinate, with
/// the place as its case: for each store the coordinate and the place. That the place lies in the row is printed unless it is proved.
fn pinned(arena: &mut Arena, solved: &mut [Solved<'_>]) -> Pins {
    let mut pins = vec![None; solved.len()];
    let Some(full) = solved.iter().map(|s| s.coords.clone()).max_by_key(|c| c.list.len()) else { return pins };
    if arena.as_int(full.rest) != Some(0) {
        return pins;
    }
    for (s, pin) in solved.iter_mut().zip(&mut pins) {
        let own = s.coords.shape();
        if own.len() + 1 != full.list.len() {
            continue;
        }
        let at = own.iter().zip(full.shape()).position(|(x, y)| *x != y).unwrap_or(own.len());
        let mut list = s.coords.list.clone();
        let mut missing = full.list[at].clone();
        let above = full.list[..at].iter().rev().find(|c| c.stride == missing.stride);
        let Some(above) = above.filter(|c| c.factor % missing.factor == 0) else { continue };
        let size = above.factor / missing.factor;
        let unit = arena.from_poly(Poly { terms: vec![(missing.stride.clone(), missing.factor)] });
        let x = arena.div(s.coords.rest, unit);
        let whole = arena.mul(x, unit);
        let r = arena.range(x);
        if whole != s.coords.rest {
            continue;
        }
        if r.lo.is_none_or(|lo| lo < 0) || r.hi.is_none_or(|hi| hi >= size) {
            let text = format!("0 <= {} < {size}", arena.show(x, &|i| format!("arg{i}")));
            let room = arena.scale(x, -1);
            let room = arena.add_const(room, size - 1);
            s.conditions.push(Condition::Padded { base: s.site.base, text, room });
        }
        // A variable of its own: the coordinates of the sites are made one afterwards.
        missing.var = arena.var(VarKind::Coord(at as u32), format!("c{at}"), crate::term::Range::default());
        missing.term = arena.var_term(missing.var);
        list.insert(at, missing);
        s.coords.list = list;
        s.coords.rest = full.rest;
        *pin = Some((at, x));
    }
    pins
}

fn join_group<'m>(arena: &mut Arena, base: &Facts, sites: &[Site<'m>]) -> Result<Solved<'m>, String> {
    if let [one] = sites {
        return Ok(solve(arena, base, one, &Like::default()));
    }
    let Some((mut solved, mut pins)) = alike(arena, base, sites) else {
        return Err("stores to one pointer whose addresses split into different coordinates".into());
    };
    for s in &solved {
        if s.owner.is_some() && solved.len() > 1 {
            return Err("several stores to one pointer in a packed batch".into());
        }
        let loose = s.site.iterations.iter().any(|v| {
            let t = arena.var_term(*v);
            !s.coords.solution.contains_key(&t)
        });
        if loose {
            return Err("several stores to one pointer inside a loop".into());
        }
    }
    let mut made: Vec<Part<'m>> = solved.iter().map(Part::of).collect();
    for (part, pin) in made.iter_mut().zip(&pins) {
        if let Some((i, x)) = *pin {
            part.definitions[i] = x;
        }
    }
    // One set of coordinate variables.
    for i in 1..solved.len() {
        let map: HashMap<TermId, TermId> =
            solved[i].coords.list.iter().zip(&solved[0].coords.list).map(|(a, b)| (a.term, b.term)).collect();
        solved[i].value = arena.subst(solved[i].value, &map);
        solved[i].guard = arena.subst(solved[i].guard, &map);
        solved[i].offset = arena.subst(solved[i].offset, &map);
        if let Some((_, x)) = &mut pins[i] {
            *x = arena.subst(*x, &map);
        }
    }
    let parts: Vec<Vec<TermId>> = solved.iter().map(|s| arena.conjuncts(s.guard)).collect();
    let common: Vec<TermId> = parts[0].iter().copied().filter(|c| parts.iter().all(|p| p.contains(c))).collect();
    let mut facts = base.clone();
    let all = arena.and(common.iter().copied());
    facts.assume(arena, all);
    let low = solved[0].coords.not_negative(arena);
    facts.assume(arena, low);
    let mut cases: Vec<TermId> = Vec::new();
    for (p, pin) in parts.iter().zip(&pins) {
        let mut case = arena.and(p.iter().copied().filter(|c| !common.contains(c)));
        if let Some((i, x)) = *pin {
            let here = arena.eq(solved[0].coords.list[i].term, x);
            case = arena.and([case, here]);
        }
        cases.push(case);
    }
    // An element that no case stores is not claimed about: where all cases store one value, it is the value.
    let mut value = if solved.iter().all(|s| arena.alike(s.value, solved[0].value)) {
        solved[0].value
    } else {
        arena.float("unwritten", 0)
    };
    for (s, case) in solved.iter().zip(&cases) {
        if arena.alike(s.value, value) {
            continue;
        }
        let case = arena.simplify(*case, &facts);
        value = match arena.sort(s.value) == arena.sort(value) || arena.as_bool(case) == Some(true) {
            true => arena.ite(case, s.value, value),
            // The sorts of "unwritten" and of an integer differ; the term is never computed with.
            false => arena.op("case", vec![case, s.value, value], crate::term::Sort::Data),
        };
    }
    let value = arena.simplify(value, &facts);
    arena.rules.insert("site-union");
    let mut out = solved[0].clone();
    if let Some(full) = pins.iter().position(Option::is_none) {
        out.offset = solved[full].offset;
    }
    out.left = instances(arena, value);
    out.value = value;
    out.cases = cases;
    out.parts = made;
    out.guard = all;
    out.facts = facts;
    for s in &solved[1..] {
        out.conditions.extend(s.conditions.iter().cloned());
    }
    out.conditions.sort();
    out.conditions.dedup();
    Ok(out)
}

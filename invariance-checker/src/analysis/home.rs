//! The home rule: a load that follows a batch coordinate stays within that coordinate's own row.
//!
//! For a batch coordinate c, every load whose offset contains c must be `s*c + rest` with `0 <= rest < s`, possibly below or above
//! whole planes; anything else reads other rows (the neighbour's, the mirrored one, a window). A pointer that is read by row is read by
//! row everywhere, with one stride.

use super::address::{only_in_loads, outside_of_loads};
use super::judge::{Judged, arg_name};
use super::usage::{LoadUse, is_param};
use super::verdict::{Condition, Problem};
use super::view;
use crate::eval::Evaluator;
use crate::term::{Arena, Facts, Node, Poly, TermId, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// How a load follows a coordinate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Not at all.
    Absent,
    /// Within its own row of this stride; conditions on the layout.
    Row(TermId, Vec<Condition>),
    /// Through an integer that was loaded by the coordinate.
    Placed(TermId),
    /// Reads other rows: why.
    Mixed(String),
}

/// Products of arguments that are added to the addresses of a pointer in different whole numbers.
pub type Planes = BTreeSet<(TermId, TermId)>;

/// The [`Planes`] of all loads.
pub fn planes_of(arena: &mut Arena, loads: &[LoadUse]) -> Planes {
    let mut seen: BTreeMap<(TermId, TermId), BTreeSet<i128>> = BTreeMap::new();
    for u in loads {
        for (m, k) in &arena.poly(u.load.offset).terms {
            if !m.is_empty() && m.iter().all(|&t| is_param(arena, t)) {
                let size = arena.from_poly(Poly { terms: vec![(m.clone(), 1)] });
                seen.entry((u.load.base, size)).or_default().insert(*k);
            }
        }
    }
    seen.into_iter().filter(|(_, k)| k.len() > 1).map(|(p, _)| p).collect()
}

/// Classifies all loads of a value: what is read by row, through loaded numbers, or by nothing of the row; and what breaks the rule.
pub(super) fn rule(e: &mut Evaluator<'_>, j: &mut Judged<'_>, guarded: bool) {
    let names: Vec<String> = (0..256).map(|i| arg_name(e, i)).collect();
    let name =
        |a: &Arena, t: TermId| a.show(t, &|i| names.get(i as usize).cloned().unwrap_or_else(|| format!("arg{i}")));
    let planes = planes_of(&mut e.arena, &j.usage.loads);
    let mut strides: BTreeMap<(TermId, VarId), TermId> = BTreeMap::new();
    let mut plain: BTreeSet<TermId> = BTreeSet::new();
    let mut mixed: BTreeMap<TermId, String> = BTreeMap::new();
    // By which of the row's numbers a pointer is read, and whether that counts tokens through all sequences.
    let mut numbered: BTreeMap<TermId, BTreeSet<BTreeSet<(VarId, bool)>>> = BTreeMap::new();
    let token = j.solved.owner.as_ref().and_then(|o| o.row);
    let token = j.solved.coords.list.iter().find(|c| Some(c.term) == token).map(|c| c.var);
    for u in j.usage.loads.clone() {
        let (mut row, mut numbers) = (false, BTreeSet::new());
        let of_sequence = j.solved.owner.clone().and_then(|o| {
            let home = super::owner::home_of_sequence(&mut e.arena, &u, &o, guarded, &planes, &name)?;
            Some((token.unwrap_or(o.sequence), home))
        });
        let of_tokens = of_sequence.is_some();
        let homes: Vec<(VarId, Home)> = match of_sequence {
            Some(one) => vec![one],
            None => {
                let of = |c: &VarId| (*c, home(&mut e.arena, &u, *c, j.solved.offset, guarded, &planes, &name));
                let mut homes: Vec<(VarId, Home)> = j.rows.iter().map(of).collect();
                if let Some(o) = &j.solved.owner
                    && homes.iter().any(|(c, home)| *c == o.sequence && matches!(home, Home::Row(..)))
                    && super::owner::is_relative(&mut e.arena, o, u.load.offset)
                {
                    homes.retain(|(c, _)| Some(*c) != token);
                }
                homes
            }
        };
        if !matches!(e.arena.node(u.load.base), Node::ArgPtr(_)) {
            let by_number = |c: &VarId| outside_of_loads(&e.arena, u.load.base, *c);
            if j.rows.iter().any(by_number) {
                mixed.insert(u.load.base, "is a pointer that is computed from the row's number".into());
            }
        }
        for (c, home) in homes {
            match home {
                Home::Absent => {}
                Home::Placed(through) => {
                    row = true;
                    j.placed.insert((u.load.base, through));
                }
                Home::Row(s, conditions) => {
                    row = true;
                    numbers.insert((c, of_tokens || Some(c) == token));
                    j.by_row.insert(u.load.base);
                    j.rooms
                        .extend(conditions.iter().filter(|c| c.room().is_some()).map(|c| (c.clone(), u.facts.clone())));
                    j.conditions.extend(conditions);
                    let known = *strides.entry((u.load.base, c)).or_insert(s);
                    if known != s {
                        mixed.insert(u.load.base, "rows are read with two different strides".into());
                    }
                }
                Home::Mixed(why) => {
                    mixed.insert(u.load.base, why);
                }
            }
        }
        if !numbers.is_empty() {
            numbered.entry(u.load.base).or_default().insert(numbers);
        }
        if !row {
            match computed_from_row(&mut e.arena, &u, &j.rows) {
                true => {
                    j.placed.insert((u.load.base, u.load.base));
                }
                false => {
                    plain.insert(u.load.base);
                }
            }
        }
    }
    j.strides = strides;
    for (base, ways) in numbered {
        if j.solved.owner.is_some() && ways.len() > 1 {
            mixed.entry(base).or_insert_with(|| "is read by token and by sequence".into());
        }
    }
    for &base in &j.by_row {
        if plain.contains(&base) {
            mixed.entry(base).or_insert_with(|| "is read by row and also at places that are not the row's".into());
        }
        if j.placed.iter().any(|(p, _)| *p == base) {
            mixed.entry(base).or_insert_with(|| "is read by row and also at places that data decides".into());
        }
    }
    let lists = j.conditions.iter().filter_map(|c| match c {
        Condition::Distinct { base } => Some(*base),
        _ => None,
    });
    let lists: BTreeSet<TermId> = lists.collect();
    let views = view::judge(&mut e.arena, &j.usage, &j.placed, &lists, &planes, &name);
    j.placed.retain(|(base, _)| views.whole.contains(base) || !views.pages.iter().any(|(b, _)| b == base));
    j.placed.extend(views.pages.into_iter().filter(|(b, _)| !views.whole.contains(b)));
    j.whole = views.whole;
    j.conditions.extend(views.conditions);
    j.shared = plain.into_iter().filter(|b| !j.by_row.contains(b)).collect();
    for (base, why) in mixed {
        j.problems.push(Problem::Mixed { base, why });
    }
}

/// True if the address contains something that was read by row.
fn computed_from_row(arena: &mut Arena, u: &LoadUse, rows: &[VarId]) -> bool {
    rows.iter().any(|c| arena.contains_var(u.load.offset, *c))
}

/// Classifies one load against one coordinate. `guarded` says that the output's own row is limited by an argument, so that a row's
/// length is not a constant.
/// `own` is the address of the stored element itself: reading the same place is home.
pub fn home(
    arena: &mut Arena,
    u: &LoadUse,
    c: VarId,
    own: TermId,
    guarded: bool,
    planes: &Planes,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Home {
    let offset = u.load.offset;
    if !arena.contains_var(offset, c) {
        return Home::Absent;
    }
    let ct = arena.var_term(c);
    let p = arena.poly(offset);
    let mut stride = Poly::default();
    let mut placed = None;
    for (m, k) in &p.terms {
        if !m.iter().any(|&t| arena.contains_var(t, c)) {
            continue;
        }
        let mut rest = m.clone();
        if let Some(i) = rest.iter().position(|&t| t == ct) {
            rest.remove(i);
            if rest.iter().any(|&t| !is_param(arena, t)) {
                return Home::Mixed(format!(
                    "the row's number is multiplied with something else in {}",
                    show(arena, offset)
                ));
            }
            stride = stride.add_scaled(&Poly { terms: vec![(rest, *k)] }, 1).unwrap_or_default();
        } else {
            match only_in_loads(arena, m, c) {
                Some(base) => placed = Some(base),
                None => {
                    return Home::Mixed(format!(
                        "the row's number is used in a computed address {}",
                        show(arena, offset)
                    ));
                }
            }
        }
    }
    if stride.terms.is_empty() {
        return placed.map_or(Home::Absent, Home::Placed);
    }
    if stride.terms.iter().any(|(_, k)| *k < 0) {
        return Home::Mixed("rows are read in reverse".into());
    }
    let s = arena.from_poly(stride);
    let sc = arena.mul(s, ct);
    let rest = arena.sub(offset, sc);
    if offset == own {
        return Home::Row(s, vec![]);
    }
    if let Some(condition) = diagonal(arena, u, c, own, s, show) {
        if arena.poly(s).constant_part() != 0 {
            return Home::Mixed(format!("the row's number is a place within the row as well: {}", show(arena, offset)));
        }
        return match home_in(arena, u, (s, sc, rest), guarded, planes, show) {
            Home::Row(s, mut conditions) => {
                conditions.push(condition);
                Home::Row(s, conditions)
            }
            other => other,
        };
    }
    home_in(arena, u, (s, sc, rest), guarded, planes, show)
}

/// Rows that are a sum apart, `r*(a + b)`, may be places of a diagonal as well, `r*a + b*r`: the output's own rows say which, or else the host.
fn diagonal(
    arena: &mut Arena,
    u: &LoadUse,
    c: VarId,
    own: TermId,
    s: TermId,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Option<Condition> {
    if arena.poly(s).terms.len() < 2 {
        return None;
    }
    let ct = arena.var_term(c);
    let mut stored = Poly::default();
    for (m, k) in &arena.poly(own).terms {
        let mut rest = m.clone();
        if let Some(i) = rest.iter().position(|&t| t == ct) {
            rest.remove(i);
            stored = stored.add_scaled(&Poly { terms: vec![(rest, *k)] }, 1)?;
        }
    }
    let text = format!("rows are {} apart", show(arena, s));
    let room = arena.op("room", vec![s], crate::term::Sort::Int);
    (arena.from_poly(stored) != s).then_some(Condition::Padded { base: u.load.base, text, room })
}

/// Where the rest of an address lies, beside the row of stride `s` that begins at `sc`.
fn home_in(
    arena: &mut Arena,
    u: &LoadUse,
    (s, sc, rest): (TermId, TermId, TermId),
    guarded: bool,
    planes: &Planes,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Home {
    if first_of_row(arena, rest, s) {
        return Home::Row(s, vec![]);
    }
    if let Some((text, room)) = own_plane(arena, u, rest, sc, s, planes, show) {
        return Home::Row(s, vec![Condition::Extent { base: u.load.base, text, room }]);
    }
    match within_row(arena, &u.facts, rest, sc, s, 3) {
        Some(true) => return Home::Row(s, vec![]),
        Some(false) => {
            return Home::Mixed(format!(
                "reads outside of the row: {} of a row of {}",
                show(arena, rest),
                show(arena, s)
            ));
        }
        None => {}
    }
    layout(arena, u, rest, s, guarded, show)
}

/// Element 0 of a row lies in it, since strides are positive.
fn first_of_row(arena: &Arena, rest: TermId, s: TermId) -> bool {
    let positive =
        |(m, k): &(crate::term::Mono, i128)| *k > 0 && m.iter().all(|t| matches!(arena.node(*t), Node::Arg(_)));
    arena.as_int(rest) == Some(0) && arena.poly(s).terms.iter().all(positive)
}

/// `0 <= rest < s`: `Some(true)` proved, `Some(false)` refuted, `None` open. Planes: a part of `rest` that is a multiple of a larger
/// stride P may be dropped if everything else stays within `0..P`.
fn within_row(arena: &mut Arena, facts: &Facts, rest: TermId, sc: TermId, s: TermId, depth: u32) -> Option<bool> {
    let room = arena.sub(s, rest);
    let room = arena.add_const(room, -1);
    if facts.proves_hard(arena, rest) && facts.proves_hard(arena, room) {
        return Some(true);
    }
    let beyond = arena.sub(rest, s);
    let negative = arena.scale(rest, -1);
    let negative = arena.add_const(negative, -1);
    let outside = facts.proves_hard(arena, beyond) || facts.proves_hard(arena, negative);
    if depth > 0 {
        for plane in planes(arena, rest) {
            let (mut high, mut low) = (Poly::default(), Poly::default());
            for (m, k) in &arena.poly(rest).terms {
                let part = if divides(&plane, m, *k) { &mut high } else { &mut low };
                part.terms.push((m.clone(), *k));
            }
            if high.terms.is_empty() {
                continue;
            }
            let low = arena.from_poly(low);
            let size = arena.from_poly(Poly { terms: vec![plane] });
            let all = arena.add(sc, low);
            let room = arena.sub(size, all);
            let room = arena.add_const(room, -1);
            if facts.proves_hard(arena, all)
                && facts.proves_hard(arena, room)
                && within_row(arena, facts, low, sc, s, depth - 1) == Some(true)
            {
                return Some(true);
            }
        }
    }
    if outside { Some(false) } else { None }
}

/// Transposed rows, `k*P + c`: element k of row c. That c is below P is what makes P a plane; where the kernel does not say it, it is
/// a condition on the layout.
fn own_plane(
    arena: &mut Arena,
    u: &LoadUse,
    rest: TermId,
    sc: TermId,
    s: TermId,
    planes: &Planes,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Option<(String, TermId)> {
    let facts = &u.facts;
    let p = arena.poly(rest);
    let first = p.terms.first()?;
    let plane: Vec<TermId> = first.0.iter().copied().filter(|&t| is_param(arena, t)).collect();
    let size = arena.from_poly(Poly { terms: vec![(plane.clone(), 1)] });
    // Several whole numbers of planes (an unrolled loop) are an index as well; one alone is a shift.
    let counted = planes.contains(&(u.load.base, size));
    let whole = p.terms.iter().all(|(m, k)| {
        let index = counted || m.iter().any(|&t| !is_param(arena, t));
        *k > 0 && plane.iter().all(|t| m.contains(t)) && index
    });
    let room = arena.sub(size, sc);
    let room = arena.add_const(room, -1);
    let open = arena.as_int(s) == Some(1) && !facts.proves_hard(arena, room);
    let high = arena.div(rest, size);
    (whole && open && !plane.is_empty() && facts.proves_hard(arena, high))
        .then(|| (format!("{} < {}", show(arena, sc), show(arena, size)), room))
}

fn divides(plane: &(Vec<TermId>, i128), m: &[TermId], k: i128) -> bool {
    plane.0.iter().all(|t| m.contains(t)) && k % plane.1 == 0 && (!plane.0.is_empty() || !m.is_empty())
}

/// Candidate plane sizes: what the index variables of `rest` are multiplied with.
fn planes(arena: &Arena, rest: TermId) -> Vec<(Vec<TermId>, i128)> {
    let mut out: Vec<(Vec<TermId>, i128)> = Vec::new();
    for (m, k) in &arena.poly(rest).terms {
        let params: Vec<TermId> = m.iter().copied().filter(|&t| is_param(arena, t)).collect();
        let plane = if params.is_empty() { (params, k.abs()) } else { (params, 1) };
        if !m.is_empty() && (plane.1 > 1 || !plane.0.is_empty()) && !out.contains(&plane) {
            out.push(plane);
        }
    }
    out
}

/// The row's extent against its stride as a condition on the layout, where the extent is that of the data.
fn layout(
    arena: &mut Arena,
    u: &LoadUse,
    rest: TermId,
    s: TermId,
    guarded: bool,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Home {
    let bad = |arena: &Arena, why: &str| {
        Home::Mixed(format!("{why}: element {} of a row of {}", show(arena, rest), show(arena, s)))
    };
    let params: Vec<TermId> = arena.poly(s).terms.iter().flat_map(|(m, _)| m.clone()).collect();
    if params.is_empty() && !counted(arena, u, rest) {
        return bad(arena, "reads beyond the row");
    }
    if let Some(home) = strided(arena, u, rest, s, &params, guarded, show) {
        return home;
    }
    if let Node::Load(l) = *arena.node(rest)
        && matches!(arena.node(l.base), Node::ArgPtr(_))
        && !params.is_empty()
    {
        let text = format!("0 <= {} < {}", show(arena, rest), show(arena, s));
        return Home::Row(s, vec![Condition::Within { numbers: l.base, base: u.load.base, text }]);
    }
    if !u.facts.proves_hard(arena, rest) {
        return bad(arena, "may read before the row");
    }
    // A multiple of the stride itself, or a shift by an argument, is another row, not a place within it.
    let constant = arena.as_int(s);
    for (m, k) in &arena.poly(rest).terms {
        let shift = !m.is_empty() && m.iter().all(|&t| is_param(arena, t));
        if shift || constant.is_some_and(|s| *k >= s) || m.iter().any(|t| params.contains(t)) {
            return bad(arena, "reads beyond the row");
        }
    }
    if arena.range(rest).hi.is_some() && guarded && !limited(arena, u, rest) {
        return bad(arena, "reads a whole block although the row is shorter");
    }
    let text = format!("{} < {}", show(arena, rest), show(arena, s));
    let room = arena.sub(s, rest);
    let room = arena.add_const(room, -1);
    let base = u.load.base;
    // Limited by a mask that names the row's length, the claim is only that rows do not overlap. Limited by a tile or a loop alone, what
    // lies past the row's own elements is read too.
    let condition = if masked(arena, u, rest) {
        Condition::Extent { base, text, room }
    } else {
        Condition::Padded { base, text, room }
    };
    Home::Row(s, vec![condition])
}

/// A row whose elements are numbered by indices with strides of their own: `s*c + t*k + j`. Such a tensor has rows if its elements have
/// addresses of their own, which only the launch can say; each index must not be negative, as strides are not, and what has no stride must
/// stay within the row as anywhere else. `None` where there is no second stride.
fn strided(
    arena: &mut Arena,
    u: &LoadUse,
    rest: TermId,
    s: TermId,
    own: &[TermId],
    guarded: bool,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Option<Home> {
    let mut groups: Vec<(Vec<TermId>, Poly)> = Vec::new();
    for (m, k) in &arena.poly(rest).terms {
        let (stride, index): (Vec<TermId>, Vec<TermId>) = m.iter().partition(|&&t| is_param(arena, t));
        let part = Poly { terms: vec![(index, *k)] };
        match groups.iter_mut().find(|g| g.0 == stride) {
            Some(g) => g.1 = g.1.add_scaled(&part, 1)?,
            None => groups.push((stride, part)),
        }
    }
    let (near, far): (Vec<_>, Vec<_>) = groups.into_iter().partition(|g| g.0.is_empty());
    if own.is_empty() || far.is_empty() {
        return None;
    }
    let base = u.load.base;
    let mut conditions = vec![Condition::Apart { base, text: show(arena, u.load.offset) }];
    for (stride, index) in far {
        let index = arena.from_poly(index);
        let mut left = own.to_vec();
        let common =
            stride.iter().filter(|t| left.iter().position(|x| x == *t).map(|i| left.remove(i)).is_some()).count();
        if common > 0 {
            // A part of the row's own stride: the index must stay below what is left of it, else it is another row.
            let whole = arena.from_poly(Poly { terms: vec![(left.clone(), 1)] });
            let room = arena.sub(whole, index);
            let room = arena.add_const(room, -1);
            if left.is_empty() || common < stride.len() || !u.facts.proves_hard(arena, room) {
                return None;
            }
        }
        let shift = arena.free_vars(index).is_empty() && !arena.any(index, |n| matches!(n, Node::Load(_)));
        // A whole number of strides (an unrolled loop) is an index as well; an argument that is added is not.
        if (shift && arena.as_int(index).is_none()) || !u.facts.proves_hard(arena, index) {
            return None;
        }
        if !shift && !numbered(arena, u, index) {
            let stride = arena.from_poly(Poly { terms: vec![(stride, 1)] });
            let text = format!("index {} of stride {}", show(arena, index), show(arena, stride));
            let room = arena.op("room", vec![index], crate::term::Sort::Int);
            conditions.push(Condition::Padded { base, text, room });
        }
    }
    let near = arena.from_poly(near.into_iter().next().map(|g| g.1).unwrap_or_default());
    let room = arena.sub(s, near);
    let room = arena.add_const(room, -1);
    if !u.facts.proves_hard(arena, near)
        || (arena.range(near).hi.is_some() && guarded && !limited(arena, u, near) && arena.as_int(near).is_none())
    {
        return None;
    }
    if arena.as_int(near) != Some(0) && !u.facts.proves_hard(arena, room) && !masked(arena, u, near) {
        let text = format!("{} < {}", show(arena, near), show(arena, s));
        conditions.push(Condition::Padded { base, text, room });
    }
    Some(Home::Row(s, conditions))
}

/// True if a mask or the store itself says which numbers an index takes: an argument or a loaded number bounds it, or it is made of output
/// coordinates.
fn numbered(arena: &mut Arena, u: &LoadUse, index: TermId) -> bool {
    let coordinates =
        arena.free_vars(index).iter().all(|v| matches!(arena.vars[v.0 as usize].kind, crate::term::VarKind::Coord(_)));
    coordinates || masked(arena, u, index)
}

/// `rest < B` for a single argument or loaded number B.
fn masked(arena: &mut Arena, u: &LoadUse, rest: TermId) -> bool {
    let mut bounds: Vec<TermId> = Vec::new();
    for p in u.facts.inequalities() {
        for (m, k) in &p.terms {
            if let [t] = m.as_slice()
                && *k > 0
                && matches!(arena.node(*t), Node::Arg(_) | Node::Load(_) | Node::Min(..) | Node::Op(..))
                && !bounds.contains(t)
            {
                bounds.push(*t);
            }
        }
    }
    bounds.into_iter().any(|b| {
        let room = arena.sub(b, rest);
        let room = arena.add_const(room, -1);
        u.facts.proves_hard(arena, room)
    })
}

/// Within a row of constant length: an index that the number of iterations of a loop limits (as many splits as the row has), if that is not a
/// constant: then what is read lies in the row or not, and that it does not was not shown.
fn counted(arena: &mut Arena, u: &LoadUse, rest: TermId) -> bool {
    let p = arena.poly(rest);
    let mut open = false;
    let known = p.terms.iter().all(|(m, k)| {
        let t = arena.from_poly(Poly { terms: vec![(m.clone(), *k)] });
        let bounded = arena.range(t).hi.is_some();
        let limits: Vec<&Poly> = match m.as_slice() {
            [x] if matches!(arena.node(*x), Node::Var(_)) => {
                u.facts.inequalities().iter().filter(|f| f.coeff(m) < 0).collect()
            }
            _ => vec![],
        };
        let constant = |f: &&Poly| f.terms.iter().all(|(n, _)| n.is_empty() || n == m);
        open |= !bounded && !limits.iter().any(constant);
        bounded || !limits.is_empty()
    });
    known && open
}

/// True if a fact limits the variables of `rest` by something that is not a constant.
fn limited(arena: &Arena, u: &LoadUse, rest: TermId) -> bool {
    let vars = arena.free_vars(rest).to_vec();
    u.facts.inequalities().iter().any(|p| {
        let atoms: Vec<TermId> = p.terms.iter().flat_map(|(m, _)| m.clone()).collect();
        atoms.iter().any(|&t| vars.iter().any(|v| arena.contains_var(t, *v)))
            && atoms.iter().any(|&t| is_param(arena, t) || matches!(arena.node(t), Node::Load(_)))
    })
}

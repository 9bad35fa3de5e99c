//! The home rule: a load that follows a batch coordinate stays within that coordinate's own row.
//!
//! For a batch coordinate c, every load whose offset contains c must be `s*c + rest` with `0 <= rest < s`, possibly below or above
//! whole planes; anything else reads other rows (the neighbour's, the mirrored one, a window). A pointer that is read by row is read by
//! row everywhere, with one stride.

use super::usage::{LoadUse, is_param};
use super::verdict::Condition;
use crate::term::{Arena, Facts, Node, Poly, TermId, VarId};

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

/// Classifies one load against one coordinate. `guarded` says that the output's own row is limited by an argument, so that a row's
/// length is not a constant.
/// `own` is the address of the stored element itself: reading the same place is home.
pub fn home(
    arena: &mut Arena,
    u: &LoadUse,
    c: VarId,
    own: TermId,
    guarded: bool,
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
    if let Some(text) = own_plane(arena, &u.facts, rest, sc, s, show) {
        return Home::Row(s, vec![Condition::Extent { base: u.load.base, text }]);
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

/// The pointer of the outermost load that contains `c`, if `c` occurs in the monomial only inside loads.
fn only_in_loads(arena: &Arena, m: &[TermId], c: VarId) -> Option<TermId> {
    let mut base = None;
    let mut stack: Vec<TermId> = m.to_vec();
    while let Some(t) = stack.pop() {
        if !arena.contains_var(t, c) {
            continue;
        }
        match arena.node(t) {
            Node::Load(l) => base = Some(l.base),
            Node::Var(_) => return None,
            n => crate::term::children(n, |x| stack.push(x)),
        }
    }
    base
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
    facts: &Facts,
    rest: TermId,
    sc: TermId,
    s: TermId,
    show: &dyn Fn(&Arena, TermId) -> String,
) -> Option<String> {
    let p = arena.poly(rest);
    let first = p.terms.first()?;
    let plane: Vec<TermId> = first.0.iter().copied().filter(|&t| is_param(arena, t)).collect();
    let whole = p
        .terms
        .iter()
        .all(|(m, k)| *k > 0 && plane.iter().all(|t| m.contains(t)) && m.iter().any(|&t| !is_param(arena, t)));
    let size = arena.from_poly(Poly { terms: vec![(plane.clone(), 1)] });
    let room = arena.sub(size, sc);
    let room = arena.add_const(room, -1);
    let open = arena.as_int(s) == Some(1) && !facts.proves_hard(arena, room);
    let high = arena.div(rest, size);
    (whole && open && !plane.is_empty() && facts.proves_hard(arena, high))
        .then(|| format!("{} < {}", show(arena, sc), show(arena, size)))
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
    if !u.facts.proves_hard(arena, rest) {
        return bad(arena, "may read before the row");
    }
    // A multiple of the stride itself, or a shift by an argument, is another row, not a place within it.
    for (m, _) in &arena.poly(rest).terms {
        let shift = !m.is_empty() && m.iter().all(|&t| is_param(arena, t));
        if shift || m.iter().any(|t| params.contains(t)) {
            return bad(arena, "reads beyond the row");
        }
    }
    if arena.range(rest).hi.is_some() && guarded && !limited(arena, u, rest) {
        return bad(arena, "reads a whole block although the row is shorter");
    }
    let text = format!("{} < {}", show(arena, rest), show(arena, s));
    let base = u.load.base;
    // Limited by a mask that names the row's length, the claim is only that rows do not overlap. Limited by a tile or a loop alone, what
    // lies past the row's own elements is read too.
    let condition =
        if masked(arena, u, rest) { Condition::Extent { base, text } } else { Condition::Padded { base, text } };
    Home::Row(s, vec![condition])
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

/// Within a row of constant length: an index that only the number of iterations of a loop limits (as many splits as the row has).
fn counted(arena: &mut Arena, u: &LoadUse, rest: TermId) -> bool {
    let p = arena.poly(rest);
    p.terms.iter().all(|(m, k)| {
        let t = arena.from_poly(Poly { terms: vec![(m.clone(), *k)] });
        let bounded = arena.range(t).hi.is_some();
        let limit = match m.as_slice() {
            [x] => match *arena.node(*x) {
                Node::Var(_) => u.facts.inequalities().iter().any(|f| f.coeff(m) < 0),
                _ => false,
            },
            _ => false,
        };
        bounded || limit
    })
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

//! Kernels that read what they write: a load is a function of the launch's input only if it comes before every store that could
//! change it, which needs that the cell it reads is written by its own program alone, and later.

use super::home::{Home, Planes, home};
use super::site::{Like, Solved, solve};
use super::usage::LoadUse;
use super::verdict::Condition;
use crate::eval::{Effects, Site};
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Node, Poly, TermId, VarId, VarKind};

/// What a load of written memory needs to read the launch's input; an error says why it is not shown to. `base` holds in every launch.
pub fn fault(
    arena: &mut Arena,
    base: &Facts,
    effects: &Effects<'_>,
    site: &Solved<'_>,
    u: &LoadUse,
) -> Result<Vec<Condition>, String> {
    let Some((order, loops)) = effects.load_order.get(&(u.load.epoch - 1)) else {
        return Err("a load of written memory whose place in the program is not known".into());
    };
    let mut needs = Vec::new();
    for (i, s) in effects.sites.iter().enumerate() {
        let known = matches!(arena.node(u.load.base), Node::ArgPtr(_)) && matches!(arena.node(s.base), Node::ArgPtr(_));
        if known && s.base != u.load.base {
            continue;
        }
        if (i as u32) < *order {
            return Err("memory is read after the kernel may have written it".into());
        }
        // A loop around both repeats the load after the store.
        let around = effects.site_loops[i].iter().zip(&s.iterations);
        let shared: Vec<VarId> = around.filter(|(l, _)| loops.contains(l)).map(|(_, v)| *v).collect();
        let mut numbers = programs(arena, effects);
        numbers.extend(&shared);
        match owned(arena, base, site, s, u, &numbers) {
            Some(more) => needs.extend(more),
            None if !shared.is_empty() && !shared.iter().all(|v| place(arena, site, *v).is_some()) => {
                return Err("memory is read again in a loop that writes it".into());
            }
            // A row of a list is the work of one program if the grid has one for each tile of it, which only the launch can say.
            None if listed_alone(effects, site, u) => needs.push(Condition::OneWriter { base: u.load.base }),
            None => return Err("reads memory that another program may have written".into()),
        }
    }
    Ok(needs)
}

/// The program ids of all that the kernel writes.
fn programs(arena: &Arena, effects: &Effects<'_>) -> Vec<VarId> {
    let mut out: Vec<VarId> = Vec::new();
    for t in effects.sites.iter().flat_map(|s| [s.offset, s.value, s.guard]) {
        out.extend(arena.free_vars(t).iter().filter(|v| matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_))));
    }
    out.sort_unstable();
    out.dedup();
    out
}

fn listed_alone(effects: &Effects<'_>, site: &Solved<'_>, u: &LoadUse) -> bool {
    let listed = site.coords.list.iter().any(|c| c.listed);
    let alone = effects.sites.iter().filter(|s| s.base == u.load.base).count() == 1;
    u.load.base == site.site.base && u.load.offset == site.offset && listed && alone
}

/// Where a program id or an iteration stands in an address.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// It follows from the coordinates.
    Solved(TermId),
    /// It numbers blocks of so many places of a coordinate.
    Block(usize, i128),
}

fn place(arena: &mut Arena, site: &Solved<'_>, v: VarId) -> Option<Place> {
    let t = arena.var_term(v);
    if let Some(&x) = site.coords.solution.get(&t)
        && !arena.has_instance(x)
    {
        return Some(Place::Solved(x));
    }
    (0..site.coords.list.len()).find_map(|i| {
        let c = &site.coords.list[i];
        let k = arena.poly(c.definition).coeff(&[t]);
        let rest = arena.add_scaled(c.definition, t, -k);
        let r = arena.range(rest);
        let within = k > 0 && r.lo.is_some_and(|lo| lo >= 0) && r.hi.is_some_and(|hi| hi < k);
        within.then_some(Place::Block(i, k))
    })
}

/// The cell that `u` reads, where `site` is made, is written by the store `writer` in the same program and iteration (`numbers`) if at all: it
/// is the cell that is made there, or lies in a row that belongs to them. What that needs.
fn owned(
    arena: &mut Arena,
    base: &Facts,
    site: &Solved<'_>,
    writer: &Site<'_>,
    u: &LoadUse,
    numbers: &[VarId],
) -> Option<Vec<Condition>> {
    let mut w = site.clone();
    if writer.order != site.site.order {
        let like = Like { listed: site.coords.list.iter().any(|c| c.listed), splits: site.coords.splits() };
        w = solve(arena, base, writer, &like);
        if w.coords.shape() != site.coords.shape() || w.coords.rest != site.coords.rest {
            return None;
        }
        // Both over the coordinates of `site`.
        let pairs = w.coords.list.iter().zip(&site.coords.list);
        let map: HashMap<TermId, TermId> = pairs.map(|(a, b)| (a.term, b.term)).collect();
        w.offset = arena.subst(w.offset, &map);
        w.coords.solution.values_mut().for_each(|x| *x = arena.subst(*x, &map));
    }
    let mut places = Vec::new();
    for &v in numbers {
        let (at, there) = (place(arena, site, v)?, place(arena, &w, v)?);
        if at != there {
            return None;
        }
        places.push(at);
    }
    if u.load.offset == w.offset {
        return Some(vec![]);
    }
    if !places.iter().all(|p| matches!(p, Place::Solved(_))) {
        return None;
    }
    // Rows of the program and of the iteration, one within the other: the load stays within each.
    let (mut needs, mut within) = (Vec::new(), u.clone());
    for (c, other) in site.coords.list.iter().zip(&w.coords.list) {
        let solved = |t: TermId| numbers.iter().any(|v| *arena.node(t) == Node::Var(*v));
        if !other.solved.is_some_and(solved) {
            continue;
        }
        let show = |a: &Arena, t: TermId| a.show(t, &|i| format!("arg{i}"));
        let Home::Row(s, conditions) = home(arena, &within, c.var, w.offset, false, &Planes::new(), &show) else {
            return None;
        };
        if other.also != 0 || s != arena.from_poly(Poly { terms: vec![(other.stride.clone(), other.factor)] }) {
            return None;
        }
        needs.extend(conditions);
        let before = arena.mul(s, c.term);
        within.load.offset = arena.sub(within.load.offset, before);
    }
    Some(needs)
}

//! Kernels that read what they write: a load is a function of the launch's input only if it comes before every store that could
//! change it, which needs that the cell it reads is written by its own program alone, and later.

use super::site::Solved;
use super::verdict::Condition;
use crate::eval::Effects;
use crate::term::{Arena, Load, Node, TermId, VarKind};

/// What a load of written memory needs to read the launch's input; an error says why it is not shown to.
pub fn fault(
    arena: &mut Arena,
    effects: &Effects<'_>,
    site: &Solved<'_>,
    load: &Load,
) -> Result<Option<Condition>, String> {
    let number = load.epoch - 1;
    let Some((order, loops)) = effects.load_order.get(&number) else {
        return Err("a load of written memory whose place in the program is not known".into());
    };
    for (i, s) in effects.sites.iter().enumerate() {
        let same = s.base == load.base || !matches!(arena.node(s.base), Node::ArgPtr(_));
        if !same {
            continue;
        }
        if (i as u32) < *order {
            return Err("memory is read after the kernel may have written it".into());
        }
        // A loop around both repeats the load after the store.
        let shared = effects.site_loops[i].iter().filter(|l| loops.contains(l)).count();
        if shared > 0 && !iterations_apart(arena, site) {
            return Err("memory is read again in a loop that writes it".into());
        }
    }
    // The load must stay within the cells of its own program: the same program ids, as digits of the address.
    if same_owner(arena, site, load) {
        return Ok(None);
    }
    // A row of a list is the work of one program if the grid has one for each tile of it, which only the launch can say.
    let listed = site.coords.list.iter().any(|c| c.listed);
    let alone = effects.sites.iter().filter(|s| s.base == load.base).count() == 1;
    match load.base == site.site.base && load.offset == site.offset && listed && alone {
        true => Ok(Some(Condition::OneWriter { base: load.base })),
        false => Err("reads memory that another program may have written".into()),
    }
}

/// Every iteration around the store is a coordinate of its own.
fn iterations_apart(arena: &mut Arena, site: &Solved<'_>) -> bool {
    site.site.iterations.iter().all(|v| {
        let t = arena.var_term(*v);
        site.coords.solution.contains_key(&t)
    })
}

/// The load reads the very cell that is stored, or a cell of the same row where rows belong to one program: the coordinates that were
/// solved for program ids occur in it with the strides they have in the store.
fn same_owner(arena: &mut Arena, site: &Solved<'_>, load: &Load) -> bool {
    let pids_known =
        |arena: &Arena, t: TermId| arena.free_vars(t).iter().all(|v| !arena.vars[v.0 as usize].kind.is_instance());
    // Program ids that occur in the address must all be determined by coordinates, else two programs share a cell.
    let mut used = Vec::new();
    for t in [site.site.offset, site.site.value, site.site.guard] {
        for v in arena.free_vars(t).to_vec() {
            if matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_)) && !used.contains(&v) {
                used.push(v);
            }
        }
    }
    let mut determined = Vec::new();
    for v in &used {
        let t = arena.var_term(*v);
        match site.coords.solution.get(&t) {
            Some(&x) if pids_known(arena, x) => determined.push((*v, x)),
            _ => {}
        }
    }
    if load.offset == site.offset {
        // The same cell: it is enough that its block belongs to one program.
        return used.len() == determined.len() || block_is_one_program(arena, site, &used, &determined);
    }
    if determined.len() != used.len() {
        return false;
    }
    // Each such coordinate must be a digit of the load's address with the store's stride.
    for c in &site.coords.list {
        if c.also != 0 {
            return false;
        }
        let by_pid = c.solved.is_some_and(|t| used.iter().any(|v| *arena.node(t) == Node::Var(*v)));
        if !by_pid {
            continue;
        }
        let mut m = c.stride.clone();
        m.push(c.term);
        m.sort_unstable();
        if arena.poly(load.offset).coeff(&m) != c.factor {
            return false;
        }
    }
    true
}

/// Blocks of one axis do not overlap: each undetermined program id is multiplied with at least the block's extent in a coordinate whose
/// block index was solved for.
fn block_is_one_program(
    arena: &mut Arena,
    site: &Solved<'_>,
    used: &[crate::term::VarId],
    determined: &[(crate::term::VarId, TermId)],
) -> bool {
    used.iter().filter(|v| !determined.iter().any(|(d, _)| d == *v)).all(|v| {
        let pid = arena.var_term(*v);
        site.coords.list.iter().any(|c| {
            let p = arena.poly(c.definition);
            let k = p.coeff(&[pid]);
            let rest = arena.add_scaled(c.definition, pid, -k);
            let r = arena.range(rest);
            k > 0 && r.lo.is_some_and(|lo| lo >= 0) && r.hi.is_some_and(|hi| hi < k)
        })
    })
}

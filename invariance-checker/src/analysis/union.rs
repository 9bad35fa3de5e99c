//! Several stores to one pointer are one site, by cases: the later one wins, and which case applies must itself be a function of the
//! coordinates and of S. Judged one by one, two stores chosen by program id would both look invariant.

use super::site::{Solved, instances, solve};
use crate::eval::Site;
use crate::term::{Arena, Facts, TermId};
use std::collections::HashMap;

/// Joins the sites of one base; an error says why they cannot be.
pub fn join<'m>(arena: &mut Arena, base: &Facts, sites: &[Site<'m>]) -> Result<Solved<'m>, String> {
    let mut solved: Vec<Solved<'m>> = sites.iter().map(|s| solve(arena, base, s, &[])).collect();
    if solved.len() == 1 {
        return Ok(solved.remove(0));
    }
    let mut splits: Vec<i128> = solved.iter().flat_map(|s| s.coords.splits()).collect();
    splits.sort_unstable();
    splits.dedup();
    splits.reverse();
    if solved.iter().any(|s| s.coords.shape() != solved[0].coords.shape()) {
        solved = sites.iter().map(|s| solve(arena, base, s, &splits)).collect();
    }
    let shape = solved[0].coords.shape();
    for s in &solved {
        if s.coords.shape() != shape || s.coords.rest != solved[0].coords.rest {
            return Err("stores to one pointer whose addresses split into different coordinates".into());
        }
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
    // One set of coordinate variables.
    for i in 1..solved.len() {
        let map: HashMap<TermId, TermId> =
            solved[i].coords.list.iter().zip(&solved[0].coords.list).map(|(a, b)| (a.term, b.term)).collect();
        solved[i].value = arena.subst(solved[i].value, &map);
        solved[i].guard = arena.subst(solved[i].guard, &map);
        solved[i].offset = arena.subst(solved[i].offset, &map);
    }
    let parts: Vec<Vec<TermId>> = solved.iter().map(|s| arena.conjuncts(s.guard)).collect();
    let common: Vec<TermId> = parts[0].iter().copied().filter(|c| parts.iter().all(|p| p.contains(c))).collect();
    let mut facts = base.clone();
    let all = arena.and(common.iter().copied());
    facts.assume(arena, all);
    let mut cases: Vec<TermId> = Vec::new();
    for p in &parts {
        cases.push(arena.and(p.iter().copied().filter(|c| !common.contains(c))));
    }
    // An element that no case stores is not claimed about: where all cases store one value, it is the value.
    let mut value =
        if solved.iter().all(|s| s.value == solved[0].value) { solved[0].value } else { arena.float("unwritten", 0) };
    for (s, case) in solved.iter().zip(&cases) {
        if s.value == value {
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
    out.left = instances(arena, value);
    out.value = value;
    out.cases = cases;
    out.guard = all;
    out.facts = facts;
    for s in &solved[1..] {
        out.conditions.extend(s.conditions.iter().cloned());
    }
    out.conditions.sort();
    out.conditions.dedup();
    Ok(out)
}

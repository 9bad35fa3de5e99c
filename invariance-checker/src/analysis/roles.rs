//! What each argument does, for the report.

use super::judge::Analysis;
use super::usage::Role;
use crate::eval::Evaluator;
use crate::term::{Node, TermId};
use std::collections::{BTreeMap, BTreeSet};

/// The role of one argument in the whole kernel.
#[derive(Clone, Debug)]
pub struct ArgReport {
    /// Position.
    pub index: u32,
    /// `shapes the tree`, `enters the value`, `masks or addresses only`, `unused`, `data`, ..
    pub role: &'static str,
    /// May differ between batches, as declared or inferred.
    pub batch: bool,
    /// Belongs to S.
    pub given: bool,
}

/// Every argument with its role.
pub(super) fn arg_reports(
    e: &mut Evaluator<'_>,
    out: &Analysis<'_>,
    seen: &BTreeMap<TermId, BTreeSet<Role>>,
) -> Vec<ArgReport> {
    let Some(f) = e.module.kernel() else { return vec![] };
    let mut reports = Vec::new();
    for (i, p) in f.params.iter().enumerate() {
        let i = i as u32;
        let pointer = f.ty(p.value).pointee().is_some() || matches!(f.ty(p.value), crate::ir::Type::Desc { .. });
        let sort = crate::eval::sort_of(f.ty(p.value));
        let t = match pointer {
            true => e.arena.intern(Node::ArgPtr(i), crate::term::Sort::Data),
            false => e.arena.intern(Node::Arg(i), sort),
        };
        let written = out.sites.iter().any(|j| j.solved.site.base == t);
        let by_row = out.sites.iter().any(|j| j.by_row.contains(&t));
        let placed = out.sites.iter().any(|j| j.placed.iter().any(|(p, _)| *p == t));
        let guard_only = out.sites.iter().any(|j| e.arena.any(j.solved.site.guard, |n| *n == Node::Arg(i)))
            || out.effects.sites.iter().any(|s| e.arena.any(s.offset, |n| *n == Node::Arg(i)));
        let role = match (pointer, seen.get(&t).and_then(|r| r.iter().max())) {
            (true, _) if by_row && written => "rows, read and written",
            (true, _) if by_row => "rows",
            (true, _) if written => "written",
            (true, _) if placed => "read at loaded or computed numbers",
            (true, _) if out.given.contains(&t) => "shared data",
            (true, _) => "unused",
            (false, Some(Role::Tree)) => "shapes the tree",
            (false, Some(Role::Value)) => "enters the value",
            (false, Some(Role::Shift | Role::Index)) => "moves what is read",
            (false, Some(Role::Address)) => "masks or addresses only",
            (false, None) if guard_only => "masks or addresses only",
            (false, None) => "unused",
        };
        reports.push(ArgReport { index: i, role, batch: out.batch.contains(&t), given: out.given.contains(&t) });
    }
    reports
}

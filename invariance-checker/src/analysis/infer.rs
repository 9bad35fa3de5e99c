//! Which arguments may differ between batches, where nobody said so.
//!
//! An argument counts as one of the batch if it limits the rows, or if it is called what the number of rows is commonly called. A guess
//! can only add a reason against a kernel, never remove one, and the report says which arguments were guessed; `--fixed-args` overrules it.

use super::judge::{Judged, arg_name, scalar_arg};
use super::rows::guard_params;
use crate::eval::{Evaluator, SiteKind};
use crate::ir::Scalar;
use crate::term::{Arena, Node, TermId, VarKind};
use std::collections::BTreeSet;

/// Arguments that the guard, or the mask of a load, compares a row with. Where an atomic combines programs and nothing is left that is a
/// row, those that limit what is combined.
pub fn limits_of_rows(arena: &mut Arena, j: &Judged<'_>) -> BTreeSet<TermId> {
    let mut out = BTreeSet::new();
    for &c in &j.rows {
        out.extend(guard_params(arena, &j.solved, c));
        let row = arena.var_term(c);
        out.extend(j.solved.limits.iter().filter(|(t, _)| *t == row).map(|(_, arg)| *arg));
    }
    if j.rows.is_empty() && j.solved.site.kind != SiteKind::Store {
        for part in arena.conjuncts(j.solved.guard) {
            let by_program = arena
                .free_vars(part)
                .iter()
                .any(|v| matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_) | VarKind::Bound));
            if by_program {
                arena.walk(part, |t, n| {
                    if matches!(n, Node::Arg(_)) {
                        out.insert(t);
                    }
                });
            }
        }
    }
    out
}

/// What kernels call the number of rows, of requests, or the longest of them.
const NAMES: [&str; 26] = [
    "m",
    "rows",
    "n_rows",
    "nrows",
    "num_rows",
    "batch",
    "batch_size",
    "bsz",
    "bs_rows",
    "num_batches",
    "num_seqs",
    "n_seqs",
    "nseq",
    "nseqs",
    "num_reqs",
    "num_requests",
    "num_tokens",
    "n_tokens",
    "ntokens",
    "total_tokens",
    "num_valid_tokens",
    "longest",
    "maxlen",
    "max_len",
    "max_seqlen",
    "max_seq_len",
];

/// Integer arguments by their names.
pub fn by_name(e: &mut Evaluator<'_>) -> BTreeSet<TermId> {
    let Some(f) = e.module.kernel() else { return BTreeSet::new() };
    let ints = (0..f.params.len() as u32).filter(|i| {
        let ty = f.ty(f.params[*i as usize].value);
        ty.pointee().is_none() && ty.scalar_elem().is_some_and(|s| s != Scalar::BOOL && s.is_int())
    });
    let named: Vec<u32> = ints
        .filter(|i| {
            let name = arg_name(e, *i).to_lowercase();
            NAMES.contains(&name.as_str()) || name.starts_with("max_seqlen_") || name.starts_with("max_seq_len_")
        })
        .collect();
    named.into_iter().filter_map(|i| scalar_arg(e, i)).collect()
}

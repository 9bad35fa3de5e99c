//! The mutation gate: wherever two launches of a mutant store different bits for one logical row, the checker must not have
//! called it invariant.

mod support;

use invariance_checker::ir::{Block, Module, Op, OpKind};
use invariance_checker::parse::parse;
use invariance_checker::{Options, Report, Verdict, check};
use std::path::Path;
use std::time::Duration;
use support::mutate::{Mutant, mutants};
use support::{Case, Outcome, Search, footprint, read_index_file, search};

/// Kernels to start from, with their launches.
fn bases() -> Vec<(Case, Module)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = Vec::new();
    for (index, folder) in [
        ("tests/adversarial/index.tsv", "tests/adversarial"),
        ("kernels/index.tsv", "kernels"),
        ("tests/corpus_launches.tsv", "tests/corpus/v390"),
    ] {
        for case in read_index_file(&root.join(index)) {
            if case.verdict == "INV" && case.spec.is_given() {
                let text = std::fs::read(root.join(folder).join(&case.file)).expect("readable");
                let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e}", case.file));
                out.push((case, module));
            }
        }
    }
    out
}

/// What became of the mutants.
#[derive(Debug, Default)]
struct Tally {
    mutants: usize,
    /// Two launches differ.
    differ: usize,
    /// A constant was changed that lays out the rows.
    moved: usize,
    /// Neither launch ran to its end: nothing can be said.
    never_ran: usize,
    /// The checker called it invariant, in a way that covers the launches tried.
    invariant: usize,
    /// The checker named conditions, and the launches differ: the data may have broken one.
    differ_under: usize,
    /// Called invariant, yet two launches differ.
    wrong: Vec<String>,
}

/// True if the report claims that these launches agree: invariant; nothing in S that differs between them; no condition that
/// the kernel it was made from does not have; every axis of the grid that has programs is read, as the report assumes.
fn claims(case: &Case, base: &Report, report: &Report, mutant: &Mutant) -> bool {
    let bare = |name: &str| name.trim_end_matches("[]").to_owned();
    let varying = case.spec.varying();
    report.verdict == Verdict::Invariant
        && report.given.iter().all(|g| !varying.contains(&bare(g).as_str()))
        && report.conditions.iter().all(|c| base.conditions.iter().any(|b| b.text == c.text))
        && case.spec.wide_axes().into_iter().all(|axis| reads_axis(&mutant.module, axis))
}

fn reads_axis(module: &Module, axis: usize) -> bool {
    fn in_block(block: &Block, axis: usize) -> bool {
        let reads = |op: &Op| matches!(op.kind, OpKind::ProgramId(a) if a as usize == axis);
        block.ops.iter().any(|op| reads(op) || op.kind.blocks().into_iter().any(|b| in_block(b, axis)))
    }
    module.functions.iter().flat_map(|f| &f.blocks).any(|b| in_block(b, axis))
}

fn judge(case: &Case, module: &Module) -> Report {
    let batch_args = case.batch_args.split(',').filter(|a| !a.is_empty()).map(str::to_owned).collect();
    check(module, &Options { batch_args, witness_budget: Duration::ZERO, ..Options::default() })
}

/// `each` mutants of every base, `trials` pairs of launches for each.
fn gate(each: usize, trials: u64, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let how = Search { trials, same_row: false, special: false, stored_only: true };
    for (case, module) in bases() {
        let base = judge(&case, &module);
        for mutant in mutants(&module, seed, each) {
            tally.mutants += 1;
            let report = judge(&case, &mutant.module);
            let claimed = claims(&case, &base, &report, &mutant);
            tally.invariant += usize::from(claimed);
            match search(&mutant.module, &case.spec, how) {
                // A changed constant may move the rows, and then the rows compared here are not the mutant's own.
                Outcome::Differ(_)
                    if mutant.what.starts_with("constant")
                        && footprint(&mutant.module, &case.spec) != footprint(&module, &case.spec) =>
                {
                    tally.moved += 1;
                }
                Outcome::Differ(finding) => {
                    tally.differ += 1;
                    tally.differ_under += usize::from(report.verdict == Verdict::Under);
                    if claimed {
                        let given = report.given.join(", ");
                        tally.wrong.push(format!("{}, {}, given {{{given}}}: {finding:?}", case.file, mutant.what));
                    }
                }
                Outcome::Same(0) => tally.never_ran += 1,
                Outcome::Same(_) => {}
            }
        }
    }
    tally
}

#[test]
fn the_bases_do_not_differ() {
    for (case, module) in bases() {
        let outcome =
            search(&module, &case.spec, Search { trials: 6, same_row: false, special: true, stored_only: false });
        assert!(matches!(outcome, Outcome::Same(n) if n > 3), "{}: {outcome:?}", case.file);
    }
}

#[test]
fn no_mutant_is_wrongly_called_invariant() {
    let tally = gate(2, 5, 1);
    println!("{tally:#?}");
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
    assert!(tally.mutants >= 90 && tally.differ >= 8, "{tally:#?}");
}

#[test]
#[ignore = "minutes; run before a release"]
fn none_of_many_mutants_is_wrongly_called_invariant() {
    let tally = gate(12, 10, 2);
    println!("{tally:#?}");
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
    assert!(tally.mutants >= 500 && tally.differ >= 60, "{tally:#?}");
}

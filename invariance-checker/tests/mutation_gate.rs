//! The mutation gate: wherever two launches of a mutant store different bits for one logical row, the checker must not have
//! called it invariant.

mod support;

use invariance_checker::ir::Module;
use invariance_checker::parse::parse;
use std::path::Path;
use support::mutate::mutants;
use support::{Case, Outcome, Search, read_index_file, search};

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
    differ: usize,
    /// Neither launch ran to its end: nothing can be said.
    never_ran: usize,
}

fn gate(each: usize, trials: u64, seed: u64) -> Tally {
    let mut tally = Tally::default();
    for (case, module) in bases() {
        for mutant in mutants(&module, seed, each) {
            tally.mutants += 1;
            match search(
                &mutant.module,
                &case.spec,
                Search { trials, same_row: false, special: false, stored_only: true },
            ) {
                Outcome::Differ(_) => tally.differ += 1,
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
fn mutants_are_judged() {
    let tally = gate(3, 6, 1);
    println!("{tally:?}");
    assert!(tally.mutants >= 140 && tally.differ >= 15, "{tally:?}");
}

#[test]
#[ignore = "minutes; run before a release"]
fn many_mutants_are_judged() {
    let tally = gate(12, 10, 2);
    println!("{tally:?}");
    assert!(tally.mutants >= 500 && tally.differ >= 60, "{tally:?}");
}

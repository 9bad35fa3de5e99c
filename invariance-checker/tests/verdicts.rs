//! Verdicts on the corpora: what is labelled NOT is never called invariant, what is labelled INV is proved, and a refutation comes with
//! two launches whose bits differ.

use invariance_checker::{Options, Report, Verdict, check, parse};
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Case {
    file: String,
    label: String,
    report: Report,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Checks every kernel of an index with its declared batch arguments.
fn check_folder(folder: &Path, witness: Duration) -> Vec<Case> {
    let index = std::fs::read_to_string(folder.join("index.tsv")).expect("an index");
    let mut lines = index.lines();
    let head: Vec<&str> = lines.next().expect("a head line").split('\t').collect();
    let column = |name: &str| head.iter().position(|h| *h == name).expect("a column");
    let (file, verdict, batch) = (column("file"), column("verdict"), column("batch_args"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let text = std::fs::read(folder.join(cells[file])).expect("a fixture");
            let module = parse::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", cells[file]));
            let options = Options {
                batch_args: cells[batch].split(',').filter(|b| !b.is_empty()).map(str::to_owned).collect(),
                witness_budget: if cells[verdict].starts_with("INV") { Duration::ZERO } else { witness },
                ..Options::default()
            };
            Case { file: cells[file].into(), label: cells[verdict].into(), report: check(&module, &options) }
        })
        .collect()
}

fn proved(r: &Report) -> bool {
    matches!(r.verdict, Verdict::Invariant | Verdict::Under)
}

/// `known` are kernels labelled INV that are not proved, each with its reason beside the call.
fn judge(cases: &[Case], known: &[&str], refuted_min: usize) {
    let mut refuted = 0;
    for c in cases {
        let said = format!("{} labelled {}: {:?} {:?}", c.file, c.label, c.report.verdict, c.report.reasons);
        match c.label.as_str() {
            "INV" | "INV*" if known.contains(&c.file.as_str()) => {
                assert!(!proved(&c.report), "now proved, so take it off the list: {said}")
            }
            "INV" | "INV*" => assert!(proved(&c.report), "{said}"),
            _ => {
                assert!(!proved(&c.report), "false INVARIANT: {said}");
                if let Some(w) = &c.report.witness {
                    assert_ne!(w.bits[0], w.bits[1], "{said}");
                    refuted += 1;
                }
            }
        }
    }
    assert!(refuted >= refuted_min, "only {refuted} refuted");
}

/// The label of `cov_misc` is wrong: a sum over 128 outputs and a random number keyed by the output's index enter the value. `cov_shapes`
/// sorts (87,000 terms and more) and mixes integer atomics of different kinds on one cell.
const CORPUS_KNOWN: [&str; 2] = ["cov_misc.ttir", "cov_shapes.ttir"];

#[test]
fn corpus_of_triton_3_6() {
    judge(&check_folder(&folder("tests/corpus/v360"), Duration::from_secs(4)), &CORPUS_KNOWN, 8);
}

#[test]
fn corpus_of_triton_3_9() {
    judge(&check_folder(&folder("tests/corpus/v390"), Duration::ZERO), &CORPUS_KNOWN, 0);
}

#[test]
fn adversarial_kernels() {
    judge(&check_folder(&folder("tests/adversarial"), Duration::from_millis(1500)), &ADVERSARIAL_KNOWN, 10);
}

/// A masked tile is not recognised as idle where the state is more than a sum, a maximum or a dot; two stores whose values are equal only
/// where both are made are not seen to be one.
const ADVERSARIAL_KNOWN: [&str; 2] = ["block_causal_with_mask.ttir", "edge_tile_masked.ttir"];

#[test]
fn own_kernels_that_are_not_invariant_are_not_called_so() {
    let cases = check_folder(&folder("kernels"), Duration::from_millis(1500));
    for c in cases.iter().filter(|c| c.label == "NOT") {
        assert!(!proved(&c.report), "false INVARIANT: {}", c.file);
    }
    let right = cases.iter().filter(|c| c.label == "INV" && proved(&c.report)).count();
    assert!(right >= 12, "only {right} proved");
}

#[test]
fn both_triton_versions_and_both_forms_give_one_digest() {
    let digest = |name: &str| {
        let text = std::fs::read(folder(&format!("tests/corpus/{name}"))).expect("a fixture");
        let module = parse::parse(&text).expect("a module");
        check(&module, &Options::default()).digest.expect("proved")
    };
    for kernel in ["matmul_persistent", "softmax_row", "rope", "rmsnorm_row"] {
        let a = digest(&format!("v360/{kernel}.ttir"));
        assert_eq!(a, digest(&format!("v390/{kernel}.ttir")), "{kernel} across versions");
        assert_eq!(a, digest(&format!("v360/{kernel}.generic.mlir")), "{kernel} in generic form");
    }
}

#[test]
fn tiles_do_not_change_the_digest_of_a_matmul_but_of_a_row_sum() {
    let digest = |name: &str| {
        let text = std::fs::read(folder(&format!("tests/corpus/v360/{name}.ttir"))).expect("a fixture");
        check(&parse::parse(&text).expect("a module"), &Options::default()).digest.expect("proved")
    };
    // 64x64 tiles walked by persistent programs, and 64x64 block pointers: one chain of k16 steps.
    assert_eq!(digest("matmul_persistent"), digest("cov_block_ptr"));
    // 128 against 512 lanes: two trees.
    assert_ne!(digest("rmsnorm_autotuned_b128"), digest("rmsnorm_autotuned_b512"));
}

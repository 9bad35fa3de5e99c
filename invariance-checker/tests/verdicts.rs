//! Verdicts on the corpora: for every kernel the verdict and the conditions that are expected of it, and in no case one that its label
//! forbids. What is labelled NOT is never called invariant; what is labelled INV is never refuted; a refutation comes with two launches
//! whose bits differ.

use invariance_checker::{Options, Report, Verdict, check, parse};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Case {
    file: String,
    label: String,
    batch: Vec<String>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The kernels of an index.
fn cases(folder: &Path) -> Vec<Case> {
    let index = std::fs::read_to_string(folder.join("index.tsv")).expect("an index");
    let mut lines = index.lines();
    let head: Vec<&str> = lines.next().expect("a head line").split('\t').collect();
    let column = |name: &str| head.iter().position(|h| *h == name).expect("a column");
    let (file, label, batch) = (column("file"), column("verdict"), column("batch_args"));
    let case = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let batch = cells[batch].split(',').filter(|b| !b.is_empty()).map(str::to_owned).collect();
        Case { file: cells[file].into(), label: cells[label].into(), batch }
    };
    lines.map(case).collect()
}

fn report(path: &Path, options: &Options) -> Report {
    let text = std::fs::read(path).expect("a fixture");
    let module = parse::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    check(&module, options)
}

/// Checks a folder against its `expected.tsv`: file, verdict, names of the conditions that are not about the layout.
fn judge(folder: &Path, declared: bool, witness: Duration) -> Vec<(Case, Report)> {
    let mut actual = String::from("file\tverdict\tconditions\n");
    let mut out = Vec::new();
    for case in cases(folder) {
        let options = Options {
            batch_args: if declared { case.batch.clone() } else { vec![] },
            witness_budget: witness,
            timeout: Options::default().timeout + witness,
            ..Options::default()
        };
        let r = report(&folder.join(&case.file), &options);
        let said = format!("{} labelled {}: {:?} {:?}", case.file, case.label, r.verdict, r.reasons);
        match (case.label.as_str(), r.verdict) {
            ("NOT" | "IDX" | "HID", Verdict::Invariant | Verdict::Under) => panic!("false INVARIANT: {said}"),
            ("INV" | "INV*", Verdict::Variant) => panic!("false VARIANT: {said} {:?}", r.witness),
            (_, Verdict::Variant) => {
                let w = r.witness.as_ref().expect("a refutation comes with two launches");
                assert_ne!(w.bits[0], w.bits[1], "{said}");
            }
            _ => {}
        }
        let conditions: BTreeSet<&str> =
            r.conditions.iter().filter(|c| !c.layout && r.verdict == Verdict::Under).map(|c| c.name.as_str()).collect();
        let conditions: Vec<&str> = conditions.into_iter().collect();
        actual += &format!("{}\t{}\t{}\n", case.file, r.verdict.text(), conditions.join(" "));
        out.push((case, r));
    }
    let expected = std::fs::read_to_string(folder.join("expected.tsv")).unwrap_or_default();
    assert!(actual == expected, "{}/expected.tsv does not say this:\n{actual}", folder.display());
    out
}

fn unknown(judged: &[(Case, Report)]) -> Vec<&str> {
    judged.iter().filter(|(_, r)| r.verdict == Verdict::Unknown).map(|(c, _)| c.file.as_str()).collect()
}

/// `cov_shapes` sorts, which takes more terms than are allowed, and mixes atomics of several kinds on one cell.
#[test]
fn corpus_of_triton_3_6() {
    let judged = judge(&folder("tests/corpus/v360"), true, Duration::from_secs(10));
    assert_eq!(unknown(&judged), ["cov_shapes.ttir"]);
}

#[test]
fn corpus_of_triton_3_9() {
    let judged = judge(&folder("tests/corpus/v390"), true, Duration::from_secs(10));
    assert_eq!(unknown(&judged), ["cov_shapes.ttir"]);
}

#[test]
fn adversarial_kernels() {
    let judged = judge(&folder("tests/adversarial"), true, Duration::from_secs(6));
    let positives = |(c, r): &&(Case, Report)| c.label == "INV" && r.verdict == Verdict::Unknown;
    let open: Vec<&str> = judged.iter().filter(positives).map(|(c, _)| c.file.as_str()).collect();
    // The last four show what a refutation must not rely on.
    let known = [
        "length_by_inner_coordinate.ttir",
        "rows_by_programs.ttir",
        "stored_where_two_lists_say.ttir",
        "added_where_two_lists_say.ttir",
    ];
    assert_eq!(open, known);
    assert!(unknown(&judged).len() <= 58, "{:?}", unknown(&judged));
    // A page's number that does more than place the page makes the whole memory part of S.
    // What else an address is made of is data.
    let given = |file: &str| {
        let (_, r) = judged.iter().find(|(c, _)| c.file == file).expect("a case");
        assert_eq!(r.views.is_empty(), r.given.contains(&"k[]".to_owned()), "{file}: {:?}", r.views);
        r.given.clone()
    };
    assert!(given("page_of_row.ttir").is_empty());
    assert_eq!(given("page_number_in_value.ttir"), ["k[]"]);
    assert_eq!(given("page_behind.ttir"), ["k[]"]);
    assert_eq!(given("weight_of_page_parity.ttir"), ["k[]", "w[]"]);
    assert!(given("place_in_page_by_length.ttir").is_empty());
    assert_eq!(given("place_in_page_by_page.ttir"), ["w[]"]);
    assert_eq!(given("page_by_length.ttir"), ["k[]"]);
    assert_eq!(given("scale_of_four_pages.ttir"), ["k[]", "s[]"]);
}

/// Counts of a row are its own under no condition, but for numbers that nothing limits.
#[test]
fn atomics() {
    let judged = judge(&folder("tests/atomics"), true, Duration::from_secs(1));
    let open = judged.iter().filter(|(c, r)| c.label == "INV" && r.verdict != Verdict::Invariant);
    assert_eq!(open.map(|(c, _)| c.file.as_str()).collect::<Vec<_>>(), ["bins_not_limited.ttir"]);
}

/// With nothing declared: what the command in the README says.
#[test]
fn own_kernels() {
    let judged = judge(&folder("kernels"), false, Duration::from_secs(10));
    for (c, r) in &judged {
        let refuted = r.verdict == Verdict::Variant;
        assert!(c.label != "NOT" || refuted, "{}: {:?}", c.file, r.reasons);
        assert!(c.label != "INV" || r.verdict != Verdict::Unknown, "{}: {:?}", c.file, r.reasons);
    }
}

#[test]
fn tiles_and_atomics() {
    let folder = folder("tests/classes");
    let judged = judge(&folder, true, Duration::from_secs(10));
    let index = std::fs::read_to_string(folder.join("index.tsv")).expect("an index");
    let class_of = |file: &str| {
        let line = index.lines().find(|l| l.starts_with(&format!("{file}\t"))).expect("a line");
        line.split('\t').nth(2).expect("a class").to_owned()
    };
    // One class has one digest, and two classes have two.
    let pairs: BTreeSet<(String, String)> = judged
        .iter()
        .map(|(c, r)| (class_of(&c.file), r.digest.clone().unwrap_or_default()))
        .filter(|(class, _)| !class.is_empty())
        .collect();
    assert_eq!(pairs.len(), 5, "{pairs:?}");
    assert_eq!(pairs.iter().map(|(c, _)| c).collect::<BTreeSet<_>>().len(), 5, "{pairs:?}");
    assert_eq!(pairs.iter().map(|(_, d)| d).collect::<BTreeSet<_>>().len(), 5, "{pairs:?}");
}

/// With every argument fixed by its position: the generic form has no names from which batch arguments could be guessed.
#[test]
fn every_form_gives_one_digest() {
    let mut compared = 0;
    for version in ["v360", "v390"] {
        let root = folder(&format!("tests/corpus/{version}"));
        for case in cases(&root) {
            let of = |suffix: &str| {
                let file = root.join(case.file.replace(".ttir", suffix));
                let fixed_args = (0..32).map(|i| format!("arg{i}")).collect();
                let options = Options { fixed_args, witness_budget: Duration::ZERO, ..Options::default() };
                let r = report(&file, &options);
                (r.digest, r.outputs.into_iter().map(|o| o.digest).collect::<Vec<_>>())
            };
            let pretty = of(".ttir");
            assert_eq!(pretty, of(".nodebug.ttir"), "{version} {}", case.file);
            assert_eq!(pretty, of(".generic.mlir"), "{version} {}", case.file);
            compared += usize::from(pretty.0.is_some());
        }
    }
    assert!(compared >= 40, "{compared} digests");
}

#[test]
fn both_triton_versions_give_one_digest() {
    let digest = |name: &str| {
        let r = report(&folder(&format!("tests/corpus/{name}")), &Options::default());
        r.digest.expect("proved")
    };
    for kernel in ["matmul_persistent", "softmax_row", "rope", "rmsnorm_row"] {
        let a = digest(&format!("v360/{kernel}.ttir"));
        assert_eq!(a, digest(&format!("v390/{kernel}.ttir")), "{kernel} across versions");
    }
}

#[test]
fn tiles_do_not_change_the_digest_of_a_matmul_but_of_a_row_sum() {
    let digest = |name: &str| {
        report(&folder(&format!("tests/corpus/v360/{name}.ttir")), &Options::default()).digest.expect("proved")
    };
    // 64x64 tiles walked by persistent programs, and 64x64 block pointers: one chain of k16 steps.
    assert_eq!(digest("matmul_persistent"), digest("cov_block_ptr"));
    // 128 against 512 lanes: two trees.
    assert_ne!(digest("rmsnorm_autotuned_b128"), digest("rmsnorm_autotuned_b512"));
}

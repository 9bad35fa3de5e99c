//! `--variants` on what Triton 3.9.0 really compiled (`variants/make.py`): one class where the layouts of the reductions agree or do not
//! matter, two where they differ, none where they are not known.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/variants")
}

fn run(dir: &Path, names: &[&str], more: &[&str]) -> Output {
    let files = names.iter().map(|n| format!("{n}.ttir"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_invariance-checker"));
    command.current_dir(dir).arg("--variants").args(more).args(files).output().expect("runs")
}

/// Files of the classes, and of those without one.
fn classes(dir: &Path, names: &[&str]) -> (Vec<Vec<String>>, Vec<String>, Option<i32>) {
    let out = run(dir, names, &["--json", "--timeout", "60"]);
    let log: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let text = |v: &serde_json::Value| v.as_str().expect("text").trim_end_matches(".ttir").to_owned();
    let list = |v: &serde_json::Value| v.as_array().expect("a list").clone();
    let mut found: Vec<Vec<String>> =
        list(&log["classes"]["classes"]).iter().map(|c| list(&c["files"]).iter().map(text).collect()).collect();
    found.sort();
    let open = list(&log["classes"]["open"]).iter().map(|o| text(&o["file"])).collect();
    (found, open, out.status.code())
}

#[test]
fn equal_layouts_are_one_class() {
    let pair = ["row_sum_4_warps", "row_sum_many_rows"];
    let (found, open, code) = classes(&folder(), &pair);
    assert_eq!((found, open.len(), code), (vec![pair.map(str::to_owned).to_vec()], 0, Some(0)));
}

#[test]
fn a_constant_in_place_of_an_argument_is_the_same_tree_by_name() {
    let pair = ["row_sum_4_warps", "row_sum_one_row"];
    let (found, open, code) = classes(&folder(), &pair);
    assert_eq!((found, open.len(), code), (vec![pair.map(str::to_owned).to_vec()], 0, Some(0)));
}

#[test]
fn another_number_of_warps_or_another_alignment_is_another_class() {
    for other in ["row_sum_1_warp", "row_sum_unaligned"] {
        let (found, open, code) = classes(&folder(), &["row_sum_4_warps", other]);
        assert_eq!((found.len(), open.len(), code), (2, 0, Some(1)), "{other}");
    }
    let out = run(&folder(), &["row_sum_4_warps", "row_sum_unaligned"], &[]);
    let text = String::from_utf8(out.stdout).expect("text");
    // The differing layouts and the argument whose alignment made them are named.
    assert!(text.contains("sizePerThread = [4]") && text.contains("sizePerThread = [1]"), "{text}");
    assert!(text.contains("x tt.divisibility = 16: row_sum_4_warps.ttir\n"), "{text}");
    assert!(text.contains("2 variants, 2 classes"), "{text}");
}

#[test]
fn an_order_free_combiner_is_one_class_whatever_the_layout() {
    let (found, open, code) = classes(&folder(), &["row_max_4_warps", "row_max_1_warp"]);
    assert_eq!((found.len(), open.len(), code), (1, 0, Some(0)));
}

/// Copies of files of the fixtures, renamed.
fn copied(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    for (from, to) in files {
        std::fs::copy(folder().join(from), dir.join(to)).expect("copied");
    }
    dir
}

#[test]
fn without_layouts_there_is_no_class_and_the_report_says_why() {
    let names = ["row_sum_4_warps.ttir", "row_sum_many_rows.ttir"];
    let dir = copied("alone", &names.map(|n| (n, n)));
    let (found, open, code) = classes(&dir, &["row_sum_4_warps", "row_sum_many_rows"]);
    assert_eq!((found.len(), open.len(), code), (0, 2, Some(2)));
    let out = run(&dir, &["row_sum_4_warps", "row_sum_many_rows"], &[]);
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(text.contains("num_warps") && text.contains("x, y, M, N, stride are specialised"), "{text}");
    assert!(text.contains("put the .ttgir beside it"), "{text}");
    assert!(text.contains("M tt.divisibility = 16: row_sum_many_rows.ttir"), "{text}");
}

#[test]
fn metadata_alone_vouches_only_for_copies_of_one_compilation() {
    let same = copied(
        "metadata",
        &[
            ("row_sum_4_warps.ttir", "a.ttir"),
            ("row_sum_4_warps.json", "a.json"),
            ("row_sum_4_warps.ttir", "b.ttir"),
            ("row_sum_4_warps.json", "b.json"),
            ("row_sum_many_rows.ttir", "c.ttir"),
            ("row_sum_many_rows.json", "c.json"),
        ],
    );
    assert_eq!(classes(&same, &["a", "b"]).0.len(), 1);
    assert_eq!(classes(&same, &["a", "c"]).0.len(), 2);
}

#[test]
fn a_sibling_of_another_kernel_is_bad_input() {
    let dir = copied("stranger", &[("row_sum_4_warps.ttir", "a.ttir"), ("row_max_4_warps.ttgir", "a.ttgir")]);
    let out = run(&dir, &["a"], &[]);
    assert_eq!(out.status.code(), Some(3));
    let text = String::from_utf8(out.stderr).expect("text");
    assert!(text.contains("a.ttgir: expected the TTGIR of row_sum, got that of row_max"), "{text}");
}

#[test]
fn one_class_says_what_it_means_and_what_it_takes_for_granted() {
    let out = run(&folder(), &["row_sum_4_warps", "row_sum_many_rows"], &[]);
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(text.contains("2 variants, 1 class"), "{text}");
    assert!(text.contains("each of these 2 may run in place of another"), "{text}");
    assert!(text.contains("on cuda:90"), "{text}");
    // Nothing here can be contracted, and both siblings name target and version: nothing more is assumed.
    assert!(!text.contains("given\n"), "{text}");
}

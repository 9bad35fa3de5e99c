//! Packed batches: a row's sequence is a view of prefix sums only if the kernel finds the sequence that holds the row, and uses of it only what
//! belongs to the sequence. One kernel is proved; with one line changed each, it reads the sequence before or after, or uses where in the batch
//! its sequence lies, and two launches of the interpreter store different bits for one row.

use invariance_checker::interp::{Arg, Launch, Memory, Options as Run, run};
use invariance_checker::ir::{Float, Scalar};
use invariance_checker::{Options, Report, Verdict, check, parse};
use std::path::Path;
use std::time::Duration;

fn kernel(changes: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packed/search.ttir");
    let mut text = std::fs::read_to_string(path).expect("a fixture");
    for (old, new) in changes {
        assert_eq!(text.matches(old).count(), 1, "{old}");
        text = text.replace(old, new);
    }
    text
}

fn report(text: &str) -> Report {
    let module = parse::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options = Options { batch_args: vec!["n".into()], witness_budget: Duration::ZERO, ..Options::default() };
    check(&module, &options)
}

/// Output bits of the rows of one sequence of two rows, in a batch whose other sequences have so many rows before and after it.
fn rows(text: &str, before: &[i64], after: &[i64]) -> Vec<u64> {
    let module = parse::parse(text.as_bytes()).expect("parsed before");
    let lengths: Vec<i64> = before.iter().chain(&[2]).chain(after).copied().collect();
    let mut cu = vec![0i64];
    for l in &lengths {
        cu.push(cu.last().expect("not empty") + l);
    }
    let rows = *cu.last().expect("not empty") as usize;
    let first = before.iter().sum::<i64>() as usize;
    // The sequence's own length is 7; the others' lengths are others.
    let lens: Vec<i64> = (0..lengths.len()).map(|s| if s == before.len() { 7 } else { 11 + 2 * s as i64 }).collect();
    let x: Vec<u64> = (0..rows)
        .map(|r| if (first..first + 2).contains(&r) { 0.1 + (r - first) as f32 } else { 5.0 + r as f32 })
        .map(|v| u64::from(v.to_bits()))
        .collect();
    let mut memory = Memory::new();
    let (int, float) = (Scalar::Int(32), Scalar::Float(Float::F32));
    let px = memory.add_bits(float, &x);
    let plens = memory.add_ints(int, &[lens.clone(), vec![3; 4]].concat());
    let pcu = memory.add_ints(int, &[cu, vec![rows as i64; 4]].concat());
    let py = memory.zeros(float, rows);
    let args = vec![Arg::Ptr(px), Arg::Ptr(plens), Arg::Ptr(pcu), Arg::Int(lengths.len() as i64), Arg::Ptr(py)];
    run(&module, &Launch { grid: [rows as u32, 1, 1], args }, &mut memory, &Run::default()).expect("runs");
    memory.bits(py)[first..first + 2].to_vec()
}

fn proved(r: &Report) -> bool {
    matches!(r.verdict, Verdict::Invariant | Verdict::Under)
}

#[test]
fn the_sequence_of_a_row_is_found_by_binary_search() {
    let text = kernel(&[]);
    let r = report(&text);
    assert!(proved(&r), "{:?}", r.reasons);
    let names: Vec<&str> = r.conditions.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["prefix-sum(cu)"]);
    assert!(!r.given.contains(&"n".to_owned()) && !r.given.contains(&"cu[]".to_owned()), "{:?}", r.given);
    let alone = rows(&text, &[], &[]);
    for (before, after) in [(&[3][..], &[][..]), (&[1, 4], &[2]), (&[], &[5, 1, 1])] {
        assert_eq!(rows(&text, before, after), alone);
    }
}

const WRONG: [(&str, &[(&str, &str)]); 7] = [
    (
        "the first row of a sequence belongs to the one before",
        &[
            ("arith.cmpi sle, %value", "arith.cmpi slt, %value"),
            (
                "%s = arith.subi %found#0, %one : i32",
                "%t = arith.subi %found#0, %one : i32\n    %s = arith.maxsi %t, %zero : i32",
            ),
        ],
    ),
    ("the next sequence's length", &[("%s = arith.subi %found#0, %one", "%s = arith.subi %found#0, %zero")]),
    (
        "the number of the sequence in the value",
        &[("addf %acc, %vx", "addf %acc, %fs"), ("%px =", "%fs = arith.sitofp %s : i32 to f32\n    %px =")],
    ),
    (
        "where the sequence begins in the value",
        &[
            ("addf %acc, %vx", "addf %acc, %fb"),
            (
                "%px =",
                "%pb = tt.addptr %cu, %s : !tt.ptr<i32>, i32\n    %b = tt.load %pb : !tt.ptr<i32>\n    %fb = arith.sitofp %b : i32 to f32\n    %px =",
            ),
        ],
    ),
    (
        "where the sequence ends as a bound",
        &[
            ("%zero to %len step", "%zero to %b step"),
            (
                "%px =",
                "%pb = tt.addptr %cu, %found#0 : !tt.ptr<i32>, i32\n    %b = tt.load %pb : !tt.ptr<i32>\n    %px =",
            ),
        ],
    ),
    ("the number of sequences as a bound", &[("%zero to %len step", "%zero to %n step")]),
    ("a search from the middle", &[("%left = %zero, %right = %n", "%left = %one, %right = %two")]),
];

#[test]
fn other_searches_and_absolute_places_are_refused() {
    for (what, changes) in WRONG {
        let text = kernel(changes);
        let r = report(&text);
        assert!(!proved(&r), "{what}: {:?} under {:?}", r.verdict, r.conditions);
        let alone = rows(&text, &[], &[]);
        let moved = [rows(&text, &[3], &[2]), rows(&text, &[1, 1, 1, 4], &[2, 9])];
        assert!(moved.iter().any(|m| *m != alone), "{what}: the interpreter shows no difference");
    }
}

#[test]
fn the_length_of_the_own_sequence_is_its_own() {
    // cu[s + 1] - cu[s] beside the row: neither bound alone.
    let changes = [
        ("%zero to %len step", "%zero to %own step"),
        (
            "%px =",
            "%pb = tt.addptr %cu, %s : !tt.ptr<i32>, i32\n    %b = tt.load %pb : !tt.ptr<i32>\n    %pe = tt.addptr %cu, %found#0 : !tt.ptr<i32>, i32\n    %e = tt.load %pe : !tt.ptr<i32>\n    %own = arith.subi %e, %b : i32\n    %px =",
        ),
    ];
    let text = kernel(&changes);
    let r = report(&text);
    assert!(proved(&r), "{:?}", r.reasons);
    assert_eq!(rows(&text, &[4, 1], &[3]), rows(&text, &[], &[]));
}

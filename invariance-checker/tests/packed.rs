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

/// The row's sequence and the digits of a column are coordinates alike, and a table that is read by the one is not a table that is read by the
/// other: with one name for both the two kernels would be one class.
#[test]
fn a_sequence_and_a_digit_have_names_of_their_own_in_the_digest() {
    let digest = |place: &str| {
        let body = "%o = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %k = arith.constant dense<16> : tensor<64xi32>
    %high = arith.divsi %o, %k : tensor<64xi32>
    %low = arith.remsi %o, %k : tensor<64xi32>
    %seq = tt.splat %s : i32 -> tensor<64xi32>
    %w0 = tt.splat %w : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %w1 = tt.addptr %w0, %high : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %vw = tt.load %w1 : tensor<64x!tt.ptr<f32>>
    %u0 = tt.splat %u : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %u1 = tt.addptr %u0, %low : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %vu = tt.load %u1 : tensor<64x!tt.ptr<f32>>
    %p0 = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %p1 = tt.addptr %p0, %PLACE : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %vp = tt.load %p1 : tensor<64x!tt.ptr<f32>>
    %t0 = tt.splat %sum : f32 -> tensor<64xf32>
    %t1 = arith.addf %t0, %vw : tensor<64xf32>
    %t2 = arith.addf %t1, %vu : tensor<64xf32>
    %t3 = arith.addf %t2, %vp : tensor<64xf32>
    %c64 = arith.constant 64 : i32
    %from = arith.muli %row, %c64 : i32
    %y0 = tt.splat %from : i32 -> tensor<64xi32>
    %y1 = arith.addi %y0, %o : tensor<64xi32>
    %y2 = tt.splat %y : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %y3 = tt.addptr %y2, %y1 : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    tt.store %y3, %t3 : tensor<64x!tt.ptr<f32>>"
            .replace("%PLACE", place);
        let text = kernel(&[
            ("%y: !tt.ptr<f32>)", "%y: !tt.ptr<f32>, %w: !tt.ptr<f32>, %u: !tt.ptr<f32>, %p: !tt.ptr<f32>)"),
            ("%py = tt.addptr %y, %row : !tt.ptr<f32>, i32\n    tt.store %py, %sum : !tt.ptr<f32>", &body),
        ]);
        let r = report(&text);
        assert!(proved(&r), "{place}: {:?}", r.reasons);
        assert_eq!(r.outputs[0].coordinates.len(), 3, "the column has two digits: {:?}", r.outputs[0].coordinates);
        r.digest.expect("proved")
    };
    let (by_sequence, by_digit, by_high) = (digest("%seq"), digest("%low"), digest("%high"));
    assert_ne!(by_sequence, by_digit);
    assert_ne!(by_sequence, by_high);
    assert_ne!(by_digit, by_high);
}

/// A load that is masked by a number of rows that the store is not limited by: what is stored past that number is padding only if the user
/// says so, or else two launches with another number differ in a row that both store.
#[test]
fn rows_past_the_extent_of_what_is_read_are_padding_by_agreement_only() {
    let text = "module {
  tt.func public @k(%x: !tt.ptr<f32>, %z: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32) {
    %zero = arith.constant 0.000000e+00 : f32
    %row = tt.get_program_id x : i32
    %there = arith.cmpi slt, %row, %n : i32
    %px = tt.addptr %x, %row : !tt.ptr<f32>, i32
    %vx = tt.load %px, %there, %zero : !tt.ptr<f32>
    %pz = tt.addptr %z, %row : !tt.ptr<f32>, i32
    %vz = tt.load %pz : !tt.ptr<f32>
    %v = arith.addf %vx, %vz : f32
    %py = tt.addptr %y, %row : !tt.ptr<f32>, i32
    tt.store %py, %v : !tt.ptr<f32>
    tt.return
  }
}
";
    let r = report(text);
    let open: Vec<&str> = r.conditions.iter().filter(|c| !c.layout).map(|c| c.name.as_str()).collect();
    assert_eq!((r.verdict, open), (Verdict::Under, vec!["row-exists(x)"]));
    let module = parse::parse(text.as_bytes()).expect("parsed before");
    let last = |n: i64| {
        let mut memory = Memory::new();
        let float = Scalar::Float(Float::F32);
        let (px, pz) = (memory.add_floats(float, &[1.0; 4]), memory.add_floats(float, &[2.0; 4]));
        let py = memory.zeros(float, 4);
        let args = vec![Arg::Ptr(px), Arg::Ptr(pz), Arg::Ptr(py), Arg::Int(n)];
        run(&module, &Launch { grid: [4, 1, 1], args }, &mut memory, &Run::default()).expect("runs");
        memory.floats(py)[3]
    };
    assert_eq!((last(4), last(3)), (3.0, 2.0), "row 3 is stored in both launches, with other bits");
}

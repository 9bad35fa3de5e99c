//! The adversarial kernels: every label is itself put to the test. A NOT kernel must have two launches that differ; an INV
//! kernel must have none among many pairs; an IDX kernel differs only when the row's number does. What a HID
//! kernel depends on, the interpreter has no model of.

mod support;

use invariance_checker::parse::parse;
use std::path::Path;
use support::{Outcome, Search, read_index, search};

#[test]
fn labels_hold_in_the_interpreter() {
    hold("adversarial", 60);
}

#[test]
fn labels_of_atomics_hold_in_the_interpreter() {
    hold("atomics", 20);
}

fn hold(folder: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let cases = read_index(&folder);
    assert!(cases.len() >= least, "{} kernels", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let text = std::fs::read(folder.join(&case.file)).expect("readable");
        let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e}", case.file));
        let go = |trials, same_row| {
            search(&module, &case.spec, Search { trials, same_row, special: false, stored_only: false })
        };
        match (case.verdict.as_str(), go(60, false), go(60, true)) {
            ("NOT" | "IDX", Outcome::Same(n), _) => wrong.push(format!("{}: {n} pairs agree", case.file)),
            ("INV", Outcome::Differ(f), _) | ("INV" | "IDX", _, Outcome::Differ(f)) => {
                wrong.push(format!("{}: {f:?}", case.file));
            }
            ("INV" | "IDX", _, Outcome::Same(n)) if n < 40 => wrong.push(format!("{}: only {n} pairs ran", case.file)),
            ("NOT" | "INV" | "IDX" | "HID", ..) => {}
            (other, ..) => wrong.push(format!("{}: unknown label {other}", case.file)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

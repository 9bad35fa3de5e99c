//! A report with everything in it, for the tests of its forms.

use crate::check::{ASSUMPTIONS, ArgLine, Output, Reason, Report, Verdict, WitnessLine};
use crate::witness::{Place, Recipe};

/// A refuted kernel whose two trees part in a bound and in a leaf, below a long stretch that is equal.
pub fn refuted() -> Report {
    let tree = |splits: u32, leaf: &str| {
        let far: String = (0..12).map(|i| format!("|  +- w[c1, {i}]\n")).collect();
        format!(
            "mul\n+- \"cat\"\n{far}|  `- w[c1, 12]\n`- fold for i < {splits}\n   +- i.a from 0.0\n   `- i.a = add\n      +- i.a\n      `- chain sm90 bf16 for k < 64 from 0.0\n         +- {leaf}[c0, 64*i + k]\n         `- times w[c1, 64*i + k]\n"
        )
    };
    Report {
        kernel: "splits".into(),
        verdict: Verdict::Variant,
        given: vec!["K".into()],
        conditions: vec![],
        views: vec![],
        assumptions: ASSUMPTIONS.to_vec(),
        args: vec![ArgLine { name: "M".into(), role: "shapes the tree".into(), batch: true, given: true }],
        outputs: vec![Output {
            pointer: "y".into(),
            coordinates: vec!["c0 = pid0".into()],
            rows: vec!["c0".into()],
            packed: None,
            digest: None,
            stored: String::new(),
            tree: tree(1, "x"),
            source: Some("splits.py:9:5".into()),
            line: 2,
        }],
        digest: None,
        digest_by_name: None,
        layout_needed: false,
        instruction_needed: false,
        specialises: vec![],
        reasons: vec![
            Reason { text: "M shapes the tree".into(), source: Some("splits.py:9:5".into()), line: 2 },
            Reason { text: "x: reads other rows".into(), source: Some("splits.py:9:5".into()), line: 2 },
        ],
        witness: Some(WitnessLine {
            change: "M is 5 in one launch and 40 in the other".into(),
            launches: ["grid (1, 1, 1), M=5".into(), "grid (1, 1, 1), M=40".into()],
            element: "y[3] at c0=0, c1=3".into(),
            bits: ["0x3f800000".into(), "0x3f800001".into()],
            shows: "M shapes the tree".into(),
            trees: [tree(1, "x"), tree(8, "x'")],
            legend: vec!["x' is x of another row, which holds other data in the second launch".into()],
            places: [Place { pointer: 1, element: 3 }; 2],
            recipes: [Recipe::empty(), Recipe::empty()],
        }),
        rules: vec!["solve-coordinates".into()],
        solver: None,
        millis: 1.25,
        terms: 10,
    }
}

/// The text that its lines point into.
pub const SOURCE: &str = "tt.func public @splits() {\n    tt.store %a, %b, %c : tensor<16x64x!tt.ptr<f32>>\n}\n";

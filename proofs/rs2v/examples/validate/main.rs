//! Translation validation: run the Rust, and state each result as a Coq equation about the translation.
//!
//! `validate OUT` writes Tricky.v (the translation of `tricky.rs`), TrickyEqs.v and LedgerEqs.v to the folder OUT. Each
//! equation is proved by computation, so a rule of the translator that disagrees with rustc on one of these runs fails.

#![allow(clippy::needless_range_loop, clippy::manual_swap, clippy::nonminimal_bool, missing_docs)]

mod ledger_runs;
mod tricky;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use tricky::*;

fn numbers<T: std::fmt::Display>(v: &[T]) -> String {
    format!("[{}]", v.iter().map(|x| x.to_string()).collect::<Vec<_>>().join("; "))
}

fn store(x: &Store) -> String {
    let w: Vec<String> = x.w.iter().map(|v| numbers(v)).collect();
    format!("(mkStore {} {} [{}])", x.a, numbers(&x.v), w.join("; "))
}

/// `Some` of what the run shows, or `None` if it panicked.
fn outcome(run: impl FnOnce() -> String) -> String {
    catch_unwind(AssertUnwindSafe(run)).map_or("None".into(), |x| format!("Some {x}"))
}

fn sample(a: u32) -> Store {
    Store { a, v: vec![1, 3, 7, 2, 9], w: vec![vec![1, 2], vec![], vec![3]] }
}

fn tricky_equations() -> String {
    let mut out = String::from(
        "From Coq Require Import List.\nImport ListNotations.\nFrom Sametree Require Import Prims.\nFrom Check Require Import Tricky.\n",
    );
    let mut say = |left: String, right: String| {
        out += &format!("Goal {left} = {right}.\nProof. vm_compute. reflexivity. Qed.\n");
    };
    for k in [0, 3, 5, 6] {
        for a in [0, 4] {
            let mut s = sample(a);
            let left = format!("inner {} {k}", store(&s));
            say(
                left,
                outcome(|| {
                    let r = inner(&mut s, k);
                    format!("({}, {r})", store(&s))
                }),
            );
        }
    }
    let mut on_store = |name: &str, f: &dyn Fn(&mut Store) -> Option<String>| {
        let mut s = sample(3);
        let left = format!("{name} {}", store(&s));
        let right = outcome(|| match f(&mut s) {
            Some(r) => format!("({}, {r})", store(&s)),
            None => store(&s),
        });
        say(left, right);
    };
    on_store("nested", &|s| {
        nested(s);
        None
    });
    on_store("growing", &|s| {
        growing(s);
        None
    });
    on_store("calls", &|s| Some(calls(s).to_string()));
    on_store("value", &|s| Some(value(s).to_string()));
    let (mut s, mut t) = (sample(5), sample(9));
    let left = format!("swapped {} {}", store(&s), store(&t));
    say(
        left,
        outcome(|| {
            swapped(&mut s, &mut t);
            format!("({}, {})", store(&s), store(&t))
        }),
    );
    for i in [0, 2, 4, 5, 9] {
        say(format!("lazy [1;3;7] {i}"), outcome(|| lazy(&[1, 3, 7], i).to_string()));
    }
    for (a, b) in [(3, 5), (5, 3), (4, 4), (7, 2)] {
        say(format!("guarded {a} {b}"), outcome(|| guarded(a, b).to_string()));
        say(format!("under {a} {b}"), outcome(|| under(a, b).to_string()));
        say(format!("ranges {a} {b}"), outcome(|| ranges(a, b).to_string()));
        say(format!("over {a} {b}"), outcome(|| over(a as u32, b as u32).to_string()));
        say(format!("compare {a} {b}"), outcome(|| compare(a as u32, b as u32).to_string()));
        say(format!("checked {a} {b}"), outcome(|| checked(a as u32, b as u32).to_string()));
        say(format!("wide {a}"), outcome(|| wide(a as u32).to_string()));
    }
    for (a, b) in [(7, 3), (6, 3), (0, 5), (7, 0)] {
        say(format!("over_both {a} {b}"), outcome(|| over_both(a, b).to_string()));
    }
    for (i, n) in [(0, 0), (0, 1), (0, 2), (0, 5), (0, 9), (1, 0), (2, 3), (3, 0)] {
        let mut s = sample(1);
        let left = format!("cut {} {i} {n}", store(&s));
        say(
            left,
            outcome(|| {
                let r = cut(&mut s, i, n);
                format!("({}, {r})", store(&s))
            }),
        );
    }
    for a in [0, 3] {
        say(format!("build {a}"), outcome(|| store(&build(a))));
    }
    for k in [1, 7] {
        let mut s = sample(0);
        let left = format!("arms {} [Kind_A 4; Kind_B {k} 20; Kind_A 2; Kind_B 0 1]", store(&s));
        let kinds = [Kind::A(4), Kind::B(k, 20), Kind::A(2), Kind::B(0, 1)];
        say(
            left,
            outcome(|| {
                arms(&mut s, &kinds);
                store(&s)
            }),
        );
    }
    out
}

fn main() {
    let folder = std::env::args().nth(1).expect("expected: validate OUT_FOLDER");
    let write =
        |name: &str, text: &str| std::fs::write(Path::new(&folder).join(name), text).expect("OUT_FOLDER is writable");
    std::panic::set_hook(Box::new(|_| {}));
    let text = rs2v::translate(include_str!("tricky.rs")).expect("the subset covers tricky.rs");
    let head =
        "From Coq Require Import List Arith NArith Bool.\nImport ListNotations.\nFrom Sametree Require Import Prims.\n";
    write("Tricky.v", &format!("{head}{}{}", text.types, text.fns));
    write("TrickyEqs.v", &tricky_equations());
    let (equations, summary) = ledger_runs::equations();
    write("LedgerEqs.v", &equations);
    println!("{summary}");
}

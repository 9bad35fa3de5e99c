//! Where an SMT solver helps, and where it must not.

use invariance_checker::check::SolverChoice;
use invariance_checker::{Options, Report, check, parse};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smt")
}

/// File, expected without and with a solver.
fn cases() -> Vec<(String, String, String)> {
    let index = std::fs::read_to_string(folder().join("index.tsv")).expect("an index");
    let cells = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        (cells[0].to_owned(), cells[1].to_owned(), cells[2].to_owned())
    };
    index.lines().skip(1).map(cells).collect()
}

fn report(file: &str, solver: SolverChoice) -> Report {
    let text = std::fs::read(folder().join(file)).expect("a fixture");
    let module = parse::parse(&text).expect("a module");
    check(&module, &Options { solver, witness_budget: Duration::ZERO, ..Options::default() })
}

#[test]
fn without_a_solver_the_condition_is_printed() {
    for (file, without, _) in cases() {
        let r = report(&file, SolverChoice::None);
        assert_eq!(r.verdict.text(), without, "{file}: {:?}", r.reasons);
        assert!(r.solver.is_none());
    }
}

/// A solver that cannot be started proves nothing, and hurts nothing.
#[test]
fn a_missing_solver_is_no_proof() {
    for (file, without, _) in cases() {
        let r = report(&file, SolverChoice::At("/nonexistent/z3".into()));
        assert_eq!(r.verdict.text(), without, "{file}");
    }
}

/// Neither does one that never answers `unsat`.
#[test]
fn a_solver_that_does_not_know_is_no_proof() {
    let script = std::env::temp_dir().join(format!("unknowing-solver-{}", std::process::id()));
    let body = "#!/bin/sh\nfirst=1\nwhile read line; do case \"$line\" in *check-sat*) if [ $first = 1 ]; then echo sat; first=0; \
                else echo unknown; fi;; *) echo success;; esac; done\n";
    std::fs::write(&script, body).expect("writable");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("ours");
    for (file, without, _) in cases() {
        let r = report(&file, SolverChoice::At(script.clone()));
        assert_eq!(r.verdict.text(), without, "{file}");
        let asked = r.solver.expect("it was asked");
        assert!(asked.asked > 0 && asked.proved == 0, "{asked:?}");
    }
    std::fs::remove_file(&script).expect("ours");
}

#[test]
#[ignore = "needs the z3 program"]
fn with_z3_the_condition_is_proved() {
    for (file, without, within) in cases() {
        let r = report(&file, SolverChoice::Found);
        assert_eq!(r.verdict.text(), within, "{file}: {:?} {:?}", r.reasons, r.conditions);
        let helped = r.solver.is_some_and(|s| s.proved > 0);
        assert_eq!(helped, within != without, "{file}");
    }
}

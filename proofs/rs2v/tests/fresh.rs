//! The committed theories are the translation of the ledger as it is now; without Coq, this is what a change meets first.

use std::path::Path;

#[test]
fn the_committed_theories_are_the_translation_of_the_ledger() {
    let proofs = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let source = std::fs::read_to_string(proofs.join("ledger/src/proved.rs")).unwrap();
    for (name, text) in rs2v::theories(&source).unwrap() {
        let kept = std::fs::read_to_string(proofs.join("theories").join(name)).unwrap();
        let same = kept == text;
        assert!(same, "{name} is stale; run: cargo run -p rs2v -- proofs/ledger/src proofs/theories");
    }
}

#[test]
fn one_changed_comparison_changes_the_translation() {
    let proofs = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let source = std::fs::read_to_string(proofs.join("ledger/src/proved.rs")).unwrap();
    let changed = source.replacen("kv + l.psize > l", "kv + l.psize >= l", 1);
    assert_ne!(source, changed);
    assert_ne!(rs2v::theories(&source), rs2v::theories(&changed));
}

#[test]
fn the_ledger_crate_passes_the_guards() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ledger/src");
    rs2v::check_root(&std::fs::read_to_string(source.join("lib.rs")).unwrap()).unwrap();
    rs2v::check_view(&std::fs::read_to_string(source.join("view.rs")).unwrap()).unwrap();
}

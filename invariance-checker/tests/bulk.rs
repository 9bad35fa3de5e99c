//! Thousands of kernels of other people's packages, made by `real/extract.py bulk`: every text parses or is refused with a place, and the
//! pretty and the generic text of one kernel are one form. Whole packages are no fixtures, so the folder is given from outside:
//!
//! ```text
//! REAL_KERNELS=WORK python real/extract.py bulk WORK/bulk
//! BULK_KERNELS=WORK/bulk cargo test --release -p invariance-checker --test bulk -- --ignored --nocapture
//! ```

use invariance_checker::ir::Module;
use invariance_checker::parse::{MAX_TEXT_BYTES, parse};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What became of one kernel.
enum Outcome {
    /// Both texts give one form.
    Same,
    /// Only the pretty text is there.
    Alone,
    /// Refused, with the message and its place.
    Refused(String),
    /// The two texts give different forms.
    Differs(String),
}

fn outcome(pretty: &Path) -> Outcome {
    let read = |path: &Path| {
        let bytes = std::fs::read(path).expect("readable");
        let parsed = parse(&bytes).map_err(|e| {
            assert!(e.pos().line >= 1 && e.pos().column >= 1 && e.offset() <= bytes.len(), "{}: {e}", path.display());
            assert!(bytes.len() <= MAX_TEXT_BYTES || e.to_string().contains("more than"), "{}: {e}", path.display());
            format!("{}: {e}", path.file_name().unwrap_or_default().to_string_lossy())
        });
        parsed.map(|mut module| {
            module.strip();
            module
        })
    };
    let a = match read(pretty) {
        Ok(module) => module,
        Err(message) => return Outcome::Refused(message),
    };
    let generic = pretty.with_extension("generic.mlir");
    if !generic.exists() {
        return Outcome::Alone;
    }
    match read(&generic) {
        Ok(b) if a == b => Outcome::Same,
        Ok(b) => Outcome::Differs(format!("{}: {}", pretty.display(), difference(&a, &b))),
        Err(message) => Outcome::Refused(message),
    }
}

/// The first line in which two forms differ when printed.
fn difference(a: &Module, b: &Module) -> String {
    let (a, b) = (format!("{a:#?}"), format!("{b:#?}"));
    let line = a.lines().zip(b.lines()).position(|(x, y)| x != y).unwrap_or(0);
    let show = |t: &str| t.lines().skip(line.saturating_sub(2)).take(3).map(str::trim).collect::<Vec<_>>().join(" ");
    format!("{} against {}", show(&a), show(&b))
}

fn bulk() -> Vec<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("BULK_KERNELS").expect("BULK_KERNELS names a folder"));
    let entries = std::fs::read_dir(&folder).expect("readable").map(|e| e.expect("readable").path());
    let mut files: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "ttir")).collect();
    files.sort();
    assert!(!files.is_empty(), "no .ttir in {}", folder.display());
    files
}

#[test]
#[ignore = "needs a folder of kernels in BULK_KERNELS"]
fn kernels_of_whole_packages_parse_or_are_refused_with_a_place() {
    let files = bulk();
    let outcomes: Vec<Outcome> = files.par_iter().map(|f| outcome(f)).collect();
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut same, mut alone, mut differ) = (0, 0, Vec::new());
    for o in outcomes {
        match o {
            Outcome::Same => same += 1,
            Outcome::Alone => alone += 1,
            Outcome::Refused(message) => *refused.entry(message).or_default() += 1,
            Outcome::Differs(file) => differ.push(file),
        }
    }
    println!("{} kernels: {same} in both forms alike, {alone} in one form, {} refused", files.len(), refused.len());
    refused.keys().for_each(|message| println!("  {message}"));
    assert!(differ.is_empty(), "the forms differ: {differ:#?}");
    // What Triton prints is TTIR: a refusal in bulk would be a hole in the parser.
    assert!(refused.len() * 100 <= files.len(), "more than one in a hundred is refused");
}

#[test]
fn the_kernels_that_are_shipped_pass_the_same_test() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/v390");
    let entries = std::fs::read_dir(corpus).expect("readable").map(|e| e.expect("readable").path());
    let debug =
        entries.filter(|p| p.extension().is_some_and(|e| e == "ttir") && !p.to_string_lossy().contains("nodebug"));
    let mut kernels = 0;
    for file in debug {
        assert!(matches!(outcome(&file), Outcome::Same), "{}", file.display());
        kernels += 1;
    }
    assert!(kernels > 30, "{kernels}");
}

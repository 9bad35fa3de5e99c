//! Every file of the corpus parses, and the pretty, the debug and the generic text of one kernel give one internal form.

use invariance_checker::ir::{Module, OpKind};
use invariance_checker::parse::parse;
use std::fs;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn files(version: &str, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus().join(version)).expect("the corpus is there");
    let mut out: Vec<PathBuf> = entries.map(|e| e.expect("readable").path()).collect();
    out.retain(|p| p.to_string_lossy().ends_with(suffix));
    out.sort();
    out
}

fn stripped(path: &Path) -> Module {
    let mut module = match parse(&fs::read(path).expect("readable")) {
        Ok(module) => module,
        Err(e) => panic!("{}: {e}", path.display()),
    };
    module.strip();
    module
}

/// Says which line of the printed form differs first.
fn same(a: &Module, b: &Module, what: &str) {
    if a != b {
        let (a, b) = (format!("{a:#?}"), format!("{b:#?}"));
        let line = a.lines().zip(b.lines()).position(|(x, y)| x != y).unwrap_or(0);
        let show = |t: &str| t.lines().skip(line.saturating_sub(8)).take(12).collect::<Vec<_>>().join("\n");
        panic!("{what}, line {line}:\n{}\n--- against ---\n{}", show(&a), show(&b));
    }
}

#[test]
fn three_texts_of_a_kernel_give_one_form() {
    let mut kernels = 0;
    for version in ["v360", "v390"] {
        for nodebug in files(version, ".nodebug.ttir") {
            let base = nodebug.to_string_lossy().replace(".nodebug.ttir", "");
            let pretty = stripped(&nodebug);
            let debug = stripped(Path::new(&format!("{base}.ttir")));
            let generic = stripped(Path::new(&format!("{base}.generic.mlir")));
            same(&pretty, &debug, &format!("{base}: with locations"));
            same(&pretty, &generic, &format!("{base}: generic"));
            kernels += 1;
        }
    }
    assert_eq!(kernels, 79, "kernels in the corpus");
}

#[test]
fn nothing_in_the_corpus_is_unknown() {
    fn visit(blocks: &[&invariance_checker::ir::Block], unknown: &mut Vec<String>) {
        for op in blocks.iter().flat_map(|b| &b.ops) {
            if let OpKind::Unknown { name, .. } = &op.kind {
                unknown.push(name.clone());
            }
            visit(&op.kind.blocks(), unknown);
        }
    }
    let mut unknown = Vec::new();
    for version in ["v360", "v390"] {
        for path in files(version, ".generic.mlir") {
            for function in &stripped(&path).functions {
                visit(&function.blocks.iter().collect::<Vec<_>>(), &mut unknown);
            }
        }
    }
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn locations_lead_to_the_source() {
    let text = fs::read(corpus().join("v390/matmul_persistent.ttir")).expect("readable");
    let module = parse(&text).expect("parses");
    let kernel = module.kernel().expect("one kernel");
    assert_eq!(kernel.name, "matmul_persistent");
    let names: Vec<_> = kernel.params.iter().map(|p| kernel.name_of(p.value).expect("named")).collect();
    assert_eq!(names, ["a", "b", "c", "M", "N", "K", "sam", "sbk", "scm"]);
    let pid = kernel.blocks[0].ops.iter().find(|o| matches!(o.kind, OpKind::ProgramId(_))).expect("a program id");
    assert_eq!(module.place(pid.loc).expect("a place").to_string(), "corpus.py:70:11");
    assert_eq!(kernel.name_of(pid.results[0]), Some("pid"));
    // `cdiv` is inlined: the place is the caller's line.
    let ntn = kernel.blocks[0].ops.iter().find(|o| matches!(o.kind, OpKind::Binary { .. })).expect("an addition");
    assert_eq!(module.place(ntn.loc).expect("a place").to_string(), "corpus.py:71:11");
}

//! Input that is not a TTIR module: a message with a place, never a panic, never much memory.

use invariance_checker::parse::{MAX_TEXT_BYTES, parse};
use invariance_checker::{Options, Verdict, check};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn refused(text: impl AsRef<[u8]>) -> String {
    parse(text.as_ref()).expect_err("refused").to_string()
}

#[test]
fn other_files_of_the_cache_are_named() {
    let cases: [(&[u8], &str); 12] = [
        (b"", "line 1, column 1: expected a TTIR module, found the end of the file"),
        (b"\n\n  \n", "line 4, column 1: expected a TTIR module, found the end of the file"),
        (b"; ModuleID = 'x'\nsource_filename = \"x\"\n", "line 1, column 1: expected TTIR, found LLVM IR"),
        (b"\n//\n.version 8.7\n.target sm_90a\n", "line 3, column 1: expected TTIR, found PTX"),
        (b"import triton\n", "line 1, column 1: expected TTIR, found Python source"),
        (b"\x7fELF\x02\x01", "line 1, column 1: expected TTIR text, found an ELF object (a cubin?)"),
        (b"ML\xefR\x0d", "line 1, column 1: expected TTIR text, found MLIR bytecode"),
        (b"module {\n  \xff\xfe\n}", "line 2, column 3: byte 0xff is not UTF-8: expected TTIR text"),
        (b"module {\0}", "line 1, column 9: expected TTIR text, found a NUL byte"),
        (
            b"#blocked = #ttg.blocked<{sizePerThread = [1], order = [0]}>\nmodule {}",
            "line 1, column 1: expected TTIR, found a layout: the file is TTGIR",
        ),
        (
            b"module attributes {\"ttg.num-warps\" = 4 : i32} {}",
            "line 1, column 1: expected TTIR, found a module with a number of warps: the file is TTGIR",
        ),
        (
            b"{\"kernel\": 1}",
            "line 1, column 1: expected a TTIR module (`module {` or `\"builtin.module\"`), found `{`",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refused(text), message);
    }
}

#[test]
fn a_file_has_one_kernel() {
    let function = |word: &str, name: &str| format!("  tt.func {word} @{name}() {{\n    tt.return\n  }}\n");
    let module = |functions: &[String]| format!("module {{\n{}}}\n", functions.concat());
    assert_eq!(
        refused(module(&[function("public", "k"), function("private", "f"), function("public", "l")])),
        "line 8, column 3: expected one public function, the kernel, found @k and @l"
    );
    assert_eq!(
        refused(module(&[function("private", "f"), function("private", "g")])),
        "line 1, column 1: expected a public function, the kernel, found only private ones"
    );
}

/// A kernel around the given operations.
fn kernel(body: &str) -> String {
    format!("module {{\n  tt.func public @k(%p: !tt.ptr<f32>, %n: i32) {{\n{body}\n    tt.return\n  }}\n}}\n")
}

#[test]
fn faults_inside_a_kernel_have_a_place() {
    let cases = [
        ("    %0 = arith.addi %n, %m : i32", "line 3, column 25: the value %m is not defined here"),
        ("    %0 = arith.addi %n, %p : i32", "line 3, column 25: %p has type !tt.ptr<f32>, not i32"),
        (
            "    %0 = arith.addi %1, %1 : i32\n    %1 = arith.addi %0, %0 : i32",
            "line 3, column 5: an operand (value 3) is used where it is not defined yet",
        ),
        (
            "    %0 = arith.addi %n, %n : i32\n    %0 = arith.addi %n, %n : i32",
            "line 4, column 5: the value %0 is defined twice",
        ),
        ("    %0 = tt.load %n : i32", "line 3, column 26: expected a pointer, found i32"),
        (
            "    %0 = tt.splat %n : i32 -> tensor<99999999x9999xi32>",
            "line 3, column 38: expected a tensor of 1 to 16777216 elements",
        ),
        (
            "    %0 = tt.splat %n : i32 -> tensor<4xi32, #blocked>",
            "line 3, column 43: this tensor type has a layout: the file is TTGIR, not TTIR",
        ),
        (
            "    %0:1000000000000 = tt.call @f(%n) : (i32) -> i32",
            "line 3, column 5: tt.call has 1 results, 1000000000000 are named",
        ),
        (
            "    %0 = tt.call @k(%p, %n) : (!tt.ptr<f32>, i32) -> i32",
            "line 3, column 5: the call does not match the type of @k",
        ),
        (
            "    tt.call @k(%p, %n) : (!tt.ptr<f32>, i32) -> ()",
            "line 2, column 3: @k calls itself: recursion is not supported",
        ),
        ("    %0 = arith.constant 300 : i8", "line 3, column 25: `300` is not a value of type i8"),
        ("    %0 = arith.constant dense<[1, 2]> : tensor<3xi32>", "line 3, column 31: expected 3 elements, found 2"),
        ("    tt.print \"no end", "line 3, column 14: this string has no closing quote on its line"),
        (
            "    %0 = arith.addi %n, %n : i32 loc(#loc7)",
            "line 3, column 38: the location #loc7 is not defined in this file",
        ),
        ("    cf.br ^bb9", "line 3, column 5: cf.br must be the last operation of its block"),
        ("    %0 = foo.bar %n", "line 3, column 10: foo.bar is not known here, and its result types are not printed"),
        (
            "    scf.for %i = %n to %n step %n : i32 {\n      tt.return\n    }",
            "line 3, column 5: this block ends in an operation that does not belong there",
        ),
    ];
    let mut wrong = Vec::new();
    for (body, message) in cases {
        let got = refused(kernel(body));
        if got != message {
            wrong.push(format!("{body}\n  got  {got}\n  want {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn locations_may_not_go_round_in_circles() {
    let circle = "#loc1 = loc(\"a\"(#loc2))\n#loc2 = loc(callsite(#loc1 at #loc1))\n";
    let text = kernel("    %0 = arith.addi %n, %n : i32 loc(#loc1)") + circle;
    assert_eq!(refused(text), "line 8, column 22: the location #loc1 contains itself");
    let chain: String = (0..100_000).map(|i| format!("#loc{i} = loc(\"a\"(#loc{}))\n", i + 1)).collect();
    let text = kernel("    %0 = arith.addi %n, %n : i32 loc(#loc0)") + &chain + "#loc100000 = loc(unknown)\n";
    assert!(refused(text).ends_with("a location of more than 256 levels"));
}

#[test]
fn nesting_is_bounded() {
    let deep = |open: &str, close: &str| open.repeat(200_000) + &close.repeat(200_000);
    for body in [
        deep("scf.if %c {\n", "}\n"),
        format!("tt.print \"x\" {{a = {}}}", deep("[", "]")),
        format!("%0 = tt.splat %n : {}", deep("tensor<1x", ">")),
        format!("foo.bar {}", deep("(", ")")),
        format!("%0 = arith.addi %n, %n : i32 loc({})", deep("callsite(", ")")),
    ] {
        assert!(refused(kernel(&body)).contains("nested deeper than"), "{}", &body[..20]);
    }
}

/// Chains that a walk cannot follow on any stack: the answer is UNKNOWN with the reason, whether the chain is met at once, or in parts
/// that are each short (stores along the way), or as conditions within conditions.
#[test]
fn a_value_may_hang_on_so_many_operations() {
    let chain = |length: usize, step: &dyn Fn(usize) -> String, store_every: usize| {
        let mut ops = String::from("    %v0 = tt.load %p : !tt.ptr<f32>\n");
        for i in 1..=length {
            ops += &step(i);
            if i % store_every == 0 {
                ops += &format!("    tt.store %p, %v{i} : !tt.ptr<f32>\n");
            }
        }
        kernel(&ops)
    };
    let sum = |i: usize| format!("    %v{i} = arith.addf %v{}, %v0 : f32\n", i - 1);
    let choice = |i: usize| {
        let constant = format!("    %k{i} = arith.constant {i} : i32\n");
        let compared =
            format!("    %c{i} = arith.cmpi slt, %n, %k{i} : i32\n    %w{i} = arith.mulf %v{0}, %v{0} : f32\n", i - 1);
        constant + &compared + &format!("    %v{i} = arith.select %c{i}, %w{i}, %v0 : f32\n")
    };
    let few = [chain(500, &sum, 500), chain(200, &choice, 200)];
    let many = [chain(20_000, &sum, 20_000), chain(20_000, &sum, 1000), chain(20_000, &choice, 500)];
    for (i, text) in few.iter().chain(&many).enumerate() {
        let module = parse(text.as_bytes()).expect("parses");
        let report = check(&module, &Options { witness_budget: Duration::ZERO, ..Options::default() });
        let bounded = report.reasons.iter().any(|r| r.text.starts_with("a value that hangs on a chain of more than"));
        assert_eq!(bounded, i >= few.len(), "{i}: {:?}", report.reasons);
        assert!(!bounded || report.verdict == Verdict::Unknown && report.digest.is_none(), "{i}: {:?}", report.verdict);
    }
}

#[test]
fn length_is_bounded() {
    let mut text = vec![b' '; MAX_TEXT_BYTES];
    assert_eq!(
        refused(&text),
        format!("line 1, column {}: expected a TTIR module, found the end of the file", MAX_TEXT_BYTES + 1)
    );
    text.push(b' ');
    assert_eq!(refused(&text), "line 1, column 1: the file has more than 16777216 bytes");
}

#[test]
fn what_a_small_text_may_ask_for_is_bounded() {
    // One long name that every operation points at must not be copied for each.
    let name = "n".repeat(1 << 20);
    let ops: String = (0..20_000).map(|i| format!("    %{i} = arith.addi %n, %n : i32 loc(#l)\n")).collect();
    let text = format!("#l = loc(\"{name}\"(unknown))\n{}", kernel(&ops));
    let module = parse(text.as_bytes()).expect("parses");
    assert!(module.functions[0].values.iter().all(|v| v.name.as_ref().is_none_or(|n| n.len() < 200)));
    let functions: String = (0..5000).map(|i| format!("tt.func private @f{i}() {{\n tt.return\n}}\n")).collect();
    assert!(refused(format!("module {{\n{functions}}}\n")).contains("more than 1024 functions"));
}

#[test]
fn an_unknown_operation_is_kept_by_name() {
    use invariance_checker::ir::OpKind;
    let body = "    %0 = foo.bar %n, %n {a = 1 : i32} : i32 -> tensor<4xf32> loc(\"x.py\":3:4)\n    foo.baz %0 {\n      anything at all\n    }";
    let module = parse(kernel(body).as_bytes()).expect("parses");
    let names: Vec<String> = module.functions[0].blocks[0]
        .ops
        .iter()
        .map(|op| match &op.kind {
            OpKind::Unknown { name, args, .. } => format!("{name}/{}", args.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["foo.bar/2", "foo.baz/1"]);
    assert_eq!(module.functions[0].ty(module.functions[0].blocks[0].ops[0].results[0]).to_string(), "tensor<4xf32>");
    assert_eq!(module.place(module.functions[0].blocks[0].ops[0].loc).expect("a place").to_string(), "x.py:3:4");
}

#[test]
fn an_unknown_operation_may_end_its_line_with_its_type() {
    let body = "    %0 = foo.bar %n : i32 -> f32\n    %1 = foo.baz : i1\n    %2 = arith.addf %0, %0 : f32";
    let module = parse(kernel(body).as_bytes()).expect("parses");
    let ops = &module.functions[0].blocks[0].ops;
    let types: Vec<String> = ops.iter().map(|op| module.functions[0].ty(op.results[0]).to_string()).collect();
    assert_eq!(types, ["f32", "i1", "f32"]);
}

#[test]
fn words_of_dependent_launches_are_barriers_in_both_forms() {
    use invariance_checker::ir::OpKind;
    let pretty = "    tt.grid_dependency_wait\n    tt.grid_dependency_launch_dependents loc(unknown)";
    let generic =
        "    \"tt.grid_dependency_wait\"() : () -> ()\n    \"tt.grid_dependency_launch_dependents\"() : () -> ()";
    for body in [pretty, generic] {
        let module = parse(kernel(body).as_bytes()).expect("parses");
        let ops = &module.functions[0].blocks[0].ops;
        assert!(ops.len() == 2 && ops.iter().all(|op| op.kind == OpKind::Barrier), "{ops:?}");
    }
}

/// Flash Linear Attention waits for the kernel before its own in this way.
#[test]
fn assembly_without_operands_parses_in_both_forms() {
    let pretty = "    %0 = tt.elementwise_inline_asm \"griddepcontrol.wait; // dummy $0\" {constraints = \"=r\", packed_element = 1 : i32, \
                  pure = false} -> i32";
    let generic = "    %0 = \"tt.elementwise_inline_asm\"() <{asm_string = \"griddepcontrol.wait; // dummy $0\", constraints = \"=r\", \
                   packed_element = 1 : i32, pure = false}> : () -> i32";
    let [a, b] = [pretty, generic].map(|body| {
        let mut module = parse(kernel(body).as_bytes()).expect("parses");
        module.strip();
        module
    });
    assert_eq!(a, b);
    assert_eq!(a.functions[0].blocks[0].ops.len(), 1);
}

#[test]
fn every_prefix_of_a_kernel_is_refused() {
    for name in ["v390/softmax_row.ttir", "v360/argmax_row.generic.mlir", "v390/cov_control_flow.nodebug.ttir"] {
        let text = std::fs::read(corpus().join(name)).expect("readable");
        let end = text.windows(3).position(|w| w == b"\n} ").or(text.windows(2).rposition(|w| w == b"\n}"));
        for cut in (0..end.expect("an end of the module")).step_by(7) {
            assert!(parse(&text[..cut]).is_err(), "{name} cut at {cut}");
        }
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Every text of the corpus below 20 kB.
fn texts() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for version in ["v360", "v390"] {
        for entry in std::fs::read_dir(corpus().join(version)).expect("readable") {
            let bytes = std::fs::read(entry.expect("readable").path()).expect("readable");
            if bytes.len() < 20_000 {
                out.push(bytes);
            }
        }
    }
    out
}

/// One way to damage a text.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Remove(usize, usize),
    Flip(usize, u8),
    Swap(usize, usize),
    /// Copies a piece of another text over.
    Splice(usize, usize, usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || 0..20_000usize;
    prop_oneof![
        at().prop_map(Damage::Cut),
        (at(), 1..200usize).prop_map(|(a, n)| Damage::Remove(a, n)),
        (at(), any::<u8>()).prop_map(|(a, b)| Damage::Flip(a, b)),
        (at(), at()).prop_map(|(a, b)| Damage::Swap(a, b)),
        (at(), at(), at(), 1..400usize).prop_map(|(a, b, c, n)| Damage::Splice(a, b, c, n)),
    ]
}

fn apply(text: &mut Vec<u8>, damage: &Damage, texts: &[Vec<u8>]) {
    let len = text.len().max(1);
    match *damage {
        Damage::Cut(at) => text.truncate(at % len),
        Damage::Remove(at, n) => {
            let at = at % len;
            text.drain(at.min(text.len())..(at + n).min(text.len()));
        }
        Damage::Flip(at, byte) => {
            if let Some(b) = text.get_mut(at % len) {
                *b = byte;
            }
        }
        Damage::Swap(a, b) => {
            if text.len() > 1 {
                text.swap(a % len, b % len);
            }
        }
        Damage::Splice(at, which, from, n) => {
            let other = &texts[which % texts.len()];
            let from = from % other.len();
            let piece = other[from..(from + n).min(other.len())].to_vec();
            let at = (at % len).min(text.len());
            text.splice(at..at, piece);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Damaged text parses or is refused; what parses runs or traps. Nothing panics.
    #[test]
    fn damaged_text_never_panics(which in 0..400usize, damages in prop::collection::vec(damage(), 1..4)) {
        thread_local!(static TEXTS: Vec<Vec<u8>> = texts());
        TEXTS.with(|texts| {
            let mut text = texts[which % texts.len()].clone();
            damages.iter().for_each(|d| apply(&mut text, d, texts));
            match parse(&text) {
                Ok(module) => try_run(&module),
                Err(e) => assert!(e.pos().line >= 1 && e.pos().column >= 1 && e.offset() <= text.len()),
            }
        });
    }
}

/// Runs a module with small buffers and few steps.
fn try_run(module: &invariance_checker::ir::Module) {
    use invariance_checker::interp::{Arg, Launch, Memory, Options, run};
    use invariance_checker::ir::{Scalar, Type};
    let Some(kernel) = module.kernel() else { return };
    let mut memory = Memory::new();
    let mut args = Vec::new();
    for param in &kernel.params {
        let ty = kernel.ty(param.value);
        args.push(match (ty, ty.pointee(), ty.scalar_elem()) {
            (Type::Desc { elem, .. }, ..) => {
                Arg::Desc { buffer: memory.zeros(*elem, 4096), shape: vec![64, 64], strides: vec![64, 1] }
            }
            (_, Some(pointee), _) => Arg::Ptr(memory.zeros(pointee, 1 << 12)),
            (_, _, Some(Scalar::Float(_))) => Arg::Float(0.5),
            _ => Arg::Int(17),
        });
    }
    let options = Options { max_steps: 300_000, max_live: 1 << 20, ..Options::default() };
    let _ = run(module, &Launch { grid: [2, 1, 1], args }, &mut memory, &options);
}

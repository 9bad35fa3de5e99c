//! Kernels that make different bits have different digests, and what a kernel does is read from its graph, not from the order of its text.

use invariance_checker::{Options, Report, Verdict, check, parse};

/// A kernel of one row of 64 to each program: `x`, `w` in, `y` out, with `%p`, `%q` the addresses of the row in `x` and `y`, and `%v` the row.
fn kernel(body: &str) -> Report {
    let text = format!(
        "module {{
  tt.func public @k(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %M: i32, %S: i32) {{
    %r = tt.get_program_id x : i32
    %o = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32>
    %b = arith.muli %r, %S : i32
    %p0 = tt.addptr %x, %b : !tt.ptr<f32>, i32
    %p1 = tt.splat %p0 : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %p = tt.addptr %p1, %o : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %q0 = tt.addptr %y, %b : !tt.ptr<f32>, i32
    %q1 = tt.splat %q0 : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %q = tt.addptr %q1, %o : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %v = tt.load %p : tensor<64x!tt.ptr<f32>>
{body}
  }}
}}"
    );
    let module = parse::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options =
        Options { batch_args: vec!["M".into()], witness_budget: std::time::Duration::ZERO, ..Options::default() };
    check(&module, &options)
}

const STORE: &str = "    tt.store %q, %z : tensor<64x!tt.ptr<f32>>\n    tt.return";

fn digest(body: &str) -> String {
    let r = kernel(&format!("{body}\n{STORE}"));
    r.digest.unwrap_or_else(|| panic!("{:?} {:?}\n{body}", r.verdict, r.reasons))
}

fn differ(first: &str, second: &str) {
    assert_ne!(digest(first), digest(second), "{first}\n{second}");
    assert_eq!(digest(first), digest(first));
}

#[test]
fn the_manner_of_an_operation_is_part_of_it() {
    let sum = "    %z = arith.addf %v, %v : tensor<64xf32>";
    differ(sum, &sum.replace(" :", " fastmath<fast> :"));
    let round = "    %h = arith.truncf %v : tensor<64xf32> to tensor<64xbf16>
    %z = arith.extf %h : tensor<64xbf16> to tensor<64xf32>";
    differ(round, &round.replace("truncf %v", "truncf %v {roundingmode = 1 : i32}"));
}

#[test]
fn types_inside_a_combiner_are_part_of_it() {
    let by = |half: &str| {
        format!(
            "    %s = \"tt.reduce\"(%v) <{{axis = 0 : i32}}> ({{
    ^bb0(%a: f32, %b2: f32):
      %t = arith.addf %a, %b2 : f32
      %h = arith.truncf %t : f32 to {half}
      %e = arith.extf %h : {half} to f32
      tt.reduce.return %e : f32
    }}) : (tensor<64xf32>) -> f32
    %z = tt.splat %s : f32 -> tensor<64xf32>"
        )
    };
    differ(&by("bf16"), &by("f16"));
}

#[test]
fn which_of_two_products_comes_first_matters_to_a_compiler_that_contracts() {
    let of = |operands: &str| {
        format!(
            "    %e = math.exp %v : tensor<64xf32>
    %m = arith.mulf %v, %v : tensor<64xf32>
    %n = arith.mulf %e, %v : tensor<64xf32>
    %z = arith.addf {operands} : tensor<64xf32>"
        )
    };
    differ(&of("%m, %n"), &of("%n, %m"));
    assert_eq!(digest(&of("%m, %v")), digest(&of("%v, %m")));
}

#[test]
fn a_sum_of_eight_bits_is_not_one_of_thirty_two() {
    let widen = "arith.extsi";
    let first = format!(
        "    %i = arith.fptosi %v : tensor<64xf32> to tensor<64xi8>
    %j = arith.addi %i, %i : tensor<64xi8>
    %k = {widen} %j : tensor<64xi8> to tensor<64xi32>
    %z = arith.sitofp %k : tensor<64xi32> to tensor<64xf32>"
    );
    let second = format!(
        "    %i = arith.fptosi %v : tensor<64xf32> to tensor<64xi8>
    %j = {widen} %i : tensor<64xi8> to tensor<64xi32>
    %k = arith.addi %j, %j : tensor<64xi32>
    %z = arith.sitofp %k : tensor<64xi32> to tensor<64xf32>"
    );
    differ(&first, &second);
}

#[test]
fn which_half_is_which_is_part_of_the_digest() {
    let halves = |low: &str, high: &str| {
        let r = kernel(&format!(
            "    %c = arith.constant dense<32> : tensor<64xi32>
    %w = arith.addf %v, %v : tensor<64xf32>
    %l = arith.cmpi slt, %o, %c : tensor<64xi32>
    %h = arith.cmpi sge, %o, %c : tensor<64xi32>
    tt.store %q, {low}, %l : tensor<64x!tt.ptr<f32>>
    tt.store %q, {high}, %h : tensor<64x!tt.ptr<f32>>
    tt.return"
        ));
        assert_eq!(r.verdict, Verdict::Invariant, "{:?}", r.reasons);
        (r.digest.expect("a digest"), r.digest_by_name.expect("a digest"))
    };
    let (one, other) = (halves("%v", "%w"), halves("%w", "%v"));
    assert_ne!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

/// The text has the block that stores last before the one from which control reaches it.
#[test]
fn the_last_store_is_the_last_that_runs() {
    let r = kernel(
        "    %c16 = arith.constant 16 : i32
    %c = arith.cmpi sgt, %M, %c16 : i32
    cf.br ^bb2
  ^bb1:
    %w = arith.addf %v, %v : tensor<64xf32>
    %m = tt.splat %c : i1 -> tensor<64xi1>
    tt.store %q, %w, %m : tensor<64x!tt.ptr<f32>>
    tt.return
  ^bb2:
    tt.store %q, %v : tensor<64x!tt.ptr<f32>>
    cf.br ^bb1",
    );
    assert_eq!(r.verdict, Verdict::Unknown);
    assert_eq!(r.reasons[0].text, "M shapes the tree");
}

#[test]
fn constants_wrap_as_their_type_does() {
    // 2^31 - 1 + 1 is negative, so the value is the row times M.
    let r = kernel(&format!(
        "    %big = arith.constant 2147483647 : i32
    %one = arith.constant 1 : i32
    %zero = arith.constant 0 : i32
    %sum = arith.addi %big, %one : i32
    %c = arith.cmpi sge, %sum, %zero : i32
    %m = arith.sitofp %M : i32 to f32
    %mt = tt.splat %m : f32 -> tensor<64xf32>
    %w = arith.mulf %v, %mt : tensor<64xf32>
    %z = arith.select %c, %v, %w : tensor<64xf32>
{STORE}"
    ));
    assert_eq!(r.verdict, Verdict::Unknown);
}

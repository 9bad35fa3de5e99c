//! Every rule that `docs/property.md` lists has a test here, and every rule that the code uses is on the page.
//!
//! A rule about floating-point operations is run in the interpreter on every float16, on special and random binary32 values, or on all
//! pairs of a small format; where a rule has a condition, the test also shows a value that breaks it without. A rule about indices has
//! a kernel whose proof uses it and whose launches the interpreter cannot tell apart.

mod support;

use half::{bf16, f16};
use invariance_checker::interp::{Arg, Launch, Memory, Options as Run, ReduceOrder, run};
use invariance_checker::ir::{Float, Scalar};
use invariance_checker::{Options, Verdict, check, parse};
use reduction_tree::arithmetic::{Arithmetic, chain, mma_step, mma_step_f16, padded};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Outcome, Rng, Search, read_index, search};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The rules of one table of the page: names in the first column, several in one row allowed.
fn listed(heading: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/property.md")).expect("the page");
    let section =
        page.split("\n### ").find(|s| s.starts_with(heading)).unwrap_or_else(|| panic!("a section {heading}"));
    let rows = section.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).expect("a first cell").split(','));
    names.map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect()
}

#[test]
fn every_rule_of_the_page_has_a_test_and_every_rule_of_the_code_is_on_the_page() {
    let ieee: BTreeSet<String> = IEEE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(ieee, listed("Floating-point rules"));
    let index: BTreeSet<String> = INDEX.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(index, listed("Index rules"));
    let all: BTreeSet<String> = ieee.union(&index).cloned().collect();
    let mut used = BTreeSet::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let calls = text.split("rules.insert(\"").skip(1);
            used.extend(calls.filter_map(|c| c.split('"').next()).map(str::to_owned));
        }
    }
    let missing: Vec<&String> = used.difference(&all).collect();
    assert!(missing.is_empty(), "used, but not on the page: {missing:?}");
}

const IEEE: [(&str, fn()); 18] = [
    ("add-plus-zero", add_plus_zero),
    ("sum-from-plus-zero", sum_from_plus_zero),
    ("multiply-by-one", multiply_by_one),
    ("max-with-minus-infinity", max_with_minus_infinity),
    ("difference-of-equals", difference_of_equals),
    ("minus-infinity-minus-finite", minus_infinity_minus_finite),
    ("exp-of-zero", exp_of_zero),
    ("exp-of-minus-infinity", exp_of_minus_infinity),
    ("zero-products", zero_products),
    ("equal-lanes", equal_lanes),
    ("constant-products", constant_products),
    ("flatten-chain", flatten_chain),
    ("zero-padding-of-k", zero_padding_of_k),
    ("commuting-operands", commuting_operands),
    ("masked-factor", masked_factor),
    ("plus-sign", plus_sign),
    ("compare-with-minus-infinity", compare_with_minus_infinity),
    ("guarded-maximum", guarded_maximum),
];

#[test]
fn floating_point_rules_hold_bit_for_bit() {
    IEEE.iter().for_each(|(_, test)| test());
}

const FORMATS: [Float; 3] = [Float::F16, Float::Bf16, Float::F32];

/// Bit patterns to try: all of a 16-bit format; of binary32 zeros, subnormals, powers, infinities, NaNs, and random ones.
fn patterns(f: Float) -> Vec<u64> {
    if f != Float::F32 {
        return (0..1u64 << 16).collect();
    }
    let mut rng = Rng::new(3);
    let ends = [0u64, 1, 2, 0x7f_ffff];
    let exponents = (0..256u64).flat_map(|e| ends.map(|m| e << 23 | m));
    let signed = exponents.flat_map(|b| [b, b | 1 << 31]);
    signed.chain((0..1 << 15).map(|_| rng.next() & 0xffff_ffff)).collect()
}

fn name(f: Float) -> &'static str {
    match f {
        Float::F16 => "f16",
        Float::Bf16 => "bf16",
        _ => "f32",
    }
}

fn value(bits: u64, f: Float) -> f64 {
    invariance_checker::float::decode(bits, f)
}

/// `body` computes `%r` from `%x` and `%y`, tensors of 256 elements of type `T`.
fn computed(f: Float, body: &str, x: &[u64], y: &[u64]) -> Vec<u64> {
    const KERNEL: &str = "module {
  tt.func public @k(%px: !tt.ptr<T>, %py: !tt.ptr<T>, %pz: !tt.ptr<T>) {
    %p = tt.get_program_id x : i32
    %c = arith.constant 256 : i32
    %o = arith.muli %p, %c : i32
    %lanes = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
    %os = tt.splat %o : i32 -> tensor<256xi32>
    %at = arith.addi %os, %lanes : tensor<256xi32>
    %sx = tt.splat %px : !tt.ptr<T> -> tensor<256x!tt.ptr<T>>
    %ax = tt.addptr %sx, %at : tensor<256x!tt.ptr<T>>, tensor<256xi32>
    %x = tt.load %ax : tensor<256x!tt.ptr<T>>
    %sy = tt.splat %py : !tt.ptr<T> -> tensor<256x!tt.ptr<T>>
    %ay = tt.addptr %sy, %at : tensor<256x!tt.ptr<T>>, tensor<256xi32>
    %y = tt.load %ay : tensor<256x!tt.ptr<T>>
BODY
    %sz = tt.splat %pz : !tt.ptr<T> -> tensor<256x!tt.ptr<T>>
    %az = tt.addptr %sz, %at : tensor<256x!tt.ptr<T>>, tensor<256xi32>
    tt.store %az, %r : tensor<256x!tt.ptr<T>>
    tt.return
  }
}
";
    let text = KERNEL
        .replace("BODY", body)
        .replace("256xT>", &format!("256x{}>", name(f)))
        .replace("<T>", &format!("<{}>", name(f)));
    let module = parse::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let programs = x.len().div_ceil(256);
    let scalar = Scalar::Float(f);
    let mut memory = Memory::new();
    let filled = |values: &[u64]| {
        let mut all = values.to_vec();
        all.resize(programs * 256, 0);
        all
    };
    let (px, py) = (memory.add_bits(scalar, &filled(x)), memory.add_bits(scalar, &filled(y)));
    let pz = memory.zeros(scalar, programs * 256);
    let launch = Launch { grid: [programs as u32, 1, 1], args: vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Ptr(pz)] };
    run(&module, &launch, &mut memory, &Run::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    memory.bits(pz)[..x.len()].to_vec()
}

fn constant(literal: &str) -> String {
    format!("    %k = arith.constant dense<{literal}> : tensor<256xT>\n")
}

fn infinity(f: Float, sign: char) -> String {
    let bits = match (f, sign) {
        (Float::F16, '-') => "0xFC00",
        (Float::Bf16, '-') => "0xFF80",
        (_, '-') => "0xFF800000",
        (Float::F16, _) => "0x7C00",
        (Float::Bf16, _) => "0x7F80",
        _ => "0x7F800000",
    };
    constant(bits)
}

/// For every pattern, `body` gives what `wanted` says, if that says anything; NaN results count as one value.
fn holds(f: Float, body: &str, wanted: impl Fn(u64) -> Option<u64>) {
    let x = patterns(f);
    let got = computed(f, body, &x, &x);
    for (x, r) in x.iter().zip(&got) {
        if let Some(w) = wanted(*x) {
            let same = w == *r || value(w, f).is_nan() && value(*r, f).is_nan();
            assert!(same, "{}: {body} of {x:#x} is {r:#x}, expected {w:#x}", name(f));
        }
    }
}

fn zero(f: Float, negative: bool) -> u64 {
    u64::from(negative) << if f == Float::F32 { 31 } else { 15 }
}

fn add_plus_zero() {
    for f in FORMATS {
        let body = constant("0.000000e+00") + "    %r = arith.addf %x, %k : tensor<256xT>";
        holds(f, &body, |x| (x != zero(f, true)).then_some(x));
        // The condition: -0 would become +0.
        holds(f, &body, |x| (x == zero(f, true)).then_some(zero(f, false)));
    }
}

/// All pairs of the 256 values whose significand has two bits, which float16 holds with room to round.
fn pairs() -> (Vec<u64>, Vec<u64>) {
    (0..1u64 << 16).map(|n| ((n & 0xff) << 8, n & 0xff00)).unzip()
}

fn sum_from_plus_zero() {
    let minus = zero(Float::F16, true);
    let (x, y) = pairs();
    let sums = computed(Float::F16, "    %r = arith.addf %x, %y : tensor<256xT>", &x, &y);
    for ((x, y), s) in x.iter().zip(&y).zip(sums) {
        assert_eq!(s == minus, *x == minus && *y == minus, "{x:#x} + {y:#x} = {s:#x}");
    }
}

fn multiply_by_one() {
    for f in FORMATS {
        let body = constant("1.000000e+00") + "    %r = arith.mulf %x, %k : tensor<256xT>";
        holds(f, &body, Some);
    }
}

fn max_with_minus_infinity() {
    for f in FORMATS {
        let body = infinity(f, '-') + "    %r = arith.maximumf %x, %k : tensor<256xT>";
        holds(f, &body, Some);
        let body = infinity(f, '-') + "    %r = arith.maxnumf %x, %k : tensor<256xT>";
        holds(f, &body, |x| (!value(x, f).is_nan()).then_some(x));
        // The condition: maxnumf drops a NaN.
        let dropped = computed(f, &body, &[0x7fff_ffff & patterns_mask(f)], &[0]);
        assert_eq!(value(dropped[0], f), f64::NEG_INFINITY);
    }
}

fn patterns_mask(f: Float) -> u64 {
    if f == Float::F32 { 0xffff_ffff } else { 0x7fff }
}

fn difference_of_equals() {
    for f in FORMATS {
        let body = "    %r = arith.subf %x, %x : tensor<256xT>";
        holds(f, body, |x| value(x, f).is_finite().then_some(zero(f, false)));
        // The condition: inf - inf is a NaN.
        let x: Vec<u64> = patterns(f).into_iter().filter(|x| value(*x, f).is_infinite()).collect();
        assert!(computed(f, body, &x, &x).iter().all(|r| value(*r, f).is_nan()) && !x.is_empty());
    }
}

fn minus_infinity_minus_finite() {
    for f in FORMATS {
        let body = infinity(f, '-') + "    %r = arith.subf %k, %x : tensor<256xT>";
        let low = patterns(f).into_iter().find(|p| value(*p, f) == f64::NEG_INFINITY);
        holds(f, &body, |x| if value(x, f).is_finite() { low } else { None });
        // The condition: -inf - (-inf) is a NaN.
        holds(f, &body, |x| (value(x, f) == f64::NEG_INFINITY).then_some(0x7fff_ffff & patterns_mask(f)));
    }
}

fn exp_of_zero() {
    for op in ["exp", "exp2"] {
        let got = computed(Float::F32, &format!("    %r = math.{op} %x : tensor<256xT>"), &[0], &[0]);
        assert_eq!(got, [u64::from(1f32.to_bits())], "{op}");
    }
}

fn exp_of_minus_infinity() {
    for op in ["exp", "exp2"] {
        let x = [u64::from(f32::NEG_INFINITY.to_bits())];
        assert_eq!(computed(Float::F32, &format!("    %r = math.{op} %x : tensor<256xT>"), &x, &x), [0], "{op}");
    }
}

const ARITHMETICS: [Arithmetic; 3] = [Arithmetic::Ieee, Arithmetic::Sm80, Arithmetic::Sm90];

/// Accumulators: special and random.
fn accumulators() -> Vec<f32> {
    let mut rng = Rng::new(8);
    let special = [0.0, f32::MIN_POSITIVE, 1e-45, 1.0, -1.5, f32::MAX, -f32::MAX, f32::INFINITY, f32::NEG_INFINITY];
    let random = (0..2000).map(|_| f32::from_bits(rng.next() as u32)).filter(|x| !x.is_nan() && x.to_bits() != 1 << 31);
    special.into_iter().chain(random).collect()
}

fn zero_products() {
    let mut rng = Rng::new(5);
    for acc in accumulators() {
        for arithmetic in ARITHMETICS {
            let b: [bf16; 16] = std::array::from_fn(|_| finite_bf16(&mut rng));
            let zeros = [bf16::ZERO; 16];
            for (x, y) in [(&zeros, &b), (&b, &zeros)] {
                assert_eq!(mma_step(arithmetic, acc, x, y).to_bits(), acc.to_bits(), "{arithmetic:?}: {acc:e}");
            }
            let b: [f16; 16] = std::array::from_fn(|_| f16::from_bits(rng.next() as u16 & 0xbbff));
            assert_eq!(mma_step_f16(arithmetic, acc, &[f16::ZERO; 16], &b).to_bits(), acc.to_bits(), "{arithmetic:?}");
        }
    }
    // The conditions: an accumulator of -0 becomes +0, and 0 * inf is a NaN.
    assert_eq!(mma_step(Arithmetic::Sm90, -0.0, &[bf16::ZERO; 16], &[bf16::ONE; 16]).to_bits(), 0);
    assert!(mma_step(Arithmetic::Sm90, 1.0, &[bf16::ZERO; 16], &[bf16::INFINITY; 16]).is_nan());
}

fn finite_bf16(rng: &mut Rng) -> bf16 {
    loop {
        let x = bf16::from_bits(rng.next() as u16);
        if x.is_finite() {
            return x;
        }
    }
}

/// The reduction of 256 equal lanes, in both orders of the interpreter.
fn reduced(combiner: &str, lane: u64) -> Vec<u64> {
    let text = format!(
        "module {{
  tt.func public @k(%px: !tt.ptr<f32>, %pz: !tt.ptr<f32>) {{
    %v = tt.load %px : !tt.ptr<f32>
    %x = tt.splat %v : f32 -> tensor<256xf32>
    %r = \"tt.reduce\"(%x) <{{axis = 0 : i32}}> ({{
    ^bb0(%a: f32, %b: f32):
      %s = arith.{combiner} %a, %b : f32
      tt.reduce.return %s : f32
    }}) : (tensor<256xf32>) -> f32
    tt.store %pz, %r : !tt.ptr<f32>
    tt.return
  }}
}}
"
    );
    let module = parse::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let each = [ReduceOrder::Halves, ReduceOrder::Left].map(|reduce| {
        let mut memory = Memory::new();
        let px = memory.add_bits(Scalar::Float(Float::F32), &[lane]);
        let pz = memory.zeros(Scalar::Float(Float::F32), 1);
        let launch = Launch { grid: [1, 1, 1], args: vec![Arg::Ptr(px), Arg::Ptr(pz)] };
        run(&module, &launch, &mut memory, &Run { reduce, ..Run::default() }).expect("runs");
        memory.bits(pz)[0]
    });
    each.to_vec()
}

fn equal_lanes() {
    assert_eq!(reduced("addf", 0), [0, 0]);
    for lane in patterns(Float::F32).into_iter().step_by(97).filter(|x| !value(*x, Float::F32).is_nan()) {
        for combiner in ["maxnumf", "minnumf", "maximumf", "minimumf"] {
            assert_eq!(reduced(combiner, lane), [lane, lane], "{combiner}");
        }
    }
}

fn constant_products() {
    for f in FORMATS {
        let body = infinity(f, '-') + "    %r = arith.mulf %x, %k : tensor<256xT>";
        let low = patterns(f).into_iter().find(|p| value(*p, f) == f64::NEG_INFINITY);
        holds(f, &body, |x| if value(x, f) > 0.0 { low } else { None });
        let body = constant("0.000000e+00") + "    %r = arith.mulf %x, %k : tensor<256xT>";
        holds(f, &body, |x| (value(x, f) > 0.0 && value(x, f).is_finite()).then_some(zero(f, false)));
        // The condition: +0 * inf is a NaN.
        holds(f, &body, |x| value(x, f).is_infinite().then_some(0x7fff_ffff & patterns_mask(f)));
    }
}

fn flatten_chain() {
    let mut rng = Rng::new(6);
    for _ in 0..300 {
        let a: Vec<bf16> = (0..256).map(|_| finite_bf16(&mut rng)).collect();
        let b: Vec<bf16> = (0..256).map(|_| finite_bf16(&mut rng)).collect();
        for arithmetic in ARITHMETICS {
            let whole = chain(arithmetic, 0.0, &a, &b).to_bits();
            for tile in [16, 32, 64, 128] {
                let tiles = a.chunks(tile).zip(b.chunks(tile));
                let acc = tiles.fold(0.0, |acc, (a, b)| chain(arithmetic, acc, a, b));
                assert_eq!(acc.to_bits(), whole, "{arithmetic:?}, tiles of {tile}");
            }
        }
    }
}

fn zero_padding_of_k() {
    let mut rng = Rng::new(7);
    for len in 1..=48 {
        let a: Vec<bf16> = (0..len).map(|_| finite_bf16(&mut rng)).collect();
        let b: Vec<bf16> = (0..len).map(|_| finite_bf16(&mut rng)).collect();
        let to =
            |v: &[bf16], n: usize| v.iter().copied().chain(std::iter::repeat(bf16::ZERO)).take(n).collect::<Vec<_>>();
        for arithmetic in ARITHMETICS {
            // Padding to whole steps, and then by whole steps of zeros.
            let steps = a.chunks(16).zip(b.chunks(16));
            let short = steps.fold(0.0, |acc, (a, b)| mma_step(arithmetic, acc, &padded(a), &padded(b)));
            for n in [64, 128] {
                assert_eq!(
                    chain(arithmetic, 0.0, &to(&a, n), &to(&b, n)).to_bits(),
                    short.to_bits(),
                    "{arithmetic:?} {len} {n}"
                );
            }
        }
    }
}

fn commuting_operands() {
    let (x, y) = pairs();
    for op in ["addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf"] {
        let body = format!("    %r = arith.{op} %x, %y : tensor<256xT>");
        let (a, b) = (computed(Float::F16, &body, &x, &y), computed(Float::F16, &body, &y, &x));
        let differ =
            |(a, b): (&u64, &u64)| a != b && !(value(*a, Float::F16).is_nan() && value(*b, Float::F16).is_nan());
        assert!(!a.iter().zip(&b).any(differ), "{op}");
    }
}

/// A product with +0 is ±0 whatever the finite factor, so a step whose masked lanes hold anything finite is the step with +0 there.
fn masked_factor() {
    let mut rng = Rng::new(12);
    for acc in accumulators() {
        let a: [bf16; 16] = std::array::from_fn(|i| if i % 3 == 0 { bf16::ZERO } else { finite_bf16(&mut rng) });
        let b: [bf16; 16] = std::array::from_fn(|_| finite_bf16(&mut rng));
        let masked: [bf16; 16] = std::array::from_fn(|i| if i % 3 == 0 { bf16::ZERO } else { b[i] });
        for arithmetic in ARITHMETICS {
            let (x, y) = (mma_step(arithmetic, acc, &a, &b), mma_step(arithmetic, acc, &a, &masked));
            assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(), "{arithmetic:?}: {acc:e}: {x:e} {y:e}");
        }
    }
    // The conditions: from -0 the sign of a zero product shows, and 0 * inf is a NaN.
    let minus = [-bf16::ONE; 16];
    let steps = [minus, [bf16::ZERO; 16]].map(|b| mma_step(Arithmetic::Ieee, -0.0, &[bf16::ZERO; 16], &b).to_bits());
    assert_ne!(steps[0], steps[1]);
    assert!(mma_step(Arithmetic::Sm90, 1.0, &[bf16::ZERO; 16], &[bf16::INFINITY; 16]).is_nan());
}

/// Sums, products, quotients and exponentials of values of sign plus have sign plus, underflow included.
fn plus_sign() {
    let f = Float::F16;
    let minus = |x: u64| x >> 15 == 1 && !value(x, f).is_nan();
    let (x, y): (Vec<u64>, Vec<u64>) = pairs().0.into_iter().zip(pairs().1).filter(|(x, y)| x | y < 1 << 15).unzip();
    for op in ["addf", "mulf", "divf", "maxnumf", "maximumf", "minnumf", "minimumf"] {
        let r = computed(f, &format!("    %r = arith.{op} %x, %y : tensor<256xT>"), &x, &y);
        assert!(!r.into_iter().any(minus), "{op}");
    }
    let all = patterns(Float::F32);
    for op in ["exp", "exp2"] {
        let r = computed(Float::F32, &format!("    %r = math.{op} %x : tensor<256xT>"), &all, &all);
        assert!(!r.into_iter().any(|b| b >> 31 == 1 && !value(b, Float::F32).is_nan()), "{op}");
    }
    // A negative factor that underflows gives -0, so one sign that is not plus spoils the rule.
    let tiny = computed(f, "    %r = arith.mulf %x, %y : tensor<256xT>", &[0x8001], &[0x0001]);
    assert_eq!(tiny, [0x8000]);
}

fn compare_with_minus_infinity() {
    for f in FORMATS {
        for (pred, answer) in
            [("ogt", 1), ("ugt", 1), ("one", 1), ("une", 1), ("oeq", 0), ("ueq", 0), ("ole", 0), ("ule", 0)]
        {
            let body = infinity(f, '-')
                + &format!("    %is = arith.cmpf {pred}, %x, %k : tensor<256xT>\n")
                + "    %r = arith.select %is, %y, %x : tensor<256xi1>, tensor<256xT>";
            let x: Vec<u64> = patterns(f).into_iter().filter(|x| value(*x, f).is_finite()).collect();
            // y is another number than x, so the choice shows.
            let y: Vec<u64> = x.iter().map(|x| x ^ 1).collect();
            let want = if answer == 1 { &y } else { &x };
            assert_eq!(&computed(f, &body, &x, &y), want, "{pred}");
        }
    }
}

/// `-inf - (if x > -inf then x else 0)` is -inf for every x, NaN and infinities included.
fn guarded_maximum() {
    for f in FORMATS {
        let zeros = "    %z = arith.constant dense<0.000000e+00> : tensor<256xT>\n";
        let body = infinity(f, '-')
            + zeros
            + "    %is = arith.cmpf ogt, %x, %k : tensor<256xT>\n    %safe = arith.select %is, %x, %z : tensor<256xi1>, tensor<256xT>\n    %r = arith.subf %k, %safe : tensor<256xT>";
        let low = patterns(f).into_iter().find(|p| value(*p, f) == f64::NEG_INFINITY);
        holds(f, &body, |_| low);
    }
}

/// Rules about indices, each with a fixture whose proof uses it.
const INDEX: [(&str, &str); 19] = [
    ("solve-coordinates", "kernels/linear_m16_k1.ttir"),
    ("split-digits", "kernels/attention_merge.ttir"),
    ("coordinate-digits", "tests/adversarial/flat_block_reshaped.ttir"),
    ("join-digits", "tests/adversarial/digits_of_tile.ttir"),
    ("scatter-by-slot", "tests/adversarial/slot_by_page.ttir"),
    ("owner-of-block", "tests/adversarial/expert_of_block.ttir"),
    ("group-of-list", "tests/adversarial/group_of_list.ttir"),
    ("prefix-sum-owner", "tests/adversarial/token_and_own_mean.ttir"),
    ("positive-divisor", "tests/classes/scale_of_group.ttir"),
    ("row-by-stride", "tests/atomics/masked_tail.ttir"),
    ("one-program", "tests/atomics/tile_of_rows.ttir"),
    ("site-union", "tests/adversarial/two_sites_one_value.ttir"),
    ("row-exists", "tests/corpus/v390/cov_host_desc.ttir"),
    ("order-free-atomic", "tests/adversarial/integer_histogram_of_row.ttir"),
    ("fold-extension", "tests/adversarial/longest_bound_masked.ttir"),
    ("search-of-prefix-sums", "tests/packed/search.ttir"),
    ("late-start", "tests/adversarial/window_of_tile.ttir"),
    ("own-lane", "tests/adversarial/tile_of_causal_rows.ttir"),
    ("first-iteration", "tests/adversarial/splits_up_to_longest.ttir"),
];

#[test]
fn index_rules_are_used_by_proofs_that_the_interpreter_cannot_refute() {
    let mut rules: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (rule, file) in INDEX {
        let used = rules.entry(file).or_insert_with(|| proved(file));
        assert!(used.contains(rule), "{file} uses {used:?}, not {rule}");
    }
}

/// The rules of a proof; two launches of the kernel store the same bits for a row, where its index says how to launch it.
fn proved(file: &str) -> BTreeSet<String> {
    let path = root().join(file);
    let module = parse::parse(&std::fs::read(&path).expect("a fixture")).expect("a module");
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let folder = path.parent().expect("a folder");
    let launched = folder.ends_with("adversarial") || folder.ends_with("atomics");
    let case = launched.then(|| read_index(folder).into_iter().find(|c| c.file == name));
    let case = case.map(|c| c.expect("an index line"));
    let batch = case.as_ref().map_or("", |c| &c.batch_args);
    let options = Options {
        batch_args: batch.split(',').filter(|b| !b.is_empty()).map(str::to_owned).collect(),
        witness_budget: Duration::ZERO,
        timeout: Duration::from_secs(60),
        ..Options::default()
    };
    let report = check(&module, &options);
    assert!(matches!(report.verdict, Verdict::Invariant | Verdict::Under), "{file}: {:?}", report.reasons);
    if let Some(case) = case {
        let how = Search { trials: 30, same_row: false, special: false, stored_only: true };
        if let Outcome::Differ(found) = search(&module, &case.spec, how) {
            panic!("{file}: {found:?}");
        }
    }
    report.rules.into_iter().collect()
}

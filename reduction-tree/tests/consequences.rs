//! What follows from the model of a step (DESIGN 4.2), and a second model of it in another style of arithmetic.

mod common;

use common::Random;
use half::{bf16, f16};
use proptest::prelude::*;
use reduction_tree::arithmetic::*;
use reduction_tree::fp8::{FP8_STEP, Fp8, wgmma_step_fp8};

const TENSOR_CORES: [Arithmetic; 2] = [Arithmetic::Sm90, Arithmetic::Sm80];
const NAN: u32 = 0x7fff_ffff;

/// The exponent of a factor as the tensor core sees it: that of its leading place, or the format's smallest.
fn exponent(x: f64, smallest: i32) -> i32 {
    if x == 0.0 { smallest } else { ((x.abs().to_bits() >> 52) as i32 - 1023).max(smallest) }
}

fn pow2(e: i32) -> f64 {
    libm::exp2(f64::from(e))
}

/// One fused step in binary64, where every quantity is exact: products have at most 22 bits, terms are scaled by powers
/// of two and cut with `trunc`, and their sum stays below 2^53.
fn fused_f64(fraction_bits: i32, floor: i32, smallest: i32, acc: f32, a: &[f64], b: &[f64]) -> f32 {
    let pairs = || a.iter().zip(b);
    let products = pairs().map(|(a, b)| (a * b, exponent(*a, smallest) + exponent(*b, smallest)));
    let mut terms: Vec<(f64, i32)> = products.filter(|(p, _)| *p != 0.0).collect();
    if acc != 0.0 {
        terms.push((f64::from(acc), exponent(f64::from(acc), -126)));
    }
    let unit = pow2(terms.iter().fold(floor, |max, (_, e)| max.max(*e)) - fraction_bits);
    let sum: f64 = terms.iter().map(|(x, _)| (x / unit).trunc()).sum::<f64>() * unit;
    toward_zero(sum)
}

fn toward_zero(x: f64) -> f32 {
    if x == 0.0 {
        return 0.0;
    }
    if x.abs() >= pow2(128) {
        return f32::INFINITY.copysign(x as f32);
    }
    let nearest = x as f32;
    let away = nearest.is_infinite() || f64::from(nearest).abs() > x.abs();
    let cut = if away { f32::from_bits(nearest.to_bits() - 1) } else { nearest };
    if cut == 0.0 { 0.0 } else { cut }
}

/// The second model of a step of finite inputs.
fn reference<T: StepInput>(arithmetic: Arithmetic, smallest: i32, acc: f32, a: &[T; 16], b: &[T; 16]) -> f32 {
    let wide = |x: &[T; 16]| x.map(|x| f64::from(x.widen()));
    let (a, b) = (wide(a), wide(b));
    match arithmetic {
        Arithmetic::Ieee => (0..16).fold(acc, |acc, i| libm::fmaf(a[i] as f32, b[i] as f32, acc)),
        Arithmetic::Sm90 => fused_f64(25, -133, smallest, acc, &a, &b),
        Arithmetic::Sm80 => {
            let acc = fused_f64(24, -132, smallest, acc, &a[..8], &b[..8]);
            fused_f64(24, -132, smallest, acc, &a[8..], &b[8..])
        }
    }
}

fn finite_bf16() -> impl Strategy<Value = bf16> {
    // All bit patterns, small exponents around 1, subnormals and zeros.
    prop_oneof![
        any::<u16>(),
        (0u16..0x100).prop_map(|x| 0x3f00 + x * 3),
        (0u16..0x80),
        (0u16..0x80).prop_map(|x| x | 0x8000),
        Just(0u16),
        Just(0x8000u16),
    ]
    .prop_map(bf16::from_bits)
    .prop_filter("finite", |x| x.is_finite())
}

fn finite_f16() -> impl Strategy<Value = f16> {
    prop_oneof![any::<u16>(), 0u16..0x400, Just(0x8000u16)]
        .prop_map(f16::from_bits)
        .prop_filter("finite", |x| x.is_finite())
}

fn finite_f32() -> impl Strategy<Value = f32> {
    prop_oneof![any::<u32>(), 0u32..0x80_0000, Just(0x8000_0000u32), 0x3f00_0000u32..0x4000_0000]
        .prop_map(f32::from_bits)
        .prop_filter("finite", |x| x.is_finite())
}

fn sixteen<T: std::fmt::Debug + Clone>(x: impl Strategy<Value = T>) -> impl Strategy<Value = [T; 16]> {
    prop::collection::vec(x, 16).prop_map(|x| x.try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn bf16_steps_agree_with_the_second_model(a in sixteen(finite_bf16()), b in sixteen(finite_bf16()), c in finite_f32()) {
        for arithmetic in Arithmetic::ALL {
            let (got, expected) = (mma_step(arithmetic, c, &a, &b), reference(arithmetic, -126, c, &a, &b));
            prop_assert!(got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()), "{arithmetic:?}: {got:e} {expected:e}");
        }
    }

    #[test]
    fn f16_steps_agree_with_the_second_model(a in sixteen(finite_f16()), b in sixteen(finite_f16()), c in finite_f32()) {
        for arithmetic in Arithmetic::ALL {
            let (got, expected) = (mma_step_f16(arithmetic, c, &a, &b), reference(arithmetic, -14, c, &a, &b));
            prop_assert_eq!(got.to_bits(), expected.to_bits(), "{:?}: {:e} {:e}", arithmetic, got, expected);
        }
    }

    #[test]
    fn fp8_steps_agree_with_the_second_model(a: [u8; FP8_STEP], b: [u8; FP8_STEP], c in finite_f32()) {
        for (format, smallest) in [(Fp8::E4m3, -6), (Fp8::E5m2, -14)] {
            let finite = |x: u8| if format.widen(x).is_finite() { x } else { 0x11 };
            let (a, b) = (a.map(finite), b.map(finite));
            let wide = |x: [u8; FP8_STEP]| x.map(|x| f64::from(format.widen(x)));
            let sum = fused_f64(13, -133, smallest, c, &wide(a), &wide(b));
            let expected = f32::from_bits(sum.to_bits() & !0x3ff);
            prop_assert_eq!(wgmma_step_fp8(format, format, c, &a, &b).to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn k_may_be_permuted_inside_a_step(a in sixteen(finite_bf16()), b in sixteen(finite_bf16()), c in finite_f32(), seed: u64) {
        let mut random = Random::new(seed);
        let mut order: [usize; 16] = std::array::from_fn(|i| i);
        for arithmetic in TENSOR_CORES {
            // Sm80 has two fused steps of 8.
            let fused = if arithmetic == Arithmetic::Sm80 { 8 } else { 16 };
            for half in order.chunks_mut(fused) {
                for i in (1..fused).rev() {
                    half.swap(i, random.below(i + 1));
                }
            }
            let expected = mma_step(arithmetic, c, &a, &b);
            let permuted = mma_step(arithmetic, c, &order.map(|i| a[i]), &order.map(|i| b[i]));
            prop_assert_eq!(expected.to_bits(), permuted.to_bits());
            order = std::array::from_fn(|i| i);
        }
    }

    #[test]
    fn factors_may_change_places(a in sixteen(any::<u16>()), b in sixteen(any::<u16>()), c: u32) {
        let (a, b, c) = (a.map(bf16::from_bits), b.map(bf16::from_bits), f32::from_bits(c));
        for arithmetic in Arithmetic::ALL {
            prop_assert_eq!(mma_step(arithmetic, c, &a, &b).to_bits(), mma_step(arithmetic, c, &b, &a).to_bits());
        }
    }

    #[test]
    fn zero_products_return_the_accumulator(a in sixteen(finite_bf16()), signs: u16, c in finite_f32()) {
        let zeros: [bf16; 16] = std::array::from_fn(|i| bf16::from_bits((signs >> i & 1) << 15));
        for arithmetic in TENSOR_CORES {
            // -0 becomes +0; everything else, subnormals included, comes back as it is.
            let expected = if c == 0.0 { 0.0 } else { c };
            prop_assert_eq!(mma_step(arithmetic, c, &a, &zeros).to_bits(), expected.to_bits());
        }
        let expected = if c == 0.0 { 0.0 } else { c };
        prop_assert_eq!(mma_step(Arithmetic::Ieee, c, &[bf16::ZERO; 16], &[bf16::ZERO; 16]).to_bits(), expected.to_bits());
    }

    #[test]
    fn the_accumulator_is_never_minus_zero(a in sixteen(any::<u16>()), b in sixteen(any::<u16>()), c: u32) {
        for arithmetic in TENSOR_CORES {
            let d = mma_step(arithmetic, f32::from_bits(c), &a.map(bf16::from_bits), &b.map(bf16::from_bits));
            prop_assert_ne!(d.to_bits(), 0x8000_0000);
        }
    }

    #[test]
    fn a_negative_sum_below_the_subnormals_is_plus_zero(a in 1u16..0x40, e in 60u16..0x6f, c in prop_oneof![Just(0u32), Just(0x8000_0000)]) {
        let (mut x, mut y) = ([bf16::ZERO; 16], [bf16::ZERO; 16]);
        (x[5], y[5]) = (bf16::from_bits(a), bf16::from_bits(0x8000 | e << 7));
        for arithmetic in TENSOR_CORES {
            let d = mma_step(arithmetic, f32::from_bits(c), &x, &y);
            prop_assert!(d.to_bits() != 0x8000_0000 && d <= 0.0, "{d:e}");
        }
    }

    #[test]
    fn padding_a_chain_with_zeros_is_neutral(a in prop::collection::vec(finite_bf16(), 1..60), extra in 0usize..40) {
        let b: Vec<bf16> = a.iter().rev().copied().collect();
        let pad = |x: &[bf16]| [x, &vec![bf16::ZERO; extra]].concat();
        for arithmetic in TENSOR_CORES {
            let expected = chain(arithmetic, 0.0, &a, &b);
            prop_assert_eq!(chain(arithmetic, 0.0, &pad(&a), &pad(&b)).to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn an_sm80_step_is_two_half_steps(a in sixteen(finite_bf16()), b in sixteen(finite_bf16()), c in finite_f32()) {
        let half = |x: &[bf16]| -> [bf16; 16] { padded(x) };
        let first = mma_step(Arithmetic::Sm80, c, &half(&a[..8]), &half(&b[..8]));
        let second = mma_step(Arithmetic::Sm80, first, &half(&a[8..]), &half(&b[8..]));
        prop_assert_eq!(second.to_bits(), mma_step(Arithmetic::Sm80, c, &a, &b).to_bits());
    }

    #[test]
    fn nan_is_canonical_and_infinities_follow_ieee(a in sixteen(any::<u16>()), b in sixteen(any::<u16>()), c: u32) {
        let (a, b, c) = (a.map(bf16::from_bits), b.map(bf16::from_bits), f32::from_bits(c));
        for arithmetic in Arithmetic::ALL {
            let d = mma_step(arithmetic, c, &a, &b);
            prop_assert!(!d.is_nan() || d.to_bits() == NAN);
        }
        // Sm80 has two fused steps, and finite products may overflow in the first: it is judged half by half.
        let half = |x: &[bf16]| -> [bf16; 16] { padded(x) };
        let first = mma_step(Arithmetic::Sm80, c, &half(&a[..8]), &half(&b[..8]));
        for (arithmetic, c, a, b) in [
            (Arithmetic::Sm90, c, a, b),
            (Arithmetic::Sm80, c, half(&a[..8]), half(&b[..8])),
            (Arithmetic::Sm80, first, half(&a[8..]), half(&b[8..])),
        ] {
            // Specials alone, in f64: a finite product counts as a zero, so only they decide.
            let mask = |x: f64, other: f64| if x.is_finite() && other.is_finite() { 0.0 } else { x * other };
            let special = a.iter().zip(&b).map(|(a, b)| mask(a.to_f64(), b.to_f64())).sum::<f64>()
                + if c.is_finite() { 0.0 } else { f64::from(c) };
            if special != 0.0 {
                let expected = if special.is_nan() { f32::from_bits(NAN) } else { special as f32 };
                prop_assert_eq!(mma_step(arithmetic, c, &a, &b).to_bits(), expected.to_bits());
            }
        }
    }
}

/// The live negative control of the permutation rule: across steps the order matters, and in `ieee` it matters
/// everywhere.
#[test]
fn k_may_not_be_permuted_across_steps() {
    let mut random = Random::new(9);
    let mut different = [0; 4];
    for _ in 0..300 {
        let a: Vec<bf16> = (0..32).map(|_| random.spread(6)).collect();
        let b: Vec<bf16> = (0..32).map(|_| random.spread(6)).collect();
        let swap = |x: &[bf16], i: usize, j: usize| {
            let mut x = x.to_vec();
            x.swap(i, j);
            x
        };
        let changes = |arithmetic, i, j| {
            chain(arithmetic, 0.0, &a, &b).to_bits()
                != chain(arithmetic, 0.0, &swap(&a, i, j), &swap(&b, i, j)).to_bits()
        };
        different[0] += usize::from(changes(Arithmetic::Sm90, 3, 21));
        different[1] += usize::from(changes(Arithmetic::Sm80, 3, 12));
        different[2] += usize::from(changes(Arithmetic::Ieee, 3, 12));
        different[3] += usize::from(changes(Arithmetic::Sm90, 3, 12));
    }
    assert!(different[..3].iter().all(|&n| n > 10), "{different:?}");
    assert_eq!(different[3], 0);
}

fn ones(values: &[(usize, f32)]) -> [bf16; 16] {
    let mut x = [bf16::ZERO; 16];
    for &(i, v) in values {
        x[i] = bf16::from_f32(v);
    }
    x
}

/// A product beyond the range of binary32 does not overflow inside a step.
#[test]
fn a_huge_product_may_cancel() {
    let huge = 2f32.powi(120);
    let a = ones(&[(0, huge), (1, huge), (2, 1.0)]);
    let b = ones(&[(0, huge), (1, -huge), (2, huge)]);
    assert_eq!(mma_step(Arithmetic::Sm90, 0.0, &a, &b), 0.0, "the small product lies below the cut");
    let b = ones(&[(0, huge), (1, -huge), (2, 0.0)]);
    assert_eq!(mma_step(Arithmetic::Sm90, 1.0, &a, &b), 0.0, "and so does the accumulator");
    assert_eq!(mma_step(Arithmetic::Sm90, 0.0, &a, &ones(&[(0, huge)])), f32::INFINITY);
    assert_eq!(mma_step(Arithmetic::Sm90, 0.0, &a, &ones(&[(0, -huge)])), f32::NEG_INFINITY);
    // In `ieee` the first sum overflows, and stays: the second product is finite inside its FMA.
    let b = ones(&[(0, huge), (1, -huge)]);
    assert_eq!(mma_step(Arithmetic::Ieee, 0.0, &a, &b), f32::INFINITY);
    // The largest value is reached without becoming infinite: rounding is toward zero.
    let max = f32::MAX;
    assert_eq!(mma_step(Arithmetic::Sm90, max, &ones(&[(0, 1.0)]), &ones(&[(0, 1.0)])), max);
}

#[test]
fn subnormals_are_kept() {
    let tiny = bf16::from_bits(1);
    // 2^-133 times 2^-16 is the smallest binary32.
    let (mut a, mut b) = ([bf16::ZERO; 16], [bf16::ZERO; 16]);
    (a[0], b[0]) = (tiny, bf16::from_f32(2f32.powi(-16)));
    for arithmetic in Arithmetic::ALL {
        assert_eq!(mma_step(arithmetic, 0.0, &a, &b).to_bits(), 1, "{arithmetic:?}");
        assert_eq!(mma_step(arithmetic, f32::from_bits(2), &a, &b).to_bits(), 3, "{arithmetic:?}");
    }
    // Below it, tensor cores cut to +0 where IEEE keeps the sign.
    b[0] = bf16::from_f32(-2f32.powi(-18));
    for arithmetic in TENSOR_CORES {
        assert_eq!(mma_step(arithmetic, 0.0, &a, &b).to_bits(), 0);
    }
    // The next product, +0, would clear it; in the last place it stays.
    assert_eq!(mma_step(Arithmetic::Ieee, 0.0, &a, &b).to_bits(), 0);
    (a[15], b[15]) = (a[0], b[0]);
    assert_eq!(mma_step(Arithmetic::Ieee, 0.0, &a, &b).to_bits(), 0x8000_0000);
}

#[test]
fn fp8_specials() {
    let step = |format, a0: u8, b0: u8, c: f32| {
        let (mut a, mut b) = ([0u8; FP8_STEP], [0u8; FP8_STEP]);
        (a[0], b[0]) = (a0, b0);
        wgmma_step_fp8(format, format, c, &a, &b).to_bits()
    };
    assert_eq!(step(Fp8::E4m3, 0x7f, 0, 1.0), NAN, "e4m3 has one NaN");
    assert_eq!(step(Fp8::E4m3, 0x7e, 0x38, 0.0), 448f32.to_bits(), "and no infinity: 0x7e is 448");
    assert_eq!(step(Fp8::E5m2, 0x7c, 0x3c, 0.0), f32::INFINITY.to_bits());
    assert_eq!(step(Fp8::E5m2, 0x7c, 0, 0.0), NAN, "infinity times zero");
    assert_eq!(step(Fp8::E5m2, 0x7d, 0x3c, 0.0), NAN);
    assert_eq!(step(Fp8::E5m2, 0x3c, 0x3c, f32::NEG_INFINITY), f32::NEG_INFINITY.to_bits());
    assert_eq!(step(Fp8::E4m3, 0x01, 0x01, 0.0), 2f32.powi(-18).to_bits(), "the smallest subnormals");
}

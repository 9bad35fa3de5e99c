//! How far the scalar functions are from the real functions they stand for, and what they do at the edges.
//!
//! Bounds are documented error bounds, checked against a binary64 library on dense grids: this is the one place where a
//! tolerance belongs. Everything else about these functions is compared by bits.

use half::bf16;
use proptest::prelude::*;
use reduction_tree::noise::{gumbel, gumbel_noise, philox4x32_10};
use reduction_tree::scalar::*;

/// Every `stride`-th binary32 in [low, high], by bit pattern, both signs handled by the caller.
fn grid(low: f32, high: f32, stride: u32) -> impl Iterator<Item = f32> {
    (low.to_bits()..=high.to_bits()).step_by(stride as usize).map(f32::from_bits)
}

fn worst(values: impl Iterator<Item = f32>, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
    values.fold((0.0, 0.0), |(worst, at), x| {
        let exact = exact(f64::from(x));
        let error = ((f64::from(f(x)) - exact) / exact).abs();
        if error > worst { (error, x) } else { (worst, at) }
    })
}

#[test]
fn exp2_stays_within_its_bound() {
    // One full binade resolves the reduced argument to 2^-23; the others are sampled.
    let dense = grid(1.0, 2.0, 1).chain(grid(1.0, 2.0, 1).map(|x| -x));
    let (error, at) = worst(dense, exp2, libm::exp2);
    assert!(error <= 1.5e-7, "relative error {error:e} at {at:e}");
    let sampled = grid(1e-9, 127.99, 251).chain(grid(1e-9, 126.0, 251).map(|x| -x));
    let (error, at) = worst(sampled, exp2, libm::exp2);
    assert!(error <= 1.5e-7, "relative error {error:e} at {at:e}");
}

#[test]
fn exp2_at_the_edges() {
    for n in -126..=127 {
        assert_eq!(exp2(n as f32), f32::from_bits(((n + 127) as u32) << 23), "2^{n}");
    }
    for x in [-127.0, -128.0, f32::MIN, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
        assert_eq!(exp2(x).to_bits(), 0, "2^{x}");
    }
    for x in [128.0, 1e30, f32::INFINITY] {
        assert_eq!(exp2(x), f32::INFINITY, "2^{x}");
    }
    assert!(exp2(127.999_99).is_finite());
    // The fall from -126 to -127 is linear, monotone and never negative.
    let fall: Vec<f32> = grid(126.0, 127.0, 64).map(|x| exp2(-x)).collect();
    assert!(fall.windows(2).all(|w| w[0] >= w[1]) && fall.iter().all(|y| y.is_sign_positive()));
    assert_eq!(exp2(-126.5), f32::from_bits(exp2(0.5).to_bits() - 0x3f80_0000));
}

#[test]
fn log2_stays_within_its_bound() {
    let (error, at) = worst(grid(0.5, 2.0, 1).filter(|&x| x != 1.0), log2, libm::log2);
    assert!(error <= 2e-7, "relative error {error:e} at {at:e}");
    let (error, at) = worst(grid(1e-45, f32::MAX, 509).filter(|&x| x != 1.0), log2, libm::log2);
    assert!(error <= 2e-7, "relative error {error:e} at {at:e}");
    let (error, at) = worst(grid(1e-45, f32::MAX, 509).filter(|&x| x != 1.0), ln, libm::log);
    assert!(error <= 2.6e-7, "relative error {error:e} at {at:e}");
}

#[test]
fn log2_at_the_edges() {
    for n in -149..=127 {
        assert_eq!(log2(libm::exp2(f64::from(n)) as f32), n as f32, "log2(2^{n})");
    }
    assert_eq!(log2(0.0), f32::NEG_INFINITY);
    assert_eq!(log2(-0.0), f32::NEG_INFINITY);
    assert_eq!(log2(f32::INFINITY), f32::INFINITY);
    for x in [-1.0, -1e-45, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
        assert_eq!(log2(x).to_bits(), CANONICAL_NAN.to_bits(), "log2({x})");
    }
}

#[test]
fn exponential_stays_within_its_bound() {
    let (error, at) = worst(grid(2.3e-10, 0.999_999_94, 61), exponential, |v| -libm::log1p(-v));
    assert!(error <= 3.2e-7, "relative error {error:e} at {at:e}");
}

#[test]
fn silu_and_its_parts() {
    let exact = |x: f64| x / (1.0 + libm::exp(-x));
    let values = grid(1e-6, 80.0, 257).chain(grid(1e-6, 80.0, 257).map(|x| -x));
    // The error of x * log2(e) grows with |x|.
    let error = values.map(|x| {
        let exact = exact(f64::from(x));
        ((f64::from(silu(x)) - exact) / exact).abs() / f64::from(x.abs().max(4.0))
    });
    assert!(error.fold(0.0, f64::max) <= 1.2e-7);
    assert_eq!(silu(f32::INFINITY), f32::INFINITY);
    assert_eq!(silu(f32::NEG_INFINITY).to_bits(), CANONICAL_NAN.to_bits());
    assert_eq!(silu(-f32::NAN).to_bits(), CANONICAL_NAN.to_bits());
    assert_eq!(silu(-0.0).to_bits(), (-0.0f32).to_bits());
    assert_eq!(sigmoid(0.0), 0.5);
    assert_eq!(rsqrt(4.0), 0.5);
    assert_eq!(rsqrt(-1.0).to_bits(), CANONICAL_NAN.to_bits());
}

/// The three known answers of the Random123 distribution (`kat_vectors`, philox4x32 10).
#[test]
fn philox_known_answers() {
    let ones = u32::MAX;
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([ones; 4], [ones; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, expected) in cases {
        assert_eq!(philox4x32_10(counter, key), expected);
    }
}

#[test]
fn gumbel_is_finite_and_has_the_right_moments() {
    for u in [0, 1, 2, u32::MAX, u32::MAX - 1, 0x8000_0000, 0x7fff_ffff] {
        let g = gumbel(u);
        assert!((-2.83..=22.19).contains(&g), "gumbel({u:#x}) = {g}");
    }
    let n = 200_000;
    let (sum, squares) =
        (0..n).map(|id| f64::from(gumbel_noise(7, 3, id))).fold((0.0, 0.0), |(s, q), g| (s + g, q + g * g));
    let mean = sum / f64::from(n);
    let variance = squares / f64::from(n) - mean * mean;
    assert!((mean - 0.577_215_66).abs() < 0.01, "mean {mean}");
    assert!((variance - std::f64::consts::PI.powi(2) / 6.0).abs() < 0.03, "variance {variance}");
    assert_ne!(gumbel_noise(7, 3, 5), gumbel_noise(7, 4, 5));
    assert_ne!(gumbel_noise(7, 3, 5), gumbel_noise(7 << 32, 3, 5));
}

proptest! {
    #[test]
    fn bf16_rounding_is_nearest_even(bits: u32) {
        let x = f32::from_bits(bits);
        let expected = if x.is_nan() { CANONICAL_NAN_BF16 } else { bf16::from_f32(x) };
        prop_assert_eq!(to_bf16(x).to_bits(), expected.to_bits());
    }

    #[test]
    fn stored_nans_are_canonical(bits: u32) {
        let x = f32::from_bits(bits);
        for y in [canonical(x), log2(x), ln(x), silu(x), rsqrt(x)] {
            prop_assert!(!y.is_nan() || y.to_bits() == 0x7fff_ffff);
        }
    }
}

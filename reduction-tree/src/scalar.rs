//! Scalar functions from IEEE-754 binary32 `add mul fma div sqrt` (round to nearest even) and integer operations alone.
//!
//! Each function's documentation is its definition, operation by operation: CUDA and SIMD versions follow it line by
//! line and get the same bits. All are branch-free (selects only). Nothing comes from a platform's math library; where
//! a target has no FMA instruction, `mul_add` is a correctly rounded call.
//!
//! NaN: a stored NaN is canonical, 0x7fffffff in binary32 and 0x7fff in bfloat16. Inside an expression a NaN has no
//! payload that anything may look at.

use half::bf16;

/// The NaN that results hold: 0x7fffffff.
pub const CANONICAL_NAN: f32 = f32::from_bits(0x7fff_ffff);
/// The NaN that bfloat16 results hold: 0x7fff.
pub const CANONICAL_NAN_BF16: bf16 = bf16::from_bits(0x7fff);
/// log2(e), rounded to nearest: 0x3fb8aa3b.
pub const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln(2), rounded to nearest: 0x3f317218.
pub const LN_2: f32 = f32::from_bits(0x3f31_7218);

/// Polynomial of [`exp2`], lowest power first: a minimax fit of 2^f on [-1/2, 1/2] that is exactly 1 at
/// 0, its last bits chosen for the smallest error after rounding.
pub const EXP2_POLYNOMIAL: [f32; 6] = [
    1.0,
    f32::from_bits(0x3f31_7215),
    f32::from_bits(0x3e75_fcdc),
    f32::from_bits(0x3d63_5b85),
    f32::from_bits(0x3c1e_757c),
    f32::from_bits(0x3aad_dc62),
];

/// Polynomial of [`log2`], lowest power first: a minimax fit of log2(1 + f) / f on [sqrt(1/2) - 1, sqrt(2) - 1].
pub const LOG2_POLYNOMIAL: [f32; 9] = [
    f32::from_bits(0x3fb8_aa3b),
    f32::from_bits(0xbf38_aa38),
    f32::from_bits(0x3ef6_39eb),
    f32::from_bits(0xbeb8_ae27),
    f32::from_bits(0x3e93_69c2),
    f32::from_bits(0xbe74_adf3),
    f32::from_bits(0x3e5c_e48d),
    f32::from_bits(0xbe54_3e84),
    f32::from_bits(0x3e00_db69),
];

/// `x`, with every NaN replaced by 0x7fffffff.
#[inline]
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { CANONICAL_NAN } else { x }
}

/// `x` rounded to nearest even to bfloat16; every NaN becomes 0x7fff, and what rounds beyond the largest finite value
/// becomes an infinity.
///
/// In integers: `(bits + 0x7fff + ((bits >> 16) & 1)) >> 16`, unless x is NaN.
#[inline]
pub fn to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if x.is_nan() { CANONICAL_NAN_BF16 } else { bf16::from_bits(rounded as u16) }
}

/// 2^x.
///
/// 1. `x = x > -127 ? x : -127`, so that NaN becomes -127; then `x = x < 128 ? x : 128`.
/// 2. `t = x + 12582912` (0x4b400000, 1.5 * 2^23); `n = t - 12582912`, the integer nearest to x, ties to even;
///    `f = x - n`, exact.
/// 3. `p = fma(f, fma(f, fma(f, fma(f, fma(f, C5, C4), C3), C2), C1), 1)` with C = [`EXP2_POLYNOMIAL`].
/// 4. The bits of the result are `bits(p) + (bits(t) << 23)` in wrapping 32-bit arithmetic: n is added to p's exponent
///    (the upper bits of t are shifted out).
///
/// Relative error at most 1.5e-7 for x in [-126, 128). From -126 down to -127 the result falls linearly to +0 instead
/// of following the subnormals. 2^x is +0 at or below -127 **and at NaN**, exact at integers, and +infinity from 128
/// on. That NaN gives +0 costs nothing on any machine, and no caller here depends on a NaN surviving: attention ends in
/// 0 * (1/0), SiLU multiplies by its argument.
#[inline]
pub fn exp2(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    let x = if x > -127.0 { x } else { -127.0 };
    let x = if x < 128.0 { x } else { 128.0 };
    let t = x + MAGIC;
    let f = x - (t - MAGIC);
    let [c0, c1, c2, c3, c4, c5] = EXP2_POLYNOMIAL;
    let p = f.mul_add(f.mul_add(f.mul_add(f.mul_add(f.mul_add(c5, c4), c3), c2), c1), c0);
    f32::from_bits(p.to_bits().wrapping_add(t.to_bits() << 23))
}

/// `log2(m) + e` for m = 1 + f in [sqrt(1/2), sqrt(2)): `fma(f, P(f), e)`, P by Horner's rule in FMA from the highest
/// power of [`LOG2_POLYNOMIAL`].
#[inline]
fn log2_reduced(f: f32, e: f32) -> f32 {
    let [head @ .., last] = LOG2_POLYNOMIAL;
    let p = head.iter().rev().fold(last, |p, &c| f.mul_add(p, c));
    f.mul_add(p, e)
}

/// Exponent and `m - 1` of a positive normal x: `i = bits(x) - 0x3f3504f3`, `e = i >> 23` (arithmetic),
/// `m = from_bits((i & 0x7fffff) + 0x3f3504f3)`.
#[inline]
fn split_log2(x: f32) -> (i32, f32) {
    const SQRT_HALF: i32 = 0x3f35_04f3;
    let i = (x.to_bits() as i32).wrapping_sub(SQRT_HALF);
    let m = f32::from_bits(((i & 0x7f_ffff) + SQRT_HALF) as u32);
    (i >> 23, m - 1.0)
}

/// log2(x).
///
/// 1. A subnormal x (below 0x00800000) is multiplied by 2^23 and 23 is taken from the exponent at the end.
/// 2. `i = bits(x) - 0x3f3504f3`; `e = i >> 23` (arithmetic); `f = from_bits((i & 0x7fffff) + 0x3f3504f3) - 1`, so that
///    1 + f lies in [sqrt(1/2), sqrt(2)).
/// 3. `p = P(f)`, Horner in FMA from the highest power of [`LOG2_POLYNOMIAL`]; the result is `fma(f, p, e)` with e
///    converted to binary32.
/// 4. Selects: x < 0 or NaN gives the canonical NaN, ±0 gives -infinity, +infinity gives +infinity.
///
/// Relative error at most 2e-7; exact at powers of two.
#[inline]
pub fn log2(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let (e, f) = split_log2(if tiny { x * 8_388_608.0 } else { x });
    let y = log2_reduced(f, (e - if tiny { 23 } else { 0 }) as f32);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { CANONICAL_NAN }
}

/// ln(x) = `log2(x) * LN_2`.
#[inline]
pub fn ln(x: f32) -> f32 {
    canonical(log2(x) * LN_2)
}

/// `-ln(1 - v)` for v in (0, 1): an exponential variate from a uniform one, accurate for small v.
///
/// `t = 1 - v`; e and f of t as in [`log2`]; where e is 0, `f = -v` (t may have been rounded); then
/// `fma(f, P(f), e) * -LN_2`. Relative error at most 3.2e-7.
#[inline]
pub fn exponential(v: f32) -> f32 {
    let (e, f) = split_log2(1.0 - v);
    let f = if e == 0 { -v } else { f };
    log2_reduced(f, e as f32) * -LN_2
}

/// 1 / (1 + 2^(-x log2(e))): `t = x * -LOG2_E`; `d = 1 + exp2(t)`; `1 / d`. A NaN gives 1 (see [`exp2`]).
#[inline]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp2(x * -LOG2_E))
}

/// x times its sigmoid: `x * sigmoid(x)`, one multiplication after [`sigmoid`]. -infinity and NaN give NaN.
#[inline]
pub fn silu(x: f32) -> f32 {
    canonical(x * sigmoid(x))
}

/// 1 / sqrt(x), two IEEE operations.
#[inline]
pub fn rsqrt(x: f32) -> f32 {
    canonical(1.0 / x.sqrt())
}

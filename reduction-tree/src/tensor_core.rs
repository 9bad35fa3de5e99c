//! The soft tensor core: one fused sum of exact products and an accumulator, as measured on an H200 (DESIGN 4.2).
//!
//! 1. Product significands are exact and not renormalised; the exponent of a product is the sum of its factors'
//!    exponents (a subnormal factor has hidden bit 0 and the minimal exponent).
//! 2. The common exponent is the largest among nonzero products, a nonzero accumulator and a floor.
//! 3. The magnitude of every term is truncated to units of 2^(common - fraction_bits); the sum of the terms is an exact
//!    integer.
//! 4. The sum is normalised once, rounded toward zero to binary32. Subnormals are kept, overflow is infinity and zero
//!    is always +0.
//!
//! Not here: which inputs have which parameters. That is [`arithmetic`](crate::arithmetic) for 16-bit inputs and
//! [`fp8`](crate::fp8) for 8-bit ones.

use crate::scalar::CANONICAL_NAN;

/// The parameters of one fused step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bits kept below the common exponent (F).
    pub fraction_bits: i32,
    /// The common exponent is at least this (e_zero).
    pub floor_exponent: i32,
    /// Fraction bits of a product's significand: at most `fraction_bits`.
    pub product_fraction_bits: i32,
}

/// A finite factor or product: `significand * 2^exponent` in units of its fraction bits, with a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The sign is minus.
    pub negative: bool,
    /// Magnitude, hidden bit included.
    pub significand: u32,
    /// Unbiased exponent; meaningless when the significand is 0.
    pub exponent: i32,
}

impl Term {
    /// +0.
    pub const ZERO: Self = Self { negative: false, significand: 0, exponent: 0 };

    /// Splits a binary format with `exponent_bits` and `fraction_bits`. Infinities and NaNs decode as large numbers and
    /// must be sorted out by the caller.
    #[inline]
    pub fn decode(bits: u32, exponent_bits: u32, fraction_bits: u32) -> Self {
        let field = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        let fraction = bits & ((1 << fraction_bits) - 1);
        let hidden = u32::from(field != 0) << fraction_bits;
        let bias = (1 << (exponent_bits - 1)) - 1;
        Self {
            negative: bits >> (exponent_bits + fraction_bits) & 1 == 1,
            significand: fraction | hidden,
            exponent: field.max(1) as i32 - bias,
        }
    }

    /// The exact product, not renormalised.
    #[inline]
    pub fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
        }
    }
}

/// What is not a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A finite number.
    None,
    /// An infinity; `true` is minus.
    Infinity(bool),
    /// Not a number.
    Nan,
}

impl Special {
    /// The special value of a format whose largest exponent field means infinity or NaN.
    #[inline]
    pub fn decode(bits: u32, exponent_bits: u32, fraction_bits: u32) -> Self {
        let mask = (1 << exponent_bits) - 1;
        if (bits >> fraction_bits) & mask != mask {
            Self::None
        } else if bits & ((1 << fraction_bits) - 1) != 0 {
            Self::Nan
        } else {
            Self::Infinity(bits >> (exponent_bits + fraction_bits) & 1 == 1)
        }
    }

    /// The special value of a binary32.
    #[inline]
    pub fn of_f32(x: f32) -> Self {
        Self::decode(x.to_bits(), 8, 23)
    }

    /// The product of two factors of which at least one is special: infinity times zero is NaN.
    pub fn times(self, term: Term, other: Self, other_term: Term) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::None, Self::None) => Self::None,
            (Self::None, _) if term.significand == 0 => Self::Nan,
            (_, Self::None) if other_term.significand == 0 => Self::Nan,
            _ => Self::Infinity(term.negative != other_term.negative),
        }
    }

    /// The sum: infinities of two signs are NaN.
    pub fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, x) | (x, Self::None) => x,
            (Self::Infinity(a), Self::Infinity(b)) if a == b => self,
            _ => Self::Nan,
        }
    }

    /// The binary32 value of a special result; +0 for `None`.
    pub fn value(self) -> f32 {
        match self {
            Self::None => 0.0,
            Self::Infinity(false) => f32::INFINITY,
            Self::Infinity(true) => f32::NEG_INFINITY,
            Self::Nan => CANONICAL_NAN,
        }
    }
}

/// The fused sum of finite terms (points 2 to 4 above).
#[inline]
pub fn fused_sum(step: &Step, acc: f32, products: &[Term]) -> f32 {
    let acc = Term::decode(acc.to_bits(), 8, 23);
    let largest = |common: i32, term: &Term| if term.significand == 0 { common } else { common.max(term.exponent) };
    let common = products.iter().fold(largest(step.floor_exponent, &acc), largest);

    let product_shift = step.fraction_bits - step.product_fraction_bits;
    let mut sum = aligned(&acc, step.fraction_bits - 23, common);
    for product in products {
        sum += aligned(product, product_shift, common);
    }
    round_toward_zero(sum, common - step.fraction_bits)
}

/// The term in units of 2^(common - fraction_bits), its magnitude truncated. `shift` is the fraction bits of those
/// units less the fraction bits of the significand; it may be negative.
#[inline]
fn aligned(term: &Term, shift: i32, common: i32) -> i64 {
    // A zero term may carry an exponent above the common one; its magnitude stays 0 whatever the shift is.
    let down = (common - term.exponent).clamp(0, 40) + (-shift).max(0);
    let magnitude = (u64::from(term.significand) << shift.max(0) >> down) as i64;
    if term.negative { -magnitude } else { magnitude }
}

/// `sum * 2^unit_exponent`, truncated to binary32.
#[inline]
pub fn round_toward_zero(sum: i64, unit_exponent: i32) -> f32 {
    if sum == 0 {
        return 0.0;
    }
    let sign = if sum < 0 { 0x8000_0000 } else { 0 };
    let magnitude = sum.unsigned_abs();
    let top = 63 - magnitude.leading_zeros() as i32;
    let exponent = top + unit_exponent;
    if exponent > 127 {
        return f32::from_bits(sign | 0x7f80_0000);
    }
    // Units of the result's last place: 23 below its exponent, but not below the subnormal unit.
    let drop = (exponent - 23).max(-149) - unit_exponent;
    let kept = (if drop >= 0 { magnitude.checked_shr(drop as u32).unwrap_or(0) } else { magnitude << -drop }) as u32;
    if kept == 0 {
        // Measured: a negative sum that is cut to zero is +0 too.
        return 0.0;
    }
    // For a normal result the hidden bit in `kept` adds one to the exponent field.
    let field = (exponent + 126).max(0) as u32;
    f32::from_bits(sign | ((field << 23) + kept))
}

//! Eight-bit floats and their `wgmma` step on H100 and H200: 32 products, 13 fraction bits.
//!
//! Measured (`tests/vectors`): e4m3, e5m2 and the mix of both, with any accumulator and with special values. There is
//! no e_zero: a nonzero product is at least 2^-32, so a floor cannot matter.
//!
//! `mma.sync` has no 8-bit step of its own on these machines: it converts to float16 and is another tree.

use crate::tensor_core::{Special, Step, Term, fused_sum};

/// Products of one step.
pub const FP8_STEP: usize = 32;

/// An eight-bit format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8 {
    /// 4 exponent bits, 3 fraction bits, no infinity; 0x7f and 0xff are NaN.
    E4m3,
    /// 5 exponent bits, 2 fraction bits, with infinities.
    E5m2,
}

impl Fp8 {
    fn fraction_bits(self) -> u32 {
        match self {
            Self::E4m3 => 3,
            Self::E5m2 => 2,
        }
    }

    fn term(self, bits: u8) -> Term {
        Term::decode(u32::from(bits), 7 - self.fraction_bits(), self.fraction_bits())
    }

    fn special(self, bits: u8) -> Special {
        match self {
            Self::E4m3 if bits & 0x7f == 0x7f => Special::Nan,
            Self::E4m3 => Special::None,
            Self::E5m2 => Special::decode(u32::from(bits), 5, 2),
        }
    }

    /// The exact binary32 value; a NaN is canonical.
    pub fn widen(self, bits: u8) -> f32 {
        let special = self.special(bits);
        if special != Special::None {
            return special.value();
        }
        let term = self.term(bits);
        let magnitude = term.significand as f32 * exp2i(term.exponent - self.fraction_bits() as i32);
        if term.negative { -magnitude } else { magnitude }
    }
}

/// 2^e for a normal exponent.
fn exp2i(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

/// `acc` plus 32 products in one `wgmma` step: every term is truncated to 13 fraction bits below the largest exponent
/// and the sum is rounded toward zero to 13 fraction bits.
///
/// Triton with `maxNumImpreciseAcc = 32` starts each step at +0 and adds its result to the accumulator in binary32,
/// round to nearest even: `acc + wgmma_step_fp8(.., 0.0, ..)`.
pub fn wgmma_step_fp8(a_type: Fp8, b_type: Fp8, acc: f32, a: &[u8; FP8_STEP], b: &[u8; FP8_STEP]) -> f32 {
    let mut products = [Term::ZERO; FP8_STEP];
    let mut special = Special::of_f32(acc);
    for ((product, &a), &b) in products.iter_mut().zip(a).zip(b) {
        let (ta, tb) = (a_type.term(a), b_type.term(b));
        *product = ta.times(tb);
        special = special.plus(a_type.special(a).times(ta, b_type.special(b), tb));
    }
    if special != Special::None {
        return special.value();
    }
    let product_fraction_bits = (a_type.fraction_bits() + b_type.fraction_bits()) as i32;
    let step = Step { fraction_bits: 13, floor_exponent: -133, product_fraction_bits };
    let sum = fused_sum(&step, acc, &products);
    // 13 of 23 fraction bits are kept. A sum that binary32 holds as a subnormal is a lone accumulator, already
    // truncated to this unit.
    f32::from_bits(sum.to_bits() & !0x3ff)
}

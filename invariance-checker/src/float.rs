//! Exact conversion between the floating-point formats and binary64, which holds every value of the others.

use crate::ir::Float;

/// What a format does with its top codes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    /// All-ones exponent: infinity and NaNs.
    Ieee,
    /// All ones is NaN, no infinity.
    Fn,
    /// Negative zero is NaN, no infinity.
    Fnuz,
    /// Every code is a number.
    Finite,
}

/// (exponent bits, fraction bits, bias, top codes).
fn layout(float: Float) -> (u32, u32, i32, Top) {
    match float {
        Float::F64 => (11, 52, 1023, Top::Ieee),
        Float::F32 => (8, 23, 127, Top::Ieee),
        Float::TF32 => (8, 10, 127, Top::Ieee),
        Float::Bf16 => (8, 7, 127, Top::Ieee),
        Float::F16 => (5, 10, 15, Top::Ieee),
        Float::F8E5M2 => (5, 2, 15, Top::Ieee),
        Float::F8E4M3FN => (4, 3, 7, Top::Fn),
        Float::F8E4M3FNUZ => (4, 3, 8, Top::Fnuz),
        Float::F8E5M2FNUZ => (5, 2, 16, Top::Fnuz),
        Float::F8E4M3B11FNUZ => (4, 3, 11, Top::Fnuz),
        Float::F4E2M1FN => (2, 1, 1, Top::Finite),
    }
}

/// The value of a bit pattern. Bits above the format's width are ignored.
pub fn decode(bits: u64, float: Float) -> f64 {
    match float {
        Float::F64 => return f64::from_bits(bits),
        Float::F32 => return f64::from(f32::from_bits(bits as u32)),
        _ => {}
    }
    let (exp_bits, frac_bits, bias, top) = layout(float);
    let frac = bits & ((1 << frac_bits) - 1);
    let exp_max = (1u64 << exp_bits) - 1;
    let exp = (bits >> frac_bits) & exp_max;
    let negative = (bits >> (exp_bits + frac_bits)) & 1 == 1;
    let magnitude = match top {
        Top::Ieee if exp == exp_max && frac == 0 => f64::INFINITY,
        Top::Ieee if exp == exp_max => f64::NAN,
        Top::Fn if exp == exp_max && frac == (1 << frac_bits) - 1 => f64::NAN,
        Top::Fnuz if negative && exp == 0 && frac == 0 => return f64::NAN,
        _ if exp == 0 => scale(frac, 1 - bias - frac_bits as i32),
        _ => scale(frac | 1 << frac_bits, exp as i32 - bias - frac_bits as i32),
    };
    if negative { -magnitude } else { magnitude }
}

/// `significand * 2^exponent` for values that binary64 holds exactly as normal numbers.
fn scale(significand: u64, exponent: i32) -> f64 {
    significand as f64 * f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// How [`encode`] rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// Toward zero.
    TowardZero,
}

/// The bit pattern nearest to a value. Overflow gives infinity, or where `saturate` is set or the format has no infinity the
/// largest finite number (as `cvt.satfinite` does); round toward zero never overflows to infinity. NaN gives the canonical NaN
/// of the format, 0 in a format that has none.
pub fn encode(value: f64, float: Float, round: Round, saturate: bool) -> u64 {
    match float {
        Float::F64 => return if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() },
        Float::F32 if round == Round::Nearest && !saturate => {
            return if value.is_nan() { 0x7fff_ffff } else { u64::from((value as f32).to_bits()) };
        }
        _ => {}
    }
    let (exp_bits, frac_bits, bias, top) = layout(float);
    let sign = 1u64 << (exp_bits + frac_bits);
    if value.is_nan() {
        return match top {
            Top::Ieee | Top::Fn => sign - 1,
            Top::Fnuz => sign,
            Top::Finite => 0,
        };
    }
    let infinity = ((1u64 << exp_bits) - 1) << frac_bits;
    let largest = match top {
        Top::Ieee => infinity - 1,
        Top::Fn => sign - 2,
        Top::Fnuz | Top::Finite => sign - 1,
    };
    let overflow = if top == Top::Ieee && !saturate { infinity } else { largest };
    let magnitude = if value.is_infinite() {
        overflow
    } else {
        match magnitude_bits(value.abs(), frac_bits, bias, round) {
            bits if bits <= largest => bits,
            _ if round == Round::TowardZero => largest,
            _ => overflow,
        }
    };
    if value.is_sign_negative() && !(top == Top::Fnuz && magnitude == 0) { sign | magnitude } else { magnitude }
}

/// Exponent and fraction fields of a finite non-negative value, as if the exponent field had no end.
fn magnitude_bits(value: f64, frac_bits: u32, bias: i32, round: Round) -> u64 {
    let bits = value.to_bits();
    let (exp, frac) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    // value = significand * 2^unit
    let (significand, unit) = if exp == 0 { (frac, -1074) } else { (frac | 1 << 52, exp - 1075) };
    if significand == 0 {
        return 0;
    }
    let leading = unit + 63 - significand.leading_zeros() as i32;
    let lowest = 1 - bias - frac_bits as i32;
    let quantum = (leading - frac_bits as i32).max(lowest);
    let shift = quantum - unit;
    let rounded = if shift <= 0 {
        significand << -shift
    } else if shift > 62 {
        0
    } else {
        let kept = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1u64 << (shift - 1);
        let up = round == Round::Nearest && (rest > half || (rest == half && kept & 1 == 1));
        kept + u64::from(up)
    };
    (((quantum - lowest) as u64) << frac_bits) + rounded
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: [Float; 9] = [
        Float::F16,
        Float::Bf16,
        Float::F8E4M3FN,
        Float::F8E5M2,
        Float::F8E4M3FNUZ,
        Float::F8E5M2FNUZ,
        Float::F8E4M3B11FNUZ,
        Float::F4E2M1FN,
        Float::TF32,
    ];

    #[test]
    fn every_code_survives_a_round_trip() {
        for float in SMALL {
            for bits in 0..1u64 << float.bits() {
                let value = decode(bits, float);
                if !value.is_nan() {
                    assert_eq!(encode(value, float, Round::Nearest, false), bits, "{float:?} {bits:#x}");
                    assert_eq!(
                        encode(value, float, Round::TowardZero, true),
                        match (float, value.is_infinite()) {
                            (_, false) => bits,
                            (_, true) => bits - 1,
                        }
                    );
                }
            }
        }
    }

    #[test]
    fn half_agrees_with_the_half_crate() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = f32::from_bits((state >> 32) as u32);
            if value.is_nan() {
                continue;
            }
            let wide = f64::from(value);
            assert_eq!(
                encode(wide, Float::F16, Round::Nearest, false),
                u64::from(half::f16::from_f32(value).to_bits())
            );
            assert_eq!(
                encode(wide, Float::Bf16, Round::Nearest, false),
                u64::from(half::bf16::from_f32(value).to_bits())
            );
            assert_eq!(encode(wide, Float::F32, Round::TowardZero, false), u64::from(value.to_bits()));
        }
    }

    #[test]
    fn e4m3_saturates_and_ties_to_even() {
        let e4m3 = |v| encode(v, Float::F8E4M3FN, Round::Nearest, true);
        assert_eq!(decode(e4m3(1e9), Float::F8E4M3FN), 448.0);
        assert_eq!(decode(e4m3(-f64::INFINITY), Float::F8E4M3FN), -448.0);
        assert_eq!(decode(e4m3(17.0), Float::F8E4M3FN), 16.0);
        assert_eq!(decode(e4m3(19.0), Float::F8E4M3FN), 20.0);
        assert_eq!(e4m3(f64::NAN), 0x7f);
        assert_eq!(decode(e4m3(0.0009), Float::F8E4M3FN), 0.0);
    }
}

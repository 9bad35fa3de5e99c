//! What one lane of an elementwise operation computes. Bit patterns in, bit patterns out.

use crate::float::{Round, decode, encode};
use crate::ir::{BinaryOp, CastOp, CmpF, CmpI, Elem, Float, Rounding, Scalar, UnaryOp};

/// The low `bits` bits.
pub(super) fn cut(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// The low `bits` bits as a signed number.
pub(super) fn signed(value: u64, bits: u32) -> i64 {
    crate::parse::sign_extend(value, bits)
}

/// A binary64 result rounded once to the format.
pub(super) fn round(value: f64, f: Float) -> u64 {
    encode(value, f, Round::Nearest, false)
}

pub(super) fn unary(op: UnaryOp, scalar: Scalar, x: u64) -> u64 {
    let bits = scalar.bits();
    let Scalar::Float(f) = scalar else {
        return match op {
            UnaryOp::AbsI => cut(signed(x, bits).unsigned_abs(), bits),
            UnaryOp::Ctlz => u64::from(x.leading_zeros() - (64 - bits)),
            UnaryOp::Cttz => u64::from(x.trailing_zeros().min(bits)),
            _ => u64::from(x.count_ones()),
        };
    };
    let sign = 1u64 << (bits - 1);
    let v = decode(x, f);
    let result = match op {
        UnaryOp::NegF => return x ^ sign,
        UnaryOp::AbsF => return x & !sign,
        // The square root of a binary32 number rounds the same way through binary64.
        UnaryOp::Sqrt | UnaryOp::PreciseSqrt => v.sqrt(),
        UnaryOp::Rsqrt => 1.0 / v.sqrt(),
        UnaryOp::Exp => libm::exp(v),
        UnaryOp::Exp2 => libm::exp2(v),
        UnaryOp::Log => libm::log(v),
        UnaryOp::Log2 => libm::log2(v),
        UnaryOp::Sin => libm::sin(v),
        UnaryOp::Cos => libm::cos(v),
        UnaryOp::Tan => libm::tan(v),
        UnaryOp::Tanh => libm::tanh(v),
        UnaryOp::Erf => libm::erf(v),
        UnaryOp::Floor => v.floor(),
        UnaryOp::Ceil => v.ceil(),
        UnaryOp::Trunc => v.trunc(),
        UnaryOp::Round => v.round(),
        UnaryOp::RoundEven => v.round_ties_even(),
        UnaryOp::AbsI | UnaryOp::Ctlz | UnaryOp::Cttz | UnaryOp::Ctpop => v,
    };
    round(result, f)
}

pub(super) fn binary(op: BinaryOp, scalar: Scalar, a: u64, b: u64) -> u64 {
    match scalar {
        Scalar::Float(f) => binary_float(op, f, a, b),
        _ => cut(binary_int(op, scalar.bits(), a, b), scalar.bits()),
    }
}

/// Division by zero gives all ones and shifts past the width give what is left, as the hardware does; neither traps, since
/// lanes that are masked off divide by zero all the time.
fn binary_int(op: BinaryOp, bits: u32, a: u64, b: u64) -> u64 {
    let (sa, sb) = (signed(a, bits), signed(b, bits));
    let divide = |quotient: i64| if sb == 0 { u64::MAX } else { quotient as u64 };
    match op {
        BinaryOp::AddI => a.wrapping_add(b),
        BinaryOp::SubI => a.wrapping_sub(b),
        BinaryOp::MulI => a.wrapping_mul(b),
        BinaryOp::DivSI => divide(sa.checked_div(sb).unwrap_or(i64::MIN)),
        BinaryOp::RemSI => divide(sa.checked_rem(sb).unwrap_or(0)),
        BinaryOp::FloorDivSI => {
            let (q, r) = (sa.checked_div(sb).unwrap_or(i64::MIN), sa.checked_rem(sb).unwrap_or(0));
            divide(if r != 0 && (r < 0) != (sb < 0) { q.wrapping_sub(1) } else { q })
        }
        BinaryOp::CeilDivSI => {
            let (q, r) = (sa.checked_div(sb).unwrap_or(i64::MIN), sa.checked_rem(sb).unwrap_or(0));
            divide(if r != 0 && (r < 0) == (sb < 0) { q.wrapping_add(1) } else { q })
        }
        BinaryOp::DivUI => a.checked_div(b).unwrap_or(u64::MAX),
        BinaryOp::RemUI => a.checked_rem(b).unwrap_or(u64::MAX),
        BinaryOp::CeilDivUI => a.checked_div(b).map_or(u64::MAX, |q| q + u64::from(!a.is_multiple_of(b))),
        BinaryOp::AndI => a & b,
        BinaryOp::OrI => a | b,
        BinaryOp::XorI => a ^ b,
        BinaryOp::ShlI => {
            if b >= u64::from(bits) {
                0
            } else {
                a << b
            }
        }
        BinaryOp::ShrUI => {
            if b >= u64::from(bits) {
                0
            } else {
                a >> b
            }
        }
        BinaryOp::ShrSI => (sa >> b.min(u64::from(bits) - 1)) as u64,
        BinaryOp::MinSI => sa.min(sb) as u64,
        BinaryOp::MaxSI => sa.max(sb) as u64,
        BinaryOp::MinUI => a.min(b),
        BinaryOp::MaxUI => a.max(b),
        BinaryOp::MulHiUI => ((u128::from(a) * u128::from(b)) >> bits) as u64,
        _ => 0,
    }
}

fn binary_float(op: BinaryOp, f: Float, a: u64, b: u64) -> u64 {
    // binary32 in its own arithmetic; through binary64 an addition could round twice.
    if f == Float::F32 {
        let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let exact = match op {
            BinaryOp::AddF => Some(x + y),
            BinaryOp::SubF => Some(x - y),
            BinaryOp::MulF => Some(x * y),
            BinaryOp::DivF | BinaryOp::PreciseDivF => Some(x / y),
            _ => None,
        };
        if let Some(value) = exact {
            return if value.is_nan() { 0x7fff_ffff } else { u64::from(value.to_bits()) };
        }
    }
    let (x, y) = (decode(a, f), decode(b, f));
    let smaller = x < y || (x == y && x.is_sign_negative());
    let nan = round(f64::NAN, f);
    match op {
        BinaryOp::MaximumF | BinaryOp::MinimumF if x.is_nan() || y.is_nan() => nan,
        BinaryOp::MaxNumF | BinaryOp::MinNumF if x.is_nan() && y.is_nan() => nan,
        BinaryOp::MaxNumF | BinaryOp::MinNumF if x.is_nan() => b,
        BinaryOp::MaxNumF | BinaryOp::MinNumF if y.is_nan() => a,
        BinaryOp::MaximumF | BinaryOp::MaxNumF => {
            if smaller {
                b
            } else {
                a
            }
        }
        BinaryOp::MinimumF | BinaryOp::MinNumF => {
            if smaller {
                a
            } else {
                b
            }
        }
        BinaryOp::CopySign => {
            let sign = 1u64 << (f.bits() - 1);
            a & !sign | b & sign
        }
        BinaryOp::AddF => round(x + y, f),
        BinaryOp::SubF => round(x - y, f),
        BinaryOp::MulF => round(x * y, f),
        BinaryOp::DivF | BinaryOp::PreciseDivF => round(x / y, f),
        BinaryOp::RemF => round(x % y, f),
        BinaryOp::PowF => round(libm::pow(x, y), f),
        BinaryOp::Atan2 => round(libm::atan2(x, y), f),
        _ => 0,
    }
}

/// One rounding.
pub(super) fn fma(scalar: Scalar, a: u64, b: u64, c: u64) -> u64 {
    match scalar {
        Scalar::Float(Float::F32) => {
            let [a, b, c] = [a, b, c].map(|v| f32::from_bits(v as u32));
            let value = a.mul_add(b, c);
            if value.is_nan() { 0x7fff_ffff } else { u64::from(value.to_bits()) }
        }
        Scalar::Float(f) => round(decode(a, f).mul_add(decode(b, f), decode(c, f)), f),
        _ => 0,
    }
}

/// `min(max(x, lo), hi)`; a NaN x gives NaN if it is to propagate, else `lo`.
pub(super) fn clamp(scalar: Scalar, propagate_nan: bool, x: u64, lo: u64, hi: u64) -> u64 {
    let (max, min) =
        if propagate_nan { (BinaryOp::MaximumF, BinaryOp::MinimumF) } else { (BinaryOp::MaxNumF, BinaryOp::MinNumF) };
    binary(min, scalar, binary(max, scalar, x, lo), hi)
}

pub(super) fn compare_int(pred: CmpI, bits: u32, a: u64, b: u64) -> u64 {
    let (sa, sb) = (signed(a, bits), signed(b, bits));
    u64::from(match pred {
        CmpI::Eq => a == b,
        CmpI::Ne => a != b,
        CmpI::Slt => sa < sb,
        CmpI::Sle => sa <= sb,
        CmpI::Sgt => sa > sb,
        CmpI::Sge => sa >= sb,
        CmpI::Ult => a < b,
        CmpI::Ule => a <= b,
        CmpI::Ugt => a > b,
        CmpI::Uge => a >= b,
    })
}

pub(super) fn compare_float(pred: CmpF, f: Float, a: u64, b: u64) -> u64 {
    let (x, y) = (decode(a, f), decode(b, f));
    let unordered = x.is_nan() || y.is_nan();
    u64::from(match pred {
        CmpF::False => false,
        CmpF::Oeq => x == y,
        CmpF::Ogt => x > y,
        CmpF::Oge => x >= y,
        CmpF::Olt => x < y,
        CmpF::Ole => x <= y,
        CmpF::One => !unordered && x != y,
        CmpF::Ord => !unordered,
        CmpF::Ueq => unordered || x == y,
        CmpF::Ugt => unordered || x > y,
        CmpF::Uge => unordered || x >= y,
        CmpF::Ult => unordered || x < y,
        CmpF::Ule => unordered || x <= y,
        CmpF::Une => x != y,
        CmpF::Uno => unordered,
        CmpF::True => true,
    })
}

/// A conversion. Float to integer truncates and saturates, NaN gives 0; to the 8-bit formats `tt.fp_to_fp` saturates.
pub(super) fn cast(op: CastOp, from: Elem, to: Elem, x: u64) -> u64 {
    let (Elem::Scalar(from), Elem::Scalar(to)) = (from, to) else {
        return match (op, from) {
            // Pointers are addresses; an integer is sign-extended to one.
            (CastOp::IntToPtr, Elem::Scalar(s)) => signed(x, s.bits()) as u64,
            (CastOp::PtrToInt, _) => match to {
                Elem::Scalar(s) => cut(x, s.bits()),
                Elem::Ptr { .. } => x,
            },
            _ => x,
        };
    };
    let (a, b) = (from.bits(), to.bits());
    match (op, from, to) {
        (CastOp::Bitcast, ..) => x,
        (CastOp::ExtSI | CastOp::IndexCast, ..) => cut(signed(x, a) as u64, b),
        (CastOp::ExtUI | CastOp::TruncI | CastOp::IndexCastUI, ..) => cut(x, b),
        (_, Scalar::Float(f), Scalar::Float(g)) => {
            let rounding = if op == CastOp::FpToFp(Rounding::TowardZero) { Round::TowardZero } else { Round::Nearest };
            let saturate = matches!(op, CastOp::FpToFp(_)) && g.bits() <= 8;
            encode(decode(x, f), g, rounding, saturate)
        }
        (CastOp::SIToFP, _, Scalar::Float(Float::F32)) => u64::from((signed(x, a) as f32).to_bits()),
        (CastOp::UIToFP, _, Scalar::Float(Float::F32)) => u64::from((x as f32).to_bits()),
        (CastOp::SIToFP, _, Scalar::Float(g)) => round(signed(x, a) as f64, g),
        (CastOp::UIToFP, _, Scalar::Float(g)) => round(x as f64, g),
        (CastOp::FPToSI, Scalar::Float(f), _) => {
            let limit = 1i128 << (b - 1);
            cut((decode(x, f) as i128).clamp(-limit, limit - 1) as u64, b)
        }
        (CastOp::FPToUI, Scalar::Float(f), _) => (decode(x, f) as u128).min((1u128 << b) - 1) as u64,
        _ => x,
    }
}

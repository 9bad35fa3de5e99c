//! Library functions and one-instruction assembly that have an exact mathematical meaning: each is given the rounding of the
//! operation it stands for. Anything else is unsupported.

use super::lane;
use crate::ir::{BinaryOp, Float, Scalar, UnaryOp};

/// What a library function computes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Fma,
    /// A function of one binary64 number.
    Real(fn(f64) -> f64),
}

/// A `libdevice` symbol such as `__nv_tanhf`.
pub(super) fn symbol(name: &str) -> Option<Function> {
    let base = name.strip_prefix("__nv_")?;
    let base = base.strip_prefix("fast_").unwrap_or(base);
    named(base).or_else(|| named(base.strip_suffix('f')?))
}

fn named(base: &str) -> Option<Function> {
    use Function::{Binary, Real, Unary};
    Some(match base {
        "exp" => Unary(UnaryOp::Exp),
        "exp2" => Unary(UnaryOp::Exp2),
        "log" => Unary(UnaryOp::Log),
        "log2" => Unary(UnaryOp::Log2),
        "sin" => Unary(UnaryOp::Sin),
        "cos" => Unary(UnaryOp::Cos),
        "tan" => Unary(UnaryOp::Tan),
        "tanh" => Unary(UnaryOp::Tanh),
        "erf" => Unary(UnaryOp::Erf),
        "sqrt" | "sqrt_rn" | "fsqrt_rn" => Unary(UnaryOp::Sqrt),
        "rsqrt" => Unary(UnaryOp::Rsqrt),
        "floor" => Unary(UnaryOp::Floor),
        "ceil" => Unary(UnaryOp::Ceil),
        "trunc" => Unary(UnaryOp::Trunc),
        "round" => Unary(UnaryOp::Round),
        "rint" | "nearbyint" => Unary(UnaryOp::RoundEven),
        "fabs" => Unary(UnaryOp::AbsF),
        "pow" => Binary(BinaryOp::PowF),
        "fmod" => Binary(BinaryOp::RemF),
        "atan2" => Binary(BinaryOp::Atan2),
        "copysign" => Binary(BinaryOp::CopySign),
        "fmax" => Binary(BinaryOp::MaxNumF),
        "fmin" => Binary(BinaryOp::MinNumF),
        "div_rn" | "fdiv_rn" | "fdivide" => Binary(BinaryOp::DivF),
        "fma" | "fma_rn" => Function::Fma,
        "log1p" => Real(libm::log1p),
        "expm1" => Real(libm::expm1),
        "asin" => Real(libm::asin),
        "acos" => Real(libm::acos),
        "atan" => Real(libm::atan),
        "sinh" => Real(libm::sinh),
        "cosh" => Real(libm::cosh),
        "erfc" => Real(libm::erfc),
        "cbrt" => Real(libm::cbrt),
        "log10" => Real(libm::log10),
        _ => return None,
    })
}

/// One PTX instruction on `$1, ..` into `$0`.
pub(super) fn instruction(asm: &str) -> Option<Function> {
    let text = asm.trim().trim_end_matches(';').trim();
    let (mnemonic, operands) = text.split_once(char::is_whitespace)?;
    if operands.split(',').map(str::trim).collect::<Vec<_>>() != ["$0", "$1"] {
        return None;
    }
    Some(match mnemonic {
        "ex2.approx.f32" | "ex2.approx.ftz.f32" => Function::Unary(UnaryOp::Exp2),
        "lg2.approx.f32" | "lg2.approx.ftz.f32" => Function::Unary(UnaryOp::Log2),
        "sin.approx.f32" | "sin.approx.ftz.f32" => Function::Unary(UnaryOp::Sin),
        "cos.approx.f32" | "cos.approx.ftz.f32" => Function::Unary(UnaryOp::Cos),
        "tanh.approx.f32" => Function::Unary(UnaryOp::Tanh),
        "sqrt.approx.f32" | "sqrt.approx.ftz.f32" | "sqrt.rn.f32" => Function::Unary(UnaryOp::Sqrt),
        "rsqrt.approx.f32" | "rsqrt.approx.ftz.f32" => Function::Unary(UnaryOp::Rsqrt),
        "rcp.approx.f32" | "rcp.approx.ftz.f32" | "rcp.rn.f32" => Function::Real(|x| 1.0 / x),
        _ => return None,
    })
}

impl Function {
    pub(super) fn operands(self) -> usize {
        match self {
            Function::Unary(_) | Function::Real(_) => 1,
            Function::Binary(_) => 2,
            Function::Fma => 3,
        }
    }

    /// One lane; `args` has the right length.
    pub(super) fn apply(self, f: Float, args: &[u64]) -> u64 {
        let scalar = Scalar::Float(f);
        match self {
            Function::Unary(op) => lane::unary(op, scalar, args[0]),
            Function::Binary(op) => lane::binary(op, scalar, args[0], args[1]),
            Function::Fma => lane::fma(scalar, args[0], args[1], args[2]),
            Function::Real(g) => lane::round(g(crate::float::decode(args[0], f)), f),
        }
    }
}

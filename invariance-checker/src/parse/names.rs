//! What the operations and the numbered words of TTIR are called.

use super::lower_op::Made;
use crate::ir::{AtomicOp, BinaryOp, CastOp, CmpF, CmpI, DotPrecision, ReduceKind, ScaledElem, UnaryOp};

/// `table[number - base]`.
pub(super) fn pick<'t, T>(table: &'t [T], number: i64, base: i64, what: &str) -> Made<&'t T> {
    let index = number.checked_sub(base).and_then(|i| usize::try_from(i).ok());
    index.and_then(|i| table.get(i)).ok_or_else(|| format!("unknown {what} {number}"))
}

pub(super) const CMP_I: [CmpI; 10] = {
    use CmpI::*;
    [Eq, Ne, Slt, Sle, Sgt, Sge, Ult, Ule, Ugt, Uge]
};
pub(super) const CMP_F: [CmpF; 16] = {
    use CmpF::*;
    [False, Oeq, Ogt, Oge, Olt, Ole, One, Ord, Ueq, Ugt, Uge, Ult, Ule, Une, Uno, True]
};
pub(super) const ATOMICS: [AtomicOp; 10] = {
    use AtomicOp::*;
    [And, Or, Xor, Add, FAdd, Max, Min, UMax, UMin, Exchange]
};
pub(super) const REDUCE_KINDS: [ReduceKind; 8] = {
    use ReduceKind::*;
    [Add, Min, Max, Inc, Dec, And, Or, Xor]
};
pub(super) const DOT_PRECISIONS: [DotPrecision; 5] = {
    use DotPrecision::*;
    [TF32, TF32x3, Ieee, BF16x3, BF16x6]
};
pub(super) const SCALED_ELEMS: [ScaledElem; 7] = {
    use ScaledElem::*;
    [E4M3, E5M2, E2M3, E3M2, E2M1, Bf16, Fp16]
};

pub(super) fn unary(name: &str) -> Option<UnaryOp> {
    use UnaryOp::*;
    Some(match name {
        "arith.negf" => NegF,
        "math.absf" => AbsF,
        "math.absi" => AbsI,
        "math.exp" => Exp,
        "math.exp2" => Exp2,
        "math.log" => Log,
        "math.log2" => Log2,
        "math.sin" => Sin,
        "math.cos" => Cos,
        "math.tan" => Tan,
        "math.tanh" => Tanh,
        "math.erf" => Erf,
        "math.sqrt" => Sqrt,
        "tt.precise_sqrt" => PreciseSqrt,
        "math.rsqrt" => Rsqrt,
        "math.floor" => Floor,
        "math.ceil" => Ceil,
        "math.trunc" => Trunc,
        "math.round" => Round,
        "math.roundeven" => RoundEven,
        "math.ctlz" => Ctlz,
        "math.cttz" => Cttz,
        "math.ctpop" => Ctpop,
        _ => return None,
    })
}

pub(super) fn binary(name: &str) -> Option<BinaryOp> {
    use BinaryOp::*;
    Some(match name {
        "arith.addi" => AddI,
        "arith.subi" => SubI,
        "arith.muli" => MulI,
        "arith.divsi" => DivSI,
        "arith.divui" => DivUI,
        "arith.ceildivsi" => CeilDivSI,
        "arith.ceildivui" => CeilDivUI,
        "arith.floordivsi" => FloorDivSI,
        "arith.remsi" => RemSI,
        "arith.remui" => RemUI,
        "arith.andi" => AndI,
        "arith.ori" => OrI,
        "arith.xori" => XorI,
        "arith.shli" => ShlI,
        "arith.shrsi" => ShrSI,
        "arith.shrui" => ShrUI,
        "arith.minsi" => MinSI,
        "arith.maxsi" => MaxSI,
        "arith.minui" => MinUI,
        "arith.maxui" => MaxUI,
        "tt.mulhiui" => MulHiUI,
        "arith.addf" => AddF,
        "arith.subf" => SubF,
        "arith.mulf" => MulF,
        "arith.divf" => DivF,
        "tt.precise_divf" => PreciseDivF,
        "arith.remf" => RemF,
        "arith.maximumf" => MaximumF,
        "arith.minimumf" => MinimumF,
        "arith.maxnumf" => MaxNumF,
        "arith.minnumf" => MinNumF,
        "math.powf" => PowF,
        "math.copysign" => CopySign,
        "math.atan2" => Atan2,
        _ => return None,
    })
}

pub(super) fn cast(name: &str) -> Option<CastOp> {
    use CastOp::*;
    Some(match name {
        "arith.extsi" => ExtSI,
        "arith.extui" => ExtUI,
        "arith.trunci" => TruncI,
        "arith.extf" => ExtF,
        "arith.truncf" => TruncF,
        "arith.sitofp" => SIToFP,
        "arith.uitofp" => UIToFP,
        "arith.fptosi" => FPToSI,
        "arith.fptoui" => FPToUI,
        "arith.index_cast" => IndexCast,
        "arith.index_castui" => IndexCastUI,
        "arith.bitcast" | "tt.bitcast" => Bitcast,
        "tt.int_to_ptr" => IntToPtr,
        "tt.ptr_to_int" => PtrToInt,
        _ => return None,
    })
}

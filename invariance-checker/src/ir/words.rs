//! The words that operations are made of: which elementwise operation, which comparison, which rounding.

/// `x`, `y`, `z` of a launch grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Axis 0.
    X,
    /// Axis 1.
    Y,
    /// Axis 2.
    Z,
}

/// Elementwise operations of one operand that keep the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as MLIR names it")]
pub enum UnaryOp {
    NegF,
    AbsF,
    AbsI,
    Exp,
    Exp2,
    Log,
    Log2,
    Sin,
    Cos,
    Tan,
    Tanh,
    Erf,
    Sqrt,
    /// `tt.precise_sqrt`: round to nearest even.
    PreciseSqrt,
    Rsqrt,
    Floor,
    Ceil,
    Trunc,
    Round,
    RoundEven,
    /// Count leading zeros.
    Ctlz,
    /// Count trailing zeros.
    Cttz,
    /// Population count.
    Ctpop,
}

/// Elementwise operations of two operands of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as MLIR names it")]
pub enum BinaryOp {
    AddI,
    SubI,
    MulI,
    /// Rounds towards zero; dividing by zero is undefined.
    DivSI,
    DivUI,
    CeilDivSI,
    CeilDivUI,
    FloorDivSI,
    /// Sign of the dividend.
    RemSI,
    RemUI,
    AndI,
    OrI,
    XorI,
    ShlI,
    ShrSI,
    ShrUI,
    MinSI,
    MaxSI,
    MinUI,
    MaxUI,
    /// `tt.mulhiui`: upper half of the unsigned product.
    MulHiUI,
    AddF,
    SubF,
    MulF,
    DivF,
    /// `tt.precise_divf`: round to nearest even.
    PreciseDivF,
    RemF,
    /// IEEE-754:2019 maximum: NaN wins, -0 < +0.
    MaximumF,
    /// IEEE-754:2019 minimum.
    MinimumF,
    /// A NaN operand is ignored.
    MaxNumF,
    /// A NaN operand is ignored.
    MinNumF,
    /// `math.powf`.
    PowF,
    /// `math.copysign`.
    CopySign,
    /// `math.atan2`.
    Atan2,
}

impl BinaryOp {
    /// True for the operations on floats.
    pub fn is_float(self) -> bool {
        self >= BinaryOp::AddF
    }
}

/// Integer comparisons, in MLIR's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as MLIR names it")]
pub enum CmpI {
    Eq,
    Ne,
    Slt,
    Sle,
    Sgt,
    Sge,
    Ult,
    Ule,
    Ugt,
    Uge,
}

/// Float comparisons, in MLIR's numbering: `O` is false on NaN, `U` true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as MLIR names it")]
pub enum CmpF {
    False,
    Oeq,
    Ogt,
    Oge,
    Olt,
    Ole,
    One,
    Ord,
    Ueq,
    Ugt,
    Uge,
    Ult,
    Ule,
    Une,
    Uno,
    True,
}

/// Elementwise conversions; source and target element types are those of operand and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as MLIR names it")]
pub enum CastOp {
    ExtSI,
    ExtUI,
    TruncI,
    ExtF,
    TruncF,
    SIToFP,
    UIToFP,
    FPToSI,
    FPToUI,
    IndexCast,
    IndexCastUI,
    /// `arith.bitcast`, `tt.bitcast`: the bits are kept; also pointer to pointer.
    Bitcast,
    IntToPtr,
    PtrToInt,
    /// `tt.fp_to_fp` to or from the small formats, with its rounding.
    FpToFp(Rounding),
}

/// Rounding of `tt.fp_to_fp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rounding {
    /// Not printed: an extension, which is exact.
    Exact,
    /// To nearest, ties to even.
    Nearest,
    /// Toward zero.
    TowardZero,
}

/// Operation of `tt.atomic_rmw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as Triton names it")]
pub enum AtomicOp {
    And,
    Or,
    Xor,
    Add,
    FAdd,
    Max,
    Min,
    UMax,
    UMin,
    Exchange,
}

/// Memory order and scope of an atomic, as printed (`acq_rel`, `gpu`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemOrder {
    /// `relaxed`, `acquire`, `release` or `acq_rel`.
    pub sem: String,
    /// `cta`, `gpu` or `sys`.
    pub scope: String,
}

/// Operation of a descriptor reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as Triton names it")]
pub enum ReduceKind {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
}

/// `inputPrecision` of `tt.dot`; `Ieee` is what the pretty form leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as Triton names it")]
pub enum DotPrecision {
    TF32,
    TF32x3,
    Ieee,
    BF16x3,
    BF16x6,
}

/// Element format of an operand of `tt.dot_scaled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is named as Triton names it")]
pub enum ScaledElem {
    E4M3,
    E5M2,
    E2M3,
    E3M2,
    E2M1,
    Bf16,
    Fp16,
}

/// The elements of a constant as bits of its element type, zero-extended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Elements {
    /// Every element is this; also a scalar.
    Splat(u64),
    /// Row-major, one for each element.
    List(Vec<u64>),
}

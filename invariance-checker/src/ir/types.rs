//! Types of values: scalars, pointers, tensors of either, tensor descriptors, and anything else by its text.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Floating-point formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Float {
    /// binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// binary32.
    F32,
    /// binary64.
    F64,
    /// e4m3 without infinity (`f8E4M3FN`).
    F8E4M3FN,
    /// e5m2 with infinity.
    F8E5M2,
    /// e4m3 without infinity and negative zero, bias 8.
    F8E4M3FNUZ,
    /// e5m2 without infinity and negative zero, bias 16.
    F8E5M2FNUZ,
    /// e4m3 with bias 11 (`f8E4M3B11FNUZ`).
    F8E4M3B11FNUZ,
    /// e2m1.
    F4E2M1FN,
    /// tf32, 19 bits.
    TF32,
}

/// What a tensor element or a scalar argument can be, short of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scalar {
    /// Signless integer of 1 to 64 bits.
    Int(u32),
    /// MLIR's `index`; 64 bits here.
    Index,
    /// A float.
    Float(Float),
}

/// A scalar or a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Elem {
    /// Plain data.
    Scalar(Scalar),
    /// `!tt.ptr<T>` or `!tt.ptr<T, space>`.
    Ptr {
        /// What it points at.
        pointee: Scalar,
        /// Address space; 1 (global) when not printed.
        space: u32,
    },
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// A scalar or pointer.
    Elem(Elem),
    /// `tensor<2x64xf32>`: static shape, no encoding.
    Tensor {
        /// Extents, outermost first. Their product was checked to fit the parser's limit.
        shape: Vec<usize>,
        /// Element type.
        elem: Elem,
    },
    /// `!tt.tensordesc<64x64xf16>` (also the form with `tensor<..>` inside).
    Desc {
        /// Block that one access moves.
        block: Vec<usize>,
        /// Element type.
        elem: Scalar,
    },
    /// Any type not modelled (`!ttg.memdesc<..>`, pointers to tensors, ..), by its text without spaces.
    Other(String),
}

impl Float {
    /// Width in bits as stored in memory.
    pub fn bits(self) -> u32 {
        match self {
            Float::F4E2M1FN => 4,
            Float::F8E4M3FN | Float::F8E5M2 | Float::F8E4M3FNUZ | Float::F8E5M2FNUZ | Float::F8E4M3B11FNUZ => 8,
            Float::F16 | Float::Bf16 => 16,
            Float::TF32 => 19,
            Float::F32 => 32,
            Float::F64 => 64,
        }
    }

    /// MLIR's spelling.
    pub fn name(self) -> &'static str {
        match self {
            Float::F16 => "f16",
            Float::Bf16 => "bf16",
            Float::F32 => "f32",
            Float::F64 => "f64",
            Float::F8E4M3FN => "f8E4M3FN",
            Float::F8E5M2 => "f8E5M2",
            Float::F8E4M3FNUZ => "f8E4M3FNUZ",
            Float::F8E5M2FNUZ => "f8E5M2FNUZ",
            Float::F8E4M3B11FNUZ => "f8E4M3B11FNUZ",
            Float::F4E2M1FN => "f4E2M1FN",
            Float::TF32 => "tf32",
        }
    }

    /// The reverse of [`Float::name`].
    pub fn parse(name: &str) -> Option<Float> {
        use Float::*;
        [F16, Bf16, F32, F64, F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E4M3B11FNUZ, F4E2M1FN, TF32]
            .into_iter()
            .find(|f| f.name() == name)
    }
}

impl Scalar {
    /// The i1 of masks.
    pub const BOOL: Scalar = Scalar::Int(1);
    /// i32.
    pub const I32: Scalar = Scalar::Int(32);
    /// i64.
    pub const I64: Scalar = Scalar::Int(64);
    /// binary32.
    pub const F32: Scalar = Scalar::Float(Float::F32);

    /// Width in bits; `index` counts as 64.
    pub fn bits(self) -> u32 {
        match self {
            Scalar::Int(bits) => bits,
            Scalar::Index => 64,
            Scalar::Float(f) => f.bits(),
        }
    }

    /// Bytes one element takes in memory: an i1 takes one.
    pub fn bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8).next_power_of_two()
    }

    /// True for integers and `index`.
    pub fn is_int(self) -> bool {
        !matches!(self, Scalar::Float(_))
    }

    /// True for floats.
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::Float(_))
    }
}

impl Type {
    /// A scalar type.
    pub const fn scalar(s: Scalar) -> Type {
        Type::Elem(Elem::Scalar(s))
    }

    /// Extents: empty for a scalar, a pointer and anything that is not a tensor.
    pub fn shape(&self) -> &[usize] {
        match self {
            Type::Tensor { shape, .. } => shape,
            _ => &[],
        }
    }

    /// Number of elements: 1 for a scalar.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// True for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element type of a tensor, or the scalar or pointer itself.
    pub fn elem(&self) -> Option<Elem> {
        match self {
            Type::Elem(elem) | Type::Tensor { elem, .. } => Some(*elem),
            _ => None,
        }
    }

    /// Element type, if it is plain data.
    pub fn scalar_elem(&self) -> Option<Scalar> {
        match self.elem()? {
            Elem::Scalar(s) => Some(s),
            Elem::Ptr { .. } => None,
        }
    }

    /// What the pointer or tensor of pointers points at.
    pub fn pointee(&self) -> Option<Scalar> {
        match self.elem()? {
            Elem::Ptr { pointee, .. } => Some(pointee),
            Elem::Scalar(_) => None,
        }
    }

    /// True for tensors.
    pub fn is_tensor(&self) -> bool {
        matches!(self, Type::Tensor { .. })
    }

    /// The same shape with another element type; `None` for types without elements.
    pub fn with_elem(&self, elem: Elem) -> Option<Type> {
        match self {
            Type::Elem(_) => Some(Type::Elem(elem)),
            Type::Tensor { shape, .. } => Some(Type::Tensor { shape: shape.clone(), elem }),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Int(bits) => write!(f, "i{bits}"),
            Scalar::Index => f.write_str("index"),
            Scalar::Float(float) => f.write_str(float.name()),
        }
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elem::Scalar(s) => s.fmt(f),
            Elem::Ptr { pointee, space: 1 } => write!(f, "!tt.ptr<{pointee}>"),
            Elem::Ptr { pointee, space } => write!(f, "!tt.ptr<{pointee}, {space}>"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = |shape: &[usize]| shape.iter().map(|d| format!("{d}x")).collect::<String>();
        match self {
            Type::Elem(elem) => elem.fmt(f),
            Type::Tensor { shape, elem } => write!(f, "tensor<{}{elem}>", dims(shape)),
            Type::Desc { block, elem } => write!(f, "!tt.tensordesc<{}{elem}>", dims(block)),
            Type::Other(text) => f.write_str(text),
        }
    }
}

//! The named rounding behaviours of the multiply-accumulate step (DESIGN 4), and the chain that every matrix product
//! is.
//!
//! A step fuses sixteen products with an accumulator. How it rounds is the only thing that the three arithmetics
//! disagree on; everything outside a step is IEEE-754 binary32 in all of them. The soft tensor core itself is in
//! [`tensor_core`], the scalar functions are in [`scalar`](crate::scalar).

use half::{bf16, f16};

use crate::scalar::canonical;
use crate::tensor_core::{self, Special, Step, Term};

/// Products of one step.
pub const STEP: usize = 16;

/// How a multiply-accumulate over 16 products rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// IEEE-754 binary32: sixteen sequential FMAs, round to nearest even.
    Ieee,
    /// Tensor core of H100 and H200: one fused step of 16 products, truncated to 25 fraction bits below the largest
    /// exponent, rounded toward zero.
    Sm90,
    /// Tensor core of A100, L40 and RTX 30/40: two fused steps of 8 products each, 24 fraction bits.
    Sm80,
}

impl Arithmetic {
    /// Every arithmetic, for tests and listings.
    pub const ALL: [Self; 3] = [Self::Ieee, Self::Sm90, Self::Sm80];

    /// The name used in canonical text, receipts and command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ieee => "ieee",
            Self::Sm90 => "sm90",
            Self::Sm80 => "sm80",
        }
    }

    /// The arithmetic of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arithmetic| arithmetic.name() == name)
    }
}

/// A 16-bit input type of a step.
pub trait StepInput: Copy {
    /// The exact binary32 value.
    fn widen(self) -> f32;
    /// Significand and exponent as the tensor core sees them.
    fn term(self) -> Term;
    /// Infinity, NaN or neither.
    fn special(self) -> Special;
    /// Fraction bits of a product of two significands.
    const PRODUCT_FRACTION_BITS: i32;
    /// +0, the padding of a short step.
    const ZERO: Self;
}

impl StepInput for bf16 {
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    fn term(self) -> Term {
        Term::decode(u32::from(self.to_bits()), 8, 7)
    }
    fn special(self) -> Special {
        Special::decode(u32::from(self.to_bits()), 8, 7)
    }
    const PRODUCT_FRACTION_BITS: i32 = 14;
    const ZERO: Self = bf16::from_bits(0);
}

impl StepInput for f16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn term(self) -> Term {
        Term::decode(u32::from(self.to_bits()), 5, 10)
    }
    fn special(self) -> Special {
        Special::decode(u32::from(self.to_bits()), 5, 10)
    }
    const PRODUCT_FRACTION_BITS: i32 = 20;
    const ZERO: Self = f16::from_bits(0);
}

/// `acc` plus the sixteen products `a[i] * b[i]` of bfloat16 inputs, rounded as `arithmetic` says. A NaN result is
/// 0x7fffffff.
pub fn mma_step(arithmetic: Arithmetic, acc: f32, a: &[bf16; STEP], b: &[bf16; STEP]) -> f32 {
    step(arithmetic, acc, a, b)
}

/// [`mma_step`] for float16 inputs.
pub fn mma_step_f16(arithmetic: Arithmetic, acc: f32, a: &[f16; STEP], b: &[f16; STEP]) -> f32 {
    step(arithmetic, acc, a, b)
}

/// A chain of steps over `a` and `b` of equal length, continuing `acc`. The last step is padded with products of +0 and
/// +0. An empty chain returns `acc`.
///
/// # Panics
/// When the lengths differ.
pub fn chain<T: StepInput>(arithmetic: Arithmetic, mut acc: f32, a: &[T], b: &[T]) -> f32 {
    assert_eq!(a.len(), b.len(), "a chain multiplies two vectors of one length");
    for (a, b) in a.chunks(STEP).zip(b.chunks(STEP)) {
        acc = step(arithmetic, acc, &padded(a), &padded(b));
    }
    acc
}

/// `values` (at most sixteen), padded with +0.
pub fn padded<T: StepInput>(values: &[T]) -> [T; STEP] {
    let mut step = [T::ZERO; STEP];
    step[..values.len()].copy_from_slice(values);
    step
}

fn step<T: StepInput>(arithmetic: Arithmetic, acc: f32, a: &[T; STEP], b: &[T; STEP]) -> f32 {
    match arithmetic {
        Arithmetic::Ieee => canonical(a.iter().zip(b).fold(acc, |acc, (a, b)| a.widen().mul_add(b.widen(), acc))),
        Arithmetic::Sm90 => {
            let step =
                Step { fraction_bits: 25, floor_exponent: -133, product_fraction_bits: T::PRODUCT_FRACTION_BITS };
            fused(&step, acc, a, b)
        }
        Arithmetic::Sm80 => {
            let step =
                Step { fraction_bits: 24, floor_exponent: -132, product_fraction_bits: T::PRODUCT_FRACTION_BITS };
            let acc = fused::<T>(&step, acc, &a[..STEP / 2], &b[..STEP / 2]);
            fused(&step, acc, &a[STEP / 2..], &b[STEP / 2..])
        }
    }
}

fn fused<T: StepInput>(step: &Step, acc: f32, a: &[T], b: &[T]) -> f32 {
    // A loop of its own, since most steps are finite and it vectorises.
    let finite = a.iter().chain(b).fold(acc.is_finite(), |finite, x| finite & (x.special() == Special::None));
    let mut products = [Term::ZERO; STEP];
    for ((product, a), b) in products.iter_mut().zip(a).zip(b) {
        *product = a.term().times(b.term());
    }
    if finite {
        return tensor_core::fused_sum(step, acc, &products[..a.len()]);
    }
    let product = |(a, b): (&T, &T)| a.special().times(a.term(), b.special(), b.term());
    a.iter().zip(b).map(product).fold(Special::of_f32(acc), Special::plus).value()
}

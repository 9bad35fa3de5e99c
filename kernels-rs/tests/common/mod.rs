//! Test bodies for any [`Backend`]: each makes a random case from a seed and compares the backend with the evaluator of
//! `reduction-tree` by bits.

#[path = "../../src/cpu/testing.rs"]
pub mod data;

pub mod attention;
pub mod linear;
pub mod refusals;
pub mod rows;

use half::bf16;
use kernels_rs::backend::{Backend, Element};

/// A test body: a backend and a seed.
pub type Outcome = Result<(), String>;

/// Values whose bits can be compared.
pub trait Bits: Element + std::fmt::Debug {
    /// The bits, widened.
    fn bits(self) -> u32;
}

impl Bits for bf16 {
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Bits for f32 {
    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Bits for u32 {
    fn bits(self) -> u32 {
        self
    }
}

/// Compares a buffer [rows, width] with what the evaluator gives; the first difference becomes the message.
pub fn equal<B: Backend, T: Bits>(b: &B, what: &str, buffer: &B::Buffer<T>, expected: &[T], width: usize) -> Outcome {
    let got = b.download(buffer, expected.len()).map_err(|e| e.to_string())?;
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        if got.bits() != expected.bits() {
            let (g, e) = (got.bits(), expected.bits());
            let at = format!("row {} column {}", i / width, i % width);
            return Err(format!(
                "{} {:?} {what}: {at}: expected {expected:?} {e:#x}, got {got:?} {g:#x}",
                b.name(),
                b.arithmetic()
            ));
        }
    }
    Ok(())
}

/// A buffer filled with a value that no result has, so that an element which is not written shows.
pub fn unwritten<B: Backend, T: Bits>(b: &B, value: T, len: usize) -> B::Buffer<T> {
    b.upload(&vec![value; len]).expect("memory")
}

/// A bf16 NaN that is not the canonical one.
pub const STALE: bf16 = bf16::from_bits(0xffa5);

//! The named rounding behaviours of the primitives (DESIGN 4).

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

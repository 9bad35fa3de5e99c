//! Proves that a Triton kernel is batch invariant, or shows the two launches that differ.
//!
//! [`ir`] is the typed form of a kernel, [`parse::parse`] makes it from TTIR text.

pub mod float;
pub mod input;
pub mod interp;
pub mod ir;
pub mod parse;

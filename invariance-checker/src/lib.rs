//! Proves that a Triton kernel is batch invariant, or shows the two launches that differ.
//!
//! [`ir`] is the typed form of a kernel, [`parse::parse`] makes it from TTIR text, [`interp`] runs it, [`eval`] turns it into
//! [`term`]s, and [`analysis`] decides.

pub mod analysis;
pub mod check;
pub mod classes;
pub mod cli;
pub mod contract;
pub mod eval;
pub mod float;
pub mod input;
pub mod interp;
pub mod ir;
pub mod layout;
pub mod parse;
pub mod report;
pub mod term;
pub mod tree;
pub mod witness;

pub use check::{Options, Report, Verdict, check};

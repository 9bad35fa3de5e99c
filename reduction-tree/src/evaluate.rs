//! The definition of the bits: every operator, one row at a time, in the plainest code that says what happens.
//!
//! Fast implementations are compared with these functions by bits, never by tolerance. The generic evaluator of
//! [`Tree`](crate::tree) defines the same operators a second time, from their trees; tests hold the two together.
//!
//! These functions panic when slices do not have the lengths that their documentation names: they are for tests,
//! references and audits, and callers check their input first.

mod attention;
mod linear;
mod qkv;
mod rows;
pub mod sample;

pub use attention::attention;
pub use linear::{linear, linear_bf16, linear_sum};
pub use qkv::{Qkv, QkvRow, qkv, sanitise};
pub use rows::{LogSumExp, argmax, embed, log_sum_exp, neighbour_sum, residual_add, rmsnorm, rmsnorm_f32};

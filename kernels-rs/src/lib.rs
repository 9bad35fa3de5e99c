//! The operators of a transformer, each with the bits that its reduction tree defines.
//!
//! [`backend::Backend`] is the one interface; `cpu` implements it on any machine.

pub mod backend;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod probe;
pub mod random;

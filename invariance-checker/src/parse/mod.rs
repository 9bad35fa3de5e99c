//! From TTIR text (Triton 3.6 to 3.9, pretty or generic form, with or without locations) to [`ir::Module`](crate::ir::Module).
//!
//! Three steps: the text becomes raw operations as MLIR's generic form has them (`raw`, with `pretty` for the custom
//! forms), raw operations become typed ones (`lower`, `lower_op`), and [`ir::verify`](crate::ir::verify) checks types and
//! dominance. Input is hostile until shown otherwise: nesting, length and tensor sizes are bounded, nothing panics, and
//! every refusal carries a position.

mod attrs;
mod cursor;
mod error;
mod locs;
mod lower;
mod lower_op;
mod names;
mod pretty;
mod pretty_control;
mod raw;
mod sniff;
mod types;

pub(crate) use attrs::sign_extend;
pub use error::ParseError;

use crate::ir::Module;

/// Longest text accepted, in bytes. Real kernels stay below two megabytes.
pub const MAX_TEXT_BYTES: usize = 16 << 20;
/// Deepest nesting of regions, types, attributes or locations.
pub const MAX_DEPTH: usize = 64;
/// Most elements of one tensor. Triton itself stops at 2^20.
pub const MAX_TENSOR_LEN: usize = 1 << 24;
/// Most functions in one module; a kernel has a handful of helpers.
pub const MAX_FUNCTIONS: usize = 1024;
/// Longest name of a value that is kept: a location's name is copied to every value that points at it.
pub const MAX_NAME_BYTES: usize = 128;
/// Most blocks in one function; the dominance check is quadratic in them.
pub const MAX_BLOCKS: usize = 2048;

/// Parses a file.
///
/// # Errors
/// Anything that is not a well-formed TTIR module within the limits above, with its position.
pub fn parse(text: &[u8]) -> Result<Module, ParseError> {
    let text = sniff::check(text)?;
    let raw = raw::parse_file(text)?;
    let module = lower::lower(text, raw)?;
    crate::ir::verify(&module).map_err(|fault| ParseError::at_pos(text, fault.at, fault.message))?;
    Ok(module)
}

//! Reduction trees: what fixes the bits of a floating-point result.
//!
//! A tree is the ordered expression of floating-point operations that makes one output element from named inputs. Its
//! leaves are logical coordinates such as (row, k), never addresses. Two kernels that realise one tree give one result,
//! bit for bit, whatever their tiles, warps or grids are.

pub mod arithmetic;
pub mod evaluate;
pub mod fp8;
pub mod noise;
pub mod operator;
pub mod rope;
pub mod scalar;
pub mod tensor_core;
pub mod tree;

//! Operators on whole rows: rmsnorm, gather, embedding and the fused QKV stage.

use kernels_cuda::params::{GatherParams, QkvStageParams, RmsNormParams};
use reduction_tree::operator::RmsNormTree;

use super::device::Device;
use super::launch::{Grid, arguments, grid_size, size};
use crate::backend::{Error, Result};

/// Longest row that the vectorised rmsnorm keeps in registers.
const VECTOR_ELEMENTS_MAX: usize = 16384;

/// out [rows, d] = rmsnorm(x).
///
/// # Safety
/// `x` and `out` hold rows x d elements and `weight` d, all on this device.
pub unsafe fn rmsnorm(device: &Device, tree: RmsNormTree, rows: usize, x: u64, weight: u64, out: u64) -> Result<()> {
    const OP: &str = "rmsnorm";
    let p = RmsNormParams {
        x: x as *const u16,
        weight: weight as *const u16,
        out: out as *mut u16,
        rows: size(OP, "rows", rows)?,
        d: size(OP, "d", tree.d)?,
        eps: tree.eps,
    };
    if tree.d == 0 {
        return Err(Error::new(OP, "d above 0", "0"));
    }
    let vector = tree.d.is_multiple_of(8) && tree.d <= VECTOR_ELEMENTS_MAX;
    let name = if vector { "rmsnorm_vector" } else { "rmsnorm_any" };
    let grid = Grid { blocks: grid_size(OP, rows)?, threads: 256, shared_bytes: 0 };
    // SAFETY: the argument is the parameters of both kernels; the caller vouches for the addresses.
    unsafe { device.launch(OP, device.function(name)?, grid, arguments![p]) }
}

/// out [rows, d] = rows `index` [rows] of a table with `pitch` elements a row.
///
/// # Safety
/// Every index lies within the table; `out` holds rows x d elements.
#[allow(clippy::too_many_arguments)]
pub unsafe fn gather(
    device: &Device,
    operation: &'static str,
    table: u64,
    pitch: usize,
    index: u64,
    rows: usize,
    d: usize,
    out: u64,
) -> Result<()> {
    let p = GatherParams {
        table: table as *const u16,
        index: index as *const u32,
        out: out as *mut u16,
        rows: size(operation, "rows", rows)?,
        d: size(operation, "d", d)?,
        table_pitch: size(operation, "pitch", pitch)?,
    };
    let grid = Grid { blocks: grid_size(operation, rows)?, threads: 256, shared_bytes: 0 };
    // SAFETY: the argument is the parameters; the caller vouches for the addresses.
    unsafe { device.launch(operation, device.function("gather_rows")?, grid, arguments![p]) }
}

/// Launches the fused QKV stage.
///
/// # Safety
/// The parameters' addresses hold what `params.h` says.
pub unsafe fn qkv(device: &Device, p: &QkvStageParams) -> Result<()> {
    const OP: &str = "qkv";
    let heads = p.q_heads as usize + 2 * p.kv.kv_heads as usize;
    let grid = Grid { blocks: grid_size(OP, (p.rows as usize * heads).div_ceil(4))?, threads: 128, shared_bytes: 0 };
    // SAFETY: the argument is the parameters; the caller vouches for the addresses.
    unsafe { device.launch(OP, device.function("qkv_stage")?, grid, arguments![*p]) }
}

//! Attention: blocks of few rows go to the decode kernel, the others to the prefill kernel. Both realise one tree.

use kernels_cuda::params::{AttentionParams, QueryBlock};
use reduction_tree::operator::AttentionTree;

use super::device::{Device, SHARED_BYTES_MAX};
use super::kv::{KvPool, Step, halves};
use super::launch::{Grid, arguments, grid_size, size};
use crate::backend::{Error, Result};

/// Tokens of a tile: a constant of the kernels.
const KV_TILE: usize = AttentionTree::KV_TILE;

/// Which kernels may be used; for tests that hold them to the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    /// Decode for few rows, prefill for many; portable kernels where the card is not a Hopper.
    #[default]
    Fastest,
    /// The portable kernels on any card.
    Portable,
}

fn check(tree: &AttentionTree, q_heads: usize, pool: &KvPool) -> Result<usize> {
    const OP: &str = "attention";
    let shape = &pool.shape;
    if tree.kv_tile != KV_TILE || tree.kv_split == 0 || !tree.kv_split.is_multiple_of(KV_TILE) {
        let expected = format!("a kv_tile of {KV_TILE} and a kv_split that is a multiple of it");
        return Err(Error::new(OP, expected, format!("{} and {}", tree.kv_tile, tree.kv_split)));
    }
    if tree.head_dim != shape.head_dim {
        return Err(Error::new(OP, format!("the pool's head_dim {}", shape.head_dim), tree.head_dim.to_string()));
    }
    if tree.scale_log2.is_nan() || tree.scale_log2 <= 0.0 || tree.window == Some(0) {
        return Err(Error::new(OP, "a positive scale and window", format!("{tree:?}")));
    }
    if q_heads == 0 || !q_heads.is_multiple_of(shape.kv_heads) || q_heads / shape.kv_heads > super::kv::PREFILL_ROWS {
        let expected = format!("query heads that are a multiple of {} KV heads, at most 128 each", shape.kv_heads);
        return Err(Error::new(OP, expected, q_heads.to_string()));
    }
    Ok(q_heads / shape.kv_heads)
}

/// Splits that a block's rows see.
fn splits(tree: &AttentionTree, block: &QueryBlock) -> usize {
    let first = block.first_position as usize;
    let low = tree.seen(first).start;
    (first + block.rows as usize - 1) / tree.kv_split - low / tree.kv_split + 1
}

/// out [rows, q_heads * head_dim] from q of the same shape.
///
/// # Safety
/// `q` and `out` are device addresses of buffers of this backend with that many elements.
#[allow(clippy::too_many_arguments)]
pub unsafe fn attention(
    device: &Device,
    paths: Paths,
    tree: &AttentionTree,
    q_heads: usize,
    step: &Step,
    q: u64,
    pool: &KvPool,
    layer: usize,
    out: u64,
) -> Result<()> {
    const OP: &str = "attention";
    let group = check(tree, q_heads, pool)?;
    if step.checked.shape != pool.shape {
        return Err(Error::new(
            OP,
            format!("a step for {:?}", pool.shape),
            format!("one for {:?}", step.checked.shape),
        ));
    }
    let kv = pool.layer(device, OP, layer)?;
    let halves = halves(OP, tree.head_dim)?;
    step.with_blocks(device, group, |blocks| {
        let address = device.address(&blocks.memory);
        let mut p = AttentionParams {
            q: q as *const u16,
            out: out as *mut u16,
            blocks: address as *const QueryBlock,
            tables: step.tables(device) as *const u32,
            partial: std::ptr::null_mut(),
            arrived: std::ptr::null_mut(),
            kv,
            block_count: size(OP, "query blocks", blocks.decode.len())?,
            q_heads: size(OP, "q_heads", q_heads)?,
            group: size(OP, "group", group)?,
            kv_split: size(OP, "kv_split", tree.kv_split)?,
            split_max: size(OP, "splits", blocks.decode.iter().map(|b| splits(tree, b)).max().unwrap_or(0))?,
            window: tree.window.map_or(Ok(0), |w| size(OP, "window", w))?,
            scale_log2: tree.scale_log2,
        };
        // SAFETY: the blocks lie within the step's rows and tables, which were checked against the pool's shape; the caller
        // vouches for q and out.
        unsafe {
            if device.hopper && paths == Paths::Fastest {
                decode(device, halves, &mut p)?;
            } else {
                portable(device, halves, &mut p)?;
            }
            p.blocks = (address + 16 * blocks.decode.len() as u64) as *const QueryBlock;
            p.block_count = size(OP, "query blocks", blocks.prefill.len())?;
            p.split_max = 1;
            if device.hopper && paths == Paths::Fastest {
                prefill(device, halves, &p)
            } else {
                portable(device, halves, &mut p)
            }
        }
    })
}

unsafe fn decode(device: &Device, halves: u32, p: &mut AttentionParams) -> Result<()> {
    const OP: &str = "attention";
    if p.block_count == 0 {
        return Ok(());
    }
    let pairs = p.block_count as usize * p.kv.kv_heads as usize;
    let record = 8 * (64 * halves as usize + 2) * 4;
    if p.split_max > 1 {
        p.partial = device.workspace(OP, "attention states", pairs * p.split_max as usize * record)? as *mut f32;
        p.arrived = device.workspace(OP, "attention arrivals", pairs * 4)? as *mut u32;
    }
    let items = grid_size(OP, pairs * p.split_max as usize)?;
    // Three tiles of K and V of 128 elements a head, or six of 64.
    let grid = Grid { blocks: items.min(device.processors), threads: 256, shared_bytes: 1024 + 6 * 32768 };
    let name = if halves == 2 { "attention_decode_d128" } else { "attention_decode_d64" };
    // SAFETY: the argument is the parameters; the workspace holds a record for every split and a counter for every pair.
    unsafe { device.launch(OP, device.function(name)?, grid, arguments![*p]) }
}

unsafe fn prefill(device: &Device, halves: u32, p: &AttentionParams) -> Result<()> {
    const OP: &str = "attention";
    let blocks = grid_size(OP, p.block_count as usize * p.kv.kv_heads as usize)?;
    let (tile, stages) = (halves * 128 * 128, if halves == 2 { 2 } else { 4 });
    let shared_bytes = 1024 + tile + stages * 2 * tile + 2 * tile;
    debug_assert!(shared_bytes <= SHARED_BYTES_MAX);
    let name = if halves == 2 { "attention_prefill_d128" } else { "attention_prefill_d64" };
    let grid = Grid { blocks, threads: 384, shared_bytes };
    // SAFETY: the argument is the parameters, whose blocks have at most 128 packed rows.
    unsafe { device.launch(OP, device.function(name)?, grid, arguments![*p]) }
}

unsafe fn portable(device: &Device, halves: u32, p: &mut AttentionParams) -> Result<()> {
    const OP: &str = "attention";
    let tiles = (p.kv.kv_heads as usize).checked_mul(p.block_count as usize);
    let blocks = grid_size(OP, tiles.unwrap_or(usize::MAX))?;
    let name = if halves == 2 { "attention_portable_d128" } else { "attention_portable_d64" };
    let grid = Grid { blocks, threads: 128, shared_bytes: 3 * halves * 128 * 128 };
    // SAFETY: the argument is the parameters, whose blocks have at most 128 packed rows.
    unsafe { device.launch(OP, device.function(name)?, grid, arguments![*p]) }
}

//! Attention: blocks of few rows go to the decode kernel, the others to the prefill kernel. Both realise one tree.

use kernels_cuda::params::{AttentionParams, QueryBlock};
use reduction_tree::operator::AttentionTree;

use super::device::Device;
use super::kv::{KvPool, halves};
use super::launch::{Grid, size};
use super::step::{Blocks, PREFILL_ROWS, Step};
use crate::backend::{Error, KvShape, Result};

mod decode_kernels {
    //! The kernels of `sm90_attention_decode.cu` and their launch.
    use super::{AttentionParams, Device, Grid, Result};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/sm90_attention_decode.cu";
        /// Tokens of a tile.
        constant KV_TILE = "../kernels-cuda/include/attention.cuh";
        /// Few query rows a sequence: KV is streamed once.
        family Decode = DECODE_VARIANT(p: AttentionParams) {
            tree = "attention: tiles of {KV_TILE} tokens, splits merged left to right; halves = {HALVES}";
            threads = 288;
            sizes(items, processors);
            grid = min(items, processors);
            // Three tiles of K and V of 128 elements a head, or six of 64.
            shared = 1024 + (6 / HALVES) * (2 * HALVES * KV_TILE * 128);
        }
    }
}
use decode_kernels::{Decode, DecodeSizes};

mod prefill_kernels {
    //! The kernels of `sm90_attention_prefill.cu` and their launch.
    use super::{AttentionParams, Device, Grid, Result};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/sm90_attention_prefill.cu";
        /// Tokens of a tile.
        constant KV_TILE = "../kernels-cuda/include/attention.cuh";
        /// Packed rows of a block.
        constant ROWS = "../kernels-cuda/kernels/sm90_attention_prefill.cu";
        /// Many query rows a sequence.
        family Prefill = PREFILL_VARIANT(p: AttentionParams) {
            tree = "attention: tiles of {KV_TILE} tokens, splits merged left to right; halves = {HALVES}";
            threads = 384;
            sizes(pairs);
            grid = pairs;
            // q, two stages of K and V of 128 elements a head or four of 64, the total of the splits so far.
            shared = 1024 + HALVES * ROWS * 128 + (4 / HALVES) * (2 * HALVES * KV_TILE * 128) + HALVES * 32 * 4 * 256;
        }
    }
}
use prefill_kernels::{Prefill, PrefillSizes};

mod portable_kernels {
    //! The kernels of `portable_attention.cu` and their launch.
    use super::{AttentionParams, Device, Grid, Result};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/portable_attention.cu";
        /// Tokens of a tile.
        constant KV_TILE = "../kernels-cuda/include/attention.cuh";
        /// Any number of query rows, any card.
        family Portable = PORTABLE_VARIANT(p: AttentionParams) {
            tree = "attention: tiles of {KV_TILE} tokens, splits merged left to right; halves = {HALVES}";
            threads = 128;
            sizes(pairs);
            grid = pairs;
            // A tile of K and of V, the total of the splits so far.
            shared = 3 * HALVES * KV_TILE * 128;
        }
    }
}
use portable_kernels::{Portable, PortableSizes};

/// Tokens of a tile: a constant of the kernels.
const KV_TILE: usize = AttentionTree::KV_TILE;

const _: () = assert!(
    decode_kernels::KV_TILE as usize == KV_TILE
        && prefill_kernels::KV_TILE as usize == KV_TILE
        && portable_kernels::KV_TILE as usize == KV_TILE,
    "the kernels' tile is the tree's"
);
const _: () = assert!(prefill_kernels::ROWS as usize == PREFILL_ROWS, "blocks are cut as the kernel takes them");

/// The variant for heads of that many 64-element halves.
fn by_halves<T>(operation: &'static str, all: &'static [T], halves: u32, of: impl Fn(&T) -> u32) -> Result<&'static T> {
    all.iter()
        .find(|v| of(v) == halves)
        .ok_or_else(|| Error::new(operation, "a kernel for one or two halves", halves.to_string()))
}

/// Which kernels may be used; for tests that hold them to the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    /// Decode for few rows, prefill for many; portable kernels where the card is not a Hopper.
    #[default]
    Fastest,
    /// The portable kernels on any card.
    Portable,
}

/// Query heads of one KV head, if the kernels can run this tree on this shape.
fn check(tree: &AttentionTree, q_heads: usize, shape: &KvShape) -> Result<usize> {
    const OP: &str = "attention";
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
    if q_heads == 0 || !q_heads.is_multiple_of(shape.kv_heads) || q_heads / shape.kv_heads > PREFILL_ROWS {
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

/// Most splits that a decode block of the step sees; for a class of steps, that any of them can see.
fn splits_max(tree: &AttentionTree, step: &Step, blocks: &Blocks) -> usize {
    match step.class {
        None => blocks.decode.iter().map(|block| splits(tree, block)).max().unwrap_or(0),
        Some(class) => {
            let whole = class.horizon.div_ceil(tree.kv_split);
            tree.window.map_or(whole, |window| whole.min((window - 1) / tree.kv_split + 2))
        }
    }
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
    let group = check(tree, q_heads, &pool.shape)?;
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
        let address = blocks.address(device);
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
            split_max: size(OP, "splits", splits_max(tree, step, blocks))?,
            window: tree.window.map_or(Ok(0), |w| size(OP, "window", w))?,
            scale_log2: tree.scale_log2,
        };
        // SAFETY: the blocks lie within the step's rows and tables, which were checked against the pool's shape; the caller
        // vouches for q and out.
        unsafe {
            if device.hopper && paths == Paths::Fastest {
                decode(device, halves, &mut p)?;
            } else {
                portable(device, halves, &p)?;
            }
            p.blocks = (address + 16 * blocks.decode.len() as u64) as *const QueryBlock;
            p.block_count = size(OP, "query blocks", blocks.prefill.len())?;
            p.split_max = 1;
            if device.hopper && paths == Paths::Fastest {
                prefill(device, halves, &p)
            } else {
                portable(device, halves, &p)
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
    let items = pairs.checked_mul(p.split_max as usize);
    // The kernel numbers them in 32 bits.
    let items = size(OP, "splits of all blocks and heads", items.unwrap_or(usize::MAX))? as usize;
    if p.split_max > 1 {
        p.partial = device.workspace(OP, "attention states", items * record)? as *mut f32;
        p.arrived = device.workspace(OP, "attention arrivals", pairs * 4)? as *mut u32;
    }
    let variant = by_halves(OP, Decode::ALL, halves, |v| v.halves)?;
    let sizes = DecodeSizes { items, processors: device.processors as usize };
    // SAFETY: the workspace holds a record for every split and a counter for every pair.
    unsafe { variant.launch(device, OP, sizes, p) }
}

unsafe fn prefill(device: &Device, halves: u32, p: &AttentionParams) -> Result<()> {
    const OP: &str = "attention";
    let pairs = p.block_count as usize * p.kv.kv_heads as usize;
    let variant = by_halves(OP, Prefill::ALL, halves, |v| v.halves)?;
    // SAFETY: the blocks have at most 128 packed rows.
    unsafe { variant.launch(device, OP, PrefillSizes { pairs }, p) }
}

unsafe fn portable(device: &Device, halves: u32, p: &AttentionParams) -> Result<()> {
    const OP: &str = "attention";
    let pairs = p.block_count as usize * p.kv.kv_heads as usize;
    let variant = by_halves(OP, Portable::ALL, halves, |v| v.halves)?;
    // SAFETY: the blocks have at most 128 packed rows.
    unsafe { variant.launch(device, OP, PortableSizes { pairs }, p) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tile is a constant of the kernels and of every plan; a tree with another one is refused with both numbers.
    #[test]
    fn another_tile_than_the_kernels_is_an_error_that_says_so() {
        let shape = KvShape { layers: 1, pages: 4, page_tokens: 64, kv_heads: 2, head_dim: 64 };
        let tree = AttentionTree { head_dim: 64, kv_split: 512, kv_tile: 128, scale_log2: 0.2, window: None };
        assert_eq!(check(&tree, 8, &shape).map_err(|e| e.to_string()), Ok(4));
        for (kv_tile, kv_split) in [(64, 512), (16, 512), (0, 512), (256, 512), (128, 192), (128, 0)] {
            let error =
                check(&AttentionTree { kv_tile, kv_split, ..tree }, 8, &shape).expect_err("refused").to_string();
            assert!(error.contains("a kv_tile of 128"), "{error}");
            assert!(error.contains(&format!("{kv_tile} and {kv_split}")), "{error}");
        }
    }
}

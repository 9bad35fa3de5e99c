//! The paged KV memory and the rows of a step on the device.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::CudaSlice;
use kernels_cuda::params::{KvLayer, QueryBlock};

use super::device::{Device, driver};
use super::launch::size;
use crate::backend::{Error, KvShape, Result, StepRows};
use crate::cpu::Step as CheckedStep;
use crate::cpu::kv::check_shape;

/// The KV memory of all layers. Cells are padded to 64 or 128 elements a head.
pub struct KvPool {
    pub(super) shape: KvShape,
    pub(super) memory: CudaSlice<u16>,
    layer_elements: usize,
}

/// 64-element halves of a padded head.
pub fn halves(operation: &'static str, head_dim: usize) -> Result<u32> {
    match head_dim {
        1..=64 if head_dim.is_multiple_of(16) => Ok(1),
        65..=128 if head_dim.is_multiple_of(16) => Ok(2),
        _ => Err(Error::new(operation, "a head_dim that is a multiple of 16 up to 128", head_dim.to_string())),
    }
}

/// Elements of a layer and of all layers.
pub fn elements(shape: &KvShape) -> Result<(usize, usize)> {
    const OP: &str = "kv_pool";
    check_shape(OP, shape)?;
    let halves = halves(OP, shape.head_dim)? as usize;
    let product = |factors: &[usize]| factors.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
    let layer = product(&[shape.pages, shape.kv_heads, 2 * halves, shape.page_tokens, 64]);
    let total = layer.and_then(|layer| layer.checked_mul(shape.layers)).filter(|t| t.checked_mul(2).is_some());
    let refused = || Error::new(OP, "sizes above 0 whose product can be addressed", format!("{shape:?}"));
    layer.zip(total).ok_or_else(refused)
}

impl KvPool {
    /// A zeroed pool.
    pub fn new(device: &Device, shape: KvShape) -> Result<Self> {
        const OP: &str = "kv_pool";
        let (layer_elements, total) = elements(&shape)?;
        let memory = device.stream.alloc_zeros(total).map_err(driver(OP))?;
        Ok(Self { shape, memory, layer_elements })
    }

    /// One layer as the kernels take it.
    pub fn layer(&self, device: &Device, operation: &'static str, layer: usize) -> Result<KvLayer> {
        let shape = &self.shape;
        if layer >= shape.layers {
            return Err(Error::new(operation, format!("a layer below {}", shape.layers), layer.to_string()));
        }
        Ok(KvLayer {
            base: (device.address(&self.memory) + (layer * self.layer_elements * 2) as u64) as *mut u16,
            pages: size(operation, "pages", shape.pages)?,
            page_tokens: size(operation, "page_tokens", shape.page_tokens)?,
            kv_heads: size(operation, "kv_heads", shape.kv_heads)?,
            head_dim: size(operation, "head_dim", shape.head_dim)?,
            halves: halves(operation, shape.head_dim)?,
        })
    }
}

/// Query blocks for one GQA group size.
pub struct Blocks {
    /// For the decode kernel: at most 8 columns each.
    pub decode: Vec<QueryBlock>,
    /// For the prefill kernel: at most 128 packed rows each.
    pub prefill: Vec<QueryBlock>,
    /// Both, in that order, on the device.
    pub memory: CudaSlice<u32>,
}

/// The rows of a step, checked, and their arrays on the device.
pub struct Step {
    pub(super) checked: CheckedStep,
    memory: CudaSlice<u32>,
    table_offsets: Vec<usize>,
    blocks: Mutex<HashMap<usize, Blocks>>,
}

impl Step {
    /// Checks the rows and uploads them.
    pub fn new(device: &Device, rows: &StepRows, shape: KvShape) -> Result<Self> {
        const OP: &str = "step";
        let checked = CheckedStep::new(rows, shape)?;
        let mut words = Vec::with_capacity(3 * rows.tokens.len() + 1);
        for array in [&rows.tokens, &rows.positions, &rows.slots] {
            words.extend_from_slice(array);
        }
        let mut table_offsets = Vec::with_capacity(rows.tables.len());
        let base = words.len();
        for table in &rows.tables {
            table_offsets.push(words.len() - base);
            words.extend_from_slice(table);
        }
        size(OP, "block table entries", words.len())?;
        words.push(0);
        let memory = device.stream.clone_htod(&words).map_err(driver(OP))?;
        Ok(Self { checked, memory, table_offsets, blocks: Mutex::default() })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.checked.rows.tokens.len()
    }

    /// Address of the tokens; positions, slots and tables follow.
    pub fn tokens(&self, device: &Device) -> u64 {
        device.address(&self.memory)
    }

    /// Address of the positions [rows].
    pub fn positions(&self, device: &Device) -> u64 {
        self.tokens(device) + 4 * self.rows() as u64
    }

    /// Address of the slots [rows].
    pub fn slots(&self, device: &Device) -> u64 {
        self.tokens(device) + 8 * self.rows() as u64
    }

    /// Address of the concatenated block tables.
    pub fn tables(&self, device: &Device) -> u64 {
        self.tokens(device) + 12 * self.rows() as u64
    }

    /// Calls `f` with the query blocks for `group` query heads a KV head, made and uploaded on first use.
    pub fn with_blocks<T>(&self, device: &Device, group: usize, f: impl FnOnce(&Blocks) -> Result<T>) -> Result<T> {
        let mut cache = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(blocks) = cache.get(&group) {
            return f(blocks);
        }
        let blocks = self.make_blocks(device, group)?;
        f(cache.entry(group).or_insert(blocks))
    }

    fn make_blocks(&self, device: &Device, group: usize) -> Result<Blocks> {
        const OP: &str = "attention";
        let (mut decode, mut prefill) = (Vec::new(), Vec::new());
        for run in &self.checked.runs {
            // Rows of a run ascend in position but may skip; a block needs consecutive positions.
            let mut first = run.first;
            let end = run.first + run.count;
            while first < end {
                let positions = &self.checked.rows.positions;
                let consecutive = (first + 1..end).take_while(|&i| positions[i] == positions[i - 1] + 1).count() + 1;
                let few = consecutive * group <= DECODE_COLUMNS;
                let rows = if few { consecutive } else { consecutive.min(PREFILL_ROWS / group) };
                let block = QueryBlock {
                    first_row: size(OP, "rows", first)?,
                    rows: size(OP, "rows", rows)?,
                    first_position: positions[first],
                    table_offset: size(OP, "block table entries", self.table_offsets[run.sequence])?,
                };
                if few {
                    decode.push(block)
                } else {
                    prefill.push(block)
                }
                first += rows;
            }
        }
        // The prefill kernel starts the last block first: the longest.
        prefill.sort_by_key(|block| block.first_position + block.rows);
        let words: Vec<u32> = decode
            .iter()
            .chain(&prefill)
            .flat_map(|b| [b.first_row, b.rows, b.first_position, b.table_offset])
            .chain([0])
            .collect();
        let memory = device.stream.clone_htod(&words).map_err(driver(OP))?;
        Ok(Blocks { decode, prefill, memory })
    }
}

/// Columns (rows x group) of a block of the decode kernel: N of mma.sync.
pub const DECODE_COLUMNS: usize = 8;
/// Packed rows (rows x group) of a block of the prefill kernel.
pub const PREFILL_ROWS: usize = 128;

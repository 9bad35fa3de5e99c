//! The paged KV pool and the checked rows of a step.
//!
//! Keys of a (layer, page, head) are tiles whose columns are slots and whose products run over the head dimension; values
//! are tiles whose columns are elements of the head and whose products run over slots. So both matrix products of
//! attention are chains over tiles, as in a linear layer.

use crate::backend::{Error, KvShape, Result, SampleParams, StepRows, Wanted};
use crate::cpu::chain::{COLUMNS, StepTile};
use crate::cpu::rows::STEP;
use crate::cpu::tiles::Tiles;
use half::bf16;
use std::collections::HashSet;
use std::ops::Range;

/// The KV memory of all layers.
pub struct KvPool {
    pub(crate) shape: KvShape,
    k: Tiles,
    v: Tiles,
}

/// Larger heads than any model has; keeps products of sizes far from overflow.
const HEAD_DIM_MAX: usize = 4096;

/// Tiles that hold one (layer, page, head): `tiles` of `steps` each.
#[derive(Clone, Copy)]
struct Block {
    tiles: usize,
    steps: usize,
}

fn key_block(shape: &KvShape) -> Block {
    Block { tiles: shape.page_tokens.div_ceil(COLUMNS), steps: shape.head_dim / STEP }
}

fn value_block(shape: &KvShape) -> Block {
    Block { tiles: shape.head_dim.div_ceil(COLUMNS), steps: shape.page_tokens.div_ceil(STEP) }
}

/// Refuses a shape that the tiles cannot hold.
pub fn check_shape(operation: &'static str, shape: &KvShape) -> Result<()> {
    let sizes = [shape.layers, shape.pages, shape.page_tokens, shape.kv_heads, shape.head_dim];
    let head = shape.head_dim.is_multiple_of(STEP) && shape.head_dim <= HEAD_DIM_MAX;
    let slots = shape.pages.checked_mul(shape.page_tokens).is_some_and(|slots| u32::try_from(slots).is_ok());
    if sizes.contains(&0) || !head || !slots {
        let expected = "sizes above 0, head_dim a multiple of 16 up to 4096, slots below 2^32";
        return Err(Error::new(operation, expected, format!("{shape:?}")));
    }
    Ok(())
}

impl KvPool {
    /// Bytes that a pool of this shape takes.
    pub fn bytes(shape: KvShape) -> Result<u64> {
        let (k, v) = Self::tiles(&shape)?;
        Ok(((k + v) * size_of::<StepTile>()) as u64)
    }

    /// A zeroed pool.
    pub fn new(shape: KvShape) -> Result<Self> {
        let (k, v) = Self::tiles(&shape)?;
        Ok(Self { shape, k: Tiles::zeroed("kv_pool", k)?, v: Tiles::zeroed("kv_pool", v)? })
    }

    /// Tiles that keys and values take.
    fn tiles(shape: &KvShape) -> Result<(usize, usize)> {
        check_shape("kv_pool", shape)?;
        let count = |block: Block| {
            let blocks = shape.layers.checked_mul(shape.pages)?.checked_mul(shape.kv_heads)?;
            blocks.checked_mul(block.tiles * block.steps)
        };
        let tiles = count(key_block(shape)).zip(count(value_block(shape)));
        // Half of the address space a side, so that the sum in bytes cannot overflow either.
        let addressable = |&(k, v): &(usize, usize)| k.max(v) <= usize::MAX / (4 * size_of::<StepTile>());
        tiles
            .filter(addressable)
            .ok_or_else(|| Error::new("kv_pool", "a pool that memory can address", format!("{shape:?}")))
    }

    /// Overwrites every cell, padding included.
    pub fn fill(&mut self, value: bf16) {
        let word = u32::from(value.to_bits()) * 0x10001;
        for tiles in [&mut self.k, &mut self.v] {
            tiles.fill(StepTile([[word; COLUMNS / 2]; STEP]));
        }
    }

    fn index(&self, layer: usize, page: usize, head: usize) -> usize {
        (layer * self.shape.pages + page) * self.shape.kv_heads + head
    }

    /// The keys of slots 32t.. of a page: one step for every 16 elements of the head.
    pub fn keys(&self, layer: usize, page: usize, head: usize, t: usize) -> &[StepTile] {
        let block = key_block(&self.shape);
        let start = (self.index(layer, page, head) * block.tiles + t) * block.steps;
        &self.k[start..start + block.steps]
    }

    /// Elements 32t.. of the values of a page: one step for every 16 slots.
    pub fn values(&self, layer: usize, page: usize, head: usize, t: usize) -> &[StepTile] {
        let block = value_block(&self.shape);
        let start = (self.index(layer, page, head) * block.tiles + t) * block.steps;
        &self.v[start..start + block.steps]
    }

    /// Elements 32t.. of the values of positions `first..first + 16` of a block table, as one step. Positions outside
    /// `wanted` are +0, whatever memory holds for them.
    pub fn gather_values(
        &self,
        (layer, head, t): (usize, usize, usize),
        table: &[u32],
        first: usize,
        wanted: &Range<usize>,
    ) -> StepTile {
        let mut step = StepTile([[0; COLUMNS / 2]; STEP]);
        for position in first.max(wanted.start)..(first + STEP).min(wanted.end) {
            let page = table[position / self.shape.page_tokens] as usize;
            let slot = position % self.shape.page_tokens;
            step.0[position - first] = self.values(layer, page, head, t)[slot / STEP].0[slot % STEP];
        }
        step
    }

    /// Writes one head's key and value of `slot`.
    pub fn write(&mut self, layer: usize, slot: usize, head: usize, key: &[bf16], value: &[bf16]) {
        let (page, slot) = (slot / self.shape.page_tokens, slot % self.shape.page_tokens);
        let index = self.index(layer, page, head);
        let (kb, vb) = (key_block(&self.shape), value_block(&self.shape));
        let keys = &mut self.k[(index * kb.tiles + slot / COLUMNS) * kb.steps..];
        for (i, x) in key.iter().enumerate() {
            keys[i / STEP].set(i % STEP, slot % COLUMNS, x.to_bits());
        }
        let values = &mut self.v[index * vb.tiles * vb.steps..];
        for (i, x) in value.iter().enumerate() {
            values[i / COLUMNS * vb.steps + slot / STEP].set(slot % STEP, i % COLUMNS, x.to_bits());
        }
    }
}

/// Rows of one sequence in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first row.
    pub first: usize,
    /// Number of rows.
    pub count: usize,
    /// Index of the block table.
    pub sequence: usize,
}

/// The rows of a step, checked against a pool's shape.
pub struct Step {
    pub(crate) rows: StepRows,
    pub(crate) shape: KvShape,
    pub(crate) runs: Vec<Run>,
    pub(crate) wanted: Vec<u32>,
    pub(crate) samples: Vec<SampleParams>,
}

impl Step {
    /// Checks lengths, table and page bounds, distinct slots, that rows of a sequence are adjacent and ascend, and that wanted
    /// rows exist.
    pub fn new(rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Self> {
        check_shape("step", &shape)?;
        let refuse = |expected: String, got: String| Err(Error::new("step", expected, got));
        let n = rows.tokens.len();
        let lengths = [rows.positions.len(), rows.slots.len(), rows.sequences.len()];
        if lengths != [n; 3] {
            return refuse(format!("{n} positions, slots and sequences"), format!("{lengths:?}"));
        }
        let slots = shape.pages * shape.page_tokens;
        let mut seen = HashSet::with_capacity(n);
        for &slot in &rows.slots {
            if slot as usize >= slots || !seen.insert(slot) {
                return refuse(format!("distinct slots below {slots}"), slot.to_string());
            }
        }
        for page in rows.tables.iter().flatten() {
            if *page as usize >= shape.pages {
                return refuse(format!("pages below {}", shape.pages), page.to_string());
            }
        }
        if let Some(row) = wanted.rows.iter().find(|&&row| row as usize >= n) {
            return refuse(format!("wanted rows below {n}"), row.to_string());
        }
        if let Some((row, _)) = rows.taken.iter().find(|(row, _)| *row as usize >= n) {
            return refuse(format!("rows below {n} that take a token"), row.to_string());
        }
        if wanted.samples.len() > wanted.rows.len() {
            let got = format!("{} samples", wanted.samples.len());
            return refuse(format!("at most as many samples as the {} wanted rows", wanted.rows.len()), got);
        }
        let (wanted, samples) = (wanted.rows.to_vec(), wanted.samples.to_vec());
        Ok(Self { rows: rows.clone(), shape, runs: runs(rows, &shape)?, wanted, samples })
    }
}

fn runs(rows: &StepRows, shape: &KvShape) -> Result<Vec<Run>> {
    let refuse = |expected: String, got: String| Err(Error::new("step", expected, got));
    let mut runs: Vec<Run> = Vec::new();
    let mut finished = HashSet::new();
    for (i, (&sequence, &position)) in rows.sequences.iter().zip(&rows.positions).enumerate() {
        let sequence = sequence as usize;
        let Some(table) = rows.tables.get(sequence) else {
            return refuse(format!("sequences below {}", rows.tables.len()), sequence.to_string());
        };
        if position as usize / shape.page_tokens >= table.len() {
            let got = format!("position {position} of sequence {sequence}");
            return refuse(format!("a position within {} pages of {} tokens", table.len(), shape.page_tokens), got);
        }
        match runs.last_mut() {
            Some(run) if run.sequence == sequence => {
                if position <= rows.positions[i - 1] {
                    let got = format!("{} then {position}", rows.positions[i - 1]);
                    return refuse(format!("ascending positions in sequence {sequence}"), got);
                }
                run.count += 1;
            }
            _ => {
                if !finished.insert(sequence) {
                    return refuse("adjacent rows for each sequence".into(), format!("sequence {sequence} twice"));
                }
                runs.push(Run { first: i, count: 1, sequence });
            }
        }
    }
    Ok(runs)
}

//! The rows of a step on the device: everything that its kernels read, in one upload.
//!
//! A step in which every sequence has one row and every row's token is chosen belongs to a class: its rows are padded to one of
//! a few numbers, its positions lie below one of a few horizons. Steps of one class launch the same kernels with the same
//! arguments, so their launches can be replayed (`replays`). The rows that pad write to pages of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::CudaSlice;
use kernels_cuda::params::QueryBlock;

use super::device::{Device, driver};
use super::launch::size;
use super::sample_words;
use crate::backend::{Error, KvShape, Result, StepRows, Wanted};
use crate::cpu::Step as CheckedStep;

/// Columns (rows x group) of a block of the decode kernel: N of mma.sync.
pub const DECODE_COLUMNS: usize = 8;
/// Packed rows (rows x group) of a block of the prefill kernel.
pub const PREFILL_ROWS: usize = 128;
/// Rows of the largest class.
const CLASS_ROWS_MAX: usize = 512;
/// Most rows that pad a step.
pub const PADDING_MAX: usize = 31;
/// The lowest horizon; the others are its doubles.
const HORIZON_MIN: usize = 512;

/// Rows of the class that a step of `rows` rows belongs to. The steps are as fine as they can be where a class costs memory or
/// time: the linear kernels stream weights for 8, 16, 64 or 128 rows alike.
pub fn padded_rows(rows: usize) -> usize {
    match rows {
        0..=2 => rows,
        3..=4 => 4,
        5..=64 => rows.next_multiple_of(8),
        65..=128 => rows.next_multiple_of(16),
        129..=CLASS_ROWS_MAX => rows.next_multiple_of(32),
        _ => rows,
    }
}

/// Steps of one class launch the same kernels with the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// Rows, padding included.
    pub rows: usize,
    /// All positions lie below it.
    pub horizon: usize,
}

/// The class of a step, where it has one.
pub fn class(rows: &StepRows, wanted: &Wanted<'_>) -> Option<Class> {
    let count = rows.tokens.len();
    let decodes = rows.tables.len() == count && rows.sequences.iter().enumerate().all(|(i, &s)| s as usize == i);
    let chosen = wanted.rows.len() == count && wanted.samples.len() == count;
    if count == 0 || count > CLASS_ROWS_MAX || !decodes || !chosen {
        return None;
    }
    let last = rows.positions.iter().max().map_or(0, |&p| p as usize);
    Some(Class { rows: padded_rows(count), horizon: (last + 1).next_power_of_two().max(HORIZON_MIN) })
}

/// How query rows become blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Query heads a KV head.
    pub size: usize,
    /// Never the decode kernel.
    pub one_variant: bool,
}

impl Group {
    /// Whether so many rows of a sequence go to the decode kernel.
    fn decodes(self, rows: usize) -> bool {
        !self.one_variant && rows * self.size <= DECODE_COLUMNS
    }
}

/// Query blocks for one GQA group size.
pub struct Blocks {
    /// For the decode kernel: at most 8 columns each.
    pub decode: Vec<QueryBlock>,
    /// For the prefill kernel: at most 128 packed rows each.
    pub prefill: Vec<QueryBlock>,
    memory: Arc<CudaSlice<u32>>,
    offset: usize,
}

impl Blocks {
    /// Device address of the decode blocks; the prefill blocks follow.
    pub fn address(&self, device: &Device) -> u64 {
        device.address(&self.memory) + 4 * self.offset as u64
    }
}

/// The rows of a step, checked, and their arrays on the device.
pub struct Step {
    pub(super) checked: CheckedStep,
    pub(super) class: Option<Class>,
    memory: Arc<CudaSlice<u32>>,
    /// Says whether the memory still holds this step.
    pub(super) lease: Arc<()>,
    rows: usize,
    wanted: usize,
    samples: usize,
    tables_offset: usize,
    taken_offset: usize,
    table_offsets: Vec<usize>,
    blocks: Mutex<HashMap<Group, Blocks>>,
}

/// A step as it will lie on the device.
pub struct Draft {
    checked: CheckedStep,
    class: Option<Class>,
    /// Every array, one after another.
    pub words: Vec<u32>,
    rows: usize,
    wanted: usize,
    samples: usize,
    tables_offset: usize,
    taken_offset: usize,
    table_offsets: Vec<usize>,
    blocks: Option<(Group, Vec<QueryBlock>, Vec<QueryBlock>, usize)>,
}

impl Draft {
    /// Checks the rows and lays them out, with the query blocks for `group` query heads a KV head where that is known.
    pub fn new(
        rows: &StepRows,
        wanted: &Wanted<'_>,
        shape: KvShape,
        class: Option<Class>,
        group: Option<Group>,
    ) -> Result<Self> {
        const OP: &str = "step";
        let checked = CheckedStep::new(rows, wanted, shape)?;
        let real = rows.tokens.len();
        let padding = class.map_or(0, |class| class.rows - real);
        let (m, w) = (real + padding, wanted.rows.len() + padding);
        let samples = wanted.samples.len() + padding;
        let mut words = Vec::with_capacity(4 * m + 7 * samples);
        let first_slot = shape.pages * shape.page_tokens;
        let pads = |from: usize| (from..from + padding).map(|word| word as u32);
        words.extend(rows.tokens.iter().copied().chain(pads(0).map(|_| 0)));
        words.extend(rows.positions.iter().copied().chain(pads(0).map(|_| 0)));
        words.extend(rows.slots.iter().copied().chain(pads(first_slot)));
        words.extend(wanted.rows.iter().copied().chain(pads(real)));
        words.extend(wanted.samples.iter().flat_map(sample_words));
        words.resize(words.len() + 7 * padding, 0);
        let mut table_offsets = Vec::with_capacity(rows.tables.len());
        let mut entries = 0;
        for table in &rows.tables {
            table_offsets.push(entries);
            entries += table.len();
        }
        let blocks = group.map(|group| query_blocks(&checked, &table_offsets, group)).transpose()?;
        let blocks = blocks.zip(group).map(|((mut decode, mut prefill), group)| {
            let pad = |row| QueryBlock { first_row: row, rows: 1, first_position: 0, table_offset: entries as u32 };
            let padded = if group.decodes(1) { &mut decode } else { &mut prefill };
            padded.extend(pads(real).map(pad));
            let offset = words.len();
            words.extend(decode.iter().chain(&prefill).flat_map(block_words));
            (group, decode, prefill, offset)
        });
        let tables_offset = words.len();
        words.extend(rows.tables.iter().flatten());
        // The page of the rows that pad; without any, a word that keeps the tables from being empty.
        words.push(shape.pages as u32);
        // Two words a pair, on a border of two words.
        words.resize(words.len().next_multiple_of(2), 0);
        let taken_offset = words.len();
        words.extend(rows.taken.iter().flat_map(|&(row, sample)| [row, sample]));
        size(OP, "words of a step", words.len())?;
        Ok(Self {
            checked,
            class,
            words,
            rows: m,
            wanted: w,
            samples,
            tables_offset,
            taken_offset,
            table_offsets,
            blocks,
        })
    }

    /// The step, once its words lie in `memory`.
    pub fn placed(self, memory: Arc<CudaSlice<u32>>, lease: Arc<()>) -> Step {
        let Self { checked, class, rows, wanted, samples, tables_offset, taken_offset, table_offsets, blocks, .. } =
            self;
        let place =
            |(group, decode, prefill, offset)| (group, Blocks { decode, prefill, memory: memory.clone(), offset });
        let blocks = Mutex::new(blocks.map(place).into_iter().collect());
        Step {
            checked,
            class,
            memory,
            lease,
            rows,
            wanted,
            samples,
            tables_offset,
            taken_offset,
            table_offsets,
            blocks,
        }
    }
}

impl Step {
    /// Checks the rows and uploads them to memory of their own.
    pub fn new(device: &Device, rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Self> {
        let draft = Draft::new(rows, wanted, shape, None, None)?;
        let memory = device.stream.clone_htod(&draft.words).map_err(driver("step"))?;
        Ok(draft.placed(Arc::new(memory), Arc::new(())))
    }

    /// Number of rows that are launched.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of wanted rows that are launched.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Number of tokens that are chosen, padding included.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Address of the tokens; positions, slots, wanted rows and sampling parameters follow.
    pub fn tokens(&self, device: &Device) -> u64 {
        device.address(&self.memory)
    }

    /// Address of the positions [rows].
    pub fn positions(&self, device: &Device) -> u64 {
        self.tokens(device) + 4 * self.rows as u64
    }

    /// Address of the slots [rows].
    pub fn slots(&self, device: &Device) -> u64 {
        self.tokens(device) + 8 * self.rows as u64
    }

    /// Address of the wanted rows [wanted].
    pub fn wanted_rows(&self, device: &Device) -> u64 {
        self.tokens(device) + 12 * self.rows as u64
    }

    /// Address of the sampling parameters [samples].
    pub fn sample_rows(&self, device: &Device) -> u64 {
        self.wanted_rows(device) + 4 * self.wanted as u64
    }

    /// Address of the concatenated block tables.
    pub fn tables(&self, device: &Device) -> u64 {
        self.tokens(device) + 4 * self.tables_offset as u64
    }

    /// Address of the pairs (row, sample) of tokens that are taken over.
    pub fn taken(&self, device: &Device) -> u64 {
        self.tokens(device) + 4 * self.taken_offset as u64
    }

    /// Calls `f` with the query blocks for `group` query heads a KV head, made and uploaded on first use.
    pub fn with_blocks<T>(&self, device: &Device, group: usize, f: impl FnOnce(&Blocks) -> Result<T>) -> Result<T> {
        const OP: &str = "attention";
        let mut cache = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let group = Group { size: group, one_variant: device.one_variant };
        if let Some(blocks) = cache.get(&group) {
            return f(blocks);
        }
        if self.rows > self.checked.rows.tokens.len() {
            return Err(Error::new(OP, "the group that the step was made for", group.size.to_string()));
        }
        let (decode, prefill) = query_blocks(&self.checked, &self.table_offsets, group)?;
        let words: Vec<u32> = decode.iter().chain(&prefill).flat_map(block_words).chain([0]).collect();
        let memory = Arc::new(device.stream.clone_htod(&words).map_err(driver(OP))?);
        f(cache.entry(group).or_insert(Blocks { decode, prefill, memory, offset: 0 }))
    }
}

fn block_words(b: &QueryBlock) -> [u32; 4] {
    [b.first_row, b.rows, b.first_position, b.table_offset]
}

/// Blocks for the decode kernel and for the prefill kernel.
fn query_blocks(
    checked: &CheckedStep,
    table_offsets: &[usize],
    group: Group,
) -> Result<(Vec<QueryBlock>, Vec<QueryBlock>)> {
    const OP: &str = "attention";
    let (mut decode, mut prefill) = (Vec::new(), Vec::new());
    for run in &checked.runs {
        // Rows of a run ascend in position but may skip; a block needs consecutive positions.
        let mut first = run.first;
        let end = run.first + run.count;
        while first < end {
            let positions = &checked.rows.positions;
            let consecutive = (first + 1..end).take_while(|&i| positions[i] == positions[i - 1] + 1).count() + 1;
            let few = group.decodes(consecutive);
            let rows = if few { consecutive } else { consecutive.min(PREFILL_ROWS / group.size) };
            let block = QueryBlock {
                first_row: size(OP, "rows", first)?,
                rows: size(OP, "rows", rows)?,
                first_position: positions[first],
                table_offset: size(OP, "block table entries", table_offsets[run.sequence])?,
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
    Ok((decode, prefill))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_only_grow_and_pad_little() {
        for rows in 0..2000 {
            let padded = padded_rows(rows);
            assert!(padded >= rows && padded - rows <= PADDING_MAX && padded_rows(padded) == padded, "{rows}");
            assert!(padded_rows(rows + 1) >= padded);
        }
    }
}

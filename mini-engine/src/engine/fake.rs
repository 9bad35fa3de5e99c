//! A model without arithmetic: KV cells and logits are hashes of what a row has read. A row that reads one wrong cell, in
//! either of its two layers, gets entirely different logits, which makes this the sharpest and fastest test of everything
//! around a model. [`FakeModel::reference`] says what a prefix must give, without pages, steps or an engine. Like a GPU it
//! computes a launched step later, and as late as can be: when it is collected.

use std::collections::VecDeque;

use kernels_rs::backend::{SampleParams, Sampled, StepRows};

use super::noise::{Noise, scramble};
use super::row_model::{Outcome, RowModel, StepOutcome, Want, logits_digest};

/// Vocabulary of the fake model.
pub const VOCAB: usize = 64;
/// The token whose keys and values are not finite.
pub const POISON: u32 = 63;
/// Most tokens of a sequence.
pub const CONTEXT_MAX: usize = 600;

/// Two layers of hashed KV cells.
#[derive(Clone, Debug)]
pub struct FakeModel {
    cells: [Vec<u64>; 2],
    page_tokens: usize,
    steps_until_error: Option<usize>,
    /// Launched and not collected.
    launched: VecDeque<(StepRows, Vec<Want>)>,
    /// The token of each want of the step computed last.
    chosen: Vec<Option<u32>>,
}

/// The error that [`FakeModel::break_after`] asks for.
#[derive(Debug, thiserror::Error)]
#[error("the fake model was told to fail")]
pub struct FakeError;

impl FakeModel {
    /// A pool whose cells start with the garbage of a seed.
    pub fn new(pages: usize, page_tokens: usize, seed: u64) -> Self {
        let mut noise = Noise::new(seed);
        let mut garbage = || (0..pages * page_tokens).map(|_| noise.next_u64()).collect();
        let cells = [garbage(), garbage()];
        Self { cells, page_tokens, steps_until_error: None, launched: VecDeque::new(), chosen: Vec::new() }
    }

    /// Makes the step after the next `steps` ones fail, half way through its writes.
    pub fn break_after(&mut self, steps: usize) {
        self.steps_until_error = Some(steps);
    }

    /// The logits row that follows `tokens`.
    pub fn reference(tokens: &[u32]) -> Vec<f32> {
        let mut layers = [0u64; 2];
        for (position, &token) in tokens.iter().enumerate() {
            layers[0] = fold(layers[0], first_cell(token, position));
            layers[1] = fold(layers[1], second_cell(token, layers[0]));
        }
        logits(layers[1])
    }

    fn slot(&self, rows: &StepRows, row: usize, position: usize) -> usize {
        let table = &rows.tables[rows.sequences[row] as usize];
        table[position / self.page_tokens] as usize * self.page_tokens + position % self.page_tokens
    }

    fn read(&self, layer: usize, rows: &StepRows, row: usize) -> u64 {
        (0..=rows.positions[row] as usize)
            .fold(0, |state, position| fold(state, self.cells[layer][self.slot(rows, row, position)]))
    }
}

fn fold(state: u64, cell: u64) -> u64 {
    scramble(state.wrapping_mul(3).wrapping_add(cell).wrapping_add(0x51))
}

fn first_cell(token: u32, position: usize) -> u64 {
    if token == POISON { 0 } else { scramble(u64::from(token) << 32 | position as u64) }
}

fn second_cell(token: u32, read: u64) -> u64 {
    scramble(read ^ u64::from(token))
}

fn logits(state: u64) -> Vec<f32> {
    // Twenty bits between -8 and 8, so that every value is exact.
    (0..VOCAB as u64).map(|index| (scramble(state.wrapping_add(index)) >> 44) as f32 / 65536.0 - 8.0).collect()
}

/// The fake model's choice: the lowest index among the largest of `logit + temperature * noise`.
pub fn choose(row: &[f32], params: &SampleParams) -> Sampled {
    let key = scramble(params.seed ^ scramble(u64::from(params.position)));
    let noisy = |index: usize| {
        let noise = (scramble(key.wrapping_add(index as u64)) >> 44) as f32 / 65536.0;
        row[index] + params.temperature * noise
    };
    let token = (1..row.len()).fold(0, |best, index| if noisy(index) > noisy(best) { index } else { best });
    Sampled { token: token as u32, logprob: row[token] - 8.0 }
}

impl FakeModel {
    /// One step, two layers one after the other.
    fn compute(&mut self, mut rows: StepRows, wants: &[Want]) -> Result<StepOutcome, FakeError> {
        for (row, want) in std::mem::take(&mut rows.taken) {
            // After a step that failed there is nothing to take, and nobody will look at what comes of it.
            rows.tokens[row as usize] = self.chosen.get(want as usize).copied().flatten().unwrap_or(0);
        }
        self.chosen.clear();
        let rows = &rows;
        let count = rows.tokens.len();
        for row in 0..count {
            self.cells[0][rows.slots[row] as usize] = first_cell(rows.tokens[row], rows.positions[row] as usize);
        }
        if let Some(steps) = self.steps_until_error.take() {
            if steps == 0 {
                return Err(FakeError);
            }
            self.steps_until_error = Some(steps - 1);
        }
        for row in 0..count {
            let read = self.read(0, rows, row);
            self.cells[1][rows.slots[row] as usize] = second_cell(rows.tokens[row], read);
        }
        let outcomes: Vec<Outcome> = wants
            .iter()
            .map(|want| {
                let row = logits(self.read(1, rows, want.row));
                let sampled = want.sample.as_ref().map(|params| choose(&row, params));
                let digest = want.digest.then(|| logits_digest(&row));
                Outcome { sampled, logits: want.logits.then_some(row), digest }
            })
            .collect();
        self.chosen = outcomes.iter().map(|outcome| outcome.sampled.map(|sampled| sampled.token)).collect();
        Ok(StepOutcome { faults: rows.tokens.iter().map(|&token| token == POISON).collect(), outcomes })
    }
}

impl RowModel for FakeModel {
    type Error = FakeError;
    type Flight = ();

    fn vocab(&self) -> usize {
        VOCAB
    }

    fn context_max(&self) -> usize {
        CONTEXT_MAX
    }

    fn choose(&mut self, rows: &[f32], params: &[SampleParams]) -> Result<Vec<Sampled>, FakeError> {
        Ok(rows.chunks(VOCAB).zip(params).map(|(row, params)| choose(row, params)).collect())
    }

    fn launch(&mut self, rows: StepRows, wants: &[Want]) -> Result<(), FakeError> {
        self.launched.push_back((rows, wants.to_vec()));
        Ok(())
    }

    fn collect(&mut self, (): ()) -> Result<StepOutcome, FakeError> {
        let (rows, wants) = self.launched.pop_front().expect("as many steps are collected as are launched");
        self.compute(rows, &wants)
    }
}

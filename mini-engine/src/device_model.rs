//! A loaded model with a KV pool of its own, as the engine wants it: the bridge between `model` and `engine`.

use std::sync::Arc;

use kernels_rs::backend::{Backend, SampleParams, Sampled, StepRows, Wanted};

use crate::engine::{EngineConfig, Outcome, RowModel, StepOutcome, Want, logits_digest};
use crate::model::{Error, KvPool, Launched, Model, Result, StepResult, Workspace};

/// Weights, which may be shared, and the memory of one engine.
pub struct DeviceModel<B: Backend> {
    model: Arc<Model<B>>,
    pool: KvPool<B>,
    workspace: Workspace<B>,
    poison_token: Option<u32>,
    /// For each want of the step launched last, the place of its sample.
    samples: Vec<u32>,
}

/// A step on its way, and how its rows belong to what was wanted.
pub struct Flight<B: Backend> {
    launched: Launched<B>,
    /// Wants in the order of their logits rows.
    order: Vec<usize>,
    wants: Vec<Want>,
}

impl<B: Backend> DeviceModel<B> {
    /// Memory for an engine of this configuration.
    pub fn new(model: Arc<Model<B>>, config: &EngineConfig) -> Result<Self> {
        Self::with_replays(model, config, true)
    }

    /// The same for engines whose requests want only the rows that tokens are chosen from: a step has no more of them than
    /// requests that run.
    pub fn for_tokens(model: Arc<Model<B>>, config: &EngineConfig) -> Result<Self> {
        let pool = model.kv_pool(config.pages, config.page_tokens)?;
        let workspace = model.workspace(config.step_rows_max, config.running_max.min(config.step_rows_max))?;
        Ok(Self { model, pool, workspace, poison_token: None, samples: Vec::new() })
    }

    /// The same; without `record` every step is launched anew.
    pub fn with_replays(model: Arc<Model<B>>, config: &EngineConfig, record: bool) -> Result<Self> {
        let pool = model.kv_pool(config.pages, config.page_tokens)?;
        let workspace = model.workspace_with(config.step_rows_max, config.step_rows_max, record)?;
        Ok(Self { model, pool, workspace, poison_token: None, samples: Vec::new() })
    }

    /// The weights.
    pub fn model(&self) -> &Arc<Model<B>> {
        &self.model
    }

    /// Steps whose launches were replayed.
    pub fn replayed(&self) -> u64 {
        self.workspace.replayed(self.model.backend())
    }

    /// The pool, for tests that fill it with garbage.
    pub fn pool_mut(&mut self) -> &mut KvPool<B> {
        &mut self.pool
    }

    /// Makes the hidden state of every row with this token NaN: how tests make a request fault.
    pub fn poison(&mut self, token: u32) {
        self.poison_token = Some(token);
    }
}

impl<B: Backend> RowModel for DeviceModel<B> {
    type Error = Error;
    type Flight = Flight<B>;

    fn vocab(&self) -> usize {
        self.model.config().vocab
    }

    fn context_max(&self) -> usize {
        self.model.config().context
    }

    fn choose(&mut self, rows: &[f32], params: &[SampleParams]) -> Result<Vec<Sampled>> {
        let backend = self.model.backend();
        Ok(backend.sample(self.vocab(), &backend.upload(rows)?, params)?)
    }

    fn launch(&mut self, mut rows: StepRows, wants: &[Want]) -> Result<Flight<B>> {
        // The backend samples the first rows of the logits, so those that are sampled come first; among these, those that the
        // host wants to see, so that no other row is read with them unless rows are wanted that are not sampled.
        let on_host = |want: usize| wants[want].logits || wants[want].digest;
        let mut order: Vec<usize> = (0..wants.len()).collect();
        order.sort_by_key(|&want| (wants[want].sample.is_none(), !on_host(want)));
        let logits_rows: Vec<u32> = order.iter().map(|&want| wants[want].row as u32).collect();
        let params: Vec<SampleParams> = order.iter().filter_map(|&want| wants[want].sample).collect();
        let wanted = Wanted { rows: &logits_rows, samples: &params };
        for (_, want) in &mut rows.taken {
            // A want that there was none of becomes a sample that there was none of, which the model refuses.
            *want = self.samples.get(*want as usize).copied().unwrap_or(u32::MAX);
        }
        let seen = order.iter().rposition(|&want| on_host(want)).map_or(0, |last| last + 1);
        let (workspace, pool) = (&mut self.workspace, &mut self.pool);
        let launched = self.model.launch(workspace, pool, &rows, &wanted, seen, self.poison_token)?;
        self.samples = vec![u32::MAX; wants.len()];
        for (place, &want) in order.iter().take(params.len()).enumerate() {
            self.samples[want] = place as u32;
        }
        Ok(Flight { launched, order, wants: wants.to_vec() })
    }

    fn collect(&mut self, flight: Flight<B>) -> Result<StepOutcome> {
        let Flight { launched, order, wants } = flight;
        let StepResult { faults, sampled, logits } = self.model.collect(launched)?;
        let vocab = self.vocab();
        let mut outcomes = vec![Outcome::default(); wants.len()];
        for (index, &want) in order.iter().enumerate() {
            let row = || &logits[index * vocab..(index + 1) * vocab];
            outcomes[want] = Outcome {
                sampled: sampled.get(index).copied(),
                logits: wants[want].logits.then(|| row().to_vec()),
                digest: wants[want].digest.then(|| logits_digest(row())),
            };
        }
        Ok(StepOutcome { faults, outcomes })
    }
}

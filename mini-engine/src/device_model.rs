//! A loaded model with a KV pool of its own, as the engine wants it: the bridge between `model` and `engine`.

use std::sync::Arc;

use kernels_rs::backend::{Backend, SampleParams, Sampled, StepRows};

use crate::engine::{EngineConfig, Outcome, RowModel, StepOutcome, Want, logits_digest};
use crate::model::{Error, KvPool, Model, Result, Workspace};

/// Weights, which may be shared, and the memory of one engine.
pub struct DeviceModel<B: Backend> {
    model: Arc<Model<B>>,
    pool: KvPool<B>,
    workspace: Workspace<B>,
    poison_token: Option<u32>,
}

impl<B: Backend> DeviceModel<B> {
    /// Memory for an engine of this configuration.
    pub fn new(model: Arc<Model<B>>, config: &EngineConfig) -> Result<Self> {
        let pool = model.kv_pool(config.pages, config.page_tokens)?;
        let workspace = model.workspace(config.step_rows_max, config.step_rows_max)?;
        Ok(Self { model, pool, workspace, poison_token: None })
    }

    /// The weights.
    pub fn model(&self) -> &Arc<Model<B>> {
        &self.model
    }

    /// The pool, for tests that fill it with garbage.
    pub fn pool_mut(&mut self) -> &mut KvPool<B> {
        &mut self.pool
    }

    /// Makes the hidden state of every row with this token NaN: how tests make a request fault.
    pub fn poison(&mut self, token: u32) {
        self.poison_token = Some(token);
    }

    fn poisoned_rows(&self, rows: &StepRows) -> Vec<u32> {
        let Some(poison) = self.poison_token else { return Vec::new() };
        (0..).zip(&rows.tokens).filter(|(_, token)| **token == poison).map(|(row, _)| row).collect()
    }
}

impl<B: Backend> RowModel for DeviceModel<B> {
    type Error = Error;

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

    fn forward(&mut self, rows: &StepRows, wants: &[Want]) -> Result<StepOutcome> {
        // The backend samples the first rows of the logits, so those that are sampled come first; among these, those that the
        // host wants to see, so that no other row is downloaded with them unless rows are wanted that are not sampled.
        let on_host = |want: usize| wants[want].logits || wants[want].digest;
        let mut order: Vec<usize> = (0..wants.len()).collect();
        order.sort_by_key(|&want| (wants[want].sample.is_none(), !on_host(want)));
        let logits_rows: Vec<u32> = order.iter().map(|&want| wants[want].row as u32).collect();
        let poisoned = self.poisoned_rows(rows);
        let faults = self.model.forward_poisoned(&mut self.workspace, &mut self.pool, rows, &logits_rows, &poisoned)?;

        let params: Vec<SampleParams> = order.iter().filter_map(|&want| wants[want].sample).collect();
        let vocab = self.vocab();
        let backend = self.model.backend();
        let sampled =
            if params.is_empty() { Vec::new() } else { backend.sample(vocab, self.workspace.logits(), &params)? };
        let last = order.iter().rposition(|&want| on_host(want));
        let host = match last {
            Some(last) => backend.download(self.workspace.logits(), (last + 1) * vocab)?,
            None => Vec::new(),
        };
        let mut outcomes = vec![Outcome::default(); wants.len()];
        for (index, &want) in order.iter().enumerate() {
            let row = || &host[index * vocab..(index + 1) * vocab];
            outcomes[want] = Outcome {
                sampled: sampled.get(index).copied(),
                logits: wants[want].logits.then(|| row().to_vec()),
                digest: wants[want].digest.then(|| logits_digest(row())),
            };
        }
        Ok(StepOutcome { faults, outcomes })
    }
}

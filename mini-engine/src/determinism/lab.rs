//! Where subjects are run: anything that can make a model with fresh memory, again and again.

use std::rc::Rc;
use std::sync::Arc;

use half::bf16;
use kernels_rs::backend::{Backend, SampleParams, Sampled};

use super::bench::{PAGE_TOKENS, Trouble};
use super::subject::Subject;
use crate::device_model::DeviceModel;
use crate::engine::fake::{self, FakeModel};
use crate::engine::{Engine, EngineConfig, Event, RowModel};
use crate::model::{Error, Model};

/// Makes models with fresh memory.
pub trait Lab: Sized {
    /// What runs under the engine.
    type Model: RowModel;

    /// One line for the report's head.
    fn describe(&self) -> String;
    /// Vocabulary size.
    fn vocab(&self) -> usize;
    /// A token whose rows are made to fault.
    fn poison_token(&self) -> u32;
    /// A model with memory of its own, filled with garbage that depends on `garbage`.
    fn model(&self, config: &EngineConfig, garbage: u64) -> Result<Self::Model, <Self::Model as RowModel>::Error>;
    /// What the sampler must choose from a logits row.
    fn sample(&self, row: &[f32], params: &SampleParams) -> Result<Sampled, <Self::Model as RowModel>::Error>;
    /// The same lab with every step launched anew; `None` where launches are never replayed.
    fn without_replays(&self) -> Option<Self>;
    /// Steps of a model whose launches were replayed.
    fn replayed(model: &Self::Model) -> u64;
    /// Whether every relation runs ahead of the device.
    fn runs_ahead(&self) -> bool;
    /// Whether the number of worker threads can be chosen.
    fn has_threads(&self) -> bool;
    /// The same lab on another number of worker threads; `None` where that cannot be chosen.
    fn on_threads(&self, threads: usize) -> Option<Result<Self, <Self::Model as RowModel>::Error>>;
}

/// Says what is right: logits rows of a request alone, cold, in one prefill, and the choice from a row.
pub trait Referee {
    /// One line for the report's head.
    fn describe(&self) -> String;
    /// The rows that a subject is compared in.
    fn rows(&self, subject: &Subject) -> Result<Vec<Vec<f32>>, Trouble>;
    /// What the sampler must choose from a row.
    fn sample(&self, row: &[f32], params: &SampleParams) -> Result<Sampled, Trouble>;
}

impl<L: Lab> Referee for L {
    fn describe(&self) -> String {
        Lab::describe(self)
    }

    fn rows(&self, subject: &Subject) -> Result<Vec<Vec<f32>>, Trouble> {
        let tokens = subject.tokens.len();
        let pages = tokens.div_ceil(PAGE_TOKENS);
        let config = EngineConfig { page_tokens: PAGE_TOKENS, pages, step_rows_max: tokens, ..EngineConfig::default() };
        let mut engine = Engine::new(self.model(&config, 0)?, config)?;
        engine.submit(subject.reference_request())?;
        let mut rows = Vec::new();
        for event in engine.step()? {
            if let Event::Logits { row, .. } = event {
                rows.push(row);
            }
        }
        if rows.len() != tokens - subject.watch_from || engine.stats().steps != 1 {
            return Err("the reference did not come from one prefill".into());
        }
        Ok(rows)
    }

    fn sample(&self, row: &[f32], params: &SampleParams) -> Result<Sampled, Trouble> {
        Ok(Lab::sample(self, row, params)?)
    }
}

/// Loads the same model for another number of worker threads.
pub type Reload<B> = Rc<dyn Fn(usize) -> Result<Arc<Model<B>>, Error>>;

/// A loaded model on a backend.
pub struct DeviceLab<B: Backend> {
    /// The weights.
    pub model: Arc<Model<B>>,
    /// How to get them on other threads.
    pub reload: Option<Reload<B>>,
    /// Whether launches are recorded and replayed where the backend can.
    pub replays: bool,
    /// Whether every relation runs ahead of the device.
    pub run_ahead: bool,
}

impl<B: Backend> Lab for DeviceLab<B> {
    type Model = DeviceModel<B>;

    fn describe(&self) -> String {
        let config = self.model.config();
        format!(
            "{:?}, {} layers, vocabulary {}, on {} in {:?} arithmetic",
            config.family,
            config.layers,
            config.vocab,
            self.model.backend().name(),
            self.model.backend().arithmetic()
        )
    }

    fn vocab(&self) -> usize {
        self.model.config().vocab
    }

    fn poison_token(&self) -> u32 {
        self.model.config().vocab as u32 - 1
    }

    fn model(&self, config: &EngineConfig, garbage: u64) -> Result<Self::Model, Error> {
        let mut model = DeviceModel::with_replays(self.model.clone(), config, self.replays)?;
        // NaN, infinity, huge and small: what a recycled page may hold.
        let values = [bf16::NAN, bf16::INFINITY, bf16::MAX, bf16::from_f32(-3.0)];
        let value = values[(garbage % values.len() as u64) as usize];
        self.model.backend().kv_fill(model.pool_mut().inner_mut(), value)?;
        model.poison(self.poison_token());
        Ok(model)
    }

    fn sample(&self, row: &[f32], params: &SampleParams) -> Result<Sampled, Error> {
        let backend = self.model.backend();
        let logits = backend.upload(row)?;
        Ok(backend.sample(row.len(), &logits, std::slice::from_ref(params))?[0])
    }

    fn without_replays(&self) -> Option<Self> {
        let lab = || Self { model: self.model.clone(), reload: self.reload.clone(), replays: false, ..*self };
        (self.replays && self.model.backend().can_replay()).then(lab)
    }

    fn replayed(model: &Self::Model) -> u64 {
        model.replayed()
    }

    fn runs_ahead(&self) -> bool {
        self.run_ahead
    }

    fn has_threads(&self) -> bool {
        self.reload.is_some()
    }

    fn on_threads(&self, threads: usize) -> Option<Result<Self, Error>> {
        let reload = self.reload.clone()?;
        Some(reload(threads).map(|model| Self { model, reload: Some(reload), ..*self }))
    }
}

/// The fake model: tests the harness itself in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeLab {
    /// Whether every relation runs ahead of the device.
    pub run_ahead: bool,
}

impl Lab for FakeLab {
    type Model = FakeModel;

    fn describe(&self) -> String {
        "fake model".into()
    }

    fn vocab(&self) -> usize {
        fake::VOCAB
    }

    fn poison_token(&self) -> u32 {
        fake::POISON
    }

    fn model(&self, config: &EngineConfig, garbage: u64) -> Result<FakeModel, fake::FakeError> {
        Ok(FakeModel::new(config.pages, config.page_tokens, garbage))
    }

    fn sample(&self, row: &[f32], params: &SampleParams) -> Result<Sampled, fake::FakeError> {
        Ok(fake::choose(row, params))
    }

    fn without_replays(&self) -> Option<Self> {
        None
    }

    fn replayed(_model: &FakeModel) -> u64 {
        0
    }

    fn runs_ahead(&self) -> bool {
        self.run_ahead
    }

    fn has_threads(&self) -> bool {
        true
    }

    fn on_threads(&self, _threads: usize) -> Option<Result<Self, fake::FakeError>> {
        Some(Ok(*self))
    }
}

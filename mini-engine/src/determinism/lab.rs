//! Where subjects are run: anything that can make a model with fresh memory, again and again.

use std::rc::Rc;
use std::sync::Arc;

use half::bf16;
use kernels_rs::backend::{Backend, SampleParams, Sampled};

use crate::device_model::DeviceModel;
use crate::engine::fake::{self, FakeModel};
use crate::engine::{EngineConfig, RowModel};
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
    /// Whether the number of worker threads can be chosen.
    fn has_threads(&self) -> bool;
    /// The same lab on another number of worker threads; `None` where that cannot be chosen.
    fn on_threads(&self, threads: usize) -> Option<Result<Self, <Self::Model as RowModel>::Error>>;
}

/// Loads the same model for another number of worker threads.
pub type Reload<B> = Rc<dyn Fn(usize) -> Result<Arc<Model<B>>, Error>>;

/// A loaded model on a backend.
pub struct DeviceLab<B: Backend> {
    /// The weights.
    pub model: Arc<Model<B>>,
    /// How to get them on other threads.
    pub reload: Option<Reload<B>>,
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
        let mut model = DeviceModel::new(self.model.clone(), config)?;
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

    fn has_threads(&self) -> bool {
        self.reload.is_some()
    }

    fn on_threads(&self, threads: usize) -> Option<Result<Self, Error>> {
        let reload = self.reload.clone()?;
        Some(reload(threads).map(|model| Self { model, reload: Some(reload) }))
    }
}

/// The fake model: tests the harness itself in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeLab;

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

    fn has_threads(&self) -> bool {
        true
    }

    fn on_threads(&self, _threads: usize) -> Option<Result<Self, fake::FakeError>> {
        Some(Ok(*self))
    }
}

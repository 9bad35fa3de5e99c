//! Everything about models: where they come from, what they are, their text side and their forward pass.
//!
//! ```text
//! Source::parse("smollm2") -> Source -> open() -> Checkpoint { config, tokenizer, chat, tensors }
//! Model::load(checkpoint, backend) -> Model -> forward(workspace, pool, rows) -> logits
//! ```
//!
//! Nothing here knows of requests, schedules or caches.

pub mod chat;
pub mod config;
pub mod error;
pub mod forward;
pub mod gguf;
pub mod huggingface;
pub mod known;
pub mod load;
pub mod plan;
pub mod random;
pub mod rope;
pub mod smollm2;
pub mod tensor;
pub mod tiny;
pub mod tokenizer;

mod mapped;
mod source;

pub use chat::{ChatTemplate, Message};
pub use config::{Config, Family};
pub use error::{Error, Result};
pub use forward::{KvPool, Launched, Model, StepResult, Workspace};
pub use load::LoadOptions;
pub use plan::Plan;
pub use random::RandomModel;
pub use source::Source;
pub use tensor::TensorSource;
pub use tiny::Tiny;
pub use tokenizer::{StreamDecoder, Tokenizer};

/// A model that was found and whose headers were read and checked; the weights are still on disk.
pub struct Checkpoint {
    /// What to call it in messages: a path or a short name.
    pub name: String,
    /// Its shape.
    pub config: Config,
    /// Its vocabulary.
    pub tokenizer: Tokenizer,
    /// Its chat template, where it ships one.
    pub chat: Option<ChatTemplate>,
    /// Sampling that its makers recommend.
    pub defaults: GenerationDefaults,
    /// Its weights.
    pub tensors: Box<dyn TensorSource>,
}

/// Sampling settings that a model ships; `None` where it has no opinion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Temperature.
    pub temperature: Option<f32>,
    /// Top-k.
    pub top_k: Option<u32>,
    /// Top-p.
    pub top_p: Option<f32>,
    /// Min-p.
    pub min_p: Option<f32>,
}

/// How far loading has come, in tensor groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Groups done.
    pub done: usize,
    /// Groups in all.
    pub total: usize,
}

/// Deliberate batch dependence for negative controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The LM head's chunk count follows the number of rows of the step.
    KSplit,
    /// The attention tile follows the number of rows of the step.
    KvSplit,
}

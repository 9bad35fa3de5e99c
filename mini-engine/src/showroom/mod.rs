//! The experiment behind the server's page: one prompt, answered alone and then in the midst of strangers, on engines of its own.
//!
//! [`Showroom`] holds the model twice, as it is and with a deliberate dependence on the batch, over one set of weights. Every lane
//! of the experiment gets a fresh engine with its own KV pool, so that nobody else is in its batches and no other user ever
//! meets the broken one. What is not here: HTTP.

mod crowd;
mod lane;

use std::sync::Arc;

use kernels_rs::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::engine::{Refusal, Request, Sampling};
use crate::model::{ChatTemplate, Error, Message, Model, Tokenizer};
use crate::receipt::{Digest, Identity, PromptSource, Receipt};
use lane::Lane;

/// The page itself: one file without references to others.
pub const PAGE: &str = include_str!("index.html");

/// Longest prompt, in bytes.
pub const PROMPT_BYTES_MAX: usize = 4000;
/// Most tokens of an answer.
pub const TOKENS_MAX: usize = 64;
/// Most crowds.
pub const CROWDS_MAX: usize = 4;
/// Most strangers in a crowd.
pub const OTHERS_MAX: usize = 16;

/// What a visitor asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The question; a user's message where the model has a chat template.
    pub prompt: String,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    /// 0 chooses the most likely token.
    pub temperature: f32,
    /// Key of the noise.
    pub seed: u64,
    /// How often the answer is computed among strangers.
    pub crowds: usize,
    /// Most strangers at a time.
    pub others: usize,
    /// Decides who the strangers are.
    pub crowd_seed: u64,
    /// Whether to use the broken engine.
    pub broken: bool,
}

impl Ask {
    /// Refuses what is out of range, naming the field.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let within = |field, value: usize, min: usize, max: usize| {
            let fits = (min..=max).contains(&value);
            fits.then_some(()).ok_or_else(|| OutOfRange {
                field,
                expected: format!("{min} to {max}"),
                got: value.to_string(),
            })
        };
        if self.prompt.is_empty() || self.prompt.len() > PROMPT_BYTES_MAX {
            let expected = format!("1 to {PROMPT_BYTES_MAX} bytes");
            return Err(OutOfRange { field: "prompt", expected, got: format!("{} bytes", self.prompt.len()) });
        }
        within("max_tokens", self.max_tokens, 1, TOKENS_MAX)?;
        within("crowds", self.crowds, 0, CROWDS_MAX)?;
        within("others", self.others, 1, OTHERS_MAX)?;
        if !(0.0..=2.0).contains(&self.temperature) {
            let got = self.temperature.to_string();
            return Err(OutOfRange { field: "temperature", expected: "0 to 2".into(), got });
        }
        Ok(())
    }
}

/// A field of a visitor's request that is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}, got {got}")]
pub struct OutOfRange {
    /// The field.
    pub field: &'static str,
    /// Its range.
    pub expected: String,
    /// Its value.
    pub got: String,
}

/// What is reported while the experiment runs, one JSON object each.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Line {
    /// A token of a lane; lane 0 is the answer computed alone.
    Token {
        /// Lane.
        lane: usize,
        /// Token.
        token: Token,
    },
    /// A lane is complete.
    End {
        /// Lane.
        lane: usize,
        /// How it ended.
        end: LaneEnd,
    },
    /// Everything is complete: the receipt of lane 0.
    Receipt {
        /// It.
        receipt: Box<Receipt>,
    },
}

/// A token as the page shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Token {
    /// The text that it completes.
    pub text: String,
    /// Whether it ends the answer.
    pub stop: bool,
    /// Digest of the logits row that it was chosen from.
    pub logits: Digest,
    /// Strangers in the engine at that step.
    pub others: usize,
}

/// The end of a lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneEnd {
    /// The whole answer.
    pub text: String,
    /// Digest of its receipt.
    pub receipt: Digest,
    /// Strangers over time.
    pub strangers: usize,
    /// Those that came while the answer was being computed.
    pub late: usize,
    /// Those that went away before their own answer was complete.
    pub left: usize,
}

/// Why the experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The request cannot run.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The model cannot be run, or cannot read the prompt.
    #[error(transparent)]
    Model(#[from] Error),
    /// The request failed.
    #[error(transparent)]
    Failed(#[from] crate::engine::Failure),
}

/// The text side of the model on show.
#[derive(Clone, Copy)]
pub struct Voice<'a> {
    /// Its vocabulary.
    pub tokenizer: &'a Tokenizer,
    /// Its chat template.
    pub chat: Option<&'a ChatTemplate>,
    /// Tokens that end an answer.
    pub eos: &'a [u32],
}

/// Takes the lines; false ends the experiment.
pub type Emit<'a> = &'a mut dyn FnMut(Line) -> bool;

/// Runs experiments, on whatever backend.
pub trait Stage: Send + Sync {
    /// Runs one that was checked, line by line.
    fn run(&self, voice: Voice<'_>, ask: &Ask, emit: Emit<'_>) -> Result<(), Trouble>;
    /// Name of the arithmetic.
    fn arithmetic(&self) -> &'static str;
}

/// A model, as it is and broken.
pub struct Showroom<B: Backend> {
    sound: Arc<Model<B>>,
    broken: Arc<Model<B>>,
    identity: Arc<Identity>,
}

impl<B: Backend> Showroom<B> {
    /// A showroom over a loaded model's weights.
    pub fn new(model: Arc<Model<B>>, identity: Arc<Identity>) -> Self {
        Self { broken: Arc::new(model.with_kv_split_by_batch()), sound: model, identity }
    }
}

impl<B: Backend> Stage for Showroom<B> {
    fn run(&self, voice: Voice<'_>, ask: &Ask, emit: Emit<'_>) -> Result<(), Trouble> {
        let model = if ask.broken { &self.broken } else { &self.sound };
        let (request, source, text) = request(voice, ask)?;
        let mut alone = None;
        for lane in 0..=ask.crowds {
            let lane = Lane { index: lane, ask, voice, model, request: &request };
            let recorder = lane.recorder(self.identity.clone(), source, &text);
            let Some(receipt) = lane.run(recorder, emit)? else { return Ok(()) };
            alone.get_or_insert(receipt);
        }
        if let Some(receipt) = alone {
            emit(Line::Receipt { receipt: Box::new(receipt) });
        }
        Ok(())
    }

    fn arithmetic(&self) -> &'static str {
        self.identity.arithmetic.name()
    }
}

/// The visitor's request, and the text that its prompt was cut from.
fn request(voice: Voice<'_>, ask: &Ask) -> Result<(Request, PromptSource, String), Error> {
    let (prompt, source, text) = match voice.chat {
        Some(chat) => {
            let text = chat.render(&[Message::new("user", &ask.prompt)])?;
            (voice.tokenizer.encode(&text)?, PromptSource::Template, text)
        }
        None => (voice.tokenizer.encode_prompt(&ask.prompt)?, PromptSource::Text, ask.prompt.clone()),
    };
    let request = Request {
        prompt,
        sampling: Sampling { temperature: ask.temperature, seed: ask.seed, ..Sampling::default() },
        stop_tokens: voice.eos.to_vec(),
        tokens_max: ask.max_tokens,
        digest_logits: true,
        ..Request::default()
    };
    Ok((request, source, text))
}

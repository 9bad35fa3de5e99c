//! `demo`: everything at once on a bare machine.

use std::rc::Rc;

use clap::Args;
use kernels_rs::backend::Backend;
use mini_engine::determinism::Scale;
use mini_engine::engine::{EngineConfig, Request};
use mini_engine::model::Checkpoint;
use mini_engine::stop::StopMatcher;

use super::Failure;
use super::determinism::compare;
use super::generate::{Printer, stream};
use super::session::{Device, ModelArgs, on_backend};

/// Tokens of the answer.
const TOKENS_MAX: usize = 24;

/// Fetch a small model, let it answer, and compare its logits by bits
#[derive(Debug, Args)]
pub struct Demo {
    #[command(flatten)]
    model: ModelArgs,
    /// Text to continue
    #[arg(long, default_value = "The capital of France is")]
    prompt: String,
}

impl Demo {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        let checkpoint = self.model.open()?;
        let prompt = checkpoint.tokenizer.encode_prompt(&self.prompt)?;
        on_backend!(self.model.compute, |device| self.run_on(device, &checkpoint, prompt))
    }

    fn run_on<B: Backend>(
        &self,
        device: Device<B>,
        checkpoint: &Rc<Checkpoint>,
        prompt: Vec<u32>,
    ) -> Result<(), Failure> {
        let model = device.load(checkpoint, None)?;
        println!("{}: {} layers, vocabulary {}", checkpoint.name, checkpoint.config.layers, checkpoint.config.vocab);
        let pages = (prompt.len() + TOKENS_MAX).div_ceil(EngineConfig::default().page_tokens);
        let config = EngineConfig { pages, ..EngineConfig::default() };
        let request = Request {
            prompt,
            stop_tokens: checkpoint.config.eos.clone(),
            tokens_max: TOKENS_MAX,
            ..Request::default()
        };
        print!("> {}", self.prompt);
        let mut printer = Printer::new(&checkpoint.tokenizer, StopMatcher::new(["\n".into()]), false);
        let ran = stream(model.clone(), config, request, &mut printer, None)?;
        printer.end()?;
        println!("{}\n", ran.speed);
        let report = compare(&device, checkpoint, model, None, &Scale::quick(), None)?;
        if report.all_equal() { Ok(()) } else { Err(Failure::Different) }
    }
}

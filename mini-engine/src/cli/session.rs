//! From `--model`, `--arithmetic` and `--threads` to a loaded model.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kernels_rs::cpu::Cpu;
use mini_engine::model::{self, Checkpoint, LoadOptions, Model, Source};
use reduction_tree::arithmetic;

use super::Failure;

/// Most worker threads that are started.
const THREADS_MAX: usize = 1024;

/// What to run, and how it rounds.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// A Hugging Face folder, a GGUF file, `smollm2` (fetched once) or `tiny[:llama|qwen2|qwen3[:SEED]]` (random)
    #[arg(long, default_value = "smollm2")]
    pub model: String,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// How it rounds, and who computes.
#[derive(Clone, Debug, Args)]
pub struct ComputeArgs {
    /// Rounding of matrix products
    #[arg(long, value_enum, default_value_t = Arithmetic::Sm90)]
    pub arithmetic: Arithmetic,
    /// Worker threads; 0 means as many as the machine has
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
}

/// Names of the arithmetics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arithmetic {
    /// IEEE-754 binary32 FMAs
    Ieee,
    /// Tensor cores of H100 and H200
    Sm90,
    /// Tensor cores of A100, L40 and RTX 30/40
    Sm80,
}

impl From<Arithmetic> for arithmetic::Arithmetic {
    fn from(name: Arithmetic) -> Self {
        match name {
            Arithmetic::Ieee => Self::Ieee,
            Arithmetic::Sm90 => Self::Sm90,
            Arithmetic::Sm80 => Self::Sm80,
        }
    }
}

impl ModelArgs {
    /// Finds the model and reads everything but its weights.
    pub fn open(&self) -> Result<Rc<Checkpoint>, Failure> {
        Ok(Rc::new(Source::parse(&self.model)?.open()?))
    }
}

impl ComputeArgs {
    /// Loads the weights onto the CPU, with a progress bar where there is a terminal.
    pub fn load(&self, checkpoint: &Checkpoint, broken: Option<model::Break>) -> Result<Arc<Model<Cpu>>, Failure> {
        if self.threads > THREADS_MAX {
            return Err(Failure::input(format!("--threads: expected at most {THREADS_MAX}, got {}", self.threads)));
        }
        let bar = ProgressBar::new(0).with_message(format!("loading {}", checkpoint.name));
        bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}").expect("a fixed template"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let model = self.load_on(checkpoint, broken, self.threads, &mut |progress| {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
        });
        bar.finish_and_clear();
        Ok(model?)
    }

    /// Loads the weights for a number of worker threads.
    pub fn load_on(
        &self,
        checkpoint: &Checkpoint,
        broken: Option<model::Break>,
        threads: usize,
        progress: &mut dyn FnMut(model::Progress),
    ) -> model::Result<Arc<Model<Cpu>>> {
        let backend = Arc::new(Cpu::new(self.arithmetic.into(), threads)?);
        Ok(Arc::new(Model::load(checkpoint, backend, LoadOptions { broken }, progress)?))
    }
}

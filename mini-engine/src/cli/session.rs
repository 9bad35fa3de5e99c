//! From `--model`, `--backend`, `--arithmetic` and `--threads` to a loaded model.
//!
//! Commands are written once, generic over the backend; [`on_backend!`] runs one on the backend that the arguments name.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kernels_rs::backend::Backend;
use kernels_rs::cpu::Cpu;
#[cfg(feature = "cuda")]
use kernels_rs::cuda::Cuda;
use mini_engine::determinism::lab::Reload;
use mini_engine::model::known::Known;
use mini_engine::model::{self, Checkpoint, LoadOptions, Model, Source};
use reduction_tree::arithmetic;

use super::Failure;

/// Most worker threads that are started.
const THREADS_MAX: usize = 1024;

/// What to run, and how it rounds.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// A Hugging Face folder, a GGUF file, `smollm2` (fetched once), `tiny[:llama|qwen2|qwen3[:SEED]]` or
    /// `random:llama-3.1-8b|qwen3-8b|qwen3-0.6b|qwen2.5-0.5b|config.json[,layers=N][,seed=S]` (random weights)
    #[arg(long, default_value = "smollm2")]
    pub model: String,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// How it rounds, and who computes.
#[derive(Clone, Debug, Args)]
pub struct ComputeArgs {
    /// Where the model runs
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    pub backend: BackendName,
    /// Which GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
    /// Rounding of matrix products: sm90 unless given; a GPU has its own
    #[arg(long, value_enum)]
    pub arithmetic: Option<Arithmetic>,
    /// On a GPU, one kernel for each operator whatever the batch: the same bits, to see what choosing among variants is worth
    #[arg(long)]
    pub one_variant: bool,
    /// On a GPU, plan each step only when the one before is done: the same bits, to see what planning ahead is worth
    #[arg(long)]
    pub no_overlap: bool,
    /// Worker threads of the CPU; 0 means as many as the machine has
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
}

/// Names of the backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// Any machine
    Cpu,
    /// A GPU of NVIDIA, compute capability 8.0 or later
    Cuda,
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

impl Arithmetic {
    /// The arithmetic of a name in a receipt.
    pub fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|known| arithmetic::Arithmetic::from(*known).name() == name)
    }
}

impl From<arithmetic::Arithmetic> for Arithmetic {
    fn from(arithmetic: arithmetic::Arithmetic) -> Self {
        match arithmetic {
            arithmetic::Arithmetic::Ieee => Self::Ieee,
            arithmetic::Arithmetic::Sm90 => Self::Sm90,
            arithmetic::Arithmetic::Sm80 => Self::Sm80,
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
    /// The CPU, as the arguments want it.
    pub fn cpu(&self) -> Result<Device<Cpu>, Failure> {
        if self.threads > THREADS_MAX {
            return Err(Failure::input(format!("--threads: expected at most {THREADS_MAX}, got {}", self.threads)));
        }
        let arithmetic = self.arithmetic.unwrap_or(Arithmetic::Sm90).into();
        let backend = Arc::new(Cpu::new(arithmetic, self.threads)?);
        Ok(Device {
            backend,
            on_threads: Some(Rc::new(move |threads| Cpu::new(arithmetic, threads))),
            card: None,
            run_ahead: false,
        })
    }

    /// The GPU that the arguments name.
    #[cfg(feature = "cuda")]
    pub fn cuda(&self) -> Result<Device<Cuda>, Failure> {
        let cuda = if self.one_variant { Cuda::one_variant(self.gpu)? } else { Cuda::new(self.gpu)? };
        let own = cuda.arithmetic();
        if let Some(asked) = self.arithmetic.map(arithmetic::Arithmetic::from).filter(|&asked| asked != own) {
            return Err(Failure::input(format!(
                "--arithmetic: expected {own:?}, that of the tensor cores of {}, got {asked:?}",
                cuda.card()
            )));
        }
        let card = Some(cuda.card().to_owned());
        Ok(Device { run_ahead: cuda.runs_apart() && !self.no_overlap, backend: Arc::new(cuda), on_threads: None, card })
    }
}

/// Runs `$body` with `$device` a [`Device`] of the backend that `$compute` names. The body is compiled for each backend, so it
/// is best a call of one generic function.
macro_rules! on_backend {
    ($compute:expr, |$device:ident| $body:expr) => {
        match $compute.backend {
            $crate::cli::session::BackendName::Cpu => {
                let $device = $compute.cpu()?;
                $body
            }
            #[cfg(feature = "cuda")]
            $crate::cli::session::BackendName::Cuda => {
                let $device = $compute.cuda()?;
                $body
            }
            #[cfg(not(feature = "cuda"))]
            $crate::cli::session::BackendName::Cuda => Err($crate::cli::session::without_cuda()),
        }
    };
}
pub(super) use on_backend;

/// What a build without GPU support answers to `--backend cuda`.
#[cfg(not(feature = "cuda"))]
pub fn without_cuda() -> Failure {
    Failure::input(
        "--backend cuda: expected a build with GPU support, got one without; build with `cargo build --release -p mini-engine --features cuda`, with nvcc on the path or CUDA_HOME set",
    )
}

/// Makes the same backend with another number of worker threads.
type OnThreads<B> = Rc<dyn Fn(usize) -> kernels_rs::backend::Result<B>>;

/// A backend that is ready to load models.
pub struct Device<B> {
    /// It.
    pub backend: Arc<B>,
    /// The same on another number of worker threads, where that means something.
    pub on_threads: Option<OnThreads<B>>,
    /// The card, where there is one.
    pub card: Option<String>,
    /// Whether engines plan and launch the next step while one runs.
    pub run_ahead: bool,
}

impl<B: Backend> Device<B> {
    /// The backend and the card, for reports.
    pub fn name(&self) -> String {
        let name = self.backend.name();
        self.card.as_ref().map_or(name.clone(), |card| format!("{name}, {card}"))
    }

    /// Loads and hashes the weights, with a progress bar where there is a terminal.
    pub fn load(&self, checkpoint: &Checkpoint, broken: Option<model::Break>) -> Result<Arc<Model<B>>, Failure> {
        self.load_with(checkpoint, LoadOptions { broken, ..LoadOptions::default() })
    }

    /// The same without hashing, if these very files were hashed before.
    pub fn load_known(&self, checkpoint: &Checkpoint) -> Result<Arc<Model<B>>, Failure> {
        let known = Known::of(checkpoint);
        let known_digest = known.as_ref().and_then(Known::find);
        let model = self.load_with(checkpoint, LoadOptions { known_digest, ..LoadOptions::default() })?;
        if let (Some(known), None) = (known, known_digest) {
            known.remember(checkpoint, model.digest());
        }
        Ok(model)
    }

    fn load_with(&self, checkpoint: &Checkpoint, options: LoadOptions) -> Result<Arc<Model<B>>, Failure> {
        let bar = ProgressBar::new(0).with_message(format!("loading {}", checkpoint.name));
        bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}").expect("a fixed template"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let model = Model::load(checkpoint, self.backend.clone(), options, &mut |progress| {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
        });
        bar.finish_and_clear();
        Ok(Arc::new(model?))
    }

    /// How to load the same weights on another number of worker threads.
    pub fn reload(&self, checkpoint: &Rc<Checkpoint>, broken: Option<model::Break>) -> Option<Reload<B>> {
        let (on_threads, checkpoint) = (self.on_threads.clone()?, checkpoint.clone());
        Some(Rc::new(move |threads| {
            let backend = Arc::new(on_threads(threads)?);
            let options = LoadOptions { broken, ..LoadOptions::default() };
            Ok(Arc::new(Model::load(&checkpoint, backend, options, &mut |_| {})?))
        }))
    }
}

/// How much memory the KV pool takes.
#[derive(Clone, Debug, Args)]
pub struct KvArgs {
    /// Memory of the KV pool: a share of what is free once the weights are loaded, such as 0.9, or a size, such as 8GiB
    #[arg(long, default_value = "0.9", value_parser = KvMemory::parse)]
    pub kv_memory: KvMemory,
    /// Tokens of a KV page
    #[arg(long, default_value_t = mini_engine::engine::config::PAGE_TOKENS_DEFAULT)]
    pub page_tokens: usize,
}

/// A share of the free memory, or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvMemory {
    /// Between 0 and 1.
    Share(f64),
    /// Bytes.
    Bytes(u64),
}

impl KvMemory {
    fn parse(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a share between 0 and 1 or a size with MiB or GiB, got {text:?}");
        for (unit, bytes) in [("MiB", 1u64 << 20), ("GiB", 1 << 30)] {
            if let Some(count) = text.strip_suffix(unit) {
                let count: u64 = count.trim().parse().map_err(|_| expected())?;
                return count.checked_mul(bytes).filter(|&bytes| bytes > 0).map(Self::Bytes).ok_or_else(expected);
            }
        }
        let share: f64 = text.parse().map_err(|_| expected())?;
        if share > 0.0 && share <= 1.0 { Ok(Self::Share(share)) } else { Err(expected()) }
    }
}

impl KvArgs {
    /// Pages that the pool of a loaded model gets.
    pub fn pages<B: Backend>(&self, model: &Model<B>) -> Result<usize, Failure> {
        let bytes = match self.kv_memory {
            KvMemory::Bytes(bytes) => bytes,
            KvMemory::Share(share) => {
                let free = model.backend().free_bytes()?;
                let free = free.ok_or_else(|| {
                    Failure::input("--kv-memory: expected a size such as 8GiB, since this machine does not tell its free memory; got a share")
                })?;
                (free as f64 * share) as u64
            }
        };
        if self.page_tokens == 0 {
            return Err(Failure::input("--page-tokens: expected at least 1, got 0"));
        }
        let page = model.backend().kv_bytes(model.kv_shape(1, self.page_tokens))?.max(1);
        // Slots are numbered in 32 bits.
        let most = u64::from(u32::MAX) / self.page_tokens as u64;
        match (bytes / page).min(most) {
            0 => Err(Failure::input(format!("--kv-memory: expected at least {page} bytes, one page, got {bytes}"))),
            pages => Ok(pages as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shares_are_told_apart() {
        assert_eq!(KvMemory::parse("0.5"), Ok(KvMemory::Share(0.5)));
        assert_eq!(KvMemory::parse("3 MiB"), Ok(KvMemory::Bytes(3 << 20)));
        for wrong in ["0", "1.5", "-1", "NaN", "8GB", "GiB", "0GiB", "99999999999999999999GiB", "17179869184GiB", ""] {
            assert!(KvMemory::parse(wrong).unwrap_err().contains("expected a share"), "{wrong}");
        }
    }
}

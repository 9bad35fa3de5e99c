//! `soak`: the engine under stress for as long as you like.

use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kernels_rs::backend::Backend;
use mini_engine::determinism::{DeviceLab, PASSAGE};
use mini_engine::engine::EngineConfig;
use mini_engine::model::Checkpoint;
use mini_engine::soak::{Run, Tally};

use super::Failure;
use super::session::{BackendName, Device, ModelArgs, on_backend};

/// Device memory that may be gone at the end, in bytes: the driver hands it out in large blocks.
const LEAK_BYTES_MAX: u64 = 64 << 20;

/// Random arrivals, cancellations and a pool that is too small, for minutes; every finished request is compared by bits with
/// the request alone
#[derive(Debug, Args)]
pub struct Soak {
    #[command(flatten)]
    model: ModelArgs,
    /// How long
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Pages of the pool
    #[arg(long, default_value_t = 64)]
    pages: usize,
    /// Tokens of a page
    #[arg(long, default_value_t = mini_engine::engine::config::PAGE_TOKENS_DEFAULT)]
    page_tokens: usize,
    /// Rows of one step
    #[arg(long, default_value_t = 256)]
    chunk: usize,
    /// Requests that are there at one time
    #[arg(long, default_value_t = 24)]
    live: usize,
    /// Longest prompt
    #[arg(long, default_value_t = 600)]
    prompt: usize,
    /// Most tokens of an answer
    #[arg(long, default_value_t = 64)]
    answer: usize,
    /// Seed of everything that is random
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Soak {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        for (option, value) in [("--live", self.live), ("--prompt", self.prompt), ("--answer", self.answer)] {
            if value == 0 {
                return Err(Failure::input(format!("{option}: expected at least 1, got 0")));
            }
        }
        let checkpoint = self.model.open()?;
        let config = self.config();
        config.check()?;
        let (longest, most) = (self.prompt.saturating_add(self.answer), checkpoint.config.context);
        if longest > most {
            return Err(Failure::input(format!(
                "--prompt and --answer: expected at most {most} tokens together, the model's context, got {longest}"
            )));
        }
        if longest.div_ceil(self.page_tokens) > self.pages {
            let needed = longest.div_ceil(self.page_tokens);
            return Err(Failure::input(format!(
                "--pages: expected at least {needed}, one request, got {}",
                self.pages
            )));
        }
        on_backend!(self.model.compute, |device| self.run_on(device, &checkpoint))
    }

    fn config(&self) -> EngineConfig {
        EngineConfig {
            page_tokens: self.page_tokens,
            pages: self.pages,
            step_rows_max: self.chunk,
            running_max: self.live,
            ..EngineConfig::default()
        }
    }

    fn run_on<B: Backend>(&self, device: Device<B>, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let model = device.load(checkpoint, None)?;
        let passage = checkpoint.tokenizer.encode(PASSAGE)?;
        // What other programs do to a machine's memory is not this program's leak; a GPU is rarely shared.
        let free = || match self.model.compute.backend {
            BackendName::Cuda => device.backend.free_bytes(),
            BackendName::Cpu => Ok(None),
        };
        let lab = DeviceLab { model, reload: None, replays: true, run_ahead: device.run_ahead };
        let soak = mini_engine::soak::Soak {
            config: EngineConfig { run_ahead: device.run_ahead, ..self.config() },
            prompts: (1, self.prompt),
            answer_max: self.answer,
            live_max: self.live,
            seed: self.seed,
        };
        let mut run = Run::new(&lab, soak, passage).map_err(Failure::Machine)?;
        let bar = ProgressBar::new(self.seconds).with_message("soak");
        bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} s").expect("a fixed template"));
        let (start, length) = (Instant::now(), Duration::from_secs(self.seconds));
        // By then everything has been met that makes scratch memory grow.
        let mut settled = None;
        loop {
            let elapsed = start.elapsed();
            if !run.step(elapsed >= length).map_err(Failure::Machine)? {
                break;
            }
            if settled.is_none() && elapsed >= length / 4 {
                settled = Some(free()?);
            }
            bar.set_position(elapsed.as_secs());
        }
        bar.finish_and_clear();
        let lost = settled.flatten().zip(free()?).map(|(before, after)| before.saturating_sub(after));
        self.report(&device.name(), start.elapsed(), &run.tally(), lost)
    }

    fn report(&self, machine: &str, elapsed: Duration, tally: &Tally, lost: Option<u64>) -> Result<(), Failure> {
        let stats = &tally.stats;
        println!(
            "{} on {machine}: {:.0} s, {} steps ({} replayed), {} rows\nfinished and compared alone: {} requests, {} logits rows, {} different\ncancelled {}, failed as they should {}, preempted {}, cached positions {}, pages evicted {}, refused plans {}",
            self.model.model,
            elapsed.as_secs_f64(),
            stats.steps,
            tally.replayed,
            stats.rows,
            tally.compared,
            tally.rows,
            tally.different,
            stats.cancelled,
            tally.poisoned,
            stats.policy.preemptions,
            stats.policy.attached_tokens,
            stats.policy.evictions,
            stats.refused_plans,
        );
        if let Some(lost) = lost {
            println!("device memory lost since a quarter of the time: {lost} bytes");
        }
        if let Some(difference) = &tally.first_difference {
            println!("first difference: {difference}");
        }
        let leaks = lost.is_some_and(|lost| lost > LEAK_BYTES_MAX);
        if tally.different > 0 || leaks || stats.refused_plans > 0 || tally.compared == 0 {
            println!("NOT sound");
            return Err(Failure::Different);
        }
        println!("sound");
        Ok(())
    }
}

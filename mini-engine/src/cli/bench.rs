//! `bench`: how fast, with a digest that says of what.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kernels_rs::backend::Backend;
use mini_engine::bench::report::{Options, measure};
use mini_engine::bench::{Limit, Report, Workload, chart, limit};
use mini_engine::engine::EngineConfig;
use mini_engine::model::Checkpoint;

use super::Failure;
use super::session::{BackendName, Device, KvArgs, ModelArgs, on_backend};

/// Measure speed: grids of prefill and decode, mixed load, conversations; each with a digest of its logits
#[derive(Debug, Args)]
pub struct Bench {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    kv: KvArgs,
    /// Prefill workloads, BATCHxLENGTH [default: 1x8192,16x1024 on a GPU, 1x128,4x64 on a CPU]
    #[arg(long, value_delimiter = ',', value_parser = pair)]
    prefill: Option<Vec<(usize, usize)>>,
    /// Decode workloads, BATCHxCONTEXT [default: 1x1024,8x1024,64x1024,1x32000 on a GPU, 1x64,4x64 on a CPU]
    #[arg(long, value_delimiter = ',', value_parser = pair)]
    decode: Option<Vec<(usize, usize)>>,
    /// Timed steps of each decode workload [default: 64 on a GPU, 8 on a CPU]
    #[arg(long)]
    steps: Option<usize>,
    /// Requests of the mixed load; 0 leaves it out [default: 64 on a GPU, 4 on a CPU]
    #[arg(long)]
    mixed: Option<usize>,
    /// Arrivals a second of a second mixed load, as a Poisson process; 0 leaves it out [default: a rate for which the machine
    /// is busy half of the time, as the first mixed load ran]
    #[arg(long)]
    rate: Option<f64>,
    /// Conversations x turns that share a first prompt; 0x0 leaves them out [default: 16x4 on a GPU, 2x2 on a CPU]
    #[arg(long, value_parser = pair)]
    sessions: Option<(usize, usize)>,
    /// Rows of one step [default: 8192 on a GPU, 256 on a CPU]
    #[arg(long)]
    chunk: Option<usize>,
    /// Seed of prompts, lengths and arrivals
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Memory bandwidth that limits are computed from, in bytes a second [default: an H200's 4.27e12 on a GPU, none on a CPU]
    #[arg(long, value_parser = positive)]
    bandwidth: Option<f64>,
    /// Rate of matrix products that limits are computed from, in operations a second [default: an H200's 790e12]
    #[arg(long, value_parser = positive)]
    flops: Option<f64>,
    /// Compare the digests with those of an earlier run's JSON, workload by workload; they must be equal
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the figures as a chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('x').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers.ok_or_else(|| format!("expected two numbers such as 8x1024, got {text:?}"))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("expected a positive number, got {text:?}"))
}

fn read_json(path: &Path) -> Result<serde_json::Value, Failure> {
    let refused = |error: String| Failure::input(format!("--against {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refused(error.to_string()))
}

fn compare(report: &Report, earlier: &serde_json::Value, path: &Path) -> Result<(), Failure> {
    let refused = |error| Failure::input(format!("--against {}: {error}", path.display()));
    let (shared, different) = report.against(earlier).map_err(refused)?;
    println!("{} of {shared} workloads have the logits of {}", shared - different.len(), path.display());
    if different.is_empty() {
        return Ok(());
    }
    println!("NOT equal: {}", different.join(", "));
    Err(Failure::Different)
}

impl Bench {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate < 0.0) {
            return Err(Failure::input("--rate: expected a number of at least 0"));
        }
        let earlier = self.against.as_ref().map(|path| read_json(path)).transpose()?;
        for (option, path) in [("--json", &self.json), ("--svg", &self.svg)] {
            if let Some(path) = path {
                let refused = |error| Failure::input(format!("{option} {}: {error}", path.display()));
                std::fs::write(path, "").map_err(refused)?;
            }
        }
        let checkpoint = self.model.open()?;
        let workloads = self.workloads();
        for workload in &workloads {
            if workload.positions_max() > checkpoint.config.context {
                return Err(Failure::input(format!(
                    "{}: expected at most {} positions, the model's context, got {}",
                    workload.name(),
                    checkpoint.config.context,
                    workload.positions_max()
                )));
            }
        }
        on_backend!(self.model.compute, |device| self.run_on(device, &checkpoint, workloads, earlier))
    }

    fn gpu(&self) -> bool {
        self.model.compute.backend == BackendName::Cuda
    }

    /// The grids and the load; without arguments what suits the backend.
    fn workloads(&self) -> Vec<Workload> {
        let gpu = self.gpu();
        let grid = |given: &Option<Vec<(usize, usize)>>, large: &[(usize, usize)], small: &[(usize, usize)]| {
            let pairs = given.clone().unwrap_or_else(|| if gpu { large.to_vec() } else { small.to_vec() });
            pairs.into_iter().filter(|pair| pair.0 > 0 && pair.1 > 0)
        };
        let steps = self.steps.unwrap_or(if gpu { 64 } else { 8 }).max(1);
        let mut all: Vec<Workload> = grid(&self.prefill, &[(1, 8192), (16, 1024)], &[(1, 128), (4, 64)])
            .map(|(batch, length)| Workload::Prefill { batch, length })
            .collect();
        let decode = grid(&self.decode, &[(1, 1024), (8, 1024), (64, 1024), (1, 32_000)], &[(1, 64), (4, 64)]);
        all.extend(decode.map(|(batch, context)| Workload::Decode { batch, context, steps }));
        let (sessions, turns) = self.sessions.unwrap_or(if gpu { (16, 4) } else { (2, 2) });
        if sessions * turns > 0 {
            let (shared, question, answer) = if gpu { (1024, 128, 128) } else { (64, 8, 8) };
            all.push(Workload::Sessions { sessions, turns, shared, question, answer });
        }
        all.extend(self.mixed_load(None));
        all
    }

    fn mixed_load(&self, rate: Option<f64>) -> Option<Workload> {
        let gpu = self.gpu();
        let requests = self.mixed.unwrap_or(if gpu { 64 } else { 4 });
        let (prompts, answer) = if gpu { ((128, 2048), 128) } else { ((8, 64), 8) };
        (requests > 0).then_some(Workload::Mixed { requests, prompts, answer, rate })
    }

    fn run_on<B: Backend>(
        &self,
        device: Device<B>,
        checkpoint: &Checkpoint,
        workloads: Vec<Workload>,
        earlier: Option<serde_json::Value>,
    ) -> Result<(), Failure> {
        let model = device.load(checkpoint, None)?;
        let h200 = self.gpu().then_some(limit::H200);
        let limit = match (self.bandwidth.or(h200.map(|l| l.bytes_per_second)), self.flops) {
            (None, _) => None,
            (Some(bytes_per_second), flops) => {
                Some(Limit { bytes_per_second, flops_per_second: flops.unwrap_or(limit::H200.flops_per_second) })
            }
        };
        let config = EngineConfig {
            page_tokens: self.kv.page_tokens,
            pages: self.kv.pages(&model)?,
            step_rows_max: self.chunk.unwrap_or(if self.gpu() { 8192 } else { 256 }),
            running_max: 256,
            run_ahead: device.run_ahead,
            ..EngineConfig::default()
        };
        config.check()?;
        let options = Options { config, limit, seed: self.seed };
        let mut report = Report {
            machine: device.name(),
            model: self.model.model.clone(),
            model_digest: model.digest().to_hex().to_string(),
            plan_digest: model.plan().digest().to_string(),
            seed: self.seed,
            limit,
            lines: Vec::new(),
        };
        println!("{} on {}, plan {}\n{}", report.model, report.machine, report.plan_digest, Report::heading());
        let measured = |workload: &Workload, report: &mut Report| {
            let bar = ProgressBar::new(0).with_message(workload.name());
            bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}").expect("a fixed template"));
            bar.enable_steady_tick(Duration::from_millis(200));
            let line = measure(&model, workload, &options, &mut |done, all| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            });
            bar.finish_and_clear();
            let line = line.map_err(Failure::Machine)?;
            println!("{}", line.row());
            report.lines.push(line);
            Ok::<_, Failure>(())
        };
        for workload in &workloads {
            measured(workload, &mut report)?;
        }
        if let Some(workload) = self.poisson(&report) {
            measured(&workload, &mut report)?;
        }
        self.write(&report)?;
        match (earlier, &self.against) {
            (Some(earlier), Some(path)) => compare(&report, &earlier, path),
            _ => Ok(()),
        }
    }

    /// The mixed load again, with arrivals in time.
    fn poisson(&self, report: &Report) -> Option<Workload> {
        let at_once = report.lines.iter().find(|line| matches!(line.workload, Workload::Mixed { .. }))?;
        let requests = self.mixed.unwrap_or(if self.gpu() { 64 } else { 4 });
        let half = requests as f64 / at_once.seconds.max(1e-3) / 2.0;
        let rate = self.rate.unwrap_or((half * 10.0).round().max(1.0) / 10.0);
        if rate > 0.0 { self.mixed_load(Some(rate)) } else { None }
    }

    fn write(&self, report: &Report) -> Result<(), Failure> {
        println!("digest over plan and logits: {}", report.digest());
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(report).map_err(|error| Failure::Machine(error.into()))?;
            std::fs::write(path, text + "\n")?;
        }
        if let Some(path) = &self.svg {
            std::fs::write(path, chart::svg(report))?;
        }
        if report.proves_itself() { Ok(()) } else { Err(Failure::Different) }
    }
}

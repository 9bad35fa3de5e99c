//! The list of GPU benchmarks and how one is measured.

mod attention;
mod cublas;
mod linear;
mod rows;

use criterion::Criterion;
use half::bf16;
use kernels_rs::backend::Result;
use kernels_rs::cuda::{Cuda, Graph};
use std::time::Duration;

/// Bytes a second that a good streaming kernel reaches on an H200 (copy, measured).
const BYTES_PER_SECOND: f64 = 4.27e12;
/// bf16 operations a second that a large matrix product reaches on an H200 (measured, random data).
const FLOPS_PER_SECOND: f64 = 790e12;

/// The limit of a kernel, in seconds.
pub fn limit(bytes: f64, flops: f64) -> f64 {
    (bytes / BYTES_PER_SECOND).max(flops / FLOPS_PER_SECOND)
}

/// The run: the card, criterion, and what to run.
pub struct Bench {
    pub cuda: &'static Cuda,
    criterion: Option<Criterion>,
    filter: Vec<String>,
    /// Time every variant and compare its bits.
    pub variants: bool,
}

impl Bench {
    /// Whether the command line asks for this benchmark.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|f| name.contains(f.as_str()))
    }

    /// Median seconds of one of `calls` calls in a graph; `f` makes call number i.
    pub fn seconds(&self, calls: usize, mut f: impl FnMut(usize) -> Result<()>) -> Result<f64> {
        let graph = self.graph(calls, &mut f)?;
        self.cuda.time(&graph, 2)?;
        Ok(median(self.cuda.time(&graph, 9)?) / calls as f64)
    }

    /// The calls as one graph, after they have run once, which makes the scratch memory that the graph needs.
    fn graph(&self, calls: usize, f: &mut impl FnMut(usize) -> Result<()>) -> Result<Graph> {
        (0..calls).try_for_each(&mut *f)?;
        self.cuda.synchronize()?;
        self.cuda.capture(|| (0..calls).try_for_each(f))
    }

    /// The same seconds, measured by criterion under this name unless only the table is wanted.
    pub fn measure(&mut self, name: &str, calls: usize, mut f: impl FnMut(usize) -> Result<()>) -> Result<f64> {
        if self.criterion.is_none() {
            return self.seconds(calls, f);
        }
        let graph = self.graph(calls, &mut f)?;
        let cuda = self.cuda;
        let mut all = Vec::new();
        if let Some(criterion) = &mut self.criterion {
            criterion.bench_function(name, |b| {
                b.iter_custom(|iterations| {
                    let times = cuda.time(&graph, iterations as usize).expect("the graph ran before");
                    all.extend_from_slice(&times);
                    Duration::from_secs_f64(times.iter().sum::<f64>() / calls as f64)
                });
            });
        }
        Ok(median(all) / calls as f64)
    }

    /// Measures and prints a line of the table. Returns seconds a call.
    pub fn report(&mut self, name: &str, limit: f64, calls: usize, f: impl FnMut(usize) -> Result<()>) -> f64 {
        match self.measure(name, calls, f) {
            Ok(seconds) => {
                println!("{name:<44} {:>9.2} us {:>7.3} x limit", seconds * 1e6, seconds / limit);
                seconds
            }
            Err(e) => {
                println!("{name:<44} FAILED {e}");
                f64::NAN
            }
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Roughly normal values of standard deviation `scale`, cheap to make.
pub fn normal(len: usize, scale: f32, seed: u64) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The sum of four bytes: mean 510, standard deviation about 148.
        let word = (state >> 32) as u32;
        let sum: u32 = word.to_le_bytes().iter().map(|&b| u32::from(b)).sum();
        bf16::from_f32((sum as f32 - 510.0) / 147.8 * scale)
    };
    (0..len).map(|_| next()).collect()
}

/// Runs everything that the command line names.
pub fn main() {
    let cuda = match Cuda::new(0) {
        Ok(cuda) => cuda,
        Err(e) => {
            println!("skipped: all GPU benchmarks ({e})");
            return;
        }
    };
    let filter = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let set = |name| std::env::var_os(name).is_some();
    let criterion = (!set("SAMETREE_TABLE")).then(|| {
        Criterion::default()
            // About half a second each: there are over a hundred.
            .sample_size(10)
            .nresamples(2000)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(250))
    });
    println!("card {}; limit max(bytes / 4.27 TB/s, flops / 790 TFLOP/s)", cuda.card());
    // Calls borrow the backend while the run itself is borrowed mutably.
    let cuda: &'static Cuda = Box::leak(Box::new(cuda));
    let mut bench = Bench { cuda, criterion, filter, variants: set("SAMETREE_VARIANTS") };
    linear::chain(&mut bench);
    linear::single(&mut bench);
    attention::decode(&mut bench);
    attention::prefill(&mut bench);
    rows::all(&mut bench);
}

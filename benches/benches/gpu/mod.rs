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
        for i in 0..calls {
            f(i)?;
        }
        self.cuda.synchronize()?;
        let graph = self.cuda.capture(|| (0..calls).try_for_each(&mut f))?;
        Ok(self.median(&graph)? / calls as f64)
    }

    fn median(&self, graph: &Graph) -> Result<f64> {
        self.cuda.time(graph, 2)?;
        let mut times = self.cuda.time(graph, 9)?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Measures, prints a line of the table and, unless only the table is wanted, hands the calls to criterion. Returns
    /// seconds a call.
    pub fn report(&mut self, name: &str, limit: f64, calls: usize, mut f: impl FnMut(usize) -> Result<()>) -> f64 {
        let seconds = match self.seconds(calls, &mut f) {
            Ok(seconds) => seconds,
            Err(e) => {
                println!("{name:<44} FAILED {e}");
                return f64::NAN;
            }
        };
        println!("{name:<44} {:>9.2} us {:>7.3} x limit", seconds * 1e6, seconds / limit);
        if let Some(criterion) = &mut self.criterion {
            let graph = self.cuda.capture(|| (0..calls).try_for_each(&mut f)).expect("captured before");
            let cuda = self.cuda;
            criterion.bench_function(name, |b| {
                b.iter_custom(|iterations| {
                    let times = cuda.time(&graph, iterations as usize).expect("replayed before");
                    Duration::from_secs_f64(times.iter().sum::<f64>() / calls as f64)
                });
            });
        }
        seconds
    }
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
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(300))
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

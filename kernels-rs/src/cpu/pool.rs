//! The worker threads, and the one way in which work is spread over them: independent items.
//!
//! Items are output rows and columns, never parts of one sum, so the number of threads cannot reach a bit.

use crate::backend::{Error, Result};
use rayon::prelude::*;

/// More threads than this are a mistake.
const THREADS_MAX: usize = 1024;

/// A fixed number of worker threads; one thread means the caller's own.
pub struct Pool {
    threads: usize,
    workers: Option<rayon::ThreadPool>,
}

impl Pool {
    /// `threads` of 0 means as many as the machine has.
    pub fn new(threads: usize) -> Result<Self> {
        let machine = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { machine().min(THREADS_MAX) } else { threads };
        if threads > THREADS_MAX {
            return Err(Error::new("threads", format!("at most {THREADS_MAX} threads"), threads.to_string()));
        }
        let build = || rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("kernels-cpu-{i}"));
        let workers = match threads {
            1 => None,
            _ => Some(build().build().map_err(|e| Error::new("threads", format!("{threads} threads"), e.to_string()))?),
        };
        Ok(Self { threads, workers })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `f` for 0..n, at least `grain` calls to a piece of work.
    pub fn each(&self, n: usize, grain: usize, f: impl Fn(usize) + Sync) {
        match &self.workers {
            Some(workers) if n > grain => {
                workers.install(|| (0..n).into_par_iter().with_min_len(grain.max(1)).for_each(&f));
            }
            _ => (0..n).for_each(f),
        }
    }

    /// Calls `f` for every item, at least `grain` items to a piece of work.
    pub fn each_mut<T: Send>(&self, items: &mut [T], grain: usize, f: impl Fn(&mut T) + Sync) {
        match &self.workers {
            Some(workers) if items.len() > grain => {
                workers.install(|| items.par_iter_mut().with_min_len(grain.max(1)).for_each(&f));
            }
            _ => items.iter_mut().for_each(f),
        }
    }
}

//! What the benchmarks share: CPU time as criterion's measurement, inputs, and a table of what was measured.
//!
//! The kernels themselves and the list of shapes are in `benches/`.

pub mod cpu_time;
pub mod table;

use crate::cpu_time::CpuTime;
use ::cpu_time::ThreadTime;
use criterion::{BenchmarkId, Criterion, Throughput};
use half::bf16;
use table::Table;

/// Roughly normal values: the sum of four uniform ones.
pub fn values(seed: u64, len: usize, scale: f32) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..len).map(|_| bf16::from_f32((0..4).map(|_| uniform()).sum::<f32>() * scale)).collect()
}

/// Times `f`, which does `work` operations, under criterion, and records the rate of every sample.
pub fn measure(
    criterion: &mut Criterion<CpuTime>,
    table: &mut Table,
    group: &str,
    (line, column): (&str, &str),
    work: usize,
    mut f: impl FnMut(),
) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(work as u64));
    group.bench_function(BenchmarkId::new(line, column), |bencher| {
        bencher.iter_custom(|iterations| {
            let start = ThreadTime::now();
            (0..iterations).for_each(|_| f());
            let time = start.elapsed();
            table.record(line, column, work as f64 * iterations as f64, time);
            time
        });
    });
    group.finish();
}

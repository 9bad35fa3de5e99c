//! Kernels that move rows: norm, the QKV stage, sampling. SiLU has no kernel of its own: it is gate_up's epilogue.

use super::{Bench, limit, normal};
use half::bf16;
use kernels_rs::backend::{Backend, KvShape, QkvParams, SampleParams, StepRows, Wanted};
use reduction_tree::operator::{RmsNormTree, RopePairing};

/// Buffers that one kernel rotates over, so that the cache does not hold its input.
const SETS: usize = 8;

/// Every row kernel at 4096 tokens of Llama-3.1-8B.
pub fn all(bench: &mut Bench) {
    if bench.wants("rows/rmsnorm") {
        rmsnorm(bench, 4096, 4096);
        rmsnorm(bench, 1, 4096);
    }
    if bench.wants("rows/add_rmsnorm") {
        add_rmsnorm(bench, 4096, 4096);
    }
    if bench.wants("rows/qkv") {
        qkv(bench, 4096);
        qkv(bench, 1);
    }
    if bench.wants("rows/sample") {
        sample(bench, 1);
        sample(bench, 64);
    }
}

fn rmsnorm(bench: &mut Bench, rows: usize, d: usize) {
    let cuda = bench.cuda;
    let x: Vec<_> = (0..SETS).map(|i| cuda.upload(&normal(rows * d, 1.0, i as u64)).expect("device memory")).collect();
    let weight = cuda.upload(&normal(d, 1.0, 77)).expect("device memory");
    let mut out: Vec<_> = (0..SETS).map(|_| cuda.alloc::<bf16>(rows * d).expect("device memory")).collect();
    let tree = RmsNormTree { d, eps: 1e-5 };
    let bytes = (rows * d * 4) as f64;
    bench.report(&format!("rows/rmsnorm/{rows}x{d}"), limit(bytes, 0.0), 2 * SETS, |i| {
        cuda.rmsnorm(tree, rows, &x[i % SETS], &weight, &mut out[i % SETS])
    });
}

fn add_rmsnorm(bench: &mut Bench, rows: usize, d: usize) {
    let cuda = bench.cuda;
    let x: Vec<_> = (0..SETS).map(|i| cuda.upload(&normal(rows * d, 1.0, i as u64)).expect("device memory")).collect();
    let weight = cuda.upload(&normal(d, 1.0, 77)).expect("device memory");
    let buffers = || (0..SETS).map(|_| cuda.alloc::<bf16>(rows * d).expect("device memory")).collect::<Vec<_>>();
    let (mut sum, mut out) = (buffers(), buffers());
    let tree = RmsNormTree { d, eps: 1e-5 };
    let bytes = (rows * d * 8) as f64;
    bench.report(&format!("rows/add_rmsnorm/{rows}x{d}"), limit(bytes, 0.0), 2 * SETS, |i| {
        let i = i % SETS;
        cuda.add_rmsnorm(tree, rows, &x[i], &x[(i + 1) % SETS], &weight, &mut sum[i], &mut out[i])
    });
}

fn qkv(bench: &mut Bench, rows: usize) {
    const PAGE: usize = 16;
    let cuda = bench.cuda;
    let (q_heads, kv_heads, d) = (32, 8, 128);
    let shape = KvShape { layers: SETS, pages: rows.div_ceil(PAGE), page_tokens: PAGE, kv_heads, head_dim: d };
    let mut pool = cuda.kv_pool(shape).expect("device memory");
    let places: Vec<u32> = (0..rows as u32).collect();
    let step = StepRows {
        tokens: vec![0; rows],
        positions: places.clone(),
        slots: places,
        sequences: vec![0; rows],
        tables: vec![(0..shape.pages as u32).collect()],
        ..StepRows::default()
    };
    let step = cuda.step(&step, &Wanted::default(), shape).expect("step");
    let width = (q_heads + 2 * kv_heads) * d;
    let x: Vec<_> =
        (0..SETS).map(|i| cuda.upload(&normal(rows * width, 1.0, i as u64)).expect("device memory")).collect();
    let mut q: Vec<_> = (0..SETS).map(|_| cuda.alloc::<bf16>(rows * q_heads * d).expect("device memory")).collect();
    let mut faults = cuda.alloc::<u32>(rows).expect("device memory");
    let table = cuda.upload(&vec![0.5f32; rows * d / 2]).expect("device memory");
    let params = QkvParams { q_heads, qk_norm: None, cos: &table, sin: &table, pairing: RopePairing::Half };
    let bytes = (rows * width * 4 + rows * d * 4) as f64;
    bench.report(&format!("rows/qkv/{rows}"), limit(bytes, 0.0), 2 * SETS, |i| {
        cuda.qkv(&params, &step, &x[i % SETS], &mut pool, i % SETS, &mut q[i % SETS], &mut faults)
    });
}

/// Sampling ends in a download and cannot be captured: wall time of whole calls.
fn sample(bench: &mut Bench, rows: usize) {
    const VOCAB: usize = 128_256;
    let cuda = bench.cuda;
    let logits: Vec<f32> = normal(rows * VOCAB, 3.0, 8).into_iter().map(f32::from).collect();
    let logits = cuda.upload(&logits).expect("device memory");
    for (name, temperature, top_p) in [("greedy", 0.0, 1.0), ("temperature", 1.0, 1.0), ("top_p", 1.0, 0.9)] {
        let params = SampleParams { temperature, top_k: None, top_p, min_p: 0.0, seed: 1, position: 7 };
        let params = vec![params; rows];
        let mut times: Vec<f64> = (0..7)
            .map(|_| {
                let start = std::time::Instant::now();
                cuda.sample(VOCAB, &logits, &params).expect("sample");
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{:<44} {:>9.2} us wall", format!("rows/sample/{name}/{rows}"), times[3] * 1e6);
    }
}

//! Linear layers of Llama-3.1-8B: one by one, and chained as in a decode step.

use super::cublas::Cublas;
use super::{Bench, limit, normal};
use half::bf16;
use kernels_rs::backend::{Backend, RandomTensor};
use kernels_rs::cuda::{Buffer, Cuda, LinearWeight};
use reduction_tree::operator::{Epilogue, LinearTree, Store};

struct Shape {
    name: &'static str,
    n: usize,
    k: usize,
    epilogue: Epilogue,
    store: Store,
}

const fn shape(name: &'static str, n: usize, k: usize, epilogue: Epilogue, store: Store) -> Shape {
    Shape { name, n, k, epilogue, store }
}

const SHAPES: [Shape; 5] = [
    shape("qkv", 6144, 4096, Epilogue::None, Store::Bf16),
    shape("o", 4096, 4096, Epilogue::Residual, Store::Bf16),
    shape("gate_up", 28672, 4096, Epilogue::SiluMul, Store::Bf16),
    shape("down", 4096, 14336, Epilogue::Residual, Store::Bf16),
    shape("lm_head", 128256, 4096, Epilogue::None, Store::F32),
];

/// Weight bytes that surely evict each other from the 60 MB L2 cache.
const ROTATED_BYTES: usize = 400 << 20;

impl Shape {
    fn tree(&self) -> LinearTree {
        let (n, k) = (self.n, self.k);
        LinearTree { n, k, k_split: LinearTree::k_split_for(n, k), epilogue: self.epilogue, store: self.store }
    }

    /// Made on the device: the host would take longer than the measurements.
    fn weights(&self, cuda: &Cuda, count: usize) -> Vec<LinearWeight> {
        let values = |tensor| RandomTensor { seed: 3, tensor, offset: 0.0, spread: 0.035 };
        let weight = |i| cuda.random_weight(self.tree(), &[(values(i), self.n)], None).expect("device memory");
        (0..count as u32).map(weight).collect()
    }

    fn line(&self, m: usize) -> String {
        format!("linear/{}/{m}", self.name)
    }

    fn limit(&self, m: usize) -> f64 {
        let (weight, out) = (self.n * self.k * 2, if self.store == Store::F32 { 4 } else { 2 });
        let residual = if self.epilogue == Epilogue::Residual { m * self.n * 2 } else { 0 };
        let bytes = weight + m * self.k * 2 + m * self.tree().outputs() * out + residual;
        limit(bytes as f64, 2.0 * (m * self.n * self.k) as f64)
    }
}

enum Out {
    Bf16(Buffer<bf16>),
    F32(Buffer<f32>),
}

fn call(
    cuda: &Cuda,
    variant: &str,
    w: &LinearWeight,
    m: usize,
    x: &Buffer<bf16>,
    residual: Option<&Buffer<bf16>>,
    out: &mut Out,
) -> kernels_rs::backend::Result<()> {
    match out {
        Out::Bf16(out) => cuda.linear_by(variant, w, m, x, residual, out),
        Out::F32(out) => cuda.linear_f32_by(variant, w, m, x, out),
    }
}

fn bits(cuda: &Cuda, out: &Out, len: usize) -> Vec<u32> {
    match out {
        Out::Bf16(out) => cuda.download(out, len).expect("download").into_iter().map(|v| v.to_bits().into()).collect(),
        Out::F32(out) => cuda.download(out, len).expect("download").into_iter().map(f32::to_bits).collect(),
    }
}

/// Every shape at every size class, against the limit and cuBLAS.
pub fn single(bench: &mut Bench) {
    let blas = Cublas::new(bench.cuda);
    for shape in &SHAPES {
        let sizes = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096].into_iter();
        let sizes = sizes.filter(|&m| m <= 1024 || shape.name != "lm_head").filter(|&m| bench.wants(&shape.line(m)));
        let sizes: Vec<usize> = sizes.collect();
        if sizes.is_empty() {
            continue;
        }
        let count = (ROTATED_BYTES / (shape.n * shape.k * 2)).clamp(2, 16);
        let weights = shape.weights(bench.cuda, count);
        for m in sizes {
            one(bench, shape, &weights, m, blas.as_ref());
        }
    }
}

fn one(bench: &mut Bench, shape: &Shape, weights: &[LinearWeight], m: usize, blas: Option<&Cublas>) {
    let x = bench.cuda.upload(&normal(m * shape.k, 1.0, 5)).expect("device memory");
    let residual = bench.cuda.upload(&normal(m * shape.n, 1.0, 6)).expect("device memory");
    let residual = (shape.epilogue == Epilogue::Residual).then_some(&residual);
    let len = m * shape.tree().outputs();
    let mut out = match shape.store {
        Store::Bf16 => Out::Bf16(bench.cuda.alloc(m * shape.n).expect("device memory")),
        Store::F32 => Out::F32(bench.cuda.alloc(m * shape.n).expect("device memory")),
    };
    let calls = if m >= 1024 { 4 } else { 2 * weights.len().max(8) };
    let name = shape.line(m);
    let variants = bench.cuda.linear_variants(&weights[0], m);
    if bench.variants {
        compare(bench, shape, weights, m, &x, residual, &mut out, &variants, len, calls);
    }
    let cuda = bench.cuda;
    let seconds = bench.report(&name, shape.limit(m), calls, |i| {
        call(cuda, variants[0], &weights[i % weights.len()], m, &x, residual, &mut out)
    });
    let Some(blas) = blas else { return };
    let y = match &out {
        Out::Bf16(out) => cuda.address(out),
        Out::F32(out) => cuda.address(out),
    };
    let peer = bench.measure(&format!("{name}/cublas"), calls, |i| {
        let w = weights[i % weights.len()].address_of(cuda);
        // SAFETY: x, the weight (stored densely, since k is a multiple of 64) and y have these sizes.
        let done = unsafe { blas.linear((m, shape.n, shape.k), cuda.address(&x), w, y, shape.store == Store::F32) };
        if done { Ok(()) } else { Err(kernels_rs::backend::Error::new("cublas", "success", "an error")) }
    });
    if let Ok(peer) = peer {
        let (limit, ratio) = (peer / shape.limit(m), seconds / peer);
        println!(
            "{:<44} {:>9.2} us {limit:>7.3} x limit; ours {ratio:.3} x cuBLAS ({})",
            "  cuBLAS (no epilogue)",
            peer * 1e6,
            variants[0]
        );
    }
}

#[allow(clippy::too_many_arguments)]
fn compare(
    bench: &Bench,
    shape: &Shape,
    weights: &[LinearWeight],
    m: usize,
    x: &Buffer<bf16>,
    residual: Option<&Buffer<bf16>>,
    out: &mut Out,
    variants: &[&str],
    len: usize,
    calls: usize,
) {
    let cuda = bench.cuda;
    let reference = if m <= 16 { "linear_portable_t16" } else { "linear_portable_t64" };
    call(cuda, reference, &weights[0], m, x, residual, out).expect("portable");
    let expected = bits(cuda, out, len);
    for variant in variants.iter().filter(|v| !v.contains("portable")) {
        call(cuda, variant, &weights[0], m, x, residual, out).expect(variant);
        let differing = bits(cuda, out, len).iter().zip(&expected).filter(|(a, b)| a != b).count();
        let time = bench.seconds(calls, |i| call(cuda, variant, &weights[i % weights.len()], m, x, residual, out));
        let us = time.map_or(f64::NAN, |t| t * 1e6);
        let ratio = us * 1e-6 / shape.limit(m);
        println!("    {}/{m} {variant:<36} {us:>9.2} us {ratio:>7.3} x limit, {differing} differing", shape.name);
    }
}

/// qkv → o → gate_up → down of seven layers, each reading what the one before wrote.
pub fn chain(bench: &mut Bench) {
    const LAYERS: usize = 7;
    if !bench.wants("chain") {
        return;
    }
    let layers: Vec<Vec<LinearWeight>> = SHAPES[..4].iter().map(|s| s.weights(bench.cuda, LAYERS)).collect();
    for m in [1, 8, 16, 32, 64] {
        let buffer = |width: usize| bench.cuda.upload(&normal(m * width, 1.0, 9)).expect("device memory");
        let mut hidden = buffer(4096);
        let (mut qkv, mut o, mut ffn, residual) = (buffer(6144), buffer(4096), buffer(14336), buffer(4096));
        let total: f64 = SHAPES[..4].iter().map(|s| s.limit(m)).sum();
        let cuda = bench.cuda;
        bench.report(&format!("chain/{m} (a layer)"), total, LAYERS, |i| {
            cuda.linear(&layers[0][i], m, &hidden, None, &mut qkv)?;
            cuda.linear(&layers[1][i], m, &qkv, Some(&residual), &mut o)?;
            cuda.linear(&layers[2][i], m, &o, None, &mut ffn)?;
            cuda.linear(&layers[3][i], m, &ffn, Some(&residual), &mut hidden)
        });
    }
}

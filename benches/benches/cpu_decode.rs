//! Whole forward steps of a model of SmolLM2-135M's shape with random weights, on one thread, in CPU time: tokens a second
//! of decode at a context of 1,000 tokens, and of a prefill chunk.
//!
//! `cargo bench -p benches --bench cpu_decode`. The engine's own numbers also hold sampling policy, tokenizer and scheduler.

use benches::cpu_time::CpuTime;
use benches::table::Table;
use benches::{measure, values};
use criterion::Criterion;
use half::bf16;
use kernels_rs::backend::{Backend, KvShape, QkvParams, Result, SampleParams, StepRows, Wanted};
use kernels_rs::cpu::{Cpu, KvPool, LinearWeight, Simd, Step};
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, RmsNormTree, RopePairing, Store};
use std::time::Duration;

const LAYERS: usize = 30;
const D: usize = 576;
const FFN: usize = 1536;
const Q_HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const VOCAB: usize = 49152;
const CONTEXT: usize = 1024;
const SHAPE: KvShape =
    KvShape { layers: LAYERS, pages: CONTEXT / 64, page_tokens: 64, kv_heads: KV_HEADS, head_dim: HEAD_DIM };

type Buffer<T> = <Cpu as Backend>::Buffer<T>;

/// The weights; all layers share their values, not their memory.
struct Model {
    cpu: Cpu,
    layers: Vec<[LinearWeight; 4]>,
    head: LinearWeight,
    norm: Buffer<bf16>,
    cos: Buffer<f32>,
    sin: Buffer<f32>,
}

/// The activations of a step.
struct Activations {
    h: Buffer<bf16>,
    next: Buffer<bf16>,
    normed: Buffer<bf16>,
    qkv: Buffer<bf16>,
    q: Buffer<bf16>,
    attended: Buffer<bf16>,
    gated: Buffer<bf16>,
    logits: Buffer<f32>,
    faults: Buffer<u32>,
}

impl Model {
    fn new(cpu: Cpu) -> Result<Self> {
        let linear = |n, k, epilogue, store| {
            let tree = LinearTree { n, k, k_split: LinearTree::k_split_for(n, k), epilogue, store };
            cpu.linear_weight(tree, &values(n as u64, n * k, 0.05), None)
        };
        let layer = || {
            Ok([
                linear((Q_HEADS + 2 * KV_HEADS) * HEAD_DIM, D, Epilogue::None, Store::Bf16)?,
                linear(D, Q_HEADS * HEAD_DIM, Epilogue::Residual, Store::Bf16)?,
                linear(2 * FFN, D, Epilogue::SiluMul, Store::Bf16)?,
                linear(D, FFN, Epilogue::Residual, Store::Bf16)?,
            ])
        };
        let layers = (0..LAYERS).map(|_| layer()).collect::<Result<_>>()?;
        let head = linear(VOCAB, D, Epilogue::None, Store::F32)?;
        let frequencies = reduction_tree::rope::inverse_frequencies(1e5, HEAD_DIM);
        let (cos, sin) = reduction_tree::rope::tables(CONTEXT, &frequencies);
        let norm = cpu.upload(&[bf16::ONE; D])?;
        let (cos, sin) = (cpu.upload(&cos)?, cpu.upload(&sin)?);
        Ok(Self { cpu, layers, head, norm, cos, sin })
    }

    fn activations(&self, rows: usize) -> Result<Activations> {
        let bf16s = |width: usize| self.cpu.alloc::<bf16>(rows * width);
        Ok(Activations {
            h: bf16s(D)?,
            next: bf16s(D)?,
            normed: bf16s(D)?,
            qkv: bf16s((Q_HEADS + 2 * KV_HEADS) * HEAD_DIM)?,
            q: bf16s(Q_HEADS * HEAD_DIM)?,
            attended: bf16s(Q_HEADS * HEAD_DIM)?,
            gated: bf16s(FFN)?,
            logits: self.cpu.alloc(VOCAB)?,
            faults: self.cpu.alloc(rows)?,
        })
    }

    /// One forward step whose last row is sampled.
    fn step(&self, rows: usize, step: &Step, pool: &mut KvPool, a: &mut Activations) -> Result<u32> {
        let cpu = &self.cpu;
        let norm = RmsNormTree { d: D, eps: 1e-5 };
        let scale_log2 = std::f32::consts::LOG2_E / (HEAD_DIM as f32).sqrt();
        let (kv_split, kv_tile) = (AttentionTree::KV_SPLIT, AttentionTree::KV_TILE);
        let tree = AttentionTree { head_dim: HEAD_DIM, kv_split, kv_tile, scale_log2, window: None };
        let (cos, sin, pairing) = (&self.cos, &self.sin, RopePairing::Interleaved);
        let params = QkvParams { q_heads: Q_HEADS, qk_norm: None, cos, sin, pairing };
        cpu.embed(&self.head, step, &mut a.h)?;
        for (layer, [qkv, o, gate_up, down]) in self.layers.iter().enumerate() {
            cpu.rmsnorm(norm, rows, &a.h, &self.norm, &mut a.normed)?;
            cpu.linear(qkv, rows, &a.normed, None, &mut a.qkv)?;
            cpu.qkv(&params, step, &a.qkv, pool, layer, &mut a.q, &mut a.faults)?;
            cpu.attention(tree, Q_HEADS, step, &a.q, pool, layer, &mut a.attended)?;
            cpu.linear(o, rows, &a.attended, Some(&a.h), &mut a.next)?;
            cpu.rmsnorm(norm, rows, &a.next, &self.norm, &mut a.normed)?;
            cpu.linear(gate_up, rows, &a.normed, None, &mut a.gated)?;
            cpu.linear(down, rows, &a.gated, Some(&a.next), &mut a.h)?;
        }
        cpu.rmsnorm(norm, rows, &a.h, &self.norm, &mut a.normed)?;
        cpu.gather_wanted(D, step, &a.normed, &mut a.next)?;
        cpu.linear_f32(&self.head, 1, &a.next, &mut a.logits)?;
        let (top_k, position) = (None, CONTEXT as u32);
        let sampling = SampleParams { temperature: 0.8, top_k, top_p: 0.95, min_p: 0.0, seed: 1, position };
        Ok(cpu.sample(VOCAB, &a.logits, &[sampling])?[0].token)
    }
}

fn rows(first: usize, count: usize) -> StepRows {
    let positions: Vec<u32> = (first as u32..(first + count) as u32).collect();
    StepRows {
        tokens: vec![1; count],
        slots: positions.clone(),
        positions,
        sequences: vec![0; count],
        tables: vec![(0..SHAPE.pages as u32).collect()],
        ..StepRows::default()
    }
}

fn run(criterion: &mut Criterion<CpuTime>, table: &mut Table, simd: Simd) -> Result<()> {
    for (arithmetic, column) in [(Arithmetic::Ieee, "ieee"), (Arithmetic::Sm90, "sm90"), (Arithmetic::Sm80, "sm80")] {
        let model = Model::new(Cpu::with_simd(arithmetic, 1, simd)?)?;
        let mut pool = model.cpu.kv_pool(SHAPE)?;
        model.cpu.kv_fill(&mut pool, bf16::from_f32(0.37))?;
        for (name, first, count) in [("decode at 1000", 999, 1), ("prefill of 64", 0, 64)] {
            let step =
                model.cpu.step(&rows(first, count), &Wanted { rows: &[count as u32 - 1], samples: &[] }, SHAPE)?;
            let mut activations = model.activations(count)?;
            let line = format!("{name}, {}", simd.name());
            measure(criterion, table, "step", (&line, column), count, || {
                model.step(count, &step, &mut pool, &mut activations).expect("shapes that fit");
            });
        }
    }
    Ok(())
}

fn main() {
    let mut criterion = Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let mut table = Table::new(1.0);
    for simd in Simd::available().into_iter().filter(|simd| simd.name() != "portable") {
        run(&mut criterion, &mut table, simd).expect("a model that fits in memory");
    }
    println!("{}", table.markdown("SmolLM2-135M shape, tokens/s a core (ratio to ieee)", &["ieee", "sm90", "sm80"]));
    criterion.final_summary();
}

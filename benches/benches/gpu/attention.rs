//! Paged attention with 32 query heads, 8 KV heads, head dimension 128, pages of 16 tokens in shuffled order.

use super::{Bench, limit, normal};
use half::bf16;
use kernels_rs::backend::{Backend, KvShape, StepRows, Wanted};
use kernels_rs::cuda::{Cuda, KvPool};
use reduction_tree::operator::AttentionTree;

const Q_HEADS: usize = 32;
const KV_HEADS: usize = 8;
const D: usize = 128;
const PAGE: usize = 16;

fn tree() -> AttentionTree {
    let scale_log2 = std::f32::consts::LOG2_E / (D as f32).sqrt();
    AttentionTree {
        head_dim: D,
        kv_split: AttentionTree::KV_SPLIT,
        kv_tile: AttentionTree::KV_TILE,
        scale_log2,
        window: None,
    }
}

/// A pool whose layers hold `sequences` of `context` tokens, and a step of each one's last `rows` tokens.
fn setup(cuda: &Cuda, layers: usize, sequences: usize, context: usize, rows: usize) -> (KvPool, StepRows, KvShape) {
    let per_sequence = context.div_ceil(PAGE);
    let shape = KvShape { layers, pages: sequences * per_sequence, page_tokens: PAGE, kv_heads: KV_HEADS, head_dim: D };
    let mut pool = cuda.kv_pool(shape).expect("device memory");
    cuda.kv_fill(&mut pool, bf16::from_f32(0.125)).expect("fill");
    let mut step = StepRows::default();
    for s in 0..sequences {
        // A stride that is coprime to the page count scatters the pages.
        let table: Vec<u32> = (0..per_sequence).map(|i| ((s * per_sequence + i) * 7919 % shape.pages) as u32).collect();
        for position in context - rows..context {
            step.tokens.push(0);
            step.positions.push(position as u32);
            step.slots.push(table[position / PAGE] * PAGE as u32 + (position % PAGE) as u32);
            step.sequences.push(s as u32);
        }
        step.tables.push(table);
    }
    (pool, step, shape)
}

fn run(bench: &mut Bench, name: &str, sequences: usize, context: usize, rows: usize, limit: f64) -> f64 {
    let kv_bytes = sequences * context * KV_HEADS * D * 4;
    let layers = ((400 << 20) / kv_bytes).clamp(2, 16);
    let (pool, step, shape) = setup(bench.cuda, layers, sequences, context, rows);
    let step = bench.cuda.step(&step, &Wanted::default(), shape).expect("step");
    let len = sequences * rows * Q_HEADS * D;
    let q = bench.cuda.upload(&normal(len, 1.0, 4)).expect("device memory");
    let mut out = bench.cuda.alloc::<bf16>(len).expect("device memory");
    let cuda = bench.cuda;
    bench
        .report(name, limit, layers.max(4), |i| cuda.attention(tree(), Q_HEADS, &step, &q, &pool, i % layers, &mut out))
}

/// One new token a sequence.
pub fn decode(bench: &mut Bench) {
    for (sequences, context) in [(1, 1024), (1, 8192), (1, 32768), (8, 8192), (32, 8192), (64, 1024)] {
        let name = format!("attention/decode/{sequences}x{context}");
        if bench.wants(&name) {
            let bytes = sequences * (context * KV_HEADS * D * 4 + Q_HEADS * D * 4);
            run(bench, &name, sequences, context, 1, limit(bytes as f64, 0.0));
        }
    }
}

/// Whole prompts.
pub fn prefill(bench: &mut Bench) {
    for (sequences, context) in [(1, 2048), (1, 8192), (16, 1024)] {
        let name = format!("attention/prefill/{sequences}x{context}");
        if bench.wants(&name) {
            // Causal: half of the products, two of them a pair.
            let flops = sequences as f64 * 4.0 * Q_HEADS as f64 * D as f64 * (context * context) as f64 / 2.0;
            let seconds = run(bench, &name, sequences, context, context, limit(0.0, flops));
            println!("{:<44} {:>9.0} TFLOP/s", "", flops / seconds / 1e12);
        }
    }
}

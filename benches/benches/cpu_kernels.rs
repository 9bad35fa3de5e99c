//! CPU kernels on one thread: multiply-accumulates a second of linear layers and attention under each arithmetic and
//! instruction set, in CPU time, with the ratio to `ieee`.
//!
//! `cargo bench -p benches --bench cpu_kernels`; a filter such as `-- 'linear/avx512'` runs a part.

use benches::cpu_time::CpuTime;
use benches::table::Table;
use benches::{measure, values};
use criterion::Criterion;
use half::bf16;
use kernels_rs::backend::{Backend, KvShape, StepRows, Wanted};
use kernels_rs::cpu::{Cpu, Simd};
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, Store};
use std::time::Duration;

const ARITHMETICS: [(Arithmetic, &str); 3] =
    [(Arithmetic::Ieee, "ieee"), (Arithmetic::Sm90, "sm90"), (Arithmetic::Sm80, "sm80")];

/// (name, n, k): SmolLM2-135M, then an 8B Llama.
const LINEARS: [(&str, usize, usize); 7] = [
    ("135M qkv", 960, 576),
    ("135M gate_up", 3072, 576),
    ("135M down", 576, 1536),
    ("135M lm_head", 49152, 576),
    ("8B qkv", 6144, 4096),
    ("8B o", 4096, 4096),
    ("8B down", 4096, 14336),
];

fn linears(criterion: &mut Criterion<CpuTime>, simd: Simd) {
    let mut table = Table::new(1e9);
    let group = format!("linear/{}", simd.name());
    for (name, n, k) in LINEARS {
        let weight = values(1, n * k, 0.03);
        for m in [1, 8, 64] {
            if m * n * k > 1 << 31 || (simd.name() == "portable" && m * n * k > 1 << 26) {
                continue;
            }
            for (arithmetic, column) in ARITHMETICS {
                let cpu = Cpu::with_simd(arithmetic, 1, simd).expect("one thread");
                let k_split = LinearTree::k_split_for(n, k);
                let tree = LinearTree { n, k, k_split, epilogue: Epilogue::None, store: Store::F32 };
                let packed = cpu.linear_weight(tree, &weight, None).expect("a weight that fits its tree");
                let x = cpu.upload(&values(2, m * k, 1.0)).expect("memory");
                let mut out = cpu.alloc(m * n).expect("memory");
                let line = format!("{name} {n}x{k} M={m}");
                measure(criterion, &mut table, &group, (&line, column), m * n * k, || {
                    cpu.linear_f32(&packed, m, &x, &mut out).expect("shapes that fit");
                });
            }
        }
    }
    println!(
        "{}",
        table.markdown(&format!("linear, {}, GMAC/s a core (ratio to ieee)", simd.name()), &["ieee", "sm90", "sm80"])
    );
}

/// (name, query heads, KV heads, head_dim).
const HEADS: [(&str, usize, usize, usize); 2] = [("135M", 9, 3, 64), ("8B", 32, 8, 128)];

fn attentions(criterion: &mut Criterion<CpuTime>, simd: Simd) {
    let mut table = Table::new(1e9);
    let group = format!("attention/{}", simd.name());
    for (name, q_heads, kv_heads, head_dim) in HEADS {
        for (context, rows) in [(1024, 1), (4096, 1), (1024, 128)] {
            if simd.name() == "portable" && rows * context > 4096 {
                continue;
            }
            let pages = context / 64;
            let shape = KvShape { layers: 1, pages, page_tokens: 64, kv_heads, head_dim };
            let first = context - rows;
            let positions: Vec<u32> = (first as u32..context as u32).collect();
            let step = StepRows {
                tokens: vec![0; rows],
                slots: positions.clone(),
                positions,
                sequences: vec![0; rows],
                tables: vec![(0..pages as u32).collect()],
                ..StepRows::default()
            };
            // One multiply-accumulate for the score and one for the value.
            let work = 2 * q_heads * head_dim * (first + 1..=context).sum::<usize>();
            for (arithmetic, column) in ARITHMETICS {
                let cpu = Cpu::with_simd(arithmetic, 1, simd).expect("one thread");
                let mut pool = cpu.kv_pool(shape).expect("memory");
                cpu.kv_fill(&mut pool, bf16::from_f32(0.37)).expect("a pool");
                let step = cpu.step(&step, &Wanted::default(), shape).expect("rows that fit");
                let q = cpu.upload(&values(3, rows * q_heads * head_dim, 1.0)).expect("memory");
                let mut out = cpu.alloc(rows * q_heads * head_dim).expect("memory");
                let scale_log2 = std::f32::consts::LOG2_E / (head_dim as f32).sqrt();
                let (kv_split, kv_tile) = (AttentionTree::KV_SPLIT, AttentionTree::KV_TILE);
                let tree = AttentionTree { head_dim, kv_split, kv_tile, scale_log2, window: None };
                let line = format!("{name} {q_heads}/{kv_heads}x{head_dim} context {context}, {rows} rows");
                measure(criterion, &mut table, &group, (&line, column), work, || {
                    cpu.attention(tree, q_heads, &step, &q, &pool, 0, &mut out).expect("shapes that fit");
                });
            }
        }
    }
    println!(
        "{}",
        table
            .markdown(&format!("attention, {}, GMAC/s a core (ratio to ieee)", simd.name()), &["ieee", "sm90", "sm80"])
    );
}

fn main() {
    let mut criterion = Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .configure_from_args();
    for simd in Simd::available() {
        linears(&mut criterion, simd);
        attentions(&mut criterion, simd);
    }
    criterion.final_summary();
}

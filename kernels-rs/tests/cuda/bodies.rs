//! What is compared on the GPU: every kernel and every variant of the linear layers, by bits, against the evaluator and the
//! CPU backend. `cuda.rs` runs these.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::common::data::{Kind, Random};
use half::bf16;
use kernels_rs::backend::{Backend, KvShape, QkvParams, StepRows, Wanted};
use kernels_rs::cpu::Cpu;
use kernels_rs::cuda::Cuda;
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, RopePairing, Store};
use reduction_tree::rope;

type Opened = Result<Cuda, String>;

/// The GPU, opened once, or why there is none.
pub fn opened() -> &'static Opened {
    static GPU: OnceLock<Opened> = OnceLock::new();
    GPU.get_or_init(|| Cuda::new(0).map_err(|e| e.to_string()))
}

fn needed(gpu: &'static Opened) -> &'static Cuda {
    gpu.as_ref().unwrap_or_else(|reason| panic!("this test needs a GPU: {reason}"))
}

fn gpu() -> &'static Cuda {
    needed(opened())
}

/// The same card with the portable attention kernels.
fn portable() -> &'static Cuda {
    static GPU: OnceLock<Opened> = OnceLock::new();
    needed(GPU.get_or_init(|| Cuda::portable(0).map_err(|e| e.to_string())))
}

/// All cases, or one in `SAMETREE_FEW` of them: for runs under compute-sanitizer.
fn cases(all: u64) -> u64 {
    let few = std::env::var("SAMETREE_FEW").ok();
    let few = few.map(|v| v.parse().ok().filter(|&n| n > 0).expect("SAMETREE_FEW is a number above 0"));
    all.div_ceil(few.unwrap_or(1))
}

/// Runs a body for many seeds, on as many threads as the machine has: the evaluator takes the time, not the GPU.
fn each(seeds: std::ops::Range<u64>, gpu: &Cuda, body: impl Fn(&Cuda, u64) -> crate::common::Outcome + Sync) {
    let seeds = seeds.start..cases(seeds.end);
    let next = AtomicU64::new(seeds.start);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&seed| seed < seeds.end) {
                    if let Err(failure) = body(gpu, seed) {
                        failures.lock().expect("no thread panicked").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panicked");
    let shown = failures.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {} cases differ:\n{shown}", failures.len(), seeds.end - seeds.start);
}

pub fn linear() {
    each(0..240, gpu(), crate::common::linear::linear);
}

pub fn embed() {
    each(0..200, gpu(), crate::common::linear::embed);
}

pub fn random_weight() {
    each(0..200, gpu(), crate::common::linear::random_weight);
}

pub fn rmsnorm() {
    each(0..240, gpu(), crate::common::rows::rmsnorm);
}

pub fn add_rmsnorm() {
    each(0..240, gpu(), crate::common::rows::add_rmsnorm);
}

pub fn gather_wanted() {
    each(0..200, gpu(), crate::common::rows::gather_wanted);
}

pub fn sample() {
    each(0..240, gpu(), crate::common::rows::sample);
}

pub fn qkv_and_attention() {
    each(0..200, gpu(), |b, seed| crate::common::attention::attention(b, &HEADS, seed));
}

pub fn qkv_and_attention_of_plans() {
    each(0..40, gpu(), |b, seed| crate::common::attention::attention(b, &crate::common::attention::PLANS, seed));
}

pub fn qkv_and_portable_attention() {
    each(0..200, portable(), |b, seed| crate::common::attention::attention(b, &HEADS, seed));
}

pub fn long_contexts_by_the_portable_kernel() {
    // Many tiles and splits, where the evaluator would take minutes.
    let all = [(128, 4, 16, None), (64, 7, 8, None), (128, 1, 128, Some(700)), (64, 3, 24, Some(1000))];
    let context = if cases(4) < 4 { 700 } else { 2600 };
    for (seed, &(head_dim, group, page_tokens, window)) in all.iter().take(cases(4) as usize).enumerate() {
        let case = LongContext { seed: seed as u64, head_dim, group, page_tokens, window, context };
        let (fast, expected) = (case.run(gpu()), case.run(portable()));
        let differing = fast.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert!(fast.len() == expected.len() && differing == 0, "{case:?}: {differing} of {} differ", fast.len());
    }
}

pub fn negative_zero() {
    each(0..4, gpu(), |b, seed| crate::common::attention::negative_zero(b, HEADS.kv_tiles, seed));
    each(0..4, portable(), |b, seed| crate::common::attention::negative_zero(b, HEADS.kv_tiles, seed));
}

pub fn refusals() {
    each(0..1, gpu(), |b, _| crate::common::refusals::of_matrices(b));
    each(0..1, gpu(), |b, _| crate::common::refusals::of_attention(b));
}

/// One sequence, in three steps: a long one, a long one that sees it, one row.
#[derive(Debug)]
struct LongContext {
    seed: u64,
    head_dim: usize,
    group: usize,
    page_tokens: usize,
    window: Option<usize>,
    context: usize,
}

impl LongContext {
    fn run(&self, b: &Cuda) -> Vec<u16> {
        let &Self { head_dim: d, group, page_tokens, window, context, .. } = self;
        let r = &mut Random(self.seed);
        let (kv_heads, q_heads) = (2, 2 * group);
        let scale_log2 = std::f32::consts::LOG2_E / (d as f32).sqrt();
        let tree = AttentionTree { head_dim: d, kv_split: 512, kv_tile: AttentionTree::KV_TILE, scale_log2, window };
        let pages = context.div_ceil(page_tokens);
        let shape = KvShape { layers: 1, pages, page_tokens, kv_heads, head_dim: d };
        // A stride that is coprime to the page count scatters the pages.
        let stride = (7..).find(|s| (2..=*s).all(|f| s % f != 0 || pages % f != 0)).expect("some stride is coprime");
        let table: Vec<u32> = (0..pages).map(|i| (i * stride % pages) as u32).collect();
        let (cos, sin) = rope::tables(context, &rope::inverse_frequencies(10_000.0, d));
        let (cos, sin) = (b.upload(&cos).expect("memory"), b.upload(&sin).expect("memory"));
        let params = QkvParams { q_heads, qk_norm: None, cos: &cos, sin: &sin, pairing: RopePairing::Half };
        let mut pool = b.kv_pool(shape).expect("memory");
        b.kv_fill(&mut pool, bf16::NAN).expect("fill");
        let mut all = Vec::new();
        for positions in [0..context / 2 + 3, context / 2 + 3..context - 1, context - 1..context] {
            let rows = positions.len();
            let slot = |p: usize| table[p / page_tokens] * page_tokens as u32 + (p % page_tokens) as u32;
            let step = StepRows {
                tokens: vec![0; rows],
                positions: positions.clone().map(|p| p as u32).collect(),
                slots: positions.map(slot).collect(),
                sequences: vec![0; rows],
                tables: vec![table.clone()],
                taken: vec![],
            };
            let step = b.step(&step, &Wanted::default(), shape).expect("step");
            let qkv = Kind::Model.vector(r, rows * (q_heads + 2 * kv_heads) * d);
            let len = rows * q_heads * d;
            let (mut q, mut out) = (b.alloc(len).expect("memory"), b.alloc(len).expect("memory"));
            let mut faults = b.alloc(rows).expect("memory");
            let qkv = b.upload(&qkv).expect("memory");
            b.qkv(&params, &step, &qkv, &mut pool, 0, &mut q, &mut faults).expect("qkv");
            b.attention(tree, q_heads, &step, &q, &pool, 0, &mut out).expect("attention");
            all.extend(b.download(&out, len).expect("download").into_iter().map(bf16::to_bits));
        }
        all
    }
}

/// What the CUDA kernels take: their tile is fixed; pages of any size.
const HEADS: crate::common::attention::Choices = crate::common::attention::Choices {
    groups: &[1, 2, 3, 4, 5, 7, 8],
    kv_tiles: &[AttentionTree::KV_TILE],
    ..crate::common::attention::ANY
};

/// A random case for the linear variants, and its result on the CPU.
struct Case {
    tree: LinearTree,
    rows: usize,
    weight: Vec<bf16>,
    x: Vec<bf16>,
    bias: Vec<bf16>,
    residual: Vec<bf16>,
    what: String,
}

fn case(seed: u64) -> Case {
    let r = &mut Random(seed.wrapping_mul(0x9e37) + 11);
    let epilogues =
        [Epilogue::None, Epilogue::None, Epilogue::Bias, Epilogue::Residual, Epilogue::SiluMul, Epilogue::SiluMul];
    let epilogue = epilogues[r.below(6) as usize];
    let store = if epilogue == Epilogue::None && r.below(2) == 0 { Store::F32 } else { Store::Bf16 };
    // Mostly lengths that the fast kernels take, some that only the portable ones do.
    let unit = if r.below(8) == 0 { 2 } else { 16 };
    let n = unit * (1 + r.below(640 / unit) as usize) as u64;
    let k = match r.below(4) {
        0 => 64 * (1 + r.below(20)),
        1 => 8 * (1 + r.below(160)),
        _ => 1 + r.below(1300),
    };
    let rows = match r.below(8) {
        0 | 1 => 1 + r.below(16),
        2 => 1 + r.below(8),
        3 | 4 => 17 + r.below(48),
        5 | 6 => 65 + r.below(64),
        _ => 129 + r.below(150),
    };
    let (n, k, rows) = (n as usize, k as usize, rows as usize);
    let tree = LinearTree { n, k, k_split: [1, 1, 2, 3][r.below(4) as usize], epilogue, store };
    let kind = |r: &mut Random| Kind::ALL[r.below(Kind::ALL.len() as u64) as usize];
    let (kw, kx) = if r.below(2) == 0 { (Kind::Model, Kind::Model) } else { (kind(r), kind(r)) };
    let what = format!("seed {seed} {tree:?} {rows} rows, w {kw:?}, x {kx:?}");
    Case {
        tree,
        rows,
        weight: kw.vector(r, n * k),
        x: kx.vector(r, rows * k),
        bias: Kind::Model.vector(r, n),
        residual: kind(r).vector(r, rows * n),
        what,
    }
}

impl Case {
    /// Output bits by a backend's own choice, or by a CUDA variant.
    fn run<B: Backend>(
        &self,
        b: &B,
        by: impl Fn(&B::Linear, &B::Buffer<bf16>, Option<&B::Buffer<bf16>>, Out<'_, B>),
    ) -> Vec<u32> {
        let bias = (self.tree.epilogue == Epilogue::Bias).then_some(&self.bias[..]);
        let weight = b.linear_weight(self.tree, &self.weight, bias).expect("weight");
        let x = b.upload(&self.x).expect("memory");
        let residual = b.upload(&self.residual).expect("memory");
        let residual = (self.tree.epilogue == Epilogue::Residual).then_some(&residual);
        let len = self.rows * self.tree.outputs();
        if self.tree.store == Store::F32 {
            let mut out = b.upload(&vec![f32::from_bits(0xffff_ffff); len]).expect("memory");
            by(&weight, &x, residual, Out::F32(&mut out));
            b.download(&out, len).expect("download").into_iter().map(f32::to_bits).collect()
        } else {
            let mut out = b.upload(&vec![crate::common::STALE; len]).expect("memory");
            by(&weight, &x, residual, Out::Bf16(&mut out));
            b.download(&out, len).expect("download").into_iter().map(|v| v.to_bits().into()).collect()
        }
    }
}

enum Out<'a, B: Backend> {
    Bf16(&'a mut B::Buffer<bf16>),
    F32(&'a mut B::Buffer<f32>),
}

/// Every variant that fits a case, forced, against the CPU backend. Every variant of the kernel files must have been compared
/// on at least 200 shapes.
pub fn every_linear_variant() {
    let gpu = gpu();
    let cpu = Cpu::new(gpu.arithmetic(), 0).expect("threads");
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for seed in 0..cases(CASES) {
        let case = case(seed);
        let expected = case.run(&cpu, |w, x, r, out| match out {
            Out::Bf16(out) => cpu.linear(w, case.rows, x, r, out).expect("cpu"),
            Out::F32(out) => cpu.linear_f32(w, case.rows, x, out).expect("cpu"),
        });
        let bias = (case.tree.epilogue == Epilogue::Bias).then_some(&case.bias[..]);
        let weight = gpu.linear_weight(case.tree, &case.weight, bias).expect("weight");
        for variant in gpu.linear_variants(&weight, case.rows) {
            let got = case.run(gpu, |w, x, r, out| match out {
                Out::Bf16(out) => gpu.linear_by(variant, w, case.rows, x, r, out).expect(variant),
                Out::F32(out) => gpu.linear_f32_by(variant, w, case.rows, x, out).expect(variant),
            });
            *compared.entry(variant).or_default() += 1;
            let differing = got.iter().zip(&expected).filter(|(a, b)| a != b).count();
            if differing > 0 {
                let at = got.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(0);
                let (row, column) = (at / case.tree.outputs(), at % case.tree.outputs());
                let (g, e) = (got[at], expected[at]);
                failures.push(format!("{variant} {}: {differing} of {} differ, first row {row} column {column}: expected {e:#x}, got {g:#x}", case.what, got.len()));
            }
        }
    }
    println!("shapes compared by variant: {compared:#?}");
    let shown = failures.iter().take(24).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} comparisons differ:\n{shown}", failures.len());
    let few: Vec<_> = compared.iter().filter(|(_, count)| **count < 200).collect();
    assert!(few.is_empty() || cases(CASES) < CASES, "variants compared on fewer than 200 shapes: {few:?}");
}

const CASES: u64 = 3600;

/// Row 0 of a batch, by a layer whose chunk count depends on the number of rows: what batch-dependent libraries do.
fn batch_dependent_linear(gpu: &Cuda, weight: &[bf16], x: &[bf16], n: usize, k: usize) -> Vec<u16> {
    let rows = x.len() / k;
    let k_split = if rows < 64 { 2 } else { 1 };
    linear_row_0(gpu, LinearTree { n, k, k_split, epilogue: Epilogue::None, store: Store::Bf16 }, weight, x)
}

fn linear_row_0(gpu: &Cuda, tree: LinearTree, weight: &[bf16], x: &[bf16]) -> Vec<u16> {
    let weight = gpu.linear_weight(tree, weight, None).expect("weight");
    let rows = x.len() / tree.k;
    let mut out = gpu.alloc(rows * tree.n).expect("memory");
    gpu.linear(&weight, rows, &gpu.upload(x).expect("memory"), None, &mut out).expect("launch");
    gpu.download(&out, tree.n).expect("download").into_iter().map(|v| v.to_bits()).collect()
}

/// A row alone equals the same row inside batches of every size class, and the same check catches a layer that splits K by
/// the number of rows.
pub fn alone_equals_inside_a_batch_and_a_batch_dependent_split_is_caught() {
    let gpu = gpu();
    let (n, k) = (512, 2048);
    let r = &mut Random(5);
    let (weight, x) = (Kind::Model.vector(r, n * k), Kind::Model.vector(r, 700 * k));
    let tree = LinearTree { n, k, k_split: 2, epilogue: Epilogue::None, store: Store::Bf16 };
    let alone = linear_row_0(gpu, tree, &weight, &x[..k]);
    let control = batch_dependent_linear(gpu, &weight, &x[..k], n, k);
    let mut caught = 0;
    for rows in [2, 8, 9, 16, 17, 40, 64, 65, 128, 129, 256, 300, 512, 700] {
        assert_eq!(alone, linear_row_0(gpu, tree, &weight, &x[..rows * k]), "row 0 alone and among {rows}");
        caught += usize::from(control != batch_dependent_linear(gpu, &weight, &x[..rows * k], n, k));
    }
    assert_eq!(caught, 8, "the batch-dependent control must differ in each batch of 64 rows and more");
}

/// The black-box probe finds the declared tree in the kernels for every size class of rows, portable ones included.
pub fn probed_trees_are_the_declared_ones() {
    use kernels_rs::probe;
    let gpu = gpu();
    // 7 columns: only the portable kernels store an odd number of them.
    let sizes = [(8, 64), (8, 4), (8, 8), (8, 16), (8, 128), (8, 256), (7, 16), (7, 64)];
    let trees = [(72, 2), (200, 1), (192, 2), (300, 3)];
    let all = trees.iter().flat_map(|&tree| sizes.iter().map(move |&size| (tree, size)));
    for ((k, k_split), (n, rows)) in all.take(cases(32) as usize) {
        let tree = LinearTree { n, k, k_split, epilogue: Epilogue::None, store: Store::F32 };
        let found = probe::linear(gpu, tree, rows).expect("a sum");
        assert_eq!(found, probe::declared(&tree, gpu.arithmetic()), "{tree:?}, {rows} rows");
    }
}

/// wgmma of every width, with A from shared memory and from registers, and with the operands swapped, is the soft tensor
/// core on every kind of data.
pub fn wgmma_of_every_width_is_the_soft_tensor_core() {
    use kernels_rs::cuda::instructions::wgmma_kernels;
    use reduction_tree::arithmetic::{Arithmetic, chain};
    let gpu = gpu();
    if gpu.arithmetic() != Arithmetic::Sm90 || !gpu.linear_has_wgmma() {
        return;
    }
    let r = &mut Random(99);
    let mut products = 0;
    for (name, n, _) in wgmma_kernels() {
        for (i, &kind) in Kind::ALL.iter().chain(&[Kind::Any]).enumerate() {
            let k = 64 * (1 + i % 4);
            let (a, b) = (kind.vector(r, 64 * k), Kind::ALL[(i * 3) % Kind::ALL.len()].vector(r, n * k));
            let got = gpu.wgmma(name, &a, &b, k).expect("launch");
            for (at, got) in got.iter().enumerate() {
                let (row, column) = (at / n, at % n);
                let expected =
                    chain(Arithmetic::Sm90, 0.0, &a[row * k..(row + 1) * k], &b[column * k..(column + 1) * k]);
                let expected = reduction_tree::scalar::canonical(expected);
                assert_eq!(
                    expected.to_bits(),
                    got.to_bits(),
                    "{name} {kind:?} k {k} row {row} column {column}: {expected} {got}"
                );
                products += 1;
            }
            if n == 64 {
                let swapped = gpu.wgmma(name, &b, &a, k).expect("launch");
                let same = (0..64 * 64).all(|at| swapped[at % 64 * 64 + at / 64].to_bits() == got[at].to_bits());
                assert!(same, "{name} {kind:?}: operands swapped");
            }
        }
    }
    println!("{products} wgmma outputs compared");
}

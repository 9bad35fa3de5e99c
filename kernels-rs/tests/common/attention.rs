//! The QKV stage and attention over a paged pool that starts full of NaN, in steps that cut the sequences anyhow.

use super::data::{Kind, Random};
use super::{Outcome, STALE, equal, unwritten};
use half::bf16;
use kernels_rs::backend::{Backend, KvShape, QkvParams, StepRows, Wanted};
use reduction_tree::evaluate::{self, Qkv};
use reduction_tree::operator::{AttentionTree, RmsNormTree, RopePairing};
use reduction_tree::rope;

/// Heads and trees of one case.
struct Model {
    shape: KvShape,
    q_heads: usize,
    tree: AttentionTree,
    norm: Option<(Vec<bf16>, Vec<bf16>, RmsNormTree)>,
    pairing: RopePairing,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// A sequence as the reference knows it: the KV of its prefix in each layer.
struct Sequence {
    table: Vec<u32>,
    len: usize,
    keys: Vec<bf16>,
    values: Vec<bf16>,
}

/// Positions that a sequence may reach.
const CONTEXT: usize = 320;

/// What random models are made of.
pub struct Choices {
    /// Elements of a head.
    pub head_dims: &'static [usize],
    /// Query heads of one KV head.
    pub groups: &'static [usize],
    /// Tokens of a page.
    pub page_tokens: &'static [usize],
    /// Tokens of a tile.
    pub kv_tiles: &'static [usize],
    /// Windows.
    pub windows: &'static [Option<usize>],
}

/// Whatever an [`AttentionTree`] can say.
pub const ANY: Choices = Choices {
    head_dims: &[16, 32, 48, 64, 128],
    groups: &[1, 2, 3, 4, 7],
    page_tokens: &[1, 4, 8, 16, 24, 32, 48, 64, 64, 128],
    kv_tiles: &[16, 32, 48, 64, 128],
    windows: &[None, None, Some(1), Some(40)],
};

/// What plans of real models use.
pub const PLANS: Choices = Choices {
    head_dims: &[64, 128],
    groups: &[1, 3, 4, 7],
    page_tokens: &[64],
    kv_tiles: &[AttentionTree::KV_TILE],
    windows: &[None],
};

fn model(r: &mut Random, choices: &Choices) -> Model {
    let mut pick = |from: &[usize]| from[r.below(from.len() as u64) as usize];
    let head_dim = pick(choices.head_dims);
    let kv_heads = pick(&[1, 2, 3]);
    let q_heads = kv_heads * pick(choices.groups);
    let page_tokens = pick(choices.page_tokens);
    let kv_tile = pick(choices.kv_tiles);
    let kv_split = kv_tile * pick(&[1, 2, 3, 4]);
    let window = choices.windows[r.below(choices.windows.len() as u64) as usize];
    let scale_log2 = std::f32::consts::LOG2_E / (head_dim as f32).sqrt();
    let norm = RmsNormTree { d: head_dim, eps: 1e-6 };
    let norm = (r.below(2) == 0).then(|| (Kind::Model.vector(r, head_dim), Kind::Wide.vector(r, head_dim), norm));
    let (cos, sin) = rope::tables(CONTEXT, &rope::inverse_frequencies(10_000.0, head_dim));
    let pages = 4 * CONTEXT.div_ceil(page_tokens);
    Model {
        shape: KvShape { layers: 2, pages, page_tokens, kv_heads, head_dim },
        q_heads,
        tree: AttentionTree { head_dim, kv_split, kv_tile, scale_log2, window },
        norm,
        pairing: if r.below(2) == 0 { RopePairing::Half } else { RopePairing::Interleaved },
        cos,
        sin,
    }
}

/// Several sequences on shuffled pages, advanced by steps of random chunks; every query and output row is compared.
pub fn attention<B: Backend>(b: &B, choices: &Choices, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let m = model(r, choices);
    let mut free: Vec<u32> = (0..m.shape.pages as u32).collect();
    for i in (1..free.len()).rev() {
        free.swap(i, r.below(i as u64 + 1) as usize);
    }
    let pages = CONTEXT.div_ceil(m.shape.page_tokens);
    let mut sequences: Vec<Sequence> = (0..1 + r.below(4))
        .map(|_| Sequence { table: free.split_off(free.len() - pages), len: 0, keys: vec![], values: vec![] })
        .collect();
    let mut pool = b.kv_pool(m.shape).map_err(|e| e.to_string())?;
    b.kv_fill(&mut pool, bf16::NAN).map_err(|e| e.to_string())?;
    let kind = [Kind::Model, Kind::Model, Kind::Wide, Kind::Tiny, Kind::Sparse, Kind::Any][r.below(6) as usize];
    for turn in 0..4 {
        let counts: Vec<usize> =
            sequences.iter().map(|s| [0, 1, 1, 3, 20, 70][r.below(6) as usize].min(CONTEXT - s.len)).collect();
        let rows: usize = counts.iter().sum();
        let width = (m.q_heads + 2 * m.shape.kv_heads) * m.shape.head_dim;
        let qkv = kind.vector(r, rows * width);
        step(b, &m, &mut pool, &mut sequences, &counts, &qkv)
            .map_err(|e| format!("attention seed {seed} step {turn} {kind:?} {:?} {:?}: {e}", m.shape, m.tree))?;
    }
    Ok(())
}

/// One step through the backend and the evaluator, in layer 1.
fn step<B: Backend>(
    b: &B,
    m: &Model,
    pool: &mut B::KvPool,
    sequences: &mut [Sequence],
    counts: &[usize],
    qkv: &[bf16],
) -> Outcome {
    let (d, kv_heads) = (m.shape.head_dim, m.shape.kv_heads);
    let width = (m.q_heads + 2 * kv_heads) * d;
    let norm = m.norm.as_ref().map(|(q, k, tree)| (&q[..], &k[..], *tree));
    let params = Qkv { q_heads: m.q_heads, kv_heads, head_dim: d, qk_norm: norm, pairing: m.pairing };
    let mut step = StepRows { tables: sequences.iter().map(|s| s.table.clone()).collect(), ..Default::default() };
    let (mut queries, mut faults, mut outputs) = (vec![], vec![], vec![]);
    for (index, (sequence, count)) in sequences.iter_mut().zip(counts).enumerate() {
        for _ in 0..*count {
            let position = sequence.len;
            let row = step.tokens.len();
            step.tokens.push(0);
            step.positions.push(position as u32);
            let page = sequence.table[position / m.shape.page_tokens];
            step.slots.push(page * m.shape.page_tokens as u32 + (position % m.shape.page_tokens) as u32);
            step.sequences.push(index as u32);
            let table = position * d / 2..(position + 1) * d / 2;
            let cell =
                evaluate::qkv(&params, &qkv[row * width..(row + 1) * width], &m.cos[table.clone()], &m.sin[table]);
            sequence.keys.extend(&cell.k);
            sequence.values.extend(&cell.v);
            sequence.len += 1;
            faults.push(u32::from(cell.fault));
            outputs.extend(expected(b, m, sequence, position, &cell.q));
            queries.extend(cell.q);
        }
    }
    let rows = step.tokens.len();
    let e = |e: kernels_rs::backend::Error| e.to_string();
    let step = b.step(&step, &Wanted::default(), m.shape).map_err(e)?;
    let (mut q, mut flags) = (unwritten(b, STALE, rows * m.q_heads * d), unwritten(b, 0u32, rows));
    let (cos, sin) = (b.upload(&m.cos).map_err(e)?, b.upload(&m.sin).map_err(e)?);
    let norm = match &m.norm {
        None => None,
        Some((q, k, tree)) => Some((b.upload(q).map_err(e)?, b.upload(k).map_err(e)?, *tree)),
    };
    let qk_norm = norm.as_ref().map(|(q, k, tree)| (q, k, *tree));
    let params = QkvParams { q_heads: m.q_heads, qk_norm, cos: &cos, sin: &sin, pairing: m.pairing };
    b.qkv(&params, &step, &b.upload(qkv).map_err(e)?, pool, 1, &mut q, &mut flags).map_err(e)?;
    equal(b, "query", &q, &queries, m.q_heads * d)?;
    equal(b, "fault flags", &flags, &faults, 1)?;
    let mut out = unwritten(b, STALE, rows * m.q_heads * d);
    b.attention(m.tree, m.q_heads, &step, &q, pool, 1, &mut out).map_err(e)?;
    equal(b, "output", &out, &outputs, m.q_heads * d)
}

/// The evaluator's output row of all query heads.
fn expected<B: Backend>(b: &B, m: &Model, sequence: &Sequence, position: usize, q: &[bf16]) -> Vec<bf16> {
    let (d, kv_heads) = (m.shape.head_dim, m.shape.kv_heads);
    let head = |cells: &[bf16], head: usize| -> Vec<bf16> {
        cells.chunks(kv_heads * d).flat_map(|cell| cell[head * d..(head + 1) * d].to_vec()).collect()
    };
    let mut row = Vec::new();
    for kv in 0..kv_heads {
        let (keys, values) = (head(&sequence.keys, kv), head(&sequence.values, kv));
        let group = m.q_heads / kv_heads;
        for q in q[kv * group * d..(kv + 1) * group * d].chunks(d) {
            row.extend(evaluate::attention(b.arithmetic(), &m.tree, q, position, &keys, &values));
        }
    }
    row
}

/// Accumulators that are -0 when the masked part of a tile begins: masked values must count as +0 and not as 0 * v, or a
/// later token's sign would show. Position 0 takes all weight and has V = 0; the products of the others round to -0.
pub fn negative_zero<B: Backend>(b: &B, tiles: &[usize], seed: u64) -> Outcome {
    let (kv_tile, last) =
        (tiles[seed as usize % tiles.len()], [-1.0, f32::from_bits(0x8001_0000)][seed as usize >> 1 & 1]);
    let d = 16;
    let m = Model {
        shape: KvShape { layers: 2, pages: 1, page_tokens: 32, kv_heads: 1, head_dim: d },
        q_heads: 1,
        tree: AttentionTree { head_dim: d, kv_split: kv_tile.max(32), kv_tile, scale_log2: 0.36, window: None },
        norm: None,
        pairing: RopePairing::Half,
        cos: vec![1.0; 16 * d / 2],
        sin: vec![0.0; 16 * d / 2],
    };
    let mut qkv = Vec::new();
    for position in 0..16 {
        let (k, v) = match position {
            0 => (2.0, 0.0),
            15 => (-2.0, last),
            _ => (-2.0, f32::from_bits(0x8001_0000)),
        };
        for x in [1.0, k, v] {
            qkv.extend([bf16::from_f32(x); 16]);
        }
    }
    let mut pool = b.kv_pool(m.shape).map_err(|e| e.to_string())?;
    let mut sequence = [Sequence { table: vec![0], len: 0, keys: vec![], values: vec![] }];
    step(b, &m, &mut pool, &mut sequence, &[16], &qkv)
}

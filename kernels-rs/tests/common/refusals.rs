//! Calls whose shapes do not fit: every one must be refused with an error, and none may panic.

use super::Outcome;
use half::bf16;
use kernels_rs::backend::{Backend, Error, KvShape, QkvParams, Result, SampleParams, StepRows, Wanted};
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, RmsNormTree, RopePairing, Store};

const SHAPE: KvShape = KvShape { layers: 1, pages: 2, page_tokens: 16, kv_heads: 1, head_dim: 16 };

fn rows(n: u32) -> StepRows {
    let places: Vec<u32> = (0..n).collect();
    let (tokens, sequences) = (vec![0; n as usize], vec![0; n as usize]);
    StepRows {
        tokens,
        positions: places.clone(),
        slots: places,
        sequences,
        tables: vec![vec![0, 1]],
        taken: Vec::new(),
    }
}

/// `Err` when a call that must be refused is not.
fn refused<T>(what: &str, result: Result<T>) -> Outcome {
    match result {
        Err(error) if error.to_string().contains("expected") => Ok(()),
        Err(error) => Err(format!("{what}: the message names no expectation: {error}")),
        Ok(_) => Err(format!("{what} was not refused")),
    }
}

/// Weights, linear layers and rows.
pub fn of_matrices<B: Backend>(b: &B) -> Outcome {
    let tree = |n, k, epilogue, store| LinearTree { n, k, k_split: 1, epilogue, store };
    let weight = vec![bf16::ONE; 12];
    let plain = tree(4, 3, Epilogue::None, Store::Bf16);
    refused("short weight", b.linear_weight(plain, &weight[..11], None))?;
    refused("overflowing shape", b.linear_weight(tree(usize::MAX, 3, Epilogue::None, Store::F32), &weight, None))?;
    refused("empty weight", b.linear_weight(tree(0, 3, Epilogue::None, Store::F32), &[], None))?;
    refused("odd gate", b.linear_weight(tree(3, 4, Epilogue::SiluMul, Store::F32), &weight, None))?;
    refused("no bias", b.linear_weight(tree(4, 3, Epilogue::Bias, Store::F32), &weight, None))?;
    refused("a bias too many", b.linear_weight(plain, &weight, Some(&weight[..4])))?;
    refused("k_split 0", b.linear_weight(LinearTree { k_split: 0, ..plain }, &weight, None))?;

    let packed = b.linear_weight(plain, &weight, None).map_err(text)?;
    let (x, mut out, mut out32) = (b.alloc(6).map_err(text)?, b.alloc(8).map_err(text)?, b.alloc(8).map_err(text)?);
    b.linear(&packed, 2, &x, None, &mut out).map_err(text)?;
    refused("short x", b.linear(&packed, 3, &x, None, &mut b.alloc(12).map_err(text)?))?;
    refused("short out", b.linear(&packed, 2, &x, None, &mut b.alloc(7).map_err(text)?))?;
    refused("overflowing rows", b.linear(&packed, usize::MAX, &x, None, &mut out))?;
    refused("unwanted residual", b.linear(&packed, 2, &x, Some(&x), &mut out))?;
    refused("wrong store", b.linear_f32(&packed, 2, &x, &mut out32))?;
    let residual = b.linear_weight(tree(4, 3, Epilogue::Residual, Store::Bf16), &weight, None).map_err(text)?;
    refused("no residual", b.linear(&residual, 2, &x, None, &mut out))?;
    refused("short residual", b.linear(&residual, 2, &x, Some(&x), &mut out))?;

    let greedy = SampleParams { temperature: 0.0, top_k: None, top_p: 1.0, min_p: 0.0, seed: 0, position: 0 };
    let of = |wanted: &[u32], samples: &[SampleParams]| {
        b.step(&StepRows { tokens: vec![3, 4], ..rows(2) }, &Wanted { rows: wanted, samples }, SHAPE)
    };
    refused("wanted row out of range", of(&[2], &[]))?;
    refused("more samples than wanted rows", of(&[1], &[greedy; 2]))?;
    let step = of(&[1, 0, 1], &[greedy; 3]).map_err(text)?;
    refused("token out of range", b.embed(&packed, &step, &mut out))?;
    refused("norm of nothing", b.rmsnorm(RmsNormTree { d: 0, eps: 0.0 }, 1, &x, &x, &mut out))?;
    refused("short norm", b.rmsnorm(RmsNormTree { d: 4, eps: 0.0 }, 2, &x, &x, &mut out))?;
    refused("short gather", b.gather_wanted(3, &step, &x, &mut out))?;
    refused("gather of short rows", b.gather_wanted(4, &step, &x, &mut b.alloc(12).map_err(text)?))?;
    let mut chosen = b.alloc::<u32>(6).map_err(text)?;
    refused("short logits of a step", b.sample_wanted(3, &step, &out32, &mut chosen))?;
    refused("nowhere to put tokens", b.sample_wanted(2, &step, &out32, &mut b.alloc(5).map_err(text)?))?;
    refused("write past the end", b.write(&[0; 7], &mut chosen))?;
    refused("reading words past the end", b.read_later(&[(&chosen, 6), (&chosen, 7)], None))?;
    refused("reading floats past the end", b.read_later(&[], Some((&out32, 9))))?;
    refused("clearing past the end", b.clear(&mut chosen, 7))?;
    refused(
        "taking by a row out of range",
        b.step(&StepRows { taken: vec![(2, 0)], ..rows(2) }, &Wanted::default(), SHAPE),
    )?;
    let mut taking = b.step(&StepRows { taken: vec![(1, 6)], ..rows(2) }, &Wanted::default(), SHAPE).map_err(text)?;
    refused("taking a token past the end", b.take_tokens(&mut taking, &chosen))?;
    refused("poison of short rows", b.poison(&step, 3, 5, &mut out))?;
    refused("short sum", b.residual_add(7, &x, &x, &mut out))?;
    let d4 = RmsNormTree { d: 4, eps: 0.0 };
    let (mut sum, mut normed) = (b.alloc(8).map_err(text)?, b.alloc(8).map_err(text)?);
    refused("short added rows", b.add_rmsnorm(d4, 2, &x, &x, &x, &mut sum, &mut normed))?;
    refused("overflowing added rows", b.add_rmsnorm(d4, usize::MAX, &x, &x, &x, &mut sum, &mut normed))?;
    refused("download past the end", b.download(&out, 9))?;
    refused("short logits", b.sample(8, &out32, &[greedy, greedy]))?;
    refused("no vocabulary", b.sample(0, &out32, &[greedy]))
}

/// Pools, steps, QKV and attention.
pub fn of_attention<B: Backend>(b: &B) -> Outcome {
    for shape in [
        KvShape { layers: 0, ..SHAPE },
        KvShape { page_tokens: 0, ..SHAPE },
        KvShape { head_dim: usize::MAX - 15, ..SHAPE },
        KvShape { kv_heads: usize::MAX, ..SHAPE },
        KvShape { head_dim: 24, ..SHAPE },
        KvShape { pages: usize::MAX, ..SHAPE },
        KvShape { pages: 1 << 27, layers: 1 << 20, head_dim: 1 << 20, ..SHAPE },
    ] {
        refused(&format!("{shape:?}"), b.kv_pool(shape))?;
    }
    let sequence = |f: &dyn Fn(&mut StepRows)| {
        let mut rows = rows(3);
        f(&mut rows);
        b.step(&rows, &Wanted::default(), SHAPE)
    };
    refused("missing position", sequence(&|r| r.positions.truncate(2)))?;
    refused("slot out of range", sequence(&|r| r.slots[0] = 32))?;
    refused("slot written twice", sequence(&|r| r.slots[0] = 2))?;
    refused("page out of range", sequence(&|r| r.tables[0][1] = 2))?;
    refused("no such sequence", sequence(&|r| r.sequences[1] = 1))?;
    refused("position past the table", sequence(&|r| r.positions[2] = 32))?;
    refused("descending positions", sequence(&|r| r.positions = vec![1, 0, 2]))?;
    refused(
        "a sequence in two places",
        sequence(&|r| {
            r.sequences = vec![0, 1, 0];
            r.tables.push(vec![1]);
        }),
    )?;

    let mut pool = b.kv_pool(SHAPE).map_err(text)?;
    let step = b.step(&rows(3), &Wanted::default(), SHAPE).map_err(text)?;
    let table = b.alloc::<f32>(24).map_err(text)?;
    let params = QkvParams { q_heads: 2, qk_norm: None, cos: &table, sin: &table, pairing: RopePairing::Half };
    let (qkv, mut q) = (b.alloc(3 * 64).map_err(text)?, b.alloc(3 * 32).map_err(text)?);
    let mut faults = b.alloc(3).map_err(text)?;
    b.qkv(&params, &step, &qkv, &mut pool, 0, &mut q, &mut faults).map_err(text)?;
    refused("no such layer", b.qkv(&params, &step, &qkv, &mut pool, 1, &mut q, &mut faults))?;
    refused(
        "short qkv",
        b.qkv(&params, &step, &b.alloc(3 * 64 - 1).map_err(text)?, &mut pool, 0, &mut q, &mut faults),
    )?;
    let short = b.alloc::<f32>(23).map_err(text)?;
    let params = QkvParams { q_heads: 2, qk_norm: None, cos: &short, sin: &table, pairing: RopePairing::Half };
    refused("short table", b.qkv(&params, &step, &qkv, &mut pool, 0, &mut q, &mut faults))?;

    let tree = AttentionTree { head_dim: 16, kv_split: 256, kv_tile: 128, scale_log2: 0.3, window: None };
    let mut out = b.alloc(3 * 32).map_err(text)?;
    b.attention(tree, 2, &step, &q, &pool, 0, &mut out).map_err(text)?;
    for tree in [
        AttentionTree { head_dim: 32, ..tree },
        AttentionTree { kv_tile: 8, ..tree },
        AttentionTree { kv_tile: 0, ..tree },
        AttentionTree { kv_split: 40, ..tree },
        AttentionTree { scale_log2: f32::NAN, ..tree },
        AttentionTree { window: Some(0), ..tree },
    ] {
        refused(&format!("{tree:?}"), b.attention(tree, 2, &step, &q, &pool, 0, &mut out))?;
    }
    refused("no query heads", b.attention(tree, 0, &step, &q, &pool, 0, &mut out))?;
    refused("no such layer", b.attention(tree, 2, &step, &q, &pool, 1, &mut out))?;
    refused("short q", b.attention(tree, 3, &step, &q, &pool, 0, &mut out))
}

fn text(error: Error) -> String {
    error.to_string()
}

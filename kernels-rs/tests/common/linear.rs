//! Linear layers and embedding.

use super::data::{Kind, Random};
use super::{Outcome, STALE, equal, unwritten};
use half::bf16;
use kernels_rs::backend::{Backend, KvShape, RandomTensor, StepRows, Wanted};
use reduction_tree::evaluate;
use reduction_tree::operator::{Epilogue, LinearTree, Store};

/// One random shape, epilogue and kind of data.
pub fn linear<B: Backend>(b: &B, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let (n, k, rows) = (1 + r.below(80) as usize, 1 + r.below(300) as usize, 1 + r.below(20) as usize);
    let rows = if r.below(10) == 0 { rows + 64 } else { rows };
    let epilogue = [Epilogue::None, Epilogue::Bias, Epilogue::Residual, Epilogue::SiluMul][r.below(4) as usize];
    let store = if epilogue == Epilogue::Residual || r.below(2) == 0 { Store::Bf16 } else { Store::F32 };
    let n = if epilogue == Epilogue::SiluMul { n.next_multiple_of(2) } else { n };
    let tree = LinearTree { n, k, k_split: 1 + r.below(4) as usize, epilogue, store };
    let kind = |r: &mut Random| Kind::ALL[r.below(Kind::ALL.len() as u64) as usize];
    // Half of all cases look like a model; the rest are of any kind.
    let (kw, kx) = if r.below(2) == 0 { (Kind::Model, Kind::Model) } else { (kind(r), kind(r)) };
    let (weight, x) = (kw.vector(r, n * k), kx.vector(r, rows * k));
    let bias = Kind::Model.vector(r, n);
    let residual = kind(r).vector(r, rows * n);

    let with_bias = (epilogue == Epilogue::Bias).then_some(&bias[..]);
    let packed = b.linear_weight(tree, &weight, with_bias).map_err(|e| e.to_string())?;
    let expected: Vec<f32> = (0..rows)
        .flat_map(|i| {
            let residual = if epilogue == Epilogue::Residual { &residual[i * n..(i + 1) * n] } else { &[] };
            evaluate::linear(b.arithmetic(), &tree, &x[i * k..(i + 1) * k], &weight, &bias, residual)
        })
        .collect();
    let what = format!("linear seed {seed} {tree:?} {rows} rows, w {kw:?}, x {kx:?}");
    let (x, width) = (b.upload(&x).expect("memory"), tree.outputs());
    match store {
        Store::F32 => {
            let mut out = unwritten(b, f32::from_bits(0xffff_ffff), expected.len());
            b.linear_f32(&packed, rows, &x, &mut out).map_err(|e| e.to_string())?;
            equal(b, &what, &out, &expected, width)
        }
        Store::Bf16 => {
            let residual = b.upload(&residual).expect("memory");
            let residual = (epilogue == Epilogue::Residual).then_some(&residual);
            let mut out = unwritten(b, STALE, expected.len());
            b.linear(&packed, rows, &x, residual, &mut out).map_err(|e| e.to_string())?;
            let expected: Vec<bf16> = expected.into_iter().map(reduction_tree::scalar::to_bf16).collect();
            equal(b, &what, &out, &expected, width)
        }
    }
}

/// The negative control: a backend that computed another tree (one chunk instead of two) must be caught.
pub fn another_tree_is_caught<B: Backend>(b: &B) -> Outcome {
    let (n, k, rows, r) = (40, 512, 3, &mut Random(5));
    let tree = |k_split| LinearTree { n, k, k_split, epilogue: Epilogue::None, store: Store::F32 };
    let (weight, x) = (Kind::Model.vector(r, n * k), Kind::Model.vector(r, rows * k));
    let packed = b.linear_weight(tree(1), &weight, None).map_err(|e| e.to_string())?;
    let mut out = unwritten(b, f32::from_bits(0xffff_ffff), rows * n);
    b.linear_f32(&packed, rows, &b.upload(&x).expect("memory"), &mut out).map_err(|e| e.to_string())?;
    let expected = |k_split| -> Vec<f32> {
        x.chunks(k).flat_map(|x| evaluate::linear(b.arithmetic(), &tree(k_split), x, &weight, &[], &[])).collect()
    };
    equal(b, "the tree asked for", &out, &expected(1), n)?;
    match equal(b, "another tree", &out, &expected(2), n) {
        Err(_) => Ok(()),
        Ok(()) => Err("two different trees gave one result".into()),
    }
}

/// Rows of a packed table, by tokens of which some were chosen in the step before; then one of them is poisoned.
pub fn embed<B: Backend>(b: &B, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let (n, k, rows) = (1 + r.below(100) as usize, 1 + r.below(100) as usize, 1 + r.below(20) as usize);
    let tree = LinearTree { n, k, k_split: 1, epilogue: Epilogue::None, store: Store::F32 };
    let table = Kind::Any.vector(r, n * k);
    let packed = b.linear_weight(tree, &table, None).map_err(|e| e.to_string())?;
    let tokens: Vec<u32> = (0..rows).map(|_| r.below(n as u64) as u32).collect();
    let mut expected: Vec<bf16> = tokens.iter().flat_map(|&t| evaluate::embed(&table, k, t as usize)).collect();
    let shape = KvShape { layers: 1, pages: 8, page_tokens: 16, kv_heads: 1, head_dim: 16 };
    let places: Vec<u32> = (0..rows as u32).collect();
    let (positions, slots, tables) = (places.clone(), places, vec![vec![0, 1, 2, 3]]);
    let mut known = tokens.clone();
    let mut taken: Vec<(u32, u32)> = (0..rows as u32).filter(|_| r.below(2) == 0).map(|row| (row, 0)).collect();
    let mut chosen = vec![u32::MAX; taken.len() + 1];
    let count = taken.len();
    for (index, (row, sample)) in taken.iter_mut().enumerate() {
        // Samples stand in another order than rows.
        *sample = (count - index) as u32;
        chosen[*sample as usize] = std::mem::take(&mut known[*row as usize]);
    }
    let step = StepRows { tokens: known, positions, slots, sequences: vec![0; rows], tables, taken };
    let mut step = b.step(&step, &Wanted::default(), shape).map_err(|e| e.to_string())?;
    b.take_tokens(&mut step, &b.upload(&chosen).expect("memory")).map_err(|e| e.to_string())?;
    let mut out = unwritten(b, STALE, rows * k);
    b.embed(&packed, &step, &mut out).map_err(|e| e.to_string())?;
    equal(b, &format!("embed seed {seed} {n}x{k}"), &out, &expected, k)?;
    let poison = tokens[r.below(rows as u64) as usize];
    let poisoned = expected.chunks_mut(k).zip(&tokens).filter(|(_, token)| **token == poison);
    poisoned.for_each(|(row, _)| row.fill(bf16::NAN));
    b.poison(&step, poison, k, &mut out).map_err(|e| e.to_string())?;
    equal(b, &format!("poison seed {seed} {n}x{k}"), &out, &expected, k)
}

/// A weight made by counters is the one that is made on the host and uploaded, in every layout.
pub fn random_weight<B: Backend>(b: &B, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let epilogue = [Epilogue::None, Epilogue::Bias, Epilogue::SiluMul][r.below(3) as usize];
    let k = if r.below(2) == 0 { 8 * (1 + r.below(40)) } else { 1 + r.below(300) } as usize;
    let half = 1 + r.below(40) as usize;
    let counts = if epilogue == Epilogue::SiluMul {
        vec![half, half]
    } else {
        vec![half, half / 2 + 1, 3][..1 + r.below(3) as usize].to_vec()
    };
    let parts: Vec<(RandomTensor, usize)> = (0..)
        .zip(&counts)
        .map(|(tensor, &rows)| (RandomTensor { seed: seed << 30, tensor: 9 - tensor, offset: 0.0, spread: 0.3 }, rows))
        .collect();
    let n = counts.iter().sum();
    let tree = LinearTree { n, k, k_split: 1, epilogue, store: Store::F32 };
    let mut weight = vec![bf16::ZERO; n * k];
    let mut rest = &mut weight[..];
    for (tensor, rows) in &parts {
        let (part, after) = rest.split_at_mut(rows * k);
        tensor.fill(0, part);
        rest = after;
    }
    let (rows, bias) = (2, Kind::Model.vector(r, n));
    let bias = (epilogue == Epilogue::Bias).then_some(&bias[..]);
    let x = b.upload(&Kind::Model.vector(r, rows * k)).expect("memory");
    let run = |weight: &B::Linear| {
        let mut out = unwritten(b, f32::from_bits(0xffff_ffff), rows * tree.outputs());
        b.linear_f32(weight, rows, &x, &mut out).map_err(|e| e.to_string())?;
        Ok::<_, String>(out)
    };
    let made = b.random_weight(tree, &parts, bias).map_err(|e| e.to_string())?;
    let uploaded = b.linear_weight(tree, &weight, bias).map_err(|e| e.to_string())?;
    let expected = b.download(&run(&uploaded)?, rows * tree.outputs()).map_err(|e| e.to_string())?;
    equal(b, &format!("random weight seed {seed} {tree:?} {counts:?}"), &run(&made)?, &expected, tree.outputs())?;
    let refused = b.random_weight(LinearTree { n: n + 2, ..tree }, &parts, bias);
    if refused.is_ok() { Err("parts of too few rows were taken".into()) } else { Ok(()) }
}

//! Operators whose reduction stays in one row: norm, gather, sampling.

use super::data::{Kind, Random};
use super::{Outcome, STALE, equal, unwritten};
use kernels_rs::backend::{Backend, KvShape, Sampled, StepRows, Wanted};
use reduction_tree::evaluate;
use reduction_tree::operator::{RmsNormTree, SampleParams};

/// One random width and kind of data.
pub fn rmsnorm<B: Backend>(b: &B, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let d = match r.below(4) {
        0 => 1 + r.below(64) as usize,
        1 => 64,
        2 => 576,
        _ => 1 + r.below(6000) as usize,
    };
    let rows = 1 + r.below(9) as usize;
    let tree = RmsNormTree { d, eps: [0.0, 1e-5, 1e-6][r.below(3) as usize] };
    let kind = Kind::ALL[r.below(Kind::ALL.len() as u64) as usize];
    let (x, weight) = (kind.vector(r, rows * d), Kind::Wide.vector(r, d));
    let expected: Vec<_> = x.chunks(d).flat_map(|x| evaluate::rmsnorm(&tree, x, &weight)).collect();
    let (x, weight) = (b.upload(&x).expect("memory"), b.upload(&weight).expect("memory"));
    let mut out = unwritten(b, STALE, rows * d);
    b.rmsnorm(tree, rows, &x, &weight, &mut out).map_err(|e| e.to_string())?;
    equal(b, &format!("rmsnorm seed {seed} {tree:?} {kind:?}"), &out, &expected, d)
}

/// Residual addition alone, and with the norm in one call.
pub fn add_rmsnorm<B: Backend>(b: &B, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let d = match r.below(3) {
        0 => 1 + r.below(64) as usize,
        1 => 8 * (1 + r.below(700) as usize),
        _ => 1 + r.below(6000) as usize,
    };
    let rows = 1 + r.below(9) as usize;
    let tree = RmsNormTree { d, eps: 1e-5 };
    let mut kind = || Kind::ALL[r.below(Kind::ALL.len() as u64) as usize];
    let (kx, kr) = (kind(), kind());
    let (x, residual, weight) = (kx.vector(r, rows * d), kr.vector(r, rows * d), Kind::Wide.vector(r, d));
    let added = evaluate::residual_add(&x, &residual);
    let expected: Vec<_> = added.chunks(d).flat_map(|x| evaluate::rmsnorm(&tree, x, &weight)).collect();
    let upload = |v: &[_]| b.upload(v).expect("memory");
    let (x, residual, weight) = (upload(&x), upload(&residual), upload(&weight));
    let what = format!("seed {seed} {tree:?} {kx:?} {kr:?}");
    let (mut sum, mut out) = (unwritten(b, STALE, rows * d), unwritten(b, STALE, rows * d));
    b.residual_add(rows * d, &x, &residual, &mut sum).map_err(|e| e.to_string())?;
    equal(b, &format!("residual_add {what}"), &sum, &added, d)?;
    let mut sum = unwritten(b, STALE, rows * d);
    b.add_rmsnorm(tree, rows, &x, &residual, &weight, &mut sum, &mut out).map_err(|e| e.to_string())?;
    equal(b, &format!("sum of add_rmsnorm {what}"), &sum, &added, d)?;
    equal(b, &format!("add_rmsnorm {what}"), &out, &expected, d)
}

/// Rows picked by index, repeated ones too.
pub fn gather_wanted<B: Backend>(b: &B, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let (d, rows) = (1 + r.below(70) as usize, 1 + r.below(9));
    let x = Kind::Any.vector(r, rows as usize * d);
    let wanted: Vec<u32> = (0..1 + r.below(12)).map(|_| r.below(rows) as u32).collect();
    let step = step(b, rows as usize, &Wanted { rows: &wanted, samples: &[] })?;
    let expected: Vec<_> = wanted.iter().flat_map(|&i| x[i as usize * d..(i as usize + 1) * d].to_vec()).collect();
    let mut out = unwritten(b, STALE, expected.len());
    b.gather_wanted(d, &step, &b.upload(&x).expect("memory"), &mut out).map_err(|e| e.to_string())?;
    equal(b, &format!("gather seed {seed}"), &out, &expected, d)
}

/// A step of one sequence.
fn step<B: Backend>(b: &B, rows: usize, wanted: &Wanted<'_>) -> Result<B::Step, String> {
    let shape = KvShape { layers: 1, pages: 4, page_tokens: 16, kv_heads: 1, head_dim: 16 };
    let places: Vec<u32> = (0..rows as u32).collect();
    let (positions, slots, tables) = (places.clone(), places, vec![vec![0, 1, 2, 3]]);
    let sequences = vec![0; rows];
    let rows = StepRows { tokens: vec![0; rows], positions, slots, sequences, tables, taken: Vec::new() };
    b.step(&rows, wanted, shape).map_err(|e| e.to_string())
}

/// One random vocabulary with rows of different settings.
pub fn sample<B: Backend>(b: &B, seed: u64) -> Outcome {
    let r = &mut Random(seed);
    let vocab = [1, 2, 50, 1000, 1024, 5000, 20_000][r.below(7) as usize];
    let rows = 1 + r.below(5) as usize;
    let mut logits = Vec::new();
    let mut params = Vec::new();
    for _ in 0..rows {
        let spread = [0.01, 3.0, 12.0, 1e30][r.below(4) as usize];
        // Coarse values make ties; a few rows have values that are no numbers.
        let coarse = r.below(2) == 0;
        let odd = r.below(3) == 0;
        logits.extend((0..vocab).map(|_| {
            let u = r.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0;
            let x = if coarse { (u * 8.0).round() / 8.0 } else { u } * spread;
            match r.below(40) {
                0 if odd => f32::NAN,
                1 if odd => f32::NEG_INFINITY,
                2 if odd => -0.0,
                3 if odd && r.below(20) == 0 => f32::INFINITY,
                _ => x,
            }
        }));
        params.push(SampleParams {
            temperature: [0.0, 1e-40, 0.3, 1.0, 1.0, 5.0, -1.0, f32::NAN][r.below(8) as usize],
            top_k: [None, None, Some(0), Some(1), Some(5), Some(40), Some(u32::MAX)][r.below(7) as usize],
            top_p: [1.0, 1.0, 0.95, 0.5, 0.0, -1.0, f32::NAN, 2.0][r.below(8) as usize],
            min_p: [0.0, 0.0, 0.05, 1.0, 2.0, f32::NAN][r.below(6) as usize],
            seed: r.next(),
            position: r.below(10_000) as u32,
        });
    }
    let on_device = b.upload(&logits).expect("memory");
    let got = b.sample(vocab, &on_device, &params).map_err(|e| e.to_string())?;
    let wanted: Vec<u32> = (0..rows as u32).collect();
    let step = step(b, rows, &Wanted { rows: &wanted, samples: &params })?;
    let mut chosen = b.upload(&vec![u32::MAX; 2 * rows]).expect("memory");
    b.sample_wanted(vocab, &step, &on_device, &mut chosen).map_err(|e| e.to_string())?;
    let read = b.read_later(&[(&chosen, 1), (&chosen, 2 * rows)], Some((&on_device, vocab)));
    // What comes after the reading began does not show in it.
    b.clear(&mut chosen, 2 * rows).map_err(|e| e.to_string())?;
    let (chosen, floats) = read.and_then(|read| b.read(read)).map_err(|e| e.to_string())?;
    if floats.iter().zip(&logits).any(|(a, b)| a.to_bits() != b.to_bits()) || floats.len() != vocab {
        return Err(format!("read seed {seed}: other floats than were written"));
    }
    let bits = |sampled: &Sampled| sampled.logprob.to_bits();
    let expected: Vec<u32> = got.iter().map(|s| s.token).chain(got.iter().map(bits)).collect();
    if chosen[1] != expected || chosen[0] != expected[..1] {
        return Err(format!("sample_wanted seed {seed}: expected {expected:?}, got {chosen:?}"));
    }
    for ((row, params), got) in logits.chunks(vocab).zip(&params).zip(&got) {
        let expected = evaluate::sample::sample(params, row);
        if (expected.token, expected.logprob.to_bits()) != (got.token, got.logprob.to_bits()) {
            return Err(format!(
                "sample seed {seed} vocabulary {vocab} {params:?}: expected {expected:?}, got {got:?}"
            ));
        }
    }
    if got.len() != rows {
        return Err(format!("sample: expected {rows} tokens, got {}", got.len()));
    }
    Ok(())
}

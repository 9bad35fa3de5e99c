//! Choosing one token a row: the procedure of [`reduction_tree::evaluate::sample`], without its sorting and with the noise
//! computed only where it can win.

use crate::backend::{Error, Result, SampleParams, Sampled};
use crate::cpu::norm::neighbour_sum;
use crate::cpu::simd::{Simd, per_level};
use crate::cpu::{Context, check_len};
use reduction_tree::evaluate::{LogSumExp, argmax};
use reduction_tree::noise::gumbel_noise;
use reduction_tree::operator::LogSumExpTree;
use reduction_tree::scalar::{LOG2_E, exp2};

/// Above every value of [`gumbel_noise`].
const NOISE_MAX: f32 = 22.25;

/// The backend's `sample`.
pub fn sample(cx: &Context, vocab: usize, logits: &[f32], params: &[SampleParams]) -> Result<Vec<Sampled>> {
    if vocab == 0 || u32::try_from(vocab).is_err() {
        return Err(Error::new("sample", "a vocabulary of 1 to 2^32 - 1", vocab.to_string()));
    }
    let logits = check_len("sample", "logits", logits, params.len(), vocab)?;
    let mut items: Vec<_> = logits.chunks(vocab).zip(params).map(|(row, params)| (row, params, None)).collect();
    cx.pool.each_mut(&mut items, 1, |(row, params, sampled)| *sampled = Some(sample_row(cx.simd, params, row)));
    Ok(items.into_iter().filter_map(|item| item.2).collect())
}

fn sample_row(simd: Simd, params: &SampleParams, logits: &[f32]) -> Sampled {
    let max = largest(simd, logits);
    let lse = LogSumExp { max, sum: exponential_sum(simd, logits, max) };
    let token = choose(simd, params, logits, max).unwrap_or_else(|| argmax(logits));
    Sampled { token: token as u32, logprob: lse.logprob(logits[token]) }
}

per_level! {
    /// The largest logit, NaN ignored.
    fn largest(logits: &[f32]) -> f32 {
        let mut best = [f32::NEG_INFINITY; 64];
        let (blocks, rest) = logits.as_chunks::<64>();
        for block in blocks {
            for (best, &x) in best.iter_mut().zip(block) {
                *best = if x > *best { x } else { *best };
            }
        }
        best.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max })
    }
}

per_level! {
    /// The sum of [`LogSumExpTree`].
    fn exponential_sum(logits: &[f32], max: f32) -> f32 {
        let mut sum = 0.0;
        for (i, chunk) in logits.chunks(LogSumExpTree::CHUNK).enumerate() {
            let mut lanes = [0.0f32; LogSumExpTree::LANES];
            for block in chunk.chunks(LogSumExpTree::LANES) {
                for (lane, x) in lanes.iter_mut().zip(block) {
                    *lane += exp2((x - max) * LOG2_E);
                }
            }
            let chunk = neighbour_sum(&mut lanes);
            sum = if i == 0 { chunk } else { sum + chunk };
        }
        sum
    }
}

per_level! {
    /// `z = (x - max) * r`, and its weight.
    fn tempered(logits: &[f32], max: f32, r: f32, z: &mut [f32], w: &mut [f32]) {
        for ((x, z), w) in logits.iter().zip(z).zip(w) {
            *z = (x - max) * r;
            *w = exp2(*z * LOG2_E);
        }
    }
}

/// `None` stands for the argmax of the logits.
fn choose(simd: Simd, params: &SampleParams, logits: &[f32], max: f32) -> Option<usize> {
    let warm = params.temperature >= f32::MIN_POSITIVE;
    if !warm || !max.is_finite() {
        return None;
    }
    let (mut z, mut w) = (vec![0.0; logits.len()], vec![0.0; logits.len()]);
    tempered(simd, logits, max, 1.0 / params.temperature, &mut z, &mut w);
    let threshold = top_k_threshold(params.top_k, logits);
    let threshold = top_p_threshold(params.top_p, threshold, logits, &w);

    let mut best: Option<(usize, f32)> = None;
    for i in 0..logits.len() {
        if !(logits[i] >= threshold && w[i] >= params.min_p) {
            continue;
        }
        // No noise reaches NOISE_MAX and rounding is monotonic, so this score would lie below the best.
        if best.is_some_and(|(_, best)| z[i] + NOISE_MAX < best) {
            continue;
        }
        let score = z[i] + gumbel_noise(params.seed, params.position, i as u32);
        if best.is_none_or(|(_, best)| score > best) {
            best = Some((i, score));
        }
    }
    best.map(|(i, _)| i)
}

/// The k-th largest logit, or -infinity where that keeps all.
fn top_k_threshold(top_k: Option<u32>, logits: &[f32]) -> f32 {
    let Some(k) = top_k.map(|k| k as usize).filter(|&k| k >= 1) else { return f32::NEG_INFINITY };
    let mut numbers: Vec<f32> = logits.iter().copied().filter(|x| !x.is_nan()).collect();
    if k >= numbers.len() {
        return f32::NEG_INFINITY;
    }
    *numbers.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
}

/// The threshold that top-p adds to `threshold`: the largest logit whose equals and betters have enough weight, found by
/// halving the candidates.
fn top_p_threshold(top_p: f32, threshold: f32, logits: &[f32], w: &[f32]) -> f32 {
    if top_p >= 1.0 || top_p.is_nan() {
        return threshold;
    }
    let left = logits.iter().zip(w).filter(|(x, _)| **x >= threshold);
    let mut left: Vec<(f32, u64)> = left.map(|(&x, &w)| (x, (w * TWO_40) as u64)).collect();
    let total: u64 = left.iter().map(|(_, q)| q).sum();
    let p = (top_p.max(0.0) * TWO_32) as u64;
    let mut need = (u128::from(p) * u128::from(total)).div_ceil(1 << 32);
    let mut left = &mut left[..];
    while left.len() > 1 {
        let half = left.len() / 2;
        left.select_nth_unstable_by(half - 1, |a, b| b.0.total_cmp(&a.0));
        let (upper, lower) = left.split_at_mut(half);
        let sum: u128 = upper.iter().map(|(_, q)| u128::from(*q)).sum();
        if sum >= need {
            left = upper;
        } else {
            need -= sum;
            left = lower;
        }
    }
    left.first().map_or(threshold, |(x, _)| *x)
}

const TWO_32: f32 = f32::from_bits(0x4f80_0000);
const TWO_40: f32 = f32::from_bits(0x5380_0000);

//! Choosing a token from one row of logits.
//!
//! Every step is a function of the row and its own parameters. Filters are thresholds on values and the only sum, that
//! of top-p, is a sum of integers, so no step has an order to get wrong.
//!
//! 1. `m` is the largest logit, NaN ignored. If the temperature is not at least 2^-126 (0, negative, NaN) or m is not
//!    finite, the token is [`argmax`] of the logits and the rest is skipped.
//! 2. `r = 1 / temperature`; `z_i = (x_i - m) * r`; `w_i = exp2(z_i * LOG2_E)`, the probability relative to the
//!    largest.
//! 3. top-k: with k given, at least 1 and less than the number of logits that are not NaN, the k-th largest of those
//!    (repeated values count) is a threshold, and `x_i` below it are dropped. NaN is always dropped.
//! 4. top-p, if below 1: among what is left, `q_i = trunc(w_i * 2^40)` as an integer, Q their exact sum, `P =
//!    trunc(max(top_p, 0) * 2^32)`, `need = ceil(P * Q / 2^32)` exactly (the product has up to 91 bits). The threshold
//!    is the largest logit v such that the `q_i` of all `x_i >= v` that are left sum to at least `need`; `x_i` below it
//!    are dropped.
//! 5. min-p: `w_i` below `min_p` are dropped.
//! 6. The token is the lowest index among the largest `z_i + g_i` of what is left, g being [`gumbel_noise`] of (seed,
//!    position, i). If nothing is left (min_p above 1), it is the argmax of the logits.
//!
//! Logits are compared as IEEE values, so -0 equals +0.

use super::{argmax, log_sum_exp};
use crate::noise::gumbel_noise;
use crate::operator::{LogSumExpTree, SampleParams, Sampled};
use crate::scalar::{LOG2_E, exp2};

/// The token of one row and its log-probability.
pub fn sample(params: &SampleParams, logits: &[f32]) -> Sampled {
    let lse = log_sum_exp(&LogSumExpTree { n: logits.len() }, logits);
    let token = choose(params, logits, lse.max).unwrap_or_else(|| argmax(logits));
    Sampled { token: token as u32, logprob: lse.logprob(logits[token]) }
}

/// Steps 1 to 6; `None` stands for the argmax of the logits.
fn choose(params: &SampleParams, logits: &[f32], max: f32) -> Option<usize> {
    let warm = params.temperature >= f32::MIN_POSITIVE;
    if !warm || !max.is_finite() {
        return None;
    }
    let r = 1.0 / params.temperature;
    let z: Vec<f32> = logits.iter().map(|x| (x - max) * r).collect();
    let w: Vec<f32> = z.iter().map(|z| exp2(z * LOG2_E)).collect();

    let threshold = top_k_threshold(params.top_k, logits);
    let threshold = top_p_threshold(params.top_p, threshold, logits, &w);
    let kept = |&i: &usize| logits[i] >= threshold && w[i] >= params.min_p;
    let score = |i: usize| (i, z[i] + gumbel_noise(params.seed, params.position, i as u32));
    let best = (0..logits.len()).filter(kept).map(score).reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(i, _)| i)
}

/// The k-th largest logit, or -infinity where that keeps all.
fn top_k_threshold(top_k: Option<u32>, logits: &[f32]) -> f32 {
    let mut numbers: Vec<f32> = logits.iter().copied().filter(|x| !x.is_nan()).collect();
    match top_k {
        Some(k) if k >= 1 && (k as usize) < numbers.len() => {
            numbers.sort_by(|a, b| b.total_cmp(a));
            numbers[k as usize - 1]
        }
        _ => f32::NEG_INFINITY,
    }
}

/// The threshold that top-p adds to `threshold`.
fn top_p_threshold(top_p: f32, threshold: f32, logits: &[f32], w: &[f32]) -> f32 {
    // A NaN keeps all.
    if top_p >= 1.0 || top_p.is_nan() {
        return threshold;
    }
    let mut left: Vec<(f32, u64)> =
        logits.iter().zip(w).filter(|(x, _)| **x >= threshold).map(|(&x, &w)| (x, (w * TWO_40) as u64)).collect();
    left.sort_by(|a, b| b.0.total_cmp(&a.0));
    let total: u64 = left.iter().map(|(_, q)| q).sum();
    let p = (top_p.max(0.0) * TWO_32) as u64;
    let need = (u128::from(p) * u128::from(total)).div_ceil(1 << 32);
    let mut sum = 0u128;
    for (x, q) in left {
        sum += u128::from(q);
        if sum >= need {
            return x;
        }
    }
    threshold
}

const TWO_32: f32 = f32::from_bits(0x4f80_0000);
const TWO_40: f32 = f32::from_bits(0x5380_0000);

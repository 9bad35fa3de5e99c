//! Operators whose reduction stays inside one row: embedding, residual, norm, log-sum-exp, argmax.

use half::bf16;

use crate::arithmetic::StepInput;
use crate::operator::{LogSumExpTree, RmsNormTree};
use crate::scalar::{LOG2_E, canonical, exp2, ln, rsqrt, to_bf16};

/// Row `token` of a table `[_, d]`: a copy, bits and all.
pub fn embed(table: &[bf16], d: usize, token: usize) -> Vec<bf16> {
    table[token * d..(token + 1) * d].to_vec()
}

/// `a + b` in f32, rounded to bfloat16.
pub fn residual_add(a: &[bf16], b: &[bf16]) -> Vec<bf16> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| to_bf16(a.widen() + b.widen())).collect()
}

/// The pairwise tree of neighbours: (0+1), (2+3), .. are added, then their sums in the same way, down to one. The
/// length is a power of two.
pub fn neighbour_sum(lanes: &[f32]) -> f32 {
    assert!(lanes.len().is_power_of_two());
    if let [one] = lanes {
        return *one;
    }
    let (left, right) = lanes.split_at(lanes.len() / 2);
    neighbour_sum(left) + neighbour_sum(right)
}

/// [`RmsNormTree`] before the store: `x` and `weight` are `[d]`.
pub fn rmsnorm_f32(tree: &RmsNormTree, x: &[bf16], weight: &[bf16]) -> Vec<f32> {
    assert_eq!((x.len(), weight.len()), (tree.d, tree.d));
    let mut lanes = [0.0f32; RmsNormTree::LANES];
    for (i, x) in x.iter().enumerate() {
        let lane = &mut lanes[i / RmsNormTree::VECTOR % RmsNormTree::LANES];
        *lane = x.widen().mul_add(x.widen(), *lane);
    }
    let r = rsqrt(neighbour_sum(&lanes) / tree.d as f32 + tree.eps);
    x.iter().zip(weight).map(|(x, weight)| canonical((x.widen() * r) * weight.widen())).collect()
}

/// [`RmsNormTree`]: `x` and `weight` are `[d]`.
pub fn rmsnorm(tree: &RmsNormTree, x: &[bf16], weight: &[bf16]) -> Vec<bf16> {
    rmsnorm_f32(tree, x, weight).into_iter().map(to_bf16).collect()
}

/// The largest logit, and the sum of exponentials relative to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogSumExp {
    /// m: the largest logit, NaN ignored; -infinity when there is none.
    pub max: f32,
    /// s: the sum of `exp2((x - m) * LOG2_E)`.
    pub sum: f32,
}

impl LogSumExp {
    /// `m + ln(s)`.
    pub fn value(&self) -> f32 {
        canonical(self.max + ln(self.sum))
    }

    /// The log-probability of a logit of the row, `(logit - m) - ln(s)`.
    pub fn logprob(&self, logit: f32) -> f32 {
        canonical((logit - self.max) - ln(self.sum))
    }
}

/// [`LogSumExpTree`] of a row.
pub fn log_sum_exp(tree: &LogSumExpTree, logits: &[f32]) -> LogSumExp {
    assert_eq!(logits.len(), tree.n);
    let max = logits.iter().fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max });
    let chunk_sum = |chunk: &[f32]| {
        let mut lanes = [0.0f32; LogSumExpTree::LANES];
        for (i, x) in chunk.iter().enumerate() {
            lanes[i % LogSumExpTree::LANES] += exp2((x - max) * LOG2_E);
        }
        neighbour_sum(&lanes)
    };
    let sum = logits.chunks(LogSumExpTree::CHUNK).map(chunk_sum).reduce(|sum, chunk| sum + chunk).unwrap_or(0.0);
    LogSumExp { max, sum }
}

/// The lowest index among the largest values under IEEE comparison (-0 equals +0); a NaN is never chosen. 0 when there
/// is nothing but NaN and -infinity.
pub fn argmax(values: &[f32]) -> usize {
    let best =
        values.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (i, &x)| if x > best.1 { (i, x) } else { best });
    best.0
}

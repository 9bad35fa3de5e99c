//! y = x Wᵀ with its epilogues.

use half::bf16;

use crate::arithmetic::{Arithmetic, StepInput, chain};
use crate::operator::{Epilogue, LinearTree};
use crate::scalar::{canonical, silu, to_bf16};

/// The f32 sum of one output before the epilogue: `x` and `weight` are `[k]`.
pub fn linear_sum(arithmetic: Arithmetic, tree: &LinearTree, x: &[bf16], weight: &[bf16]) -> f32 {
    assert_eq!((x.len(), weight.len()), (tree.k, tree.k));
    let chunks = tree.chunks().map(|chunk| chain(arithmetic, 0.0, &x[chunk.clone()], &weight[chunk]));
    canonical(chunks.reduce(|sum, chunk| sum + chunk).unwrap_or(0.0))
}

/// One output row [n, or n/2 for `SiluMul`] before the store. `x` is `[k]`, `weight` `[n, k]`; `bias` `[n]` is read by
/// `Epilogue::Bias` and `residual` `[n]` by `Epilogue::Residual`.
pub fn linear(
    arithmetic: Arithmetic,
    tree: &LinearTree,
    x: &[bf16],
    weight: &[bf16],
    bias: &[bf16],
    residual: &[bf16],
) -> Vec<f32> {
    assert_eq!(weight.len(), tree.n * tree.k);
    let sum = |n: usize| linear_sum(arithmetic, tree, x, &weight[n * tree.k..(n + 1) * tree.k]);
    let output = |n: usize| match tree.epilogue {
        Epilogue::None => sum(n),
        Epilogue::Bias => sum(n) + bias[n].widen(),
        Epilogue::Residual => sum(n) + residual[n].widen(),
        Epilogue::SiluMul => silu(sum(n)) * sum(n + tree.n / 2),
    };
    (0..tree.outputs()).map(|n| canonical(output(n))).collect()
}

/// [`linear`] rounded to bfloat16, for trees that store it.
pub fn linear_bf16(
    arithmetic: Arithmetic,
    tree: &LinearTree,
    x: &[bf16],
    weight: &[bf16],
    bias: &[bf16],
    residual: &[bf16],
) -> Vec<bf16> {
    linear(arithmetic, tree, x, weight, bias, residual).into_iter().map(to_bf16).collect()
}

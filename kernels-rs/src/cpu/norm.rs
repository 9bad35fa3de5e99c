//! RMS normalisation of rows, and the residual addition that comes before it.

use crate::backend::{Error, Result};
use crate::cpu::linear::Output;
use crate::cpu::simd::per_level;
use crate::cpu::{Context, check_len};
use half::bf16;
use reduction_tree::operator::RmsNormTree;
use reduction_tree::scalar::{rsqrt, to_bf16};

const LANES: usize = RmsNormTree::LANES;
const RUN: usize = RmsNormTree::VECTOR;

/// out [rows, d] = rmsnorm(x [rows, d]) * weight `[d]`.
pub fn rmsnorm(
    cx: &Context,
    tree: &RmsNormTree,
    rows: usize,
    x: &[bf16],
    weight: &[bf16],
    out: &mut [bf16],
) -> Result<()> {
    let d = tree.d;
    if d == 0 {
        return Err(Error::new("rmsnorm", "d above 0", "0"));
    }
    let x = check_len("rmsnorm", "x", x, rows, d)?;
    let weight = check_len("rmsnorm", "weight", weight, 1, d)?;
    let out = check_len("rmsnorm", "out", out, rows, d)?;
    let mut pairs: Vec<_> = out.chunks_mut(d).zip(x.chunks(d)).collect();
    cx.pool.each_mut(&mut pairs, (1 << 15) / d + 1, |(out, x)| row(cx.simd, tree, x, weight, out));
    Ok(())
}

/// out `[len]` = x + residual.
pub fn residual_add(cx: &Context, len: usize, x: &[bf16], residual: &[bf16], out: &mut [bf16]) -> Result<()> {
    const PART: usize = 1 << 14;
    let x = check_len("residual_add", "x", x, len, 1)?;
    let residual = check_len("residual_add", "residual", residual, len, 1)?;
    let out = check_len("residual_add", "out", out, len, 1)?;
    let mut parts: Vec<_> = out.chunks_mut(PART).zip(x.chunks(PART)).zip(residual.chunks(PART)).collect();
    cx.pool.each_mut(&mut parts, 1, |((out, x), residual)| {
        for ((out, x), residual) in out.iter_mut().zip(*x).zip(*residual) {
            *out = to_bf16(widen(*x) + widen(*residual));
        }
    });
    Ok(())
}

/// One row without the rounding of the store is what the norm of a head is; so the row is generic in its output.
#[inline(always)]
fn normed<O: Output>(tree: &RmsNormTree, x: &[bf16], weight: &[bf16], out: &mut [O]) {
    let mut lanes = [0.0f32; LANES];
    for block in x.chunks(LANES * RUN) {
        let (runs, rest) = block.as_chunks::<RUN>();
        for e in 0..RUN {
            for (lane, run) in lanes.iter_mut().zip(runs) {
                let x = widen(run[e]);
                *lane = x.mul_add(x, *lane);
            }
        }
        // Only the last block has a shorter run, and its lane comes after all full ones.
        for x in rest {
            let x = widen(*x);
            lanes[runs.len()] = x.mul_add(x, lanes[runs.len()]);
        }
    }
    let r = rsqrt(neighbour_sum(&mut lanes) / tree.d as f32 + tree.eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = O::store(widen(*x) * r * widen(*weight));
    }
}

/// The pairwise tree of neighbours, in place; the length is a power of two.
#[inline(always)]
pub fn neighbour_sum(lanes: &mut [f32]) -> f32 {
    let mut width = lanes.len();
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
        }
    }
    lanes[0]
}

per_level! {
    /// One row rounded to bf16; all slices have d elements.
    fn row(tree: &RmsNormTree, x: &[bf16], weight: &[bf16], out: &mut [bf16]) {
        normed(tree, x, weight, out);
    }
}

per_level! {
    /// One row in f32; all slices have d elements.
    pub fn row_f32(tree: &RmsNormTree, x: &[bf16], weight: &[bf16], out: &mut [f32]) {
        normed(tree, x, weight, out);
    }
}

/// The exact f32 value.
#[inline(always)]
pub fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

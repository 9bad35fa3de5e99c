//! Splits the fused projection, norms and rotates queries and keys, and stores keys and values.

use crate::backend::{Error, QkvParams, Result};
use crate::cpu::kv::{KvPool, Step};
use crate::cpu::norm::{self, widen};
use crate::cpu::simd::per_level;
use crate::cpu::{Context, Cpu, check_len};
use half::bf16;
use reduction_tree::operator::{RmsNormTree, RopePairing};
use reduction_tree::rope::rotate_pair;
use reduction_tree::scalar::to_bf16;

/// Weight and tree of the norm of one head.
type HeadNorm<'a> = Option<(&'a [bf16], RmsNormTree)>;

/// Everything of [`QkvParams`] as slices.
struct Heads<'a> {
    kv_heads: usize,
    head_dim: usize,
    q_norm: HeadNorm<'a>,
    k_norm: HeadNorm<'a>,
    cos: &'a [f32],
    sin: &'a [f32],
    pairing: RopePairing,
}

impl<'a> Heads<'a> {
    fn new(params: &'a QkvParams<'_, Cpu>, step: &Step) -> Result<Self> {
        let (kv_heads, head_dim) = (step.shape.kv_heads, step.shape.head_dim);
        let positions = step.rows.positions.iter().max().map_or(0, |&p| p as usize + 1);
        let cos = check_len("qkv", "cos", &params.cos.0[..], positions, head_dim / 2)?;
        let sin = check_len("qkv", "sin", &params.sin.0[..], positions, head_dim / 2)?;
        let norm = |weight: &'a [bf16], tree: RmsNormTree| -> Result<_> {
            if tree.d != head_dim {
                return Err(Error::new("qkv", format!("a norm of {head_dim} elements"), tree.d.to_string()));
            }
            Ok((check_len("qkv", "norm weight", weight, 1, head_dim)?, tree))
        };
        let (q_norm, k_norm) = match params.qk_norm {
            None => (None, None),
            Some((q, k, tree)) => (Some(norm(&q.0, tree)?), Some(norm(&k.0, tree)?)),
        };
        Ok(Self { kv_heads, head_dim, q_norm, k_norm, cos, sin, pairing: params.pairing })
    }

    /// Norms and rotates one head at `position`; `wide` holds a head in between, so that only the result is rounded.
    fn turn(&self, cx: &Context, norm: &HeadNorm<'_>, position: usize, x: &[bf16], wide: &mut [f32], out: &mut [bf16]) {
        match norm {
            Some((weight, tree)) => norm::row_f32(cx.simd, tree, x, weight, wide),
            None => wide.iter_mut().zip(x).for_each(|(wide, x)| *wide = widen(*x)),
        }
        let half = self.head_dim / 2;
        let table = position * half..(position + 1) * half;
        rotate(cx.simd, self.pairing, &self.cos[table.clone()], &self.sin[table], wide, out);
    }
}

/// The backend's `qkv`.
#[allow(clippy::too_many_arguments)]
pub fn qkv(
    cx: &Context,
    params: &QkvParams<'_, Cpu>,
    step: &Step,
    qkv: &[bf16],
    pool: &mut KvPool,
    layer: usize,
    q: &mut [bf16],
    faults: &mut [u32],
) -> Result<()> {
    if pool.shape != step.shape || layer >= pool.shape.layers {
        let expected = format!("a layer of the step's pool {:?}", step.shape);
        return Err(Error::new("qkv", expected, format!("layer {layer} of {:?}", pool.shape)));
    }
    let heads = Heads::new(params, step)?;
    let (rows, d) = (step.rows.tokens.len(), heads.head_dim);
    let total = params.q_heads.checked_add(2 * heads.kv_heads).and_then(|h| h.checked_mul(d));
    let (Some(total), true) = (total, params.q_heads > 0) else {
        return Err(Error::new("qkv", "a number of query heads above 0", params.q_heads.to_string()));
    };
    let qkv = check_len("qkv", "qkv", qkv, rows, total)?;
    let q = check_len("qkv", "q", q, rows, params.q_heads * d)?;
    let faults = check_len("qkv", "faults", faults, rows, 1)?;
    if rows == 0 {
        return Ok(());
    }

    let mut keys = vec![bf16::ZERO; rows * heads.kv_heads * d];
    let (q_width, kv_width) = (params.q_heads * d, heads.kv_heads * d);
    let outputs = q.chunks_mut(q_width).zip(keys.chunks_mut(kv_width));
    let mut items: Vec<_> = qkv.chunks(total).zip(outputs).zip(&step.rows.positions).collect();
    cx.pool.each_mut(&mut items, (1 << 13) / total + 1, |((x, (q, keys)), position)| {
        let position = **position as usize;
        let mut wide = vec![0.0; d];
        let (xq, xk) = (&x[..q_width], &x[q_width..q_width + kv_width]);
        for (x, out) in xq.chunks(d).zip(q.chunks_mut(d)) {
            heads.turn(cx, &heads.q_norm, position, x, &mut wide, out);
        }
        for (x, out) in xk.chunks(d).zip(keys.chunks_mut(d)) {
            heads.turn(cx, &heads.k_norm, position, x, &mut wide, out);
        }
    });

    let mut value = vec![bf16::ZERO; d];
    for (row, keys) in keys.chunks_mut(kv_width).enumerate() {
        let values = &qkv[row * total + q_width + kv_width..(row + 1) * total];
        for (head, (key, source)) in keys.chunks_mut(d).zip(values.chunks(d)).enumerate() {
            value.copy_from_slice(source);
            let fault = cleanse(key) | cleanse(&mut value);
            if fault {
                faults[row] = 1;
            }
            pool.write(layer, step.rows.slots[row] as usize, head, key, &value);
        }
    }
    Ok(())
}

/// Replaces infinities and NaN by +0 and says whether there were any.
fn cleanse(x: &mut [bf16]) -> bool {
    let mut fault = false;
    for x in x {
        if !x.is_finite() {
            (*x, fault) = (bf16::ZERO, true);
        }
    }
    fault
}

per_level! {
    /// Rotates one head; the tables are the rows of its position.
    fn rotate(pairing: RopePairing, cos: &[f32], sin: &[f32], head: &[f32], out: &mut [bf16]) {
        let head_dim = head.len();
        for (i, (cos, sin)) in cos.iter().zip(sin).enumerate() {
            let (a, b) = pairing.pair(i, head_dim);
            let (x, y) = rotate_pair(head[a], head[b], *cos, *sin);
            (out[a], out[b]) = (to_bf16(x), to_bf16(y));
        }
    }
}

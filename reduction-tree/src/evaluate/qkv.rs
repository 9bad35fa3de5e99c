//! From one row of the fused QKV projection to a rotated query and a KV cell that is always finite.

use half::bf16;

use super::rmsnorm_f32;
use crate::arithmetic::StepInput;
use crate::operator::{RmsNormTree, RopePairing};
use crate::rope::rotate;
use crate::scalar::to_bf16;

/// What the QKV stage needs beside its row.
#[derive(Clone, Copy, Debug)]
pub struct Qkv<'a> {
    /// Query heads.
    pub q_heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Weights `[head_dim]` of the per-head norm of q and of k, and its tree; before RoPE.
    pub qk_norm: Option<(&'a [bf16], &'a [bf16], RmsNormTree)>,
    /// Which elements rotate together.
    pub pairing: RopePairing,
}

/// One row's query and KV cell.
#[derive(Clone, Debug, PartialEq)]
pub struct QkvRow {
    /// [q_heads * head_dim].
    pub q: Vec<bf16>,
    /// [kv_heads * head_dim], finite.
    pub k: Vec<bf16>,
    /// [kv_heads * head_dim], finite.
    pub v: Vec<bf16>,
    /// A key or value was not finite and has been replaced.
    pub fault: bool,
}

/// `x` if it is finite, else +0 and a fault.
pub fn sanitise(x: bf16) -> (bf16, bool) {
    if x.is_finite() { (x, false) } else { (bf16::from_bits(0), true) }
}

/// Row `qkv` [(q_heads + 2 kv_heads) * head_dim] is cut into q, k and v heads. Each q and k head is widened to f32, or
/// normed as [`rmsnorm_f32`](super::rmsnorm_f32) without rounding to bfloat16; rotated with the table rows `cos` and
/// `sin` [head_dim / 2] of its position; and only then rounded to bfloat16. v is copied. Keys and values that are not
/// finite after that are stored as +0 and raise the fault flag; a query is left as it is, it can only harm its own row.
pub fn qkv(params: &Qkv, qkv: &[bf16], cos: &[f32], sin: &[f32]) -> QkvRow {
    let d = params.head_dim;
    assert_eq!(qkv.len(), (params.q_heads + 2 * params.kv_heads) * d);
    assert_eq!((cos.len(), sin.len()), (d / 2, d / 2));
    let (q, rest) = qkv.split_at(params.q_heads * d);
    let (k, v) = rest.split_at(params.kv_heads * d);
    let rotated = |heads: &[bf16], norm: Option<(&[bf16], RmsNormTree)>| -> Vec<bf16> {
        let rotate_head = |head: &[bf16]| {
            let mut head = match norm {
                Some((weight, tree)) => rmsnorm_f32(&tree, head, weight),
                None => head.iter().map(|x| x.widen()).collect(),
            };
            rotate(params.pairing, &mut head, cos, sin);
            head.into_iter().map(to_bf16)
        };
        heads.chunks(d).flat_map(rotate_head).collect()
    };
    let q = rotated(q, params.qk_norm.map(|(weight, _, tree)| (weight, tree)));
    let k = rotated(k, params.qk_norm.map(|(_, weight, tree)| (weight, tree)));
    let (k, k_faults): (Vec<_>, Vec<_>) = k.into_iter().map(sanitise).unzip();
    let (v, v_faults): (Vec<_>, Vec<_>) = v.iter().copied().map(sanitise).unzip();
    let fault = k_faults.into_iter().chain(v_faults).any(|fault| fault);
    QkvRow { q, k, v, fault }
}

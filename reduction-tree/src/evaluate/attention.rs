//! Attention of one query head over the KV cells of its prefix.

use std::ops::Range;

use half::bf16;

use super::neighbour_sum;
use crate::arithmetic::{Arithmetic, STEP, chain};
use crate::operator::AttentionTree;
use crate::scalar::{exp2, to_bf16};

/// The running state of one row in one split.
struct State {
    /// c: the scaled running maximum.
    max: f32,
    /// l: lanes of the denominator.
    lanes: [f32; 8],
    /// The weighted values `[head_dim]`.
    acc: Vec<f32>,
}

/// A finished split, or the merge of several.
struct Total {
    max: f32,
    sum: f32,
    acc: Vec<f32>,
}

/// One row of one head, rounded to bfloat16 `[head_dim]`, as [`AttentionTree`] says. `q` is `[head_dim]`; `keys` and
/// `values` are [more than position, head_dim], row j holding absolute position j; rows that the query does not see are
/// not read.
pub fn attention(
    arithmetic: Arithmetic,
    tree: &AttentionTree,
    q: &[bf16],
    position: usize,
    keys: &[bf16],
    values: &[bf16],
) -> Vec<bf16> {
    assert_eq!(q.len(), tree.head_dim);
    let seen = tree.seen(position);
    let mut total: Option<Total> = None;
    for split in blocks(&seen, tree.kv_split) {
        let split = split_total(arithmetic, tree, q, &intersect(&seen, &split), keys, values);
        total = Some(match total {
            None => split,
            Some(total) => merge(total, split),
        });
    }
    let total = total.expect("a row sees its own position");
    let r = 1.0 / total.sum;
    total.acc.into_iter().map(|a| to_bf16(a * r)).collect()
}

/// The blocks of `len` aligned positions that `seen` touches.
fn blocks(seen: &Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    (seen.start / len..seen.end.div_ceil(len)).map(move |i| i * len..(i + 1) * len)
}

fn intersect(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

fn split_total(
    arithmetic: Arithmetic,
    tree: &AttentionTree,
    q: &[bf16],
    seen: &Range<usize>,
    keys: &[bf16],
    values: &[bf16],
) -> Total {
    let mut state = State { max: f32::NEG_INFINITY, lanes: [0.0; 8], acc: vec![0.0; tree.head_dim] };
    for tile in blocks(seen, tree.kv_tile) {
        attend_tile(arithmetic, tree, q, seen, &tile, keys, values, &mut state);
    }
    Total { max: state.max, sum: neighbour_sum(&state.lanes), acc: state.acc }
}

/// One tile of which the row sees at least one position.
#[allow(clippy::too_many_arguments)]
fn attend_tile(
    arithmetic: Arithmetic,
    tree: &AttentionTree,
    q: &[bf16],
    seen: &Range<usize>,
    tile: &Range<usize>,
    keys: &[bf16],
    values: &[bf16],
    state: &mut State,
) {
    let d = tree.head_dim;
    // A position that is not seen has no score.
    let score = |j: usize| seen.contains(&j).then(|| chain(arithmetic, 0.0, q, &keys[j * d..(j + 1) * d]));
    let scores: Vec<Option<f32>> = tile.clone().map(score).collect();

    let tile_max = scores.iter().flatten().fold(f32::NEG_INFINITY, |max, &s| if s > max { s } else { max });
    let scaled = tile_max * tree.scale_log2;
    let max = if scaled > state.max { scaled } else { state.max };
    let alpha = exp2(state.max - max);
    state.max = max;

    let weight = |s: &Option<f32>| s.map_or(0.0, |s| exp2(s.mul_add(tree.scale_log2, -max)));
    let weights: Vec<f32> = scores.iter().map(weight).collect();

    for (g, lane) in state.lanes.iter_mut().enumerate() {
        *lane *= alpha;
        for step in weights.chunks(STEP) {
            *lane += step[g] + step[g + 8];
        }
    }

    let weights: Vec<bf16> = weights.into_iter().map(to_bf16).collect();
    for (i, acc) in state.acc.iter_mut().enumerate() {
        let value = |j: usize| if seen.contains(&j) { values[j * d + i] } else { bf16::ZERO };
        let column: Vec<bf16> = tile.clone().map(value).collect();
        *acc = chain(arithmetic, *acc * alpha, &weights, &column);
    }
}

/// `total` continued by a later split.
fn merge(total: Total, split: Total) -> Total {
    let max = if split.max > total.max { split.max } else { total.max };
    let a = exp2(total.max - max);
    let b = exp2(split.max - max);
    let acc = total.acc.iter().zip(&split.acc).map(|(total, split)| split.mul_add(b, total * a)).collect();
    Total { max, sum: split.sum.mul_add(b, total.sum * a), acc }
}

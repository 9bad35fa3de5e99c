//! Causal paged attention: scores and weighted values as chains over the pool's tiles.
//!
//! Work is cut by (block of rows of one sequence, KV head), and by split too when a step has few rows. A block's rows
//! meet in one pass over the keys and values; each keeps its own state, so the cut cannot be seen in a result.

use crate::backend::{Error, Result};
use crate::cpu::chain::{self, Acc, COLUMNS, Tile};
use crate::cpu::disjoint::Disjoint;
use crate::cpu::kv::{KvPool, Step};
use crate::cpu::linear::prepare;
use crate::cpu::rows::{RowView, Rows, STEP};
use crate::cpu::simd::per_level;
use crate::cpu::{Context, check_len};
use half::bf16;
use reduction_tree::evaluate::neighbour_sum;
use reduction_tree::operator::AttentionTree;
use reduction_tree::scalar::{exp2, to_bf16};
use std::ops::Range;

/// Rows of a sequence that share a pass.
const ROW_BLOCK: usize = 16;

/// What all tasks of one call read.
struct Call<'a> {
    cx: &'a Context,
    tree: AttentionTree,
    step: &'a Step,
    pool: &'a KvPool,
    layer: usize,
    q_heads: usize,
    /// Query heads of one KV head.
    group: usize,
    queries: Rows,
}

/// Adjacent rows of one sequence and one KV head.
#[derive(Clone, Copy)]
struct Task {
    first: usize,
    count: usize,
    sequence: usize,
    head: usize,
}

/// Running softmax of a task's chain rows: chain row `i * group + h` is query head h of row i.
struct State {
    /// The row has met a tile that it sees.
    seen: Vec<bool>,
    /// Scaled running maximum.
    c: Vec<f32>,
    /// Denominator, eight lanes.
    l: Vec<[f32; 8]>,
    /// Weighted values: chain rows of elements 0..32, then those of 32..64, and so on.
    acc: Vec<Acc>,
}

/// Memory that a task uses again for every tile.
struct Scratch {
    scores: Vec<f32>,
    sums: Vec<Acc>,
    weights: Rows,
    bits: Vec<u16>,
}

/// The backend's `attention`.
#[allow(clippy::too_many_arguments)]
pub fn attention(
    cx: &Context,
    tree: AttentionTree,
    q_heads: usize,
    step: &Step,
    q: &[bf16],
    pool: &KvPool,
    layer: usize,
    out: &mut [bf16],
) -> Result<()> {
    check(&tree, q_heads, step, pool, layer)?;
    let (rows, d) = (step.rows.tokens.len(), tree.head_dim);
    let width = check_width(q_heads, d)?;
    let q = check_len("attention", "q", q, rows, width)?;
    let out = check_len("attention", "out", out, rows, width)?;
    let group = q_heads / step.shape.kv_heads;
    let queries = prepare(cx, q, rows * q_heads, d);
    let call = Call { cx, tree, step, pool, layer, q_heads, group, queries };
    let tasks = call.tasks();
    let out = Disjoint::new(out);
    if rows > ROW_BLOCK || tasks.iter().all(|task| call.splits(task).len() == 1) {
        cx.pool.each(tasks.len(), 1, |i| {
            let task = &tasks[i];
            let states = call.splits(task).map(|split| call.split(task, split));
            call.store(task, states, &out);
        });
    } else {
        let mut items: Vec<_> = Vec::new();
        for (i, task) in tasks.iter().enumerate() {
            items.extend(call.splits(task).map(|split| (i, split, None)));
        }
        cx.pool.each_mut(&mut items, 1, |(i, split, state)| *state = Some(call.split(&tasks[*i], *split)));
        let mut items = items.into_iter().peekable();
        for (i, task) in tasks.iter().enumerate() {
            let states = std::iter::from_fn(|| items.next_if(|item| item.0 == i)).filter_map(|item| item.2);
            call.store(task, states, &out);
        }
    }
    Ok(())
}

fn check_width(q_heads: usize, d: usize) -> Result<usize> {
    q_heads.checked_mul(d).ok_or_else(|| Error::new("attention", "heads that memory can hold", format!("{q_heads}")))
}

fn check(tree: &AttentionTree, q_heads: usize, step: &Step, pool: &KvPool, layer: usize) -> Result<()> {
    let refuse = |expected: String, got: String| Err(Error::new("attention", expected, got));
    if pool.shape != step.shape || layer >= pool.shape.layers {
        return refuse(
            format!("a layer of the step's pool {:?}", step.shape),
            format!("layer {layer} of {:?}", pool.shape),
        );
    }
    if tree.head_dim != step.shape.head_dim {
        return refuse(format!("head_dim {}", step.shape.head_dim), tree.head_dim.to_string());
    }
    let whole = |n: usize, of: usize| n > 0 && n.is_multiple_of(of);
    if !whole(tree.kv_tile, STEP) || !whole(tree.kv_split, tree.kv_tile) {
        let got = format!("{} and {}", tree.kv_tile, tree.kv_split);
        return refuse("kv_tile a multiple of 16 and kv_split of kv_tile".into(), got);
    }
    if !whole(q_heads, step.shape.kv_heads) {
        return refuse(format!("a multiple of {} query heads", step.shape.kv_heads), q_heads.to_string());
    }
    if !(tree.scale_log2.is_finite() && tree.scale_log2 > 0.0) || tree.window == Some(0) {
        return refuse(
            "a finite scale and a window, if any, above 0".into(),
            format!("{} and {:?}", tree.scale_log2, tree.window),
        );
    }
    Ok(())
}

impl Call<'_> {
    /// Under `ieee` a masked value must not even reach a sum as 0 * v, because -0 + 0 * v depends on the sign of v; so each
    /// row then makes its own pass, with masked values zeroed. A tensor-core step ignores zero products.
    fn row_block(&self) -> usize {
        if self.cx.fused() { ROW_BLOCK } else { 1 }
    }

    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for run in &self.step.runs {
            for first in (run.first..run.first + run.count).step_by(self.row_block()) {
                let count = self.row_block().min(run.first + run.count - first);
                let sequence = run.sequence;
                tasks.extend((0..self.step.shape.kv_heads).map(|head| Task { first, count, sequence, head }));
            }
        }
        tasks
    }

    /// The positions that row i sees.
    fn visible(&self, i: usize) -> Range<usize> {
        self.tree.seen(self.step.rows.positions[i] as usize)
    }

    /// The splits that some row of the task sees.
    fn splits(&self, task: &Task) -> Range<usize> {
        let (first, last) = (self.visible(task.first), self.visible(task.first + task.count - 1));
        first.start / self.tree.kv_split..last.end.div_ceil(self.tree.kv_split)
    }

    /// The state of a task's rows after one split.
    fn split(&self, task: &Task, split: usize) -> State {
        let (rows, d_tiles) = (task.count * self.group, self.tree.head_dim.div_ceil(COLUMNS));
        let mut state = State {
            seen: vec![false; rows],
            c: vec![f32::NEG_INFINITY; rows],
            l: vec![[0.0; 8]; rows],
            acc: vec![Acc::default(); rows * d_tiles],
        };
        let mut scratch = Scratch {
            scores: vec![0.0; rows * self.tree.kv_tile],
            sums: vec![Acc::default(); rows],
            weights: Rows::new(rows, self.tree.kv_tile / STEP, self.cx.fused()),
            bits: vec![0; self.tree.kv_tile],
        };
        let last = self.visible(task.first + task.count - 1).end;
        let begin = split * self.tree.kv_split;
        for tile in (begin..last.min(begin + self.tree.kv_split)).step_by(self.tree.kv_tile) {
            self.tile(task, tile, &mut state, &mut scratch);
        }
        state
    }

    /// Continues the states of the rows that see the tile which starts at position `tile`.
    fn tile(&self, task: &Task, tile: usize, state: &mut State, scratch: &mut Scratch) {
        let tile = tile..tile + self.tree.kv_tile;
        let sees = |i: &usize| {
            let visible = self.visible(*i);
            visible.start < tile.end && visible.end > tile.start
        };
        // Both ends of what a row sees ascend with the row, so the rows that see the tile are adjacent.
        let mut rows = (task.first..task.first + task.count).filter(sees);
        let Some(first) = rows.next() else { return };
        let last = rows.next_back().unwrap_or(first);
        let wanted = self.visible(first).start.max(tile.start)..self.visible(last).end.min(tile.end);
        self.scores(task, first..last + 1, &tile, &wanted, scratch);

        let chains = (first - task.first) * self.group..(last + 1 - task.first) * self.group;
        let all = state.c.len();
        for (r, mut weights) in chains.clone().zip(scratch.weights.rows_mut().skip(chains.start)) {
            let row = self.visible(task.first + r / self.group);
            let row = row.start.max(tile.start) - tile.start..row.end.min(tile.end) - tile.start;
            let scores = &mut scratch.scores[r * self.tree.kv_tile..(r + 1) * self.tree.kv_tile];
            scores[..row.start].fill(f32::NEG_INFINITY);
            scores[row.end..].fill(f32::NEG_INFINITY);
            let c = &mut state.c[r];
            let alpha = softmax(self.cx.simd, scores, self.tree.scale_log2, c, &mut state.l[r], &mut scratch.bits);
            for acc in state.acc[r..].iter_mut().step_by(all) {
                acc.0 = acc.0.map(|a| a * alpha);
            }
            weights.fill(self.cx.simd, chain::group(self.cx.arithmetic), &scratch.bits);
            state.seen[r] = true;
        }
        self.values(task, chains, &tile, &wanted, state, scratch);
    }

    /// Scores of rows `rows` at positions `wanted` of a tile.
    fn scores(
        &self,
        task: &Task,
        rows: Range<usize>,
        tile: &Range<usize>,
        wanted: &Range<usize>,
        scratch: &mut Scratch,
    ) {
        let page_tokens = self.step.shape.page_tokens;
        let table = &self.step.rows.tables[task.sequence];
        let mut views: Vec<RowView<'_>> = Vec::with_capacity(rows.len() * self.group);
        for i in rows.clone() {
            let query = i * self.q_heads + task.head * self.group;
            views.extend((query..query + self.group).map(|q| self.queries.view(q, 0..self.queries.steps)));
        }
        let first = (rows.start - task.first) * self.group;
        let mut position = wanted.start;
        while position < wanted.end {
            let (page, slot) = (table[position / page_tokens] as usize, position % page_tokens);
            let (t, column) = (slot / COLUMNS, slot % COLUMNS);
            let count = (COLUMNS - column).min(page_tokens - slot).min(wanted.end - position);
            let live = (u32::MAX >> (COLUMNS - count)) << column;
            let steps = self.pool.keys(self.layer, page, task.head, t);
            let sums = &mut scratch.sums[..views.len()];
            sums.fill(Acc::default());
            chain::run(self.cx.simd, self.cx.arithmetic, Tile { steps, live, finite: true }, &views, sums);
            for (r, sums) in sums.iter().enumerate() {
                let start = (first + r) * self.tree.kv_tile + position - tile.start;
                scratch.scores[start..start + count].copy_from_slice(&sums.0[column..column + count]);
            }
            position += count;
        }
    }

    /// Continues `acc` by the steps of a tile that hold a wanted position.
    fn values(
        &self,
        task: &Task,
        chains: Range<usize>,
        tile: &Range<usize>,
        wanted: &Range<usize>,
        state: &mut State,
        scratch: &Scratch,
    ) {
        let page_tokens = self.step.shape.page_tokens;
        let table = &self.step.rows.tables[task.sequence];
        let all = state.c.len();
        let steps = wanted.start / STEP..wanted.end.div_ceil(STEP);
        let aligned = page_tokens.is_multiple_of(STEP);
        let masked_steps = !(wanted.end.div_ceil(STEP) * STEP == tile.end && wanted.start < tile.start + STEP);
        let mut views: Vec<RowView<'_>> = Vec::with_capacity(chains.len());
        let mut step = steps.start;
        while step < steps.end {
            let (page, slot) = (table[step * STEP / page_tokens] as usize, step * STEP % page_tokens);
            // Steps that lie in a page as they are needed; any other step is put together first.
            let whole = |s: usize| aligned && s * STEP >= wanted.start && (s + 1) * STEP <= wanted.end;
            let limit = ((page_tokens - slot) / STEP).min(steps.end - step);
            let count = (0..limit).take_while(|i| whole(step + i)).count().max(1);
            let of_tile = step - tile.start / STEP;
            views.clear();
            views.extend(chains.clone().map(|r| scratch.weights.view(r, of_tile..of_tile + count)));
            for (t, acc) in state.acc.chunks_mut(all).enumerate() {
                let elements = COLUMNS.min(self.tree.head_dim - t * COLUMNS);
                let live = u32::MAX >> (COLUMNS - elements);
                let gathered;
                let steps = if whole(step) {
                    &self.pool.values(self.layer, page, task.head, t)[slot / STEP..slot / STEP + count]
                } else {
                    gathered = [self.pool.gather_values((self.layer, task.head, t), table, step * STEP, wanted)];
                    &gathered
                };
                let tile = Tile { steps, live, finite: true };
                chain::run(self.cx.simd, self.cx.arithmetic, tile, &views, &mut acc[chains.clone()]);
            }
            step += count;
        }
        // A wholly masked step adds zeros: no more than a -0 (a negative sum that underflowed) that becomes +0.
        if masked_steps {
            for acc in state.acc.chunks_mut(all).flat_map(|acc| &mut acc[chains.clone()]) {
                acc.0 = acc.0.map(|a| a + 0.0);
            }
        }
    }

    /// Merges the states of a task's splits from left to right and stores the rows.
    fn store(&self, task: &Task, states: impl Iterator<Item = State>, out: &Disjoint<'_, bf16>) {
        let mut total: Option<Merged> = None;
        for state in states {
            match &mut total {
                None => total = Some(Merged::from(state)),
                Some(total) => total.add(self.cx, Merged::from(state)),
            }
        }
        let Some(total) = total else { return };
        let (all, d) = (total.c.len(), self.tree.head_dim);
        for r in 0..all {
            let (row, head) = (task.first + r / self.group, task.head * self.group + r % self.group);
            // SAFETY: a task owns the (row, head) pairs of its rows and its KV head.
            let out = unsafe { out.run((row * self.q_heads + head) * d, d) };
            let inverse = 1.0 / total.l[r];
            for (t, out) in out.chunks_mut(COLUMNS).enumerate() {
                for (out, a) in out.iter_mut().zip(total.acc[t * all + r].0) {
                    *out = to_bf16(a * inverse);
                }
            }
        }
    }
}

/// States whose denominators are one number.
struct Merged {
    seen: Vec<bool>,
    c: Vec<f32>,
    l: Vec<f32>,
    acc: Vec<Acc>,
}

impl From<State> for Merged {
    fn from(state: State) -> Self {
        let l = state.l.iter().map(|l| neighbour_sum(l)).collect();
        Self { seen: state.seen, c: state.c, l, acc: state.acc }
    }
}

impl Merged {
    /// Adds the split to the right.
    fn add(&mut self, cx: &Context, right: Self) {
        let all = self.c.len();
        for r in (0..all).filter(|&r| right.seen[r]) {
            let columns = self.acc[r..].iter_mut().step_by(all).zip(right.acc[r..].iter().step_by(all));
            if !self.seen[r] {
                (self.seen[r], self.c[r], self.l[r]) = (true, right.c[r], right.l[r]);
                columns.for_each(|(a, b)| *a = *b);
                continue;
            }
            let c = if right.c[r] > self.c[r] { right.c[r] } else { self.c[r] };
            let (a, b) = (exp2(self.c[r] - c), exp2(right.c[r] - c));
            self.c[r] = c;
            self.l[r] = right.l[r].mul_add(b, self.l[r] * a);
            columns.for_each(|(left, right)| merge(cx.simd, left, a, right, b));
        }
    }
}

per_level! {
    fn merge(left: &mut Acc, a: f32, right: &Acc, b: f32) {
        for (left, right) in left.0.iter_mut().zip(right.0) {
            *left = right.mul_add(b, *left * a);
        }
    }
}

per_level! {
    /// One tile of one row: moves the maximum `c` and the denominator `l`, writes the weights as bf16 bits and gives alpha.
    /// A masked score is -inf, so that its weight is +0 whatever c is.
    fn softmax(scores: &mut [f32], scale: f32, c: &mut f32, l: &mut [f32; 8], weights: &mut [u16]) -> f32 {
        let (steps, _) = scores.as_chunks_mut::<STEP>();
        let mut best = [f32::NEG_INFINITY; STEP];
        for step in steps.iter() {
            for (best, &s) in best.iter_mut().zip(step) {
                *best = if s > *best { s } else { *best };
            }
        }
        let best = best.iter().fold(f32::NEG_INFINITY, |m, &s| if s > m { s } else { m }) * scale;
        let old = *c;
        *c = if best > old { best } else { old };
        let alpha = exp2(old - *c);
        for l in l.iter_mut() {
            *l *= alpha;
        }
        let (weights, _) = weights.as_chunks_mut::<STEP>();
        for (step, weights) in steps.iter_mut().zip(weights) {
            for (s, weight) in step.iter_mut().zip(weights) {
                *s = exp2(s.mul_add(scale, -*c));
                *weight = to_bf16(*s).to_bits();
            }
            for (g, l) in l.iter_mut().enumerate() {
                *l += step[g] + step[g + 8];
            }
        }
        alpha
    }
}

/// Outputs are bf16 and hide the last bits of a denominator, so the f32 state is compared here.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Simd;
    use crate::cpu::testing::Random;

    fn number(r: &mut Random, spread: f32) -> f32 {
        (r.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0) * spread
    }

    /// The tile of `AttentionTree`'s documentation, in its plainest form.
    fn tile(scores: &[f32], scale: f32, c: f32, l: &[f32; 8]) -> (f32, f32, [f32; 8], Vec<u16>) {
        let best = scores.iter().fold(f32::NEG_INFINITY, |m, &s| if s > m { s } else { m }) * scale;
        let moved = if best > c { best } else { c };
        let alpha = exp2(c - moved);
        let p: Vec<f32> = scores.iter().map(|s| exp2(s.mul_add(scale, -moved))).collect();
        let mut lanes = l.map(|l| l * alpha);
        for i in 0..p.len() / 16 {
            for g in 0..8 {
                lanes[g] += p[16 * i + g] + p[16 * i + g + 8];
            }
        }
        (moved, alpha, lanes, p.into_iter().map(|p| to_bf16(p).to_bits()).collect())
    }

    #[test]
    fn softmax_keeps_every_bit_of_the_state() {
        for simd in Simd::available() {
            let r = &mut Random(1);
            for case in 0..200 {
                let spread = [0.5, 20.0, 300.0][case % 3];
                let mut scores: Vec<f32> = (0..16 * (1 + r.below(9))).map(|_| number(r, spread)).collect();
                if case % 4 == 0 {
                    scores[3] = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0][r.below(4) as usize];
                }
                let mut c = if case % 5 == 0 { f32::NEG_INFINITY } else { number(r, spread) };
                let mut l: [f32; 8] = std::array::from_fn(|_| number(r, 9.0).abs());
                let (moved, alpha, lanes, p) = tile(&scores, 0.18, c, &l);
                let mut weights = vec![0; scores.len()];
                let got = softmax(simd, &mut scores, 0.18, &mut c, &mut l, &mut weights);
                assert_eq!((got.to_bits(), c, weights), (alpha.to_bits(), moved, p), "{simd:?} case {case}");
                assert_eq!(l.map(f32::to_bits), lanes.map(f32::to_bits), "{simd:?} case {case}");
            }
        }
    }

    #[test]
    fn merge_keeps_every_bit_of_the_state() {
        for simd in Simd::available() {
            let cx = Context { simd, ..Context::for_tests() };
            let r = &mut Random(2);
            let mut state = || {
                let acc = (0..2).map(|_| Acc(std::array::from_fn(|_| number(r, 9.0)))).collect();
                Merged { seen: vec![true], c: vec![number(r, 5.0)], l: vec![number(r, 9.0).abs()], acc }
            };
            for _ in 0..100 {
                let (mut left, right) = (state(), state());
                let c = left.c[0].max(right.c[0]);
                let (a, b) = (exp2(left.c[0] - c), exp2(right.c[0] - c));
                let l = right.l[0].mul_add(b, left.l[0] * a);
                let merged = |t: usize, j: usize| right.acc[t].0[j].mul_add(b, left.acc[t].0[j] * a);
                let acc: Vec<_> = (0..2).map(|t| Acc(std::array::from_fn(|j| merged(t, j)))).collect();
                left.add(&cx, right);
                assert_eq!((left.c[0], left.l[0].to_bits(), left.acc), (c, l.to_bits(), acc));
            }
        }
    }
}

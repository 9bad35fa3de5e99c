//! Linear layers: chains over tiles of 32 weight rows, spread over the workers by (tile, block of rows).

use crate::backend::{Error, Result};
use crate::cpu::chain::{self, Acc, COLUMNS};
use crate::cpu::disjoint::Disjoint;
use crate::cpu::packed::{Order, Packed};
use crate::cpu::rows::{RowView, Rows, STEP};
use crate::cpu::simd::per_level;
use crate::cpu::{Context, check_len};
use half::bf16;
use reduction_tree::operator::{Epilogue, LinearTree, Store};
use reduction_tree::scalar::{canonical, silu, to_bf16};

/// Rows that share one pass over a tile: their accumulators and a block of steps stay in the first-level cache.
const ROW_BLOCK: usize = 64;
/// Rows whose prepared form, eight bytes a value, is kept at a time.
const ROWS_PREPARED: usize = 512;
/// Steps of one pass when several rows share it: 16 KiB of weights.
const STEP_BLOCK: usize = 16;
/// Multiply-accumulates that are worth waking a worker for.
const GRAIN: usize = 1 << 17;

/// A packed weight, its bias and its tree.
pub struct LinearWeight {
    /// The tree that `linear` computes.
    pub(crate) tree: LinearTree,
    packed: Packed,
    bias: Vec<f32>,
}

impl LinearWeight {
    /// Checks that weight and bias fit the tree, and packs.
    pub(crate) fn new(cx: &Context, tree: LinearTree, weight: &[bf16], bias: Option<&[bf16]>) -> Result<Self> {
        let operation = "linear_weight";
        if tree.k_split == 0 {
            return Err(Error::new(operation, "k_split above 0", "0"));
        }
        let wanted = if tree.epilogue == Epilogue::Bias { tree.n } else { 0 };
        let bias: Vec<f32> = bias.unwrap_or_default().iter().map(|b| b.to_f32()).collect();
        if bias.len() != wanted {
            let expected = format!("a bias of {wanted} elements for {:?}", tree.epilogue);
            return Err(Error::new(operation, expected, format!("{} elements", bias.len())));
        }
        let order = if tree.epilogue == Epilogue::SiluMul { Order::GateUp } else { Order::Plain };
        Ok(Self { tree, packed: Packed::new(&cx.pool, order, tree.n, tree.k, weight)?, bias })
    }

    /// out [tokens, k] = rows `tokens` of the weight.
    pub(crate) fn embed(&self, cx: &Context, tokens: &[u32], out: &mut [bf16]) -> Result<()> {
        let (n, k) = (self.packed.n, self.packed.k);
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= n) {
            return Err(Error::new("embed", format!("tokens below {n}"), token.to_string()));
        }
        let out = check_len("embed", "out", out, tokens.len(), k)?;
        let mut rows: Vec<_> = out.chunks_mut(k).zip(tokens).collect();
        cx.pool.each_mut(&mut rows, 16, |(out, token)| self.packed.read_row(**token as usize, out));
        Ok(())
    }
}

/// What an output element is stored as.
pub trait Output: Copy + Send + Sync {
    /// The store of a tree with this output.
    const STORE: Store;
    /// Rounds and makes a NaN canonical.
    fn store(x: f32) -> Self;
}

impl Output for bf16 {
    const STORE: Store = Store::Bf16;
    #[inline(always)]
    fn store(x: f32) -> Self {
        to_bf16(x)
    }
}

impl Output for f32 {
    const STORE: Store = Store::F32;
    #[inline(always)]
    fn store(x: f32) -> Self {
        canonical(x)
    }
}

/// out [rows, outputs] = epilogue(x [rows, k] · weightᵀ).
pub fn linear<O: Output>(
    cx: &Context,
    weight: &LinearWeight,
    rows: usize,
    x: &[bf16],
    residual: Option<&[bf16]>,
    out: &mut [O],
) -> Result<()> {
    let operation = "linear";
    let tree = &weight.tree;
    if tree.store != O::STORE {
        return Err(Error::new(operation, format!("a tree that stores {:?}", O::STORE), format!("{:?}", tree.store)));
    }
    if residual.is_some() != (tree.epilogue == Epilogue::Residual) {
        let got = if residual.is_some() { "a residual" } else { "none" };
        return Err(Error::new(operation, format!("a residual exactly for Residual, here {:?}", tree.epilogue), got));
    }
    let n = tree.outputs();
    let x = check_len(operation, "x", x, rows, tree.k)?;
    let out = check_len(operation, "out", out, rows, n)?;
    let residual = residual.map(|r| check_len(operation, "residual", r, rows, n)).transpose()?;

    for first in (0..rows).step_by(ROWS_PREPARED) {
        let count = ROWS_PREPARED.min(rows - first);
        let residual = residual.map(|residual| &residual[first * n..(first + count) * n]);
        let x = &x[first * tree.k..(first + count) * tree.k];
        linear_rows(cx, weight, count, x, residual, &mut out[first * n..(first + count) * n]);
    }
    Ok(())
}

/// [`linear`] for slices that were checked.
fn linear_rows<O: Output>(
    cx: &Context,
    weight: &LinearWeight,
    rows: usize,
    x: &[bf16],
    residual: Option<&[bf16]>,
    out: &mut [O],
) {
    let tree = &weight.tree;
    let n = tree.outputs();
    let prepared = prepare(cx, x, rows, tree.k);
    let blocks = rows.div_ceil(ROW_BLOCK);
    let work = COLUMNS * tree.k * rows.min(ROW_BLOCK);
    let out = Disjoint::new(out);
    cx.pool.each(weight.packed.tiles() * blocks, GRAIN.div_ceil(work.max(1)), |task| {
        let (t, first) = (task / blocks, task % blocks * ROW_BLOCK);
        let count = ROW_BLOCK.min(rows - first);
        let mut totals = [Acc::default(); ROW_BLOCK];
        let totals = &mut totals[..count];
        sums(cx, weight, t, &prepared, first, totals);
        let width = if tree.epilogue == Epilogue::SiluMul { COLUMNS / 2 } else { COLUMNS };
        let (column, width) = (t * width, width.min(n - t * width));
        for (r, total) in totals.iter_mut().enumerate() {
            let start = (first + r) * n + column;
            let added = match tree.epilogue {
                Epilogue::Residual => residual.map(|residual| Added::Residual(&residual[start..start + width])),
                Epilogue::Bias => Some(Added::Bias(&weight.bias[column..column + width])),
                Epilogue::SiluMul => Some(Added::Gate),
                Epilogue::None => None,
            };
            epilogue(cx.simd, total, added);
            // SAFETY: tasks differ in the tile or the row block, so no other task writes these columns of this row.
            let out = unsafe { out.run(start, width) };
            for (out, &sum) in out.iter_mut().zip(&total.0) {
                *out = O::store(sum);
            }
        }
    });
}

/// The rows of x as the chains read them.
pub fn prepare(cx: &Context, x: &[bf16], rows: usize, k: usize) -> Rows {
    let mut prepared = Rows::new(rows, k.div_ceil(STEP), cx.fused());
    let x: &[u16] = bytemuck::cast_slice(x);
    let group = chain::group(cx.arithmetic);
    let mut pairs: Vec<_> = prepared.rows_mut().zip(x.chunks(k)).collect();
    cx.pool.each_mut(&mut pairs, (1 << 14) / k + 1, |(row, x)| row.fill(cx.simd, group, x));
    drop(pairs);
    prepared
}

/// The f32 sums of tile `t` for rows `first..first + totals.len()`: the chunks' chains, added left to right.
fn sums(cx: &Context, weight: &LinearWeight, t: usize, x: &Rows, first: usize, totals: &mut [Acc]) {
    let tree = &weight.tree;
    let block = if totals.len() == 1 { weight.packed.steps } else { STEP_BLOCK };
    let mut views: Vec<RowView<'_>> = Vec::with_capacity(totals.len());
    let mut acc = [Acc::default(); ROW_BLOCK];
    for chunk in tree.chunks() {
        let acc = &mut acc[..totals.len()];
        acc.fill(Acc::default());
        let (mut begin, end) = (chunk.start / STEP, chunk.end.div_ceil(STEP));
        while begin < end {
            let range = begin..end.min(begin + block);
            views.clear();
            views.extend((0..acc.len()).map(|r| x.view(first + r, range.clone())));
            begin = range.end;
            chain::run(cx.simd, cx.arithmetic, weight.packed.tile(t, range), &views, acc);
        }
        for (total, acc) in totals.iter_mut().zip(acc) {
            for (total, acc) in total.0.iter_mut().zip(acc.0) {
                *total = if chunk.start == 0 { acc } else { *total + acc };
            }
        }
    }
}

/// What the epilogue adds to a row's sums of one tile.
#[derive(Clone, Copy)]
enum Added<'a> {
    Bias(&'a [f32]),
    Residual(&'a [bf16]),
    Gate,
}

per_level! {
    fn epilogue(total: &mut Acc, added: Option<Added<'_>>) {
        match added {
            None => {}
            Some(Added::Bias(bias)) => {
                for (total, bias) in total.0.iter_mut().zip(bias) {
                    *total += bias;
                }
            }
            Some(Added::Residual(residual)) => {
                for (total, residual) in total.0.iter_mut().zip(residual) {
                    *total += f32::from_bits(u32::from(residual.to_bits()) << 16);
                }
            }
            Some(Added::Gate) => {
                let (gate, up) = total.0.split_at_mut(COLUMNS / 2);
                for (gate, up) in gate.iter_mut().zip(up) {
                    *gate = silu(*gate) * *up;
                }
            }
        }
    }
}

//! A weight matrix cut into tiles of 32 columns, each stored step after step, so that a chain reads memory in order.
//!
//! Packing keeps bf16: the packed matrix is as large as the source, but for padding to whole tiles and steps.

use crate::backend::{Error, Result};
use crate::cpu::chain::{COLUMNS, StepTile, Tile};
use crate::cpu::pool::Pool;
use crate::cpu::rows::STEP;
use crate::cpu::tiles::Tiles;
use half::bf16;
use std::ops::Range;

/// Which weight rows a tile's columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Tile t holds rows 32t..32t+32.
    Plain,
    /// Columns 0..16 of tile t are gate rows 16t..16t+16, columns 16..32 the up rows n/2 + 16t.. that belong to them.
    GateUp,
}

/// Weights [n, k] in tiles.
pub struct Packed {
    /// Weight rows.
    pub n: usize,
    /// Reduction length.
    pub k: usize,
    /// k16 steps of a row.
    pub steps: usize,
    order: Order,
    tiles: Tiles,
    finite: Vec<bool>,
}

impl Packed {
    /// Packs a row-major [n, k] matrix; tiles are packed in parallel.
    pub fn new(pool: &Pool, order: Order, n: usize, k: usize, weight: &[bf16]) -> Result<Self> {
        let expected = n.checked_mul(k).filter(|&len| len == weight.len());
        if expected.is_none() {
            let got = format!("{} elements", weight.len());
            return Err(Error::new("linear_weight", format!("{n} x {k} elements"), got));
        }
        if n == 0 || k == 0 || (order == Order::GateUp && n % 2 == 1) {
            let expected = "n and k above 0, and n even for a gated weight";
            return Err(Error::new("linear_weight", expected, format!("n {n}, k {k}")));
        }
        let columns = if order == Order::GateUp { COLUMNS / 2 } else { COLUMNS };
        let rows = if order == Order::GateUp { n / 2 } else { n };
        let (count, steps) = (rows.div_ceil(columns), k.div_ceil(STEP));
        let tiles = Tiles::zeroed("linear_weight", count * steps)?;
        let mut packed = Self { n, k, steps, order, tiles, finite: vec![true; count] };
        let row_of = |tile, column| place_row(order, n, tile, column);
        let mut parts: Vec<_> = packed.tiles.chunks_mut(steps).zip(&mut packed.finite).enumerate().collect();
        pool.each_mut(&mut parts, 1, |(t, (tile, finite))| {
            let row = |column| row_of(*t, column).map(|row| &weight[row * k..(row + 1) * k]);
            for j in 0..COLUMNS / 2 {
                fill_columns(tile, j, row(j), row(j + COLUMNS / 2));
                for row in [row(j), row(j + COLUMNS / 2)].into_iter().flatten() {
                    **finite &= row.iter().fold(true, |ok, w| ok & (w.to_bits() & 0x7f80 != 0x7f80));
                }
            }
        });
        Ok(packed)
    }

    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.finite.len()
    }

    /// Steps `range` of tile `t`.
    pub fn tile(&self, t: usize, range: Range<usize>) -> Tile<'_> {
        let first = |count: usize| u32::MAX >> (COLUMNS - count.min(COLUMNS));
        let live = match self.order {
            Order::Plain => first(self.n - t * COLUMNS),
            Order::GateUp => {
                let pairs = first((self.n / 2 - t * COLUMNS / 2).min(COLUMNS / 2));
                pairs | pairs << (COLUMNS / 2)
            }
        };
        let steps = &self.tiles[t * self.steps + range.start..t * self.steps + range.end];
        Tile { steps, live, finite: self.finite[t] }
    }

    /// Copies weight row `row` out.
    pub fn read_row(&self, row: usize, out: &mut [bf16]) {
        let half = self.n / 2;
        let (tile, column) = match self.order {
            Order::Plain => (row / COLUMNS, row % COLUMNS),
            Order::GateUp if row < half => (row / 16, row % 16),
            Order::GateUp => ((row - half) / 16, 16 + (row - half) % 16),
        };
        let steps = &self.tiles[tile * self.steps..(tile + 1) * self.steps];
        for (out, step) in out.chunks_mut(STEP).zip(steps) {
            for (k, out) in out.iter_mut().enumerate() {
                *out = bf16::from_bits(step.get(k, column));
            }
        }
    }
}

/// The weight row of a tile's column; `None` for padding.
fn place_row(order: Order, n: usize, tile: usize, column: usize) -> Option<usize> {
    match order {
        Order::Plain => Some(tile * COLUMNS + column).filter(|&row| row < n),
        Order::GateUp => {
            let (pair, half) = (tile * 16 + column % 16, n / 2);
            Some(if column < 16 { pair } else { half + pair }).filter(|_| pair < half)
        }
    }
}

/// Writes two weight rows, the lower and the upper half of word j.
fn fill_columns(tile: &mut [StepTile], j: usize, low: Option<&[bf16]>, high: Option<&[bf16]>) {
    let bits = |row: Option<&[bf16]>, i| row.and_then(|row| row.get(i)).map_or(0, |w: &bf16| u32::from(w.to_bits()));
    for (s, step) in tile.iter_mut().enumerate() {
        for (k, words) in step.0.iter_mut().enumerate() {
            words[j] = bits(low, s * STEP + k) | bits(high, s * STEP + k) << 16;
        }
    }
}

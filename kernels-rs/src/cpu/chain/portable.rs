//! The chains in plain Rust, for any machine; loops over lanes that a compiler may vectorise.

use super::{Acc, COLUMNS, RowView, STEP, StepTile, Tile, fast_span, lowest_top, repair};

/// The columns' weights of product k, as f32.
#[inline(always)]
fn widen(tile: &StepTile, k: usize) -> [f32; COLUMNS] {
    std::array::from_fn(|j| {
        let word = tile.0[k][j % 16];
        f32::from_bits(if j < 16 { word << 16 } else { word & 0xffff_0000 })
    })
}

/// `acc = fma(w, x, acc)` over all k in order.
pub fn ieee(tile: Tile<'_>, rows: &[RowView<'_>], acc: &mut [Acc]) {
    for (row, acc) in rows.iter().zip(acc) {
        for (weights, values) in tile.steps.iter().zip(row.values) {
            for k in 0..STEP {
                let w = widen(weights, k);
                for (a, w) in acc.0.iter_mut().zip(w) {
                    *a = w.mul_add(values.0[k], *a);
                }
            }
        }
    }
}

/// Tensor-core steps of L products with F fraction bits.
pub fn fused<const L: usize, const F: i32>(tile: Tile<'_>, rows: &[RowView<'_>], acc: &mut [Acc]) {
    for (row, acc) in rows.iter().zip(acc) {
        for step in 0..tile.steps.len() {
            for g in 0..STEP / L {
                group::<L, F>(&tile, row, step, g, acc);
            }
        }
    }
}

#[inline(always)]
fn group<const L: usize, const F: i32>(tile: &Tile<'_>, row: &RowView<'_>, step: usize, g: usize, acc: &mut Acc) {
    let weights = &tile.steps[step];
    let (values, gaps, base) = (&row.values[step].0, &row.gaps[step].0, row.bases[step][g]);
    let old = *acc;
    let mut above = [0u16; COLUMNS];
    let ks = g * L..(g + 1) * L;
    for (k, gap) in ks.clone().zip(&gaps[ks.clone()]) {
        let gap = *gap as u16;
        for (j, a) in above.iter_mut().enumerate() {
            let exponent = (weights.0[k][j % 16] >> (j / 16 * 16)) as u16 & 0x7f80;
            *a = (*a).max(exponent.saturating_sub(gap));
        }
    }
    let top: [i32; COLUMNS] = std::array::from_fn(|j| {
        let c = (old.0[j].to_bits() << 1 >> 24) as i32 + 127;
        c.max(i32::from(above[j] >> 7) + base)
    });
    let scale = top.map(|e| f32::from_bits(((F + 381 - e) as u32) << 23));
    let mut sum = [0i32; COLUMNS];
    for (k, value) in ks.clone().zip(&values[ks]) {
        let w = widen(weights, k);
        for j in 0..COLUMNS {
            sum[j] = sum[j].wrapping_add((w[j] * (value * scale[j])) as i32);
        }
    }
    let (lowest, span) = (lowest_top::<F>(base), fast_span::<F>(base) as u32);
    let mut bad = 0;
    for j in 0..COLUMNS {
        let c = (old.0[j] * scale[j]) as i32;
        let (total, overflow) = sum[j].overflowing_add(c);
        let fast = (top[j].wrapping_sub(lowest) as u32) < span && !overflow;
        bad |= u32::from(!fast) << j;
        // Clearing every bit that is set in the value's own top bits clears the rounding bit, and nothing that binary32
        // keeps: the conversion to nearest then is the conversion toward zero.
        let magnitude = total.unsigned_abs();
        let kept = (magnitude & !(magnitude >> 24)) as f32;
        let signed = if total < 0 { -kept } else { kept };
        acc.0[j] = signed * f32::from_bits(((top[j] - 127 - F) as u32) << 23);
    }
    bad &= tile.live;
    if !tile.finite {
        bad = tile.live;
    }
    if bad != 0 {
        repair::<L>(tile, row, step, g, bad, &old, acc);
    }
}

//! Chains of k16 steps: 32 output columns at once for one or more rows, the inner loop of linear layers and attention.
//!
//! Lanes are columns, so a column's sum never meets another's. A tensor-core step (DESIGN 4.2) is computed per lane as
//! 1. e = the largest exponent of the products (sums of exponent fields, 16-bit lanes) and of the accumulator;
//! 2. every product as `w * (x * 2^(F - e))` in binary32, exact because two 8-bit significands make 16 bits, then
//!    converted to i32 toward zero: the model's alignment and truncation to units of 2^(e - F);
//! 3. the integer sum, the accumulator converted in the same way and added; 16 products of less than 4 * 2^25 fit i32,
//!    and the last addition is watched for overflow;
//! 4. conversion to binary32 toward zero and the exact scaling by 2^(e - F).
//!
//! The scaling leaves binary32's normal range, or e itself is not certain, only when e is not in `lowest_top(base)
//! ..= TOP_MAX`. Those lanes, lanes with a non-finite input or accumulator, and lanes whose sum passes i32 are computed
//! again by [`mma_step`], the definition. Why e is certain in that range: a zero or subnormal weight is
//! taken for 0 above the base B, its true exponent sum is at most B + 1, and `lowest_top` is larger.

use crate::cpu::rows::{ALL_ZERO, RowView, STEP};
use crate::cpu::simd::{Level, Simd};
use half::bf16;
use reduction_tree::arithmetic::{Arithmetic, mma_step};
use reduction_tree::scalar::canonical;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

/// Columns of a tile.
pub const COLUMNS: usize = 32;

/// The weights of one step: `[k][word]`, where 32-bit word j holds column j below and column j + 16 above, so that a
/// shift and a mask widen them to two vectors of f32.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct StepTile(pub [[u32; COLUMNS / 2]; STEP]);

impl StepTile {
    /// The bf16 bits of column `column` in product `k`.
    #[inline(always)]
    pub fn get(&self, k: usize, column: usize) -> u16 {
        (self.0[k][column % 16] >> (column / 16 * 16)) as u16
    }

    /// Sets the bf16 bits of column `column` in product `k`.
    #[inline(always)]
    pub fn set(&mut self, k: usize, column: usize, bits: u16) {
        let (word, shift) = (&mut self.0[k][column % 16], column / 16 * 16);
        *word = (*word & !(0xffff << shift)) | (u32::from(bits) << shift);
    }
}

/// One row's accumulators of a tile, by column.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Acc(pub [f32; COLUMNS]);

/// A tile's steps and which of its columns matter.
#[derive(Clone, Copy)]
pub struct Tile<'a> {
    /// The steps of this run of the chain.
    pub steps: &'a [StepTile],
    /// Bit j: column j is wanted. Other columns may hold anything and get anything.
    pub live: u32,
    /// No wanted column holds an infinity or NaN.
    pub finite: bool,
}

/// Biased by 254, the largest exponent that a fast lane may have: sums below 2^31 * 2^(e - F) stay finite.
const TOP_MAX: i32 = 254 + 121;

/// Biased by 254, the smallest exponent of a fast lane: the result's unit 2^(e - F) is normal, and no `x * 2^(F - e)`
/// overflows, given that x < 2^(B - 126).
#[inline(always)]
const fn lowest_top<const F: i32>(base: i32) -> i32 {
    let by_unit = 254 - 126 + F;
    let by_scale = base + F;
    if by_unit > by_scale { by_unit } else { by_scale }
}

/// How many values of e, from `lowest_top` on, are fast; 0 when none is.
#[inline(always)]
const fn fast_span<const F: i32>(base: i32) -> i32 {
    let span = TOP_MAX + 1 - lowest_top::<F>(base);
    if span > 0 { span } else { 0 }
}

/// Asks for the step that lies `PREFETCH_STEPS` behind this one in memory, which is where a single row will be in a
/// microsecond; several rows reuse a step for so long that the hardware's own prefetching keeps up.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(step: &StepTile) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    const PREFETCH_STEPS: usize = 8;
    let ahead = std::ptr::from_ref(step).wrapping_add(PREFETCH_STEPS).cast::<i8>();
    for line in 0..size_of::<StepTile>() / 64 {
        // SAFETY: a prefetch reads nothing and cannot fault, so the address may lie past the weights.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * line)) };
    }
}

/// Products fused by one step of the model, and the padding of row preparation.
pub fn group(arithmetic: Arithmetic) -> usize {
    match arithmetic {
        Arithmetic::Sm80 => 8,
        Arithmetic::Ieee | Arithmetic::Sm90 => 16,
    }
}

/// Continues one chain per row and column: `acc[r].0[j]` over all steps of the tile.
///
/// Each row must have exactly the tile's number of steps. NaN accumulators of the tensor-core arithmetics are canonical;
/// those of `ieee` are not until the caller makes them so.
pub fn run(simd: Simd, arithmetic: Arithmetic, tile: Tile<'_>, rows: &[RowView<'_>], acc: &mut [Acc]) {
    assert_eq!(rows.len(), acc.len());
    let steps = tile.steps.len();
    let fused = arithmetic != Arithmetic::Ieee;
    for row in rows {
        assert_eq!(row.values.len(), steps);
        assert!(!fused || (row.gaps.len() == steps && row.bases.len() == steps));
    }
    match simd.level() {
        Level::Portable => match arithmetic {
            Arithmetic::Ieee => portable::ieee(tile, rows, acc),
            Arithmetic::Sm90 => portable::fused::<16, 25>(tile, rows, acc),
            Arithmetic::Sm80 => portable::fused::<8, 24>(tile, rows, acc),
        },
        // SAFETY: a `Simd` of this level is only made after the machine was seen to have these features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe {
            match arithmetic {
                Arithmetic::Ieee => avx2::ieee(tile, rows, acc),
                Arithmetic::Sm90 => avx2::fused::<16, 25>(tile, rows, acc),
                Arithmetic::Sm80 => avx2::fused::<8, 24>(tile, rows, acc),
            }
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe {
            match arithmetic {
                Arithmetic::Ieee => avx512::ieee(tile, rows, acc),
                Arithmetic::Sm90 => avx512::fused::<16, 25>(tile, rows, acc),
                Arithmetic::Sm80 => avx512::fused::<8, 24>(tile, rows, acc),
            }
        },
    }
}

/// Computes the lanes `bad` of group `g` of a step by the definition. `old` holds the accumulators before the group.
///
/// The definition's step has 16 products; the other group of an 8-product arithmetic is given as zeros, which leave an
/// accumulator as it is.
#[cold]
#[inline(never)]
fn repair<const L: usize>(
    tile: &Tile<'_>,
    row: &RowView<'_>,
    step: usize,
    g: usize,
    bad: u32,
    old: &Acc,
    acc: &mut Acc,
) {
    let arithmetic = if L == 8 { Arithmetic::Sm80 } else { Arithmetic::Sm90 };
    let neutral = tile.finite && row.bases[step][g] == ALL_ZERO;
    let weights = &tile.steps[step];
    let mut x = [bf16::ZERO; STEP];
    let group = g * L..(g + 1) * L;
    for (x, value) in x[group.clone()].iter_mut().zip(&row.values[step].0[group]) {
        *x = bf16::from_bits((value.to_bits() >> 16) as u16);
    }
    for column in 0..COLUMNS {
        if bad >> column & 1 == 0 {
            continue;
        }
        let c = old.0[column];
        let w: [bf16; STEP] = std::array::from_fn(|k| match k / L == g {
            true => bf16::from_bits(weights.get(k, column)),
            false => bf16::ZERO,
        });
        // Padding makes whole groups of zeros; they need no arithmetic, only that a zero sum is +0.
        acc.0[column] = if neutral { canonical(c + 0.0) } else { mma_step(arithmetic, c, &w, &x) };
    }
}

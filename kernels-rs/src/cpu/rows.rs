//! Activation rows prepared for the chains: every k16 step as f32 values, and for the tensor-core arithmetics what pass
//! one of a step needs to find the largest product exponent.
//!
//! With xe the biased exponent of a value (1 for a subnormal) and B the largest xe of a group (the products that one
//! step of the model fuses), `gap = (B - xe) << 7`. A weight's exponent field, kept in place as `we << 7`, minus the gap,
//! saturating at 0, is then the product's exponent above B. A zero has the gap 0xffff and never counts.

use crate::cpu::simd::{Simd, per_level};

/// Products of one step; also the padding unit of K.
pub const STEP: usize = 16;

/// One step's values.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Values(pub [f32; STEP]);

/// One step's gaps, each twice, so that a 32-bit broadcast fills 16-bit lanes.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Gaps(pub [u32; STEP]);

/// The largest exponent B of each group of a step (one group of 16 or two of 8), or a mark that no lane's exponent test
/// can pass with.
pub type Bases = [i32; 2];

/// Base of a group of zeros: below every exponent, so that only an accumulator can make a lane fast.
pub const ALL_ZERO: i32 = -(1 << 20);
/// Base of a group that holds an infinity or NaN: above every exponent, so that no lane is fast.
pub const NON_FINITE: i32 = 1 << 20;

/// Rows of equal length; step s of row r is at `r * steps + s`.
#[derive(Default)]
pub struct Rows {
    /// Steps of a row.
    pub steps: usize,
    values: Vec<Values>,
    gaps: Vec<Gaps>,
    bases: Vec<Bases>,
}

/// A run of steps of one row.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    /// Per step.
    pub values: &'a [Values],
    /// Per step; empty under `ieee`.
    pub gaps: &'a [Gaps],
    /// Per step; empty under `ieee`.
    pub bases: &'a [Bases],
}

impl Rows {
    /// Room for `rows` rows of `steps` steps; `fused` when gaps and bases are wanted.
    pub fn new(rows: usize, steps: usize, fused: bool) -> Self {
        let n = rows * steps;
        let m = if fused { n } else { 0 };
        Self {
            steps,
            values: vec![Values::default(); n],
            gaps: vec![Gaps::default(); m],
            bases: vec![Bases::default(); m],
        }
    }

    /// Steps `range` of row `r`.
    pub fn view(&self, r: usize, range: std::ops::Range<usize>) -> RowView<'_> {
        let (a, b) = (r * self.steps + range.start, r * self.steps + range.end);
        let fused = !self.gaps.is_empty();
        RowView {
            values: &self.values[a..b],
            gaps: if fused { &self.gaps[a..b] } else { &[] },
            bases: if fused { &self.bases[a..b] } else { &[] },
        }
    }

    /// Splits the store into rows that may be filled at the same time.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = RowMut<'_>> {
        let steps = self.steps.max(1);
        let fused = !self.gaps.is_empty();
        let mut gaps = self.gaps.chunks_mut(steps);
        let mut bases = self.bases.chunks_mut(steps);
        self.values.chunks_mut(steps).map(move |values| RowMut {
            values,
            gaps: if fused { gaps.next().unwrap_or_default() } else { Default::default() },
            bases: if fused { bases.next().unwrap_or_default() } else { Default::default() },
        })
    }
}

/// One row to be filled.
pub struct RowMut<'a> {
    values: &'a mut [Values],
    gaps: &'a mut [Gaps],
    bases: &'a mut [Bases],
}

impl RowMut<'_> {
    /// Fills the row from bf16 bits, padded with +0. `group` is the number of products that one step of the model fuses.
    pub fn fill(&mut self, simd: Simd, group: usize, x: &[u16]) {
        if self.gaps.is_empty() {
            widen(simd, x, self.values);
        } else if group == 8 {
            prepare8(simd, x, self.values, self.gaps, self.bases);
        } else {
            prepare16(simd, x, self.values, self.gaps, self.bases);
        }
    }
}

#[inline(always)]
fn load(x: &[u16], s: usize) -> [u16; STEP] {
    let rest = &x[(s * STEP).min(x.len())..];
    match rest.first_chunk() {
        Some(full) => *full,
        None => {
            let mut padded = [0; STEP];
            padded[..rest.len()].copy_from_slice(rest);
            padded
        }
    }
}

#[inline(always)]
fn widen_step(x: &[u16; STEP]) -> Values {
    Values(std::array::from_fn(|k| f32::from_bits(u32::from(x[k]) << 16)))
}

per_level! {
    fn widen(x: &[u16], values: &mut [Values]) {
        for (s, v) in values.iter_mut().enumerate() {
            *v = widen_step(&load(x, s));
        }
    }
}

#[inline(always)]
fn prepare<const GROUP: usize>(x: &[u16], values: &mut [Values], gaps: &mut [Gaps], bases: &mut [Bases]) {
    for (s, ((v, gap), base)) in values.iter_mut().zip(gaps).zip(bases).enumerate() {
        let x = load(x, s);
        *v = widen_step(&x);
        for g in 0..STEP / GROUP {
            let mut exponents = [0u32; GROUP];
            let mut top = 0;
            for (k, e) in exponents.iter_mut().enumerate() {
                let magnitude = u32::from(x[g * GROUP + k] & 0x7fff);
                let exponent = (magnitude >> 7).max(1);
                *e = if magnitude == 0 { 0 } else { exponent };
                top = top.max(*e);
            }
            for (k, &e) in exponents.iter().enumerate() {
                let gap_once = if e == 0 { 0xffff } else { (top - e) << 7 };
                gap.0[g * GROUP + k] = gap_once * 0x10001;
            }
            base[g] = match top {
                0 => ALL_ZERO,
                255 => NON_FINITE,
                top => top as i32,
            };
        }
    }
}

per_level! {
    fn prepare16(x: &[u16], values: &mut [Values], gaps: &mut [Gaps], bases: &mut [Bases]) {
        prepare::<16>(x, values, gaps, bases);
    }
}

per_level! {
    fn prepare8(x: &[u16], values: &mut [Values], gaps: &mut [Gaps], bases: &mut [Bases]) {
        prepare::<8>(x, values, gaps, bases);
    }
}

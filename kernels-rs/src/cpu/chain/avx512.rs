//! The chains with AVX-512 (F, BW, DQ, VL): a tile's 32 columns are two vectors of f32 or one of 16-bit exponents.

use super::{Acc, RowView, STEP, StepTile, Tile, fast_span, lowest_top, prefetch, repair};
use std::arch::x86_64::*;

const TOWARD_ZERO: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load_words(words: &[u32; 16]) -> __m512i {
    // SAFETY: the reference is valid for 64 bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load_acc(acc: &Acc) -> [__m512; 2] {
    // SAFETY: both halves of the 32 elements are valid for 64 bytes, and the loads need no alignment.
    unsafe { [_mm512_loadu_ps(acc.0.as_ptr()), _mm512_loadu_ps(acc.0.as_ptr().add(16))] }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn store_acc(acc: &mut Acc, values: [__m512; 2]) {
    // SAFETY: both halves of the 32 elements are valid for 64 bytes, and the stores need no alignment.
    unsafe {
        _mm512_storeu_ps(acc.0.as_mut_ptr(), values[0]);
        _mm512_storeu_ps(acc.0.as_mut_ptr().add(16), values[1]);
    }
}

/// Columns 0..16 and 16..32 of product k, as f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn widen(words: __m512i) -> [__m512; 2] {
    let high = _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32 as i32));
    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)), _mm512_castsi512_ps(high)]
}

/// `acc = fma(w, x, acc)` over all k in order.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn ieee(tile: Tile<'_>, rows: &[RowView<'_>], acc: &mut [Acc]) {
    let mut r = 0;
    while let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        ieee_block::<8>(&tile, rows, acc);
        r += 8;
    }
    while let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        ieee_block::<2>(&tile, rows, acc);
        r += 2;
    }
    if let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        ieee_block::<1>(&tile, rows, acc);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn ieee_block<const R: usize>(tile: &Tile<'_>, rows: &[RowView<'_>; R], acc: &mut [Acc; R]) {
    let mut sums = [[_mm512_setzero_ps(); 2]; R];
    for r in 0..R {
        sums[r] = load_acc(&acc[r]);
    }
    for (s, weights) in tile.steps.iter().enumerate() {
        if R == 1 {
            prefetch(weights);
        }
        let mut values = [&rows[0].values[s]; R];
        for r in 1..R {
            values[r] = &rows[r].values[s];
        }
        for k in 0..STEP {
            let w = widen(load_words(&weights.0[k]));
            for r in 0..R {
                let x = _mm512_set1_ps(values[r].0[k]);
                sums[r] = [_mm512_fmadd_ps(w[0], x, sums[r][0]), _mm512_fmadd_ps(w[1], x, sums[r][1])];
            }
        }
    }
    for r in 0..R {
        store_acc(&mut acc[r], sums[r]);
    }
}

/// Tensor-core steps of L products with F fraction bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn fused<const L: usize, const F: i32>(tile: Tile<'_>, rows: &[RowView<'_>], acc: &mut [Acc]) {
    let mut r = 0;
    while let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        fused_block::<L, F, 4>(&tile, rows, acc);
        r += 4;
    }
    if let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        fused_block::<L, F, 2>(&tile, rows, acc);
        r += 2;
    }
    if let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        fused_block::<L, F, 1>(&tile, rows, acc);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn fused_block<const L: usize, const F: i32, const R: usize>(
    tile: &Tile<'_>,
    rows: &[RowView<'_>; R],
    acc: &mut [Acc; R],
) {
    let trusted = if tile.finite { tile.live } else { 0 };
    for (s, weights) in tile.steps.iter().enumerate() {
        if R == 1 {
            prefetch(weights);
        }
        for g in 0..STEP / L {
            let above = largest_exponents::<L, R>(weights, rows, s, g);
            let mut top = [[_mm512_setzero_si512(); 2]; R];
            let mut scale = [[_mm512_setzero_ps(); 2]; R];
            for r in 0..R {
                top[r] = with_accumulator(above[r], load_acc(&acc[r]), rows[r].bases[s][g]);
                scale[r] = powers(_mm512_set1_epi32(F + 381), top[r]);
            }
            let sum = truncated_sums::<L, R>(weights, rows, s, g, &scale);
            for r in 0..R {
                let old = acc[r];
                let (result, fast) = finish::<F>(&old, sum[r], scale[r], top[r], rows[r].bases[s][g]);
                store_acc(&mut acc[r], result);
                let bad = tile.live & !(fast & trusted);
                if bad != 0 {
                    repair::<L>(tile, &rows[r], s, g, bad, &old, &mut acc[r]);
                }
            }
        }
    }
}

/// Per row and column, in 16-bit lanes: the largest product exponent above the row's base, times 128.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn largest_exponents<const L: usize, const R: usize>(
    weights: &StepTile,
    rows: &[RowView<'_>; R],
    s: usize,
    g: usize,
) -> [__m512i; R] {
    let field = _mm512_set1_epi16(0x7f80);
    let mut above = [_mm512_setzero_si512(); R];
    for k in g * L..(g + 1) * L {
        let exponents = _mm512_and_si512(load_words(&weights.0[k]), field);
        for r in 0..R {
            let gap = _mm512_set1_epi32(rows[r].gaps[s].0[k] as i32);
            above[r] = _mm512_max_epu16(above[r], _mm512_subs_epu16(exponents, gap));
        }
    }
    above
}

/// The largest exponent, biased by 254, of the products and the accumulator.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn with_accumulator(above: __m512i, acc: [__m512; 2], base: i32) -> [__m512i; 2] {
    let base = _mm512_set1_epi32(base);
    let low = _mm512_srli_epi32::<7>(_mm512_and_si512(above, _mm512_set1_epi32(0xffff)));
    let high = _mm512_srli_epi32::<23>(above);
    let mut top = [low, high];
    for h in 0..2 {
        let c = _mm512_srli_epi32::<24>(_mm512_slli_epi32::<1>(_mm512_castps_si512(acc[h])));
        let c = _mm512_add_epi32(c, _mm512_set1_epi32(127));
        top[h] = _mm512_max_epi32(_mm512_add_epi32(top[h], base), c);
    }
    top
}

/// 2^(constant - top), given the biased constant.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn powers(constant: __m512i, top: [__m512i; 2]) -> [__m512; 2] {
    [
        _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_sub_epi32(constant, top[0]))),
        _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_sub_epi32(constant, top[1]))),
    ]
}

/// Per row and column, the sum of the products, each truncated to an integer number of units.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn truncated_sums<const L: usize, const R: usize>(
    weights: &StepTile,
    rows: &[RowView<'_>; R],
    s: usize,
    g: usize,
    scale: &[[__m512; 2]; R],
) -> [[__m512i; 2]; R] {
    let mut sum = [[_mm512_setzero_si512(); 2]; R];
    for k in g * L..(g + 1) * L {
        let w = widen(load_words(&weights.0[k]));
        for r in 0..R {
            let x = _mm512_set1_ps(rows[r].values[s].0[k]);
            for h in 0..2 {
                let product = _mm512_mul_ps(w[h], _mm512_mul_ps(scale[r][h], x));
                sum[r][h] = _mm512_add_epi32(sum[r][h], _mm512_cvttps_epi32(product));
            }
        }
    }
    sum
}

/// Adds the accumulator, rounds toward zero and scales back. Also says for which columns that was exact.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn finish<const F: i32>(
    old: &Acc,
    sum: [__m512i; 2],
    scale: [__m512; 2],
    top: [__m512i; 2],
    base: i32,
) -> ([__m512; 2], u32) {
    let lowest = _mm512_set1_epi32(lowest_top::<F>(base));
    let span = _mm512_set1_epi32(fast_span::<F>(base));
    let old = load_acc(old);
    let mut result = [_mm512_setzero_ps(); 2];
    let mut fast = 0;
    for h in 0..2 {
        let c = _mm512_cvttps_epi32(_mm512_mul_ps(old[h], scale[h]));
        let total = _mm512_add_epi32(sum[h], c);
        let overflow = _mm512_and_si512(_mm512_xor_si512(sum[h], total), _mm512_xor_si512(c, total));
        let in_range = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(top[h], lowest), span);
        fast |= u32::from(in_range & !_mm512_movepi32_mask(overflow)) << (16 * h);
        // 2^(e - F) has the exponent field e - 127 - F.
        let unit = _mm512_slli_epi32::<23>(_mm512_sub_epi32(top[h], _mm512_set1_epi32(127 + F)));
        let rounded = _mm512_cvt_roundepi32_ps::<TOWARD_ZERO>(total);
        result[h] = _mm512_mul_ps(rounded, _mm512_castsi512_ps(unit));
    }
    (result, fast)
}

//! The chains with AVX2 and FMA: 16 of a tile's columns at a time, as two vectors of f32 or one of 16-bit exponents.

use super::{Acc, RowView, STEP, StepTile, Tile, fast_span, lowest_top, prefetch, repair};
use std::arch::x86_64::*;

/// The words of product k that hold columns 8h..8h+8 and 8h+16..8h+24.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_words(words: &[u32; 16], h: usize) -> __m256i {
    let half: &[u32; 8] = if h == 0 { words.first_chunk() } else { words.last_chunk() }.unwrap_or(&[0; 8]);
    // SAFETY: the reference is valid for 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}

/// Columns 8h..8h+8 and 8h+16..8h+24.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_acc(acc: &Acc, h: usize) -> [__m256; 2] {
    assert!(h < 2);
    // SAFETY: h < 2, so both runs of eight elements lie within the 32, and the loads need no alignment.
    unsafe { [_mm256_loadu_ps(acc.0.as_ptr().add(8 * h)), _mm256_loadu_ps(acc.0.as_ptr().add(8 * h + 16))] }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store_acc(acc: &mut Acc, h: usize, values: [__m256; 2]) {
    assert!(h < 2);
    // SAFETY: h < 2, so both runs of eight elements lie within the 32, and the stores need no alignment.
    unsafe {
        _mm256_storeu_ps(acc.0.as_mut_ptr().add(8 * h), values[0]);
        _mm256_storeu_ps(acc.0.as_mut_ptr().add(8 * h + 16), values[1]);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn widen(words: __m256i) -> [__m256; 2] {
    let high = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32));
    [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)), _mm256_castsi256_ps(high)]
}

/// `acc = fma(w, x, acc)` over all k in order.
#[target_feature(enable = "avx2,fma")]
pub fn ieee(tile: Tile<'_>, rows: &[RowView<'_>], acc: &mut [Acc]) {
    let mut r = 0;
    // Four rows of all columns would need more registers than there are, so they pass twice over steps that the caller
    // keeps few; one or two rows stream the weights once.
    while let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        ieee_block::<4, 1>(&tile, rows, acc, 0);
        ieee_block::<4, 1>(&tile, rows, acc, 1);
        r += 4;
    }
    if let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        ieee_block::<2, 2>(&tile, rows, acc, 0);
        r += 2;
    }
    if let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        ieee_block::<1, 2>(&tile, rows, acc, 0);
    }
}

/// R rows of H halves of the columns, from half `first` on.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn ieee_block<const R: usize, const H: usize>(
    tile: &Tile<'_>,
    rows: &[RowView<'_>; R],
    acc: &mut [Acc; R],
    first: usize,
) {
    let mut sums = [[[_mm256_setzero_ps(); 2]; H]; R];
    for (sums, acc) in sums.iter_mut().zip(&*acc) {
        for (h, sum) in sums.iter_mut().enumerate() {
            *sum = load_acc(acc, first + h);
        }
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
            for h in 0..H {
                let w = widen(load_words(&weights.0[k], first + h));
                for (sums, values) in sums.iter_mut().zip(values) {
                    let x = _mm256_set1_ps(values.0[k]);
                    sums[h] = [_mm256_fmadd_ps(w[0], x, sums[h][0]), _mm256_fmadd_ps(w[1], x, sums[h][1])];
                }
            }
        }
    }
    for (sums, acc) in sums.into_iter().zip(acc) {
        for (h, sum) in sums.into_iter().enumerate() {
            store_acc(acc, first + h, sum);
        }
    }
}

/// Tensor-core steps of L products with F fraction bits.
#[target_feature(enable = "avx2,fma")]
pub fn fused<const L: usize, const F: i32>(tile: Tile<'_>, rows: &[RowView<'_>], acc: &mut [Acc]) {
    let mut r = 0;
    while let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        fused_block::<L, F, 2>(&tile, rows, acc);
        r += 2;
    }
    if let (Some(rows), Some(acc)) = (rows[r..].first_chunk(), acc[r..].first_chunk_mut()) {
        fused_block::<L, F, 1>(&tile, rows, acc);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
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
            let old = *acc;
            let mut fast = [0; R];
            for h in 0..2 {
                let above = largest_exponents::<L, R>(weights, rows, s, g, h);
                let mut top = [[_mm256_setzero_si256(); 2]; R];
                let mut scale = [[_mm256_setzero_ps(); 2]; R];
                for r in 0..R {
                    top[r] = with_accumulator(above[r], load_acc(&old[r], h), rows[r].bases[s][g]);
                    scale[r] = powers(_mm256_set1_epi32(F + 381), top[r]);
                }
                let sum = truncated_sums::<L, R>(weights, rows, s, g, h, &scale);
                for r in 0..R {
                    let c = load_acc(&old[r], h);
                    let (result, lanes) = finish::<F>(c, sum[r], scale[r], top[r], rows[r].bases[s][g]);
                    store_acc(&mut acc[r], h, result);
                    fast[r] |= lanes << (8 * h);
                }
            }
            for r in 0..R {
                let bad = tile.live & !(fast[r] & trusted);
                if bad != 0 {
                    repair::<L>(tile, &rows[r], s, g, bad, &old[r], &mut acc[r]);
                }
            }
        }
    }
}

/// Per row and column, in 16-bit lanes: the largest product exponent above the row's base, times 128.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn largest_exponents<const L: usize, const R: usize>(
    weights: &StepTile,
    rows: &[RowView<'_>; R],
    s: usize,
    g: usize,
    h: usize,
) -> [__m256i; R] {
    let field = _mm256_set1_epi16(0x7f80);
    let mut above = [_mm256_setzero_si256(); R];
    for k in g * L..(g + 1) * L {
        let exponents = _mm256_and_si256(load_words(&weights.0[k], h), field);
        for r in 0..R {
            let gap = _mm256_set1_epi32(rows[r].gaps[s].0[k] as i32);
            above[r] = _mm256_max_epu16(above[r], _mm256_subs_epu16(exponents, gap));
        }
    }
    above
}

/// The largest exponent, biased by 254, of the products and the accumulator.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn with_accumulator(above: __m256i, acc: [__m256; 2], base: i32) -> [__m256i; 2] {
    let base = _mm256_set1_epi32(base);
    let low = _mm256_srli_epi32::<7>(_mm256_and_si256(above, _mm256_set1_epi32(0xffff)));
    let high = _mm256_srli_epi32::<23>(above);
    let mut top = [low, high];
    for i in 0..2 {
        let c = _mm256_srli_epi32::<24>(_mm256_slli_epi32::<1>(_mm256_castps_si256(acc[i])));
        let c = _mm256_add_epi32(c, _mm256_set1_epi32(127));
        top[i] = _mm256_max_epi32(_mm256_add_epi32(top[i], base), c);
    }
    top
}

/// 2^(constant - top), given the biased constant.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn powers(constant: __m256i, top: [__m256i; 2]) -> [__m256; 2] {
    [
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_sub_epi32(constant, top[0]))),
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_sub_epi32(constant, top[1]))),
    ]
}

/// Per row and column, the sum of the products, each truncated to an integer number of units.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn truncated_sums<const L: usize, const R: usize>(
    weights: &StepTile,
    rows: &[RowView<'_>; R],
    s: usize,
    g: usize,
    h: usize,
    scale: &[[__m256; 2]; R],
) -> [[__m256i; 2]; R] {
    let mut sum = [[_mm256_setzero_si256(); 2]; R];
    for k in g * L..(g + 1) * L {
        let w = widen(load_words(&weights.0[k], h));
        for r in 0..R {
            let x = _mm256_set1_ps(rows[r].values[s].0[k]);
            for i in 0..2 {
                let product = _mm256_mul_ps(w[i], _mm256_mul_ps(scale[r][i], x));
                sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_cvttps_epi32(product));
            }
        }
    }
    sum
}

/// Adds the accumulator, rounds toward zero and scales back. Also says for which columns that was exact, as bits 0..8
/// and 16..24.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn finish<const F: i32>(
    old: [__m256; 2],
    sum: [__m256i; 2],
    scale: [__m256; 2],
    top: [__m256i; 2],
    base: i32,
) -> ([__m256; 2], u32) {
    // top is small and not negative wherever span is not 0, so a signed comparison on both sides decides the range.
    let below = _mm256_set1_epi32(lowest_top::<F>(base) - 1);
    let end = _mm256_set1_epi32(lowest_top::<F>(base) + fast_span::<F>(base));
    let mut result = [_mm256_setzero_ps(); 2];
    let mut fast = 0;
    for i in 0..2 {
        let c = _mm256_cvttps_epi32(_mm256_mul_ps(old[i], scale[i]));
        let total = _mm256_add_epi32(sum[i], c);
        let overflow = _mm256_and_si256(_mm256_xor_si256(sum[i], total), _mm256_xor_si256(c, total));
        let in_range = _mm256_and_si256(_mm256_cmpgt_epi32(top[i], below), _mm256_cmpgt_epi32(end, top[i]));
        let lanes = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_andnot_si256(overflow, in_range)));
        fast |= (lanes as u32) << (16 * i);
        // 2^(e - F) has the exponent field e - 127 - F.
        let unit = _mm256_slli_epi32::<23>(_mm256_sub_epi32(top[i], _mm256_set1_epi32(127 + F)));
        result[i] = _mm256_mul_ps(toward_zero(total), _mm256_castsi256_ps(unit));
    }
    (result, fast)
}

/// Converts to f32, rounding toward zero.
///
/// Clearing every bit of the magnitude that is set in its own top bits (`magnitude >> 24`) clears the rounding bit and
/// nothing that binary32 keeps, so the conversion to nearest is the conversion toward zero.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn toward_zero(v: __m256i) -> __m256 {
    let magnitude = _mm256_abs_epi32(v);
    let kept = _mm256_andnot_si256(_mm256_srli_epi32::<24>(magnitude), magnitude);
    _mm256_cvtepi32_ps(_mm256_sign_epi32(kept, v))
}

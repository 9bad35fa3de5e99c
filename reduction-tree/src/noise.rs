//! Counter-based noise: Philox-4x32-10 and the Gumbel variate made of it.
//!
//! The noise of a vocabulary entry is a function of (seed, absolute position, vocabulary id) and of nothing else, so a
//! neighbour in the batch, or the order in which entries are visited, cannot change it.

use crate::scalar::{LN_2, exponential, log2};

/// Philox-4x32 with ten rounds (Salmon et al., SC 2011).
///
/// A round with key (k0, k1) maps (c0, c1, c2, c3) to `(hi(M1 * c2) ^ c1 ^ k0, lo(M1 * c2), hi(M0 * c0) ^ c3 ^ k1,
/// lo(M0 * c0))`, with M0 = 0xd2511f53 and M1 = 0xcd9e8d57; between rounds k0 grows by 0x9e3779b9 and k1 by 0xbb67ae85.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        let a = u64::from(counter[0]) * 0xd251_1f53;
        let b = u64::from(counter[2]) * 0xcd9e_8d57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
    }
    counter
}

/// A standard Gumbel variate from a uniform word, in [-2.82, 22.19].
///
/// 1. `v = fma(f32(u >> 1), 2^-31, 2^-32)`, the conversion rounded to nearest even;
///    `v = v < 1 - 2^-24 ? v : 1 - 2^-24` (0x3f7fffff).
/// 2. `g = log2(exponential(v)) * -LN_2`.
///
/// 31 bits reach where they matter: large noise comes from small v, which binary32 resolves to 2^-32.
#[inline]
pub fn gumbel(u: u32) -> f32 {
    const BELOW_ONE: f32 = f32::from_bits(0x3f7f_ffff);
    let v = ((u >> 1) as f32).mul_add(f32::from_bits(0x3000_0000), f32::from_bits(0x2f80_0000));
    let v = if v < BELOW_ONE { v } else { BELOW_ONE };
    log2(exponential(v)) * -LN_2
}

/// The Gumbel noise of vocabulary entry `id` at absolute position `position`: word `id % 4` of the Philox block with
/// counter (id / 4, position, 0, 0) and key (low, high half of the seed).
pub fn gumbel_noise(seed: u64, position: u32, id: u32) -> f32 {
    let block = philox4x32_10([id / 4, position, 0, 0], [seed as u32, (seed >> 32) as u32]);
    gumbel(block[(id % 4) as usize])
}

//! Seeded random inputs for the tests.

#![allow(dead_code, reason = "every test binary uses its own part")]

use half::bf16;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A normal variate (Irwin-Hall with twelve terms: enough for test data).
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    pub fn normals(&mut self, n: usize) -> std::vec::IntoIter<f64> {
        (0..n).map(|_| self.normal()).collect::<Vec<_>>().into_iter()
    }

    /// A finite bfloat16 with any exponent.
    pub fn wide(&mut self) -> bf16 {
        loop {
            let x = bf16::from_bits(self.next() as u16);
            if x.is_finite() {
                return x;
            }
        }
    }

    /// A finite bfloat16 whose exponent is within `spread` of 1's, zero now and then.
    pub fn spread(&mut self, spread: i32) -> bf16 {
        if self.below(10) == 0 {
            return bf16::from_bits((self.next() as u16) & 0x8000);
        }
        let exponent = 127 + self.below(2 * spread as usize + 1) as i32 - spread;
        bf16::from_bits((self.next() as u16 & 0x807f) | ((exponent as u16) << 7))
    }
}

pub fn bf16s(values: impl Iterator<Item = f64>) -> Vec<bf16> {
    values.map(bf16::from_f64).collect()
}

pub fn widen(x: &bf16) -> f64 {
    x.to_f64()
}

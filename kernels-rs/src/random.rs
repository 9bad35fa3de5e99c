//! Random weights whose every value is a function of a counter, so that a GPU and a CPU make the same ones, in any order
//! and without a file.

use half::bf16;
use reduction_tree::noise::philox4x32_10;

/// Values of one Philox block.
const BLOCK: u64 = 8;
/// Fourth word of the counter, which keeps these blocks apart from those of the sampler's noise.
const DOMAIN: u32 = 1;

/// A tensor of values distributed evenly over (offset - spread, offset + spread).
///
/// Element i is half `i % 2` of word `i / 2 % 4` of the Philox-4x32-10 block whose counter is (low half of i / 8, high half,
/// tensor, 1) and whose key is the seed's low and high half. A half h gives `u = (2h + 1 - 65536) / 65536`, exact in binary32;
/// the value is offset + spread * u, two rounded operations, then rounded to bfloat16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomTensor {
    /// Equal seeds give equal models.
    pub seed: u64,
    /// Which tensor of the model.
    pub tensor: u32,
    /// Mean.
    pub offset: f32,
    /// Half of the range.
    pub spread: f32,
}

impl RandomTensor {
    /// Writes elements `first..first + out.len()`.
    pub fn fill(&self, first: u64, out: &mut [bf16]) {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let (mut block, mut words) = (u64::MAX, [0; 4]);
        for (index, value) in (first..).zip(out) {
            if index / BLOCK != block {
                block = index / BLOCK;
                words = philox4x32_10([block as u32, (block >> 32) as u32, self.tensor, DOMAIN], key);
            }
            let half = words[(index / 2 % 4) as usize] >> (16 * (index % 2)) & 0xffff;
            *value = self.value(half);
        }
    }

    fn value(&self, half: u32) -> bf16 {
        let u = (2 * half as i32 - 65535) as f32 * (1.0 / 65536.0);
        bf16::from_f32(self.offset + self.spread * u)
    }

    /// Names the values, for the digest of a model that is made of them.
    pub fn canonical_text(&self) -> String {
        let Self { seed, tensor, offset, spread } = self;
        format!(
            "philox bf16 1 seed {seed} tensor {tensor} offset {:08x} spread {:08x}\n",
            offset.to_bits(),
            spread.to_bits()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENSOR: RandomTensor = RandomTensor { seed: 0x1234_5678_9abc, tensor: 7, offset: 0.0, spread: 1.0 };

    fn values(tensor: RandomTensor, first: u64, len: usize) -> Vec<bf16> {
        let mut out = vec![bf16::ZERO; len];
        tensor.fill(first, &mut out);
        out
    }

    #[test]
    fn any_part_can_be_made_alone() {
        let all = values(TENSOR, 0, 4096);
        for (first, len) in [(1, 1), (7, 2), (8, 8), (1000, 3096), (13, 0)] {
            assert_eq!(values(TENSOR, first, len), all[first as usize..first as usize + len]);
        }
        assert_ne!(all, values(TENSOR, 8 << 32, 4096), "the counter's high word counts");
        for other in [RandomTensor { seed: TENSOR.seed ^ 1 << 40, ..TENSOR }, RandomTensor { tensor: 8, ..TENSOR }] {
            let equal = all.iter().zip(values(other, 0, 4096)).filter(|(a, b)| **a == *b).count();
            assert!(equal < 100, "{equal} of 4096 equal");
        }
    }

    #[test]
    fn values_fill_their_range_evenly() {
        let all = values(TENSOR, 0, 1 << 16);
        let (mut sum, mut squares) = (0.0, 0.0);
        for value in &all {
            let value = value.to_f64();
            assert!(value.abs() <= 1.0);
            (sum, squares) = (sum + value, squares + value * value);
        }
        let count = all.len() as f64;
        assert!((sum / count).abs() < 0.01 && (3.0 * squares / count - 1.0).abs() < 0.02, "{sum} {squares}");
        let shifted = RandomTensor { offset: 1.0, spread: 0.25, ..TENSOR };
        assert!(values(shifted, 0, 4096).iter().all(|value| (0.75..=1.25).contains(&value.to_f32())));
    }

    /// The definition may never change: digests of random models stand for their values.
    #[test]
    fn the_values_are_pinned() {
        let bits: Vec<u16> = values(TENSOR, 0, 8).iter().map(|value| value.to_bits()).collect();
        insta::assert_snapshot!(format!("{bits:04x?}"), @"[bf3b, 3eca, 3f1d, be02, 3ed2, 3f1d, 3ec6, 3f6f]");
    }
}

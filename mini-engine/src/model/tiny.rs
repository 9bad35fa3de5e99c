//! A small random model made in the process: no file, no network, the same on every machine. Its values come from a
//! counter (splitmix64 of seed, tensor and index), so any element can be made alone. Its tokens are bytes.

use half::bf16;
use reduction_tree::operator::RopePairing;

use super::config::{Config, Family, Rope, RopeScaling};
use super::error::Result;
use super::random;
use super::tensor::{Tensor, TensorSource};

/// Token of the byte-level vocabulary that starts a sequence.
pub const BOS: u32 = 256;
/// Token of the byte-level vocabulary that ends one.
pub const EOS: u32 = 257;

/// A random model of any shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiny {
    /// Its shape; the vocabulary must hold the 258 byte-level tokens to be used with text.
    pub config: Config,
    /// Two models of one shape and one seed are equal.
    pub seed: u64,
}

impl Tiny {
    /// A two-layer model of a family. The three differ in what breaks kernels: Llama has 4 query heads to a KV head and
    /// tied embeddings, Qwen2 has 7 and a bias, Qwen3 has heads wider than `hidden / q_heads` and norms them.
    pub fn new(family: Family, seed: u64) -> Self {
        let (q_heads, kv_heads, head_dim) = match family {
            Family::Llama => (4, 1, 32),
            Family::Qwen2 => (7, 1, 64),
            Family::Qwen3 => (4, 2, 64),
        };
        let scaling = match family {
            Family::Llama => RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context: 512.0,
            },
            Family::Qwen2 | Family::Qwen3 => RopeScaling::None,
        };
        let config = Config {
            family,
            layers: 2,
            hidden: 128,
            q_heads,
            kv_heads,
            head_dim,
            ffn: 192,
            vocab: 320,
            context: 4096,
            eps: 1e-5,
            rope: Rope { theta: 10_000.0, scaling, pairing: RopePairing::Half },
            qkv_bias: family == Family::Qwen2,
            qk_norm: family == Family::Qwen3,
            tied: family == Family::Llama,
            windows: vec![None; 2],
            bos: Some(BOS),
            eos: vec![EOS],
        };
        Self { config, seed }
    }

    /// Element `index` of a tensor: uniform with mean `offset` and the given spread, rounded to bfloat16.
    fn value(&self, stream: u64, index: u64, offset: f32, spread: f32) -> bf16 {
        let bits = splitmix64(splitmix64(self.seed ^ splitmix64(stream)).wrapping_add(index));
        // 24 bits, so that the conversion to f32 is exact and other languages reproduce it.
        let unit = (bits >> 40) as f32 * (1.0 / 8_388_608.0) - 1.0;
        bf16::from_f32(offset + unit * spread)
    }
}

impl TensorSource for Tiny {
    fn append(&self, tensor: Tensor, shape: &[usize], out: &mut Vec<bf16>) -> Result<()> {
        let len: usize = shape.iter().product();
        let (offset, spread) = random::scale(&self.config, tensor);
        let stream = u64::from(random::number(tensor));
        out.extend((0..len as u64).map(|index| self.value(stream, index, offset, spread)));
        Ok(())
    }
}

fn splitmix64(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tensor::LayerTensor;

    #[test]
    fn a_seed_fixes_every_value_and_another_seed_changes_them() {
        let values = |seed| {
            let tiny = Tiny::new(Family::Llama, seed);
            let mut out = Vec::new();
            tiny.append(Tensor::Layer(1, LayerTensor::Q), &[128, 128], &mut out).unwrap();
            out
        };
        assert_eq!(values(1), values(1));
        let different = values(1).iter().zip(values(2)).filter(|(a, b)| **a != *b).count();
        assert!(different > 16_000, "{different} of 16384 differ");
        let variance = values(1).iter().map(|v| v.to_f64().powi(2)).sum::<f64>() / 16_384.0;
        assert!((variance * 128.0 - 1.0).abs() < 0.05, "{variance}");
    }

    #[test]
    fn every_family_passes_its_own_checks() {
        for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
            Tiny::new(family, 0).config.check().unwrap();
        }
    }
}

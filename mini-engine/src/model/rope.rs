//! A model's rotary tables, and how its scaling stretches their frequencies. The arithmetic of the tables is
//! `reduction_tree::rope`.

use reduction_tree::rope::{Llama3Scaling, inverse_frequencies, tables};
use reduction_tree::tree::Digest;

use super::config::{Config, Rope, RopeScaling};

/// [context, head_dim / 2] cosines and sines.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTables {
    /// Cosines, row-major by position.
    pub cos: Vec<f32>,
    /// Sines, row-major by position.
    pub sin: Vec<f32>,
}

impl RopeTables {
    /// The tables of a model, for all positions below its context length.
    pub fn new(config: &Config) -> Self {
        let (cos, sin) = tables(config.context, &frequencies(&config.rope, config.head_dim));
        Self { cos, sin }
    }

    /// BLAKE3 of the bits of both.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for value in self.cos.iter().chain(&self.sin) {
            hasher.update(&value.to_bits().to_le_bytes());
        }
        Digest::of(&format!("rope tables {}", hasher.finalize()))
    }
}

/// [head_dim / 2] radians a position.
pub fn frequencies(rope: &Rope, head_dim: usize) -> Vec<f64> {
    let plain = inverse_frequencies(rope.theta, head_dim).into_iter();
    match &rope.scaling {
        RopeScaling::None => plain.collect(),
        RopeScaling::Linear { factor } => plain.map(|frequency| frequency / factor).collect(),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let (factor, original_context) = (*factor, *original_context);
            let (low_freq_factor, high_freq_factor) = (*low_freq_factor, *high_freq_factor);
            let scaling = Llama3Scaling { factor, low_freq_factor, high_freq_factor, original_context };
            plain.map(|frequency| scaling.apply(frequency)).collect()
        }
        RopeScaling::Divisors(divisors) => {
            plain.zip(divisors).map(|(frequency, divisor)| frequency / f64::from(*divisor)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use reduction_tree::operator::RopePairing;

    use super::*;

    #[test]
    fn llama3_keeps_fast_frequencies_and_divides_slow_ones() {
        let scaling =
            RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
        let rope = Rope { theta: 500_000.0, scaling, pairing: RopePairing::Half };
        let plain = frequencies(&Rope { scaling: RopeScaling::None, ..rope.clone() }, 128);
        let scaled = frequencies(&rope, 128);
        assert_eq!(scaled[0], plain[0]);
        assert_eq!(scaled[63], plain[63] / 8.0);
        assert!(plain.iter().zip(&scaled).any(|(p, s)| s < p && *s > p / 8.0), "some frequency must lie on the ramp");
    }
}

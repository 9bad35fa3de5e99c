//! Rotary tables as data: cosines and sines made once on the host, in double precision with a pure-Rust libm, then rounded
//! to binary32. The same bits on every platform, so they can be hashed into the plan.

use std::f64::consts::PI;

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
        let frequencies = frequencies(&config.rope, config.head_dim);
        let len = config.context * frequencies.len();
        let (mut cos, mut sin) = (Vec::with_capacity(len), Vec::with_capacity(len));
        for position in 0..config.context {
            for frequency in &frequencies {
                let (s, c) = libm::sincos(position as f64 * frequency);
                cos.push(c as f32);
                sin.push(s as f32);
            }
        }
        Self { cos, sin }
    }
}

/// [head_dim / 2] radians a position: `theta^(-2i / head_dim)`, stretched. The Llama 3 rule is that of its published model
/// code: by wavelength, with a linear ramp in `original_context / wavelength` between the two limits.
pub fn frequencies(rope: &Rope, head_dim: usize) -> Vec<f64> {
    let plain = (0..head_dim / 2).map(|i| libm::pow(rope.theta, -((2 * i) as f64) / head_dim as f64));
    match &rope.scaling {
        RopeScaling::None => plain.collect(),
        RopeScaling::Linear { factor } => plain.map(|frequency| frequency / factor).collect(),
        RopeScaling::Divisors(divisors) => {
            plain.zip(divisors).map(|(frequency, divisor)| frequency / f64::from(*divisor)).collect()
        }
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => plain
            .map(|frequency| {
                let turns = original_context * frequency / (2.0 * PI);
                let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            })
            .collect(),
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

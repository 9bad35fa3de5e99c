//! Rotary position embedding: tables as data, and the rotation of one head.
//!
//! Tables are made once on the host in binary64 with a pure-Rust math library, so every machine makes the same ones;
//! they are then hashed and uploaded like weights.

use crate::operator::RopePairing;

/// theta^(-2i / head_dim) for i in 0..head_dim / 2.
pub fn inverse_frequencies(theta: f64, head_dim: usize) -> Vec<f64> {
    (0..head_dim / 2).map(|i| libm::pow(theta, -((2 * i) as f64) / head_dim as f64)).collect()
}

/// The context extension of Llama 3.1 and later (`rope_type: "llama3"`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// Divides the frequencies of long wavelengths.
    pub factor: f64,
    /// Wavelengths above `original_context / low_freq_factor` are divided in full.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_context / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// Context of the unextended model, in tokens.
    pub original_context: f64,
}

impl Llama3Scaling {
    /// The scaled inverse frequency: kept, divided, or blended linearly between the two bounds.
    pub fn apply(&self, inverse_frequency: f64) -> f64 {
        let wavelength = 2.0 * std::f64::consts::PI / inverse_frequency;
        if wavelength < self.original_context / self.high_freq_factor {
            return inverse_frequency;
        }
        if wavelength > self.original_context / self.low_freq_factor {
            return inverse_frequency / self.factor;
        }
        let smooth = (self.original_context / wavelength - self.low_freq_factor)
            / (self.high_freq_factor - self.low_freq_factor);
        (1.0 - smooth) * (inverse_frequency / self.factor) + smooth * inverse_frequency
    }
}

/// Cosine and sine tables, both [positions, inverse_frequencies.len()]: the binary64 cosine and sine of
/// `position * inverse_frequency`, rounded to binary32.
///
/// The binary64 functions err by less than one unit in their last place, so the tables are correctly rounded but for
/// values within 2^-29 of a rounding boundary (not excluded, and without effect on reproducibility).
pub fn tables(positions: usize, inverse_frequencies: &[f64]) -> (Vec<f32>, Vec<f32>) {
    let angles = (0..positions).flat_map(|p| inverse_frequencies.iter().map(move |&f| p as f64 * f));
    angles.map(|angle| (libm::cos(angle) as f32, libm::sin(angle) as f32)).unzip()
}

/// The rotation of one pair: `(fma(x0, cos, -(x1 * sin)), fma(x1, cos, x0 * sin))`, the inner products rounded to
/// binary32.
#[inline]
pub fn rotate_pair(x0: f32, x1: f32, cos: f32, sin: f32) -> (f32, f32) {
    (x0.mul_add(cos, -(x1 * sin)), x1.mul_add(cos, x0 * sin))
}

impl RopePairing {
    /// The two elements that pair i of a head of `head_dim` rotates together.
    #[inline]
    pub fn pair(self, i: usize, head_dim: usize) -> (usize, usize) {
        match self {
            Self::Half => (i, i + head_dim / 2),
            Self::Interleaved => (2 * i, 2 * i + 1),
        }
    }
}

/// Rotates a head of binary32 values in place; `cos` and `sin` are the table rows of its position [head_dim / 2].
pub fn rotate(pairing: RopePairing, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let head_dim = head.len();
    for (i, (&cos, &sin)) in cos.iter().zip(sin).enumerate().take(head_dim / 2) {
        let (a, b) = pairing.pair(i, head_dim);
        (head[a], head[b]) = rotate_pair(head[a], head[b], cos, sin);
    }
}

//! The block formats of GGUF tensors and their values. A value is computed in f32 as the format defines it and rounded
//! once to bfloat16.

use half::{bf16, f16};

/// How a tensor's values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantisation {
    /// binary32.
    F32,
    /// binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// 32 signed bytes and a scale.
    Q8_0,
    /// 32 nibbles less 8 and a scale.
    Q4_0,
    /// 32 nibbles, a scale and a minimum.
    Q4_1,
    /// 256 nibbles in 8 groups with 6-bit scales and minima, under two scales.
    Q4K,
    /// 256 6-bit values less 32 in 16 groups with 8-bit scales, under one scale.
    Q6K,
}

impl Quantisation {
    /// What an error says was expected.
    pub const SUPPORTED: &'static str = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K or Q6_K";

    /// The format of a type code in the file.
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// Values of one block.
    pub fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }

    /// Appends the values of whole blocks; a trailing part of a block is ignored.
    pub fn append(self, bytes: &[u8], out: &mut Vec<bf16>) {
        for block in bytes.chunks_exact(self.block_bytes()) {
            match self {
                Self::F32 => out.push(bf16::from_f32(f32::from_le_bytes([block[0], block[1], block[2], block[3]]))),
                Self::F16 => out.push(bf16::from_f32(half_at(block, 0))),
                Self::Bf16 => out.push(bf16::from_le_bytes([block[0], block[1]])),
                Self::Q8_0 => {
                    let scale = half_at(block, 0);
                    out.extend(block[2..].iter().map(|q| bf16::from_f32(f32::from(*q as i8) * scale)));
                }
                Self::Q4_0 => {
                    let scale = half_at(block, 0);
                    out.extend(nibbles(&block[2..]).map(|q| bf16::from_f32((q - 8.0) * scale)));
                }
                Self::Q4_1 => {
                    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                    out.extend(nibbles(&block[4..]).map(|q| bf16::from_f32(q * scale + minimum)));
                }
                Self::Q4K => q4_k(block, out),
                Self::Q6K => q6_k(block, out),
            }
        }
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// All low nibbles, then all high ones.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.iter().map(|byte| f32::from(byte & 15)).chain(bytes.iter().map(|byte| f32::from(byte >> 4)))
}

/// Bytes 0..2 scale of scales, 2..4 scale of minima, 4..16 packed 6-bit scales and minima, 16..144 nibbles: each run of 32
/// bytes holds one group in its low nibbles and the next in its high ones.
fn q4_k(block: &[u8], out: &mut Vec<bf16>) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (pair, bytes) in block[16..144].chunks_exact(32).enumerate() {
        for (half, shift) in [(0, 0), (1, 4)] {
            let (group_scale, group_minimum) = q4_k_group(&block[4..16], 2 * pair + half);
            let (group_scale, group_minimum) = (scale * group_scale, minimum * group_minimum);
            out.extend(
                bytes.iter().map(|byte| bf16::from_f32(group_scale * f32::from((byte >> shift) & 15) - group_minimum)),
            );
        }
    }
}

/// Groups 0..4 keep their 6 bits in bytes g and g + 4; groups 4..8 keep the low four in byte g + 4 and the high two above
/// those of groups g - 4.
fn q4_k_group(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, minimum) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        ((low & 15) | ((packed[group - 4] >> 6) << 4), (low >> 4) | ((packed[group] >> 6) << 4))
    };
    (f32::from(scale), f32::from(minimum))
}

/// Bytes 0..128 low four bits, 128..192 high two bits, 192..208 signed group scales, 208..210 scale. Each half of 128
/// values takes 64 low bytes, 32 high bytes and 8 scales.
fn q6_k(block: &[u8], out: &mut Vec<bf16>) {
    let scale = half_at(block, 208);
    for half in 0..2 {
        let (low, high) = (&block[64 * half..64 * half + 64], &block[128 + 32 * half..160 + 32 * half]);
        let scales = &block[192 + 8 * half..200 + 8 * half];
        for quarter in 0..4 {
            for lane in 0..32 {
                let low_byte = low[lane + 32 * (quarter % 2)];
                let low_bits = if quarter < 2 { low_byte & 15 } else { low_byte >> 4 };
                let high_bits = (high[lane] >> (2 * quarter)) & 3;
                let q = i32::from(low_bits | (high_bits << 4)) - 32;
                let group_scale = scale * f32::from(scales[2 * quarter + lane / 16] as i8);
                out.push(bf16::from_f32(group_scale * q as f32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    /// Blocks and values by the `gguf` package of PyPI (tests/reference/make_reference.py).
    const REFERENCE: &[u8] = include_bytes!("../../../tests/reference/blocks.safetensors");

    #[test]
    fn every_format_gives_the_reference_values() {
        let file = SafeTensors::deserialize(REFERENCE).unwrap();
        let kinds = [
            ("F16", Quantisation::F16),
            ("BF16", Quantisation::Bf16),
            ("Q8_0", Quantisation::Q8_0),
            ("Q4_0", Quantisation::Q4_0),
            ("Q4_1", Quantisation::Q4_1),
            ("Q4_K", Quantisation::Q4K),
            ("Q6_K", Quantisation::Q6K),
        ];
        for (name, kind) in kinds {
            let expected = file.tensor(&format!("{name}.values")).unwrap();
            let expected: Vec<bf16> = expected
                .data()
                .as_chunks::<4>()
                .0
                .iter()
                .map(|value| bf16::from_f32(f32::from_le_bytes(*value)))
                .collect();
            let mut found = Vec::new();
            kind.append(file.tensor(&format!("{name}.bytes")).unwrap().data(), &mut found);
            assert_eq!(found.len(), 1024, "{name}");
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()),
                    "{name} value {index}: {found} instead of {expected}"
                );
            }
        }
    }
}

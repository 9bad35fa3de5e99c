//! Seeded bf16 data that is hard for a soft tensor core; the tests of the chains and of the backends share it.

use half::bf16;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// What a vector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Roughly normal values of one scale, as in a model.
    Model,
    /// Exponents over 40 binades.
    Wide,
    /// Any finite bit pattern.
    AnyFinite,
    /// Significands near 2 with one sign and exponent: the largest integer sums.
    Full,
    /// Values and their near negatives in turn.
    Cancelling,
    /// Subnormals and the smallest normals.
    Tiny,
    /// The largest finite values.
    Huge,
    /// Mostly zeros of both signs.
    Sparse,
    /// One exponent far above the rest.
    Spike,
    /// Any bit pattern, infinities and NaN included.
    Any,
}

impl Kind {
    pub const ALL: [Self; 10] = [
        Self::Model,
        Self::Wide,
        Self::AnyFinite,
        Self::Full,
        Self::Cancelling,
        Self::Tiny,
        Self::Huge,
        Self::Sparse,
        Self::Spike,
        Self::Any,
    ];

    /// `len` values.
    pub fn vector(self, random: &mut Random, len: usize) -> Vec<bf16> {
        (0..len).map(|i| bf16::from_bits(self.bits(random, i))).collect()
    }

    fn bits(self, random: &mut Random, i: usize) -> u16 {
        let r = random.next();
        let (sign, fraction) = ((r & 1) << 15, r >> 1 & 0x7f);
        let pick = r >> 8;
        let float = |exponent: u64| sign | (exponent << 7) | fraction;
        let bits = match self {
            Self::Model => float(127 - u64::from((pick | 1 << 12).trailing_zeros())),
            Self::Wide => float(107 + pick % 40),
            Self::AnyFinite => float(pick % 255),
            Self::Full => (127 << 7) | (0x7f - (fraction & 1)),
            Self::Cancelling => ((i as u64 & 1) << 15) | ((125 + pick % 2) << 7) | (fraction & 3),
            Self::Tiny => float(pick % 3),
            Self::Huge => float(252 + pick % 3),
            Self::Sparse if pick & 3 > 0 => sign,
            Self::Sparse => float(120 + pick % 10),
            Self::Spike if pick & 15 == 0 => float(150),
            Self::Spike => float(110 + pick % 20),
            Self::Any => r & 0xffff,
        };
        bits as u16
    }
}

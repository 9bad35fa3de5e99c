//! `tt.dot` and `tt.dot_scaled`.
//!
//! bf16 and f16: one chain of k16 steps of the arithmetic, continuing the accumulator. 8-bit floats: in `sm90` steps of 32
//! as `wgmma` does them, promoted to binary32 every `maxNumImpreciseAcc` elements; in `sm80` as f16; in `ieee` as FMAs.
//! binary32: FMAs in ascending k, on operands cut to tf32 when that is asked for (a model: the tensor core's own order is
//! not known here). Integers wrap. An f16 accumulator is widened, and rounded once at the end.

use crate::float::{Round, decode, encode};
use crate::ir::{DotPrecision, Float, Scalar, ScaledElem};
use half::{bf16, f16};
use reduction_tree::arithmetic::{Arithmetic, chain};
use reduction_tree::fp8::{FP8_STEP, Fp8, wgmma_step_fp8};

/// Extents of one matrix product, and how it rounds.
pub(super) struct Dot {
    pub(super) batch: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) arithmetic: Arithmetic,
    pub(super) precision: DotPrecision,
    pub(super) max_imprecise: u32,
}

impl Dot {
    /// `acc + a @ b`, all row-major bit patterns.
    pub(super) fn run(&self, types: [Scalar; 3], a: &[u64], b: &[u64], acc: &[u64]) -> Vec<u64> {
        let mut out = Vec::with_capacity(acc.len());
        for batch in 0..self.batch {
            let a = &a[batch * self.m * self.k..][..self.m * self.k];
            let b = &b[batch * self.k * self.n..][..self.k * self.n];
            let acc = &acc[batch * self.m * self.n..][..self.m * self.n];
            let columns: Vec<u64> = (0..self.n).flat_map(|j| (0..self.k).map(move |k| b[k * self.n + j])).collect();
            self.matrix(types, a, &columns, acc, &mut out);
        }
        out
    }

    fn matrix(&self, types: [Scalar; 3], a: &[u64], columns: &[u64], acc: &[u64], out: &mut Vec<u64>) {
        match types {
            [Scalar::Float(Float::Bf16), Scalar::Float(Float::Bf16), Scalar::Float(c)] => {
                let convert = |x: &[u64]| x.iter().map(|v| bf16::from_bits(*v as u16)).collect::<Vec<_>>();
                self.each(&convert(a), &convert(columns), acc, out, c, |acc, x, y| chain(self.arithmetic, acc, x, y));
            }
            [Scalar::Float(Float::F16), Scalar::Float(Float::F16), Scalar::Float(c)] => {
                let convert = |x: &[u64]| x.iter().map(|v| f16::from_bits(*v as u16)).collect::<Vec<_>>();
                self.each(&convert(a), &convert(columns), acc, out, c, |acc, x, y| chain(self.arithmetic, acc, x, y));
            }
            [Scalar::Float(Float::F64), Scalar::Float(Float::F64), Scalar::Float(Float::F64)] => {
                let fma = |acc: u64, (x, y): (&u64, &u64)| {
                    let sum = f64::from_bits(*x).mul_add(f64::from_bits(*y), f64::from_bits(acc));
                    encode(sum, Float::F64, Round::Nearest, false)
                };
                self.fold(a, columns, acc, out, |acc, x, y| x.iter().zip(y).fold(acc, fma));
            }
            [Scalar::Float(f), Scalar::Float(g), Scalar::Float(c)] if f.bits() <= 8 && g.bits() <= 8 => {
                self.eight_bit(f, g, a, columns, acc, out, c);
            }
            [Scalar::Float(f), Scalar::Float(g), Scalar::Float(c)] => {
                let tf32 = self.precision == DotPrecision::TF32 && f == Float::F32;
                let mask = if tf32 { !0x1fff } else { u32::MAX };
                let convert = |x: &[u64], f: Float| {
                    x.iter().map(|v| f32::from_bits((decode(*v, f) as f32).to_bits() & mask)).collect::<Vec<_>>()
                };
                self.each(&convert(a, f), &convert(columns, g), acc, out, c, fma_chain);
            }
            [x, y, z] => {
                let product = |acc: u64, (a, b): (&u64, &u64)| {
                    let (a, b) = (super::lane::signed(*a, x.bits()), super::lane::signed(*b, y.bits()));
                    acc.wrapping_add(a.wrapping_mul(b) as u64)
                };
                self.fold(a, columns, acc, out, |acc, a, b| {
                    super::lane::cut(a.iter().zip(b).fold(acc, product), z.bits())
                });
            }
        }
    }

    /// Every output from its row of `a` and column of `b`, accumulating in binary32.
    fn each<T>(
        &self,
        a: &[T],
        columns: &[T],
        acc: &[u64],
        out: &mut Vec<u64>,
        c: Float,
        step: impl Fn(f32, &[T], &[T]) -> f32,
    ) {
        self.fold(a, columns, acc, out, |acc, x, y| {
            let sum = step(decode(acc, c) as f32, x, y);
            encode(f64::from(sum), c, Round::Nearest, false)
        });
    }

    fn fold<T>(&self, a: &[T], columns: &[T], acc: &[u64], out: &mut Vec<u64>, f: impl Fn(u64, &[T], &[T]) -> u64) {
        for i in 0..self.m {
            for j in 0..self.n {
                let (x, y) = (&a[i * self.k..][..self.k], &columns[j * self.k..][..self.k]);
                out.push(f(acc[i * self.n + j], x, y));
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "two formats, two matrices, an accumulator and its format")]
    fn eight_bit(&self, f: Float, g: Float, a: &[u64], columns: &[u64], acc: &[u64], out: &mut Vec<u64>, c: Float) {
        let kind = |f| match f {
            Float::F8E4M3FN => Some(Fp8::E4m3),
            Float::F8E5M2 => Some(Fp8::E5m2),
            _ => None,
        };
        match (self.arithmetic, kind(f), kind(g)) {
            (Arithmetic::Sm90, Some(x), Some(y)) => {
                let bytes = |x: &[u64]| x.iter().map(|v| *v as u8).collect::<Vec<_>>();
                self.each(&bytes(a), &bytes(columns), acc, out, c, |acc, p, q| self.wgmma(x, y, acc, p, q));
            }
            (Arithmetic::Ieee, ..) => {
                let convert = |x: &[u64], f| x.iter().map(|v| decode(*v, f) as f32).collect::<Vec<_>>();
                self.each(&convert(a, f), &convert(columns, g), acc, out, c, fma_chain);
            }
            _ => {
                let convert = |x: &[u64], f| x.iter().map(|v| f16::from_f64(decode(*v, f))).collect::<Vec<_>>();
                let step = |acc, x: &[f16], y: &[f16]| chain(self.arithmetic, acc, x, y);
                self.each(&convert(a, f), &convert(columns, g), acc, out, c, step);
            }
        }
    }

    fn wgmma(&self, x: Fp8, y: Fp8, mut acc: f32, a: &[u8], b: &[u8]) -> f32 {
        let steps = |start: f32, a: &[u8], b: &[u8]| {
            a.chunks(FP8_STEP).zip(b.chunks(FP8_STEP)).fold(start, |sum, (p, q)| {
                let pad = |v: &[u8]| std::array::from_fn(|i| v.get(i).copied().unwrap_or(0));
                wgmma_step_fp8(x, y, sum, &pad(p), &pad(q))
            })
        };
        let every = self.max_imprecise as usize;
        if every == 0 || every >= a.len() {
            return steps(acc, a, b);
        }
        for (p, q) in a.chunks(every).zip(b.chunks(every)) {
            acc += steps(0.0, p, q);
        }
        acc
    }
}

fn fma_chain(acc: f32, x: &[f32], y: &[f32]) -> f32 {
    x.iter().zip(y).fold(acc, |acc, (x, y)| x.mul_add(*y, acc))
}

/// One operand of `tt.dot_scaled`, unpacked to binary32: `rows` x `k`, each group of elements times 2^(scale - 127). The model
/// is exact scaling and FMAs in ascending k. `None` for a format or layout that is not modelled.
pub(super) fn unpack_scaled(
    bits: &[u64],
    format: ScaledElem,
    rows: usize,
    k: usize,
    scale: Option<&[u64]>,
) -> Option<Vec<f32>> {
    let float = match format {
        ScaledElem::E4M3 => Float::F8E4M3FN,
        ScaledElem::E5M2 => Float::F8E5M2,
        ScaledElem::E2M1 => Float::F4E2M1FN,
        ScaledElem::Bf16 => Float::Bf16,
        ScaledElem::Fp16 => Float::F16,
        ScaledElem::E2M3 | ScaledElem::E3M2 => return None,
    };
    // Two e2m1 numbers lie in one byte, the earlier one in the low half.
    let unpacked: Vec<u64> = match format {
        ScaledElem::E2M1 => bits.iter().flat_map(|b| [b & 0xf, b >> 4 & 0xf]).collect(),
        _ => bits.to_vec(),
    };
    let groups = match scale {
        Some(scale) if rows > 0 && scale.len().is_multiple_of(rows) && !scale.is_empty() => scale.len() / rows,
        Some(_) => return None,
        None => 1,
    };
    if unpacked.len() != rows * k || !k.is_multiple_of(groups) {
        return None;
    }
    let factor = |row: usize, column: usize| match scale.map(|s| s[row * groups + column / (k / groups)]) {
        None => 1.0,
        Some(0xff) => f64::NAN,
        Some(e) => 2f64.powi(e as i32 - 127),
    };
    let value = |i: usize| (decode(unpacked[i], float) * factor(i / k, i % k)) as f32;
    Some((0..unpacked.len()).map(value).collect())
}

/// `acc + a @ b` of unpacked operands, `b` by columns.
pub(super) fn scaled(m: usize, n: usize, k: usize, a: &[f32], columns: &[f32], acc: &[u64], c: Float) -> Vec<u64> {
    let at = |i: usize, j: usize| {
        let sum = fma_chain(decode(acc[i * n + j], c) as f32, &a[i * k..][..k], &columns[j * k..][..k]);
        encode(f64::from(sum), c, Round::Nearest, false)
    };
    (0..m * n).map(|e| at(e / n, e % n)).collect()
}

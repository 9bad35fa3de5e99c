//! The outputs recorded on an H200 (`tests/vectors/README.md`), against the soft tensor core, bit for bit.

use std::path::Path;

use half::{bf16, f16};
use reduction_tree::arithmetic::{Arithmetic, mma_step, mma_step_f16};
use reduction_tree::fp8::{Fp8, wgmma_step_fp8};

struct Record<'a> {
    a: &'a [u8],
    b: &'a [u8],
    c: f32,
    d: u32,
}

/// Runs `model` on every record of a file and fails with the first difference.
fn compare(file: &str, input_bytes: usize, model: impl Fn(&Record) -> f32) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
    let data = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let size = 2 * input_bytes + 8;
    let count = if file.contains("hard") { 1200 } else { 4096 };
    assert_eq!(data.len(), count * size, "{file}: expected {count} records of {size} bytes");
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut different = Vec::new();
    for (i, bytes) in data.chunks_exact(size).enumerate() {
        let (a, rest) = bytes.split_at(input_bytes);
        let (b, rest) = rest.split_at(input_bytes);
        let record = Record { a, b, c: f32::from_bits(word(&rest[..4])), d: word(&rest[4..]) };
        let got = model(&record).to_bits();
        if got != record.d {
            different.push((i, got, record.d));
        }
    }
    if let Some((i, got, expected)) = different.first() {
        panic!("{file}: {} of {count} differ; record {i}: expected {expected:#010x}, got {got:#010x}", different.len());
    }
}

fn words(bytes: &[u8]) -> [u16; 16] {
    std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

fn bf16_step(arithmetic: Arithmetic, r: &Record) -> f32 {
    mma_step(arithmetic, r.c, &words(r.a).map(bf16::from_bits), &words(r.b).map(bf16::from_bits))
}

fn f16_step(arithmetic: Arithmetic, r: &Record) -> f32 {
    mma_step_f16(arithmetic, r.c, &words(r.a).map(f16::from_bits), &words(r.b).map(f16::from_bits))
}

fn promoted_e4m3(r: &Record) -> f32 {
    r.c + wgmma_step_fp8(Fp8::E4m3, Fp8::E4m3, 0.0, r.a.try_into().unwrap(), r.b.try_into().unwrap())
}

#[test]
fn bf16_mma_sync() {
    compare("sm90_bf16_mma.bin", 32, |r| bf16_step(Arithmetic::Sm90, r));
}

#[test]
fn bf16_wgmma() {
    compare("sm90_bf16_wgmma.bin", 32, |r| bf16_step(Arithmetic::Sm90, r));
}

#[test]
fn f16_mma_sync() {
    compare("sm90_f16_mma.bin", 32, |r| f16_step(Arithmetic::Sm90, r));
}

#[test]
fn f16_wgmma() {
    compare("sm90_f16_wgmma.bin", 32, |r| f16_step(Arithmetic::Sm90, r));
}

#[test]
fn e4m3_wgmma_promoted() {
    compare("sm90_e4m3_wgmma.bin", 32, promoted_e4m3);
}

/// NaN, infinities, signed zeros, subnormals, overflow, accumulators of every size.
#[test]
fn hard_bf16() {
    compare("sm90_hard_bf16_mma.bin", 32, |r| bf16_step(Arithmetic::Sm90, r));
    compare("sm90_hard_bf16_wgmma.bin", 32, |r| bf16_step(Arithmetic::Sm90, r));
}

#[test]
fn hard_f16() {
    compare("sm90_hard_f16_mma.bin", 32, |r| f16_step(Arithmetic::Sm90, r));
    compare("sm90_hard_f16_wgmma.bin", 32, |r| f16_step(Arithmetic::Sm90, r));
}

#[test]
fn hard_fp8() {
    let step = |a, b, r: &Record| wgmma_step_fp8(a, b, r.c, r.a.try_into().unwrap(), r.b.try_into().unwrap());
    compare("sm90_hard_e4m3_wgmma.bin", 32, |r| step(Fp8::E4m3, Fp8::E4m3, r));
    compare("sm90_hard_e5m2_wgmma.bin", 32, |r| step(Fp8::E5m2, Fp8::E5m2, r));
    compare("sm90_hard_e4m3_e5m2_wgmma.bin", 32, |r| step(Fp8::E4m3, Fp8::E5m2, r));
}

/// The live negative control: another arithmetic must be caught by the same comparison.
#[test]
#[should_panic(expected = "differ")]
fn sm80_is_caught() {
    compare("sm90_bf16_mma.bin", 32, |r| bf16_step(Arithmetic::Sm80, r));
}

#[test]
#[should_panic(expected = "differ")]
fn ieee_is_caught() {
    compare("sm90_f16_wgmma.bin", 32, |r| f16_step(Arithmetic::Ieee, r));
}

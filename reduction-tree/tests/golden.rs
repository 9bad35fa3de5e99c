//! The definition, pinned: digests of the bits of every function and operator on seeded inputs. A change here is a
//! change of what every backend and every receipt means; no refactoring and no other machine may cause one.

mod common;

use std::fmt::Write;

use common::{Random, bf16s};
use half::bf16;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::evaluate::sample::sample;
use reduction_tree::evaluate::*;
use reduction_tree::noise::gumbel_noise;
use reduction_tree::operator::*;
use reduction_tree::rope;
use reduction_tree::scalar;

/// The first 16 hexadecimal digits of BLAKE3 over 32-bit words.
fn words(words: impl IntoIterator<Item = u32>) -> String {
    let mut hasher = blake3::Hasher::new();
    for word in words {
        hasher.update(&word.to_le_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

fn f32s<'a>(values: impl IntoIterator<Item = &'a f32>) -> String {
    words(values.into_iter().map(|x| x.to_bits()))
}

fn halves<'a>(values: impl IntoIterator<Item = &'a bf16>) -> String {
    words(values.into_iter().map(|x| u32::from(x.to_bits())))
}

fn functions(out: &mut String) {
    // Every 4099th bit pattern, of both signs.
    let grid = || (0..=u32::MAX).step_by(4099).map(f32::from_bits);
    let mut pin = |name: &str, f: &dyn Fn(f32) -> f32| {
        let _ = writeln!(out, "{name} {}", words(grid().map(|x| f(x).to_bits())));
    };
    pin("exp2", &scalar::exp2);
    pin("log2", &scalar::log2);
    pin("ln", &scalar::ln);
    pin("silu", &scalar::silu);
    pin("sigmoid", &scalar::sigmoid);
    pin("rsqrt", &scalar::rsqrt);
    pin("to_bf16", &|x| f32::from_bits(u32::from(scalar::to_bf16(x).to_bits())));
    let _ = writeln!(out, "gumbel {}", words((0..10_000).map(|id| gumbel_noise(42, 17, id).to_bits())));
    let scaling =
        rope::Llama3Scaling { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    let frequencies: Vec<f64> =
        rope::inverse_frequencies(500_000.0, 128).into_iter().map(|f| scaling.apply(f)).collect();
    let (cos, sin) = rope::tables(2048, &frequencies);
    let _ = writeln!(out, "rope {}", f32s(cos.iter().chain(&sin)));
}

fn operators(out: &mut String) {
    let mut random = Random::new(2026);
    for arithmetic in Arithmetic::ALL {
        let tree = LinearTree { n: 16, k: 1000, k_split: 2, epilogue: Epilogue::SiluMul, store: Store::Bf16 };
        let (x, w) = (bf16s(random.normals(1000)), bf16s(random.normals(16 * 1000).map(|x| x / 16.0)));
        let _ =
            writeln!(out, "linear {} {}", arithmetic.name(), halves(&linear_bf16(arithmetic, &tree, &x, &w, &[], &[])));
        for window in [None, Some(700)] {
            let tree = AttentionTree::of(64, window);
            let (keys, values) = (bf16s(random.normals(1100 * 64)), bf16s(random.normals(1100 * 64)));
            let q = bf16s(random.normals(64));
            let bits = halves(&attention(arithmetic, &tree, &q, 1099, &keys, &values));
            let _ = writeln!(out, "attention {} {window:?} {bits}", arithmetic.name());
        }
    }
    let (x, weight) = (bf16s(random.normals(2060)), bf16s(random.normals(2060)));
    let _ = writeln!(out, "rmsnorm {}", halves(&rmsnorm(&RmsNormTree { d: 2060, eps: 1e-5 }, &x, &weight)));
    let logits: Vec<f32> = random.normals(40_000).map(|x| 3.0 * x as f32).collect();
    let _ = writeln!(out, "log-sum-exp {:08x}", log_sum_exp(&LogSumExpTree { n: 40_000 }, &logits).value().to_bits());
    let token = |position| {
        let params = SampleParams { temperature: 0.9, top_k: Some(200), top_p: 0.95, min_p: 0.01, seed: 5, position };
        let sampled = sample(&params, &logits);
        [sampled.token, sampled.logprob.to_bits()]
    };
    let _ = writeln!(out, "sample {}", words((0..100).flat_map(token)));
    let row = bf16s(random.normals(6 * 64));
    let norm = bf16s(random.normals(64));
    let (cos, sin) = rope::tables(100, &rope::inverse_frequencies(10_000.0, 64));
    for pairing in [RopePairing::Half, RopePairing::Interleaved] {
        let qk_norm = Some((&norm[..], &norm[..], RmsNormTree { d: 64, eps: 1e-6 }));
        let params = Qkv { q_heads: 4, kv_heads: 1, head_dim: 64, qk_norm, pairing };
        let row = qkv(&params, &row, &cos[99 * 32..], &sin[99 * 32..]);
        let _ = writeln!(out, "qkv {pairing:?} {}", halves(row.q.iter().chain(&row.k).chain(&row.v)));
    }
}

#[test]
fn the_bits_are_what_they_were() {
    let mut out = String::new();
    functions(&mut out);
    operators(&mut out);
    insta::assert_snapshot!(out);
}

//! The operator evaluators: right within rounding of a binary64 reference, and right at the edges.

mod common;

use common::{Random, bf16s, widen};
use half::bf16;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::evaluate::sample::sample;
use reduction_tree::evaluate::*;
use reduction_tree::noise::gumbel_noise;
use reduction_tree::operator::*;
use reduction_tree::rope;

const NAN_BF16: u16 = 0x7fff;

fn close(got: f32, expected: f64, tolerance: f64, what: &str) {
    let error = (f64::from(got) - expected).abs();
    assert!(error <= tolerance, "{what}: expected {expected}, got {got}, error {error:e}");
}

#[test]
fn linear_is_right_with_every_epilogue() {
    let mut random = Random::new(1);
    let (n, k) = (6, 200);
    for arithmetic in Arithmetic::ALL {
        for epilogue in [Epilogue::None, Epilogue::Bias, Epilogue::Residual, Epilogue::SiluMul] {
            for k_split in [1, 2, 3, 7] {
                let tree = LinearTree { n, k, k_split, epilogue, store: Store::F32 };
                let (x, w) = (bf16s(random.normals(k)), bf16s(random.normals(n * k)));
                let (bias, residual) = (bf16s(random.normals(n)), bf16s(random.normals(n)));
                let got = linear(arithmetic, &tree, &x, &w, &bias, &residual);
                let sum = |i: usize| -> f64 { x.iter().zip(&w[i * k..]).map(|(x, w)| widen(x) * widen(w)).sum() };
                assert_eq!(got.len(), tree.outputs());
                for (i, &got) in got.iter().enumerate() {
                    let expected = match epilogue {
                        Epilogue::None => sum(i),
                        Epilogue::Bias => sum(i) + widen(&bias[i]),
                        Epilogue::Residual => sum(i) + widen(&residual[i]),
                        Epilogue::SiluMul => sum(i) / (1.0 + (-sum(i)).exp()) * sum(i + n / 2),
                    };
                    close(got, expected, 2e-3, &format!("{arithmetic:?} {epilogue:?} output {i}"));
                }
            }
        }
    }
}

#[test]
fn chunks_tile_k_on_step_boundaries() {
    for k in 1..400 {
        for k_split in 1..9 {
            let tree = LinearTree { n: 1, k, k_split, epilogue: Epilogue::None, store: Store::F32 };
            let chunks: Vec<_> = tree.chunks().collect();
            assert!(!chunks.is_empty() && chunks.len() <= k_split);
            assert_eq!((chunks[0].start, chunks[chunks.len() - 1].end), (0, k));
            assert!(chunks.windows(2).all(|w| w[0].end == w[1].start));
            assert!(chunks.iter().all(|c| c.start % 64 == 0 && !c.is_empty()));
        }
    }
}

/// The reference softmax attention in binary64.
fn attention_f64(tree: &AttentionTree, q: &[bf16], position: usize, keys: &[bf16], values: &[bf16]) -> Vec<f64> {
    let d = tree.head_dim;
    let scores: Vec<(usize, f64)> = tree
        .seen(position)
        .map(|j| (j, (0..d).map(|i| widen(&q[i]) * widen(&keys[j * d + i])).sum::<f64>() * f64::from(tree.scale_log2)))
        .collect();
    let max = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(s.1));
    let sum: f64 = scores.iter().map(|(_, s)| (s - max).exp2()).sum();
    (0..d).map(|i| scores.iter().map(|&(j, s)| (s - max).exp2() / sum * widen(&values[j * d + i])).sum()).collect()
}

fn small_attention(window: Option<usize>) -> AttentionTree {
    AttentionTree { head_dim: 32, kv_split: 64, kv_tile: 32, scale_log2: 0.255, window }
}

#[test]
fn attention_is_right_around_tile_and_split_boundaries() {
    let mut random = Random::new(2);
    let positions = 150;
    let (keys, values) = (bf16s(random.normals(positions * 32)), bf16s(random.normals(positions * 32)));
    for arithmetic in Arithmetic::ALL {
        for window in [None, Some(1), Some(40), Some(64)] {
            let tree = small_attention(window);
            for position in [0, 1, 15, 30, 31, 32, 33, 62, 63, 64, 65, 95, 96, 127, 128, 149] {
                let q = bf16s(random.normals(32).map(|x| 3.0 * x));
                let got = attention(arithmetic, &tree, &q, position, &keys, &values);
                let expected = attention_f64(&tree, &q, position, &keys, &values);
                for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                    close(
                        got.to_f32(),
                        expected,
                        2e-2,
                        &format!("{arithmetic:?} {window:?} position {position} [{i}]"),
                    );
                }
            }
        }
    }
}

/// What a row does not see cannot reach it: not by a NaN, and not by the sign of a zero.
#[test]
fn unseen_cells_do_not_matter() {
    let mut random = Random::new(3);
    let d = 32;
    let mut keys = bf16s(random.normals(128 * d));
    let mut values = bf16s(random.normals(128 * d));
    // Tiny values make the accumulator underflow to -0 where a rule about it could show.
    for v in &mut values[..64 * d] {
        *v = bf16::from_bits(0x8001);
    }
    for arithmetic in Arithmetic::ALL {
        for window in [None, Some(20)] {
            let tree = small_attention(window);
            let q = bf16s(random.normals(d).map(|x| 8.0 * x));
            let before = attention(arithmetic, &tree, &q, 70, &keys, &values);
            let (saved_keys, saved_values) = (keys.clone(), values.clone());
            let seen = tree.seen(70);
            for j in (0..128).filter(|j| !seen.contains(j)) {
                keys[j * d..(j + 1) * d].fill(bf16::NAN);
                values[j * d..(j + 1) * d].fill(if j % 2 == 0 { bf16::NEG_INFINITY } else { bf16::MIN });
            }
            assert_eq!(before, attention(arithmetic, &tree, &q, 70, &keys, &values), "{arithmetic:?} {window:?}");
            (keys, values) = (saved_keys, saved_values);
        }
    }
}

#[test]
fn attention_with_a_bad_query_is_nan_in_its_own_row() {
    let mut random = Random::new(4);
    let (keys, values) = (bf16s(random.normals(70 * 32)), bf16s(random.normals(70 * 32)));
    for bad in [bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY] {
        for arithmetic in Arithmetic::ALL {
            let mut q = bf16s(random.normals(32));
            q[3] = bad;
            let out = attention(arithmetic, &small_attention(None), &q, 69, &keys, &values);
            assert!(out.iter().all(|x| x.to_bits() == NAN_BF16), "{bad} {arithmetic:?} {out:?}");
        }
    }
}

/// Another tile or split is another tree: the comparison has teeth.
#[test]
fn kv_tile_and_kv_split_change_bits() {
    let mut random = Random::new(5);
    let (keys, values) = (bf16s(random.normals(256 * 32)), bf16s(random.normals(256 * 32)));
    let tree = small_attention(None);
    let variants = [AttentionTree { kv_tile: 64, ..tree }, AttentionTree { kv_split: 128, ..tree }];
    for variant in variants {
        let different = (0..20).any(|_| {
            let q = bf16s(random.normals(32).map(|x| 4.0 * x));
            let of = |tree| attention(Arithmetic::Sm90, tree, &q, 255, &keys, &values);
            of(&tree) != of(&variant)
        });
        assert!(different, "{variant:?}");
    }
}

#[test]
fn rmsnorm_is_right() {
    let mut random = Random::new(6);
    for d in [16, 128, 576, 2048, 2049, 5120] {
        let tree = RmsNormTree { d, eps: 1e-5 };
        let (x, weight) = (bf16s(random.normals(d)), bf16s(random.normals(d)));
        let got = rmsnorm(&tree, &x, &weight);
        let mean = x.iter().map(|x| widen(x).powi(2)).sum::<f64>() / d as f64;
        for i in 0..d {
            let expected = widen(&x[i]) / (mean + 1e-5).sqrt() * widen(&weight[i]);
            close(got[i].to_f32(), expected, expected.abs() / 255.0, &format!("d {d} [{i}]"));
        }
    }
    let nan = rmsnorm(&RmsNormTree { d: 16, eps: 1e-5 }, &[bf16::NAN; 16], &[bf16::ONE; 16]);
    assert!(nan.iter().all(|x| x.to_bits() == NAN_BF16));
}

#[test]
fn log_sum_exp_is_right() {
    let mut random = Random::new(7);
    for n in [1, 5, 1024, 16384, 16385, 50_000] {
        let x: Vec<f32> = random.normals(n).map(|x| 5.0 * x as f32).collect();
        let lse = log_sum_exp(&LogSumExpTree { n }, &x);
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = x.iter().map(|&x| f64::from(x - max).exp()).sum();
        close(lse.value(), f64::from(max) + sum.ln(), 1e-5, &format!("n {n}"));
        close(lse.logprob(max), -sum.ln(), 1e-5, &format!("logprob, n {n}"));
    }
    let lse = log_sum_exp(&LogSumExpTree { n: 3 }, &[f32::NAN, 1.0, f32::NEG_INFINITY]);
    assert_eq!((lse.max, lse.sum), (1.0, 1.0));
    let nothing = log_sum_exp(&LogSumExpTree { n: 1 }, &[f32::NAN]);
    assert_eq!(nothing.value(), f32::NEG_INFINITY);
    assert!(nothing.logprob(f32::NAN).is_nan());
}

#[test]
fn argmax_takes_the_lowest_index_and_never_a_nan() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
    assert_eq!(argmax(&[f32::NAN, -1.0, f32::NAN, -1.0]), 1);
    assert_eq!(argmax(&[-0.0, 0.0]), 0);
    assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY]), 0);
    assert_eq!(argmax(&[0.0, f32::INFINITY]), 1);
}

#[test]
fn qkv_rotates_norms_and_keeps_cells_finite() {
    let mut random = Random::new(8);
    let d = 16;
    let (cos, sin) = rope::tables(9, &rope::inverse_frequencies(10_000.0, d));
    let (cos, sin) = (&cos[8 * d / 2..], &sin[8 * d / 2..]);
    for pairing in [RopePairing::Half, RopePairing::Interleaved] {
        let norm = bf16s(random.normals(d));
        for qk_norm in [None, Some((&norm[..], &norm[..], RmsNormTree { d, eps: 1e-6 }))] {
            let params = Qkv { q_heads: 2, kv_heads: 1, head_dim: d, qk_norm, pairing };
            let mut row = bf16s(random.normals(4 * d));
            let out = qkv(&params, &row, cos, sin);
            assert!(!out.fault && out.v == row[3 * d..]);
            let length = |x: &[bf16]| x.iter().map(|x| widen(x).powi(2)).sum::<f64>().sqrt();
            let head = &row[d..2 * d];
            let expected: Vec<f64> = match qk_norm {
                None => head.iter().map(widen).collect(),
                Some(_) => head.iter().zip(&norm).map(|(x, w)| widen(x) / length(head) * 4.0 * widen(w)).collect(),
            };
            for i in 0..d / 2 {
                let (a, b) = pairing.pair(i, d);
                let angle = 8.0 * 10_000f64.powf(-2.0 * i as f64 / d as f64);
                let (x, y) = (expected[a], expected[b]);
                close(out.q[d + a].to_f32(), x * angle.cos() - y * angle.sin(), 3e-2, "first of a pair");
                close(out.q[d + b].to_f32(), y * angle.cos() + x * angle.sin(), 3e-2, "second of a pair");
            }
            row[2 * d + 1] = bf16::INFINITY;
            row[3 * d + 2] = bf16::NAN;
            let out = qkv(&params, &row, cos, sin);
            assert!(out.fault && out.k.iter().chain(&out.v).all(|x| x.is_finite()));
            assert_eq!(out.v[2].to_bits(), 0);
        }
    }
}

#[test]
fn llama3_scaling_keeps_blends_and_divides() {
    let scaling =
        rope::Llama3Scaling { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    assert_eq!(scaling.apply(1.0), 1.0);
    assert_eq!(scaling.apply(1e-5), 1e-5 / 8.0);
    let middle = 2.0 * std::f64::consts::PI / 4000.0;
    assert!(scaling.apply(middle) < middle && scaling.apply(middle) > middle / 8.0);
}

fn params() -> SampleParams {
    SampleParams { temperature: 0.8, top_k: None, top_p: 1.0, min_p: 0.0, seed: 11, position: 5 }
}

#[test]
fn sampling_follows_the_distribution() {
    let logits = [2.0f32, 1.0, 0.0, -1.0];
    let weights: Vec<f64> = logits.iter().map(|&x| (f64::from(x) / 0.8).exp()).collect();
    let total: f64 = weights.iter().sum();
    let n = 20_000;
    let mut counts = [0u32; 4];
    for position in 0..n {
        counts[sample(&SampleParams { position, ..params() }, &logits).token as usize] += 1;
    }
    for (count, weight) in counts.iter().zip(weights) {
        let (got, expected) = (f64::from(*count) / f64::from(n), weight / total);
        assert!((got - expected).abs() < 0.012, "expected {expected}, got {got}");
    }
}

/// The set of tokens that some position chooses.
fn support(params: SampleParams, logits: &[f32]) -> Vec<u32> {
    let mut tokens: Vec<u32> =
        (0..3000).map(|position| sample(&SampleParams { position, ..params }, logits).token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

#[test]
fn filters_keep_what_they_say() {
    // Probabilities 0.4, 0.2, 0.2, 0.1, 0.1 at temperature 1.
    let logits: Vec<f32> = [0.4f32, 0.2, 0.2, 0.1, 0.1].map(f32::ln).into();
    let base = SampleParams { temperature: 1.0, ..params() };
    assert_eq!(support(base, &logits), [0, 1, 2, 3, 4]);
    assert_eq!(support(SampleParams { top_k: Some(1), ..base }, &logits), [0]);
    // The second largest is tied: both stay.
    assert_eq!(support(SampleParams { top_k: Some(2), ..base }, &logits), [0, 1, 2]);
    assert_eq!(support(SampleParams { top_k: Some(5), ..base }, &logits), [0, 1, 2, 3, 4]);
    assert_eq!(support(SampleParams { top_p: 0.3, ..base }, &logits), [0]);
    assert_eq!(support(SampleParams { top_p: 0.5, ..base }, &logits), [0, 1, 2]);
    assert_eq!(support(SampleParams { top_p: 0.85, ..base }, &logits), [0, 1, 2, 3, 4]);
    assert_eq!(support(SampleParams { top_p: 0.0, ..base }, &logits), [0]);
    assert_eq!(support(SampleParams { top_p: -1.0, ..base }, &logits), [0]);
    assert_eq!(support(SampleParams { min_p: 0.3, ..base }, &logits), [0, 1, 2]);
    // top-p is of what top-k has left: 0.4 of 0.8 reaches 0.45.
    assert_eq!(support(SampleParams { top_k: Some(2), top_p: 0.45, ..base }, &logits), [0]);
    assert_eq!(support(SampleParams { min_p: 2.0, ..base }, &logits), [0]);
}

#[test]
fn greedy_and_its_relatives_take_the_argmax() {
    let logits = [1.0, 5.0, f32::NAN, 5.0];
    for temperature in [0.0, -1.0, f32::NAN, 1e-40] {
        assert_eq!(sample(&SampleParams { temperature, ..params() }, &logits).token, 1);
    }
    assert_eq!(sample(&params(), &[f32::NAN, f32::INFINITY]).token, 1);
    assert_eq!(sample(&params(), &[f32::NAN, f32::NAN]).token, 0);
    assert!(support(params(), &logits).iter().all(|&t| t != 2));
}

/// The noise is a function of (seed, position, id): the winner can be found from it alone.
#[test]
fn equal_logits_are_decided_by_the_noise() {
    for position in 0..50 {
        let token = sample(&SampleParams { position, ..params() }, &[1.5; 9]).token;
        let noise: Vec<f32> = (0..9).map(|id| gumbel_noise(11, position, id)).collect();
        assert_eq!(token as usize, argmax(&noise));
    }
}

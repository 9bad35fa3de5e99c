//! The numbers are right, not only equal. Reference numbers come from PyPI `transformers` (tests/reference/*.py) and, for
//! any prompt, from a double-precision forward pass that shares nothing with the engine but the reader of files.
//!
//! The double-precision pass must meet the reference within 1e-4 of the logits' root mean square: that leaves no room for a
//! wrong epsilon, base, scaling, pairing or layout.

mod float64;

use std::path::{Path, PathBuf};

use mini_engine::model::config::RopeScaling;
use mini_engine::model::{Checkpoint, Source};
use safetensors::SafeTensors;

fn reference_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference")
}

fn open(path: &Path) -> Checkpoint {
    Source::Path(path.to_owned()).open().unwrap_or_else(|error| panic!("{error}"))
}

/// Tokens and [tokens, vocab] logits that `transformers` computed.
fn expected(folder: &str, vocab: usize) -> (Vec<u32>, Vec<Vec<f64>>) {
    let bytes = std::fs::read(reference_folder().join(folder).join("reference.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> { file.tensor(name).unwrap().data().as_chunks::<4>().0.to_vec() };
    let tokens = words("tokens").into_iter().map(u32::from_le_bytes).collect();
    let logits: Vec<f64> = words("logits").into_iter().map(|value| f64::from(f32::from_le_bytes(value))).collect();
    (tokens, logits.chunks_exact(vocab).map(<[f64]>::to_vec).collect())
}

/// Largest difference in units of the expected row's root mean square.
fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let rms = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / rms
}

fn largest_distance(found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| distance(a, b)).fold(0.0, f64::max)
}

#[test]
fn double_precision_meets_transformers_on_every_family_and_format() {
    for path in ["llama", "qwen2", "qwen3", "llama/model.gguf"] {
        let checkpoint = open(&reference_folder().join(path));
        let folder = path.split('/').next().unwrap();
        let (tokens, expected) = expected(folder, checkpoint.config.vocab);
        let distance = largest_distance(&float64::logits(&checkpoint, &tokens), &expected);
        assert!(distance < 1e-4, "{path}: {distance}");
    }
}

#[test]
fn a_wrong_shape_detail_is_seen() {
    type Spoil = fn(&mut Checkpoint);
    let spoils: [(&str, &str, Spoil); 5] = [
        ("llama", "rope scaling", |checkpoint| checkpoint.config.rope.scaling = RopeScaling::None),
        ("llama", "epsilon", |checkpoint| checkpoint.config.eps = 1e-2),
        ("llama/model.gguf", "pairing", |checkpoint| {
            checkpoint.config.rope.pairing = reduction_tree::operator::RopePairing::Half
        }),
        ("qwen2", "window", |checkpoint| checkpoint.config.windows = vec![None; 2]),
        ("qwen3", "base", |checkpoint| checkpoint.config.rope.theta = 20_000.0),
    ];
    for (path, detail, spoil) in spoils {
        let mut checkpoint = open(&reference_folder().join(path));
        spoil(&mut checkpoint);
        let (tokens, expected) = expected(path.split('/').next().unwrap(), checkpoint.config.vocab);
        let distance = largest_distance(&float64::logits(&checkpoint, &tokens), &expected);
        assert!(distance > 1e-3, "{path} with a wrong {detail} is only {distance} off");
    }
}

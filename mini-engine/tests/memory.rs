//! Loading a model takes at most 1.3 times its bfloat16 weights: the peak of resident memory of a process that does nothing
//! else, pages of mapped files included.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use kernels_rs::cpu::Cpu;
use mini_engine::model::{Family, LoadOptions, Model, Source, TensorSource, Tiny, huggingface};
use reduction_tree::arithmetic::Arithmetic;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

/// Tells the process of its own which folder to load.
const FOLDER_VARIABLE: &str = "MINI_ENGINE_MEMORY_TEST_FOLDER";

/// Writes a model of tens of megabytes as a Hugging Face folder, with the tokenizer of the reference models.
fn write_folder(folder: &Path) -> usize {
    let mut tiny = Tiny::new(Family::Llama, 1);
    tiny.config.layers = 6;
    tiny.config.hidden = 512;
    tiny.config.ffn = 2048;
    tiny.config.vocab = 8192;
    tiny.config.windows = vec![None; 6];
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/llama");
    std::fs::copy(reference.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 32, "intermediate_size": 2048, "vocab_size": 8192, "max_position_embeddings": 4096, "tie_word_embeddings": true,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = tiny
        .config
        .tensors()
        .map(|tensor| {
            let (shape, mut values) = (tiny.config.shape(tensor), Vec::new());
            tiny.append(tensor, &shape, &mut values).unwrap();
            (huggingface::weights::name(tensor), shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views =
        tensors.iter().map(|(name, shape, bytes)| (name, TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
    tensors.iter().map(|(.., bytes)| bytes.len()).sum()
}

/// A field of this process's memory statistics, in bytes.
fn memory_bytes(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn load_alone() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE) else { return };
    let backend = Arc::new(Cpu::new(Arithmetic::Sm90, 1).unwrap());
    let before = memory_bytes("VmRSS");
    let checkpoint = Source::Path(folder.into()).open().unwrap();
    let model = Model::load(&checkpoint, backend, LoadOptions::default(), &mut |_| ()).unwrap();
    println!("before {before} held {} peak {}", memory_bytes("VmRSS"), memory_bytes("VmHWM"));
    assert_eq!(model.config().layers, 6);
}

#[test]
fn loading_takes_at_most_one_point_three_times_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let weight_bytes = write_folder(folder.path());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "load_alone", "--ignored", "--nocapture"]).env(FOLDER_VARIABLE, folder.path());
    let output = String::from_utf8(child.output().unwrap().stdout).unwrap();
    let number = |name: &str| -> usize {
        let mut words = output.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).unwrap_or_else(|| panic!("no {name} in {output}")).parse().unwrap()
    };
    let (held, peak) = (number("held") - number("before"), number("peak") - number("before"));
    println!("weights {weight_bytes}, held {held}, peak {peak}");
    assert!(held >= weight_bytes, "the weights themselves were not counted: {held} of {weight_bytes}");
    assert!(peak * 10 <= weight_bytes * 13, "peak {peak} of {weight_bytes}");
}

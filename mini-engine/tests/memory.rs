//! Loading a model takes at most 1.3 times its bfloat16 weights. The allocator refuses what goes beyond, which fails the
//! load or ends the test. Mapped file pages are not counted: each is unmapped as soon as it is read.

use std::alloc::System;
use std::sync::Arc;

use cap::Cap;
use kernels_rs::cpu::Cpu;
use mini_engine::model::tensor::Tensor;
use mini_engine::model::{Family, LoadOptions, Model, Source, Tiny};
use reduction_tree::arithmetic::Arithmetic;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Writes a model of tens of megabytes as a Hugging Face folder, with the tokenizer of the reference models.
fn write_folder(folder: &std::path::Path) -> usize {
    let mut tiny = Tiny::new(Family::Llama, 1);
    tiny.config.layers = 6;
    tiny.config.hidden = 512;
    tiny.config.ffn = 2048;
    tiny.config.vocab = 8192;
    tiny.config.windows = vec![None; 6];
    let reference = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/llama");
    std::fs::copy(reference.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let config = serde_json::json!({
        "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 32, "intermediate_size": 2048, "vocab_size": 8192, "max_position_embeddings": 4096, "tie_word_embeddings": true,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let name = |tensor: Tensor| mini_engine::model::huggingface::weights::name(tensor);
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = tiny
        .config
        .tensors()
        .map(|tensor| {
            let (shape, mut values) = (tiny.config.shape(tensor), Vec::new());
            mini_engine::model::TensorSource::append(&tiny, tensor, &shape, &mut values).unwrap();
            (name(tensor), shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views =
        tensors.iter().map(|(name, shape, bytes)| (name, TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
    tensors.iter().map(|(.., bytes)| bytes.len()).sum()
}

#[test]
fn loading_takes_at_most_one_point_three_times_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let weight_bytes = write_folder(folder.path());
    assert!(weight_bytes > 40_000_000, "{weight_bytes}");
    let backend = Arc::new(Cpu::new(Arithmetic::Sm90, 1).unwrap());
    let before = ALLOCATOR.allocated();
    ALLOCATOR.set_limit(before + weight_bytes * 13 / 10).unwrap();
    let checkpoint = Source::Path(folder.path().to_owned()).open().unwrap();
    let model = Model::load(&checkpoint, backend, LoadOptions::default(), &mut |_| ()).unwrap();
    ALLOCATOR.set_limit(usize::MAX).unwrap();
    let held = ALLOCATOR.allocated() - before;
    assert!(held >= weight_bytes, "the limit watched something else: {held} of {weight_bytes}");
    assert_eq!(model.config().layers, 6);
}

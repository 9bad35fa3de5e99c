//! Hostile and broken model files: every one is refused with the file, the field, what was expected and what was found; no
//! parser panics, and none allocates by a count that the file merely claims (an allocator with a cap watches: going past
//! it ends the test binary).

use std::alloc::System;
use std::path::{Path, PathBuf};

use cap::Cap;
use mini_engine::model::gguf::Description;
use mini_engine::model::gguf::container::Container;
use mini_engine::model::{Source, huggingface};
use proptest::prelude::*;

/// The largest reference file has 160 KB; the parsers of all test threads together must stay far below this.
const BYTES_MAX: usize = 1 << 28;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, BYTES_MAX);

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(reference().join(name)).unwrap()
}

fn gguf_error(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.gguf");
    std::fs::write(&path, bytes).unwrap();
    match Source::Path(path).open() {
        Ok(_) => "no error".to_owned(),
        Err(error) => {
            assert!(error.is_input() && error.field().is_some(), "{error}");
            error.to_string()
        }
    }
}

fn find(bytes: &[u8], text: &str) -> usize {
    let found = (0..bytes.len()).find(|at| bytes[*at..].starts_with(text.as_bytes()));
    found.unwrap_or_else(|| panic!("no {text:?}"))
}

/// The reference file with `new` written over the bytes that begin `skip` bytes after the end of `key`.
fn patched(key: &str, skip: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = read("llama/model.gguf");
    let at = find(&bytes, key) + key.len() + skip;
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn a_broken_gguf_file_names_field_expected_and_found() {
    let huge = u64::MAX.to_le_bytes();
    // A tensor's description is dimensions (u32), sizes (u64 each), type (u32), offset (u64).
    let q = "blk.0.attn_q.weight";
    let cases: [(&str, Vec<u8>, &[&str]); 21] = [
        ("magic", patched("", 0, b"GGML"), &["magic", "GGUF", "GGML"]),
        ("version", patched("GGUF", 0, &[9]), &["version", "expected 3", "found 9"]),
        ("tensor count", patched("GGUF", 4, &huge), &["tensor"]),
        ("metadata count", patched("GGUF", 12, &huge), &["metadata key"]),
        ("value type", patched("general.architecture", 0, &[77]), &["general.architecture", "value type", "77"]),
        (
            "text length",
            patched("general.architecture", 4, &huge),
            &["general.architecture", "18446744073709551615 bytes"],
        ),
        ("architecture", patched("general.architecture", 12, b"mamba"), &["general.architecture", "qwen3", "mamba"]),
        ("not UTF-8", patched("general.architecture", 12, &[0xff]), &["general.architecture", "UTF-8"]),
        ("array length", patched("tokenizer.ggml.tokens", 8, &huge), &["tokenizer.ggml.tokens"]),
        ("array of arrays", patched("tokenizer.ggml.tokens", 4, &[9]), &["tokenizer.ggml.tokens", "array of arrays"]),
        ("number array length", patched("tokenizer.ggml.token_type", 8, &huge), &["tokenizer.ggml.token_type"]),
        ("layers", patched("llama.block_count", 4, &[0xff; 4]), &["layers", "1 to 1024", "4294967295"]),
        ("heads", patched("llama.attention.head_count", 4, &[0; 4]), &["llama.attention.head_count", "at least 1"]),
        (
            "hidden",
            patched("llama.embedding_length", 4, &[128]),
            &["llama.rope.dimension_count", "the head size 32, found 16"],
        ),
        ("feed-forward", patched("llama.feed_forward_length", 4, &[128]), &["ffn", "expected shape", "found shape"]),
        ("dimensions", patched(q, 0, &[200]), &[q, "dimensions", "200"]),
        ("zero size", patched(q, 4, &[0; 8]), &[q, "at least 1", "found 0"]),
        ("huge size", patched(q, 4, &huge), &[q]),
        ("type", patched(q, 20, &[99]), &[q, "Q4_K", "type 99"]),
        ("offset", patched(q, 24, &[0, 0, 0, 0, 1]), &[q, "inside the file"]),
        ("alignment", patched(q, 24, &[1]), &[q, "aligned to 32"]),
    ];
    for (name, bytes, parts) in cases {
        let error = gguf_error(&bytes);
        assert!(
            error.contains("hostile.gguf") && error.contains("expected") && error.contains("found"),
            "{name}: {error}"
        );
        for part in parts {
            assert!(error.contains(part), "{name}: no {part:?} in: {error}");
        }
    }
    assert_eq!(gguf_error(&read("llama/model.gguf")), "no error");
}

#[test]
fn every_shortening_of_a_gguf_file_is_refused() {
    let bytes = read("llama/model.gguf");
    for len in (0..bytes.len()).step_by(997).chain(0..64) {
        assert_ne!(gguf_error(&bytes[..len]), "no error", "{len} bytes");
    }
}

/// A copy of a reference folder with one file changed.
fn folder_error(model: &str, file: &str, change: impl Fn(Vec<u8>) -> Option<Vec<u8>>) -> String {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(reference().join(model)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let path = folder.path().join(file);
    match change(std::fs::read(&path).unwrap()) {
        Some(bytes) => std::fs::write(&path, bytes).unwrap(),
        None => std::fs::remove_file(&path).unwrap(),
    }
    Source::Path(folder.path().to_owned()).open().err().map_or("no error".to_owned(), |error| error.to_string())
}

fn replaced(from: &str, to: &str) -> impl Fn(Vec<u8>) -> Option<Vec<u8>> {
    let (from, to) = (from.to_owned(), to.to_owned());
    move |mut bytes| {
        let at = find(&bytes, &from);
        bytes.splice(at..at + from.len(), to.bytes());
        Some(bytes)
    }
}

#[test]
fn a_broken_folder_names_file_field_expected_and_found() {
    let config = "config.json";
    let edits = [
        (
            "llama",
            r#""model_type": "llama""#,
            r#""model_type": "bert""#,
            "model_type: expected llama, qwen2 or qwen3, found \"bert\"",
        ),
        (
            "llama",
            r#""hidden_size": 64"#,
            r#""hidden_size": -64"#,
            "hidden_size: expected an unsigned integer, found -64",
        ),
        ("llama", r#""hidden_size": 64"#, r#""hidden_size": 999999999999"#, "hidden size: expected 1 to"),
        ("llama", r#""hidden_size": 64"#, r#""hidden_size": 80"#, "shape"),
        (
            "llama",
            r#""num_hidden_layers": 2"#,
            r#""num_hidden_layers": 3"#,
            "model.layers.2.input_layernorm.weight: expected shape [64], found nothing",
        ),
        (
            "llama",
            r#""num_hidden_layers": 2"#,
            r#""num_hidden_layers": 1"#,
            "tensors: expected only those of a Llama model, found also",
        ),
        (
            "llama",
            r#""max_position_embeddings": 128"#,
            r#""max_position_embeddings": 99999999"#,
            "context length: expected 1 to",
        ),
        (
            "llama",
            r#""vocab_size": 272"#,
            r#""vocab_size": 200"#,
            "token: expected below the vocabulary size 200, found 25",
        ),
        (
            "llama",
            r#""rope_type": "llama3""#,
            r#""rope_type": "yarn""#,
            "rope_type: expected default, linear or llama3, found \"yarn\"",
        ),
        ("llama", r#""factor": 8.0"#, r#""factor": 0"#, "rope scaling factor: expected a positive number, found 0"),
        ("llama", r#""hidden_act": "silu""#, r#""hidden_act": "gelu""#, "hidden_act: expected silu, found \"gelu\""),
        (
            "llama",
            r#""attention_bias": false"#,
            r#""attention_bias": true"#,
            "attention_bias: expected false, found true",
        ),
        ("qwen2", r#""sliding_window": 24"#, r#""sliding_window": 0"#, "attention window"),
        ("qwen2", "full_attention", "lightning", "layer_types: expected full_attention or sliding_attention"),
        ("llama", "{", "[[", "document: expected JSON"),
    ];
    for (model, from, to, part) in edits {
        let error = folder_error(model, config, replaced(from, to));
        assert!(error.contains(part), "{to}: no {part:?} in: {error}");
    }
    let weights = "model.safetensors";
    let index = "model.safetensors.index.json";
    let shard = "model-00001-of-00003.safetensors";
    let truncated = |bytes: Vec<u8>| Some(bytes[..bytes.len() - 2].to_vec());
    let cases = [
        (folder_error("llama", weights, truncated), "header: expected a safetensors header that fits the file"),
        (folder_error("llama", weights, |_| Some(vec![0xff; 64])), "header: expected"),
        (folder_error("llama", weights, |_| Some(Vec::new())), "length: expected at least 1 byte, found 0"),
        (
            folder_error("llama", weights, |_| None),
            "weights: expected model.safetensors or model.safetensors.index.json, found neither",
        ),
        (folder_error("llama", weights, replaced("BF16", "I16 ")), "header"),
        (folder_error("llama", weights, replaced(r#""BF16""#, r#""I16" "#)), "expected BF16, F16 or F32, found I16"),
        (folder_error("qwen3", shard, |_| None), "open"),
        (
            folder_error("qwen3", index, replaced(shard, "../../../etc/passwd")),
            "expected a file name in the same folder",
        ),
        (
            folder_error("qwen3", index, replaced("model.norm.weight", "model.enorm.weight")),
            "model.enorm.weight: expected a tensor, as the index says",
        ),
        (folder_error("llama", "tokenizer.json", |_| Some(b"{}".to_vec())), "document: expected a tokenizer"),
        (folder_error("llama", "tokenizer.json", |_| None), "open"),
        (
            folder_error("llama", "tokenizer_config.json", replaced("{% endfor %}", "")),
            "chat_template: expected a Jinja template",
        ),
        (
            folder_error("llama", "generation_config.json", replaced("257", "\"end\"")),
            "eos_token_id: expected a token or a list of tokens",
        ),
        (
            folder_error("llama", "generation_config.json", replaced("257", "272")),
            "end token: expected below the vocabulary size 272, found 272",
        ),
        (folder_error("qwen3", "chat_template.jinja", |_| Some(vec![0xc3, 0x28])), "chat_template: expected UTF-8"),
    ];
    for (error, part) in cases {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

/// A few overwrites, a cut and an insertion: what fuzzers do first.
fn mutated(original: &[u8], header_bytes: usize, edits: &[(usize, u8, u8)], cut: Option<usize>) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for (at, kind, value) in edits {
        let at = at % header_bytes;
        match kind % 4 {
            0 => bytes[at] = *value,
            1 => bytes[at] ^= 1 << (value % 8),
            2 => bytes[at..at + 8].copy_from_slice(&(u64::MAX >> (value % 64)).to_le_bytes()),
            _ => drop(bytes.splice(at..at, std::iter::repeat_n(*value, usize::from(*value)))),
        }
    }
    if let Some(cut) = cut {
        bytes.truncate(cut % bytes.len());
    }
    bytes
}

fn edits() -> impl Strategy<Value = (Vec<(usize, u8, u8)>, Option<usize>)> {
    let edit = (any::<usize>(), any::<u8>(), any::<u8>());
    (prop::collection::vec(edit, 1..6), prop::option::weighted(0.2, any::<usize>()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_gguf_never_panics((edits, cut) in edits()) {
        let bytes = mutated(&read("llama/model.gguf"), 9_000, &edits, cut);
        if let Ok(container) = Container::parse(&bytes) {
            let _ = Description::read(&container).map(|description| description.tokenizer.encode("the and 123 é\u{fffd}"));
        }
    }

    #[test]
    fn a_mutated_safetensors_header_never_panics((edits, cut) in edits()) {
        let bytes = mutated(&read("qwen2/model.safetensors"), 2_600, &edits, cut);
        let _ = huggingface::weights::parse(&bytes);
    }

    #[test]
    fn mutated_json_never_panics((edits, cut) in edits()) {
        for name in ["llama/config.json", "qwen2/config.json", "llama/generation_config.json", "qwen3/model.safetensors.index.json"] {
            let original = read(name);
            let bytes = mutated(&original, original.len() - 8, &edits, cut);
            let _ = huggingface::config::parse(&bytes);
            let _ = huggingface::config::parse_generation(&bytes);
            let _ = huggingface::weights::parse_index(&bytes);
        }
    }

    #[test]
    fn a_mutated_tokenizer_never_panics((edits, cut) in edits()) {
        let original = read("llama/tokenizer.json");
        let bytes = mutated(&original, original.len() - 8, &edits, cut);
        if let Ok(tokenizer) = huggingface::tokenizer(&bytes, 272) {
            let _ = tokenizer.encode("the and 123 é\u{fffd}");
            let _ = tokenizer.decode(&[0, 1, 300]);
        }
    }
}

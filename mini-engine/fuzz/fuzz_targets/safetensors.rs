//! Any bytes are a safetensors header and an index, or are refused with a field.
//!
//! `cargo +nightly fuzz run safetensors CORPUS ../tests/reference/qwen3`

#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_engine::model::huggingface::weights::{parse, parse_index};

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = parse(bytes) {
        assert!(error.field().is_some(), "{error}");
    }
    if let Err(error) = parse_index(bytes) {
        assert!(error.field().is_some(), "{error}");
    }
});

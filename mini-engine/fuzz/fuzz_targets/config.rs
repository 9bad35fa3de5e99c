//! Any bytes are a config whose shapes passed every check, or are refused with a field.
//!
//! `cargo +nightly fuzz run config CORPUS ../tests/reference/llama`

#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_engine::model::huggingface::config::{parse, parse_generation};

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Ok(config) => config.check().expect("what was accepted passes its own checks"),
        Err(error) => assert!(error.field().is_some(), "{error}"),
    }
    let _ = parse_generation(bytes);
});

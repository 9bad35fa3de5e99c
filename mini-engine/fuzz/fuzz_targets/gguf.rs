//! Any bytes are a GGUF model or are refused with a field; the tokenizer of what is accepted takes any text.
//!
//! `cargo +nightly fuzz run gguf CORPUS ../tests/reference/llama`

#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_engine::model::gguf::Description;
use mini_engine::model::gguf::container::Container;

fuzz_target!(|bytes: &[u8]| {
    let description = Container::parse(bytes).and_then(|container| Description::read(&container));
    match description {
        Ok(description) => {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned();
            let _ = description.tokenizer.encode(&text).map(|tokens| description.tokenizer.decode(&tokens));
        }
        Err(error) => assert!(error.field().is_some(), "{error}"),
    }
});

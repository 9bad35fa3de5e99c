//! Models in a Hugging Face folder: `config.json`, `generation_config.json`, `tokenizer.json`, a chat template and
//! safetensors.

pub mod config;
pub mod weights;

mod json;

use std::path::Path;

use serde_json::Value;

use self::json::Object;
use self::weights::FolderTensors;
use super::error::{Error, Result};
use super::mapped::read_small;
use super::{ChatTemplate, Checkpoint, Config, GenerationDefaults, Tokenizer};

const CONFIG_BYTES_MAX: u64 = 16 << 20;
const TOKENIZER_BYTES_MAX: u64 = 256 << 20;

/// Opens a folder.
pub fn open(folder: &Path) -> Result<Checkpoint> {
    let path = folder.join("config.json");
    let mut config =
        config::parse(&read_small(&path, CONFIG_BYTES_MAX)?).map_err(|error| error.in_file(path.display()))?;
    let tensors = FolderTensors::open(folder, &config)?;
    let defaults = match read_optional(&folder.join("generation_config.json"))? {
        None => GenerationDefaults::default(),
        Some(bytes) => generation(&bytes, &mut config)
            .map_err(|error| error.in_file(folder.join("generation_config.json").display()))?,
    };
    let path = folder.join("tokenizer.json");
    let tokenizer = tokenizer(&read_small(&path, TOKENIZER_BYTES_MAX)?, config.vocab)
        .map_err(|error| error.in_file(path.display()))?;
    let chat = chat_template(folder)?;
    Ok(Checkpoint { name: folder.display().to_string(), config, tokenizer, chat, defaults, tensors: Box::new(tensors) })
}

fn read_optional(path: &Path) -> Result<Option<Vec<u8>>> {
    if path.exists() { read_small(path, CONFIG_BYTES_MAX).map(Some) } else { Ok(None) }
}

/// The end tokens of the generation config replace those of the config: instruction-tuned models list the end of a turn
/// only there.
fn generation(bytes: &[u8], config: &mut Config) -> Result<GenerationDefaults> {
    let (defaults, eos) = config::parse_generation(bytes)?;
    if !eos.is_empty() {
        config.eos = eos;
        config.check()?;
    }
    Ok(defaults)
}

/// Reads a `tokenizer.json`; every token must have a row in the embedding.
pub fn tokenizer(bytes: &[u8], rows: usize) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::from_json(bytes)?;
    match tokenizer.last_token() {
        Some(last) if last as usize >= rows => {
            let expected = format!("tokens below the vocabulary size {rows} of the config");
            Err(Error::input("model.vocab", expected, last.to_string()))
        }
        _ => Ok(tokenizer),
    }
}

/// The template is in a file of its own or in `tokenizer_config.json`, alone or as the one named `default`.
fn chat_template(folder: &Path) -> Result<Option<ChatTemplate>> {
    let path = folder.join("tokenizer_config.json");
    let document = match read_optional(&path)? {
        None => Value::Object(serde_json::Map::new()),
        Some(bytes) => config::document(&bytes).map_err(|error| error.in_file(path.display()))?,
    };
    let own_path = folder.join("chat_template.jinja");
    let own = read_optional(&own_path)?;
    let own = own.map(|bytes| {
        String::from_utf8(bytes)
            .map_err(|error| Error::input("chat_template", "UTF-8", error.to_string()).in_file(own_path.display()))
    });
    template(&document, own.transpose()?).map_err(|error| error.in_file(path.display()))
}

fn template(document: &Value, own: Option<String>) -> Result<Option<ChatTemplate>> {
    let root = Object::root(document)?;
    let source = match (own, root.get("chat_template")) {
        (Some(own), _) => own,
        (None, None) => return Ok(None),
        (None, Some(Value::String(source))) => source.clone(),
        (None, Some(Value::Array(named))) => {
            let default = named.iter().find(|item| item.get("name").and_then(Value::as_str) == Some("default"));
            let source = default.and_then(|item| item.get("template")).and_then(Value::as_str);
            source.ok_or_else(|| root.wrong("chat_template", "a template named default"))?.to_owned()
        }
        (None, Some(_)) => return Err(root.wrong("chat_template", "text or a list of named templates")),
    };
    // A special token is its text, or an object with its text and how it is cut.
    let special = |key: &str| match root.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(object) => object.get("content").and_then(Value::as_str).unwrap_or_default().to_owned(),
        None => String::new(),
    };
    ChatTemplate::new(&source, &special("bos_token"), &special("eos_token")).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Message;

    /// The three reference folders keep their template in the three places that exist, and one is in shards.
    #[test]
    fn every_reference_folder_opens_with_its_template_and_end_token() {
        for model in ["llama", "qwen2", "qwen3"] {
            let checkpoint = open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(model)).unwrap();
            let chat = checkpoint.chat.unwrap_or_else(|| panic!("{model} has no template"));
            let text = chat.render(&[Message::new("user", " Hi ")]).unwrap();
            assert_eq!(text, "<|start|>user: Hi<|end|><|start|>assistant:", "{model}");
            assert_eq!((checkpoint.config.bos, &checkpoint.config.eos[..]), (Some(256), &[257][..]), "{model}");
        }
    }

    #[test]
    fn the_generation_config_has_the_last_word_on_end_tokens() {
        let mut config = crate::model::Tiny::new(crate::model::Family::Llama, 0).config;
        let json = br#"{"eos_token_id": [7, 8], "do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 0}"#;
        let defaults = generation(json, &mut config).unwrap();
        assert_eq!(config.eos, [7, 8]);
        assert_eq!(
            defaults,
            GenerationDefaults { temperature: Some(0.6), top_p: Some(0.9), ..GenerationDefaults::default() }
        );
        let greedy = generation(br#"{"do_sample": false, "temperature": 0.6}"#, &mut config).unwrap();
        assert_eq!((greedy.temperature, &config.eos[..]), (Some(0.0), &[7, 8][..]));
    }
}

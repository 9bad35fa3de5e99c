//! Where a model comes from: a name or a path, as a user writes it.

use std::path::PathBuf;

use super::config::Family;
use super::error::{Error, Result};
use super::{
    Checkpoint, Config, GenerationDefaults, RandomModel, TensorSource, Tiny, Tokenizer, gguf, huggingface, smollm2,
};

/// A model's origin.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The embedded default, fetched once.
    Smollm2,
    /// A random model made in the process.
    Tiny(Box<Tiny>),
    /// A random model of a published shape, made where it runs.
    Random(Box<RandomModel>),
    /// A Hugging Face folder or a GGUF file.
    Path(PathBuf),
}

impl Source {
    /// `smollm2`, `tiny`, `tiny:FAMILY` or `tiny:FAMILY:SEED` (llama, qwen2, qwen3), `random:` and what
    /// [`RandomModel::parse`] takes, or a path.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "smollm2" {
            return Ok(Self::Smollm2);
        }
        if text == "tiny" {
            return Ok(Self::Tiny(Box::new(Tiny::new(Family::Llama, 0))));
        }
        if let Some(rest) = text.strip_prefix("random:") {
            let model = RandomModel::parse(rest).map_err(|error| error.in_file(text))?;
            return Ok(Self::Random(Box::new(model)));
        }
        let Some(rest) = text.strip_prefix("tiny:") else { return Ok(Self::Path(PathBuf::from(text))) };
        let (family, seed) = rest.split_once(':').unwrap_or((rest, "0"));
        let family = match family {
            "llama" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            other => return Err(Error::input("model", "tiny:llama, tiny:qwen2 or tiny:qwen3", other).in_file(text)),
        };
        let seed = seed.parse().map_err(|_| Error::input("seed", "an integer", seed).in_file(text))?;
        Ok(Self::Tiny(Box::new(Tiny::new(family, seed))))
    }

    /// Finds the model, reads and checks everything but its weights.
    pub fn open(&self) -> Result<Checkpoint> {
        match self {
            Self::Tiny(tiny) => Ok(made("tiny", &tiny.config, (**tiny).clone())),
            Self::Random(model) => Ok(made("random", &model.config, (**model).clone())),
            Self::Smollm2 => gguf::open(&smollm2::fetch(&smollm2::cache_folder()?)?),
            Self::Path(path) if path.is_dir() => huggingface::open(path),
            Self::Path(path) => gguf::open(path),
        }
    }
}

/// A model without a file.
fn made(name: &str, config: &Config, tensors: impl TensorSource + 'static) -> Checkpoint {
    Checkpoint {
        name: name.to_owned(),
        config: config.clone(),
        tokenizer: Tokenizer::bytes(),
        chat: None,
        defaults: GenerationDefaults::default(),
        tensors: Box::new(tensors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_told_apart() {
        assert_eq!(Source::parse("smollm2").unwrap(), Source::Smollm2);
        assert_eq!(Source::parse("tiny:qwen3:7").unwrap(), Source::Tiny(Box::new(Tiny::new(Family::Qwen3, 7))));
        assert_eq!(Source::parse("./tiny").unwrap(), Source::Path(PathBuf::from("./tiny")));
        let error = |text| Source::parse(text).unwrap_err().to_string();
        assert_eq!(error("tiny:gpt"), "tiny:gpt: model: expected tiny:llama, tiny:qwen2 or tiny:qwen3, found gpt");
        assert_eq!(error("tiny:llama:x"), "tiny:llama:x: seed: expected an integer, found x");
    }

    #[test]
    fn a_missing_path_is_named() {
        let error = Source::parse("no/such/model.gguf").unwrap().open().err().unwrap().to_string();
        assert!(error.starts_with("no/such/model.gguf: open: "), "{error}");
    }
}

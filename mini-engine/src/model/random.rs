//! Random models of any shape, without a file: their values are counters' values (`kernels_rs::random`), made where the
//! weights live, so that large shapes can be measured and audited without a download. Their tokens are bytes, like those of
//! [`super::tiny`].

use std::path::Path;

use half::bf16;
use kernels_rs::random::RandomTensor;
use reduction_tree::operator::RopePairing;

use super::config::{Config, Family, Rope, RopeScaling};
use super::error::{Error, Result};
use super::huggingface;
use super::mapped::read_small;
use super::tensor::{LayerTensor, Tensor, TensorSource};
use super::tiny::{BOS, EOS};

const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Shapes that are known by name.
pub const SHAPES: &[&str] = &["llama-3.1-8b", "qwen3-8b", "qwen3-0.6b", "qwen2.5-0.5b"];

/// A random model.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomModel {
    /// Its shape.
    pub config: Config,
    /// Two models of one shape and one seed are equal.
    pub seed: u64,
}

impl RandomModel {
    /// `SHAPE[,layers=N][,seed=S]`, where the shape is one of [`SHAPES`] or the path of a `config.json`.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split(',');
        let shape = parts.next().unwrap_or_default();
        let mut config = match named(shape) {
            Some(config) => config,
            None if shape.contains('/') || shape.contains('.') => {
                let bytes = read_small(Path::new(shape), CONFIG_BYTES_MAX)?;
                huggingface::config::parse(&bytes).map_err(|error| error.in_file(shape))?
            }
            None => {
                let expected = format!("one of {} or the path of a config.json", SHAPES.join(", "));
                return Err(Error::input("shape", expected, shape));
            }
        };
        let mut seed = 0;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let number: Option<u64> = value.parse().ok();
            match (key, number) {
                ("layers", Some(layers)) => set_layers(&mut config, layers)?,
                ("seed", Some(number)) => seed = number,
                _ => return Err(Error::input("random model", "layers=N or seed=S after the shape", part)),
            }
        }
        byte_tokens(&mut config);
        config.check()?;
        Ok(Self { config, seed })
    }
}

/// A shape of fewer layers, or of more, each like the first.
fn set_layers(config: &mut Config, layers: u64) -> Result<()> {
    let fits = usize::try_from(layers).ok().filter(|layers| (1..=super::config::limits::LAYERS_MAX).contains(layers));
    let Some(layers) = fits else {
        let expected = format!("1 to {}", super::config::limits::LAYERS_MAX);
        return Err(Error::input("layers", expected, layers.to_string()));
    };
    config.layers = layers;
    let first = config.windows.first().copied().flatten();
    config.windows.resize(layers, first);
    Ok(())
}

/// The byte-level vocabulary is the only one that a model without a file can have; it needs its two special tokens.
fn byte_tokens(config: &mut Config) {
    let whole = config.vocab > EOS as usize;
    config.bos = whole.then_some(BOS);
    config.eos = if whole { vec![EOS] } else { Vec::new() };
}

/// The published shape of a model.
fn named(name: &str) -> Option<Config> {
    let llama =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    let none = RopeScaling::None;
    let (family, layers, hidden, (q_heads, kv_heads, head_dim), ffn, vocab, context, eps, theta, scaling) = match name {
        "llama-3.1-8b" => (Family::Llama, 32, 4096, (32, 8, 128), 14336, 128_256, 131_072, 1e-5, 500_000.0, llama),
        "qwen3-8b" => (Family::Qwen3, 36, 4096, (32, 8, 128), 12288, 151_936, 40_960, 1e-6, 1e6, none),
        "qwen3-0.6b" => (Family::Qwen3, 28, 1024, (16, 8, 128), 3072, 151_936, 40_960, 1e-6, 1e6, none),
        "qwen2.5-0.5b" => (Family::Qwen2, 24, 896, (14, 2, 64), 4864, 151_936, 32_768, 1e-6, 1e6, none),
        _ => return None,
    };
    Some(Config {
        family,
        layers,
        hidden,
        q_heads,
        kv_heads,
        head_dim,
        ffn,
        vocab,
        context,
        eps,
        rope: Rope { theta, scaling, pairing: RopePairing::Half },
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
        tied: matches!(name, "qwen3-0.6b" | "qwen2.5-0.5b"),
        windows: vec![None; layers],
        bos: None,
        eos: Vec::new(),
    })
}

/// Mean and half range of a tensor's values. A matrix of k columns keeps the variance of a row: a uniform value on (-s, s)
/// has variance s²/3.
pub fn scale(config: &Config, tensor: Tensor) -> (f32, f32) {
    let matrix = |k: usize| (0.0, libm::sqrtf(3.0 / k as f32));
    match tensor {
        Tensor::FinalNorm => (1.0, 0.25),
        Tensor::Embedding => (0.0, 1.0),
        Tensor::Head => matrix(config.hidden),
        Tensor::Layer(_, part) => match part {
            LayerTensor::AttentionNorm | LayerTensor::FfnNorm | LayerTensor::QNorm | LayerTensor::KNorm => (1.0, 0.25),
            LayerTensor::QBias | LayerTensor::KBias | LayerTensor::VBias => (0.0, 0.5),
            _ => matrix(config.shape(tensor).last().copied().unwrap_or(1)),
        },
    }
}

/// A number for each tensor of a model.
pub fn number(tensor: Tensor) -> u32 {
    match tensor {
        Tensor::Embedding => 0,
        Tensor::Head => 1,
        Tensor::FinalNorm => 2,
        Tensor::Layer(layer, part) => 16 * (layer as u32 + 1) + part as u32,
    }
}

impl TensorSource for RandomModel {
    fn append(&self, tensor: Tensor, shape: &[usize], out: &mut Vec<bf16>) -> Result<()> {
        let first = out.len();
        out.resize(first + shape.iter().product::<usize>(), bf16::ZERO);
        self.counters(tensor).fill(0, &mut out[first..]);
        Ok(())
    }

    fn random(&self, tensor: Tensor) -> Option<RandomTensor> {
        Some(self.counters(tensor))
    }
}

impl RandomModel {
    fn counters(&self, tensor: Tensor) -> RandomTensor {
        let (offset, spread) = scale(&self.config, tensor);
        RandomTensor { seed: self.seed, tensor: number(tensor), offset, spread }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn named_shapes_pass_their_checks_and_number_their_tensors_apart() {
        for name in SHAPES {
            let model = RandomModel::parse(&format!("{name},seed=5,layers=3")).unwrap();
            assert_eq!((model.config.layers, model.seed), (3, 5));
            let tensors: Vec<Tensor> = model.config.tensors().collect();
            let numbers: HashSet<u32> = tensors.iter().map(|tensor| number(*tensor)).collect();
            assert_eq!(numbers.len(), tensors.len(), "{name}");
        }
        let parameters = |name: &str| -> usize {
            let config = RandomModel::parse(name).unwrap().config;
            config.tensors().map(|tensor| config.shape(tensor).iter().product::<usize>()).sum()
        };
        // As published.
        assert_eq!(parameters("llama-3.1-8b"), 8_030_261_248);
        assert_eq!(parameters("qwen3-0.6b"), 596_049_920);
        assert_eq!(parameters("qwen3-8b"), 8_190_735_360);
        assert_eq!(parameters("qwen2.5-0.5b"), 494_032_768);
    }

    #[test]
    fn wrong_names_are_refused_in_words() {
        let error = |text| RandomModel::parse(text).unwrap_err().to_string();
        insta::assert_snapshot!(
            ["", "llama", "llama-3.1-8b,layers=0", "llama-3.1-8b,seed=x", "qwen3-8b,depth=2", "no/such/config.json"]
                .map(error)
                .join("\n"),
            @r"
        shape: expected one of llama-3.1-8b, qwen3-8b, qwen3-0.6b, qwen2.5-0.5b or the path of a config.json, found 
        shape: expected one of llama-3.1-8b, qwen3-8b, qwen3-0.6b, qwen2.5-0.5b or the path of a config.json, found llama
        layers: expected 1 to 1024, found 0
        random model: expected layers=N or seed=S after the shape, found seed=x
        random model: expected layers=N or seed=S after the shape, found depth=2
        no/such/config.json: open: No such file or directory (os error 2)
        "
        );
    }
}

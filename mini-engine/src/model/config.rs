//! What a model is, whatever file it came from: its shapes, its rotary embedding, its end tokens. Reading a particular
//! file format is not here.

use reduction_tree::operator::RopePairing;

use super::error::{Error, Result};
use super::tensor::{LayerTensor, Tensor};

/// The architectures that the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Llama 3.x and models of the same shape (SmolLM2).
    Llama,
    /// Qwen2 and Qwen2.5: bias on q, k and v.
    Qwen2,
    /// Qwen3 dense: per-head norm of q and k.
    Qwen3,
}

/// How the rotary frequencies are stretched beyond the length that the model was first trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies divided by a factor.
    Linear {
        /// Divisor.
        factor: f64,
    },
    /// Llama 3.1: low frequencies divided, high ones kept, a linear ramp between.
    Llama3 {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length before stretching.
        original_context: f64,
    },
    /// One divisor a frequency, [head_dim / 2], as GGUF stores the same thing.
    Divisors(Vec<f32>),
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Stretching.
    pub scaling: RopeScaling,
    /// Which elements of a head rotate together.
    pub pairing: RopePairing,
}

/// A decoder-only transformer's shape. Every count has passed [`Config::check`].
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Architecture.
    pub family: Family,
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub q_heads: usize,
    /// Key/value heads; divides `q_heads`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Vocabulary entries, the rows of the LM head.
    pub vocab: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// Position embedding.
    pub rope: Rope,
    /// Whether q, k and v have a bias.
    pub qkv_bias: bool,
    /// Whether q and k are normed by head before RoPE.
    pub qk_norm: bool,
    /// Whether the LM head is the embedding table.
    pub tied: bool,
    /// `[layers]` how many positions back a row sees (its own included), where a layer is limited.
    pub windows: Vec<Option<usize>>,
    /// Token that a sequence starts with, where the model has one.
    pub bos: Option<u32>,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
}

/// Upper bounds that no real model reaches. They keep every product of two shapes far below `usize::MAX` and refuse a
/// hostile header before anything is allocated for it.
pub mod limits {
    /// Transformer layers.
    pub const LAYERS_MAX: usize = 1024;
    /// Widths: hidden, feed-forward, heads * head_dim.
    pub const WIDTH_MAX: usize = 1 << 18;
    /// Vocabulary entries.
    pub const VOCAB_MAX: usize = 1 << 22;
    /// Tokens of context.
    pub const CONTEXT_MAX: usize = 1 << 21;
    /// Elements of one rotary table, context * head_dim / 2: 256 MiB. A million tokens with heads of 128 just fit.
    pub const ROPE_ELEMENTS_MAX: usize = 1 << 26;
    /// Elements of a head.
    pub const HEAD_DIM_MAX: usize = 1024;
}

impl Config {
    /// Refuses shapes that are zero, out of bounds or do not fit each other.
    pub fn check(&self) -> Result<()> {
        let within = |field: &str, value: usize, max: usize| {
            if value == 0 || value > max {
                return Err(Error::input(field, format!("1 to {max}"), value.to_string()));
            }
            Ok(())
        };
        within("layers", self.layers, limits::LAYERS_MAX)?;
        within("hidden size", self.hidden, limits::WIDTH_MAX)?;
        within("feed-forward size", self.ffn, limits::WIDTH_MAX)?;
        within("vocabulary size", self.vocab, limits::VOCAB_MAX)?;
        within("context length", self.context, limits::CONTEXT_MAX)?;
        within("head size", self.head_dim, limits::HEAD_DIM_MAX)?;
        within("query heads", self.q_heads, limits::WIDTH_MAX / self.head_dim)?;
        within("key/value heads", self.kv_heads, self.q_heads)?;
        if !self.q_heads.is_multiple_of(self.kv_heads) {
            return Err(Error::input(
                "key/value heads",
                format!("a divisor of the {} query heads", self.q_heads),
                self.kv_heads.to_string(),
            ));
        }
        if !self.head_dim.is_multiple_of(16) {
            return Err(Error::input("head size", "a multiple of 16", self.head_dim.to_string()));
        }
        within(
            "rotary table, context length * head size / 2",
            self.context * self.head_dim / 2,
            limits::ROPE_ELEMENTS_MAX,
        )?;
        if !(self.eps.is_finite() && self.eps > 0.0 && self.eps < 1.0) {
            return Err(Error::input("norm epsilon", "between 0 and 1", self.eps.to_string()));
        }
        if self.windows.len() != self.layers {
            return Err(Error::input(
                "attention windows",
                format!("one for each of {} layers", self.layers),
                self.windows.len().to_string(),
            ));
        }
        if let Some(Some(window)) = self.windows.iter().find(|window| **window == Some(0)) {
            return Err(Error::input("attention window", "at least 1", window.to_string()));
        }
        for (field, token) in
            self.eos.iter().map(|token| ("end token", *token)).chain(self.bos.map(|token| ("start token", token)))
        {
            if token as usize >= self.vocab {
                return Err(Error::input(
                    field,
                    format!("below the vocabulary size {}", self.vocab),
                    token.to_string(),
                ));
            }
        }
        self.rope.check(self.head_dim)
    }

    /// Everything that the forward pass depends on, one field a line, for the model's digest.
    pub fn canonical_text(&self) -> String {
        let windows: Vec<usize> = self.windows.iter().map(|window| window.unwrap_or(0)).collect();
        format!(
            "sametree model 1\nfamily {:?}\nlayers {}\nhidden {}\nheads {} {} {}\nffn {}\nvocab {}\ncontext {}\neps {:08x}\nrope {:?}\nbias {}\nqk_norm {}\ntied {}\nwindows {windows:?}\n",
            self.family,
            self.layers,
            self.hidden,
            self.q_heads,
            self.kv_heads,
            self.head_dim,
            self.ffn,
            self.vocab,
            self.context,
            self.eps.to_bits(),
            self.rope,
            self.qkv_bias,
            self.qk_norm,
            self.tied,
        )
    }

    /// Rows of the fused q, k and v projection.
    pub fn qkv_rows(&self) -> usize {
        (self.q_heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Every tensor that a model of this shape stores.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor> + use<> {
        use LayerTensor as T;
        let mut parts = vec![T::AttentionNorm, T::Q, T::K, T::V, T::O, T::FfnNorm, T::Gate, T::Up, T::Down];
        if self.qkv_bias {
            parts.extend([T::QBias, T::KBias, T::VBias]);
        }
        if self.qk_norm {
            parts.extend([T::QNorm, T::KNorm]);
        }
        let head = (!self.tied).then_some(Tensor::Head);
        let layers = (0..self.layers)
            .flat_map(move |layer| parts.clone().into_iter().map(move |part| Tensor::Layer(layer, part)));
        [Tensor::Embedding, Tensor::FinalNorm].into_iter().chain(head).chain(layers)
    }

    /// Shape of one stored tensor, rows first.
    pub fn shape(&self, tensor: Tensor) -> Vec<usize> {
        let (q_rows, kv_rows) = (self.q_heads * self.head_dim, self.kv_heads * self.head_dim);
        match tensor {
            Tensor::Embedding | Tensor::Head => vec![self.vocab, self.hidden],
            Tensor::FinalNorm => vec![self.hidden],
            Tensor::Layer(_, part) => match part {
                LayerTensor::AttentionNorm | LayerTensor::FfnNorm => vec![self.hidden],
                LayerTensor::Q => vec![q_rows, self.hidden],
                LayerTensor::K | LayerTensor::V => vec![kv_rows, self.hidden],
                LayerTensor::QBias => vec![q_rows],
                LayerTensor::KBias | LayerTensor::VBias => vec![kv_rows],
                LayerTensor::QNorm | LayerTensor::KNorm => vec![self.head_dim],
                LayerTensor::O => vec![self.hidden, q_rows],
                LayerTensor::Gate | LayerTensor::Up => vec![self.ffn, self.hidden],
                LayerTensor::Down => vec![self.hidden, self.ffn],
            },
        }
    }
}

impl Rope {
    fn check(&self, head_dim: usize) -> Result<()> {
        let positive = |field: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                return Ok(());
            }
            Err(Error::input(field, "a positive number", value.to_string()))
        };
        positive("rope theta", self.theta)?;
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => positive("rope scaling factor", *factor),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                positive("rope scaling factor", *factor)?;
                positive("rope scaling low_freq_factor", *low_freq_factor)?;
                positive("rope scaling original_max_position_embeddings", *original_context)?;
                if high_freq_factor.is_finite() && high_freq_factor > low_freq_factor {
                    return Ok(());
                }
                Err(Error::input(
                    "rope scaling high_freq_factor",
                    format!("above low_freq_factor {low_freq_factor}"),
                    high_freq_factor.to_string(),
                ))
            }
            RopeScaling::Divisors(divisors) => {
                if divisors.len() != head_dim / 2 {
                    return Err(Error::input(
                        "rope frequency divisors",
                        (head_dim / 2).to_string(),
                        divisors.len().to_string(),
                    ));
                }
                divisors.iter().try_for_each(|divisor| positive("rope frequency divisor", f64::from(*divisor)))
            }
        }
    }
}

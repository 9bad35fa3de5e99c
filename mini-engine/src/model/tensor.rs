//! The names of a model's tensors, independent of any file format, and the one thing a file format must do: give a named
//! tensor's values in bfloat16.

use std::fs::File;

use half::bf16;
use kernels_rs::random::RandomTensor;

use super::error::Result;

/// A tensor of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// [vocab, hidden] input embedding.
    Embedding,
    /// [vocab, hidden] LM head, where it is not the embedding.
    Head,
    /// `[hidden]` norm before the LM head.
    FinalNorm,
    /// A tensor of one layer.
    Layer(usize, LayerTensor),
}

/// A tensor of a transformer layer. Shapes are in [`super::Config::shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerTensor {
    /// Norm before attention.
    AttentionNorm,
    /// Query projection.
    Q,
    /// Key projection.
    K,
    /// Value projection.
    V,
    /// Query bias (Qwen2).
    QBias,
    /// Key bias (Qwen2).
    KBias,
    /// Value bias (Qwen2).
    VBias,
    /// Per-head query norm (Qwen3).
    QNorm,
    /// Per-head key norm (Qwen3).
    KNorm,
    /// Output projection.
    O,
    /// Norm before the feed-forward layer.
    FfnNorm,
    /// Gate projection.
    Gate,
    /// Up projection.
    Up,
    /// Down projection.
    Down,
}

/// Where a model's tensors come from.
pub trait TensorSource: Send {
    /// Appends the tensor's values, row-major, rounded to nearest even to bfloat16. `shape` is what the config asks for;
    /// a stored tensor of another shape is refused.
    fn append(&self, tensor: Tensor, shape: &[usize], out: &mut Vec<bf16>) -> Result<()>;

    /// The open files that the values come from; none for values that are made.
    fn files(&self) -> Vec<&File> {
        Vec::new()
    }

    /// How the tensor's values are made, where they are not stored.
    fn random(&self, _tensor: Tensor) -> Option<RandomTensor> {
        None
    }
}

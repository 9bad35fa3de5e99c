//! From a checkpoint to a model: every tensor is read once, fused where the engine fuses, hashed, and handed to the
//! backend. One tensor is in memory twice at a time, the largest first, so the peak stays near the size of the weights.

use std::sync::Arc;

use half::bf16;
use kernels_rs::backend::{Backend, RandomTensor};
use reduction_tree::operator::LinearTree;

use super::config::Config;
use super::error::Result;
use super::forward::{Broken, Layer, Model, Weights, identity};
use super::plan::{LayerPlan, Plan};
use super::rope::RopeTables;
use super::tensor::{LayerTensor, Tensor, TensorSource};
use super::{Break, Checkpoint, Progress};

/// Choices at load time.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// A deliberate fault, for negative controls.
    pub broken: Option<Break>,
    /// The weights' digest where it is known, so that they need not be hashed.
    pub known_digest: Option<blake3::Hash>,
}

impl<B: Backend> Model<B> {
    /// Loads a model onto a backend. `progress` is called after every tensor group.
    pub fn load(
        checkpoint: &Checkpoint,
        backend: Arc<B>,
        options: LoadOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let config = checkpoint.config.clone();
        config.check().map_err(|error| error.in_file(&checkpoint.name))?;
        let tables = RopeTables::new(&config);
        let plan = Plan::new(&config, backend.arithmetic(), &tables);
        let (cos, sin) = (backend.upload(&tables.cos)?, backend.upload(&tables.sin)?);
        drop(tables);
        let total = config.layers + 2;
        let mut reader = Reader::new(&*checkpoint.tensors, &config, &*backend, options.known_digest);

        let embedding = reader.linear(plan.head, &[Tensor::Embedding], &[])?;
        let head = if config.tied { None } else { Some(reader.linear(plan.head, &[Tensor::Head], &[])?) };
        let broken = options.broken.map(|kind| reader.broken(kind, plan.head)).transpose()?;
        reader.release();
        progress(Progress { done: 1, total });
        let mut layers = Vec::with_capacity(config.layers);
        for (index, trees) in plan.layers.iter().enumerate() {
            layers.push(reader.layer(index, trees)?);
            progress(Progress { done: index + 2, total });
        }
        let final_norm = reader.vector(Tensor::FinalNorm)?;
        let digest = reader.digest();
        progress(Progress { done: total, total });
        let weights = Arc::new(Weights { embedding, head, layers, final_norm, cos, sin });
        Ok(Self { id: identity(), backend, config, plan, digest, weights, broken })
    }
}

/// The digest of what is read.
enum Digest {
    /// Known beforehand.
    Known(blake3::Hash),
    /// Hashed on the way.
    Hashed(Box<blake3::Hasher>),
}

/// Reads tensors one after another through one buffer.
struct Reader<'a, B: Backend> {
    tensors: &'a dyn TensorSource,
    config: &'a Config,
    backend: &'a B,
    digest: Digest,
    weight: Vec<bf16>,
    bias: Vec<bf16>,
}

impl<'a, B: Backend> Reader<'a, B> {
    fn new(tensors: &'a dyn TensorSource, config: &'a Config, backend: &'a B, known: Option<blake3::Hash>) -> Self {
        let hashed =
            || Digest::Hashed(Box::new(blake3::Hasher::new().update(config.canonical_text().as_bytes()).clone()));
        let digest = known.map_or_else(hashed, Digest::Known);
        Self { tensors, config, backend, digest, weight: Vec::new(), bias: Vec::new() }
    }

    fn read(&mut self, parts: &[Tensor]) -> Result<()> {
        self.weight.clear();
        let len: usize = parts.iter().map(|part| self.config.shape(*part).iter().product::<usize>()).sum();
        self.weight.reserve_exact(len);
        for part in parts {
            self.tensors.append(*part, &self.config.shape(*part), &mut self.weight)?;
        }
        Ok(())
    }

    /// Enters what was read into the digest: how it was made where that is known, its values otherwise.
    fn hash(&mut self, parts: &[Tensor]) {
        let Digest::Hashed(hasher) = &mut self.digest else { return };
        let made: Option<Vec<RandomTensor>> = parts.iter().map(|part| self.tensors.random(*part)).collect();
        match made {
            Some(made) => made.iter().for_each(|tensor| {
                hasher.update(tensor.canonical_text().as_bytes());
            }),
            None => {
                hasher.update(bytemuck::cast_slice(&self.weight));
            }
        }
    }

    /// A weight made of its parts' rows, one part after another, entered into the digest.
    fn linear(&mut self, tree: LinearTree, parts: &[Tensor], biases: &[Tensor]) -> Result<B::Linear> {
        if !biases.is_empty() {
            self.read(biases)?;
            self.hash(biases);
            self.bias = self.weight.clone();
        }
        let weight = self.weight(tree, parts, !biases.is_empty())?;
        self.hash(parts);
        Ok(weight)
    }

    /// The same, not entered; the bias is the last one that was read.
    fn weight(&mut self, tree: LinearTree, parts: &[Tensor], bias: bool) -> Result<B::Linear> {
        let rows = |part: &Tensor| Some((self.tensors.random(*part)?, self.config.shape(*part)[0]));
        let made: Option<Vec<(RandomTensor, usize)>> = parts.iter().map(rows).collect();
        if let Some(made) = made {
            return Ok(self.backend.random_weight(tree, &made, bias.then_some(&self.bias[..]))?);
        }
        self.read(parts)?;
        Ok(self.backend.linear_weight(tree, &self.weight, bias.then_some(&self.bias[..]))?)
    }

    fn vector(&mut self, tensor: Tensor) -> Result<B::Buffer<bf16>> {
        self.read(&[tensor])?;
        self.hash(&[tensor]);
        Ok(self.backend.upload(&self.weight)?)
    }

    fn layer(&mut self, index: usize, trees: &LayerPlan) -> Result<Layer<B>> {
        use LayerTensor as T;
        let at = |part| Tensor::Layer(index, part);
        let biases = [at(T::QBias), at(T::KBias), at(T::VBias)];
        let biases = if self.config.qkv_bias { &biases[..] } else { &[] };
        Ok(Layer {
            attention_norm: self.vector(at(T::AttentionNorm))?,
            qkv: self.linear(trees.qkv, &[at(T::Q), at(T::K), at(T::V)], biases)?,
            qk_norm: if self.config.qk_norm {
                Some((self.vector(at(T::QNorm))?, self.vector(at(T::KNorm))?))
            } else {
                None
            },
            o: self.linear(trees.o, &[at(T::O)], &[])?,
            ffn_norm: self.vector(at(T::FfnNorm))?,
            gate_up: self.linear(trees.gate_up, &[at(T::Gate), at(T::Up)], &[])?,
            down: self.linear(trees.down, &[at(T::Down)], &[])?,
        })
    }

    fn broken(&mut self, kind: Break, head: LinearTree) -> Result<Broken<B>> {
        match kind {
            Break::KvSplit => Ok(Broken::KvSplit),
            Break::KSplit => {
                let tree = LinearTree { k_split: head.k_split + 1, ..head };
                let tensor = if self.config.tied { Tensor::Embedding } else { Tensor::Head };
                Ok(Broken::KSplit(self.weight(tree, &[tensor], false)?))
            }
        }
    }

    /// Frees the buffer, which the embedding has made far larger than any layer needs.
    fn release(&mut self) {
        self.weight = Vec::new();
    }

    fn digest(&self) -> blake3::Hash {
        match &self.digest {
            Digest::Known(digest) => *digest,
            Digest::Hashed(hasher) => hasher.finalize(),
        }
    }
}

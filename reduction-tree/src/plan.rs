//! The plan: one tree for each operator of a model, and the digest that names all of its bits.
//!
//! A plan is computed from the model's shape and an arithmetic alone. Two runs whose plans have one digest, on the same
//! weights and input, give the same bits; so the plan's digest is the determinism domain that a receipt records.

use std::collections::HashMap;
use std::fmt::Write;

use crate::arithmetic::Arithmetic;
use crate::operator::{AttentionTree, Epilogue, LinearTree, LogSumExpTree, RmsNormTree, RopePairing, Store};
use crate::tree::build::{self, QkvTree};
use crate::tree::{Digest, Tree};

/// What the trees of a dense decoder depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub q_heads: usize,
    /// Key/value heads; divides `q_heads`.
    pub kv_heads: usize,
    /// Elements of a head; a multiple of 16.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Vocabulary entries.
    pub vocab: usize,
    /// Epsilon of every norm.
    pub eps: f32,
    /// The QKV projection has a bias (Qwen2).
    pub qkv_bias: bool,
    /// Queries and keys are normed per head (Qwen3).
    pub qk_norm: bool,
    /// Which elements of a head rotate together.
    pub pairing: RopePairing,
    /// `[layers]` the sliding window of each layer, if it has one.
    pub windows: Vec<Option<usize>>,
}

/// One tree for each operator.
#[derive(Clone, Debug)]
pub struct Plan {
    arithmetic: Arithmetic,
    operators: Vec<(String, Tree, Digest)>,
    data: Vec<(String, Digest)>,
}

impl Plan {
    /// A plan without operators.
    pub fn new(arithmetic: Arithmetic) -> Self {
        Self { arithmetic, operators: vec![], data: vec![] }
    }

    /// The plan of a dense decoder. Operators that all layers share occur once; attention occurs once for each layer,
    /// since its window may differ.
    pub fn of_model(shape: &ModelShape, arithmetic: Arithmetic) -> Self {
        let linear = |n, k, epilogue, store| {
            LinearTree { n, k, k_split: LinearTree::k_split_for(n, k), epilogue, store }.tree(arithmetic)
        };
        let norm = RmsNormTree { d: shape.hidden, eps: shape.eps };
        let qkv = QkvTree {
            q_heads: shape.q_heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            qk_norm: shape.qk_norm.then_some(RmsNormTree { d: shape.head_dim, eps: shape.eps }),
            pairing: shape.pairing,
        };
        let qkv_width = (shape.q_heads + 2 * shape.kv_heads) * shape.head_dim;
        let qkv_epilogue = if shape.qkv_bias { Epilogue::Bias } else { Epilogue::None };
        let mut plan = Self::new(arithmetic);
        plan.add("embed", build::embed());
        plan.add("norm", norm.tree());
        plan.add("qkv", linear(qkv_width, shape.hidden, qkv_epilogue, Store::Bf16));
        plan.add("query", qkv.q());
        plan.add("key", qkv.k());
        plan.add("value", qkv.v());
        let mut attention: HashMap<Option<usize>, Tree> = HashMap::new();
        for (layer, window) in shape.windows.iter().enumerate() {
            let group = shape.q_heads / shape.kv_heads.max(1);
            let tree = attention.entry(*window);
            let tree = tree.or_insert_with(|| AttentionTree::of(shape.head_dim, *window).tree(arithmetic, group));
            plan.add(&format!("attention {layer}"), tree.clone());
        }
        plan.add("output", linear(shape.hidden, shape.q_heads * shape.head_dim, Epilogue::Residual, Store::Bf16));
        plan.add("gate-up", linear(2 * shape.ffn, shape.hidden, Epilogue::SiluMul, Store::Bf16));
        plan.add("down", linear(shape.hidden, shape.ffn, Epilogue::Residual, Store::Bf16));
        plan.add("head", linear(shape.vocab, shape.hidden, Epilogue::None, Store::F32));
        plan.add("log-sum-exp", LogSumExpTree { n: shape.vocab }.tree());
        plan.add("argmax", build::argmax(shape.vocab));
        plan
    }

    /// Adds an operator. Names are for readers, but they are part of the plan.
    pub fn add(&mut self, name: &str, tree: Tree) {
        let digest = tree.digest();
        self.operators.push((name.to_owned(), tree, digest));
    }

    /// Adds data that the bits depend on beside weights and input, such as the RoPE tables.
    pub fn add_data(&mut self, name: &str, digest: Digest) {
        self.data.push((name.to_owned(), digest));
    }

    /// The rounding of every chain.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Name, tree and digest of every operator, in the order in which they were added.
    pub fn operators(&self) -> impl Iterator<Item = (&str, &Tree, Digest)> {
        self.operators.iter().map(|(name, tree, digest)| (name.as_str(), tree, *digest))
    }

    /// The canonical text: arithmetic, then a line for each operator and each piece of data.
    pub fn text(&self) -> String {
        let mut text = format!("plan 1\narithmetic {}\n", self.arithmetic.name());
        for (name, _, digest) in &self.operators {
            let _ = writeln!(text, "operator {name:?} {digest}");
        }
        for (name, digest) in &self.data {
            let _ = writeln!(text, "data {name:?} {digest}");
        }
        text
    }

    /// BLAKE3 of [`Plan::text`]: the determinism domain.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.text())
    }
}

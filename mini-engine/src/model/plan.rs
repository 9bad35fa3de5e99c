//! The plan: one reduction tree for each operator of a model, computed from weight shapes alone, and its digest.

use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, LogSumExpTree, RmsNormTree, RopePairing, Store};
use reduction_tree::tree::Digest;
use reduction_tree::tree::build::{QkvTree, argmax, embed};

use super::config::Config;
use super::rope::RopeTables;

/// The trees of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerPlan {
    /// Norm before attention.
    pub attention_norm: RmsNormTree,
    /// Fused q, k and v projection.
    pub qkv: LinearTree,
    /// Per-head norm of q and k.
    pub qk_norm: Option<RmsNormTree>,
    /// Attention.
    pub attention: AttentionTree,
    /// Output projection, added to the residual.
    pub o: LinearTree,
    /// Norm before the feed-forward layer.
    pub ffn_norm: RmsNormTree,
    /// Fused gate and up projection.
    pub gate_up: LinearTree,
    /// Down projection, added to the residual.
    pub down: LinearTree,
}

/// One tree per operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rounding of every matrix product.
    pub arithmetic: Arithmetic,
    /// `[layers]` trees.
    pub layers: Vec<LayerPlan>,
    /// Norm before the LM head.
    pub final_norm: RmsNormTree,
    /// LM head.
    pub head: LinearTree,
    /// Which elements of a head rotate together.
    pub pairing: RopePairing,
    /// Digest of the cosine and sine tables.
    rope: Digest,
    q_heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// One operator of a plan, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Such as `qkv` or `attention`.
    pub name: &'static str,
    /// Layers that it runs in; `None` where it stands outside the layers.
    pub layers: Option<std::ops::Range<usize>>,
    /// Digest of its tree.
    pub digest: Digest,
}

impl Plan {
    /// The plan of a model under an arithmetic. `tables` are hashed in.
    pub fn new(config: &Config, arithmetic: Arithmetic, tables: &RopeTables) -> Self {
        let norm = RmsNormTree { d: config.hidden, eps: config.eps };
        let linear = |n: usize, k: usize, epilogue, store| LinearTree {
            n,
            k,
            k_split: LinearTree::k_split_for(n, k),
            epilogue,
            store,
        };
        let layers = config
            .windows
            .iter()
            .map(|window| LayerPlan {
                attention_norm: norm,
                qkv: linear(
                    config.qkv_rows(),
                    config.hidden,
                    if config.qkv_bias { Epilogue::Bias } else { Epilogue::None },
                    Store::Bf16,
                ),
                qk_norm: config.qk_norm.then_some(RmsNormTree { d: config.head_dim, eps: config.eps }),
                attention: AttentionTree::of(config.head_dim, *window),
                o: linear(config.hidden, config.q_heads * config.head_dim, Epilogue::Residual, Store::Bf16),
                ffn_norm: norm,
                gate_up: linear(2 * config.ffn, config.hidden, Epilogue::SiluMul, Store::Bf16),
                down: linear(config.hidden, config.ffn, Epilogue::Residual, Store::Bf16),
            })
            .collect();
        Self {
            arithmetic,
            layers,
            final_norm: norm,
            head: linear(config.vocab, config.hidden, Epilogue::None, Store::F32),
            pairing: config.rope.pairing,
            rope: tables.digest(),
            q_heads: config.q_heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        }
    }

    /// The operators in the order that they run, each with the layers that share its tree.
    pub fn operators(&self) -> Vec<Operator> {
        let outside = |name, digest| Operator { name, layers: None, digest };
        let mut operators = vec![outside("embed", embed().digest()), outside("rope tables", self.rope)];
        let mut start = 0;
        for layers in self.layers.chunk_by(|a, b| a == b) {
            let range = start..start + layers.len();
            start = range.end;
            let inside = |(name, digest)| Operator { name, layers: Some(range.clone()), digest };
            operators.extend(self.layer_digests(&layers[0]).into_iter().map(inside));
        }
        operators.push(outside("final norm", self.final_norm.tree().digest()));
        operators.push(outside("head", self.head.tree(self.arithmetic).digest()));
        operators.push(outside("argmax", argmax(self.head.n).digest()));
        operators.push(outside("log-sum-exp", LogSumExpTree { n: self.head.n }.tree().digest()));
        operators
    }

    fn layer_digests(&self, layer: &LayerPlan) -> Vec<(&'static str, Digest)> {
        let (arithmetic, group) = (self.arithmetic, self.q_heads / self.kv_heads);
        let (q_heads, kv_heads, head_dim) = (self.q_heads, self.kv_heads, self.head_dim);
        let heads = QkvTree { q_heads, kv_heads, head_dim, qk_norm: layer.qk_norm, pairing: self.pairing };
        vec![
            ("attention norm", layer.attention_norm.tree().digest()),
            ("qkv", layer.qkv.tree(arithmetic).digest()),
            ("query", heads.q().digest()),
            ("key", heads.k().digest()),
            ("value", heads.v().digest()),
            ("attention", layer.attention.tree(arithmetic, group).digest()),
            ("o", layer.o.tree(arithmetic).digest()),
            ("ffn norm", layer.ffn_norm.tree().digest()),
            ("gate up", layer.gate_up.tree(arithmetic).digest()),
            ("down", layer.down.tree(arithmetic).digest()),
        ]
    }

    /// One operator a line: layers, name, digest of its tree.
    pub fn canonical_text(&self) -> String {
        let mut text = format!("sametree plan 1\narithmetic {:?}\n", self.arithmetic);
        for Operator { name, layers, digest } in self.operators() {
            let layers = layers.map_or("-".to_owned(), |layers| format!("{}..{}", layers.start, layers.end));
            text += &format!("{layers} {name} {digest}\n");
        }
        text
    }

    /// BLAKE3 of the canonical text: the determinism domain.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.canonical_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Family, Tiny};

    fn digest(arithmetic: Arithmetic, change: impl Fn(&mut Config)) -> Digest {
        let mut config = Tiny::new(Family::Llama, 0).config;
        change(&mut config);
        Plan::new(&config, arithmetic, &RopeTables::new(&config)).digest()
    }

    #[test]
    fn whatever_changes_the_bits_changes_the_digest() {
        let plain = digest(Arithmetic::Sm90, |_| ());
        assert_eq!(plain, digest(Arithmetic::Sm90, |config| config.eos = vec![1]));
        let changed = [
            digest(Arithmetic::Sm80, |_| ()),
            digest(Arithmetic::Sm90, |config| config.eps = 1e-6),
            digest(Arithmetic::Sm90, |config| config.rope.theta = 5e5),
            digest(Arithmetic::Sm90, |config| config.rope.pairing = RopePairing::Interleaved),
            digest(Arithmetic::Sm90, |config| config.kv_heads = 2),
            digest(Arithmetic::Sm90, |config| config.windows[1] = Some(100)),
            digest(Arithmetic::Sm90, |config| config.ffn = 256),
        ];
        for (index, digest) in changed.iter().enumerate() {
            assert_ne!(plain, *digest, "change {index}");
        }
    }
}

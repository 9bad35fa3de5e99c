//! The plan: one reduction tree for each operator of a model, computed from weight shapes alone, and its digest.

use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, RmsNormTree, RopePairing, Store};

use super::config::Config;
use super::rope::RopeTables;

/// Tokens of one attention split: short enough that one long sequence fills a GPU, long enough that merging costs nothing.
pub const KV_SPLIT: usize = 256;
/// Tokens of one online-softmax tile.
pub const KV_TILE: usize = 64;
const _: () = assert!(
    KV_SPLIT.is_multiple_of(KV_TILE) && KV_TILE.is_multiple_of(16),
    "a split is whole tiles, a tile whole k16 steps"
);

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
    /// [layers] trees.
    pub layers: Vec<LayerPlan>,
    /// Norm before the LM head.
    pub final_norm: RmsNormTree,
    /// LM head.
    pub head: LinearTree,
    /// Which elements of a head rotate together.
    pub pairing: RopePairing,
    rope: [u8; 32],
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
                attention: AttentionTree {
                    head_dim: config.head_dim,
                    kv_split: KV_SPLIT,
                    kv_tile: KV_TILE,
                    scale_log2: (std::f64::consts::LOG2_E / libm::sqrt(config.head_dim as f64)) as f32,
                    window: *window,
                },
                o: linear(config.hidden, config.q_heads * config.head_dim, Epilogue::Residual, Store::Bf16),
                ffn_norm: norm,
                gate_up: linear(2 * config.ffn, config.hidden, Epilogue::SiluMul, Store::Bf16),
                down: linear(config.hidden, config.ffn, Epilogue::Residual, Store::Bf16),
            })
            .collect();
        let mut hasher = blake3::Hasher::new();
        for value in tables.cos.iter().chain(&tables.sin) {
            hasher.update(&value.to_bits().to_le_bytes());
        }
        Self {
            arithmetic,
            layers,
            final_norm: norm,
            head: linear(config.vocab, config.hidden, Epilogue::None, Store::F32),
            pairing: config.rope.pairing,
            rope: hasher.finalize().into(),
        }
    }

    /// BLAKE3 of the plan's canonical text: the determinism domain.
    pub fn digest(&self) -> [u8; 32] {
        blake3::hash(format!("{self:?}").as_bytes()).into()
    }
}

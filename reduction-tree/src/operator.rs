//! The parameters that name the tree of each operator. Everything here is computed from weight shapes alone; nothing
//! about a batch may enter.

use std::ops::Range;

/// What happens to the f32 sum of a linear layer before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Stored as it is.
    None,
    /// `sum + bias[n]` in f32.
    Bias,
    /// `sum + f32(residual[m, n])` in f32.
    Residual,
    /// Weight rows `0..n/2` are the gate g, rows `n/2..n` the up projection u; output j is `silu(g_j) * u_j`, in f32.
    SiluMul,
}

/// Type of a stored output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// Rounded to nearest even to bfloat16.
    Bf16,
    /// Stored as binary32.
    F32,
}

/// y = x Wᵀ with x [m, k] and W `[n, k]` in bfloat16.
///
/// K is cut into `k_split` contiguous chunks. Each chunk is one chain of k16 steps from +0 (the last step is padded
/// with +0 products). Chunks are added left to right in f32 (round to nearest even), starting with the first; a chunk
/// that would start at or beyond K does not exist. Then the epilogue, then the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearTree {
    /// Weight rows (before `SiluMul` halves them).
    pub n: usize,
    /// Reduction length.
    pub k: usize,
    /// Number of chunks.
    pub k_split: usize,
    /// Applied to the f32 sum.
    pub epilogue: Epilogue,
    /// Type of the output.
    pub store: Store,
}

impl LinearTree {
    /// The chunk count that a plan uses: a function of the weight shape alone. Two chunks where one would leave a
    /// decode step with too few blocks to stream the weights (measured on an H200, DESIGN 7).
    pub fn k_split_for(n: usize, k: usize) -> usize {
        if n <= 8192 && k >= 1024 { 2 } else { 1 }
    }

    /// Elements of K in every chunk but the last: a multiple of 64, so that no k16 step straddles two chunks.
    pub fn chunk_len(&self) -> usize {
        self.k.div_ceil(self.k_split).div_ceil(64) * 64
    }

    /// The ranges of K that are chunks, in order; none is empty.
    pub fn chunks(&self) -> impl Iterator<Item = Range<usize>> {
        let (k, len) = (self.k, self.chunk_len().max(1));
        (0..k.div_ceil(len)).map(move |i| i * len..k.min((i + 1) * len))
    }

    /// Elements of an output row.
    pub fn outputs(&self) -> usize {
        if self.epilogue == Epilogue::SiluMul { self.n / 2 } else { self.n }
    }
}

/// Causal attention of one query row over the KV cells of its own prefix, by absolute position (DESIGN 4.3).
///
/// The state of a row in a split is `(c, l[8], acc[head_dim])`, from `(-inf, 0, 0)`: the scaled running maximum, eight
/// lanes of the denominator, the weighted values. Per tile of `kv_tile` tokens, with `s_j` the chain of k16 steps over
/// the head dimension (a masked j is not in the maximum, has `p_j = +0`, and its V counts as +0):
///
/// 1. `c' = max(c, max_j(s_j) * scale_log2)`, the maximum ignoring NaN; `alpha = exp2(c - c')`;
/// 2. `p_j = exp2(fma(s_j, scale_log2, -c'))`;
/// 3. `l[g] = l[g] * alpha`, then for each k16 step i of the tile in order `l[g] = l[g] + (p[16i+g] + p[16i+g+8])`;
/// 4. `acc = acc * alpha`, continued by k16 steps over the tile's tokens with `bf16(p_j)` and V.
///
/// A tile that is wholly masked for the row leaves its state untouched. At the end of a split
/// `l = ((l0+l1)+(l2+l3)) + ((l4+l5)+(l6+l7))`. The first split that the row sees is the total `(C, L, A)`; every later
/// one is merged left to right:
///
/// * `c' = max(C, c)`, `a = exp2(C - c')`, `b = exp2(c - c')`;
/// * `L = fma(l, b, L*a)`, `A = fma(acc, b, A*a)`.
///
/// The output is `A * (1 / L)`, rounded to bfloat16.
///
/// The lanes follow the accumulator layout of the tensor core, so that no kernel moves a value between threads to add
/// it: `wgmma` and `mma.sync` hold tokens 2t and 2t+1 of every eight in one thread, and with the operands swapped token
/// g.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionTree {
    /// Elements of one head; a multiple of 16.
    pub head_dim: usize,
    /// Tokens of one split; a multiple of `kv_tile`.
    pub kv_split: usize,
    /// Tokens of one online-softmax tile; a multiple of 16.
    pub kv_tile: usize,
    /// Multiplies the scores, with log2(e) folded in: softmax is computed with exp2.
    pub scale_log2: f32,
    /// Only the last `window` positions (the row's own included) are seen, if given.
    pub window: Option<usize>,
}

impl AttentionTree {
    /// Tokens of one online-softmax tile in a plan.
    pub const KV_TILE: usize = 128;
    /// Tokens of one split in a plan: 8192 tokens of 8 KV heads then make 128 blocks for the 132 processors of an H200,
    /// and a prefill merges only once in four tiles.
    pub const KV_SPLIT: usize = 512;
}

const _: () = assert!(
    AttentionTree::KV_SPLIT.is_multiple_of(AttentionTree::KV_TILE) && AttentionTree::KV_TILE.is_multiple_of(16),
    "a split is whole tiles, a tile whole k16 steps"
);

impl AttentionTree {
    /// The tree that a plan uses for heads of `head_dim` elements: scores are divided by sqrt(head_dim).
    pub fn of(head_dim: usize, window: Option<usize>) -> Self {
        let scale_log2 = (std::f64::consts::LOG2_E / libm::sqrt(head_dim as f64)) as f32;
        Self { head_dim, kv_split: Self::KV_SPLIT, kv_tile: Self::KV_TILE, scale_log2, window }
    }

    /// The positions that the row at `position` sees.
    pub fn seen(&self, position: usize) -> Range<usize> {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))..position + 1
    }
}

/// Root-mean-square normalisation of a row: `x * (1 / sqrt(mean(x²) + eps)) * weight`.
///
/// The sum of squares has 256 lanes: element i belongs to lane `(i / 8) mod 256`, each lane is one chain
/// `acc = fma(x, x, acc)` in ascending i, and lanes are added as a pairwise tree of neighbours. Then
/// `r = 1 / sqrt(sum / d + eps)` and `y = (x * r) * weight`, rounded to bfloat16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormTree {
    /// Row length.
    pub d: usize,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNormTree {
    /// Chains of the sum of squares.
    pub const LANES: usize = 256;
    /// Adjacent elements of one chain: the bfloat16 values of a 16-byte load.
    pub const VECTOR: usize = 8;
}

/// ln(Σ exp(x_i)) of a row of binary32 logits.
///
/// 1. `m` is the largest logit, NaN ignored, starting from -infinity.
/// 2. The row is cut into chunks of 16384 elements. In a chunk, element i belongs to lane `i mod 1024`; each lane is
///    one chain `acc = acc + exp2((x_i - m) * LOG2_E)` from +0 in ascending i; the 1024 lanes (those without an element
///    are +0) are added as a pairwise tree of neighbours.
/// 3. `s` is the sum of the chunks, left to right, starting with the first; the result is `m + ln(s)`.
///
/// A NaN logit has no weight, since exp2 of NaN is +0. The maximum comes first, in a pass of its own, because it needs
/// no order; chunks let several blocks share one long row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogSumExpTree {
    /// Row length.
    pub n: usize,
}

impl LogSumExpTree {
    /// Elements of a chunk: a 128k vocabulary makes eight.
    pub const CHUNK: usize = 16384;
    /// Chains of a chunk: 256 threads with 16-byte loads.
    pub const LANES: usize = 1024;
}

/// How one row's token is chosen; the procedure is in [`evaluate::sample`](crate::evaluate::sample).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleParams {
    /// 0 means greedy: the lowest index among the largest logits.
    pub temperature: f32,
    /// Keep logits not below the k-th largest; `None` keeps all.
    pub top_k: Option<u32>,
    /// Keep the smallest set of largest probabilities whose sum reaches this (ties with its last value included); 1
    /// keeps all.
    pub top_p: f32,
    /// Keep probabilities of at least this fraction of the largest; 0 keeps all.
    pub min_p: f32,
    /// Key of the noise.
    pub seed: u64,
    /// Absolute position of the token to be chosen: the counter of the noise.
    pub position: u32,
}

/// A chosen token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Vocabulary index.
    pub token: u32,
    /// Its log-probability under the unmodified logits: `(logit - m) - ln(s)` with m and s of [`LogSumExpTree`].
    pub logprob: f32,
}

/// Which elements of a head RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// (i, i + d/2), as Hugging Face stores it.
    Half,
    /// (2i, 2i + 1), as GGUF stores Llama.
    Interleaved,
}

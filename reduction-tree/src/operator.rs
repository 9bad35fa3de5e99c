//! The parameters that name the tree of each operator. Everything here is computed from weight shapes alone; nothing
//! about a batch may enter.

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

/// y = x Wᵀ with x [m, k] and W [n, k] in bfloat16.
///
/// K is cut into `k_split` contiguous chunks. Each chunk is one chain of k16 steps from +0 (the last step is padded with
/// +0 products). Chunks are added left to right in f32 (round to nearest even), then the epilogue, then the store.
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
    /// The chunk count that a plan uses: a function of the weight shape alone. Two chunks where one would leave a decode
    /// step with too few blocks to stream the weights (measured on an H200, DESIGN 7).
    pub fn k_split_for(n: usize, k: usize) -> usize {
        if n <= 8192 && k >= 1024 { 2 } else { 1 }
    }

    /// Elements of K in every chunk but the last: a multiple of 64, so that no k16 step straddles two chunks.
    pub fn chunk_len(&self) -> usize {
        self.k.div_ceil(self.k_split).div_ceil(64) * 64
    }
}

/// Causal attention of one query row over the KV cells of its own prefix, by absolute position (DESIGN 4.3).
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

/// Root-mean-square normalisation of a row: `x * (1 / sqrt(mean(x²) + eps)) * weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormTree {
    /// Row length.
    pub d: usize,
    /// Added to the mean square.
    pub eps: f32,
}

/// Which elements of a head RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// (i, i + d/2), as Hugging Face stores it.
    Half,
    /// (2i, 2i + 1), as GGUF stores Llama.
    Interleaved,
}

//! The interface that every backend implements, and the plain data that crosses it.
//!
//! A backend owns its memory. All operators work on whole rows; no operator lets one row's bits depend on another row.

use half::bf16;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{AttentionTree, LinearTree, RmsNormTree, RopePairing};

/// Why a backend refused or failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: expected {expected}, got {got}")]
pub struct Error {
    operation: &'static str,
    expected: String,
    got: String,
}

impl Error {
    /// An operation's refusal, with what it wanted and what it was given.
    pub fn new(operation: &'static str, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self { operation, expected: expected.into(), got: got.into() }
    }
}

/// Result of a backend call.
pub type Result<T> = std::result::Result<T, Error>;

/// Types that live in a backend's buffers.
pub trait Element: bytemuck::Pod + Default + Send + Sync {}
impl Element for bf16 {}
impl Element for f32 {}
impl Element for u32 {}

/// Shape of a paged KV pool: `pages` pages of `page_tokens` slots in each of `layers` layers. Slot s lies in page
/// s / page_tokens. Any page size works; attention reads pages of a multiple of 16 tokens without copying. head_dim is a
/// multiple of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Transformer layers.
    pub layers: usize,
    /// Physical pages a layer.
    pub pages: usize,
    /// Tokens a page.
    pub page_tokens: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Where the rows of one step sit: rows of one sequence are adjacent and ascend in position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRows {
    /// `[rows]` input tokens.
    pub tokens: Vec<u32>,
    /// `[rows]` absolute positions.
    pub positions: Vec<u32>,
    /// `[rows]` physical slots that the row's K and V are written to; distinct.
    pub slots: Vec<u32>,
    /// `[rows]` index into `tables`.
    pub sequences: Vec<u32>,
    /// Block tables: physical pages of each sequence, in order.
    pub tables: Vec<Vec<u32>>,
    /// (row, sample): rows whose token is not in `tokens` but is the one that the step before chose for that sample.
    pub taken: Vec<(u32, u32)>,
}

/// The rows whose logits a step computes, and how a token is chosen from the first of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wanted<'a> {
    /// Indices into the step's rows.
    pub rows: &'a [u32],
    /// At most as many as rows.
    pub samples: &'a [SampleParams],
}

/// What the fused QKV stage needs beside its input: [rows, (q_heads + 2 kv_heads) * head_dim] in, q [rows, q_heads *
/// head_dim] out, K and V into the pool.
pub struct QkvParams<'a, B: Backend + ?Sized> {
    /// Query heads.
    pub q_heads: usize,
    #[allow(clippy::type_complexity)]
    /// Weights `[head_dim]` and tree of the per-head norm of q and k (Qwen3), applied before RoPE.
    pub qk_norm: Option<(&'a B::Buffer<bf16>, &'a B::Buffer<bf16>, RmsNormTree)>,
    /// [positions, head_dim / 2] cosine table.
    pub cos: &'a B::Buffer<f32>,
    /// [positions, head_dim / 2] sine table.
    pub sin: &'a B::Buffer<f32>,
    /// Which elements rotate together.
    pub pairing: RopePairing,
}

pub use crate::random::RandomTensor;
pub use reduction_tree::operator::{SampleParams, Sampled};

/// Most tensors that a random weight is made of.
pub const RANDOM_PARTS_MAX: usize = 3;

/// Refuses parts that do not make up the weight.
pub fn check_random_parts(tree: &LinearTree, parts: &[(RandomTensor, usize)]) -> Result<()> {
    let rows = parts.iter().try_fold(0usize, |sum, (_, rows)| sum.checked_add(*rows));
    let alike = |tensor: &RandomTensor| {
        let first = parts[0].0;
        tensor.offset == 0.0 && (tensor.seed, tensor.spread) == (first.seed, first.spread)
    };
    let fits = (1..=RANDOM_PARTS_MAX).contains(&parts.len()) && rows == Some(tree.n);
    if fits && parts.iter().all(|(tensor, _)| alike(tensor)) {
        return Ok(());
    }
    let expected =
        format!("up to {RANDOM_PARTS_MAX} tensors of {} rows together, of offset 0, one seed and one spread", tree.n);
    Err(Error::new("random_weight", expected, format!("{parts:?}")))
}

/// The operators. Every output element has the bits that the evaluator of `reduction-tree` gives.
pub trait Backend: Send + Sync + 'static {
    /// Device memory holding `T`s.
    type Buffer<T: Element>: Send + Sync;
    /// A weight matrix in the layout this backend reads fastest.
    type Linear: Send + Sync;
    /// The paged KV memory of all layers.
    type KvPool: Send;
    /// `StepRows` checked and laid out for the kernels of one step.
    type Step: Send;
    /// What the steps of one engine share: memory, and launches that are replayed.
    type Replays: Send;
    /// What [`Backend::read_later`] will have read.
    type Reading: Send;

    /// One word for reports, such as `cpu-avx512`.
    fn name(&self) -> String;
    /// The arithmetic of every matrix product.
    fn arithmetic(&self) -> Arithmetic;

    /// A zeroed buffer of `len` elements.
    fn alloc<T: Element>(&self, len: usize) -> Result<Self::Buffer<T>>;
    /// A buffer with a copy of `host`.
    fn upload<T: Element>(&self, host: &[T]) -> Result<Self::Buffer<T>>;
    /// Overwrites the first elements of a buffer, in its place.
    fn write<T: Element>(&self, host: &[T], buffer: &mut Self::Buffer<T>) -> Result<()>;
    /// The first `len` elements of a buffer.
    fn download<T: Element>(&self, buffer: &Self::Buffer<T>, len: usize) -> Result<Vec<T>>;
    /// Whether launches return before they are done, so that the host can prepare one step while another runs.
    fn runs_apart(&self) -> bool {
        false
    }
    /// Begins to read the first elements of some buffers as everything launched so far leaves them; what is launched later may
    /// overwrite them.
    fn read_later(
        &self,
        words: &[(&Self::Buffer<u32>, usize)],
        floats: Option<(&Self::Buffer<f32>, usize)>,
    ) -> Result<Self::Reading>;
    /// Waits for what [`Backend::read_later`] began: the words of each buffer, and the floats.
    fn read(&self, reading: Self::Reading) -> Result<(Vec<Vec<u32>>, Vec<f32>)>;
    /// Makes the first `len` words of a buffer 0, after everything launched so far.
    fn clear(&self, buffer: &mut Self::Buffer<u32>, len: usize) -> Result<()>;
    /// A weight [n, k], row-major, and its bias `[n]` where the tree has one, for `linear` and `embed`.
    fn linear_weight(&self, tree: LinearTree, weight: &[bf16], bias: Option<&[bf16]>) -> Result<Self::Linear>;
    /// The same for a weight whose rows are random tensors, one after another: at most three, each with its number of rows.
    /// They have offset 0, one seed and one spread, and are made where the weight lives.
    fn random_weight(
        &self,
        tree: LinearTree,
        parts: &[(RandomTensor, usize)],
        bias: Option<&[bf16]>,
    ) -> Result<Self::Linear>;
    /// Bytes of memory that new buffers could take now; `None` where the machine does not say.
    fn free_bytes(&self) -> Result<Option<u64>>;
    /// Bytes that a pool of this shape takes.
    fn kv_bytes(&self, shape: KvShape) -> Result<u64>;
    /// A zeroed pool.
    fn kv_pool(&self, shape: KvShape) -> Result<Self::KvPool>;
    /// Overwrites every KV cell with `value`; for tests that show that stale memory is never read.
    fn kv_fill(&self, pool: &mut Self::KvPool, value: bf16) -> Result<()>;
    /// Checks the rows of a step against the pool's shape and prepares them.
    fn step(&self, rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Self::Step>;

    /// Rows that operators compute for a step of `rows` rows in [`Backend::step_in`]: at least as many, and no fewer for more.
    /// Buffers must have room for them.
    fn padded_rows(&self, rows: usize) -> usize {
        rows
    }
    /// Nothing shared or recorded yet. `group` is the number of query heads a KV head; without `record` every step is launched
    /// anew.
    fn replays(&self, group: usize, record: bool) -> Self::Replays;
    /// Whether [`Backend::launch`] ever repeats launches.
    fn can_replay(&self) -> bool {
        false
    }
    /// Steps that were replayed so far.
    fn replayed(&self, replays: &Self::Replays) -> u64;
    /// [`Backend::step`] in shared memory; everything on the step before it must have been launched. May have rows of its own added, which write and read
    /// no cell of the pool's pages.
    fn step_in(
        &self,
        replays: &mut Self::Replays,
        rows: &StepRows,
        wanted: &Wanted<'_>,
        shape: KvShape,
    ) -> Result<Self::Step>;
    /// Gives the step the tokens that [`StepRows::taken`] names, from what [`Backend::sample_wanted`] wrote in the step before.
    /// Between [`Backend::step_in`] and [`Backend::launch`].
    fn take_tokens(&self, step: &mut Self::Step, chosen: &Self::Buffer<u32>) -> Result<()>;
    /// Rows of a step, its own added ones included: what operators are called with.
    fn step_rows(&self, step: &Self::Step) -> usize;
    /// Wanted rows of a step, likewise.
    fn step_wanted(&self, step: &Self::Step) -> usize;
    /// Rows of which a token is chosen, likewise.
    fn step_samples(&self, step: &Self::Step) -> usize;
    /// Calls `operators`, which call operators of this backend on one step and allocate, upload and download nothing. A backend
    /// may instead repeat what they launched for an earlier step of the same class, so they must always work on the same pool,
    /// weights and buffers. No other thread may use the backend meanwhile.
    fn launch(
        &self,
        _replays: &mut Self::Replays,
        _step: &Self::Step,
        operators: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        operators()
    }

    /// out [rows, k] = row `tokens[i]` of the weight.
    fn embed(&self, table: &Self::Linear, step: &Self::Step, out: &mut Self::Buffer<bf16>) -> Result<()>;
    /// Makes the rows of x [rows, d] whose token is `token` NaN: how tests make a request fault.
    fn poison(&self, step: &Self::Step, token: u32, d: usize, x: &mut Self::Buffer<bf16>) -> Result<()>;
    /// out [rows, d] = rmsnorm(x [rows, d]) * weight `[d]`.
    fn rmsnorm(
        &self,
        tree: RmsNormTree,
        rows: usize,
        x: &Self::Buffer<bf16>,
        weight: &Self::Buffer<bf16>,
        out: &mut Self::Buffer<bf16>,
    ) -> Result<()>;
    /// out `[len]` = x + residual, each rounded to bf16.
    fn residual_add(
        &self,
        len: usize,
        x: &Self::Buffer<bf16>,
        residual: &Self::Buffer<bf16>,
        out: &mut Self::Buffer<bf16>,
    ) -> Result<()>;
    /// sum [rows, d] = x + residual and out [rows, d] = rmsnorm(sum) * weight `[d]`: the bits of [`Backend::residual_add`] and
    /// [`Backend::rmsnorm`], which a backend may give in one pass.
    #[allow(clippy::too_many_arguments)]
    fn add_rmsnorm(
        &self,
        tree: RmsNormTree,
        rows: usize,
        x: &Self::Buffer<bf16>,
        residual: &Self::Buffer<bf16>,
        weight: &Self::Buffer<bf16>,
        sum: &mut Self::Buffer<bf16>,
        out: &mut Self::Buffer<bf16>,
    ) -> Result<()> {
        let elements = rows.checked_mul(tree.d);
        let elements = elements
            .ok_or_else(|| Error::new("add_rmsnorm", "an addressable length", format!("{rows} x {}", tree.d)))?;
        self.residual_add(elements, x, residual, sum)?;
        self.rmsnorm(tree, rows, sum, weight, out)
    }
    /// out [rows, n or n/2] in bf16; the tree is the weight's. `residual` [rows, n] exactly when the epilogue is `Residual`.
    fn linear(
        &self,
        weight: &Self::Linear,
        rows: usize,
        x: &Self::Buffer<bf16>,
        residual: Option<&Self::Buffer<bf16>>,
        out: &mut Self::Buffer<bf16>,
    ) -> Result<()>;
    /// The same for a tree that stores f32 (the LM head).
    fn linear_f32(
        &self,
        weight: &Self::Linear,
        rows: usize,
        x: &Self::Buffer<bf16>,
        out: &mut Self::Buffer<f32>,
    ) -> Result<()>;
    /// Splits qkv, norms and rotates q and k, writes K and V to the step's slots of `layer`. A non-finite K or V value is
    /// stored as +0 and sets `faults[row]` to 1.
    #[allow(clippy::too_many_arguments)]
    fn qkv(
        &self,
        params: &QkvParams<'_, Self>,
        step: &Self::Step,
        qkv: &Self::Buffer<bf16>,
        pool: &mut Self::KvPool,
        layer: usize,
        q: &mut Self::Buffer<bf16>,
        faults: &mut Self::Buffer<u32>,
    ) -> Result<()>;
    /// out [rows, q_heads * head_dim]: each row attends to positions 0..=its own through its sequence's table.
    /// Only cells of the row's own prefix reach its bits; each must have been written by [`Backend::qkv`] in this step or an
    /// earlier one (what a cell never written gives is not defined, since no finite value is promised for it).
    #[allow(clippy::too_many_arguments)]
    fn attention(
        &self,
        tree: AttentionTree,
        q_heads: usize,
        step: &Self::Step,
        q: &Self::Buffer<bf16>,
        pool: &Self::KvPool,
        layer: usize,
        out: &mut Self::Buffer<bf16>,
    ) -> Result<()>;
    /// out [wanted, d] = the wanted rows of x [rows, d].
    fn gather_wanted(
        &self,
        d: usize,
        step: &Self::Step,
        x: &Self::Buffer<bf16>,
        out: &mut Self::Buffer<bf16>,
    ) -> Result<()>;
    /// One token for each of the step's `samples`, from the first rows of logits [_, vocab]: chosen [2, samples] becomes the
    /// tokens, then the bits of their log-probabilities.
    fn sample_wanted(
        &self,
        vocab: usize,
        step: &Self::Step,
        logits: &Self::Buffer<f32>,
        chosen: &mut Self::Buffer<u32>,
    ) -> Result<()>;
    /// One token a row of logits [rows, vocab], at once.
    fn sample(&self, vocab: usize, logits: &Self::Buffer<f32>, params: &[SampleParams]) -> Result<Vec<Sampled>>;
}

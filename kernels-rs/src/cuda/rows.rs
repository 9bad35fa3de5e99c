//! Operators on whole rows: rmsnorm, residual addition, gather, embedding, the fused QKV stage, fill and sampling.

use kernels_cuda::params::{GatherParams, QkvStageParams, RmsNormParams, SampleParamsGpu, SampleRow};
use reduction_tree::operator::{LogSumExpTree, RmsNormTree};

use super::device::Device;
use super::launch::{Grid, size};
use crate::backend::{Error, Result};

mod kernels {
    //! The kernels of `rows.cu` and their launches.
    use super::{Device, GatherParams, Grid, QkvStageParams, Result, RmsNormParams};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/rows.cu";
        /// Lanes of a row's sum of squares.
        constant LANES = "../kernels-cuda/kernels/rows.cu";
        /// Elements of a lane's vector.
        constant VECTOR = "../kernels-cuda/kernels/rows.cu";
        /// Vectors that a thread of the vectorised norm keeps in registers.
        constant VECTORS_MAX = "../kernels-cuda/kernels/rows.cu";
        /// Heads that one thread of the QKV stage works on.
        constant HEADS_A_THREAD = "../kernels-cuda/kernels/rows.cu";
        /// Rows of whole vectors.
        kernel RmsNormVector = rmsnorm_vector(p: RmsNormParams) {
            tree = "rmsnorm: {LANES} lanes of {VECTOR}, neighbours";
            threads = LANES;
            sizes(rows);
            grid = rows;
        }
        /// Rows of any length.
        kernel RmsNormAny = rmsnorm_any(p: RmsNormParams) {
            tree = "rmsnorm: {LANES} lanes of {VECTOR}, neighbours";
            threads = LANES;
            sizes(rows);
            grid = rows;
        }
        /// A residual is added to rows of whole vectors first.
        kernel AddRmsNormVector = add_rmsnorm_vector(p: RmsNormParams) {
            tree = "residual addition, rmsnorm: {LANES} lanes of {VECTOR}, neighbours";
            threads = LANES;
            sizes(rows);
            grid = rows;
        }
        /// A residual is added to rows of any length first.
        kernel AddRmsNormAny = add_rmsnorm_any(p: RmsNormParams) {
            tree = "residual addition, rmsnorm: {LANES} lanes of {VECTOR}, neighbours";
            threads = LANES;
            sizes(rows);
            grid = rows;
        }
        /// One addition an element.
        kernel ResidualAdd = residual_add(a: u64, b: u64, out: u64, count: usize) {
            tree = "residual addition";
            threads = 256;
            sizes(elements);
            grid = max(1, min(ceil(elements, 256 * VECTOR), 4096));
        }
        /// Rows by index.
        kernel Gather = gather_rows(p: GatherParams) {
            tree = "none: rows are copied";
            threads = 256;
            sizes(rows);
            grid = rows;
        }
        /// Every element of a range.
        kernel Fill = fill_bf16(out: u64, count: usize, value: u32) {
            tree = "none: one value";
            threads = 256;
            sizes(elements);
            grid = min(ceil(elements, 256), 4096);
        }
        /// Tokens of the step before.
        kernel Take = take_tokens(tokens: u64, pairs: u64, chosen: u64, count: u32) {
            tree = "none: words are copied";
            threads = 256;
            sizes(pairs);
            grid = ceil(pairs, 256);
        }
        /// Rows by token, for tests.
        kernel Poison = poison_rows(tokens: u64, token: u32, x: u64, d: u32) {
            tree = "none: one value";
            threads = 256;
            sizes(rows);
            grid = rows;
        }
        /// Norm and rotation of heads, and the write of the cache: head_dim / 16 threads a head.
        kernel Qkv = qkv_stage(p: QkvStageParams) {
            tree = "rmsnorm of a head: {LANES} lanes of {VECTOR}, neighbours; one rotation";
            threads = 256;
            sizes(heads, head_dim);
            grid = ceil(heads, HEADS_A_THREAD * (256 / (head_dim / 16)));
        }
    }
}
use kernels::{
    AddRmsNormAny, AddRmsNormAnySizes, AddRmsNormVector, AddRmsNormVectorSizes, Fill, FillSizes, Gather, GatherSizes,
    Poison, PoisonSizes, Qkv, QkvSizes, ResidualAdd, ResidualAddSizes, RmsNormAny, RmsNormAnySizes, RmsNormVector,
    RmsNormVectorSizes, Take, TakeSizes,
};

const _: () = assert!(
    kernels::LANES as usize == RmsNormTree::LANES && kernels::VECTOR as usize == RmsNormTree::VECTOR,
    "the lanes of rows.cu are those of the tree"
);

mod sampler {
    //! The kernel of `sample.cu` and its launch.
    use super::{Device, Grid, Result, SampleParamsGpu};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/sample.cu";
        /// Logits of a chunk of the log-sum-exp.
        constant CHUNK = "../kernels-cuda/kernels/sample.cu";
        /// Lanes of a chunk.
        constant THREADS = "../kernels-cuda/kernels/sample.cu";
        /// One token a row.
        kernel Sample = sample_rows(p: SampleParamsGpu) {
            tree = "log-sum-exp: chunks of {CHUNK}, {THREADS} lanes, neighbours, chunks left to right";
            threads = THREADS;
            sizes(rows);
            grid = rows;
        }
    }
}
use sampler::{Sample, SampleSizes};

const _: () = assert!(
    sampler::CHUNK as usize == LogSumExpTree::CHUNK && sampler::THREADS as usize == LogSumExpTree::LANES,
    "the chunks and lanes of sample.cu are those of the tree"
);

/// Longest row that the vectorised norm keeps in registers.
const VECTOR_ELEMENTS_MAX: usize = (kernels::LANES * kernels::VECTOR * kernels::VECTORS_MAX) as usize;

/// Device addresses of a norm's operands.
pub struct NormOperands {
    /// [rows, d]
    pub x: u64,
    /// Residual [rows, d] that is added to x first, and where the sum goes; or nothing.
    pub add: Option<(u64, u64)>,
    /// `[d]`
    pub weight: u64,
    /// [rows, d]
    pub out: u64,
}

/// out [rows, d] = rmsnorm(x), or of x + residual.
///
/// # Safety
/// The addresses hold what [`NormOperands`] says, on this device.
pub unsafe fn rmsnorm(
    device: &Device,
    operation: &'static str,
    tree: RmsNormTree,
    rows: usize,
    operands: &NormOperands,
) -> Result<()> {
    if tree.d == 0 {
        return Err(Error::new(operation, "d above 0", "0"));
    }
    let (residual, sum) = operands.add.unwrap_or((0, 0));
    let p = RmsNormParams {
        x: operands.x as *const u16,
        weight: operands.weight as *const u16,
        out: operands.out as *mut u16,
        residual: residual as *const u16,
        sum: sum as *mut u16,
        rows: size(operation, "rows", rows)?,
        d: size(operation, "d", tree.d)?,
        eps: tree.eps,
    };
    let vector = tree.d.is_multiple_of(kernels::VECTOR as usize) && tree.d <= VECTOR_ELEMENTS_MAX;
    // SAFETY: the caller vouches for the addresses.
    unsafe {
        match (operands.add.is_some(), vector) {
            (false, true) => RmsNormVector::RMSNORM_VECTOR.launch(device, operation, RmsNormVectorSizes { rows }, &p),
            (false, false) => RmsNormAny::RMSNORM_ANY.launch(device, operation, RmsNormAnySizes { rows }, &p),
            (true, true) => {
                AddRmsNormVector::ADD_RMSNORM_VECTOR.launch(device, operation, AddRmsNormVectorSizes { rows }, &p)
            }
            (true, false) => AddRmsNormAny::ADD_RMSNORM_ANY.launch(device, operation, AddRmsNormAnySizes { rows }, &p),
        }
    }
}

/// out = a + b, `count` elements.
///
/// # Safety
/// The addresses hold `count` elements each.
pub unsafe fn residual_add(device: &Device, count: usize, a: u64, b: u64, out: u64) -> Result<()> {
    let sizes = ResidualAddSizes { elements: count };
    // SAFETY: the caller vouches for the addresses.
    unsafe { ResidualAdd::RESIDUAL_ADD.launch(device, "residual_add", sizes, &a, &b, &out, &count) }
}

/// Fills `count` elements with one value.
///
/// # Safety
/// `out` holds `count` elements.
pub unsafe fn fill(device: &Device, operation: &'static str, out: u64, count: usize, value: u16) -> Result<()> {
    let sizes = FillSizes { elements: count };
    // SAFETY: the caller vouches for the address.
    unsafe { Fill::FILL_BF16.launch(device, operation, sizes, &out, &count, &u32::from(value)) }
}

/// out [rows, d] = rows `index` [rows] of a table with `pitch` elements a row.
///
/// # Safety
/// Every index lies within the table; `out` holds rows x d elements.
#[allow(clippy::too_many_arguments)]
pub unsafe fn gather(
    device: &Device,
    operation: &'static str,
    table: u64,
    pitch: usize,
    index: u64,
    rows: usize,
    d: usize,
    out: u64,
) -> Result<()> {
    let p = GatherParams {
        table: table as *const u16,
        index: index as *const u32,
        out: out as *mut u16,
        rows: size(operation, "rows", rows)?,
        d: size(operation, "d", d)?,
        table_pitch: size(operation, "pitch", pitch)?,
    };
    // SAFETY: the caller vouches for the addresses.
    unsafe { Gather::GATHER_ROWS.launch(device, operation, GatherSizes { rows }, &p) }
}

/// tokens[row] = chosen[sample] for each of `count` pairs (row, sample).
///
/// # Safety
/// The addresses hold `count` pairs, and the words that these name.
pub unsafe fn take_tokens(device: &Device, tokens: u64, pairs: u64, chosen: u64, count: usize) -> Result<()> {
    const OP: &str = "take_tokens";
    let sizes = TakeSizes { pairs: count };
    // SAFETY: the caller vouches for the addresses.
    unsafe { Take::TAKE_TOKENS.launch(device, OP, sizes, &tokens, &pairs, &chosen, &size(OP, "pairs", count)?) }
}

/// Makes the rows of x [rows, d] whose token is `token` NaN.
///
/// # Safety
/// `tokens` holds `rows` words, `x` rows x d elements.
pub unsafe fn poison(
    device: &Device,
    operation: &'static str,
    tokens: u64,
    token: u32,
    rows: usize,
    d: usize,
    x: u64,
) -> Result<()> {
    let sizes = PoisonSizes { rows };
    // SAFETY: the caller vouches for the addresses.
    unsafe { Poison::POISON_ROWS.launch(device, operation, sizes, &tokens, &token, &x, &size(operation, "d", d)?) }
}

/// Launches the fused QKV stage.
///
/// # Safety
/// The parameters' addresses hold what `params.h` says.
pub unsafe fn qkv(device: &Device, p: &QkvStageParams) -> Result<()> {
    const OP: &str = "qkv";
    let heads = (p.q_heads as usize + 2 * p.kv.kv_heads as usize).checked_mul(p.rows as usize);
    let heads = heads.ok_or_else(|| Error::new(OP, "heads of all rows below 2^31", "an overflow"))?;
    // The kernel numbers them in 32 bits.
    size(OP, "heads of all rows", heads)?;
    let sizes = QkvSizes { heads, head_dim: p.kv.head_dim as usize };
    // SAFETY: the caller vouches for the addresses.
    unsafe { Qkv::QKV_STAGE.launch(device, OP, sizes, p) }
}

/// Chooses a token for each of `count` rows of logits: chosen [2, count] becomes the tokens, then the bits of their
/// log-probabilities.
///
/// # Safety
/// `logits` holds count x vocab values, `rows` count `SampleRow`s, `chosen` 2 x count words.
pub unsafe fn sample(
    device: &Device,
    operation: &'static str,
    vocab: usize,
    logits: u64,
    rows: u64,
    count: usize,
    chosen: u64,
) -> Result<()> {
    if vocab == 0 {
        return Err(Error::new(operation, "a vocabulary above 0", "0"));
    }
    let p = SampleParamsGpu {
        logits: logits as *const f32,
        rows: rows as *const SampleRow,
        token: chosen as *mut u32,
        logprob: (chosen + 4 * count as u64) as *mut f32,
        row_count: size(operation, "rows", count)?,
        vocab: size(operation, "vocab", vocab)?,
    };
    // SAFETY: the caller vouches for the addresses.
    unsafe { Sample::SAMPLE_ROWS.launch(device, operation, SampleSizes { rows: count }, &p) }
}

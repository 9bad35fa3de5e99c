//! The CUDA backend: one GPU, one stream, kernels of `kernels-cuda`.
//!
//! Every operator checks its shapes on the host and refuses before it launches. Launches are asynchronous; a failure of the
//! device surfaces at the next operator or download. No choice made here can reach a bit of a result.

mod attention;
mod device;
mod graph;
pub mod instructions;
mod kv;
mod landing;
mod launch;
mod linear;
mod replays;
mod rows;
mod step;

use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::CudaSlice;
use half::bf16;
use kernels_cuda::params::QkvStageParams;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, RmsNormTree, RopePairing, Store};

pub use attention::Paths;
use device::{Device, driver};
pub use graph::Graph;
pub use kv::KvPool;
pub use landing::Reading;
use launch::size;
pub use linear::LinearWeight;
pub use replays::Replays;
pub use step::Step;

use crate::backend::{
    Backend, Element, Error, KvShape, QkvParams, RandomTensor, Result, SampleParams, Sampled, StepRows, Wanted,
    check_random_parts,
};

/// The CUDA backend.
pub struct Cuda {
    device: Device,
    paths: Paths,
}

/// Device memory holding `T`s.
pub struct Buffer<T> {
    memory: Arc<CudaSlice<u8>>,
    len: usize,
    element: PhantomData<T>,
}

impl Cuda {
    /// A backend on GPU `ordinal`. Errors say what is missing: a build with nvcc, the driver, or a card of compute
    /// capability 8.0 or later.
    pub fn new(ordinal: usize) -> Result<Self> {
        Ok(Self { device: Device::open(ordinal)?, paths: Paths::Fastest })
    }

    /// A backend that uses the portable attention kernels on any card.
    pub fn portable(ordinal: usize) -> Result<Self> {
        Ok(Self { device: Device::open(ordinal)?, paths: Paths::Portable })
    }

    /// A backend that never looks at the number of rows: each linear layer by its kernel for many rows, attention by the prefill
    /// kernel. What it gives has the same bits; it shows what choosing among variants of one tree is worth.
    pub fn one_variant(ordinal: usize) -> Result<Self> {
        let mut device = Device::open(ordinal)?;
        device.one_variant = true;
        Ok(Self { device, paths: Paths::Fastest })
    }

    /// The card's name.
    pub fn card(&self) -> &str {
        &self.device.label
    }

    /// Names of the kernels that can compute `weight` for `rows` tokens; the first is the one that [`Backend::linear`] takes.
    pub fn linear_variants(&self, weight: &LinearWeight, rows: usize) -> Vec<&'static str> {
        weight.variants(&self.device, rows)
    }

    /// [`Backend::linear`] by the variant of that name, or an error if it does not fit.
    pub fn linear_by(
        &self,
        variant: &str,
        weight: &LinearWeight,
        rows: usize,
        x: &Buffer<bf16>,
        residual: Option<&Buffer<bf16>>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        self.run_linear(weight, rows, x, residual, Store::Bf16, out, Some(variant))
    }

    /// [`Backend::linear_f32`] by the variant of that name.
    pub fn linear_f32_by(
        &self,
        variant: &str,
        weight: &LinearWeight,
        rows: usize,
        x: &Buffer<bf16>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        self.run_linear(weight, rows, x, None, Store::F32, out, Some(variant))
    }

    /// The card runs the kernels that use wgmma.
    pub fn linear_has_wgmma(&self) -> bool {
        self.device.hopper
    }

    /// Waits until everything launched so far is done.
    pub fn synchronize(&self) -> Result<()> {
        self.device.stream.synchronize().map_err(driver("synchronize"))
    }

    /// The stream that everything is launched on, for measurements of other libraries beside this one.
    pub fn stream(&self) -> &Arc<cudarc::driver::CudaStream> {
        &self.device.stream
    }

    /// Device address of a buffer, valid while it lives and for work on [`Self::stream`].
    pub fn address<T: Element>(&self, buffer: &Buffer<T>) -> u64 {
        self.at(buffer)
    }

    fn at<T>(&self, buffer: &Buffer<T>) -> u64 {
        self.device.address(&buffer.memory)
    }

    #[allow(clippy::too_many_arguments)]
    fn run_linear<T: Element>(
        &self,
        weight: &LinearWeight,
        rows: usize,
        x: &Buffer<bf16>,
        residual: Option<&Buffer<bf16>>,
        store: Store,
        out: &mut Buffer<T>,
        forced: Option<&str>,
    ) -> Result<()> {
        const OP: &str = "linear";
        let tree = &weight.tree;
        if tree.store != store {
            return Err(Error::new(OP, format!("a weight whose tree stores {store:?}"), format!("{:?}", tree.store)));
        }
        if residual.is_some() != (tree.epilogue == Epilogue::Residual) {
            let got = if residual.is_some() { "a residual" } else { "none" };
            return Err(Error::new(OP, format!("the residual that {:?} asks for", tree.epilogue), got));
        }
        check_len(OP, "x", x.len, rows, tree.k)?;
        check_len(OP, "out", out.len, rows, tree.outputs())?;
        if let Some(residual) = residual {
            check_len(OP, "residual", residual.len, rows, tree.n)?;
        }
        let residual = residual.map_or(0, |r| self.at(r));
        // SAFETY: the lengths were checked, and all buffers are this backend's.
        unsafe { weight.run(&self.device, rows, self.at(x), residual, self.at(out), forced) }
    }
}

/// Refuses a buffer of fewer than `rows * width` elements.
fn check_len(operation: &'static str, what: &str, len: usize, rows: usize, width: usize) -> Result<()> {
    if rows.checked_mul(width).is_some_and(|wanted| wanted <= len) {
        return Ok(());
    }
    Err(Error::new(operation, format!("{what} of at least {rows} x {width} elements"), format!("{len} elements")))
}

impl Backend for Cuda {
    type Buffer<T: Element> = Buffer<T>;
    type Linear = LinearWeight;
    type KvPool = KvPool;
    type Step = Step;
    type Replays = Replays;
    type Reading = Reading;

    fn name(&self) -> String {
        format!("cuda-sm{}", self.device.capability)
    }

    fn arithmetic(&self) -> Arithmetic {
        if self.device.capability < 90 { Arithmetic::Sm80 } else { Arithmetic::Sm90 }
    }

    fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::new("alloc", "an addressable length", len.to_string()))?;
        let memory = self.device.stream.alloc_zeros(bytes.max(16)).map_err(driver("alloc"))?;
        Ok(Buffer { memory: Arc::new(memory), len, element: PhantomData })
    }

    fn upload<T: Element>(&self, host: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(host.len())?;
        self.write(host, &mut buffer)?;
        Ok(buffer)
    }

    fn write<T: Element>(&self, host: &[T], buffer: &mut Buffer<T>) -> Result<()> {
        check_len("write", "a buffer", buffer.len, host.len(), 1)?;
        // SAFETY: the length was checked.
        unsafe { self.device.write("write", self.at(buffer), host) }
    }

    fn download<T: Element>(&self, buffer: &Buffer<T>, len: usize) -> Result<Vec<T>> {
        check_len("download", "a buffer", buffer.len, len, 1)?;
        let mut host = vec![T::default(); len];
        if len > 0 {
            let view = buffer.memory.slice(..len * size_of::<T>());
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut host);
            self.device.stream.memcpy_dtoh(&view, bytes).map_err(driver("download"))?;
        }
        self.device.stream.synchronize().map_err(driver("download"))?;
        Ok(host)
    }

    fn runs_apart(&self) -> bool {
        true
    }

    fn read_later(&self, words: &[(&Buffer<u32>, usize)], floats: Option<(&Buffer<f32>, usize)>) -> Result<Reading> {
        const OP: &str = "read_later";
        for (buffer, len) in words {
            check_len(OP, "a buffer", buffer.len, *len, 1)?;
        }
        if let Some((buffer, len)) = floats {
            check_len(OP, "a buffer", buffer.len, len, 1)?;
        }
        let words = words.iter().map(|(buffer, len)| (self.at(buffer), *len));
        let floats = floats.map_or((0, 0), |(buffer, len)| (self.at(buffer), len));
        let parts: Vec<(u64, usize)> = words.chain([floats]).collect();
        // SAFETY: the lengths were checked, and all buffers are this backend's.
        unsafe { self.device.read_later(OP, &parts) }
    }

    fn read(&self, reading: Reading) -> Result<(Vec<Vec<u32>>, Vec<f32>)> {
        let mut words = self.device.read("read", reading)?;
        let floats = words.pop().unwrap_or_default();
        Ok((words, bytemuck::allocation::cast_vec(floats)))
    }

    fn clear(&self, buffer: &mut Buffer<u32>, len: usize) -> Result<()> {
        const OP: &str = "clear";
        check_len(OP, "a buffer", buffer.len, len, 1)?;
        self.device.context.bind_to_thread().map_err(driver(OP))?;
        let stream = self.device.stream.cu_stream();
        // SAFETY: the length was checked, and the buffer is this backend's.
        unsafe { cudarc::driver::result::memset_d8_async(self.at(buffer), 0, 4 * len, stream) }.map_err(driver(OP))
    }

    fn linear_weight(&self, tree: LinearTree, weight: &[bf16], bias: Option<&[bf16]>) -> Result<LinearWeight> {
        LinearWeight::new(&self.device, tree, weight, bias)
    }

    fn random_weight(
        &self,
        tree: LinearTree,
        parts: &[(RandomTensor, usize)],
        bias: Option<&[bf16]>,
    ) -> Result<LinearWeight> {
        check_random_parts(&tree, parts)?;
        LinearWeight::random(&self.device, tree, parts, bias)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.device.context.bind_to_thread().map_err(driver("free_bytes"))?;
        let (free, _) = cudarc::driver::result::mem_get_info().map_err(driver("free_bytes"))?;
        Ok(Some(free as u64))
    }

    fn kv_bytes(&self, shape: KvShape) -> Result<u64> {
        let (_, total) = kv::elements(&shape)?;
        Ok(2 * total as u64)
    }

    fn kv_pool(&self, shape: KvShape) -> Result<KvPool> {
        KvPool::new(&self.device, shape)
    }

    fn kv_fill(&self, pool: &mut KvPool, value: bf16) -> Result<()> {
        const OP: &str = "kv_fill";
        let (out, count) = (self.device.address(&pool.memory), pool.memory.len());
        // SAFETY: the pool holds `count` elements.
        unsafe { rows::fill(&self.device, OP, out, count, value.to_bits()) }
    }

    fn step(&self, rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Step> {
        Step::new(&self.device, rows, wanted, shape)
    }

    fn padded_rows(&self, rows: usize) -> usize {
        step::padded_rows(rows)
    }

    fn replays(&self, group: usize, record: bool) -> Replays {
        Replays::new(group, record)
    }

    fn can_replay(&self) -> bool {
        true
    }

    fn replayed(&self, replays: &Replays) -> u64 {
        replays.replayed()
    }

    fn step_in(&self, replays: &mut Replays, rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Step> {
        replays.step(&self.device, rows, wanted, shape)
    }

    fn take_tokens(&self, step: &mut Step, chosen: &Buffer<u32>) -> Result<()> {
        const OP: &str = "take_tokens";
        let taken = &step.checked.rows.taken;
        if let Some((_, sample)) = taken.iter().find(|(_, sample)| *sample as usize >= chosen.len) {
            return Err(Error::new(OP, format!("samples below {}", chosen.len), sample.to_string()));
        }
        let (tokens, pairs) = (step.tokens(&self.device), step.taken(&self.device));
        // SAFETY: the step's rows and the samples exist, and the step holds the pairs.
        unsafe { rows::take_tokens(&self.device, tokens, pairs, self.at(chosen), taken.len()) }
    }

    fn step_rows(&self, step: &Step) -> usize {
        step.rows()
    }

    fn step_wanted(&self, step: &Step) -> usize {
        step.wanted()
    }

    fn step_samples(&self, step: &Step) -> usize {
        step.samples()
    }

    fn launch(&self, replays: &mut Replays, step: &Step, operators: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        replays.launch(&self.device, step, operators)
    }

    fn embed(&self, table: &LinearWeight, step: &Step, out: &mut Buffer<bf16>) -> Result<()> {
        const OP: &str = "embed";
        let (rows, tree) = (step.rows(), &table.tree);
        if tree.epilogue == Epilogue::SiluMul {
            return Err(Error::new(OP, "a table whose rows are in order", "a SiluMul weight"));
        }
        if let Some(token) = step.checked.rows.tokens.iter().find(|&&t| t as usize >= tree.n) {
            return Err(Error::new(OP, format!("tokens below {}", tree.n), token.to_string()));
        }
        check_len(OP, "out", out.len, rows, tree.k)?;
        let (from, index) = (table.address(&self.device), step.tokens(&self.device));
        // SAFETY: tokens lie within the table and `out` holds the rows, both checked above.
        unsafe { rows::gather(&self.device, OP, from, table.pitch as usize, index, rows, tree.k, self.at(out)) }
    }

    fn poison(&self, step: &Step, token: u32, d: usize, x: &mut Buffer<bf16>) -> Result<()> {
        const OP: &str = "poison";
        check_len(OP, "x", x.len, step.rows(), d)?;
        // SAFETY: the step has a token for each row, and `x` holds the rows.
        unsafe { rows::poison(&self.device, OP, step.tokens(&self.device), token, step.rows(), d, self.at(x)) }
    }

    fn rmsnorm(
        &self,
        tree: RmsNormTree,
        rows: usize,
        x: &Buffer<bf16>,
        weight: &Buffer<bf16>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        const OP: &str = "rmsnorm";
        check_len(OP, "x", x.len, rows, tree.d)?;
        check_len(OP, "weight", weight.len, 1, tree.d)?;
        check_len(OP, "out", out.len, rows, tree.d)?;
        let operands = rows::NormOperands { x: self.at(x), add: None, weight: self.at(weight), out: self.at(out) };
        // SAFETY: the lengths were checked, and all buffers are this backend's.
        unsafe { rows::rmsnorm(&self.device, OP, tree, rows, &operands) }
    }

    fn residual_add(
        &self,
        len: usize,
        x: &Buffer<bf16>,
        residual: &Buffer<bf16>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        const OP: &str = "residual_add";
        check_len(OP, "x", x.len, len, 1)?;
        check_len(OP, "residual", residual.len, len, 1)?;
        check_len(OP, "out", out.len, len, 1)?;
        // SAFETY: the lengths were checked, and all buffers are this backend's.
        unsafe { rows::residual_add(&self.device, len, self.at(x), self.at(residual), self.at(out)) }
    }

    fn add_rmsnorm(
        &self,
        tree: RmsNormTree,
        rows: usize,
        x: &Buffer<bf16>,
        residual: &Buffer<bf16>,
        weight: &Buffer<bf16>,
        sum: &mut Buffer<bf16>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        const OP: &str = "add_rmsnorm";
        check_len(OP, "x", x.len, rows, tree.d)?;
        check_len(OP, "residual", residual.len, rows, tree.d)?;
        check_len(OP, "weight", weight.len, 1, tree.d)?;
        check_len(OP, "sum", sum.len, rows, tree.d)?;
        check_len(OP, "out", out.len, rows, tree.d)?;
        let add = Some((self.at(residual), self.at(sum)));
        let operands = rows::NormOperands { x: self.at(x), add, weight: self.at(weight), out: self.at(out) };
        // SAFETY: the lengths were checked, and all buffers are this backend's.
        unsafe { rows::rmsnorm(&self.device, OP, tree, rows, &operands) }
    }

    fn linear(
        &self,
        weight: &LinearWeight,
        rows: usize,
        x: &Buffer<bf16>,
        residual: Option<&Buffer<bf16>>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        self.run_linear(weight, rows, x, residual, Store::Bf16, out, None)
    }

    fn linear_f32(&self, weight: &LinearWeight, rows: usize, x: &Buffer<bf16>, out: &mut Buffer<f32>) -> Result<()> {
        self.run_linear(weight, rows, x, None, Store::F32, out, None)
    }

    fn qkv(
        &self,
        params: &QkvParams<'_, Self>,
        step: &Step,
        qkv: &Buffer<bf16>,
        pool: &mut KvPool,
        layer: usize,
        q: &mut Buffer<bf16>,
        faults: &mut Buffer<u32>,
    ) -> Result<()> {
        const OP: &str = "qkv";
        let (rows, shape) = (step.rows(), pool.shape);
        let (d, heads) = (shape.head_dim, params.q_heads.saturating_add(2 * shape.kv_heads));
        if step.checked.shape != shape {
            return Err(Error::new(OP, format!("a step for {shape:?}"), format!("one for {:?}", step.checked.shape)));
        }
        check_len(OP, "qkv", qkv.len, rows, heads.saturating_mul(d))?;
        check_len(OP, "q", q.len, rows, params.q_heads.saturating_mul(d))?;
        check_len(OP, "faults", faults.len, rows, 1)?;
        let last = step.checked.rows.positions.iter().max().map_or(0, |&p| p as usize + 1);
        check_len(OP, "cos", params.cos.len, last, d / 2)?;
        check_len(OP, "sin", params.sin.len, last, d / 2)?;
        if let Some((qw, kw, tree)) = params.qk_norm {
            check_len(OP, "q norm weight", qw.len, 1, d)?;
            check_len(OP, "k norm weight", kw.len, 1, d)?;
            if tree.d != d {
                return Err(Error::new(OP, format!("a norm over head_dim {d}"), tree.d.to_string()));
            }
        }
        let eps = params.qk_norm.map_or(0.0, |(_, _, tree)| tree.eps);
        let p = QkvStageParams {
            qkv: self.at(qkv) as *const u16,
            q: self.at(q) as *mut u16,
            q_weight: params.qk_norm.map_or(0, |(w, _, _)| self.at(w)) as *const u16,
            k_weight: params.qk_norm.map_or(0, |(_, w, _)| self.at(w)) as *const u16,
            cos: self.at(params.cos) as *const f32,
            sin: self.at(params.sin) as *const f32,
            positions: step.positions(&self.device) as *const u32,
            slots: step.slots(&self.device) as *const u32,
            faults: self.at(faults) as *mut u32,
            kv: pool.layer(&self.device, OP, layer)?,
            rows: size(OP, "rows", rows)?,
            q_heads: size(OP, "q_heads", params.q_heads)?,
            interleaved: u32::from(params.pairing == RopePairing::Interleaved),
            eps_q: eps,
            eps_k: eps,
        };
        // SAFETY: lengths, positions and the layer were checked; slots were checked against the pool's shape by the step.
        unsafe { rows::qkv(&self.device, &p) }
    }

    fn attention(
        &self,
        tree: AttentionTree,
        q_heads: usize,
        step: &Step,
        q: &Buffer<bf16>,
        pool: &KvPool,
        layer: usize,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        const OP: &str = "attention";
        let width = q_heads.saturating_mul(tree.head_dim);
        check_len(OP, "q", q.len, step.rows(), width)?;
        check_len(OP, "out", out.len, step.rows(), width)?;
        let (q, out) = (self.at(q), self.at(out));
        // SAFETY: the lengths were checked, and both buffers are this backend's.
        unsafe { attention::attention(&self.device, self.paths, &tree, q_heads, step, q, pool, layer, out) }
    }

    fn gather_wanted(&self, d: usize, step: &Step, x: &Buffer<bf16>, out: &mut Buffer<bf16>) -> Result<()> {
        const OP: &str = "gather_wanted";
        check_len(OP, "x", x.len, step.rows(), d)?;
        check_len(OP, "out", out.len, step.wanted(), d)?;
        let index = step.wanted_rows(&self.device);
        // SAFETY: the step's wanted rows exist, and both buffers hold theirs.
        unsafe { rows::gather(&self.device, OP, self.at(x), d, index, step.wanted(), d, self.at(out)) }
    }

    fn sample_wanted(&self, vocab: usize, step: &Step, logits: &Buffer<f32>, chosen: &mut Buffer<u32>) -> Result<()> {
        const OP: &str = "sample_wanted";
        check_len(OP, "logits", logits.len, step.samples(), vocab)?;
        check_len(OP, "chosen", chosen.len, 2, step.samples())?;
        let (rows, count) = (step.sample_rows(&self.device), step.samples());
        // SAFETY: the lengths were checked; the step holds parameters for so many rows.
        unsafe { rows::sample(&self.device, OP, vocab, self.at(logits), rows, count, self.at(chosen)) }
    }

    fn sample(&self, vocab: usize, logits: &Buffer<f32>, params: &[SampleParams]) -> Result<Vec<Sampled>> {
        const OP: &str = "sample";
        check_len(OP, "logits", logits.len, params.len(), vocab)?;
        let words: Vec<u32> = params.iter().flat_map(sample_words).collect();
        let (rows, chosen) = (self.upload(&words)?, self.alloc::<u32>(2 * params.len())?);
        let (from, to) = (self.at(&rows), self.at(&chosen));
        // SAFETY: the lengths were checked; `rows` holds the parameters and `chosen` has room for the results.
        unsafe { rows::sample(&self.device, OP, vocab, self.at(logits), from, params.len(), to)? };
        let chosen = self.download(&chosen, 2 * params.len())?;
        let (tokens, logprobs) = chosen.split_at(params.len());
        let sampled = |(&token, &bits)| Sampled { token, logprob: f32::from_bits(bits) };
        Ok(tokens.iter().zip(logprobs).map(sampled).collect())
    }
}

/// The words of a `SampleRow`.
fn sample_words(p: &SampleParams) -> [u32; 7] {
    [
        p.temperature.to_bits(),
        p.top_p.to_bits(),
        p.min_p.to_bits(),
        p.top_k.unwrap_or(0),
        p.seed as u32,
        (p.seed >> 32) as u32,
        p.position,
    ]
}

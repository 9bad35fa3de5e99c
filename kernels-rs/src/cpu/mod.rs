//! The CPU backend: any machine, any number of threads, one set of bits.

mod attention;
mod chain;
mod disjoint;
pub(crate) mod kv;
mod linear;
mod norm;
mod packed;
mod pool;
mod qkv;
mod rows;
mod sample;
mod simd;
#[cfg(test)]
mod testing;
mod tiles;

use crate::backend::{
    Backend, Element, Error, KvShape, QkvParams, RandomTensor, Result, SampleParams, Sampled, StepRows, Wanted,
    check_random_parts,
};
use half::bf16;
pub use kv::{KvPool, Step};
pub use linear::LinearWeight;
use pool::Pool;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{AttentionTree, LinearTree, RmsNormTree};
pub use simd::Simd;

/// The CPU backend.
pub struct Cpu {
    cx: Context,
}

/// Host memory holding `T`s.
pub struct Buffer<T>(Vec<T>);

impl Cpu {
    /// A backend with the fastest instruction set of this machine. `threads` of 0 means as many as the machine has; 1 means
    /// the caller's own.
    pub fn new(arithmetic: Arithmetic, threads: usize) -> Result<Self> {
        Self::with_simd(arithmetic, threads, Simd::detect())
    }

    /// A backend with a chosen instruction set, such as one of [`Simd::available`].
    pub fn with_simd(arithmetic: Arithmetic, threads: usize, simd: Simd) -> Result<Self> {
        Ok(Self { cx: Context { simd, arithmetic, pool: Pool::new(threads)? } })
    }

    /// Number of worker threads.
    pub fn threads(&self) -> usize {
        self.cx.pool.threads()
    }
}

impl Backend for Cpu {
    type Buffer<T: Element> = Buffer<T>;
    type Linear = LinearWeight;
    type KvPool = KvPool;
    type Step = Step;
    type Replays = ();
    type Reading = (Vec<Vec<u32>>, Vec<f32>);

    fn name(&self) -> String {
        format!("cpu-{}", self.cx.simd.name())
    }

    fn arithmetic(&self) -> Arithmetic {
        self.cx.arithmetic
    }

    fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        try_zeroed("alloc", len).map(Buffer)
    }

    fn upload<T: Element>(&self, host: &[T]) -> Result<Buffer<T>> {
        let mut buffer = try_zeroed("upload", host.len())?;
        buffer.copy_from_slice(host);
        Ok(Buffer(buffer))
    }

    fn write<T: Element>(&self, host: &[T], buffer: &mut Buffer<T>) -> Result<()> {
        check_len("write", "buffer", &mut buffer.0[..], host.len(), 1)?.copy_from_slice(host);
        Ok(())
    }

    fn download<T: Element>(&self, buffer: &Buffer<T>, len: usize) -> Result<Vec<T>> {
        check_len("download", "buffer", &buffer.0[..], len, 1).map(<[T]>::to_vec)
    }

    fn read_later(
        &self,
        words: &[(&Buffer<u32>, usize)],
        floats: Option<(&Buffer<f32>, usize)>,
    ) -> Result<Self::Reading> {
        let words: Result<_> = words.iter().map(|(buffer, len)| self.download(buffer, *len)).collect();
        Ok((words?, floats.map_or(Ok(Vec::new()), |(buffer, len)| self.download(buffer, len))?))
    }

    fn read(&self, reading: Self::Reading) -> Result<(Vec<Vec<u32>>, Vec<f32>)> {
        Ok(reading)
    }

    fn clear(&self, buffer: &mut Buffer<u32>, len: usize) -> Result<()> {
        check_len("clear", "buffer", &mut buffer.0[..], len, 1)?.fill(0);
        Ok(())
    }

    fn linear_weight(&self, tree: LinearTree, weight: &[bf16], bias: Option<&[bf16]>) -> Result<LinearWeight> {
        LinearWeight::new(&self.cx, tree, weight, bias)
    }

    fn random_weight(
        &self,
        tree: LinearTree,
        parts: &[(RandomTensor, usize)],
        bias: Option<&[bf16]>,
    ) -> Result<LinearWeight> {
        check_random_parts(&tree, parts)?;
        let elements = tree.n.checked_mul(tree.k);
        let elements =
            elements.ok_or_else(|| Error::new("random_weight", "an addressable weight", format!("{tree:?}")))?;
        let mut weight = try_zeroed("random_weight", elements)?;
        let mut rest = &mut weight[..];
        for (tensor, rows) in parts {
            let (part, after) = rest.split_at_mut(rows * tree.k);
            let mut rows: Vec<_> = part.chunks_mut(tree.k.max(1)).enumerate().collect();
            let fill = |(row, out): &mut (usize, &mut [bf16])| tensor.fill((*row * tree.k) as u64, out);
            self.cx.pool.each_mut(&mut rows, 16, fill);
            rest = after;
        }
        LinearWeight::new(&self.cx, tree, &weight, bias)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        // Other systems than Linux have no such file, and a user then names the size.
        let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return Ok(None) };
        let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
        Ok(available.and_then(|kib| kib.trim().parse::<u64>().ok()).and_then(|kib| kib.checked_mul(1024)))
    }

    fn kv_bytes(&self, shape: KvShape) -> Result<u64> {
        KvPool::bytes(shape)
    }

    fn kv_pool(&self, shape: KvShape) -> Result<KvPool> {
        KvPool::new(shape)
    }

    fn kv_fill(&self, pool: &mut KvPool, value: bf16) -> Result<()> {
        pool.fill(value);
        Ok(())
    }

    fn step(&self, rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Step> {
        Step::new(rows, wanted, shape)
    }

    fn replays(&self, _group: usize, _record: bool) {}

    fn replayed(&self, (): &()) -> u64 {
        0
    }

    fn step_in(&self, (): &mut (), rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Step> {
        Step::new(rows, wanted, shape)
    }

    fn take_tokens(&self, step: &mut Step, chosen: &Buffer<u32>) -> Result<()> {
        for &(row, sample) in &step.rows.taken {
            let token = chosen.0.get(sample as usize).copied();
            step.rows.tokens[row as usize] = token.ok_or_else(|| {
                Error::new("take_tokens", format!("samples below {}", chosen.0.len()), sample.to_string())
            })?;
        }
        Ok(())
    }

    fn step_rows(&self, step: &Step) -> usize {
        step.rows.tokens.len()
    }

    fn step_wanted(&self, step: &Step) -> usize {
        step.wanted.len()
    }

    fn step_samples(&self, step: &Step) -> usize {
        step.samples.len()
    }

    fn embed(&self, table: &LinearWeight, step: &Step, out: &mut Buffer<bf16>) -> Result<()> {
        table.embed(&self.cx, &step.rows.tokens, &mut out.0)
    }

    fn poison(&self, step: &Step, token: u32, d: usize, x: &mut Buffer<bf16>) -> Result<()> {
        let x = check_len("poison", "x", &mut x.0[..], step.rows.tokens.len(), d)?;
        let rows = x.chunks_mut(d.max(1)).zip(&step.rows.tokens);
        rows.filter(|(_, own)| **own == token).for_each(|(row, _)| row.fill(bf16::NAN));
        Ok(())
    }

    fn rmsnorm(
        &self,
        tree: RmsNormTree,
        rows: usize,
        x: &Buffer<bf16>,
        weight: &Buffer<bf16>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        norm::rmsnorm(&self.cx, &tree, rows, &x.0, &weight.0, &mut out.0)
    }

    fn residual_add(
        &self,
        len: usize,
        x: &Buffer<bf16>,
        residual: &Buffer<bf16>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        norm::residual_add(&self.cx, len, &x.0, &residual.0, &mut out.0)
    }

    fn linear(
        &self,
        weight: &LinearWeight,
        rows: usize,
        x: &Buffer<bf16>,
        residual: Option<&Buffer<bf16>>,
        out: &mut Buffer<bf16>,
    ) -> Result<()> {
        linear::linear(&self.cx, weight, rows, &x.0, residual.map(|r| &r.0[..]), &mut out.0)
    }

    fn linear_f32(&self, weight: &LinearWeight, rows: usize, x: &Buffer<bf16>, out: &mut Buffer<f32>) -> Result<()> {
        linear::linear(&self.cx, weight, rows, &x.0, None, &mut out.0)
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
        qkv::qkv(&self.cx, params, step, &qkv.0, pool, layer, &mut q.0, &mut faults.0)
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
        attention::attention(&self.cx, tree, q_heads, step, &q.0, pool, layer, &mut out.0)
    }

    fn gather_wanted(&self, d: usize, step: &Step, x: &Buffer<bf16>, out: &mut Buffer<bf16>) -> Result<()> {
        const OP: &str = "gather_wanted";
        let x = check_len(OP, "x", &x.0[..], step.rows.tokens.len(), d)?;
        let out = check_len(OP, "out", &mut out.0[..], step.wanted.len(), d)?;
        for (&index, out) in step.wanted.iter().zip(out.chunks_mut(d.max(1))) {
            out.copy_from_slice(&x[index as usize * d..(index as usize + 1) * d]);
        }
        Ok(())
    }

    fn sample_wanted(&self, vocab: usize, step: &Step, logits: &Buffer<f32>, chosen: &mut Buffer<u32>) -> Result<()> {
        let count = step.samples.len();
        let chosen = check_len("sample_wanted", "chosen", &mut chosen.0[..], 2, count)?;
        let (tokens, logprobs) = chosen.split_at_mut(count);
        let sampled = self.sample(vocab, logits, &step.samples)?;
        for ((sampled, token), logprob) in sampled.iter().zip(tokens).zip(logprobs) {
            (*token, *logprob) = (sampled.token, sampled.logprob.to_bits());
        }
        Ok(())
    }

    fn sample(&self, vocab: usize, logits: &Buffer<f32>, params: &[SampleParams]) -> Result<Vec<Sampled>> {
        sample::sample(&self.cx, vocab, &logits.0, params)
    }
}

/// What every kernel is told: how to compute and who does it.
pub(crate) struct Context {
    simd: Simd,
    arithmetic: Arithmetic,
    pool: Pool,
}

impl Context {
    #[cfg(test)]
    fn for_tests() -> Self {
        Self { simd: Simd::detect(), arithmetic: Arithmetic::Sm90, pool: Pool::new(1).expect("one thread") }
    }

    /// The arithmetic is one of the tensor-core models.
    fn fused(&self) -> bool {
        self.arithmetic != Arithmetic::Ieee
    }
}

/// A zeroed vector, or an error when memory is short.
fn try_zeroed<T: bytemuck::Zeroable>(operation: &'static str, len: usize) -> Result<Vec<T>> {
    let boxed = bytemuck::allocation::try_zeroed_slice_box(len);
    boxed.map(Vec::from).map_err(|()| {
        let bytes = len.saturating_mul(size_of::<T>());
        Error::new(operation, format!("{bytes} bytes of memory"), "an allocation failure")
    })
}

/// The first `rows * width` elements of a buffer.
fn check_len<B: SliceLike>(operation: &'static str, what: &str, buffer: B, rows: usize, width: usize) -> Result<B> {
    let wanted = rows.checked_mul(width).filter(|&wanted| wanted <= buffer.len());
    match wanted {
        Some(wanted) => Ok(buffer.first(wanted)),
        None => {
            let expected = format!("{what} of at least {rows} x {width} elements");
            Err(Error::new(operation, expected, format!("{} elements", buffer.len())))
        }
    }
}

/// A shared or an exclusive slice.
trait SliceLike {
    fn len(&self) -> usize;
    fn first(self, len: usize) -> Self;
}

impl<T> SliceLike for &[T] {
    fn len(&self) -> usize {
        <[T]>::len(self)
    }
    fn first(self, len: usize) -> Self {
        &self[..len]
    }
}

impl<T> SliceLike for &mut [T] {
    fn len(&self) -> usize {
        <[T]>::len(self)
    }
    fn first(self, len: usize) -> Self {
        &mut self[..len]
    }
}

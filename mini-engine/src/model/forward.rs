//! The forward pass of one step over any backend. Rows of different requests pass through together; no operator mixes
//! them.

use std::sync::Arc;

use half::bf16;
use kernels_rs::backend::{Backend, KvShape, QkvParams, StepRows};

use super::config::Config;
use super::error::{Error, Result};
use super::plan::{LayerPlan, Plan};

/// A model ready to run: weights in the backend's layout and one tree for each operator.
pub struct Model<B: Backend> {
    pub(super) backend: Arc<B>,
    pub(super) config: Config,
    pub(super) plan: Plan,
    pub(super) digest: blake3::Hash,
    pub(super) embedding: B::Linear,
    /// The LM head where it is not the embedding.
    pub(super) head: Option<B::Linear>,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) final_norm: B::Buffer<bf16>,
    pub(super) cos: B::Buffer<f32>,
    pub(super) sin: B::Buffer<f32>,
    pub(super) broken: Option<Broken<B>>,
}

/// Weights of one layer.
pub(super) struct Layer<B: Backend> {
    pub(super) attention_norm: B::Buffer<bf16>,
    pub(super) qkv: B::Linear,
    pub(super) qk_norm: Option<(B::Buffer<bf16>, B::Buffer<bf16>)>,
    pub(super) o: B::Linear,
    pub(super) ffn_norm: B::Buffer<bf16>,
    pub(super) gate_up: B::Linear,
    pub(super) down: B::Linear,
}

/// A deliberate dependence on the batch, for negative controls: a check that passes with it on checks nothing.
pub(super) enum Broken<B: Backend> {
    /// The last layer's down projection, with another chunk count, used when a step has more than one row.
    KSplit(B::Linear),
    /// Attention with other tiles when a step has more than one row.
    KvSplit,
}

/// The paged KV memory of a model.
pub struct KvPool<B: Backend> {
    inner: B::KvPool,
    shape: KvShape,
}

impl<B: Backend> KvPool<B> {
    /// Its shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// The backend's memory, for tests that fill it with garbage.
    pub fn inner_mut(&mut self) -> &mut B::KvPool {
        &mut self.inner
    }
}

/// Buffers that a forward pass writes; one for each engine, reused by every step.
pub struct Workspace<B: Backend> {
    rows_max: usize,
    sampled_max: usize,
    x: B::Buffer<bf16>,
    y: B::Buffer<bf16>,
    normed: B::Buffer<bf16>,
    qkv: B::Buffer<bf16>,
    q: B::Buffer<bf16>,
    attended: B::Buffer<bf16>,
    gated: B::Buffer<bf16>,
    sampled: B::Buffer<bf16>,
    sampled_normed: B::Buffer<bf16>,
    logits: B::Buffer<f32>,
    faults: B::Buffer<u32>,
}

impl<B: Backend> Workspace<B> {
    /// [sampled rows, vocab] logits of the last forward pass.
    pub fn logits(&self) -> &B::Buffer<f32> {
        &self.logits
    }

    /// Most rows of one step.
    pub fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// Most sampled rows of one step.
    pub fn sampled_max(&self) -> usize {
        self.sampled_max
    }
}

impl<B: Backend> Model<B> {
    /// Its shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its trees.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// BLAKE3 of its shape and every weight as it is used (in bfloat16).
    pub fn digest(&self) -> blake3::Hash {
        self.digest
    }

    /// What it runs on.
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// Shape of a pool of `pages` pages of `page_tokens` tokens.
    pub fn kv_shape(&self, pages: usize, page_tokens: usize) -> KvShape {
        KvShape {
            layers: self.config.layers,
            pages,
            page_tokens,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
        }
    }

    /// An empty pool.
    pub fn kv_pool(&self, pages: usize, page_tokens: usize) -> Result<KvPool<B>> {
        let shape = self.kv_shape(pages, page_tokens);
        Ok(KvPool { inner: self.backend.kv_pool(shape)?, shape })
    }

    /// Buffers for steps of at most `rows_max` rows, of which at most `sampled_max` are sampled.
    pub fn workspace(&self, rows_max: usize, sampled_max: usize) -> Result<Workspace<B>> {
        let (backend, config) = (&self.backend, &self.config);
        let q_width = config.q_heads * config.head_dim;
        Ok(Workspace {
            rows_max,
            sampled_max,
            x: backend.alloc(rows_max * config.hidden)?,
            y: backend.alloc(rows_max * config.hidden)?,
            normed: backend.alloc(rows_max * config.hidden)?,
            qkv: backend.alloc(rows_max * config.qkv_rows())?,
            q: backend.alloc(rows_max * q_width)?,
            attended: backend.alloc(rows_max * q_width)?,
            gated: backend.alloc(rows_max * config.ffn)?,
            sampled: backend.alloc(sampled_max * config.hidden)?,
            sampled_normed: backend.alloc(sampled_max * config.hidden)?,
            logits: backend.alloc(sampled_max * config.vocab)?,
            faults: backend.alloc(rows_max)?,
        })
    }

    /// Runs one step: writes K and V of every row into the pool and the logits of `sample_rows` (indices into `rows`)
    /// into the workspace. Returns [rows] whether a non-finite K or V was met: that row's request must fail.
    pub fn forward(
        &self,
        ws: &mut Workspace<B>,
        pool: &mut KvPool<B>,
        rows: &StepRows,
        sample_rows: &[u32],
    ) -> Result<Vec<bool>> {
        self.forward_poisoned(ws, pool, rows, sample_rows, &[])
    }

    /// The same with the hidden state of `poisoned` rows made NaN after the embedding: how tests make a neighbour fault.
    pub fn forward_poisoned(
        &self,
        ws: &mut Workspace<B>,
        pool: &mut KvPool<B>,
        rows: &StepRows,
        sample_rows: &[u32],
        poisoned: &[u32],
    ) -> Result<Vec<bool>> {
        let n = rows.tokens.len();
        self.check_step(ws, rows, sample_rows)?;
        let backend = &*self.backend;
        let step = backend.step(rows, pool.shape)?;
        backend.embed(&self.embedding, &step, &mut ws.x)?;
        if !poisoned.is_empty() {
            self.poison(ws, poisoned)?;
        }
        for (index, (layer, plan)) in self.layers.iter().zip(&self.plan.layers).enumerate() {
            self.attention_block(ws, pool, &step, n, index, layer, plan)?;
            self.ffn_block(ws, n, index, layer, plan)?;
        }
        if !sample_rows.is_empty() {
            backend.gather_rows(self.config.hidden, &ws.x, sample_rows, &mut ws.sampled)?;
            backend.rmsnorm(
                self.plan.final_norm,
                sample_rows.len(),
                &ws.sampled,
                &self.final_norm,
                &mut ws.sampled_normed,
            )?;
            backend.linear_f32(
                self.head.as_ref().unwrap_or(&self.embedding),
                sample_rows.len(),
                &ws.sampled_normed,
                &mut ws.logits,
            )?;
        }
        self.take_faults(ws, n)
    }

    /// x, then attention added to x.
    #[allow(clippy::too_many_arguments)]
    fn attention_block(
        &self,
        ws: &mut Workspace<B>,
        pool: &mut KvPool<B>,
        step: &B::Step,
        n: usize,
        index: usize,
        layer: &Layer<B>,
        plan: &LayerPlan,
    ) -> Result<()> {
        let backend = &*self.backend;
        backend.rmsnorm(plan.attention_norm, n, &ws.x, &layer.attention_norm, &mut ws.normed)?;
        backend.linear(&layer.qkv, n, &ws.normed, None, &mut ws.qkv)?;
        let qk_norm = layer.qk_norm.as_ref().zip(plan.qk_norm).map(|((q, k), tree)| (q, k, tree));
        let params = QkvParams {
            q_heads: self.config.q_heads,
            qk_norm,
            cos: &self.cos,
            sin: &self.sin,
            pairing: self.plan.pairing,
        };
        backend.qkv(&params, step, &ws.qkv, &mut pool.inner, index, &mut ws.q, &mut ws.faults)?;
        let mut tree = plan.attention;
        if n > 1 && matches!(self.broken, Some(Broken::KvSplit)) {
            tree.kv_tile = 16;
        }
        backend.attention(tree, self.config.q_heads, step, &ws.q, &pool.inner, index, &mut ws.attended)?;
        backend.linear(&layer.o, n, &ws.attended, Some(&ws.x), &mut ws.y)?;
        std::mem::swap(&mut ws.x, &mut ws.y);
        Ok(())
    }

    /// x, then the gated feed-forward layer added to x.
    fn ffn_block(
        &self,
        ws: &mut Workspace<B>,
        n: usize,
        index: usize,
        layer: &Layer<B>,
        plan: &LayerPlan,
    ) -> Result<()> {
        let backend = &*self.backend;
        backend.rmsnorm(plan.ffn_norm, n, &ws.x, &layer.ffn_norm, &mut ws.normed)?;
        backend.linear(&layer.gate_up, n, &ws.normed, None, &mut ws.gated)?;
        let down = match &self.broken {
            Some(Broken::KSplit(broken)) if n > 1 && index + 1 == self.layers.len() => broken,
            _ => &layer.down,
        };
        backend.linear(down, n, &ws.gated, Some(&ws.x), &mut ws.y)?;
        std::mem::swap(&mut ws.x, &mut ws.y);
        Ok(())
    }

    fn check_step(&self, ws: &Workspace<B>, rows: &StepRows, sample_rows: &[u32]) -> Result<()> {
        let refuse =
            |field: &str, expected: String, found: String| Err(Error::input(field, expected, found).in_file("step"));
        let n = rows.tokens.len();
        if n == 0 || n > ws.rows_max {
            return refuse("rows", format!("1 to {}", ws.rows_max), n.to_string());
        }
        if sample_rows.len() > ws.sampled_max {
            return refuse("sampled rows", format!("at most {}", ws.sampled_max), sample_rows.len().to_string());
        }
        if let Some(row) = sample_rows.iter().find(|row| **row as usize >= n) {
            return refuse("sampled row", format!("below {n}"), row.to_string());
        }
        if let Some(token) = rows.tokens.iter().find(|token| **token as usize >= self.config.vocab) {
            return refuse("token", format!("below the vocabulary size {}", self.config.vocab), token.to_string());
        }
        if let Some(position) = rows.positions.iter().find(|position| **position as usize >= self.config.context) {
            return refuse(
                "position",
                format!("below the context length {}", self.config.context),
                position.to_string(),
            );
        }
        Ok(())
    }

    fn poison(&self, ws: &mut Workspace<B>, poisoned: &[u32]) -> Result<()> {
        let mut x = self.backend.download(&ws.x, ws.rows_max * self.config.hidden)?;
        for row in poisoned {
            if let Some(row) = x.chunks_exact_mut(self.config.hidden).nth(*row as usize) {
                row.fill(bf16::NAN);
            }
        }
        ws.x = self.backend.upload(&x)?;
        Ok(())
    }

    /// The flags are cleared only after a fault, so a step without one costs no upload.
    fn take_faults(&self, ws: &mut Workspace<B>, n: usize) -> Result<Vec<bool>> {
        let faults: Vec<bool> = self.backend.download(&ws.faults, n)?.iter().map(|fault| *fault != 0).collect();
        if faults.contains(&true) {
            ws.faults = self.backend.alloc(ws.rows_max)?;
        }
        Ok(faults)
    }
}

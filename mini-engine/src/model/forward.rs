//! The forward pass of one step over any backend. Rows of different requests pass through together; no operator mixes
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use half::bf16;
use kernels_rs::backend::{Backend, KvShape, QkvParams, Sampled, StepRows, Wanted};

use super::config::Config;
use super::error::{Error, Result};
use super::plan::{LayerPlan, Plan};

/// A model ready to run: weights in the backend's layout and one tree for each operator.
pub struct Model<B: Backend> {
    pub(super) id: u64,
    pub(super) backend: Arc<B>,
    pub(super) config: Config,
    pub(super) plan: Plan,
    pub(super) digest: blake3::Hash,
    pub(super) weights: Arc<Weights<B>>,
    pub(super) broken: Option<Broken<B>>,
}

/// Everything large of a model; models that differ in a deliberate fault can share it.
pub(super) struct Weights<B: Backend> {
    pub(super) embedding: B::Linear,
    /// The LM head where it is not the embedding.
    pub(super) head: Option<B::Linear>,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) final_norm: B::Buffer<bf16>,
    pub(super) cos: B::Buffer<f32>,
    pub(super) sin: B::Buffer<f32>,
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
    /// The LM head with another chunk count, used when a step has more than one row. Its sums are not rounded to bfloat16,
    /// so the change shows in every row.
    KSplit(B::Linear),
    /// Attention with other tiles when a step has more than one row.
    KvSplit,
}

/// The paged KV memory of a model.
pub struct KvPool<B: Backend> {
    inner: B::KvPool,
    shape: KvShape,
    /// Tells pools apart, since what a workspace has recorded holds for one pool.
    id: u64,
}

/// What a step gave beside logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepResult {
    /// `[rows]` whether a non-finite K or V was met: that row's request must fail.
    pub faults: Vec<bool>,
    /// `[samples]` chosen tokens.
    pub sampled: Vec<Sampled>,
    /// The logits rows that were asked for, the first of the wanted ones.
    pub logits: Vec<f32>,
}

/// A step that was launched and may not be done.
pub struct Launched<B: Backend> {
    reading: B::Reading,
    rows: usize,
    samples: usize,
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
    /// Recorded launches; taken out while a step runs, and gone after one that failed.
    replays: Option<B::Replays>,
    /// Whether launches are recorded and replayed.
    record: bool,
    /// The model's and the pool's identity, and the poisoned token, that the recorded launches hold for.
    recorded_for: Option<(u64, u64, Option<u32>)>,
    rows_max: usize,
    sampled_max: usize,
    /// Tokens that the last step chooses.
    samples: usize,
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
    chosen: B::Buffer<u32>,
    faults: B::Buffer<u32>,
}

/// A number that no other model or pool of this process has.
pub(super) fn identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<B: Backend> Workspace<B> {
    /// [sampled rows, vocab] logits of the last forward pass.
    pub fn logits(&self) -> &B::Buffer<f32> {
        &self.logits
    }

    /// Steps whose launches were replayed.
    pub fn replayed(&self, backend: &B) -> u64 {
        self.replays.as_ref().map_or(0, |replays| backend.replayed(replays))
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

    /// The same weights with [`Break::KvSplit`](super::Break::KvSplit), for demonstrations.
    pub fn with_kv_split_by_batch(&self) -> Self {
        Self {
            id: identity(),
            backend: self.backend.clone(),
            config: self.config.clone(),
            plan: self.plan.clone(),
            digest: self.digest,
            weights: self.weights.clone(),
            broken: Some(Broken::KvSplit),
        }
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
        Ok(KvPool { inner: self.backend.kv_pool(shape)?, shape, id: identity() })
    }

    /// Buffers for steps of at most `rows_max` rows, of which at most `wanted_max` are wanted. Launches that repeat are recorded
    /// and replayed where the backend can.
    pub fn workspace(&self, rows_max: usize, wanted_max: usize) -> Result<Workspace<B>> {
        self.workspace_with(rows_max, wanted_max, true)
    }

    /// The same; without `record` every step is launched anew.
    pub fn workspace_with(&self, rows_max: usize, wanted_max: usize, record: bool) -> Result<Workspace<B>> {
        let (backend, config) = (&self.backend, &self.config);
        let q_width = config.q_heads * config.head_dim;
        let (rows, wanted) = (backend.padded_rows(rows_max), backend.padded_rows(wanted_max));
        Ok(Workspace {
            replays: None,
            record,
            recorded_for: None,
            rows_max,
            sampled_max: wanted_max,
            samples: 0,
            x: backend.alloc(rows * config.hidden)?,
            y: backend.alloc(rows * config.hidden)?,
            normed: backend.alloc(rows * config.hidden)?,
            qkv: backend.alloc(rows * config.qkv_rows())?,
            q: backend.alloc(rows * q_width)?,
            attended: backend.alloc(rows * q_width)?,
            gated: backend.alloc(rows * config.ffn)?,
            sampled: backend.alloc(wanted * config.hidden)?,
            sampled_normed: backend.alloc(wanted * config.hidden)?,
            logits: backend.alloc(wanted * config.vocab)?,
            chosen: backend.alloc(wanted * 2)?,
            faults: backend.alloc(rows)?,
        })
    }

    /// Runs one step: writes K and V of every row into the pool and the logits of `wanted` rows (indices into `rows`)
    /// into the workspace. Returns `[rows]` whether a non-finite K or V was met: that row's request must fail.
    pub fn forward(
        &self,
        ws: &mut Workspace<B>,
        pool: &mut KvPool<B>,
        rows: &StepRows,
        wanted: &[u32],
    ) -> Result<Vec<bool>> {
        let wanted = Wanted { rows: wanted, samples: &[] };
        Ok(self.collect(self.launch(ws, pool, rows, &wanted, 0, None)?)?.faults)
    }

    /// Launches one step: tokens are chosen from the first wanted rows, and the first `logits` of them are read. Rows may take
    /// tokens that the step before chose, whether it is done or not. The hidden state of rows with the token `poison` is made
    /// NaN after the embedding: how tests make a request fault.
    pub fn launch(
        &self,
        ws: &mut Workspace<B>,
        pool: &mut KvPool<B>,
        rows: &StepRows,
        wanted: &Wanted<'_>,
        logits: usize,
        poison: Option<u32>,
    ) -> Result<Launched<B>> {
        self.check_step(ws, rows, wanted.rows)?;
        let backend = &*self.backend;
        let launches = (self.id, pool.id, poison);
        let same = ws.recorded_for.replace(launches) == Some(launches);
        let group = self.config.q_heads / self.config.kv_heads;
        let kept = ws.replays.take().filter(|_| same);
        let mut replays = kept.unwrap_or_else(|| backend.replays(group, ws.record));
        let mut step = backend.step_in(&mut replays, rows, wanted, pool.shape)?;
        backend.take_tokens(&mut step, &ws.chosen)?;
        let (launched, chosen) = (backend.step_rows(&step), backend.step_samples(&step));
        backend.clear(&mut ws.faults, launched)?;
        backend.launch(&mut replays, &step, &mut || self.operators(ws, pool, &step, poison))?;
        ws.replays = Some(replays);
        ws.samples = wanted.samples.len();
        let words = [(&ws.faults, rows.tokens.len()), (&ws.chosen, 2 * chosen)];
        let floats = (logits > 0).then_some((&ws.logits, logits * self.config.vocab));
        let reading = backend.read_later(&words, floats)?;
        Ok(Launched { reading, rows: rows.tokens.len(), samples: wanted.samples.len() })
    }

    /// Waits for a step and says what it gave.
    pub fn collect(&self, launched: Launched<B>) -> Result<StepResult> {
        let Launched { reading, rows, samples } = launched;
        let (words, logits) = self.backend.read(reading)?;
        let faults = words[0][..rows].iter().map(|fault| *fault != 0).collect();
        // Tokens, then their log-probabilities, of rows that the backend added too.
        let (tokens, logprobs) = words[1].split_at(words[1].len() / 2);
        let sampled = tokens.iter().zip(logprobs).take(samples);
        let sampled = sampled.map(|(&token, &bits)| Sampled { token, logprob: f32::from_bits(bits) }).collect();
        Ok(StepResult { faults, sampled, logits })
    }

    /// Every operator of a step, in order.
    fn operators(
        &self,
        ws: &mut Workspace<B>,
        pool: &mut KvPool<B>,
        step: &B::Step,
        poison: Option<u32>,
    ) -> kernels_rs::backend::Result<()> {
        let backend = &*self.backend;
        let (n, wanted) = (backend.step_rows(step), backend.step_wanted(step));
        backend.embed(&self.weights.embedding, step, &mut ws.x)?;
        if let Some(token) = poison {
            backend.poison(step, token, self.config.hidden, &mut ws.x)?;
        }
        for (index, (layer, plan)) in self.weights.layers.iter().zip(&self.plan.layers).enumerate() {
            self.attention_block(ws, pool, step, n, index, layer, plan)?;
            self.ffn_block(ws, n, layer, plan)?;
        }
        if wanted == 0 {
            return Ok(());
        }
        backend.gather_wanted(self.config.hidden, step, &ws.x, &mut ws.sampled)?;
        backend.rmsnorm(self.plan.final_norm, wanted, &ws.sampled, &self.weights.final_norm, &mut ws.sampled_normed)?;
        let head = match &self.broken {
            Some(Broken::KSplit(broken)) if n > 1 => broken,
            _ => self.weights.head.as_ref().unwrap_or(&self.weights.embedding),
        };
        backend.linear_f32(head, wanted, &ws.sampled_normed, &mut ws.logits)?;
        backend.sample_wanted(self.config.vocab, step, &ws.logits, &mut ws.chosen)
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
    ) -> kernels_rs::backend::Result<()> {
        let backend = &*self.backend;
        backend.rmsnorm(plan.attention_norm, n, &ws.x, &layer.attention_norm, &mut ws.normed)?;
        backend.linear(&layer.qkv, n, &ws.normed, None, &mut ws.qkv)?;
        let qk_norm = layer.qk_norm.as_ref().zip(plan.qk_norm).map(|((q, k), tree)| (q, k, tree));
        let params = QkvParams {
            q_heads: self.config.q_heads,
            qk_norm,
            cos: &self.weights.cos,
            sin: &self.weights.sin,
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
        layer: &Layer<B>,
        plan: &LayerPlan,
    ) -> kernels_rs::backend::Result<()> {
        let backend = &*self.backend;
        backend.rmsnorm(plan.ffn_norm, n, &ws.x, &layer.ffn_norm, &mut ws.normed)?;
        backend.linear(&layer.gate_up, n, &ws.normed, None, &mut ws.gated)?;
        backend.linear(&layer.down, n, &ws.gated, Some(&ws.x), &mut ws.y)?;
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
        if let Some((_, sample)) = rows.taken.iter().find(|(_, sample)| *sample as usize >= ws.samples) {
            let expected = format!("one of the {} samples of the step before", ws.samples);
            return refuse("taken token", expected, format!("sample {sample}"));
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
}

#[cfg(test)]
mod tests {
    use kernels_rs::cpu::Cpu;
    use reduction_tree::arithmetic::Arithmetic;

    use super::*;
    use crate::model::{Break, Family, LoadOptions, Source, Tiny};

    const PAGE_TOKENS: usize = 64;

    fn model(family: Family, broken: Option<Break>) -> Model<Cpu> {
        let checkpoint = Source::Tiny(Box::new(Tiny::new(family, 9))).open().unwrap();
        let backend = Arc::new(Cpu::new(Arithmetic::Sm90, 1).unwrap());
        Model::load(&checkpoint, backend, LoadOptions { broken, ..LoadOptions::default() }, &mut |_| ()).unwrap()
    }

    /// Sequences of the given lengths from position 0, one page each, all tokens of sequence s made from s.
    fn rows(lengths: &[u32]) -> StepRows {
        let mut rows = StepRows::default();
        for (sequence, len) in lengths.iter().enumerate() {
            for position in 0..*len {
                rows.tokens.push((sequence as u32 * 31 + position * 7) % 256);
                rows.positions.push(position);
                rows.slots.push((sequence * PAGE_TOKENS) as u32 + position);
                rows.sequences.push(sequence as u32);
            }
            rows.tables.push(vec![sequence as u32]);
        }
        rows
    }

    /// Bits of the logits of one row after a step, and the faults.
    fn run(model: &Model<Cpu>, rows: &StepRows, row: u32, poison: Option<u32>) -> (Vec<u32>, Vec<bool>) {
        let mut pool = model.kv_pool(rows.tables.len(), PAGE_TOKENS).unwrap();
        let mut ws = model.workspace(rows.tokens.len(), 1).unwrap();
        let wanted = Wanted { rows: &[row], samples: &[] };
        let launched = model.launch(&mut ws, &mut pool, rows, &wanted, 1, poison).unwrap();
        let StepResult { faults, logits, .. } = model.collect(launched).unwrap();
        (logits.iter().map(|logit| logit.to_bits()).collect(), faults)
    }

    #[test]
    fn a_faulting_neighbour_is_flagged_and_changes_nothing() {
        for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
            let model = model(family, None);
            let (alone, _) = run(&model, &rows(&[20]), 19, None);
            let both = rows(&[20, 3]);
            let (beside, faults) = run(&model, &both, 19, Some(both.tokens[21]));
            assert_eq!(alone, beside, "{family:?}");
            assert!(faults[21] && !faults[..20].contains(&true), "{family:?}: {faults:?}");
        }
    }

    #[test]
    fn faults_are_cleared_for_the_next_step() {
        let model = model(Family::Llama, None);
        let (rows, mut pool, mut ws) =
            (rows(&[2]), model.kv_pool(1, PAGE_TOKENS).unwrap(), model.workspace(2, 1).unwrap());
        let wanted = Wanted { rows: &[1], samples: &[] };
        let first = model.launch(&mut ws, &mut pool, &rows, &wanted, 0, Some(rows.tokens[1])).unwrap();
        // The next step does not wait until the first is collected.
        let second = model.launch(&mut ws, &mut pool, &rows, &wanted, 0, None).unwrap();
        assert_eq!(model.collect(first).unwrap().faults, [false, true]);
        assert_eq!(model.collect(second).unwrap().faults, [false, false]);
    }

    #[test]
    fn every_deliberate_break_changes_bits_and_only_in_a_batch() {
        let sound = model(Family::Llama, None);
        for kind in [Break::KSplit, Break::KvSplit] {
            let broken = model(Family::Llama, Some(kind));
            let (one, many) = (rows(&[1]), rows(&[40, 1]));
            assert_eq!(run(&sound, &one, 0, None), run(&broken, &one, 0, None), "{kind:?}");
            assert_ne!(run(&sound, &many, 39, None).0, run(&broken, &many, 39, None).0, "{kind:?}");
        }
    }

    #[test]
    fn a_step_that_does_not_fit_is_refused() {
        let model = model(Family::Llama, None);
        let (mut pool, mut ws) = (model.kv_pool(1, PAGE_TOKENS).unwrap(), model.workspace(2, 1).unwrap());
        let mut refused = |rows: &StepRows, sampled: &[u32]| {
            model.forward(&mut ws, &mut pool, rows, sampled).unwrap_err().to_string()
        };
        assert!(refused(&rows(&[3]), &[0]).contains("rows: expected 1 to 2, found 3"));
        assert!(refused(&StepRows::default(), &[]).contains("rows: expected 1 to 2, found 0"));
        assert!(refused(&rows(&[2]), &[2]).contains("sampled row: expected below 2, found 2"));
        assert!(refused(&rows(&[2]), &[0, 1]).contains("sampled rows: expected at most 1, found 2"));
        let mut taking = rows(&[1]);
        taking.taken = vec![(0, 0)];
        assert!(
            refused(&taking, &[0])
                .contains("taken token: expected one of the 0 samples of the step before, found sample 0")
        );
        let mut foreign = rows(&[1]);
        foreign.tokens[0] = 320;
        assert!(refused(&foreign, &[0]).contains("token: expected below the vocabulary size 320, found 320"));
        foreign = rows(&[1]);
        foreign.positions[0] = 4096;
        assert!(refused(&foreign, &[0]).contains("position: expected below the context length 4096, found 4096"));
    }
}

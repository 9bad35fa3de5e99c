//! The engine: plan, ledger checks, kernels, sample, commit. It has no clock, no input or output, no hash order and no thread
//! order; whoever drives it calls [`Engine::step`] and passes the events on.

use std::collections::BTreeMap;

use kernels_rs::backend::{SampleParams, Sampled};
use ledger::{Launch, Ledger, Watch};

use super::config::{ConfigError, EngineConfig};
use super::request::{Event, Failure, Finish, Limits, Refusal, Request, RequestId};
use super::row_model::{RowModel, StepOutcome, Want};
use super::runner::lay_out;
use super::scheduler::{Plan, PolicyStats, Scheduler};

/// Counts of what happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Accepted steps.
    pub steps: u64,
    /// Rows computed.
    pub rows: u64,
    /// Most rows of one step.
    pub step_rows_peak: u64,
    /// Most requests with rows in one step.
    pub step_requests_peak: u64,
    /// Steps in which one request's rows ended inside its prompt and another chose a token.
    pub mixed_steps: u64,
    /// Positions computed again because their pages had been given back.
    pub recomputed_tokens: u64,
    /// Plans that the ledger refused, that had no rows, or that did not advance the oldest request.
    pub refused_plans: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// What the policy counted.
    pub policy: PolicyStats,
}

/// A request that was admitted and is not over.
#[derive(Debug)]
struct Active {
    request: Request,
    book: usize,
    generated: usize,
    tokens_total_max: usize,
    /// Positions computed or answered by the cache at least once.
    computed: usize,
    /// Those of them that the cache answered the first time.
    cached: usize,
}

impl Active {
    /// Adjusts and constrains the row that follows `history`. False where no token may follow.
    fn shape(&self, history: &[u32], row: &mut [f32]) -> bool {
        let prompt = self.request.prompt.len();
        self.request.sampling.adjust.apply(history, prompt, row);
        let Some(constraint) = &self.request.constraint else { return true };
        match constraint.0.forbid(&history[prompt..], row) {
            Ok(()) => row.iter().any(|logit| *logit > f32::NEG_INFINITY),
            Err(why) => {
                tracing::warn!(why, "a constraint failed");
                false
            }
        }
    }
}

/// Changes a plan before the ledger sees it; for negative controls and simulators.
pub type Tamper = Box<dyn FnMut(&mut Plan, &Ledger) + Send>;

/// Requests, policy, ledger and model.
pub struct Engine<M> {
    model: M,
    config: EngineConfig,
    ledger: Ledger,
    scheduler: Scheduler,
    watch: Watch,
    active: BTreeMap<RequestId, Active>,
    idle_books: Vec<usize>,
    next_id: u64,
    stats: Stats,
    tamper: Option<Tamper>,
}

impl<M: RowModel> Engine<M> {
    /// An engine over a model whose pool has the configured shape.
    pub fn new(model: M, config: EngineConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            ledger: ledger::create(config.page_tokens, config.pages),
            scheduler: Scheduler::new(config.clone()),
            watch: Watch { age: 0, alone: false },
            model,
            config,
            active: BTreeMap::new(),
            idle_books: Vec::new(),
            next_id: 0,
            stats: Stats::default(),
            tamper: None,
        })
    }

    /// Lets `tamper` change every plan from now on.
    pub fn set_tamper(&mut self, tamper: Tamper) {
        self.tamper = Some(tamper);
    }

    /// The limits that requests are checked against.
    pub fn limits(&self) -> Limits {
        Limits {
            vocab: self.model.vocab(),
            context_max: self.model.context_max(),
            page_tokens: self.config.page_tokens,
            pages: self.config.pages,
        }
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model, to run another engine over its memory; what that holds is then nobody's.
    pub fn into_model(self) -> M {
        self.model
    }

    /// The model, for tests that disturb its memory.
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// The ledger, read-only.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Counts so far.
    pub fn stats(&self) -> Stats {
        Stats { policy: self.scheduler.stats(), ..self.stats }
    }

    /// Requests that are not over.
    pub fn live(&self) -> usize {
        self.active.len()
    }

    /// Prompt and committed tokens of a live request.
    pub fn history(&self, id: RequestId) -> Option<&[u32]> {
        self.active.get(&id).map(|active| self.ledger.reqs()[active.book].toks.as_slice())
    }

    /// Admits a request, or refuses it without any change.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, Refusal> {
        request.check(&self.limits())?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let book = match self.idle_books.pop() {
            Some(book) => {
                let reused = ledger::readmit(&mut self.ledger, book, &request.prompt);
                assert!(reused, "idle books are finished");
                book
            }
            None => ledger::admit(&mut self.ledger, &request.prompt),
        };
        self.scheduler.add(id, book, request.bypass_cache);
        let tokens_total_max = request.tokens_total_max(self.model.context_max());
        self.active.insert(id, Active { request, book, generated: 0, tokens_total_max, computed: 0, cached: 0 });
        Ok(id)
    }

    /// Ends a request at once. False when it is already over.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let live = self.active.contains_key(&id);
        if live {
            self.stats.cancelled += 1;
            self.close(id);
        }
        live
    }

    /// Computes one step. On an error of the model nothing is lost: the next step starts over from the histories.
    pub fn step(&mut self) -> Result<Vec<Event>, M::Error> {
        let Some((&oldest, active)) = self.active.first_key_value() else { return Ok(Vec::new()) };
        let launches = self.serve(oldest, active.book);
        let (rows, records) = lay_out(&self.ledger, &launches);
        let books: BTreeMap<usize, RequestId> = self.active.iter().map(|(id, active)| (active.book, *id)).collect();
        let owners: Vec<RequestId> = records.iter().map(|launch| books[&launch.req]).collect();
        let wants = self.wants(&records, &owners);
        let outcome = self.model.forward(&rows, &wants);
        let outcome = match outcome.and_then(|outcome| self.choose_shaped(&records, &owners, &wants, outcome)) {
            Ok(outcome) => outcome,
            Err(error) => {
                self.forget_everything();
                return Err(error);
            }
        };
        self.count(&records, &owners);
        let mut events = Vec::new();
        self.fail_faulted(&records, &outcome, &mut events);
        self.commit(&records, &owners, &wants, outcome, &mut events);
        Ok(events)
    }

    /// One accepted step: the scheduler's plan, or when it is refused, or does not advance the oldest request, rows of that
    /// request alone until it ends. The ledger decides; that it always finds a step is proved of it.
    fn serve(&mut self, oldest: RequestId, book: usize) -> Vec<Launch> {
        if self.watch.alone && self.watch.age != oldest.0 {
            // The request that had to be served alone is over, and the scheduler's picture is out of date.
            self.forget_everything();
        }
        let alone = self.watch.alone && self.watch.age == oldest.0;
        let plan = if alone { Plan::default() } else { self.plan() };
        let preempt: Vec<usize> =
            plan.preempted.iter().filter_map(|id| self.active.get(id)).map(|active| active.book).collect();
        let mut launches = Vec::new();
        let served =
            ledger::serve(&mut self.ledger, &mut launches, &mut self.watch, oldest.0, book, &preempt, &plan.ops);
        assert!(served, "a live request that was admitted has a row to compute, and fits the pool");
        if !self.watch.alone {
            debug_assert!(self.tamper.is_some() || self.scheduler.agrees_with(&self.ledger));
        } else if !alone {
            tracing::warn!(
                ops = plan.ops.len(),
                request = oldest.0,
                "a plan failed the oldest request; it is served alone"
            );
            self.stats.refused_plans += 1;
            self.scheduler.reset(self.ledger.next_cid());
        }
        launches
    }

    fn plan(&mut self) -> Plan {
        let mut plan = self.scheduler.plan(&self.ledger);
        if let Some(tamper) = &mut self.tamper {
            tamper(&mut plan, &self.ledger);
        }
        plan
    }

    fn forget_everything(&mut self) {
        ledger::reset(&mut self.ledger);
        self.scheduler.reset(self.ledger.next_cid());
    }

    fn wants(&self, records: &[&Launch], owners: &[RequestId]) -> Vec<Want> {
        let mut wants = Vec::new();
        for (row, (launch, id)) in records.iter().zip(owners).enumerate() {
            let request = &self.active[id].request;
            let logits = request.logits_from.is_some_and(|from| launch.pos >= from);
            let sampling = &request.sampling;
            let adjusted = launch.sample && request.shapes_rows();
            let params = sampling.params(launch.pos + 1);
            // From a row that is adjusted, the model itself chooses greedily: that tells where its log-probabilities start.
            let params = if adjusted { SampleParams { temperature: 0.0, ..params } } else { params };
            let sample = launch.sample.then_some(params);
            if logits || sample.is_some() {
                let digest = request.digest_logits && sample.is_some();
                wants.push(Want { row, sample, logits: logits || adjusted, digest });
            }
        }
        wants
    }

    /// Chooses the tokens of the requests that shape their rows: from a copy of the row, so that what is reported about the
    /// row stays as the model gave it. Where nothing may follow, there is no choice.
    fn choose_shaped(
        &mut self,
        records: &[&Launch],
        owners: &[RequestId],
        wants: &[Want],
        mut outcome: StepOutcome,
    ) -> Result<StepOutcome, M::Error> {
        let (mut shaped, mut rows, mut params) = (Vec::new(), Vec::new(), Vec::new());
        for (index, want) in wants.iter().enumerate().filter(|(_, want)| want.sample.is_some()) {
            let (launch, active) = (records[want.row], &self.active[&owners[want.row]]);
            let outcome = &mut outcome.outcomes[index];
            let Some(row) = outcome.logits.as_ref().filter(|_| active.request.shapes_rows()) else { continue };
            let start = rows.len();
            rows.extend_from_slice(row);
            if !active.shape(&self.ledger.reqs()[active.book].toks, &mut rows[start..]) {
                rows.truncate(start);
                outcome.sampled = None;
                continue;
            }
            params.push(active.request.sampling.params(launch.pos + 1));
            shaped.push(index);
        }
        if shaped.is_empty() {
            return Ok(outcome);
        }
        let sampled = self.model.choose(&rows, &params)?;
        for (index, Sampled { token, .. }) in shaped.into_iter().zip(sampled) {
            let outcome = &mut outcome.outcomes[index];
            let (Some(row), Some(greedy)) = (&outcome.logits, outcome.sampled) else { continue };
            // The greedy choice has the row's largest logit m and the log-probability (m - m) - ln(s), which is -ln(s).
            let logprob = (row[token as usize] - row[greedy.token as usize]) + greedy.logprob;
            outcome.sampled = Some(Sampled { token, logprob });
        }
        Ok(outcome)
    }

    fn count(&mut self, records: &[&Launch], owners: &[RequestId]) {
        let stats = &mut self.stats;
        stats.steps += 1;
        stats.rows += records.len() as u64;
        stats.step_rows_peak = stats.step_rows_peak.max(records.len() as u64);
        let (mut requests, mut chose, mut chunked) = (0, false, false);
        for (row, (launch, id)) in records.iter().zip(owners).enumerate() {
            let active = self.active.get_mut(id).expect("owners are live");
            if launch.pos < active.computed {
                stats.recomputed_tokens += 1;
            }
            active.cached += launch.pos.saturating_sub(active.computed);
            active.computed = active.computed.max(launch.pos + 1);
            if owners.get(row + 1) != Some(id) {
                requests += 1;
                chose |= launch.sample;
                chunked |= !launch.sample;
            }
        }
        stats.step_requests_peak = stats.step_requests_peak.max(requests);
        stats.mixed_steps += u64::from(chose && chunked);
    }

    /// Fails the requests whose own prefix is not finite: those that computed such a row, and those that attached its page in
    /// this very step (alone they would have computed the same row). Their pages are never offered to others.
    fn fail_faulted(&mut self, records: &[&Launch], outcome: &StepOutcome, events: &mut Vec<Event>) {
        for (launch, _) in records.iter().zip(&outcome.faults).filter(|(_, fault)| **fault) {
            let page = (launch.slot / self.config.page_tokens) as u32;
            let hit: Vec<RequestId> = self
                .active
                .iter()
                .filter(|(_, active)| self.ledger.reqs()[active.book].table.contains(&page))
                .map(|(id, _)| *id)
                .collect();
            for id in hit {
                self.scheduler.distrust(id, launch.pos);
                self.fail(id, Failure::NonFiniteKv { position: launch.pos }, events);
            }
        }
    }

    fn fail(&mut self, id: RequestId, failure: Failure, events: &mut Vec<Event>) {
        tracing::warn!(request = id.0, %failure, "request failed");
        self.stats.failures += 1;
        self.close(id);
        events.push(Event::Failed { id, failure });
    }

    fn close(&mut self, id: RequestId) {
        if let Some(active) = self.active.remove(&id) {
            self.scheduler.remove(id);
            ledger::finish(&mut self.ledger, active.book);
            self.idle_books.push(active.book);
        }
    }

    fn commit(
        &mut self,
        records: &[&Launch],
        owners: &[RequestId],
        wants: &[Want],
        outcome: StepOutcome,
        events: &mut Vec<Event>,
    ) {
        for (want, outcome) in wants.iter().zip(outcome.outcomes) {
            let (launch, id) = (records[want.row], owners[want.row]);
            let Some(active) = self.active.get_mut(&id) else { continue };
            let watched = active.request.logits_from.is_some_and(|from| launch.pos >= from);
            if let (true, Some(row)) = (watched, outcome.logits) {
                events.push(Event::Logits { id, position: launch.pos, row });
            }
            let Some(sampled) = outcome.sampled else {
                if want.sample.is_some() {
                    self.fail(id, Failure::Constraint { position: launch.pos + 1 }, events);
                }
                continue;
            };
            if !sampled.logprob.is_finite() {
                self.fail(id, Failure::NonFiniteLogits { position: launch.pos }, events);
                continue;
            }
            let committed = active.request.forced.get(active.generated).copied().unwrap_or(sampled.token);
            active.generated += 1;
            let accepted = ledger::commit(&mut self.ledger, active.book, launch.pos + 1, committed);
            assert!(accepted, "a sampled row is its request's last");
            events.push(Event::Token {
                id,
                position: launch.pos + 1,
                sampled,
                committed,
                logits_digest: outcome.digest,
                cached_tokens: active.cached,
            });
            let reason = if active.request.stop_tokens.contains(&committed) {
                Some(Finish::Stop)
            } else if launch.pos + 2 >= active.tokens_total_max {
                Some(Finish::Length)
            } else {
                None
            };
            if let Some(reason) = reason {
                self.close(id);
                events.push(Event::Finished { id, reason });
            }
        }
    }
}

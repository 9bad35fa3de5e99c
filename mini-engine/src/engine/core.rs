//! The engine: plan, ledger checks, kernels, sample, commit. It has no clock, no input or output, no hash order and no thread
//! order; whoever drives it calls [`Engine::step`] and passes the events on. With `run_ahead` the next step is launched before
//! the last one has landed; what a request receives is the same.

use std::collections::BTreeMap;

use kernels_rs::backend::{SampleParams, Sampled};
use ledger::{Launch, Ledger, Watch};

use super::ahead::{Ahead, Names};
use super::config::{ConfigError, EngineConfig};
use super::request::{Event, Failure, Finish, Limits, Refusal, Request, RequestId};
use super::row_model::{Outcome, RowModel, StepOutcome, Want};
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
    /// Steps that were launched before the one before them had landed.
    pub steps_ahead: u64,
    /// Rows computed for requests that turned out to have ended, or were cancelled meanwhile.
    pub rows_dropped: u64,
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
    /// Last tokens of the history in the ledger that have not been reported: names, and forced ones.
    early: usize,
    /// The step on its way gives its last token.
    ends: bool,
    tokens_total_max: usize,
    /// Positions computed or answered by the cache at least once.
    computed: usize,
    /// Those of them that the cache answered the first time.
    cached: usize,
}

impl Active {
    /// The token that is given beforehand for a position.
    fn forced(&self, position: usize) -> Option<u32> {
        self.request.forced.get(position - self.request.prompt.len()).copied()
    }

    /// Why the request ends with a token at a position, as far as that is known.
    fn finish(&self, position: usize, token: Option<u32>) -> Option<Finish> {
        if token.is_some_and(|token| self.request.stop_tokens.contains(&token)) {
            Some(Finish::Stop)
        } else if position + 1 >= self.tokens_total_max {
            Some(Finish::Length)
        } else {
            None
        }
    }

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
pub struct Engine<M: RowModel> {
    model: M,
    config: EngineConfig,
    ledger: Ledger,
    scheduler: Scheduler,
    watch: Watch,
    active: BTreeMap<RequestId, Active>,
    idle_books: Vec<usize>,
    next_id: u64,
    names: Names,
    /// The step on its way.
    ahead: Option<Ahead<M::Flight>>,
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
            names: Names::new(model.vocab()),
            ahead: None,
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
    pub fn into_model(mut self) -> M {
        self.land_unheeded();
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

    /// Prompt and reported tokens of a live request.
    pub fn history(&self, id: RequestId) -> Option<&[u32]> {
        self.active.get(&id).map(|active| self.reported(active))
    }

    fn reported(&self, active: &Active) -> &[u32] {
        let history = &self.ledger.reqs()[active.book].toks;
        &history[..history.len() - active.early]
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
        self.active
            .insert(id, Active { request, book, early: 0, ends: false, tokens_total_max, computed: 0, cached: 0 });
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

    /// Computes one step and reports what came of it. On an error of the model nothing is lost: the next step starts over from
    /// the histories.
    pub fn step(&mut self) -> Result<Vec<Event>, M::Error> {
        let step = match self.ahead.take() {
            Some(step) => step,
            None if self.active.is_empty() => return Ok(Vec::new()),
            None => {
                if self.names.are_spent(self.config.step_rows_max) {
                    self.forget_everything();
                    self.names.renew();
                }
                self.take_off(None).inspect_err(|_| self.start_over())?
            }
        };
        if self.can_run_ahead(&step) {
            match self.take_off(Some(&step)) {
                Ok(next) => self.ahead = Some(next),
                Err(error) => {
                    self.ahead = Some(step);
                    self.start_over();
                    return Err(error);
                }
            }
        }
        let events = self.land(step).inspect_err(|_| self.start_over())?;
        if self.active.is_empty() {
            // What was computed ahead is nobody's.
            self.land_unheeded();
        }
        Ok(events)
    }

    /// Whether the next step can be planned before `step` has landed: all of its tokens must be committed, and the oldest request
    /// must have something to compute.
    fn can_run_ahead(&self, step: &Ahead<M::Flight>) -> bool {
        let waits = |active: &Active| {
            !active.ends && ledger::kv_len(&self.ledger, active.book) < self.ledger.reqs()[active.book].toks.len()
        };
        self.config.run_ahead && step.is_committed() && self.active.values().next().is_some_and(waits)
    }

    /// Plans and launches a step behind `before`, which may be on its way.
    fn take_off(&mut self, before: Option<&Ahead<M::Flight>>) -> Result<Ahead<M::Flight>, M::Error> {
        let (oldest, book) =
            self.active.first_key_value().map(|(id, active)| (*id, active.book)).expect("a live request");
        let launches = self.serve(oldest, book);
        let (mut rows, records) = lay_out(&self.ledger, &launches);
        let records: Vec<Launch> = records.into_iter().cloned().collect();
        let books: BTreeMap<usize, RequestId> = self.active.iter().map(|(id, active)| (active.book, *id)).collect();
        let owners: Vec<RequestId> = records.iter().map(|launch| books[&launch.req]).collect();
        let wants = self.wants(&records, &owners);
        if let Some(before) = before {
            before.hand_over(&self.names, &mut rows);
        }
        let flight = self.model.launch(rows, &wants)?;
        self.stats.steps_ahead += u64::from(before.is_some());
        self.count(&records, &owners);
        let early = self.commit_early(&records, &owners, &wants);
        Ok(Ahead { records, owners, wants, early, flight })
    }

    /// Commits what the next step may go on with before this one has landed: the token where it is known, or else a name. Nothing
    /// for requests whose tokens the host chooses.
    fn commit_early(&mut self, records: &[Launch], owners: &[RequestId], wants: &[Want]) -> Vec<Option<u32>> {
        let run_ahead = self.config.run_ahead && self.names.has(wants.len());
        let mut early = vec![None; wants.len()];
        for (want, early) in wants.iter().zip(&mut early).filter(|(want, _)| run_ahead && want.sample.is_some()) {
            let (position, active) = (records[want.row].pos + 1, self.active.get_mut(&owners[want.row]));
            let active = active.expect("owners are live");
            let forced = active.forced(position);
            if active.request.shapes_rows() {
                continue;
            }
            let token = forced.unwrap_or_else(|| self.names.draw());
            let accepted = ledger::commit(&mut self.ledger, active.book, position, token);
            assert!(accepted, "a sampled row is its request's last");
            active.early += 1;
            active.ends = active.finish(position, forced).is_some();
            if active.ends {
                self.scheduler.rest(owners[want.row], true);
            }
            *early = Some(token);
        }
        early
    }

    /// Waits for a step and reports what came of it.
    fn land(&mut self, step: Ahead<M::Flight>) -> Result<Vec<Event>, M::Error> {
        let Ahead { records, owners, wants, early, flight, .. } = step;
        let outcome = self.model.collect(flight)?;
        self.stats.rows_dropped += owners.iter().filter(|id| !self.active.contains_key(id)).count() as u64;
        let outcome = self.choose_shaped(&records, &owners, &wants, outcome)?;
        let mut events = Vec::new();
        self.fail_faulted(&records, &owners, &outcome, &mut events);
        for ((want, early), outcome) in wants.iter().zip(early).zip(outcome.outcomes) {
            self.commit(&records[want.row], owners[want.row], want, early, outcome, &mut events);
        }
        Ok(events)
    }

    /// Waits for the step on its way, if any, and forgets it.
    fn land_unheeded(&mut self) {
        if let Some(step) = self.ahead.take() {
            self.stats.rows_dropped += step.owners.len() as u64;
            // Whoever waited for it is told of the error that matters, or is gone.
            let _ = self.model.collect(step.flight);
        }
    }

    /// After an error of the model: nothing is resident, and of the histories only what was reported stays.
    fn start_over(&mut self) {
        self.land_unheeded();
        for (id, active) in self.active.iter_mut().filter(|(_, active)| active.early > 0) {
            let history = &self.ledger.reqs()[active.book].toks;
            let known = history[..history.len() - active.early].to_vec();
            ledger::finish(&mut self.ledger, active.book);
            let again = ledger::readmit(&mut self.ledger, active.book, &known);
            assert!(again, "finished entries can be taken up again");
            (active.early, active.ends) = (0, false);
            self.scheduler.rest(*id, false);
        }
        self.forget_everything();
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

    fn wants(&self, records: &[Launch], owners: &[RequestId]) -> Vec<Want> {
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
        records: &[Launch],
        owners: &[RequestId],
        wants: &[Want],
        mut outcome: StepOutcome,
    ) -> Result<StepOutcome, M::Error> {
        let (mut shaped, mut rows, mut params) = (Vec::new(), Vec::new(), Vec::new());
        for (index, want) in wants.iter().enumerate().filter(|(_, want)| want.sample.is_some()) {
            let (launch, outcome) = (&records[want.row], &mut outcome.outcomes[index]);
            // It may have been cancelled meanwhile.
            let Some(active) = self.active.get(&owners[want.row]) else { continue };
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

    fn count(&mut self, records: &[Launch], owners: &[RequestId]) {
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

    /// Fails the requests whose own prefix is not finite: those that computed such a row, and those that attached its page before
    /// this was known (alone they would have computed the same row). Such pages are never offered to others.
    fn fail_faulted(
        &mut self,
        records: &[Launch],
        owners: &[RequestId],
        outcome: &StepOutcome,
        events: &mut Vec<Event>,
    ) {
        let page_tokens = self.config.page_tokens;
        let faulted = records.iter().zip(owners).zip(&outcome.faults).filter(|(_, fault)| **fault);
        for (launch, owner) in faulted.map(|(row, _)| row) {
            let page = (launch.slot / page_tokens) as u32;
            let holds = |active: &Active| {
                self.ledger.reqs()[active.book].table.get(launch.pos / page_tokens) == Some(&page)
                    && ledger::kv_len(&self.ledger, active.book) > launch.pos
            };
            // The step on its way may have given the page to somebody else.
            let refilled = self.ahead.as_ref().is_some_and(|next| next.refills(page, page_tokens));
            let hit = self.active.iter().filter(|(id, active)| *id == owner || !refilled && holds(active));
            for id in hit.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.scheduler.distrust(id, launch.pos);
                self.fail(id, Failure::NonFiniteKv { position: launch.pos }, events);
            }
            self.scheduler.forget(page);
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

    /// Reports what came of a wanted row.
    fn commit(
        &mut self,
        launch: &Launch,
        id: RequestId,
        want: &Want,
        early: Option<u32>,
        outcome: Outcome,
        events: &mut Vec<Event>,
    ) {
        let Some(active) = self.active.get_mut(&id) else { return };
        let watched = active.request.logits_from.is_some_and(|from| launch.pos >= from);
        if let (true, Some(row)) = (watched, outcome.logits) {
            events.push(Event::Logits { id, position: launch.pos, row });
        }
        let position = launch.pos + 1;
        let Some(sampled) = outcome.sampled else {
            if want.sample.is_some() {
                self.fail(id, Failure::Constraint { position }, events);
            }
            return;
        };
        if !sampled.logprob.is_finite() {
            self.fail(id, Failure::NonFiniteLogits { position: launch.pos }, events);
            return;
        }
        let committed = active.forced(position).unwrap_or(sampled.token);
        active.early -= usize::from(early.is_some());
        let accepted = match early {
            None => ledger::commit(&mut self.ledger, active.book, position, committed),
            Some(token) if token == committed => true,
            Some(name) => {
                self.scheduler.resolve(id, position, committed);
                ledger::resolve(&mut self.ledger, active.book, position, name, committed)
            }
        };
        assert!(accepted, "a sampled row is its request's last, or its token's name stands in the history");
        events.push(Event::Token {
            id,
            position,
            sampled,
            committed,
            logits_digest: outcome.digest,
            cached_tokens: active.cached,
        });
        if let Some(reason) = active.finish(position, Some(committed)) {
            self.close(id);
            events.push(Event::Finished { id, reason });
        }
    }
}

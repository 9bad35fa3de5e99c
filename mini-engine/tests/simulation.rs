//! A seeded simulator drives the engine with the fake model through random arrivals, cancellations, tiny pools, chunk budgets,
//! refused plans and failing kernels. Every logits row and token must be the one that the request's own prefix defines.

use std::collections::BTreeMap;
use std::sync::Arc;

use mini_engine::engine::fake::{CONTEXT_MAX, FakeModel, POISON, choose};
use mini_engine::engine::noise::Noise;
use mini_engine::engine::{
    Adjust, Constraint, Engine, EngineConfig, Event, Failure, Finish, Request, RequestId, Rule, Sampling, Stats,
    logits_digest,
};

use ledger::Op;

/// What a request must yield, from the definition alone.
struct Expected {
    tokens: Vec<u32>,
    end: Result<Finish, Failure>,
}

/// Lets only every other token follow, by the parity of the answer's length, and after nine tokens none.
struct Alternating;

impl Rule for Alternating {
    fn forbid(&self, answer: &[u32], row: &mut [f32]) -> Result<(), String> {
        if answer.len() == 9 {
            return Err("enough".into());
        }
        row.iter_mut().skip(answer.len() % 2).step_by(2).for_each(|logit| *logit = f32::NEG_INFINITY);
        Ok(())
    }
}

/// Penalties and a bias, for every other request.
fn adjust(noise: &mut Noise) -> Adjust {
    if noise.one_in(2) {
        return Adjust::default();
    }
    Adjust {
        repetition_penalty: [1.0, 1.5, 0.5][noise.below(3)],
        frequency_penalty: noise.below(3) as f32,
        presence_penalty: 1.0 - noise.below(3) as f32,
        logit_bias: (0..noise.below(4)).map(|_| (noise.below(60) as u32, noise.below(9) as f32 - 4.0)).collect(),
    }
}

fn expected(request: &Request) -> Expected {
    let mut history = request.prompt.clone();
    let start = history.len();
    let end = loop {
        if let Some(position) = history.iter().position(|&token| token == POISON) {
            break Err(Failure::NonFiniteKv { position });
        }
        let mut row = FakeModel::reference(&history);
        request.sampling.adjust.apply(&history, start, &mut row);
        if let Some(Constraint(rule)) = &request.constraint
            && rule.forbid(&history[start..], &mut row).is_err()
        {
            break Err(Failure::Constraint { position: history.len() });
        }
        let chosen = choose(&row, &request.sampling.params(history.len())).token;
        history.push(request.forced.get(history.len() - start).copied().unwrap_or(chosen));
        if request.stop_tokens.contains(&history[history.len() - 1]) {
            break Ok(Finish::Stop);
        }
        if history.len() >= (start + request.tokens_max).min(CONTEXT_MAX) {
            break Ok(Finish::Length);
        }
    };
    Expected { tokens: history.split_off(start), end }
}

/// Prompts that share prefixes: with each other, and with the histories of finished requests.
struct Prompts {
    stems: Vec<Vec<u32>>,
}

impl Prompts {
    fn draw(&mut self, noise: &mut Noise, tokens_max: usize) -> Vec<u32> {
        let stem = self.stems[noise.below(self.stems.len())].clone();
        let keep = if noise.one_in(3) { stem.len() } else { noise.below(stem.len() + 1) };
        let mut prompt: Vec<u32> = stem[..keep].to_vec();
        let extra = noise.below(12) + usize::from(keep == 0);
        prompt.extend((0..extra).map(|_| noise.below(4) as u32));
        if noise.one_in(25) {
            let at = noise.below(prompt.len());
            prompt[at] = POISON;
        }
        prompt.truncate(tokens_max);
        prompt
    }
}

struct Simulation {
    engine: Engine<FakeModel>,
    noise: Noise,
    prompts: Prompts,
    requests: BTreeMap<RequestId, Request>,
    tokens: BTreeMap<RequestId, Vec<u32>>,
    rows_checked: usize,
    finished: usize,
    failed: usize,
    tampered: bool,
    /// How many turns the oldest request has had as the oldest.
    turns: (Option<RequestId>, usize),
    ahead: bool,
}

/// What may go wrong in a run.
#[derive(Clone, Copy, Default)]
struct Faults {
    tampered_plans: bool,
    failing_kernels: bool,
    /// No fault, but harder: steps are launched before the one before is done.
    run_ahead: bool,
}

impl Faults {
    fn any(self) -> bool {
        self.tampered_plans || self.failing_kernels
    }
}

impl Simulation {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut noise = Noise::new(seed);
        let page_tokens = [1, 2, 3, 4, 16][noise.below(5)];
        let config = EngineConfig {
            page_tokens,
            pages: 48 / page_tokens + 1 + noise.below(100 / page_tokens + 1),
            // After a fault everything resident is computed again, which takes rows.
            step_rows_max: if faults.any() { [16, 100][noise.below(2)] } else { [1, 2, 3, 7, 16, 100][noise.below(6)] },
            running_max: [1, 3, 32][noise.below(3)],
            prefix_cache: !noise.one_in(5),
            page_order: noise.one_in(2).then_some(seed),
            run_ahead: faults.run_ahead,
        };
        let model = FakeModel::new(config.pages, page_tokens, seed);
        let mut engine = Engine::new(model, config).unwrap();
        if faults.tampered_plans {
            let mut noise = Noise::new(seed ^ 0xbad);
            engine.set_tamper(Box::new(move |plan, ledger| {
                if noise.one_in(8) {
                    tamper(&mut plan.ops, ledger.pages().len(), &mut noise);
                }
            }));
        }
        let prompts = Prompts { stems: (0..3).map(|_| (0..30).map(|_| noise.below(4) as u32).collect()).collect() };
        Self {
            engine,
            noise,
            prompts,
            requests: BTreeMap::new(),
            tokens: BTreeMap::new(),
            rows_checked: 0,
            finished: 0,
            failed: 0,
            tampered: faults.tampered_plans,
            turns: (None, 0),
            ahead: faults.run_ahead,
        }
    }

    fn arrive(&mut self) {
        let limits = self.engine.limits();
        let room = limits.pages * limits.page_tokens;
        let tokens_max = 1 + self.noise.below(30);
        let prompt = self.prompts.draw(&mut self.noise, room.saturating_sub(tokens_max).max(1));
        let noise = &mut self.noise;
        let forced =
            if noise.one_in(4) { (0..noise.below(4)).map(|_| noise.below(4) as u32).collect() } else { Vec::new() };
        let request = Request {
            logits_from: (!noise.one_in(3)).then(|| noise.below(prompt.len())),
            prompt,
            sampling: Sampling {
                temperature: noise.below(3) as f32,
                seed: noise.next_u64(),
                adjust: adjust(noise),
                ..Sampling::default()
            },
            constraint: noise.one_in(5).then(|| Constraint(Arc::new(Alternating))),
            stop_tokens: if noise.one_in(4) { (4..10).collect() } else { Vec::new() },
            tokens_max,
            forced,
            digest_logits: tokens_max.is_multiple_of(2),
            bypass_cache: noise.one_in(6),
        };
        let id = self.engine.submit(request.clone()).unwrap();
        self.requests.insert(id, request);
    }

    fn step(&mut self) {
        let oldest = self.requests.keys().next().copied();
        let before = oldest.map(|id| (self.progress(id), self.engine.history(id).unwrap().len()));
        let (refused, steps) = (self.engine.stats().refused_plans, self.engine.stats().steps);
        let Ok(events) = self.engine.step() else {
            // After a failure of the kernels the oldest request starts over.
            self.turns = (None, 0);
            return;
        };
        if let Some(id) = oldest {
            // What is proved of `ledger::serve`: there is a step, and the oldest request soon ends, whatever was planned.
            let launched = self.engine.stats().steps - steps;
            assert!(launched == 1 || self.ahead && launched <= 2, "{launched} steps in one turn");
            self.turns = (oldest, if self.turns.0 == oldest { self.turns.1 + 1 } else { 1 });
            let request = &self.requests[&id];
            let total = request.prompt.len() + request.tokens_max - 1;
            assert!(self.turns.1 <= 2 * total + 2, "the oldest request does not end");
        }
        if let (Some(id), Some(before)) = (oldest, before)
            && self.engine.stats().refused_plans == refused
            && !self.tampered
            && let Some(history) = self.engine.history(id)
        {
            // Ahead of the device it may have to wait for a token, its own or one that the host chooses for another.
            let waited = self.ahead && (history.len() > before.1 || self.engine.stats().steps == steps);
            assert!(waited || self.progress(id) > before.0, "the oldest request did not advance");
        }
        for event in events {
            self.take(event);
        }
    }

    /// Computed positions of the oldest request; its history only grows when they reach its end.
    fn progress(&self, id: RequestId) -> usize {
        let ledger = self.engine.ledger();
        let history = self.engine.history(id).unwrap();
        let book = ledger.reqs().iter().position(|req| req.live && req.toks.as_ptr() == history.as_ptr()).unwrap();
        ledger::kv_len(ledger, book)
    }

    fn take(&mut self, event: Event) {
        let id = event.id();
        let request = &self.requests[&id];
        let tokens = self.tokens.entry(id).or_default();
        let over = match event {
            Event::Logits { position, row, .. } => {
                let prefix: Vec<u32> = request.prompt.iter().chain(tokens.iter()).take(position + 1).copied().collect();
                assert_eq!(row, FakeModel::reference(&prefix), "logits at position {position}");
                self.rows_checked += 1;
                None
            }
            Event::Token { position, committed, logits_digest: digest, .. } => {
                assert_eq!(position, request.prompt.len() + tokens.len());
                let prefix: Vec<u32> = request.prompt.iter().chain(tokens.iter()).copied().collect();
                let expected = request.digest_logits.then(|| logits_digest(&FakeModel::reference(&prefix)));
                assert_eq!(digest, expected, "digest of the row behind position {position}");
                tokens.push(committed);
                None
            }
            Event::Finished { reason, .. } => Some(Ok(reason)),
            Event::Failed { failure, .. } => Some(Err(failure)),
        };
        if let Some(end) = over {
            let expected = expected(request);
            let tokens = self.tokens.remove(&id).unwrap_or_default();
            assert_eq!(tokens, expected.tokens);
            assert_eq!(end, expected.end);
            self.finished += 1;
            self.failed += usize::from(end.is_err());
            let request = self.requests.remove(&id).unwrap();
            if end.is_ok() {
                let stem = self.noise.below(self.prompts.stems.len());
                self.prompts.stems[stem] = request.prompt.iter().chain(&tokens).copied().collect();
            }
        }
    }

    fn run(&mut self, arrivals: usize, faults: Faults) -> Stats {
        let mut left = arrivals;
        let mut steps = 0;
        while left > 0 || self.engine.live() > 0 {
            if left > 0 && (self.engine.live() == 0 || self.noise.one_in(3)) {
                for _ in 0..(1 + self.noise.below(4)).min(left) {
                    self.arrive();
                    left -= 1;
                }
            }
            if self.engine.stats().cancelled < 10
                && self.noise.one_in(20)
                && let Some(&id) = self.requests.keys().nth(self.noise.below(self.requests.len()))
            {
                assert!(self.engine.cancel(id));
                assert!(!self.engine.cancel(id));
                self.requests.remove(&id);
                self.tokens.remove(&id);
            }
            if faults.failing_kernels && self.noise.one_in(15) {
                self.engine.model_mut().break_after(self.noise.below(3));
            }
            self.step();
            steps += 1;
            assert!(steps < 20_000, "no end in sight");
        }
        self.engine.stats()
    }
}

/// One arbitrary change of a plan.
fn tamper(ops: &mut Vec<Op>, pages: usize, noise: &mut Noise) {
    if ops.is_empty() {
        return;
    }
    let at = noise.below(ops.len());
    let page = noise.below(pages) as u32;
    match noise.below(5) {
        0 => {
            ops.remove(at);
        }
        1 => ops.insert(at, ops[at].clone()),
        2 => {
            let other = noise.below(ops.len());
            ops.swap(at, other);
        }
        3 => ops.push(Op::Adopt(page, noise.below(pages) as u32)),
        _ => {
            ops[at] = match ops[at] {
                Op::Attach(request, _) => Op::Attach(request, page),
                Op::Grow(request, _) if noise.one_in(2) => Op::Attach(request, page),
                Op::Grow(request, _) => Op::Grow(request, page),
                Op::Fill(request, count) => Op::Fill(request, if noise.one_in(2) { count + 1 } else { count - 1 }),
                Op::Adopt(own, _) => Op::Adopt(own, page),
            }
        }
    }
}

fn simulate(seeds: std::ops::Range<u64>, faults: Faults) -> (Stats, usize, usize) {
    let mut total = Stats::default();
    let (mut rows, mut failed) = (0, 0);
    for seed in seeds {
        let mut simulation = Simulation::new(seed, faults);
        let stats = simulation.run(60, faults);
        assert_eq!(simulation.finished + stats.cancelled as usize, 60, "seed {seed} lost a request");
        rows += simulation.rows_checked;
        failed += simulation.failed;
        total.refused_plans += stats.refused_plans;
        total.recomputed_tokens += stats.recomputed_tokens;
        total.mixed_steps += stats.mixed_steps;
        total.cancelled += stats.cancelled;
        total.steps += stats.steps;
        total.steps_ahead += stats.steps_ahead;
        total.rows_dropped += stats.rows_dropped;
        total.policy.preemptions += stats.policy.preemptions;
        total.policy.attached_tokens += stats.policy.attached_tokens;
        total.policy.adoptions += stats.policy.adoptions;
        total.policy.evictions += stats.policy.evictions;
    }
    println!("{rows} rows checked, {failed} requests failed, {total:?}");
    (total, rows, failed)
}

#[test]
fn every_row_is_its_own_prefix() {
    let (stats, rows, failed) = simulate(0..200, Faults::default());
    // The run means nothing unless everything in question happened, and often.
    assert_eq!(stats.refused_plans, 0);
    assert!(rows > 10_000 && failed > 100);
    assert!(stats.policy.preemptions > 500 && stats.recomputed_tokens > 500);
    assert!(stats.policy.attached_tokens > 5_000 && stats.policy.evictions > 1_000 && stats.policy.adoptions > 50);
    assert!(stats.cancelled > 100 && stats.mixed_steps > 1_000);
}

#[test]
fn running_ahead_changes_nothing() {
    let (stats, rows, failed) = simulate(0..200, Faults { run_ahead: true, ..Faults::default() });
    assert_eq!(stats.refused_plans, 0);
    assert!(rows > 10_000 && failed > 100);
    assert!(stats.policy.preemptions > 500 && stats.recomputed_tokens > 500);
    assert!(stats.policy.attached_tokens > 5_000 && stats.policy.evictions > 1_000 && stats.policy.adoptions > 50);
    assert!(stats.cancelled > 100 && stats.mixed_steps > 1_000);
    // About half of the requests shape their rows, which nobody can run ahead of.
    assert!(stats.steps_ahead * 4 > stats.steps && stats.rows_dropped > 500);
}

#[test]
fn running_ahead_survives_wrong_plans_and_failing_kernels() {
    let (stats, rows, _) =
        simulate(4000..4060, Faults { tampered_plans: true, failing_kernels: true, run_ahead: true });
    assert!(stats.refused_plans > 200 && stats.recomputed_tokens > 500 && stats.steps_ahead > 1_000 && rows > 2_000);
    let (stats, ..) = simulate(5000..5060, Faults { failing_kernels: true, run_ahead: true, ..Faults::default() });
    assert!(stats.recomputed_tokens > 500 && stats.steps_ahead > 1_000);
}

#[test]
fn wrong_plans_cost_time_and_nothing_else() {
    let (stats, rows, _) = simulate(1000..1060, Faults { tampered_plans: true, ..Faults::default() });
    assert!(stats.refused_plans > 500 && rows > 3_000);
}

#[test]
fn failing_kernels_lose_nothing() {
    let faults = Faults { failing_kernels: true, ..Faults::default() };
    let (stats, rows, _) = simulate(2000..2060, faults);
    assert!(stats.recomputed_tokens > 500 && rows > 3_000);
}

#[test]
fn both_at_once() {
    simulate(3000..3040, Faults { failing_kernels: true, tampered_plans: true, ..Faults::default() });
}

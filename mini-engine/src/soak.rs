//! A long run under stress: requests that arrive at random, leave at random and share too small a pool. Every request that
//! finishes is run again alone, and its logits and tokens are compared by bits.

use std::collections::BTreeMap;

use crate::determinism::Trouble;
use crate::determinism::lab::Lab;
use crate::determinism::subject::Streams;
use crate::engine::noise::Noise;
use crate::engine::{Engine, EngineConfig, Event, Failure, Request, RequestId, Sampling, Stats, logits_digest};

/// What a soak is made of.
#[derive(Clone, Debug)]
pub struct Soak {
    /// Pool, pages and rows of a step. The pool should hold a few requests, not all.
    pub config: EngineConfig,
    /// Shortest and longest prompt.
    pub prompts: (usize, usize),
    /// Most tokens of an answer.
    pub answer_max: usize,
    /// Requests that are there at one time, at most.
    pub live_max: usize,
    /// Seed of everything that is random.
    pub seed: u64,
}

/// What happened so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that finished and were compared.
    pub compared: u64,
    /// Tokens of these whose logits row was compared.
    pub rows: u64,
    /// Rows or tokens that differ from the request alone.
    pub different: u64,
    /// The first difference, in words.
    pub first_difference: Option<String>,
    /// Requests that failed because they hold the token whose keys and values are made not finite.
    pub poisoned: u64,
    /// What the engine counted.
    pub stats: Stats,
    /// Steps whose launches were replayed.
    pub replayed: u64,
}

/// A request on its way.
struct Flight {
    request: Request,
    tokens: Vec<u32>,
    digests: Vec<blake3::Hash>,
}

/// A soak in progress.
pub struct Run<'a, L: Lab> {
    lab: &'a L,
    soak: Soak,
    engine: Engine<L::Model>,
    /// Runs requests alone; its cache is never read.
    alone: Engine<L::Model>,
    streams: Streams,
    noise: Noise,
    flights: BTreeMap<RequestId, Flight>,
    tally: Tally,
}

impl<'a, L: Lab> Run<'a, L> {
    /// Two engines: one under stress, one that runs a request alone. `passage` is text in the model's tokens.
    pub fn new(lab: &'a L, soak: Soak, passage: Vec<u32>) -> Result<Self, Trouble> {
        let longest = soak.prompts.1 + soak.answer_max;
        let pages = longest.div_ceil(soak.config.page_tokens.max(1));
        let alone =
            EngineConfig { pages, step_rows_max: longest, running_max: 1, run_ahead: false, ..soak.config.clone() };
        Ok(Self {
            engine: Engine::new(lab.model(&soak.config, 1)?, soak.config.clone())?,
            alone: Engine::new(lab.model(&alone, 2)?, alone)?,
            streams: Streams::new(passage, lab.vocab(), lab.poison_token()),
            noise: Noise::new(soak.seed),
            flights: BTreeMap::new(),
            tally: Tally::default(),
            lab,
            soak,
        })
    }

    /// What happened so far.
    pub fn tally(&self) -> Tally {
        let replayed = L::replayed(self.engine.model());
        Tally { stats: self.engine.stats(), replayed, ..self.tally.clone() }
    }

    /// One step, with what may happen before it. With `drain` nobody new arrives. False when nobody is left.
    pub fn step(&mut self, drain: bool) -> Result<bool, Trouble> {
        // Bursts and pauses: whether anybody arrives changes every few dozen steps.
        let busy = self.tally.stats.steps / 48 % 4 != 3;
        while !drain && self.flights.len() < self.soak.live_max && busy && self.noise.below(3) > 0 {
            self.arrive()?;
        }
        if self.noise.below(12) == 0 {
            self.leave();
        }
        if self.flights.is_empty() {
            if drain {
                return Ok(false);
            }
            self.arrive()?;
        }
        for event in self.engine.step()? {
            self.take(event)?;
        }
        self.tally.stats = self.engine.stats();
        Ok(true)
    }

    /// A request that shares its beginning with some and its settings with none.
    fn arrive(&mut self) -> Result<(), Trouble> {
        let (shortest, longest) = self.soak.prompts;
        let length = shortest + self.noise.below(longest - shortest + 1);
        let stem = self.noise.below(6);
        let mut prompt = self.streams.tokens(stem, length);
        // The tail is the request's own, from anywhere in it.
        let own = self.noise.below(length);
        let tail = self.streams.tokens(100 + self.noise.below(1 << 20), length - own);
        prompt.truncate(own);
        prompt.extend(tail);
        if self.noise.below(64) == 0 {
            let at = self.noise.below(length);
            prompt[at] = self.lab.poison_token();
        }
        let sampling = Sampling {
            temperature: [0.0, 0.7, 1.0, 4.0][self.noise.below(4)],
            top_k: [None, Some(40), Some(3)][self.noise.below(3)],
            top_p: [1.0, 0.9][self.noise.below(2)],
            min_p: [0.0, 0.05][self.noise.below(2)],
            seed: self.noise.below(1 << 30) as u64,
            ..Sampling::default()
        };
        let tokens_max = 1 + self.noise.below(self.soak.answer_max);
        let request = Request { prompt, sampling, tokens_max, digest_logits: true, ..Request::default() };
        let id = self.engine.submit(request.clone())?;
        self.flights.insert(id, Flight { request, tokens: Vec::new(), digests: Vec::new() });
        Ok(())
    }

    fn leave(&mut self) {
        let ids: Vec<RequestId> = self.flights.keys().copied().collect();
        if let Some(id) = ids.get(self.noise.below(ids.len().max(1))) {
            self.engine.cancel(*id);
            self.flights.remove(id);
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Trouble> {
        let Some(flight) = self.flights.get_mut(&event.id()) else { return Ok(()) };
        match event {
            Event::Token { committed, logits_digest, .. } => {
                flight.tokens.push(committed);
                flight.digests.extend(logits_digest);
            }
            Event::Finished { id, .. } => {
                let flight = self.flights.remove(&id);
                if let Some(flight) = flight {
                    self.compare(&flight)?;
                }
            }
            Event::Failed { id, failure } => {
                let poison = self.lab.poison_token();
                let holds =
                    |flight: &Flight| flight.request.prompt.contains(&poison) || flight.tokens.contains(&poison);
                let asked_for = self.flights.remove(&id).is_some_and(|flight| holds(&flight));
                if !asked_for || !matches!(failure, Failure::NonFiniteKv { .. }) {
                    return Err(format!("request {}: {failure}, which nothing asked for", id.0).into());
                }
                self.tally.poisoned += 1;
            }
            Event::Logits { .. } => {}
        }
        Ok(())
    }

    /// Runs prompt and answer alone, in one prefill, and compares every row that a token was chosen from.
    fn compare(&mut self, flight: &Flight) -> Result<(), Trouble> {
        let Flight { request, tokens, digests, .. } = flight;
        let known = tokens.len() - 1;
        let first = request.prompt.len() - 1;
        let prompt = [&request.prompt[..], &tokens[..known]].concat();
        let again =
            Request { prompt, tokens_max: 1, logits_from: Some(first), bypass_cache: true, ..Request::default() };
        self.alone.submit(again)?;
        let mut rows = 0;
        for event in self.alone.step()? {
            let Event::Logits { position, row, .. } = event else { continue };
            let at = position - first;
            let choice = Lab::sample(self.lab, &row, &request.sampling.params(position + 1))?;
            rows += 1;
            if digests.get(at) != Some(&logits_digest(&row)) || choice.token != tokens[at] {
                self.tally.different += 1;
                let what = format!("a request of {} prompt tokens, token {at} of its answer", request.prompt.len());
                self.tally.first_difference.get_or_insert(what);
            }
        }
        if rows != tokens.len() || self.alone.live() > 0 {
            return Err(format!("alone, {rows} of {} rows were computed", tokens.len()).into());
        }
        self.tally.compared += 1;
        self.tally.rows += rows as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::determinism::FakeLab;

    fn soak() -> Soak {
        let config = EngineConfig { page_tokens: 4, pages: 24, step_rows_max: 16, ..EngineConfig::default() };
        Soak { config, prompts: (1, 40), answer_max: 12, live_max: 12, seed: 5 }
    }

    #[test]
    fn everything_that_should_happen_happens_and_nothing_differs() {
        for run_ahead in [false, true] {
            stress(run_ahead);
        }
    }

    fn stress(run_ahead: bool) {
        let mut soak = soak();
        soak.config.run_ahead = run_ahead;
        let lab = FakeLab::default();
        let mut run = Run::new(&lab, soak, (0..50).collect()).unwrap();
        for _ in 0..6000 {
            run.step(false).unwrap();
        }
        while run.step(true).unwrap() {}
        let tally = run.tally();
        assert_eq!((tally.different, tally.first_difference.as_deref()), (0, None));
        assert!(tally.compared > 300 && tally.poisoned > 3, "{tally:?}");
        let stats = tally.stats;
        assert!(stats.cancelled > 50 && stats.policy.preemptions > 10, "{stats:?}");
        assert!(stats.policy.attached_tokens > 500 && stats.policy.evictions > 50, "{stats:?}");
        assert_eq!((stats.refused_plans, stats.steps_ahead > 1000), (0, run_ahead));
    }
}

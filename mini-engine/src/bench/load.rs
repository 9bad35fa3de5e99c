//! Runs a workload on an engine and notes when what happened.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::workload::Arrival;
use crate::engine::{Engine, Event, RequestId, RowModel, Stats};

/// What stops a run.
pub type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// One request as it went.
#[derive(Clone, Debug, Default)]
pub struct Flight {
    /// Tokens of its prompt, those of earlier turns included.
    pub prompt_tokens: usize,
    /// When it was due, since the start.
    pub due: Duration,
    /// When each of its tokens came.
    pub times: Vec<Duration>,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Digests of the rows that they were chosen from, where asked for.
    pub digests: Vec<blake3::Hash>,
}

impl Flight {
    /// From due to the first token.
    pub fn first_token(&self) -> Option<Duration> {
        self.times.first().map(|first| first.saturating_sub(self.due))
    }

    /// Mean time between its tokens.
    pub fn token_interval(&self) -> Option<Duration> {
        let (first, last) = (self.times.first()?, self.times.last()?);
        let gaps = u32::try_from(self.times.len() - 1).ok().filter(|&gaps| gaps > 0)?;
        Some((*last - *first) / gaps)
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Flown {
    /// One for each arrival.
    pub flights: Vec<Flight>,
    /// From the start to the last token.
    pub elapsed: Duration,
    /// How long each step took, and how many rows it had.
    pub steps: Vec<(Duration, usize)>,
    /// What the engine counted.
    pub stats: Stats,
}

impl Flown {
    /// BLAKE3 over the digests of all logits rows, request by request.
    pub fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for digest in self.flights.iter().flat_map(|flight| &flight.digests) {
            hasher.update(digest.as_bytes());
        }
        hasher.finalize()
    }

    /// Prompt and generated tokens.
    pub fn tokens(&self) -> (usize, usize) {
        let prompt = self.flights.iter().map(|flight| flight.prompt_tokens).sum();
        (prompt, self.flights.iter().map(|flight| flight.tokens.len()).sum())
    }
}

/// Runs all arrivals to their end. `digests` asks for a digest of every logits row; `progress` is told how many requests are
/// over.
pub fn run<M: RowModel>(
    engine: &mut Engine<M>,
    arrivals: &[Arrival],
    digests: bool,
    progress: &mut dyn FnMut(usize),
) -> Result<Flown, Trouble> {
    let mut state =
        State { arrivals, flights: vec![Flight::default(); arrivals.len()], live: BTreeMap::new(), digests };
    let mut waiting: Vec<usize> = (0..arrivals.len()).collect();
    let (mut steps, mut over) = (Vec::new(), vec![false; arrivals.len()]);
    let start = Instant::now();
    let mut elapsed = Duration::ZERO;
    while !waiting.is_empty() || engine.live() > 0 {
        let now = start.elapsed();
        let ready =
            |index: &usize| arrivals[*index].at <= now && arrivals[*index].after.is_none_or(|before| over[before]);
        let (due, later) = waiting.iter().partition(|index| ready(index));
        waiting = later;
        for index in due {
            state.submit(engine, index, now)?;
        }
        if engine.live() == 0 {
            // Nobody is there yet: sleep until someone is due.
            let next = waiting.iter().map(|&index| arrivals[index].at).min().unwrap_or_default();
            std::thread::sleep(next.saturating_sub(start.elapsed()));
            continue;
        }
        let (before, rows) = (start.elapsed(), engine.stats().rows);
        let events = engine.step()?;
        elapsed = start.elapsed();
        steps.push((elapsed - before, (engine.stats().rows - rows) as usize));
        for index in state.take(events, elapsed)? {
            over[index] = true;
            progress(over.iter().filter(|over| **over).count());
        }
    }
    Ok(Flown { flights: state.flights, elapsed, steps, stats: engine.stats() })
}

struct State<'a> {
    arrivals: &'a [Arrival],
    flights: Vec<Flight>,
    live: BTreeMap<RequestId, usize>,
    digests: bool,
}

impl State<'_> {
    fn submit<M: RowModel>(&mut self, engine: &mut Engine<M>, index: usize, now: Duration) -> Result<(), Trouble> {
        let arrival = &self.arrivals[index];
        let mut request = arrival.request.clone();
        let mut due = arrival.at;
        if let Some(before) = arrival.after {
            // The conversation so far: the earlier prompt is not stored, so it is put together from its turns.
            request.prompt = [self.conversation(before), request.prompt].concat();
            due = now;
        }
        request.digest_logits = self.digests;
        self.flights[index] = Flight { prompt_tokens: request.prompt.len(), due, ..Flight::default() };
        self.live.insert(engine.submit(request)?, index);
        Ok(())
    }

    fn conversation(&self, index: usize) -> Vec<u32> {
        let earlier = self.arrivals[index].after.map_or(Vec::new(), |before| self.conversation(before));
        [&earlier[..], &self.arrivals[index].request.prompt, &self.flights[index].tokens].concat()
    }

    /// Notes events; returns who is over.
    fn take(&mut self, events: Vec<Event>, now: Duration) -> Result<Vec<usize>, Trouble> {
        let mut over = Vec::new();
        for event in events {
            let Some(&index) = self.live.get(&event.id()) else { continue };
            let flight = &mut self.flights[index];
            match event {
                Event::Token { committed, logits_digest, .. } => {
                    flight.times.push(now);
                    flight.tokens.push(committed);
                    flight.digests.extend(logits_digest);
                }
                Event::Finished { .. } => over.push(index),
                Event::Failed { failure, .. } => return Err(failure.into()),
                Event::Logits { .. } => {}
            }
        }
        Ok(over)
    }
}

/// The value below which a share of the values lies; the largest of few.
pub fn percentile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let index = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1)) - 1;
    values.get(index).copied()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kernels_rs::cpu::Cpu;
    use reduction_tree::arithmetic::Arithmetic;

    use super::*;
    use crate::bench::Workload;
    use crate::device_model::DeviceModel;
    use crate::engine::EngineConfig;
    use crate::model::{Family, LoadOptions, Model, Source, Tiny};

    fn fly(workload: &Workload, digests: bool) -> Flown {
        let config = EngineConfig { page_tokens: 4, pages: 400, ..EngineConfig::default() };
        let checkpoint = Source::Tiny(Box::new(Tiny::new(Family::Llama, 1))).open().unwrap();
        let backend = Arc::new(Cpu::new(Arithmetic::Ieee, 1).unwrap());
        let model = Model::load(&checkpoint, backend, LoadOptions::default(), &mut |_| ()).unwrap();
        let vocab = model.config().vocab;
        let mut engine = Engine::new(DeviceModel::for_tokens(Arc::new(model), &config).unwrap(), config).unwrap();
        let mut over = 0;
        let flown = run(&mut engine, &workload.arrivals(vocab, 3), digests, &mut |count| over = count).unwrap();
        assert_eq!(over, flown.flights.len());
        flown
    }

    #[test]
    fn a_timed_run_and_its_proof_choose_the_same_tokens() {
        for workload in [
            Workload::Mixed { requests: 9, prompts: (1, 20), answer: 5, rate: Some(2000.0) },
            Workload::Sessions { sessions: 3, turns: 3, shared: 8, question: 3, answer: 4 },
            Workload::Decode { batch: 3, context: 7, steps: 4 },
        ] {
            let (timed, proof) = (fly(&workload, false), fly(&workload, true));
            let tokens = |flown: &Flown| flown.flights.iter().map(|f| f.tokens.clone()).collect::<Vec<_>>();
            assert_eq!(tokens(&timed), tokens(&proof));
            assert!(timed.flights.iter().all(|flight| flight.digests.is_empty()));
            assert!(proof.flights.iter().all(|flight| flight.digests.len() == flight.tokens.len()));
            assert_ne!(timed.digest(), proof.digest());
            assert_eq!(proof.digest(), fly(&workload, true).digest());
        }
    }

    #[test]
    fn later_turns_find_their_conversation_in_the_cache() {
        let flown = fly(&Workload::Sessions { sessions: 2, turns: 2, shared: 8, question: 4, answer: 4 }, false);
        assert_eq!(flown.flights.iter().map(|f| f.prompt_tokens).collect::<Vec<_>>(), [12, 12, 20, 20]);
        // Two pages of the stem for the second conversation, and at least three pages of each first turn.
        assert!(flown.stats.policy.attached_tokens >= 8 + 2 * 12, "{:?}", flown.stats.policy);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        assert_eq!(percentile(&mut [], 0.5), None);
        let mut values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.5, 0.51, 0.99].map(|share| percentile(&mut values, share).unwrap()), [1.0, 2.0, 3.0, 4.0]);
    }
}

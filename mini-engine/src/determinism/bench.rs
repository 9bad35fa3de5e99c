//! Runs subjects in company and compares every row with the same request alone, cold, in one prefill.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kernels_rs::backend::Sampled;

use super::lab::{Lab, Referee};
use super::sabotage::{Break, Sabotaged};
use super::subject::{Streams, Subject};
use super::tally::{Difference, Differing, Tally, first_difference};
use crate::engine::{Engine, EngineConfig, Event, Request, RequestId, Sampling, Stats};

/// Anything that stops a relation.
pub type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// Tokens of a page in every relation.
pub const PAGE_TOKENS: usize = 64;

/// More steps than any relation needs: beyond it, a broken scheduler goes round in circles.
const STEPS_MAX: usize = 5_000;

/// The engine that a relation drives.
pub type BenchEngine<L> = Engine<Sabotaged<<L as Lab>::Model>>;

/// A configuration with room for everything and steps large enough for whole prompts.
pub fn roomy() -> EngineConfig {
    EngineConfig { page_tokens: PAGE_TOKENS, pages: 48, step_rows_max: 512, ..EngineConfig::default() }
}

/// Logits rows of one token sequence, from `from` on.
struct Reference {
    from: usize,
    rows: Vec<Vec<f32>>,
}

/// A lab, the references it has produced, and the fault under test.
pub struct Bench<'a, L: Lab> {
    /// Where models come from.
    pub lab: &'a L,
    /// Token streams for subjects.
    pub streams: Streams,
    /// The deliberate fault.
    pub kind: Option<Break>,
    referee: &'a dyn Referee,
    references: BTreeMap<(Vec<u32>, usize), Rc<Reference>>,
    digest: blake3::Hasher,
    engines: u64,
}

impl<'a, L: Lab> Bench<'a, L> {
    /// No references yet.
    pub fn new(lab: &'a L, referee: &'a dyn Referee, passage: Vec<u32>, kind: Option<Break>) -> Self {
        let streams = Streams::new(passage, lab.vocab(), lab.poison_token());
        Self { lab, streams, kind, referee, references: BTreeMap::new(), digest: blake3::Hasher::new(), engines: 0 }
    }

    /// BLAKE3 over the bits of all reference rows, in the order in which they were first needed.
    pub fn digest(&self) -> blake3::Hash {
        self.digest.finalize()
    }

    /// Distinct reference rows.
    pub fn reference_rows(&self) -> usize {
        self.references.values().map(|reference| reference.rows.len()).sum()
    }

    /// An engine with fresh memory full of garbage, ahead of the device where the lab wants that.
    pub fn run(&mut self, config: EngineConfig) -> Result<Run<L>, Trouble> {
        let run_ahead = self.lab.runs_ahead();
        self.run_in(None, EngineConfig { run_ahead, ..config })
    }

    /// The same in another lab, configured exactly so.
    pub fn run_in(&mut self, lab: Option<&L>, config: EngineConfig) -> Result<Run<L>, Trouble> {
        self.engines += 1;
        let model = lab.unwrap_or(self.lab).model(&config, self.engines)?;
        let mut engine = Engine::new(Sabotaged::new(model, self.kind, config.page_tokens), config)?;
        if let Some(tamper) = self.kind.and_then(Break::in_plans) {
            engine.set_tamper(tamper);
        }
        Ok(Run { engine, flights: BTreeMap::new(), steps: 0 })
    }

    fn reference(&mut self, subject: &Subject) -> Result<Rc<Reference>, Trouble> {
        let key = (subject.tokens.clone(), subject.watch_from);
        if let Some(reference) = self.references.get(&key) {
            return Ok(reference.clone());
        }
        let rows = self.referee.rows(subject)?;
        for value in rows.iter().flatten() {
            self.digest.update(&value.to_bits().to_le_bytes());
        }
        let reference = Rc::new(Reference { from: subject.watch_from, rows });
        self.references.insert(key, reference.clone());
        Ok(reference)
    }

    /// Submits a subject to a run; its rows will be compared.
    pub fn submit(&mut self, run: &mut Run<L>, subject: &Subject) -> Result<RequestId, Trouble> {
        let reference = self.reference(subject)?;
        let id = run.engine.submit(subject.request())?;
        run.flights.insert(id, Flight { subject: subject.clone(), reference, seen: BTreeSet::new(), over: false });
        Ok(id)
    }

    /// One step of a run, compared.
    pub fn step(&self, run: &mut Run<L>, tally: &mut Tally) -> Result<(), Trouble> {
        run.steps += 1;
        if run.steps > STEPS_MAX {
            return Err(format!("no end after {STEPS_MAX} steps").into());
        }
        // The row of a position comes before the token chosen from it.
        let mut row_of: BTreeMap<RequestId, Vec<f32>> = BTreeMap::new();
        for event in run.engine.step()? {
            let Some(flight) = run.flights.get_mut(&event.id()) else { continue };
            match event {
                Event::Logits { id, position, row } => {
                    let Some(reference) = flight.reference.rows.get(position - flight.reference.from) else {
                        // Only where a token differs that was not forced.
                        tally.missing(1, format!("{} goes on at position {position}", flight.name(id)));
                        continue;
                    };
                    let difference = first_difference(reference, &row);
                    flight.seen.insert(position);
                    tally.compared(difference.map(|what| flight.difference(id, position, what)));
                    row_of.insert(id, row);
                }
                Event::Token { id, position, sampled, .. } => {
                    if let Some(what) = self.wrong_choice(flight, position, sampled, row_of.get(&id))? {
                        tally.compared(Some(flight.difference(id, position, what)));
                    }
                }
                Event::Finished { .. } => flight.over = true,
                Event::Failed { id, failure } => {
                    flight.over = true;
                    tally.missing(1, format!("{} failed: {failure}", flight.name(id)));
                }
            }
        }
        Ok(())
    }

    /// What must be chosen for a position from the row before it: adjusted as the subject asks, but with the unmodified row's
    /// log-probability.
    fn choice(&self, subject: &Subject, position: usize, reference: &[f32]) -> Result<Sampled, Trouble> {
        let mut row = reference.to_vec();
        subject.sampling.adjust.apply(&subject.tokens[..position], subject.prompt, &mut row);
        let mut chosen = self.referee.sample(&row, &subject.sampling.params(position))?;
        if !subject.sampling.adjust.is_neutral() {
            let greedy = self.referee.sample(reference, &Sampling::default().params(position))?;
            let below = reference[chosen.token as usize] - reference[greedy.token as usize];
            chosen.logprob = below + greedy.logprob;
        }
        Ok(chosen)
    }

    /// Whether the choice differs although the logits do not.
    fn wrong_choice(
        &self,
        flight: &Flight,
        position: usize,
        sampled: Sampled,
        row: Option<&Vec<f32>>,
    ) -> Result<Option<Differing>, Trouble> {
        let Some(reference) = flight.reference.rows.get(position - 1 - flight.reference.from) else { return Ok(None) };
        if row.is_none_or(|row| first_difference(reference, row).is_some()) {
            return Ok(None);
        }
        let expected = self.choice(&flight.subject, position, reference)?;
        Ok(if expected.token != sampled.token {
            Some(Differing::Token { expected: expected.token, got: sampled.token })
        } else if expected.logprob.to_bits() != sampled.logprob.to_bits() {
            Some(Differing::Logprob { expected: expected.logprob, got: sampled.logprob })
        } else {
            None
        })
    }

    /// Runs to the end, and checks that every subject produced what it had to.
    pub fn finish(&self, run: &mut Run<L>, tally: &mut Tally) -> Result<Stats, Trouble> {
        while run.engine.live() > 0 {
            self.step(run, tally)?;
        }
        for (id, flight) in &run.flights {
            // Positions before the last prompt token may be answered by the cache.
            let must = flight.subject.prompt - 1..flight.subject.tokens.len();
            let lost = must.filter(|position| !flight.seen.contains(position)).count();
            tally.missing(lost, format!("{} did not produce {lost} rows", flight.name(*id)));
            tally.missing(usize::from(!flight.over), format!("{} did not finish", flight.name(*id)));
        }
        let stats = run.engine.stats();
        tally.never("plans that the ledger refused", stats.refused_plans);
        Ok(stats)
    }
}

/// A subject on its way.
struct Flight {
    subject: Subject,
    reference: Rc<Reference>,
    seen: BTreeSet<usize>,
    over: bool,
}

impl Flight {
    fn name(&self, id: RequestId) -> String {
        format!(
            "request {} ({} prompt + {} forced tokens)",
            id.0,
            self.subject.prompt,
            self.subject.tokens.len() - self.subject.prompt
        )
    }

    fn difference(&self, id: RequestId, position: usize, what: Differing) -> Difference {
        Difference { request: self.name(id), position, what }
    }
}

/// One engine and the subjects in it.
pub struct Run<L: Lab> {
    /// The engine, for neighbours that are not compared.
    pub engine: BenchEngine<L>,
    flights: BTreeMap<RequestId, Flight>,
    steps: usize,
}

impl<L: Lab> Run<L> {
    /// Submits a request that is company only.
    pub fn neighbour(&mut self, request: Request) -> Result<RequestId, Trouble> {
        Ok(self.engine.submit(request)?)
    }

    /// Whether a compared subject is over.
    pub fn is_over(&self, id: RequestId) -> bool {
        self.flights.get(&id).is_none_or(|flight| flight.over)
    }
}

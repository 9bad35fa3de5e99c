//! The engine on a thread of its own: commands in through one channel, updates out through one channel a request.
//!
//! The engine core knows nothing of threads; this loop feeds it and passes on what it says. A request whose [`Ticket`] is
//! dropped is cancelled before the next step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::row::RowFacts;
use crate::engine::request::Limits;
use crate::engine::{Engine, Event, Failure, Finish, Refusal, Request, RequestId, RowModel, Stats};

/// Steps in a row that may fail, or compute nothing, before the live requests are given up.
const FRUITLESS_STEPS_MAX: u32 = 4;

/// What to report of the logits rows that a request asks for with `logits_from`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// How many of the most likely tokens.
    pub top: usize,
}

/// What became of a submitted request.
#[derive(Debug)]
pub enum Update {
    /// A row inside the prompt, for the log-probability of the prompt's next token.
    PromptRow {
        /// Position of the row; the facts are about the token after it.
        position: usize,
        /// The facts.
        facts: RowFacts,
    },
    /// A token joined the answer.
    Token {
        /// It.
        token: u32,
        /// Its log-probability under the unmodified logits.
        logprob: f32,
        /// Facts of the row it was chosen from, where the request asks for logits.
        facts: Option<RowFacts>,
        /// Positions that the prefix cache answered so far.
        cached_tokens: usize,
        /// Digest of the row it was chosen from, where the request asks for digests.
        logits_digest: Option<blake3::Hash>,
    },
    /// The answer is complete.
    Finished(Finish),
    /// The request failed on its own account.
    Failed(Failure),
    /// The engine does not take the request.
    Refused(Refusal),
    /// The engine gave up all live requests.
    Abandoned(String),
}

enum Command {
    Submit { ticket: u64, request: Box<Request>, watch: Watch, updates: UnboundedSender<Update> },
    Cancel(u64),
}

/// A running engine thread, as its users see it.
pub struct Worker {
    commands: Sender<Command>,
    limits: Limits,
    next_ticket: AtomicU64,
    shared: Arc<Shared>,
}

/// What the thread lets others see.
#[derive(Debug, Default)]
struct Shared {
    stats: Mutex<Stats>,
    live: AtomicU64,
    ended: AtomicBool,
    failing: AtomicBool,
}

impl Worker {
    /// Moves an engine to a thread of its own. The thread ends when the worker and all tickets are gone.
    pub fn start<M: RowModel + Send + 'static>(engine: Engine<M>) -> std::io::Result<Self> {
        let (commands, inbox) = channel();
        let limits = engine.limits();
        let shared = Arc::new(Shared::default());
        let mut seat = Seat { engine, shared: shared.clone(), flights: BTreeMap::new(), requests: BTreeMap::new() };
        std::thread::Builder::new().name("engine".into()).spawn(move || {
            // Set even if the engine panics, so that nobody takes it for alive.
            let _ended = SetOnDrop(seat.shared.clone());
            seat.run(&inbox);
        })?;
        Ok(Self { commands, limits, next_ticket: AtomicU64::new(0), shared })
    }

    /// The limits that requests are checked against.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Counts up to the last step.
    pub fn stats(&self) -> Stats {
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests in the engine.
    pub fn live(&self) -> u64 {
        self.shared.live.load(Ordering::Relaxed)
    }

    /// Whether steps are being computed: the thread is there and its last step did not fail.
    pub fn is_healthy(&self) -> bool {
        !self.shared.ended.load(Ordering::Relaxed) && !self.shared.failing.load(Ordering::Relaxed)
    }

    /// Hands a request over. Should the engine be gone, the ticket says so.
    pub fn submit(&self, request: Request, watch: Watch) -> Ticket {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let (sender, updates) = unbounded_channel();
        let submit = Command::Submit { ticket, request: Box::new(request), watch, updates: sender };
        // A send fails only when the thread has ended; then the update channel is closed, which the ticket reports.
        let _ = self.commands.send(submit);
        Ticket { ticket, updates, commands: self.commands.clone() }
    }
}

/// A request in the engine. Dropping it cancels the request.
pub struct Ticket {
    ticket: u64,
    updates: UnboundedReceiver<Update>,
    commands: Sender<Command>,
}

impl Ticket {
    /// The next update; `Abandoned` for ever once the engine is gone.
    pub async fn next(&mut self) -> Update {
        self.updates.recv().await.unwrap_or_else(|| Update::Abandoned("the engine has stopped".into()))
    }
}

impl Ticket {
    /// Ends the request; updates on their way may still come.
    pub fn cancel(&self) {
        let _ = self.commands.send(Command::Cancel(self.ticket));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel();
    }
}

struct SetOnDrop(Arc<Shared>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

/// A request on its way.
struct Flight {
    ticket: u64,
    watch: Watch,
    prompt: Vec<u32>,
    updates: UnboundedSender<Update>,
    /// Facts of the row that the next token is chosen from.
    facts: Option<RowFacts>,
    /// First position whose row has not been reported; a preempted request computes rows again.
    reported: usize,
}

/// The thread's own state.
struct Seat<M: RowModel> {
    engine: Engine<M>,
    shared: Arc<Shared>,
    flights: BTreeMap<RequestId, Flight>,
    requests: BTreeMap<u64, RequestId>,
}

impl<M: RowModel> Seat<M> {
    fn run(&mut self, inbox: &Receiver<Command>) {
        let mut fruitless = 0;
        loop {
            if self.engine.live() == 0 {
                let Ok(command) = inbox.recv() else { return };
                self.obey(command);
            }
            loop {
                match inbox.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if self.engine.live() == 0 {
                // Only cancellations; whether steps succeed is as unknown as before.
                self.publish();
                continue;
            }
            let before = self.engine.stats().steps;
            let stepped = self.engine.step();
            // Before anybody hears of the step.
            self.publish();
            let trouble = match stepped {
                Ok(events) => {
                    events.into_iter().for_each(|event| self.pass_on(event));
                    "its plans are refused".to_owned()
                }
                Err(error) => error.to_string(),
            };
            let advanced = self.engine.live() == 0 || self.engine.stats().steps > before;
            fruitless = if advanced { 0 } else { fruitless + 1 };
            self.shared.failing.store(fruitless > 0, Ordering::Relaxed);
            if fruitless >= FRUITLESS_STEPS_MAX {
                self.abandon(&trouble);
                fruitless = 0;
            }
        }
    }

    fn publish(&self) {
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.engine.stats();
        self.shared.live.store(self.engine.live() as u64, Ordering::Relaxed);
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit { ticket, request, watch, updates } => {
                let prompt = request.prompt.clone();
                match self.engine.submit(*request) {
                    Ok(id) => {
                        self.requests.insert(ticket, id);
                        let flight = Flight { ticket, watch, prompt, updates, facts: None, reported: 0 };
                        self.flights.insert(id, flight);
                    }
                    Err(refusal) => drop(updates.send(Update::Refused(refusal))),
                }
            }
            Command::Cancel(ticket) => {
                if let Some(id) = self.requests.remove(&ticket) {
                    self.flights.remove(&id);
                    self.engine.cancel(id);
                }
            }
        }
    }

    /// Passes an event on. A receiver that is gone has sent a cancellation, so a failing send needs no care.
    fn pass_on(&mut self, event: Event) {
        let id = event.id();
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let (update, last) = match event {
            Event::Logits { position, row, .. } => {
                if position < flight.reported {
                    return;
                }
                flight.reported = position + 1;
                let next = flight.prompt.get(position + 1).copied();
                let facts = RowFacts::of(&row, flight.watch.top, next);
                if next.is_none() {
                    flight.facts = Some(facts);
                    return;
                }
                (Update::PromptRow { position, facts }, false)
            }
            Event::Token { sampled, committed, cached_tokens, logits_digest, .. } => {
                let facts = flight.facts.take();
                let logprob = sampled.logprob;
                (Update::Token { token: committed, logprob, facts, cached_tokens, logits_digest }, false)
            }
            Event::Finished { reason, .. } => (Update::Finished(reason), true),
            Event::Failed { failure, .. } => (Update::Failed(failure), true),
        };
        let _ = flight.updates.send(update);
        if last {
            let ticket = flight.ticket;
            self.flights.remove(&id);
            self.requests.remove(&ticket);
        }
    }

    /// Ends every live request with an error, so that one that the model cannot compute does not stop the server for ever.
    fn abandon(&mut self, trouble: &str) {
        tracing::error!(live = self.engine.live(), trouble, "the engine gives up its live requests");
        for (id, flight) in std::mem::take(&mut self.flights) {
            self.engine.cancel(id);
            let _ = flight.updates.send(Update::Abandoned(format!("the engine cannot compute a step: {trouble}")));
        }
        self.requests.clear();
        self.publish();
    }
}

#[cfg(test)]
mod tests {
    use kernels_rs::backend::{SampleParams, Sampled, StepRows};

    use super::*;
    use crate::engine::fake::{FakeError, FakeModel};
    use crate::engine::{EngineConfig, StepOutcome, Want};

    /// A model none of whose steps succeeds; with `true` they even panic, which no model should.
    struct Broken(FakeModel, bool);

    impl RowModel for Broken {
        type Error = FakeError;
        type Flight = ();

        fn vocab(&self) -> usize {
            self.0.vocab()
        }

        fn context_max(&self) -> usize {
            self.0.context_max()
        }

        fn choose(&mut self, _: &[f32], _: &[SampleParams]) -> Result<Vec<Sampled>, FakeError> {
            Err(FakeError)
        }

        fn launch(&mut self, _: StepRows, _: &[Want]) -> Result<(), FakeError> {
            assert!(!self.1, "a step that panics");
            Err(FakeError)
        }

        fn collect(&mut self, (): ()) -> Result<StepOutcome, FakeError> {
            Err(FakeError)
        }
    }

    fn fake(change: impl FnOnce(&mut FakeModel)) -> Worker {
        let config = EngineConfig::default();
        let mut model = FakeModel::new(config.pages, config.page_tokens, 1);
        change(&mut model);
        Worker::start(Engine::new(model, config).unwrap()).unwrap()
    }

    /// All tokens of a request, and the last update.
    fn run(ticket: &mut Ticket) -> (Vec<u32>, Update) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut tokens = Vec::new();
        loop {
            match runtime.block_on(ticket.next()) {
                Update::Token { token, .. } => tokens.push(token),
                Update::PromptRow { .. } => {}
                last => return (tokens, last),
            }
        }
    }

    fn request(tokens_max: usize) -> Request {
        Request { prompt: vec![1, 2, 3], tokens_max, ..Request::default() }
    }

    #[test]
    fn a_step_that_fails_once_changes_no_answer() {
        let (expected, _) = run(&mut fake(|_| {}).submit(request(20), Watch::default()));
        let worker = fake(|model| model.break_after(5));
        let (tokens, last) = run(&mut worker.submit(request(20), Watch::default()));
        assert_eq!((tokens, worker.is_healthy()), (expected, true));
        assert!(matches!(last, Update::Finished(Finish::Length)));
    }

    #[test]
    fn a_model_that_always_fails_ends_its_requests_and_not_the_worker() {
        let config = EngineConfig::default();
        let model = Broken(FakeModel::new(config.pages, config.page_tokens, 1), false);
        let worker = Worker::start(Engine::new(model, config).unwrap()).unwrap();
        for _ in 0..2 {
            let (tokens, last) = run(&mut worker.submit(request(20), Watch::default()));
            assert!(
                tokens.is_empty() && matches!(&last, Update::Abandoned(why) if why.contains("told to fail")),
                "{last:?}"
            );
            assert!(!worker.is_healthy());
        }
    }

    #[test]
    fn an_engine_that_panics_is_reported_and_leaves_nobody_waiting() {
        let config = EngineConfig::default();
        let model = Broken(FakeModel::new(config.pages, config.page_tokens, 1), true);
        let worker = Worker::start(Engine::new(model, config).unwrap()).unwrap();
        for _ in 0..2 {
            let (_, last) = run(&mut worker.submit(request(20), Watch::default()));
            assert!(matches!(&last, Update::Abandoned(why) if why == "the engine has stopped"), "{last:?}");
        }
        assert!(!worker.is_healthy());
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let worker = fake(|_| {});
        let (_, last) = run(&mut worker.submit(request(0), Watch::default()));
        assert!(matches!(last, Update::Refused(Refusal::NoTokens)));
    }

    #[test]
    fn a_dropped_ticket_is_cancelled() {
        let worker = fake(|_| {});
        drop(worker.submit(request(500), Watch::default()));
        // Commands are obeyed in order, before the next step.
        run(&mut worker.submit(request(3), Watch::default()));
        assert_eq!((worker.stats().cancelled, worker.live()), (1, 0));
    }
}

//! What every handler can reach: the served model's text side, the engine's worker, the queue, the counters.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use super::grammar::Grammars;
use super::metrics::Metrics;
use super::receipts::Receipts;
use super::run::Answer;
use super::worker::Worker;
use crate::model::{ChatTemplate, Checkpoint, GenerationDefaults, Tokenizer};
use crate::showroom::Stage;

/// Bytes of request bodies that may be in memory at the same time.
const BODY_BYTES_TOTAL: usize = 256 << 20;

/// How the server behaves towards its clients.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens.
    pub address: SocketAddr,
    /// Key that every route but `/health` asks for.
    pub api_key: Option<String>,
    /// Answers that may wait for the engine beside those that run.
    pub queue_max: usize,
    /// Open connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Largest body.
    pub body_bytes_max: usize,
    /// Longest time that the head of a request may take, and that a connection may idle between requests.
    pub head_timeout: Duration,
    /// Longest time that a body may take.
    pub body_timeout: Duration,
    /// Longest time that a client may leave a stream unread.
    pub stall_timeout: Duration,
    /// Longest time that answers may take to finish once the server shuts down.
    pub drain_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8000),
            api_key: None,
            queue_max: 256,
            connections_max: 4096,
            body_bytes_max: 4 << 20,
            head_timeout: Duration::from_secs(20),
            body_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(60),
        }
    }
}

/// The text side of a model, and its names.
pub struct Served {
    /// What clients call it.
    pub model_name: String,
    /// Digest of its plan: the `system_fingerprint` of every answer.
    pub fingerprint: String,
    /// Its vocabulary.
    pub tokenizer: Tokenizer,
    /// Its chat template.
    pub chat: Option<ChatTemplate>,
    /// Sampling that its makers recommend.
    pub defaults: GenerationDefaults,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
    /// What receipts are made of; without it none can be asked for.
    pub receipts: Option<Receipts>,
    /// What the page's experiment runs on; without it the page has none.
    pub stage: Option<Box<dyn Stage>>,
}

impl Served {
    /// Takes the text side of a checkpoint. Without a name, clients use the last part of its path.
    pub fn new(checkpoint: Checkpoint, name: Option<String>, fingerprint: String) -> Self {
        let path = checkpoint.name.trim_end_matches('/');
        let own = path.rsplit('/').next().unwrap_or(path).to_owned();
        Self {
            model_name: name.unwrap_or(own),
            fingerprint,
            tokenizer: checkpoint.tokenizer,
            chat: checkpoint.chat,
            defaults: checkpoint.defaults,
            eos: checkpoint.config.eos,
            receipts: None,
            stage: None,
        }
    }
}

/// The state of a running server.
pub struct App {
    /// The model.
    pub served: Served,
    /// The engine.
    pub worker: Worker,
    /// How it behaves.
    pub options: Options,
    /// Readers of bodies.
    pub readers: Arc<Semaphore>,
    /// Bytes that bodies may still take.
    pub body_budget: Arc<Semaphore>,
    /// Visitors of the page whose experiment may run.
    pub visitors: Arc<Semaphore>,
    /// Counters.
    pub metrics: Metrics,
    /// What `response_format` needs.
    pub grammars: Grammars,
    queue: Arc<Semaphore>,
    queue_len: usize,
    started: u64,
    next_id: AtomicU64,
}

impl App {
    /// The state of a server that starts now. `running_max` is the engine's own limit on requests that run.
    pub fn new(served: Served, worker: Worker, running_max: usize, options: Options) -> Self {
        let queue_len = running_max.saturating_add(options.queue_max).min(Semaphore::MAX_PERMITS);
        let readers = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            served,
            worker,
            readers: Arc::new(Semaphore::new(readers)),
            body_budget: Arc::new(Semaphore::new(BODY_BYTES_TOTAL.max(options.body_bytes_max))),
            visitors: Arc::new(Semaphore::new(1)),
            metrics: Metrics::at_zero(),
            grammars: Grammars::default(),
            queue: Arc::new(Semaphore::new(queue_len)),
            queue_len,
            started: now(),
            next_id: AtomicU64::new(0),
            options,
        }
    }

    /// A place in the queue for `answers` answers, held until they are complete and, where they are streamed, sent.
    pub fn enqueue(&self, answers: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        if answers > self.queue_len {
            return Err(ApiError::field("n", format!("at most {} answers", self.queue_len), answers));
        }
        let place = self.queue.clone().try_acquire_many_owned(answers as u32);
        place.map_err(|_| {
            self.metrics.rejected.increment(1);
            ApiError::queue_full()
        })
    }

    /// Answers that wait, run or are being delivered.
    pub fn in_flight(&self) -> usize {
        self.queue_len - self.queue.available_permits()
    }

    /// A name for a response, unique to this process and its start.
    pub fn response_id(&self, prefix: &str) -> String {
        format!("{prefix}-{:08x}{:08x}", self.started, self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// When the server started, in seconds since 1970.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Refuses another model than the one that is served.
    pub fn check_model(&self, asked: Option<String>) -> Result<(), ApiError> {
        match asked {
            Some(asked) if asked != self.served.model_name => {
                Err(ApiError::unknown_model(&asked, &self.served.model_name))
            }
            _ => Ok(()),
        }
    }

    /// Tokens that an answer to a prompt may have at most; at least 1, so that a prompt that is too long is refused as such.
    pub fn tokens_left(&self, prompt: usize) -> usize {
        let limits = self.worker.limits();
        // The last token of an answer needs no slot.
        let room = limits.context_max.min(limits.pages.saturating_mul(limits.page_tokens).saturating_add(1));
        room.saturating_sub(prompt).max(1)
    }

    /// Tokens of a plain prompt.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, ApiError> {
        self.served
            .tokenizer
            .encode_prompt(text)
            .map_err(|error| ApiError::bad_request(error.to_string()).about("prompt"))
    }

    /// Called once with every answer that came to its end, before the end is told to the client.
    pub fn answered(&self, answer: &Answer) {
        self.metrics.answered(answer);
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

//! A request that was read and checked, whichever endpoint it came to, and how it is answered: whole, or as a stream.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::app::App;
use super::choice::Piece;
use super::common::{ANSWERS_MAX, Shared, StreamOptions};
use super::error::ApiError;
use super::receipts::Prompt;
use super::run::{Answer, Asked, Run};
use super::shape::{Envelope, Shape, Usage};
use crate::engine::{Constraint, Request};
use crate::receipt::Recorder;

/// Events that may wait for a slow client before its answer waits too.
const EVENTS_AHEAD: usize = 16;
/// Most log-probabilities of a whole body, over all of its answers.
const LOGPROBS_WHOLE_MAX: usize = 1 << 18;

/// A request for answers.
#[derive(Clone, Debug)]
pub struct Job {
    /// How the answer is written.
    pub shape: Shape,
    /// The prompts.
    pub prompts: Vec<Prompt>,
    /// Most tokens of each answer.
    pub tokens_max: usize,
    /// What the endpoints share.
    pub shared: Shared,
    /// What is wanted beside the text.
    pub asked: Asked,
    /// A rule for each answer, where the request has one.
    pub constraints: Vec<Option<Constraint>>,
}

impl Job {
    /// One request of the engine for each answer, all of them checked.
    fn requests(&self, app: &App) -> Result<Vec<Request>, ApiError> {
        let answers = self.prompts.len().saturating_mul(self.shared.n);
        if answers > ANSWERS_MAX {
            let expected = format!("at most {ANSWERS_MAX} answers over all prompts");
            return Err(ApiError::field("n", expected, format!("{answers}")));
        }
        self.check_logprobs()?;
        let mut requests = Vec::with_capacity(answers);
        for prompt in &self.prompts {
            for answer in 0..self.shared.n as u64 {
                let mut sampling = self.shared.sampling.clone();
                sampling.seed = sampling.seed.wrapping_add(answer);
                let request = Request {
                    prompt: prompt.tokens.clone(),
                    sampling,
                    stop_tokens: self.shared.stop_tokens.clone(),
                    tokens_max: self.tokens_max,
                    constraint: self.constraints.get(requests.len()).cloned().flatten(),
                    digest_logits: self.shared.receipt,
                    ..Request::default()
                };
                request.check(&app.worker.limits())?;
                requests.push(request);
            }
        }
        Ok(requests)
    }

    /// A whole body of log-probabilities can be thousands of times as large as its request; a stream is never in memory.
    fn check_logprobs(&self) -> Result<(), ApiError> {
        let (Some(top), None) = (self.asked.logprobs, self.shared.stream) else { return Ok(()) };
        let prompts: usize =
            self.prompts.iter().map(|prompt| if self.asked.echo { prompt.tokens.len() } else { 0 }).sum();
        let positions = prompts.saturating_add(self.prompts.len().saturating_mul(self.tokens_max));
        let entries = positions.saturating_mul(self.shared.n).saturating_mul(top + 1);
        if entries > LOGPROBS_WHOLE_MAX {
            let expected = format!("at most {LOGPROBS_WHOLE_MAX} log-probabilities unless they are streamed");
            return Err(ApiError::field("logprobs", expected, format!("up to {entries}")));
        }
        Ok(())
    }

    /// What collects the receipt of an answer, where one is wanted.
    fn recorder(&self, app: &App, index: usize, request: &Request) -> Option<Recorder> {
        let receipts = app.served.receipts.as_ref().filter(|_| self.shared.receipt)?;
        let Prompt { source, text, .. } = &self.prompts[index / self.shared.n];
        let text = text.as_deref().map(str::to_owned);
        let context_max = app.worker.limits().context_max;
        Some(Recorder::new(receipts.identity.clone(), request, *source, text, &self.shared.stops, context_max))
    }

    /// Answers the request.
    pub async fn answer(self, app: Arc<App>) -> Response {
        match self.prepare(&app) {
            Err(error) => error.into_response(),
            Ok((requests, place)) => match self.shared.stream {
                Some(options) => self.stream(app, requests, place, options),
                None => self.whole(&app, requests, place).await.unwrap_or_else(IntoResponse::into_response),
            },
        }
    }

    fn prepare(&self, app: &App) -> Result<(Vec<Request>, OwnedSemaphorePermit), ApiError> {
        let requests = self.requests(app)?;
        let place = app.enqueue(requests.len())?;
        app.metrics.requests.increment(1);
        Ok((requests, place))
    }

    /// All answers in one body. When the client goes away this future is dropped, and the runs with it.
    async fn whole(self, app: &App, requests: Vec<Request>, place: OwnedSemaphorePermit) -> Result<Response, ApiError> {
        let envelope = Envelope::new(app, self.shape);
        let start = |(index, request)| {
            let recorder = self.recorder(app, index, &request);
            Run::start(app, request, self.shared.stops.clone(), self.asked, recorder)
        };
        let mut runs: Vec<Run<'_>> = requests.into_iter().enumerate().map(start).collect();
        let (mut choices, mut usage) = (Vec::new(), Usage::default());
        // Updates of later runs wait in their channels meanwhile.
        for (index, run) in runs.iter_mut().enumerate() {
            let mut whole = Piece::default();
            while let Some(piece) = run.next().await? {
                whole.append(piece);
            }
            usage.count(run.answer(), index % self.shared.n == 0);
            let finish = run.answer().finish;
            let choice = self.shape.choice(app, index, &whole, self.asked.logprobs.is_some(), finish);
            choices.push(with_receipt(choice, run.answer()));
        }
        drop(place);
        Ok(axum::Json(envelope.whole(choices, usage)).into_response())
    }

    /// Every piece as an event. Each answer has a task of its own that ends when the client is gone.
    fn stream(
        self,
        app: Arc<App>,
        requests: Vec<Request>,
        place: OwnedSemaphorePermit,
        options: StreamOptions,
    ) -> Response {
        let (events, body) = mpsc::channel::<Result<Event, Infallible>>(EVENTS_AHEAD);
        let envelope = Arc::new(Envelope::new(&app, self.shape));
        tokio::spawn(async move {
            let _place = place;
            let mut tasks = Vec::with_capacity(requests.len());
            for (index, request) in requests.into_iter().enumerate() {
                let sender = Sender { events: events.clone(), stall: app.options.stall_timeout };
                let task = Streaming {
                    app: app.clone(),
                    job: self.clone(),
                    envelope: envelope.clone(),
                    index,
                    usage_field: options.include_usage,
                };
                tasks.push(tokio::spawn(async move { task.run(request, sender).await }));
            }
            let (mut usage, mut complete) = (Usage::default(), true);
            for (index, task) in tasks.into_iter().enumerate() {
                match task.await {
                    Ok(Some(part)) => usage.add(part, index % self.shared.n == 0),
                    _ => complete = false,
                }
            }
            if complete {
                let sender = Sender { events, stall: app.options.stall_timeout };
                if options.include_usage {
                    sender.send(envelope.usage(usage).to_string()).await;
                }
                sender.send("[DONE]".into()).await;
            }
        });
        Sse::new(ReceiverStream::new(body)).keep_alive(KeepAlive::default()).into_response()
    }
}

/// A choice with the digest of its receipt.
fn with_receipt(mut choice: serde_json::Value, answer: &Answer) -> serde_json::Value {
    if let Some(digest) = answer.receipt {
        choice["receipt"] = digest.to_string().into();
    }
    choice
}

/// The way to one client.
struct Sender {
    events: mpsc::Sender<Result<Event, Infallible>>,
    stall: std::time::Duration,
}

impl Sender {
    /// False when the client is gone or has not read for too long.
    async fn send(&self, data: String) -> bool {
        let sent = tokio::time::timeout(self.stall, self.events.send(Ok(Event::default().data(data)))).await;
        matches!(sent, Ok(Ok(())))
    }
}

/// One answer of a stream.
struct Streaming {
    app: Arc<App>,
    job: Job,
    envelope: Arc<Envelope>,
    index: usize,
    usage_field: bool,
}

impl Streaming {
    /// Sends every piece, then the reason for the end. `None` when the answer did not come to its end.
    async fn run(self, request: Request, sender: Sender) -> Option<Usage> {
        let shape = self.job.shape;
        let recorder = self.job.recorder(&self.app, self.index, &request);
        let mut run = Run::start(&self.app, request, self.job.shared.stops.clone(), self.job.asked, recorder);
        if let Some(first) = shape.opening(self.index) {
            self.send(&sender, first).await?;
        }
        loop {
            let next = tokio::select! {
                next = run.next() => next,
                () = sender.events.closed() => return None,
            };
            match next {
                Ok(Some(piece)) => {
                    let logprobs = self.job.asked.logprobs.is_some();
                    self.send(&sender, shape.delta(&self.app, self.index, &piece, logprobs)).await?;
                }
                Ok(None) => break,
                Err(error) => {
                    sender.send(error.body().to_string()).await;
                    return None;
                }
            }
        }
        let answer = run.answer();
        self.send(&sender, with_receipt(shape.closing(self.index, answer.finish), answer)).await?;
        let mut usage = Usage::default();
        usage.count(answer, true);
        Some(usage)
    }

    async fn send(&self, sender: &Sender, choice: serde_json::Value) -> Option<()> {
        let chunk = self.envelope.chunk(choice, self.usage_field);
        sender.send(chunk.to_string()).await.then_some(())
    }
}

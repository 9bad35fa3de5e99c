//! One answer while it is computed: updates of the engine in, pieces of text out, and a complete record at the end.

use std::time::Instant;

use super::app::App;
use super::choice::{Choice, Entry, Piece};
use super::error::ApiError;
use super::receipts::keep;
use super::worker::{Ticket, Update, Watch};
use crate::engine::{Finish, Request};
use crate::receipt::{Digest, End, Recorder};

/// The record of an answer that came to its end: with the model, all that is needed to compute it again.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What the engine ran: prompt tokens, sampling, limits.
    pub request: Request,
    /// Every chosen token, the stop token and the tokens of a stop string included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt that the prefix cache answered.
    pub cached_tokens: usize,
    /// When it was handed to the engine.
    pub started: Instant,
    /// Digest of its receipt, where one was asked for.
    pub receipt: Option<Digest>,
}

/// What an answer is to hold beside its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Log-probabilities, with so many of the most likely tokens a position.
    pub logprobs: Option<usize>,
    /// The prompt in front of the answer.
    pub echo: bool,
    /// Nothing but the echo: the engine's one token is dropped.
    pub echo_only: bool,
}

/// A receipt that grows with the answer.
struct Record {
    recorder: Recorder,
    text: String,
    end: Option<End>,
}

/// One answer on its way.
pub struct Run<'a> {
    app: &'a App,
    ticket: Ticket,
    choice: Choice<'a>,
    asked: Asked,
    /// The prompt as text, until it is sent.
    echo: Option<Piece>,
    record: Option<Record>,
    answer: Answer,
    over: bool,
}

impl<'a> Run<'a> {
    /// Hands a request to the engine. `logits_from` and `bypass_cache` are set here.
    pub fn start(
        app: &'a App,
        mut request: Request,
        stops: Vec<String>,
        asked: Asked,
        recorder: Option<Recorder>,
    ) -> Self {
        if asked.logprobs.is_some_and(|top| top > 0 || asked.echo) {
            request.logits_from = Some(request.prompt.len() - 1);
        }
        if asked.echo && asked.logprobs.is_some() {
            // Cached positions have no rows.
            request.logits_from = Some(0);
            request.bypass_cache = true;
        }
        let echo = asked.echo.then(|| prompt_piece(app, &request.prompt));
        let start = echo.as_ref().map_or(0, |echo| echo.text.chars().count());
        let watch = Watch { top: asked.logprobs.unwrap_or(0) };
        let ticket = app.worker.submit(request.clone(), watch);
        let choice = Choice::new(&app.served.tokenizer, stops, start);
        let answer = Answer {
            request,
            tokens: Vec::new(),
            finish: Finish::Length,
            cached_tokens: 0,
            started: Instant::now(),
            receipt: None,
        };
        let record = recorder.map(|recorder| Record { recorder, text: String::new(), end: None });
        Self { app, ticket, choice, asked, echo, record, answer, over: false }
    }

    /// The next piece; `None` when the answer is complete.
    pub async fn next(&mut self) -> Result<Option<Piece>, ApiError> {
        while !self.over {
            let piece = match self.ticket.next().await {
                Update::PromptRow { position, facts } => {
                    let entries = self.echo.iter_mut().flat_map(|echo| &mut echo.entries);
                    if let Some(entry) = entries.into_iter().nth(position + 1) {
                        (entry.logprob, entry.top) = (facts.next, facts.top);
                    }
                    continue;
                }
                Update::Token { token, logprob, facts, cached_tokens, logits_digest } => {
                    if self.answer.tokens.is_empty() {
                        self.app.metrics.first_token_seconds.record(self.answer.started.elapsed());
                    }
                    self.answer.cached_tokens = cached_tokens.min(self.answer.request.prompt.len());
                    self.answer.tokens.push(token);
                    if let (Some(record), Some(digest)) = (&mut self.record, logits_digest) {
                        record.recorder.token(token, digest);
                    }
                    if self.asked.echo_only || self.answer.request.stop_tokens.contains(&token) {
                        continue;
                    }
                    let (piece, stopped) = self.choice.push(token, logprob, facts);
                    if stopped {
                        self.end(Finish::Stop, End::StopString);
                    }
                    piece
                }
                Update::Finished(finish) => {
                    let (piece, stopped) = self.choice.finish(finish);
                    let (finish, end) = match finish {
                        Finish::Stop => (Finish::Stop, End::StopToken),
                        Finish::Length if stopped => (Finish::Stop, End::StopString),
                        Finish::Length => (Finish::Length, End::Length),
                    };
                    self.end(finish, end);
                    piece
                }
                Update::Failed(failure) => return self.fail(ApiError::failed(failure.to_string())),
                Update::Refused(refusal) => return self.fail(refusal.into()),
                Update::Abandoned(why) => return self.fail(ApiError::unavailable(why)),
            };
            if let Some(record) = &mut self.record {
                record.text += &piece.text;
            }
            let mut whole = self.echo.take().unwrap_or_default();
            whole.append(piece);
            if !whole.is_empty() {
                return Ok(Some(whole));
            }
        }
        self.keep_receipt().await?;
        Ok(None)
    }

    /// The record, once [`Run::next`] has given `None`.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    fn end(&mut self, finish: Finish, end: End) {
        self.over = true;
        if let Some(record) = &mut self.record {
            record.end = Some(end);
        }
        // The engine does not know of stop strings.
        self.ticket.cancel();
        self.answer.finish = finish;
        if self.asked.echo_only {
            self.answer.tokens.clear();
        }
        self.app.answered(&self.answer);
    }

    /// Writes the receipt of an answer that is complete.
    async fn keep_receipt(&mut self) -> Result<(), ApiError> {
        if let (Some(Record { recorder, text, end: Some(end) }), Some(receipts)) =
            (self.record.take(), &self.app.served.receipts)
        {
            self.answer.receipt = Some(keep(receipts, recorder.finish(text, end)).await?);
        }
        Ok(())
    }

    fn fail(&mut self, error: ApiError) -> Result<Option<Piece>, ApiError> {
        self.over = true;
        self.app.metrics.failures.increment(1);
        Err(error)
    }
}

/// The prompt as text, with an entry for each of its tokens.
fn prompt_piece(app: &App, prompt: &[u32]) -> Piece {
    let mut decoder = app.served.tokenizer.stream();
    let mut piece = Piece::default();
    let mut start = 0;
    for &token in prompt {
        let text = decoder.push(token);
        piece.entries.push(Entry { token, logprob: None, top: Vec::new(), start });
        start += text.chars().count();
        piece.text += &text;
    }
    piece.text += &decoder.finish();
    piece
}

//! One answer while it is computed: updates of the engine in, pieces of text out, and a complete record at the end.

use std::time::Instant;

use super::app::App;
use super::choice::{Choice, Entry, Piece};
use super::error::ApiError;
use super::worker::{Ticket, Update, Watch};
use crate::engine::{Finish, Request};

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

/// One answer on its way.
pub struct Run<'a> {
    app: &'a App,
    ticket: Ticket,
    choice: Choice<'a>,
    asked: Asked,
    /// The prompt as text, until it is sent.
    echo: Option<Piece>,
    answer: Answer,
    over: bool,
}

impl<'a> Run<'a> {
    /// Hands a request to the engine. `logits_from` and `bypass_cache` are set here.
    pub fn start(app: &'a App, mut request: Request, stops: Vec<String>, asked: Asked) -> Self {
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
        let answer =
            Answer { request, tokens: Vec::new(), finish: Finish::Length, cached_tokens: 0, started: Instant::now() };
        Self { app, ticket, choice, asked, echo, answer, over: false }
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
                Update::Token { token, logprob, facts, cached_tokens } => {
                    if self.answer.tokens.is_empty() {
                        self.app.metrics.first_token_seconds.record(self.answer.started.elapsed());
                    }
                    self.answer.cached_tokens = cached_tokens.min(self.answer.request.prompt.len());
                    self.answer.tokens.push(token);
                    if self.asked.echo_only || self.answer.request.stop_tokens.contains(&token) {
                        continue;
                    }
                    let (piece, stopped) = self.choice.push(token, logprob, facts);
                    if stopped {
                        self.end(Finish::Stop);
                    }
                    piece
                }
                Update::Finished(finish) => {
                    let (piece, stopped) = self.choice.finish(finish);
                    self.end(if stopped { Finish::Stop } else { finish });
                    piece
                }
                Update::Failed(failure) => return self.fail(ApiError::failed(failure.to_string())),
                Update::Refused(refusal) => return self.fail(refusal.into()),
                Update::Abandoned(why) => return self.fail(ApiError::unavailable(why)),
            };
            let mut whole = self.echo.take().unwrap_or_default();
            whole.append(piece);
            if !whole.is_empty() {
                return Ok(Some(whole));
            }
        }
        Ok(None)
    }

    /// The record, once [`Run::next`] has given `None`.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    fn end(&mut self, finish: Finish) {
        self.over = true;
        // The engine does not know of stop strings.
        self.ticket.cancel();
        self.answer.finish = finish;
        if self.asked.echo_only {
            self.answer.tokens.clear();
        }
        self.app.answered(&self.answer);
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

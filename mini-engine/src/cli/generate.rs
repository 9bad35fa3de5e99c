//! `generate`: one prompt, streamed.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use kernels_rs::backend::Backend;
use mini_engine::device_model::DeviceModel;
use mini_engine::engine::request::Limits;
use mini_engine::engine::{Engine, EngineConfig, Event, Finish, Request, Sampling};
use mini_engine::model::{Checkpoint, Message, Model, Tokenizer};
use mini_engine::receipt::audit::STOP_STRINGS_MAX;
use mini_engine::receipt::{End, Identity, PromptSource, Recorder, store};
use mini_engine::stop::StopMatcher;

use super::Failure;
use super::session::{Device, ModelArgs, on_backend};

/// Continue a prompt
#[derive(Debug, Args)]
pub struct Generate {
    #[command(flatten)]
    model: ModelArgs,
    /// Text to continue; `-` reads standard input
    #[arg(long)]
    prompt: String,
    /// Pass the prompt through the model's chat template as a user's message
    #[arg(long)]
    chat: bool,
    /// System message of the chat
    #[arg(long, requires = "chat")]
    system: Option<String>,
    /// Most tokens to generate
    #[arg(long, default_value_t = 128)]
    max_tokens: usize,
    /// 0 chooses the most likely token; the model's own recommendation, or 0, unless given
    #[arg(long)]
    temperature: Option<f32>,
    /// Keep the k most likely tokens
    #[arg(long)]
    top_k: Option<u32>,
    /// Keep the most likely tokens whose probabilities sum to this
    #[arg(long)]
    top_p: Option<f32>,
    /// Keep tokens of at least this fraction of the largest probability
    #[arg(long)]
    min_p: Option<f32>,
    /// Key of the sampling noise
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Text that ends the continuation; may be given more than once
    #[arg(long)]
    stop: Vec<String>,
    /// Go on when the model ends its text
    #[arg(long)]
    ignore_eos: bool,
    /// Print each token with its log-probability on standard error
    #[arg(long)]
    logprobs: bool,
    /// Write a receipt of the answer, which `audit` checks
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Tokens that one step may prefill
    #[arg(long, default_value_t = 256)]
    chunk: usize,
    /// Tokens of a KV page
    #[arg(long, default_value_t = mini_engine::engine::config::PAGE_TOKENS_DEFAULT)]
    page_tokens: usize,
    /// Pages of the KV pool; as many as the request needs, unless given
    #[arg(long)]
    pages: Option<usize>,
}

/// The request, with the text that its prompt was cut from.
struct Asked {
    request: Request,
    source: PromptSource,
    text: String,
}

impl Generate {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        if self.receipt.is_some() && self.stop.len() > STOP_STRINGS_MAX {
            let got = self.stop.len();
            return Err(Failure::input(format!("--stop: expected at most {STOP_STRINGS_MAX} in a receipt, got {got}")));
        }
        let checkpoint = self.model.open()?;
        let asked = self.request(&checkpoint)?;
        let request = &asked.request;
        let context_max = checkpoint.config.context;
        // The weights are loaded after everything that can be refused without them.
        let config = self.config(request, context_max);
        config.check()?;
        let (page_tokens, pages) = (config.page_tokens, config.pages);
        request.check(&Limits { vocab: checkpoint.config.vocab, context_max, page_tokens, pages })?;
        on_backend!(self.model.compute, |device| self.run_on(device, &checkpoint, config, asked))
    }

    fn run_on<B: Backend>(
        &self,
        device: Device<B>,
        checkpoint: &Checkpoint,
        config: EngineConfig,
        asked: Asked,
    ) -> Result<(), Failure> {
        let model = device.load_known(checkpoint)?;
        let Asked { request, source, text } = asked;
        let mut recorder = self.receipt.is_some().then(|| {
            let identity = Arc::new(Identity::of(&model, &checkpoint.tokenizer));
            Recorder::new(identity, &request, source, Some(text), &self.stop, checkpoint.config.context)
        });
        let stops = StopMatcher::new(self.stop.iter().cloned());
        let mut printer = Printer::new(&checkpoint.tokenizer, stops, self.logprobs);
        let config = EngineConfig { run_ahead: device.run_ahead, ..config };
        let ran = stream(model, config, request, &mut printer, recorder.as_mut())?;
        let said = printer.end()?;
        eprintln!("{}", ran.speed);
        if let (Some(path), Some(recorder)) = (&self.receipt, recorder) {
            let receipt = recorder.finish(said.text, ran.end(said.stopped));
            store::write(&receipt, path)
                .map_err(|error| Failure::input(format!("--receipt {}: {error}", path.display())))?;
            eprintln!("receipt: {} {}", receipt.digest, path.display());
        }
        Ok(())
    }

    fn request(&self, checkpoint: &Checkpoint) -> Result<Asked, Failure> {
        let text = self.text()?;
        let tokenizer = &checkpoint.tokenizer;
        let (prompt, source, text) = if self.chat {
            let Some(template) = &checkpoint.chat else {
                return Err(Failure::input(format!("--chat: {} has no chat template", checkpoint.name)));
            };
            let system = self.system.iter().map(|system| Message::new("system", system));
            let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
            let rendered = template.render(&messages)?;
            (tokenizer.encode(&rendered)?, PromptSource::Template, rendered)
        } else if text.is_empty() {
            return Err(Failure::input("prompt: expected at least one character, got none"));
        } else {
            (tokenizer.encode_prompt(&text)?, PromptSource::Text, text)
        };
        let defaults = &checkpoint.defaults;
        let request = Request {
            prompt,
            sampling: Sampling {
                temperature: self.temperature.or(defaults.temperature).unwrap_or(0.0),
                top_k: self.top_k.or(defaults.top_k),
                top_p: self.top_p.or(defaults.top_p).unwrap_or(1.0),
                min_p: self.min_p.or(defaults.min_p).unwrap_or(0.0),
                seed: self.seed,
                ..Sampling::default()
            },
            stop_tokens: if self.ignore_eos { Vec::new() } else { checkpoint.config.eos.clone() },
            tokens_max: self.max_tokens,
            digest_logits: self.receipt.is_some(),
            ..Request::default()
        };
        Ok(Asked { request, source, text })
    }

    fn text(&self) -> Result<String, Failure> {
        if self.prompt != "-" {
            return Ok(self.prompt.clone());
        }
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Failure::input(format!("prompt: expected UTF-8, got an invalid sequence at byte {at} of standard input"))
        })
    }

    fn config(&self, request: &Request, context_max: usize) -> EngineConfig {
        let needed = request.tokens_total_max(context_max).div_ceil(self.page_tokens.max(1));
        EngineConfig {
            page_tokens: self.page_tokens,
            pages: self.pages.unwrap_or(needed.max(1)),
            step_rows_max: self.chunk,
            running_max: 1,
            ..EngineConfig::default()
        }
    }
}

/// How a request went.
pub struct Ran {
    /// A line about speed.
    pub speed: String,
    finish: Option<Finish>,
}

impl Ran {
    /// Why the output ended; `stopped` says that a stop string was completed.
    fn end(&self, stopped: bool) -> End {
        match self.finish {
            Some(Finish::Stop) => End::StopToken,
            Some(Finish::Length) if !stopped => End::Length,
            _ => End::StopString,
        }
    }
}

/// Runs one request to its end, printing and recording as it goes.
pub fn stream<B: Backend>(
    model: Arc<Model<B>>,
    config: EngineConfig,
    request: Request,
    printer: &mut Printer<'_>,
    mut recorder: Option<&mut Recorder>,
) -> Result<Ran, Failure> {
    let prompt_tokens = request.prompt.len();
    let stop_tokens = request.stop_tokens.clone();
    // A step never has more rows than the request has tokens, and the workspace need not be larger.
    let step_rows_max = config.step_rows_max.min(prompt_tokens.max(1));
    let config = EngineConfig { step_rows_max, ..config };
    let mut engine = Engine::new(DeviceModel::new(model, &config)?, config)?;
    let id = engine.submit(request)?;
    let start = Instant::now();
    let (mut first, mut tokens, mut finish) = (None, 0u32, None);
    while engine.live() > 0 {
        for event in engine.step()? {
            match event {
                Event::Token { committed, sampled, logits_digest, .. } => {
                    first.get_or_insert_with(Instant::now);
                    tokens += 1;
                    if let (Some(recorder), Some(digest)) = (&mut recorder, logits_digest) {
                        recorder.token(committed, digest);
                    }
                    printer.token(committed, sampled.logprob);
                    if !stop_tokens.contains(&committed) && printer.text(committed)? {
                        engine.cancel(id);
                    }
                }
                Event::Finished { reason, .. } => finish = Some(reason),
                Event::Failed { failure, .. } => return Err(Failure::Machine(failure.into())),
                Event::Logits { .. } => {}
            }
        }
    }
    let first = first.unwrap_or(start);
    let (prefill, decode) = ((first - start).as_secs_f64(), first.elapsed().as_secs_f64());
    let end = if finish == Some(Finish::Length) { "length" } else { "stop" };
    let speed = format!(
        "prompt: {prompt_tokens} tokens in {prefill:.2} s ({:.1} tokens/s); generated: {tokens} tokens, then {:.1} tokens/s; end: {end}",
        prompt_tokens as f64 / prefill.max(1e-9),
        f64::from(tokens.saturating_sub(1)) / decode.max(1e-9),
    );
    Ok(Ran { speed, finish })
}

/// Standard output, one token after another.
pub struct Printer<'a> {
    tokenizer: &'a Tokenizer,
    decoder: Option<mini_engine::model::StreamDecoder<'a>>,
    stops: StopMatcher,
    logprobs: bool,
    out: std::io::Stdout,
    said: Said,
}

/// What was printed.
#[derive(Debug, Default)]
pub struct Said {
    /// The text, without the end of the line.
    pub text: String,
    /// Whether a stop string ended it.
    pub stopped: bool,
}

impl<'a> Printer<'a> {
    /// Nothing printed yet.
    pub fn new(tokenizer: &'a Tokenizer, stops: StopMatcher, logprobs: bool) -> Self {
        Self {
            tokenizer,
            decoder: Some(tokenizer.stream()),
            stops,
            logprobs,
            out: std::io::stdout(),
            said: Said::default(),
        }
    }

    fn token(&self, token: u32, logprob: f32) {
        if self.logprobs {
            eprintln!("{token:>7} {logprob:>10.5} {:?}", self.tokenizer.entry(token).unwrap_or_default());
        }
    }

    /// Prints what the token completes. True when a stop string ended the text.
    fn text(&mut self, token: u32) -> Result<bool, Failure> {
        let Some(decoder) = &mut self.decoder else { return Ok(true) };
        let released = self.stops.push(&decoder.push(token));
        self.say(&released.text)?;
        if released.stopped {
            self.decoder = None;
            self.said.stopped = true;
        }
        Ok(released.stopped)
    }

    /// Prints what was held back, and ends the line.
    pub fn end(mut self) -> Result<Said, Failure> {
        if let Some(decoder) = self.decoder.take() {
            let released = self.stops.push(&decoder.finish());
            self.say(&released.text)?;
            self.said.stopped = released.stopped;
            if !released.stopped {
                let held = std::mem::take(&mut self.stops).finish();
                self.say(&held)?;
            }
        }
        writeln!(self.out)?;
        Ok(self.said)
    }

    fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.said.text += text;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }
}

//! `generate`: one prompt, streamed.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use kernels_rs::backend::Backend;
use mini_engine::device_model::DeviceModel;
use mini_engine::engine::request::Limits;
use mini_engine::engine::{Engine, EngineConfig, Event, Finish, Request, Sampling};
use mini_engine::model::{Checkpoint, Message, Model, Tokenizer};
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

impl Generate {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        let checkpoint = self.model.open()?;
        let request = self.request(&checkpoint)?;
        let context_max = checkpoint.config.context;
        // The weights are loaded after everything that can be refused without them.
        let config = self.config(&request, context_max);
        config.check()?;
        let (page_tokens, pages) = (config.page_tokens, config.pages);
        request.check(&Limits { vocab: checkpoint.config.vocab, context_max, page_tokens, pages })?;
        on_backend!(self.model.compute, |device| self.run_on(device, &checkpoint, config, request))
    }

    fn run_on<B: Backend>(
        &self,
        device: Device<B>,
        checkpoint: &Checkpoint,
        config: EngineConfig,
        request: Request,
    ) -> Result<(), Failure> {
        let model = device.load(checkpoint, None)?;
        let stops = StopMatcher::new(self.stop.iter().cloned());
        let mut printer = Printer::new(&checkpoint.tokenizer, stops, self.logprobs);
        let speed = stream(model, config, request, &mut printer)?;
        printer.end()?;
        eprintln!("{speed}");
        Ok(())
    }

    fn request(&self, checkpoint: &Checkpoint) -> Result<Request, Failure> {
        let text = self.text()?;
        let tokenizer = &checkpoint.tokenizer;
        let prompt = if self.chat {
            let Some(template) = &checkpoint.chat else {
                return Err(Failure::input(format!("--chat: {} has no chat template", checkpoint.name)));
            };
            let system = self.system.iter().map(|system| Message::new("system", system));
            let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
            tokenizer.encode(&template.render(&messages)?)?
        } else if text.is_empty() {
            return Err(Failure::input("prompt: expected at least one character, got none"));
        } else {
            tokenizer.encode_prompt(&text)?
        };
        let defaults = &checkpoint.defaults;
        Ok(Request {
            prompt,
            sampling: Sampling {
                temperature: self.temperature.or(defaults.temperature).unwrap_or(0.0),
                top_k: self.top_k.or(defaults.top_k),
                top_p: self.top_p.or(defaults.top_p).unwrap_or(1.0),
                min_p: self.min_p.or(defaults.min_p).unwrap_or(0.0),
                seed: self.seed,
            },
            stop_tokens: if self.ignore_eos { Vec::new() } else { checkpoint.config.eos.clone() },
            tokens_max: self.max_tokens,
            ..Request::default()
        })
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

/// Runs one request to its end, printing as it goes. Returns a line about speed.
pub fn stream<B: Backend>(
    model: Arc<Model<B>>,
    config: EngineConfig,
    request: Request,
    printer: &mut Printer<'_>,
) -> Result<String, Failure> {
    let prompt_tokens = request.prompt.len();
    let stop_tokens = request.stop_tokens.clone();
    // A step never has more rows than the request has tokens, and the workspace need not be larger.
    let step_rows_max = config.step_rows_max.min(prompt_tokens.max(1));
    let config = EngineConfig { step_rows_max, ..config };
    let mut engine = Engine::new(DeviceModel::new(model, &config)?, config)?;
    let id = engine.submit(request)?;
    let start = Instant::now();
    let (mut first, mut tokens, mut end) = (None, 0u32, "stop");
    while engine.live() > 0 {
        for event in engine.step()? {
            match event {
                Event::Token { committed, sampled, .. } => {
                    first.get_or_insert_with(Instant::now);
                    tokens += 1;
                    printer.token(committed, sampled.logprob);
                    if !stop_tokens.contains(&committed) && printer.text(committed)? {
                        engine.cancel(id);
                    }
                }
                Event::Finished { reason: Finish::Length, .. } => end = "length",
                Event::Failed { failure, .. } => return Err(Failure::Machine(failure.into())),
                Event::Finished { .. } | Event::Logits { .. } => {}
            }
        }
    }
    let first = first.unwrap_or(start);
    let (prefill, decode) = ((first - start).as_secs_f64(), first.elapsed().as_secs_f64());
    Ok(format!(
        "prompt: {prompt_tokens} tokens in {prefill:.2} s ({:.1} tokens/s); generated: {tokens} tokens, then {:.1} tokens/s; end: {end}",
        prompt_tokens as f64 / prefill.max(1e-9),
        f64::from(tokens.saturating_sub(1)) / decode.max(1e-9),
    ))
}

/// Standard output, one token after another.
pub struct Printer<'a> {
    tokenizer: &'a Tokenizer,
    decoder: Option<mini_engine::model::StreamDecoder<'a>>,
    stops: StopMatcher,
    logprobs: bool,
    out: std::io::Stdout,
}

impl<'a> Printer<'a> {
    /// Nothing printed yet.
    pub fn new(tokenizer: &'a Tokenizer, stops: StopMatcher, logprobs: bool) -> Self {
        Self { tokenizer, decoder: Some(tokenizer.stream()), stops, logprobs, out: std::io::stdout() }
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
        self.write(&released.text)?;
        if released.stopped {
            self.decoder = None;
        }
        Ok(released.stopped)
    }

    /// Prints what was held back, and ends the line.
    pub fn end(mut self) -> Result<(), Failure> {
        if let Some(decoder) = self.decoder.take() {
            let released = self.stops.push(&decoder.finish());
            self.write(&released.text)?;
            if !released.stopped {
                let held = std::mem::take(&mut self.stops).finish();
                self.write(&held)?;
            }
        }
        self.write("\n")
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }
}

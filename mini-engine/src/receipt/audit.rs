//! The audit: is this receipt what the model does? The whole sequence is computed again by one teacher-forced prefill without
//! the prefix cache; every output position's row is compared by its digest, and every token is chosen again from it.
//!
//! What is found is a list of fields that differ. An empty list means that the loaded model, given this prompt and this
//! sampling, answers exactly this. It does not say who asked, when, or whether anyone did.

use std::cell::OnceCell;
use std::sync::Arc;

use kernels_rs::backend::Backend;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::evaluate;
use serde::Serialize;

use super::Digest;
use super::blame::{Positions, blame};
use super::identity::Identity;
use super::replay::replay;
use super::schema::{Body, PlanRecord, PromptSource, Receipt};
use crate::device_model::DeviceModel;
use crate::engine::{Engine, EngineConfig, Event, Refusal, Request, Sampling, logits_digest};
use crate::model::rope::RopeTables;
use crate::model::{Config, Error, Model, Plan, Tokenizer};

/// Rows of one step of the prefill. Any number gives the same bits; this one bounds the memory.
const STEP_ROWS_MAX: usize = 128;

/// Longer text cannot have been cut into the tokens beside it, and to try takes memory of more than a hundred times its length. Tokens of the
/// usual vocabularies have at most 128 bytes, and composing characters (NFC) shortens text to no less than a third.
const TEXT_BYTES_A_TOKEN_MAX: usize = 512;

/// Most stop strings of a record; every piece of text is compared with each.
pub const STOP_STRINGS_MAX: usize = 1024;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The field of the record that differs, such as `output.tokens[3]`.
    pub field: String,
    /// What was expected and what came.
    pub message: String,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Whether nothing differs.
    pub equal: bool,
    /// Output positions of the receipt.
    pub positions: usize,
    /// Those whose logits were computed again with equal bits.
    pub positions_equal: usize,
    /// The first whose logits differ.
    pub first_different: Option<usize>,
    /// What differs.
    pub findings: Vec<Finding>,
}

/// A loaded model that receipts are run on.
pub struct Auditor<'a, B: Backend> {
    model: &'a Arc<Model<B>>,
    tokenizer: &'a Tokenizer,
    identity: Identity,
    /// The model's plan under every arithmetic.
    plans: OnceCell<Vec<(Arithmetic, PlanRecord)>>,
}

impl<'a, B: Backend> Auditor<'a, B> {
    /// Ready to run receipts of any model; only those of this one pass.
    pub fn new(model: &'a Arc<Model<B>>, tokenizer: &'a Tokenizer) -> Self {
        Self { model, tokenizer, identity: Identity::of(model, tokenizer), plans: OnceCell::new() }
    }

    /// Runs a receipt again. An error means that the machine could not do it.
    pub fn audit(&self, receipt: &Receipt) -> Result<Audit, Error> {
        let body = &receipt.receipt;
        let mut findings = Findings::default();
        let digest = body.digest();
        if digest != receipt.digest {
            findings.differ("digest", format!("{digest}, the digest of this record"), receipt.digest);
        }
        self.compare_identity(body, &mut findings);
        let mut audit = Audit {
            equal: false,
            positions: body.output.tokens.len(),
            positions_equal: 0,
            first_different: None,
            findings: Vec::new(),
        };
        // A record that no request could have is not run, and its text is not worth the work.
        if can_run(body, self.model.config(), &mut findings) {
            compare_text(body, self.tokenizer, &mut findings);
            let positions = run(body, self.model)?;
            audit.positions_equal = positions.logits_equal.iter().filter(|equal| **equal).count();
            audit.first_different = positions.logits_equal.iter().position(|equal| !equal);
            findings.0.extend(blame(body, &positions, findings.0.iter().any(|finding| is_cause(&finding.field))));
        }
        audit.equal = findings.0.is_empty();
        audit.findings = findings.0;
        Ok(audit)
    }

    fn compare_identity(&self, body: &Body, findings: &mut Findings) {
        let identity = &self.identity;
        let loaded = |digest: Digest, what: &str| format!("{digest}, the digest of the loaded {what}");
        if body.model != identity.model {
            findings.differ("model", loaded(identity.model, "model"), body.model);
        }
        if body.tokenizer != identity.tokenizer {
            findings.differ("tokenizer", loaded(identity.tokenizer, "tokenizer"), body.tokenizer);
        }
        if let Some(owner) = self.owner(&body.plan).filter(|owner| owner.name() != body.arithmetic) {
            let expected = format!("{}, whose plan the receipt has", owner.name());
            findings.differ("arithmetic", expected, shortened(&body.arithmetic));
        } else if body.arithmetic != identity.arithmetic.name() {
            findings.differ("arithmetic", identity.arithmetic.name(), shortened(&body.arithmetic));
        } else {
            compare_plan(&body.plan, &identity.plan, findings);
        }
    }

    /// The arithmetic whose plan this is. If it is not the one that the receipt names, the name was changed and not the plan.
    fn owner(&self, plan: &PlanRecord) -> Option<Arithmetic> {
        if *plan == self.identity.plan {
            return Some(self.identity.arithmetic);
        }
        let plans = self.plans.get_or_init(|| {
            let config = self.model.config();
            let tables = RopeTables::new(config);
            Arithmetic::ALL
                .map(|arithmetic| (arithmetic, PlanRecord::of(&Plan::new(config, arithmetic, &tables))))
                .into()
        });
        plans.iter().find(|(_, known)| known == plan).map(|(arithmetic, _)| *arithmetic)
    }
}

/// Whether a difference in this field explains that all logits differ.
fn is_cause(field: &str) -> bool {
    ["model", "arithmetic", "plan", "prompt.tokens"].iter().any(|cause| field.starts_with(cause))
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn differ(&mut self, field: impl Into<String>, expected: impl std::fmt::Display, got: impl std::fmt::Display) {
        self.0.push(Finding { field: field.into(), message: format!("expected {expected}, got {got}") });
    }
}

fn compare_plan(got: &PlanRecord, expected: &PlanRecord, findings: &mut Findings) {
    if got.digest != expected.digest {
        findings.differ("plan.digest", expected.digest, got.digest);
    }
    if got.operators.len() != expected.operators.len() {
        findings.differ("plan.operators", format!("{} operators", expected.operators.len()), got.operators.len());
    }
    for (index, (got, expected)) in got.operators.iter().zip(&expected.operators).enumerate() {
        let field = |part| format!("plan.operators[{index}].{part}");
        if got.name != expected.name {
            findings.differ(field("name"), format!("{:?}", expected.name), format!("{:?}", shortened(&got.name)));
        }
        if got.layers != expected.layers {
            findings.differ(field("layers"), format!("{:?}", expected.layers), format!("{:?}", got.layers));
        }
        if got.tree != expected.tree {
            findings.differ(field("tree"), format!("{}, the tree of {}", expected.tree, expected.name), got.tree);
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Compares the text of the prompt and of the output with their tokens, and the end with the stop conditions.
fn compare_text(body: &Body, tokenizer: &Tokenizer, findings: &mut Findings) {
    let prompt = &body.prompt;
    let encoded = match (prompt.source, &prompt.text) {
        (PromptSource::Tokens, None) => None,
        (PromptSource::Tokens, Some(_)) => {
            findings.differ("prompt.text", "null, since prompt.source is tokens", "text");
            None
        }
        (_, None) => {
            findings.differ("prompt.text", "the text that prompt.source names", "null");
            None
        }
        (_, Some(text)) if text.len() / TEXT_BYTES_A_TOKEN_MAX > prompt.tokens.len() => {
            let expected = format!("at most {TEXT_BYTES_A_TOKEN_MAX} bytes for each of prompt.tokens");
            findings.differ("prompt.text", expected, format!("{} bytes", text.len()));
            None
        }
        (PromptSource::Text, Some(text)) => Some(tokenizer.encode_prompt(text)),
        (PromptSource::Template, Some(text)) => Some(tokenizer.encode(text)),
    };
    match encoded {
        Some(Ok(tokens)) if tokens != prompt.tokens => {
            let at = tokens.iter().zip(&prompt.tokens).take_while(|(a, b)| a == b).count();
            let show = |token: Option<&u32>| token.map_or("the end".to_owned(), u32::to_string);
            let expected = format!("{}, which prompt.text gives", show(tokens.get(at)));
            findings.differ(format!("prompt.tokens[{at}]"), expected, show(prompt.tokens.get(at)));
        }
        Some(Err(error)) => findings.differ("prompt.text", "text that the tokenizer can encode", error),
        _ => {}
    }
    let output = &body.output;
    let replay = replay(tokenizer, &body.sampling, &output.tokens);
    match replay.end {
        None => findings.differ(
            "output.end",
            format!("more than {} tokens, since no stop condition is met", output.tokens.len()),
            output.end.name(),
        ),
        Some(_) if replay.used < output.tokens.len() => findings.differ(
            "output.tokens",
            format!("{} tokens, since a stop condition is met there", replay.used),
            output.tokens.len(),
        ),
        Some(end) if end != output.end => findings.differ("output.end", end.name(), output.end.name()),
        _ => {}
    }
    if replay.text != output.text {
        let at = replay.text.bytes().zip(output.text.bytes()).take_while(|(a, b)| a == b).count();
        let expected = format!("the text of the tokens, {} bytes", replay.text.len());
        findings.differ("output.text", expected, format!("{} bytes that differ from byte {at} on", output.text.len()));
    }
}

/// Whether the sequence can be computed at all.
fn can_run(body: &Body, config: &Config, findings: &mut Findings) -> bool {
    let (output, vocab) = (&body.output, config.vocab);
    let before = findings.0.len();
    if output.tokens.is_empty() {
        findings.differ("output.tokens", "at least 1 token", "none");
    }
    if output.logits.len() != output.tokens.len() {
        let expected = format!("{} digests, one for each output token", output.tokens.len());
        findings.differ("output.logits", expected, output.logits.len());
    }
    for (field, tokens) in [
        ("prompt.tokens", &body.prompt.tokens),
        ("output.tokens", &output.tokens),
        ("sampling.stop_tokens", &body.sampling.stop_tokens),
    ] {
        if let Some(at) = tokens.iter().position(|token| *token as usize >= vocab) {
            let expected = format!("a token below the vocabulary's {vocab}");
            findings.differ(format!("{field}[{at}]"), expected, tokens[at]);
        }
    }
    let (prompt, context) = (body.prompt.tokens.len(), config.context);
    if prompt == 0 || prompt >= context {
        findings.differ("prompt.tokens", format!("1 to {} tokens", context - 1), prompt);
    } else if body.sampling.max_tokens as usize > context - prompt || body.sampling.max_tokens == 0 {
        let expected = format!("1 to {}, what the context leaves", context - prompt);
        findings.differ("sampling.max_tokens", expected, body.sampling.max_tokens);
    }
    if output.tokens.len() > context.saturating_sub(prompt) {
        let expected = format!("at most {} tokens, what the context leaves", context.saturating_sub(prompt));
        findings.differ("output.tokens", expected, output.tokens.len());
    }
    if !body.sampling.stop_tokens.is_sorted_by(|a, b| a < b) {
        findings.differ("sampling.stop_tokens", "ascending tokens, none twice", "another order");
    }
    let stops = &body.sampling.stop_strings;
    if stops.len() > STOP_STRINGS_MAX || stops.iter().any(String::is_empty) {
        let expected = format!("at most {STOP_STRINGS_MAX} strings, none empty");
        findings.differ("sampling.stop_strings", expected, format!("{} strings", stops.len()));
    }
    if !body.sampling.logit_bias.is_sorted_by(|a, b| a.token < b.token) {
        findings.differ("sampling.logit_bias", "ascending tokens, none twice", "another order");
    }
    let sampling = body.sampling.sampling();
    let checked = sampling.check().and_then(|()| sampling.adjust.check(vocab));
    if let Err(Refusal::Sampling { field, expected, got }) = checked {
        findings.differ(format!("sampling.{field}"), expected, got);
    }
    findings.0.len() == before
}

/// Computes every output position's row again, and chooses from it again.
fn run<B: Backend>(body: &Body, model: &Arc<Model<B>>) -> Result<Positions, Error> {
    let output = &body.output;
    let first = body.prompt.tokens.len() - 1;
    let mut tokens = body.prompt.tokens.clone();
    tokens.extend(&output.tokens[..output.tokens.len() - 1]);
    let config = EngineConfig {
        pages: tokens.len().div_ceil(EngineConfig::default().page_tokens),
        step_rows_max: tokens.len().min(STEP_ROWS_MAX),
        running_max: 1,
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let refused = |what: &str, error: String| Error::input(what, "a request that the engine takes", error);
    let mut engine = Engine::new(DeviceModel::new(model.clone(), &config)?, config)
        .map_err(|error| refused("engine configuration", error.to_string()))?;
    let request = Request {
        prompt: tokens.clone(),
        tokens_max: 1,
        logits_from: Some(first),
        bypass_cache: true,
        ..Request::default()
    };
    engine.submit(request).map_err(|error| refused("receipt", error.to_string()))?;
    let sampling = body.sampling.sampling();
    let mut positions = Positions::new(output.tokens.len());
    while engine.live() > 0 {
        for event in engine.step()? {
            match event {
                Event::Logits { position, row, .. } => {
                    let index = position - first;
                    positions.logits_equal[index] = Digest::from(logits_digest(&row)) == output.logits[index];
                    positions.chosen[index] = Some(choose(&sampling, &tokens[..=position], first + 1, row));
                }
                Event::Failed { failure, .. } => {
                    positions.failure = Some(failure.to_string());
                }
                Event::Token { .. } | Event::Finished { .. } => {}
            }
        }
    }
    Ok(positions)
}

/// The token that the sampling gives after `history`, by the definition and not by a backend's implementation of it.
fn choose(sampling: &Sampling, history: &[u32], prompt: usize, mut row: Vec<f32>) -> u32 {
    if !sampling.adjust.is_neutral() {
        sampling.adjust.apply(history, prompt, &mut row);
    }
    evaluate::sample::sample(&sampling.params(history.len()), &row).token
}

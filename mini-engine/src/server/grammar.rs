//! `response_format`: answers that are JSON, or JSON of a schema. The grammar is llguidance's; which tokens it allows is a
//! function of the answer so far, so that a constrained answer is as independent of its neighbours as any other.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::app::Served;
use super::error::ApiError;
use super::fields::describe;
use crate::engine::{Constraint, Rule};

/// Bounds of one grammar: its building, one step, and its memory (about 2 KB a lexer state). What goes beyond is refused, or
/// ends its request. They are counts and not times, so that they fall alike on every machine.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 500_000,
        step_lexer_fuel: 100_000,
        step_max_items: 25_000,
        max_lexer_states: 10_000,
        max_grammar_size: 100_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// What a request wants its answer to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Anything.
    #[default]
    Text,
    /// JSON of this schema.
    Json(Value),
}

impl Format {
    /// Reads `response_format`.
    pub fn read(value: Option<Value>) -> Result<Self, ApiError> {
        let Some(value) = value else { return Ok(Self::Text) };
        let wrong = |field: &str, expected: &str, got: &Value| Err(ApiError::field(field, expected, describe(got)));
        match value["type"].as_str() {
            Some("text") => Ok(Self::Text),
            Some("json_object") => Ok(Self::Json(json!({ "type": "object" }))),
            Some("json_schema") => match &value["json_schema"]["schema"] {
                schema @ Value::Object(_) => Ok(Self::Json(schema.clone())),
                other => wrong("response_format", "an object at json_schema.schema", other),
            },
            _ => wrong("response_format", "the type text, json_object or json_schema", &value["type"]),
        }
    }
}

/// Makes grammars for one vocabulary.
#[derive(Default)]
pub struct Grammars {
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Grammars {
    /// One rule for each of `answers` answers. The first call prepares the vocabulary.
    pub fn constraints(
        &self,
        served: &Served,
        vocab: usize,
        format: &Format,
        answers: usize,
    ) -> Result<Vec<Option<Constraint>>, ApiError> {
        let Format::Json(schema) = format else { return Ok(vec![None; answers]) };
        let factory = self.factory.get_or_init(|| factory(served, vocab)).as_ref();
        let factory = factory.map_err(|why| ApiError::unsupported_field("response_format", why))?;
        let refused = |error| ApiError::field("response_format", "a schema that can be followed", error);
        let one = || {
            let parser = factory.create_parser(TopLevelGrammar::from_json_schema(schema.clone()));
            let matcher = Matcher::new(parser);
            match matcher.get_error() {
                Some(error) => Err(refused(super::error::shortened(&error))),
                None => Ok(Some(Constraint(Arc::new(Grammar(Mutex::new(Progress { matcher, consumed: Vec::new() })))))),
            }
        };
        (0..answers).map(|_| one()).collect()
    }
}

fn factory(served: &Served, vocab: usize) -> Result<ParserFactory, String> {
    let Some(&end) = served.eos.first() else { return Err("the model has no end token".into()) };
    let words: Vec<Vec<u8>> = (0..vocab as u32).map(|token| served.tokenizer.grammar_bytes_of(token)).collect();
    let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, end), &words).with_eos_tokens(&served.eos);
    let environment: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&environment).map_err(|error| error.to_string())?;
    *factory.limits_mut() = limits();
    factory.quiet();
    Ok(factory)
}

/// A grammar and how far an answer has come in it.
struct Grammar(Mutex<Progress>);

struct Progress {
    matcher: Matcher,
    consumed: Vec<u32>,
}

impl Rule for Grammar {
    fn forbid(&self, answer: &[u32], row: &mut [f32]) -> Result<(), String> {
        let Progress { matcher, consumed } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = answer.strip_prefix(consumed.as_slice()).ok_or("the answer has changed")?;
        matcher.consume_tokens(new).map_err(|error| error.to_string())?;
        consumed.extend_from_slice(new);
        let allowed = matcher.compute_mask_or_eos().map_err(|error| error.to_string())?;
        for (token, logit) in row.iter_mut().enumerate() {
            if token >= allowed.len() || !allowed.get(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

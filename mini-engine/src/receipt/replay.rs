//! What an output's tokens must have become: its text and its end, from the tokens and the stop conditions alone.

use super::schema::{End, SamplingRecord};
use crate::model::Tokenizer;
use crate::stop::StopMatcher;

/// The text side of an output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replay {
    /// Its text.
    pub text: String,
    /// Why it ended; `None` when it had to go on.
    pub end: Option<End>,
    /// Tokens up to the end.
    pub used: usize,
}

/// Runs `tokens` through the stop conditions.
pub(super) fn replay(tokenizer: &Tokenizer, sampling: &SamplingRecord, tokens: &[u32]) -> Replay {
    let mut decoder = tokenizer.stream();
    let mut matcher = StopMatcher::new(sampling.stop_strings.iter().cloned());
    let mut text = String::new();
    let mut end = None;
    let mut used = 0;
    for &token in tokens {
        used += 1;
        if sampling.stop_tokens.binary_search(&token).is_ok() {
            end = Some(End::StopToken);
            break;
        }
        let released = matcher.push(&decoder.push(token));
        text += &released.text;
        if released.stopped {
            return Replay { text, end: Some(End::StopString), used };
        }
        if used == sampling.max_tokens as usize {
            end = Some(End::Length);
            break;
        }
    }
    // What was held back is plain text, unless the end of an unfinished character completes a stop string.
    let released = matcher.push(&decoder.finish());
    text += &released.text;
    if !released.stopped {
        text += &matcher.finish();
    } else if end == Some(End::Length) {
        end = Some(End::StopString);
    }
    Replay { text, end, used }
}

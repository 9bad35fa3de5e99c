//! One answer on its way from tokens to text: characters of several tokens come whole, stop strings never come out, and each
//! token's log-probability comes with its text.

use std::collections::VecDeque;

use super::row::RowFacts;
use crate::engine::Finish;
use crate::model::{StreamDecoder, Tokenizer};
use crate::stop::StopMatcher;

/// A token of an answer with what is reported about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The token.
    pub token: u32,
    /// Its log-probability; `None` for the first token of a prompt.
    pub logprob: Option<f32>,
    /// The most likely tokens in its place, best first.
    pub top: Vec<(u32, f32)>,
    /// Characters of text before it.
    pub start: usize,
}

/// Text that is certain, and the tokens that made it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// The tokens.
    pub entries: Vec<Entry>,
}

impl Piece {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.entries.is_empty()
    }

    /// Puts another piece behind this one.
    pub fn append(&mut self, other: Self) {
        self.text += &other.text;
        self.entries.extend(other.entries);
    }
}

/// The text side of one answer.
pub struct Choice<'a> {
    decoder: Option<StreamDecoder<'a>>,
    stops: StopMatcher,
    /// Tokens whose text is held back.
    held: VecDeque<(Entry, usize)>,
    decoded_chars: usize,
    released_chars: usize,
}

impl<'a> Choice<'a> {
    /// An answer that has not begun; `start` characters of text come before it.
    pub fn new(tokenizer: &'a Tokenizer, stops: Vec<String>, start: usize) -> Self {
        Self {
            decoder: Some(tokenizer.stream()),
            stops: StopMatcher::new(stops),
            held: VecDeque::new(),
            decoded_chars: start,
            released_chars: start,
        }
    }

    /// The next token. True when it completed a stop string, after which the answer is over.
    pub fn push(&mut self, token: u32, logprob: f32, facts: Option<RowFacts>) -> (Piece, bool) {
        let Some(decoder) = &mut self.decoder else { return (Piece::default(), true) };
        let text = decoder.push(token);
        let top = facts.map(|facts| facts.top).unwrap_or_default();
        let entry = Entry { token, logprob: Some(logprob), top, start: self.decoded_chars };
        self.decoded_chars += text.chars().count();
        self.held.push_back((entry, self.decoded_chars));
        let released = self.stops.push(&text);
        if released.stopped {
            self.decoder = None;
        }
        (self.release(released.text, released.stopped), released.stopped)
    }

    /// No more tokens: what was held back is plain text.
    pub fn finish(&mut self, finish: Finish) -> (Piece, bool) {
        let Some(decoder) = self.decoder.take() else { return (Piece::default(), false) };
        let rest = decoder.finish();
        self.decoded_chars += rest.chars().count();
        let released = self.stops.push(&rest);
        let mut text = released.text;
        if !released.stopped {
            text += &std::mem::take(&mut self.stops).finish();
        }
        let stopped = released.stopped || finish == Finish::Stop;
        (self.release(text, true), stopped)
    }

    /// Lets go of text and of the tokens whose text it completes; at the end also of those that it begins.
    fn release(&mut self, text: String, last: bool) -> Piece {
        self.released_chars += text.chars().count();
        let released = self.released_chars;
        let mut entries = Vec::new();
        while let Some((entry, end)) = self.held.front() {
            let begun = last && (entry.start < released || *end == entry.start);
            if *end > released && !begun {
                break;
            }
            entries.extend(self.held.pop_front().map(|(entry, _)| entry));
        }
        Piece { text, entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &[u8], stops: &[&str]) -> (Vec<Piece>, bool) {
        let tokenizer = Tokenizer::bytes();
        let mut choice = Choice::new(&tokenizer, stops.iter().map(|&stop| stop.to_owned()).collect(), 0);
        let mut pieces = Vec::new();
        for &byte in text {
            let (piece, stopped) = choice.push(byte.into(), -1.0, None);
            pieces.push(piece);
            if stopped {
                return (pieces, true);
            }
        }
        let (piece, stopped) = choice.finish(Finish::Length);
        pieces.push(piece);
        (pieces, stopped)
    }

    fn texts(pieces: &[Piece]) -> Vec<&str> {
        pieces.iter().map(|piece| piece.text.as_str()).collect()
    }

    #[test]
    fn a_stop_string_over_tokens_takes_its_tokens_along() {
        let (pieces, stopped) = run(b"ab END cd", &["END"]);
        assert_eq!((texts(&pieces), stopped), (vec!["a", "b", " ", "", "", ""], true));
        assert_eq!(pieces.iter().map(|piece| piece.entries.len()).sum::<usize>(), 3);
    }

    #[test]
    fn held_text_and_its_tokens_come_when_it_is_no_stop_string() {
        let (pieces, stopped) = run(b"xEN", &["END"]);
        assert_eq!((texts(&pieces), stopped), (vec!["x", "", "", "EN"], false));
        assert_eq!(pieces[3].entries.iter().map(|entry| entry.start).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn every_token_of_an_unfinished_character_is_reported() {
        let (pieces, _) = run(&"é🐕".as_bytes()[..5], &[]);
        assert_eq!(texts(&pieces).concat(), "é\u{fffd}");
        assert_eq!(pieces.iter().map(|piece| piece.entries.len()).sum::<usize>(), 5);
    }
}

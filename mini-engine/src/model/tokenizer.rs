//! Text to tokens and back. Streaming decodes one token at a time and never emits half a character.

use std::collections::BTreeSet;

use super::error::{Error, Result};
use super::tiny;

/// A model's vocabulary.
pub struct Tokenizer {
    kind: Kind,
    digest: blake3::Hash,
}

enum Kind {
    /// One token a byte, then start and end: the vocabulary of [`tiny`].
    Bytes,
    /// Anything that `tokenizer.json` or a GGUF vocabulary describes.
    Trained { tokenizer: Box<tokenizers::Tokenizer>, prefix: Vec<u32>, added: BTreeSet<u32>, byte_level: bool },
}

impl Tokenizer {
    /// The byte-level vocabulary.
    pub fn bytes() -> Self {
        Self { kind: Kind::Bytes, digest: blake3::hash(b"sametree tokenizer bytes 1") }
    }

    /// Reads a `tokenizer.json`.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let invalid = |error: tokenizers::Error| Error::input("document", "a tokenizer", error.to_string());
        // The crate's reader panics on some text that is not JSON, so that is settled first.
        serde_json::from_slice::<serde_json::Value>(bytes)
            .map_err(|error| Error::input("document", "JSON", error.to_string()))?;
        let mut tokenizer = guarded(|| tokenizers::Tokenizer::from_bytes(bytes)).map_err(invalid)?;
        tokenizer.with_truncation(None).map_err(invalid)?;
        tokenizer.with_padding(None);
        Ok(Self::trained(tokenizer, Vec::new(), blake3::hash(bytes)))
    }

    /// BLAKE3 of what the file says about cutting text into tokens and joining them: the whole `tokenizer.json`, or the
    /// vocabulary in a GGUF file's metadata. One vocabulary in two kinds of file has two digests.
    pub fn digest(&self) -> blake3::Hash {
        self.digest
    }

    /// The largest token; `None` for an empty vocabulary.
    pub fn last_token(&self) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => Some(tiny::EOS),
            Kind::Trained { tokenizer, .. } => tokenizer.get_vocab(true).into_values().max(),
        }
    }

    /// A trained vocabulary. `prefix` is put before a plain prompt (a GGUF file names the start token apart; a
    /// `tokenizer.json` has it in its post-processor). `digest` is that of the file's description.
    pub fn trained(tokenizer: tokenizers::Tokenizer, prefix: Vec<u32>, digest: blake3::Hash) -> Self {
        let added = tokenizer.get_added_tokens_decoder().into_keys().collect();
        // The only way to see into a sequence of decoders is what it says about itself.
        let byte_level = tokenizer.get_decoder().is_some_and(|decoder| format!("{decoder:?}").contains("ByteLevel"));
        Self { kind: Kind::Trained { tokenizer: Box::new(tokenizer), prefix, added, byte_level }, digest }
    }

    /// Tokens of a plain prompt, with the start token where the model wants one.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::Bytes => Ok(std::iter::once(tiny::BOS).chain(text.bytes().map(u32::from)).collect()),
            Kind::Trained { prefix, .. } => Ok(prefix.iter().copied().chain(self.encode_with(text, true)?).collect()),
        }
    }

    /// Tokens of text that already holds its special tokens, such as a rendered chat template.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::Trained { tokenizer, .. } => {
                let encoding = tokenizer
                    .encode_fast(text, add_special)
                    .map_err(|error| Error::input("prompt", "text that the tokenizer can encode", error.to_string()))?;
                Ok(encoding.get_ids().to_vec())
            }
        }
    }

    /// Text of tokens, without special tokens. Bytes that are not UTF-8 become U+FFFD; an unknown token is empty.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.kind {
            Kind::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Kind::Trained { tokenizer, .. } => guarded(|| tokenizer.decode(tokens, true)).unwrap_or_default(),
        }
    }

    /// The token of a special or ordinary vocabulary entry, such as `<|im_end|>`.
    pub fn token(&self, entry: &str) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Trained { tokenizer, .. } => tokenizer.token_to_id(entry),
        }
    }

    /// The vocabulary entry of a token, as it is written in the vocabulary.
    pub fn entry(&self, token: u32) -> Option<String> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Trained { tokenizer, .. } => tokenizer.id_to_token(token),
        }
    }

    /// The bytes that a token stands for, whether or not they are text by themselves. A special token stands for its name.
    pub fn bytes_of(&self, token: u32) -> Vec<u8> {
        match &self.kind {
            Kind::Bytes => match u8::try_from(token) {
                Ok(byte) => vec![byte],
                Err(_) => format!("<{token}>").into_bytes(),
            },
            Kind::Trained { tokenizer, added, byte_level, .. } => match tokenizer.id_to_token(token) {
                None => Vec::new(),
                Some(entry) if added.contains(&token) => entry.into_bytes(),
                Some(entry) => spelled_bytes(&entry, *byte_level),
            },
        }
    }

    /// The same as grammars want it: nothing for a token that never stands for text, and special tokens marked by a byte that
    /// no text holds.
    pub fn grammar_bytes_of(&self, token: u32) -> Vec<u8> {
        let special = match &self.kind {
            Kind::Bytes if token > tiny::EOS => return Vec::new(),
            Kind::Bytes => token > u32::from(u8::MAX),
            Kind::Trained { added, .. } => added.contains(&token),
        };
        let mut bytes = self.bytes_of(token);
        if special {
            bytes.insert(0, 0xff);
        }
        bytes
    }

    /// A decoder for tokens as they are sampled.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder { tokenizer: self, tokens: Vec::new(), emitted_bytes: 0 }
    }
}

/// The bytes that a vocabulary entry spells.
fn spelled_bytes(entry: &str, byte_level: bool) -> Vec<u8> {
    if byte_level && let Some(bytes) = entry.chars().map(gpt2_byte).collect() {
        return bytes;
    }
    // The other alphabet: spaces as U+2581, and bytes outside of it as <0xE2>.
    let hex = entry.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|hex| hex.len() == 2);
    match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) => vec![byte],
        None => entry.replace('\u{2581}', " ").into_bytes(),
    }
}

/// GPT-2 spells a byte as the character of that number where it can be seen, and the others in order from U+0100.
fn gpt2_byte(spelling: char) -> Option<u8> {
    let visible = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(spelling) {
        code @ 0..=0xff => Some(code as u8).filter(visible),
        code => (0..=u8::MAX).filter(|byte| !visible(byte)).nth((code - 0x100) as usize),
    }
}

/// Runs the crate's code on a vocabulary from outside. It panics on some that contradict themselves; here that is an error.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    outcome.unwrap_or_else(|_| Err("a vocabulary that contradicts itself".into()))
}

/// Decodes a growing sequence. The pieces it returns, joined, are [`Tokenizer::decode`] of all tokens.
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Tokens since the last point where the text was whole, after one token of context.
    tokens: Vec<u32>,
    /// Bytes of their text that have been returned.
    emitted_bytes: usize,
}

/// How an unfinished character at the end of a text is decoded; only the last one can still change.
const UNFINISHED: char = '\u{fffd}';

impl StreamDecoder<'_> {
    /// The text that `token` completes; empty while a character is unfinished.
    pub fn push(&mut self, token: u32) -> String {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens);
        if let Some(certain) = text.strip_suffix(UNFINISHED) {
            return self.emit(certain);
        }
        let piece = self.emit(&text);
        // Keep the newest token: a decoder may treat the first token of a text specially.
        self.tokens.drain(..self.tokens.len() - 1);
        self.emitted_bytes = self.tokenizer.decode(&self.tokens).len();
        piece
    }

    /// What is left when the sequence ends: an unfinished character becomes U+FFFD.
    pub fn finish(mut self) -> String {
        let text = self.tokenizer.decode(&self.tokens);
        self.emit(&text)
    }

    fn emit(&mut self, text: &str) -> String {
        let piece = text.get(self.emitted_bytes..).unwrap_or_default().to_owned();
        self.emitted_bytes += piece.len();
        piece
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trained() -> Tokenizer {
        crate::model::huggingface::tokenizer(include_bytes!("../../tests/reference/llama/tokenizer.json"), 272).unwrap()
    }

    fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let mut stream = tokenizer.stream();
        let mut text: String = tokens.iter().map(|token| stream.push(*token)).collect();
        text += &stream.finish();
        text
    }

    #[test]
    fn a_character_of_many_tokens_comes_whole() {
        let tokenizer = Tokenizer::bytes();
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = "a🐕é".bytes().map(|byte| stream.push(byte.into())).collect();
        assert_eq!(pieces, ["a", "", "", "", "🐕", "", "é"]);
        assert_eq!(stream.finish(), "");
        let mut stream = tokenizer.stream();
        assert_eq!(stream.push(0xf0), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }

    #[test]
    fn the_bytes_of_tokens_are_the_bytes_of_their_text() {
        let tokenizer = trained();
        let text = "the é🐕\u{0}\u{a0}\n~";
        let tokens = tokenizer.encode(text).unwrap();
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| tokenizer.bytes_of(*token)).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert_eq!(tokenizer.bytes_of(256), b"<|start|>");
        assert_eq!(tokenizer.grammar_bytes_of(256), b"\xff<|start|>");
        assert_eq!(tokenizer.bytes_of(9999), b"");
        // All 256 bytes have a spelling of their own.
        let spelled: BTreeSet<Vec<u8>> = (0..256).map(|token| tokenizer.bytes_of(token)).collect();
        assert_eq!((spelled.len(), spelled.iter().all(|bytes| bytes.len() == 1)), (256, true));
        assert_eq!((spelled_bytes("<0xE2>", false), spelled_bytes("\u{2581}a", false)), (vec![0xe2], b" a".to_vec()));
    }

    #[test]
    fn special_tokens_are_encoded_and_not_shown() {
        let tokenizer = trained();
        let tokens = tokenizer.encode("<|start|>the<|end|>").unwrap();
        assert_eq!((tokens[0], tokens[tokens.len() - 1]), (256, 257));
        assert_eq!(tokenizer.decode(&tokens), "the");
        assert_eq!(tokenizer.token("<|end|>"), Some(257));
        assert_eq!(tokenizer.entry(256).as_deref(), Some("<|start|>"));
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_whole_for_any_tokens(tokens in prop::collection::vec(0_u32..300, 0..60)) {
            for tokenizer in [Tokenizer::bytes(), trained()] {
                prop_assert_eq!(streamed(&tokenizer, &tokens), tokenizer.decode(&tokens));
            }
        }

        #[test]
        fn any_text_survives_the_round_trip(text in "\\PC{0,40}") {
            for tokenizer in [Tokenizer::bytes(), trained()] {
                let tokens = tokenizer.encode(&text).unwrap();
                prop_assert_eq!(tokenizer.decode(&tokens), text.clone());
                prop_assert_eq!(streamed(&tokenizer, &tokens), text.clone());
            }
        }
    }
}

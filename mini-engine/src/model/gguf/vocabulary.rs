//! A tokenizer from GGUF metadata: byte-level byte-pair encoding, which all supported families use.

use std::collections::HashMap;

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::{AddedToken, SplitDelimiterBehavior};

use super::container::{Container, Value};
use crate::model::chat::ChatTemplate;
use crate::model::config::Config;
use crate::model::error::{Error, Result};
use crate::model::tokenizer::Tokenizer;

const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";
const TYPES: &str = "tokenizer.ggml.token_type";
const PRE: &str = "tokenizer.ggml.pre";
const CHAT: &str = "tokenizer.chat_template";

/// Words of Llama 3, from its published tokenizer: contractions, letters, up to three digits, punctuation, space.
const LLAMA3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words of Qwen2: the same with single digits.
const QWEN2_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Token types of the format.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// Builds the tokenizer; the vocabulary may be smaller than the `rows` of the embedding, which is padded in some models.
pub(super) fn tokenizer(container: &Container<'_>, rows: usize) -> Result<Tokenizer> {
    if container.text("tokenizer.ggml.model")? != "gpt2" {
        return Err(container.wrong("tokenizer.ggml.model", "gpt2 (byte-level byte-pair encoding)"));
    }
    let tokens = container.array_or_none(TOKENS)?.ok_or_else(|| container.wrong(TOKENS, "an array of text"))?;
    if tokens.len() > rows {
        return Err(Error::input(
            TOKENS,
            format!("at most the {rows} rows of the embedding"),
            tokens.len().to_string(),
        ));
    }
    let tokens: Vec<&str> = tokens.texts(TOKENS).collect::<Result<_>>()?;
    let mut vocabulary = HashMap::new();
    for (id, token) in tokens.iter().enumerate() {
        if vocabulary.insert(*token, id).is_some() {
            return Err(Error::input(TOKENS, "distinct tokens", format!("{token:?} twice")));
        }
    }
    let merges = merges(container, &vocabulary)?;
    let special = special_tokens(container, &tokens)?;
    let rules = Rules::of(container)?;
    let prefix = prefix(container, tokens.len())?;
    let digest = digest(container.text(PRE)?, &tokens, &merges, &special, &prefix);

    let owned: Vec<(String, u32)> = vocabulary.into_iter().map(|(token, id)| (token.to_owned(), id as u32)).collect();
    let failed =
        |error: tokenizers::Error| Error::input(MERGES, "merges that the vocabulary can build", error.to_string());
    let model = BPE::builder()
        .vocab_and_merges(owned.into_iter().collect::<ahash::AHashMap<_, _>>(), merges)
        .ignore_merges(rules.whole_words);
    let mut tokenizer = tokenizers::Tokenizer::new(model.build().map_err(failed)?);
    if rules.normalise {
        tokenizer.with_normalizer(Some(tokenizers::normalizers::NFC)).map_err(failed)?;
    }
    tokenizer.with_pre_tokenizer(Some(rules.pre_tokenizer()?));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    tokenizer.add_tokens(special).map_err(failed)?;
    Ok(Tokenizer::trained(tokenizer, prefix, digest))
}

/// BLAKE3 of all that the tokenizer is made of. Every part is preceded by its length, so that none runs into the next.
fn digest(
    rules: &str,
    tokens: &[&str],
    merges: &[(String, String)],
    special: &[AddedToken],
    prefix: &[u32],
) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    let mut parts = |count: usize, items: &mut dyn Iterator<Item = &str>| {
        part(&(count as u64).to_le_bytes());
        items.for_each(|item| part(item.as_bytes()));
    };
    parts(2, &mut ["sametree tokenizer gguf 1", rules].into_iter());
    parts(tokens.len(), &mut tokens.iter().copied());
    parts(2 * merges.len(), &mut merges.iter().flat_map(|(left, right)| [left.as_str(), right]));
    let kind = |token: &AddedToken| if token.special { "control" } else { "user" };
    parts(2 * special.len(), &mut special.iter().flat_map(|token| [token.content.as_str(), kind(token)]));
    let prefix: Vec<String> = prefix.iter().map(u32::to_string).collect();
    parts(prefix.len(), &mut prefix.iter().map(String::as_str));
    hasher.finalize()
}

/// The chat template, with the spellings of the start and end tokens that it may use.
pub(super) fn chat_template(container: &Container<'_>, config: &Config) -> Result<Option<ChatTemplate>> {
    let Some(source) = container.text_or_none(CHAT)? else { return Ok(None) };
    let spelling = |token: Option<u32>| -> Result<&str> {
        let (Some(token), Some(tokens)) = (token, container.array_or_none(TOKENS)?) else { return Ok("") };
        tokens.texts(TOKENS).nth(token as usize).unwrap_or(Ok(""))
    };
    ChatTemplate::new(source, spelling(config.bos)?, spelling(config.eos.first().copied())?).map(Some)
}

fn merges(container: &Container<'_>, vocabulary: &HashMap<&str, usize>) -> Result<Vec<(String, String)>> {
    let merges = container.array_or_none(MERGES)?.ok_or_else(|| container.wrong(MERGES, "an array of text"))?;
    let mut out = Vec::new();
    for merge in merges.texts(MERGES) {
        let merge = merge?;
        let (left, right) = merge
            .split_once(' ')
            .ok_or_else(|| Error::input(MERGES, "two tokens with a space between", format!("{merge:?}")))?;
        for part in [left, right, &format!("{left}{right}")] {
            if !vocabulary.contains_key(part) {
                return Err(Error::input(MERGES, "tokens of the vocabulary", format!("{part:?} in {merge:?}")));
            }
        }
        out.push((left.to_owned(), right.to_owned()));
    }
    Ok(out)
}

/// Tokens that are cut out of the text before it is split into words.
fn special_tokens(container: &Container<'_>, tokens: &[&str]) -> Result<Vec<AddedToken>> {
    let Some(types) = container.array_or_none(TYPES)? else { return Ok(Vec::new()) };
    if types.len() != tokens.len() {
        return Err(Error::input(
            TYPES,
            format!("one type for each of {} tokens", tokens.len()),
            types.len().to_string(),
        ));
    }
    let mut out = Vec::new();
    for (token, kind) in tokens.iter().zip(types.items(TYPES)) {
        let kind = match kind? {
            Value::Signed(kind) => kind,
            Value::Unsigned(kind) => i64::try_from(kind).unwrap_or(i64::MAX),
            other => return Err(Error::input(TYPES, "integers", format!("{other:?}"))),
        };
        if (kind == CONTROL || kind == USER_DEFINED) && !token.is_empty() {
            out.push(AddedToken::from(*token, kind == CONTROL).normalized(false));
        }
    }
    Ok(out)
}

/// The start token, where the file asks for it before every prompt.
fn prefix(container: &Container<'_>, tokens: usize) -> Result<Vec<u32>> {
    if container.bool_or_none("tokenizer.ggml.add_bos_token")? != Some(true) {
        return Ok(Vec::new());
    }
    let key = "tokenizer.ggml.bos_token_id";
    let token = container.count(key)?;
    if token >= tokens {
        return Err(container.wrong(key, &format!("a token below {tokens}")));
    }
    Ok(vec![token as u32])
}

/// How text is cut into words before merging.
struct Rules {
    words: Option<&'static str>,
    single_digits: bool,
    /// A word that is a token stays one, whatever the merges would make of it.
    whole_words: bool,
    normalise: bool,
}

impl Rules {
    fn of(container: &Container<'_>) -> Result<Self> {
        let name = container.text_or_none(PRE)?;
        name.and_then(Self::named).ok_or_else(|| container.wrong(PRE, "smollm, gpt-2, llama-bpe or qwen2"))
    }

    fn named(name: &str) -> Option<Self> {
        let plain = Self { words: None, single_digits: false, whole_words: false, normalise: false };
        match name {
            "smollm" => Some(Self { single_digits: true, ..plain }),
            "gpt-2" => Some(plain),
            "llama-bpe" | "llama3" | "llama-v3" => Some(Self { words: Some(LLAMA3_WORDS), whole_words: true, ..plain }),
            "qwen2" => Some(Self { words: Some(QWEN2_WORDS), normalise: true, ..plain }),
            _ => None,
        }
    }

    fn pre_tokenizer(&self) -> Result<PreTokenizerWrapper> {
        let failed = |error: tokenizers::Error| Error::input(PRE, "a pattern that compiles", error.to_string());
        let bytes = |own_words| PreTokenizerWrapper::from(ByteLevel::new(false, true, own_words));
        let first = match self.words {
            Some(words) => {
                let pattern = SplitPattern::Regex(words.to_owned());
                PreTokenizerWrapper::from(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(failed)?)
            }
            None if self.single_digits => PreTokenizerWrapper::from(Digits::new(true)),
            None => return Ok(bytes(true)),
        };
        Ok(PreTokenizerWrapper::from(Sequence::new(vec![first, bytes(self.words.is_none())])))
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::tokenizer::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;

    /// Words of a text; a space in front of a word belongs to it and is written Ġ.
    fn words(rules: &str, text: &str) -> Vec<String> {
        let mut text = PreTokenizedString::from(text);
        Rules::named(rules).unwrap().pre_tokenizer().unwrap().pre_tokenize(&mut text).unwrap();
        text.get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(word, ..)| word.to_owned())
            .collect()
    }

    #[test]
    fn families_cut_digits_and_letters_each_in_their_own_way() {
        let text = "We'LL pay 12345 now.";
        assert_eq!(words("gpt-2", text), ["We", "'", "LL", "Ġpay", "Ġ12345", "Ġnow", "."]);
        assert_eq!(words("smollm", text), ["We", "'", "LL", "Ġpay", "Ġ", "1", "2", "3", "4", "5", "Ġnow", "."]);
        assert_eq!(words("llama-bpe", text), ["We", "'LL", "Ġpay", "Ġ", "123", "45", "Ġnow", "."]);
        assert_eq!(words("qwen2", text), ["We", "'LL", "Ġpay", "Ġ", "1", "2", "3", "4", "5", "Ġnow", "."]);
        assert!(Rules::named("tekken").is_none());
    }
}

//! The reading head: whitespace and comments, words, punctuation, numbers, strings, balanced skips, and faults at a place.

use super::{MAX_DEPTH, ParseError};

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// A position in the text. Cheap to copy, so that a caller can look ahead and come back.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    depth: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Cursor { text, at: 0, depth: 0 }
    }

    /// The text not read yet.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.text, self.at, message)
    }

    pub(super) fn error_at(&self, at: usize, message: impl Into<String>) -> ParseError {
        ParseError::new(self.text, at, message)
    }

    /// `expected X, found Y` here.
    pub(super) fn expected(&self, what: &str) -> ParseError {
        self.error(format!("expected {what}, found {}", self.found()))
    }

    /// The next word or character, for a message.
    pub(super) fn found(&self) -> String {
        let mut ahead = *self;
        ahead.skip_space();
        let rest = ahead.rest();
        let Some(first) = rest.chars().next() else { return "the end of the file".into() };
        let sigil = usize::from("%@^#!".contains(first));
        let len = rest[sigil..].chars().take_while(|c| is_word(*c)).take(40).map(char::len_utf8).sum::<usize>() + sigil;
        let len = if len <= sigil { first.len_utf8() } else { len };
        format!("`{}`", rest[..len].escape_debug())
    }

    /// Runs `f` one level deeper.
    pub(super) fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// Skips blanks, newlines and `//` comments.
    pub(super) fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            self.at += blank;
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    /// True if the next thing is this punctuation.
    pub(super) fn peek(&mut self, what: &str) -> bool {
        self.skip_space();
        self.rest().starts_with(what)
    }

    /// Reads this punctuation if it is next.
    pub(super) fn eat(&mut self, what: &str) -> bool {
        let found = self.peek(what);
        if found {
            self.at += what.len();
        }
        found
    }

    pub(super) fn expect(&mut self, what: &str) -> Result<()> {
        if self.eat(what) { Ok(()) } else { Err(self.expected(&format!("`{what}`"))) }
    }

    /// The next bare word (`scf.for`, `dense`), without reading it.
    pub(super) fn peek_word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return "";
        }
        let len = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        &rest[..len]
    }

    /// Reads this bare word if it is next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        let word = self.peek_word();
        if word.is_empty() {
            return Err(self.expected(what));
        }
        self.at += word.len();
        Ok(word)
    }

    /// The name after a sigil that has just been read: `%12`, `%rm_5`, `^bb1`, `#loc3`.
    pub(super) fn suffix(&mut self, what: &str) -> Result<&'a str> {
        let rest = self.rest();
        let len = rest.find(|c: char| !(is_word(c) || c == '-')).unwrap_or(rest.len());
        // A trailing `-` belongs to `->`.
        let len = rest[..len].trim_end_matches('-').len();
        if len == 0 {
            return Err(self.expected(what));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// `@name` or `@"name"`, after the `@`.
    pub(super) fn symbol(&mut self) -> Result<String> {
        if self.rest().starts_with('"') { self.string() } else { Ok(self.suffix("a symbol name")?.to_owned()) }
    }

    /// A non-negative decimal number.
    pub(super) fn natural(&mut self, what: &str) -> Result<u64> {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let value = rest[..len].parse().map_err(|_| self.expected(what))?;
        self.at += len;
        Ok(value)
    }

    /// The text of a number as it stands: sign, digits, hexadecimal, fraction, exponent.
    pub(super) fn number(&mut self) -> Result<&'a str> {
        self.skip_space();
        let rest = self.rest().as_bytes();
        let mut len = usize::from(rest.first() == Some(&b'-'));
        if rest[len..].starts_with(b"0x") {
            len += 2;
            len += rest[len..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
        } else {
            let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
            len += digits(len);
            if rest.get(len) == Some(&b'.') {
                len += 1 + digits(len + 1);
            }
            if matches!(rest.get(len), Some(b'e' | b'E')) {
                let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
                let exponent = digits(len + 1 + sign);
                if exponent > 0 {
                    len += 1 + sign + exponent;
                }
            }
        }
        let text = &self.rest()[..len];
        if !text.bytes().any(|b| b.is_ascii_digit()) {
            return Err(self.expected("a number"));
        }
        self.at += len;
        Ok(text)
    }

    /// True if a number is next.
    pub(super) fn peek_number(&mut self) -> bool {
        self.skip_space();
        let rest = self.rest().strip_prefix('-').unwrap_or(self.rest());
        rest.starts_with(|c: char| c.is_ascii_digit())
    }

    /// A quoted string with MLIR's escapes (`\n`, `\t`, `\\`, `\"`, `\0A`). Bytes that make no UTF-8 are replaced.
    pub(super) fn string(&mut self) -> Result<String> {
        self.skip_space();
        let start = self.at;
        self.expect("\"")?;
        let bytes = self.rest().as_bytes();
        let mut out = Vec::new();
        let mut i = 0;
        loop {
            match bytes.get(i) {
                None | Some(b'\n') => return Err(self.error_at(start, "this string has no closing quote on its line")),
                Some(b'"') => break,
                Some(b'\\') => {
                    let (byte, len) = escape(&bytes[i + 1..])
                        .ok_or_else(|| self.error_at(self.at + i, "expected an escape such as `\\n` or `\\0A` here"))?;
                    out.push(byte);
                    i += 1 + len;
                }
                Some(b) => {
                    out.push(*b);
                    i += 1;
                }
            }
        }
        self.at += i + 1;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Reads from an opening bracket to its partner; the text in between, without blanks outside strings.
    pub(super) fn balanced(&mut self) -> Result<String> {
        self.skip_space();
        let start = self.at;
        let mut open = Vec::new();
        let mut out = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else {
                return Err(self.error_at(start, "this bracket is never closed"));
            };
            match c {
                '"' => {
                    let from = self.at;
                    self.string()?;
                    out.push_str(&self.text[from..self.at]);
                    continue;
                }
                '-' if self.rest().starts_with("->") => {
                    out.push_str("->");
                    self.at += 2;
                    continue;
                }
                '(' => open.push(')'),
                '[' => open.push(']'),
                '{' => open.push('}'),
                '<' => open.push('>'),
                ')' | ']' | '}' | '>' if open.pop() != Some(c) => {
                    return Err(self.error(format!("`{c}` closes nothing")));
                }
                _ => {}
            }
            if open.len() > MAX_DEPTH {
                return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
            }
            if !c.is_whitespace() {
                out.push(c);
            }
            self.at += c.len_utf8();
            if open.is_empty() {
                return Ok(out);
            }
        }
    }

    /// `item, item, ..` up to `close`, which is read too.
    pub(super) fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut out = Vec::new();
        if self.eat(close) {
            return Ok(out);
        }
        loop {
            out.push(item(self)?);
            if self.eat(close) {
                return Ok(out);
            }
            if !self.eat(",") {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
    }
}

fn escape(bytes: &[u8]) -> Option<(u8, usize)> {
    match bytes.first()? {
        b'n' => Some((b'\n', 1)),
        b't' => Some((b'\t', 1)),
        b'"' => Some((b'"', 1)),
        b'\\' => Some((b'\\', 1)),
        _ => {
            let hex = std::str::from_utf8(bytes.get(..2)?).ok()?;
            Some((u8::from_str_radix(hex, 16).ok()?, 2))
        }
    }
}

pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.')
}

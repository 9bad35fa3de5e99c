//! What a refused file is told: where, what was expected, what came.

use crate::ir::TextPos;
use std::fmt;

/// A refused file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    message: String,
    help: Option<String>,
    pos: TextPos,
    offset: usize,
    /// Where the text that is kept for drawing starts in the file.
    kept_from: usize,
}

impl ParseError {
    /// A fault at a byte offset of the text.
    pub(crate) fn new(text: &str, offset: usize, message: impl Into<String>) -> ParseError {
        let offset = floor_boundary(text, offset);
        ParseError { message: message.into(), help: None, pos: position(text, offset), offset, kept_from: 0 }
    }

    /// A fault at a line and column.
    pub(crate) fn at_pos(text: &str, pos: TextPos, message: impl Into<String>) -> ParseError {
        let line_start = match pos.line {
            0 | 1 => 0,
            n => text.match_indices('\n').nth(n as usize - 2).map_or(text.len(), |(i, _)| i + 1),
        };
        let column = (pos.column as usize).saturating_sub(1);
        let offset = text[line_start..].char_indices().nth(column).map_or(text.len(), |(i, _)| line_start + i);
        ParseError { message: message.into(), help: None, pos, offset, kept_from: 0 }
    }

    /// The same with a sentence on what to do about it.
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> ParseError {
        self.help = Some(help.into());
        self
    }

    /// A fault in bytes that are not text.
    pub(crate) fn in_bytes(pos: TextPos, offset: usize, message: impl Into<String>) -> ParseError {
        ParseError { message: message.into(), help: None, pos, offset, kept_from: 0 }
    }

    /// The same fault, drawn from a text that starts at the given offset of the file.
    pub(crate) fn rebased(mut self, kept_from: usize) -> ParseError {
        self.kept_from = kept_from.min(self.offset);
        self
    }

    /// Byte offset in the text that is kept for drawing.
    pub(crate) fn rebased_offset(&self) -> usize {
        self.offset - self.kept_from
    }

    /// What was expected and what came.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it, where there is something.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Line and column.
    pub fn pos(&self) -> TextPos {
        self.pos
    }

    /// Byte offset in the file.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.pos.line, self.pos.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Line and column of a byte offset, both from 1; columns count characters.
pub(crate) fn position(text: &str, offset: usize) -> TextPos {
    let before = &text[..floor_boundary(text, offset)];
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    TextPos { line: line.try_into().unwrap_or(u32::MAX), column: column.try_into().unwrap_or(u32::MAX) }
}

/// Positions of many offsets that mostly grow: counts on from the last one.
pub(crate) struct Positions<'a> {
    text: &'a str,
    offset: usize,
    pos: TextPos,
}

impl<'a> Positions<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Positions { text, offset: 0, pos: TextPos { line: 1, column: 1 } }
    }

    /// As [`position`].
    pub(crate) fn of(&mut self, offset: usize) -> TextPos {
        if offset < self.offset {
            *self = Positions::new(self.text);
        }
        for c in self.text[self.offset..offset].chars() {
            match c {
                '\n' => self.pos = TextPos { line: self.pos.line + 1, column: 1 },
                _ => self.pos.column += 1,
            }
        }
        self.offset = offset;
        self.pos
    }
}

fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

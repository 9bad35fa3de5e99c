//! From a path to a module, and from a refusal to what the user sees. Exit codes are the caller's.

use crate::ir::Module;
use crate::parse::{MAX_TEXT_BYTES, ParseError, parse};
use anstream::adapter::strip_str;
use ariadne::{CharSet, Color, Config, IndexType, Label, Report, ReportKind, Source};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest line that is drawn; of a longer one the part around the fault is quoted.
const MAX_LINE_CHARS: usize = 1000;
/// Last line that is drawn.
const MAX_LINES: u32 = 100_000;

/// A file that could not be checked.
#[derive(Debug)]
pub enum InputError {
    /// It could not be read.
    Read(std::io::Error),
    /// It is longer than any kernel.
    Long,
    /// It is not a TTIR module; the text is kept to draw the place.
    Parse {
        /// Where and why.
        error: ParseError,
        /// What was read, with bytes that are not UTF-8 replaced.
        text: String,
    },
}

/// Reads and parses a file. At most [`MAX_TEXT_BYTES`] and one byte more are read, whatever the file claims to be.
///
/// # Errors
/// See [`InputError`].
pub fn load(path: &Path) -> Result<Module, InputError> {
    let file = File::open(path).map_err(InputError::Read)?;
    if file.metadata().map_err(InputError::Read)?.is_dir() {
        return Err(InputError::Read(std::io::Error::other("it is a folder")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(InputError::Read)?;
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(InputError::Long);
    }
    parse(&bytes).map_err(|error| {
        let from = error.offset().saturating_sub(4096);
        let around = &bytes[from.min(bytes.len())..(error.offset() + 4096).min(bytes.len())];
        InputError::Parse { text: String::from_utf8_lossy(around).into_owned(), error: error.rebased(from) }
    })
}

impl InputError {
    /// The message with its place drawn, ending in a newline.
    pub fn render(&self, path: &Path, color: bool) -> String {
        match self {
            InputError::Read(error) => format!("error: cannot read {}: {error}\n", path.display()),
            InputError::Long => {
                let most = MAX_TEXT_BYTES >> 20;
                format!("error: {}: expected the TTIR of one kernel, found more than {most} MiB\n", path.display())
            }
            InputError::Parse { error, text } => draw(path, error, text, color),
        }
    }
}

/// Draws the line of a fault. `text` is the part of the file around it.
fn draw(path: &Path, error: &ParseError, text: &str, color: bool) -> String {
    let pos = error.pos();
    let (line, column) = line_around(text, error.rebased_offset());
    // Bytes that are no text would only garble the terminal.
    let line: String = line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
    let name = path.display().to_string();
    if line.chars().count() > MAX_LINE_CHARS || pos.line > MAX_LINES {
        let around: String = line.chars().skip(column.saturating_sub(40)).take(80).collect();
        let help = error.help().map(|h| format!("help: {h}\n")).unwrap_or_default();
        return format!("error: {name}:{pos}: {}\n  .. {} ..\n{help}", error.message(), around.trim());
    }
    // The drawing counts lines itself, so the line is put where it belongs.
    let blank = "\n".repeat(pos.line.saturating_sub(1) as usize);
    let at = blank.len() + column;
    let span = at..(at + 1).min(blank.len() + line.chars().count()).max(at);
    let config = Config::default()
        .with_color(color)
        .with_char_set(if color { CharSet::Unicode } else { CharSet::Ascii })
        .with_index_type(IndexType::Char);
    let mut report = Report::build(ReportKind::Custom("error", Color::Red), (name.as_str(), span.clone()))
        .with_config(config)
        .with_message(error.message())
        .with_label(Label::new((name.as_str(), span)).with_message("here"));
    if let Some(help) = error.help() {
        report = report.with_help(help);
    }
    let mut out = Vec::new();
    match report.finish().write((name.as_str(), Source::from(blank + &line)), &mut out) {
        // A kind of one's own is coloured whatever the configuration says.
        Ok(()) if !color => strip_str(&String::from_utf8_lossy(&out)).to_string(),
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(_) => format!("error: {name}:{pos}: {}\n", error.message()),
    }
}

/// The line at a byte offset, and the column in it, in characters from 0.
fn line_around(text: &str, offset: usize) -> (&str, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let start = text[..offset].rfind('\n').map_or(0, |i| i + 1);
    let end = text[offset..].find('\n').map_or(text.len(), |i| offset + i);
    (&text[start..end], text[start..offset].chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> String {
        let error = parse(text.as_bytes()).expect_err("refused");
        InputError::Parse { error: error.rebased(0), text: text.to_owned() }.render(Path::new("k.ttir"), false)
    }

    #[test]
    fn the_line_of_a_fault_is_drawn() {
        let drawn = render("module {\n  tt.func @k() {\n    %0 = arith.addi %a, %a : i32\n  }\n}\n");
        assert!(drawn.contains("error: the value %a is not defined here") && drawn.contains("k.ttir:3:21"), "{drawn}");
        assert!(drawn.contains("3 |     %0 = arith.addi %a, %a : i32"), "{drawn}");
    }

    #[test]
    fn a_long_line_is_cut_around_the_fault() {
        let drawn =
            render(&format!("module {{ {} tt.func @k() {{ %0 = arith.addi %a, %a : i32 }} }}", " ".repeat(100_000)));
        assert!(drawn.len() < 2000, "{} bytes", drawn.len());
        assert!(drawn.contains("arith.addi %a, %a"), "{drawn}");
    }

    #[test]
    fn help_is_shown() {
        assert!(render("; ModuleID = 'k'\n").contains("give the .ttir file of the kernel"));
    }
}

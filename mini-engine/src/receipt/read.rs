//! Reading a receipt that may be anything: bounded in size, never a panic, and a message that names the field.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::schema::{Receipt, VERSION};

/// Largest receipt that is read: a prompt and an answer of 150,000 tokens fit.
pub const RECEIPT_BYTES_MAX: u64 = 16 << 20;

/// Why bytes are not a receipt of this version.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is larger than any receipt.
    #[error("expected at most {RECEIPT_BYTES_MAX} bytes, got more")]
    TooLarge,
    /// It is not text.
    #[error("expected UTF-8, got an invalid sequence at byte {0}")]
    NotUtf8(usize),
    /// It is not the JSON of a receipt.
    #[error("{field}expected a receipt: {source}")]
    Schema {
        /// The field, with a colon, where one is known.
        field: String,
        /// What the reader says.
        source: serde_json::Error,
    },
    /// It is a receipt of another version.
    #[error("receipt.version: expected {VERSION}, got {0}")]
    Version(u64),
}

/// The part that every version has.
#[derive(Deserialize)]
struct AnyVersion {
    receipt: Versioned,
}

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

/// Reads a receipt. Its digest is not checked here.
pub fn parse(bytes: &[u8]) -> Result<Receipt, Unreadable> {
    if bytes.len() as u64 > RECEIPT_BYTES_MAX {
        return Err(Unreadable::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| Unreadable::NotUtf8(error.valid_up_to()))?;
    let any: AnyVersion = document(text)?;
    if any.receipt.version != u64::from(VERSION) {
        return Err(Unreadable::Version(any.receipt.version));
    }
    document(text)
}

/// Reads the receipt in a file.
pub fn read(path: &Path) -> Result<Receipt, Unreadable> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(RECEIPT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    parse(&bytes)
}

fn document<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Unreadable> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = match error.path().to_string().as_str() {
            // The document itself, or a place that the reader cannot name.
            "." | "?" => String::new(),
            path => format!("{path}: "),
        };
        Unreadable::Schema { field, source: error.into_inner() }
    })?;
    reader.end().map_err(|source| Unreadable::Schema { field: String::new(), source })?;
    Ok(value)
}

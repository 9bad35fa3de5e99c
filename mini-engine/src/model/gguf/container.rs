//! The GGUF container, version 3: a header of typed metadata and tensor descriptions before aligned tensor data. Values
//! are borrowed from the file's bytes; nothing is allocated for a count that the file merely claims. What the metadata
//! means is not here.

use std::collections::HashMap;
use std::ops::Range;

use super::blocks::Quantisation;
use crate::model::error::{Error, Result};

/// A parsed header.
#[derive(Debug)]
pub struct Container<'a> {
    bytes: &'a [u8],
    metadata: HashMap<&'a str, Value<'a>>,
    tensors: HashMap<&'a str, TensorInfo>,
}

/// A metadata value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// A 32 or 64 bit float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(&'a str),
    /// Items of one type, checked but not yet decoded.
    Array(Array<'a>),
}

/// A metadata array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    kind: u32,
    len: usize,
    bytes: &'a [u8],
}

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Sizes, rows first (the file stores them columns first).
    pub shape: Vec<usize>,
    /// How values are stored.
    pub quantisation: Quantisation,
    /// Bytes from the start of the file.
    pub range: Range<u64>,
}

const MAGIC: &[u8] = b"GGUF";
const VERSION: u32 = 3;
const ALIGNMENT_DEFAULT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 20;
const DIMENSIONS_MAX: u32 = 4;

impl<'a> Container<'a> {
    /// Reads a header from the bytes of a whole file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor { bytes, at: 0 };
        let magic = cursor.take("magic", 4)?;
        if magic != MAGIC {
            return Err(Error::input("magic", "GGUF", format!("{:?}", magic.escape_ascii().to_string())));
        }
        let version = cursor.u32("version")?;
        if version != VERSION {
            return Err(Error::input("version", VERSION.to_string(), version.to_string()));
        }
        let tensor_count = cursor.u64("tensor count")?;
        let metadata_count = cursor.u64("metadata count")?;
        let mut metadata = HashMap::new();
        for index in 0..metadata_count {
            let key = cursor.name(&format!("metadata key {index}"))?;
            let kind = cursor.u32(key)?;
            let value = cursor.value(key, kind)?;
            if metadata.insert(key, value).is_some() {
                return Err(Error::input(key, "one value", "two"));
            }
        }
        let mut descriptions = Vec::new();
        for index in 0..tensor_count {
            descriptions.push(cursor.tensor(index)?);
        }
        let alignment = match metadata.get("general.alignment") {
            None => ALIGNMENT_DEFAULT,
            Some(Value::Unsigned(value)) if value.is_power_of_two() && *value <= ALIGNMENT_MAX => *value,
            Some(other) => {
                return Err(Error::input(
                    "general.alignment",
                    format!("a power of two up to {ALIGNMENT_MAX}"),
                    format!("{other:?}"),
                ));
            }
        };
        let data_start = (cursor.at as u64).next_multiple_of(alignment);
        let mut tensors = HashMap::new();
        for description in descriptions {
            let info = description.place(data_start, alignment, bytes.len() as u64)?;
            if tensors.insert(description.name, info).is_some() {
                return Err(Error::input(description.name, "one tensor of this name", "two"));
            }
        }
        Ok(Self { bytes, metadata, tensors })
    }

    /// The tensors by name.
    pub fn tensors(&self) -> &HashMap<&'a str, TensorInfo> {
        &self.tensors
    }

    /// A tensor's bytes. The place of every tensor was checked when the header was read.
    pub fn data(&self, info: &TensorInfo) -> &'a [u8] {
        let range = usize::try_from(info.range.start).ok().zip(usize::try_from(info.range.end).ok());
        range.and_then(|(start, end)| self.bytes.get(start..end)).unwrap_or_default()
    }

    /// A metadata value.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.metadata.get(key).copied()
    }

    /// A count that must be there.
    pub fn count(&self, key: &str) -> Result<usize> {
        self.count_or_none(key)?.ok_or_else(|| Error::input(key, "an unsigned integer", "nothing"))
    }

    /// A count that may be missing.
    pub fn count_or_none(&self, key: &str) -> Result<Option<usize>> {
        let count = match self.get(key) {
            None => return Ok(None),
            Some(Value::Unsigned(value)) => usize::try_from(value).ok(),
            Some(Value::Signed(value)) => usize::try_from(value).ok(),
            Some(_) => None,
        };
        count.map(Some).ok_or_else(|| self.wrong(key, "an unsigned integer"))
    }

    /// A number that may be missing.
    pub fn float_or_none(&self, key: &str) -> Result<Option<f64>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(value)) => Ok(Some(value)),
            Some(Value::Unsigned(value)) => Ok(Some(value as f64)),
            Some(_) => Err(self.wrong(key, "a number")),
        }
    }

    /// Text that may be missing.
    pub fn text_or_none(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "text")),
        }
    }

    /// Text that must be there.
    pub fn text(&self, key: &str) -> Result<&'a str> {
        self.text_or_none(key)?.ok_or_else(|| Error::input(key, "text", "nothing"))
    }

    /// A truth value that may be missing.
    pub fn bool_or_none(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    /// An array that may be missing.
    pub fn array_or_none(&self, key: &str) -> Result<Option<Array<'a>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(_) => Err(self.wrong(key, "an array")),
        }
    }

    /// An error about a value that is there but is not what it should be.
    pub fn wrong(&self, key: &str, expected: &str) -> Error {
        let found = match self.get(key) {
            None => "nothing".to_owned(),
            Some(Value::Text(text)) => format!("{:?}", text.chars().take(60).collect::<String>()),
            Some(Value::Array(array)) => format!("an array of {} items", array.len),
            Some(Value::Unsigned(value)) => value.to_string(),
            Some(Value::Signed(value)) => value.to_string(),
            Some(Value::Float(value)) => value.to_string(),
            Some(Value::Bool(value)) => value.to_string(),
        };
        Error::input(key, expected, found)
    }
}

impl<'a> Array<'a> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The items, decoded one by one.
    pub fn items(&self, key: &'a str) -> impl Iterator<Item = Result<Value<'a>>> + use<'a> {
        let mut cursor = Cursor { bytes: self.bytes, at: 0 };
        let kind = self.kind;
        (0..self.len).map(move |_| cursor.value(key, kind))
    }

    /// The items of an array of text.
    pub fn texts(&self, key: &'a str) -> impl Iterator<Item = Result<&'a str>> + use<'a> {
        self.items(key).map(move |item| match item? {
            Value::Text(text) => Ok(text),
            other => Err(Error::input(key, "an array of text", format!("an item {other:?}"))),
        })
    }
}

/// A tensor as the header describes it, before its place is checked.
struct Description<'a> {
    name: &'a str,
    shape: Vec<usize>,
    quantisation: Quantisation,
    offset: u64,
}

impl Description<'_> {
    fn place(&self, data_start: u64, alignment: u64, file_bytes: u64) -> Result<TensorInfo> {
        let wrong = |expected: String, found: String| Err(Error::input(self.name, expected, found));
        let columns = self.shape.last().copied().unwrap_or(0);
        let per_block = self.quantisation.block_values();
        if columns % per_block != 0 {
            return wrong(format!("columns in whole blocks of {per_block} values"), columns.to_string());
        }
        let values = self.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size as u64));
        let bytes =
            values.and_then(|values| (values / per_block as u64).checked_mul(self.quantisation.block_bytes() as u64));
        let start = data_start.checked_add(self.offset);
        let (Some(bytes), Some(start)) = (bytes, start) else {
            return wrong(
                "a size below 2^64 bytes".to_owned(),
                format!("shape {:?} at offset {}", self.shape, self.offset),
            );
        };
        if !self.offset.is_multiple_of(alignment) {
            return wrong(format!("an offset aligned to {alignment}"), self.offset.to_string());
        }
        match start.checked_add(bytes) {
            Some(end) if end <= file_bytes => {
                Ok(TensorInfo { shape: self.shape.clone(), quantisation: self.quantisation, range: start..end })
            }
            _ => wrong(format!("{bytes} bytes at {start}, inside the file"), format!("a file of {file_bytes} bytes")),
        }
    }
}

/// Reads little-endian values and refuses to pass the end.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, field: &str, len: u64) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let taken = taken.ok_or_else(|| {
            Error::input(
                field,
                format!("{len} bytes at byte {}", self.at),
                format!("{} to the end of the file", rest.len()),
            )
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(field, N as u64)?);
        Ok(out)
    }

    fn u32(&mut self, field: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    fn u64(&mut self, field: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    fn text(&mut self, field: &str) -> Result<&'a str> {
        let len = self.u64(field)?;
        let bytes = self.take(field, len)?;
        std::str::from_utf8(bytes).map_err(|error| Error::input(field, "UTF-8", error.to_string()))
    }

    fn name(&mut self, field: &str) -> Result<&'a str> {
        let name = self.text(field)?;
        if name.is_empty() { Err(Error::input(field, "a name", "nothing")) } else { Ok(name) }
    }

    fn value(&mut self, field: &str, kind: u32) -> Result<Value<'a>> {
        Ok(match kind {
            0 => Value::Unsigned(u8::from_le_bytes(self.array(field)?).into()),
            1 => Value::Signed(i8::from_le_bytes(self.array(field)?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array(field)?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.array(field)?).into()),
            4 => Value::Unsigned(self.u32(field)?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.array(field)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array(field)?).into()),
            7 => match self.array::<1>(field)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => return Err(Error::input(field, "0 or 1", other.to_string())),
            },
            8 => Value::Text(self.text(field)?),
            9 => self.array_value(field)?,
            10 => Value::Unsigned(self.u64(field)?),
            11 => Value::Signed(i64::from_le_bytes(self.array(field)?)),
            12 => Value::Float(f64::from_le_bytes(self.array(field)?)),
            other => return Err(Error::input(field, "a value type from 0 to 12", other.to_string())),
        })
    }

    /// Walks over the items, so that a later decoding cannot fail for want of bytes. Arrays of arrays exist in the format
    /// but in no model; refusing them bounds the recursion.
    fn array_value(&mut self, field: &str) -> Result<Value<'a>> {
        let kind = self.u32(field)?;
        let len = self.u64(field)?;
        let start = self.at;
        match kind {
            9 => return Err(Error::input(field, "an array of plain values", "an array of arrays")),
            8 => {
                for _ in 0..len {
                    self.text(field)?;
                }
            }
            _ => {
                let item_bytes: u64 = match kind {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    10..=12 => 8,
                    other => return Err(Error::input(field, "an item type from 0 to 12", other.to_string())),
                };
                let bytes = len
                    .checked_mul(item_bytes)
                    .ok_or_else(|| Error::input(field, "an array inside the file", format!("{len} items")))?;
                self.take(field, bytes)?;
            }
        }
        // Every item took at least one byte, so the length fits a usize.
        Ok(Value::Array(Array { kind, len: len as usize, bytes: &self.bytes[start..self.at] }))
    }

    fn tensor(&mut self, index: u64) -> Result<Description<'a>> {
        let name = self.name(&format!("name of tensor {index}"))?;
        let dimensions = self.u32(name)?;
        if dimensions == 0 || dimensions > DIMENSIONS_MAX {
            return Err(Error::input(name, format!("1 to {DIMENSIONS_MAX} dimensions"), dimensions.to_string()));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let size = self.u64(name)?;
            let checked = usize::try_from(size).ok().filter(|size| *size > 0);
            shape.push(checked.ok_or_else(|| Error::input(name, "a size of at least 1", size.to_string()))?);
        }
        shape.reverse();
        let kind = self.u32(name)?;
        let quantisation = Quantisation::from_code(kind)
            .ok_or_else(|| Error::input(name, Quantisation::SUPPORTED, format!("type {kind}")))?;
        let offset = self.u64(name)?;
        Ok(Description { name, shape, quantisation, offset })
    }
}

//! Typed reads from a JSON document, with the path of the field in every error.

use serde_json::Value;

use crate::model::error::{Error, Result};

/// A JSON object and the path that led to it.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    path: &'a str,
    fields: &'a serde_json::Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The top of a document.
    pub(super) fn root(value: &'a Value) -> Result<Self> {
        Self::new("", value)
    }

    fn new(path: &'a str, value: &'a Value) -> Result<Self> {
        let fields = value
            .as_object()
            .ok_or_else(|| Error::input(if path.is_empty() { "document" } else { path }, "an object", kind(value)))?;
        Ok(Self { path, fields })
    }

    /// A field that is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// An error about a field.
    pub(super) fn wrong(&self, key: &str, expected: impl Into<String>) -> Error {
        let found = self.fields.get(key).map_or("nothing".to_owned(), kind);
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Error::input(path, expected, found)
    }

    pub(super) fn object_or_none(&self, key: &'a str) -> Result<Option<Object<'a>>> {
        self.get(key).map(|value| Object::new(key, value)).transpose()
    }

    pub(super) fn count_or_none(&self, key: &str) -> Result<Option<usize>> {
        let count = |value: &Value| value.as_u64().and_then(|value| usize::try_from(value).ok());
        self.get(key).map(|value| count(value).ok_or_else(|| self.wrong(key, "an unsigned integer"))).transpose()
    }

    pub(super) fn count(&self, key: &str) -> Result<usize> {
        self.count_or_none(key)?.ok_or_else(|| self.wrong(key, "an unsigned integer"))
    }

    pub(super) fn number_or_none(&self, key: &str) -> Result<Option<f64>> {
        self.get(key).map(|value| value.as_f64().ok_or_else(|| self.wrong(key, "a number"))).transpose()
    }

    pub(super) fn number(&self, key: &str) -> Result<f64> {
        self.number_or_none(key)?.ok_or_else(|| self.wrong(key, "a number"))
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        let flag = self.get(key).map(|value| value.as_bool().ok_or_else(|| self.wrong(key, "true or false")));
        Ok(flag.transpose()?.unwrap_or(false))
    }

    pub(super) fn text_or_none(&self, key: &str) -> Result<Option<&'a str>> {
        self.get(key).map(|value| value.as_str().ok_or_else(|| self.wrong(key, "text"))).transpose()
    }

    /// One token or a list of them.
    pub(super) fn tokens(&self, key: &str) -> Result<Vec<u32>> {
        let token = |value: &Value| {
            let token = value.as_u64().and_then(|value| u32::try_from(value).ok());
            token.ok_or_else(|| self.wrong(key, "a token or a list of tokens"))
        };
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(token).collect(),
            Some(value) => Ok(vec![token(value)?]),
        }
    }
}

/// A value in a few words.
fn kind(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        Value::String(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        other => other.to_string(),
    }
}

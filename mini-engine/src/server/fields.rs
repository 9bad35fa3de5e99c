//! Reading a JSON body field by field. A table says of every field whether it is supported, ignored or refused; the same table
//! is the documentation (`docs/openai.md`), and a field that it lacks is refused by name.

use serde_json::{Map, Value};

use super::error::{ApiError, shortened};

/// A field of a request.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in the body.
    pub name: &'static str,
    /// What becomes of it.
    pub treatment: Treatment,
    /// One sentence for the documentation, and for whoever is refused.
    pub note: &'static str,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It means what it means to OpenAI.
    Supported,
    /// OpenAI's interface does not have it; other servers do.
    Extension,
    /// Any value is accepted and none has an effect.
    Ignored,
    /// Refused, except for values that ask for nothing: these JSON texts, and null.
    Refused(&'static [&'static str]),
}

impl Field {
    /// A line of the table in `docs/openai.md`.
    pub fn documented(&self) -> String {
        let Self { name, treatment, note } = self;
        let words = match treatment {
            Treatment::Supported => "supported".to_owned(),
            Treatment::Extension => "extension".to_owned(),
            Treatment::Ignored => "ignored".to_owned(),
            Treatment::Refused([]) => "refused".to_owned(),
            Treatment::Refused(unless) => {
                let values: Vec<String> = unless.iter().map(|value| format!("`{value}`")).collect();
                format!("refused, except {}", values.join(", "))
            }
        };
        format!("| `{name}` | {words} | {note} |")
    }
}

/// A supported field.
pub const fn supported(name: &'static str, note: &'static str) -> Field {
    Field { name, treatment: Treatment::Supported, note }
}

/// A field that OpenAI does not have.
pub const fn extension(name: &'static str, note: &'static str) -> Field {
    Field { name, treatment: Treatment::Extension, note }
}

/// A field without effect.
pub const fn ignored(name: &'static str, note: &'static str) -> Field {
    Field { name, treatment: Treatment::Ignored, note }
}

/// A refused field.
pub const fn refused(name: &'static str, unless: &'static [&'static str], note: &'static str) -> Field {
    Field { name, treatment: Treatment::Refused(unless), note }
}

/// The fields of one body that have not been read yet.
#[derive(Debug)]
pub struct Fields {
    values: Map<String, Value>,
}

impl Fields {
    /// Parses a body; every field must stand in one of the tables, and null is the same as absent.
    pub fn parse(body: &[u8], tables: &[&[Field]]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_request(format!("body: expected JSON, got {error}")))?;
        let Value::Object(mut values) = value else {
            return Err(ApiError::bad_request(format!("body: expected an object, got {}", kind(&value))));
        };
        values.retain(|_, value| !value.is_null());
        let mut unread = Map::new();
        for (name, value) in values {
            let field = tables.iter().copied().flatten().find(|field| field.name == name);
            match field.map(|field| (field.treatment, field.note)) {
                None => return Err(ApiError::unknown_field(&name)),
                Some((Treatment::Supported | Treatment::Extension, _)) => drop(unread.insert(name, value)),
                Some((Treatment::Ignored, _)) => {}
                Some((Treatment::Refused(unless), note)) => {
                    if !unless.contains(&value.to_string().as_str()) {
                        return Err(ApiError::unsupported_field(&name, note));
                    }
                }
            }
        }
        Ok(Self { values: unread })
    }

    /// The value of a field, removed.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// Names of the fields that nobody has read.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// A finite number within a range.
    pub fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64().filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(ApiError::field(name, format!("a number from {least} to {most}"), describe(&value))),
        }
    }

    /// A whole number within a range.
    pub fn whole(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_u64().filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(ApiError::field(name, format!("a whole number from {least} to {most}"), describe(&value))),
        }
    }

    /// True or false; false when absent.
    pub fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(ApiError::field(name, "true or false", describe(&other))),
        }
    }

    /// Text.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ApiError::field(name, "text", describe(&other))),
        }
    }
}

/// A JSON value in a few words, for messages.
pub fn describe(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => shortened(&value.to_string()),
        Value::String(text) => format!("{:?}", shortened(text)),
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a flag",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Field] = &[
        supported("a", ""),
        extension("b", ""),
        ignored("c", ""),
        refused("d", &["1", "[\"text\"]"], "there is no d"),
    ];

    fn parse(body: &str) -> Result<Fields, ApiError> {
        Fields::parse(body.as_bytes(), &[TABLE])
    }

    #[test]
    fn a_refusal_names_the_field() {
        let refused = |body: &str| parse(body).unwrap_err().body()["error"].clone();
        assert_eq!(refused(r#"{"a": 1, "z": 2}"#)["param"], "z");
        assert_eq!(refused(r#"{"d": 2}"#)["message"], "d: not supported by this server (there is no d)");
        for body in ["", "[]", "{", "\"a\"", "{\"a\": \"\\ud800\"}", "nul", "{\"a\":1}x"] {
            assert!(parse(body).is_err(), "{body}");
        }
        assert!(Fields::parse(b"{\"a\": \"\xff\"}", &[TABLE]).is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn null_and_harmless_values_are_as_good_as_absent() {
        let fields = parse(r#"{"a": null, "z": null, "c": {"x": 1}, "d": 1}"#).unwrap();
        assert_eq!(fields.unread().count(), 0);
        assert!(parse(r#"{"d": ["text"]}"#).is_ok());
    }

    #[test]
    fn values_are_checked() {
        let mut fields = parse(r#"{"a": 3, "b": "x"}"#).unwrap();
        assert!(fields.flag("b").is_err());
        assert_eq!(fields.whole("a", 1, 3), Ok(Some(3)));
        assert_eq!(fields.whole("a", 1, 3), Ok(None));
        let message =
            |body: &str| parse(body).unwrap().whole("a", 1, 3).unwrap_err().body()["error"]["message"].clone();
        assert_eq!(message(r#"{"a": 4}"#), "a: expected a whole number from 1 to 3, got 4");
        assert_eq!(message(r#"{"a": -1}"#), "a: expected a whole number from 1 to 3, got -1");
        assert_eq!(message(r#"{"a": 1.5}"#), "a: expected a whole number from 1 to 3, got 1.5");
        assert_eq!(message(r#"{"a": []}"#), "a: expected a whole number from 1 to 3, got a list");
        assert!(parse(r#"{"a": 1e400}"#).is_err());
        assert!(parse(r#"{"a": 1e300}"#).unwrap().number("a", 0.0, 2.0).is_err());
    }
}

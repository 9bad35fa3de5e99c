//! Why a model could not be found, read or run. Bad input always names the file, the field, what was expected and what
//! was found.

use std::path::Path;

/// A failure with everything needed to find its cause.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{}{field}: expected {expected}, found {found}", place(file))]
    Input { file: String, field: String, expected: String, found: String },
    #[error("{file}: {operation}: {source}")]
    Io { file: String, operation: &'static str, source: std::io::Error },
    #[error("{what}: {detail}")]
    Fetch { what: String, detail: String },
    #[error(transparent)]
    Backend(#[from] kernels_rs::backend::Error),
}

/// The file in front of a message, where there is one.
fn place(file: &str) -> String {
    if file.is_empty() { String::new() } else { format!("{file}: ") }
}

/// Result of anything about models.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Input that is not what it should be. The file is filled in by [`Error::in_file`].
    pub fn input(field: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self(Box::new(Kind::Input {
            file: String::new(),
            field: field.into(),
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// The operating system refused `operation` on `file`.
    pub fn io(file: &Path, operation: &'static str, source: std::io::Error) -> Self {
        Self(Box::new(Kind::Io { file: file.display().to_string(), operation, source }))
    }

    /// A model could not be fetched.
    pub fn fetch(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self(Box::new(Kind::Fetch { what: what.into(), detail: detail.into() }))
    }

    /// Names the file of an input error that has none yet.
    pub fn in_file(mut self, name: impl std::fmt::Display) -> Self {
        if let Kind::Input { file, .. } = &mut *self.0
            && file.is_empty()
        {
            *file = name.to_string();
        }
        self
    }

    /// Whether the user's input is at fault (exit code 2) rather than the machine.
    pub fn is_input(&self) -> bool {
        matches!(*self.0, Kind::Input { .. } | Kind::Io { .. })
    }

    /// The field of an input error.
    pub fn field(&self) -> Option<&str> {
        match &*self.0 {
            Kind::Input { field, .. } => Some(field),
            _ => None,
        }
    }
}

impl From<kernels_rs::backend::Error> for Error {
    fn from(error: kernels_rs::backend::Error) -> Self {
        Self(Box::new(Kind::Backend(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_file_field_expected_and_found_and_keeps_the_first_file() {
        let error = Error::input("heads", "at least 1", "0");
        assert_eq!(error.to_string(), "heads: expected at least 1, found 0");
        let error = error.in_file("a.gguf").in_file("b.gguf");
        assert_eq!(error.to_string(), "a.gguf: heads: expected at least 1, found 0");
        assert!(error.is_input() && error.field() == Some("heads"));
        assert!(!Error::fetch("a package", "no network").is_input());
    }
}

//! From a small, closed subset of Rust to Gallina, the language of Coq.
//!
//! What the subset means is written in `proofs/theories/Prims.v`: a function is a term of the option monad, `None` is a
//! panic; integers are natural numbers whose operations check their width; a `&mut` parameter is passed in and handed back;
//! a counted loop iterates over the tuple of variables that its body assigns. There is no recursion and no other loop, so
//! every function terminates.
//!
//! The translation is trusted, so it is made to be read: one Rust construct, one rule, no optimisation. Whatever has no
//! rule is refused with its line; nothing is skipped. The text is assumed to have passed rustc, so borrow checking,
//! exhaustiveness of `match` and most typing are not repeated here. Not modelled: running out of memory.

mod expr;
mod guard;
mod item;
mod stmt;
mod types;

pub use guard::{check_root, check_view};
pub use item::{Gallina, theories, translate};

use quote::ToTokens;
use syn::spanned::Spanned;

/// Why a text was not translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Line in the source, from 1; 0 when the text does not parse at all.
    pub line: usize,
    /// The rule that is missing or broken.
    pub why: String,
    /// The beginning of the construct.
    pub text: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.why, self.text)
    }
}

impl std::error::Error for Refusal {}

type Result<T> = std::result::Result<T, Refusal>;

fn refusal<T: ToTokens>(t: &T, why: &str) -> Refusal {
    let text = t.to_token_stream().to_string().chars().take(90).collect();
    Refusal { line: t.span().start().line, why: why.into(), text }
}

fn refuse<R, T: ToTokens>(t: &T, why: &str) -> Result<R> {
    Err(refusal(t, why))
}

fn parse(source: &str) -> Result<syn::File> {
    syn::parse_file(source).map_err(|e| Refusal {
        line: e.span().start().line,
        why: "does not parse".into(),
        text: e.to_string(),
    })
}

//! What may follow: a rule that forbids tokens, such as a grammar. The rules themselves are not here.

use std::fmt;
use std::sync::Arc;

/// A rule about the tokens of one answer.
pub trait Rule: Send + Sync {
    /// Sets the logits of all tokens that must not follow `answer` to minus infinity. Which these are must be a function of the
    /// answer alone: the engine asks once a position, and again where a step had to be repeated.
    fn forbid(&self, answer: &[u32], row: &mut [f32]) -> Result<(), String>;
}

/// A rule that a request carries. Two are equal when they are the same one.
#[derive(Clone)]
pub struct Constraint(pub Arc<dyn Rule>);

impl PartialEq for Constraint {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

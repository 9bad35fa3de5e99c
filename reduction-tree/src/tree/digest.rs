//! The identity of a node inside a process, and the digest of a tree between processes.

use std::fmt;

use super::rewrite::children;
use super::text::head;
use super::{Node, Tree};

/// BLAKE3 of a canonical text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a text.
    pub fn of(text: &str) -> Self {
        Self(blake3::hash(text.as_bytes()).into())
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 hexadecimal digits, for reports.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Tree {
    /// BLAKE3 of [`Tree::text`].
    pub fn digest(&self) -> Digest {
        Digest::of(&self.text())
    }
}

/// The structural identity of a node: its head, with the ids of its operands.
pub(super) fn node_id(node: &Node) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let head = head(node);
    hasher.update(&(head.len() as u64).to_le_bytes()).update(head.as_bytes());
    for (child, _) in children(node) {
        hasher.update(&child.id());
    }
    hasher.finalize().into()
}

//! Contracts: what the author of a kernel knows of its arguments, in a TOML file.
//!
//! ```toml
//! [kernel.matmul]
//! batch = ["M"]             # may differ between batches; for a pointer, what it points to
//! fixed = ["K"]             # never differ
//! allow = ["prefix-sum(cu_q)"]
//! ```
//!
//! `[default]` applies to every kernel.

use serde::Deserialize;
use std::collections::BTreeMap;

/// What a contract says of one kernel.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Arguments that may differ between batches.
    #[serde(default)]
    pub batch: Vec<String>,
    /// Arguments that never differ.
    #[serde(default)]
    pub fixed: Vec<String>,
    /// Conditions accepted by name.
    #[serde(default)]
    pub allow: Vec<String>,
}

/// A contract file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// For every kernel.
    #[serde(default)]
    pub default: Entry,
    /// By name of the kernel.
    #[serde(default)]
    pub kernel: BTreeMap<String, Entry>,
}

impl Contract {
    /// Reads a contract.
    ///
    /// # Errors
    /// Text that is not TOML, or words that a contract does not have, with line and column.
    pub fn parse(text: &str) -> Result<Contract, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    /// What it says of a kernel.
    pub fn entry(&self, kernel: &str) -> Entry {
        let mut out = self.default.clone();
        if let Some(e) = self.kernel.get(kernel) {
            out.batch.extend(e.batch.iter().cloned());
            out.fixed.extend(e.fixed.iter().cloned());
            out.allow.extend(e.allow.iter().cloned());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_adds_to_its_default() {
        let c =
            Contract::parse("[default]\nbatch = [\"M\"]\n[kernel.f]\nallow = [\"distinct(slots)\"]\n").expect("valid");
        assert_eq!(c.entry("f").batch, ["M"]);
        assert_eq!(c.entry("f").allow, ["distinct(slots)"]);
        assert!(c.entry("g").allow.is_empty());
    }

    #[test]
    fn an_unknown_word_is_refused_with_its_place() {
        let e = Contract::parse("[default]\nbacth = [\"M\"]\n").expect_err("misspelt");
        assert!(e.contains("line 2") && e.contains("bacth"), "{e}");
    }
}

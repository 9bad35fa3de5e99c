//! Receipts: a portable record of one answer, and the audit that runs it again.
//!
//! ```text
//! engine events -> Recorder -> Receipt -> store::write / read::parse -> Auditor -> Audit
//! ```
//!
//! A receipt names the model, the plan, the input, the sampling and the output, with a digest of every output position's logits.
//! It names no machine, no backend, no time and no batch: none of them can matter, so an answer of a GPU is audited on a CPU.
//! The format is documented in `docs/receipt.md`.

pub mod audit;
pub mod identity;
pub mod read;
pub mod record;
pub mod schema;
pub mod store;

mod blame;
mod hex;
mod number;
mod replay;

pub use audit::{Audit, Auditor, Finding};
pub use hex::Digest;
pub use identity::Identity;
pub use read::{RECEIPT_BYTES_MAX, Unreadable, parse};
pub use record::Recorder;
pub use schema::{Body, End, PromptSource, Receipt};

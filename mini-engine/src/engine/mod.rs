//! The engine core: requests in, events out. Generic over [`RowModel`], so that a fake model, the CPU and a GPU run under the
//! same scheduler and the same ledger.
//!
//! Data flows one way: `request` -> `scheduler` (policy, over `pages`) -> ledger -> `runner` -> `row_model` -> `core` (commit); with
//! `ahead`, a step is launched before the one before it has landed.
//! What is not here: models, tokenizers, threads, clocks, files.

pub mod adjust;
pub mod ahead;
pub mod config;
pub mod constraint;
pub mod core;
pub mod fake;
pub mod noise;
pub mod pages;
pub mod request;
pub mod row_model;
pub mod runner;
pub mod scheduler;

pub use self::adjust::Adjust;
pub use self::config::EngineConfig;
pub use self::constraint::{Constraint, Rule};
pub use self::core::{Engine, Stats};
pub use self::request::{Event, Failure, Finish, Refusal, Request, RequestId, Sampling};
pub use self::row_model::{Outcome, RowModel, StepOutcome, Want, logits_digest};

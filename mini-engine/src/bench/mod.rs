//! Speed of the engine under load, with a proof that the fast run computed what it should: every workload runs twice, once
//! timed and once with a digest of every chosen token's logits row, and both must choose the same tokens. Equal digests of two
//! machines, two backends or two versions mean equal logits.
//!
//! `workload` says who asks for what and when, `load` runs and times it, `limit` knows how fast the memory allows it to be,
//! `report` and `chart` write it down. This is the one part of the library that reads a clock.

pub mod chart;
pub mod limit;
pub mod load;
pub mod report;
pub mod workload;

pub use limit::Limit;
pub use report::{Line, Report};
pub use workload::Workload;

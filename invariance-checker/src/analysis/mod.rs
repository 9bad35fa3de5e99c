//! The decision: from the effects of a kernel to INVARIANT, a list of suspicions, or UNKNOWN.

mod address;
pub mod atomics;
pub mod coords;
mod digits;
pub mod extension;
pub mod home;
pub mod infer;
pub mod inplace;
pub mod judge;
mod listed;
pub mod measure;
pub mod owner;
mod quiet;
pub mod roles;
pub mod rows;
pub mod search;
pub mod site;
mod start;
pub mod union;
pub mod usage;
pub mod verdict;
mod view;
mod written;

pub use judge::{Analysis, Judged, Roles, analyse};
pub use roles::ArgReport;
pub use verdict::{Condition, Problem};

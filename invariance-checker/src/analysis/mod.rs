//! The decision: from the effects of a kernel to INVARIANT, a list of suspicions, or UNKNOWN.

pub mod coords;
pub mod extension;
pub mod home;
pub mod inplace;
pub mod judge;
pub mod owner;
pub mod site;
pub mod union;
pub mod usage;
pub mod verdict;

pub use judge::{Analysis, ArgReport, Judged, Roles, analyse};
pub use verdict::{Condition, Problem};

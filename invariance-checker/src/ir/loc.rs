//! Source locations as MLIR prints them: a place in a file, a name, a call chain, a fusion of several.

use std::fmt;

/// Index into [`Module::locations`](super::Module::locations).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocId(pub u32);

impl LocId {
    /// The location that every module has at index 0.
    pub const UNKNOWN: LocId = LocId(0);
}

/// One location. Children are indices that are smaller than the location's own, so following them ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// `loc(unknown)` or no location at all.
    Unknown,
    /// `loc("file.py":5:1)`.
    Place(Place),
    /// `loc("name"(#loc2))`: a value or argument name with where it was bound.
    Name(String, LocId),
    /// `loc(callsite(callee at caller))`.
    CallSite {
        /// Place inside the function that was called.
        callee: LocId,
        /// Place of the call.
        caller: LocId,
    },
    /// `loc(fused[a, b])`.
    Fused(Vec<LocId>),
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// As the compiler wrote it.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl super::Module {
    /// The line of the user's own kernel: the outermost caller of a chain, the first of a fusion.
    pub fn place(&self, id: LocId) -> Option<&Place> {
        let mut at = id;
        loop {
            match self.location(at) {
                Location::Unknown => return None,
                Location::Place(place) => return Some(place),
                Location::Name(_, inner) => at = *inner,
                Location::CallSite { caller, .. } => at = *caller,
                Location::Fused(parts) => at = *parts.first()?,
            }
        }
    }

    /// The innermost name that a location carries.
    pub fn loc_name(&self, id: LocId) -> Option<&str> {
        let mut at = id;
        loop {
            match self.location(at) {
                Location::Unknown | Location::Place(_) => return None,
                Location::Name(name, _) => return Some(name),
                Location::CallSite { caller, .. } => at = *caller,
                Location::Fused(parts) => at = *parts.first()?,
            }
        }
    }
}

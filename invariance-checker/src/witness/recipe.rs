//! A launch of a witness as data, so that anyone can make it again from the report: arguments, grid, the order of programs, and how memory is filled.

use super::fill::{self, Kind, Trial};
use crate::interp::{Buffer, Launch, Memory, Options, ProgramOrder};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// All that a launch of a witness is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recipe {
    /// By argument.
    pub(super) kinds: Vec<Kind>,
    /// Written pointers.
    pub(super) outputs: Vec<u32>,
    /// The numbers, and how memory is filled.
    pub(super) trial: Trial,
    /// In which order the programs run.
    pub order: ProgramOrder,
    /// Bits of undefined lanes.
    pub undefined: u64,
}

/// Where the element of a witness lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The output, by argument.
    pub pointer: u32,
    /// The element in it.
    pub element: usize,
}

impl Recipe {
    /// Builds the launch and its memory, with the buffer behind each pointer argument.
    pub fn build(&self, memory: &mut Memory) -> (Launch, HashMap<u32, Buffer>) {
        fill::build(&self.kinds, &self.outputs, &self.trial, memory)
    }

    /// How the interpreter is to run it.
    pub fn options(&self) -> Options {
        Options { order: self.order.clone(), undefined: self.undefined, ..super::options() }
    }

    /// The elements of a pointer that hold the same in both launches whatever else differs there; `None` if all do.
    pub fn kept(&self, pointer: u32) -> Option<std::ops::Range<u64>> {
        self.trial.disturb.get(&pointer).map(|(lo, hi)| *lo..*hi)
    }

    /// The content of a pointer is another one than in the first launch.
    pub fn replaces(&self, pointer: u32) -> bool {
        self.trial.replaced.contains(&pointer)
    }
}

#[cfg(test)]
impl Recipe {
    /// No arguments, one program.
    pub fn empty() -> Recipe {
        let (ints, fill, disturb) = Default::default();
        let trial = Trial { ints, grid: [1; 3], seed: 0, fill, disturb, replaced: vec![] };
        Recipe { kinds: vec![], outputs: vec![], trial, order: ProgramOrder::Ascending, undefined: 0 }
    }
}

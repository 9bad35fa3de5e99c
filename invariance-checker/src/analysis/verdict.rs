//! Verdicts, conditions and assumptions, as data for the report.

use crate::term::TermId;

/// Something a proof relies on that the kernel's text does not show.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// The integers at a pointer do not decrease, and name a row's sequence by `cu[s] <= row < cu[s + 1]`.
    PrefixSum {
        /// The pointer.
        base: TermId,
    },
    /// The sequence the kernel finds for a row begins at or before the row.
    NotBefore {
        /// The pointer to the prefix sums.
        base: TermId,
    },
    /// No two rows of a launch have the same number at this pointer.
    Distinct {
        /// The pointer.
        base: TermId,
    },
    /// One number for a block of places in a list of rows is the number of every row that is listed there.
    OwnerOfBlock {
        /// Where the numbers are.
        base: TermId,
        /// Places in a block.
        places: i128,
    },
    /// Groups of a list do not overlap.
    Groups {
        /// Where the numbers of their first places are.
        starts: TermId,
        /// Where their sizes are.
        sizes: TermId,
    },
    /// No element is written by two programs.
    OneWriter {
        /// What is written.
        base: TermId,
    },
    /// Nothing else writes what a volatile load reads.
    Quiet {
        /// The pointer.
        base: TermId,
    },
    /// The number of the row itself enters the value.
    AtIndex {
        /// Which coordinate, as shown.
        coordinate: String,
    },
    /// Every number that a masked tile is multiplied with is finite.
    Finite {
        /// What must be finite.
        what: String,
    },
    /// A row is so many outputs: the kernel's own block, which nothing else confirms.
    Packed {
        /// How many, in units of the stride.
        outputs: i128,
        /// Product of the arguments that one of them is apart from the next (empty: 1).
        stride: Vec<TermId>,
    },
    /// A loop runs at least as far as the row needs.
    Covers {
        /// The inequality, as shown.
        text: String,
        /// Not negative where it holds.
        room: TermId,
    },
    /// An accumulator is not -0 where +0 is added to it.
    NotMinusZero {
        /// Which carried value.
        what: String,
    },
    /// What lies between the extent of what is read and that of what is stored is padding, not rows.
    Exists {
        /// What is read.
        base: TermId,
        /// The inequality, as shown.
        text: String,
        /// Not negative where it holds.
        room: TermId,
    },
    /// Layout: a row's elements end before the next row begins.
    Extent {
        /// What is read.
        base: TermId,
        /// The inequality, as shown.
        text: String,
        /// Not negative where it holds.
        room: TermId,
    },
    /// What is read goes past the row's own elements up to a tile, or a row's length is a constant of the kernel that nothing compares
    /// with its stride.
    Padded {
        /// What is read.
        base: TermId,
        /// The inequality, as shown.
        text: String,
        /// Not negative where it holds.
        room: TermId,
    },
    /// Loaded numbers are places within the row that is read.
    Within {
        /// Where the numbers are.
        numbers: TermId,
        /// What is read.
        base: TermId,
        /// The row, as shown.
        text: String,
    },
    /// Layout: with more than one stride, every element has an address of its own.
    Apart {
        /// What is read.
        base: TermId,
        /// The address, as shown.
        text: String,
    },
    /// Layout: an argument that indices are divided by is at least 1.
    Positive {
        /// The argument.
        arg: TermId,
    },
    /// Layout: a grid axis has at most so many programs.
    Grid {
        /// The axis.
        axis: u8,
        /// Most programs.
        max: i128,
    },
}

impl Condition {
    /// What [`Condition::name`] begins with.
    pub const NAMES: [&str; 19] = [
        "prefix-sum",
        "search-finds-owner",
        "distinct",
        "owner-of-block",
        "groups",
        "one-writer",
        "quiet",
        "at-index",
        "finite",
        "not-minus-zero",
        "covers",
        "row-is",
        "row-exists",
        "extent",
        "padded",
        "apart",
        "within",
        "positive",
        "grid",
    ];

    /// Conditions on the layout of buffers and the grid: without them the launch has no rows to speak of.
    pub fn is_layout(&self) -> bool {
        use Condition::{Apart, Extent, Grid, Positive};
        matches!(self, Extent { .. } | Apart { .. } | Grid { .. } | Positive { .. })
    }

    /// The term that is not negative where the condition holds, if it is an inequality.
    pub fn room(&self) -> Option<TermId> {
        match self {
            Condition::Covers { room, .. }
            | Condition::Exists { room, .. }
            | Condition::Extent { room, .. }
            | Condition::Padded { room, .. } => Some(*room),
            _ => None,
        }
    }

    /// The name that `--allow` takes.
    pub fn name(&self, show: &dyn Fn(TermId) -> String) -> String {
        match self {
            Condition::PrefixSum { base } => format!("prefix-sum({})", show(*base)),
            Condition::NotBefore { base } => format!("search-finds-owner({})", show(*base)),
            Condition::Distinct { base } => format!("distinct({})", show(*base)),
            Condition::OwnerOfBlock { base, .. } => format!("owner-of-block({})", show(*base)),
            Condition::Groups { starts, sizes } => format!("groups({}, {})", show(*starts), show(*sizes)),
            Condition::OneWriter { base } => format!("one-writer({})", show(*base)),
            Condition::Quiet { base } => format!("quiet({})", show(*base)),
            Condition::AtIndex { coordinate } => format!("at-index({coordinate})"),
            Condition::Finite { what } => format!("finite({what})"),
            Condition::NotMinusZero { what } => format!("not-minus-zero({what})"),
            Condition::Covers { text, .. } => format!("covers({text})"),
            Condition::Packed { outputs, stride } => format!("row-is({})", size(*outputs, stride, show)),
            Condition::Exists { base, .. } => format!("row-exists({})", show(*base)),
            Condition::Extent { base, .. } => format!("extent({})", show(*base)),
            Condition::Padded { base, .. } => format!("padded({})", show(*base)),
            Condition::Apart { base, .. } => format!("apart({})", show(*base)),
            Condition::Within { numbers, .. } => format!("within({})", show(*numbers)),
            Condition::Positive { arg } => format!("positive({})", show(*arg)),
            Condition::Grid { axis, .. } => format!("grid({axis})"),
        }
    }

    /// A sentence.
    pub fn text(&self, show: &dyn Fn(TermId) -> String) -> String {
        match self {
            Condition::PrefixSum { base } => {
                format!(
                    "{} holds prefix sums: it does not decrease, and a sequence lies between two neighbours",
                    show(*base)
                )
            }
            Condition::NotBefore { base } => {
                format!("the sequence that the kernel finds for a row in {} begins at or before the row", show(*base))
            }
            Condition::Distinct { base } => {
                format!("no two rows that a launch stores have the same number in {}", show(*base))
            }
            Condition::OwnerOfBlock { base, places } => format!(
                "{} holds one number for {places} places of the list of rows, which is the number of every row that is listed there",
                show(*base)
            ),
            Condition::Groups { starts, sizes } => format!(
                "the groups of a list, {0} places from {1} on, do not overlap: a place belongs to one group",
                show(*sizes),
                show(*starts)
            ),
            Condition::OneWriter { base } => {
                format!("no element of {} is written by two programs: the grid has one for each tile", show(*base))
            }
            Condition::Quiet { base } => {
                format!("nothing writes {} while the kernel runs (volatile load)", show(*base))
            }
            Condition::AtIndex { coordinate } => {
                format!("the row keeps its absolute index {coordinate} in both launches")
            }
            Condition::Finite { what } => format!("{what} is finite"),
            Condition::NotMinusZero { what } => format!("{what} is never -0 when a masked tile adds +0"),
            Condition::Packed { outputs, stride } => {
                let size = size(*outputs, stride, show);
                format!("a row is {size} consecutive outputs (the kernel computes them together)")
            }
            Condition::Covers { text, .. } => format!("the loop's bound reaches the end of every row: {text}"),
            Condition::Exists { base, text, .. } => {
                format!("what is stored beyond the rows of {} is padding: rows have {text}", show(*base))
            }
            Condition::Extent { text, .. } => format!("rows do not overlap: {text}"),
            Condition::Apart { base, text } => {
                format!("every element of {} has an address of its own: {text}", show(*base))
            }
            Condition::Padded { text, .. } => format!("the stride of a row leaves room for all that is read: {text}"),
            Condition::Within { numbers, base, text } => {
                format!("the numbers in {} are places within a row of {}: {text}", show(*numbers), show(*base))
            }
            Condition::Positive { arg } => format!("{}, which indices are divided by, is at least 1", show(*arg)),
            Condition::Grid { axis, max } => format!("grid axis {axis} has at most {max} programs"),
        }
    }
}

/// A number of outputs with the strides it is multiplied with.
fn size(outputs: i128, stride: &[TermId], show: &dyn Fn(TermId) -> String) -> String {
    stride.iter().fold(outputs.to_string(), |text, t| format!("{text}*{}", show(*t)))
}

/// Why a site is not proved, with what a witness should change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The value depends on an argument that may differ between batches.
    Batch {
        /// The argument or `num_programs`.
        param: TermId,
        /// How it enters.
        how: &'static str,
    },
    /// The value reads other rows.
    Mixed {
        /// What is read.
        base: TermId,
        /// How.
        why: String,
    },
    /// The value depends on where in the launch it is computed.
    Instance {
        /// The variables.
        vars: String,
    },
    /// The number of the row enters the value.
    Index {
        /// The coordinate.
        coordinate: String,
    },
    /// The result depends on the order in which programs run.
    Schedule {
        /// Why.
        why: String,
    },
    /// Undefined lanes reach the value.
    Undefined {
        /// The operation that makes them.
        op: u32,
    },
    /// Not understood.
    Opaque {
        /// What.
        what: String,
        /// Which operation.
        op: u32,
    },
}

impl Problem {
    /// A sentence.
    pub fn text(&self, show: &dyn Fn(TermId) -> String) -> String {
        match self {
            Problem::Batch { param, how } => format!("{} {how}", show(*param)),
            Problem::Mixed { base, why } => format!("{}: {why}", show(*base)),
            Problem::Instance { vars } => format!("the value depends on where it is computed: {vars}"),
            Problem::Index { coordinate } => format!("the row's absolute index {coordinate} enters the value"),
            Problem::Schedule { why } => why.clone(),
            Problem::Undefined { .. } => "undefined lanes of a masked load reach the value".into(),
            Problem::Opaque { what, .. } => what.clone(),
        }
    }

    /// True if a different launch could show it.
    pub fn is_suspicion(&self) -> bool {
        !matches!(self, Problem::Opaque { .. })
    }
}

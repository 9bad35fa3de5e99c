//! Runs a launch of a parsed kernel on the CPU, so that a verdict can be demonstrated.
//!
//! What is fixed here, because TTIR leaves it open:
//! * Programs run one after the other, each to its end, in the order of [`ProgramOrder`]; lanes of one operation in row-major
//!   order. What depends on scheduling is shown by running two orders.
//! * `tt.reduce` combines by halves ([`ReduceOrder::Halves`]) or from the left; `tt.scan` from the left (from the right when
//!   reversed). A compiled kernel has some fixed order of its own.
//! * `tt.dot` of bf16 and f16 is a chain of k16 steps of the chosen [`Arithmetic`]; `dot` says what the other types do.
//! * Float operations round to nearest even, one by one: nothing is contracted, division and square root are exact to the
//!   last bit, `exp` and its like are computed in binary64 and rounded once. A NaN result is the canonical one.
//! * A lane that a masked load leaves undefined holds [`Options::undefined`]; two runs with different values show what
//!   depends on it.
//!
//! Every access to memory is checked, and steps and memory have budgets, so that any module ends in a result or a [`Trap`].

mod control;
mod desc;
mod dot;
mod exec;
mod lane;
mod library;
mod memory;
mod shape;
mod value;

pub use memory::{Buffer, Instance, Memory, Write};

use crate::ir::{Function, LocId, Module, Scalar, TextPos, Type};
use reduction_tree::arithmetic::Arithmetic;
use serde::{Deserialize, Serialize};
use std::fmt;
use value::Val;

/// One argument of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A pointer to the start of a buffer.
    Ptr(Buffer),
    /// A pointer into a buffer, in bytes from its start.
    PtrAt(Buffer, i64),
    /// An integer; it must fit the parameter's width, signed or unsigned.
    Int(i64),
    /// A float, rounded to the parameter's format.
    Float(f64),
    /// A host-side tensor descriptor; block and element type are the parameter's.
    Desc {
        /// What it describes.
        buffer: Buffer,
        /// Extents of the whole tensor.
        shape: Vec<i64>,
        /// Strides in elements.
        strides: Vec<i64>,
    },
}

/// In which order the programs of a grid run.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ProgramOrder {
    /// x fastest, then y, then z.
    #[default]
    Ascending,
    /// The reverse.
    Descending,
    /// A permutation drawn from the seed.
    Shuffled(u64),
}

/// How `tt.reduce` associates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReduceOrder {
    /// Element i with element i + n/2, then the same on the half that is left, as warp shuffles do. Extents that are no power
    /// of two are reduced from the left.
    #[default]
    Halves,
    /// `((x0 + x1) + x2) + ..`.
    Left,
}

/// How to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Rounding of `tt.dot`.
    pub arithmetic: Arithmetic,
    /// Order of programs.
    pub order: ProgramOrder,
    /// Order inside `tt.reduce`.
    pub reduce: ReduceOrder,
    /// Bits of undefined lanes, cut to their width.
    pub undefined: u64,
    /// Most lane operations (a dot counts its products).
    pub max_steps: u64,
    /// Most tensor elements alive at once.
    pub max_live: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            arithmetic: Arithmetic::Sm90,
            order: ProgramOrder::default(),
            reduce: ReduceOrder::default(),
            undefined: 0,
            max_steps: 2_000_000_000,
            max_live: 1 << 26,
        }
    }
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Programs along x, y and z.
    pub grid: [u32; 3],
    /// One for each parameter of the kernel.
    pub args: Vec<Arg>,
}

/// Why a run ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapKind {
    /// The arguments do not fit the kernel.
    BadLaunch,
    /// An access outside a buffer, or not aligned to its type.
    Memory,
    /// A `tt.assert` or `llvm.intr.assume` that does not hold.
    Assert,
    /// An operation that the interpreter does not know.
    Unsupported,
    /// Too many steps or too much memory.
    Budget,
}

/// A run that ended early.
#[derive(Clone, Debug, PartialEq)]
pub struct Trap {
    /// The sort of fault.
    pub kind: TrapKind,
    /// What happened.
    pub message: String,
    /// The operation, in the TTIR text.
    pub at: TextPos,
    /// The operation, in the source.
    pub loc: LocId,
    /// The program that was running.
    pub program: [u32; 3],
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.program;
        write!(f, "line {}, program ({x}, {y}, {z}): {}", self.at.line, self.message)
    }
}

impl std::error::Error for Trap {}

/// Most programs of one launch.
pub const MAX_PROGRAMS: u64 = 1 << 24;

/// Runs the kernel of a module.
///
/// # Errors
/// A [`Trap`]; memory then holds what was stored before it.
pub fn run(module: &Module, launch: &Launch, memory: &mut Memory, options: &Options) -> Result<(), Trap> {
    let bad = |message: String| Trap {
        kind: TrapKind::BadLaunch,
        message,
        at: TextPos::default(),
        loc: LocId::UNKNOWN,
        program: [0; 3],
    };
    let kernel = module.kernel().ok_or_else(|| bad("the module has no single kernel".into()))?;
    let args = arguments(kernel, launch, memory).map_err(bad)?;
    let programs = launch.grid.iter().try_fold(1u64, |n, g| n.checked_mul(u64::from(*g)));
    let programs = programs.filter(|n| *n <= MAX_PROGRAMS).ok_or_else(|| bad("the grid is too large".into()))?;
    let mut machine = exec::Machine::new(module, memory, options, launch.grid);
    for linear in order(&options.order, programs) {
        machine.program(kernel, &args, linear)?;
    }
    Ok(())
}

/// Program numbers in the order in which they run.
fn order(order: &ProgramOrder, n: u64) -> Box<dyn Iterator<Item = u64>> {
    match order {
        ProgramOrder::Ascending => Box::new(0..n),
        ProgramOrder::Descending => Box::new((0..n).rev()),
        ProgramOrder::Shuffled(seed) => {
            let mut all: Vec<u64> = (0..n).collect();
            let mut state = *seed;
            for i in (1..all.len()).rev() {
                all.swap(i, (splitmix(&mut state) % (i as u64 + 1)) as usize);
            }
            Box::new(all.into_iter())
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn arguments(kernel: &Function, launch: &Launch, memory: &Memory) -> Result<Vec<Val>, String> {
    if launch.args.len() != kernel.params.len() {
        return Err(format!(
            "@{} takes {} arguments, {} are given",
            kernel.name,
            kernel.params.len(),
            launch.args.len()
        ));
    }
    let each = kernel.params.iter().zip(&launch.args).enumerate();
    each.map(|(i, (param, arg))| {
        let ty = kernel.ty(param.value);
        argument(ty, arg, memory).ok_or_else(|| format!("argument {i} of @{}: {arg:?} is not a {ty}", kernel.name))
    })
    .collect()
}

fn argument(ty: &Type, arg: &Arg, memory: &Memory) -> Option<Val> {
    let known = |buffer: &Buffer| memory.contains(*buffer).then(|| memory.address(*buffer));
    match (arg, ty) {
        (Arg::Ptr(buffer), _) if ty.pointee().is_some() && !ty.is_tensor() => Some(Val::Scalar(known(buffer)?)),
        (Arg::PtrAt(buffer, offset), _) if ty.pointee().is_some() && !ty.is_tensor() => {
            Some(Val::Scalar(known(buffer)?.wrapping_add_signed(*offset)))
        }
        (Arg::Int(value), _) if !ty.is_tensor() => {
            let scalar = ty.scalar_elem().filter(|s| s.is_int())?;
            let bits = scalar.bits();
            let fits = bits == 64 || (-(1i64 << (bits - 1))..1i64 << bits).contains(value);
            fits.then(|| Val::Scalar(lane::cut(*value as u64, bits)))
        }
        (Arg::Float(value), _) if !ty.is_tensor() => match ty.scalar_elem()? {
            Scalar::Float(f) => Some(Val::Scalar(crate::float::encode(*value, f, crate::float::Round::Nearest, false))),
            _ => None,
        },
        (Arg::Desc { buffer, shape, strides }, Type::Desc { block, elem }) => {
            let base = known(buffer)?;
            let fits = shape.len() == block.len() && strides.len() == block.len();
            fits.then(|| {
                let desc = desc::Desc {
                    base,
                    shape: shape.clone(),
                    strides: strides.clone(),
                    elem: *elem,
                    padding_nan: false,
                };
                Val::Desc(desc.into())
            })
        }
        _ => None,
    }
}

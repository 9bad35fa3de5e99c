//! The vocabulary: a reduction tree as an immutable, hash-consed expression for one output element.
//!
//! Free coordinates `c0, c1, ..` name the output element; leaves are loads by role and logical coordinates, never by
//! address. Binders ([`Chain`], [`Reduce`], [`Fold`]) are kept without names (de Bruijn levels), integers as sums of
//! products, and operands that commute exactly are ordered, so that one tree has one form however it was built. Nested
//! chains of one kind are joined: K tiles of 32, 64 or 128 are one chain.
//!
//! Floating-point operations are never rearranged. What is equal here is equal in bits under the arithmetic that the
//! chains name; what is different may still be equal.
//!
//! [`Tree::text`] is the canonical text and [`Tree::digest`] its BLAKE3; [`Tree::eval`] gives the bits;
//! [`Tree::pretty`] is for people.

pub mod build;
mod digest;
mod eval;
mod flatten;
mod index;
mod pretty;
mod rewrite;
mod slots;
mod text;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use digest::Digest;
pub use eval::{EvalError, Leaves, Value};

use crate::arithmetic::Arithmetic;
use crate::fp8::Fp8;

/// A reduction tree, or a part of one. Cloning is cheap; equality is by structure.
#[derive(Clone, Debug)]
pub struct Tree(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: Node,
    /// BLAKE3 over the operation and the ids of its operands: the structural identity.
    id: [u8; 32],
    /// The free de Bruijn levels as bits; from level 127 on, the sign bit stands for all.
    levels: i128,
    /// Some [`Node::Var`] is inside.
    has_vars: bool,
}

/// A variable of a binder under construction. [`Tree::chain`], [`Tree::reduce`] and [`Tree::fold`] turn it into a
/// binder's own; no closed tree holds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Var(u64);

impl Var {
    /// A variable that is nowhere else.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// One operation with its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Integer: a sum of products, each a sorted list of factors with a coefficient, in wrapping 64-bit arithmetic. The
    /// sum is sorted; a constant is a product of nothing. Never a single factor with coefficient 1.
    Sum(Vec<(Vec<Tree>, i64)>),
    /// Integer: a coordinate of the output element.
    Coord(u32),
    /// Integer or number: a variable of the `level`-th enclosing binder, counted outwards from 0. Slot 0 is the index
    /// of the chain, lane of the reduction or iteration of the fold; slot 1 + s is the carried value s of a fold.
    Bound {
        /// Binders between here and the one meant.
        level: u32,
        /// Which of its variables.
        slot: u32,
    },
    /// A variable of a binder under construction.
    Var(Var),
    /// Integer: a runtime argument that shapes the tree.
    Arg(Arc<str>),
    /// Integer: a binary operation that is not a sum or product.
    Int(IntOp, Tree, Tree),
    /// Truth value: a constant.
    Bool(bool),
    /// Truth value: the integer is at least 0.
    AtLeastZero(Tree),
    /// Truth value: the integer is 0.
    IsZero(Tree),
    /// Truth value: negation.
    Not(Tree),
    /// Truth value: all hold; sorted, without repetitions.
    And(Vec<Tree>),
    /// Truth value: at least one holds; sorted, without repetitions.
    Or(Vec<Tree>),
    /// Number: the bits of a binary32 constant.
    Const(u32),
    /// Number or integer: a leaf.
    Load {
        /// What is read: an operand's name, such as `weight`.
        role: Arc<str>,
        /// Its element type, such as `bf16` or `int`.
        ty: Arc<str>,
        /// Logical coordinates.
        index: Vec<Tree>,
    },
    /// Number: a rounded operation.
    Op(Op, Vec<Tree>),
    /// Condition, then, else; only the chosen branch counts.
    Select(Tree, Tree, Tree),
    /// Number: a chain of multiply-accumulate steps.
    Chain(Chain),
    /// Number or integer: a reduction in a named order.
    Reduce(Reduce),
    /// Number or integer: a sequential loop; the value of its first slot.
    Fold(Fold),
    /// Something without a meaning here, kept apart by its description and operands. Never evaluated.
    Opaque(Arc<str>, Vec<Tree>),
}

/// Integer operations that are not polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntOp {
    /// Division that rounds to minus infinity.
    FloorDiv,
    /// `a - b * floor(a / b)`.
    FloorMod,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

/// Rounded operations on binary32 values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// IEEE addition; operands are ordered.
    Add,
    /// IEEE subtraction.
    Sub,
    /// IEEE multiplication; operands are ordered.
    Mul,
    /// IEEE division.
    Div,
    /// `a * b + c` with one rounding; a and b are ordered.
    Fma,
    /// IEEE square root.
    Sqrt,
    /// Sign flip.
    Neg,
    /// `b > a ? b : a`, which ignores a NaN in b.
    Max,
    /// [`scalar::exp2`](crate::scalar::exp2).
    Exp2,
    /// [`scalar::log2`](crate::scalar::log2).
    Log2,
    /// [`scalar::to_bf16`](crate::scalar::to_bf16), widened again.
    RoundBf16,
    /// The value if it is finite, else +0.
    FiniteOrZero,
    /// An operation that has a name but no evaluation here, such as one of TTIR. Not reordered.
    Named(Arc<str>),
}

/// How the products of a chain are accumulated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// k16 steps of [`arithmetic`](crate::arithmetic) on bfloat16.
    Bf16(Arithmetic),
    /// k16 steps of [`arithmetic`](crate::arithmetic) on float16.
    F16(Arithmetic),
    /// k32 steps of [`fp8`](crate::fp8), the accumulator inside the step.
    Fp8(Fp8, Fp8),
    /// k32 steps of [`fp8`](crate::fp8) from +0, each added to the accumulator in binary32.
    Fp8Promoted(Fp8, Fp8),
    /// A named behaviour without evaluation here. Such chains are not joined and their factors not ordered.
    Named(Arc<str>),
}

/// `init` continued by the products `a(k) * b(k)` for k in 0..len, in order; `init` if `len` is not positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The accumulation.
    pub kind: ChainKind,
    /// Number of products.
    pub len: Tree,
    /// Where the chain starts.
    pub init: Tree,
    /// Left factor, under the binder of k.
    pub a: Tree,
    /// Right factor, under the binder of k.
    pub b: Tree,
}

/// How two partial results become one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Combiner {
    /// IEEE addition.
    Add,
    /// [`Op::Max`], from -infinity.
    Max,
    /// On (value, index): the larger value, the lower index on ties, never a NaN; (-infinity, 0) to start with.
    Argmax,
    /// A named combiner without evaluation here.
    Named(Arc<str>),
}

/// In which order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// A pairwise tree of neighbours over a power of two of lanes.
    Neighbours,
    /// The order does not matter for the combiner.
    Free,
    /// A named order, such as one that a layout decides.
    Named(Arc<str>),
}

/// A reduction over `len` lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// The combiner.
    pub combiner: Combiner,
    /// The order.
    pub order: Order,
    /// Lanes.
    pub len: u64,
    /// What is reduced, under the binder of the lane; one body for each component of the combiner.
    pub bodies: Vec<Tree>,
    /// Which component is the result.
    pub out: u32,
}

/// A carried value of a fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Before the first iteration.
    pub init: Tree,
    /// After an iteration, under the binder of the fold.
    pub body: Tree,
}

/// A sequential loop over `trip` iterations (none if negative). Its first slot is the result; the others are the
/// carried values that it needs, in an order that depends on their structure alone, and no two are provably equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Number of iterations.
    pub trip: Tree,
    /// Carried values.
    pub slots: Vec<Slot>,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Tree {}

impl Hash for Tree {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl Tree {
    /// The operation at the root.
    pub fn node(&self) -> &Node {
        &self.0.node
    }

    /// True if no variable is free: such a tree has a digest that means something.
    pub fn is_closed(&self) -> bool {
        self.0.levels == 0 && !self.0.has_vars
    }

    /// A leaf: `role` of element type `ty` at logical coordinates.
    pub fn load(role: &str, ty: &str, index: impl IntoIterator<Item = Self>) -> Self {
        Self::new(Node::Load { role: role.into(), ty: ty.into(), index: index.into_iter().collect() })
    }

    /// A binary32 constant.
    pub fn number(x: f32) -> Self {
        Self::new(Node::Const(x.to_bits()))
    }

    /// A rounded operation.
    pub fn op(op: Op, operands: impl IntoIterator<Item = Self>) -> Self {
        Self::new(Node::Op(op, operands.into_iter().collect()))
    }

    /// `then` where the condition holds, else `otherwise`.
    pub fn select(condition: Self, then: Self, otherwise: Self) -> Self {
        Self::new(Node::Select(condition, then, otherwise))
    }

    /// Something that has no meaning here.
    pub fn opaque(description: &str, operands: impl IntoIterator<Item = Self>) -> Self {
        Self::new(Node::Opaque(description.into(), operands.into_iter().collect()))
    }

    /// `init` continued by the products `a * b` for `k` in 0..len.
    pub fn chain(kind: ChainKind, len: Self, init: Self, k: Var, a: Self, b: Self) -> Self {
        Self::new(Node::Chain(Chain { kind, len, init, a: a.bind(&[k]), b: b.bind(&[k]) }))
    }

    /// The reduction of `bodies` for `lane` in 0..len; component `out` of it.
    pub fn reduce(combiner: Combiner, order: Order, len: u64, lane: Var, bodies: Vec<Self>, out: u32) -> Self {
        let bodies = bodies.into_iter().map(|body| body.bind(&[lane])).collect();
        Self::new(Node::Reduce(Reduce { combiner, order, len, bodies, out }))
    }

    /// The loop over `iteration` in 0..trip with the carried values `(variable, initial value, value after an
    /// iteration)`; the final value of the one numbered `out`. Carried values that it does not need are left out.
    pub fn fold(trip: Self, iteration: Var, carried: &[(Var, Self, Self)], out: usize) -> Self {
        let order = needed(carried, out);
        let mut vars = vec![iteration];
        vars.extend(order.iter().map(|&i| carried[i].0));
        let slot = |&i: &usize| Slot { init: carried[i].1.clone(), body: carried[i].2.bind(&vars) };
        let slots = order.iter().map(slot).collect();
        Self::new(Node::Fold(Fold { trip, slots }))
    }

    /// A variable as a tree.
    pub fn var(var: Var) -> Self {
        Self::new(Node::Var(var))
    }
}

/// The carried values that `out` depends on, itself first.
fn needed(carried: &[(Var, Tree, Tree)], out: usize) -> Vec<usize> {
    let mut order = vec![out];
    let mut next = 0;
    while let Some(&i) = order.get(next) {
        next += 1;
        let vars = carried[i].2.vars();
        let more = (0..carried.len()).filter(|&j| vars.contains(&carried[j].0) && !order.contains(&j));
        order.extend(more.collect::<Vec<_>>());
    }
    order
}

//! The operations. Every operation that the checker understands is a variant with typed operands; the rest keep their name.

use super::words::{
    AtomicOp, Axis, BinaryOp, CastOp, CmpF, CmpI, DotPrecision, Elements, MemOrder, ReduceKind, ScaledElem, UnaryOp,
};
use super::{Attrs, Block, Value};

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "operands are named as in Triton's own definition of the operation")]
pub enum OpKind {
    /// `arith.constant`.
    Constant(Elements),
    /// `ub.poison`: an undefined value.
    Poison,
    ProgramId(Axis),
    NumPrograms(Axis),
    /// `start, start + 1, .., end - 1`.
    MakeRange {
        start: i32,
        end: i32,
    },

    Unary {
        op: UnaryOp,
        x: Value,
    },
    Binary {
        op: BinaryOp,
        a: Value,
        b: Value,
    },
    CmpI {
        pred: CmpI,
        a: Value,
        b: Value,
    },
    CmpF {
        pred: CmpF,
        a: Value,
        b: Value,
    },
    /// The condition is an i1, or a tensor of i1 with the shape of the values.
    Select {
        cond: Value,
        then: Value,
        otherwise: Value,
    },
    /// `math.fma`: one rounding.
    Fma {
        a: Value,
        b: Value,
        c: Value,
    },
    /// `tt.clampf`.
    Clamp {
        x: Value,
        lo: Value,
        hi: Value,
        propagate_nan: bool,
    },
    Cast {
        op: CastOp,
        x: Value,
    },
    /// A library function such as `__nv_tanhf`, elementwise.
    Extern {
        symbol: String,
        args: Vec<Value>,
        pure: bool,
    },
    /// Inline PTX; with `packed > 1` that many neighbouring elements pass through one instance.
    InlineAsm {
        asm: String,
        constraints: String,
        args: Vec<Value>,
        packed: u32,
        pure: bool,
    },

    Splat {
        x: Value,
    },
    Broadcast {
        x: Value,
    },
    ExpandDims {
        x: Value,
        axis: usize,
    },
    /// Result axis i is operand axis `order[i]`.
    Trans {
        x: Value,
        order: Vec<usize>,
    },
    /// Row-major; with `allow_reorder` elements may land anywhere.
    Reshape {
        x: Value,
        allow_reorder: bool,
    },
    /// A new last axis of extent 2: `a` at 0, `b` at 1.
    Join {
        a: Value,
        b: Value,
    },
    /// The reverse of `Join`; two results.
    Split {
        x: Value,
    },
    /// One after the other, but Triton may reorder elements.
    Cat {
        a: Value,
        b: Value,
    },
    /// `result[.., i, ..] = x[.., indices[.., i, ..], ..]` along `axis`.
    Gather {
        x: Value,
        indices: Value,
        axis: usize,
    },
    Histogram {
        x: Value,
        mask: Option<Value>,
    },

    AddPtr {
        ptr: Value,
        offset: Value,
    },
    Load {
        ptr: Value,
        mask: Option<Value>,
        other: Option<Value>,
        volatile: bool,
    },
    Store {
        ptr: Value,
        value: Value,
        mask: Option<Value>,
    },
    AtomicRmw {
        op: AtomicOp,
        ptr: Value,
        value: Value,
        mask: Option<Value>,
        order: MemOrder,
    },
    AtomicCas {
        ptr: Value,
        cmp: Value,
        value: Value,
        order: MemOrder,
    },

    /// `padding_nan`: lanes outside the shape load as NaN instead of zero.
    MakeDesc {
        base: Value,
        shape: Vec<Value>,
        strides: Vec<Value>,
        padding_nan: bool,
    },
    DescLoad {
        desc: Value,
        indices: Vec<Value>,
    },
    DescStore {
        desc: Value,
        value: Value,
        indices: Vec<Value>,
    },
    DescReduce {
        kind: ReduceKind,
        desc: Value,
        value: Value,
        indices: Vec<Value>,
    },
    /// Rows `rows[i]` of a two-dimensional tensor, from column `column`.
    DescGather {
        desc: Value,
        rows: Value,
        column: Value,
    },
    DescScatter {
        desc: Value,
        rows: Value,
        column: Value,
        value: Value,
    },

    /// `acc + a @ b`; `max_imprecise` is `maxNumImpreciseAcc` (0 when not printed).
    Dot {
        a: Value,
        b: Value,
        acc: Value,
        precision: DotPrecision,
        max_imprecise: u32,
    },
    DotScaled {
        a: Value,
        b: Value,
        acc: Value,
        a_scale: Option<Value>,
        b_scale: Option<Value>,
        a_elem: ScaledElem,
        b_elem: ScaledElem,
        fast_math: bool,
        a_k_pack: bool,
        b_k_pack: bool,
    },
    /// The combiner takes one accumulator and one element for each operand: `(acc0, acc1, .., x0, x1, ..)`.
    Reduce {
        args: Vec<Value>,
        axis: usize,
        combiner: Block,
    },
    /// Inclusive scan; the combiner is as for `Reduce`.
    Scan {
        args: Vec<Value>,
        axis: usize,
        reverse: bool,
        combiner: Block,
    },

    /// `body` takes the induction variable and the carried values, and yields the carried values. `unsigned` compares the bound as
    /// unsigned.
    For {
        lo: Value,
        hi: Value,
        step: Value,
        inits: Vec<Value>,
        body: Block,
        unsigned: bool,
    },
    /// Both blocks yield the results; a missing `else` is [`Block::empty`].
    If {
        cond: Value,
        then: Block,
        otherwise: Block,
    },
    /// `before` takes the carried values and ends in [`Terminator::Condition`](super::Terminator::Condition); `after` takes what
    /// that passes and yields the carried values.
    While {
        inits: Vec<Value>,
        before: Block,
        after: Block,
    },
    Call {
        callee: String,
        args: Vec<Value>,
    },

    Assert {
        cond: Value,
        message: String,
    },
    Assume {
        cond: Value,
    },
    Print {
        prefix: String,
        args: Vec<Value>,
    },
    /// A barrier, or `tt.grid_dependency_wait` and its like: only when something happens, not what is computed.
    Barrier,

    /// Parsed and kept, not understood.
    Unknown {
        name: String,
        args: Vec<Value>,
        attrs: Attrs,
        regions: Vec<Vec<Block>>,
    },
}

/// One list of operands for the shared and the mutable walk.
macro_rules! visit_operands {
    ($kind:expr, $f:expr) => {{
        use OpKind::*;
        match $kind {
            Constant(_) | Poison | ProgramId(_) | NumPrograms(_) | MakeRange { .. } | Barrier => {}
            Unary { x, .. }
            | Cast { x, .. }
            | Splat { x }
            | Broadcast { x }
            | ExpandDims { x, .. }
            | Trans { x, .. }
            | Reshape { x, .. }
            | Split { x } => std::iter::once(x).for_each($f),
            Binary { a, b, .. } | CmpI { a, b, .. } | CmpF { a, b, .. } | Join { a, b } | Cat { a, b } => {
                [a, b].into_iter().for_each($f)
            }
            Select { cond: a, then: b, otherwise: c } | Fma { a, b, c } | Clamp { x: a, lo: b, hi: c, .. } => {
                [a, b, c].into_iter().for_each($f)
            }
            Gather { x, indices, .. } => [x, indices].into_iter().for_each($f),
            Histogram { x, mask } => std::iter::once(x).chain(mask).for_each($f),
            AddPtr { ptr, offset } => [ptr, offset].into_iter().for_each($f),
            Load { ptr, mask, other, .. } => std::iter::once(ptr).chain(mask).chain(other).for_each($f),
            Store { ptr, value, mask } | AtomicRmw { ptr, value, mask, .. } => {
                [ptr, value].into_iter().chain(mask).for_each($f)
            }
            AtomicCas { ptr, cmp, value, .. } => [ptr, cmp, value].into_iter().for_each($f),
            MakeDesc { base, shape, strides, .. } => std::iter::once(base).chain(shape).chain(strides).for_each($f),
            DescLoad { desc, indices } => std::iter::once(desc).chain(indices).for_each($f),
            DescStore { desc, value, indices } | DescReduce { desc, value, indices, .. } => {
                [desc, value].into_iter().chain(indices).for_each($f)
            }
            DescGather { desc, rows, column } => [desc, rows, column].into_iter().for_each($f),
            DescScatter { desc, rows, column, value } => [desc, rows, column, value].into_iter().for_each($f),
            Dot { a, b, acc, .. } => [a, b, acc].into_iter().for_each($f),
            DotScaled { a, b, acc, a_scale, b_scale, .. } => {
                [a, b, acc].into_iter().chain(a_scale).chain(b_scale).for_each($f)
            }
            For { lo, hi, step, inits, .. } => [lo, hi, step].into_iter().chain(inits).for_each($f),
            If { cond, .. } | Assert { cond, .. } | Assume { cond } => std::iter::once(cond).for_each($f),
            Extern { args, .. }
            | InlineAsm { args, .. }
            | Reduce { args, .. }
            | Scan { args, .. }
            | While { inits: args, .. }
            | Call { args, .. }
            | Print { args, .. }
            | Unknown { args, .. } => args.into_iter().for_each($f),
        }
    }};
}

impl OpKind {
    /// The blocks of nested regions, in order.
    pub fn blocks(&self) -> Vec<&Block> {
        match self {
            OpKind::Reduce { combiner, .. } | OpKind::Scan { combiner, .. } => vec![combiner],
            OpKind::For { body, .. } => vec![body],
            OpKind::If { then, otherwise, .. } => vec![then, otherwise],
            OpKind::While { before, after, .. } => vec![before, after],
            OpKind::Unknown { regions, .. } => regions.iter().flatten().collect(),
            _ => Vec::new(),
        }
    }

    /// As [`OpKind::blocks`].
    pub fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            OpKind::Reduce { combiner, .. } | OpKind::Scan { combiner, .. } => vec![combiner],
            OpKind::For { body, .. } => vec![body],
            OpKind::If { then, otherwise, .. } => vec![then, otherwise],
            OpKind::While { before, after, .. } => vec![before, after],
            OpKind::Unknown { regions, .. } => regions.iter_mut().flatten().collect(),
            _ => Vec::new(),
        }
    }

    /// The values it reads itself, in order; not what its regions read from outside.
    pub fn operands(&self) -> Vec<Value> {
        let mut out = Vec::new();
        visit_operands!(self, |v: &Value| out.push(*v));
        out
    }

    /// Calls `f` on every operand, so that it can be replaced. Regions are not entered.
    pub fn operands_mut(&mut self, f: impl FnMut(&mut Value)) {
        visit_operands!(self, f);
    }
}

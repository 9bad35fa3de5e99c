//! The generic evaluator: the bits of a tree, from its leaves.
//!
//! This is the definition that everything else is measured by, so it does what the tree says and nothing clever. The
//! one thing it adds is a memory: inside one iteration of a binder a shared subtree is computed once.

use std::cell::RefCell;
use std::collections::HashMap;

use half::{bf16, f16};

use super::{Chain, ChainKind, Combiner, Fold, Node, Op, Order, Reduce, Tree};
use crate::arithmetic::{STEP, StepInput, mma_step, mma_step_f16, padded};
use crate::fp8::{FP8_STEP, Fp8, wgmma_step_fp8};
use crate::scalar::{canonical, exp2, log2, to_bf16};

/// A value of a subtree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A binary32 number; bfloat16, float16 and 8-bit floats are held exactly.
    F32(f32),
}

/// The operands of one output element.
pub trait Leaves {
    /// The element of operand `role` at logical coordinates; `None` if there is none.
    fn load(&self, role: &str, index: &[i64]) -> Option<Value>;
    /// Coordinate `n` of the output element.
    fn coord(&self, n: u32) -> Option<i64>;
    /// A runtime integer argument.
    fn arg(&self, _name: &str) -> Option<i64> {
        None
    }
}

/// Why a tree has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node}: expected {expected}, got {got}")]
pub struct EvalError {
    node: String,
    expected: &'static str,
    got: String,
}

impl EvalError {
    fn new(node: impl Into<String>, expected: &'static str, got: impl Into<String>) -> Self {
        Self { node: node.into(), expected, got: got.into() }
    }
}

type Result<T> = std::result::Result<T, EvalError>;

/// Deepest nesting of operations that is followed; the plans' trees need less than a hundred.
const DEPTH_MAX: u32 = 1000;

/// One iteration of one binder: its variables, and what was computed in it.
struct Frame {
    slots: Vec<Value>,
    memory: RefCell<HashMap<[u8; 32], Value>>,
}

impl Frame {
    fn new(slots: Vec<Value>) -> Self {
        Self { slots, memory: RefCell::default() }
    }
}

struct Evaluator<'a> {
    leaves: &'a dyn Leaves,
    /// Innermost last. The first frame belongs to no binder: it remembers closed subtrees.
    frames: Vec<Frame>,
    depth: u32,
}

impl Tree {
    /// The value of the tree.
    pub fn eval(&self, leaves: &dyn Leaves) -> Result<Value> {
        Evaluator { leaves, frames: vec![Frame::new(vec![])], depth: 0 }.value(self)
    }

    /// The value of a tree that is a number.
    pub fn eval_f32(&self, leaves: &dyn Leaves) -> Result<f32> {
        number(self.eval(leaves)?, "the tree")
    }
}

fn number(value: Value, node: &str) -> Result<f32> {
    match value {
        Value::F32(x) => Ok(x),
        other => Err(EvalError::new(node, "a number", format!("{other:?}"))),
    }
}

impl Evaluator<'_> {
    fn value(&mut self, tree: &Tree) -> Result<Value> {
        if matches!(tree.node(), Node::Coord(_) | Node::Bound { .. } | Node::Const(_) | Node::Bool(_)) {
            return self.compute(tree);
        }
        // A value depends on the frames that the tree is open to; it is kept in the innermost of them.
        let home = match tree.innermost_level() {
            None => 0,
            Some(level) => (self.frames.len() - 1)
                .checked_sub(level as usize)
                .filter(|&home| home > 0)
                .ok_or_else(|| EvalError::new("variable", "an enclosing binder", format!("level {level}")))?,
        };
        if let Some(value) = self.frames[home].memory.borrow().get(&tree.id()) {
            return Ok(*value);
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(EvalError::new("tree", "a nesting of at most 1000 operations", "more"));
        }
        let value = self.compute(tree)?;
        self.depth -= 1;
        self.frames[home].memory.borrow_mut().insert(tree.id(), value);
        Ok(value)
    }

    fn compute(&mut self, tree: &Tree) -> Result<Value> {
        match tree.node() {
            Node::Sum(terms) => {
                let mut sum = 0i64;
                for (factors, c) in terms {
                    let mut product = *c;
                    for factor in factors {
                        product = product.wrapping_mul(self.int(factor)?);
                    }
                    sum = sum.wrapping_add(product);
                }
                Ok(Value::Int(sum))
            }
            Node::Coord(n) => {
                let value = self.leaves.coord(*n);
                Ok(Value::Int(value.ok_or_else(|| EvalError::new(format!("coordinate {n}"), "a value", "none"))?))
            }
            Node::Bound { level, slot } => {
                let frame = self.frames.iter().rev().nth(*level as usize);
                let value = frame.and_then(|frame| frame.slots.get(*slot as usize).copied());
                value.ok_or_else(|| EvalError::new("variable", "a slot of its binder", format!("slot {slot}")))
            }
            Node::Var(_) => Err(EvalError::new("variable", "a closed tree", "a free variable")),
            Node::Arg(name) => {
                let value = self.leaves.arg(name);
                Ok(Value::Int(value.ok_or_else(|| EvalError::new(format!("argument {name}"), "a value", "none"))?))
            }
            Node::Int(op, a, b) => {
                let value = op.apply(self.int(a)?, self.int(b)?);
                Ok(Value::Int(value.ok_or_else(|| EvalError::new(op.name(), "a divisor that is not 0", "0"))?))
            }
            Node::Bool(value) => Ok(Value::Bool(*value)),
            Node::AtLeastZero(a) => Ok(Value::Bool(self.int(a)? >= 0)),
            Node::IsZero(a) => Ok(Value::Bool(self.int(a)? == 0)),
            Node::Not(a) => Ok(Value::Bool(!self.truth(a)?)),
            Node::And(parts) => self.junction(parts, false),
            Node::Or(parts) => self.junction(parts, true),
            Node::Const(bits) => Ok(Value::F32(f32::from_bits(*bits))),
            Node::Load { role, index, .. } => {
                let index = index.iter().map(|i| self.int(i)).collect::<Result<Vec<i64>>>()?;
                let value = self.leaves.load(role, &index);
                value.ok_or_else(|| EvalError::new(format!("{role}{index:?}"), "an element", "none"))
            }
            Node::Op(op, operands) => {
                let values = operands.iter().map(|t| self.f32(t)).collect::<Result<Vec<f32>>>()?;
                op.apply(&values).map(Value::F32)
            }
            Node::Select(condition, then, otherwise) => {
                let branch = if self.truth(condition)? { then } else { otherwise };
                self.value(branch)
            }
            Node::Chain(chain) => self.chain(chain).map(Value::F32),
            Node::Reduce(reduce) => self.reduce(reduce),
            Node::Fold(fold) => self.fold(fold),
            Node::Opaque(description, _) => Err(EvalError::new(&**description, "a meaning", "something opaque")),
        }
    }

    fn int(&mut self, tree: &Tree) -> Result<i64> {
        match self.value(tree)? {
            Value::Int(value) => Ok(value),
            other => Err(EvalError::new("operand", "an integer", format!("{other:?}"))),
        }
    }

    fn truth(&mut self, tree: &Tree) -> Result<bool> {
        match self.value(tree)? {
            Value::Bool(value) => Ok(value),
            other => Err(EvalError::new("operand", "a truth value", format!("{other:?}"))),
        }
    }

    fn f32(&mut self, tree: &Tree) -> Result<f32> {
        number(self.value(tree)?, "operand")
    }

    fn junction(&mut self, parts: &[Tree], absorbing: bool) -> Result<Value> {
        for part in parts {
            if self.truth(part)? == absorbing {
                return Ok(Value::Bool(absorbing));
            }
        }
        Ok(Value::Bool(!absorbing))
    }

    /// The value of a body with the variables of its binder.
    fn under(&mut self, slots: Vec<Value>, body: &Tree) -> Result<Value> {
        self.frames.push(Frame::new(slots));
        let value = self.value(body);
        self.frames.pop();
        value
    }

    fn chain(&mut self, chain: &Chain) -> Result<f32> {
        let len = self.int(&chain.len)?;
        let mut acc = self.f32(&chain.init)?;
        let step_len = match chain.kind {
            ChainKind::Bf16(_) | ChainKind::F16(_) => STEP,
            ChainKind::Fp8(..) | ChainKind::Fp8Promoted(..) => FP8_STEP,
            ChainKind::Named(ref name) => return Err(EvalError::new("chain", "a kind with an evaluation", &**name)),
        };
        let mut k = 0;
        while k < len {
            let end = len.min(k.saturating_add(step_len as i64));
            let (mut a, mut b) = (Vec::with_capacity(step_len), Vec::with_capacity(step_len));
            for k in k..end {
                self.frames.push(Frame::new(vec![Value::Int(k)]));
                let factors = self.f32(&chain.a).and_then(|x| Ok((x, self.f32(&chain.b)?)));
                self.frames.pop();
                let (x, y) = factors?;
                a.push(x);
                b.push(y);
            }
            acc = step(&chain.kind, acc, &a, &b)?;
            k = end;
        }
        Ok(acc)
    }

    fn reduce(&mut self, reduce: &Reduce) -> Result<Value> {
        let mut lanes = Vec::new();
        for lane in 0..reduce.len {
            let mut parts = Vec::new();
            for body in &reduce.bodies {
                parts.push(self.under(vec![Value::Int(lane as i64)], body)?);
            }
            lanes.push(parts);
        }
        let all = match reduce.order {
            Order::Neighbours if lanes.len().is_power_of_two() => neighbours(&reduce.combiner, &lanes)?,
            Order::Neighbours => {
                return Err(EvalError::new("reduction", "a power of two of lanes", lanes.len().to_string()));
            }
            Order::Free => {
                let start = match reduce.combiner {
                    Combiner::Max => vec![Value::F32(f32::NEG_INFINITY)],
                    Combiner::Argmax => vec![Value::F32(f32::NEG_INFINITY), Value::Int(0)],
                    _ => return Err(EvalError::new("reduction", "a combiner free of order", reduce.combiner.name())),
                };
                lanes.iter().try_fold(start, |best, lane| reduce.combiner.apply(&best, lane))?
            }
            Order::Named(ref name) => return Err(EvalError::new("reduction", "an order with an evaluation", &**name)),
        };
        all.get(reduce.out as usize).copied().ok_or_else(|| EvalError::new("reduction", "a component", "none"))
    }

    fn fold(&mut self, fold: &Fold) -> Result<Value> {
        let trip = self.int(&fold.trip)?;
        let mut carried = Vec::new();
        for slot in &fold.slots {
            carried.push(self.value(&slot.init)?);
        }
        for i in 0..trip {
            let mut slots = vec![Value::Int(i)];
            slots.extend(&carried);
            self.frames.push(Frame::new(slots));
            let next = fold.slots.iter().map(|slot| self.value(&slot.body)).collect::<Result<Vec<_>>>();
            self.frames.pop();
            carried = next?;
        }
        carried.first().copied().ok_or_else(|| EvalError::new("fold", "a carried value", "none"))
    }
}

fn neighbours(combiner: &Combiner, lanes: &[Vec<Value>]) -> Result<Vec<Value>> {
    if let [one] = lanes {
        return Ok(one.clone());
    }
    let (left, right) = lanes.split_at(lanes.len() / 2);
    combiner.apply(&neighbours(combiner, left)?, &neighbours(combiner, right)?)
}

impl Combiner {
    fn apply(&self, a: &[Value], b: &[Value]) -> Result<Vec<Value>> {
        match (self, a, b) {
            (Self::Add, [Value::F32(a)], [Value::F32(b)]) => Ok(vec![Value::F32(canonical(a + b))]),
            (Self::Max, [Value::F32(a)], [Value::F32(b)]) => Ok(vec![Value::F32(if b > a { *b } else { *a })]),
            (Self::Argmax, [Value::F32(x), Value::Int(i)], [Value::F32(y), Value::Int(j)]) => {
                let second = y > x || (y == x && j < i);
                Ok(if second { b.to_vec() } else { a.to_vec() })
            }
            _ => Err(EvalError::new(self.name(), "operands of its kind", format!("{a:?} and {b:?}"))),
        }
    }
}

impl Op {
    fn apply(&self, operands: &[f32]) -> Result<f32> {
        let value = match (self, operands) {
            (Self::Add, [a, b]) => a + b,
            (Self::Sub, [a, b]) => a - b,
            (Self::Mul, [a, b]) => a * b,
            (Self::Div, [a, b]) => a / b,
            (Self::Fma, [a, b, c]) => a.mul_add(*b, *c),
            (Self::Sqrt, [a]) => a.sqrt(),
            (Self::Neg, [a]) => -a,
            (Self::Max, [a, b]) => {
                if b > a {
                    *b
                } else {
                    *a
                }
            }
            (Self::Exp2, [a]) => exp2(*a),
            (Self::Log2, [a]) => log2(*a),
            (Self::RoundBf16, [a]) => to_bf16(*a).widen(),
            (Self::FiniteOrZero, [a]) => {
                if a.is_finite() {
                    *a
                } else {
                    0.0
                }
            }
            _ => {
                let got = format!("{} of {} operands", self.name(), operands.len());
                return Err(EvalError::new("operation", "one with an evaluation", got));
            }
        };
        Ok(canonical(value))
    }
}

/// One step of a chain; fewer factors than a step has are padded with +0.
fn step(kind: &ChainKind, acc: f32, a: &[f32], b: &[f32]) -> Result<f32> {
    match kind {
        ChainKind::Bf16(arithmetic) => {
            let (a, b) = (narrow(a, bf16::from_f32)?, narrow(b, bf16::from_f32)?);
            Ok(mma_step(*arithmetic, acc, &padded(&a), &padded(&b)))
        }
        ChainKind::F16(arithmetic) => {
            let (a, b) = (narrow(a, f16::from_f32)?, narrow(b, f16::from_f32)?);
            Ok(mma_step_f16(*arithmetic, acc, &padded(&a), &padded(&b)))
        }
        ChainKind::Fp8(x, y) => Ok(wgmma_step_fp8(*x, *y, acc, &bytes(*x, a)?, &bytes(*y, b)?)),
        ChainKind::Fp8Promoted(x, y) => {
            Ok(canonical(acc + wgmma_step_fp8(*x, *y, 0.0, &bytes(*x, a)?, &bytes(*y, b)?)))
        }
        ChainKind::Named(name) => Err(EvalError::new("chain", "a kind with an evaluation", &**name)),
    }
}

/// Factors in their own type; a value that it does not hold exactly is an error of the tree.
fn narrow<T: StepInput>(values: &[f32], convert: impl Fn(f32) -> T) -> Result<Vec<T>> {
    let exact = |&x: &f32| {
        let narrow = convert(x);
        let same = narrow.widen().to_bits() == x.to_bits() || x.is_nan();
        same.then_some(narrow).ok_or_else(|| EvalError::new("factor", "a value of the chain's type", format!("{x:e}")))
    };
    values.iter().map(exact).collect()
}

fn bytes(format: Fp8, values: &[f32]) -> Result<[u8; FP8_STEP]> {
    let mut bytes = [0; FP8_STEP];
    for (byte, x) in bytes.iter_mut().zip(values) {
        let found = (0..=u8::MAX).find(|&b| format.widen(b).to_bits() == x.to_bits());
        *byte = found.ok_or_else(|| EvalError::new("factor", "a value of the chain's type", format!("{x:e}")))?;
    }
    Ok(bytes)
}

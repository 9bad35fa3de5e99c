//! The canonical text: one line for each distinct node, operands before their users, the root last.
//!
//! A line is `n: head operand operand ..`, an operand being `#n`. Equal subtrees are one line, so the text is linear in
//! the size of the shared graph, and it depends on the structure alone.

use std::collections::HashMap;
use std::fmt::Write;

use super::rewrite::children;
use super::{ChainKind, Combiner, Node, Op, Order, Tree};
use crate::fp8::Fp8;

/// First line of every canonical text; changes with the meaning of any word below it.
const HEADER: &str = "reduction-tree 1";

impl Tree {
    /// The canonical text. Only that of a closed tree ([`Tree::is_closed`]) means the same in another process.
    pub fn text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        let mut lines: HashMap<[u8; 32], usize> = HashMap::new();
        let mut stack = vec![(self, false)];
        while let Some((tree, ready)) = stack.pop() {
            if lines.contains_key(&tree.id()) {
                continue;
            }
            let operands = children(tree.node());
            if ready || operands.is_empty() {
                let number = lines.len();
                let _ = write!(text, "{number}: {}", head(tree.node()));
                for (operand, _) in operands {
                    let _ = write!(text, " #{}", lines[&operand.id()]);
                }
                text.push('\n');
                lines.insert(tree.id(), number);
            } else {
                stack.push((tree, true));
                stack.extend(operands.into_iter().rev().map(|(operand, _)| (operand, false)));
            }
        }
        text
    }
}

/// A node's operation and everything about it but its operands. Names are quoted as Rust strings, so no name can
/// imitate the rest of a line.
pub(super) fn head(node: &Node) -> String {
    match node {
        Node::Sum(terms) => {
            if let Some(value) = constant(terms) {
                return format!("int {value}");
            }
            // How many of the operands each product takes.
            let terms: Vec<String> = terms.iter().map(|(factors, c)| format!("{c}*{}", factors.len())).collect();
            format!("sum {}", terms.join("+"))
        }
        Node::Coord(n) => format!("coord {n}"),
        Node::Bound { level, slot } => format!("bound {level} {slot}"),
        Node::Var(var) => format!("var {}", var.0),
        Node::Arg(name) => format!("arg {name:?}"),
        Node::Int(op, ..) => op.name().to_owned(),
        Node::Bool(value) => format!("{value}"),
        Node::AtLeastZero(_) => "at-least-zero".into(),
        Node::IsZero(_) => "is-zero".into(),
        Node::Not(_) => "not".into(),
        Node::And(_) => "and".into(),
        Node::Or(_) => "or".into(),
        Node::Const(bits) => format!("const {bits:08x}"),
        Node::Load { role, ty, .. } => format!("load {role:?} {ty:?}"),
        Node::Op(op, _) => format!("op {}", op.name()),
        Node::Select(..) => "select".into(),
        Node::Chain(chain) => format!("chain {}", chain.kind.name()),
        Node::Reduce(r) => format!("reduce {} {} {} {}", r.combiner.name(), r.order.name(), r.len, r.out),
        Node::Fold(_) => "fold".into(),
        Node::Opaque(description, _) => format!("opaque {description:?}"),
    }
}

/// The value of a sum without factors.
fn constant(terms: &[(Vec<Tree>, i64)]) -> Option<i64> {
    terms.iter().try_fold(0, |_, (factors, c)| factors.is_empty().then_some(*c))
}

impl Op {
    /// The word in the canonical text.
    pub fn name(&self) -> String {
        match self {
            Self::Add => "add".into(),
            Self::Sub => "sub".into(),
            Self::Mul => "mul".into(),
            Self::Div => "div".into(),
            Self::Fma => "fma".into(),
            Self::Sqrt => "sqrt".into(),
            Self::Neg => "neg".into(),
            Self::Max => "max".into(),
            Self::Exp2 => "exp2".into(),
            Self::Log2 => "log2".into(),
            Self::RoundBf16 => "round-bf16".into(),
            Self::FiniteOrZero => "finite-or-zero".into(),
            Self::Named(name) => format!("{name:?}"),
        }
    }
}

impl ChainKind {
    /// The words in the canonical text.
    pub fn name(&self) -> String {
        let fp8 = |x: &Fp8| match x {
            Fp8::E4m3 => "e4m3",
            Fp8::E5m2 => "e5m2",
        };
        match self {
            Self::Bf16(arithmetic) => format!("{} bf16", arithmetic.name()),
            Self::F16(arithmetic) => format!("{} f16", arithmetic.name()),
            Self::Fp8(a, b) => format!("sm90-wgmma {} {}", fp8(a), fp8(b)),
            Self::Fp8Promoted(a, b) => format!("sm90-wgmma-promoted {} {}", fp8(a), fp8(b)),
            Self::Named(name) => format!("{name:?}"),
        }
    }
}

impl Combiner {
    /// The word in the canonical text.
    pub fn name(&self) -> String {
        match self {
            Self::Add => "add".into(),
            Self::Max => "max".into(),
            Self::Argmax => "argmax".into(),
            Self::Named(name) => format!("{name:?}"),
        }
    }
}

impl Order {
    /// The word in the canonical text.
    pub fn name(&self) -> String {
        match self {
            Self::Neighbours => "neighbours".into(),
            Self::Free => "free".into(),
            Self::Named(name) => format!("{name:?}"),
        }
    }
}

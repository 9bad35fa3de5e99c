//! Integers and truth values: sums of products and comparisons in one form.
//!
//! Integer arithmetic wraps at 64 bits here and in the evaluator, so collecting terms is exact.

use std::collections::BTreeMap;

use super::{IntOp, Node, Tree};

/// A sum of products under collection: from the ids of the factors to the factors and their coefficient.
type Terms = BTreeMap<Vec<[u8; 32]>, (Vec<Tree>, i64)>;

impl Tree {
    /// An integer constant.
    pub fn int(value: i64) -> Self {
        Self::raw(constant(value))
    }

    /// Coordinate `n` of the output element.
    pub fn coord(n: u32) -> Self {
        Self::raw(Node::Coord(n))
    }

    /// A runtime integer argument.
    pub fn arg(name: &str) -> Self {
        Self::raw(Node::Arg(name.into()))
    }

    /// The constant that this integer is.
    pub fn as_int(&self) -> Option<i64> {
        match self.node() {
            Node::Sum(terms) => match terms.as_slice() {
                [] => Some(0),
                [(factors, c)] if factors.is_empty() => Some(*c),
                _ => None,
            },
            _ => None,
        }
    }

    /// Integer sum.
    pub fn plus(&self, other: &Self) -> Self {
        Self::new(Node::Sum(vec![(vec![self.clone()], 1), (vec![other.clone()], 1)]))
    }

    /// Integer difference.
    pub fn minus(&self, other: &Self) -> Self {
        Self::new(Node::Sum(vec![(vec![self.clone()], 1), (vec![other.clone()], -1)]))
    }

    /// Integer product.
    pub fn times(&self, other: &Self) -> Self {
        Self::new(Node::Sum(vec![(vec![self.clone(), other.clone()], 1)]))
    }

    /// Product with a constant.
    pub fn scaled(&self, c: i64) -> Self {
        Self::new(Node::Sum(vec![(vec![self.clone()], c)]))
    }

    /// Floor division.
    pub fn div(&self, other: &Self) -> Self {
        Self::new(Node::Int(IntOp::FloorDiv, self.clone(), other.clone()))
    }

    /// The remainder of floor division.
    pub fn modulo(&self, other: &Self) -> Self {
        Self::new(Node::Int(IntOp::FloorMod, self.clone(), other.clone()))
    }

    /// The smaller integer.
    pub fn min(&self, other: &Self) -> Self {
        Self::new(Node::Int(IntOp::Min, self.clone(), other.clone()))
    }

    /// The larger integer.
    pub fn max(&self, other: &Self) -> Self {
        Self::new(Node::Int(IntOp::Max, self.clone(), other.clone()))
    }

    /// `self < other`.
    pub fn less(&self, other: &Self) -> Self {
        let difference = other.minus(self).minus(&Self::int(1));
        Self::new(Node::AtLeastZero(difference))
    }

    /// `self <= other`.
    pub fn at_most(&self, other: &Self) -> Self {
        Self::new(Node::AtLeastZero(other.minus(self)))
    }

    /// `self = other`.
    pub fn equals(&self, other: &Self) -> Self {
        Self::new(Node::IsZero(self.minus(other)))
    }

    /// Negation of a truth value.
    pub fn not(&self) -> Self {
        Self::new(Node::Not(self.clone()))
    }

    /// A truth value that is fixed.
    pub fn truth(value: bool) -> Self {
        Self::raw(Node::Bool(value))
    }

    /// All hold.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::new(Node::And(parts.into_iter().collect()))
    }

    /// At least one holds.
    pub fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::new(Node::Or(parts.into_iter().collect()))
    }

    fn as_bool(&self) -> Option<bool> {
        match self.node() {
            Node::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

fn constant(value: i64) -> Node {
    Node::Sum(if value == 0 { vec![] } else { vec![(vec![], value)] })
}

/// The canonical form of a node that is no operation, chain or fold: a node, or a tree that already exists.
pub(super) fn normal(node: Node) -> Result<Node, Tree> {
    match node {
        Node::Sum(terms) => sum(terms),
        Node::Int(op, a, b) => int(op, a, b),
        Node::AtLeastZero(a) => Ok(a.as_int().map_or_else(|| Node::AtLeastZero(a.clone()), |v| Node::Bool(v >= 0))),
        Node::IsZero(a) => Ok(is_zero(a)),
        Node::Not(a) => match (a.as_bool(), a.node()) {
            (Some(value), _) => Ok(Node::Bool(!value)),
            (_, Node::Not(inner)) => Err(inner.clone()),
            _ => Ok(Node::Not(a)),
        },
        Node::And(parts) => junction(parts, false),
        Node::Or(parts) => junction(parts, true),
        Node::Select(condition, then, otherwise) => match condition.as_bool() {
            Some(true) => Err(then),
            Some(false) => Err(otherwise),
            None if then == otherwise => Err(then),
            None => Ok(Node::Select(condition, then, otherwise)),
        },
        node => Ok(node),
    }
}

fn sum(terms: Vec<(Vec<Tree>, i64)>) -> Result<Node, Tree> {
    let mut collected = Terms::new();
    for (factors, c) in &terms {
        for (product, c) in expand(factors, *c) {
            let key = product.iter().map(Tree::id).collect();
            let entry = collected.entry(key).or_insert((product, 0));
            entry.1 = entry.1.wrapping_add(c);
        }
    }
    let terms: Vec<_> = collected.into_values().filter(|(_, c)| *c != 0).collect();
    match terms.as_slice() {
        [(factors, 1)] if factors.len() == 1 => Err(factors[0].clone()),
        _ => Ok(Node::Sum(terms)),
    }
}

/// A product of integers as products of atoms, sorted.
fn expand(factors: &[Tree], c: i64) -> Vec<(Vec<Tree>, i64)> {
    let mut products = vec![(Vec::new(), c)];
    for factor in factors {
        let own = [(vec![factor.clone()], 1)];
        let terms: &[(Vec<Tree>, i64)] = match factor.node() {
            Node::Sum(terms) => terms,
            _ => &own,
        };
        let multiply = |(product, c): &(Vec<Tree>, i64)| {
            let (product, c) = (product.clone(), *c);
            terms.iter().map(move |(more, d)| ([&product[..], more].concat(), c.wrapping_mul(*d))).collect::<Vec<_>>()
        };
        products = products.iter().flat_map(multiply).collect();
    }
    for (product, _) in &mut products {
        product.sort_by_key(Tree::id);
    }
    products
}

fn int(op: IntOp, a: Tree, b: Tree) -> Result<Node, Tree> {
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int())
        && let Some(value) = op.apply(x, y)
    {
        return Ok(constant(value));
    }
    match op {
        IntOp::FloorDiv if b.as_int() == Some(1) => Err(a),
        IntOp::FloorMod if b.as_int() == Some(1) => Ok(constant(0)),
        IntOp::Min | IntOp::Max if a == b => Err(a),
        IntOp::Min | IntOp::Max if a.id() > b.id() => Ok(Node::Int(op, b, a)),
        _ => Ok(Node::Int(op, a, b)),
    }
}

impl IntOp {
    /// The value; `None` for a division by zero.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Self::FloorDiv | Self::FloorMod if b == 0 => None,
            Self::FloorDiv => Some(a.wrapping_sub(floor_mod(a, b)).wrapping_div(b)),
            Self::FloorMod => Some(floor_mod(a, b)),
            Self::Min => Some(a.min(b)),
            Self::Max => Some(a.max(b)),
        }
    }

    /// The word in the canonical text.
    pub fn name(self) -> &'static str {
        match self {
            Self::FloorDiv => "div",
            Self::FloorMod => "mod",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// The remainder with the sign of `b`.
fn floor_mod(a: i64, b: i64) -> i64 {
    let remainder = a.wrapping_rem(b);
    if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder }
}

/// `a = 0`, with one of the two signs of `a`: that whose first coefficient is positive.
fn is_zero(a: Tree) -> Node {
    if let Some(value) = a.as_int() {
        return Node::Bool(value == 0);
    }
    match a.node() {
        Node::Sum(terms) if terms.first().is_some_and(|(_, c)| *c < 0) => Node::IsZero(a.scaled(-1)),
        _ => Node::IsZero(a),
    }
}

/// A conjunction, or a disjunction for which `absorbing` is true.
fn junction(parts: Vec<Tree>, absorbing: bool) -> Result<Node, Tree> {
    let mut flat = BTreeMap::new();
    let mut stack = parts;
    while let Some(part) = stack.pop() {
        match part.node() {
            Node::Bool(value) if *value == absorbing => return Ok(Node::Bool(absorbing)),
            Node::Bool(_) => {}
            Node::And(inner) if !absorbing => stack.extend(inner.iter().cloned()),
            Node::Or(inner) if absorbing => stack.extend(inner.iter().cloned()),
            _ => {
                flat.insert(part.id(), part);
            }
        }
    }
    let parts: Vec<Tree> = flat.into_values().collect();
    match parts.as_slice() {
        [] => Ok(Node::Bool(!absorbing)),
        [one] => Err(one.clone()),
        _ => Ok(if absorbing { Node::Or(parts) } else { Node::And(parts) }),
    }
}

//! Making nodes, and replacing variables in them. Everything here walks with an explicit stack: trees that come from
//! programs can be deep.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Chain, ChainKind, Fold, Inner, Node, Op, Reduce, Slot, Tree, Var, digest, flatten, index, slots};

thread_local! {
    /// Nodes made by this thread.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

impl Tree {
    /// How many nodes this thread has made so far: for those who must not make too many. Binding a variable makes the nodes above it anew, so
    /// nested binders make more than the tree has.
    pub fn nodes_made() -> u64 {
        MADE.with(Cell::get)
    }

    /// The canonical form of a node whose operands are canonical.
    pub(super) fn new(node: Node) -> Self {
        let node = match node {
            Node::Op(op, mut operands) => {
                match op {
                    Op::Add | Op::Mul => operands.sort_by_key(|t| t.0.id),
                    Op::Fma => operands[..2].sort_by_key(|t| t.0.id),
                    _ => {}
                }
                Node::Op(op, operands)
            }
            Node::Chain(mut chain) => {
                // Products are exact, so their factors may change places.
                if chain.a.0.id > chain.b.0.id && swaps(&chain.kind) {
                    std::mem::swap(&mut chain.a, &mut chain.b);
                }
                Node::Chain(chain)
            }
            Node::Fold(fold) => Node::Fold(slots::ordered(fold)),
            node => match index::normal(node) {
                Ok(node) => node,
                Err(tree) => return tree,
            },
        };
        // Joining takes binders apart, so it waits until all binders outside are variables: then nothing dangles.
        let joined = match &node {
            Node::Chain(chain) if free_levels(&node) == 0 => flatten::chain(chain),
            Node::Fold(fold) if free_levels(&node) == 0 => flatten::fold(fold),
            _ => None,
        };
        joined.unwrap_or_else(|| Self::raw(node))
    }

    /// The node as it is.
    pub(super) fn raw(node: Node) -> Self {
        MADE.with(|made| made.set(made.get() + 1));
        let has_vars = matches!(node, Node::Var(_)) || children(&node).iter().any(|(child, _)| child.0.has_vars);
        Self(Arc::new(Inner { id: digest::node_id(&node), levels: free_levels(&node), node, has_vars }))
    }

    pub(super) fn id(&self) -> [u8; 32] {
        self.0.id
    }

    /// Binders that must surround the tree: 1 + its largest free level.
    pub(super) fn openness(&self) -> u32 {
        128 - self.0.levels.leading_zeros()
    }

    /// The innermost binder that the tree depends on.
    pub(super) fn innermost_level(&self) -> Option<u32> {
        (self.0.levels != 0).then(|| self.0.levels.trailing_zeros())
    }

    /// The free variables, in the order in which a walk meets them.
    pub(super) fn vars(&self) -> Vec<Var> {
        let (mut vars, mut seen, mut stack) = (Vec::new(), HashSet::new(), vec![self]);
        while let Some(tree) = stack.pop() {
            if !tree.0.has_vars || !seen.insert(tree.id()) {
                continue;
            }
            match tree.node() {
                Node::Var(var) => vars.push(*var),
                node => stack.extend(children(node).into_iter().rev().map(|(child, _)| child)),
            }
        }
        vars
    }

    /// The body of a binder with the given variables: each becomes the slot of its place in the list.
    pub(super) fn bind(&self, vars: &[Var]) -> Self {
        debug_assert_eq!(self.0.levels, 0, "a body is built outside of its binder");
        let replace = |node: &Node, depth: u32| match node {
            Node::Var(var) => {
                let slot = vars.iter().position(|v| v == var)? as u32;
                Some(Self::raw(Node::Bound { level: depth, slot }))
            }
            _ => None,
        };
        rewrite(self, &replace, &|tree, _| !tree.0.has_vars)
    }

    /// A binder's body with values, or variables, in place of its slots.
    pub(super) fn open(&self, values: &[Self]) -> Self {
        let replace = |node: &Node, depth: u32| match node {
            Node::Bound { level, slot } if *level == depth => Some(values[*slot as usize].clone()),
            _ => None,
        };
        rewrite(self, &replace, &|tree, depth| tree.openness() <= depth)
    }

    /// The tree with free variables replaced.
    pub(super) fn substitute(&self, var: Var, value: &Self) -> Self {
        let replace = |node: &Node, _| (*node == Node::Var(var)).then(|| value.clone());
        rewrite(self, &replace, &|tree, _| !tree.0.has_vars)
    }
}

/// The free de Bruijn levels of a node, as bits.
fn free_levels(node: &Node) -> i128 {
    let own = match node {
        Node::Bound { level, .. } => 1 << (*level).min(127),
        _ => 0,
    };
    // Levels move inwards by the binders in between; the sign bit stays, which only makes a tree look more open than it
    // is.
    children(node).into_iter().fold(own, |levels, (child, binders)| levels | (child.0.levels >> binders))
}

/// The two factors of a product may change places.
pub(super) fn swaps(kind: &ChainKind) -> bool {
    match kind {
        ChainKind::Bf16(_) | ChainKind::F16(_) => true,
        ChainKind::Fp8(a, b) | ChainKind::Fp8Promoted(a, b) => a == b,
        ChainKind::Named(_) => false,
    }
}

/// Rebuilds `root` with the nodes that `replace` answers for; it is told the number of binders above the node. Parts
/// for which `keep` holds are taken over.
pub(super) fn rewrite(
    root: &Tree,
    replace: &dyn Fn(&Node, u32) -> Option<Tree>,
    keep: &dyn Fn(&Tree, u32) -> bool,
) -> Tree {
    let mut done: HashMap<([u8; 32], u32), Tree> = HashMap::new();
    let mut stack = vec![(root.clone(), 0u32, false)];
    while let Some((tree, depth, ready)) = stack.pop() {
        let key = (tree.id(), depth);
        if done.contains_key(&key) {
            continue;
        }
        if keep(&tree, depth) {
            done.insert(key, tree);
        } else if let Some(new) = replace(tree.node(), depth) {
            done.insert(key, new);
        } else if ready {
            let parts = children(tree.node()).into_iter().map(|(c, binders)| done[&(c.id(), depth + binders)].clone());
            let new = Tree::new(with_children(tree.node(), parts.collect()));
            done.insert(key, new);
        } else {
            let parts: Vec<_> = children(tree.node()).into_iter().map(|(c, b)| (c.clone(), depth + b, false)).collect();
            stack.push((tree, depth, true));
            stack.extend(parts);
        }
    }
    done.remove(&(root.id(), 0)).expect("the root was pushed first and is finished last")
}

/// The operands of a node, each with the number of binders that the node puts above it.
pub(super) fn children(node: &Node) -> Vec<(&Tree, u32)> {
    match node {
        Node::Coord(_) | Node::Bound { .. } | Node::Var(_) | Node::Arg(_) | Node::Bool(_) | Node::Const(_) => vec![],
        Node::Sum(terms) => terms.iter().flat_map(|(factors, _)| factors).map(|t| (t, 0)).collect(),
        Node::Int(_, a, b) => vec![(a, 0), (b, 0)],
        Node::AtLeastZero(a) | Node::IsZero(a) | Node::Not(a) => vec![(a, 0)],
        Node::And(parts) | Node::Or(parts) | Node::Op(_, parts) | Node::Opaque(_, parts) => {
            parts.iter().map(|t| (t, 0)).collect()
        }
        Node::Load { index, .. } => index.iter().map(|t| (t, 0)).collect(),
        Node::Select(condition, then, otherwise) => vec![(condition, 0), (then, 0), (otherwise, 0)],
        Node::Chain(chain) => vec![(&chain.len, 0), (&chain.init, 0), (&chain.a, 1), (&chain.b, 1)],
        Node::Reduce(reduce) => reduce.bodies.iter().map(|t| (t, 1)).collect(),
        Node::Fold(fold) => {
            let slots = fold.slots.iter().flat_map(|slot| [(&slot.init, 0), (&slot.body, 1)]);
            std::iter::once((&fold.trip, 0)).chain(slots).collect()
        }
    }
}

/// The node with other operands, in the order of [`children`].
fn with_children(node: &Node, parts: Vec<Tree>) -> Node {
    let mut parts = parts.into_iter();
    let mut next = || parts.next().expect("as many operands as `children` gave");
    match node {
        Node::Coord(_) | Node::Bound { .. } | Node::Var(_) | Node::Arg(_) | Node::Bool(_) | Node::Const(_) => {
            node.clone()
        }
        Node::Sum(terms) => {
            Node::Sum(terms.iter().map(|(factors, c)| (factors.iter().map(|_| next()).collect(), *c)).collect())
        }
        Node::Int(op, ..) => Node::Int(*op, next(), next()),
        Node::AtLeastZero(_) => Node::AtLeastZero(next()),
        Node::IsZero(_) => Node::IsZero(next()),
        Node::Not(_) => Node::Not(next()),
        Node::And(_) => Node::And(parts.collect()),
        Node::Or(_) => Node::Or(parts.collect()),
        Node::Op(op, _) => Node::Op(op.clone(), parts.collect()),
        Node::Opaque(description, _) => Node::Opaque(description.clone(), parts.collect()),
        Node::Load { role, ty, .. } => Node::Load { role: role.clone(), ty: ty.clone(), index: parts.collect() },
        Node::Select(..) => Node::Select(next(), next(), next()),
        Node::Chain(chain) => {
            Node::Chain(Chain { kind: chain.kind.clone(), len: next(), init: next(), a: next(), b: next() })
        }
        Node::Reduce(reduce) => Node::Reduce(Reduce { bodies: parts.collect(), ..reduce.clone() }),
        Node::Fold(fold) => {
            let trip = next();
            Node::Fold(Fold { trip, slots: fold.slots.iter().map(|_| Slot { init: next(), body: next() }).collect() })
        }
    }
}

impl Drop for Inner {
    /// Takes a deep tree apart without recursion.
    fn drop(&mut self) {
        let mut stack = take_children(&mut self.node);
        while let Some(mut tree) = stack.pop() {
            if let Some(inner) = Arc::get_mut(&mut tree.0) {
                stack.append(&mut take_children(&mut inner.node));
            }
        }
    }
}

fn take_children(node: &mut Node) -> Vec<Tree> {
    let node = std::mem::replace(node, Node::Bool(false));
    children(&node).into_iter().map(|(tree, _)| tree.clone()).collect()
}

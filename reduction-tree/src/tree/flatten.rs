//! Joining nested chains: an accumulator that passes through unchanged is one chain.
//!
//! A chain of whole steps followed by a chain of the same kind makes the same steps in the same order as one longer
//! chain, so the bits are the same. This holds only where the first part ends on a step boundary: a multiple of 16
//! products (32 for 8-bit inputs). Anything between two parts, such as a scale, keeps them apart.

use super::rewrite::swaps;
use super::{Chain, ChainKind, Fold, Node, Tree, Var};

impl ChainKind {
    /// Products of one step, for kinds whose chains may be joined.
    fn step(&self) -> Option<i64> {
        match self {
            Self::Bf16(_) | Self::F16(_) => Some(16),
            Self::Fp8(..) | Self::Fp8Promoted(..) => Some(32),
            Self::Named(_) => None,
        }
    }

    /// True if `len` is a whole number of steps for every value of its variables.
    fn whole_steps(&self, len: &Tree) -> bool {
        let Some(step) = self.step() else { return false };
        match len.node() {
            Node::Sum(terms) => terms.iter().all(|(_, c)| c % step == 0),
            _ => false,
        }
    }
}

/// `chain` joined with the chain that it starts from: the factors of the second at k must be those of the first at k +
/// its length. An empty chain is its start.
pub(super) fn chain(chain: &Chain) -> Option<Tree> {
    if chain.len.as_int().is_some_and(|len| len <= 0) {
        return Some(chain.init.clone());
    }
    let Node::Chain(first) = chain.init.node() else { return None };
    // A negative length counts as none, so lengths add up only when both are known to be positive.
    if first.kind != chain.kind || !chain.kind.whole_steps(&first.len) || first.len.as_int()? <= 0 {
        return None;
    }
    chain.len.as_int()?;
    let k = Var::fresh();
    let at = Tree::var(k);
    let after = at.plus(&first.len);
    let (a, b) = (chain.a.open(std::slice::from_ref(&at)), chain.b.open(std::slice::from_ref(&at)));
    let next = (first.a.open(std::slice::from_ref(&after)), first.b.open(std::slice::from_ref(&after)));
    if !pairs_equal((&a, &b), (&next.0, &next.1), &chain.kind) {
        return None;
    }
    let (a, b) = (first.a.open(std::slice::from_ref(&at)), first.b.open(&[at]));
    Some(Tree::chain(chain.kind.clone(), first.len.plus(&chain.len), first.init.clone(), k, a, b))
}

/// A loop whose body is one chain of constant length that starts from the carried value: factors that depend on the
/// iteration i and the index k only as `len * i + k` make it one chain. Loops of no or one iteration are unrolled.
pub(super) fn fold(fold: &Fold) -> Option<Tree> {
    let inits: Vec<Tree> = fold.slots.iter().map(|slot| slot.init.clone()).collect();
    match fold.trip.as_int() {
        Some(trip) if trip <= 0 => return Some(inits[0].clone()),
        Some(1) => {
            let values: Vec<Tree> = std::iter::once(Tree::int(0)).chain(inits).collect();
            return Some(fold.slots[0].body.open(&values));
        }
        _ => {}
    }
    let [slot] = fold.slots.as_slice() else { return None };
    let Node::Chain(chain) = slot.body.node() else { return None };
    let len = chain.len.as_int()?;
    let carried = Tree::raw(Node::Bound { level: 0, slot: 1 });
    if chain.init != carried || len <= 0 || !chain.kind.whole_steps(&chain.len) {
        return None;
    }
    let (i, carry, k) = (Var::fresh(), Var::fresh(), Var::fresh());
    let (at_i, at_k) = (Tree::var(i), Tree::var(k));
    let body = slot.body.open(&[at_i.clone(), Tree::var(carry)]);
    let Node::Chain(chain) = body.node() else { return None };
    let (a, b) = (chain.a.open(std::slice::from_ref(&at_k)), chain.b.open(std::slice::from_ref(&at_k)));
    // The factors of the first iteration, and what they would be at the joint index.
    let (a0, b0) = (a.substitute(i, &Tree::int(0)), b.substitute(i, &Tree::int(0)));
    let joint = at_i.scaled(len).plus(&at_k);
    let (a1, b1) = (a0.substitute(k, &joint), b0.substitute(k, &joint));
    let reads_carry = [&a, &b].iter().any(|t| t.vars().contains(&carry));
    if reads_carry || !pairs_equal((&a, &b), (&a1, &b1), &chain.kind) {
        return None;
    }
    Some(Tree::chain(chain.kind.clone(), fold.trip.scaled(len), slot.init.clone(), k, a0, b0))
}

/// Equal factors, in either order where they may change places.
fn pairs_equal(x: (&Tree, &Tree), y: (&Tree, &Tree), kind: &ChainKind) -> bool {
    x == y || (swaps(kind) && (x.1, x.0) == y)
}

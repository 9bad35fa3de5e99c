//! The black-box tree probe: finds the order in which a kernel adds, from its results alone.
//!
//! Addend i is a huge M, addend j is -M, all others are 1. Until the two meet, every unit that is added to either is lost;
//! the result is the number of units outside the smallest subtree that holds both. The sizes of these subtrees, over all
//! pairs, determine the tree (the idea is that of FPRev, Xie et al. 2024); a step that adds many terms at once, as a tensor
//! core does, shows as a node with many children.

use crate::backend::{Backend, Error, Result};
use half::bf16;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{LinearTree, Store};
use std::fmt;

/// A summation tree over numbered addends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Summation {
    /// One addend.
    Leaf(usize),
    /// Addends and sums that are added in one step.
    Node(Vec<Summation>),
}

impl fmt::Display for Summation {
    /// Runs of leaves are written as ranges: `((0..16) 16..32)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children = match self {
            Self::Leaf(i) => return write!(f, "{i}"),
            Self::Node(children) => children,
        };
        write!(f, "(")?;
        let mut i = 0;
        while i < children.len() {
            if i > 0 {
                write!(f, " ")?;
            }
            match &children[i] {
                Self::Leaf(first) => {
                    let run = children[i..].iter().zip(*first..).take_while(|(c, n)| **c == Self::Leaf(*n)).count();
                    if run > 1 {
                        write!(f, "{first}..{}", first + run)?
                    } else {
                        write!(f, "{first}")?
                    }
                    i += run;
                }
                node => {
                    write!(f, "{node}")?;
                    i += 1;
                }
            }
        }
        write!(f, ")")
    }
}

/// The largest addend of a probe: it swallows any number of units that an f32 can count, and its products are finite.
pub const HUGE: f32 = f32::from_bits((127 + 60) << 23);

/// The tree of a sum of `n` addends. `unlost` gets pairs (i, j) with i < j and gives, for each, the sum of `n` addends of
/// which i is [`HUGE`], j is its negative and the rest are 1.
pub fn reconstruct(n: usize, mut unlost: impl FnMut(&[(usize, usize)]) -> Result<Vec<f32>>) -> Result<Summation> {
    const OP: &str = "probe";
    let pairs: Vec<(usize, usize)> = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect();
    let results = unlost(&pairs)?;
    let mut sizes = vec![vec![1; n]; n];
    for (&(i, j), &units) in pairs.iter().zip(&results) {
        if units.fract() != 0.0 || !(0.0..=(n - 2) as f32).contains(&units) {
            let got = format!("{units} for the pair ({i}, {j})");
            return Err(Error::new(OP, format!("a sum between 0 and {} units", n - 2), got));
        }
        (sizes[i][j], sizes[j][i]) = (n - units as usize, n - units as usize);
    }
    if results.len() != pairs.len() || n == 0 {
        return Err(Error::new(OP, format!("{} sums of at least one addend", pairs.len()), results.len().to_string()));
    }
    build(&(0..n).collect::<Vec<_>>(), &sizes)
}

/// The subtree of `leaves`, which meet in one node.
fn build(leaves: &[usize], sizes: &[Vec<usize>]) -> Result<Summation> {
    if let [leaf] = leaves {
        return Ok(Summation::Leaf(*leaf));
    }
    let mut children: Vec<Vec<usize>> = Vec::new();
    for &leaf in leaves {
        // Leaves below one child meet in a smaller subtree than the whole.
        match children.iter_mut().find(|child| sizes[child[0]][leaf] < leaves.len()) {
            Some(child) => child.push(leaf),
            None => children.push(vec![leaf]),
        }
    }
    if children.len() < 2 {
        return Err(Error::new("probe", "sums that some tree explains", format!("leaves {leaves:?} that never meet")));
    }
    children.iter().map(|child| build(child, sizes)).collect::<Result<_>>().map(Summation::Node)
}

/// The tree that a linear layer declares, over the elements of K.
pub fn declared(tree: &LinearTree, arithmetic: Arithmetic) -> Summation {
    let step = match arithmetic {
        Arithmetic::Ieee => 1,
        Arithmetic::Sm80 => 8,
        Arithmetic::Sm90 => 16,
    };
    let chain = |chunk: std::ops::Range<usize>| {
        let mut sum: Option<Summation> = None;
        for first in chunk.clone().step_by(step) {
            let terms = (first..chunk.end.min(first + step)).map(Summation::Leaf);
            let all: Vec<_> = sum.take().into_iter().chain(terms).collect();
            sum = Some(match <[Summation; 1]>::try_from(all) {
                Ok([only]) => only,
                Err(all) => Summation::Node(all),
            });
        }
        sum
    };
    let chunks = tree.chunks().filter_map(chain);
    chunks.reduce(|sum, chunk| Summation::Node(vec![sum, chunk])).unwrap_or(Summation::Node(Vec::new()))
}

/// Reconstructs the tree of column 0 of a linear layer that stores f32, from its results alone: weights are 1 and every
/// probe is a row of x, `rows` of them to a call, so that the variant for that many tokens is probed.
pub fn linear<B: Backend>(b: &B, tree: LinearTree, rows: usize) -> Result<Summation> {
    if tree.store != Store::F32 || rows == 0 {
        return Err(Error::new(
            "probe",
            "a tree that stores f32, and at least one row",
            format!("{tree:?}, {rows} rows"),
        ));
    }
    let weight = b.linear_weight(tree, &vec![bf16::ONE; tree.n * tree.k], None)?;
    let huge = bf16::from_f32(HUGE);
    reconstruct(tree.k, |pairs| {
        let mut sums = Vec::with_capacity(pairs.len());
        for group in pairs.chunks(rows) {
            // The last group is filled up: another number of rows could be another kernel.
            let mut x = vec![bf16::ONE; rows * tree.k];
            for (row, &(i, j)) in group.iter().enumerate() {
                (x[row * tree.k + i], x[row * tree.k + j]) = (huge, -huge);
            }
            let mut out = b.alloc(rows * tree.outputs())?;
            b.linear_f32(&weight, rows, &b.upload(&x)?, &mut out)?;
            let all = b.download(&out, rows * tree.outputs())?;
            sums.extend(all.chunks(tree.outputs()).take(group.len()).map(|row| row[0]));
        }
        Ok(sums)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use reduction_tree::operator::Epilogue;

    fn of(n: usize, sum: impl Fn(&[f32]) -> f32) -> String {
        let probe = |&(i, j): &(usize, usize)| {
            let mut x = vec![1.0; n];
            (x[i], x[j]) = (HUGE, -HUGE);
            sum(&x)
        };
        reconstruct(n, |pairs| Ok(pairs.iter().map(probe).collect())).expect("a sum").to_string()
    }

    fn pairwise(x: &[f32]) -> f32 {
        if let [one] = x { *one } else { pairwise(&x[..x.len() / 2]) + pairwise(&x[x.len() / 2..]) }
    }

    #[test]
    fn finds_known_orders() {
        assert_eq!(of(4, |x| ((x[0] + x[1]) + x[2]) + x[3]), "(((0..2) 2) 3)");
        assert_eq!(of(8, pairwise), "(((0..2) (2..4)) ((4..6) (6..8)))");
        assert_eq!(of(4, |x| (x[0] + x[2]) + (x[1] + x[3])), "((0 2) (1 3))");
        assert_eq!(of(4, |x| x[3] + (x[2] + (x[1] + x[0]))), "(((0..2) 2) 3)");
    }

    #[test]
    fn refuses_what_is_no_sum() {
        assert!(reconstruct(3, |pairs| Ok(vec![0.5; pairs.len()])).is_err());
        assert!(reconstruct(3, |pairs| Ok(vec![-1.0; pairs.len()])).is_err());
        assert!(reconstruct(4, |pairs| Ok(vec![2.0; pairs.len()])).is_err());
        assert!(reconstruct(0, |_| Ok(vec![])).is_err());
    }

    #[test]
    fn cpu_layers_have_the_declared_tree() {
        for arithmetic in Arithmetic::ALL {
            let cpu = Cpu::new(arithmetic, 1).expect("threads");
            for (k, k_split) in [(100, 1), (130, 2), (90, 3)] {
                let tree = LinearTree { n: 3, k, k_split, epilogue: Epilogue::None, store: Store::F32 };
                assert_eq!(
                    linear(&cpu, tree, 20).expect("a sum"),
                    declared(&tree, arithmetic),
                    "{arithmetic:?} {tree:?}"
                );
            }
        }
    }

    /// A layer that splits K otherwise than it declares is caught.
    #[test]
    fn another_split_is_caught() {
        let cpu = Cpu::new(Arithmetic::Sm90, 1).expect("threads");
        let tree = LinearTree { n: 1, k: 128, k_split: 1, epilogue: Epilogue::None, store: Store::F32 };
        let found = linear(&cpu, LinearTree { k_split: 2, ..tree }, 8).expect("a sum");
        assert_ne!(found, declared(&tree, Arithmetic::Sm90));
        assert_eq!(found, declared(&LinearTree { k_split: 2, ..tree }, Arithmetic::Sm90));
    }
}

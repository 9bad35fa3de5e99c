//! Values while a kernel runs: bit patterns, zero-extended to 64 bits; a pointer is its address.

use super::desc::Desc;
use std::rc::Rc;

/// A scalar, the row-major elements of a tensor, or a descriptor.
#[derive(Clone, Debug)]
pub(super) enum Val {
    Scalar(u64),
    Tensor(Rc<Vec<u64>>),
    Desc(Rc<Desc>),
}

impl Val {
    pub(super) fn tensor(elements: Vec<u64>) -> Val {
        Val::Tensor(Rc::new(elements))
    }

    /// Number of lanes; 1 for a scalar.
    pub(super) fn len(&self) -> usize {
        match self {
            Val::Tensor(t) => t.len(),
            _ => 1,
        }
    }

    /// Elements of a tensor that count as alive.
    pub(super) fn weight(&self) -> usize {
        match self {
            Val::Tensor(t) => t.len(),
            _ => 0,
        }
    }

    /// Lane i; a scalar is the same in every lane.
    pub(super) fn lane(&self, i: usize) -> u64 {
        match self {
            Val::Scalar(v) => *v,
            Val::Tensor(t) => t[i],
            Val::Desc(_) => 0,
        }
    }

    /// The elements as a slice of at least one.
    pub(super) fn lanes(&self) -> &[u64] {
        match self {
            Val::Scalar(v) => std::slice::from_ref(v),
            Val::Tensor(t) => t,
            Val::Desc(_) => &[],
        }
    }

    pub(super) fn map(&self, f: impl Fn(u64) -> u64) -> Val {
        match self {
            Val::Tensor(t) => Val::tensor(t.iter().map(|x| f(*x)).collect()),
            other => Val::Scalar(f(other.lane(0))),
        }
    }

    pub(super) fn map2(&self, b: &Val, f: impl Fn(u64, u64) -> u64) -> Val {
        match (self, b) {
            (Val::Tensor(x), Val::Tensor(y)) => Val::tensor(x.iter().zip(y.iter()).map(|(x, y)| f(*x, *y)).collect()),
            (Val::Tensor(x), y) => Val::tensor(x.iter().map(|x| f(*x, y.lane(0))).collect()),
            (x, Val::Tensor(y)) => Val::tensor(y.iter().map(|y| f(x.lane(0), *y)).collect()),
            (x, y) => Val::Scalar(f(x.lane(0), y.lane(0))),
        }
    }

    pub(super) fn map3(&self, b: &Val, c: &Val, f: impl Fn(u64, u64, u64) -> u64) -> Val {
        if [self, b, c].iter().all(|v| !matches!(v, Val::Tensor(_))) {
            return Val::Scalar(f(self.lane(0), b.lane(0), c.lane(0)));
        }
        let n = self.len().max(b.len()).max(c.len());
        Val::tensor((0..n).map(|i| f(self.lane(i), b.lane(i), c.lane(i))).collect())
    }
}

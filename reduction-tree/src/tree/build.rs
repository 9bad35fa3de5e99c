//! The trees of the operators, from their parameters.
//!
//! Output coordinates: c0 is the row, c1 the column (or head), c2 the element of a head. Roles of leaves: `x [c0, k]`,
//! `weight [n, k]`, `bias [n]`, `residual [c0, n]`; `table [token, k]`, `token [c0]`; `qkv [c0, i]`, `cos`/`sin [c0,
//! i]` (the table row of the row's position), `norm [i]`; `q [c0, head, i]`, `position [c0]`, and `key`/`value [c0, j,
//! kv_head, i]`: the cell of absolute position j in row c0's own prefix; `logits [c0, i]`.

use super::{ChainKind, Combiner, Op, Order, Tree, Var};
use crate::arithmetic::Arithmetic;
use crate::operator::{AttentionTree, Epilogue, LinearTree, LogSumExpTree, RmsNormTree, RopePairing, Store};
use crate::scalar::{LN_2, LOG2_E};

fn int(value: usize) -> Tree {
    Tree::int(value as i64)
}

fn bf16(role: &str, index: impl IntoIterator<Item = Tree>) -> Tree {
    Tree::load(role, "bf16", index)
}

fn f32(role: &str, index: impl IntoIterator<Item = Tree>) -> Tree {
    Tree::load(role, "f32", index)
}

fn add(a: Tree, b: Tree) -> Tree {
    Tree::op(Op::Add, [a, b])
}

fn sub(a: Tree, b: Tree) -> Tree {
    Tree::op(Op::Sub, [a, b])
}

fn mul(a: Tree, b: Tree) -> Tree {
    Tree::op(Op::Mul, [a, b])
}

fn div(a: Tree, b: Tree) -> Tree {
    Tree::op(Op::Div, [a, b])
}

fn fma(a: Tree, b: Tree, c: Tree) -> Tree {
    Tree::op(Op::Fma, [a, b, c])
}

fn exp2(a: Tree) -> Tree {
    Tree::op(Op::Exp2, [a])
}

fn round_bf16(a: Tree) -> Tree {
    Tree::op(Op::RoundBf16, [a])
}

fn zero() -> Tree {
    Tree::number(0.0)
}

/// The loop with one carried value: `body` is given the iteration and the value.
fn fold(trip: Tree, init: Tree, body: impl FnOnce(Tree, Tree) -> Tree) -> Tree {
    let (i, carried) = (Var::fresh(), Var::fresh());
    let body = body(Tree::var(i), Tree::var(carried));
    Tree::fold(trip, i, &[(carried, init, body)], 0)
}

fn reduce(combiner: Combiner, order: Order, len: usize, body: impl FnOnce(Tree) -> Tree) -> Tree {
    let lane = Var::fresh();
    let body = body(Tree::var(lane));
    Tree::reduce(combiner, order, len as u64, lane, vec![body], 0)
}

fn chain(arithmetic: Arithmetic, len: usize, init: Tree, factors: impl FnOnce(Tree) -> (Tree, Tree)) -> Tree {
    let k = Var::fresh();
    let (a, b) = factors(Tree::var(k));
    Tree::chain(ChainKind::Bf16(arithmetic), int(len), init, k, a, b)
}

/// [`scalar::silu`](crate::scalar::silu).
pub fn silu(x: Tree) -> Tree {
    let t = mul(x.clone(), Tree::number(-LOG2_E));
    mul(x, div(Tree::number(1.0), add(Tree::number(1.0), exp2(t))))
}

impl LinearTree {
    /// The tree of output (c0, c1).
    pub fn tree(&self, arithmetic: Arithmetic) -> Tree {
        let n = Tree::coord(1);
        let output = match self.epilogue {
            Epilogue::None => self.sum(arithmetic, &n),
            Epilogue::Bias => add(self.sum(arithmetic, &n), bf16("bias", [n])),
            Epilogue::Residual => add(self.sum(arithmetic, &n), bf16("residual", [Tree::coord(0), n])),
            Epilogue::SiluMul => {
                let up = self.sum(arithmetic, &n.plus(&int(self.n / 2)));
                mul(silu(self.sum(arithmetic, &n)), up)
            }
        };
        match self.store {
            Store::Bf16 => round_bf16(output),
            Store::F32 => output,
        }
    }

    fn sum(&self, arithmetic: Arithmetic, n: &Tree) -> Tree {
        let chunks = self.chunks().map(|range| {
            chain(arithmetic, range.len(), zero(), |k| {
                let k = k.plus(&int(range.start));
                (bf16("x", [Tree::coord(0), k.clone()]), bf16("weight", [n.clone(), k]))
            })
        });
        chunks.reduce(add).unwrap_or_else(zero)
    }
}

/// The tree of an embedding (c0, c1): a copy.
pub fn embed() -> Tree {
    bf16("table", [Tree::load("token", "int", [Tree::coord(0)]), Tree::coord(1)])
}

/// The tree of a residual addition (c0, c1).
pub fn residual_add() -> Tree {
    let at = [Tree::coord(0), Tree::coord(1)];
    round_bf16(add(bf16("x", at.clone()), bf16("residual", at)))
}

impl RmsNormTree {
    /// The tree of output (c0, c1).
    pub fn tree(&self) -> Tree {
        let x = |i: Tree| bf16("x", [Tree::coord(0), i]);
        round_bf16(self.value(&x, bf16("weight", [Tree::coord(1)]), Tree::coord(1)))
    }

    /// Element `at` of the norm of `x` before rounding to bfloat16.
    fn value(&self, x: &dyn Fn(Tree) -> Tree, weight: Tree, at: Tree) -> Tree {
        let sum = reduce(Combiner::Add, Order::Neighbours, Self::LANES, |lane| self.lane(x, &lane));
        let mean = div(sum, Tree::number(self.d as f32));
        let root = Tree::op(Op::Sqrt, [add(mean, Tree::number(self.eps))]);
        let r = div(Tree::number(1.0), root);
        mul(mul(x(at), r), weight)
    }

    /// One lane of the sum of squares: vectors of adjacent elements, `LANES` vectors apart.
    fn lane(&self, x: &dyn Fn(Tree) -> Tree, lane: &Tree) -> Tree {
        let stride = Self::LANES * Self::VECTOR;
        fold(int(self.d.div_ceil(stride)), zero(), |round, acc| {
            let start = round.scaled(stride as i64).plus(&lane.scaled(Self::VECTOR as i64));
            fold(int(Self::VECTOR), acc, |element, acc| {
                let i = start.plus(&element);
                let square = fma(x(i.clone()), x(i.clone()), acc.clone());
                Tree::select(i.less(&int(self.d)), square, acc)
            })
        })
    }
}

impl LogSumExpTree {
    fn logit(i: Tree) -> Tree {
        f32("logits", [Tree::coord(0), i])
    }

    /// The tree of m.
    pub fn max(&self) -> Tree {
        reduce(Combiner::Max, Order::Free, self.n, Self::logit)
    }

    /// The tree of s.
    pub fn sum(&self) -> Tree {
        let max = self.max();
        let chunk = |chunk: &Tree| {
            let start = chunk.scaled(Self::CHUNK as i64);
            reduce(Combiner::Add, Order::Neighbours, Self::LANES, |lane| {
                fold(int(Self::CHUNK / Self::LANES), zero(), |round, acc| {
                    let i = start.plus(&round.scaled(Self::LANES as i64)).plus(&lane);
                    let x = mul(sub(Self::logit(i.clone()), max.clone()), Tree::number(LOG2_E));
                    Tree::select(i.less(&int(self.n)), add(acc.clone(), exp2(x)), acc)
                })
            })
        };
        fold(int(self.n.div_ceil(Self::CHUNK)), zero(), |i, sum| {
            let chunk = chunk(&i);
            Tree::select(i.equals(&Tree::int(0)), chunk.clone(), add(sum, chunk))
        })
    }

    /// The tree of row c0: `m + ln(s)`.
    pub fn tree(&self) -> Tree {
        add(self.max(), mul(Tree::op(Op::Log2, [self.sum()]), Tree::number(LN_2)))
    }
}

/// The tree of the argmax of a row c0 of `n` logits; its value is an integer.
pub fn argmax(n: usize) -> Tree {
    let lane = Var::fresh();
    let i = Tree::var(lane);
    let bodies = vec![LogSumExpTree::logit(i.clone()), i];
    Tree::reduce(Combiner::Argmax, Order::Free, n as u64, lane, bodies, 1)
}

/// The stage between the QKV projection and attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkvTree {
    /// Query heads.
    pub q_heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The per-head norm of q and k.
    pub qk_norm: Option<RmsNormTree>,
    /// Which elements rotate together.
    pub pairing: RopePairing,
}

impl QkvTree {
    /// The tree of query (c0, head c1, element c2); the norm's weight is `q_norm`.
    pub fn q(&self) -> Tree {
        round_bf16(self.rotated(0, "q_norm"))
    }

    /// The tree of the stored key (c0, head c1, element c2); the norm's weight is `k_norm`.
    pub fn k(&self) -> Tree {
        Tree::op(Op::FiniteOrZero, [round_bf16(self.rotated(self.q_heads, "k_norm"))])
    }

    /// The tree of the stored value (c0, head c1, element c2).
    pub fn v(&self) -> Tree {
        Tree::op(Op::FiniteOrZero, [self.input(self.q_heads + self.kv_heads, &Tree::coord(2))])
    }

    /// Element `i` of head `first + c1` of the projection.
    fn input(&self, first: usize, i: &Tree) -> Tree {
        let head = Tree::coord(1).plus(&int(first));
        bf16("qkv", [Tree::coord(0), head.scaled(self.head_dim as i64).plus(i)])
    }

    fn rotated(&self, first: usize, norm: &str) -> Tree {
        let x = |i: Tree| self.input(first, &i);
        let element = |i: Tree| match &self.qk_norm {
            Some(tree) => tree.value(&x, bf16(norm, [i.clone()]), i),
            None => x(i),
        };
        let half = int(self.head_dim / 2);
        let c2 = Tree::coord(2);
        let (is_first, pair, first, second) = match self.pairing {
            RopePairing::Half => {
                let pair = Tree::select(c2.less(&half), c2.clone(), c2.minus(&half));
                (c2.less(&half), pair.clone(), pair.clone(), pair.plus(&half))
            }
            RopePairing::Interleaved => {
                let pair = c2.div(&Tree::int(2));
                let first = pair.scaled(2);
                (c2.equals(&first), pair.clone(), first.clone(), first.plus(&Tree::int(1)))
            }
        };
        let (x0, x1) = (element(first), element(second));
        let (cos, sin) = (f32("cos", [Tree::coord(0), pair.clone()]), f32("sin", [Tree::coord(0), pair]));
        let negated = Tree::op(Op::Neg, [mul(x1.clone(), sin.clone())]);
        let y0 = fma(x0.clone(), cos.clone(), negated);
        let y1 = fma(x1, cos, mul(x0, sin));
        Tree::select(is_first, y0, y1)
    }
}

impl AttentionTree {
    /// The tree of output (row c0, query head c1, element c2), where `group` query heads share a key/value head.
    pub fn tree(&self, arithmetic: Arithmetic, group: usize) -> Tree {
        Attention { tree: self, arithmetic, kv_head: Tree::coord(1).div(&int(group)) }.output()
    }
}

struct Attention<'a> {
    tree: &'a AttentionTree,
    arithmetic: Arithmetic,
    kv_head: Tree,
}

/// What a tile makes of a carried value, from the start of the tile, the value, alpha and the new maximum.
type Update<'a> = &'a dyn Fn(&Tree, Tree, Tree, &Tree) -> Tree;

impl Attention<'_> {
    fn position() -> Tree {
        Tree::load("position", "int", [Tree::coord(0)])
    }

    /// The first position that the row sees.
    fn first(&self) -> Tree {
        match self.tree.window {
            None => Tree::int(0),
            Some(window) => Self::position().plus(&Tree::int(1)).minus(&int(window)).max(&Tree::int(0)),
        }
    }

    fn seen(&self, j: &Tree) -> Tree {
        let causal = j.at_most(&Self::position());
        match self.tree.window {
            None => causal,
            Some(_) => Tree::all([causal, self.first().at_most(j)]),
        }
    }

    fn score(&self, j: &Tree) -> Tree {
        chain(self.arithmetic, self.tree.head_dim, zero(), |i| {
            let key = bf16("key", [Tree::coord(0), j.clone(), self.kv_head.clone(), i.clone()]);
            (bf16("q", [Tree::coord(0), Tree::coord(1), i]), key)
        })
    }

    /// The maximum after the tile that starts at `start`.
    fn next_max(&self, start: &Tree, max: &Tree) -> Tree {
        let tile_max = reduce(Combiner::Max, Order::Free, self.tree.kv_tile, |offset| {
            let j = start.plus(&offset);
            Tree::select(self.seen(&j), self.score(&j), Tree::number(f32::NEG_INFINITY))
        });
        Tree::op(Op::Max, [max.clone(), mul(tile_max, Tree::number(self.tree.scale_log2))])
    }

    /// p of position `j` under the maximum of its tile.
    fn weight(&self, j: &Tree, max: &Tree) -> Tree {
        let negated = Tree::op(Op::Neg, [max.clone()]);
        let x = fma(self.score(j), Tree::number(self.tree.scale_log2), negated);
        Tree::select(self.seen(j), exp2(x), zero())
    }

    /// The tiles of a split that the row sees: the first, and how many.
    fn tiles(&self, split: &Tree) -> (Tree, Tree) {
        let (tile, per_split) = (int(self.tree.kv_tile), self.tree.kv_split / self.tree.kv_tile);
        let own = split.scaled(per_split as i64);
        let first = match self.tree.window {
            None => own.clone(),
            Some(_) => own.max(&self.first().div(&tile)),
        };
        let end = own.plus(&int(per_split)).min(&Self::position().div(&tile).plus(&Tree::int(1)));
        let count = end.minus(&first);
        (first, count)
    }

    /// One split from a fresh state: the value that `update` carries beside the maximum; without it, the maximum
    /// itself.
    fn split(&self, split: &Tree, update: Option<Update>) -> Tree {
        let (first, count) = self.tiles(split);
        let (i, max) = (Var::fresh(), Var::fresh());
        let start = first.plus(&Tree::var(i)).scaled(self.tree.kv_tile as i64);
        let old = Tree::var(max);
        let new = self.next_max(&start, &old);
        let mut carried = vec![(max, Tree::number(f32::NEG_INFINITY), new.clone())];
        if let Some(update) = update {
            let value = Var::fresh();
            let alpha = exp2(sub(old, new.clone()));
            let next = update(&start, Tree::var(value), alpha, &new);
            carried.push((value, zero(), next));
        }
        Tree::fold(count, i, &carried, carried.len() - 1)
    }

    /// The denominator of a split.
    fn split_sum(&self, split: &Tree) -> Tree {
        reduce(Combiner::Add, Order::Neighbours, 8, |g| {
            let lane = |start: &Tree, lane: Tree, alpha: Tree, max: &Tree| {
                fold(int(self.tree.kv_tile / 16), mul(lane, alpha), |step, lane| {
                    let j = start.plus(&step.scaled(16)).plus(&g);
                    add(lane, add(self.weight(&j, max), self.weight(&j.plus(&Tree::int(8)), max)))
                })
            };
            self.split(split, Some(&lane))
        })
    }

    /// The weighted values of a split.
    fn split_acc(&self, split: &Tree) -> Tree {
        let acc = |start: &Tree, acc: Tree, alpha: Tree, max: &Tree| {
            chain(self.arithmetic, self.tree.kv_tile, mul(acc, alpha), |offset| {
                let j = start.plus(&offset);
                let value = bf16("value", [Tree::coord(0), j.clone(), self.kv_head.clone(), Tree::coord(2)]);
                (round_bf16(self.weight(&j, max)), Tree::select(self.seen(&j), value, zero()))
            })
        };
        self.split(split, Some(&acc))
    }

    /// The merge of all splits, left to right; `split` gives the value that is merged, or it is the maximum.
    fn total(&self, split: &dyn Fn(&Tree) -> Tree) -> Tree {
        let first = self.first().div(&int(self.tree.kv_split));
        let count = Self::position().div(&int(self.tree.kv_split)).plus(&Tree::int(1)).minus(&first);
        let (i, max, value) = (Var::fresh(), Var::fresh(), Var::fresh());
        let is_first = Tree::var(i).equals(&Tree::int(0));
        let index = first.plus(&Tree::var(i));

        let (old_max, split_max) = (Tree::var(max), self.split(&index, None));
        let merged_max = Tree::op(Op::Max, [old_max.clone(), split_max.clone()]);
        let a = exp2(sub(old_max, merged_max.clone()));
        let b = exp2(sub(split_max.clone(), merged_max.clone()));
        let split_value = split(&index);
        let merged = fma(split_value.clone(), b, mul(Tree::var(value), a));
        let carried = [
            (max, Tree::number(f32::NEG_INFINITY), Tree::select(is_first.clone(), split_max, merged_max)),
            (value, zero(), Tree::select(is_first, split_value, merged)),
        ];
        Tree::fold(count, i, &carried, 1)
    }

    fn output(&self) -> Tree {
        let sum = self.total(&|split| self.split_sum(split));
        let acc = self.total(&|split| self.split_acc(split));
        round_bf16(mul(acc, div(Tree::number(1.0), sum)))
    }
}

//! One tree has one digest however it was built, and what changes bits changes the digest.

use std::collections::HashMap;

use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::*;
use reduction_tree::tree::build::{self, QkvTree};
use reduction_tree::tree::{ChainKind, Combiner, Digest, Op, Order, Tree, Var};

const K: i64 = 768;

fn bf16(arithmetic: Arithmetic) -> ChainKind {
    ChainKind::Bf16(arithmetic)
}

fn x(k: Tree) -> Tree {
    Tree::load("x", "bf16", [Tree::coord(0), k])
}

fn w(k: Tree) -> Tree {
    Tree::load("weight", "bf16", [Tree::coord(1), k])
}

/// One chain.
fn whole(kind: ChainKind, len: i64) -> Tree {
    let k = Var::fresh();
    Tree::chain(kind, Tree::int(len), Tree::number(0.0), k, x(Tree::var(k)), w(Tree::var(k)))
}

/// A loop over tiles of `tile`, as a kernel has it.
fn tiled(kind: ChainKind, trip: Tree, tile: i64) -> Tree {
    let (i, acc, k) = (Var::fresh(), Var::fresh(), Var::fresh());
    let at = Tree::var(i).scaled(tile).plus(&Tree::var(k));
    let body = Tree::chain(kind, Tree::int(tile), Tree::var(acc), k, x(at.clone()), w(at));
    Tree::fold(trip, i, &[(acc, Tree::number(0.0), body)], 0)
}

/// The same written out, with the operands swapped.
fn unrolled(kind: ChainKind, len: i64, tile: i64) -> Tree {
    (0..len / tile).fold(Tree::number(0.0), |acc, i| {
        let k = Var::fresh();
        let at = Tree::int(i * tile).plus(&Tree::var(k));
        Tree::chain(kind.clone(), Tree::int(tile), acc, k, w(at.clone()), x(at))
    })
}

#[test]
fn tiles_of_k_are_one_chain() {
    for arithmetic in Arithmetic::ALL {
        let expected = whole(bf16(arithmetic), K);
        for tile in [16, 32, 64, 128] {
            assert_eq!(tiled(bf16(arithmetic), Tree::int(K / tile), tile).text(), expected.text(), "tile {tile}");
            assert_eq!(unrolled(bf16(arithmetic), K, tile).digest(), expected.digest(), "tile {tile}");
        }
        let linear = LinearTree { n: 8, k: K as usize, k_split: 1, epilogue: Epilogue::None, store: Store::F32 }
            .tree(arithmetic);
        assert_eq!(linear.digest(), expected.digest());
    }
}

#[test]
fn tiles_of_an_unknown_number_are_one_chain() {
    let tiles = |tile: i64| tiled(bf16(Arithmetic::Sm90), Tree::arg("tiles").scaled(128 / tile), tile);
    assert_eq!(tiles(32).digest(), tiles(128).digest());
    assert_eq!(tiles(64).digest(), tiles(128).digest());
}

#[test]
fn a_loop_inside_a_loop_is_joined_too() {
    let (i, j, k) = (Var::fresh(), Var::fresh(), Var::fresh());
    let (outer, inner) = (Var::fresh(), Var::fresh());
    let at = Tree::var(i).scaled(256).plus(&Tree::var(j).scaled(64)).plus(&Tree::var(k));
    let step = Tree::chain(bf16(Arithmetic::Sm90), Tree::int(64), Tree::var(inner), k, x(at.clone()), w(at));
    let four = Tree::fold(Tree::int(4), j, &[(inner, Tree::var(outer), step)], 0);
    let all = Tree::fold(Tree::int(3), i, &[(outer, Tree::number(0.0), four)], 0);
    assert_eq!(all.digest(), whole(bf16(Arithmetic::Sm90), K).digest());
}

#[test]
fn what_is_no_single_chain_stays_apart() {
    let kind = bf16(Arithmetic::Sm90);
    let expected = whole(kind.clone(), K).digest();
    // A tile that ends inside a step.
    assert_ne!(unrolled(kind.clone(), K, 24).digest(), expected);
    assert_ne!(tiled(kind.clone(), Tree::int(K / 24), 24).digest(), expected);
    // A scale after every tile.
    let (i, acc, k) = (Var::fresh(), Var::fresh(), Var::fresh());
    let at = Tree::var(i).scaled(64).plus(&Tree::var(k));
    let body = Tree::chain(kind.clone(), Tree::int(64), Tree::var(acc), k, x(at.clone()), w(at));
    let scaled = Tree::op(Op::Mul, [body, Tree::number(1.5)]);
    assert_ne!(Tree::fold(Tree::int(K / 64), i, &[(acc, Tree::number(0.0), scaled)], 0).digest(), expected);
    // Tiles in another order.
    let (i, acc, k) = (Var::fresh(), Var::fresh(), Var::fresh());
    let at = Tree::int(K - 64).minus(&Tree::var(i).scaled(64)).plus(&Tree::var(k));
    let body = Tree::chain(kind.clone(), Tree::int(64), Tree::var(acc), k, x(at.clone()), w(at));
    assert_ne!(Tree::fold(Tree::int(K / 64), i, &[(acc, Tree::number(0.0), body)], 0).digest(), expected);
    // Tiles that overlap.
    let (i, acc, k) = (Var::fresh(), Var::fresh(), Var::fresh());
    let at = Tree::var(i).scaled(32).plus(&Tree::var(k));
    let body = Tree::chain(kind.clone(), Tree::int(64), Tree::var(acc), k, x(at.clone()), w(at));
    assert_ne!(Tree::fold(Tree::int(K / 64), i, &[(acc, Tree::number(0.0), body)], 0).digest(), expected);
    // Partial sums promoted to f32, and a kind that nothing is known about.
    let named = || ChainKind::Named("tf32".into());
    assert_ne!(tiled(named(), Tree::int(K / 64), 64).digest(), whole(named(), K).digest());
}

/// A factor that reads the accumulator cannot be moved out of the loop.
#[test]
fn a_chain_that_reads_its_accumulator_is_not_joined() {
    let (i, acc, k) = (Var::fresh(), Var::fresh(), Var::fresh());
    let at = Tree::var(i).scaled(64).plus(&Tree::var(k));
    let poisoned = Tree::op(Op::Mul, [x(at.clone()), Tree::var(acc)]);
    let body = Tree::chain(bf16(Arithmetic::Sm90), Tree::int(64), Tree::var(acc), k, poisoned, w(at));
    let tree = Tree::fold(Tree::int(12), i, &[(acc, Tree::number(0.0), body)], 0);
    assert!(tree.text().contains("fold"));
}

#[test]
fn operands_that_commute_have_one_order() {
    let (a, b, c) = (Tree::load("a", "f32", []), Tree::load("b", "f32", []), Tree::load("c", "f32", []));
    for op in [Op::Add, Op::Mul] {
        assert_eq!(
            Tree::op(op.clone(), [a.clone(), b.clone()]).digest(),
            Tree::op(op, [b.clone(), a.clone()]).digest()
        );
    }
    let fma = |x: &Tree, y: &Tree, z: &Tree| Tree::op(Op::Fma, [x.clone(), y.clone(), z.clone()]).digest();
    assert_eq!(fma(&a, &b, &c), fma(&b, &a, &c));
    assert_ne!(fma(&a, &b, &c), fma(&a, &c, &b));
    let op = |op: Op, x: &Tree, y: &Tree| Tree::op(op, [x.clone(), y.clone()]);
    for ordered in [Op::Sub, Op::Div, Op::Max, Op::Named("f".into())] {
        assert_ne!(op(ordered.clone(), &a, &b).digest(), op(ordered, &b, &a).digest());
    }
    // Addition is not associative.
    let left = op(Op::Add, &op(Op::Add, &a, &b), &c);
    let right = op(Op::Add, &a, &op(Op::Add, &b, &c));
    assert_ne!(left.digest(), right.digest());
}

#[test]
fn index_arithmetic_has_one_form() {
    let (i, j) = (Tree::coord(0), Tree::arg("n"));
    let one = Tree::int(1);
    assert_eq!(i.plus(&one).times(&j), j.times(&i).plus(&j));
    assert_eq!(i.plus(&j).minus(&j), i);
    assert_eq!(i.scaled(0), Tree::int(0));
    assert_eq!(i.less(&j), i.plus(&one).at_most(&j));
    assert_eq!(i.equals(&j), j.equals(&i));
    assert_eq!(i.max(&j), j.max(&i));
    assert_eq!(Tree::int(-7).div(&Tree::int(2)), Tree::int(-4));
    assert_eq!(Tree::int(-7).modulo(&Tree::int(2)), Tree::int(1));
    assert_eq!(i.less(&j).not().not(), i.less(&j));
    assert_eq!(Tree::all([i.less(&j), Tree::truth(true), i.less(&j)]), i.less(&j));
    assert_eq!(Tree::any([i.less(&j), Tree::truth(true)]), Tree::truth(true));
    let (a, b) = (x(i.clone()), x(j.clone()));
    assert_eq!(Tree::select(Tree::truth(false), a.clone(), b.clone()), b);
    assert_eq!(Tree::select(i.less(&j), a.clone(), a.clone()), a);
}

/// A loop with two carried values, listed in the given order, with a third that nothing needs.
fn two_sums(swapped: bool) -> Tree {
    let (i, s, t, unused) = (Var::fresh(), Var::fresh(), Var::fresh(), Var::fresh());
    let (vs, vt) = (Tree::var(s), Tree::var(t));
    let sum = (s, Tree::number(0.0), Tree::op(Op::Add, [vs.clone(), Tree::op(Op::Mul, [vt.clone(), x(Tree::var(i))])]));
    let other = (t, Tree::number(1.0), Tree::op(Op::Mul, [vt, w(Tree::var(i))]));
    let idle = (unused, Tree::number(5.0), Tree::op(Op::Add, [Tree::var(unused), vs]));
    if swapped {
        Tree::fold(Tree::int(9), i, &[idle, other, sum], 2)
    } else {
        Tree::fold(Tree::int(9), i, &[sum, other, idle], 0)
    }
}

#[test]
fn carried_values_have_one_order() {
    assert_eq!(two_sums(false).text(), two_sums(true).text());
    assert_eq!(two_sums(false).text().matches("op add").count(), 1, "the idle value is gone");
}

/// Many interdependent slots, listed in two orders; variables are new each time.
#[test]
fn carried_values_that_depend_on_each_other_have_one_order() {
    let build = |order: &[usize]| {
        let vars: Vec<Var> = (0..5).map(|_| Var::fresh()).collect();
        let i = Var::fresh();
        let body = |n: usize| {
            let next = Tree::var(vars[(n + 1) % 5]);
            Tree::op(Op::Add, [next, Tree::op(Op::Mul, [Tree::var(vars[n]), Tree::number(n as f32)])])
        };
        let carried: Vec<_> = order.iter().map(|&n| (vars[n], Tree::number(0.0), body(n))).collect();
        let out = order.iter().position(|&n| n == 2).unwrap();
        Tree::fold(Tree::arg("trip"), i, &carried, out)
    };
    let expected = build(&[0, 1, 2, 3, 4]);
    for order in [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3], [1, 2, 3, 4, 0]] {
        assert_eq!(build(&order).text(), expected.text());
    }
}

/// Two carried values that are one value under two names.
#[test]
fn equal_carried_values_are_merged() {
    let (i, s, t) = (Var::fresh(), Var::fresh(), Var::fresh());
    let step = |acc: Var, other: Var| {
        Tree::op(Op::Fma, [x(Tree::var(i)), Tree::var(other), Tree::op(Op::Neg, [Tree::var(acc)])])
    };
    let carried = [(s, Tree::number(1.0), step(s, t)), (t, Tree::number(1.0), step(t, s))];
    let merged = Tree::fold(Tree::arg("n"), i, &carried, 0);
    let (i, s) = (Var::fresh(), Var::fresh());
    let body = Tree::op(Op::Fma, [x(Tree::var(i)), Tree::var(s), Tree::op(Op::Neg, [Tree::var(s)])]);
    assert_eq!(merged.text(), Tree::fold(Tree::arg("n"), i, &[(s, Tree::number(1.0), body)], 0).text());
}

/// Every tree of a family of parameters, by name.
fn family() -> Vec<(String, Tree)> {
    let mut trees = Vec::new();
    for arithmetic in Arithmetic::ALL {
        for k_split in [1, 2, 3] {
            for epilogue in [Epilogue::None, Epilogue::Bias, Epilogue::Residual, Epilogue::SiluMul] {
                for store in [Store::Bf16, Store::F32] {
                    let tree = LinearTree { n: 64, k: 512, k_split, epilogue, store };
                    trees.push((format!("{arithmetic:?} {tree:?}"), tree.tree(arithmetic)));
                }
            }
        }
        for (kv_split, kv_tile) in [(512, 128), (256, 128), (512, 64)] {
            for (window, scale_log2, head_dim, group) in [
                (None, 0.1, 64, 4),
                (Some(100), 0.1, 64, 4),
                (None, 0.2, 64, 4),
                (None, 0.1, 128, 4),
                (None, 0.1, 64, 2),
            ] {
                let tree = AttentionTree { head_dim, kv_split, kv_tile, scale_log2, window };
                trees.push((format!("{arithmetic:?} {tree:?} {group}"), tree.tree(arithmetic, group)));
            }
        }
    }
    for (d, eps) in [(64, 1e-5), (64, 1e-6), (128, 1e-5)] {
        let tree = RmsNormTree { d, eps };
        trees.push((format!("{tree:?}"), tree.tree()));
    }
    for pairing in [RopePairing::Half, RopePairing::Interleaved] {
        for qk_norm in [None, Some(RmsNormTree { d: 64, eps: 1e-6 })] {
            let tree = QkvTree { q_heads: 4, kv_heads: 2, head_dim: 64, qk_norm, pairing };
            trees.push((format!("q {tree:?}"), tree.q()));
            trees.push((format!("k {tree:?}"), tree.k()));
        }
    }
    trees.push((
        "v".into(),
        QkvTree { q_heads: 4, kv_heads: 2, head_dim: 64, qk_norm: None, pairing: RopePairing::Half }.v(),
    ));
    for n in [1000, 128_256] {
        trees.push((format!("lse {n}"), LogSumExpTree { n }.tree()));
        trees.push((format!("argmax {n}"), build::argmax(n)));
    }
    trees.push(("embed".into(), build::embed()));
    trees.push(("residual".into(), build::residual_add()));
    trees
}

#[test]
fn different_operators_have_different_digests_and_equal_ones_the_same() {
    let mut seen: HashMap<Digest, String> = HashMap::new();
    for (name, tree) in family() {
        assert!(tree.is_closed(), "{name}");
        if let Some(other) = seen.insert(tree.digest(), name.clone()) {
            panic!("{name} and {other} have one digest");
        }
    }
    // Built again, with new variables, every tree has the digest it had.
    for (name, tree) in family() {
        assert_eq!(seen.get(&tree.digest()), Some(&name));
    }
}

/// What the k_split of a plan is never allowed to be: a function of the batch. The digest tells.
#[test]
fn k_split_that_makes_no_difference_makes_no_digest() {
    let tree = |k_split| LinearTree { n: 8, k: 64, k_split, epilogue: Epilogue::None, store: Store::F32 };
    assert_eq!(tree(1).tree(Arithmetic::Sm90).digest(), tree(2).tree(Arithmetic::Sm90).digest());
    let tree = |k_split| LinearTree { k: 128, ..tree(k_split) };
    assert_ne!(tree(1).tree(Arithmetic::Sm90).digest(), tree(2).tree(Arithmetic::Sm90).digest());
}

#[test]
fn names_cannot_imitate_structure() {
    let a = Tree::op(Op::Named("f\" #0".into()), [Tree::number(1.0)]);
    let b = Tree::op(Op::Named("f".into()), [Tree::number(1.0)]);
    assert_ne!(a.text(), b.text());
    assert!(Tree::load("x\n9: coord 1", "bf16", []).text().lines().count() == 2);
}

/// A tree as deep as a program can make it neither overflows the stack nor loses its digest.
#[test]
fn deep_trees_are_no_trouble() {
    let deep = |n: usize| (0..n).fold(x(Tree::int(0)), |t, i| Tree::op(Op::Add, [t, x(Tree::int(i as i64))]));
    let tree = deep(100_000);
    assert_ne!(tree.digest(), deep(99_999).digest());
    let lane = Var::fresh();
    let bound =
        Tree::reduce(Combiner::Add, Order::Neighbours, 2, lane, vec![Tree::op(Op::Add, [tree, x(Tree::var(lane))])], 0);
    assert!(bound.is_closed());
    struct None;
    impl reduction_tree::tree::Leaves for None {
        fn load(&self, _: &str, _: &[i64]) -> Option<reduction_tree::tree::Value> {
            Some(reduction_tree::tree::Value::F32(1.0))
        }
        fn coord(&self, _: u32) -> Option<i64> {
            Some(0)
        }
    }
    assert!(bound.eval(&None).unwrap_err().to_string().contains("nesting"));
}

#[test]
fn snapshots() {
    let linear = LinearTree { n: 8, k: 128, k_split: 2, epilogue: Epilogue::SiluMul, store: Store::Bf16 };
    insta::assert_snapshot!("linear_text", linear.tree(Arithmetic::Sm90).text());
    insta::assert_snapshot!("linear_pretty", linear.tree(Arithmetic::Sm90).pretty());
    let attention = AttentionTree { head_dim: 64, kv_split: 512, kv_tile: 128, scale_log2: 0.180_336_88, window: None };
    insta::assert_snapshot!("attention_pretty", attention.tree(Arithmetic::Sm90, 4).pretty());
    insta::assert_snapshot!("rmsnorm_pretty", RmsNormTree { d: 4096, eps: 1e-5 }.tree().pretty());
    insta::assert_snapshot!("log_sum_exp_pretty", LogSumExpTree { n: 128_256 }.tree().pretty());
}

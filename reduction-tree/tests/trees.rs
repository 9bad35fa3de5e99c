//! The operator evaluators against the generic evaluator of their trees, bit for bit: two definitions that must be one.

mod common;

use common::{Random, bf16s};
use half::{bf16, f16};
use reduction_tree::arithmetic::{Arithmetic, StepInput, chain};
use reduction_tree::evaluate;
use reduction_tree::fp8::{Fp8, wgmma_step_fp8};
use reduction_tree::operator::*;
use reduction_tree::rope;
use reduction_tree::scalar::to_bf16;
use reduction_tree::tree::build::{self, QkvTree};
use reduction_tree::tree::{ChainKind, Leaves, Op, Tree, Value, Var};

/// Operands by role: name, extents, elements (row-major, widened).
#[derive(Default)]
struct Operands {
    arrays: Vec<(&'static str, Vec<usize>, Vec<Value>)>,
    coords: [i64; 3],
}

impl Operands {
    fn bf16(mut self, role: &'static str, extents: &[usize], data: &[bf16]) -> Self {
        self.arrays.push((role, extents.into(), data.iter().map(|x| Value::F32(x.widen())).collect()));
        self
    }

    fn f32(mut self, role: &'static str, extents: &[usize], data: &[f32]) -> Self {
        self.arrays.push((role, extents.into(), data.iter().map(|&x| Value::F32(x)).collect()));
        self
    }

    fn int(mut self, role: &'static str, value: i64) -> Self {
        self.arrays.push((role, vec![1], vec![Value::Int(value)]));
        self
    }

    fn at(&mut self, coords: [usize; 3]) -> &Self {
        self.coords = coords.map(|c| c as i64);
        self
    }
}

impl Leaves for Operands {
    fn load(&self, role: &str, index: &[i64]) -> Option<Value> {
        let (_, extents, data) = self.arrays.iter().find(|(name, ..)| *name == role)?;
        assert_eq!(extents.len(), index.len(), "{role}");
        let flat = extents.iter().zip(index).try_fold(0, |flat, (&extent, &i)| {
            let i = usize::try_from(i).ok().filter(|&i| i < extent)?;
            Some(flat * extent + i)
        })?;
        data.get(flat).copied()
    }

    fn coord(&self, n: u32) -> Option<i64> {
        self.coords.get(n as usize).copied()
    }
}

fn bits(tree: &Tree, operands: &Operands) -> u32 {
    tree.eval_f32(operands).unwrap().to_bits()
}

/// The bits of a bfloat16 as the generic evaluator holds them.
fn stored(x: bf16) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.widen().to_bits() }
}

/// Inputs from tame to extreme: normal variates, wide exponents, and all finite bfloat16 values.
fn inputs(random: &mut Random, kind: usize, n: usize) -> Vec<bf16> {
    match kind {
        0 => bf16s(random.normals(n)),
        1 => (0..n).map(|_| random.spread(8)).collect(),
        2 => (0..n).map(|_| random.spread(60)).collect(),
        _ => (0..n).map(|_| random.wide()).collect(),
    }
}

#[test]
fn linear() {
    let mut random = Random::new(1);
    for arithmetic in Arithmetic::ALL {
        for epilogue in [Epilogue::None, Epilogue::Bias, Epilogue::Residual, Epilogue::SiluMul] {
            for (k, k_split) in [(16, 1), (40, 1), (200, 1), (200, 2), (200, 3), (64, 2), (1, 1)] {
                for kind in 0..4 {
                    let n = 4;
                    let tree = LinearTree { n, k, k_split, epilogue, store: Store::Bf16 };
                    let (x, w) = (inputs(&mut random, kind, k), inputs(&mut random, kind, n * k));
                    let (bias, residual) = (inputs(&mut random, kind, n), inputs(&mut random, kind, n));
                    let expected = evaluate::linear_bf16(arithmetic, &tree, &x, &w, &bias, &residual);
                    let mut operands = Operands::default()
                        .bf16("x", &[1, k], &x)
                        .bf16("weight", &[n, k], &w)
                        .bf16("bias", &[n], &bias)
                        .bf16("residual", &[1, n], &residual);
                    let generic = tree.tree(arithmetic);
                    assert!(generic.is_closed());
                    for (i, x) in expected.iter().enumerate() {
                        assert_eq!(bits(&generic, operands.at([0, i, 0])), stored(*x), "{tree:?} {arithmetic:?} [{i}]");
                    }
                }
            }
        }
    }
}

#[test]
fn rmsnorm() {
    let mut random = Random::new(2);
    for d in [8, 20, 128, 576, 2048, 2060, 4100] {
        for kind in 0..4 {
            let tree = RmsNormTree { d, eps: 1e-5 };
            let (x, weight) = (inputs(&mut random, kind, d), inputs(&mut random, kind, d));
            let expected = evaluate::rmsnorm(&tree, &x, &weight);
            let mut operands = Operands::default().bf16("x", &[1, d], &x).bf16("weight", &[d], &weight);
            let generic = tree.tree();
            for i in [0, d / 2, d - 1] {
                assert_eq!(bits(&generic, operands.at([0, i, 0])), stored(expected[i]), "d {d} kind {kind} [{i}]");
            }
        }
    }
}

#[test]
fn log_sum_exp_and_argmax() {
    let mut random = Random::new(3);
    for n in [1, 7, 1024, 1500, 16384, 17000] {
        for special in [false, true] {
            let mut logits: Vec<f32> = random.normals(n).map(|x| (4.0 * x) as f32).collect();
            if special {
                for x in [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0] {
                    logits[random.below(n)] = x;
                }
            }
            let tree = LogSumExpTree { n };
            let lse = evaluate::log_sum_exp(&tree, &logits);
            let mut operands = Operands::default().f32("logits", &[1, n], &logits);
            let operands = operands.at([0, 0, 0]);
            assert_eq!(bits(&tree.max(), operands), lse.max.to_bits(), "max of {n}");
            assert_eq!(bits(&tree.sum(), operands), lse.sum.to_bits(), "sum of {n}");
            assert_eq!(bits(&tree.tree(), operands), lse.value().to_bits(), "value of {n}");
            let argmax = build::argmax(n).eval(operands).unwrap();
            assert_eq!(argmax, Value::Int(evaluate::argmax(&logits) as i64));
        }
    }
}

#[test]
fn copies_and_residuals() {
    let mut random = Random::new(4);
    let (a, b) = (inputs(&mut random, 3, 64), inputs(&mut random, 3, 64));
    let expected = evaluate::residual_add(&a, &b);
    let mut operands = Operands::default()
        .bf16("x", &[1, 64], &a)
        .bf16("residual", &[1, 64], &b)
        .bf16("table", &[4, 16], &a)
        .int("token", 2);
    for (i, x) in expected.iter().enumerate() {
        assert_eq!(bits(&build::residual_add(), operands.at([0, i, 0])), stored(*x));
    }
    for i in 0..16 {
        assert_eq!(bits(&build::embed(), operands.at([0, i, 0])), stored(evaluate::embed(&a, 16, 2)[i]));
    }
}

#[test]
fn qkv() {
    let mut random = Random::new(5);
    let d = 16;
    let (cos, sin) = rope::tables(8, &rope::inverse_frequencies(10_000.0, d));
    let (cos, sin) = (&cos[7 * d / 2..], &sin[7 * d / 2..]);
    for pairing in [RopePairing::Half, RopePairing::Interleaved] {
        for qk_norm in [None, Some(RmsNormTree { d, eps: 1e-6 })] {
            for kind in 0..4 {
                let mut row = inputs(&mut random, kind, 5 * d);
                if kind == 1 {
                    row[4 * d - 1] = bf16::INFINITY;
                    row[5 * d - 1] = bf16::NAN;
                }
                let (q_norm, k_norm) = (inputs(&mut random, 0, d), inputs(&mut random, 0, d));
                let params = evaluate::Qkv {
                    q_heads: 3,
                    kv_heads: 1,
                    head_dim: d,
                    qk_norm: qk_norm.map(|tree| (&q_norm[..], &k_norm[..], tree)),
                    pairing,
                };
                let expected = evaluate::qkv(&params, &row, cos, sin);
                let tree = QkvTree { q_heads: 3, kv_heads: 1, head_dim: d, qk_norm, pairing };
                let mut operands = Operands::default()
                    .bf16("qkv", &[1, 5 * d], &row)
                    .bf16("q_norm", &[d], &q_norm)
                    .bf16("k_norm", &[d], &k_norm)
                    .f32("cos", &[1, d / 2], cos)
                    .f32("sin", &[1, d / 2], sin);
                for (i, x) in expected.q.iter().enumerate() {
                    assert_eq!(bits(&tree.q(), operands.at([0, i / d, i % d])), stored(*x), "q {i} {tree:?}");
                }
                for (i, (k, v)) in expected.k.iter().zip(&expected.v).enumerate() {
                    assert_eq!(bits(&tree.k(), operands.at([0, 0, i])), stored(*k), "k {i} {tree:?}");
                    assert_eq!(bits(&tree.v(), operands.at([0, 0, i])), stored(*v), "v {i} {tree:?}");
                }
            }
        }
    }
}

#[test]
fn attention() {
    let mut random = Random::new(6);
    let (d, kv_heads, group) = (16, 2, 2);
    for arithmetic in Arithmetic::ALL {
        for window in [None, Some(1), Some(20), Some(40)] {
            let tree = AttentionTree { head_dim: d, kv_split: 64, kv_tile: 32, scale_log2: 0.3, window };
            let generic = tree.tree(arithmetic, group);
            assert!(generic.is_closed());
            for (position, kind) in [(0, 0), (31, 1), (32, 3), (63, 0), (64, 1), (70, 2), (130, 0), (130, 3)] {
                let cells = position + 1;
                let q = inputs(&mut random, kind, 2 * group * d);
                let keys = inputs(&mut random, kind, cells * kv_heads * d);
                let values = inputs(&mut random, kind, cells * kv_heads * d);
                let head = random.below(2 * group);
                let of_head = |cells: &[bf16]| -> Vec<bf16> {
                    cells.chunks(d).skip(head / group).step_by(kv_heads).flatten().copied().collect()
                };
                let q_head = &q[head * d..(head + 1) * d];
                let expected =
                    evaluate::attention(arithmetic, &tree, q_head, position, &of_head(&keys), &of_head(&values));
                let mut operands = Operands::default()
                    .bf16("q", &[1, 2 * group, d], &q)
                    .bf16("key", &[1, cells, kv_heads, d], &keys)
                    .bf16("value", &[1, cells, kv_heads, d], &values)
                    .int("position", position as i64);
                for i in [0, d - 1] {
                    let got = bits(&generic, operands.at([0, head, i]));
                    assert_eq!(got, stored(expected[i]), "{arithmetic:?} {window:?} position {position} kind {kind}");
                }
            }
        }
    }
}

/// The pieces of a softmax that are trees of their own.
#[test]
fn silu_mul() {
    let mut random = Random::new(7);
    for _ in 0..200 {
        let (g, u) = (random.wide().to_f32(), random.wide().to_f32());
        let tree = build::silu(Tree::load("g", "f32", []));
        let mut operands = Operands::default().f32("g", &[], &[g]);
        let got = tree.eval_f32(operands.at([0; 3])).unwrap();
        assert_eq!(got.to_bits(), reduction_tree::scalar::silu(g).to_bits());
        assert_eq!(to_bf16(got * u).to_bits(), to_bf16(reduction_tree::scalar::silu(g) * u).to_bits());
    }
}

/// A dot product of `tile`-long chains that hand their accumulator on, as the evaluator sees it.
fn tiled_dot(kind: ChainKind, k: usize, tile: usize) -> Tree {
    let (i, acc, j) = (Var::fresh(), Var::fresh(), Var::fresh());
    let at = Tree::var(i).scaled(tile as i64).plus(&Tree::var(j));
    let (x, w) = (Tree::load("x", "bf16", [at.clone()]), Tree::load("weight", "bf16", [at]));
    let body = Tree::chain(kind, Tree::int(tile as i64), Tree::var(acc), j, x, w);
    Tree::fold(Tree::int((k / tile) as i64), i, &[(acc, Tree::number(0.0), body)], 0)
}

/// Joining chains is a claim about bits: tiles of whole steps are one chain, others are not.
#[test]
fn joined_chains_have_the_bits_of_their_parts() {
    let mut random = Random::new(8);
    let k = 768;
    let mut different = 0;
    for arithmetic in Arithmetic::ALL {
        for _ in 0..20 {
            let (x, w) = (inputs(&mut random, 1, k), inputs(&mut random, 1, k));
            let mut operands = Operands::default().bf16("x", &[k], &x).bf16("weight", &[k], &w);
            let operands = operands.at([0; 3]);
            let whole = chain(arithmetic, 0.0, &x, &w).to_bits();
            for tile in [16, 32, 64, 128] {
                // Here the parts are run one by one, without any tree.
                let parts = x.chunks(tile).zip(w.chunks(tile)).fold(0.0, |acc, (x, w)| chain(arithmetic, acc, x, w));
                assert_eq!(parts.to_bits(), whole);
                assert_eq!(bits(&tiled_dot(ChainKind::Bf16(arithmetic), k, tile), operands), whole);
            }
            let parts = x.chunks(24).zip(w.chunks(24)).fold(0.0, |acc, (x, w)| chain(arithmetic, acc, x, w));
            assert_eq!(bits(&tiled_dot(ChainKind::Bf16(arithmetic), k, 24), operands), parts.to_bits());
            different += usize::from(parts.to_bits() != whole);
        }
    }
    assert!(different > 10, "tiles that cut steps must show: {different}");
}

/// A negative length counts as none: it must not shorten the chain before it.
#[test]
fn an_empty_tail_leaves_the_chain_as_it_is() {
    let mut random = Random::new(11);
    let (x, w) = (inputs(&mut random, 0, 64), inputs(&mut random, 0, 64));
    let part = |len: Tree, start: i64, init: Tree| {
        let k = Var::fresh();
        let at = Tree::var(k).plus(&Tree::int(start));
        let (x, w) = (Tree::load("x", "bf16", [at.clone()]), Tree::load("weight", "bf16", [at]));
        Tree::chain(ChainKind::Bf16(Arithmetic::Sm90), len, init, k, x, w)
    };
    let tail = Tree::load("tail", "int", [Tree::int(0)]);
    let tree = part(tail, 32, part(Tree::int(32), 0, Tree::number(0.0)));
    for tail in [-40, -1, 0, 1, 32] {
        let mut operands = Operands::default().bf16("x", &[64], &x).bf16("weight", &[64], &w).int("tail", tail);
        let len = 32 + tail.max(0) as usize;
        let expected = chain(Arithmetic::Sm90, 0.0, &x[..len], &w[..len]);
        assert_eq!(bits(&tree, operands.at([0; 3])), expected.to_bits(), "tail {tail}");
    }
}

#[test]
fn fp8_and_f16_chains() {
    let mut random = Random::new(9);
    let k = 96;
    for _ in 0..20 {
        let bytes = |random: &mut Random| -> Vec<u8> { (0..k).map(|_| random.next() as u8 & 0xbf).collect() };
        let (x, w) = (bytes(&mut random), bytes(&mut random));
        let wide = |x: &[u8]| -> Vec<f32> { x.iter().map(|&b| Fp8::E4m3.widen(b)).collect() };
        let mut operands = Operands::default().f32("x", &[k], &wide(&x)).f32("weight", &[k], &wide(&w));
        let operands = operands.at([0; 3]);
        let step = |acc: f32, i: usize| {
            let part = |x: &[u8]| -> [u8; 32] { x[32 * i..32 * (i + 1)].try_into().unwrap() };
            wgmma_step_fp8(Fp8::E4m3, Fp8::E4m3, acc, &part(&x), &part(&w))
        };
        let inside = (0..3).fold(0.0, step);
        assert_eq!(bits(&tiled_dot(ChainKind::Fp8(Fp8::E4m3, Fp8::E4m3), k, 32), operands), inside.to_bits());
        let promoted = (0..3).fold(0.0, |acc, i| acc + step(0.0, i));
        assert_eq!(bits(&tiled_dot(ChainKind::Fp8Promoted(Fp8::E4m3, Fp8::E4m3), k, 32), operands), promoted.to_bits());

        let half = |x: &[u8]| -> Vec<f16> { wide(x).into_iter().map(f16::from_f32).collect() };
        let expected = chain(Arithmetic::Sm90, 0.0, &half(&x), &half(&w));
        assert_eq!(bits(&tiled_dot(ChainKind::F16(Arithmetic::Sm90), k, 32), operands), expected.to_bits());
    }
}

/// What the canonical order of carried values does to a loop is nothing: the values stay those of the loop as written.
#[test]
fn carried_values_keep_their_meaning() {
    let mut random = Random::new(10);
    let n = 7;
    for rotation in 0..3 {
        let x = inputs(&mut random, 1, n);
        let mut operands = Operands::default().bf16("x", &[n], &x);
        let vars: Vec<Var> = (0..3).map(|_| Var::fresh()).collect();
        let i = Var::fresh();
        let load = Tree::load("x", "bf16", [Tree::var(i)]);
        let [a, b, c] = [0, 1, 2].map(|v| Tree::var(vars[v]));
        let mut carried = [
            (vars[0], Tree::number(1.0), Tree::op(Op::Fma, [b.clone(), load.clone(), c.clone()])),
            (vars[1], Tree::number(0.5), Tree::op(Op::Sub, [a.clone(), b])),
            (vars[2], Tree::number(1.0), Tree::op(Op::Add, [Tree::op(Op::Neg, [a]), Tree::op(Op::Mul, [c, load])])),
        ];
        carried.rotate_left(rotation);
        let out = carried.iter().position(|slot| slot.0 == vars[0]).unwrap();
        let tree = Tree::fold(Tree::int(n as i64), i, &carried, out);
        let step = |(a, b, c): (f32, f32, f32), x: &bf16| (b.mul_add(x.widen(), c), a - b, -a + c * x.widen());
        let (expected, ..) = x.iter().fold((1.0, 0.5, 1.0), step);
        assert!(expected.is_finite() && expected != 0.0);
        assert_eq!(bits(&tree, operands.at([0; 3])), expected.to_bits());
    }
}

/// What has no value says why.
#[test]
fn errors_name_what_was_expected() {
    let mut operands = Operands::default().f32("x", &[2], &[1.0, 0.3]);
    let operands = operands.at([0; 3]);
    let error = |tree: Tree| tree.eval(operands).unwrap_err().to_string();
    assert_eq!(error(Tree::load("x", "f32", [Tree::int(2)])), "x[2]: expected an element, got none");
    assert_eq!(error(Tree::arg("n")), "argument n: expected a value, got none");
    assert_eq!(error(Tree::opaque("asm", [])), "asm: expected a meaning, got something opaque");
    assert_eq!(error(Tree::coord(0).div(&Tree::int(0))), "div: expected a divisor that is not 0, got 0");
    assert!(error(Tree::op(Op::Add, [Tree::int(1), Tree::number(1.0)])).contains("expected a number"));
    assert!(error(Tree::op(Op::Named("tanh".into()), [Tree::number(1.0)])).contains("one with an evaluation"));
    assert!(error(Tree::var(Var::fresh())).contains("a closed tree"));
    let k = Var::fresh();
    let x = Tree::load("x", "f32", [Tree::var(k)]);
    let chain = Tree::chain(ChainKind::Bf16(Arithmetic::Sm90), Tree::int(2), Tree::number(0.0), k, x.clone(), x);
    assert!(error(chain).contains("a value of the chain's type"), "0.3 is no bfloat16");
}

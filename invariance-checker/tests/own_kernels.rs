//! Our own kernels: labels tested in the interpreter, and the positives compared bit for bit with the evaluators of
//! `reduction-tree`, which define what they should compute.

mod support;

use half::bf16;
use invariance_checker::interp::{Arg, Buffer, Launch, Memory, Options, ReduceOrder, run};
use invariance_checker::ir::{Float, Module, Scalar};
use invariance_checker::parse::parse;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::evaluate::{Qkv, argmax, attention, linear_bf16, log_sum_exp, qkv, residual_add, rmsnorm};
use reduction_tree::operator::{AttentionTree, Epilogue, LinearTree, LogSumExpTree, RmsNormTree, RopePairing, Store};
use reduction_tree::scalar::{silu, to_bf16};
use std::path::{Path, PathBuf};
use support::{Outcome, Rng, Search, read_index, search};

const BF16: Scalar = Scalar::Float(Float::Bf16);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

fn kernel(name: &str) -> Module {
    parse(&std::fs::read(folder().join(format!("{name}.ttir"))).expect("readable")).expect("parses")
}

#[test]
fn labels_hold_in_the_interpreter() {
    let mut wrong = Vec::new();
    for case in read_index(&folder()).iter().filter(|c| c.spec.is_given()) {
        let module = kernel(case.file.trim_end_matches(".ttir"));
        match (
            case.verdict.as_str(),
            search(&module, &case.spec, Search { trials: 16, same_row: false, special: true, stored_only: false }),
        ) {
            ("NOT", Outcome::Differ(_)) => {}
            ("INV", Outcome::Same(n)) if n >= 12 => {}
            (label, outcome) => wrong.push(format!("{}: {label}, but {outcome:?}", case.file)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Numbers of either sign, none special.
fn numbers(rng: &mut Rng, len: usize) -> Vec<bf16> {
    (0..len).map(|_| bf16::from_f64(rng.between(-1 << 20, 1 << 20) as f64 / f64::from(1 << 19))).collect()
}

fn put(memory: &mut Memory, values: &[bf16]) -> Buffer {
    memory.add_bits(BF16, &values.iter().map(|v| u64::from(v.to_bits())).collect::<Vec<_>>())
}

fn go(name: &str, grid: [u32; 3], args: Vec<Arg>, memory: &mut Memory, arithmetic: Arithmetic) {
    let options = Options { arithmetic, undefined: 0x7fc0_7fc0, ..Options::default() };
    run(&kernel(name), &Launch { grid, args }, memory, &options).unwrap_or_else(|trap| panic!("{name}: {trap}"));
}

/// The first element that differs.
fn same(name: &str, memory: &Memory, buffer: Buffer, want: &[bf16]) {
    let got = memory.bits(buffer);
    for (i, want) in want.iter().enumerate() {
        assert_eq!(
            got[i],
            u64::from(want.to_bits()),
            "{name}, element {i}: {} against {want}",
            bf16::from_bits(got[i] as u16)
        );
    }
}

#[test]
fn norms_are_the_defined_tree() {
    let mut rng = Rng::new(1);
    for d in [64usize, 2048, 2500, 4096] {
        let [a, b, w] = [3 * d, 3 * d, d].map(|n| numbers(&mut rng, n));
        let tree = RmsNormTree { d, eps: 1e-5 };
        let mut memory = Memory::new();
        let [pa, pb, pw] = [&a, &b, &w].map(|v| put(&mut memory, v));
        let [ph, py, pz] = [(); 3].map(|()| memory.zeros(BF16, 3 * d));
        let tail = [Arg::Int(d as i64), Arg::Float(1e-5)];
        let args = [[pa, pw, py].map(Arg::Ptr).to_vec(), tail.to_vec()].concat();
        go("rmsnorm", [3, 1, 1], args, &mut memory, Arithmetic::Sm90);
        let args = [[pa, pb, pw, ph, pz].map(Arg::Ptr).to_vec(), tail.to_vec()].concat();
        go("residual_rmsnorm", [3, 1, 1], args, &mut memory, Arithmetic::Sm90);
        let sums = residual_add(&a, &b);
        let norm = |x: &[bf16]| x.chunks(d).flat_map(|row| rmsnorm(&tree, row, &w)).collect::<Vec<_>>();
        same("rmsnorm", &memory, py, &norm(&a));
        same("residual", &memory, ph, &sums);
        same("residual_rmsnorm", &memory, pz, &norm(&sums));
    }
}

#[test]
fn every_linear_variant_is_the_tree_of_its_chunks() {
    let mut rng = Rng::new(2);
    let (m, n, k) = (5usize, 32, 160);
    let [x, w] = [m * k, n * k].map(|len| numbers(&mut rng, len));
    for arithmetic in Arithmetic::ALL {
        for (name, k_split, grid) in [
            ("linear_m16_k1", 1, [1, 1, 1]),
            ("linear_m64_k1", 1, [1, 1, 1]),
            ("linear_m128_k1", 1, [1, 1, 1]),
            ("linear_persistent", 1, [4, 1, 1]),
            ("linear_m16_k2", 2, [1, 1, 1]),
            ("linear_m64_k2", 2, [1, 1, 1]),
            ("linear_split_part", 2, [1, 1, 2]),
        ] {
            let mut memory = Memory::new();
            let (px, pw) = (put(&mut memory, &x), put(&mut memory, &w));
            let (py, part) = (memory.zeros(BF16, m * n), memory.zeros(Scalar::F32, m * n * 2));
            let split = name == "linear_split_part";
            let sizes = [m, n, k].map(|v| Arg::Int(v as i64));
            let out = if split { part } else { py };
            let args = [[px, pw, out].map(Arg::Ptr).to_vec(), sizes.to_vec()].concat();
            go(name, grid, args, &mut memory, arithmetic);
            if split {
                let args = vec![Arg::Ptr(part), Arg::Ptr(py), Arg::Int(n as i64)];
                go("linear_split_sum", [m as u32, 1, 1], args, &mut memory, arithmetic);
            }
            let tree = LinearTree { n, k, k_split, epilogue: Epilogue::None, store: Store::Bf16 };
            let want: Vec<bf16> =
                x.chunks(k).flat_map(|row| linear_bf16(arithmetic, &tree, row, &w, &[], &[])).collect();
            same(name, &memory, py, &want);
        }
    }
}

#[test]
fn elementwise_and_row_operators() {
    let mut rng = Rng::new(3);
    let d = 300;
    let x = numbers(&mut rng, 2 * 2 * d);
    let mut memory = Memory::new();
    let (px, py) = (put(&mut memory, &x), memory.zeros(BF16, 2 * d));
    let args = vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Int(d as i64)];
    go("silu_mul", [2, 2, 1], args, &mut memory, Arithmetic::Sm90);
    let gate = |row: &[bf16]| {
        let (g, u) = row.split_at(d);
        g.iter().zip(u).map(|(g, u)| to_bf16(silu(g.to_f32()) * u.to_f32())).collect::<Vec<_>>()
    };
    same("silu_mul", &memory, py, &x.chunks(2 * d).flat_map(gate).collect::<Vec<_>>());

    let n = 900;
    let logits: Vec<f32> = (0..n).map(|i| (i * 37 % 101) as f32 / 3.0).collect();
    let wide: Vec<f64> = logits.iter().map(|v| f64::from(*v)).collect();
    let mut memory = Memory::new();
    let (px, pi) = (memory.add_floats(Scalar::F32, &wide), memory.zeros(Scalar::I32, 1));
    let (pm, ps) = (memory.zeros(Scalar::F32, 1), memory.zeros(Scalar::F32, 1));
    go("argmax", [1, 1, 1], vec![Arg::Ptr(px), Arg::Ptr(pi), Arg::Int(n)], &mut memory, Arithmetic::Sm90);
    assert_eq!(memory.ints(pi), [argmax(&logits) as i64]);
    let args = vec![Arg::Ptr(px), Arg::Ptr(pm), Arg::Ptr(ps), Arg::Int(n)];
    go("logsumexp", [1, 1, 1], args, &mut memory, Arithmetic::Sm90);
    let want = log_sum_exp(&LogSumExpTree { n: n as usize }, &logits);
    assert_eq!(memory.floats(pm), [f64::from(want.max)]);
    // The order of the 1024 lanes is the compiler's, so only the value is compared.
    assert!((memory.floats(ps)[0] / f64::from(want.sum) - 1.0).abs() < 1e-6);
}

#[test]
fn rope_and_the_cache_write() {
    let mut rng = Rng::new(4);
    let (heads, kv_heads, head_dim, tokens) = (4usize, 2, 32, 3);
    let width = (heads + 2 * kv_heads) * head_dim;
    let mut x = numbers(&mut rng, tokens * width);
    x[heads * head_dim + 3] = bf16::INFINITY;
    x[width + (heads + kv_heads) * head_dim] = bf16::NAN;
    let angles: Vec<f32> = (0..32 * 16).map(|i| (i as f32 * 0.37).cos()).collect();
    let sines: Vec<f32> = (0..32 * 16).map(|i| (i as f32 * 0.37).sin()).collect();
    let (positions, slots) = ([4i64, 31, 0], [2i64, 0, 5]);
    let mut memory = Memory::new();
    let px = put(&mut memory, &x);
    let (pp, pslot) = (memory.add_ints(Scalar::I32, &positions), memory.add_ints(Scalar::I32, &slots));
    let float = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let pc = memory.add_floats(Scalar::F32, &float(&angles));
    let ps = memory.add_floats(Scalar::F32, &float(&sines));
    let [pq, pk, pv] = [tokens * heads, 6 * kv_heads, 6 * kv_heads].map(|n| memory.zeros(BF16, n * head_dim));
    let args = [px, pp, pc, ps, pq].map(Arg::Ptr).to_vec();
    go("rope_query", [3, heads as u32, 1], args, &mut memory, Arithmetic::Sm90);
    let args = [px, pp, pslot, pc, ps, pk, pv].map(Arg::Ptr).to_vec();
    go("rope_key_write", [3, kv_heads as u32, 1], args, &mut memory, Arithmetic::Sm90);
    let params = Qkv { q_heads: heads, kv_heads, head_dim, qk_norm: None, pairing: RopePairing::Half };
    let [q, k, v] =
        [pq, pk, pv].map(|b| memory.bits(b).into_iter().map(|b| bf16::from_bits(b as u16)).collect::<Vec<_>>());
    for (t, row) in x.chunks(width).enumerate() {
        let p = positions[t] as usize * head_dim / 2;
        let want = qkv(&params, row, &angles[p..][..head_dim / 2], &sines[p..][..head_dim / 2]);
        let bits = |v: &[bf16]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let cell = |c: &[bf16]| bits(&c[slots[t] as usize * kv_heads * head_dim..][..kv_heads * head_dim]);
        assert_eq!(bits(&q[t * heads * head_dim..][..heads * head_dim]), bits(&want.q), "query {t}");
        assert_eq!(cell(&k), bits(&want.k), "key {t}");
        assert_eq!(cell(&v), bits(&want.v), "value {t}");
    }
}

/// A paged cache of one sequence, and the same cells in order of position.
struct Cache {
    table: Vec<i64>,
    paged: [Vec<bf16>; 2],
    /// Keys and values of each KV head by position.
    flat: [Vec<Vec<bf16>>; 2],
}

const TREE: AttentionTree = AttentionTree { head_dim: 32, kv_split: 32, kv_tile: 16, scale_log2: 0.25, window: None };
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const PAGE: usize = 8;
const PAGES: usize = 12;

fn cache(rng: &mut Rng) -> Cache {
    let hd = TREE.head_dim;
    let table: Vec<i64> = (0..PAGES as i64).map(|i| (i * 5 + 3) % 16).collect();
    let flat = [(); 2].map(|()| (0..KV_HEADS).map(|_| numbers(rng, PAGE * PAGES * hd)).collect::<Vec<_>>());
    let mut paged = [(); 2].map(|()| numbers(rng, 16 * PAGE * KV_HEADS * hd));
    for (pool, heads) in paged.iter_mut().zip(&flat) {
        for p in 0..PAGE * PAGES {
            let cell = (table[p / PAGE] as usize * PAGE + p % PAGE) * KV_HEADS;
            for (h, head) in heads.iter().enumerate() {
                pool[(cell + h) * hd..][..hd].copy_from_slice(&head[p * hd..][..hd]);
            }
        }
    }
    Cache { table, paged, flat }
}

/// Output of every head of one row by definition.
fn defined(arithmetic: Arithmetic, q: &[bf16], position: usize, cache: &Cache) -> Vec<bf16> {
    let head = |(h, q): (usize, &[bf16])| {
        let kv = h / (HEADS / KV_HEADS);
        attention(arithmetic, &TREE, q, position, &cache.flat[0][kv], &cache.flat[1][kv])
    };
    q.chunks(TREE.head_dim).enumerate().flat_map(head).collect()
}

#[test]
fn decode_and_prefill_are_one_tree() {
    let mut rng = Rng::new(5);
    let hd = TREE.head_dim;
    for arithmetic in [Arithmetic::Sm90, Arithmetic::Ieee] {
        let cache = cache(&mut rng);
        let rows = 70;
        let first = 20;
        let q = numbers(&mut rng, rows * HEADS * hd);
        let want: Vec<bf16> =
            q.chunks(HEADS * hd).enumerate().flat_map(|(r, q)| defined(arithmetic, q, first + r, &cache)).collect();

        // Prefill: all rows as one sequence.
        let mut memory = Memory::new();
        let [pq, pk, pv] = [&q, &cache.paged[0], &cache.paged[1]].map(|v| put(&mut memory, v));
        let table = memory.add_ints(Scalar::I32, &cache.table);
        let (cu, start) =
            (memory.add_ints(Scalar::I32, &[0, rows as i64]), memory.add_ints(Scalar::I32, &[first as i64]));
        let py = memory.zeros(BF16, rows * HEADS * hd);
        let args = [[pq, pk, pv, table, cu, start, py].map(Arg::Ptr).to_vec(), vec![Arg::Float(0.25)]].concat();
        go("attention_prefill", [1, rows.div_ceil(16) as u32, HEADS as u32], args, &mut memory, arithmetic);
        same("attention_prefill", &memory, py, &want);

        // Decode: every fifth row by itself, all in one batch.
        let picked: Vec<usize> = (0..rows).step_by(5).collect();
        let mut memory = Memory::new();
        let pick =
            |v: &[bf16]| picked.iter().flat_map(|r| v[r * HEADS * hd..][..HEADS * hd].to_vec()).collect::<Vec<_>>();
        let pq = put(&mut memory, &pick(&q));
        let [pk, pv] = [&cache.paged[0], &cache.paged[1]].map(|v| put(&mut memory, v));
        let table = memory.add_ints(Scalar::I32, &vec![cache.table.clone(); picked.len()].concat());
        let positions: Vec<i64> = picked.iter().map(|r| (first + r) as i64).collect();
        let pos = memory.add_ints(Scalar::I32, &positions);
        let cells = picked.len() * HEADS * 3;
        let [om, ol, oa] = [cells, cells, cells * hd].map(|n| memory.zeros(Scalar::F32, n));
        let py = memory.zeros(BF16, picked.len() * HEADS * hd);
        let args = [[pq, pk, pv, table, pos, om, ol, oa].map(Arg::Ptr).to_vec(), vec![Arg::Float(0.25)]].concat();
        go("attention_decode", [picked.len() as u32, KV_HEADS as u32, 3], args, &mut memory, arithmetic);
        let args = [om, ol, oa, pos, py].map(Arg::Ptr).to_vec();
        go("attention_merge", [picked.len() as u32, HEADS as u32, 1], args, &mut memory, arithmetic);
        same("attention_decode", &memory, py, &pick(&want));
    }
}

#[test]
fn the_tiles_of_a_prefill_show_when_they_move() {
    let mut rng = Rng::new(6);
    let hd = TREE.head_dim;
    let cache = cache(&mut rng);
    let q = numbers(&mut rng, 40 * HEADS * hd);
    let result = |longest: i64| {
        let mut memory = Memory::new();
        let [pq, pk, pv] = [&q, &cache.paged[0], &cache.paged[1]].map(|v| put(&mut memory, v));
        let table = memory.add_ints(Scalar::I32, &cache.table);
        let (cu, start) = (memory.add_ints(Scalar::I32, &[0, 40]), memory.add_ints(Scalar::I32, &[0]));
        let py = memory.zeros(BF16, 40 * HEADS * hd);
        let tail = vec![Arg::Float(0.25), Arg::Int(longest)];
        let args = [[pq, pk, pv, table, cu, start, py].map(Arg::Ptr).to_vec(), tail].concat();
        go("attention_prefill_tiles_from_longest", [1, 3, HEADS as u32], args, &mut memory, Arithmetic::Sm90);
        memory.bits(py)
    };
    assert_eq!(result(48), result(64));
    assert_ne!(result(48), result(49));
}

#[test]
fn order_free_reductions_do_not_see_the_order() {
    let values: Vec<f64> = (0..900).map(|i| f64::from(i * 37 % 101)).collect();
    let run_with = |reduce| {
        let mut memory = Memory::new();
        let (px, py) = (memory.add_floats(Scalar::F32, &values), memory.zeros(Scalar::I32, 1));
        let launch = Launch { grid: [1, 1, 1], args: vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Int(900)] };
        run(&kernel("argmax"), &launch, &mut memory, &Options { reduce, ..Options::default() }).expect("runs");
        memory.bits(py)
    };
    assert_eq!(run_with(ReduceOrder::Halves), run_with(ReduceOrder::Left));
}

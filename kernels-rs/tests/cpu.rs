//! The CPU backend against the evaluator, by bits: every instruction set of this machine, every arithmetic, 1 to 8 threads.

mod common;

use common::{Outcome, attention};
use kernels_rs::cpu::{Cpu, Simd};
use reduction_tree::arithmetic::Arithmetic;

/// Runs a body on every instruction set and arithmetic; the number of threads goes round with the seed.
fn everywhere(seeds: std::ops::Range<u64>, body: impl Fn(&Cpu, u64) -> Outcome) {
    for simd in Simd::available() {
        for arithmetic in Arithmetic::ALL {
            for threads in 1..=8 {
                let cpu = Cpu::with_simd(arithmetic, threads, simd).expect("threads");
                for seed in seeds.clone().filter(|seed| seed % 8 + 1 == threads as u64) {
                    body(&cpu, seed).unwrap_or_else(|e| panic!("{threads} threads: {e}"));
                }
            }
        }
    }
}

#[test]
fn linear() {
    everywhere(0..64, common::linear::linear);
}

#[test]
fn another_tree_is_caught() {
    everywhere(0..1, |cpu, _| common::linear::another_tree_is_caught(cpu));
}

#[test]
fn embed() {
    everywhere(0..16, common::linear::embed);
}

#[test]
fn random_weight() {
    everywhere(0..16, common::linear::random_weight);
}

#[test]
fn rmsnorm() {
    everywhere(0..32, common::rows::rmsnorm);
}

#[test]
fn add_rmsnorm() {
    everywhere(0..32, common::rows::add_rmsnorm);
}

#[test]
fn gather_wanted() {
    everywhere(0..16, common::rows::gather_wanted);
}

#[test]
fn sample() {
    everywhere(0..64, common::rows::sample);
}

#[test]
fn qkv_and_attention() {
    everywhere(0..16, |cpu, seed| attention::attention(cpu, &attention::ANY, seed));
}

#[test]
fn qkv_and_attention_of_plans() {
    everywhere(0..8, |cpu, seed| attention::attention(cpu, &attention::PLANS, seed));
}

#[test]
fn masked_values_count_as_positive_zero() {
    everywhere(0..4, |cpu, seed| attention::negative_zero(cpu, &[16, 32], seed));
}

#[test]
fn refusals() {
    everywhere(0..1, |cpu, _| common::refusals::of_matrices(cpu));
    everywhere(0..1, |cpu, _| common::refusals::of_attention(cpu));
}

/// The same inputs under every instruction set and thread count give one result; the evaluator is not asked, so the case can
/// be large enough for several row blocks, tiles and chunks to a worker.
#[test]
fn one_result_for_all_levels_and_thread_counts() {
    use common::data::{Kind, Random};
    use kernels_rs::backend::Backend;
    use reduction_tree::operator::{Epilogue, LinearTree, Store};
    let (n, k, rows) = (1000, 1100, 200);
    let tree = LinearTree { n, k, k_split: 2, epilogue: Epilogue::SiluMul, store: Store::F32 };
    let random = &mut Random(7);
    let (weight, x) = (Kind::Model.vector(random, n * k), Kind::Model.vector(random, rows * k));
    for arithmetic in Arithmetic::ALL {
        let mut first: Option<Vec<u32>> = None;
        for simd in Simd::available().into_iter().filter(|simd| simd.name() != "portable") {
            for threads in [1, 2, 3, 5, 8] {
                let cpu = Cpu::with_simd(arithmetic, threads, simd).expect("threads");
                let packed = cpu.linear_weight(tree, &weight, None).expect("shapes");
                let mut out = cpu.alloc(rows * n / 2).expect("memory");
                cpu.linear_f32(&packed, rows, &cpu.upload(&x).expect("memory"), &mut out).expect("shapes");
                let bits = cpu.download(&out, rows * n / 2).expect("length").into_iter().map(f32::to_bits).collect();
                assert_eq!(*first.get_or_insert_with(|| Vec::clone(&bits)), bits, "{arithmetic:?} {simd:?} {threads}");
            }
        }
    }
}

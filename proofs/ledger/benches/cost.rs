//! What the ledger costs a step: decoding 256 requests at context 4,096 (plan, check, and the commit of 256 tokens),
//! prefilling, and a prefix-cache hit. Budgets: 15 µs a decode step, 50 ns a prefilled token. Times are of this thread's
//! processor, so that a busy machine does not count.

#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use cpu_time::ThreadTime;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ledger::{Ledger, Op, admit, aligned, commit, create, finish, readmit, step};

const PAGE: usize = 16;
const REQUESTS: usize = 256;
const CONTEXT: usize = 4096;
/// Decode steps before the contexts are made anew, so that they stay near `CONTEXT`.
const STEPS_MAX: usize = 256;
const PAGES_EACH: usize = (CONTEXT + STEPS_MAX) / PAGE + 1;

/// A prompt of its own for each request, so that no page is shared.
fn prompt(r: usize) -> Vec<u32> {
    (0..CONTEXT).map(|i| (i * 7 + r) as u32).collect()
}

/// The page that holds the request's pages number `k`.
fn page(r: usize, k: usize) -> u32 {
    (r * PAGES_EACH + k) as u32
}

fn prefill_ops(r: usize) -> Vec<Op> {
    (0..CONTEXT / PAGE).flat_map(|k| [Op::Grow(r, page(r, k)), Op::Fill(r, PAGE)]).collect()
}

fn prefilled() -> Ledger {
    let mut l = create(PAGE, REQUESTS * PAGES_EACH);
    for r in 0..REQUESTS {
        admit(&mut l, &prompt(r));
        assert!(step(&mut l, &mut Vec::new(), &prefill_ops(r)));
        assert!(commit(&mut l, r, CONTEXT, 1));
    }
    l
}

/// One decode step of every request, planned, checked and committed.
fn decode(l: &mut Ledger, rows: &mut Vec<ledger::Launch>, ops: &mut Vec<Op>) {
    rows.clear();
    ops.clear();
    for r in 0..REQUESTS {
        if aligned(l, r) {
            ops.push(Op::Grow(r, page(r, l.reqs()[r].table.len())));
        }
        ops.push(Op::Fill(r, 1));
    }
    assert!(step(l, rows, ops));
    for r in 0..REQUESTS {
        let n = l.reqs()[r].sure;
        assert!(commit(l, r, n, 2));
    }
}

fn cost(c: &mut Criterion) {
    let mut group = c.benchmark_group("ledger");
    group.sample_size(20);
    group.bench_function("decode step, 256 requests at context 4096", |b| {
        b.iter_custom(|iterations| {
            let (mut spent, mut rows, mut ops) = (Duration::ZERO, Vec::new(), Vec::new());
            let mut left = iterations as usize;
            while left > 0 {
                let mut l = prefilled();
                let now = left.min(STEPS_MAX);
                let start = ThreadTime::now();
                for _ in 0..now {
                    decode(&mut l, &mut rows, &mut ops);
                }
                spent += start.elapsed();
                left -= now;
            }
            spent
        });
    });

    group.throughput(Throughput::Elements(CONTEXT as u64));
    let tokens = prompt(0);
    group.bench_function("prefill of 4096 tokens", |b| {
        let mut l = create(PAGE, PAGES_EACH);
        let ops = prefill_ops(0);
        admit(&mut l, &tokens);
        let mut rows = Vec::new();
        b.iter_custom(|iterations| {
            let start = ThreadTime::now();
            for _ in 0..iterations {
                assert!(finish(&mut l, 0) && readmit(&mut l, 0, &tokens));
                rows.clear();
                assert!(step(&mut l, &mut rows, black_box(&ops)));
            }
            start.elapsed()
        });
    });
    group.bench_function("prefix hit of 4096 tokens", |b| {
        let mut l = create(PAGE, PAGES_EACH);
        admit(&mut l, &tokens);
        assert!(step(&mut l, &mut Vec::new(), &prefill_ops(0)));
        let longer: Vec<u32> = tokens.iter().copied().chain([1]).collect();
        let r = admit(&mut l, &longer);
        let ops: Vec<Op> = (0..CONTEXT / PAGE).map(|k| Op::Attach(r, page(0, k))).collect();
        b.iter_custom(|iterations| {
            let start = ThreadTime::now();
            for _ in 0..iterations {
                assert!(finish(&mut l, r) && readmit(&mut l, r, &longer));
                assert!(step(&mut l, &mut Vec::new(), black_box(&ops)));
            }
            start.elapsed()
        });
    });
    group.finish();
}

criterion_group!(benches, cost);
criterion_main!(benches);

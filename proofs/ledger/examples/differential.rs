//! Runs of the ledger for the oracle of `proofs/differential`: one line a call, with what the ledger answered.
//!
//! `differential random N` makes N random sequences, `differential exhaustive` every sequence of a small alphabet. The
//! oracle knows the slot-level specification and judges each answer; a panic here is a failure too.

use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};

use ledger::{
    Ledger, Op, admit, aligned, commit, create, draft, finish, kv_len, readmit, reset, step, truncate, unpin,
};

/// A call that can be made again: a ledger cannot be copied, so a trial runs on a replayed one.
#[derive(Clone)]
enum Call {
    Admit(Vec<u32>),
    Readmit(usize, Vec<u32>),
    Step(Vec<Op>),
    /// Entry, how far from the next certain position, token.
    Commit(usize, usize, u32),
    Draft(usize, u32),
    /// Entry, how many guesses stay, plus one: 0 asks for too much.
    Truncate(usize, usize),
    Unpin(usize),
    Finish(usize),
}

fn join<T: std::fmt::Display>(v: &[T]) -> String {
    v.iter().map(|x| x.to_string()).collect::<Vec<_>>().join(" ")
}

/// Make the call, and write its line. After a refused step everything is forgotten, as the engine must.
fn make(l: &mut Ledger, call: &Call, out: &mut String) {
    let mut said = |text: String| writeln!(out, "{text}").expect("a String takes any text");
    match call {
        Call::Admit(p) => {
            let r = admit(l, p);
            said(format!("admit {r} {}", join(p)));
        }
        Call::Readmit(r, p) => {
            let ok = readmit(l, *r, p);
            said(format!("readmit {} {r} {}", ok as u8, join(p)));
        }
        Call::Commit(r, beyond, t) => {
            let n = l.reqs().get(*r).map_or(0, |req| req.sure) + beyond;
            let ok = commit(l, *r, n, *t);
            said(format!("commit {} {r} {n} {t}", ok as u8));
        }
        Call::Draft(r, t) => {
            let ok = draft(l, *r, *t);
            said(format!("draft {} {r} {t}", ok as u8));
        }
        Call::Truncate(r, stay) => {
            let n = (l.reqs().get(*r).map_or(1, |req| req.sure) + stay).saturating_sub(1);
            let ok = truncate(l, *r, n);
            said(format!("truncate {} {r} {n}", ok as u8));
        }
        Call::Unpin(r) => {
            let ok = unpin(l, *r);
            said(format!("unpin {} {r}", ok as u8));
        }
        Call::Finish(r) => {
            let ok = finish(l, *r);
            said(format!("finish {} {r}", ok as u8));
        }
        Call::Step(ops) => {
            let mut rows = Vec::new();
            let ok = step(l, &mut rows, ops);
            if !ok {
                rows.clear();
            }
            said(format!("step {} {} {}", ok as u8, ops.len(), rows.len()));
            for op in ops {
                said(match op {
                    Op::Attach(r, p) => format!("a {r} {p}"),
                    Op::Grow(r, p) => format!("g {r} {p}"),
                    Op::Fill(r, n) => format!("f {r} {n}"),
                    Op::Adopt(p, q) => format!("d {p} {q}"),
                });
            }
            for g in &rows {
                said(format!("{} {} {} {} {}", g.req, g.pos, g.tok, g.slot, g.sample as u8));
            }
            if ok {
                said(format!("state {}", l.next_cid()));
            } else {
                reset(l);
                // the refused step may have used up chain ids; only their freshness matters
                said(format!("reset {}", l.next_cid()));
            }
        }
    }
}

/// A whole sequence on a new ledger.
fn sequence(psize: usize, npages: usize, calls: &[Call], out: &mut String) {
    let mut l = create(psize, npages);
    writeln!(out, "new {psize} {npages}").expect("a String takes any text");
    for call in calls {
        make(&mut l, call, out);
    }
}

fn replay(psize: usize, npages: usize, calls: &[Call]) -> Ledger {
    let mut l = create(psize, npages);
    for call in calls {
        make(&mut l, call, &mut String::new());
    }
    l
}

struct Random(u64);

impl Random {
    /// A number below `n`, by xorshift.
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % n as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Prompts share prefixes, and differ late.
    fn prompt(&mut self) -> Vec<u32> {
        (0..1 + self.below(7)).map(|i| if i < 4 && self.chance(90) { i as u32 } else { self.below(2) as u32 }).collect()
    }
}

/// Operations that look acceptable one by one, some of them not.
fn plan(s: &mut Random, l: &mut Ledger, npages: usize) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..1 + s.below(4) {
        for _ in 0..6 {
            let beyond = usize::from(s.chance(2));
            let r = s.below(l.reqs().len() + beyond);
            let p = s.below(npages + beyond) as u32;
            let known = r < l.reqs().len() && l.reqs()[r].live;
            let op = if known && aligned(l, r) {
                if s.chance(50) { Op::Attach(r, p) } else { Op::Grow(r, p) }
            } else if s.chance(15) {
                Op::Adopt(p, s.below(npages) as u32)
            } else {
                Op::Fill(r, 1 + s.below(l.page_size()))
            };
            // try it alone; a refused operation by itself changes nothing that matters before the next try
            let before = (l.next_cid(), known.then(|| kv_len(l, r)));
            let ok = step(l, &mut Vec::new(), std::slice::from_ref(&op));
            let unchanged = (l.next_cid(), known.then(|| kv_len(l, r))) == before;
            if ok || s.chance(1) {
                ops.push(op);
            }
            if ok || !unchanged {
                break;
            }
        }
    }
    ops
}

fn random(count: usize, out: &mut impl std::io::Write) -> std::io::Result<()> {
    let mut s = Random(88172645463325252);
    for _ in 0..count {
        let (psize, npages) = (1 + s.below(3), 2 + s.below(5));
        let mut calls = vec![Call::Admit(s.prompt()), Call::Admit(s.prompt())];
        for _ in 0..4 + s.below(10) {
            let mut l = replay(psize, npages, &calls);
            let n = l.reqs().len();
            let r = s.below(n);
            let due: Vec<usize> = (0..n).filter(|&r| l.reqs()[r].live && kv_len(&l, r) >= l.reqs()[r].sure).collect();
            let call = match s.below(24) {
                0 => Call::Admit(s.prompt()),
                1 => Call::Readmit(r, s.prompt()),
                2 => Call::Finish(r),
                3 => Call::Unpin(r),
                4 => Call::Commit(r, s.below(2), s.below(3) as u32),
                5..=8 if !due.is_empty() => {
                    let r = due[s.below(due.len())];
                    let guess = l.reqs()[r].toks.get(l.reqs()[r].sure).copied();
                    Call::Commit(r, 0, guess.filter(|_| s.chance(60)).unwrap_or(s.below(3) as u32))
                }
                9 | 10 => {
                    let at = l.reqs()[r].toks.len();
                    let mut guess =
                        |at: usize| Call::Draft(r, if at < 4 && s.chance(80) { at as u32 } else { s.below(2) as u32 });
                    calls.extend([guess(at), guess(at + 1)]);
                    guess(at + 2)
                }
                11 | 12 => Call::Truncate(r, s.below(3 + l.reqs()[r].toks.len() - l.reqs()[r].sure)),
                _ => Call::Step(plan(&mut s, &mut l, npages)),
            };
            calls.push(call);
        }
        let mut text = String::new();
        sequence(psize, npages, &calls, &mut text);
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Every sequence of four calls from an alphabet, after a beginning.
fn every_four(psize: usize, beginning: &[Call], calls: &[Call], text: &mut String) {
    for mut code in 0..calls.len().pow(4) {
        let mut all = beginning.to_vec();
        for _ in 0..4 {
            all.push(calls[code % calls.len()].clone());
            code /= calls.len();
        }
        sequence(psize, 2, &all, text);
    }
}

/// Guesses that are computed, shared, accepted and dropped: every sequence of four calls that concern them.
fn exhaustive_guesses(out: &mut impl std::io::Write) -> std::io::Result<()> {
    let step = |ops: &[Op]| Call::Step(ops.to_vec());
    let calls = [
        step(&[Op::Attach(1, 0)]),
        step(&[Op::Attach(1, 1)]),
        step(&[Op::Grow(0, 1)]),
        step(&[Op::Grow(1, 1)]),
        step(&[Op::Fill(0, 1)]),
        step(&[Op::Fill(1, 1)]),
        Call::Commit(0, 0, 1),
        Call::Commit(0, 0, 2),
        Call::Draft(0, 1),
        Call::Draft(0, 2),
        Call::Truncate(0, 1),
        Call::Truncate(0, 2),
        Call::Truncate(0, 3),
        Call::Truncate(1, 1),
        Call::Unpin(0),
        Call::Finish(1),
    ];
    let begin = |a: &[u32], b: &[u32], more: &[Call]| {
        let mut all = vec![Call::Admit(a.to_vec()), Call::Admit(b.to_vec())];
        all.extend_from_slice(more);
        all
    };
    let first = step(&[Op::Grow(0, 0), Op::Fill(0, 1)]);
    let beginnings = [
        // a guess that is not computed yet, in a page with room
        (2, begin(&[1], &[1, 1, 1], &[first.clone(), Call::Draft(0, 1)])),
        // the page that a guess filled is held by another request too
        (2, begin(&[1], &[1, 1, 1], &[first.clone(), Call::Draft(0, 1), step(&[Op::Fill(0, 1), Op::Attach(1, 0)])])),
        // pages of one token, two guesses
        (
            1,
            begin(
                &[1],
                &[1, 1],
                &[first, Call::Draft(0, 1), Call::Draft(0, 1), step(&[Op::Grow(0, 1), Op::Fill(0, 1)])],
            ),
        ),
        // a page with two guesses, one computed
        (3, begin(&[1], &[1, 1, 2], &[Call::Draft(0, 1), Call::Draft(0, 2), step(&[Op::Grow(0, 0), Op::Fill(0, 2)])])),
    ];
    for (psize, beginning) in &beginnings {
        let mut text = String::new();
        every_four(*psize, beginning, &calls, &mut text);
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Every sequence of four calls from the alphabet, after some beginnings that make interesting states.
fn exhaustive(out: &mut impl std::io::Write) -> std::io::Result<()> {
    let requests = [0usize, 1];
    let pages = [0u32, 1];
    let mut ops: Vec<Op> = Vec::new();
    for r in requests {
        ops.extend(pages.map(|p| Op::Attach(r, p)));
        ops.extend(pages.map(|p| Op::Grow(r, p)));
        ops.push(Op::Fill(r, 1));
    }
    ops.extend([Op::Adopt(0, 1), Op::Adopt(1, 0)]);
    let mut calls: Vec<Call> = ops.iter().map(|o| Call::Step(vec![o.clone()])).collect();
    for r in requests {
        calls.extend([Call::Commit(r, 0, 1), Call::Unpin(r), Call::Finish(r), Call::Readmit(r, vec![1])]);
    }
    let two = |a: &[u32], b: &[u32]| vec![Call::Admit(a.to_vec()), Call::Admit(b.to_vec())];
    let filled = |psize: usize, a: &[u32], b: &[u32]| {
        let mut c = two(a, b);
        c.push(Call::Step(vec![Op::Grow(0, 0), Op::Fill(0, psize)]));
        c
    };
    let beginnings = [
        (1, two(&[1, 1], &[1, 1])),
        (2, two(&[1, 2], &[1, 2])),
        (1, filled(1, &[1, 1], &[1, 2])),
        (2, filled(2, &[1, 2, 1], &[1, 2])),
        (2, filled(2, &[1, 2, 1], &[1, 1])),
    ];
    let mut text = String::new();
    for (psize, beginning) in &beginnings {
        every_four(*psize, beginning, &calls, &mut text);
        // every step of four operations
        for mut code in 0..ops.len().pow(4) {
            let mut plan = Vec::new();
            for _ in 0..4 {
                plan.push(ops[code % ops.len()].clone());
                code /= ops.len();
            }
            let mut all = beginning.clone();
            all.push(Call::Step(plan));
            sequence(*psize, 2, &all, &mut text);
        }
        out.write_all(text.as_bytes())?;
        text.clear();
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = BufWriter::new(std::io::stdout().lock());
    match args[..] {
        ["random", n] if n.parse::<usize>().is_ok() => random(n.parse().unwrap_or(0), &mut out)?,
        ["exhaustive"] => {
            exhaustive(&mut out)?;
            exhaustive_guesses(&mut out)?;
        }
        _ => {
            eprintln!("expected: differential random N, or: differential exhaustive");
            std::process::exit(2);
        }
    }
    out.flush()
}

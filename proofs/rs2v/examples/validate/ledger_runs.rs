//! Random calls of the ledger, each as an equation: arguments and state before, result and state after.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ledger::{
    Launch, Ledger, Op, Watch, admit, commit, create, draft, finish, readmit, reset, serve, step, truncate, unpin,
};

use crate::numbers;

/// A call that can be made again: a ledger cannot be copied, so a trial runs on a replayed one.
#[derive(Clone)]
enum Call {
    Admit(Vec<u32>),
    Readmit(usize, Vec<u32>),
    Step(Vec<Op>),
    Commit(usize, usize, u32),
    Draft(usize, u32),
    Truncate(usize, usize),
    Serve(Watch, u64, usize, Vec<usize>, Vec<Op>),
    Unpin(usize),
    Finish(usize),
    Reset,
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
}

fn show(l: &Ledger) -> String {
    let pages: Vec<String> =
        l.pages().iter().map(|p| format!("mkPage {} {} {} {}", p.parent, p.cid, p.pins, numbers(&p.toks))).collect();
    let reqs: Vec<String> = l
        .reqs()
        .iter()
        .map(|r| format!("mkReq {} {} {} {}", r.live, r.sure, numbers(&r.toks), numbers(&r.table)))
        .collect();
    format!("(mkLedger {} {} [{}] [{}])", l.page_size(), l.next_cid(), pages.join("; "), reqs.join("; "))
}

fn show_rows(rows: &[Launch]) -> String {
    let one = |g: &Launch| format!("mkLaunch {} {} {} {} {}", g.req, g.pos, g.tok, g.slot, g.sample);
    format!("[{}]", rows.iter().map(one).collect::<Vec<_>>().join("; "))
}

fn show_watch(w: &Watch) -> String {
    format!("(mkWatch {} {})", w.age, w.alone)
}

fn show_op(o: &Op) -> String {
    match o {
        Op::Attach(a, b) => format!("Op_Attach {a} {b}"),
        Op::Grow(a, b) => format!("Op_Grow {a} {b}"),
        Op::Fill(a, b) => format!("Op_Fill {a} {b}"),
        Op::Adopt(a, b) => format!("Op_Adopt {a} {b}"),
    }
}

/// What a call gives back beside the ledger: the rows of a step, and its result as Coq writes it.
fn make(l: &mut Ledger, call: &Call) -> (Vec<Launch>, Option<String>) {
    let mut rows = Vec::new();
    let result = match call {
        Call::Admit(p) => Some(admit(l, p).to_string()),
        Call::Readmit(r, p) => Some(readmit(l, *r, p).to_string()),
        Call::Step(ops) => Some(step(l, &mut rows, ops).to_string()),
        Call::Commit(r, n, t) => Some(commit(l, *r, *n, *t).to_string()),
        Call::Draft(r, t) => Some(draft(l, *r, *t).to_string()),
        Call::Truncate(r, n) => Some(truncate(l, *r, *n).to_string()),
        Call::Serve(watch, age, r, preempt, ops) => {
            let mut watch = watch.clone();
            let done = serve(l, &mut rows, &mut watch, *age, *r, preempt, ops);
            Some(format!("{}, {done}", show_watch(&watch)))
        }
        Call::Unpin(r) => Some(unpin(l, *r).to_string()),
        Call::Finish(r) => Some(finish(l, *r).to_string()),
        Call::Reset => {
            reset(l);
            None
        }
    };
    (rows, result)
}

/// Make the call; the left side of its equation, and the right side.
fn equation(l: &mut Ledger, call: &Call) -> (String, String) {
    let before = show(l);
    let left = match call {
        Call::Admit(p) => format!("admit {before} {}", numbers(p)),
        Call::Readmit(r, p) => format!("readmit {before} {r} {}", numbers(p)),
        Call::Step(ops) => format!("step {before} [] [{}]", ops.iter().map(show_op).collect::<Vec<_>>().join("; ")),
        Call::Commit(r, n, t) => format!("commit {before} {r} {n} {t}"),
        Call::Draft(r, t) => format!("draft {before} {r} {t}"),
        Call::Truncate(r, n) => format!("truncate {before} {r} {n}"),
        Call::Serve(watch, age, r, preempt, ops) => {
            let ops = ops.iter().map(show_op).collect::<Vec<_>>().join("; ");
            format!("serve {before} [] {} {age} {r} {} [{ops}]", show_watch(watch), numbers(preempt))
        }
        Call::Unpin(r) => format!("unpin {before} {r}"),
        Call::Finish(r) => format!("finish {before} {r}"),
        Call::Reset => format!("reset {before}"),
    };
    let run = AssertUnwindSafe(|| {
        let (rows, result) = make(l, call);
        let rows =
            if let Call::Step(_) | Call::Serve(..) = call { format!(", {}", show_rows(&rows)) } else { String::new() };
        match result {
            Some(x) => format!("Some ({}{rows}, {x})", show(l)),
            None => format!("Some {}", show(l)),
        }
    });
    (left, catch_unwind(run).unwrap_or("None".into()))
}

fn replay(psize: usize, npages: usize, log: &[Call]) -> Ledger {
    let mut l = create(psize, npages);
    for call in log {
        make(&mut l, call);
    }
    l
}

/// A step most of whose operations are chosen to be acceptable.
fn plan(s: &mut Random, psize: usize, npages: usize, log: &[Call], reqs: usize) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..1 + s.below(5) {
        for _ in 0..40 {
            let r = s.below(reqs.max(1));
            let p = s.below(npages + 1) as u32;
            let op = match s.below(10) {
                0..=3 => Op::Attach(r, p),
                4 => Op::Grow(r, p),
                5 => Op::Adopt(p, s.below(npages) as u32),
                _ => Op::Fill(r, 1 + s.below(3)),
            };
            ops.push(op);
            let mut trial = replay(psize, npages, log);
            if step(&mut trial, &mut Vec::new(), &ops) || s.below(200) == 0 {
                break;
            }
            ops.pop();
        }
    }
    ops
}

fn prompt(s: &mut Random) -> Vec<u32> {
    (0..1 + s.below(8)).map(|i| if i < 6 { i as u32 } else { s.below(2) as u32 }).collect()
}

/// The equations, and a line that says what they cover.
pub fn equations() -> (String, String) {
    let mut out = String::from(
        "From Coq Require Import List.\nImport ListNotations.\nFrom Sametree Require Import Prims LedgerTypes LedgerFns.\n",
    );
    let mut s = Random(88172645463325252);
    let (mut count, mut accepted, mut refused, mut hits) = (0, 0, 0, 0);
    for _ in 0..60 {
        let (psize, npages) = (1 + s.below(3), 7);
        let mut l = create(psize, npages);
        out += &format!("Goal create {psize} {npages} = Some {}.\nProof. vm_compute. reflexivity. Qed.\n", show(&l));
        let mut log: Vec<Call> = Vec::new();
        for _ in 0..14 {
            let reqs = l.reqs().len() + usize::from(s.below(12) == 0);
            let r = s.below(reqs.max(1));
            let call = match s.below(15) {
                0 | 1 => Call::Admit(prompt(&mut s)),
                2 => Call::Readmit(r, prompt(&mut s)),
                3 => {
                    let sure = l.reqs().get(r).map_or(0, |req| req.sure);
                    Call::Commit(r, sure + usize::from(s.below(8) == 0), s.below(3) as u32)
                }
                7 => Call::Draft(r, s.below(3) as u32),
                8 => {
                    let sure = l.reqs().get(r).map_or(0, |req| req.sure);
                    Call::Truncate(r, sure + s.below(3))
                }
                9 => {
                    let watch = Watch { age: s.below(2) as u64, alone: s.below(3) == 0 };
                    let preempt = (0..s.below(3)).map(|_| s.below(reqs + 1)).collect();
                    let ops = if s.below(4) == 0 { Vec::new() } else { plan(&mut s, psize, npages, &log, reqs) };
                    Call::Serve(watch, s.below(2) as u64, r, preempt, ops)
                }
                4 => Call::Finish(r),
                5 => Call::Unpin(r),
                6 if s.below(3) == 0 => Call::Reset,
                _ => Call::Step(plan(&mut s, psize, npages, &log, reqs)),
            };
            let (left, right) = equation(&mut l, &call);
            out += &format!("Goal {left} = {right}.\nProof. vm_compute. reflexivity. Qed.\n");
            count += 1;
            let ok = right.ends_with("true)");
            if let Call::Step(ops) = &call {
                accepted += usize::from(ok);
                refused += usize::from(!ok);
                hits += usize::from(ok && ops.iter().any(|o| matches!(o, Op::Attach(..))));
            }
            log.push(call);
        }
    }
    (out, format!("{count} ledger calls: {accepted} accepted steps ({hits} with a prefix hit), {refused} refused"))
}

//! The mutation gate: wherever two launches of a mutant store different bits for one logical row, the checker must not have
//! called it invariant.

mod support;

use invariance_checker::analysis::measure::{Holds, Numbers, holds};
use invariance_checker::analysis::{Analysis, Condition};
use invariance_checker::check::inspect;
use invariance_checker::eval::Evaluator;
use invariance_checker::ir::{Block, Module, Op, OpKind};
use invariance_checker::parse::parse;
use invariance_checker::term::{Node, Sort, TermId};
use invariance_checker::{Options, Report, Verdict, check};
use std::path::Path;
use std::time::Duration;
use support::mutate::{Mutant, mutants};
use support::{Case, Finding, Outcome, Search, footprint, races, read_index_file, search};

/// Kernels to start from, with their launches.
fn bases() -> Vec<(Case, Module)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = Vec::new();
    for (index, folder) in [
        ("tests/adversarial/index.tsv", "tests/adversarial"),
        ("tests/atomics/index.tsv", "tests/atomics"),
        ("kernels/index.tsv", "kernels"),
        ("tests/corpus_launches.tsv", "tests/corpus/v390"),
    ] {
        for case in read_index_file(&root.join(index)) {
            if case.verdict == "INV" && case.spec.is_given() {
                let text = std::fs::read(root.join(folder).join(&case.file)).expect("readable");
                let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e}", case.file));
                out.push((case, module));
            }
        }
    }
    out
}

/// What became of the mutants.
#[derive(Debug, Default)]
struct Tally {
    mutants: usize,
    /// Two launches differ.
    differ: usize,
    /// A constant was changed that lays out the rows.
    moved: usize,
    /// Called invariant, but two programs write one element, in a kernel without atomics: no rows to speak of.
    raced: usize,
    /// Neither launch ran to its end: nothing can be said.
    never_ran: usize,
    /// The checker called it invariant, in a way that covers the launches tried.
    invariant: usize,
    /// The launches differ, and a condition that the checker named is false of them.
    under_false: usize,
    /// The launches differ, and whether every named condition is true of them is not known.
    under_open: Vec<String>,
    /// Called invariant, yet two launches differ.
    wrong: Vec<String>,
}

/// True if the report claims that these launches agree: invariant; nothing in S that differs between them; no condition that
/// the kernel it was made from does not have; every axis of the grid that has programs is read, as the report assumes.
fn claims(case: &Case, base: &Report, report: &Report, mutant: &Mutant) -> bool {
    report.verdict == Verdict::Invariant
        && covers(case, report, mutant)
        && report.conditions.iter().all(|c| base.conditions.iter().any(|b| b.text == c.text))
}

/// True if the report, its conditions aside, speaks of these launches.
fn covers(case: &Case, report: &Report, mutant: &Mutant) -> bool {
    let bare = |name: &str| name.trim_end_matches("[]").to_owned();
    let varying = case.spec.varying();
    report.given.iter().all(|g| !varying.contains(&bare(g).as_str()))
        && case.spec.wide_axes().into_iter().all(|axis| reads_axis(&mutant.module, axis))
}

/// Conditions against two launches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Standing {
    /// Every one is true: then the launches must not differ.
    True,
    /// One at least is false of a launch.
    False,
    /// The kernel's rows are not the rows that were compared.
    OtherRows,
    /// Not known.
    Open,
}

/// Holds every condition that the checker names against the launches that differ.
fn conditions(case: &Case, module: &Module, finding: &Finding) -> (Standing, Vec<String>) {
    let launches = [0, 1].map(|side| case.spec.numbers(finding.batches[side], side));
    inspect(module, &options(case), |e, a| {
        let list = weigh(case, e, a, &launches);
        let other_rows = a.sites.iter().flat_map(|j| &j.strides).any(|((base, _), stride)| {
            let own = argument(e, *base).and_then(|i| case.spec.row_of(i));
            own.is_some_and(|(own, _)| launches.iter().any(|n| number(e, *stride, n).is_some_and(|s| s != own)))
        });
        let any = |h| list.iter().any(|(_, x)| *x == h);
        let standing = match (other_rows, any(Holds::No), any(Holds::Open)) {
            (true, ..) => Standing::OtherRows,
            (_, true, _) => Standing::False,
            (_, _, true) => Standing::Open,
            _ => Standing::True,
        };
        let show = |c: &Condition| c.text(&|t| e.arena.show(t, &|i| format!("arg{i}")));
        (standing, list.iter().map(|(c, h)| format!("{}: {h:?}", show(c))).collect())
    })
    .expect("analysed before")
}

/// Outputs of a row, where both launches agree on its strides.
fn size(e: &Evaluator<'_>, outputs: i128, stride: &[TermId], launches: &[Numbers; 2]) -> Option<i128> {
    let of = |n: &Numbers| {
        stride.iter().try_fold(outputs, |size, &t| match e.arena.node(t) {
            Node::Arg(i) => n.ints.get(i).map(|&v| size * i128::from(v)),
            _ => None,
        })
    };
    let [a, b] = launches.each_ref().map(of);
    a.filter(|_| a == b)
}

/// Each condition with what the launches say of it; of two answers the worse.
fn weigh(case: &Case, e: &mut Evaluator<'_>, a: &Analysis<'_>, launches: &[Numbers; 2]) -> Vec<(Condition, Holds)> {
    let spec = &case.spec;
    let mut list = Vec::new();
    let rooms = a.sites.iter().flat_map(|j| &j.rooms).filter(|(c, _)| !matches!(c, Condition::Exists { .. }));
    for (c, facts) in rooms {
        let room = c.room().expect("kept for its room");
        let both = [0, 1].map(|i| holds(&mut e.arena, room, facts, &launches[i], spec.loaded_max()));
        let worse = [Holds::No, Holds::Open].into_iter().find(|h| both.contains(h)).unwrap_or(Holds::Yes);
        list.push((c.clone(), worse));
    }
    for c in a.conditions.iter().filter(|c| c.room().is_none() || matches!(c, Condition::Exists { .. })) {
        let row_len = |base: TermId| argument(e, base).and_then(|i| spec.row_of(i)).map(|(_, len)| i128::from(len));
        let truth = match c {
            Condition::Distinct { base } => Some(argument(e, *base).is_some_and(|i| spec.is_permutation(i))),
            Condition::Packed { outputs, stride } => size(e, *outputs, stride, launches)
                .map(|size| a.sites.iter().all(|j| row_len(j.solved.site.base) == Some(size))),
            Condition::Positive { arg } => {
                Some(launches.iter().all(|n| number(e, *arg, n).is_some_and(|divisor| divisor >= 1)))
            }
            // Which rows a launch has is said by the spec, which knows one extent alone.
            Condition::Exists { .. } => None,
            // No infinities and no NaNs in these launches; nothing runs beside them.
            Condition::Finite { .. } | Condition::Quiet { .. } => Some(true),
            _ => None,
        };
        let answer = match truth {
            Some(true) => Holds::Yes,
            Some(false) => Holds::No,
            None => Holds::Open,
        };
        list.push((c.clone(), answer));
    }
    list
}

/// The position of a pointer argument.
fn argument(e: &Evaluator<'_>, t: TermId) -> Option<usize> {
    match e.arena.node(t) {
        Node::ArgPtr(i) => Some(*i as usize),
        _ => None,
    }
}

/// A stride as a number.
fn number(e: &mut Evaluator<'_>, t: TermId, n: &Numbers) -> Option<i64> {
    let ints: Vec<(TermId, i64)> = n.ints.iter().map(|(i, v)| (e.arena.intern(Node::Arg(*i), Sort::Int), *v)).collect();
    let map = ints.into_iter().map(|(from, v)| (from, e.arena.int(i128::from(v)))).collect();
    let t = e.arena.subst(t, &map);
    e.arena.as_int(t).and_then(|n| i64::try_from(n).ok())
}

fn reads_axis(module: &Module, axis: usize) -> bool {
    fn in_block(block: &Block, axis: usize) -> bool {
        let reads = |op: &Op| matches!(op.kind, OpKind::ProgramId(a) if a as usize == axis);
        block.ops.iter().any(|op| reads(op) || op.kind.blocks().into_iter().any(|b| in_block(b, axis)))
    }
    module.functions.iter().flat_map(|f| &f.blocks).any(|b| in_block(b, axis))
}

fn has_atomics(module: &Module) -> bool {
    fn in_block(block: &Block) -> bool {
        block.ops.iter().any(|op: &Op| {
            matches!(op.kind, OpKind::AtomicRmw { .. } | OpKind::AtomicCas { .. })
                || op.kind.blocks().into_iter().any(in_block)
        })
    }
    module.functions.iter().flat_map(|f| &f.blocks).any(in_block)
}

fn options(case: &Case) -> Options {
    let batch_args = case.batch_args.split(',').filter(|a| !a.is_empty()).map(str::to_owned).collect();
    Options { batch_args, witness_budget: Duration::ZERO, ..Options::default() }
}

fn judge(case: &Case, module: &Module) -> Report {
    check(module, &options(case))
}

/// `each` mutants of every base, `trials` pairs of launches for each.
fn gate(each: usize, trials: u64, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let how = Search { trials, same_row: false, special: false, stored_only: true };
    for (case, module) in bases() {
        let base = judge(&case, &module);
        for mutant in mutants(&module, seed, each) {
            tally.mutants += 1;
            let report = judge(&case, &mutant.module);
            let claimed = claims(&case, &base, &report, &mutant);
            tally.invariant += usize::from(claimed);
            match search(&mutant.module, &case.spec, how) {
                // A changed constant may move the rows, and then the rows compared here are not the mutant's own.
                Outcome::Differ(_)
                    if mutant.what.starts_with("constant")
                        && footprint(&mutant.module, &case.spec) != footprint(&module, &case.spec) =>
                {
                    tally.moved += 1;
                }
                Outcome::Differ(finding) => {
                    tally.differ += 1;
                    // Rows that overlap are none: the mutant strides over the output by less than what it stores for a row.
                    let raced = || {
                        !has_atomics(&mutant.module)
                            && finding.batches.iter().any(|b| races(&mutant.module, &case.spec, *b))
                    };
                    if report.verdict == Verdict::Under && covers(&case, &report, &mutant) {
                        let said = format!("{}, {}: {finding:?}", case.file, mutant.what);
                        match conditions(&case, &mutant.module, &finding) {
                            (Standing::True, _) if raced() => tally.raced += 1,
                            (Standing::True, list) => tally.wrong.push(format!("{said}, though true: {list:?}")),
                            (Standing::False, _) => tally.under_false += 1,
                            (Standing::OtherRows, _) => tally.moved += 1,
                            (Standing::Open, list) => tally.under_open.push(format!("{said}: {list:?}")),
                        }
                    }
                    if claimed && raced() {
                        tally.raced += 1;
                    } else if claimed {
                        let given = report.given.join(", ");
                        tally.wrong.push(format!("{}, {}, given {{{given}}}: {finding:?}", case.file, mutant.what));
                    }
                }
                Outcome::Same(0) => tally.never_ran += 1,
                Outcome::Same(_) => {}
            }
        }
    }
    tally
}

#[test]
fn the_bases_do_not_differ() {
    for (case, module) in bases() {
        let outcome =
            search(&module, &case.spec, Search { trials: 6, same_row: false, special: true, stored_only: false });
        assert!(matches!(outcome, Outcome::Same(n) if n > 3), "{}: {outcome:?}", case.file);
    }
}

#[test]
fn no_mutant_is_wrongly_called_invariant() {
    let tally = gate(2, 5, 1);
    println!("{tally:#?}");
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
    assert!(tally.mutants >= 90 && tally.differ >= 8, "{tally:#?}");
}

#[test]
#[ignore = "minutes; run before a release"]
fn none_of_many_mutants_is_wrongly_called_invariant() {
    let tally = gate(12, 10, 2);
    println!("{tally:#?}");
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
    assert!(tally.mutants >= 500 && tally.differ >= 60, "{tally:#?}");
}

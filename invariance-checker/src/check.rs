//! The entry point: one kernel in, one report out.

use crate::analysis::judge::arg_name;
use crate::analysis::{Analysis, Condition, Problem, Roles, analyse};
use crate::eval::Evaluator;
use crate::ir::{LocId, Module};
use crate::term::smt::Solver;
use crate::term::{Arena, Node, TermId};
use crate::tree::Trees;
use crate::witness::{self, Place, Recipe};
use cpu_time::ThreadTime;
use reduction_tree::tree::{Op, Tree};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What the user asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Arguments that may differ between batches; for a pointer, what it points to. A leading `*` is ignored.
    pub batch_args: Vec<String>,
    /// Arguments that never differ.
    pub fixed_args: Vec<String>,
    /// Conditions accepted by name.
    pub allow: Vec<String>,
    /// Names the layout of reductions (from the sibling `.ttgir`), for the digest.
    pub layout: Option<String>,
    /// For all of one kernel, the search for a witness included: CPU time of the thread.
    pub timeout: Duration,
    /// The most of it that the search for a witness may take; zero means no search.
    pub witness_budget: Duration,
    /// Whom to ask about index arithmetic that the built-in provers do not decide.
    pub solver: SolverChoice,
}

/// An SMT solver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SolverChoice {
    /// None.
    #[default]
    None,
    /// The program `z3` if it is on the search path.
    Found,
    /// This program.
    At(PathBuf),
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch_args: vec![],
            fixed_args: vec![],
            allow: vec![],
            layout: None,
            timeout: Duration::from_secs(10),
            witness_budget: Duration::from_secs(10),
            solver: SolverChoice::None,
        }
    }
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Proved, given the listed arguments.
    Invariant,
    /// Proved under conditions that were not all allowed.
    Under,
    /// Refuted by two launches.
    Variant,
    /// Neither.
    Unknown,
}

impl Verdict {
    /// As printed.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Invariant => "INVARIANT",
            Verdict::Under => "INVARIANT UNDER",
            Verdict::Variant => "VARIANT",
            Verdict::Unknown => "UNKNOWN",
        }
    }
}

/// A condition of a proof.
#[derive(Clone, Debug, Serialize)]
pub struct ConditionLine {
    /// For `--allow`.
    pub name: String,
    /// A sentence.
    pub text: String,
    /// About the layout of buffers and the grid, so part of what a row is.
    pub layout: bool,
    /// Accepted by the user.
    pub allowed: bool,
}

/// One argument.
#[derive(Clone, Debug, Serialize)]
pub struct ArgLine {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: String,
    /// May differ between batches.
    pub batch: bool,
    /// In S.
    pub given: bool,
}

/// Why something is not proved.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// A sentence.
    pub text: String,
    /// `file:line:column` of the source, if known.
    pub source: Option<String>,
    /// Line in the TTIR text.
    pub line: u32,
}

/// One written pointer.
#[derive(Clone, Debug, Serialize)]
pub struct Output {
    /// Its name.
    pub pointer: String,
    /// `c0 = pid0*64 + i0`, ..
    pub coordinates: Vec<String>,
    /// Which of them number rows of the batch.
    pub rows: Vec<String>,
    /// Outputs in one row, where a row was packed.
    pub packed: Option<i64>,
    /// Digest of the tree.
    pub digest: Option<String>,
    /// Which elements are stored, as a condition on the coordinates.
    pub stored: String,
    /// The tree, for people.
    #[serde(skip)]
    pub tree: String,
    /// `file:line:column` of the store.
    pub source: Option<String>,
    /// Line of the store in the TTIR text.
    pub line: u32,
}

/// Two launches that differ.
#[derive(Clone, Debug, Serialize)]
pub struct WitnessLine {
    /// What was changed.
    pub change: String,
    /// The launches.
    pub launches: [String; 2],
    /// Pointer and element, with coordinates where known.
    pub element: String,
    /// The bits, in hexadecimal.
    pub bits: [String; 2],
    /// The problem it demonstrates.
    pub shows: String,
    /// The trees of the element in the two launches.
    pub trees: [String; 2],
    /// What marks in the trees mean.
    pub legend: Vec<String>,
    /// Where the element lies in each launch.
    pub places: [Place; 2],
    /// The launches, to be made again.
    pub recipes: [Recipe; 2],
}

/// What became of the questions to an SMT solver.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SolverLine {
    /// Questions.
    pub asked: u32,
    /// Those with a proof.
    pub proved: u32,
}

/// All that is known of one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the kernel.
    pub kernel: String,
    /// The answer.
    pub verdict: Verdict,
    /// S: arguments, and pointers as `name[]`.
    pub given: Vec<String>,
    /// Conditions, layout ones included.
    pub conditions: Vec<ConditionLine>,
    /// Pointers read through loaded integers.
    pub views: Vec<String>,
    /// What every proof assumes.
    pub assumptions: Vec<&'static str>,
    /// Arguments.
    pub args: Vec<ArgLine>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// Digest over all outputs.
    pub digest: Option<String>,
    /// The same with arguments by their names in the source, where the file has them: equal across specialisations of one kernel.
    pub digest_by_name: Option<String>,
    /// The digest hangs on the layout of a reduction that TTIR does not show.
    pub layout_needed: bool,
    /// The bits of its dots hang on the instruction that the compiler makes of them.
    pub instruction_needed: bool,
    /// Arguments by which the compiler may specialise the layout.
    pub specialises: Vec<String>,
    /// Why it is not proved.
    pub reasons: Vec<Reason>,
    /// The refutation.
    pub witness: Option<WitnessLine>,
    /// Rewrite rules used.
    pub rules: Vec<String>,
    /// Questions to the SMT solver and those that it proved, where one was asked.
    pub solver: Option<SolverLine>,
    /// Milliseconds.
    pub millis: f64,
    /// Terms made.
    pub terms: usize,
}

/// What no verdict can see from TTIR.
pub const ASSUMPTIONS: [&str; 7] = [
    "distinct pointer arguments do not overlap, and every access that a mask lets through is in bounds",
    "integer arithmetic on indices does not wrap",
    "strides are positive, and rows of one tensor do not overlap",
    "a grid axis whose program id the kernel never reads has one program; the grid covers every element that a guard admits",
    "the compiler keeps floating-point operations as written, apart from contraction, which is fixed in a compiled kernel",
    "tt.reduce and tt.scan use one order for every position of the other axes (fixed by the layout of the compiled kernel)",
    "tt.dot computes each element by one rule wherever it lies in the tile (bf16 and f16: a chain of k16 steps, measured on H200)",
];

const STACK: usize = 512 << 20;

/// Checks the kernel of a module.
pub fn check(module: &Module, options: &Options) -> Report {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || check_here(module, options));
        let joined = worker.map(|w| w.join());
        match joined {
            Ok(Ok(report)) => report,
            _ => unknown(module, "the analysis stopped unexpectedly"),
        }
    })
}

/// What `f` makes of the analysis behind a report: for tools that want terms instead of text.
pub fn inspect<T: Send>(
    module: &Module,
    options: &Options,
    f: impl FnOnce(&mut Evaluator<'_>, &Analysis<'_>) -> T + Send,
) -> Option<T> {
    std::thread::scope(|scope| {
        let work = || {
            let mut attempt = Attempt::new(module, options, None)?;
            Some(f(&mut attempt.e, &attempt.analysis))
        };
        let worker = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok()?;
        worker.join().ok()?
    })
}

fn unknown(module: &Module, why: &str) -> Report {
    Report {
        kernel: module.kernel().map_or_else(|| "?".into(), |k| k.name.clone()),
        verdict: Verdict::Unknown,
        given: vec![],
        conditions: vec![],
        views: vec![],
        assumptions: ASSUMPTIONS.to_vec(),
        args: vec![],
        outputs: vec![],
        digest: None,
        digest_by_name: None,
        layout_needed: false,
        instruction_needed: false,
        specialises: vec![],
        reasons: vec![Reason { text: why.into(), source: None, line: 0 }],
        witness: None,
        rules: vec![],
        solver: None,
        millis: 0.0,
        terms: 0,
    }
}

fn check_here(module: &Module, options: &Options) -> Report {
    let (start, clock) = (Instant::now(), ThreadTime::now());
    let left = || options.timeout.saturating_sub(clock.elapsed());
    let Some(mut best) = Attempt::new(module, options, None) else {
        return unknown(module, "the file has no single public kernel");
    };
    // Most kernels never need the solver. It sees more than the other provers, so what it finds is at least as good.
    if best.may_improve()
        && let Some(solver) = solver_of(&options.solver)
        && let Some(second) = Attempt::new(module, &Options { timeout: left(), ..options.clone() }, Some(solver))
        && !second.stopped
    {
        best = second;
    }
    best.refute(options.witness_budget.min(left()));
    let Attempt { mut report, e, .. } = best;
    report.rules = e.arena.rules.iter().map(|r| (*r).to_owned()).collect();
    report.solver = e.arena.solver.as_ref().map(|s| SolverLine { asked: s.asked, proved: s.proved });
    report.terms = e.arena.len();
    report.millis = start.elapsed().as_secs_f64() * 1e3;
    report
}

fn solver_of(choice: &SolverChoice) -> Option<Solver> {
    match choice {
        SolverChoice::None => None,
        SolverChoice::Found => Solver::on_path(),
        // The command line has tried it already.
        SolverChoice::At(program) => Solver::start(program).ok(),
    }
}

/// One analysis, with or without a solver.
struct Attempt<'m> {
    e: Evaluator<'m>,
    analysis: Analysis<'m>,
    names: Vec<String>,
    batch: Vec<u32>,
    report: Report,
    /// A limit was hit.
    stopped: bool,
}

impl<'m> Attempt<'m> {
    fn new(module: &'m Module, options: &Options, solver: Option<Solver>) -> Option<Attempt<'m>> {
        let kernel = module.kernel()?;
        let mut e = Evaluator::new(module, Arena::new(options.timeout));
        e.arena.solver = solver;
        let names: Vec<String> = (0..kernel.params.len() as u32).map(|i| arg_name(&e, i)).collect();
        let find = |list: &[String]| list.iter().filter_map(|n| position(&names, n)).collect::<Vec<u32>>();
        let (batch, fixed) = (find(&options.batch_args), find(&options.fixed_args));
        let roles = Roles { batch: batch.iter().copied().collect(), fixed: fixed.into_iter().collect() };
        let analysis = analyse(&mut e, &roles)?;
        let mut report = unknown(module, "");
        report.reasons.clear();
        fill(&mut report, &mut e, &analysis, options, &names);
        decide(&mut report, &mut e, &analysis, options, &names);
        let stopped = e.arena.stopped();
        Some(Attempt { e, analysis, names, batch, report, stopped })
    }

    /// Something is not proved, or only on a condition that index arithmetic might show.
    fn may_improve(&self) -> bool {
        let open = |c: &Condition| matches!(c, Condition::Padded { .. } | Condition::Covers { .. });
        !self.stopped
            && (self.report.verdict == Verdict::Unknown || self.analysis.conditions.iter().any(open))
            && !self.analysis.problems.iter().any(|p| matches!(p, Problem::Opaque { .. }))
    }

    /// Looks for two launches that differ.
    fn refute(&mut self, budget: Duration) {
        if self.report.verdict != Verdict::Unknown || self.stopped || budget.is_zero() {
            return;
        }
        let e = &mut self.e;
        let arg = |i: u32| self.names.get(i as usize).cloned().unwrap_or_else(|| format!("arg{i}"));
        let pointers: Vec<u32> = self
            .batch
            .iter()
            .copied()
            .filter(|i| e.module.kernel().is_some_and(|k| k.ty(k.params[*i as usize].value).pointee().is_some()))
            .collect();
        // The search asks provers about numbers, which need no solver.
        let solver = e.arena.solver.take();
        let found = witness::search(e, &self.analysis, &pointers, budget);
        e.arena.solver = solver;
        let Some((w, shown)) = found else { return };
        let at = match w.coordinates.as_slice() {
            [] => String::new(),
            list => format!(" at {}", list.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(", ")),
        };
        self.report.verdict = Verdict::Variant;
        self.report.witness = Some(WitnessLine {
            change: w.change,
            launches: [w.first, w.second],
            element: format!("{}[{}]{at}", arg(w.pointer), w.element),
            bits: [format!("{:#x}", w.bits.0), format!("{:#x}", w.bits.1)],
            shows: shown.text(&|t| e.arena.show(t, &arg)),
            trees: w.sides.trees,
            legend: w.sides.legend,
            places: w.places,
            recipes: w.recipes,
        });
    }
}

/// The argument that a user names: by its name in the source, or `argN`. A leading `*` (what the pointer points to) is ignored.
pub fn position(names: &[String], wanted: &str) -> Option<u32> {
    let bare = wanted.trim_start_matches('*');
    let by_number = || bare.strip_prefix("arg")?.parse().ok().filter(|i| *i < names.len());
    names.iter().position(|n| n == bare).or_else(by_number).map(|i| i as u32)
}

fn place(module: &Module, loc: LocId) -> Option<String> {
    module.place(loc).map(ToString::to_string)
}

fn fill(report: &mut Report, e: &mut Evaluator<'_>, a: &Analysis<'_>, options: &Options, names: &[String]) {
    let arg = |i: u32| names.get(i as usize).cloned().unwrap_or_else(|| format!("arg{i}"));
    let show = |arena: &Arena, t: TermId| match arena.node(t) {
        Node::ArgPtr(i) => arg(*i),
        _ => arena.show(t, &arg),
    };
    report.given = a
        .given
        .iter()
        .map(|&t| match e.arena.node(t) {
            Node::ArgPtr(i) => format!("{}[]", arg(*i)),
            _ => show(&e.arena, t),
        })
        .collect();
    let mut conditions: Vec<ConditionLine> = Vec::new();
    for c in &a.conditions {
        let name = c.name(&|t| show(&e.arena, t));
        debug_assert!(name.split('(').next().is_some_and(|kind| Condition::NAMES.contains(&kind)), "{name}");
        let text = c.text(&|t| show(&e.arena, t));
        if conditions.iter().any(|x| x.text == text) {
            continue;
        }
        let allowed = options.allow.iter().any(|x| *x == name || name.split('(').next() == Some(x));
        conditions.push(ConditionLine { name, text, layout: c.is_layout(), allowed });
    }
    report.conditions = conditions;
    for j in &a.sites {
        for (p, through) in j.placed.iter().filter(|(p, _)| !j.whole.contains(p)) {
            let line = format!(
                "{} is read through {}: equal logical content lies behind it",
                show(&e.arena, *p),
                show(&e.arena, *through)
            );
            if p != through && !report.views.contains(&line) {
                report.views.push(line);
            }
        }
    }
    report.args = a
        .args
        .iter()
        .map(|r| ArgLine { name: arg(r.index), role: r.role.into(), batch: r.batch, given: r.given })
        .collect();
    let (mut texts, mut named) = (Vec::new(), Vec::new());
    let stopped = e.arena.stopped();
    for j in &a.sites {
        // Several stores to one pointer that never meet: which elements each makes is part of what is made.
        let parts = a.sites.iter().filter(|k| k.solved.site.base == j.solved.site.base).count() > 1;
        let (digest, by_name, tree, stored) =
            if stopped || !j.problems.is_empty() && j.problems.iter().any(|p| !p.is_suspicion()) {
                (None, String::new(), String::new(), String::new())
            } else {
                // For people by name; for the digest by position, since the generic form has no names.
                let mut trees = Trees::new(&mut e.arena, &arg, options.layout.clone());
                let (tree, when) = (trees.tree(j.solved.value), trees.condition(j.solved.guard));
                let by_position = |i: u32| format!("arg{i}");
                let mut trees = Trees::new(&mut e.arena, &by_position, options.layout.clone());
                let mut canonical = trees.tree(j.solved.value);
                let mut named = tree.clone();
                if parts {
                    named = Tree::op(Op::Named("stored if".into()), [when.clone(), named]);
                    let when = trees.condition(j.solved.guard);
                    canonical = Tree::op(Op::Named("stored if".into()), [when, canonical]);
                }
                report.layout_needed |= trees.layout_needed;
                report.instruction_needed |= trees.instruction_needed;
                let atomic = matches!(j.solved.site.kind, crate::eval::SiteKind::Atomic(_));
                let proved = j.problems.is_empty() && canonical.is_closed() && !atomic;
                (proved.then(|| canonical.digest().to_string()), named.digest().to_string(), tree.pretty(), when.text())
            };
        if let Some(d) = &digest {
            let position = match e.arena.node(j.solved.site.base) {
                Node::ArgPtr(i) => *i,
                _ => u32::MAX,
            };
            texts.push((format!("arg{position}"), d.clone()));
            named.push((show(&e.arena, j.solved.site.base), by_name));
        }
        let op = j.solved.site.op.op;
        report.outputs.push(Output {
            pointer: show(&e.arena, j.solved.site.base),
            coordinates: j.coordinates.clone(),
            rows: j.rows.iter().map(|v| e.arena.vars[v.0 as usize].name.clone()).collect(),
            packed: j.solved.coords.list.first().and_then(|c| c.packed).and_then(|p| i64::try_from(p.outputs).ok()),
            digest,
            stored,
            tree,
            source: place(e.module, op.loc),
            line: op.at.line,
        });
    }
    if report.outputs.iter().all(|o| o.digest.is_some()) && !texts.is_empty() && a.problems.is_empty() {
        let all_named = e.module.kernel().is_some_and(|k| k.params.iter().all(|p| k.name_of(p.value).is_some()));
        report.digest_by_name = all_named.then(|| joint_digest(named));
        report.digest = Some(joint_digest(texts));
    }
    if let Some(k) = e.module.kernel() {
        for (i, p) in k.params.iter().enumerate() {
            let pointer = k.ty(p.value).pointee().is_some();
            let int = k.ty(p.value).scalar_elem().is_some_and(|s| s.is_int());
            if pointer || int {
                report.specialises.push(names[i].clone());
            }
        }
    }
}

/// The digest of the trees of all outputs, each with the output that it belongs to.
fn joint_digest(mut each: Vec<(String, String)>) -> String {
    each.sort();
    match each.as_slice() {
        [(_, one)] => one.clone(),
        many => {
            let lines: Vec<String> = many.iter().map(|(output, digest)| format!("{output} {digest}")).collect();
            reduction_tree::tree::Digest::of(&lines.join("\n")).to_string()
        }
    }
}

fn decide(report: &mut Report, e: &mut Evaluator<'_>, a: &Analysis<'_>, options: &Options, names: &[String]) {
    let arg = |i: u32| names.get(i as usize).cloned().unwrap_or_else(|| format!("arg{i}"));
    if e.arena.stopped() {
        let why = e.arena.exhausted.clone().unwrap_or_default();
        report.verdict = Verdict::Unknown;
        (report.digest, report.digest_by_name) = (None, None);
        report.reasons.push(Reason { text: why, source: None, line: 0 });
        return;
    }
    let mut problems: Vec<(Problem, u32, LocId)> = Vec::new();
    for p in &a.problems {
        problems.push((p.clone(), 0, LocId::UNKNOWN));
    }
    for j in &a.sites {
        let op = j.solved.site.op.op;
        for p in &j.problems {
            if let Problem::Index { coordinate } = p
                && options.allow.iter().any(|x| {
                    x == "at-index" || coordinate.starts_with(x.trim_start_matches("at-index(").trim_end_matches(')'))
                })
            {
                let c = Condition::AtIndex { coordinate: coordinate.clone() };
                let show = |t: TermId| e.arena.show(t, &arg);
                report.conditions.push(ConditionLine {
                    name: c.name(&show),
                    text: c.text(&show),
                    layout: false,
                    allowed: true,
                });
                continue;
            }
            problems.push((p.clone(), op.at.line, op.loc));
        }
    }
    if a.effects.sites.is_empty() && problems.is_empty() {
        problems.push((Problem::Opaque { what: "the kernel stores nothing".into(), op: 0 }, 0, LocId::UNKNOWN));
    }
    if problems.is_empty() {
        let open = report.conditions.iter().any(|c| !c.layout && !c.allowed);
        report.verdict = if open { Verdict::Under } else { Verdict::Invariant };
        return;
    }
    for (p, line, loc) in &problems {
        let text = p.text(&|t| e.arena.show(t, &arg));
        if !report.reasons.iter().any(|r| r.text == text) {
            report.reasons.push(Reason { text, source: place(e.module, *loc), line: *line });
        }
    }
    report.verdict = Verdict::Unknown;
    (report.digest, report.digest_by_name) = (None, None);
    report.outputs.iter_mut().for_each(|o| o.digest = None);
}

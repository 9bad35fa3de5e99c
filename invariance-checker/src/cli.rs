//! The command line: files in, verdicts, classes and an exit code out.

use crate::analysis::Condition;
use crate::check::{Options, Report, SolverChoice, Verdict, check, position};
use crate::classes::{Agreement, Classes, Member};
use crate::contract::Contract;
use crate::ir::{Function, Param};
use crate::report::{sarif, svg, text};
use crate::term::smt::Solver;
use crate::{input, layout};
use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Proves that Triton kernels are batch invariant, or shows the two launches that differ.
///
/// Exit code: 0 all INVARIANT; 1 some VARIANT, or a condition that was not allowed, or (with --variants) several trees; 2 some UNKNOWN,
/// or a variant without a class; 3 bad input. With several files the first of 3, 1, 2, 0 that applies.
#[derive(Parser, Debug)]
#[command(version, about)]
#[allow(clippy::struct_excessive_bools)]
pub struct Cli {
    /// TTIR files (Triton 3.6 to 3.9, pretty or generic form).
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Tell the whole story of every kernel.
    #[arg(long)]
    pub explain: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Print a SARIF log.
    #[arg(long)]
    pub sarif: bool,
    /// Write a picture of every tree into this folder.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Roles of arguments and accepted conditions, by kernel.
    #[arg(long, value_name = "FILE.toml")]
    pub contract: Option<PathBuf>,
    /// Arguments that may differ between batches (`*name`: what a pointer points to).
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub batch_args: Vec<String>,
    /// Arguments that never differ between batches.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub fixed_args: Vec<String>,
    /// Conditions to accept, by name (`prefix-sum(cu)`, or `prefix-sum` for all such).
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub allow: Vec<String>,
    /// The files are variants of one kernel: fail unless all are in one class.
    #[arg(long)]
    pub variants: bool,
    /// Print only what is not INVARIANT.
    #[arg(long)]
    pub quiet: bool,
    /// Seconds of CPU time for one kernel; after that it is UNKNOWN.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub timeout: u64,
    /// The most of them for the search for two launches that differ; 0 means no search.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub witness_seconds: u64,
    /// SMT solver for index arithmetic that the built-in provers do not decide: a program, or `none`. Without this, `z3` if it is on PATH.
    #[arg(long, value_name = "PROGRAM")]
    pub solver: Option<PathBuf>,
}

/// One file's outcome.
struct Outcome {
    file: String,
    text: String,
    result: Result<Checked, String>,
}

/// A file that could be read.
struct Checked {
    report: Report,
    names: Vec<String>,
    compiled: Option<layout::Compiled>,
    special: Vec<String>,
}

/// Runs the command line and returns the exit code.
pub fn run(cli: &Cli) -> u8 {
    let contract = match load_contract(cli) {
        Ok(c) => c,
        Err(message) => {
            eprintln!("error: {message}");
            return 3;
        }
    };
    if let SolverChoice::At(program) = solver_choice(cli)
        && let Err(message) = Solver::start(&program)
    {
        eprintln!("error: {message}");
        return 3;
    }
    let progress = Progress::new(cli);
    let outcomes: Vec<Outcome> = cli
        .files
        .par_iter()
        .map(|f| {
            let out = one(cli, &contract, f);
            progress.step();
            out
        })
        .collect();
    progress.bar.finish_and_clear();
    let bad = report_bad_input(cli, &contract, &outcomes);
    let good: Vec<(&Outcome, &Checked)> = outcomes.iter().filter_map(|o| Some((o, o.result.as_ref().ok()?))).collect();
    let members: Vec<Member<'_>> = good
        .iter()
        .map(|(o, c)| Member { file: &o.file, report: &c.report, compiled: c.compiled.as_ref(), special: &c.special })
        .collect();
    let classes = Classes::of(&members);
    match print(cli, &good, &classes, &mut std::io::stdout().lock()) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        Err(e) => {
            eprintln!("error: writing the report: {e}");
            return 3;
        }
    }
    let verdicts: Vec<Verdict> = good.iter().map(|(_, c)| c.report.verdict).collect();
    // An argument of the batch that is in S fails a kernel, also where no two launches were found.
    let batch_given = |r: &Report| r.verdict == Verdict::Unknown && r.args.iter().any(|a| a.batch && a.given);
    let fails = good.iter().any(|(_, c)| batch_given(&c.report));
    exit_code(bad, fails, &verdicts, cli.variants.then_some(classes.agreement))
}

/// 3 before 1 before 2 before 0: what cannot be read may hide anything, a refutation outweighs a doubt.
fn exit_code(bad: bool, fails: bool, verdicts: &[Verdict], agreement: Option<Agreement>) -> u8 {
    if bad {
        3
    } else if fails
        || verdicts.iter().any(|v| matches!(v, Verdict::Variant | Verdict::Under))
        || agreement == Some(Agreement::Several)
    {
        1
    } else if verdicts.contains(&Verdict::Unknown) || agreement == Some(Agreement::Open) {
        2
    } else {
        0
    }
}

/// A bar on a terminal, once a run takes longer than a second.
struct Progress {
    bar: ProgressBar,
    start: Instant,
    wanted: bool,
}

impl Progress {
    fn new(cli: &Cli) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(cli.files.len() as u64), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} kernels, {eta} left") {
            bar.set_style(style);
        }
        let wanted = std::io::stderr().is_terminal() && !cli.quiet && cli.files.len() > 1;
        Progress { bar, start: Instant::now(), wanted }
    }

    fn step(&self) {
        if self.wanted && self.bar.is_hidden() && self.start.elapsed() > Duration::from_secs(1) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }
}

fn load_contract(cli: &Cli) -> Result<Contract, String> {
    let Some(path) = &cli.contract else { return Ok(Contract::default()) };
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    Contract::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn one(cli: &Cli, contract: &Contract, path: &Path) -> Outcome {
    let file = path.display().to_string();
    let refused = |message: String| Outcome { file: file.clone(), text: String::new(), result: Err(message) };
    let module = match input::load(path) {
        Ok(m) => m,
        Err(e) => return refused(e.render(path, std::io::stderr().is_terminal())),
    };
    let kernel = module.kernel();
    let name_of = |k: &Function, i: usize, p: &Param| k.name_of(p.value).map_or(format!("arg{i}"), str::to_owned);
    let params = || kernel.into_iter().flat_map(|k| k.params.iter().enumerate().map(move |(i, p)| (k, i, p)));
    let names: Vec<String> = params().map(|(k, i, p)| name_of(k, i, p)).collect();
    let special = params().flat_map(|(k, i, p)| {
        let name = name_of(k, i, p);
        p.attrs.iter().filter_map(move |(a, v)| Some(format!("{name} {a} = {}", v.as_int()?)))
    });
    let special: Vec<String> = special.collect();
    let kernel = kernel.map_or("", |k| k.name.as_str());
    let compiled = match layout::beside(path, kernel) {
        Ok(c) => c,
        Err(message) => return refused(format!("error: {message}\n")),
    };
    let entry = contract.entry(kernel);
    let join = |a: &[String], b: Vec<String>| a.iter().cloned().chain(b).collect::<Vec<_>>();
    let options = Options {
        batch_args: join(&cli.batch_args, entry.batch),
        fixed_args: join(&cli.fixed_args, entry.fixed),
        allow: join(&cli.allow, entry.allow),
        layout: compiled.as_ref().and_then(|c| c.order.clone()),
        timeout: Duration::from_secs(cli.timeout),
        witness_budget: Duration::from_secs(cli.witness_seconds),
        solver: solver_choice(cli),
    };
    let report = check(&module, &options);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    Outcome { file, text, result: Ok(Checked { report, names, compiled, special }) }
}

fn solver_choice(cli: &Cli) -> SolverChoice {
    match &cli.solver {
        None => SolverChoice::Found,
        Some(p) if p.as_os_str() == "none" => SolverChoice::None,
        Some(p) => SolverChoice::At(p.clone()),
    }
}

/// Files that could not be read, and argument names that no kernel has: a misspelt name must not pass for "nothing depends on it".
fn report_bad_input(cli: &Cli, contract: &Contract, outcomes: &[Outcome]) -> bool {
    let mut bad = false;
    for o in outcomes {
        if let Err(message) = &o.result {
            eprint!("{message}");
            bad = true;
        }
    }
    let good: Vec<&Checked> = outcomes.iter().filter_map(|o| o.result.as_ref().ok()).collect();
    let nobody = |name: &&String| !good.iter().any(|c| position(&c.names, name).is_some());
    for name in cli.batch_args.iter().chain(&cli.fixed_args).filter(nobody) {
        eprintln!("error: expected the name of an argument of some kernel, got {name}");
        bad = true;
    }
    // A contract may be that of more kernels than are checked this time.
    for name in contract.default.batch.iter().chain(&contract.default.fixed).filter(nobody) {
        if !cli.quiet {
            eprintln!("note: the contract speaks of {name}, which no kernel of these files has");
        }
    }
    let entries = contract.kernel.values().chain([&contract.default]);
    for name in cli.allow.iter().chain(entries.flat_map(|e| &e.allow)) {
        let kind = name.split('(').next().unwrap_or_default();
        if !Condition::NAMES.contains(&kind) {
            eprintln!("error: expected the name of a condition ({}), got {name}", Condition::NAMES.join(", "));
            bad = true;
        }
    }
    for (kernel, entry) in &contract.kernel {
        if !cli.quiet && !good.iter().any(|c| c.report.kernel == *kernel) {
            eprintln!("note: the contract speaks of {kernel}, which is in none of these files");
        }
        for c in good.iter().filter(|c| c.report.kernel == *kernel) {
            for name in entry.batch.iter().chain(&entry.fixed).filter(|n| position(&c.names, n).is_none()) {
                eprintln!("error: contract of {kernel}: expected one of {}, got {name}", c.names.join(", "));
                bad = true;
            }
        }
    }
    bad
}

fn print(cli: &Cli, good: &[(&Outcome, &Checked)], classes: &Classes, out: &mut impl Write) -> std::io::Result<()> {
    if let Some(dir) = &cli.svg {
        pictures(dir, good)?;
    }
    if cli.json {
        let list = good.iter().map(|(o, c)| serde_json::json!({"file": o.file, "report": c.report}));
        let list: Vec<_> = list.collect();
        return writeln!(out, "{:#}", serde_json::json!({"kernels": list, "classes": classes}));
    }
    if cli.sarif {
        let list: Vec<(&str, &Report)> = good.iter().map(|(o, c)| (o.file.as_str(), &c.report)).collect();
        return writeln!(out, "{:#}", sarif::log(&list));
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    for (o, c) in good {
        if cli.quiet && c.report.verdict == Verdict::Invariant {
            continue;
        }
        writeln!(out, "{}", text::line(&c.report, colour))?;
        if cli.explain {
            writeln!(out, "{}", text::explain(&c.report, &o.file, &o.text, colour))?;
        }
    }
    if cli.variants {
        write!(out, "{}", text::classes(classes))?;
    }
    Ok(())
}

/// One picture a file; files of one name are numbered.
fn pictures(dir: &Path, good: &[(&Outcome, &Checked)]) -> std::io::Result<()> {
    let named = |e: std::io::Error| std::io::Error::new(e.kind(), format!("pictures in {}: {e}", dir.display()));
    std::fs::create_dir_all(dir).map_err(named)?;
    let mut used: HashMap<String, usize> = HashMap::new();
    for (o, c) in good {
        let stem = Path::new(&o.file).file_stem();
        let stem = stem.map_or_else(|| c.report.kernel.clone(), |s| s.to_string_lossy().into_owned());
        let n = used.entry(stem.clone()).or_default();
        *n += 1;
        let name = if *n == 1 { format!("{stem}.svg") } else { format!("{stem}-{n}.svg") };
        std::fs::write(dir.join(name), svg::page(&c.report)).map_err(named)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_several_files_decides() {
        use Verdict::{Invariant, Under, Unknown, Variant};
        let cases: [(&[Verdict], u8); 12] = [
            (&[], 0),
            (&[Invariant], 0),
            (&[Under], 1),
            (&[Variant], 1),
            (&[Unknown], 2),
            (&[Invariant, Under], 1),
            (&[Invariant, Variant], 1),
            (&[Invariant, Unknown], 2),
            (&[Under, Variant], 1),
            (&[Under, Unknown], 1),
            (&[Unknown, Variant], 1),
            (&[Invariant, Unknown, Under, Variant], 1),
        ];
        for (verdicts, code) in cases {
            assert_eq!(exit_code(false, false, verdicts, None), code, "{verdicts:?}");
            assert_eq!(exit_code(true, false, verdicts, None), 3, "{verdicts:?} and bad input");
            assert_eq!(exit_code(false, false, verdicts, Some(Agreement::One)), code, "{verdicts:?} in one class");
            assert_eq!(
                exit_code(false, false, verdicts, Some(Agreement::Several)),
                1,
                "{verdicts:?} in several classes"
            );
            let open = if code == 0 { 2 } else { code };
            assert_eq!(exit_code(false, false, verdicts, Some(Agreement::Open)), open, "{verdicts:?} without a class");
        }
    }
}

//! The command line: files in, verdicts, classes and an exit code out.

use crate::check::{Options, Report, Verdict, check, position};
use crate::contract::Contract;
use crate::report::{sarif, svg, text};
use crate::{input, layout};
use clap::Parser;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Proves that Triton kernels are batch invariant, or shows the two launches that differ.
///
/// Exit code: 0 all INVARIANT, 1 some VARIANT (or a condition that was not allowed), 2 some UNKNOWN, 3 bad input.
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
    /// Seconds for one kernel.
    #[arg(long, default_value_t = 10)]
    pub timeout: u64,
    /// Seconds for the search for a witness.
    #[arg(long, default_value_t = 10)]
    pub witness_seconds: u64,
}

/// One file's outcome.
struct Outcome {
    file: PathBuf,
    text: String,
    report: Result<Report, String>,
    names: Vec<String>,
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
    let progress = std::io::stderr().is_terminal() && !cli.quiet && cli.files.len() > 8;
    let done = std::sync::atomic::AtomicUsize::new(0);
    let outcomes: Vec<Outcome> = cli
        .files
        .par_iter()
        .map(|f| {
            let out = one(cli, &contract, f);
            let n = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            if progress {
                eprint!("\r{n}/{} kernels", cli.files.len());
            }
            out
        })
        .collect();
    if progress {
        eprint!("\r\x1b[K");
    }
    let bad = report_bad_input(cli, &contract, &outcomes);
    let mut stdout = std::io::stdout().lock();
    let classes_agree = match print(cli, &outcomes, &mut stdout) {
        Ok(agree) => agree,
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => true,
        Err(e) => {
            eprintln!("error: writing the report: {e}");
            return 3;
        }
    };
    let verdicts: Vec<Verdict> = outcomes.iter().filter_map(|o| o.report.as_ref().ok().map(|r| r.verdict)).collect();
    if bad {
        3
    } else if verdicts.iter().any(|v| matches!(v, Verdict::Variant | Verdict::Under)) || cli.variants && !classes_agree
    {
        1
    } else if verdicts.contains(&Verdict::Unknown) {
        2
    } else {
        0
    }
}

fn load_contract(cli: &Cli) -> Result<Contract, String> {
    let Some(path) = &cli.contract else { return Ok(Contract::default()) };
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Contract::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn one(cli: &Cli, contract: &Contract, file: &Path) -> Outcome {
    let module = match input::load(file) {
        Ok(m) => m,
        Err(e) => {
            let message = e.render(file, std::io::stderr().is_terminal());
            return Outcome { file: file.to_owned(), text: String::new(), report: Err(message), names: vec![] };
        }
    };
    let kernel = module.kernel();
    let names = kernel.map_or(vec![], |k| {
        let name = |(i, p): (usize, &crate::ir::Param)| k.name_of(p.value).map_or(format!("arg{i}"), str::to_owned);
        k.params.iter().enumerate().map(name).collect()
    });
    let entry = contract.entry(kernel.map_or("", |k| k.name.as_str()));
    let join = |a: &[String], b: Vec<String>| a.iter().cloned().chain(b).collect::<Vec<_>>();
    let options = Options {
        batch_args: join(&cli.batch_args, entry.batch),
        fixed_args: join(&cli.fixed_args, entry.fixed),
        allow: join(&cli.allow, entry.allow),
        layout: layout::beside(file),
        timeout: Duration::from_secs(cli.timeout),
        witness_budget: Duration::from_secs(cli.witness_seconds),
    };
    let report = check(&module, &options);
    let text = std::fs::read_to_string(file).unwrap_or_default();
    Outcome { file: file.to_owned(), text, report: Ok(report), names }
}

/// Files that could not be read, and argument names that no kernel has: a misspelt name must not pass for "nothing depends on it".
fn report_bad_input(cli: &Cli, contract: &Contract, outcomes: &[Outcome]) -> bool {
    let mut bad = false;
    for o in outcomes {
        if let Err(message) = &o.report {
            eprint!("{message}");
            bad = true;
        }
    }
    let wanted =
        cli.batch_args.iter().chain(&cli.fixed_args).chain(&contract.default.batch).chain(&contract.default.fixed);
    for name in wanted {
        if !outcomes.iter().any(|o| position(&o.names, name).is_some()) {
            eprintln!("error: expected the name of an argument of some kernel, got {name}");
            bad = true;
        }
    }
    for (kernel, entry) in &contract.kernel {
        for o in outcomes.iter().filter(|o| o.report.as_ref().is_ok_and(|r| r.kernel == *kernel)) {
            for name in entry.batch.iter().chain(&entry.fixed).filter(|n| position(&o.names, n).is_none()) {
                eprintln!("error: contract of {kernel}: expected one of {}, got {name}", o.names.join(", "));
                bad = true;
            }
        }
    }
    bad
}

/// Prints the reports; true if the files are one class.
fn print(cli: &Cli, outcomes: &[Outcome], out: &mut impl Write) -> std::io::Result<bool> {
    let good: Vec<(&Outcome, &Report)> = outcomes.iter().filter_map(|o| Some((o, o.report.as_ref().ok()?))).collect();
    let classes = classes(&good);
    let agree = classes.len() == 1 && classes.keys().all(Option::is_some);
    if let Some(dir) = &cli.svg {
        std::fs::create_dir_all(dir)?;
        for (o, r) in &good {
            let stem = o.file.file_stem().map_or_else(|| r.kernel.clone(), |s| s.to_string_lossy().into_owned());
            std::fs::write(dir.join(format!("{stem}.svg")), svg::page(r))?;
        }
    }
    if cli.json {
        let list: Vec<_> =
            good.iter().map(|(o, r)| serde_json::json!({"file": o.file.display().to_string(), "report": r})).collect();
        let classes: Vec<_> =
            classes.iter().map(|(d, files)| serde_json::json!({"digest": d, "files": files})).collect();
        writeln!(out, "{:#}", serde_json::json!({"kernels": list, "classes": classes}))?;
        return Ok(agree);
    }
    if cli.sarif {
        let list: Vec<(String, Report)> =
            good.iter().map(|(o, r)| (o.file.display().to_string(), (*r).clone())).collect();
        writeln!(out, "{:#}", sarif::log(&list))?;
        return Ok(agree);
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    for (o, r) in &good {
        if cli.quiet && r.verdict == Verdict::Invariant {
            continue;
        }
        writeln!(out, "{}", text::line(r, colour))?;
        if cli.explain {
            writeln!(out, "{}", text::explain(r, &o.file.display().to_string(), &o.text, colour))?;
        }
    }
    if cli.variants {
        print_classes(&classes, &good, agree, out)?;
    }
    Ok(agree)
}

/// Files by digest; `None` holds those without one.
fn classes(good: &[(&Outcome, &Report)]) -> BTreeMap<Option<String>, Vec<String>> {
    let mut out: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    for (o, r) in good {
        // Without its layout, a tree with an order that TTIR does not fix may be another in another file.
        let known = !r.layout_needed || layout::beside(&o.file).is_some() || good.len() == 1;
        let key = r.digest.clone().filter(|_| known);
        out.entry(key).or_default().push(o.file.display().to_string());
    }
    out
}

fn print_classes(
    classes: &BTreeMap<Option<String>, Vec<String>>,
    good: &[(&Outcome, &Report)],
    agree: bool,
    out: &mut impl Write,
) -> std::io::Result<()> {
    writeln!(
        out,
        "{} in {} {}",
        plural(good.len(), "variant"),
        plural(classes.len(), "class"),
        if agree { "(one tree)" } else { "" }
    )?;
    for (digest, files) in classes {
        match digest {
            Some(d) => writeln!(out, "  class {}: {}", &d[..12], files.join(", "))?,
            None => writeln!(out, "  no class: {}", files.join(", "))?,
        }
    }
    for (o, r) in good.iter().filter(|(_, r)| r.layout_needed) {
        match layout::beside(&o.file) {
            Some(l) => writeln!(out, "  {}: reductions ordered by {l}", o.file.display())?,
            None => writeln!(
                out,
                "  {}: the order of its reductions hangs on the compiled layout, so on num_warps and on how {} are specialised \
                 (divisible by 16, equal to 1); put the .ttgir beside it",
                o.file.display(),
                r.specialises.join(", ")
            )?,
        }
    }
    Ok(())
}

fn plural(n: usize, word: &str) -> String {
    let end = match (n, word.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{n} {word}{end}")
}

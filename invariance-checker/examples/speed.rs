//! How fast kernels are decided: CPU time, so that other load on the machine does not count as the checker's.
//!
//! ```text
//! cargo run --release -p invariance-checker --example speed [FOLDER ...]
//! ```
//!
//! A folder holds `.ttir` files and an `index.tsv` with the columns `file` and `batch_args`; without folders, those of this crate. Every kernel
//! is checked once without a solver and, if it is not decided then, once more with `z3` where that is on the search path.

use cpu_time::ProcessTime;
use invariance_checker::check::SolverChoice;
use invariance_checker::{Options, Report, Verdict, check, parse};
use std::path::{Path, PathBuf};

/// One kernel: its name, seconds, and whether it was decided and whether a solver had to be asked.
struct Run {
    name: String,
    seconds: f64,
    decided: bool,
    asked: bool,
}

fn main() -> std::process::ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own =
        ["kernels", "tests/adversarial", "tests/atomics", "tests/classes", "tests/corpus/v360", "tests/corpus/v390"];
    let given: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let folders = if given.is_empty() { own.iter().map(|f| root.join(f)).collect() } else { given };
    println!(
        "{:<40} {:>8} {:>8} {:>11} {:>13} {:>15}",
        "folder", "decided", "of", "seconds", "a second (2)", "without solver"
    );
    let mut all = Vec::new();
    for folder in &folders {
        let runs = match runs_of(folder) {
            Ok(runs) => runs,
            Err(message) => {
                eprintln!("error: {message}");
                return std::process::ExitCode::from(3);
            }
        };
        let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
        line(&name, &runs);
        all.extend(runs);
    }
    line("all", &all);
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for run in all.iter().filter(|r| r.decided).take(5) {
        println!("  slowest: {} {:.2} s", run.name, run.seconds);
    }
    std::process::ExitCode::SUCCESS
}

/// Two cores decide twice as many as one: kernels share nothing.
fn line(name: &str, runs: &[Run]) {
    let decided = runs.iter().filter(|r| r.decided);
    let seconds: f64 = decided.clone().map(|r| r.seconds).sum();
    let (count, free) = (decided.clone().count(), decided.filter(|r| !r.asked).count());
    let rate = 2.0 * count as f64 / seconds.max(1e-9);
    let share = 100.0 * free as f64 / count.max(1) as f64;
    println!("{name:<40} {count:>8} {:>8} {seconds:>11.2} {rate:>13.1} {share:>14.0}%", runs.len());
}

fn runs_of(folder: &Path) -> Result<Vec<Run>, String> {
    let index = folder.join("index.tsv");
    let text = std::fs::read_to_string(&index).map_err(|e| format!("{}: {e}", index.display()))?;
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| {
        head.iter().position(|h| *h == name).ok_or_else(|| format!("{}: expected a column {name}", index.display()))
    };
    let (file, batch) = (column("file")?, column("batch_args")?);
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let cell = |i: usize| cells.get(i).copied().unwrap_or_default();
            let batch_args = cell(batch).split(',').filter(|b| !b.is_empty()).map(str::to_owned).collect();
            one(&folder.join(cell(file)), batch_args)
        })
        .collect()
}

fn one(path: &Path, batch_args: Vec<String>) -> Result<Run, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let module = parse::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let options = Options { batch_args, solver: SolverChoice::None, ..Options::default() };
    let decided = |r: &Report| r.verdict != Verdict::Unknown;
    let start = ProcessTime::now();
    let mut report = check(&module, &options);
    let mut seconds = start.elapsed().as_secs_f64();
    if !decided(&report) {
        let start = ProcessTime::now();
        report = check(&module, &Options { solver: SolverChoice::Found, ..options });
        seconds = start.elapsed().as_secs_f64();
    }
    let asked = report.solver.as_ref().is_some_and(|s| s.asked > 0);
    Ok(Run { name: path.display().to_string(), seconds, decided: decided(&report), asked })
}

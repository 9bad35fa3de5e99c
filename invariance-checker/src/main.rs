//! The command line of the checker.

use clap::Parser;
use invariance_checker::cli::{Cli, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    // clap's own code for a usage error is 2, which here means UNKNOWN.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() { 3 } else { 0 };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    ExitCode::from(run(&cli))
}

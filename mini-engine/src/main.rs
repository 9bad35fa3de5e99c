//! The command line of the engine. Exit codes: 0 for success, 1 for a difference or a failing machine, 2 for bad input.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}

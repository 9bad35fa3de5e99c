//! Commands and what they share: arguments, model loading, errors.

mod audit;
mod bench;
mod demo;
mod determinism;
mod failure;
mod generate;
mod serve;
mod session;
mod soak;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::Failure;

/// Same tree, same bits: an LLM engine whose logits do not depend on the batch.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    /// More log lines on standard error; repeat for still more
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Continue a prompt
    Generate(generate::Generate),
    /// Run receipts again and say what differs
    Audit(audit::Audit),
    /// Compare logits by bits while everything varies that must not matter
    Determinism(determinism::Determinism),
    /// Fetch a small model, let it answer, and compare its logits by bits
    Demo(demo::Demo),
    /// Serve a model over HTTP, as OpenAI's clients expect it
    Serve(serve::Serve),
    /// Measure speed, with a digest of the logits
    Bench(bench::Bench),
    /// Stress the engine for minutes and compare every finished request with the request alone
    Soak(soak::Soak),
    /// Say what is proved about this program, and what is trusted
    Trust,
}

/// The proofs' own summary, kept beside them.
const TRUST: &str = include_str!("../../../proofs/trust.txt");

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        0 => tracing::Level::ERROR,
        1 => tracing::Level::WARN,
        2 => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    let result = match cli.command {
        Command::Generate(command) => command.run(),
        Command::Audit(command) => command.run(),
        Command::Determinism(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Soak(command) => command.run(),
        Command::Trust => std::io::stdout().write_all(TRUST.as_bytes()).map_err(Failure::from),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

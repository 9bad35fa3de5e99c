//! `determinism`: the harness on any model.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use clap::Args;
use kernels_rs::cpu::Cpu;
use mini_engine::determinism::{Break, DeviceLab, PASSAGE, Report, Scale, check};
use mini_engine::model::{Checkpoint, Model};

use super::Failure;
use super::session::{ComputeArgs, ModelArgs};

/// Compare logits by bits while everything varies that must not matter
#[derive(Debug, Args)]
pub struct Determinism {
    #[command(flatten)]
    model: ModelArgs,
    /// Write the counts as JSON: a list of {relation, pairs, equal, different, invalid}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Every relation, with as few pairs as it needs
    #[arg(long)]
    quick: bool,
    /// Switch on a deliberate fault, which must be caught
    #[arg(long = "break", value_enum, value_name = "KIND")]
    kind: Option<Break>,
}

impl Determinism {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        // An unwritable report should not cost ten minutes, and a run that dies must not leave an old report behind.
        if let Some(path) = &self.json {
            std::fs::write(path, "").map_err(|error| Failure::input(format!("--json {}: {error}", path.display())))?;
        }
        let checkpoint = self.model.open()?;
        let broken = self.kind.and_then(Break::at_load);
        let model = self.model.compute.load(&checkpoint, broken)?;
        let scale = if self.quick { Scale::quick() } else { Scale::full() };
        let report = compare(&self.model.compute, &checkpoint, model, &scale, self.kind)?;
        if let Some(path) = &self.json {
            std::fs::write(path, report.json() + "\n")?;
        }
        if report.all_equal() { Ok(()) } else { Err(Failure::Different) }
    }
}

/// Runs the harness on a loaded model, printing the table as it grows.
pub fn compare(
    compute: &ComputeArgs,
    checkpoint: &Rc<Checkpoint>,
    model: Arc<Model<Cpu>>,
    scale: &Scale,
    kind: Option<Break>,
) -> Result<Report, Failure> {
    let passage = checkpoint.tokenizer.encode(PASSAGE)?;
    let (compute, checkpoint) = (compute.clone(), checkpoint.clone());
    let broken = kind.and_then(Break::at_load);
    let reload = move |threads| compute.load_on(&checkpoint, broken, threads, &mut |_| {});
    let lab = DeviceLab { model, reload: Some(Rc::new(reload)) };
    if let Some(kind) = kind {
        println!("deliberate fault: {kind:?}");
    }
    println!("{}", Report::heading());
    let report = check(&lab, passage, scale, kind, &mut |tally| println!("{}", Report::line(tally)));
    println!("{}\n{}", report.subject, report.verdict());
    Ok(report)
}

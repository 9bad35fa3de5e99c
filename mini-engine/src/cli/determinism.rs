//! `determinism`: the harness on any model.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use clap::Args;
use kernels_rs::backend::Backend;
use mini_engine::determinism::{Break, DeviceLab, PASSAGE, Report, Scale, check};
use mini_engine::model::{Checkpoint, Model};

use super::Failure;
use super::session::{Device, ModelArgs, on_backend};

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
        on_backend!(self.model.compute, |device| self.run_on(device, &checkpoint))
    }

    fn run_on<B: Backend>(&self, device: Device<B>, checkpoint: &Rc<Checkpoint>) -> Result<(), Failure> {
        let model = device.load(checkpoint, self.kind.and_then(Break::at_load))?;
        let scale = if self.quick { Scale::quick() } else { Scale::full() };
        let report = compare(&device, checkpoint, model, &scale, self.kind)?;
        if let Some(path) = &self.json {
            std::fs::write(path, report.json() + "\n")?;
        }
        if report.all_equal() { Ok(()) } else { Err(Failure::Different) }
    }
}

/// Runs the harness on a loaded model, printing the table as it grows.
pub fn compare<B: Backend>(
    device: &Device<B>,
    checkpoint: &Rc<Checkpoint>,
    model: Arc<Model<B>>,
    scale: &Scale,
    kind: Option<Break>,
) -> Result<Report, Failure> {
    let passage = checkpoint.tokenizer.encode(PASSAGE)?;
    let lab = DeviceLab { model, reload: device.reload(checkpoint, kind.and_then(Break::at_load)) };
    if let Some(kind) = kind {
        println!("deliberate fault: {kind:?}");
    }
    println!("{}", Report::heading());
    let report = check(&lab, passage, scale, kind, &mut |tally| println!("{}", Report::line(tally)));
    println!("{}\n{}", report.subject, report.verdict());
    Ok(report)
}

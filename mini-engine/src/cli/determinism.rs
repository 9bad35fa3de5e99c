//! `determinism`: the harness on any model.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use clap::Args;
use kernels_rs::backend::Backend;
use mini_engine::determinism::{Break, DeviceLab, PASSAGE, Referee, Report, Scale, check};
use mini_engine::model::{Checkpoint, Model};

use super::Failure;
use super::session::{BackendName, ComputeArgs, Device, ModelArgs, on_backend};

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
    /// Compare with the request alone on this backend instead of the same one
    #[arg(long, value_enum, value_name = "BACKEND")]
    against: Option<BackendName>,
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
        match self.against {
            None => self.report(&device, checkpoint, None),
            Some(backend) => {
                // The other backend must round as this one does.
                let arithmetic = Some(device.backend.arithmetic().into());
                let other = ComputeArgs { backend, arithmetic, ..self.model.compute.clone() };
                on_backend!(other, |other| self.against(device, other, checkpoint))
            }
        }
    }

    fn against<B: Backend, R: Backend>(
        &self,
        device: Device<B>,
        other: Device<R>,
        checkpoint: &Rc<Checkpoint>,
    ) -> Result<(), Failure> {
        let model = other.load(checkpoint, None)?;
        let referee = DeviceLab { model, reload: None, replays: true, run_ahead: false };
        self.report(&device, checkpoint, Some(&referee))
    }

    fn report<B: Backend>(
        &self,
        device: &Device<B>,
        checkpoint: &Rc<Checkpoint>,
        referee: Option<&dyn Referee>,
    ) -> Result<(), Failure> {
        let model = device.load(checkpoint, self.kind.and_then(Break::at_load))?;
        let scale = if self.quick { Scale::quick() } else { Scale::full() };
        let report = compare(device, checkpoint, model, referee, &scale, self.kind)?;
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
    referee: Option<&dyn Referee>,
    scale: &Scale,
    kind: Option<Break>,
) -> Result<Report, Failure> {
    let passage = checkpoint.tokenizer.encode(PASSAGE)?;
    let reload = device.reload(checkpoint, kind.and_then(Break::at_load));
    let lab = DeviceLab { model, reload, replays: true, run_ahead: device.run_ahead };
    if let Some(kind) = kind {
        println!("deliberate fault: {kind:?}");
    }
    println!("{}", Report::heading());
    let report =
        check(&lab, referee.unwrap_or(&lab), passage, scale, kind, &mut |tally| println!("{}", Report::line(tally)));
    println!("{}", report.subject);
    if referee.is_some() {
        println!("compared with {}", report.referee);
    }
    println!("{}", report.verdict());
    Ok(report)
}

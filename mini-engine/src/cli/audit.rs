//! `audit`: runs receipts again.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use kernels_rs::backend::Backend;
use mini_engine::model::Checkpoint;
use mini_engine::receipt::{self, Auditor, Receipt, read};

use super::Failure;
use super::session::{Arithmetic, ComputeArgs, Device, ModelArgs, on_backend};

/// Run receipts again and say what differs
///
/// Exits with 0 only if every receipt is reproduced: by bits at every output position, with every token chosen again. 1 means
/// that something differs, 2 that a file is no receipt.
#[derive(Debug, Args)]
pub struct Audit {
    /// Receipts
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Print what was found as JSON: a list of {file, digest, equal, positions, positions_equal, first_different, findings}
    #[arg(long)]
    json: bool,
}

/// A receipt that was read, and where from.
struct Named {
    file: PathBuf,
    receipt: Receipt,
}

impl Audit {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        let mut unreadable = None;
        let mut named = Vec::new();
        for file in &self.receipts {
            match read::read(file) {
                Ok(receipt) => named.push(Named { file: file.clone(), receipt }),
                Err(error) => {
                    let message = format!("{}: {error}", file.display());
                    // All are reported, whichever comes first; the last one ends the command.
                    if let Some(earlier) = unreadable.replace(message) {
                        eprintln!("error: {earlier}");
                    }
                }
            }
        }
        let mut lines = Vec::new();
        let all_equal = if named.is_empty() { true } else { self.audit(&named, &mut lines)? };
        if self.json {
            println!("{}", serde_json::Value::Array(lines));
        }
        match unreadable {
            Some(message) => Err(Failure::input(message)),
            None if all_equal => Ok(()),
            None => Err(Failure::Different),
        }
    }

    /// Audits all receipts, those of one arithmetic after another, so that each needs one load of the weights.
    fn audit(&self, named: &[Named], lines: &mut Vec<serde_json::Value>) -> Result<bool, Failure> {
        let checkpoint = self.model.open()?;
        let mut all_equal = true;
        for &arithmetic in Arithmetic::value_variants() {
            let group: Vec<&Named> = named.iter().filter(|named| self.arithmetic_of(named) == arithmetic).collect();
            if !group.is_empty() {
                let compute = ComputeArgs { arithmetic: Some(arithmetic), ..self.model.compute.clone() };
                all_equal &= on_backend!(compute, |device| self.audit_on(device, &checkpoint, &group, lines))?;
            }
        }
        Ok(all_equal)
    }

    /// The arithmetic that a receipt is run in: the one asked for, or its own. One that names none differs in any.
    fn arithmetic_of(&self, named: &Named) -> Arithmetic {
        let own = || Arithmetic::named(&named.receipt.receipt.arithmetic);
        self.model.compute.arithmetic.or_else(own).unwrap_or(Arithmetic::Sm90)
    }

    fn audit_on<B: Backend>(
        &self,
        device: Device<B>,
        checkpoint: &Checkpoint,
        group: &[&Named],
        lines: &mut Vec<serde_json::Value>,
    ) -> Result<bool, Failure> {
        let model = device.load(checkpoint, None)?;
        let auditor = Auditor::new(&model, &checkpoint.tokenizer);
        let mut all_equal = true;
        for Named { file, receipt } in group {
            let start = Instant::now();
            let found = auditor.audit(receipt)?;
            all_equal &= found.equal;
            if self.json {
                let mut line = serde_json::json!({ "file": file.display().to_string(), "digest": receipt.digest });
                let found = serde_json::to_value(&found).map_err(|error| Failure::Machine(error.into()))?;
                if let (Some(line), serde_json::Value::Object(found)) = (line.as_object_mut(), found) {
                    line.extend(found);
                }
                lines.push(line);
            } else {
                print(&file.display().to_string(), &found, start.elapsed().as_secs_f64());
            }
        }
        Ok(all_equal)
    }
}

fn print(file: &str, found: &receipt::Audit, seconds: f64) {
    let receipt::Audit { equal, positions, positions_equal, first_different, findings } = found;
    if *equal {
        println!(
            "{file}: equal: {positions} of {positions} positions by bits, every token chosen again ({seconds:.2} s)"
        );
        return;
    }
    let first = first_different.map_or(String::new(), |first| format!(", the first different one is {first}"));
    println!("{file}: DIFFERENT: {positions_equal} of {positions} positions equal{first} ({seconds:.2} s)");
    for finding in findings {
        println!("  {}: {}", finding.field, finding.message);
    }
}

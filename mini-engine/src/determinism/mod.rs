//! The determinism harness: complete logits rows, compared by bits with the same request alone, cold, in one prefill, while
//! one thing after another is varied that must not matter.
//!
//! A relation counts only if it was provoked and witnessed: a preemption test without a preemption is invalid, not passed.
//! [`Break`] switches on deliberate faults, each of which must be caught.

pub mod bench;
pub mod lab;
pub mod relations;
pub mod report;
pub mod sabotage;
pub mod subject;
pub mod tally;

pub use bench::{Bench, Trouble};
pub use lab::{DeviceLab, FakeLab, Lab, Referee};
pub use relations::Scale;
pub use report::Report;
pub use sabotage::Break;

/// English text that half of the token streams are cut from.
pub const PASSAGE: &str = include_str!("passage.txt");

/// Runs every relation and compares with the referee, which is the lab itself or another one with the same model. `progress`
/// gets each tally as soon as it is there.
pub fn check<L: Lab>(
    lab: &L,
    referee: &dyn Referee,
    passage: Vec<u32>,
    scale: &Scale,
    kind: Option<Break>,
    progress: &mut dyn FnMut(&tally::Tally),
) -> Report {
    let mut bench = Bench::new(lab, referee, passage, kind);
    let mut tallies = Vec::new();
    for relation in scale.relations(lab) {
        let tally = relation.run(&mut bench);
        progress(&tally);
        tallies.push(tally);
    }
    Report {
        subject: Lab::describe(lab),
        referee: referee.describe(),
        tallies,
        digest: bench.digest(),
        reference_rows: bench.reference_rows(),
    }
}

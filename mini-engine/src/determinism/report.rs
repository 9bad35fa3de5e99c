//! The outcome of all relations, for people and for programs.

use std::fmt::Write as _;

use super::tally::{Row, Tally};

/// All relations of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What ran.
    pub subject: String,
    /// What it was compared with.
    pub referee: String,
    /// One for each relation.
    pub tallies: Vec<Tally>,
    /// BLAKE3 over all reference logits.
    pub digest: blake3::Hash,
    /// Distinct reference rows.
    pub reference_rows: usize,
}

impl Report {
    /// The counts of each relation.
    pub fn rows(&self) -> Vec<Row> {
        self.tallies.iter().map(Tally::row).collect()
    }

    /// Nothing differs and nothing is invalid.
    pub fn all_equal(&self) -> bool {
        !self.tallies.is_empty() && self.rows().iter().all(|row| row.different == 0 && row.invalid == 0)
    }

    /// The JSON report: a list of counts.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.rows()).expect("counts and names are plain JSON")
    }

    /// The heading of the table.
    pub fn heading() -> String {
        format!("{:<32} {:>6} {:>6} {:>9} {:>7}  witness", "relation", "pairs", "equal", "different", "invalid")
    }

    /// One line of the table, and what is wrong with it.
    pub fn line(tally: &Tally) -> String {
        let row = tally.row();
        let mut line = format!(
            "{:<32} {:>6} {:>6} {:>9} {:>7}  {}",
            row.relation,
            row.pairs,
            row.equal,
            row.different,
            row.invalid,
            tally.witnesses()
        );
        for problem in tally.problems() {
            let _ = write!(line, "\n    invalid: {problem}");
        }
        if let Some(difference) = tally.first_difference() {
            let _ = write!(line, "\n    first difference: {difference}");
        }
        line
    }

    /// The last lines: totals, digest and verdict, which names every relation that did not hold.
    pub fn verdict(&self) -> String {
        let rows = self.rows();
        let total = |count: fn(&Row) -> usize| rows.iter().map(count).sum::<usize>();
        let failed: Vec<&str> =
            rows.iter().filter(|row| row.different > 0 || row.invalid > 0).map(|row| row.relation.as_str()).collect();
        let mut text = format!(
            "{} pairs: {} equal, {} different, {} invalid\nreference logits: {} rows, blake3 {}\n",
            total(|row| row.pairs),
            total(|row| row.equal),
            total(|row| row.different),
            total(|row| row.invalid),
            self.reference_rows,
            self.digest
        );
        if self.all_equal() {
            text.push_str("all equal");
        } else {
            let _ = write!(text, "NOT equal: {}", failed.join("; "));
        }
        text
    }
}

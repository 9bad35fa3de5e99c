//! The summary printed after a run: one line a shape, one column an arithmetic, with the ratio to `ieee`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Measured rates of one kernel: for each line (a shape) the rate under each column (an arithmetic).
pub struct Table {
    unit: f64,
    lines: Vec<String>,
    rates: BTreeMap<(String, String), f64>,
}

impl Table {
    /// An empty table whose rates are in `unit` operations a second, such as 1e9.
    pub fn new(unit: f64) -> Self {
        Self { unit, lines: Vec::new(), rates: BTreeMap::new() }
    }

    /// Records that `work` operations took `time`; the best of all records is kept.
    pub fn record(&mut self, line: &str, column: &str, work: f64, time: Duration) {
        let rate = work / time.as_nanos().max(1) as f64 * 1e9 / self.unit;
        if !self.lines.iter().any(|l| l == line) {
            self.lines.push(line.to_string());
        }
        let best = self.rates.entry((line.to_string(), column.to_string())).or_default();
        *best = best.max(rate);
    }

    /// Markdown: the rates, and next to each its ratio to the first column; nothing when nothing was measured.
    pub fn markdown(&self, title: &str, columns: &[&str]) -> String {
        if self.lines.is_empty() {
            return String::new();
        }
        let mut text = format!("\n| {title} |");
        for column in columns {
            let _ = write!(text, " {column} |");
        }
        let _ = write!(text, "\n|---|{}", "---:|".repeat(columns.len()));
        for line in &self.lines {
            let rate = |column: &str| self.rates.get(&(line.clone(), column.to_string()));
            let _ = write!(text, "\n| {line} |");
            for column in columns {
                match (rate(column), rate(columns[0])) {
                    (Some(rate), Some(first)) => drop(write!(text, " {rate:.2} ({:.2}) |", rate / first)),
                    (Some(rate), None) => drop(write!(text, " {rate:.2} |")),
                    _ => text.push_str(" - |"),
                }
            }
        }
        text.push('\n');
        text
    }
}

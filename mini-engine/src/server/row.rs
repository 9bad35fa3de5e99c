//! What is kept of a logits row once its step is over: rows are large, and an answer may have thousands.

use reduction_tree::evaluate::log_sum_exp;
use reduction_tree::operator::LogSumExpTree;

/// Log-probabilities read from one row, under the unmodified logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowFacts {
    /// The most likely tokens, best first; equal ones by their index.
    pub top: Vec<(u32, f32)>,
    /// The log-probability of the token that the prompt goes on with.
    pub next: Option<f32>,
}

impl RowFacts {
    /// Facts of `[vocab]` logits: the `top` best tokens, and the token that follows in the prompt.
    pub fn of(row: &[f32], top: usize, next: Option<u32>) -> Self {
        let sums = log_sum_exp(&LogSumExpTree { n: row.len() }, row);
        let mut best: Vec<(u32, f32)> = Vec::with_capacity(top + 1);
        for (token, &logit) in (0u32..).zip(row) {
            if logit.is_nan() || (best.len() == top && best.last().is_none_or(|worst| logit <= worst.1)) {
                continue;
            }
            // Behind its equals, whose indices are lower.
            let place = best.partition_point(|better| better.1 >= logit);
            best.insert(place, (token, logit));
            best.truncate(top);
        }
        best.iter_mut().for_each(|entry| entry.1 = sums.logprob(entry.1));
        let next = next.and_then(|token| row.get(token as usize)).map(|&logit| sums.logprob(logit));
        Self { top: best, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_first_and_lowest_index_first_among_equals() {
        let row = [0.0, 3.0, f32::NAN, 3.0, 1.0, 3.0];
        let facts = RowFacts::of(&row, 4, Some(4));
        assert_eq!(facts.top.iter().map(|entry| entry.0).collect::<Vec<_>>(), [1, 3, 5, 4]);
        assert_eq!(facts.next, Some(facts.top[3].1));
        assert!(RowFacts::of(&row, 0, None).top.is_empty());
        assert_eq!(RowFacts::of(&row[..1], 9, Some(7)), RowFacts { top: vec![(0, 0.0)], next: None });
    }
}

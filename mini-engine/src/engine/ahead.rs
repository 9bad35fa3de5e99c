//! Running ahead of the device: a step that is on its way, and the names that stand for the tokens it will choose.
//!
//! While a step runs, the next one is planned, checked and launched. Where a request goes on with a token that is still being
//! computed, the ledger commits a name in its place (`proofs/README.md`, "Running ahead"), and the row takes the token on the
//! device. When the step lands, the ledger resolves the names, or a request that turns out to have ended is closed and what it
//! computed ahead is dropped.

use std::collections::BTreeMap;

use kernels_rs::backend::StepRows;
use ledger::Launch;

use super::request::RequestId;
use super::row_model::Want;

/// Numbers that no token has, none given out twice.
#[derive(Debug)]
pub struct Names {
    first: u32,
    next: u32,
}

impl Names {
    /// Names beside the tokens of a vocabulary.
    pub fn new(vocab: usize) -> Self {
        let first = u32::try_from(vocab).unwrap_or(u32::MAX);
        Self { first, next: first }
    }

    /// Whether so many names are left.
    pub fn has(&self, count: usize) -> bool {
        (u32::MAX - self.next) as usize > count
    }

    /// The next name, of those that [`Names::has`].
    pub fn draw(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Whether fewer are left, and there were more.
    pub fn are_spent(&self, count: usize) -> bool {
        self.next > self.first && !self.has(count)
    }

    /// All names again, once the ledger has forgotten every one.
    pub fn renew(&mut self) {
        self.next = self.first;
    }
}

/// A launched step.
pub struct Ahead<F> {
    /// The rows, as the ledger accepted them.
    pub records: Vec<Launch>,
    /// The request of each row.
    pub owners: Vec<RequestId>,
    /// What was asked of the rows.
    pub wants: Vec<Want>,
    /// For each want the token that was committed before it was reported: a name, or a token that was known beforehand.
    pub early: Vec<Option<u32>>,
    /// The model's part.
    pub flight: F,
}

impl<F> Ahead<F> {
    /// Whether every token that it chooses is committed: none must be chosen by the host.
    pub fn is_committed(&self) -> bool {
        self.wants.iter().zip(&self.early).all(|(want, early)| want.sample.is_none() || early.is_some())
    }

    /// Makes the rows of the next step that continue with a name take the token of this step.
    pub fn hand_over(&self, names: &Names, rows: &mut StepRows) {
        let wants: BTreeMap<u32, u32> =
            self.early.iter().zip(0..).filter_map(|(early, want)| Some(((*early)?, want))).collect();
        for (row, token) in (0..).zip(&mut rows.tokens).filter(|(_, token)| **token >= names.first) {
            // Names of earlier steps have been resolved.
            let want = wants.get(token).expect("a name stands for a token of the step on its way");
            rows.taken.push((row, *want));
            *token = 0;
        }
    }

    /// Whether this step gave the page new contents from its start.
    pub fn refills(&self, page: u32, page_tokens: usize) -> bool {
        self.records.iter().any(|launch| launch.slot == page as usize * page_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(early: Vec<Option<u32>>) -> Ahead<()> {
        Ahead { records: Vec::new(), owners: Vec::new(), wants: Vec::new(), early, flight: () }
    }

    #[test]
    fn names_are_no_tokens_and_run_out() {
        let mut names = Names::new(u32::MAX as usize - 3);
        assert!(names.has(2) && !names.has(3));
        assert_eq!([names.draw(), names.draw()], [u32::MAX - 3, u32::MAX - 2]);
        assert!(!names.has(1) && names.are_spent(1));
        names.renew();
        assert!(names.has(2) && !names.are_spent(3));
    }

    #[test]
    fn only_rows_with_names_take_tokens() {
        let mut names = Names::new(10);
        let (a, b) = (names.draw(), names.draw());
        let mut rows = StepRows { tokens: vec![9, b, 3, a], ..StepRows::default() };
        step(vec![Some(3), Some(a), None, Some(b)]).hand_over(&names, &mut rows);
        assert_eq!((rows.tokens, rows.taken), (vec![9, 0, 3, 0], vec![(1, 3), (3, 1)]));
    }
}

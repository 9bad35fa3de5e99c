//! The bookkeeping of one relation: how many rows were compared, what the comparison said, and whether the thing in question
//! really happened.

use serde::Serialize;

/// Where two rows first differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which request, in words.
    pub request: String,
    /// Absolute position of the row.
    pub position: usize,
    /// What differs.
    pub what: Differing,
}

/// The first differing value of two rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Differing {
    /// One logit.
    Logit {
        /// Vocabulary index.
        index: usize,
        /// Alone.
        expected: f32,
        /// Here.
        got: f32,
    },
    /// The rows are of unequal length.
    Length {
        /// Alone.
        expected: usize,
        /// Here.
        got: usize,
    },
    /// The chosen token.
    Token {
        /// From the reference row.
        expected: u32,
        /// Here.
        got: u32,
    },
    /// The chosen token's log-probability.
    Logprob {
        /// From the reference row.
        expected: f32,
        /// Here.
        got: f32,
    },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, position {}: ", self.request, self.position)?;
        match self.what {
            Differing::Logit { index, expected, got } => write!(
                f,
                "logit {index} is {expected:e} ({:#010x}) alone and {got:e} ({:#010x}) here",
                expected.to_bits(),
                got.to_bits()
            ),
            Differing::Length { expected, got } => write!(f, "{expected} logits alone and {got} here"),
            Differing::Token { expected, got } => {
                write!(f, "the logits are equal, but token {expected} is chosen alone and {got} here")
            }
            Differing::Logprob { expected, got } => write!(f, "log-probability {expected:e} alone and {got:e} here"),
        }
    }
}

/// The first difference of two rows, by bits.
pub fn first_difference(expected: &[f32], got: &[f32]) -> Option<Differing> {
    if expected.len() != got.len() {
        return Some(Differing::Length { expected: expected.len(), got: got.len() });
    }
    let index = (0..expected.len()).find(|&index| expected[index].to_bits() != got[index].to_bits())?;
    Some(Differing::Logit { index, expected: expected[index], got: got[index] })
}

/// The counts of one relation, as they stand in the JSON report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What was varied.
    pub relation: String,
    /// Logits rows that were to be compared.
    pub pairs: usize,
    /// Equal in every bit.
    pub equal: usize,
    /// Different in at least one bit.
    pub different: usize,
    /// Not comparable, or compared without a witness that the relation was provoked.
    pub invalid: usize,
}

/// One relation while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    relation: String,
    equal: usize,
    different: usize,
    missing: usize,
    witnesses: Vec<String>,
    problems: Vec<String>,
    first: Option<Difference>,
}

impl Tally {
    /// Nothing compared yet.
    pub fn new(relation: impl Into<String>) -> Self {
        Self {
            relation: relation.into(),
            equal: 0,
            different: 0,
            missing: 0,
            witnesses: Vec::new(),
            problems: Vec::new(),
            first: None,
        }
    }

    /// Records one comparison.
    pub fn compared(&mut self, difference: Option<Difference>) {
        match difference {
            None => self.equal += 1,
            Some(difference) => {
                self.different += 1;
                self.first.get_or_insert(difference);
            }
        }
    }

    /// Rows that should have been compared and were not produced.
    pub fn missing(&mut self, rows: usize, why: impl Into<String>) {
        if rows > 0 {
            self.missing += rows;
            self.problems.push(why.into());
        }
    }

    /// A count that shows that the relation was provoked. Below `least`, nothing in the relation is valid.
    pub fn witness(&mut self, what: &str, count: u64, least: u64) {
        if count < least {
            self.problems.push(format!("witness missing: {what} is {count}, expected at least {least}"));
        } else {
            self.witnesses.push(format!("{what} {count}"));
        }
    }

    /// A count that must be zero for the relation to be valid.
    pub fn never(&mut self, what: &str, count: u64) {
        if count > 0 {
            self.problems.push(format!("{what}: {count}"));
        }
    }

    /// What shows that the relation was provoked.
    pub fn witnesses(&self) -> String {
        self.witnesses.join(", ")
    }

    /// Why pairs are invalid.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The first difference.
    pub fn first_difference(&self) -> Option<&Difference> {
        self.first.as_ref()
    }

    /// The counts. With a problem, what looked equal is invalid; a difference stays a difference.
    pub fn row(&self) -> Row {
        let pairs = self.equal + self.different + self.missing;
        let (equal, invalid) = match self.problems.is_empty() && pairs > 0 {
            true => (self.equal, self.missing),
            // A relation without a single pair must not look like a passed one.
            false => (0, (self.equal + self.missing).max(usize::from(self.different == 0))),
        };
        let pairs = equal + self.different + invalid;
        Row { relation: self.relation.clone(), pairs, equal, different: self.different, invalid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference() -> Difference {
        let what = first_difference(&[1.0, 0.0], &[1.0, -0.0]).unwrap();
        Difference { request: "request 3".into(), position: 9, what }
    }

    #[test]
    fn zeros_of_two_signs_differ_and_equal_nans_do_not() {
        assert_eq!(first_difference(&[f32::NAN], &[f32::NAN]), None);
        assert_eq!(
            difference().to_string(),
            "request 3, position 9: logit 1 is 0e0 (0x00000000) alone and -0e0 (0x80000000) here"
        );
        assert!(first_difference(&[1.0], &[]).is_some());
    }

    #[test]
    fn a_missing_witness_invalidates_what_looked_equal() {
        let mut tally = Tally::new("r");
        tally.compared(None);
        tally.compared(Some(difference()));
        tally.witness("preemptions", 2, 1);
        let row = tally.row();
        assert_eq!((row.pairs, row.equal, row.different, row.invalid), (2, 1, 1, 0));
        tally.witness("evictions", 0, 1);
        let row = tally.row();
        assert_eq!((row.pairs, row.equal, row.different, row.invalid), (2, 0, 1, 1));
        assert_eq!(tally.problems(), ["witness missing: evictions is 0, expected at least 1"]);
    }

    #[test]
    fn no_pairs_is_not_a_pass() {
        assert_eq!(Tally::new("r").row().invalid, 1);
    }
}

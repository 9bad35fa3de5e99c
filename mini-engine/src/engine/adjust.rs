//! What a request changes about its logits before a token is chosen: penalties for tokens it already holds, a bias for some.
//!
//! The adjusted row is a function of the row, the request's own settings, its prompt and its own tokens so far. Each element is
//! computed by itself in binary32 with one rounding an operation, in this order, x being the logit of token t:
//!
//! 1. repetition, r ≠ 1, t in the prompt or the answer so far: `x / r` if x > 0, else `x * r`
//!    (CTRL, Keskar et al. 2019, section 4.1, in the form of Hugging Face's `RepetitionPenaltyLogitsProcessor`, which also
//!    pushes negative logits down);
//! 2. frequency and presence, t chosen c > 0 times in the answer so far: `(x - c * frequency) - presence`
//!    (OpenAI's reference: `mu[j] -> mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence`);
//! 3. bias: `x + bias[t]`.
//!
//! A result that is NaN (only possible from a non-finite logit) is left to the sampler, which never chooses it. Reported
//! log-probabilities are those of the unmodified row.

use std::collections::BTreeMap;

use super::request::Refusal;

/// Largest penalty factor, and its reciprocal the smallest: far beyond what anybody uses, and no f32 overflows.
const REPETITION_MAX: f32 = 1e3;
/// Largest magnitude of a penalty or bias.
const SHIFT_MAX: f32 = 1e4;

/// Adjustments of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjust {
    /// Factor against tokens of the prompt and the answer; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Subtracted once for every time that a token stands in the answer.
    pub frequency_penalty: f32,
    /// Subtracted once for a token that stands in the answer.
    pub presence_penalty: f32,
    /// Added to the logit of a token.
    pub logit_bias: BTreeMap<u32, f32>,
}

impl Default for Adjust {
    fn default() -> Self {
        Self { repetition_penalty: 1.0, frequency_penalty: 0.0, presence_penalty: 0.0, logit_bias: BTreeMap::new() }
    }
}

impl Adjust {
    /// Whether every row stays as it is.
    pub fn is_neutral(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses what could overflow, and a bias for a token that the vocabulary lacks.
    pub fn check(&self, vocab: usize) -> Result<(), Refusal> {
        let outside = |field, expected, got: f32| Err(Refusal::Sampling { field, expected, got: got.to_string() });
        if !(1.0 / REPETITION_MAX..=REPETITION_MAX).contains(&self.repetition_penalty) {
            return outside("repetition_penalty", "between 0.001 and 1000", self.repetition_penalty);
        }
        for (field, value) in
            [("frequency_penalty", self.frequency_penalty), ("presence_penalty", self.presence_penalty)]
        {
            if !(-SHIFT_MAX..=SHIFT_MAX).contains(&value) {
                return outside(field, "between -10000 and 10000", value);
            }
        }
        for (&token, &bias) in &self.logit_bias {
            if token as usize >= vocab {
                let got = token.to_string();
                return Err(Refusal::Sampling { field: "logit_bias", expected: "for tokens of the vocabulary", got });
            }
            if !(-SHIFT_MAX..=SHIFT_MAX).contains(&bias) {
                return outside("logit_bias", "between -10000 and 10000", bias);
            }
        }
        Ok(())
    }

    /// Adjusts the row that follows `history`, whose first `prompt` tokens are the prompt.
    pub fn apply(&self, history: &[u32], prompt: usize, row: &mut [f32]) {
        // For each token: whether it stands anywhere, and how often in the answer. Ordered, so that nothing depends on hashes.
        let mut counts: BTreeMap<u32, u32> = history.iter().map(|&token| (token, 0)).collect();
        for token in &history[prompt..] {
            *counts.entry(*token).or_default() += 1;
        }
        for (&token, &count) in &counts {
            let Some(x) = row.get_mut(token as usize) else { continue };
            if self.repetition_penalty != 1.0 {
                *x = if *x > 0.0 { *x / self.repetition_penalty } else { *x * self.repetition_penalty };
            }
            if count > 0 {
                *x = (*x - count as f32 * self.frequency_penalty) - self.presence_penalty;
            }
        }
        for (&token, &bias) in &self.logit_bias {
            if let Some(x) = row.get_mut(token as usize) {
                *x += bias;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(adjust: &Adjust, history: &[u32], prompt: usize, row: &[f32]) -> Vec<f32> {
        let mut row = row.to_vec();
        adjust.apply(history, prompt, &mut row);
        row
    }

    #[test]
    fn neutral_settings_change_no_bit() {
        let row = [-0.0, 1.5, f32::MIN_POSITIVE / 2.0, -3.0];
        assert!(Adjust::default().is_neutral());
        let same = adjusted(&Adjust::default(), &[0, 1, 2, 3, 2], 2, &row);
        assert!(same.iter().zip(&row).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    #[test]
    fn each_formula_by_hand() {
        let row = [2.0, -2.0, 1.0, 4.0, 8.0];
        let history = [0, 1, 3, 3, 4];
        let repetition = Adjust { repetition_penalty: 2.0, ..Adjust::default() };
        assert_eq!(adjusted(&repetition, &history, 2, &row), [1.0, -4.0, 1.0, 2.0, 4.0]);
        let frequency = Adjust { frequency_penalty: 0.5, ..Adjust::default() };
        assert_eq!(adjusted(&frequency, &history, 2, &row), [2.0, -2.0, 1.0, 3.0, 7.5]);
        let presence = Adjust { presence_penalty: 0.25, ..Adjust::default() };
        assert_eq!(adjusted(&presence, &history, 2, &row), [2.0, -2.0, 1.0, 3.75, 7.75]);
        let bias = Adjust { logit_bias: BTreeMap::from([(2, -100.0), (0, 1.0)]), ..Adjust::default() };
        assert_eq!(adjusted(&bias, &history, 2, &row), [3.0, -2.0, -99.0, 4.0, 8.0]);
        let all = Adjust {
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            logit_bias: BTreeMap::from([(3, 1.0)]),
        };
        // 4 / 2 - 2 * 0.5 - 0.25 + 1
        assert_eq!(adjusted(&all, &history, 2, &row)[3], 1.75);
    }

    #[test]
    fn what_could_overflow_is_refused() {
        let wrong = [
            Adjust { repetition_penalty: 0.0, ..Adjust::default() },
            Adjust { repetition_penalty: f32::NAN, ..Adjust::default() },
            Adjust { frequency_penalty: f32::INFINITY, ..Adjust::default() },
            Adjust { presence_penalty: f32::NAN, ..Adjust::default() },
            Adjust { logit_bias: BTreeMap::from([(10, 0.0)]), ..Adjust::default() },
            Adjust { logit_bias: BTreeMap::from([(1, f32::NAN)]), ..Adjust::default() },
        ];
        for adjust in wrong {
            assert!(adjust.check(10).is_err(), "{adjust:?}");
        }
        assert_eq!(Adjust { logit_bias: BTreeMap::from([(9, -100.0)]), ..Adjust::default() }.check(10), Ok(()));
    }
}

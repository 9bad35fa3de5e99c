//! What the engine needs of a model: rows in, faults, tokens, logits and their digests out.

use kernels_rs::backend::{SampleParams, Sampled, StepRows};

/// A row of the step whose logits are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Index into the step's rows.
    pub row: usize,
    /// Choose a token from the logits.
    pub sample: Option<SampleParams>,
    /// Return the complete row.
    pub logits: bool,
    /// Return the digest of the complete row.
    pub digest: bool,
}

/// What became of one wanted row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Exactly when a sample was wanted.
    pub sampled: Option<Sampled>,
    /// `[vocab]`, exactly when the row was wanted.
    pub logits: Option<Vec<f32>>,
    /// [`logits_digest`] of the row, exactly when it was wanted.
    pub digest: Option<blake3::Hash>,
}

/// What one step of the model computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// `[rows]` whether the row's keys or values were not finite (they were stored as 0).
    pub faults: Vec<bool>,
    /// One for each want, in the same order.
    pub outcomes: Vec<Outcome>,
}

/// A model together with the KV pool that it runs over.
///
/// The contract that determinism rests on: what a row yields is a function of its token, its position and the KV cells of
/// positions `0..=position` that its table names, and of nothing else in the step.
pub trait RowModel {
    /// Why a step could not be computed. The engine then forgets all KV and can try again.
    type Error: std::error::Error + Send + Sync + 'static;
    /// A step on its way.
    type Flight: Send;

    /// Vocabulary size.
    fn vocab(&self) -> usize;
    /// Most tokens of a sequence.
    fn context_max(&self) -> usize;
    /// Chooses one token from each of some logits rows `[params, vocab]`, as a step would have from a row of its own.
    fn choose(&mut self, rows: &[f32], params: &[SampleParams]) -> Result<Vec<Sampled>, Self::Error>;
    /// Launches a step, which writes the KV of all rows to their slots and computes what is wanted; it need not be done when this
    /// returns. Steps act as if they ran one after another in the order of their launches. `rows.taken` names rows whose token
    /// is the one that the step launched before this one chooses, by the index of its want.
    fn launch(&mut self, rows: StepRows, wants: &[Want]) -> Result<Self::Flight, Self::Error>;
    /// Waits for a launched step. Steps are collected in the order of their launches.
    fn collect(&mut self, flight: Self::Flight) -> Result<StepOutcome, Self::Error>;
}

/// BLAKE3 of a logits row: its binary32 values in vocabulary order, four bytes each, least significant first. The row is the
/// model's own; nothing that shapes the choice of a token has touched it.
pub fn logits_digest(row: &[f32]) -> blake3::Hash {
    if cfg!(target_endian = "little") {
        return blake3::hash(bytemuck::cast_slice(row));
    }
    let mut hasher = blake3::Hasher::new();
    row.iter().for_each(|logit| {
        hasher.update(&logit.to_le_bytes());
    });
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_over_the_bits() {
        let expected = blake3::hash(&[0, 0, 128, 63, 0, 0, 0, 128]);
        assert_eq!(logits_digest(&[1.0, -0.0]), expected);
        assert_ne!(logits_digest(&[1.0, 0.0]), expected);
    }
}

//! The bridge to a backend: every want gets its own row's answer, in whatever order rows are wanted, and a poisoned row faults
//! alone.

use std::sync::Arc;

use kernels_rs::backend::{SampleParams, StepRows};
use kernels_rs::cpu::Cpu;
use mini_engine::device_model::DeviceModel;
use mini_engine::engine::{EngineConfig, Outcome, RowModel, StepOutcome, Want, logits_digest};
use mini_engine::model::{LoadOptions, Model, Source};
use reduction_tree::arithmetic::Arithmetic;

const TOKENS: [u32; 6] = [5, 6, 7, 8, 9, 10];

fn device() -> DeviceModel<Cpu> {
    let checkpoint = Source::parse("tiny:qwen3").unwrap().open().unwrap();
    let backend = Arc::new(Cpu::new(Arithmetic::Sm90, 1).unwrap());
    let model = Model::load(&checkpoint, backend, LoadOptions::default(), &mut |_| {}).unwrap();
    let config = EngineConfig { page_tokens: 4, pages: 3, step_rows_max: 6, ..EngineConfig::default() };
    DeviceModel::new(Arc::new(model), &config).unwrap()
}

/// Two sequences of three tokens each.
fn rows() -> StepRows {
    StepRows {
        tokens: TOKENS.to_vec(),
        positions: vec![0, 1, 2, 0, 1, 2],
        slots: vec![4, 5, 6, 0, 1, 2],
        sequences: vec![0, 0, 0, 1, 1, 1],
        tables: vec![vec![1], vec![0]],
        ..StepRows::default()
    }
}

fn forward(device: &mut DeviceModel<Cpu>, wants: &[Want]) -> StepOutcome {
    let flight = device.launch(rows(), wants).unwrap();
    device.collect(flight).unwrap()
}

fn greedy(row: usize) -> SampleParams {
    SampleParams { temperature: 0.0, top_k: None, top_p: 1.0, min_p: 0.0, seed: 0, position: row as u32 }
}

fn argmax(row: &[f32]) -> u32 {
    (1..row.len()).fold(0, |best, index| if row[index] > row[best] { index } else { best }) as u32
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn wants_may_come_in_any_order_and_mixture() {
    let alone: Vec<Outcome> = (0..6)
        .map(|row| {
            let want = Want { row, sample: Some(greedy(row)), logits: true, digest: true };
            forward(&mut device(), &[want]).outcomes.remove(0)
        })
        .collect();
    for outcome in &alone {
        assert_eq!(outcome.digest, Some(logits_digest(outcome.logits.as_ref().unwrap())));
        assert_eq!(outcome.sampled.unwrap().token, argmax(outcome.logits.as_ref().unwrap()));
    }
    let distinct: std::collections::BTreeSet<Vec<u32>> =
        alone.iter().map(|outcome| bits(outcome.logits.as_ref().unwrap())).collect();
    assert_eq!(distinct.len(), 6, "rows that are equal would hide a mix-up");
    let wants = [
        (4, true, false, false),
        (0, false, true, false),
        (5, true, true, true),
        (2, true, false, true),
        (1, false, true, true),
        (3, true, true, false),
    ]
    .map(|(row, sample, logits, digest)| Want { row, sample: sample.then(|| greedy(row)), logits, digest });
    let outcome = forward(&mut device(), &wants);
    assert_eq!(outcome.faults, [false; 6]);
    for (want, outcome) in wants.iter().zip(outcome.outcomes) {
        let expected = &alone[want.row];
        assert_eq!(outcome.sampled, want.sample.and(expected.sampled));
        assert_eq!(outcome.logits.as_deref().map(bits), expected.logits.as_deref().filter(|_| want.logits).map(bits));
        assert_eq!(outcome.digest, expected.digest.filter(|_| want.digest));
    }
    assert!(forward(&mut device(), &[]).outcomes.is_empty());
}

#[test]
fn a_poisoned_row_faults_and_leaves_the_other_sequence_alone() {
    let want = |row| Want { row, sample: Some(greedy(row)), logits: true, digest: false };
    let clean = forward(&mut device(), &[want(5)]);
    let mut poisoned = device();
    poisoned.poison(TOKENS[1]);
    let outcome = forward(&mut poisoned, &[want(1), want(5)]);
    assert!(outcome.faults[1] && !outcome.faults[0] && !outcome.faults[3..].contains(&true));
    assert!(!outcome.outcomes[0].sampled.unwrap().logprob.is_finite());
    assert_eq!(outcome.outcomes[1], clean.outcomes[0]);
    // The fault is gone with the step.
    poisoned.poison(u32::MAX);
    assert_eq!(forward(&mut poisoned, &[want(5)]), clean);
}

#[test]
fn a_row_takes_its_token_from_the_step_before() {
    let want = |row, logits| Want { row, sample: Some(greedy(row)), logits, digest: false };
    // Row 5 is sampled first on the device, since the host wants to see it.
    let first = [want(2, false), Want { sample: None, ..want(0, true) }, want(5, true)];
    let next = |token: u32, taken| StepRows {
        tokens: vec![token],
        positions: vec![3],
        slots: vec![3],
        sequences: vec![0],
        tables: vec![vec![0]],
        taken,
    };
    let mut device = device();
    let outcome = forward(&mut device, &first);
    let token = outcome.outcomes[2].sampled.unwrap().token;
    assert_ne!(outcome.outcomes[0].sampled.unwrap().token, token, "equal tokens would hide a mix-up");
    let flight = device.launch(next(token, Vec::new()), &[want(0, true)]).unwrap();
    let expected = device.collect(flight).unwrap();
    // The same without waiting for the first step.
    let flight = device.launch(rows(), &first).unwrap();
    let behind = device.launch(next(0, vec![(0, 2)]), &[want(0, true)]).unwrap();
    assert_eq!(device.collect(flight).unwrap(), outcome);
    assert_eq!(device.collect(behind).unwrap(), expected);
    // A row that was wanted but not sampled has no token to give.
    let flight = device.launch(rows(), &first).unwrap();
    assert!(device.launch(next(0, vec![(0, 1)]), &[]).is_err());
    device.collect(flight).unwrap();
}

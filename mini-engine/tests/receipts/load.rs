//! Receipts taken while many requests come, go and are cancelled, in a pool too small for them.

use std::collections::BTreeSet;

use mini_engine::engine::noise::Noise;
use mini_engine::engine::{EngineConfig, Sampling};
use mini_engine::receipt::Receipt;
use reduction_tree::arithmetic::Arithmetic;

use super::{Answer, Lab, Live, Question, assert_equal};

/// The request that is asked again and again.
fn recurring() -> Question {
    Question {
        tokens_max: 14,
        stops: vec!["never said".into()],
        ..Question::warm("Whatever else the server does, ", 42)
    }
}

fn random(noise: &mut Noise) -> Question {
    // Some share a beginning, so that the prefix cache has work.
    let stem = ["Whatever else ", "The same model, the same prompt ", ""][noise.below(3)];
    let tail: String = (0..1 + noise.below(40)).map(|_| char::from(b'a' + noise.below(26) as u8)).collect();
    let sampling = Sampling {
        temperature: [0.0, 1.0, 40.0][noise.below(3)],
        top_k: noise.one_in(2).then_some(50),
        top_p: if noise.one_in(2) { 0.9 } else { 1.0 },
        min_p: 0.0,
        seed: noise.next_u64(),
        adjust: if noise.one_in(3) { Question::warm("", 0).sampling.adjust } else { Default::default() },
    };
    let stops = if noise.one_in(4) { vec!["e".into(), "ab".into()] } else { Vec::new() };
    Question { text: format!("{stem}{tail}"), sampling, stops, tokens_max: 1 + noise.below(20) }
}

/// Runs until `wanted` random answers and 20 of the recurring one are finished.
fn receipts_under_load(lab: &Lab, wanted: usize, seed: u64) -> (Vec<Receipt>, Vec<Receipt>) {
    let mut noise = Noise::new(seed);
    let config = EngineConfig { page_tokens: 8, pages: 40, step_rows_max: 24, ..EngineConfig::default() };
    let mut engine = lab.engine(EngineConfig { page_order: Some(seed), ..config });
    let mut live = Live::new();
    let (mut others, mut same) = (Vec::new(), Vec::new());
    let mut recurring_ids = BTreeSet::new();
    while others.len() < wanted || same.len() < 20 {
        while live.len() < 12 {
            let recurs = noise.one_in(3);
            let question = if recurs { recurring() } else { random(&mut noise) };
            let answer = Answer::new(lab, &question);
            let id = engine.submit(answer.request.clone()).unwrap();
            if recurs {
                recurring_ids.insert(id);
            }
            live.insert(id, answer);
        }
        if noise.one_in(6) {
            let &id = live.keys().nth(noise.below(live.len())).unwrap();
            engine.cancel(id);
            live.remove(&id);
        }
        let mut over = Vec::new();
        for event in engine.step().unwrap() {
            let id = event.id();
            let Some(answer) = live.get_mut(&id) else { continue };
            let receipt = answer.take(event, || over.push(id));
            if let Some(receipt) = receipt {
                live.remove(&id);
                if recurring_ids.contains(&id) { same.push(receipt) } else { others.push(receipt) }
            }
        }
        over.into_iter().for_each(|id| {
            engine.cancel(id);
        });
    }
    let stats = engine.stats();
    assert!(stats.policy.preemptions > 0 && stats.policy.attached_tokens > 0 && stats.cancelled > 10, "{stats:?}");
    assert!(stats.step_requests_peak > 4 && stats.mixed_steps > 0, "{stats:?}");
    (others, same)
}

#[test]
fn fifty_receipts_taken_under_load_pass_and_one_request_has_one_receipt() {
    let lab = Lab::new("tiny:qwen2", Arithmetic::Sm90);
    let (others, same) = receipts_under_load(&lab, 50, 1);
    assert!(others.len() >= 50 && same.len() >= 20);
    let auditor = lab.auditor();
    for receipt in &others {
        assert_equal(&auditor.audit(receipt).unwrap());
    }
    let alone = lab.ask(&recurring());
    for receipt in &same {
        assert_eq!(receipt, &alone);
    }
    assert_equal(&lab.audit(&alone));
    let distinct: BTreeSet<String> = others.iter().map(|receipt| receipt.digest.to_string()).collect();
    assert!(distinct.len() > 45, "receipts that are all the same would pass as easily");
}

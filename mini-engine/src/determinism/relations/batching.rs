//! How many requests share a step, and which.

use std::collections::BTreeMap;

use super::{Relation, Scale};
use crate::determinism::bench::{Bench, roomy};
use crate::determinism::lab::Lab;
use crate::determinism::subject::Subject;
use crate::engine::noise::Noise;
use crate::engine::{Adjust, Sampling};

/// Requests of the crowd.
const CROWD: usize = 32;
/// Forced tokens after each prompt.
const DECODE: usize = 3;

/// A crowd of short requests, every other one sampling with its own settings.
pub(super) fn crowd<L: Lab>(bench: &Bench<'_, L>, (shortest, longest): (usize, usize)) -> Vec<Subject> {
    (0..CROWD)
        .map(|stream| {
            let prompt = shortest + stream * 11 % (longest - shortest + 1);
            let subject = bench.streams.subject(stream, prompt, DECODE);
            if stream % 2 == 0 { subject } else { subject.with_sampling(settings(stream)) }
        })
        .collect()
}

/// Sampling settings that differ from request to request, hot enough that other noise chooses other tokens.
pub(super) fn settings(index: usize) -> Sampling {
    Sampling {
        temperature: [1.0, 4.0, 16.0][index % 3],
        top_k: [None, Some(40), Some(3)][index / 2 % 3],
        top_p: [1.0, 0.9][index % 2],
        min_p: [0.0, 0.05][index / 3 % 2],
        seed: index as u64,
        adjust: adjust(index),
    }
}

/// Penalties that differ from request to request; some requests have none.
fn adjust(index: usize) -> Adjust {
    Adjust {
        repetition_penalty: [1.0, 1.3, 0.7, 1.0][index / 2 % 4],
        frequency_penalty: [0.0, 0.5, -0.25][index / 4 % 3],
        presence_penalty: [0.0, 0.0, 1.5][index / 2 % 3],
        logit_bias: if index % 8 == 5 { BTreeMap::from([(index as u32, 3.0), (2, -100.0)]) } else { BTreeMap::new() },
    }
}

pub(super) fn relations<L: Lab>(scale: &Scale) -> Vec<Relation<L>> {
    let prompts = scale.crowd_prompts;
    let relation = |&(size, groups): &(usize, usize)| {
        Relation::new(format!("batch of {size}"), move |bench: &mut Bench<'_, L>, tally| {
            let mut subjects = crowd(bench, prompts);
            let mut noise = Noise::new(size as u64);
            let mut peak = u64::MAX;
            for _ in 0..groups {
                noise.shuffle(&mut subjects);
                let mut run = bench.run(roomy())?;
                for subject in &subjects[..size] {
                    bench.submit(&mut run, subject)?;
                }
                peak = peak.min(bench.finish(&mut run, tally)?.step_requests_peak);
            }
            tally.witness("requests in one step", peak, size as u64);
            Ok(())
        })
    };
    scale.batches.iter().map(relation).collect()
}

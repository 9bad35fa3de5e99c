//! What the neighbours do: leave, sample otherwise, fail.

use super::batching::{crowd, settings};
use super::{Relation, Scale};
use crate::determinism::bench::{Bench, PAGE_TOKENS, roomy};
use crate::determinism::lab::Lab;
use crate::engine::{EngineConfig, Request};

pub(super) fn relations<L: Lab>(scale: &Scale) -> Vec<Relation<L>> {
    let prompts = scale.crowd_prompts;
    vec![cancellation(prompts), sampling(prompts), poison()]
}

/// Half of the requests go away, some in their prefill and some in decode; others get their pages.
fn cancellation<L: Lab>(prompts: (usize, usize)) -> Relation<L> {
    Relation::new("cancelled neighbours", move |bench: &mut Bench<'_, L>, tally| {
        let mut run = bench.run(EngineConfig { step_rows_max: 40, pages: 10, ..roomy() })?;
        let subjects = crowd(bench, prompts);
        let mut neighbours = Vec::new();
        for (index, subject) in subjects[..10].iter().enumerate() {
            if index % 2 == 0 {
                bench.submit(&mut run, subject)?;
            } else {
                let prompt = bench.streams.tokens(90 + index, 20 + 6 * index);
                neighbours.push(run.neighbour(Request { prompt, tokens_max: 30, ..Request::default() })?);
            }
        }
        for neighbour in neighbours {
            bench.step(&mut run, tally)?;
            run.engine.cancel(neighbour);
        }
        let stats = bench.finish(&mut run, tally)?;
        tally.witness("cancelled", stats.cancelled, 5);
        Ok(())
    })
}

/// The same requests twice, each time with neighbours that sample otherwise.
fn sampling<L: Lab>(prompts: (usize, usize)) -> Relation<L> {
    Relation::new("neighbours' sampling", move |bench: &mut Bench<'_, L>, tally| {
        let subjects = crowd(bench, prompts);
        let mut random = 0;
        for round in 0..2 {
            let mut run = bench.run(roomy())?;
            for (index, subject) in subjects[..8].iter().enumerate() {
                if index % 2 == round {
                    bench.submit(&mut run, &subject.with_sampling(settings(index)))?;
                } else {
                    let sampling = settings(index + 5 * round + 1);
                    random += 1;
                    run.neighbour(Request { sampling, ..subject.request() })?;
                }
            }
            bench.finish(&mut run, tally)?;
        }
        tally.witness("neighbours that sample", random, 8);
        Ok(())
    })
}

/// A neighbour whose keys and values are NaN must fail alone; then its pages are used by others.
fn poison<L: Lab>() -> Relation<L> {
    Relation::new("a neighbour's NaN", move |bench: &mut Bench<'_, L>, tally| {
        let mut run = bench.run(EngineConfig { pages: 8, ..roomy() })?;
        for wave in 0..2 {
            for index in 0..4 {
                let subject = bench.streams.subject(100 + 10 * wave + index, 12 + 13 * index, 3);
                bench.submit(&mut run, &subject)?;
            }
            let mut prompt = bench.streams.tokens(108 + wave, PAGE_TOKENS + 6);
            prompt[PAGE_TOKENS / 2 + wave * 36] = bench.lab.poison_token();
            run.neighbour(Request { prompt, tokens_max: 8, ..Request::default() })?;
            bench.finish(&mut run, tally)?;
        }
        tally.witness("failed neighbours", run.engine.stats().failures, 2);
        Ok(())
    })
}

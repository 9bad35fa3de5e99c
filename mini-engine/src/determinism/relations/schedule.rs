//! How a request is cut into steps: chunked prefill, decode, arrivals while others decode, preemption.

use super::batching::settings;
use super::{Relation, Scale};
use crate::determinism::bench::{Bench, PAGE_TOKENS, roomy};
use crate::determinism::bench::{Run, Trouble};
use crate::determinism::lab::Lab;
use crate::determinism::sabotage::Break;
use crate::determinism::subject::Subject;
use crate::engine::{Adjust, EngineConfig, Event, Request, Sampling};

pub(super) fn relations<L: Lab>(scale: &Scale) -> Vec<Relation<L>> {
    let mut all: Vec<Relation<L>> =
        scale.chunks.iter().map(|(budget, lengths)| chunks(*budget, lengths.clone())).collect();
    all.push(decode(scale.decodes.clone()));
    all.push(arrivals(scale.arrivals));
    all.push(preemption(scale.squeezed));
    all.push(ahead(scale.free));
    all
}

/// One request at a time, except for a budget that fits them all, which packs them into one step.
fn chunks<L: Lab>(budget: usize, lengths: Vec<usize>) -> Relation<L> {
    Relation::new(format!("chunks of {budget}"), move |bench: &mut Bench<'_, L>, tally| {
        let config = EngineConfig { step_rows_max: budget, ..roomy() };
        let packs = if lengths.iter().all(|&length| length < budget) {
            vec![lengths.clone()]
        } else {
            lengths.iter().map(|&length| vec![length]).collect()
        };
        let (mut steps, mut peak, mut together) = (0, 0, 0);
        for pack in packs {
            let mut run = bench.run(config.clone())?;
            for &length in &pack {
                let subject = bench.streams.subject(length, length, 2);
                bench.submit(&mut run, &subject)?;
            }
            let stats = bench.finish(&mut run, tally)?;
            steps += stats.steps;
            peak = peak.max(stats.step_rows_peak);
            together = together.max(stats.step_requests_peak);
        }
        if lengths.iter().all(|&length| length < budget) {
            tally.witness("requests in one step", together, lengths.len() as u64);
        } else {
            let cut: usize = lengths.iter().map(|length| length.div_ceil(budget) + 2).sum();
            tally.witness("steps", steps, cut as u64);
            tally.witness("rows in a step", peak, lengths.iter().copied().max().unwrap_or(0).min(budget) as u64);
        }
        Ok(())
    })
}

fn decode<L: Lab>(runs: Vec<(usize, usize)>) -> Relation<L> {
    Relation::new("prefill or decode", move |bench: &mut Bench<'_, L>, tally| {
        for (index, &(prompt, decode)) in runs.iter().enumerate() {
            let subject = bench.streams.subject(40 + index, prompt, decode);
            let mut run = bench.run(roomy())?;
            bench.submit(&mut run, &subject)?;
            let stats = bench.finish(&mut run, tally)?;
            tally.witness("steps", stats.steps, decode as u64 + 1);
        }
        Ok(())
    })
}

fn arrivals<L: Lab>(count: usize) -> Relation<L> {
    Relation::new("staggered arrivals", move |bench: &mut Bench<'_, L>, tally| {
        let mut run = bench.run(EngineConfig { step_rows_max: 24, ..roomy() })?;
        for stream in 50..52 {
            let subject = bench.streams.subject(stream, 5, 4 * count + 4).with_sampling(settings(stream));
            bench.submit(&mut run, &subject)?;
        }
        for arrival in 0..count {
            for _ in 0..3 {
                bench.step(&mut run, tally)?;
            }
            let subject = bench.streams.subject(52 + arrival, 30 + 9 * (arrival % 5), 4);
            bench.submit(&mut run, &subject)?;
        }
        let stats = bench.finish(&mut run, tally)?;
        tally.witness("steps that mix a chunk with decodes", stats.mixed_steps, count as u64);
        Ok(())
    })
}

/// Every prompt fills its page almost; when they decode into a second one, the pool is too small.
fn preemption<L: Lab>(count: usize) -> Relation<L> {
    Relation::new("preemption", move |bench: &mut Bench<'_, L>, tally| {
        let relief = if bench.kind == Some(Break::NoPressure) { 8 } else { 1 };
        let mut run = bench.run(EngineConfig { pages: relief * count.max(2), ..roomy() })?;
        for index in 0..count {
            let subject = bench.streams.subject(60 + index, PAGE_TOKENS - 1 - index % 3, 6 + index % 2);
            bench.submit(&mut run, &subject)?;
        }
        let stats = bench.finish(&mut run, tally)?;
        tally.witness("preemptions", stats.policy.preemptions, 2);
        tally.witness("recomputed positions", stats.recomputed_tokens, PAGE_TOKENS as u64);
        Ok(())
    })
}

/// Requests that go on with what they choose, so that a row takes its token from the step before: with each step planned when
/// the one before is done, and ahead of it; with room, and in a pool that is too small. Some end by a token that nobody can know
/// beforehand.
fn ahead<L: Lab>((count, answer): (usize, usize)) -> Relation<L> {
    Relation::new("ahead of the device", move |bench: &mut Bench<'_, L>, tally| {
        let subjects = free_subjects(bench, count, answer)?;
        let longest = subjects.iter().map(|subject| subject.tokens.len() + 4).max().unwrap_or(1);
        let small = EngineConfig { pages: longest.div_ceil(PAGE_TOKENS) + 1, step_rows_max: 40, ..roomy() };
        let (mut ahead, mut dropped, mut preempted) = (0, 0, 0);
        for (config, run_ahead) in [(roomy(), false), (roomy(), true), (small, true)] {
            let mut run = bench.run_in(None, EngineConfig { run_ahead, ..config })?;
            for subject in &subjects {
                bench.submit(&mut run, subject)?;
            }
            let stats = bench.finish(&mut run, tally)?;
            (ahead, dropped) = (ahead + stats.steps_ahead, dropped + stats.rows_dropped);
            preempted += stats.policy.preemptions;
        }
        tally.witness("steps ahead of the device", ahead, answer as u64);
        tally.witness("rows dropped because their request had ended", dropped, 1);
        tally.witness("preemptions", preempted, 1);
        Ok(())
    })
}

/// Requests with the tokens that they choose, one step at a time.
fn free_subjects<L: Lab>(bench: &mut Bench<'_, L>, count: usize, answer: usize) -> Result<Vec<Subject>, Trouble> {
    let mut subjects = Vec::new();
    for index in 0..count {
        let prompt = bench.streams.tokens(80 + index, PAGE_TOKENS - 2 - index % 3);
        let sampling = Sampling { adjust: Adjust::default(), ..settings(index) };
        let request = Request { prompt, sampling, tokens_max: answer - index % 3, ..Request::default() };
        let mut run = bench.run_in(None, roomy())?;
        run.neighbour(request.clone())?;
        let mut chosen = answer_of(&mut run)?;
        // With what makes a request fault nothing goes on.
        let poison = bench.lab.poison_token();
        chosen.truncate(chosen.iter().position(|&token| token == poison).map_or(chosen.len(), |at| at + 1));
        let fresh = |at: &usize| !chosen[..*at].contains(&chosen[*at]);
        let stop = (chosen.len() / 2..chosen.len()).find(fresh).filter(|_| index % 2 == 0);
        chosen.truncate(stop.map_or(chosen.len(), |at| at + 1));
        let tokens = [&request.prompt[..], &chosen[..chosen.len() - 1]].concat();
        let subject = Subject {
            prompt: request.prompt.len(),
            watch_from: request.prompt.len() - 1,
            tokens,
            sampling: request.sampling,
            free: Some(stop.map(|at| chosen[at]).into_iter().collect()),
        };
        subjects.push(subject);
    }
    Ok(subjects)
}

/// The tokens of the only request in an engine.
fn answer_of<L: Lab>(run: &mut Run<L>) -> Result<Vec<u32>, Trouble> {
    let mut tokens = Vec::new();
    while run.engine.live() > 0 {
        for event in run.engine.step()? {
            if let Event::Token { committed, .. } = event {
                tokens.push(committed);
            }
        }
    }
    if tokens.is_empty() { Err("a request chose no token".into()) } else { Ok(tokens) }
}

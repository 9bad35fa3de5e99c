//! Where KV lives and who computes it: physical pages, recycled memory, worker threads.

use std::collections::BTreeSet;

use super::{Relation, Scale};
use crate::determinism::bench::{Bench, roomy};
use crate::determinism::lab::Lab;
use crate::engine::EngineConfig;

pub(super) fn relations<L: Lab>(scale: &Scale, lab: &L) -> Vec<Relation<L>> {
    let (lengths, seeds) = scale.permuted.clone();
    let mut all = vec![permuted(lengths, seeds)];
    if lab.without_replays().is_some() {
        all.push(replays(scale.replay_decodes));
    }
    if lab.has_threads() {
        all.push(threads(scale.threads.clone()));
    }
    all
}

/// The same requests in differently ordered pages, whose memory holds NaN, infinity or huge numbers at first.
fn permuted<L: Lab>(lengths: Vec<usize>, seeds: u64) -> Relation<L> {
    Relation::new("permuted pages", move |bench: &mut Bench<'_, L>, tally| {
        let mut layouts = BTreeSet::new();
        for seed in 1..=seeds {
            let mut run = bench.run(EngineConfig { page_order: Some(seed), ..roomy() })?;
            for &length in &lengths {
                let subject = bench.streams.subject(length, length, 2);
                bench.submit(&mut run, &subject)?;
            }
            bench.step(&mut run, tally)?;
            let tables: Vec<Vec<u32>> = run.engine.ledger().reqs().iter().map(|req| req.table.clone()).collect();
            let ascends = tables.concat().windows(2).all(|pair| pair[0] < pair[1]);
            tally.never("ascending page orders", u64::from(ascends));
            layouts.insert(tables);
            bench.finish(&mut run, tally)?;
        }
        tally.witness("page layouts", layouts.len() as u64, seeds);
        Ok(())
    })
}

/// Requests that decode together and end one after another, so that steps of several sizes repeat: once with recorded launches
/// replayed, once with each step launched anew.
fn replays<L: Lab>(decodes: usize) -> Relation<L> {
    Relation::new("replayed or launched anew", move |bench: &mut Bench<'_, L>, tally| {
        let anew = bench.lab.without_replays().ok_or("this backend replays no launches")?;
        // The first step of each size is launched; the others are replayed.
        for (lab, least) in [(None, decodes as u64 / 2), (Some(&anew), 0)] {
            let run_ahead = bench.lab.runs_ahead();
            let mut run = bench.run_in(lab, EngineConfig { run_ahead, ..roomy() })?;
            for stream in 0..11 {
                let subject = bench.streams.subject(130 + stream, 7 + 9 * stream, decodes * (1 + stream) / 11 + 2);
                bench.submit(&mut run, &subject)?;
            }
            bench.finish(&mut run, tally)?;
            let replayed = L::replayed(run.engine.model().inner());
            match lab {
                None => tally.witness("replayed steps", replayed, least),
                Some(_) => tally.never("steps replayed that should be launched anew", replayed),
            }
        }
        Ok(())
    })
}

fn threads<L: Lab>(counts: Vec<usize>) -> Relation<L> {
    Relation::new("worker threads", move |bench: &mut Bench<'_, L>, tally| {
        for &count in &counts {
            let Some(lab) = bench.lab.on_threads(count) else {
                return Err("this backend has no worker threads".into());
            };
            let lab = lab?;
            let mut run = bench.run_in(Some(&lab), roomy())?;
            for (stream, prompt) in [(120, 3), (121, 17), (65, 65)] {
                let subject = bench.streams.subject(stream, prompt, 2);
                bench.submit(&mut run, &subject)?;
            }
            bench.finish(&mut run, tally)?;
        }
        tally.witness("thread counts", counts.len() as u64, 3);
        Ok(())
    })
}

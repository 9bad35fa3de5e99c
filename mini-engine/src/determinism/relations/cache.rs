//! What the prefix cache held when a request came.

use super::{Relation, Scale};
use crate::determinism::bench::{Bench, PAGE_TOKENS, Run, Trouble, roomy};
use crate::determinism::lab::Lab;
use crate::determinism::subject::Subject;
use crate::determinism::tally::Tally;

pub(super) fn relations<L: Lab>(scale: &Scale) -> Vec<Relation<L>> {
    let mut all: Vec<Relation<L>> = scale.donors.iter().map(|&(excess, pages)| donor(excess, pages)).collect();
    all.push(generated());
    all.push(suffixes());
    all.push(twins());
    all
}

/// Runs one subject to its end before the next comes.
fn one_by_one<L: Lab>(
    bench: &mut Bench<'_, L>,
    run: &mut Run<L>,
    tally: &mut Tally,
    subjects: &[Subject],
) -> Result<(), Trouble> {
    for subject in subjects {
        let id = bench.submit(run, subject)?;
        while !run.is_over(id) {
            bench.step(run, tally)?;
        }
    }
    Ok(())
}

/// A donor of `pages` pages and `excess` tokens, then a longer request that starts with its tokens.
fn donor<L: Lab>(excess: isize, pages: usize) -> Relation<L> {
    let length = (pages * PAGE_TOKENS).saturating_add_signed(excess);
    Relation::new(format!("cache, donor of {length} tokens"), move |bench: &mut Bench<'_, L>, tally| {
        let mut run = bench.run(roomy())?;
        // The donor's own next token is never computed, so only whole pages of its prompt are cached.
        let donor = bench.streams.subject(70, length, 0);
        let heir = bench.streams.subject(70, (pages + 1) * PAGE_TOKENS - 20, 2);
        one_by_one(bench, &mut run, tally, &[donor, heir])?;
        let stats = bench.finish(&mut run, tally)?;
        let expected = (length / PAGE_TOKENS * PAGE_TOKENS) as u64;
        let attached = stats.policy.attached_tokens;
        tally.witness("cached positions", attached, expected);
        tally.never("positions cached beyond the donor's pages", attached - expected.min(attached));
        Ok(())
    })
}

/// The donor's page is completed by tokens that it generated.
fn generated<L: Lab>() -> Relation<L> {
    Relation::new("cache, generated tokens", move |bench: &mut Bench<'_, L>, tally| {
        let mut run = bench.run(roomy())?;
        let donor = bench.streams.subject(72, PAGE_TOKENS - 14, 14);
        let heir = bench.streams.subject(72, PAGE_TOKENS + 9, 3);
        one_by_one(bench, &mut run, tally, &[donor, heir])?;
        let stats = bench.finish(&mut run, tally)?;
        tally.witness("cached positions", stats.policy.attached_tokens, PAGE_TOKENS as u64);
        Ok(())
    })
}

/// One shared page, then a second page that differs from request to request.
fn suffixes<L: Lab>() -> Relation<L> {
    Relation::new("cache, another suffix", move |bench: &mut Bench<'_, L>, tally| {
        let mut run = bench.run(roomy())?;
        let stem = bench.streams.tokens(74, PAGE_TOKENS);
        let subjects: Vec<Subject> = (0..3)
            .map(|index| {
                let mut subject = bench.streams.subject(75 + index, 2 * PAGE_TOKENS + 4, 2);
                subject.tokens[..PAGE_TOKENS].copy_from_slice(&stem);
                subject
            })
            .collect();
        one_by_one(bench, &mut run, tally, &subjects)?;
        let stats = bench.finish(&mut run, tally)?;
        tally.witness("cached positions", stats.policy.attached_tokens, 2 * PAGE_TOKENS as u64);
        Ok(())
    })
}

/// Two equal requests at once: one reads the page that the other writes in the same step; a third, half a page ahead, makes
/// a page that turns out to be equal.
fn twins<L: Lab>() -> Relation<L> {
    Relation::new("cache, equal requests at once", move |bench: &mut Bench<'_, L>, tally| {
        let mut run = bench.run(roomy())?;
        let subject = bench.streams.subject(78, PAGE_TOKENS + 8, 2);
        bench.submit(&mut run, &subject)?;
        bench.submit(&mut run, &subject)?;
        bench.finish(&mut run, tally)?;
        tally.witness("positions shared within a step", run.engine.stats().policy.attached_tokens, PAGE_TOKENS as u64);
        let mut run = bench.run(roomy())?;
        let short = bench.streams.subject(80, PAGE_TOKENS - 4, 8);
        bench.submit(&mut run, &short)?;
        bench.submit(&mut run, &short.with_prompt(PAGE_TOKENS - 5))?;
        let stats = bench.finish(&mut run, tally)?;
        tally.witness("adopted pages", stats.policy.adoptions, 1);
        Ok(())
    })
}

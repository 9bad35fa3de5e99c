//! The relations: each varies one thing that must not matter, and shows that it really varied it.

mod batching;
mod cache;
mod company;
mod memory;
mod schedule;

use reduction_tree::operator::AttentionTree;

use super::bench::{Bench, Trouble};
use super::lab::Lab;
use super::tally::Tally;

/// Prompt lengths straddle the border between two splits of attention, whatever a plan makes it.
const KV_SPLIT: usize = AttentionTree::KV_SPLIT;

/// What a relation does with a bench.
type Body<L> = Box<dyn Fn(&mut Bench<'_, L>, &mut Tally) -> Result<(), Trouble>>;

/// One thing that must not matter.
pub struct Relation<L: Lab> {
    /// Its name in reports.
    pub name: String,
    body: Body<L>,
}

impl<L: Lab> Relation<L> {
    fn new(
        name: impl Into<String>,
        body: impl Fn(&mut Bench<'_, L>, &mut Tally) -> Result<(), Trouble> + 'static,
    ) -> Self {
        Self { name: name.into(), body: Box::new(body) }
    }

    /// Runs it. Trouble makes it invalid, never silent.
    pub fn run(&self, bench: &mut Bench<'_, L>) -> Tally {
        let mut tally = Tally::new(&self.name);
        if let Err(trouble) = (self.body)(bench, &mut tally) {
            tally.missing(1, trouble.to_string());
        }
        tally
    }
}

/// How much work to spend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Shortest and longest prompt in the crowd of 32.
    crowd_prompts: (usize, usize),
    /// Batch sizes, and groups of each.
    batches: Vec<(usize, usize)>,
    /// Chunk budgets, and the prompt lengths that each cuts.
    chunks: Vec<(usize, Vec<usize>)>,
    /// (prompt, decode) of the teacher-forced runs.
    decodes: Vec<(usize, usize)>,
    /// Donor lengths minus a whole number of pages, and that number.
    donors: Vec<(isize, usize)>,
    /// Requests in the pool that is too small for them.
    squeezed: usize,
    /// Prompt lengths whose pages are permuted, and permutations.
    permuted: (Vec<usize>, u64),
    /// Worker threads.
    threads: Vec<usize>,
    /// Requests that arrive while others decode.
    arrivals: usize,
    /// Requests whose tokens are not forced, and most of these.
    free: (usize, usize),
    /// Decode steps whose launches are replayed.
    replay_decodes: usize,
}

impl Scale {
    /// At least 1,000 pairs.
    pub fn full() -> Self {
        let around = vec![63, 65, 129, KV_SPLIT - 1, KV_SPLIT + 1];
        Self {
            crowd_prompts: (4, 56),
            batches: vec![(2, 8), (4, 4), (8, 4), (32, 1)],
            chunks: vec![
                (1, vec![1, 65, 129]),
                (7, vec![63, 65, 129, KV_SPLIT + 1]),
                (63, around.clone()),
                (64, around.clone()),
                (65, around.clone()),
                (128, vec![127, 129, KV_SPLIT - 1, KV_SPLIT + 1]),
                (1000, vec![1, 2, 63, 64, 65, 127, 128, 129, KV_SPLIT - 1, KV_SPLIT, KV_SPLIT + 1]),
            ],
            decodes: vec![(1, 70), (60, 10), (KV_SPLIT - 6, 12)],
            donors: vec![(-1, 1), (0, 1), (1, 1), (-1, 2), (0, 2), (1, 2)],
            squeezed: 6,
            permuted: (vec![1, 64, 65, 129, KV_SPLIT + 1], 2),
            threads: (1..=8).collect(),
            arrivals: 8,
            free: (8, 20),
            replay_decodes: 33,
        }
    }

    /// Every relation, as small as it can be.
    pub fn quick() -> Self {
        Self {
            crowd_prompts: (3, 18),
            batches: vec![(2, 2), (4, 1), (8, 1), (32, 1)],
            chunks: vec![
                (1, vec![65]),
                (7, vec![65]),
                (63, vec![129]),
                (64, vec![129]),
                (65, vec![129]),
                (128, vec![KV_SPLIT + 1]),
                (1000, vec![1, 63, 65, 129]),
            ],
            decodes: vec![(1, 66), (KV_SPLIT - 3, 5)],
            donors: vec![(-1, 1), (0, 1), (1, 1)],
            squeezed: 4,
            permuted: (vec![65, 129], 1),
            threads: vec![1, 2, 8],
            arrivals: 3,
            free: (4, 9),
            replay_decodes: 11,
        }
    }

    /// The relations at this scale that the lab can provoke.
    pub fn relations<L: Lab>(&self, lab: &L) -> Vec<Relation<L>> {
        let mut all = batching::relations(self);
        all.extend(schedule::relations(self));
        all.extend(cache::relations(self));
        all.extend(company::relations(self));
        all.extend(memory::relations(self, lab));
        all
    }
}

//! What a host makes of the items of a batch: packed sequences with their prefix sums, and lists of the items by owner.

use super::Rng;

/// Owners that an item may have.
const OWNERS: usize = 3;

/// One way to lay out a batch.
pub struct Host {
    /// Where the tokens of each item begin, and where the last ones end.
    pub begins: Vec<usize>,
    /// The items of each group, and who owns them.
    groups: Vec<(usize, Vec<usize>)>,
    items: usize,
}

impl Host {
    /// Lays out `items`; the length and the owner of item `row` follow from `own` alone.
    pub fn new(items: usize, row: usize, own: u64, rng: &mut Rng) -> Host {
        let mut fixed = Rng::new(own ^ 0x6005);
        let mut lengths: Vec<usize> = (0..items).map(|_| 1 + rng.below(6) as usize).collect();
        let mut owners: Vec<usize> = (0..items).map(|_| rng.below(OWNERS as u64) as usize).collect();
        (lengths[row], owners[row]) = (1 + fixed.below(6) as usize, fixed.below(OWNERS as u64) as usize);
        let mut begins = vec![0];
        lengths.iter().for_each(|n| begins.push(begins[begins.len() - 1] + n));
        let order = rng.permutation(items);
        let of = |owner: usize| order.iter().copied().filter(|i| owners[*i] == owner).collect();
        let groups = rng.permutation(OWNERS).into_iter().map(|owner| (owner, of(owner))).collect();
        Host { begins, groups, items }
    }

    /// Items group by group, each group filled up to whole blocks with a number that no item has.
    pub fn list(&self, block: usize) -> Vec<u64> {
        let mut out = Vec::new();
        for (_, group) in &self.groups {
            out.extend(group.iter().map(|i| *i as u64));
            while out.len() % block > 0 {
                out.push(self.items as u64);
            }
        }
        out
    }

    /// The owner of the items of each block.
    pub fn owners_of_blocks(&self, block: usize) -> Vec<u64> {
        let each = |(owner, group): &(usize, Vec<usize>)| vec![*owner as u64; group.len().div_ceil(block)];
        self.groups.iter().flat_map(each).collect()
    }

    /// For each group: its first place in the list without filling, how many places it has, and its owner.
    pub fn groups(&self) -> Vec<[u64; 3]> {
        let mut start = 0;
        let each = self.groups.iter().map(|(owner, group)| {
            let first = start;
            start += group.len() as u64;
            [first, group.len() as u64, *owner as u64]
        });
        each.collect()
    }
}

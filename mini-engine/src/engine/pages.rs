//! The scheduler's view of the page pool: who holds which page, which full pages can be found again by their tokens, and
//! which unreferenced page goes first when a new one is needed.
//!
//! This is policy. Every decision taken from it is checked by the ledger, so a fault here costs time, never a bit. Hashes
//! only find candidates; tokens are compared before a page is offered, and compared again by the ledger.

use std::collections::{BTreeMap, BTreeSet};

/// A physical page of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// Names the token sequence that ends with a full page. [`ChainId::ROOT`] is the empty sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u64);

impl ChainId {
    /// The chain of no pages.
    pub const ROOT: Self = Self(0);
}

/// A full page of tokens behind a parent chain, and the pages that hold its KV.
#[derive(Debug)]
struct Node {
    parent: ChainId,
    hash: u64,
    tokens: Vec<u32>,
    holders: Vec<PageId>,
    children: usize,
}

#[derive(Debug, Default)]
struct Page {
    pins: u32,
    chain: Option<ChainId>,
    used_at: u64,
    /// The key under which the page stands in `evictable`.
    queued_at: Option<u64>,
}

/// Pins, the prefix index and the eviction order.
#[derive(Debug)]
pub struct Pages {
    pages: Vec<Page>,
    nodes: BTreeMap<ChainId, Node>,
    lookup: BTreeMap<(ChainId, u64), Vec<ChainId>>,
    /// Unpinned pages that no chain needs, last in first out.
    free: Vec<PageId>,
    /// Unpinned pages whose chain has no children or another holder, by last use.
    evictable: BTreeSet<(u64, PageId)>,
    unpinned: usize,
    evictions: u64,
    now: u64,
    order: Option<u64>,
    hash: fn(&[u32]) -> u64,
}

impl Pages {
    /// An empty pool whose untouched pages are handed out in ascending or, with a seed, permuted order.
    pub fn new(pages: usize, order: Option<u64>) -> Self {
        let mut pool = Self {
            pages: Vec::new(),
            nodes: BTreeMap::new(),
            lookup: BTreeMap::new(),
            free: Vec::new(),
            evictable: BTreeSet::new(),
            unpinned: pages,
            evictions: 0,
            now: 0,
            order,
            hash: fingerprint,
        };
        pool.clear(pages);
        pool
    }

    /// Forgets every page and chain, as the ledger does in a reset.
    pub fn reset(&mut self) {
        self.clear(self.pages.len());
    }

    fn clear(&mut self, pages: usize) {
        self.pages = (0..pages).map(|_| Page::default()).collect();
        self.nodes.clear();
        self.lookup.clear();
        self.evictable.clear();
        self.unpinned = pages;
        self.free = (0..pages as u32).rev().map(PageId).collect();
        if let Some(seed) = self.order {
            let mut noise = super::noise::Noise::new(seed);
            noise.shuffle(&mut self.free);
        }
    }

    /// Moves the clock of last uses to a step.
    pub fn set_now(&mut self, step: u64) {
        self.now = step;
    }

    /// Pages that no request holds: free, or cached and therefore evictable sooner or later.
    pub fn unpinned(&self) -> usize {
        self.unpinned
    }

    /// Cached pages that were given to another use so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether no request holds the page.
    pub fn is_unpinned(&self, page: PageId) -> bool {
        self.pages[page.0 as usize].pins == 0
    }

    /// A full page that holds exactly `tokens` behind `parent`, and its chain.
    pub fn find(&self, parent: ChainId, tokens: &[u32]) -> Option<(PageId, ChainId)> {
        let candidates = self.lookup.get(&(parent, (self.hash)(tokens)))?;
        candidates.iter().find_map(|chain| {
            let node = &self.nodes[chain];
            (node.tokens == tokens).then(|| (node.holders[0], *chain))
        })
    }

    /// One more request holds the page.
    pub fn pin(&mut self, page: PageId) {
        let now = self.now;
        let state = &mut self.pages[page.0 as usize];
        state.pins += 1;
        state.used_at = now;
        if state.pins == 1 {
            self.unpinned -= 1;
        }
        self.requeue(page);
    }

    /// One request less holds the page; what it holds stays cached when it can be found again.
    pub fn unpin(&mut self, page: PageId) {
        let now = self.now;
        let state = &mut self.pages[page.0 as usize];
        state.pins -= 1;
        state.used_at = now;
        if state.pins == 0 {
            self.unpinned += 1;
            if state.chain.is_none() {
                self.free.push(page);
            }
        }
        self.requeue(page);
    }

    /// Takes an unpinned page for new contents and pins it: a free one, or else the least recently used leaf.
    pub fn take(&mut self) -> Option<PageId> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => {
                let (_, page) = *self.evictable.first()?;
                self.detach(page);
                self.evictions += 1;
                page
            }
        };
        self.pin(page);
        Some(page)
    }

    /// Enters a page that has just become full under a chain of its own.
    pub fn insert(&mut self, page: PageId, parent: ChainId, tokens: &[u32], chain: ChainId) {
        let hash = (self.hash)(tokens);
        self.nodes.insert(chain, Node { parent, hash, tokens: tokens.to_vec(), holders: vec![page], children: 0 });
        self.lookup.entry((parent, hash)).or_default().push(chain);
        self.pages[page.0 as usize].chain = Some(chain);
        self.count_child(parent, 1);
        self.requeue(page);
    }

    /// Enters a page as another holder of a chain that is already known.
    pub fn join(&mut self, page: PageId, chain: ChainId) {
        self.nodes.get_mut(&chain).expect("a chain that find returned").holders.push(page);
        self.pages[page.0 as usize].chain = Some(chain);
        self.requeue_holders(chain);
    }

    /// A token of a page was entered under a name, and is now known.
    pub fn rename(&mut self, page: PageId, offset: usize, token: u32) {
        let Some(chain) = self.pages[page.0 as usize].chain else { return };
        self.unlist(chain);
        let node = self.nodes.get_mut(&chain).expect("pages name live chains");
        node.tokens[offset] = token;
        node.hash = (self.hash)(&node.tokens);
        self.lookup.entry((node.parent, node.hash)).or_default().push(chain);
    }

    /// Takes a chain out of the lookup.
    fn unlist(&mut self, chain: ChainId) {
        let node = &self.nodes[&chain];
        let key = (node.parent, node.hash);
        let candidates = self.lookup.get_mut(&key).expect("every chain can be looked up");
        candidates.retain(|&other| other != chain);
        if candidates.is_empty() {
            self.lookup.remove(&key);
        }
    }

    /// Makes a page impossible to find, because what it holds must not be shared.
    pub fn forget(&mut self, page: PageId) {
        if self.pages[page.0 as usize].chain.is_some() {
            self.detach(page);
            if self.is_unpinned(page) {
                self.free.push(page);
            }
        }
    }

    fn detach(&mut self, page: PageId) {
        let Some(chain) = self.pages[page.0 as usize].chain.take() else { return };
        let node = self.nodes.get_mut(&chain).expect("pages name live chains");
        node.holders.retain(|&holder| holder != page);
        if node.holders.is_empty() {
            let parent = node.parent;
            self.unlist(chain);
            self.nodes.remove(&chain);
            self.count_child(parent, -1);
        } else {
            self.requeue_holders(chain);
        }
        self.requeue(page);
    }

    fn count_child(&mut self, parent: ChainId, change: isize) {
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children = node.children.saturating_add_signed(change);
            self.requeue_holders(parent);
        }
    }

    fn requeue_holders(&mut self, chain: ChainId) {
        for page in self.nodes[&chain].holders.clone() {
            self.requeue(page);
        }
    }

    /// Brings a page's place in the eviction order up to date.
    fn requeue(&mut self, page: PageId) {
        let state = &mut self.pages[page.0 as usize];
        if let Some(at) = state.queued_at.take() {
            self.evictable.remove(&(at, page));
        }
        let Some(chain) = state.chain else { return };
        let node = &self.nodes[&chain];
        if state.pins == 0 && (node.children == 0 || node.holders.len() > 1) {
            state.queued_at = Some(state.used_at);
            self.evictable.insert((state.used_at, page));
        }
    }

    /// Replaces the fingerprint, so that tests can make every page collide.
    #[cfg(test)]
    pub fn set_hash(&mut self, hash: fn(&[u32]) -> u64) {
        self.hash = hash;
    }
}

/// FNV-1a over the tokens. It finds candidates and nothing more.
fn fingerprint(tokens: &[u32]) -> u64 {
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &token| (hash ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(pool: &mut Pages, parent: ChainId, tokens: &[u32], chain: u64) -> PageId {
        let page = pool.take().unwrap();
        pool.insert(page, parent, tokens, ChainId(chain));
        page
    }

    #[test]
    fn finds_by_tokens_and_not_by_hash() {
        let mut pool = Pages::new(4, None);
        pool.set_hash(|_| 7);
        let a = fill(&mut pool, ChainId::ROOT, &[1, 2], 1);
        let b = fill(&mut pool, ChainId::ROOT, &[1, 3], 2);
        assert_eq!(pool.find(ChainId::ROOT, &[1, 2]), Some((a, ChainId(1))));
        assert_eq!(pool.find(ChainId::ROOT, &[1, 3]), Some((b, ChainId(2))));
        assert_eq!(pool.find(ChainId::ROOT, &[1, 4]), None);
        assert_eq!(pool.find(ChainId(1), &[1, 2]), None);
    }

    #[test]
    fn evicts_least_recently_used_leaves_first() {
        let mut pool = Pages::new(3, None);
        let root = fill(&mut pool, ChainId::ROOT, &[1], 1);
        let leaf = fill(&mut pool, ChainId(1), &[2], 2);
        pool.set_now(1);
        let other = fill(&mut pool, ChainId::ROOT, &[9], 3);
        for page in [root, leaf] {
            pool.unpin(page);
        }
        pool.set_now(2);
        pool.unpin(other);
        assert_eq!(pool.unpinned(), 3);
        let order: Vec<PageId> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(order, [leaf, root, other]);
        assert_eq!(pool.evictions(), 3);
        assert_eq!(pool.find(ChainId::ROOT, &[1]), None);
    }

    #[test]
    fn a_twin_keeps_the_chain_findable_when_the_first_holder_goes() {
        let mut pool = Pages::new(3, None);
        let first = fill(&mut pool, ChainId::ROOT, &[1], 1);
        let twin = pool.take().unwrap();
        pool.join(twin, ChainId(1));
        let child = fill(&mut pool, ChainId(1), &[2], 2);
        pool.unpin(first);
        assert_eq!(pool.take(), Some(first));
        assert_eq!(pool.find(ChainId::ROOT, &[1]), Some((twin, ChainId(1))));
        assert_eq!(pool.take(), None);
        assert_eq!(pool.find(ChainId(1), &[2]), Some((child, ChainId(2))));
    }

    #[test]
    fn a_renamed_page_is_found_by_its_token() {
        let mut pool = Pages::new(2, None);
        let page = fill(&mut pool, ChainId::ROOT, &[1, 99], 1);
        let child = fill(&mut pool, ChainId(1), &[3, 4], 2);
        pool.rename(page, 1, 2);
        assert_eq!(pool.find(ChainId::ROOT, &[1, 99]), None);
        assert_eq!(pool.find(ChainId::ROOT, &[1, 2]), Some((page, ChainId(1))));
        assert_eq!(pool.find(ChainId(1), &[3, 4]), Some((child, ChainId(2))));
        pool.unpin(page);
        pool.unpin(child);
        assert_eq!((pool.take(), pool.take()), (Some(child), Some(page)));
        assert_eq!(pool.find(ChainId::ROOT, &[1, 2]), None);
    }

    #[test]
    fn forgotten_pages_are_free_once_unpinned() {
        let mut pool = Pages::new(1, None);
        let page = fill(&mut pool, ChainId::ROOT, &[1], 1);
        pool.forget(page);
        assert_eq!(pool.find(ChainId::ROOT, &[1]), None);
        assert_eq!(pool.take(), None);
        pool.unpin(page);
        assert_eq!(pool.take(), Some(page));
        assert_eq!(pool.evictions(), 0);
    }
}

//! The policy: who computes how many rows in the next step, in which pages, and who gives pages back.
//!
//! It is not trusted. Its plan is a list of deltas that the ledger checks, and `ledger::serve` sees to it that the oldest live
//! request advances whatever is planned here: a plan that fails it is the last one followed until that request ends, and no
//! output changes. Requests are served by age. In every step the oldest live request gets at least one row and may take pages
//! from any other, so that this never happens (see `tests/simulation.rs`).

use std::collections::{BTreeMap, BTreeSet};

use ledger::{Ledger, Op};

use super::config::EngineConfig;
use super::pages::{ChainId, PageId, Pages};
use super::request::RequestId;

/// What the scheduler asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Requests that give their pages back before the step.
    pub preempted: Vec<RequestId>,
    /// The step.
    pub ops: Vec<Op>,
}

/// Counts of what the policy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyStats {
    /// Requests that gave their pages back to an older one.
    pub preemptions: u64,
    /// Positions answered by cached pages.
    pub attached_tokens: u64,
    /// Pages that took the chain of an equal page.
    pub adoptions: u64,
    /// Cached pages that were given to another use.
    pub evictions: u64,
}

/// A request as the policy sees it.
#[derive(Debug)]
struct Entry {
    book: usize,
    bypass_cache: bool,
    table: Vec<PageId>,
    kv_tokens: usize,
    tail: ChainId,
    /// Nothing more of it is computed.
    rests: bool,
}

/// The requests by age and the pages they hold.
#[derive(Debug)]
pub struct Scheduler {
    config: EngineConfig,
    pages: Pages,
    entries: BTreeMap<RequestId, Entry>,
    next_chain: u64,
    step: u64,
    stats: PolicyStats,
}

impl Scheduler {
    /// A scheduler for an empty pool.
    pub fn new(config: EngineConfig) -> Self {
        let pages = Pages::new(config.pages, config.page_order);
        Self { config, pages, entries: BTreeMap::new(), next_chain: 1, step: 0, stats: PolicyStats::default() }
    }

    /// A new request; `book` is its entry in the ledger.
    pub fn add(&mut self, id: RequestId, book: usize, bypass_cache: bool) {
        let bypass_cache = bypass_cache || !self.config.prefix_cache;
        self.entries.insert(
            id,
            Entry { book, bypass_cache, table: Vec::new(), kv_tokens: 0, tail: ChainId::ROOT, rests: false },
        );
    }

    /// The request is over; its pages stay cached.
    pub fn remove(&mut self, id: RequestId) {
        if let Some(entry) = self.entries.remove(&id) {
            entry.table.iter().for_each(|&page| self.pages.unpin(page));
        }
    }

    /// What the request holds from `position` on must never be offered to another.
    pub fn distrust(&mut self, id: RequestId, position: usize) {
        if let Some(entry) = self.entries.get(&id) {
            for &page in entry.table.iter().skip(position / self.config.page_tokens).rev() {
                self.pages.forget(page);
            }
        }
    }

    /// Plans nothing more for a request, or again.
    pub fn rest(&mut self, id: RequestId, rests: bool) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.rests = rests;
        }
    }

    /// What a page holds must never be offered to anybody.
    pub fn forget(&mut self, page: u32) {
        self.pages.forget(PageId(page));
    }

    /// The token of `position` was planned with under a name, and is now known.
    pub fn resolve(&mut self, id: RequestId, position: usize, token: u32) {
        let page_tokens = self.config.page_tokens;
        if let Some(entry) = self.entries.get(&id).filter(|entry| position < entry.kv_tokens) {
            self.pages.rename(entry.table[position / page_tokens], position % page_tokens, token);
        }
    }

    /// Nothing is resident any more, as after the ledger's reset. `next_chain` is the ledger's.
    pub fn reset(&mut self, next_chain: u64) {
        self.pages.reset();
        self.next_chain = next_chain;
        for entry in self.entries.values_mut() {
            entry.release();
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> PolicyStats {
        PolicyStats { evictions: self.pages.evictions(), ..self.stats }
    }

    /// Plans one step over the histories in the ledger, and assumes from here on that it is accepted.
    pub fn plan(&mut self, ledger: &Ledger) -> Plan {
        self.step += 1;
        self.pages.set_now(self.step);
        let mut plan = Plan::default();
        let ids: Vec<RequestId> = self.entries.keys().copied().collect();
        let mut rows_left = self.config.step_rows_max;
        let reserved = self.reserve(&ids, ledger, &mut rows_left);
        for (age, &id) in ids.iter().enumerate().take(self.config.running_max) {
            if self.entries[&id].rests {
                continue;
            }
            if plan.preempted.contains(&id) || (self.entries[&id].table.is_empty() && age > 0 && !self.fits(id, ledger))
            {
                break;
            }
            let own = usize::from(reserved.contains(&id));
            let rows = self.advance(id, ledger, own + rows_left, &mut plan);
            rows_left -= rows.saturating_sub(own);
        }
        plan
    }

    /// One row each for the oldest request and for those that decode, so that a long prefill does not hold them up.
    fn reserve(&self, ids: &[RequestId], ledger: &Ledger, rows_left: &mut usize) -> BTreeSet<RequestId> {
        let mut reserved = BTreeSet::new();
        for (age, id) in ids.iter().enumerate() {
            let entry = &self.entries[id];
            let decodes =
                !entry.rests && !entry.table.is_empty() && entry.kv_tokens + 1 == ledger.reqs()[entry.book].toks.len();
            if *rows_left > 0 && (age == 0 || decodes) {
                *rows_left -= 1;
                reserved.insert(*id);
            }
        }
        reserved
    }

    /// Whether the pages that a request's history still needs are unpinned. It may lose them again to an older request, but
    /// should not start what is bound to be preempted.
    fn fits(&self, id: RequestId, ledger: &Ledger) -> bool {
        let entry = &self.entries[&id];
        let history = &ledger.reqs()[entry.book].toks;
        let mut needed = history.len().div_ceil(self.config.page_tokens);
        let mut available = self.pages.unpinned();
        let (mut kv_tokens, mut tail) = (0, ChainId::ROOT);
        while let Some((page, chain)) = self.cached(entry, history, kv_tokens, tail) {
            needed -= 1;
            available -= usize::from(self.pages.is_unpinned(page));
            kv_tokens += self.config.page_tokens;
            tail = chain;
        }
        needed <= available
    }

    /// The cached page that continues `tail` with the history's next tokens. The history's last token is always computed,
    /// since its row gives the next one.
    fn cached(&self, entry: &Entry, history: &[u32], kv_tokens: usize, tail: ChainId) -> Option<(PageId, ChainId)> {
        let end = kv_tokens + self.config.page_tokens;
        if entry.bypass_cache || end >= history.len() {
            return None;
        }
        self.pages.find(tail, &history[kv_tokens..end])
    }

    /// Gives a request up to `rows_max` rows. Returns how many it got.
    fn advance(&mut self, id: RequestId, ledger: &Ledger, rows_max: usize, plan: &mut Plan) -> usize {
        let page_tokens = self.config.page_tokens;
        let book = self.entries[&id].book;
        let history = &ledger.reqs()[book].toks;
        let mut rows = 0;
        while rows < rows_max && self.entries[&id].kv_tokens < history.len() {
            let entry = &self.entries[&id];
            if entry.kv_tokens == entry.table.len() * page_tokens {
                if let Some((page, chain)) = self.cached(entry, history, entry.kv_tokens, entry.tail) {
                    self.attach(id, page, chain, plan);
                    continue;
                }
                let Some(page) = self.take_page(id, plan) else { break };
                self.entry(id).table.push(page);
                plan.ops.push(Op::Grow(book, page.0));
            }
            let entry = self.entry(id);
            let space = entry.table.len() * page_tokens - entry.kv_tokens;
            let count = space.min(rows_max - rows).min(history.len() - entry.kv_tokens);
            entry.kv_tokens += count;
            rows += count;
            plan.ops.push(Op::Fill(book, count));
            if count == space {
                self.seal(id, history, plan);
            }
        }
        rows
    }

    fn attach(&mut self, id: RequestId, page: PageId, chain: ChainId, plan: &mut Plan) {
        let page_tokens = self.config.page_tokens;
        self.pages.pin(page);
        let entry = self.entry(id);
        entry.table.push(page);
        entry.kv_tokens += page_tokens;
        entry.tail = chain;
        plan.ops.push(Op::Attach(entry.book, page.0));
        self.stats.attached_tokens += page_tokens as u64;
    }

    /// The request's last page is now full: enter it into the index, or let it join an equal page that is already there.
    fn seal(&mut self, id: RequestId, history: &[u32], plan: &mut Plan) {
        let own = ChainId(self.next_chain);
        self.next_chain += 1;
        let entry = &self.entries[&id];
        let (parent, page) = (entry.tail, entry.table[entry.table.len() - 1]);
        let tokens = &history[entry.kv_tokens - self.config.page_tokens..entry.kv_tokens];
        let chain = match self.pages.find(parent, tokens) {
            Some((twin, chain)) => {
                plan.ops.push(Op::Adopt(page.0, twin.0));
                self.pages.join(page, chain);
                self.stats.adoptions += 1;
                chain
            }
            None => {
                self.pages.insert(page, parent, tokens, own);
                own
            }
        };
        self.entry(id).tail = chain;
    }

    /// An unpinned page, from younger requests if need be.
    fn take_page(&mut self, id: RequestId, plan: &mut Plan) -> Option<PageId> {
        loop {
            if let Some(page) = self.pages.take() {
                return Some(page);
            }
            let (&victim, entry) = self.entries.iter_mut().rev().find(|(_, entry)| !entry.table.is_empty())?;
            if victim <= id {
                return None;
            }
            for page in entry.release() {
                self.pages.unpin(page);
            }
            plan.preempted.push(victim);
            self.stats.preemptions += 1;
        }
    }

    fn entry(&mut self, id: RequestId) -> &mut Entry {
        self.entries.get_mut(&id).expect("planned requests are live")
    }

    /// Whether the policy's picture is the ledger's. For tests and debug builds; the ledger never relies on it.
    pub fn agrees_with(&self, ledger: &Ledger) -> bool {
        self.next_chain == ledger.next_cid()
            && self.entries.values().all(|entry| {
                ledger::kv_len(ledger, entry.book) == entry.kv_tokens
                    && ledger.reqs()[entry.book].table.iter().eq(entry.table.iter().map(|page| &page.0))
                    && (!entry.is_aligned(self.config.page_tokens)
                        || ledger::tail_cid(ledger, entry.book) == entry.tail.0)
            })
            && ledger
                .pages()
                .iter()
                .enumerate()
                .all(|(page, state)| (state.pins == 0) == self.pages.is_unpinned(PageId(page as u32)))
    }
}

impl Entry {
    fn release(&mut self) -> Vec<PageId> {
        self.kv_tokens = 0;
        self.tail = ChainId::ROOT;
        std::mem::take(&mut self.table)
    }

    fn is_aligned(&self, page_tokens: usize) -> bool {
        self.kv_tokens == self.table.len() * page_tokens
    }
}

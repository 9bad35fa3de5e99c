//! The proved text: every type and every function that can change a ledger, in the subset of Rust that `rs2v` translates.
//!
//! A page with tokens `toks` claims that its slot `i` holds the keys and values of the token sequence
//! `content(parent) ++ toks[..=i]`. `content(0)` is the empty sequence; a full page's `cid` names its own content, parent
//! included. A `cid` is a fresh number, not a hash, so two different contents never share one.
//!
//! Plain loops and index expressions are used on purpose: what is written here is what is proved.

// The translator knows counted loops only, lengths by `len`, and gives each field of a record in full.
#![allow(clippy::needless_range_loop, clippy::len_zero)]

/// One page of the KV pool and what its slots are known to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Chain id of the content before this page, 0 at the start of a sequence.
    pub parent: u64,
    /// Chain id of the content up to the end of this page; meaningful only while the page is full.
    pub cid: u64,
    /// How many block-table entries name this page. A page with 0 pins is cached content that may be evicted.
    pub pins: u32,
    /// Tokens whose keys and values the first slots hold, at most a page of them.
    pub toks: Vec<u32>,
}

/// One request entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// False once finished; the entry may then be reused with [`readmit`].
    pub live: bool,
    /// How many of the leading tokens are certain: the prompt and the tokens received. Those behind them are guesses.
    pub sure: usize,
    /// Prompt and received tokens, then guesses (see [`draft`]).
    pub toks: Vec<u32>,
    /// Block table: page number of each page of positions.
    pub table: Vec<u32>,
}

/// All claims about a KV pool. Made by [`create`]; there is deliberately no `Clone`, since an old copy would claim what
/// memory no longer holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Ledger {
    pub(crate) psize: usize,
    pub(crate) next: u64,
    pub(crate) pages: Vec<Page>,
    pub(crate) reqs: Vec<Req>,
}

/// One accepted row: with the request's block table, all that the kernels get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Request entry.
    pub req: usize,
    /// Position in the request, from 0. The row attends to positions `0..=pos`.
    pub pos: usize,
    /// Token at that position.
    pub tok: u32,
    /// Slot that the row's keys and values are written to: page number * page size + offset.
    pub slot: usize,
    /// The row's logits give a next token: the row stands at or behind the request's last certain token.
    pub sample: bool,
}

/// What [`serve`] remembers of the request that it watches over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Number of its arrival, which no other request has.
    pub age: u64,
    /// A plan has failed it: it is served alone until it ends.
    pub alone: bool,
}

/// One change that a step plan asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `Attach(request, page)`: append a cached page to the block table: a prefix-cache hit. Accepted if the
    /// page is full, continues exactly the request's pages, and holds the request's next tokens, but not the last certain
    /// one: that is always computed, since its row gives the token after it.
    Attach(usize, u32),
    /// `Grow(request, page)`: append an unpinned page, emptied. What it cached is forgotten: this is eviction.
    /// Accepted if all the request's pages are full.
    Grow(usize, u32),
    /// `Fill(request, n)`: run the request's next n positions, all in its last page.
    Fill(usize, usize),
    /// `Adopt(page, equal)`: let a full page take the chain id of an equal full page, so that what continues one
    /// continues the other. A caller's hash table may have found the equal page; it is only a hint and is checked.
    Adopt(u32, u32),
}

/// An empty ledger for `npages` pages of `psize` tokens. Panics if `psize` is 0 or the number of slots exceeds `usize`.
pub fn create(psize: usize, npages: usize) -> Ledger {
    assert!(psize > 0);
    let _slots = psize * npages;
    let mut pages: Vec<Page> = Vec::new();
    for _i in 0..npages {
        pages.push(Page { parent: 0, cid: 0, pins: 0, toks: Vec::new() });
    }
    Ledger { psize, next: 1, pages, reqs: Vec::new() }
}

/// Number of leading positions of request `r` whose keys and values are computed or scheduled in accepted steps.
/// Panics if there is no entry `r`.
pub fn kv_len(l: &Ledger, r: usize) -> usize {
    let k = l.reqs[r].table.len();
    if k == 0 {
        return 0;
    }
    let p = l.reqs[r].table[k - 1] as usize;
    (k - 1) * l.psize + l.pages[p].toks.len()
}

/// Chain id of the request's last page, 0 when it has none. Panics if there is no entry `r`.
pub fn tail_cid(l: &Ledger, r: usize) -> u64 {
    let k = l.reqs[r].table.len();
    if k == 0 {
        return 0;
    }
    let p = l.reqs[r].table[k - 1] as usize;
    l.pages[p].cid
}

/// The request can take another page: all its pages are full. Panics if there is no entry `r`.
pub fn aligned(l: &Ledger, r: usize) -> bool {
    let kv = kv_len(l, r);
    kv == l.reqs[r].table.len() * l.psize
}

/// A new request; returns its entry's index. Entries are never removed: a long-running server reuses finished ones with
/// [`readmit`], so that there are as many entries as requests were ever live together.
pub fn admit(l: &mut Ledger, prompt: &[u32]) -> usize {
    let r = l.reqs.len();
    l.reqs.push(Req { live: true, sure: prompt.len(), toks: prompt.to_vec(), table: Vec::new() });
    r
}

/// A new request in the entry `r` of a finished one. False, and no change, unless `r` is finished.
pub fn readmit(l: &mut Ledger, r: usize, prompt: &[u32]) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    let k = l.reqs[r].table.len();
    if l.reqs[r].live || k != 0 {
        return false;
    }
    l.reqs[r] = Req { live: true, sure: prompt.len(), toks: prompt.to_vec(), table: Vec::new() };
    true
}

// Op::Attach
fn attach(l: &mut Ledger, r: usize, p: u32) -> bool {
    let pi = p as usize;
    if r >= l.reqs.len() || pi >= l.pages.len() {
        return false;
    }
    if !l.reqs[r].live || !aligned(l, r) {
        return false;
    }
    if l.pages[pi].toks.len() != l.psize {
        return false;
    }
    if l.pages[pi].parent != tail_cid(l, r) {
        return false;
    }
    let kv = l.reqs[r].table.len() * l.psize;
    if kv + l.psize > l.reqs[r].toks.len() || kv + l.psize >= l.reqs[r].sure {
        return false;
    }
    let mut same = true;
    for i in 0..l.psize {
        if l.pages[pi].toks[i] != l.reqs[r].toks[kv + i] {
            same = false;
        }
    }
    if !same {
        return false;
    }
    l.pages[pi].pins += 1;
    l.reqs[r].table.push(p);
    true
}

// Op::Grow
fn grow(l: &mut Ledger, r: usize, p: u32) -> bool {
    let pi = p as usize;
    if r >= l.reqs.len() || pi >= l.pages.len() {
        return false;
    }
    if !l.reqs[r].live || !aligned(l, r) {
        return false;
    }
    if l.pages[pi].pins != 0 {
        return false;
    }
    let c = tail_cid(l, r);
    l.pages[pi] = Page { parent: c, cid: 0, pins: 1, toks: Vec::new() };
    l.reqs[r].table.push(p);
    true
}

// One row: the request's next position, written to its last page.
fn fill1(l: &mut Ledger, rows: &mut Vec<Launch>, r: usize) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    if !l.reqs[r].live {
        return false;
    }
    let kv = kv_len(l, r);
    let k = l.reqs[r].table.len();
    if kv >= l.reqs[r].toks.len() || kv >= k * l.psize {
        return false;
    }
    let p = l.reqs[r].table[k - 1] as usize;
    let t = l.reqs[r].toks[kv];
    let slot = p * l.psize + l.pages[p].toks.len();
    let sample = kv + 1 >= l.reqs[r].sure;
    rows.push(Launch { req: r, pos: kv, tok: t, slot, sample });
    l.pages[p].toks.push(t);
    if l.pages[p].toks.len() == l.psize {
        l.pages[p].cid = l.next;
        l.next += 1;
    }
    true
}

// Op::Fill
fn fill(l: &mut Ledger, rows: &mut Vec<Launch>, r: usize, n: usize) -> bool {
    let mut ok = true;
    for _i in 0..n {
        if ok {
            ok = fill1(l, rows, r);
        }
    }
    ok
}

// Op::Adopt
fn adopt(l: &mut Ledger, p: u32, q: u32) -> bool {
    let pi = p as usize;
    let qi = q as usize;
    if pi >= l.pages.len() || qi >= l.pages.len() {
        return false;
    }
    if l.pages[pi].toks.len() != l.psize || l.pages[qi].toks.len() != l.psize {
        return false;
    }
    if l.pages[pi].parent != l.pages[qi].parent {
        return false;
    }
    let mut same = true;
    for i in 0..l.psize {
        if l.pages[pi].toks[i] != l.pages[qi].toks[i] {
            same = false;
        }
    }
    if !same {
        return false;
    }
    l.pages[pi].cid = l.pages[qi].cid;
    true
}

/// Check and apply one step plan; the rows to launch are appended to `rows`, which the caller passes in empty.
/// False: the plan is refused half applied; launch nothing, forget `rows`, and call [`reset`].
pub fn step(l: &mut Ledger, rows: &mut Vec<Launch>, ops: &[Op]) -> bool {
    let mut ok = true;
    for i in 0..ops.len() {
        if ok {
            match ops[i] {
                Op::Attach(r, p) => {
                    ok = attach(l, r, p);
                }
                Op::Grow(r, p) => {
                    ok = grow(l, r, p);
                }
                Op::Fill(r, n) => {
                    ok = fill(l, rows, r, n);
                }
                Op::Adopt(p, q) => {
                    ok = adopt(l, p, q);
                }
            }
        }
    }
    ok
}

/// The token of position `n`, sampled from the row before it, joins the request's certain tokens. False, and no change,
/// unless the request is live, `n` is the next certain position, and all before it are in the cache. A guess that stands at
/// `n` must be `t`; otherwise drop it with [`truncate`] first.
pub fn commit(l: &mut Ledger, r: usize, n: usize, t: u32) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    let kv = kv_len(l, r);
    if !l.reqs[r].live || n != l.reqs[r].sure || kv < n {
        return false;
    }
    let guessed = n < l.reqs[r].toks.len();
    if guessed && l.reqs[r].toks[n] != t {
        return false;
    }
    if !guessed {
        l.reqs[r].toks.push(t);
    }
    l.reqs[r].sure += 1;
    true
}

/// The token of position `n` was committed under a name, a number that no token has and that was used for nothing else; now it
/// is known to be `t`. The request's history takes `t` in its place, and so does the page that position `n` lies in, where it is
/// computed. False, and no change, unless the request is live and the name stands at `n`.
pub fn resolve(l: &mut Ledger, r: usize, n: usize, name: u32, t: u32) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    if !l.reqs[r].live || n >= l.reqs[r].toks.len() {
        return false;
    }
    if l.reqs[r].toks[n] != name {
        return false;
    }
    let whole = n / l.psize;
    let rest = n - whole * l.psize;
    if whole < l.reqs[r].table.len() {
        let p = l.reqs[r].table[whole] as usize;
        if rest < l.pages[p].toks.len() && l.pages[p].toks[rest] == name {
            l.pages[p].toks[rest] = t;
        }
    }
    l.reqs[r].toks[n] = t;
    true
}

/// A guess for the request's next token, for speculative decoding: steps may compute it like any other token, and its row
/// gives the token after it, which [`commit`] takes once the guess has turned out right. False unless the request is live.
pub fn draft(l: &mut Ledger, r: usize, t: u32) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    if !l.reqs[r].live {
        return false;
    }
    l.reqs[r].toks.push(t);
    true
}

// Give back the request's pages from its k-th on.
fn release(l: &mut Ledger, r: usize, k: usize) {
    for i in k..l.reqs[r].table.len() {
        let p = l.reqs[r].table[i] as usize;
        l.pages[p].pins -= 1;
    }
    l.reqs[r].table.truncate(k);
}

/// Drop the guesses from position `n` on, with what was computed for them. Pages that hold nothing before `n` are given
/// back; their contents stay cached. The page that `n` lies in is emptied from there on. False, and no change, unless the
/// request is live and `n` is within its guesses, and when that page is held by another request too, which reads those
/// slots: then [`unpin`] is the way back.
pub fn truncate(l: &mut Ledger, r: usize, n: usize) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    if !l.reqs[r].live || n < l.reqs[r].sure || n > l.reqs[r].toks.len() {
        return false;
    }
    let whole = n / l.psize;
    let rest = n - whole * l.psize;
    let mut shared = false;
    if rest > 0 && whole < l.reqs[r].table.len() {
        let p = l.reqs[r].table[whole] as usize;
        shared = l.pages[p].toks.len() > rest && l.pages[p].pins != 1;
    }
    if shared {
        return false;
    }
    let mut kept = whole;
    if rest > 0 {
        kept += 1;
    }
    release(l, r, kept);
    if rest > 0 && whole < l.reqs[r].table.len() {
        let p = l.reqs[r].table[whole] as usize;
        l.pages[p].toks.truncate(rest);
    }
    l.reqs[r].toks.truncate(n);
    true
}

/// The request gives its pages back (preemption); their contents stay cached. False if there is no entry `r`.
pub fn unpin(l: &mut Ledger, r: usize) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    release(l, r, 0);
    true
}

/// The request ends, by completion or cancellation: it gives its pages back and its entry may be reused. Its tokens are
/// dropped. False if there is no entry `r`.
pub fn finish(l: &mut Ledger, r: usize) -> bool {
    let ok = unpin(l, r);
    if ok {
        l.reqs[r].live = false;
        l.reqs[r].sure = 0;
        l.reqs[r].toks = Vec::new();
    }
    ok
}

/// Forget every claim about memory. Requests stay, with all their tokens to be computed again; always sound.
pub fn reset(l: &mut Ledger) {
    for r in 0..l.reqs.len() {
        l.reqs[r].table = Vec::new();
    }
    for p in 0..l.pages.len() {
        l.pages[p] = Page { parent: 0, cid: 0, pins: 0, toks: Vec::new() };
    }
}

// The first page that no request holds; the number of pages when there is none.
fn unheld(l: &Ledger) -> u32 {
    let mut page: u32 = 0;
    let mut found = false;
    for p in 0..l.pages.len() {
        if !found {
            if l.pages[p].pins == 0 {
                found = true;
            } else {
                page += 1;
            }
        }
    }
    page
}

// All requests but `r` give their pages back.
fn clear_for(l: &mut Ledger, r: usize) {
    for i in 0..l.reqs.len() {
        if i != r {
            unpin(l, i);
        }
    }
}

// One row of request `r`, which has the pool to itself for it.
fn lone_row(l: &mut Ledger, rows: &mut Vec<Launch>, r: usize) -> bool {
    clear_for(l, r);
    let full = aligned(l, r);
    let mut ok = true;
    if full {
        let p = unheld(l);
        ok = grow(l, r, p);
    }
    if ok {
        ok = fill1(l, rows, r);
    }
    ok
}

// Follow a proposal. One that is refused, or launches nothing, is followed by forgetting everything. True when there is now
// more of request `r` than before.
fn follow(l: &mut Ledger, rows: &mut Vec<Launch>, r: usize, preempt: &[usize], ops: &[Op]) -> bool {
    let before = kv_len(l, r);
    for i in 0..preempt.len() {
        unpin(l, preempt[i]);
    }
    let mut ok = step(l, rows, ops);
    if rows.len() == 0 {
        ok = false;
    }
    if !ok {
        reset(l);
        rows.truncate(0);
    }
    ok && kv_len(l, r) > before
}

/// A step that is certain to make progress, whatever is proposed. `r` is the entry of the oldest live request, which arrived
/// as number `age`; the proposal is to take the pages of the requests `preempt`, then [`step`] with `ops`. When the ledger
/// refuses it, or it launches nothing, everything is forgotten and the oldest request gets a row in its place. A proposal that has not computed more of the oldest request than there was before is the last one that is
/// followed until that request ends: from then on it is served alone, row by row.
///
/// `rows` is passed in empty; afterwards it holds what to launch. False when there is nothing to compute for the oldest
/// request, or when it does not fit the pool.
pub fn serve(
    l: &mut Ledger,
    rows: &mut Vec<Launch>,
    w: &mut Watch,
    age: u64,
    r: usize,
    preempt: &[usize],
    ops: &[Op],
) -> bool {
    if r >= l.reqs.len() {
        return false;
    }
    if w.age != age {
        w.age = age;
        w.alone = false;
    }
    if !w.alone {
        let advanced = follow(l, rows, r, preempt, ops);
        w.alone = !advanced;
    }
    if rows.len() == 0 {
        return lone_row(l, rows, r);
    }
    true
}

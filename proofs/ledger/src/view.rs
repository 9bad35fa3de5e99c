//! Read-only access to a ledger. Nothing here takes `&mut`, so the proofs need not know about it.

use crate::{Ledger, Page, Req};

impl Ledger {
    /// Tokens per page.
    pub fn page_size(&self) -> usize {
        self.psize
    }

    /// The next chain id that a page will get when it fills; grows for ever.
    pub fn next_cid(&self) -> u64 {
        self.next
    }

    /// The pages of the pool; a page's index is its number in block tables.
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// The request entries, finished ones included; the index is what [`crate::admit`] returned.
    pub fn reqs(&self) -> &[Req] {
        &self.reqs
    }
}

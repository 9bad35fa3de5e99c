//! Substitution. Replacements are closed under the binders of the term (binders are unique), so nothing is captured.

use super::{Arena, TermId};
use crate::term::Map as HashMap;

impl Arena {
    /// `t` with each key replaced by its value. Keys may be any terms; the outermost match is taken, and replacements are not
    /// substituted again.
    pub fn subst(&mut self, t: TermId, map: &HashMap<TermId, TermId>) -> TermId {
        let mut memo = HashMap::default();
        self.subst_memo(t, map, &mut memo)
    }

    /// One replacement.
    pub fn subst_one(&mut self, t: TermId, from: TermId, to: TermId) -> TermId {
        self.subst(t, &HashMap::from_iter([(from, to)]))
    }

    /// As [`Arena::subst`] with a memo that the caller keeps for several terms and one map.
    pub fn subst_memo(
        &mut self,
        t: TermId,
        map: &HashMap<TermId, TermId>,
        memo: &mut HashMap<TermId, TermId>,
    ) -> TermId {
        if let Some(&r) = map.get(&t) {
            return r;
        }
        if let Some(&r) = memo.get(&t) {
            return r;
        }
        if self.stopped() {
            return t;
        }
        let r = self.map_children(t, |arena, c| arena.subst_memo(c, map, memo));
        memo.insert(t, r);
        r
    }
}

//! Rewriting under facts: what a guard of the stored lane says about the value that is stored.
//!
//! Facts grow on the way down (the branch of an if, the mask of a load while its address is looked at, the range of a binder) and
//! never leak sideways: a fact about the stored lane names coordinates, a lane of a reduction is another variable.

use super::{Arena, Facts, Load, Node, Sort, TermId};

impl Arena {
    /// `t` simplified where `facts` hold.
    pub fn simplify(&mut self, t: TermId, facts: &Facts) -> TermId {
        if matches!(self.sort(t), Sort::Bool)
            && let Some(b) = facts.decide(self, t)
        {
            return self.bool(b);
        }
        if let Some(&r) = self.scope_memo.get(&(facts.scope(), t)) {
            return r;
        }
        if self.stopped() {
            return t;
        }
        let r = self.simplify_node(t, facts);
        self.scope_memo.insert((facts.scope(), t), r);
        r
    }

    fn simplify_node(&mut self, t: TermId, facts: &Facts) -> TermId {
        match self.node(t).clone() {
            Node::Ite(c, a, b) => {
                let c = self.simplify(c, facts);
                match self.as_bool(c) {
                    Some(true) => return self.simplify(a, facts),
                    Some(false) => return self.simplify(b, facts),
                    None => {}
                }
                // Where the condition says nothing of numbers and does not come again, new facts would only mean new work.
                if !self.says_numbers(c) && !self.contains(a, c) && !self.contains(b, c) {
                    let (a, b) = (self.simplify(a, facts), self.simplify(b, facts));
                    return self.ite(c, a, b);
                }
                let yes = facts.with(self, c);
                let not = self.not(c);
                let no = facts.with(self, not);
                let (a, b) = (self.simplify(a, &yes), self.simplify(b, &no));
                self.ite(c, a, b)
            }
            Node::Load(l) => self.simplify_load(l, self.sort(t), facts),
            Node::Reduce(r) => {
                let at = r.at.map(|x| self.simplify(x, facts));
                let bodies = r.bodies.iter().map(|&x| self.simplify(x, facts)).collect();
                let sort = self.sort(t);
                self.intern(Node::Reduce(Box::new(super::Reduce { bodies, at, ..*r })), sort)
            }
            Node::Fold(f) if f.while_cond.is_none() => {
                let trip = self.simplify(f.trip, facts);
                let none = self.scale(trip, -1);
                if facts.proves(self, none) {
                    return self.simplify(f.slots[0].init, facts);
                }
                let n = self.var_term(f.binder);
                let running = self.lt(n, trip);
                let inner = facts.with(self, running);
                let mut slots = Vec::with_capacity(f.slots.len());
                for s in f.slots {
                    let (init, body) = (self.simplify(s.init, facts), self.simplify(s.body, &inner));
                    slots.push(super::Slot { init, body, ..s });
                }
                let sort = self.sort(t);
                self.fold(super::Fold { trip, slots, ..*f }, sort)
            }
            Node::Carry(..) => t,
            Node::Fold(_) => t,
            Node::TDiv(a, b) | Node::TRem(a, b) => {
                let whole = matches!(self.node(t), Node::TDiv(..));
                let (a, b) = (self.simplify(a, facts), self.simplify(b, facts));
                let positive = self.add_const(b, -1);
                match (facts.proves(self, a) && facts.proves(self, positive), whole) {
                    (true, true) => self.div_under(a, b, facts),
                    (true, false) => self.mod_under(a, b, facts),
                    (false, true) => self.tdiv(a, b),
                    (false, false) => self.trem(a, b),
                }
            }
            Node::Div(a, b) => {
                let (a, b) = (self.simplify(a, facts), self.simplify(b, facts));
                self.div_under(a, b, facts)
            }
            Node::Mod(a, b) => {
                let (a, b) = (self.simplify(a, facts), self.simplify(b, facts));
                self.mod_under(a, b, facts)
            }
            Node::Min(a, b) | Node::Max(a, b) => {
                let min = matches!(self.node(t), Node::Min(..));
                let (a, b) = (self.simplify(a, facts), self.simplify(b, facts));
                let (up, down) = (self.sub(b, a), self.sub(a, b));
                match (facts.proves(self, up), facts.proves(self, down), min) {
                    (true, _, true) | (_, true, false) => a,
                    (_, true, true) | (true, _, false) => b,
                    (_, _, true) => self.min(a, b),
                    (_, _, false) => self.max(a, b),
                }
            }
            _ => {
                let r = self.map_children(t, |arena, c| arena.simplify(c, facts));
                match facts.decide_bool(self, r) {
                    Some(b) => self.bool(b),
                    None => r,
                }
            }
        }
    }

    /// True if a condition is made of comparisons of integers; one of floats tells the provers nothing.
    pub fn says_numbers(&self, c: TermId) -> bool {
        match self.node(c) {
            Node::Ge0(_) | Node::Eq0(_) => true,
            Node::Not(x) => self.says_numbers(*x),
            Node::And(ts) | Node::Or(ts) => ts.iter().any(|t| self.says_numbers(*t)),
            _ => false,
        }
    }

    /// True if `part` is a subterm of `t`.
    fn contains(&mut self, t: TermId, part: TermId) -> bool {
        // A term is made after its parts.
        if t <= part {
            return t == part;
        }
        if let Some(&known) = self.parts.get(&(t, part)) {
            return known;
        }
        let mut list = Vec::new();
        super::children(self.node(t), |c| list.push(c));
        let found = list.into_iter().any(|c| self.contains(c, part));
        self.parts.insert((t, part), found);
        found
    }

    /// `floor(a / b)` is 0 for `0 <= a < b`; a part of `a` that is a multiple of b leaves first.
    fn div_under(&mut self, a: TermId, b: TermId, facts: &Facts) -> TermId {
        let q = self.div(a, b);
        let Node::Poly(p) = self.node(q).clone() else { return self.div_atom(q, facts) };
        let mut sum = self.int(0);
        for (m, c) in &p.terms {
            let mut part = self.int(*c);
            for &x in m {
                let x = self.div_atom(x, facts);
                part = self.mul(part, x);
            }
            sum = self.add(sum, part);
        }
        sum
    }

    fn div_atom(&mut self, t: TermId, facts: &Facts) -> TermId {
        let &Node::Div(a, b) = self.node(t) else { return t };
        let room = self.sub(b, a);
        let room = self.add_const(room, -1);
        if facts.proves(self, a) && facts.proves(self, room) { self.int(0) } else { t }
    }

    fn mod_under(&mut self, a: TermId, b: TermId, facts: &Facts) -> TermId {
        let r = self.modulo(a, b);
        let &Node::Mod(a, b) = self.node(r) else { return r };
        let room = self.sub(b, a);
        let room = self.add_const(room, -1);
        if facts.proves(self, a) && facts.proves(self, room) { a } else { r }
    }

    fn simplify_load(&mut self, l: Load, sort: Sort, facts: &Facts) -> TermId {
        let mask = self.simplify(l.mask, facts);
        let inner = facts.with(self, mask);
        let base = self.simplify(l.base, &inner);
        let offset = self.simplify(l.offset, &inner);
        let not = self.not(mask);
        let outer = facts.with(self, not);
        let other = if self.as_bool(mask) == Some(true) { l.other } else { self.simplify(l.other, &outer) };
        self.load(Load { base, offset, mask, other, ..l }, sort)
    }
}

impl Facts {
    fn decide_bool(&self, arena: &mut Arena, t: TermId) -> Option<bool> {
        if arena.sort(t) == Sort::Bool { self.decide(arena, t) } else { None }
    }
}

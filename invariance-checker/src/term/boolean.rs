//! Truth values: comparisons in normal form, connectives, and if-then-else.

use super::{Arena, Node, Sort, TermId};

impl Arena {
    /// True or false.
    pub fn bool(&mut self, b: bool) -> TermId {
        self.intern(Node::Bool(b), Sort::Bool)
    }

    /// The value of a constant truth value.
    pub fn as_bool(&self, t: TermId) -> Option<bool> {
        match self.node(t) {
            Node::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// `t >= 0`, with the content of the coefficients divided out: over the integers `g*p + c >= 0` is `p + floor(c/g) >= 0`.
    pub fn ge0(&mut self, t: TermId) -> TermId {
        let r = self.range(t);
        if r.lo.is_some_and(|lo| lo >= 0) {
            return self.bool(true);
        }
        if r.hi.is_some_and(|hi| hi < 0) {
            return self.bool(false);
        }
        if let Some(chosen) = self.choice(t, Arena::ge0) {
            return chosen;
        }
        let mut p = self.poly(t);
        let g = p.terms.iter().filter(|(m, _)| !m.is_empty()).fold(0i128, |g, (_, c)| gcd(g, c.abs()));
        if g > 1 {
            p.terms.iter_mut().for_each(|(_, c)| *c = c.div_euclid(g));
            p.terms.retain(|(_, c)| *c != 0);
        }
        let t = self.from_poly(p);
        self.intern(Node::Ge0(t), Sort::Bool)
    }

    /// A comparison of `k * (if c then a else b) + r` for constants a, b and r is c, its negation, or known: a mask that was made a number
    /// and compared with zero is the mask.
    fn choice(&mut self, t: TermId, compare: fn(&mut Arena, TermId) -> TermId) -> Option<TermId> {
        let p = self.poly(t);
        let r = p.constant_part();
        let (atom, k) = match p.terms.as_slice() {
            [(m, k)] | [_, (m, k)] if m.len() == 1 && p.terms.len() < 2 + usize::from(r != 0) => (m[0], *k),
            _ => return None,
        };
        let Node::Ite(c, a, b) = *self.node(atom) else { return None };
        self.as_int(a).zip(self.as_int(b))?;
        let mut sides = [a, b];
        for side in &mut sides {
            let x = self.scale(*side, k);
            let x = self.add_const(x, r);
            *side = compare(self, x);
        }
        match sides.map(|x| self.as_bool(x)) {
            [Some(true), Some(true)] => Some(self.bool(true)),
            [Some(false), Some(false)] => Some(self.bool(false)),
            [Some(true), Some(false)] => Some(c),
            [Some(false), Some(true)] => Some(self.not(c)),
            _ => None,
        }
    }

    fn is_zero(&mut self, t: TermId) -> TermId {
        let zero = self.int(0);
        self.eq(t, zero)
    }

    /// `a >= b`.
    pub fn ge(&mut self, a: TermId, b: TermId) -> TermId {
        let d = self.sub(a, b);
        self.ge0(d)
    }

    /// `a < b`.
    pub fn lt(&mut self, a: TermId, b: TermId) -> TermId {
        let d = self.sub(b, a);
        let d = self.add_const(d, -1);
        self.ge0(d)
    }

    /// `a == b` for integers.
    pub fn eq(&mut self, a: TermId, b: TermId) -> TermId {
        let d = self.sub(a, b);
        if let Some(c) = self.as_int(d) {
            return self.bool(c == 0);
        }
        let r = self.range(d);
        if r.lo.is_some_and(|lo| lo > 0) || r.hi.is_some_and(|hi| hi < 0) {
            return self.bool(false);
        }
        if let Some(chosen) = self.choice(d, Arena::is_zero) {
            return chosen;
        }
        // The sign is chosen so that a == b and b == a are one term.
        let negative = self.poly(d).terms.last().is_some_and(|(_, c)| *c < 0);
        let d = if negative { self.scale(d, -1) } else { d };
        self.intern(Node::Eq0(d), Sort::Bool)
    }

    /// Negation. `not (p >= 0)` is `-p - 1 >= 0`.
    pub fn not(&mut self, t: TermId) -> TermId {
        match self.node(t).clone() {
            Node::Bool(b) => self.bool(!b),
            Node::Not(x) => x,
            Node::Ge0(p) => {
                let m = self.scale(p, -1);
                let m = self.add_const(m, -1);
                self.ge0(m)
            }
            _ => self.intern(Node::Not(t), Sort::Bool),
        }
    }

    /// Conjunction.
    pub fn and(&mut self, parts: impl IntoIterator<Item = TermId>) -> TermId {
        self.connect(parts, true)
    }

    /// Disjunction.
    pub fn or(&mut self, parts: impl IntoIterator<Item = TermId>) -> TermId {
        self.connect(parts, false)
    }

    fn connect(&mut self, parts: impl IntoIterator<Item = TermId>, and: bool) -> TermId {
        let mut flat: Vec<TermId> = Vec::new();
        let mut todo: Vec<TermId> = parts.into_iter().collect();
        while let Some(t) = todo.pop() {
            match self.node(t) {
                Node::Bool(b) if *b == and => {}
                Node::Bool(_) => return self.bool(!and),
                Node::And(ts) if and => todo.extend_from_slice(ts),
                Node::Or(ts) if !and => todo.extend_from_slice(ts),
                _ => flat.push(t),
            }
        }
        flat.sort_unstable();
        flat.dedup();
        for &t in &flat.clone() {
            let n = self.not(t);
            if flat.binary_search(&n).is_ok() {
                return self.bool(!and);
            }
        }
        match flat.as_slice() {
            [] => self.bool(and),
            [one] => *one,
            _ if and => self.intern(Node::And(flat), Sort::Bool),
            _ => self.intern(Node::Or(flat), Sort::Bool),
        }
    }

    /// `if c then a else b`.
    pub fn ite(&mut self, c: TermId, a: TermId, b: TermId) -> TermId {
        if a == b {
            return a;
        }
        match self.node(c).clone() {
            Node::Bool(true) => return a,
            Node::Bool(false) => return b,
            Node::Not(x) => return self.ite(x, b, a),
            _ => {}
        }
        if let (&Node::Ptr(p, x), &Node::Ptr(q, y)) = (self.node(a), self.node(b))
            && p == q
        {
            let off = self.ite(c, x, y);
            return self.ptr(p, off);
        }
        if self.sort(a) == Sort::Bool {
            let n = self.not(c);
            let (x, y) = (self.and([c, a]), self.and([n, b]));
            return self.or([x, y]);
        }
        // One polarity for comparisons.
        if let Node::Ge0(p) = self.node(c)
            && self.poly(*p).terms.last().is_some_and(|(_, k)| *k < 0)
        {
            let n = self.not(c);
            return self.intern(Node::Ite(n, b, a), self.sort(a));
        }
        self.intern(Node::Ite(c, a, b), self.sort(a))
    }

    /// The conjuncts of a truth value.
    pub fn conjuncts(&self, t: TermId) -> Vec<TermId> {
        match self.node(t) {
            Node::And(ts) => ts.clone(),
            Node::Bool(true) => vec![],
            _ => vec![t],
        }
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

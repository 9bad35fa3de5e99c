//! Equality up to the names of bound variables: two operations of a kernel that compute the same thing have binders of their own.

use super::{Arena, Fold, Node, TermId, VarId};

/// Larger terms are not compared.
const STEPS_MAX: u32 = 20_000;

impl Arena {
    /// True if the terms are equal once bound variables are renamed. A "no" may also mean that they are too large to compare.
    pub fn alike(&self, a: TermId, b: TermId) -> bool {
        let mut steps = STEPS_MAX;
        self.same(a, b, &mut Vec::new(), &mut steps)
    }

    fn same(&self, a: TermId, b: TermId, names: &mut Vec<(VarId, VarId)>, steps: &mut u32) -> bool {
        let renamed =
            |t: TermId, right: bool| names.iter().any(|(x, y)| self.contains_var(t, if right { *y } else { *x }));
        if a == b && !renamed(a, false) && !renamed(b, true) {
            return true;
        }
        if *steps == 0 || self.sort(a) != self.sort(b) {
            return false;
        }
        *steps -= 1;
        let var =
            |v: VarId, w: VarId, names: &[(VarId, VarId)]| match names.iter().rev().find(|(x, y)| *x == v || *y == w) {
                Some(pair) => *pair == (v, w),
                None => v == w,
            };
        match (self.node(a), self.node(b)) {
            (Node::Var(v), Node::Var(w)) => var(*v, *w, names),
            (Node::Carry(v, k, at), Node::Carry(w, l, bt)) => {
                var(*v, *w, names) && k == l && self.each(at, bt, names, steps)
            }
            (Node::Poly(p), Node::Poly(q)) => {
                let mut left = q.terms.clone();
                p.terms.len() == left.len()
                    && p.terms.iter().all(|(m, c)| {
                        let hit = left.iter().position(|(n, d)| c == d && self.some_order(m, n, names, steps));
                        hit.map(|i| left.remove(i)).is_some()
                    })
            }
            (Node::And(x), Node::And(y)) | (Node::Or(x), Node::Or(y)) => self.some_order(x, y, names, steps),
            (Node::Op(n, x), Node::Op(m, y)) => n == m && self.each(x, y, names, steps),
            (Node::Opaque(w, n, x), Node::Opaque(v, m, y)) => w == v && n == m && self.each(x, y, names, steps),
            (Node::Reduce(r), Node::Reduce(s)) => {
                let kind = (r.combiner, r.order_free, r.key, r.len, r.out, r.at.is_some())
                    == (s.combiner, s.order_free, s.key, s.len, s.out, s.at.is_some());
                let at = |r: &super::Reduce| r.at.into_iter().collect::<Vec<_>>();
                kind && self.each(&at(r), &at(s), names, steps)
                    && self.inside((r.binder, s.binder), &r.bodies, &s.bodies, names, steps)
            }
            (Node::Chain(c), Node::Chain(d)) => {
                (c.tag, c.flat, c.len) == (d.tag, d.flat, d.len)
                    && self.same(c.acc, d.acc, names, steps)
                    && self.inside((c.binder, d.binder), &[c.a, c.b], &[d.a, d.b], names, steps)
            }
            (Node::Fold(f), Node::Fold(g)) => {
                let inits = |f: &Fold| f.slots.iter().map(|s| s.init).collect::<Vec<_>>();
                let inner =
                    |f: &Fold| f.while_cond.into_iter().chain(f.slots.iter().map(|s| s.body)).collect::<Vec<_>>();
                f.while_cond.is_some() == g.while_cond.is_some()
                    && self.same(f.trip, g.trip, names, steps)
                    && self.each(&inits(f), &inits(g), names, steps)
                    && self.inside((f.binder, g.binder), &inner(f), &inner(g), names, steps)
            }
            (Node::Load(l), Node::Load(m)) => {
                (l.ty, l.volatile, l.epoch) == (m.ty, m.volatile, m.epoch)
                    && self.each(
                        &[l.base, l.offset, l.mask, l.other],
                        &[m.base, m.offset, m.mask, m.other],
                        names,
                        steps,
                    )
            }
            (
                Node::Div(..)
                | Node::Mod(..)
                | Node::TDiv(..)
                | Node::TRem(..)
                | Node::Min(..)
                | Node::Max(..)
                | Node::Ptr(..)
                | Node::Ge0(_)
                | Node::Eq0(_)
                | Node::Not(_)
                | Node::Ite(..),
                _,
            ) => {
                let (mut x, mut y) = (Vec::new(), Vec::new());
                super::children(self.node(a), |c| x.push(c));
                super::children(self.node(b), |c| y.push(c));
                std::mem::discriminant(self.node(a)) == std::mem::discriminant(self.node(b))
                    && self.each(&x, &y, names, steps)
            }
            _ => false,
        }
    }

    fn inside(
        &self,
        binders: (VarId, VarId),
        x: &[TermId],
        y: &[TermId],
        names: &mut Vec<(VarId, VarId)>,
        steps: &mut u32,
    ) -> bool {
        names.push(binders);
        let same = self.each(x, y, names, steps);
        names.pop();
        same
    }

    fn each(&self, x: &[TermId], y: &[TermId], names: &mut Vec<(VarId, VarId)>, steps: &mut u32) -> bool {
        x.len() == y.len() && x.iter().zip(y).all(|(a, b)| self.same(*a, *b, names, steps))
    }

    /// Factors and conjuncts are kept in an order that renaming may change.
    fn some_order(&self, x: &[TermId], y: &[TermId], names: &mut Vec<(VarId, VarId)>, steps: &mut u32) -> bool {
        let mut left = y.to_vec();
        x.len() == y.len()
            && x.iter().all(|a| {
                let hit = left.iter().position(|b| self.same(*a, *b, names, steps));
                hit.map(|i| left.remove(i)).is_some()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Range, Reduce, Sort, VarKind, tests::arena};
    use super::*;

    fn sum(t: &mut Arena, scale: i128, key: &str) -> TermId {
        let binder = t.var(VarKind::Bound, "r", Range { lo: Some(0), hi: Some(7) });
        let r = t.var_term(binder);
        let n = t.intern(Node::Arg(0), Sort::Int);
        let at = t.scale(r, scale);
        let at = t.add(at, n);
        let bodies = vec![t.op("number", vec![at], Sort::Data)];
        let (combiner, key) = (t.sym("addf(%0,%1)"), t.sym(key));
        let r = Reduce { combiner, order_free: false, key, len: 8, binder, bodies, out: 0, at: None };
        t.intern(Node::Reduce(Box::new(r)), Sort::Data)
    }

    #[test]
    fn binders_have_no_names() {
        let mut t = arena();
        let (a, b) = (sum(&mut t, 3, "[8]/0"), sum(&mut t, 3, "[8]/0"));
        assert_ne!(a, b);
        assert!(t.alike(a, b));
        let (c, d) = (sum(&mut t, 4, "[8]/0"), sum(&mut t, 3, "[2, 8]/1"));
        assert!(!t.alike(a, c), "another place");
        assert!(!t.alike(a, d), "another layout, so perhaps another order");
    }

    #[test]
    fn a_free_variable_is_not_a_bound_one() {
        let mut t = arena();
        let (x, y) = (t.var(VarKind::Bound, "x", Range::default()), t.var(VarKind::Bound, "y", Range::default()));
        let (xt, yt) = (t.var_term(x), t.var_term(y));
        assert!(!t.alike(xt, yt));
        assert!(t.same(xt, yt, &mut vec![(x, y)], &mut 9));
        assert!(!t.same(xt, xt, &mut vec![(x, y)], &mut 9));
    }
}

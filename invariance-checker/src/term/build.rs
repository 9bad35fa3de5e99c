//! Rebuilding a node from changed children, through the simplifying constructors.

use super::{Arena, Chain, Fold, Load, Node, Poly, Reduce, Slot, TermId};

impl Arena {
    /// The term like `t`, with every direct subterm `c` replaced by `f(self, c)`.
    pub fn map_children(&mut self, t: TermId, mut f: impl FnMut(&mut Arena, TermId) -> TermId) -> TermId {
        let sort = self.sort(t);
        let node = self.node(t).clone();
        match node {
            Node::Poly(p) => self.map_poly(&p, f),
            Node::Var(_) | Node::Arg(_) | Node::NumPrograms(_) | Node::Bool(_) | Node::Const(..) => t,
            Node::ArgPtr(_) | Node::Undef(_) => t,
            Node::Div(a, b) => self.map2(a, b, f, Arena::div),
            Node::Mod(a, b) => self.map2(a, b, f, Arena::modulo),
            Node::TDiv(a, b) => self.map2(a, b, f, Arena::tdiv),
            Node::TRem(a, b) => self.map2(a, b, f, Arena::trem),
            Node::Min(a, b) => self.map2(a, b, f, Arena::min),
            Node::Max(a, b) => self.map2(a, b, f, Arena::max),
            Node::Ptr(a, b) => self.map2(a, b, f, Arena::ptr),
            Node::Ge0(a) => {
                let a = f(self, a);
                self.ge0(a)
            }
            Node::Eq0(a) => {
                let a = f(self, a);
                let zero = self.int(0);
                self.eq(a, zero)
            }
            Node::Not(a) => {
                let a = f(self, a);
                self.not(a)
            }
            Node::And(ts) => {
                let ts: Vec<_> = ts.into_iter().map(|x| f(self, x)).collect();
                self.and(ts)
            }
            Node::Or(ts) => {
                let ts: Vec<_> = ts.into_iter().map(|x| f(self, x)).collect();
                self.or(ts)
            }
            Node::Ite(c, a, b) => {
                let (c, a, b) = (f(self, c), f(self, a), f(self, b));
                self.ite(c, a, b)
            }
            Node::Op(name, args) => {
                let args = args.into_iter().map(|x| f(self, x)).collect();
                let name = self.text(name).to_owned();
                self.op(&name, args, sort)
            }
            Node::Load(l) => {
                let l = Load {
                    base: f(self, l.base),
                    offset: f(self, l.offset),
                    mask: f(self, l.mask),
                    other: f(self, l.other),
                    ..l
                };
                self.load(l, sort)
            }
            Node::Reduce(r) => {
                let bodies = r.bodies.iter().map(|&x| f(self, x)).collect();
                let at = r.at.map(|x| f(self, x));
                self.intern(Node::Reduce(Box::new(Reduce { bodies, at, ..*r })), sort)
            }
            Node::Chain(c) => {
                let (acc, a, b) = (f(self, c.acc), f(self, c.a), f(self, c.b));
                self.intern(Node::Chain(Box::new(Chain { acc, a, b, ..*c })), sort)
            }
            Node::Fold(fold) => {
                let trip = f(self, fold.trip);
                let while_cond = fold.while_cond.map(|c| f(self, c));
                let mut slots = Vec::with_capacity(fold.slots.len());
                for s in fold.slots {
                    let (init, body) = (f(self, s.init), f(self, s.body));
                    slots.push(Slot { init, body, ..s });
                }
                self.fold(Fold { trip, while_cond, slots, ..*fold }, sort)
            }
            Node::Carry(v, k, at) => {
                let at = at.into_iter().map(|x| f(self, x)).collect();
                self.intern(Node::Carry(v, k, at), sort)
            }
            Node::Opaque(why, n, args) => {
                let args = args.into_iter().map(|x| f(self, x)).collect();
                self.intern(Node::Opaque(why, n, args), sort)
            }
        }
    }

    fn map2(
        &mut self,
        a: TermId,
        b: TermId,
        mut f: impl FnMut(&mut Arena, TermId) -> TermId,
        make: fn(&mut Arena, TermId, TermId) -> TermId,
    ) -> TermId {
        let (a, b) = (f(self, a), f(self, b));
        make(self, a, b)
    }

    fn map_poly(&mut self, p: &Poly, mut f: impl FnMut(&mut Arena, TermId) -> TermId) -> TermId {
        let mut sum = self.int(0);
        for (m, c) in &p.terms {
            let mut part = self.int(*c);
            for &atom in m {
                let x = f(self, atom);
                part = self.mul(part, x);
            }
            sum = self.add(sum, part);
        }
        sum
    }

    /// A fold; one without iterations is its initial value.
    pub fn fold(&mut self, fold: Fold, sort: super::Sort) -> TermId {
        if fold.while_cond.is_none() && self.range(fold.trip).hi.is_some_and(|hi| hi <= 0) {
            return fold.slots[0].init;
        }
        self.intern(Node::Fold(Box::new(fold)), sort)
    }
}

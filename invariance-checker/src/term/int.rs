//! Integer terms: sums, products, divisions, minima, and constant ranges.
//!
//! Ring operations are exact on mathematical integers. The kernel's integers are 32 or 64 bits wide; that they do not wrap is an
//! assumption that every report prints. Operations that are made to wrap (the multipliers of a random number generator) never come
//! here: the evaluator keeps them uninterpreted.

use super::{Arena, Node, Poly, Range, Sort, TermId};

impl Arena {
    /// An integer constant.
    pub fn int(&mut self, c: i128) -> TermId {
        self.intern(Node::Poly(Poly::constant(c)), Sort::Int)
    }

    /// The value of a constant integer.
    pub fn as_int(&self, t: TermId) -> Option<i128> {
        match self.node(t) {
            Node::Poly(p) => p.as_const(),
            _ => None,
        }
    }

    /// `a + b`.
    pub fn add(&mut self, a: TermId, b: TermId) -> TermId {
        self.add_scaled(a, b, 1)
    }

    /// `a - b`.
    pub fn sub(&mut self, a: TermId, b: TermId) -> TermId {
        self.add_scaled(a, b, -1)
    }

    /// `a + k * b`.
    pub fn add_scaled(&mut self, a: TermId, b: TermId, k: i128) -> TermId {
        match self.poly(a).add_scaled(&self.poly(b), k) {
            Some(p) => self.from_poly(p),
            None => {
                let k = self.int(k);
                self.op("addscaled", vec![a, b, k], Sort::Int)
            }
        }
    }

    /// `a + c` for a constant.
    pub fn add_const(&mut self, a: TermId, c: i128) -> TermId {
        let c = self.int(c);
        self.add(a, c)
    }

    /// `k * a`.
    pub fn scale(&mut self, a: TermId, k: i128) -> TermId {
        let zero = self.int(0);
        self.add_scaled(zero, a, k)
    }

    /// `a * b`.
    pub fn mul(&mut self, a: TermId, b: TermId) -> TermId {
        match self.poly(a).mul(&self.poly(b)) {
            Some(p) => self.from_poly(p),
            None => self.op("mul", vec![a.min(b), a.max(b)], Sort::Int),
        }
    }

    /// Splits `a = b*q + r` by monomials: those that `b` divides go to q.
    fn split_multiple(&mut self, a: TermId, b: TermId) -> Option<(TermId, TermId)> {
        let (pa, pb) = (self.poly(a), self.poly(b));
        let [(bm, bc)] = pb.terms.as_slice() else { return self.split_exact(a, b) };
        let (mut q, mut r) = (Poly::default(), Poly::default());
        for (m, c) in &pa.terms {
            let mut rest = m.clone();
            let divides = bm.iter().all(|x| match rest.iter().position(|y| y == x) {
                Some(i) => {
                    rest.remove(i);
                    true
                }
                None => false,
            });
            if divides && c % bc == 0 {
                q.terms.push((rest, c / bc));
            } else if divides && bm.is_empty() && *bc > 0 && m.is_empty() {
                q.terms.push((vec![], c.div_euclid(*bc)));
                r.terms.push((vec![], c.rem_euclid(*bc)));
            } else {
                r.terms.push((m.clone(), *c));
            }
        }
        q.terms.retain(|(_, c)| *c != 0);
        q.terms.sort_unstable();
        Some((self.from_poly(q), self.from_poly(r)))
    }

    /// The same for a divisor of several terms: only `a = k*b` and `a = k*b + constant part` are seen.
    fn split_exact(&mut self, a: TermId, b: TermId) -> Option<(TermId, TermId)> {
        let (pa, pb) = (self.poly(a), self.poly(b));
        let lead = pb.terms.iter().rev().find(|(m, _)| !m.is_empty())?;
        // The quotient's monomials are those of `a` that contain the leading monomial of `b`.
        let mut q = Poly::default();
        for (m, c) in &pa.terms {
            let mut rest = m.clone();
            let inside = lead.0.iter().all(|x| rest.iter().position(|y| y == x).map(|i| rest.remove(i)).is_some());
            if inside && c % lead.1 == 0 {
                q.terms.push((rest, c / lead.1));
            }
        }
        q.terms.sort_unstable();
        let r = pa.add_scaled(&q.mul(&pb)?, -1)?;
        if r.terms.len() + q.terms.len() > pa.terms.len() {
            return Some((self.int(0), a));
        }
        Some((self.from_poly(q), self.from_poly(r)))
    }

    /// Floor division. `floor((b*q + r) / b) = q + floor(r / b)` for every b that is not zero; division by zero is undefined in the
    /// kernel, so nothing is claimed of it.
    pub fn div(&mut self, a: TermId, b: TermId) -> TermId {
        if self.as_int(b) == Some(0) {
            return self.intern(Node::Div(a, b), Sort::Int);
        }
        if let Some((q, r)) = self.split_multiple(a, b) {
            // A multiple of b divides exactly, whatever the sign of b.
            if self.as_int(r) == Some(0) || self.within(r, b) {
                return q;
            }
            if self.as_int(q) != Some(0) {
                let d = self.div(r, b);
                return self.add(q, d);
            }
        }
        if let (Some(b), &Node::Div(x, y)) = (self.as_int(b), self.node(a))
            && let Some(y) = self.as_int(y)
            && b > 0
            && y > 0
            && let Some(by) = b.checked_mul(y)
        {
            let by = self.int(by);
            return self.div(x, by);
        }
        self.reduce_fraction(a, b)
    }

    /// `floor(g*a' + r / g*b') = floor(a' / b')` if `0 <= r < g` and every other coefficient is a multiple of g.
    fn reduce_fraction(&mut self, a: TermId, b: TermId) -> TermId {
        if let Some(c) = self.as_int(b)
            && c > 1
        {
            let p = self.poly(a);
            let g = p.terms.iter().filter(|(m, _)| !m.is_empty()).fold(c, |g, (_, k)| gcd(g, k.abs()));
            if g > 1 {
                let mut q = Poly::default();
                for (m, k) in &p.terms {
                    q.terms.push((m.clone(), k.div_euclid(g)));
                }
                q.terms.retain(|(_, k)| *k != 0);
                let (a, b) = (self.from_poly(q), self.int(c / g));
                return self.div(a, b);
            }
        }
        self.intern(Node::Div(a, b), Sort::Int)
    }

    /// `a mod b` for floor division.
    pub fn modulo(&mut self, a: TermId, b: TermId) -> TermId {
        if self.as_int(b) == Some(0) {
            return self.intern(Node::Mod(a, b), Sort::Int);
        }
        let mut a = a;
        if let Some((_, r)) = self.split_multiple(a, b) {
            if self.as_int(r) == Some(0) || self.within(r, b) {
                return r;
            }
            a = r;
        }
        if let (Some(c), &Node::Mod(x, y)) = (self.as_int(b), self.node(a))
            && let Some(y) = self.as_int(y)
            && c > 0
            && y > 0
            && y % c == 0
        {
            return self.modulo(x, b);
        }
        self.intern(Node::Mod(a, b), Sort::Int)
    }

    /// `0 <= r < b` by constant ranges.
    fn within(&mut self, r: TermId, b: TermId) -> bool {
        let room = self.sub(b, r);
        self.range(r).lo.is_some_and(|lo| lo >= 0) && self.range(room).lo.is_some_and(|lo| lo >= 1)
    }

    /// `arith.divsi`: floor division once neither side is negative, an atom of its own otherwise.
    pub fn tdiv(&mut self, a: TermId, b: TermId) -> TermId {
        let zero_up = |r: Range, least| r.lo.is_some_and(|lo| lo >= least);
        if self.as_int(b) == Some(1) {
            return a;
        }
        if zero_up(self.range(a), 0) && zero_up(self.range(b), 1) {
            return self.div(a, b);
        }
        if let (Some(x), Some(y)) = (self.as_int(a), self.as_int(b))
            && y != 0
        {
            return self.int(x / y);
        }
        self.intern(Node::TDiv(a, b), Sort::Int)
    }

    /// `arith.remsi`, likewise.
    pub fn trem(&mut self, a: TermId, b: TermId) -> TermId {
        let zero_up = |r: Range, least| r.lo.is_some_and(|lo| lo >= least);
        if zero_up(self.range(a), 0) && zero_up(self.range(b), 1) {
            return self.modulo(a, b);
        }
        if let (Some(x), Some(y)) = (self.as_int(a), self.as_int(b))
            && y != 0
        {
            return self.int(x % y);
        }
        self.intern(Node::TRem(a, b), Sort::Int)
    }

    /// `ceil(a / b)` for positive b.
    pub fn ceil_div(&mut self, a: TermId, b: TermId) -> TermId {
        let up = self.add(a, b);
        let up = self.add_const(up, -1);
        self.div(up, b)
    }

    /// Integer minimum.
    pub fn min(&mut self, a: TermId, b: TermId) -> TermId {
        let d = self.sub(b, a);
        let r = self.range(d);
        match (r.lo, r.hi) {
            (Some(lo), _) if lo >= 0 => a,
            (_, Some(hi)) if hi <= 0 => b,
            _ => self.intern(Node::Min(a.min(b), a.max(b)), Sort::Int),
        }
    }

    /// Integer maximum. Truncating and floor division differ only where both are not positive, which a maximum with 0 does not see.
    pub fn max(&mut self, a: TermId, b: TermId) -> TermId {
        for (least, x) in [(a, b), (b, a)] {
            if let (Some(0..), &Node::TDiv(n, k)) = (self.as_int(least), self.node(x))
                && self.as_int(k).is_some_and(|k| k > 0)
            {
                let floor = self.div(n, k);
                return self.max(least, floor);
            }
        }
        let d = self.sub(b, a);
        let r = self.range(d);
        match (r.lo, r.hi) {
            (Some(lo), _) if lo >= 0 => b,
            (_, Some(hi)) if hi <= 0 => a,
            _ => self.intern(Node::Max(a.min(b), a.max(b)), Sort::Int),
        }
    }

    /// Constant bounds of an integer term, from variable ranges alone.
    pub fn range(&mut self, t: TermId) -> Range {
        if let Some(&r) = self.ranges.get(&t) {
            return r;
        }
        let r = self.compute_range(t);
        self.ranges.insert(t, r);
        r
    }

    /// Takes these terms as at least 1 from now on.
    pub fn assume_positive(&mut self, terms: impl IntoIterator<Item = TermId>) {
        // What was computed without it is right, but says less.
        self.ranges.clear();
        self.definitions.clear();
        self.ranges.extend(terms.into_iter().map(|t| (t, Range { lo: Some(1), hi: None })));
    }

    /// Constant bounds of a polynomial that need not be a term.
    pub fn poly_range(&mut self, p: &Poly) -> Range {
        let mut sum = Range { lo: Some(0), hi: Some(0) };
        for (m, c) in &p.terms {
            let part = self.mono_range(m, *c);
            sum = Range {
                lo: sum.lo.zip(part.lo).and_then(|(a, b)| a.checked_add(b)),
                hi: sum.hi.zip(part.hi).and_then(|(a, b)| a.checked_add(b)),
            };
            if sum.lo.is_none() && sum.hi.is_none() {
                return sum;
            }
        }
        sum
    }

    /// Constant bounds of a product of atoms times `c`.
    pub fn mono_range(&mut self, m: &[TermId], c: i128) -> Range {
        let mut part = Range { lo: Some(1), hi: Some(1) };
        let mut i = 0;
        while i < m.len() {
            let same = m[i..].iter().take_while(|x| **x == m[i]).count();
            let mut r = self.range(m[i]);
            if same % 2 == 0 && r.lo.is_none() && r.hi.is_none() {
                r = Range { lo: Some(0), hi: None };
                part = mul_range(part, r);
            } else {
                (0..same).for_each(|_| part = mul_range(part, r));
            }
            i += same;
        }
        mul_range(part, Range { lo: Some(c), hi: Some(c) })
    }

    fn compute_range(&mut self, t: TermId) -> Range {
        match self.node(t).clone() {
            Node::Poly(p) => self.poly_range(&p),
            Node::Var(v) => self.vars[v.0 as usize].range,
            Node::NumPrograms(_) => Range { lo: Some(1), hi: None },
            Node::Div(a, b) => {
                let (ra, rb) = (self.range(a), self.range(b));
                match (self.as_int(b), rb.lo) {
                    (Some(b), _) if b > 0 => {
                        Range { lo: ra.lo.map(|x| x.div_euclid(b)), hi: ra.hi.map(|x| x.div_euclid(b)) }
                    }
                    (_, Some(lo)) if lo >= 1 && ra.lo.is_some_and(|x| x >= 0) => Range { lo: Some(0), hi: ra.hi },
                    _ => Range::default(),
                }
            }
            Node::Mod(_, b) => match self.range(b) {
                Range { lo: Some(lo), hi } if lo >= 1 => Range { lo: Some(0), hi: hi.map(|x| x - 1) },
                _ => Range::default(),
            },
            Node::TDiv(a, b) => match (self.range(a), self.as_int(b)) {
                (r, Some(b)) if b > 0 => Range { lo: r.lo.map(|x| x / b), hi: r.hi.map(|x| x / b) },
                _ => Range::default(),
            },
            Node::TRem(a, b) => match (self.range(a), self.as_int(b)) {
                (r, Some(b)) if b != 0 => {
                    let most = b.abs() - 1;
                    Range {
                        lo: Some(if r.lo.is_some_and(|x| x >= 0) { 0 } else { -most }),
                        hi: Some(if r.hi.is_some_and(|x| x <= 0) { 0 } else { most }),
                    }
                }
                // The sign of the dividend and no larger, whatever the divisor.
                (r, None) if r.lo.is_some_and(|lo| lo >= 0) => Range { lo: Some(0), hi: r.hi },
                _ => Range::default(),
            },
            Node::Min(a, b) => {
                let (a, b) = (self.range(a), self.range(b));
                Range { lo: a.lo.zip(b.lo).map(|(x, y)| x.min(y)), hi: pick(a.hi, b.hi, i128::min) }
            }
            Node::Max(a, b) => {
                let (a, b) = (self.range(a), self.range(b));
                Range { lo: pick(a.lo, b.lo, i128::max), hi: a.hi.zip(b.hi).map(|(x, y)| x.max(y)) }
            }
            Node::Ite(_, a, b) if self.sort(t) == Sort::Int => {
                let (a, b) = (self.range(a), self.range(b));
                Range { lo: a.lo.zip(b.lo).map(|(x, y)| x.min(y)), hi: a.hi.zip(b.hi).map(|(x, y)| x.max(y)) }
            }
            _ => Range::default(),
        }
    }
}

fn pick(a: Option<i128>, b: Option<i128>, f: fn(i128, i128) -> i128) -> Option<i128> {
    match (a, b) {
        (Some(a), Some(b)) => Some(f(a, b)),
        (x, y) => x.or(y),
    }
}

fn mul_range(a: Range, b: Range) -> Range {
    if let (Some(al), Some(ah), Some(bl), Some(bh)) = (a.lo, a.hi, b.lo, b.hi) {
        let all = [al.checked_mul(bl), al.checked_mul(bh), ah.checked_mul(bl), ah.checked_mul(bh)];
        let [Some(p), Some(q), Some(r), Some(s)] = all else { return Range::default() };
        return Range { lo: Some(p.min(q).min(r).min(s)), hi: Some(p.max(q).max(r).max(s)) };
    }
    // With an infinite end only the sign-definite cases are worth having.
    let (a, b) = if a.lo.zip(a.hi).is_some_and(|(l, h)| l == h) { (b, a) } else { (a, b) };
    if let (Some(l), Some(h)) = (b.lo, b.hi)
        && l == h
    {
        let scale = |x: Option<i128>| x.and_then(|x| x.checked_mul(l));
        return match l.signum() {
            0 => Range { lo: Some(0), hi: Some(0) },
            1 => Range { lo: scale(a.lo), hi: scale(a.hi) },
            _ => Range { lo: scale(a.hi), hi: scale(a.lo) },
        };
    }
    match (a.lo, b.lo) {
        (Some(x), Some(y)) if x >= 0 && y >= 0 => {
            Range { lo: x.checked_mul(y), hi: a.hi.zip(b.hi).and_then(|(x, y)| x.checked_mul(y)) }
        }
        _ => Range::default(),
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::{VarKind, tests::arena};
    use super::*;

    #[test]
    fn digits_cancel() {
        let mut t = arena();
        let p = t.var(VarKind::Pid(0), "p", Range { lo: Some(0), hi: None });
        let i = t.var(VarKind::Index(0, 0), "i", Range { lo: Some(0), hi: Some(63) });
        let (p, i) = (t.var_term(p), t.var_term(i));
        let p64 = t.scale(p, 64);
        let flat = t.add(p64, i);
        let c64 = t.int(64);
        assert_eq!(t.div(flat, c64), p);
        assert_eq!(t.modulo(flat, c64), i);
        let c16 = t.int(16);
        let (q, r) = (t.div(flat, c16), t.modulo(flat, c16));
        let q16 = t.scale(q, 16);
        assert_eq!(t.add(q16, r), flat);
    }

    #[test]
    fn truncating_division_is_not_floor_division_unless_the_dividend_is_not_negative() {
        let mut t = arena();
        let n = t.intern(Node::Arg(0), Sort::Int);
        let c = t.int(8);
        assert!(matches!(t.tdiv(n, c), d if matches!(t.node(d), Node::TDiv(..))));
        let (minus, four) = (t.int(-7), t.int(4));
        let (d, r) = (t.tdiv(minus, four), t.trem(minus, four));
        assert_eq!((t.as_int(d), t.as_int(r)), (Some(-1), Some(-3)));
        let (d, r) = (t.div(minus, four), t.modulo(minus, four));
        assert_eq!((t.as_int(d), t.as_int(r)), (Some(-2), Some(1)));
    }

    proptest::proptest! {
        #[test]
        fn fractions_reduce_to_the_same_value(x in -50i128..50, k in -6i128..6, c in -40i128..40, d in 1i128..24) {
            let mut t = arena();
            let v = t.var(VarKind::Bound, "v", Range::default());
            let v = t.var_term(v);
            let (dc, xc) = (t.int(d), t.int(x));
            let a = t.scale(v, k);
            let a = t.add_const(a, c);
            let (q, r) = (t.div(a, dc), t.modulo(a, dc));
            let (q, r) = (t.subst_one(q, v, xc), t.subst_one(r, v, xc));
            proptest::prop_assert_eq!(t.as_int(q), Some((k * x + c).div_euclid(d)));
            proptest::prop_assert_eq!(t.as_int(r), Some((k * x + c).rem_euclid(d)));
        }
    }
}

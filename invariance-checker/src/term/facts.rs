//! What is known at a place: inequalities, equations and truth values, and a small prover over them.
//!
//! The prover looks for a sum of facts with positive factors that leaves a polynomial whose constant range is not negative. It is
//! incomplete on purpose (depth-limited, linear); what it says is right, and a "no" means only that nothing was found.

use super::Set as HashSet;
use super::{Arena, Map, Node, Poly, Range, TermId};
use std::cmp::Ordering;
use std::rc::Rc;

/// Facts in force at one place of a term.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    ge: Vec<Poly>,
    truths: HashSet<TermId>,
    scope: u64,
    /// Models in which a fact does not hold.
    broken: u32,
}

const DEPTH: u32 = 5;

/// Facts beyond this many are not taken note of: what is known is copied at every branch, and to know less proves less.
const FACTS_MAX: usize = 1000;

impl Facts {
    /// Identifies this set of facts within its arena (for memo tables); 0 for none.
    pub fn scope(&self) -> u64 {
        self.scope
    }

    /// The inequalities `p >= 0`.
    pub fn inequalities(&self) -> &[Poly] {
        &self.ge
    }

    /// The truth values that hold, in a fixed order.
    pub fn truths(&self) -> Vec<TermId> {
        let mut out: Vec<TermId> = self.truths.iter().copied().collect();
        out.sort_unstable();
        out
    }

    /// These facts and `cond`.
    pub fn with(&self, arena: &mut Arena, cond: TermId) -> Facts {
        let mut new = self.clone();
        new.assume(arena, cond);
        new
    }

    /// Adds a fact.
    pub fn assume(&mut self, arena: &mut Arena, cond: TermId) {
        if arena.as_bool(cond) == Some(true) || self.truths.contains(&cond) || self.truths.len() >= FACTS_MAX {
            return;
        }
        self.scope = arena.scope_with(self.scope, cond);
        for c in arena.conjuncts(cond) {
            if !self.truths.insert(c) {
                continue;
            }
            match arena.node(c) {
                Node::Ge0(p) => {
                    let p = arena.poly(*p);
                    for d in definitions(arena, &p, true).iter().flat_map(|list| list.iter()) {
                        if !self.ge.contains(d) {
                            self.push(arena, d.clone());
                        }
                    }
                    self.push(arena, p);
                }
                Node::Eq0(p) => {
                    let p = arena.poly(*p);
                    if let Some(n) = Poly::default().add_scaled(&p, -1) {
                        self.push(arena, n);
                    }
                    self.push(arena, p);
                }
                _ => {}
            }
        }
    }

    fn push(&mut self, arena: &mut Arena, p: Poly) {
        self.broken |= arena.models_without(&p, !self.broken);
        self.ge.push(p);
    }

    /// True if `p` is negative somewhere where all inequalities hold.
    pub(super) fn refutes(&self, arena: &mut Arena, p: &Poly) -> bool {
        arena.refuted(p, !self.broken)
    }

    /// Whether `cond` is known to hold or not to hold.
    pub fn decide(&self, arena: &mut Arena, cond: TermId) -> Option<bool> {
        if let Some(b) = arena.as_bool(cond) {
            return Some(b);
        }
        if self.truths.contains(&cond) {
            return Some(true);
        }
        let not = arena.not(cond);
        if self.truths.contains(&not) {
            return Some(false);
        }
        match arena.node(cond).clone() {
            Node::Ge0(p) => {
                if self.proves(arena, p) {
                    return Some(true);
                }
                let neg = arena.scale(p, -1);
                let neg = arena.add_const(neg, -1);
                self.proves(arena, neg).then_some(false)
            }
            Node::Eq0(p) => {
                let neg = arena.scale(p, -1);
                let (up, down) = (arena.add_const(p, -1), arena.add_const(neg, -1));
                if self.proves(arena, up) || self.proves(arena, down) {
                    return Some(false);
                }
                (self.proves(arena, p) && self.proves(arena, neg)).then_some(true)
            }
            Node::And(ts) => {
                let all: Vec<_> = ts.iter().map(|&t| self.decide(arena, t)).collect();
                if all.contains(&Some(false)) {
                    return Some(false);
                }
                all.iter().all(|x| *x == Some(true)).then_some(true)
            }
            Node::Or(ts) => {
                let all: Vec<_> = ts.iter().map(|&t| self.decide(arena, t)).collect();
                if all.contains(&Some(true)) {
                    return Some(true);
                }
                all.iter().all(|x| *x == Some(false)).then_some(false)
            }
            Node::Not(x) => self.decide(arena, x).map(|b| !b),
            _ => None,
        }
    }

    /// True if `t >= 0` follows.
    pub fn proves(&self, arena: &mut Arena, t: TermId) -> bool {
        if arena.range(t).lo.is_some_and(|lo| lo >= 0) {
            return true;
        }
        if let Some(known) = arena.known_proof(self.scope, t) {
            return known;
        }
        let p = arena.poly(t);
        if self.refutes(arena, &p) {
            arena.note_proof(self.scope, t, false);
            return false;
        }
        let mut found = self.search(arena, p.clone(), DEPTH, 150);
        if !found && p.terms.iter().any(|(m, c)| *c > 0 && needs_signs(arena, m)) {
            // Products of terms that are not negative may be dropped, and quotients.
            let rest = p.terms.iter().filter(|(m, c)| !(*c > 0 && self.product_not_negative(arena, m))).cloned();
            let rest = Poly { terms: rest.collect() };
            if rest.terms.len() < p.terms.len() {
                found = self.search(arena, rest, DEPTH, 150);
            }
        }
        if !found {
            found = self.by_cases(arena, &p, Facts::proves);
        }
        arena.note_proof(self.scope, t, found);
        found
    }

    /// As [`Facts::proves`], and by elimination if that does not find it.
    pub fn proves_hard(&self, arena: &mut Arena, t: TermId) -> bool {
        if self.proves(arena, t) {
            return true;
        }
        if let Some(&known) = arena.hard_proofs.get(&(self.scope, t)) {
            return known;
        }
        if arena.stopped_now() {
            return false;
        }
        let p = arena.poly(t);
        // A solver knows more than the inequalities.
        let hopeless = arena.solver.is_none() && self.refutes(arena, &p);
        let mut found = !hopeless && self.eliminated(arena, &p);
        if !found && !hopeless {
            found = self.by_cases(arena, &p, Facts::proves_hard) || self.by_sign(arena, &p);
        }
        if !found && let Some(mut solver) = arena.solver.take() {
            found = solver.implies(arena, self, t);
            arena.solver = Some(solver);
        }
        arena.hard_proofs.insert((self.scope, t), found);
        found
    }

    /// These facts, and whether each comparison in `t` that contains `v` holds, as far as elimination finds it out.
    pub fn sharpened(&self, arena: &mut Arena, t: TermId, v: super::VarId) -> Facts {
        let mut masks = Vec::new();
        arena.walk(t, |c, n| {
            if let Node::Ge0(p) = n
                && arena.contains_var(c, v)
            {
                masks.push((c, *p));
            }
        });
        let mut out = self.clone();
        for (c, p) in masks {
            if self.decide(arena, c).is_some() {
                continue;
            }
            let negative = arena.scale(p, -1);
            let negative = arena.add_const(negative, -1);
            if self.proves_hard(arena, negative) {
                let not = arena.not(c);
                out.assume(arena, not);
            } else if self.proves_hard(arena, p) {
                out.assume(arena, c);
            }
        }
        out
    }

    fn product_not_negative(&self, arena: &mut Arena, m: &[TermId]) -> bool {
        needs_signs(arena, m) && m.iter().all(|&t| self.atom_not_negative(arena, t))
    }

    fn atom_not_negative(&self, arena: &mut Arena, t: TermId) -> bool {
        // A floor is not negative if its dividend is not and its divisor is positive.
        match arena.node(t).clone() {
            Node::Div(a, b) if arena.range(b).lo.is_some_and(|lo| lo >= 1) => self.proves(arena, a),
            _ => {
                let p = arena.poly(t);
                self.search(arena, p, 4, 80)
            }
        }
    }

    /// A minimum is one of its operands: what holds for both holds for it (likewise a maximum, where it is subtracted).
    fn by_cases(&self, arena: &mut Arena, p: &Poly, proves: fn(&Facts, &mut Arena, TermId) -> bool) -> bool {
        let chosen = p.terms.iter().find_map(|(m, c)| match (m.as_slice(), *c) {
            ([t], 1..) => match *arena.node(*t) {
                Node::Min(a, b) => Some((*t, a, b)),
                _ => None,
            },
            ([t], ..=-1) => match *arena.node(*t) {
                Node::Max(a, b) => Some((*t, a, b)),
                _ => None,
            },
            _ => None,
        });
        let Some((t, a, b)) = chosen else { return false };
        let (k, whole) = (p.coeff(&[t]), arena.from_poly(p.clone()));
        let without = arena.add_scaled(whole, t, -k);
        [a, b].into_iter().all(|side| {
            let one = arena.add_scaled(without, side, k);
            proves(self, arena, one)
        })
    }

    fn eliminated(&self, arena: &mut Arena, p: &Poly) -> bool {
        super::eliminate::implied(arena, p, &self.ge, |a, p| {
            definitions(a, p, false).iter().flat_map(|list| list.to_vec()).collect()
        })
    }

    /// A product `x*y` with `0 <= x <= X` is not negative where y is not, and at least `X*y` where y is negative.
    fn by_sign(&self, arena: &mut Arena, p: &Poly) -> bool {
        for (m, k) in p.terms.iter().filter(|(_, k)| *k > 0) {
            let &[a, b] = m.as_slice() else { continue };
            for (x, y) in [(a, b), (b, a)] {
                let Some(most) = self.most(arena, x) else { continue };
                if !self.proves(arena, x) {
                    continue;
                }
                let (whole, product) = (arena.from_poly(p.clone()), arena.mul(x, y));
                let rest = arena.add_scaled(whole, product, -k);
                let up = arena.ge0(y);
                let down = arena.not(up);
                let least = arena.add_scaled(product, y, -most);
                let least = arena.ge0(least);
                let negative = self.with(arena, down).with(arena, least);
                if self.with(arena, up).proves_hard(arena, rest) && negative.eliminated(arena, p) {
                    return true;
                }
            }
        }
        false
    }

    /// A constant that an atom is known not to exceed.
    fn most(&self, arena: &mut Arena, x: TermId) -> Option<i128> {
        let by_fact = |f: &Poly| match f.terms.as_slice() {
            [(c, most), (m, -1)] if c.is_empty() && m.as_slice() == [x] => Some(*most),
            _ => None,
        };
        arena.range(x).hi.or_else(|| self.ge.iter().find_map(by_fact))
    }

    /// Looks for a proof of `p >= 0` in at most so many steps.
    pub(super) fn search(&self, arena: &mut Arena, p: Poly, depth: u32, steps: u32) -> bool {
        let facts = self.ge.iter().map(|f| Ranged::of(arena, f)).collect();
        Search { facts, steps, seen: Map::default() }.run(arena, p, 0, depth)
    }
}

/// A polynomial with the ranges of its monomials.
struct Ranged<'f> {
    poly: &'f Poly,
    ranges: Vec<Range>,
    /// A remainder is in it, which may join with a quotient.
    digits: bool,
}

impl<'f> Ranged<'f> {
    fn of(arena: &mut Arena, poly: &'f Poly) -> Ranged<'f> {
        let ranges = poly.terms.iter().map(|(m, _)| arena.mono_range(m, 1)).collect();
        let digits = poly.terms.iter().any(|(m, _)| m.iter().any(|t| matches!(arena.node(*t), Node::Mod(..))));
        Ranged { poly, ranges, digits }
    }

    /// The least of `k*self - j*f` by ranges; `None` if there is none, or on overflow.
    fn least(&self, k: i128, f: &Ranged<'_>, j: i128) -> Option<i128> {
        let (p, q) = (&self.poly.terms, &f.poly.terms);
        let (mut a, mut b, mut sum) = (0, 0, 0i128);
        while a < p.len() || b < q.len() {
            let order = match (p.get(a), q.get(b)) {
                (Some(x), Some(y)) => x.0.cmp(&y.0),
                (Some(_), None) => Ordering::Less,
                _ => Ordering::Greater,
            };
            let mut c = 0i128;
            let range = if order == Ordering::Greater { f.ranges[b] } else { self.ranges[a] };
            if order != Ordering::Greater {
                c = p[a].1.checked_mul(k)?;
                a += 1;
            }
            if order != Ordering::Less {
                c = c.checked_sub(q[b].1.checked_mul(j)?)?;
                b += 1;
            }
            let least = match c.signum() {
                0 => 0,
                1 => range.lo?.checked_mul(c)?,
                _ => range.hi?.checked_mul(c)?,
            };
            sum = sum.checked_add(least)?;
        }
        Some(sum)
    }
}

/// One search for a proof.
struct Search<'f> {
    facts: Vec<Ranged<'f>>,
    /// Goals that may still be taken apart.
    steps: u32,
    /// Goals that were tried, each with the most room and the most depth it was tried with: facts that are added in another order lead to
    /// the same goals.
    seen: Map<Poly, (i128, u32)>,
}

impl Search<'_> {
    /// Looks for a proof of `p >= -slack`. Scaling the goal `g >= 0` by k leaves room: `k*g >= -(k - 1)` is enough for an integer g.
    fn run(&mut self, arena: &mut Arena, p: Poly, slack: i128, depth: u32) -> bool {
        let p = arena.join_digits(p);
        if arena.poly_range(&p).lo.is_some_and(|lo| lo >= -slack) {
            return true;
        }
        if depth == 0 || self.steps == 0 || arena.stopped() {
            return false;
        }
        match self.seen.get_mut(&p) {
            Some((room, deep)) if *room >= slack && *deep >= depth => return false,
            Some(known) => *known = (slack, depth),
            None => {
                self.seen.insert(p.clone(), (slack, depth));
            }
        }
        self.steps -= 1;
        let goal = Ranged::of(arena, &p);
        let least = |r: &Range, c: i128| if c > 0 { r.lo } else { r.hi }.and_then(|x| x.checked_mul(c));
        let each = p.terms.iter().zip(&goal.ranges);
        // Which monomials may be negative.
        let low: Vec<bool> = each.map(|((m, c), r)| !m.is_empty() && least(r, *c).is_none_or(|lo| lo < 0)).collect();
        let definitions = definitions(arena, &p, false);
        let own: Vec<Ranged<'_>> =
            definitions.iter().flat_map(|list| list.iter()).map(|f| Ranged::of(arena, f)).collect();
        for i in 0..own.len() + self.facts.len() {
            let count = own.get(i).unwrap_or_else(|| &self.facts[i - own.len()]).poly.terms.len();
            for n in 0..count {
                let f = own.get(i).unwrap_or_else(|| &self.facts[i - own.len()]);
                // Every way in which the fact cancels a monomial of p that may be negative.
                let (m, cf) = &f.poly.terms[n];
                let Ok(at) = p.terms.binary_search_by(|(x, _)| x.cmp(m)) else { continue };
                let cp = p.terms[at].1;
                if !low[at] || (cp > 0) != (*cf > 0) {
                    continue;
                }
                let Some((k, j, room)) = factors(slack, cp, *cf) else { continue };
                if !goal.digits && !f.digits {
                    if goal.least(k, f, j).is_some_and(|lo| lo >= -room) {
                        return true;
                    }
                    if depth == 1 || self.steps == 0 {
                        continue;
                    }
                }
                let Some((q, slack)) = without(&p, f.poly, (k, j, room)) else { continue };
                if self.run(arena, q, slack, depth - 1) {
                    return true;
                }
            }
        }
        false
    }
}

/// By what a goal and a fact are multiplied so that a monomial with the coefficients `cp` in the goal and `cf` in the fact cancels, and what room
/// there is then; `None` on overflow.
fn factors(slack: i128, cp: i128, cf: i128) -> Option<(i128, i128, i128)> {
    let common = gcd(cf.abs(), cp.abs());
    let (k, j) = (cf.abs() / common, cp.abs() / common);
    Some((k, j, (slack + 1).checked_mul(k)? - 1))
}

/// The goal `k*p - j*f >= -room`, its common factor divided out; `None` on overflow.
fn without(p: &Poly, f: &Poly, (k, j, room): (i128, i128, i128)) -> Option<(Poly, i128)> {
    let mut q = if k == 1 { p.add_scaled(f, -j)? } else { Poly::default().add_scaled(p, k)?.add_scaled(f, -j)? };
    let g = q.terms.iter().fold(0i128, |g, (_, c)| gcd(g, c.abs())).max(1);
    if g > 1 {
        q.terms.iter_mut().for_each(|(_, c)| *c /= g);
    }
    Some((q, room / g))
}

/// A product, or a quotient by something that is not a constant: no fact about it is linear.
fn needs_signs(arena: &Arena, m: &[TermId]) -> bool {
    m.len() > 1 || matches!(m, [t] if matches!(*arena.node(*t), Node::Div(..)))
}

/// What the meaning of the atoms of `p` says about them.
fn definitions(arena: &mut Arena, p: &Poly, minima_only: bool) -> Vec<Rc<[Poly]>> {
    let mut atoms: Vec<TermId> = p.terms.iter().flat_map(|(m, _)| m.iter().copied()).collect();
    atoms.sort_unstable();
    atoms.dedup();
    if minima_only {
        atoms.retain(|&t| matches!(arena.node(t), Node::Min(..) | Node::Max(..) | Node::Div(..)));
    }
    atoms.into_iter().map(|t| definition(arena, t)).collect()
}

/// What the meaning of one atom says about it; made once.
fn definition(arena: &mut Arena, t: TermId) -> Rc<[Poly]> {
    if let Some(known) = arena.definitions.get(&t) {
        return Rc::clone(known);
    }
    let mut out = Vec::new();
    match arena.node(t).clone() {
        Node::Div(a, b) if arena.range(b).lo.is_some_and(|lo| lo >= 1) => {
            // b*q <= a <= b*q + b - 1.
            let bq = arena.mul(b, t);
            let low = arena.sub(a, bq);
            let high = arena.sub(b, low);
            let high = arena.add_const(high, -1);
            out.extend([arena.poly(low), arena.poly(high)]);
        }
        Node::Mod(_, b) if arena.range(b).lo.is_some_and(|lo| lo >= 1) => {
            let high = arena.sub(b, t);
            let high = arena.add_const(high, -1);
            out.push(arena.poly(high));
        }
        Node::TDiv(a, b) if arena.as_int(b).is_some_and(|b| b > 0) => {
            // a <= b*q + b - 1 and a >= b*q - b + 1 hold for both signs.
            let bq = arena.mul(b, t);
            let d = arena.sub(a, bq);
            let (up, down) = (arena.sub(b, d), arena.add(b, d));
            for x in [up, down] {
                let x = arena.add_const(x, -1);
                out.push(arena.poly(x));
            }
        }
        Node::Min(a, b) => {
            for x in [a, b] {
                let d = arena.sub(x, t);
                out.push(arena.poly(d));
            }
        }
        Node::Max(a, b) => {
            for x in [a, b] {
                let d = arena.sub(t, x);
                out.push(arena.poly(d));
            }
        }
        _ => {}
    }
    let out: Rc<[Poly]> = out.into();
    arena.definitions.insert(t, Rc::clone(&out));
    out
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Arena {
    /// The number of the facts `scope` with `cond` added: the same for the same history.
    fn scope_with(&mut self, scope: u64, cond: TermId) -> u64 {
        let next = self.scopes.len() as u64 + 1;
        *self.scopes.entry((scope, cond)).or_insert(next)
    }

    fn known_proof(&self, scope: u64, t: TermId) -> Option<bool> {
        self.proofs.get(&(scope, t)).copied()
    }

    fn note_proof(&mut self, scope: u64, t: TermId, found: bool) {
        self.proofs.insert((scope, t), found);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Range, Sort, VarKind, tests::arena};
    use super::*;

    #[test]
    fn a_bound_through_a_division_is_found() {
        let mut t = arena();
        let n = t.intern(Node::Arg(0), Sort::Int);
        let i = t.var(VarKind::Bound, "i", Range { lo: Some(0), hi: None });
        let i = t.var_term(i);
        let mut facts = Facts::default();
        let c = t.lt(i, n);
        facts.assume(&mut t, c);
        // i < n, so i/16 <= (n-1)/16.
        let c16 = t.int(16);
        let q = t.div(i, c16);
        let n1 = t.add_const(n, -1);
        let last = t.div(n1, c16);
        let d = t.sub(last, q);
        assert!(facts.proves(&mut t, d));
        let wrong = t.add_const(d, -1);
        assert!(!facts.proves(&mut t, wrong));
    }

    #[test]
    fn a_split_that_starts_below_the_end_starts_at_zero_or_later() {
        // s*T with 0 <= s <= 15 and T = tdiv(n + 511, 512): where 32*s*T < n, it is not negative, whatever the sign of n.
        let mut t = arena();
        let n = t.intern(Node::Arg(0), Sort::Int);
        let s = t.var(VarKind::Coord(0), "s", Range::default());
        let s = t.var_term(s);
        let (up, c512, c15) = (t.add_const(n, 511), t.int(512), t.int(15));
        let tiles = t.tdiv(up, c512);
        let start = t.mul(s, tiles);
        let end = t.scale(start, 32);
        let (first, last, below) = (t.ge0(s), t.ge(c15, s), t.lt(end, n));
        let mut facts = Facts::default();
        for f in [first, below] {
            facts.assume(&mut t, f);
        }
        // From a split whose number has no bound the start may be negative: n = -1000, s = 1000.
        assert!(!facts.proves_hard(&mut t, start));
        facts.assume(&mut t, last);
        assert!(facts.proves_hard(&mut t, start));
        // It may be zero.
        let wrong = t.add_const(start, -1);
        assert!(!facts.proves_hard(&mut t, wrong));
    }

    #[test]
    fn facts_about_one_lane_say_nothing_about_another() {
        let mut t = arena();
        let n = t.intern(Node::Arg(0), Sort::Int);
        let (i, j) = (t.var(VarKind::Index(0, 0), "i", Range::default()), t.var(VarKind::Bound, "j", Range::default()));
        let (i, j) = (t.var_term(i), t.var_term(j));
        let mut facts = Facts::default();
        let known = t.lt(i, n);
        facts.assume(&mut t, known);
        let other = t.lt(j, n);
        assert_eq!(facts.decide(&mut t, known), Some(true));
        assert_eq!(facts.decide(&mut t, other), None);
    }
}

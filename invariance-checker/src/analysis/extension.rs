//! Values that do not hang on where a tile or a block ends: iterations that change nothing may be left out, and lanes whose products are
//! zero may be masked.
//!
//! A mask `B - L*n - lane >= 0` is false in every lane once `n > B / L`. If the body is then the identity on every carried value, a fold
//! over any number of iterations from `floor(B / L) + 1` on is the fold over just those. Loops may nest: the bound of an inner loop may name
//! the iteration of the outer one, and a bound that is a minimum is compared part by part. Each step is exact in IEEE arithmetic, or its
//! side condition is printed.

use super::quiet::Quiet;
use super::site::Solved;
use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Chain, Facts, Fold, Load, Node, Poly, Slot, Sort, TermId, VarId, VarKind};
use std::collections::BTreeSet;

/// Rewrites the folds and chains of the value that hang on instance variables, on an argument of `batch`, or on a number of the whole batch.
/// False if nothing changed.
pub fn apply(arena: &mut Arena, solved: &mut Solved<'_>, batch: &BTreeSet<TermId>) -> bool {
    let mut any = false;
    let extrema = extrema(arena, solved.value, &solved.facts);
    for fact in extrema {
        solved.facts.assume(arena, fact);
    }
    for _ in 0..3 {
        let mut extend = Extend {
            arena,
            batch,
            conditions: BTreeSet::new(),
            folds: vec![],
            memo: HashMap::default(),
            hangs: HashMap::default(),
        };
        let value = extend.rewrite(solved.value, &solved.facts.clone());
        let conditions = extend.conditions;
        let value = arena.simplify(value, &solved.facts);
        if value == solved.value {
            break;
        }
        any = true;
        solved.value = value;
        solved.conditions.extend(conditions);
    }
    solved.left = super::site::instances(arena, solved.value);
    any
}

/// One pass over a value.
pub(super) struct Extend<'a> {
    pub(super) arena: &'a mut Arena,
    batch: &'a BTreeSet<TermId>,
    conditions: BTreeSet<Condition>,
    /// The loops around, innermost last.
    pub(super) folds: Vec<Fold>,
    memo: HashMap<(u64, TermId), TermId>,
    hangs: HashMap<TermId, bool>,
}

impl Extend<'_> {
    /// True if the term contains what a row's value must not hang on.
    pub(super) fn hangs(&mut self, t: TermId) -> bool {
        if self.arena.has_instance(t) {
            return true;
        }
        if let Some(&known) = self.hangs.get(&t) {
            return known;
        }
        let mut found = false;
        self.arena.walk(t, |t, n| {
            found |= match n {
                Node::NumPrograms(_) => true,
                Node::Arg(_) => self.batch.contains(&t),
                Node::Load(l) => self.arena.sort(t) == Sort::Int && self.arena.free_vars(l.offset).is_empty(),
                _ => false,
            };
        });
        self.hangs.insert(t, found);
        found
    }

    fn rewrite(&mut self, t: TermId, facts: &Facts) -> TermId {
        if !self.hangs(t) || self.arena.stopped() {
            return t;
        }
        if let Some(&r) = self.memo.get(&(facts.scope(), t)) {
            return r;
        }
        let r = self.rewrite_node(t, facts);
        self.memo.insert((facts.scope(), t), r);
        r
    }

    fn rewrite_node(&mut self, t: TermId, facts: &Facts) -> TermId {
        let sort = self.arena.sort(t);
        match self.arena.node(t).clone() {
            Node::Ite(c, a, b) => {
                let c = self.rewrite(c, facts);
                if !self.arena.says_numbers(c) {
                    let (a, b) = (self.rewrite(a, facts), self.rewrite(b, facts));
                    return self.arena.ite(c, a, b);
                }
                let yes = facts.with(self.arena, c);
                let not = self.arena.not(c);
                let no = facts.with(self.arena, not);
                let (a, b) = (self.rewrite(a, &yes), self.rewrite(b, &no));
                self.arena.ite(c, a, b)
            }
            Node::Fold(f) if f.while_cond.is_none() => self.fold(*f, sort, facts),
            Node::Fold(_) | Node::Carry(..) => t,
            Node::Chain(c) => {
                let (acc, a, b) = (self.rewrite(c.acc, facts), self.rewrite(c.a, facts), self.rewrite(c.b, facts));
                let c = Chain { acc, a, b, ..*c };
                let c = self.masked_factor(c, facts);
                self.arena.intern(Node::Chain(Box::new(c)), sort)
            }
            Node::Load(l) => {
                let mask = self.rewrite(l.mask, facts);
                let inner = facts.with(self.arena, mask);
                let offset = self.rewrite(l.offset, &inner);
                self.arena.load(Load { mask, offset, ..l }, sort)
            }
            Node::Ge0(p) => self.comparison(t, p, facts),
            Node::Max(a, b) | Node::Min(a, b) => {
                let larger = matches!(self.arena.node(t), Node::Max(..));
                let (a, b) = (self.rewrite(a, facts), self.rewrite(b, facts));
                let (up, down) = (self.arena.sub(a, b), self.arena.sub(b, a));
                match (facts.proves_hard(self.arena, up), facts.proves_hard(self.arena, down), larger) {
                    (true, _, true) | (_, true, false) => a,
                    (true, _, false) | (_, true, true) => b,
                    (_, _, true) => self.arena.max(a, b),
                    (_, _, false) => self.arena.min(a, b),
                }
            }
            _ => {
                let mut parts = HashMap::default();
                let mut list = Vec::new();
                crate::term::children(&self.arena.node(t).clone(), |c| list.push(c));
                for c in list {
                    let r = self.rewrite(c, facts);
                    parts.insert(c, r);
                }
                self.arena.map_children(t, |_, c| parts.get(&c).copied().unwrap_or(c))
            }
        }
    }

    fn comparison(&mut self, t: TermId, p: TermId, facts: &Facts) -> TermId {
        let negative = self.arena.scale(p, -1);
        let negative = self.arena.add_const(negative, -1);
        if facts.proves_hard(self.arena, p) {
            return self.arena.bool(true);
        }
        if facts.proves_hard(self.arena, negative) {
            return self.arena.bool(false);
        }
        if self.reached_by_a_lane(p, facts) {
            self.arena.rules.insert("own-lane");
            return self.arena.bool(true);
        }
        t
    }

    fn fold(&mut self, mut f: Fold, sort: Sort, facts: &Facts) -> TermId {
        f.trip = self.rewrite(f.trip, facts);
        if let Some((later, needs)) = self.later(&f, facts) {
            self.conditions.extend(needs);
            f = later;
        }
        let n = self.arena.var_term(f.binder);
        let (running, started) = (self.arena.lt(n, f.trip), self.arena.ge0(n));
        let both = self.arena.and([running, started]);
        let inner = facts.with(self.arena, both);
        self.folds.push(f.clone());
        let mut slots = Vec::with_capacity(f.slots.len());
        for s in &f.slots {
            let (init, body) = (self.rewrite(s.init, facts), self.rewrite(s.body, &inner));
            slots.push(Slot { init, body, ..*s });
        }
        self.folds.pop();
        f.slots = slots;
        if self.hangs(f.trip)
            && let Some((trip, needs)) = self.shorter(&f, facts)
        {
            self.arena.rules.insert("fold-extension");
            self.conditions.extend(needs);
            f.trip = trip;
        }
        self.arena.fold(f, sort)
    }

    /// A number of iterations of the fold's own, with the conditions that it needs.
    fn shorter(&mut self, f: &Fold, facts: &Facts) -> Option<(TermId, BTreeSet<Condition>)> {
        let parts = minima(self.arena, f.trip);
        for bound in self.candidates(f) {
            if bound == f.trip || self.hangs(bound) {
                continue;
            }
            // Fold(T) = Fold(min(T, bound)), and a part of T that is known to reach the bound leaves the minimum.
            let mut kept = Vec::new();
            for &p in &parts {
                let reach = self.arena.sub(p, bound);
                if !facts.proves_hard(self.arena, reach) {
                    kept.push(p);
                }
            }
            let open = kept.iter().any(|&p| self.hangs(p));
            if open && kept.len() < parts.len() {
                continue;
            }
            let Some(mut conditions) = self.idle_from(f, bound, facts) else { continue };
            if !open {
                let trip = kept.into_iter().fold(bound, |least, p| self.arena.min(least, p));
                return Some((trip, conditions));
            }
            let room = self.arena.sub(f.trip, bound);
            let text = self.arena.show(room, &|i| format!("arg{i}"));
            conditions.insert(Condition::Covers { text: format!("{text} >= 0"), room });
            return Some((bound, conditions));
        }
        None
    }

    /// What the claim needs that no iteration from `bound` on changes anything. The first iteration starts from the inits, so there it is
    /// enough that these come out again.
    fn idle_from(&mut self, f: &Fold, bound: TermId, facts: &Facts) -> Option<BTreeSet<Condition>> {
        let n = self.arena.var_term(f.binder);
        let (past, running) = (self.arena.ge(n, bound), self.arena.lt(n, f.trip));
        let started = self.arena.ge0(n);
        let all = self.arena.and([past, running, started]);
        let inner = facts.with(self.arena, all);
        if let Some(conditions) = self.idle(f, &inner) {
            return Some(conditions);
        }
        let one = self.arena.int(1);
        let later = self.arena.ge(n, one);
        let later = inner.with(self.arena, later);
        let mut conditions = self.idle(f, &later)?;
        let zero = self.arena.int(0);
        let (none, some) = (self.arena.ge(zero, bound), self.arena.ge(f.trip, one));
        let both = self.arena.and([none, some]);
        let first = facts.with(self.arena, both);
        let mut map = HashMap::from_iter([(n, zero)]);
        for (i, s) in f.slots.iter().enumerate() {
            let carry = self.arena.intern(Node::Carry(f.binder, i as u32, vec![]), self.arena.sort(s.body));
            map.insert(carry, s.init);
        }
        for s in &f.slots {
            let body = self.arena.subst(s.body, &map);
            let mut quiet = Quiet { arena: self.arena, conditions: BTreeSet::new(), folds: &self.folds };
            let (body, init) = (quiet.under(body, &first), quiet.under(s.init, &first));
            conditions.extend(quiet.conditions);
            if body != init {
                return None;
            }
        }
        self.arena.rules.insert("first-iteration");
        Some(conditions)
    }

    fn idle(&mut self, f: &Fold, facts: &Facts) -> Option<BTreeSet<Condition>> {
        let mut folds = self.folds.clone();
        folds.push(f.clone());
        let mut quiet = Quiet { arena: self.arena, conditions: BTreeSet::new(), folds: &folds };
        for (i, s) in f.slots.iter().enumerate() {
            let sharp = facts.sharpened(quiet.arena, s.body, f.binder);
            let body = quiet.under(s.body, &sharp);
            if *quiet.arena.node(body) != Node::Carry(f.binder, i as u32, vec![]) {
                return None;
            }
        }
        Some(quiet.conditions)
    }

    /// What the masks of the body say is not negative.
    pub(super) fn masks(&self, f: &Fold) -> Vec<TermId> {
        let mut masks = Vec::new();
        for s in &f.slots {
            self.arena.walk(s.body, |_, node| {
                if let Node::Ge0(p) = node
                    && !masks.contains(p)
                {
                    masks.push(*p);
                }
            });
        }
        masks
    }

    /// Iteration numbers from which some mask in the body is false in every lane.
    fn candidates(&mut self, f: &Fold) -> Vec<TermId> {
        let n = self.arena.var_term(f.binder);
        let masks = self.masks(f);
        let around: Vec<VarId> = self.folds.iter().map(|f| f.binder).collect();
        let mut out = Vec::new();
        for p in masks {
            let poly = self.arena.poly(p);
            let step = -poly.coeff(&[n]);
            if step <= 0 {
                continue;
            }
            let mut bound = poly.clone();
            bound.terms.retain(|(m, c)| !(m.as_slice() == [n] || *c < 0 && counts_lanes(self.arena, m, &around)));
            let b = self.arena.from_poly(bound);
            let closed = self
                .arena
                .free_vars(b)
                .iter()
                .all(|v| matches!(self.arena.vars[v.0 as usize].kind, VarKind::Coord(_)) || around.contains(v));
            if closed {
                let l = self.arena.int(step);
                let q = self.arena.div(b, l);
                let e = self.arena.add_const(q, 1);
                if !out.contains(&e) {
                    out.push(e);
                }
            }
        }
        out
    }

    /// Where one factor of a chain is +0 unless a mask of the row holds, the other one may be masked with it: the products are ±0 either
    /// way, and zeros leave a sum that is not -0 as it is. What the other factor holds in those lanes no longer matters.
    fn masked_factor(&mut self, c: Chain, facts: &Facts) -> Chain {
        if !c.flat {
            return c;
        }
        for (zero, other) in [(c.a, c.b), (c.b, c.a)] {
            if !self.hangs(other) {
                continue;
            }
            for (mask, conditions) in self.masks_that_hide(zero, c.binder, facts) {
                let inside = facts.with(self.arena, mask);
                let inside = inside.sharpened(self.arena, other, c.binder);
                let simple = self.arena.simplify(other, &inside);
                let simple = self.rewrite(simple, &inside);
                let new = masked(self.arena, simple, mask);
                if new == other || self.hangs(new) {
                    continue;
                }
                let mut quiet = Quiet { arena: self.arena, conditions, folds: &self.folds };
                quiet.finite(other);
                quiet.not_minus_zero(c.acc);
                self.conditions.append(&mut quiet.conditions);
                self.arena.rules.insert("masked-factor");
                return if zero == c.a { Chain { b: new, ..c } } else { Chain { a: new, ..c } };
            }
        }
        c
    }

    /// Masks of the row outside of which a factor is +0, with the conditions of that, and all of them together.
    fn masks_that_hide(&mut self, factor: TermId, lane: VarId, facts: &Facts) -> Vec<(TermId, BTreeSet<Condition>)> {
        let mut out: Vec<(TermId, BTreeSet<Condition>)> = Vec::new();
        for mask in self.masks_of(factor, lane) {
            let not = self.arena.not(mask);
            let outside = facts.with(self.arena, not);
            let mut quiet = Quiet { arena: self.arena, conditions: BTreeSet::new(), folds: &self.folds };
            let left = quiet.under(factor, &outside);
            if quiet.is_const(left, 0.0) {
                out.push((mask, quiet.conditions));
            }
        }
        if out.len() > 1 {
            let all = self.arena.and(out.iter().map(|(m, _)| *m).collect::<Vec<_>>());
            let conditions = out.iter().flat_map(|(_, c)| c.clone()).collect();
            out.push((all, conditions));
        }
        out
    }

    /// Masks of the row in a factor, over the lanes of the chain.
    fn masks_of(&mut self, factor: TermId, lane: VarId) -> Vec<TermId> {
        let mut out = Vec::new();
        self.arena.walk(factor, |t, n| {
            if matches!(n, Node::Ge0(_)) && self.arena.contains_var(t, lane) && !out.contains(&t) {
                out.push(t);
            }
        });
        out.retain(|&t| !self.hangs(t));
        out
    }

    /// `p >= 0` where p contains the maximum over lanes of a number that one lane is known to give: the stored row's own lane.
    fn reached_by_a_lane(&mut self, p: TermId, facts: &Facts) -> bool {
        let poly = self.arena.poly(p);
        let reduce = poly.terms.iter().find_map(|(m, k)| match m.as_slice() {
            [t] if *k > 0 => match self.arena.node(*t) {
                Node::Reduce(r) if r.order_free && r.at.is_none() && r.bodies.len() == 1 => {
                    Some((*t, *k, (**r).clone()))
                }
                _ => None,
            },
            _ => None,
        });
        let Some((t, k, r)) = reduce else { return false };
        if !self.arena.text(r.combiner).starts_with("maxsi(") {
            return false;
        }
        for x in lanes(self.arena, r.len, facts) {
            let binder = self.arena.var_term(r.binder);
            let one = self.arena.subst_one(r.bodies[0], binder, x);
            let one = self.arena.simplify(one, facts);
            let without = self.arena.add_scaled(p, t, -k);
            let least = self.arena.add_scaled(without, one, k);
            if facts.proves(self.arena, least) {
                return true;
            }
        }
        false
    }
}

/// Integer extrema over the lanes of the stored row's block: each is at least, or at most, what the row's own lane gives.
fn extrema(arena: &mut Arena, value: TermId, facts: &Facts) -> Vec<TermId> {
    let mut found = Vec::new();
    arena.walk(value, |t, n| {
        if let Node::Reduce(r) = n
            && r.order_free
            && r.at.is_none()
            && let [body] = r.bodies[..]
            && arena.sort(t) == Sort::Int
        {
            let text = arena.text(r.combiner);
            let sign = if text.starts_with("maxsi(") { 1 } else { -i128::from(text.starts_with("minsi(")) };
            found.push((t, sign, body, r.binder, r.len));
        }
    });
    let mut out = Vec::new();
    for (t, sign, body, binder, len) in found {
        let bound = |v: &VarId| arena.vars[v.0 as usize].kind == VarKind::Bound;
        if sign == 0 || arena.free_vars(t).iter().any(bound) {
            continue;
        }
        for x in lanes(arena, len, facts) {
            let lane = arena.var_term(binder);
            let one = arena.subst_one(body, lane, x);
            let one = arena.simplify(one, facts);
            let above = arena.sub(t, one);
            let above = arena.scale(above, sign);
            out.push(arena.ge0(above));
            arena.rules.insert("own-lane");
        }
    }
    out
}

/// Numbers that are known to be lanes of `len`, `0 <= x <= len - 1`: among them the stored row's own place in its block.
fn lanes(arena: &mut Arena, len: u64, facts: &Facts) -> Vec<TermId> {
    let last = Poly::constant(i128::from(len) - 1);
    let all = facts.inequalities();
    let lanes: Vec<&Poly> = all
        .iter()
        .filter(|x| x.as_const().is_none() && last.add_scaled(x, -1).is_some_and(|room| all.contains(&room)))
        .collect();
    let mut out: Vec<TermId> = lanes.into_iter().map(|x| arena.from_poly(x.clone())).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// True for a lane or a count that starts at zero and only makes a mask smaller; iterations of the loops around are no lanes.
pub(super) fn counts_lanes(arena: &Arena, m: &[TermId], around: &[VarId]) -> bool {
    let [t] = m else { return false };
    let Node::Var(v) = *arena.node(*t) else { return false };
    let var = &arena.vars[v.0 as usize];
    var.kind == VarKind::Bound && var.range.lo == Some(0) && !around.contains(&v)
}

/// `if mask then t else +0`; a load is masked itself.
fn masked(arena: &mut Arena, t: TermId, mask: TermId) -> TermId {
    if let Node::Load(l) = *arena.node(t) {
        let ty = arena.text(l.ty).to_owned();
        let other = if arena.as_bool(l.mask) == Some(true) { arena.float(&ty, 0) } else { l.other };
        if matches!(arena.node(other), Node::Const(_, 0)) {
            let mask = arena.and([l.mask, mask]);
            return arena.load(Load { mask, other, ..l }, Sort::Data);
        }
    }
    let zero = arena.op("zero", vec![], Sort::Data);
    arena.ite(mask, t, zero)
}

/// The parts of which a number of iterations is the least. Floor division, truncating division and addition are monotone.
fn minima(arena: &mut Arena, t: TermId) -> Vec<TermId> {
    let poly = arena.poly(t);
    for (m, c) in &poly.terms {
        let &[atom] = m.as_slice() else { continue };
        if *c <= 0 {
            continue;
        }
        let sides: Vec<TermId> = match *arena.node(atom) {
            Node::Min(a, b) => vec![a, b],
            Node::Div(a, b) | Node::TDiv(a, b) if arena.as_int(b).is_some_and(|b| b > 0) => {
                let whole = matches!(arena.node(atom), Node::Div(..));
                let parts = minima(arena, a);
                parts.into_iter().map(|p| if whole { arena.div(p, b) } else { arena.tdiv(p, b) }).collect()
            }
            _ => continue,
        };
        if sides.len() > 1 {
            let rest = arena.add_scaled(t, atom, -c);
            let mut out = Vec::new();
            for s in sides {
                let one = arena.add_scaled(rest, s, *c);
                out.extend(minima(arena, one));
            }
            return out;
        }
    }
    vec![t]
}

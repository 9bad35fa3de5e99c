//! Loops that begin where the first row of a block needs it: iterations before the row's own first one are left out.
//!
//! The carried values start at S0. Where every lane of a mask is false, an iteration takes S0 to S1 and S1 to itself, and from either the
//! first iteration after these makes the same of it. Then the loop that begins with that iteration, from S0, has the same result, if it
//! has an iteration at all. (An online softmax: S0 may hold a sum of 1 beside a maximum of -inf, S1 a sum of 0; both are forgotten.)

use super::extension::Extend;
use super::quiet::Quiet;
use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Facts, Fold, Node, Slot, TermId, VarId};
use std::collections::BTreeSet;

/// Where the row's own iterations begin.
struct Start {
    /// How many iterations come before.
    before: TermId,
    /// The same or less: from there on some lane of the mask may hold.
    idle: TermId,
}

impl Extend<'_> {
    /// The fold without iterations that its row does not need; the conditions that this needs.
    pub(super) fn later(&mut self, f: &Fold, facts: &Facts) -> Option<(Fold, BTreeSet<Condition>)> {
        let inits: Vec<TermId> = f.slots.iter().map(|s| s.init).collect();
        if !inits.iter().all(|t| matches!(self.arena.node(*t), Node::Const(..))) {
            return None;
        }
        self.starts(f, facts).into_iter().find_map(|s| self.begun_at(f, &s, &inits, facts))
    }

    fn begun_at(
        &mut self,
        f: &Fold,
        start: &Start,
        inits: &[TermId],
        facts: &Facts,
    ) -> Option<(Fold, BTreeSet<Condition>)> {
        let n = self.arena.var_term(f.binder);
        let (running, started) = (self.arena.lt(n, f.trip), self.arena.ge0(n));
        let idle = self.arena.lt(n, start.idle);
        let idle = self.arena.and([running, started, idle]);
        let idle = facts.with(self.arena, idle);
        let mut conditions = BTreeSet::new();
        let after = self.idle_step(f, inits, &idle, &mut conditions)?;
        let trip = self.arena.sub(f.trip, start.before);
        if after != inits {
            let fixed = self.idle_step(f, &after, &idle, &mut conditions)? == after;
            if !fixed || !self.forgets(f, inits, &after, &mut conditions) {
                return None;
            }
            let room = self.arena.add_const(trip, -1);
            if !facts.proves_hard(self.arena, room) {
                let text = self.arena.show(room, &|i| format!("arg{i}"));
                conditions.insert(Condition::Covers { text: format!("{text} >= 0"), room });
            }
        }
        let moved = self.arena.add(n, start.before);
        let mut slots = Vec::with_capacity(f.slots.len());
        for s in &f.slots {
            slots.push(Slot { body: self.arena.subst_one(s.body, n, moved), ..*s });
        }
        self.arena.rules.insert("late-start");
        Some((Fold { trip, slots, ..f.clone() }, conditions))
    }

    /// Iterations in which some mask of the body is false in every lane, if they come first.
    fn starts(&mut self, f: &Fold, facts: &Facts) -> Vec<Start> {
        let n = self.arena.var_term(f.binder);
        let around: Vec<VarId> = self.folds.iter().map(|f| f.binder).collect();
        let mut out: Vec<Start> = Vec::new();
        for p in self.masks(f) {
            let poly = self.arena.poly(p);
            let step = poly.coeff(&[n]);
            if step <= 0 {
                continue;
            }
            // The mask at its best: `step*n + most >= 0` for the last lane.
            let mut most = self.arena.add_scaled(p, n, -step);
            for (m, k) in &poly.terms {
                if *k > 0 && super::extension::counts_lanes(self.arena, m, &around) {
                    let Some(last) = self.arena.range(m[0]).hi else { continue };
                    let lane = self.arena.add_scaled(most, m[0], -k);
                    most = self.arena.add_const(lane, last * k);
                }
            }
            let up = self.arena.scale(most, -1);
            let (up, step) = (self.arena.add_const(up, step - 1), self.arena.int(step));
            let idle = self.arena.div(up, step);
            // Where the loop begins, and which tile the row needs first; none lies before the first one.
            let (mut row, mut block) = (self.arena.int(0), self.arena.int(0));
            for (m, k) in self.arena.poly(idle).terms {
                let part = self.arena.from_poly(crate::term::Poly { terms: vec![(m, k)] });
                let side = if self.hangs(part) { &mut block } else { &mut row };
                *side = self.arena.add(*side, part);
            }
            let zero = self.arena.int(0);
            let begins = self.arena.scale(block, -1);
            let first = self.arena.max(zero, row);
            let before = self.arena.add(first, block);
            if !self.hangs(before)
                || self.arena.contains_var(idle, f.binder)
                || out.iter().any(|s| s.before == before)
                || !facts.proves_hard(self.arena, begins)
                || !facts.proves_hard(self.arena, before)
            {
                continue;
            }
            out.push(Start { before, idle });
        }
        out
    }

    /// The carried constants after an idle iteration from others.
    fn idle_step(
        &mut self,
        f: &Fold,
        from: &[TermId],
        idle: &Facts,
        conditions: &mut BTreeSet<Condition>,
    ) -> Option<Vec<TermId>> {
        let mut out = Vec::with_capacity(from.len());
        for s in &f.slots {
            let sharp = idle.sharpened(self.arena, s.body, f.binder);
            let body = self.in_state(f, s.body, from);
            let mut quiet = Quiet { arena: self.arena, conditions: BTreeSet::new(), folds: &self.folds };
            let value = quiet.under(body, &sharp);
            conditions.append(&mut quiet.conditions);
            if !matches!(self.arena.node(value), Node::Const(..)) {
                return None;
            }
            out.push(value);
        }
        Some(out)
    }

    /// A body with its carried values replaced.
    fn in_state(&mut self, f: &Fold, body: TermId, state: &[TermId]) -> TermId {
        let mut map = HashMap::default();
        for (i, (s, value)) in f.slots.iter().zip(state).enumerate() {
            let carry = self.arena.intern(Node::Carry(f.binder, i as u32, vec![]), self.arena.sort(s.body));
            map.insert(carry, *value);
        }
        self.arena.subst(body, &map)
    }

    /// True if an iteration makes the same of either state.
    fn forgets(&mut self, f: &Fold, one: &[TermId], other: &[TermId], conditions: &mut BTreeSet<Condition>) -> bool {
        f.slots.iter().all(|s| {
            let (a, b) = (self.in_state(f, s.body, one), self.in_state(f, s.body, other));
            let mut quiet = Quiet { arena: self.arena, conditions: BTreeSet::new(), folds: &self.folds };
            let same = agree(&mut quiet, a, b);
            conditions.append(&mut quiet.conditions);
            same
        })
    }
}

/// True if exact steps make two terms equal, tried where they differ and as far down as they do.
fn agree(quiet: &mut Quiet<'_>, a: TermId, b: TermId) -> bool {
    if a == b {
        return true;
    }
    let pairs = match (quiet.arena.node(a).clone(), quiet.arena.node(b).clone()) {
        (Node::Op(x, p), Node::Op(y, q)) if x == y && p.len() == q.len() => {
            if quiet.arena.commutes(x) {
                differing(p, q)
            } else {
                p.into_iter().zip(q).collect()
            }
        }
        (Node::Ite(c, x, y), Node::Ite(d, z, w)) => vec![(c, d), (x, z), (y, w)],
        (Node::Chain(c), Node::Chain(d)) if (c.binder, c.tag, c.a, c.b) == (d.binder, d.tag, d.a, d.b) => {
            vec![(c.acc, d.acc)]
        }
        _ => vec![],
    };
    let known = quiet.conditions.clone();
    if !pairs.is_empty() && pairs.into_iter().all(|(x, y)| agree(quiet, x, y)) {
        return true;
    }
    quiet.conditions = known;
    let none = Facts::default();
    quiet.under(a, &none) == quiet.under(b, &none)
}

/// The operands of a commutative operation that are not the same on both sides.
fn differing(a: Vec<TermId>, b: Vec<TermId>) -> Vec<(TermId, TermId)> {
    let mut right = b;
    let mut left = Vec::new();
    for x in a {
        match right.iter().position(|y| *y == x) {
            Some(i) => {
                right.remove(i);
            }
            None => left.push(x),
        }
    }
    left.into_iter().zip(right).collect()
}

//! Fold extension: iterations that change nothing may be left out, so a loop bound that is too generous does not matter.
//!
//! A mask `B - L*n - lane >= 0` is false in every lane once `n > B / L`. If the body is then the identity on every carried value, a fold
//! over any number of iterations from `floor(B / L) + 1` on is the fold over just those. Each step below is exact in IEEE arithmetic,
//! or its side condition is printed.

use super::site::Solved;
use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Fold, Node, Slot, TermId, VarKind};
use std::collections::BTreeSet;

/// Rewrites the folds of the value that have a canonical bound of their own. False if nothing changed.
pub fn apply(arena: &mut Arena, solved: &mut Solved<'_>) -> bool {
    let mut folds = Vec::new();
    arena.walk(solved.value, |t, n| {
        if let Node::Fold(f) = n
            && f.while_cond.is_none()
        {
            folds.push((t, (**f).clone()));
        }
    });
    let mut map = HashMap::default();
    let mut conditions = BTreeSet::new();
    for (t, f) in folds {
        if let Some((trip, needs)) = shorter(arena, &solved.facts, &f) {
            let sort = arena.sort(t);
            let new = arena.fold(Fold { trip, ..f }, sort);
            if new != t {
                map.insert(t, new);
                conditions.extend(needs);
            }
        }
    }
    if map.is_empty() {
        return false;
    }
    arena.rules.insert("fold-extension");
    let value = arena.subst(solved.value, &map);
    solved.value = arena.simplify(value, &solved.facts);
    solved.left = super::site::instances(arena, solved.value);
    solved.conditions.extend(conditions);
    true
}

/// A bound of the fold's own, with the conditions that it needs.
fn shorter(arena: &mut Arena, facts: &Facts, f: &Fold) -> Option<(TermId, BTreeSet<Condition>)> {
    for bound in candidates(arena, f) {
        if bound == f.trip {
            continue;
        }
        let n = arena.var_term(f.binder);
        let past = arena.ge(n, bound);
        let running = arena.lt(n, f.trip);
        let all = arena.and([past, running]);
        let inner = facts.with(arena, all);
        let mut quiet = Quiet { arena, conditions: BTreeSet::new(), fold: f };
        let idle = f.slots.iter().enumerate().all(|(i, s)| quiet.is_idle(i as u32, s, &inner));
        if !idle {
            continue;
        }
        let mut conditions = quiet.conditions;
        // Fold(T) = Fold(min(T, bound)); the bound alone if T is known to reach it.
        let reach = arena.sub(f.trip, bound);
        if !facts.proves_hard(arena, reach) {
            let text = arena.show(reach, &|i| format!("arg{i}"));
            conditions.insert(Condition::Covers { text: format!("{text} >= 0"), room: reach });
        }
        return Some((bound, conditions));
    }
    None
}

/// Iteration numbers from which some mask in the body is false in every lane.
fn candidates(arena: &mut Arena, f: &Fold) -> Vec<TermId> {
    let n = arena.var_term(f.binder);
    let mut masks = Vec::new();
    for s in &f.slots {
        arena.walk(s.body, |_, node| {
            if let Node::Ge0(p) = node
                && !masks.contains(p)
            {
                masks.push(*p);
            }
        });
    }
    let mut out = Vec::new();
    for p in masks {
        let poly = arena.poly(p);
        let step = -poly.coeff(&[n]);
        if step <= 0 {
            continue;
        }
        // Lanes only make it smaller: drop them where their coefficient is negative and they start at zero.
        let mut bound = poly.clone();
        bound.terms.retain(|(m, c)| {
            let lane = match m.as_slice() {
                [t] => match *arena.node(*t) {
                    Node::Var(v) => {
                        let var = &arena.vars[v.0 as usize];
                        var.kind == VarKind::Bound && var.range.lo == Some(0) && *c < 0
                    }
                    _ => false,
                },
                _ => false,
            };
            !lane
        });
        let b = arena.from_poly(bound);
        let closed = arena.free_vars(b).iter().all(|v| matches!(arena.vars[v.0 as usize].kind, VarKind::Coord(_)));
        if closed {
            let l = arena.int(step);
            let q = arena.div(b, l);
            let e = arena.add_const(q, 1);
            if !out.contains(&e) {
                out.push(e);
            }
        }
    }
    out
}

/// Simplification where every lane is masked.
struct Quiet<'a> {
    arena: &'a mut Arena,
    conditions: BTreeSet<Condition>,
    fold: &'a Fold,
}

impl Quiet<'_> {
    fn is_idle(&mut self, slot: u32, s: &Slot, facts: &Facts) -> bool {
        let body = self.arena.simplify(s.body, facts);
        let mut memo = HashMap::default();
        let body = self.quiet(body, &mut memo);
        *self.arena.node(body) == Node::Carry(self.fold.binder, slot, vec![])
    }

    fn quiet(&mut self, t: TermId, memo: &mut HashMap<TermId, TermId>) -> TermId {
        if let Some(&r) = memo.get(&t) {
            return r;
        }
        let r = {
            let mut parts = HashMap::default();
            let mut list = Vec::new();
            crate::term::children(&self.arena.node(t).clone(), |c| list.push(c));
            for c in list {
                let q = if self.arena.sort(c) == crate::term::Sort::Data { self.quiet(c, memo) } else { c };
                parts.insert(c, q);
            }
            let mapped = self.arena.map_children(t, |_, c| parts.get(&c).copied().unwrap_or(c));
            self.step(mapped)
        };
        memo.insert(t, r);
        r
    }

    fn is_const(&self, t: TermId, want: f64) -> bool {
        constant(self.arena, t).is_some_and(|c| c.to_bits() == want.to_bits())
    }

    fn show(&self, t: TermId) -> String {
        let mut s = self.arena.show(t, &|i| format!("arg{i}"));
        s.truncate(s.char_indices().nth(60).map_or(s.len(), |(i, _)| i));
        s
    }

    fn finite(&mut self, t: TermId) {
        if constant(self.arena, t).is_none_or(|c| !c.is_finite()) {
            let what = self.show(t);
            self.conditions.insert(Condition::Finite { what });
        }
    }

    /// One exact step.
    fn step(&mut self, t: TermId) -> TermId {
        match self.arena.node(t).clone() {
            Node::Op(..) => self.operation(t),
            // A sum of zeros is +0 in every order; the maximum of equal numbers is that number.
            Node::Reduce(r) if r.at.is_none() && r.bodies.len() == 1 => {
                let text = self.arena.text(r.combiner).to_owned();
                let body = r.bodies[0];
                let sum = text.starts_with("addf(") && self.is_const(body, 0.0);
                let extremum = r.order_free && (text.starts_with("max") || text.starts_with("min"));
                if sum || extremum && constant(self.arena, body).is_some() { body } else { t }
            }
            // Products with +0 are ±0 for a finite factor, and a step of zero products returns its accumulator, unless that is -0.
            Node::Chain(c) => {
                let zero = [(c.a, c.b), (c.b, c.a)].into_iter().find(|(z, _)| self.is_const(*z, 0.0));
                match zero {
                    Some((_, other)) if c.flat => {
                        self.finite(other);
                        self.not_minus_zero(c.acc);
                        self.arena.rules.insert("zero-products");
                        c.acc
                    }
                    _ => t,
                }
            }
            _ => t,
        }
    }

    /// x + (+0) = x unless x is -0. A sum that starts at +0 and only ever adds is never -0: round-to-nearest gives -0 only for
    /// (-0) + (-0).
    fn not_minus_zero(&mut self, t: TermId) {
        if let Node::Carry(v, slot, _) = *self.arena.node(t)
            && v == self.fold.binder
            && let Some(s) = self.fold.slots.get(slot as usize)
            && self.is_const(s.init, 0.0)
            && let Some(("addf", args)) = self.arena.op_name(s.body)
            && args.contains(&t)
        {
            self.arena.rules.insert("sum-from-plus-zero");
            return;
        }
        if constant(self.arena, t).is_some_and(|c| c.to_bits() != (-0.0f64).to_bits()) {
            return;
        }
        let what = self.show(t);
        self.conditions.insert(Condition::NotMinusZero { what });
    }

    fn operation(&mut self, t: TermId) -> TermId {
        let Some((name, args)) = self.arena.op_name(t).map(|(n, a)| (n.to_owned(), a.to_vec())) else { return t };
        let ty = {
            let Node::Op(full, _) = self.arena.node(t) else { return t };
            self.arena.text(*full).split(' ').next_back().unwrap_or("f32").to_owned()
        };
        let inf = f64::NEG_INFINITY;
        match (name.as_str(), args.as_slice()) {
            ("maxnumf" | "maximumf", &[a, b]) => {
                for (x, m) in [(a, b), (b, a)] {
                    if self.is_const(m, inf) {
                        if name == "maxnumf" && constant(self.arena, x).is_none_or(f64::is_nan) {
                            // max(NaN, -inf) = -inf.
                            let what = self.show(x);
                            self.conditions.insert(Condition::Finite { what });
                        }
                        self.arena.rules.insert("max-with-minus-infinity");
                        return x;
                    }
                }
                t
            }
            ("addf", &[a, b]) => {
                for (x, z) in [(a, b), (b, a)] {
                    if self.is_const(z, 0.0) {
                        self.not_minus_zero(x);
                        self.arena.rules.insert("add-plus-zero");
                        return x;
                    }
                }
                t
            }
            // Exact for every x: the sign of zero, infinities and NaN stay.
            ("mulf", &[a, b]) if self.is_const(b, 1.0) || self.is_const(a, 1.0) => {
                self.arena.rules.insert("multiply-by-one");
                if self.is_const(b, 1.0) { a } else { b }
            }
            ("mulf", &[a, b]) => match (constant(self.arena, a), constant(self.arena, b)) {
                (Some(x), Some(y)) if x == inf && y > 0.0 || y == inf && x > 0.0 => self.make(&ty, inf),
                // Zero times infinity is no number.
                (Some(x), Some(y)) if x.is_finite() && y.is_finite() && plus_zero_times_positive(x, y) => {
                    self.make(&ty, 0.0)
                }
                _ => t,
            },
            ("subf", &[a, b]) if a == b => {
                self.finite(a);
                self.arena.rules.insert("difference-of-equals");
                self.make(&ty, 0.0)
            }
            ("subf", &[a, b]) if self.is_const(a, inf) => {
                self.finite(b);
                self.arena.rules.insert("minus-infinity-minus-finite");
                self.make(&ty, inf)
            }
            ("exp" | "exp2", &[a]) if self.is_const(a, 0.0) => {
                self.arena.rules.insert("exp-of-zero");
                self.make(&ty, 1.0)
            }
            ("exp" | "exp2", &[a]) if self.is_const(a, inf) => {
                self.arena.rules.insert("exp-of-minus-infinity");
                self.make(&ty, 0.0)
            }
            ("truncf" | "extf" | "fptofp", &[a]) if self.is_const(a, 0.0) => self.make(&ty, 0.0),
            _ => t,
        }
    }

    fn make(&mut self, ty: &str, value: f64) -> TermId {
        let Some(f) = crate::ir::Float::parse(ty) else {
            return self.arena.float("f32", u64::from((value as f32).to_bits()));
        };
        let bits = crate::float::encode(value, f, crate::float::Round::Nearest, false);
        self.arena.float(ty, bits)
    }
}

fn plus_zero_times_positive(x: f64, y: f64) -> bool {
    x.to_bits() == 0 && y > 0.0 || y.to_bits() == 0 && x > 0.0
}

fn constant(arena: &Arena, t: TermId) -> Option<f64> {
    match arena.node(t) {
        Node::Const(ty, bits) => crate::ir::Float::parse(arena.text(*ty)).map(|f| crate::float::decode(*bits, f)),
        _ => None,
    }
}

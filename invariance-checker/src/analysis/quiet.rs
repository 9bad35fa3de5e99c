//! What is left of a term where lanes are masked: exact steps of IEEE arithmetic, with the conditions that some of them need.

use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Fold, Node, Slot, TermId};
use std::collections::BTreeSet;

/// Simplification where lanes are masked.
pub(super) struct Quiet<'a> {
    pub(super) arena: &'a mut Arena,
    /// What the steps so far need.
    pub(super) conditions: BTreeSet<Condition>,
    /// The loops around, whose carried values are known by their inits and bodies.
    pub(super) folds: &'a [Fold],
}

impl Quiet<'_> {
    /// `t` where `facts` hold.
    pub(super) fn under(&mut self, t: TermId, facts: &Facts) -> TermId {
        let t = self.arena.simplify(t, facts);
        self.quiet(t, &mut HashMap::default())
    }

    fn quiet(&mut self, t: TermId, memo: &mut HashMap<TermId, TermId>) -> TermId {
        if let Some(&r) = memo.get(&t) {
            return r;
        }
        let r = if let Some(r) = self.below_guarded(t, memo) {
            r
        } else {
            let mut parts = HashMap::default();
            let mut list = Vec::new();
            crate::term::children(&self.arena.node(t).clone(), |c| list.push(c));
            for c in list {
                let q = self.quiet(c, memo);
                parts.insert(c, q);
            }
            let mapped = self.arena.map_children(t, |_, c| parts.get(&c).copied().unwrap_or(c));
            self.step(mapped)
        };
        memo.insert(t, r);
        r
    }

    pub(super) fn is_const(&self, t: TermId, want: f64) -> bool {
        constant(self.arena, t).is_some_and(|c| c.to_bits() == want.to_bits())
    }

    fn show(&self, t: TermId) -> String {
        let mut s = self.arena.show(t, &|i| format!("arg{i}"));
        s.truncate(s.char_indices().nth(60).map_or(s.len(), |(i, _)| i));
        s
    }

    pub(super) fn finite(&mut self, t: TermId) {
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
                let sum = adds(&text) && self.is_const(body, 0.0);
                let extremum = r.order_free && (text.starts_with("max") || text.starts_with("min"));
                let known = constant(self.arena, body).is_some() || self.arena.as_int(body).is_some();
                if sum || extremum && known {
                    self.arena.rules.insert("equal-lanes");
                    body
                } else {
                    t
                }
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
    pub(super) fn not_minus_zero(&mut self, t: TermId) {
        if self.plus(t, &mut Vec::new()) {
            self.arena.rules.insert("plus-sign");
            return;
        }
        if let Some(s) = self.slot(t)
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

    /// The slot of a carried value of a loop around.
    fn slot(&self, t: TermId) -> Option<&Slot> {
        let Node::Carry(v, slot, _) = self.arena.node(t) else { return None };
        self.folds.iter().find(|f| f.binder == *v)?.slots.get(*slot as usize)
    }

    /// True if the sign of `t` is plus in every run in which it is a number: the sign of a product is the product of the signs, underflow
    /// included; a sum of values of sign plus has sign plus; an exponential has sign plus. A carried value has it if its init has and, by
    /// induction, its body where it has itself (`open`).
    fn plus(&self, t: TermId, open: &mut Vec<TermId>) -> bool {
        if open.contains(&t) {
            return true;
        }
        if let Some(c) = constant(self.arena, t) {
            return c.is_sign_positive() && !c.is_nan();
        }
        match self.arena.node(t) {
            Node::Op(..) => {
                let Some((name, args)) = self.arena.op_name(t) else { return false };
                match name {
                    "exp" | "exp2" | "absf" => true,
                    "addf" | "mulf" | "divf" | "fma" | "maxnumf" | "maximumf" | "minnumf" | "minimumf" | "truncf"
                    | "extf" | "fptofp" => args.iter().all(|&a| self.plus(a, open)),
                    _ => false,
                }
            }
            Node::Ite(_, a, b) => self.plus(*a, open) && self.plus(*b, open),
            Node::Reduce(r) if r.bodies.len() == 1 => {
                let text = self.arena.text(r.combiner);
                (adds(text) || r.order_free) && self.plus(r.bodies[0], open)
            }
            Node::Carry(..) => {
                let Some(s) = self.slot(t) else { return false };
                let (init, body) = (s.init, s.body);
                open.push(t);
                self.plus(init, open) && self.plus(body, open)
            }
            _ => false,
        }
    }

    /// True if `t` is `if x > -inf then x else c` with c finite: neither -inf nor a NaN, whatever x is.
    fn above_minus_infinity(&self, t: TermId) -> bool {
        let Node::Ite(c, x, other) = *self.arena.node(t) else { return false };
        let Some(("cmpf", args)) = self.arena.op_name(c) else { return false };
        let Node::Op(full, _) = self.arena.node(c) else { return false };
        let greater = self.arena.text(*full).starts_with("cmpf Ogt ");
        greater
            && args[0] == x
            && self.is_const(args[1], f64::NEG_INFINITY)
            && constant(self.arena, other).is_some_and(f64::is_finite)
    }

    /// `-inf - x` for such an x, before anything is assumed of it.
    fn below_guarded(&mut self, t: TermId, memo: &mut HashMap<TermId, TermId>) -> Option<TermId> {
        let (name, args) = self.arena.op_name(t)?;
        let &[a, b] = args else { return None };
        if name != "subf" || !self.above_minus_infinity(b) {
            return None;
        }
        let a = self.quiet(a, memo);
        if !self.is_const(a, f64::NEG_INFINITY) {
            return None;
        }
        self.arena.rules.insert("guarded-maximum");
        Some(a)
    }

    /// `x > -inf`, `x != -inf` and `x == -inf` for a finite x.
    fn comparison(&mut self, t: TermId, args: &[TermId]) -> TermId {
        let Node::Op(full, _) = self.arena.node(t) else { return t };
        let text = self.arena.text(*full).to_owned();
        let answer = match text.split(' ').nth(1) {
            Some("Ogt" | "Ugt" | "One" | "Une") => true,
            Some("Oeq" | "Ueq" | "Ole" | "Ule") => false,
            _ => return t,
        };
        match args {
            &[x, m] if self.is_const(m, f64::NEG_INFINITY) => {
                if self.is_const(x, f64::NEG_INFINITY) {
                    self.arena.rules.insert("compare-with-minus-infinity");
                    let equal = matches!(text.split(' ').nth(1), Some("Oeq" | "Ueq" | "Ole" | "Ule"));
                    return self.arena.bool(equal);
                }
                self.finite(x);
                self.arena.rules.insert("compare-with-minus-infinity");
                self.arena.bool(answer)
            }
            _ => t,
        }
    }

    fn operation(&mut self, t: TermId) -> TermId {
        let Some((name, args)) = self.arena.op_name(t).map(|(n, a)| (n.to_owned(), a.to_vec())) else { return t };
        let ty = {
            let Node::Op(full, _) = self.arena.node(t) else { return t };
            self.arena.text(*full).split(' ').next_back().unwrap_or("f32").to_owned()
        };
        let inf = f64::NEG_INFINITY;
        match (name.as_str(), args.as_slice()) {
            ("cmpf", args) => self.comparison(t, args),
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

/// The combiner is one addition of floats, and nothing after it.
fn adds(combiner: &str) -> bool {
    combiner.starts_with("addf(%0,%1);->%2 ") || combiner.starts_with("addf(%1,%0);->%2 ")
}

fn plus_zero_times_positive(x: f64, y: f64) -> bool {
    x.to_bits() == 0 && y.is_sign_positive() || y.to_bits() == 0 && x.is_sign_positive()
}

fn constant(arena: &Arena, t: TermId) -> Option<f64> {
    match arena.node(t) {
        Node::Const(ty, bits) => crate::ir::Float::parse(arena.text(*ty)).map(|f| crate::float::decode(*bits, f)),
        _ => None,
    }
}

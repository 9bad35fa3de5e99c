//! Numbers for what a term is made of: a goal that is negative where every fact holds does not follow, and no proof need be looked for.
//!
//! A model gives every variable, argument and uninterpreted number a value within its range; sums, quotients and extrema follow from those.
//! The provers are sound, so they prove nothing that a model breaks: asking the models first changes no answer, only the time that a "no"
//! takes, and most answers are no.

use super::{Arena, Map, Node, Poly, TermId};

/// So many models are kept; a set of them is a mask.
pub const MODELS: usize = 32;

/// Values by model.
pub type Values = Vec<Map<TermId, Option<i128>>>;

/// Magnitudes of what nothing limits from above: arguments are sizes.
const SIZES: [i128; 8] = [1, 3, 40, 700, 5_000, 130_000, 2_000_000, 40_000_000];

/// Magnitudes of variables that nothing limits from above.
const PLACES: [i128; 4] = [0, 1, 3, 20];

impl Arena {
    /// The models of `among` in which `p` is negative or has no value.
    pub(super) fn models_without(&mut self, p: &Poly, among: u32) -> u32 {
        self.models_where(p, among, |n| n.is_none_or(|n| n < 0))
    }

    /// True if a model of `among` makes `p` negative.
    pub(super) fn refuted(&mut self, p: &Poly, among: u32) -> bool {
        (0..MODELS).any(|m| among >> m & 1 == 1 && self.poly_value(m, p).is_some_and(|n| n < 0))
    }

    fn models_where(&mut self, p: &Poly, among: u32, f: impl Fn(Option<i128>) -> bool) -> u32 {
        (0..MODELS).filter(|m| among >> m & 1 == 1 && f(self.poly_value(*m, p))).fold(0, |set, m| set | 1 << m)
    }

    fn poly_value(&mut self, model: usize, p: &Poly) -> Option<i128> {
        let mut sum = 0i128;
        for (m, c) in &p.terms {
            let mut part = *c;
            for &t in m {
                part = part.checked_mul(self.value(model, t)?)?;
            }
            sum = sum.checked_add(part)?;
        }
        Some(sum)
    }

    fn value(&mut self, model: usize, t: TermId) -> Option<i128> {
        if let Some(v) = self.models[model].get(&t) {
            return *v;
        }
        let v = self.make_value(model, t);
        self.models[model].insert(t, v);
        v
    }

    fn make_value(&mut self, model: usize, t: TermId) -> Option<i128> {
        let two = |arena: &mut Arena, a, b| Some((arena.value(model, a)?, arena.value(model, b)?));
        match *self.node(t) {
            Node::Poly(ref p) => {
                let p = p.clone();
                self.poly_value(model, &p)
            }
            Node::Div(a, b) => two(self, a, b).and_then(|(a, b)| (b > 0).then(|| a.div_euclid(b))),
            Node::Mod(a, b) => two(self, a, b).and_then(|(a, b)| (b > 0).then(|| a.rem_euclid(b))),
            Node::TDiv(a, b) => two(self, a, b).and_then(|(a, b)| a.checked_div(b)),
            Node::TRem(a, b) => two(self, a, b).and_then(|(a, b)| a.checked_rem(b)),
            Node::Min(a, b) => two(self, a, b).map(|(a, b)| a.min(b)),
            Node::Max(a, b) => two(self, a, b).map(|(a, b)| a.max(b)),
            _ => Some(self.free_value(model, t)),
        }
    }

    /// A value within the range of what is not computed from others.
    fn free_value(&mut self, model: usize, t: TermId) -> i128 {
        let mut state = (model as u64) << 32 | u64::from(t.0);
        let h = i128::from(crate::interp::splitmix(&mut state) >> 8);
        let range = self.range(t);
        let size = match self.node(t) {
            Node::Var(_) | Node::Carry(..) => PLACES[model / SIZES.len()],
            _ => SIZES[model % SIZES.len()],
        };
        match (range.lo, range.hi) {
            (Some(lo), Some(hi)) if lo <= hi => match (h + model as i128) % 4 {
                0 => hi,
                1 => lo + h / 4 % (hi - lo).saturating_add(1),
                _ => lo,
            },
            (None, Some(hi)) => hi - h % (size + 1),
            (lo, _) => lo.unwrap_or(i128::from(size > 0)).max(0) + h % (size + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Facts, Node, Range, Sort, VarKind, tests::arena};

    #[test]
    fn a_goal_that_does_not_follow_is_refuted_and_one_that_follows_is_not() {
        let mut t = arena();
        let n = t.intern(Node::Arg(0), Sort::Int);
        let i = t.var(VarKind::Bound, "i", Range { lo: Some(0), hi: None });
        let (i, c64) = (t.var_term(i), t.int(64));
        let inside = t.lt(i, n);
        let facts = Facts::default().with(&mut t, inside);
        // i/64 <= (n - 1)/64, in a form that only the meaning of the quotients shows.
        let (q, last) = (t.div(i, c64), t.add_const(n, -1));
        let last = t.div(last, c64);
        let follows = t.sub(last, q);
        let goals: Vec<_> = (0..3).map(|k| t.add_const(follows, -k)).collect();
        let refuted: Vec<bool> = goals
            .iter()
            .map(|g| {
                let p = t.poly(*g);
                facts.refutes(&mut t, &p)
            })
            .collect();
        assert_eq!(refuted, [false, true, true]);
    }

    proptest::proptest! {
        /// What the search proves holds in every model in which the facts hold.
        #[test]
        fn no_model_breaks_what_is_proved(
            facts in proptest::collection::vec((-3i128..4, -3i128..4, -3i128..4, -9i128..10), 0..5),
            goal in (-3i128..4, -3i128..4, -3i128..4, -9i128..10),
        ) {
            let mut t = arena();
            let n = t.intern(Node::Arg(0), Sort::Int);
            let i = t.var(VarKind::Bound, "i", Range { lo: Some(0), hi: Some(31) });
            let (i, c8) = (t.var_term(i), t.int(8));
            let q = t.div(n, c8);
            let linear = |t: &mut super::Arena, (a, b, c, d): (i128, i128, i128, i128)| {
                let mut sum = t.int(d);
                for (k, x) in [(a, n), (b, i), (c, q)] {
                    sum = t.add_scaled(sum, x, k);
                }
                sum
            };
            let mut known = Facts::default();
            for f in facts {
                let f = linear(&mut t, f);
                let f = t.ge0(f);
                known.assume(&mut t, f);
            }
            let goal = linear(&mut t, goal);
            let p = t.poly(goal);
            let found = known.search(&mut t, p.clone(), 5, 150);
            proptest::prop_assert!(!(found && known.refutes(&mut t, &p)));
        }
    }
}

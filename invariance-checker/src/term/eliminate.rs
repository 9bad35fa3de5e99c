//! Fourier-Motzkin elimination: the second, stronger prover for linear facts.
//!
//! The goal is negated (`-p - 1 >= 0`), the facts that share monomials with it are added, and monomials are eliminated as if they were
//! independent variables; a constant that is negative is a contradiction. Sound for integers (each step adds positive multiples of true
//! inequalities, and dividing by the common factor rounds down), incomplete, and bounded.

use super::{Arena, Mono, Poly};
use std::collections::BTreeSet;

const ROWS_MAX: usize = 120;

/// True if `facts` imply `p >= 0`.
pub fn implied(
    arena: &mut Arena,
    p: &Poly,
    facts: &[Poly],
    definitions: impl Fn(&mut Arena, &Poly) -> Vec<Poly>,
) -> bool {
    let Some(goal) = Poly::constant(-1).add_scaled(p, -1) else { return false };
    let mut rows = vec![goal];
    let mut known: BTreeSet<Mono> = monomials(&rows[0]);
    // Facts and definitions that touch what is there already, for a few rounds.
    let mut pool: Vec<Poly> = facts.to_vec();
    for _ in 0..3 {
        for r in rows.clone() {
            for d in definitions(arena, &r) {
                if !pool.contains(&d) {
                    pool.push(d);
                }
            }
        }
        let (near, far): (Vec<Poly>, Vec<Poly>) = pool.into_iter().partition(|f| !monomials(f).is_disjoint(&known));
        pool = far;
        for f in near {
            known.extend(monomials(&f));
            if rows.len() < 40 && !rows.contains(&f) {
                rows.push(f);
            }
        }
    }
    for m in &known {
        let t = arena.from_poly(Poly { terms: vec![(m.clone(), 1)] });
        let r = arena.range(t);
        for (bound, sign) in [(r.lo, 1), (r.hi, -1)] {
            let Some(b) = bound else { continue };
            let row = Poly { terms: vec![(m.clone(), sign)] };
            rows.extend(row.add_scaled(&Poly::constant(b), -sign));
        }
    }
    contradiction(rows)
}

fn monomials(p: &Poly) -> BTreeSet<Mono> {
    p.terms.iter().filter(|(m, _)| !m.is_empty()).map(|(m, _)| m.clone()).collect()
}

fn contradiction(mut rows: Vec<Poly>) -> bool {
    loop {
        if rows.iter().any(|r| r.as_const().is_some_and(|c| c < 0)) {
            return true;
        }
        rows.retain(|r| r.as_const().is_none());
        let all: BTreeSet<Mono> = rows.iter().flat_map(monomials).collect();
        // The monomial whose elimination makes the fewest new rows.
        let cost = |m: &Mono| {
            let up = rows.iter().filter(|r| r.coeff(m) > 0).count();
            let down = rows.iter().filter(|r| r.coeff(m) < 0).count();
            up * down
        };
        let Some(m) = all.iter().min_by_key(|m| cost(m)) else { return false };
        if cost(m) + rows.len() > ROWS_MAX {
            return false;
        }
        let (mut next, mut up, mut down) = (Vec::new(), Vec::new(), Vec::new());
        for r in rows {
            match r.coeff(m) {
                0 => next.push(r),
                c if c > 0 => up.push((r, c)),
                c => down.push((r, -c)),
            }
        }
        for (u, a) in &up {
            for (d, b) in &down {
                let g = gcd(*a, *b);
                let sum = Poly::default().add_scaled(u, b / g).and_then(|x| x.add_scaled(d, a / g));
                if let Some(row) = sum.and_then(tighten)
                    && !next.contains(&row)
                {
                    next.push(row);
                }
            }
        }
        rows = next;
    }
}

/// Divides by the common factor of the coefficients; the constant is rounded down. `None` if numbers grow large.
fn tighten(mut p: Poly) -> Option<Poly> {
    let g = p.terms.iter().filter(|(m, _)| !m.is_empty()).fold(0i128, |g, (_, c)| gcd(g, c.abs()));
    if g > 1 {
        p.terms.iter_mut().for_each(|(_, c)| *c = c.div_euclid(g));
        p.terms.retain(|(_, c)| *c != 0);
    }
    p.terms.iter().all(|(_, c)| c.abs() < 1 << 80).then_some(p)
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::{Facts, Node, Sort, VarKind, tests::arena};
    use crate::term::Range;

    #[test]
    fn a_chunk_that_starts_below_the_end_starts_at_zero_or_later() {
        // T = tdiv(63 + tdiv(K + 1, 2), 64) and 64*T + k < K, k >= 0: then 64*T >= 0, whatever the sign of K.
        let mut t = arena();
        let k = t.var(VarKind::Bound, "k", Range { lo: Some(0), hi: None });
        let (k, n) = (t.var_term(k), t.intern(Node::Arg(0), Sort::Int));
        let (c1, c2, c64) = (t.int(1), t.int(2), t.int(64));
        let u = t.add(n, c1);
        let u = t.tdiv(u, c2);
        let u = t.add_const(u, 63);
        let chunk = t.tdiv(u, c64);
        let start = t.scale(chunk, 64);
        let at = t.add(start, k);
        let below = t.lt(at, n);
        let mut facts = Facts::default();
        facts.assume(&mut t, below);
        assert!(facts.proves_hard(&mut t, start));
        // T may be 1.
        let wrong = t.add_const(start, -65);
        assert!(!facts.proves_hard(&mut t, wrong));
    }
}

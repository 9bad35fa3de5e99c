//! Integer polynomials over atoms, in one normal form: no zero coefficients, monomials ascending.

use super::{Arena, Node, Sort, TermId};

/// A product of atoms, ascending, with repetition.
pub type Mono = Vec<TermId>;

/// A sum of monomials times constants.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Poly {
    /// Ascending by monomial; the constant's monomial is empty.
    pub terms: Vec<(Mono, i128)>,
}

impl Poly {
    /// A constant.
    pub fn constant(c: i128) -> Poly {
        Poly { terms: if c == 0 { vec![] } else { vec![(vec![], c)] } }
    }

    /// One atom.
    pub fn atom(t: TermId) -> Poly {
        Poly { terms: vec![(vec![t], 1)] }
    }

    /// The value, if it is a constant.
    pub fn as_const(&self) -> Option<i128> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(m, c)] if m.is_empty() => Some(*c),
            _ => None,
        }
    }

    /// The coefficient of a monomial.
    pub fn coeff(&self, m: &[TermId]) -> i128 {
        self.terms.binary_search_by(|(x, _)| x.as_slice().cmp(m)).map_or(0, |i| self.terms[i].1)
    }

    /// The constant part.
    pub fn constant_part(&self) -> i128 {
        self.coeff(&[])
    }

    /// `self + k * other`; `None` on overflow.
    pub fn add_scaled(&self, other: &Poly, k: i128) -> Option<Poly> {
        let (mut a, mut b) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => return Some(Poly { terms }),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(x), Some(y)) => x.0.cmp(&y.0),
            };
            let (mono, c) = match order {
                std::cmp::Ordering::Less => a.next().cloned()?,
                std::cmp::Ordering::Greater => b.next().map(|(m, c)| Some((m.clone(), c.checked_mul(k)?)))??,
                std::cmp::Ordering::Equal => {
                    let (m, x) = a.next().cloned()?;
                    (m, x.checked_add(b.next()?.1.checked_mul(k)?)?)
                }
            };
            if c != 0 {
                terms.push((mono, c));
            }
        }
    }

    /// The product; `None` on overflow or when it grows beyond a few hundred monomials.
    pub fn mul(&self, other: &Poly) -> Option<Poly> {
        if self.terms.len() * other.terms.len() > 400 {
            return None;
        }
        let mut out = Poly::default();
        for (m, c) in &self.terms {
            let mut part: Vec<(Mono, i128)> = Vec::with_capacity(other.terms.len());
            for (n, d) in &other.terms {
                let mut mono = m.clone();
                mono.extend_from_slice(n);
                mono.sort_unstable();
                part.push((mono, c.checked_mul(*d)?));
            }
            part.sort_unstable();
            out = out.add_scaled(&Poly { terms: part }, 1)?;
        }
        Some(out)
    }
}

impl Arena {
    /// The polynomial of an integer term.
    pub fn poly(&self, t: TermId) -> Poly {
        match self.node(t) {
            Node::Poly(p) => p.clone(),
            _ => Poly::atom(t),
        }
    }

    /// The term of a polynomial.
    pub fn from_poly(&mut self, p: Poly) -> TermId {
        let p = self.join_digits(p);
        if let [(m, 1)] = p.terms.as_slice()
            && let [atom] = m.as_slice()
        {
            return *atom;
        }
        self.intern(Node::Poly(p), Sort::Int)
    }

    /// `k*b*X*Div(a,b) + k*X*Mod(a,b) = k*X*a`, the definition of floor division.
    pub fn join_digits(&self, mut p: Poly) -> Poly {
        'again: loop {
            for (m, c) in &p.terms {
                for (i, &atom) in m.iter().enumerate() {
                    let &Node::Mod(a, b) = self.node(atom) else { continue };
                    let Some(&div) = self.lookup(&Node::Div(a, b)) else { continue };
                    let mut rest = m.clone();
                    rest.remove(i);
                    let bp = self.poly(b);
                    let rest = Poly { terms: vec![(rest, *c)] };
                    let Some(high) = rest.mul(&bp).and_then(|x| x.mul(&Poly::atom(div))) else { continue };
                    if high.terms.is_empty() || !high.terms.iter().all(|(m, c)| p.coeff(m) == *c) {
                        continue;
                    }
                    let low = rest.mul(&Poly::atom(atom));
                    let whole = rest.mul(&self.poly(a));
                    let joined = low
                        .and_then(|low| p.add_scaled(&low, -1))
                        .and_then(|x| x.add_scaled(&high, -1))
                        .and_then(|x| x.add_scaled(&whole?, 1));
                    if let Some(joined) = joined {
                        p = joined;
                        continue 'again;
                    }
                }
            }
            return p;
        }
    }

    fn lookup(&self, node: &Node) -> Option<&TermId> {
        self.index.get(node)
    }
}

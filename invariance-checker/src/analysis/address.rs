//! What an address is made of: which of its parts are numbers that were read, and which only say where such a number lies.

use crate::term::{Arena, Node, TermId, VarId};

/// True if the term contains the variable, and not only to say where something is read.
pub(super) fn outside_of_loads(arena: &Arena, t: TermId, v: VarId) -> bool {
    let mut found = false;
    arena.walk_while(t, |t, n| {
        let inside = arena.contains_var(t, v);
        found |= inside && matches!(n, Node::Var(_));
        inside && !matches!(n, Node::Load(_))
    });
    found
}

/// The pointer of the outermost load that contains `c`, if `c` occurs in the monomial only inside loads.
pub(super) fn only_in_loads(arena: &Arena, m: &[TermId], c: VarId) -> Option<TermId> {
    if m.iter().any(|&t| outside_of_loads(arena, t, c)) {
        return None;
    }
    let mut base = None;
    for &t in m.iter().rev() {
        arena.walk_while(t, |t, n| {
            let inside = arena.contains_var(t, c);
            if let Node::Load(l) = n
                && inside
            {
                base = Some(l.base);
            }
            inside && !matches!(n, Node::Load(_))
        });
    }
    base
}

/// Pointers to the numbers that an address is made of; what says where such a number lies is no part of the address.
pub(super) fn numbers_in(arena: &Arena, offset: TermId) -> Vec<TermId> {
    let mut out = Vec::new();
    arena.walk_while(offset, |_, n| {
        if let Node::Load(l) = n
            && !out.contains(&l.base)
        {
            out.push(l.base);
        }
        !matches!(n, Node::Load(_))
    });
    out
}

/// Arguments and sizes of the grid in an address, but for those that only say where a number in it is read.
pub(super) fn params_of(arena: &Arena, offset: TermId) -> Vec<TermId> {
    let mut out = Vec::new();
    arena.walk_while(offset, |t, n| {
        if matches!(n, Node::Arg(_) | Node::NumPrograms(_)) {
            out.push(t);
        }
        !matches!(n, Node::Load(_))
    });
    out
}

/// What is read in a term.
pub(super) fn loads(arena: &Arena, t: TermId) -> Vec<TermId> {
    let mut out = Vec::new();
    arena.walk(t, |t, n| {
        if matches!(n, Node::Load(_)) {
            out.push(t);
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::{only_in_loads, outside_of_loads};
    use crate::term::{Arena, Load, Node, Range, Sort, VarKind};

    #[test]
    fn shared_parts_of_an_address_are_looked_at_once() {
        let mut a = Arena::new(std::time::Duration::from_secs(10));
        let v = a.var(VarKind::Coord(0), "c0", Range::default());
        let (offset, base) = (a.var_term(v), a.intern(Node::ArgPtr(0), Sort::Data));
        let (mask, other, ty) = (a.bool(true), a.int(0), a.sym("i32"));
        let number = a.load(Load { base, offset, mask, other, ty, volatile: false, epoch: 0 }, Sort::Int);
        // Twice as many ways down at each of 80 levels.
        let doubled = (0..80).fold(number, |t, _| a.op("f", vec![t, t], Sort::Int));
        assert!(!outside_of_loads(&a, doubled, v));
        assert_eq!(only_in_loads(&a, &[doubled], v), Some(base));
        let beside = a.op("f", vec![doubled, offset], Sort::Int);
        assert!(outside_of_loads(&a, beside, v));
        assert_eq!(only_in_loads(&a, &[beside], v), None);
    }
}

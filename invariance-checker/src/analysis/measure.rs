//! Printed conditions against a concrete launch: whether an inequality holds once arguments and grid are numbers.

use crate::term::{Arena, Facts, Node, Sort, TermId};
use std::collections::HashMap;

/// Integer arguments and grid of a launch.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// By argument.
    pub ints: HashMap<u32, i64>,
    /// Programs by axis.
    pub grid: [u32; 3],
}

/// What a launch says about an inequality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It follows.
    Yes,
    /// Some element of the launch breaks it.
    No,
    /// Neither was shown.
    Open,
}

/// Whether `room >= 0` wherever `facts` hold, in a launch with these numbers. Loaded integers may be anything up to `loaded_max`.
pub fn holds(arena: &mut Arena, room: TermId, facts: &Facts, numbers: &Numbers, loaded_max: i64) -> Holds {
    let mut map = crate::term::Map::default();
    for (i, v) in &numbers.ints {
        let from = arena.intern(Node::Arg(*i), Sort::Int);
        map.insert(from, arena.int(i128::from(*v)));
    }
    for (axis, n) in numbers.grid.iter().enumerate() {
        let from = arena.intern(Node::NumPrograms(axis as u8), Sort::Int);
        map.insert(from, arena.int(i128::from(*n)));
    }
    let room = arena.subst(room, &map);
    let mut now = Facts::default();
    let mut known = Vec::new();
    for p in facts.inequalities().to_vec() {
        let t = arena.from_poly(p);
        let t = arena.subst(t, &map);
        let c = arena.ge0(t);
        known.push(t);
        now.assume(arena, c);
    }
    if now.proves_hard(arena, room) {
        return Holds::Yes;
    }
    if broken(arena, room, &known, loaded_max) { Holds::No } else { Holds::Open }
}

/// Looks for values of the variables and loaded numbers that satisfy `known` and make `room` negative.
fn broken(arena: &mut Arena, room: TermId, known: &[TermId], loaded_max: i64) -> bool {
    let mut atoms = Vec::new();
    for &t in known.iter().chain([&room]) {
        arena.walk(t, |t, n| {
            if matches!(n, Node::Var(_) | Node::Load(_)) && !atoms.contains(&t) {
                atoms.push(t);
            }
        });
    }
    let ranges: Vec<(i128, i128)> = atoms
        .iter()
        .map(|&t| {
            let r = arena.range(t);
            let most = if matches!(arena.node(t), Node::Load(_)) { i128::from(loaded_max) } else { 512 };
            let lo = r.lo.unwrap_or(0);
            (lo, r.hi.unwrap_or(most).max(lo).min(lo + 4096))
        })
        .collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..4000 {
        let mut env = HashMap::default();
        for (&t, &(lo, hi)) in atoms.iter().zip(&ranges) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let r = i128::from(state >> 33);
            // Ends of the ranges break bounds more often than what lies between.
            let v = if (r + round) % 3 == 0 { [lo, hi][(r / 3 % 2) as usize] } else { lo + r % (hi - lo + 1) };
            env.insert(t, v);
        }
        let value = |t: TermId| number(arena, t, &env);
        if value(room).is_some_and(|n| n < 0) && known.iter().all(|&t| value(t).is_none_or(|n| n >= 0)) {
            return true;
        }
    }
    false
}

/// The value of an integer term whose variables and loads have values.
fn number(arena: &Arena, t: TermId, env: &HashMap<TermId, i128>) -> Option<i128> {
    if let Some(v) = env.get(&t) {
        return Some(*v);
    }
    let sub = |t: &TermId| number(arena, *t, env);
    let positive = |b: &TermId| sub(b).filter(|b| *b > 0);
    match arena.node(t) {
        Node::Poly(p) => {
            let mut sum = 0i128;
            for (m, c) in &p.terms {
                let mut part = *c;
                for x in m {
                    part = part.checked_mul(sub(x)?)?;
                }
                sum = sum.checked_add(part)?;
            }
            Some(sum)
        }
        Node::Div(a, b) => Some(sub(a)?.div_euclid(positive(b)?)),
        Node::Mod(a, b) => Some(sub(a)?.rem_euclid(positive(b)?)),
        Node::TDiv(a, b) => sub(a)?.checked_div(sub(b)?),
        Node::TRem(a, b) => sub(a)?.checked_rem(sub(b)?),
        Node::Min(a, b) => Some(sub(a)?.min(sub(b)?)),
        Node::Max(a, b) => Some(sub(a)?.max(sub(b)?)),
        _ => None,
    }
}

//! What a stored value depends on, and in which way: loads with the facts that hold at each, arguments by role, coordinates that are
//! used as numbers.

use super::owner::Owner;
use crate::term::Set as HashSet;
use crate::term::{Arena, Facts, Load, Node, Poly, TermId, VarId, VarKind};
use std::collections::{BTreeMap, BTreeSet};

/// How an argument enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Only as a stride or extent of addresses.
    Address,
    /// Moves the start of what is read.
    Shift,
    /// Inside of a computed index (a remainder, a table lookup).
    Index,
    /// A number in the value itself.
    Value,
    /// Decides how many terms there are or which of them count: loop bounds, masks, branches.
    Tree,
}

/// One load with what is known where it is read.
#[derive(Clone, Debug)]
pub struct LoadUse {
    /// The term.
    pub term: TermId,
    /// Its parts.
    pub load: Load,
    /// Facts that hold there, the load's own mask included.
    pub facts: Facts,
    /// Used to compute an address.
    pub in_address: bool,
    /// Used to compute a loop bound, a mask or a branch.
    pub in_tree: bool,
    /// The iteration variable of a store site is not in its address although the value is read again each time.
    pub role: Role,
}

/// The answer of the walk.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Distinct loads.
    pub loads: Vec<LoadUse>,
    /// Arguments (and `num_programs`, descriptor extents) by term, with every role seen.
    pub params: BTreeMap<TermId, BTreeSet<Role>>,
    /// Coordinates used as numbers, and in which role.
    pub indexed: BTreeMap<VarId, BTreeSet<Role>>,
    /// Operations whose undefined lanes reach the value.
    pub undefined: BTreeSet<u32>,
    /// What is not understood: why, operation number.
    pub opaque: BTreeSet<(String, u32)>,
    /// Instance variables that are left.
    pub instances: BTreeSet<VarId>,
    /// Where the row's sequence lies in the batch (or its group in a list, and how many share it) is used as a number: how.
    pub bounds: BTreeSet<Role>,
}

/// A walk over one or more terms.
pub struct Walk<'a> {
    /// Terms.
    pub arena: &'a mut Arena,
    /// The row's sequence, if the prefix-sum rule was used.
    pub owner: Option<Owner>,
    /// Collected so far.
    pub usage: Usage,
    seen: HashSet<(TermId, u64, Role)>,
    /// Terms of the inequalities that are kept with the loads.
    kept: usize,
}

/// More of them end the analysis: each takes some hundred bytes, and is copied.
const KEPT_MAX: usize = 2_000_000;

impl<'a> Walk<'a> {
    /// A fresh walk.
    pub fn new(arena: &'a mut Arena, owner: Option<Owner>) -> Walk<'a> {
        Walk { arena, owner, usage: Usage::default(), seen: HashSet::default(), kept: 0 }
    }

    /// Visits `t`, which is used in `role` where `facts` hold.
    pub fn visit(&mut self, t: TermId, facts: &Facts, role: Role) {
        if !self.seen.insert((t, facts.scope(), role)) || self.arena.stopped() {
            return;
        }
        if self.owner.as_ref().is_some_and(|o| o.is_bound(t)) {
            self.usage.bounds.insert(role);
            return;
        }
        let node = self.arena.node(t).clone();
        if is_param(self.arena, t) {
            self.param(t, role);
            return;
        }
        match node {
            Node::Var(v) => self.variable(v, role),
            Node::Poly(p) => self.poly(&p, facts, role),
            Node::Load(l) => self.load(t, l, facts, role),
            Node::Undef(n) => {
                self.usage.undefined.insert(n);
            }
            Node::Opaque(why, n, args) => {
                let why = self.arena.text(why).to_owned();
                self.usage.opaque.insert((why, n));
                args.iter().for_each(|&a| self.visit(a, facts, role));
            }
            Node::Ite(c, a, b) => {
                self.visit(c, facts, role.max(Role::Tree));
                if !self.arena.says_numbers(c) {
                    self.visit(a, facts, role);
                    self.visit(b, facts, role);
                    return;
                }
                let yes = facts.with(self.arena, c);
                let not = self.arena.not(c);
                let no = facts.with(self.arena, not);
                self.visit(a, &yes, role);
                self.visit(b, &no, role);
            }
            Node::Fold(f) => {
                self.visit(f.trip, facts, Role::Tree);
                if let Some(c) = f.while_cond {
                    self.visit(c, facts, Role::Tree);
                }
                let n = self.arena.var_term(f.binder);
                let inner = match f.while_cond {
                    None => {
                        let running = self.arena.lt(n, f.trip);
                        let started = self.arena.ge0(n);
                        let both = self.arena.and([running, started]);
                        facts.with(self.arena, both)
                    }
                    Some(_) => facts.clone(),
                };
                for s in &f.slots {
                    self.visit(s.init, facts, role);
                    self.visit(s.body, &inner, role);
                }
            }
            // Elements of carried tensors are named, not computed with.
            Node::Carry(..) => {}
            node => {
                let mut parts = Vec::new();
                crate::term::children(&node, |c| parts.push(c));
                parts.into_iter().for_each(|c| self.visit(c, facts, role));
            }
        }
    }

    fn variable(&mut self, v: VarId, role: Role) {
        let kind = self.arena.vars[v.0 as usize].kind;
        match kind {
            VarKind::Coord(_) => {
                self.usage.indexed.entry(v).or_default().insert(role);
            }
            k if k.is_instance() => {
                self.usage.instances.insert(v);
            }
            _ => {}
        }
    }

    fn param(&mut self, t: TermId, role: Role) {
        let mut atoms = Vec::new();
        self.arena.walk(t, |t, n| {
            if matches!(n, Node::Arg(_) | Node::NumPrograms(_)) {
                atoms.push(t);
            }
        });
        for a in atoms {
            self.usage.params.entry(a).or_default().insert(role);
        }
    }

    fn poly(&mut self, p: &Poly, facts: &Facts, role: Role) {
        let skip = self.relative_atoms(p);
        for (m, _) in &p.terms {
            for &t in m {
                // A position within the sequence or its length is the row's own.
                if !skip.contains(&t) {
                    self.visit(t, facts, role);
                }
            }
        }
    }

    /// The row coordinate and the bounds of its sequence, where they occur only as differences.
    fn relative_atoms(&self, p: &Poly) -> Vec<TermId> {
        let Some(o) = &self.owner else { return vec![] };
        let atoms = o.relative();
        let sum: i128 = atoms.iter().map(|a| p.coeff(&[*a])).sum();
        let alone = p.terms.iter().all(|(m, _)| m.len() < 2 || !m.iter().any(|t| atoms.contains(t)));
        if sum == 0 && alone { atoms } else { vec![] }
    }

    fn note_load(&mut self, t: TermId, load: Load, facts: &Facts, role: Role) {
        let inner = facts.with(self.arena, load.mask);
        let in_address = role == Role::Index;
        let in_tree = role == Role::Tree;
        if let Some(known) = self.usage.loads.iter_mut().find(|u| u.term == t) {
            known.in_address |= in_address;
            known.in_tree |= in_tree;
            // Facts differ between the places; both must do, so the second use is kept as well.
        }
        self.kept += inner.inequalities().iter().map(|p| p.terms.len()).sum::<usize>();
        if self.kept > KEPT_MAX {
            self.arena.exhausted.get_or_insert_with(|| "more masked loads than can be followed".into());
        }
        self.usage.loads.push(LoadUse { term: t, load, facts: inner, in_address, in_tree, role });
    }

    fn load(&mut self, t: TermId, l: Load, facts: &Facts, role: Role) {
        self.note_load(t, l, facts, role);
        self.visit(l.mask, facts, Role::Tree);
        if self.arena.as_bool(l.mask) != Some(true) {
            let not = self.arena.not(l.mask);
            let outer = facts.with(self.arena, not);
            self.visit(l.other, &outer, role);
        }
        let inner = facts.with(self.arena, l.mask);
        if !matches!(self.arena.node(l.base), Node::ArgPtr(_)) {
            self.visit(l.base, &inner, Role::Index);
        }
        self.address(l.offset, &inner);
    }

    /// An address: parameters are strides where they multiply an index, and shifts where they stand alone.
    fn address(&mut self, offset: TermId, facts: &Facts) {
        let p = self.arena.poly(offset);
        for (m, _) in &p.terms {
            let (params, index): (Vec<TermId>, Vec<TermId>) = m.iter().partition(|&&t| is_param(self.arena, t));
            if index.is_empty() {
                let plane = params.is_empty() || self.is_plane(&p, &params, facts);
                let role = if plane { Role::Address } else { Role::Shift };
                params.iter().for_each(|&t| self.param(t, role));
                continue;
            }
            params.iter().for_each(|&t| self.param(t, Role::Address));
            // Data of the row's sequence: the home rule looks at it.
            if let ([t], Some(o)) = (index.as_slice(), &self.owner)
                && o.is_bound(*t)
                && !o.group
            {
                continue;
            }
            for &t in &index {
                if !matches!(self.arena.node(t), Node::Var(_)) {
                    self.visit(t, facts, Role::Index);
                } else {
                    self.instance_only(t);
                }
            }
        }
    }

    fn instance_only(&mut self, t: TermId) {
        if let Node::Var(v) = *self.arena.node(t)
            && self.arena.vars[v.0 as usize].kind.is_instance()
        {
            self.usage.instances.insert(v);
        }
    }

    /// True if the monomials that `stride` divides are whole planes of that size: the others stay within `0..stride`.
    fn is_plane(&mut self, p: &Poly, stride: &[TermId], facts: &Facts) -> bool {
        let low: Vec<_> = p.terms.iter().filter(|(m, _)| !stride.iter().all(|s| m.contains(s))).cloned().collect();
        if low.is_empty() {
            return false;
        }
        let low = self.arena.from_poly(Poly { terms: low });
        let size = self.arena.from_poly(Poly { terms: vec![(stride.to_vec(), 1)] });
        let room = self.arena.sub(size, low);
        let room = self.arena.add_const(room, -1);
        facts.proves(self.arena, low) && facts.proves(self.arena, room)
    }
}

/// A term of arguments and constants alone.
pub fn is_param(arena: &Arena, t: TermId) -> bool {
    arena.free_vars(t).is_empty()
        && !arena.any(t, |n| {
            !matches!(
                n,
                Node::Poly(_)
                    | Node::Arg(_)
                    | Node::NumPrograms(_)
                    | Node::Div(..)
                    | Node::Mod(..)
                    | Node::TDiv(..)
                    | Node::TRem(..)
                    | Node::Min(..)
                    | Node::Max(..)
                    | Node::Op(..)
                    | Node::Ite(..)
                    | Node::Ge0(_)
                    | Node::Eq0(_)
                    | Node::Not(_)
                    | Node::And(_)
                    | Node::Or(_)
                    | Node::Bool(_)
                    | Node::Const(..)
            )
        })
}

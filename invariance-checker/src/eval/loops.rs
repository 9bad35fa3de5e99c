//! Loops: induction variables in closed form, everything else as folds over the carried scalars that are needed.

use super::{Ctx, Evaluator, Level, LoopId, Mode, OpRef};
use crate::ir::{OpKind, Terminator, Value};
use crate::term::Map as HashMap;

use crate::term::{Fold, Node, Range, Slot, Sort, TermId, VarId, VarKind};

/// A fold with more carried scalars than this is not followed.
const SLOTS_MAX: usize = 96;

/// The parts of an `scf.for`.
struct ForParts<'m> {
    lo: Value,
    hi: Value,
    step: Value,
    inits: &'m [Value],
    yields: &'m [Value],
    unsigned: bool,
}

impl<'m> Evaluator<'m> {
    fn for_parts(&self, id: LoopId) -> Option<ForParts<'m>> {
        let op: OpRef<'m> = self.tables.loops[id.0 as usize];
        match &op.op.kind {
            OpKind::For { lo, hi, step, inits, body, unsigned } => {
                Some(ForParts { lo: *lo, hi: *hi, step: *step, inits, yields: body.yields(), unsigned: *unsigned })
            }
            _ => None,
        }
    }

    /// A context inside the loop.
    fn enter(&mut self, parent: Ctx, id: LoopId, mode: Mode) -> (Ctx, VarId) {
        // One variable for each (parent, loop, mode): the numbers of loops and operations do not meet because of the offset.
        let number = 0x4000_0000 + id.0 * 4 + mode as u32;
        let n = self.binder(parent, number, "n", None);
        if mode == Mode::Instance {
            self.arena.vars[n.0 as usize].kind = VarKind::Iter(id.0);
        }
        (self.level(Level::Loop { parent, id, n, mode }), n)
    }

    /// The context of the stores inside a loop, with its iteration variable.
    pub(super) fn enter_instance(&mut self, parent: Ctx, id: LoopId) -> (Ctx, VarId) {
        self.enter(parent, id, Mode::Instance)
    }

    /// Number of iterations; may be negative, which means none.
    pub fn trip(&mut self, parent: Ctx, id: LoopId) -> TermId {
        let Some(p) = self.for_parts(id) else {
            return self.arena.opaque("trip count of a while loop", id.0, vec![], Sort::Int);
        };
        let (lo, hi, step) =
            (self.eval(parent, p.lo, &[]), self.eval(parent, p.hi, &[]), self.eval(parent, p.step, &[]));
        if p.unsigned && [lo, hi].iter().any(|&t| self.arena.range(t).lo.is_none_or(|x| x < 0)) {
            return self.arena.opaque("unsigned loop bound", id.0, vec![lo, hi, step], Sort::Int);
        }
        let span = self.arena.sub(hi, lo);
        let step_const = self.arena.as_int(step);
        let (base, rest) = match self.arena.node(hi) {
            // Truncating and floor division differ only below zero, where neither loop runs.
            &Node::TDiv(a, b) if step_const == Some(1) && self.arena.as_int(lo) == Some(0) => {
                match self.arena.as_int(b) {
                    Some(c) if c > 0 => (self.arena.div(a, b), true),
                    _ => (span, false),
                }
            }
            _ => (span, false),
        };
        if rest { base } else { self.arena.ceil_div(base, step) }
    }

    pub(super) fn iv(&mut self, ctx: Ctx, id: LoopId) -> TermId {
        let (Level::Loop { parent, n, .. }, Some(p)) = (self.levels[ctx.0 as usize].clone(), self.for_parts(id)) else {
            return self.arena.opaque("induction variable", id.0, vec![], Sort::Int);
        };
        let (lo, step) = (self.eval(parent, p.lo, &[]), self.eval(parent, p.step, &[]));
        let n = self.arena.var_term(n);
        let way = self.arena.mul(n, step);
        self.arena.add(lo, way)
    }

    pub(super) fn carried(&mut self, ctx: Ctx, id: LoopId, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        let Level::Loop { parent, n, mode, .. } = self.levels[ctx.0 as usize].clone() else {
            return self.arena.opaque("carried value outside of its loop", id.0, vec![], sort);
        };
        let raw = |e: &mut Self| e.arena.intern(Node::Carry(n, k as u32, idx.to_vec()), sort);
        if mode == Mode::Probe {
            return raw(self);
        }
        if self.for_parts(id).is_some()
            && let Some(inc) = self.closed_form(parent, id, k, idx)
        {
            let n = self.arena.var_term(n);
            return self.advance(parent, id, k, idx, inc, n);
        }
        match (mode, self.for_parts(id).is_some()) {
            (Mode::Instance, true) => {
                let n = self.arena.var_term(n);
                self.fold_out(parent, id, k, idx, sort, n)
            }
            (Mode::Instance, false) => {
                let deps = self.instance_terms(ctx);
                self.arena.opaque("store inside scf.while", id.0, deps, sort)
            }
            _ => raw(self),
        }
    }

    /// `init + n * inc`, for integers and pointers.
    fn advance(&mut self, parent: Ctx, id: LoopId, k: usize, idx: &[TermId], inc: TermId, n: TermId) -> TermId {
        let init = self.for_parts(id).expect("closed forms are of scf.for").inits[k];
        let init = self.eval(parent, init, idx);
        let way = self.arena.mul(n, inc);
        match *self.arena.node(init) {
            Node::Ptr(base, off) => {
                let off = self.arena.add(off, way);
                self.arena.ptr(base, off)
            }
            _ if self.arena.sort(init) == Sort::Data => self.arena.ptr(init, way),
            _ => self.arena.add(init, way),
        }
    }

    /// The amount that a carried integer or pointer grows by in every iteration, if it is the same in each.
    fn closed_form(&mut self, parent: Ctx, id: LoopId, k: usize, idx: &[TermId]) -> Option<TermId> {
        let p = self.for_parts(id)?;
        let ty = self.ty(parent, p.inits[k]).elem();
        let pointer = matches!(ty, Some(crate::ir::Elem::Ptr { .. }));
        let float = matches!(ty, Some(crate::ir::Elem::Scalar(s)) if s.is_float() || s == crate::ir::Scalar::BOOL);
        if float || ty.is_none() {
            return None;
        }
        let key = (parent, id, k, idx.to_vec());
        if let Some(&known) = self.closed.get(&key) {
            return known;
        }
        let (probe, n) = self.enter(parent, id, Mode::Probe);
        let sort = if pointer { Sort::Data } else { Sort::Int };
        let before = self.arena.intern(Node::Carry(n, k as u32, idx.to_vec()), sort);
        let after = self.eval(probe, p.yields[k], idx);
        let inc = if pointer {
            match *self.arena.node(after) {
                Node::Ptr(base, off) if base == before => Some(off),
                _ if after == before => Some(self.arena.int(0)),
                _ => None,
            }
        } else {
            Some(self.arena.sub(after, before))
        };
        let inc = inc.filter(|&inc| !self.arena.contains_var(inc, n));
        self.closed.insert(key, inc);
        inc
    }

    /// The value of a carried element after `trip` iterations.
    pub(super) fn fold_out(
        &mut self,
        parent: Ctx,
        id: LoopId,
        k: usize,
        idx: &[TermId],
        sort: Sort,
        trip: TermId,
    ) -> TermId {
        if let Some(inc) = self.closed_form(parent, id, k, idx) {
            let zero = self.arena.int(0);
            let n = self.arena.max(trip, zero);
            return self.advance(parent, id, k, idx, inc, n);
        }
        let p = self.for_parts(id).expect("scf.for");
        let (body, n) = self.enter(parent, id, Mode::Bound);
        let first = (k, idx.to_vec());
        match self.slots(n, first, |e, k, at| {
            let init = e.eval(parent, p.inits[k], at);
            (init, e.eval(body, p.yields[k], at))
        }) {
            Ok(slots) if is_idle(self, &slots[0], n) => slots[0].init,
            Ok(slots) => self.arena.fold(Fold { binder: n, trip, while_cond: None, slots }, sort),
            Err(why) => {
                let deps = self.instance_terms(parent);
                self.arena.opaque(why, 0x1000 + id.0, deps, sort)
            }
        }
    }

    /// The carried scalars that `first` needs, transitively, numbered in the order of discovery.
    fn slots(
        &mut self,
        n: VarId,
        first: (usize, Vec<TermId>),
        mut parts: impl FnMut(&mut Self, usize, &[TermId]) -> (TermId, TermId),
    ) -> Result<Vec<Slot>, &'static str> {
        let mut wanted = vec![first];
        let mut slots: Vec<Slot> = Vec::new();
        while slots.len() < wanted.len() {
            let (k, at) = wanted[slots.len()].clone();
            let (init, body) = parts(self, k, &at);
            self.want(n, body, &mut wanted)?;
            slots.push(Slot { carried: k as u32, init, body });
            if slots.len() > SLOTS_MAX {
                return Err("a loop that carries its values between lanes");
            }
            if self.arena.stopped_now() {
                return Err("stopped");
            }
        }
        self.number(n, &wanted, &mut slots);
        Ok(slots)
    }

    /// Names each carried scalar by its slot, so that where in the block it lies is no longer part of the term.
    fn number(&mut self, n: VarId, wanted: &[(usize, Vec<TermId>)], slots: &mut [Slot]) -> HashMap<TermId, TermId> {
        let mut map = HashMap::default();
        for (i, (k, at)) in wanted.iter().enumerate() {
            let sort = self.arena.sort(slots[i].body);
            let from = self.arena.intern(Node::Carry(n, *k as u32, at.clone()), sort);
            let to = self.arena.intern(Node::Carry(n, i as u32, vec![]), sort);
            map.insert(from, to);
        }
        let mut memo = HashMap::default();
        for s in slots {
            s.body = self.arena.subst_memo(s.body, &map, &mut memo);
        }
        map
    }

    /// Adds the carried scalars that `body` reads.
    fn want(&mut self, n: VarId, body: TermId, wanted: &mut Vec<(usize, Vec<TermId>)>) -> Result<(), &'static str> {
        let mut found = Vec::new();
        self.arena.walk(body, |_, node| {
            if let Node::Carry(v, k, at) = node
                && *v == n
            {
                found.push((*k as usize, at.clone()));
            }
        });
        for (k, at) in found {
            // An element chosen by a lane of a reduction or by the iteration is not one scalar.
            let free = at.iter().flat_map(|&t| self.arena.free_vars(t).to_vec()).collect::<Vec<_>>();
            if free.iter().any(|v| *v == n || !self.arena.contains_var(body, *v)) {
                return Err("a carried tensor is read across its lanes");
            }
            if !wanted.contains(&(k, at.clone())) {
                wanted.push((k, at));
            }
        }
        Ok(())
    }

    pub(super) fn for_result(&mut self, ctx: Ctx, op: OpRef<'m>, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        let id = self.tables.loop_of(op.number).expect("loops are numbered");
        let trip = self.trip(ctx, id);
        self.fold_out(ctx, id, k, idx, sort, trip)
    }

    pub(super) fn after(&mut self, ctx: Ctx, id: LoopId, k: usize, idx: &[TermId]) -> TermId {
        let op = self.tables.loops[id.0 as usize];
        let OpKind::While { before, .. } = &op.op.kind else { unreachable!("only while loops have a second region") };
        match &before.end {
            Terminator::Condition { args, .. } => self.eval(ctx, args[k], idx),
            _ => self.arena.opaque("scf.while without a condition", id.0, vec![], Sort::Data),
        }
    }

    pub(super) fn while_result(&mut self, ctx: Ctx, op: OpRef<'m>, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        let id = self.tables.loop_of(op.number).expect("loops are numbered");
        let OpKind::While { inits, before, after } = &op.op.kind else { unreachable!("only while loops come here") };
        let Terminator::Condition { cond, args } = &before.end else {
            return self.arena.opaque("scf.while without a condition", op.number, vec![], sort);
        };
        let (body, n) = self.enter(ctx, id, Mode::Bound);
        let cond = self.eval(body, *cond, &[]);
        let out = self.eval(body, args[k], idx);
        let Node::Carry(v, first, at) = self.arena.node(out).clone() else {
            let deps = self.instance_terms(ctx);
            return self.arena.opaque("scf.while that computes its result", op.number, deps, sort);
        };
        if v != n {
            return out;
        }
        let mut wanted = vec![(first as usize, at)];
        if let Err(why) = self.want(n, cond, &mut wanted) {
            let deps = self.instance_terms(ctx);
            return self.arena.opaque(why, op.number, deps, sort);
        }
        let mut slots: Vec<Slot> = Vec::new();
        while slots.len() < wanted.len() {
            let (k, at) = wanted[slots.len()].clone();
            let init = self.eval(ctx, inits[k], &at);
            let next = self.eval(body, after.yields()[k], &at);
            if let Err(why) = self.want(n, next, &mut wanted) {
                let deps = self.instance_terms(ctx);
                return self.arena.opaque(why, op.number, deps, sort);
            }
            slots.push(Slot { carried: k as u32, init, body: next });
            if slots.len() > SLOTS_MAX || self.arena.stopped_now() {
                return self.arena.opaque("a loop that carries its values between lanes", op.number, vec![], sort);
            }
        }
        let map = self.number(n, &wanted, &mut slots);
        let cond = self.arena.subst(cond, &map);
        let trip = self.arena.int(0);
        self.arena.fold(Fold { binder: n, trip, while_cond: Some(cond), slots }, sort)
    }

    /// Range of an iteration variable of a store: kept as a fact by the site, since the bound is a term.
    pub(super) fn iteration_facts(&mut self, parent: Ctx, id: LoopId, n: VarId) -> TermId {
        self.arena.vars[n.0 as usize].range = Range { lo: Some(0), hi: None };
        let trip = self.trip(parent, id);
        let n = self.arena.var_term(n);
        self.arena.lt(n, trip)
    }
}

/// The carried value never changes.
fn is_idle(e: &mut Evaluator<'_>, slot: &Slot, n: VarId) -> bool {
    let same = e.arena.intern(Node::Carry(n, 0, vec![]), e.arena.sort(slot.body));
    same == slot.body
}

//! Loads, descriptors, atomics: what is read, under which mask, and what is not a function of its inputs.

use super::{Ctx, Def, Evaluator, Level, OpRef, scalar_sort};
use crate::ir::{Elem, OpKind, Scalar, Type, Value};
use crate::term::{Load, Node, Sort, TermId};

/// A tensor descriptor, taken apart.
pub(super) struct Desc {
    /// Base pointer.
    pub base: TermId,
    /// Offset of the base.
    pub offset: TermId,
    /// Extents.
    pub shape: Vec<TermId>,
    /// Strides in elements.
    pub strides: Vec<TermId>,
    /// Lanes outside load as NaN.
    pub nan: bool,
}

impl<'m> Evaluator<'m> {
    /// Base and offset of a pointer term.
    pub fn pointer(&mut self, t: TermId) -> (TermId, TermId) {
        match *self.arena.node(t) {
            Node::Ptr(base, off) => (base, off),
            _ => (t, self.arena.int(0)),
        }
    }

    pub(super) fn load(&mut self, ctx: Ctx, op: OpRef<'m>, idx: &[TermId]) -> TermId {
        let OpKind::Load { ptr, mask, other, volatile } = &op.op.kind else { unreachable!("only loads come here") };
        let ty = self.ty(ctx, op.op.results[0]);
        let Some(elem) = ty.elem() else {
            return self.arena.opaque("load of a block pointer", op.number, vec![], Sort::Data);
        };
        let p = self.eval(ctx, *ptr, idx);
        let mask = match mask {
            Some(m) => self.eval(ctx, *m, idx),
            None => self.arena.bool(true),
        };
        let other = match other {
            Some(v) => self.eval(ctx, *v, idx),
            None => {
                let sort = super::sort_of(ty);
                self.arena.intern(Node::Undef(op.number), sort)
            }
        };
        self.read_chosen(ctx, op.number, p, (mask, other), (elem, *volatile))
    }

    /// What is read through a pointer that a condition chooses is chosen by it: `*(c ? p : q)` is `c ? *p : *q`.
    fn read_chosen(
        &mut self,
        ctx: Ctx,
        number: u32,
        p: TermId,
        (mask, other): (TermId, TermId),
        (elem, volatile): (Elem, bool),
    ) -> TermId {
        if let Node::Ite(c, p, q) = *self.arena.node(p) {
            let not = self.arena.not(c);
            let sides = [(p, c), (q, not)].map(|(p, c)| {
                let mask = self.arena.and([mask, c]);
                self.read_chosen(ctx, number, p, (mask, other), (elem, volatile))
            });
            return self.arena.ite(c, sides[0], sides[1]);
        }
        let at = self.pointer(p);
        self.read(ctx, number, at, mask, other, elem, volatile)
    }

    #[allow(clippy::too_many_arguments)]
    fn read(
        &mut self,
        ctx: Ctx,
        number: u32,
        (base, offset): (TermId, TermId),
        mask: TermId,
        other: TermId,
        elem: Elem,
        volatile: bool,
    ) -> TermId {
        let sort = match elem {
            Elem::Scalar(s) => scalar_sort(s),
            Elem::Ptr { .. } => Sort::Data,
        };
        let written = match self.arena.node(base) {
            Node::ArgPtr(i) => self.written.contains(i),
            // A pointer of unknown origin may be anything that the kernel writes.
            _ => !self.written.is_empty() && !self.is_loaded_pointer(base),
        };
        if written && !matches!(self.levels[self.frame(ctx).0 as usize], Level::Frame { args: None, .. }) {
            let deps = self.instance_terms(ctx);
            return self.arena.opaque("a called function reads memory that the kernel writes", number, deps, sort);
        }
        let ty = self.arena.sym(&elem.to_string());
        let epoch = if written { 1 + number } else { 0 };
        self.arena.load(Load { base, offset, mask, other, ty, volatile, epoch }, sort)
    }

    /// A pointer that was itself read from memory: assumed not to alias any argument. One made of an argument is none, whatever else was read.
    fn is_loaded_pointer(&self, base: TermId) -> bool {
        let (mut loaded, mut other) = (false, false);
        self.arena.walk_while(base, |_, n| {
            loaded |= matches!(n, Node::Load(_));
            other |= matches!(n, Node::ArgPtr(_) | Node::Carry(..) | Node::Opaque(..));
            !matches!(n, Node::Load(_))
        });
        loaded && !other
    }

    fn frame(&self, ctx: Ctx) -> Ctx {
        match &self.levels[ctx.0 as usize] {
            Level::Frame { .. } => ctx,
            Level::Loop { parent, .. } => self.frame(*parent),
        }
    }

    /// Follows a descriptor value to where it was made.
    pub(super) fn descriptor(&mut self, ctx: Ctx, v: Value) -> Option<Desc> {
        let function = self.function_of(ctx);
        let (def, inside) = self.tables.functions[function].values[v.0 as usize];
        let ctx = self.climb(ctx, inside);
        match def {
            Def::Result(op, _) => match &op.op.kind {
                OpKind::MakeDesc { base, shape, strides, padding_nan } => {
                    let p = self.eval(ctx, *base, &[]);
                    let (base, offset) = self.pointer(p);
                    let shape = shape.iter().map(|v| self.eval(ctx, *v, &[])).collect();
                    let strides = strides.iter().map(|v| self.eval(ctx, *v, &[])).collect();
                    Some(Desc { base, offset, shape, strides, nan: *padding_nan })
                }
                _ => None,
            },
            Def::Param(i) => match self.levels[ctx.0 as usize].clone() {
                Level::Frame { args: Some((caller, args)), .. } => self.descriptor(caller, args[i]),
                _ => self.host_descriptor(ctx, i, v),
            },
            Def::Carried(id, k) => {
                // A descriptor that a loop passes along unchanged.
                let OpKind::For { inits, body, .. } = &self.tables.loops[id.0 as usize].op.kind else { return None };
                let Level::Loop { parent, .. } = self.levels[ctx.0 as usize].clone() else { return None };
                (body.yields()[k] == v).then(|| self.descriptor(parent, inits[k]))?
            }
            _ => None,
        }
    }

    /// A descriptor argument: extents and strides are the host's, named by argument and dimension.
    fn host_descriptor(&mut self, ctx: Ctx, i: usize, v: Value) -> Option<Desc> {
        let Type::Desc { block, .. } = self.ty(ctx, v) else { return None };
        let base = self.arena.intern(Node::ArgPtr(i as u32), Sort::Data);
        let arg = self.arena.intern(Node::Arg(i as u32), Sort::Int);
        let offset = self.arena.int(0);
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        for d in 0..block.len() {
            shape.push(self.arena.op(&format!("desc.shape {d}"), vec![arg], Sort::Int));
            let last = d + 1 == block.len();
            let stride = self.arena.op(&format!("desc.stride {d}"), vec![arg], Sort::Int);
            strides.push(if last { self.arena.int(1) } else { stride });
        }
        Some(Desc { base, offset, shape, strides, nan: false })
    }

    /// Offset and in-bounds mask of an element of a descriptor's block.
    pub(super) fn desc_element(&mut self, desc: &Desc, at: &[TermId]) -> (TermId, TermId) {
        let mut offset = desc.offset;
        let mut mask = self.arena.bool(true);
        for (d, &x) in at.iter().enumerate() {
            let way = self.arena.mul(x, desc.strides[d]);
            offset = self.arena.add(offset, way);
            let low = self.arena.ge0(x);
            let high = self.arena.lt(x, desc.shape[d]);
            mask = self.arena.and([mask, low, high]);
        }
        (offset, mask)
    }

    /// Coordinates of element `idx` of the block that starts at `starts`.
    pub(super) fn desc_coords(&mut self, ctx: Ctx, starts: &[Value], idx: &[TermId]) -> Option<Vec<TermId>> {
        let skipped = starts.len().checked_sub(idx.len())?;
        let mut out = Vec::new();
        for (d, v) in starts.iter().enumerate() {
            let s = self.eval(ctx, *v, &[]);
            out.push(if d < skipped { s } else { self.arena.add(s, idx[d - skipped]) });
        }
        Some(out)
    }

    pub(super) fn desc_load(&mut self, ctx: Ctx, op: OpRef<'m>, idx: &[TermId], sort: Sort) -> TermId {
        let (desc, at) = match &op.op.kind {
            OpKind::DescLoad { desc, indices } => (self.descriptor(ctx, *desc), self.desc_coords(ctx, indices, idx)),
            OpKind::DescGather { desc, rows, column } => {
                let row = self.eval(ctx, *rows, &idx[..1]);
                let col = self.eval(ctx, *column, &[]);
                let col = self.arena.add(col, idx[1]);
                (self.descriptor(ctx, *desc), Some(vec![row, col]))
            }
            _ => unreachable!("only descriptor loads come here"),
        };
        let elem = self.ty(ctx, op.op.results[0]).scalar_elem();
        let (Some(desc), Some(at), Some(elem)) = (desc, at, elem) else {
            return self.arena.opaque("a descriptor that could not be traced", op.number, vec![], sort);
        };
        if desc.strides.len() != at.len() {
            return self.arena.opaque("a descriptor of another rank", op.number, vec![], sort);
        }
        let (offset, mask) = self.desc_element(&desc, &at);
        let other = match desc.nan {
            true => self.arena.intern(Node::Undef(op.number), sort),
            false => self.zero(elem),
        };
        self.read(ctx, op.number, (desc.base, offset), mask, other, Elem::Scalar(elem), false)
    }

    /// Zero of a scalar type.
    pub(super) fn zero(&mut self, elem: Scalar) -> TermId {
        match scalar_sort(elem) {
            Sort::Bool => self.arena.bool(false),
            Sort::Int => self.arena.int(0),
            Sort::Data => self.arena.float(&elem.to_string(), 0),
        }
    }

    /// The result of an atomic: whatever the schedule made it.
    pub(super) fn atomic_result(&mut self, ctx: Ctx, op: OpRef<'m>, idx: &[TermId], sort: Sort) -> TermId {
        let mut deps = self.instance_terms(ctx);
        deps.extend_from_slice(idx);
        self.arena.opaque("atomic result", op.number, deps, sort)
    }
}

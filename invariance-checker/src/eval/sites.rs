//! Effects: every store and atomic of the kernel, with address, value and guard as terms over its instance variables.

use super::tensor::{pointee, store_shape};
use super::{Ctx, Evaluator, OpRef};
use crate::ir::{AtomicOp, Block, OpKind, Scalar, Value};
use crate::term::{Node, Range, Sort, TermId, VarId, VarKind};

/// What a site does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// A plain store.
    Store,
    /// An atomic read-modify-write (also a descriptor reduction).
    Atomic(AtomicOp),
}

/// A store of one element, by instance.
#[derive(Clone, Debug)]
pub struct Site<'m> {
    /// The operation.
    pub op: OpRef<'m>,
    /// Position in program order.
    pub order: u32,
    /// Store or atomic.
    pub kind: SiteKind,
    /// Pointer argument or opaque base.
    pub base: TermId,
    /// In elements.
    pub offset: TermId,
    /// What is written.
    pub value: TermId,
    /// When it is written.
    pub guard: TermId,
    /// Type of what is written.
    pub elem: Option<Scalar>,
    /// Block-local index variables.
    pub indices: Vec<VarId>,
    /// Iteration variables of the loops around it.
    pub iterations: Vec<VarId>,
}

impl Site<'_> {
    /// Writes floating-point numbers.
    pub fn is_float(&self) -> bool {
        self.elem.is_none_or(|e| e.is_float())
    }
}

/// Something the kernel does that is not a store.
#[derive(Clone, Debug)]
pub struct Effect<'m> {
    /// The operation.
    pub op: OpRef<'m>,
    /// What it is.
    pub what: String,
}

/// All that a kernel does.
#[derive(Clone, Debug, Default)]
pub struct Effects<'m> {
    /// In program order.
    pub sites: Vec<Site<'m>>,
    /// Effects that the analysis does not follow.
    pub unknown: Vec<Effect<'m>>,
    /// What `llvm.intr.assume` states (scalars).
    pub assumed: Vec<TermId>,
    /// Loads by operation number: position in program order and the numbers of the loops around.
    pub load_order: crate::term::Map<u32, (u32, Vec<u32>)>,
    /// Loops around each site, by position.
    pub site_loops: Vec<Vec<u32>>,
}

/// Where the walk is.
#[derive(Clone)]
struct Place {
    ctx: Ctx,
    guard: TermId,
    iterations: Vec<VarId>,
    loops: Vec<u32>,
    depth: u32,
    in_while: bool,
}

impl<'m> Evaluator<'m> {
    /// Finds the pointer arguments that are written, then all effects.
    pub fn effects(&mut self) -> Option<Effects<'m>> {
        let (ctx, function) = self.kernel_ctx()?;
        let mut out = Effects::default();
        let guard = self.arena.bool(true);
        let place = Place { ctx, guard, iterations: vec![], loops: vec![], depth: 0, in_while: false };
        // First walk: only which bases are written, with loads taken as if nothing was. Nothing of it is kept.
        self.walk_function(function, &place, &mut out);
        for s in &out.sites {
            self.arena.walk(s.base, |_, n| {
                if let Node::ArgPtr(i) = n {
                    self.written.insert(*i);
                }
            });
            if !matches!(self.arena.node(s.base), Node::ArgPtr(_)) {
                // A base that is not an argument may be any of them.
                let n = self.tables.functions[function].function.params.len() as u32;
                self.written.extend(0..n);
            }
        }
        self.memo.clear();
        self.closed.clear();
        self.paths.clear();
        let mut out = Effects::default();
        let guard = self.arena.bool(true);
        let place = Place { guard, ..place };
        self.walk_function(function, &place, &mut out);
        Some(out)
    }

    fn walk_function(&mut self, function: usize, place: &Place, out: &mut Effects<'m>) {
        let f = self.tables.functions[function].function;
        if self.tables.functions[function].cyclic {
            if let Some(op) = f.blocks.iter().flat_map(|b| b.ops.first()).next() {
                let op = self.tables.op_ref(op);
                out.unknown.push(Effect { op, what: "a loop in the control-flow graph".into() });
            }
            return;
        }
        for id in self.tables.functions[function].in_order() {
            let path = self.path_condition(place.ctx, id);
            let guard = self.arena.and([place.guard, path]);
            self.walk_block(f.block(id), &Place { guard, ..place.clone() }, out);
        }
    }

    fn walk_block(&mut self, block: &'m Block, place: &Place, out: &mut Effects<'m>) {
        for op in &block.ops {
            let op = self.tables.op_ref(op);
            if self.arena.stopped() {
                return;
            }
            self.walk_op(op, place, out);
        }
        if let crate::ir::Terminator::Unknown(op) = &block.end {
            out.unknown.push(Effect {
                op: OpRef { op, number: u32::MAX },
                what: "a terminator that is not understood".into(),
            });
        }
    }

    fn walk_op(&mut self, op: OpRef<'m>, place: &Place, out: &mut Effects<'m>) {
        let order = out.sites.len() as u32;
        match &op.op.kind {
            OpKind::Load { .. } | OpKind::DescLoad { .. } | OpKind::DescGather { .. } => {
                out.load_order.insert(op.number, (order, place.loops.clone()));
            }
            OpKind::Store { ptr, value, mask } => self.site(op, place, *ptr, *value, *mask, SiteKind::Store, out),
            OpKind::AtomicRmw { op: kind, ptr, value, mask, .. } => {
                self.site(op, place, *ptr, *value, *mask, SiteKind::Atomic(*kind), out);
            }
            OpKind::AtomicCas { .. } => {
                out.unknown.push(Effect { op, what: "atomic compare-and-swap".into() });
            }
            OpKind::DescStore { desc, value, indices } => {
                self.desc_site(op, place, *desc, *value, indices, SiteKind::Store, out);
            }
            OpKind::DescReduce { kind, desc, value, indices } => {
                use crate::ir::ReduceKind as R;
                let float = self.ty(place.ctx, *value).scalar_elem().is_some_and(|s| s.is_float());
                let kind = match kind {
                    R::Add if float => AtomicOp::FAdd,
                    R::Add => AtomicOp::Add,
                    R::Inc | R::Dec => {
                        // They wrap at the value that is given, so several do not commute.
                        out.unknown.push(Effect { op, what: "an increment that wraps".into() });
                        return;
                    }
                    R::Min => AtomicOp::Min,
                    R::Max => AtomicOp::Max,
                    R::And => AtomicOp::And,
                    R::Or => AtomicOp::Or,
                    R::Xor => AtomicOp::Xor,
                };
                self.desc_site(op, place, *desc, *value, indices, SiteKind::Atomic(kind), out);
            }
            OpKind::DescScatter { .. } => out.unknown.push(Effect { op, what: "descriptor scatter".into() }),
            OpKind::If { cond, then, otherwise } => {
                let c = self.eval(place.ctx, *cond, &[]);
                let n = self.arena.not(c);
                for (block, c) in [(then, c), (otherwise, n)] {
                    if has_effects(self, block, 0) || has_loads(block) {
                        let guard = self.arena.and([place.guard, c]);
                        self.walk_block(block, &Place { guard, ..place.clone() }, out);
                    }
                }
            }
            OpKind::For { body, .. } if has_effects(self, body, 0) || has_loads(body) => {
                let id = self.tables.loop_of(op.number).expect("loops are numbered");
                let (ctx, n) = self.enter_instance(place.ctx, id);
                let running = self.iteration_facts(place.ctx, id, n);
                let guard = self.arena.and([place.guard, running]);
                let mut inner = Place { ctx, guard, ..place.clone() };
                inner.iterations.push(n);
                inner.loops.push(op.number);
                self.walk_block(body, &inner, out);
            }
            OpKind::While { before, after, .. } => {
                let mut inner = place.clone();
                inner.loops.push(op.number);
                inner.in_while = true;
                for b in [before, after] {
                    if has_effects(self, b, 0) {
                        out.unknown.push(Effect { op, what: "a store or atomic inside scf.while".into() });
                    }
                    note_loads(self, b, &inner.loops, out);
                }
            }
            OpKind::Call { callee, args } => {
                let Some(function) = self.tables.function_index(callee) else {
                    out.unknown.push(Effect { op, what: format!("call of {callee}, which is not in the file") });
                    return;
                };
                if place.depth > 20 {
                    out.unknown.push(Effect { op, what: "recursive call".into() });
                    return;
                }
                let frame = self.level(super::Level::Frame { function, args: Some((place.ctx, args.clone())) });
                self.walk_function(function, &Place { ctx: frame, depth: place.depth + 1, ..place.clone() }, out);
            }
            OpKind::InlineAsm { pure: false, .. } | OpKind::Extern { pure: false, .. } => {
                out.unknown.push(Effect { op, what: "impure inline assembly or library call".into() });
            }
            OpKind::Assume { cond } if !self.ty(place.ctx, *cond).is_tensor() => {
                let c = self.eval(place.ctx, *cond, &[]);
                if place.loops.is_empty() && self.arena.as_bool(place.guard) == Some(true) {
                    out.assumed.push(c);
                }
            }
            OpKind::Unknown { name, .. } => {
                out.unknown.push(Effect { op, what: format!("operation {name}") });
            }
            OpKind::Reduce { combiner, .. } | OpKind::Scan { combiner, .. } if has_effects(self, combiner, 0) => {
                out.unknown.push(Effect { op, what: "a combiner that stores".into() });
            }
            _ => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn site(
        &mut self,
        op: OpRef<'m>,
        place: &Place,
        ptr: Value,
        value: Value,
        mask: Option<Value>,
        kind: SiteKind,
        out: &mut Effects<'m>,
    ) {
        let ty = self.ty(place.ctx, ptr);
        let elem = pointee(ty);
        let shape = store_shape(ty);
        let (indices, idx) = self.index_vars(op, &shape);
        let p = self.eval(place.ctx, ptr, &idx);
        let (base, offset) = self.pointer(p);
        let v = self.eval(place.ctx, value, &idx);
        let mask = match mask {
            Some(m) => self.eval(place.ctx, m, &idx),
            None => self.arena.bool(true),
        };
        self.push(op, place, kind, (base, offset, v, mask), elem, indices, out);
    }

    #[allow(clippy::too_many_arguments)]
    fn desc_site(
        &mut self,
        op: OpRef<'m>,
        place: &Place,
        desc: Value,
        value: Value,
        starts: &'m [Value],
        kind: SiteKind,
        out: &mut Effects<'m>,
    ) {
        let ty = self.ty(place.ctx, value);
        let shape = store_shape(ty);
        let (indices, idx) = self.index_vars(op, &shape);
        let at = self.desc_coords(place.ctx, starts, &idx);
        let (Some(desc), Some(at)) = (self.descriptor(place.ctx, desc), at) else {
            out.unknown.push(Effect { op, what: "a descriptor that could not be traced".into() });
            return;
        };
        if desc.strides.len() != at.len() {
            out.unknown.push(Effect { op, what: "a descriptor of another rank".into() });
            return;
        }
        let (offset, mask) = self.desc_element(&desc, &at);
        let v = self.eval(place.ctx, value, &idx);
        self.push(op, place, kind, (desc.base, offset, v, mask), ty.scalar_elem(), indices, out);
    }

    #[allow(clippy::too_many_arguments)]
    fn push(
        &mut self,
        op: OpRef<'m>,
        place: &Place,
        kind: SiteKind,
        (base, offset, value, mask): (TermId, TermId, TermId, TermId),
        elem: Option<Scalar>,
        indices: Vec<VarId>,
        out: &mut Effects<'m>,
    ) {
        let guard = self.arena.and([place.guard, mask]);
        let order = out.sites.len() as u32;
        let iterations = place.iterations.clone();
        out.site_loops.push(place.loops.clone());
        out.sites.push(Site { op, order, kind, base, offset, value, guard, elem, indices, iterations });
    }

    fn index_vars(&mut self, op: OpRef<'m>, shape: &[usize]) -> (Vec<VarId>, Vec<TermId>) {
        let (mut vars, mut idx) = (Vec::new(), Vec::new());
        for (axis, &n) in shape.iter().enumerate() {
            if n == 1 {
                idx.push(self.arena.int(0));
                continue;
            }
            let range = Range { lo: Some(0), hi: Some(n as i128 - 1) };
            let v = self.arena.var(VarKind::Index(op.number, axis as u32), format!("i{axis}"), range);
            vars.push(v);
            idx.push(self.arena.var_term(v));
        }
        (vars, idx)
    }

    /// A term for the sort, for tests and reports.
    pub fn is_int(&self, t: TermId) -> bool {
        self.arena.sort(t) == Sort::Int
    }
}

fn has_effects(e: &Evaluator<'_>, block: &Block, depth: u32) -> bool {
    block.ops.iter().any(|op| match &op.kind {
        OpKind::Store { .. } | OpKind::AtomicRmw { .. } | OpKind::AtomicCas { .. } => true,
        OpKind::DescStore { .. } | OpKind::DescReduce { .. } | OpKind::DescScatter { .. } => true,
        OpKind::Unknown { .. } => true,
        OpKind::InlineAsm { pure, .. } | OpKind::Extern { pure, .. } => !pure,
        OpKind::Call { callee, .. } => match e.tables.function_index(callee) {
            Some(f) if depth < 20 => e.tables.functions[f].function.blocks.iter().any(|b| has_effects(e, b, depth + 1)),
            _ => true,
        },
        kind => kind.blocks().iter().any(|b| has_effects(e, b, depth)),
    })
}

fn has_loads(block: &Block) -> bool {
    block.ops.iter().any(|op| {
        matches!(op.kind, OpKind::Load { .. } | OpKind::DescLoad { .. } | OpKind::DescGather { .. })
            || op.kind.blocks().iter().any(|b| has_loads(b))
    })
}

fn note_loads<'m>(e: &Evaluator<'m>, block: &'m Block, loops: &[u32], out: &mut Effects<'m>) {
    for op in &block.ops {
        if matches!(op.kind, OpKind::Load { .. } | OpKind::DescLoad { .. } | OpKind::DescGather { .. }) {
            let number = e.tables.op_ref(op).number;
            out.load_order.insert(number, (out.sites.len() as u32, loops.to_vec()));
        }
        for b in op.kind.blocks() {
            note_loads(e, b, loops, out);
        }
    }
}

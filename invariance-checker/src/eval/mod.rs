//! Symbolic evaluation by pulling: the value of a tensor at given indices, asked for where it is needed.
//!
//! Shape operations only change indices, so they vanish. A loop's result is a [`Fold`](crate::term::Fold) over just the carried
//! scalars that the question needs; integer and pointer induction variables are put in closed form first. What is not understood
//! becomes [`Node::Opaque`] and poisons only what depends on it.

mod assembly;
mod defs;
mod loops;
mod memory;
mod scalar;
mod sites;
mod tensor;

pub use defs::{Def, LoopId, OpRef, Tables};
pub use sites::{Effect, Effects, Site, SiteKind};

use crate::ir::{Elem, Module, OpKind, Scalar, Type, Value};
use crate::term::Map as HashMap;
use crate::term::{Arena, Node, Range, Sort, TermId, VarId, VarKind};
use std::collections::BTreeSet;

/// A place to evaluate in: a call frame and an iteration of each enclosing loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ctx(u32);

/// One level of a [`Ctx`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Level {
    /// A call of a function (by index), with the arguments in the caller's context.
    Frame { function: usize, args: Option<(Ctx, Vec<Value>)> },
    /// An iteration of a loop.
    Loop { parent: Ctx, id: LoopId, n: VarId, mode: Mode },
}

/// What a carried value means in a loop level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mode {
    /// A [`Node::Carry`] of a fold.
    Bound,
    /// The value at an iteration that a store happens in.
    Instance,
    /// A [`Node::Carry`] even if it has a closed form: while looking for closed forms.
    Probe,
}

/// The evaluator of one kernel.
pub struct Evaluator<'m> {
    /// Terms.
    pub arena: Arena,
    /// The kernel and its helpers.
    pub module: &'m Module,
    /// Definitions.
    pub tables: Tables<'m>,
    /// Pointer arguments that the kernel writes.
    pub written: BTreeSet<u32>,
    levels: Vec<Level>,
    level_index: HashMap<Level, Ctx>,
    memo: HashMap<(Ctx, Value, Vec<TermId>), TermId>,
    binders: HashMap<(Ctx, u32), VarId>,
    closed: HashMap<(Ctx, LoopId, usize, Vec<TermId>), Option<TermId>>,
    paths: HashMap<(Ctx, crate::ir::BlockId), TermId>,
    pids: [Option<VarId>; 3],
    depth: u32,
}

/// Values that are evaluated within each other beyond this end the analysis; the stack of its thread (512 MiB) is sized for it.
const DEPTH_MAX: u32 = 6000;

impl<'m> Evaluator<'m> {
    /// An evaluator for `module` on a fresh arena.
    pub fn new(module: &'m Module, arena: Arena) -> Evaluator<'m> {
        Evaluator {
            arena,
            module,
            tables: Tables::new(module),
            written: BTreeSet::new(),
            levels: Vec::new(),
            level_index: HashMap::default(),
            memo: HashMap::default(),
            binders: HashMap::default(),
            closed: HashMap::default(),
            paths: HashMap::default(),
            pids: [None; 3],
            depth: 0,
        }
    }

    fn level(&mut self, level: Level) -> Ctx {
        if let Some(&c) = self.level_index.get(&level) {
            return c;
        }
        let c = Ctx(self.levels.len() as u32);
        self.levels.push(level.clone());
        self.level_index.insert(level, c);
        c
    }

    /// The context of the kernel itself.
    pub fn kernel_ctx(&mut self) -> Option<(Ctx, usize)> {
        let name = &self.module.kernel()?.name;
        let function = self.tables.function_index(name)?;
        Some((self.level(Level::Frame { function, args: None }), function))
    }

    fn function_of(&self, ctx: Ctx) -> usize {
        match &self.levels[ctx.0 as usize] {
            Level::Frame { function, .. } => *function,
            Level::Loop { parent, .. } => self.function_of(*parent),
        }
    }

    /// Climbs from `ctx` to the level in which a value of loop `inside` is defined.
    fn climb(&self, ctx: Ctx, inside: Option<LoopId>) -> Ctx {
        let mut at = ctx;
        loop {
            match &self.levels[at.0 as usize] {
                Level::Frame { .. } => return at,
                Level::Loop { id, .. } if Some(*id) == inside => return at,
                Level::Loop { parent, .. } => at = *parent,
            }
        }
    }

    /// The type of a value in a context.
    pub fn ty(&self, ctx: Ctx, v: Value) -> &'m Type {
        self.tables.functions[self.function_of(ctx)].function.ty(v)
    }

    /// The program id of an axis.
    pub fn pid(&mut self, axis: u8) -> TermId {
        let v = *self.pids[axis as usize].get_or_insert_with(|| {
            let range = Range { lo: Some(0), hi: None };
            self.arena.var(VarKind::Pid(axis), format!("pid{axis}"), range)
        });
        self.arena.var_term(v)
    }

    /// The program ids that were asked for.
    pub fn pids_used(&self) -> Vec<(u8, VarId)> {
        (0..3).filter_map(|a| self.pids[a as usize].map(|v| (a, v))).collect()
    }

    /// A binder that belongs to an operation in a context.
    fn binder(&mut self, ctx: Ctx, number: u32, name: &str, len: Option<u64>) -> VarId {
        if let Some(&v) = self.binders.get(&(ctx, number)) {
            return v;
        }
        let range = Range { lo: Some(0), hi: len.map(|n| i128::from(n) - 1) };
        let name = format!("{name}{}", self.binders.len());
        let v = self.arena.var(VarKind::Bound, name, range);
        self.binders.insert((ctx, number), v);
        v
    }

    /// The value of `v` at `idx` (empty for scalars).
    pub fn eval(&mut self, ctx: Ctx, v: Value, idx: &[TermId]) -> TermId {
        let (def, inside) = self.tables.functions[self.function_of(ctx)].values[v.0 as usize];
        let ctx = self.climb(ctx, inside);
        let key = (ctx, v, idx.to_vec());
        if let Some(&t) = self.memo.get(&key) {
            return t;
        }
        let sort = sort_of(self.ty(ctx, v));
        if self.arena.stopped() || self.depth > DEPTH_MAX {
            if self.depth > DEPTH_MAX {
                self.arena.exhausted.get_or_insert_with(|| {
                    format!("a value that hangs on a chain of more than {DEPTH_MAX} operations")
                });
            }
            return self.arena.opaque("stopped", 0, vec![], sort);
        }
        self.depth += 1;
        let t = match def {
            Def::Param(i) => self.param(ctx, i, idx),
            Def::BlockParam(block, k) => self.block_param(ctx, block, k, idx, sort),
            Def::Iv(id) => self.iv(ctx, id),
            Def::Carried(id, k) => self.carried(ctx, id, k, idx, sort),
            Def::After(id, k) => self.after(ctx, id, k, idx),
            Def::Combiner => self.arena.opaque("combiner parameter", v.0, vec![], sort),
            Def::Result(op, k) => self.result(ctx, op, k, idx, sort),
        };
        self.depth -= 1;
        self.memo.insert(key, t);
        t
    }

    fn param(&mut self, ctx: Ctx, i: usize, idx: &[TermId]) -> TermId {
        let Level::Frame { function, args } = self.levels[ctx.0 as usize].clone() else {
            return self.arena.opaque("parameter", i as u32, vec![], Sort::Data);
        };
        if let Some((caller, args)) = args {
            return self.eval(caller, args[i], idx);
        }
        let value = self.tables.functions[function].function.params[i].value;
        match self.ty(ctx, value) {
            Type::Elem(Elem::Ptr { .. }) => {
                let base = self.arena.intern(Node::ArgPtr(i as u32), Sort::Data);
                let zero = self.arena.int(0);
                self.arena.ptr(base, zero)
            }
            ty => {
                let sort = sort_of(ty);
                self.arena.intern(Node::Arg(i as u32), sort)
            }
        }
    }

    /// The condition under which control reaches a block.
    fn path_condition(&mut self, ctx: Ctx, block: crate::ir::BlockId) -> TermId {
        let f = self.function_of(ctx);
        if block.0 == 0 {
            return self.arena.bool(true);
        }
        if let Some(&t) = self.paths.get(&(ctx, block)) {
            return t;
        }
        let edges = self.tables.functions[f].preds[block.0 as usize].clone();
        let conds: Vec<TermId> = edges.iter().map(|e| self.edge_condition(ctx, e.from, e.cond)).collect();
        let t = self.arena.or(conds);
        self.paths.insert((ctx, block), t);
        t
    }

    fn edge_condition(&mut self, ctx: Ctx, from: crate::ir::BlockId, cond: Option<(Value, bool)>) -> TermId {
        let reach = self.path_condition(ctx, from);
        match cond {
            None => reach,
            Some((v, taken)) => {
                let c = self.eval(ctx, v, &[]);
                let c = if taken { c } else { self.arena.not(c) };
                self.arena.and([reach, c])
            }
        }
    }

    fn block_param(&mut self, ctx: Ctx, block: crate::ir::BlockId, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        let f = self.function_of(ctx);
        if self.tables.functions[f].cyclic {
            return self.arena.opaque("a loop in the control-flow graph", block.0, vec![], sort);
        }
        let edges = self.tables.functions[f].preds[block.0 as usize].clone();
        let mut value = None;
        for e in edges.iter().rev() {
            let v = self.eval(ctx, e.args[k], idx);
            value = Some(match value {
                None => v,
                Some(rest) => {
                    let c = self.edge_condition(ctx, e.from, e.cond);
                    self.arena.ite(c, v, rest)
                }
            });
        }
        value.unwrap_or_else(|| self.arena.opaque("unreachable block", block.0, vec![], sort))
    }

    fn call(&mut self, ctx: Ctx, op: OpRef<'m>, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        let OpKind::Call { callee, args } = &op.op.kind else { unreachable!("only calls come here") };
        let Some(function) = self.tables.function_index(callee) else {
            return self.arena.opaque("call of a function that is not in the file", op.number, vec![], sort);
        };
        if self.call_depth(ctx) > 20 || self.tables.functions[function].cyclic {
            return self.arena.opaque("recursive call", op.number, vec![], sort);
        }
        let frame = self.level(Level::Frame { function, args: Some((ctx, args.clone())) });
        let returns = self.tables.functions[function].returns.clone();
        let mut value = None;
        for (block, values) in returns.iter().rev() {
            let v = self.eval(frame, values[k], idx);
            value = Some(match value {
                None => v,
                Some(rest) => {
                    let c = self.path_condition(frame, *block);
                    self.arena.ite(c, v, rest)
                }
            });
        }
        value.unwrap_or_else(|| self.arena.opaque("function that never returns", op.number, vec![], sort))
    }

    fn call_depth(&self, ctx: Ctx) -> u32 {
        match &self.levels[ctx.0 as usize] {
            Level::Frame { args: None, .. } => 0,
            Level::Frame { args: Some((caller, _)), .. } => 1 + self.call_depth(*caller),
            Level::Loop { parent, .. } => self.call_depth(*parent),
        }
    }

    /// Everything that numbers instances at this place: what an unpredictable result depends on.
    fn instance_terms(&mut self, ctx: Ctx) -> Vec<TermId> {
        let mut out: Vec<TermId> = (0..3).map(|a| self.pid(a)).collect();
        let mut at = ctx;
        loop {
            match self.levels[at.0 as usize].clone() {
                Level::Frame { args: Some((caller, _)), .. } => at = caller,
                Level::Frame { .. } => return out,
                Level::Loop { parent, n, .. } => {
                    out.push(self.arena.var_term(n));
                    at = parent;
                }
            }
        }
    }
}

/// The sort of values of a type.
pub fn sort_of(ty: &Type) -> Sort {
    match ty.elem() {
        Some(Elem::Scalar(s)) => scalar_sort(s),
        _ => Sort::Data,
    }
}

/// The sort of a scalar type.
pub fn scalar_sort(s: Scalar) -> Sort {
    match s {
        Scalar::Int(1) => Sort::Bool,
        Scalar::Int(_) | Scalar::Index => Sort::Int,
        Scalar::Float(_) => Sort::Data,
    }
}

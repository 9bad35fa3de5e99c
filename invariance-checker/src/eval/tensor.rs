//! Tensor operations: shape operations change indices, reductions and dots bind them.

use super::{Ctx, Evaluator, OpRef, assembly, scalar_sort, sort_of};
use crate::ir::{
    BinaryOp, Block, CastOp, Elem, Elements, Float, Function, Op, OpKind, Scalar, ScaledElem, Terminator, Type, Value,
};
use crate::term::Map as HashMap;
use crate::term::{Chain, Node, Reduce, Sort, TermId};
use std::fmt::Write;

impl<'m> Evaluator<'m> {
    /// Result `k` of an operation at `idx`.
    pub(super) fn result(&mut self, ctx: Ctx, op: OpRef<'m>, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        let ty = self.ty(ctx, op.op.results[k]);
        match &op.op.kind {
            OpKind::Constant(elements) => match (elements, ty.scalar_elem()) {
                (Elements::Splat(bits), Some(s)) => self.constant(s, *bits),
                (Elements::List(list), Some(s)) => self.pick(s, list, ty.shape(), idx),
                _ => self.arena.opaque("constant", op.number, vec![], sort),
            },
            OpKind::Poison => self.arena.intern(Node::Undef(op.number), sort),
            OpKind::ProgramId(axis) => self.pid(*axis as u8),
            OpKind::NumPrograms(axis) => self.arena.intern(Node::NumPrograms(*axis as u8), Sort::Int),
            OpKind::MakeRange { start, .. } => self.arena.add_const(idx[0], i128::from(*start)),
            OpKind::Binary { op: what, a, b } => self.binary(ctx, op.op, *what, *a, *b, idx),
            OpKind::CmpI { pred, a, b } => self.cmpi(ctx, *pred, *a, *b, idx),
            OpKind::Cast { op: CastOp::PtrToInt, .. } => {
                self.poison("the address of a buffer is used as a number", ctx, op, sort)
            }
            OpKind::Cast { op: cast, x } => match ty.elem() {
                Some(to) => self.cast(ctx, op.op, *cast, *x, to, idx),
                None => self.arena.opaque("cast", op.number, vec![], sort),
            },
            OpKind::Select { cond, then, otherwise } => {
                let scalar = !self.ty(ctx, *cond).is_tensor();
                let c = self.eval(ctx, *cond, if scalar { &[] } else { idx });
                let (a, b) = (self.eval(ctx, *then, idx), self.eval(ctx, *otherwise, idx));
                self.arena.ite(c, a, b)
            }
            OpKind::Unary { .. } | OpKind::CmpF { .. } | OpKind::Fma { .. } | OpKind::Clamp { .. } => {
                self.elementwise(ctx, op, k, idx, sort)
            }
            OpKind::Extern { pure: true, symbol, .. } if is_math(symbol) => self.elementwise(ctx, op, k, idx, sort),
            OpKind::Extern { .. } => self.poison("a library function that is impure or unknown", ctx, op, sort),
            OpKind::InlineAsm { pure: true, packed: 0 | 1, asm, constraints, .. }
                if assembly::is_function(asm, constraints) =>
            {
                self.elementwise(ctx, op, k, idx, sort)
            }
            OpKind::InlineAsm { .. } => {
                self.poison("inline assembly that may couple lanes, or read more than its operands", ctx, op, sort)
            }
            OpKind::AddPtr { ptr, offset } => {
                let (p, o) = (self.eval(ctx, *ptr, idx), self.eval(ctx, *offset, idx));
                let (base, off) = self.pointer(p);
                let off = self.arena.add(off, o);
                self.arena.ptr(base, off)
            }
            OpKind::Load { .. } => self.load(ctx, op, idx),
            OpKind::DescLoad { .. } | OpKind::DescGather { .. } => self.desc_load(ctx, op, idx, sort),
            OpKind::AtomicRmw { .. } | OpKind::AtomicCas { .. } => self.atomic_result(ctx, op, idx, sort),
            OpKind::Dot { .. } => self.dot(ctx, op, idx),
            OpKind::DotScaled { .. } => self.dot_scaled(ctx, op, idx, sort),
            OpKind::Reduce { args, axis, combiner } => self.reduce(ctx, op, args, *axis, combiner, k, idx, None),
            OpKind::Scan { args, axis, combiner, reverse } => {
                self.reduce(ctx, op, args, *axis, combiner, k, idx, Some(*reverse))
            }
            OpKind::For { .. } => self.for_result(ctx, op, k, idx, sort),
            OpKind::While { .. } => self.while_result(ctx, op, k, idx, sort),
            OpKind::If { cond, then, otherwise } => {
                let c = self.eval(ctx, *cond, &[]);
                match self.arena.as_bool(c) {
                    Some(true) => self.eval(ctx, then.yields()[k], idx),
                    Some(false) => self.eval(ctx, otherwise.yields()[k], idx),
                    None => {
                        let a = self.eval(ctx, then.yields()[k], idx);
                        let b = self.eval(ctx, otherwise.yields()[k], idx);
                        self.arena.ite(c, a, b)
                    }
                }
            }
            OpKind::Call { .. } => self.call(ctx, op, k, idx, sort),
            OpKind::Histogram { x, mask } => self.histogram(ctx, op, *x, *mask, idx),
            OpKind::Unknown { name, .. } => {
                let why = format!("operation {name}");
                self.poison(&why, ctx, op, sort)
            }
            _ => self.reindex(ctx, op, k, idx, sort),
        }
    }

    fn poison(&mut self, why: &str, ctx: Ctx, op: OpRef<'m>, sort: Sort) -> TermId {
        let deps = self.instance_terms(ctx);
        self.arena.opaque(why, op.number, deps, sort)
    }

    /// An uninterpreted operation whose lanes do not see each other.
    fn elementwise(&mut self, ctx: Ctx, op: OpRef<'m>, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        let operands = op.op.kind.operands();
        let elem = operands.first().and_then(|v| self.ty(ctx, *v).elem()).map_or(String::new(), |e| e.to_string());
        let to = self.ty(ctx, op.op.results[k]).elem().map_or(String::new(), |e| e.to_string());
        let name = match &op.op.kind {
            OpKind::Unary { op, .. } => format!("{} {elem}", format!("{op:?}").to_lowercase()),
            OpKind::CmpF { pred, .. } => format!("cmpf {pred:?} {elem}"),
            OpKind::Fma { .. } => format!("fma {elem}"),
            OpKind::Clamp { propagate_nan, .. } => format!("clamp {elem} nan={propagate_nan}"),
            OpKind::Extern { symbol, .. } => format!("extern {symbol} {elem} {to}"),
            OpKind::InlineAsm { asm, constraints, .. } => {
                format!("asm {elem} {to} result={k} of {} {constraints} {asm}", op.op.results.len())
            }
            _ => "op".to_owned(),
        };
        let args = operands.iter().map(|v| self.eval(ctx, *v, idx)).collect();
        self.arena.op(&in_manner(&name, op.op), args, sort)
    }

    fn reindex(&mut self, ctx: Ctx, op: OpRef<'m>, k: usize, idx: &[TermId], sort: Sort) -> TermId {
        match &op.op.kind {
            OpKind::Splat { x } => self.eval(ctx, *x, &[]),
            OpKind::Broadcast { x } => {
                let shape = self.ty(ctx, *x).shape();
                let zero = self.arena.int(0);
                let at: Vec<_> = idx.iter().zip(shape).map(|(&i, &n)| if n == 1 { zero } else { i }).collect();
                self.eval(ctx, *x, &at)
            }
            OpKind::ExpandDims { x, axis } => {
                let mut at = idx.to_vec();
                at.remove(*axis);
                self.eval(ctx, *x, &at)
            }
            OpKind::Trans { x, order } => {
                let mut at = idx.to_vec();
                order.iter().enumerate().for_each(|(i, &o)| at[o] = idx[i]);
                self.eval(ctx, *x, &at)
            }
            OpKind::Reshape { x, allow_reorder: false } => {
                let to = self.ty(ctx, op.op.results[0]).shape().to_vec();
                let from = self.ty(ctx, *x).shape().to_vec();
                let at = self.reshape_index(idx, &to, &from);
                self.eval(ctx, *x, &at)
            }
            OpKind::Join { a, b } => {
                let (&last, at) = idx.split_last().expect("a joined tensor has an axis");
                let (x, y) = (self.eval(ctx, *a, at), self.eval(ctx, *b, at));
                let zero = self.arena.int(0);
                let first = self.arena.eq(last, zero);
                self.arena.ite(first, x, y)
            }
            OpKind::Split { x } => {
                let mut at = idx.to_vec();
                at.push(self.arena.int(k as i128));
                self.eval(ctx, *x, &at)
            }
            OpKind::Gather { x, indices, axis } => {
                let mut at = idx.to_vec();
                at[*axis] = self.eval(ctx, *indices, idx);
                self.eval(ctx, *x, &at)
            }
            OpKind::Reshape { .. } => self.poison("reshape that may reorder elements", ctx, op, sort),
            OpKind::Cat { .. } => self.poison("tt.cat, which may reorder elements", ctx, op, sort),
            _ => self.poison("operation without a value", ctx, op, sort),
        }
    }

    /// Indices of a row-major reshape.
    fn reshape_index(&mut self, idx: &[TermId], to: &[usize], from: &[usize]) -> Vec<TermId> {
        let mut flat = self.arena.int(0);
        for (&i, &n) in idx.iter().zip(to) {
            flat = self.arena.scale(flat, n as i128);
            flat = self.arena.add(flat, i);
        }
        let mut out = vec![flat; from.len()];
        for d in (0..from.len()).rev() {
            let n = self.arena.int(from[d] as i128);
            out[d] = if d == 0 { flat } else { self.arena.modulo(flat, n) };
            flat = self.arena.div(flat, n);
        }
        out
    }

    fn dot(&mut self, ctx: Ctx, op: OpRef<'m>, idx: &[TermId]) -> TermId {
        let OpKind::Dot { a, b, acc, precision, max_imprecise } = &op.op.kind else { unreachable!("only dots") };
        let (ta, tb, tacc) = (self.ty(ctx, *a), self.ty(ctx, *b), self.ty(ctx, *acc));
        let rank = ta.shape().len();
        let len = ta.shape()[rank - 1] as u64;
        let elems = [ta, tb, tacc].map(|t| t.scalar_elem());
        let half = |e: Option<Scalar>| matches!(e, Some(Scalar::Float(Float::F16 | Float::Bf16)));
        let plain = in_manner("", op.op).is_empty();
        let flat =
            plain && half(elems[0]) && elems[0] == elems[1] && elems[2] == Some(Scalar::F32) && *max_imprecise == 0;
        let name = |e: Option<Scalar>| e.map_or(String::new(), |e| e.to_string());
        let mut tag = format!("{} {} {}", name(elems[0]), name(elems[1]), name(elems[2]));
        if !flat {
            // Operand precision means nothing for 16-bit floats; the other tiles are kept apart by their shape.
            let _ = write!(tag, " {precision:?} {max_imprecise} {:?}x{:?}", ta.shape(), tb.shape());
        }
        let tag = in_manner(&tag, op.op);
        let binder = self.binder(ctx, op.number, "k", Some(len));
        let kt = self.arena.var_term(binder);
        let (mut ia, mut ib) = (idx.to_vec(), idx.to_vec());
        ia[rank - 1] = kt;
        ib[rank - 2] = kt;
        let (acc, a, b) = (self.eval(ctx, *acc, idx), self.eval(ctx, *a, &ia), self.eval(ctx, *b, &ib));
        let tag = self.arena.sym(&tag);
        let chain = Chain { tag, flat, len, binder, acc, a, b };
        let sort = elems[2].map_or(Sort::Data, scalar_sort);
        self.arena.intern(Node::Chain(Box::new(chain)), sort)
    }

    fn dot_scaled(&mut self, ctx: Ctx, op: OpRef<'m>, idx: &[TermId], sort: Sort) -> TermId {
        let OpKind::DotScaled { a, b, acc, a_scale, b_scale, a_elem, b_elem, fast_math, .. } = &op.op.kind else {
            unreachable!("only scaled dots")
        };
        let rank = self.ty(ctx, *a).shape().len();
        if [a_elem, b_elem].contains(&&ScaledElem::E2M1) || rank != 2 {
            return self.poison("tt.dot_scaled on packed or batched operands", ctx, op, sort);
        }
        let len = self.ty(ctx, *a).shape()[1] as u64;
        let binder = self.binder(ctx, op.number, "k", Some(len));
        let kt = self.arena.var_term(binder);
        let mut sides = [(*a, a_scale, [idx[0], kt], idx[0]), (*b, b_scale, [kt, idx[1]], idx[1])].map(|s| (s, None));
        for ((v, scale, at, row), out) in &mut sides {
            let mut parts = vec![self.eval(ctx, *v, at)];
            if let Some(s) = scale {
                let groups = self.ty(ctx, *s).shape()[1] as u64;
                let per = self.arena.int(i128::from((len / groups.max(1)).max(1)));
                let group = self.arena.div(kt, per);
                parts.push(self.eval(ctx, *s, &[*row, group]));
            }
            *out = Some(self.arena.op("scaled", parts, Sort::Data));
        }
        let shapes = [*a, *b].map(|v| self.ty(ctx, v).shape().to_vec());
        let tag = format!("scaled {a_elem:?} {b_elem:?} fast={fast_math} {:?}x{:?}", shapes[0], shapes[1]);
        let (tag, acc) = (self.arena.sym(&tag), self.eval(ctx, *acc, idx));
        let (a, b) = (sides[0].1.expect("just set"), sides[1].1.expect("just set"));
        self.arena.intern(Node::Chain(Box::new(Chain { tag, flat: false, len, binder, acc, a, b })), sort)
    }

    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &mut self,
        ctx: Ctx,
        op: OpRef<'m>,
        args: &'m [Value],
        axis: usize,
        combiner: &'m Block,
        k: usize,
        idx: &[TermId],
        scan: Option<bool>,
    ) -> TermId {
        let ty = self.ty(ctx, args[0]);
        let len = ty.shape()[axis] as u64;
        let binder = self.binder(ctx, op.number, "r", Some(len));
        let lane = self.arena.var_term(binder);
        let mut at = idx.to_vec();
        match scan {
            Some(_) => at[axis] = lane,
            None => at.insert(axis, lane),
        }
        // What comes before a reduction over everything may be reordered: the layout names that order as it names the reduction's own.
        let source = match args {
            [one] if scan.is_none() && ty.shape().len() == 1 => self.reordered(ctx, *one),
            _ => None,
        };
        let bodies: Vec<TermId> = match source {
            Some(x) => {
                let (from, to) = (self.ty(ctx, x).shape().to_vec(), ty.shape().to_vec());
                let at = self.reshape_index(&at, &to, &from);
                vec![self.eval(ctx, x, &at)]
            }
            None => args.iter().map(|v| self.eval(ctx, *v, &at)).collect(),
        };
        let sort = sort_of(self.ty(ctx, op.op.results[k]));
        let elems: Vec<String> = args.iter().filter_map(|v| self.ty(ctx, *v).elem()).map(|e| e.to_string()).collect();
        let function = self.tables.functions[self.function_of(ctx)].function;
        let Some(text) = combiner_text(function, combiner, &|v| self.constant_text(ctx, v)) else {
            return self.poison("a combiner that is more than arithmetic on its operands", ctx, op, sort);
        };
        let order_free = scan.is_none() && is_order_free(combiner);
        let mut text = in_manner(&format!("{text} {}", elems.join(",")), op.op);
        if let Some(reverse) = scan {
            let _ = write!(text, " scan reverse={reverse}");
        }
        if len == 1 {
            // A reduction or scan of one lane is that lane.
            let zero = self.arena.int(0);
            return self.arena.subst_one(bodies[k], lane, zero);
        }
        let key = match source {
            Some(x) => format!("{:?}/all", self.ty(ctx, x).shape()),
            None => format!("{:?}/{axis}", ty.shape()),
        };
        let (combiner, key) = (self.arena.sym(&text), self.arena.sym(&key));
        let at = scan.map(|_| idx[axis]);
        let r = Reduce { combiner, order_free, key, len, binder, bodies, out: k as u32, at };
        self.arena.intern(Node::Reduce(Box::new(r)), sort)
    }

    /// A constant as text.
    fn constant_text(&self, ctx: Ctx, v: Value) -> Option<String> {
        match self.tables.functions[self.function_of(ctx)].values[v.0 as usize].0 {
            super::Def::Result(op, _) if matches!(op.op.kind, OpKind::Constant(_)) => {
                Some(format!("{:?}", op.op.kind).replace(char::is_whitespace, ""))
            }
            _ => None,
        }
    }

    /// The operand of a reshape that may reorder, if that is what makes `v`.
    fn reordered(&self, ctx: Ctx, v: Value) -> Option<Value> {
        match self.tables.functions[self.function_of(ctx)].values[v.0 as usize].0 {
            super::Def::Result(op, _) => match &op.op.kind {
                OpKind::Reshape { x, allow_reorder: true } => Some(*x),
                _ => None,
            },
            _ => None,
        }
    }

    /// Counts of each value: an integer sum over all lanes.
    fn histogram(&mut self, ctx: Ctx, op: OpRef<'m>, x: Value, mask: Option<Value>, idx: &[TermId]) -> TermId {
        let len = self.ty(ctx, x).len() as u64;
        let binder = self.binder(ctx, op.number, "r", Some(len));
        let lane = self.arena.var_term(binder);
        let v = self.eval(ctx, x, &[lane]);
        let m = match mask {
            Some(m) => self.eval(ctx, m, &[lane]),
            None => self.arena.bool(true),
        };
        let hit = self.arena.eq(v, idx[0]);
        let hit = self.arena.and([hit, m]);
        let (one, zero) = (self.arena.int(1), self.arena.int(0));
        let bodies = vec![self.arena.ite(hit, one, zero)];
        let (combiner, key) = (self.arena.sym("histogram i32"), self.arena.sym("histogram"));
        let r = Reduce { combiner, order_free: true, key, len, binder, bodies, out: 0, at: None };
        self.arena.intern(Node::Reduce(Box::new(r)), Sort::Int)
    }
}

/// Combiners of one operation that is associative and commutative on the bits it makes: integer operations modulo 2^n, and the
/// minima and maxima (which the hardware orders with -0 below +0).
fn is_order_free(block: &Block) -> bool {
    let [Op { kind: OpKind::Binary { op, a, b }, results, .. }] = block.ops.as_slice() else { return false };
    let whole = block.params.len() == 2
        && block.yields() == results
        && block.params.contains(a)
        && block.params.contains(b)
        && a != b;
    use BinaryOp::*;
    whole
        && matches!(
            op,
            AddI | MulI | AndI | OrI | XorI | MinSI | MaxSI | MinUI | MaxUI | MaximumF | MinimumF | MaxNumF | MinNumF
        )
}

/// The name of an operation with its own attributes that say in which manner it computes (fast math, a rounding mode): another manner may
/// make other bits. Names with a dot are notes of a dialect, and what an integer operation promises about overflow changes nothing.
pub(super) fn in_manner(name: &str, op: &Op) -> String {
    let own = op.attrs.iter().filter(|(n, _)| !n.contains('.') && n != "overflowFlags");
    let text: String = own.map(|(n, v)| format!("{n}={v:?},")).filter(|t| !t.is_empty()).collect();
    match (text.is_empty(), name.split_once(' ')) {
        (true, _) => name.to_owned(),
        (false, Some((word, types))) => format!("{word}<{}> {types}", text.replace(' ', "")),
        (false, None) => format!("{name}<{}>", text.replace(' ', "")),
    }
}

/// The combiner as text with values renumbered, and with the types that its operands do not say. `None` if it reads something from outside that is no
/// constant, or holds anything but arithmetic: the number of the program, say, needs no operand.
fn combiner_text(function: &Function, block: &Block, constant: &dyn Fn(Value) -> Option<String>) -> Option<String> {
    let mut names: HashMap<Value, usize> = HashMap::default();
    block.params.iter().enumerate().for_each(|(i, v)| {
        names.insert(*v, i);
    });
    let use_of =
        |v: &Value, names: &HashMap<Value, usize>| names.get(v).map(|i| format!("%{i}")).or_else(|| constant(*v));
    let mut out = String::new();
    for op in &block.ops {
        if !is_arithmetic(&op.kind) {
            return None;
        }
        let mut kind = op.kind.clone();
        kind.operands_mut(|v| *v = Value(0));
        let args: Vec<String> = op.kind.operands().iter().map(|v| use_of(v, &names)).collect::<Option<_>>()?;
        for r in &op.results {
            let next = names.len();
            names.insert(*r, next);
        }
        let kind = format!("{kind:?}");
        let short = match &op.kind {
            OpKind::Binary { op, .. } => format!("{op:?}").to_lowercase(),
            _ => kind.chars().filter(|c| !c.is_whitespace()).collect(),
        };
        let _ = write!(out, "{}({})", in_manner(&short, op), args.join(","));
        if !matches!(op.kind, OpKind::Binary { .. }) {
            op.results.iter().for_each(|r| {
                let _ = write!(out, ":{}", function.ty(*r));
            });
        }
        out.push(';');
    }
    if let Terminator::Yield(vs) = &block.end {
        let vs: Vec<String> = vs.iter().map(|v| use_of(v, &names)).collect::<Option<_>>()?;
        let _ = write!(out, "->{}", vs.join(","));
    }
    Some(out)
}

/// Functions of their operands alone, lane by lane.
fn is_arithmetic(kind: &OpKind) -> bool {
    use OpKind::{Binary, Clamp, CmpF, CmpI, Constant, Fma, Select, Unary};
    match kind {
        Constant(_) | Unary { .. } | Binary { .. } | CmpI { .. } | CmpF { .. } => true,
        Select { .. } | Fma { .. } | Clamp { .. } => true,
        OpKind::Cast { op, .. } => *op != CastOp::PtrToInt,
        OpKind::Extern { pure: true, symbol, .. } => is_math(symbol),
        OpKind::InlineAsm { pure: true, packed: 0 | 1, asm, constraints, .. } => {
            assembly::is_function(asm, constraints)
        }
        _ => false,
    }
}

/// Extents and element type for index variables of a stored tensor.
pub(super) fn store_shape(ty: &Type) -> Vec<usize> {
    ty.shape().to_vec()
}

/// The element type of what a pointer value points at.
pub(super) fn pointee(ty: &Type) -> Option<Scalar> {
    match ty.elem() {
        Some(Elem::Ptr { pointee, .. }) => Some(pointee),
        _ => None,
    }
}

/// Functions of their operands alone: the device libraries of CUDA and ROCm. What another bitcode file holds is not known.
fn is_math(symbol: &str) -> bool {
    symbol.starts_with("__nv_") || symbol.starts_with("__ocml_")
}

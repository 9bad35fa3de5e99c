//! The type rules of the known operations.

use super::{
    AtomicOp, BinaryOp, Block, CastOp, Elem, Elements, Function, Module, Op, OpKind, Scalar, Terminator, Type,
};
use super::{UnaryOp, Value};

type Checked = Result<(), String>;

/// Checks operand, region and result types of one operation. All value numbers are in range.
pub(super) fn check_types(module: &Module, f: &Function, op: &Op) -> Checked {
    if matches!(op.kind, OpKind::Unknown { .. }) {
        return Ok(());
    }
    let c = Context { f, results: op.results.iter().map(|r| f.ty(*r)).collect() };
    let wanted = match &op.kind {
        OpKind::Store { .. } | OpKind::DescStore { .. } | OpKind::DescReduce { .. } | OpKind::DescScatter { .. } => {
            Some(0)
        }
        OpKind::Assert { .. } | OpKind::Assume { .. } | OpKind::Print { .. } | OpKind::Barrier => Some(0),
        OpKind::For { .. } | OpKind::If { .. } | OpKind::While { .. } | OpKind::Call { .. } => None,
        OpKind::Reduce { .. } | OpKind::Scan { .. } | OpKind::InlineAsm { .. } => None,
        OpKind::Split { .. } => Some(2),
        _ => Some(1),
    };
    if let Some(n) = wanted.filter(|n| *n != op.results.len()) {
        return Err(format!("expected {n} results, found {}", op.results.len()));
    }
    match &op.kind {
        OpKind::For { .. } | OpKind::If { .. } | OpKind::While { .. } | OpKind::Reduce { .. } | OpKind::Scan { .. } => {
            c.control(&op.kind)
        }
        OpKind::Call { callee, args } => c.call(module, callee, args),
        OpKind::AddPtr { .. }
        | OpKind::Load { .. }
        | OpKind::Store { .. }
        | OpKind::AtomicRmw { .. }
        | OpKind::AtomicCas { .. } => c.memory(&op.kind),
        OpKind::MakeDesc { .. }
        | OpKind::DescLoad { .. }
        | OpKind::DescStore { .. }
        | OpKind::DescReduce { .. }
        | OpKind::DescGather { .. }
        | OpKind::DescScatter { .. } => c.descriptor(&op.kind),
        OpKind::Splat { .. }
        | OpKind::Broadcast { .. }
        | OpKind::ExpandDims { .. }
        | OpKind::Trans { .. }
        | OpKind::Reshape { .. }
        | OpKind::Join { .. }
        | OpKind::Split { .. }
        | OpKind::Cat { .. }
        | OpKind::Gather { .. }
        | OpKind::Histogram { .. } => c.shape(&op.kind),
        _ => c.elementwise(&op.kind),
    }
}

struct Context<'f> {
    f: &'f Function,
    results: Vec<&'f Type>,
}

impl Context<'_> {
    fn ty(&self, v: Value) -> &Type {
        self.f.ty(v)
    }

    fn same(&self, a: &Type, b: &Type) -> Checked {
        if a == b { Ok(()) } else { Err(format!("expected type {a}, found {b}")) }
    }

    fn all_same(&self, values: &[Value], ty: &Type) -> Checked {
        values.iter().try_for_each(|v| self.same(ty, self.ty(*v)))
    }

    /// The plain element type of a value.
    fn scalar(&self, ty: &Type) -> Result<Scalar, String> {
        ty.scalar_elem().ok_or_else(|| format!("expected numbers, found {ty}"))
    }

    fn float(&self, ty: &Type) -> Checked {
        if self.scalar(ty)?.is_float() { Ok(()) } else { Err(format!("expected floats, found {ty}")) }
    }

    fn int(&self, ty: &Type) -> Checked {
        if self.scalar(ty)?.is_int() { Ok(()) } else { Err(format!("expected integers, found {ty}")) }
    }

    /// A single integer.
    fn one_int(&self, v: Value) -> Checked {
        let ty = self.ty(v);
        if ty.is_tensor() { Err(format!("expected one integer, found {ty}")) } else { self.int(ty) }
    }

    fn bools_like(&self, mask: &Type, like: &Type) -> Checked {
        let wanted = like.with_elem(Elem::Scalar(Scalar::BOOL)).ok_or_else(|| format!("{like} takes no mask"))?;
        self.same(&wanted, mask)
    }

    /// The same extents, whatever the elements.
    fn shapes_agree(&self, types: &[&Type]) -> Checked {
        for pair in types.windows(2) {
            if pair[0].is_tensor() != pair[1].is_tensor() || pair[0].shape() != pair[1].shape() {
                return Err(format!("{} and {} differ in shape", pair[0], pair[1]));
            }
        }
        types.iter().try_for_each(|t| match t.elem() {
            Some(_) => Ok(()),
            None => Err(format!("expected numbers or pointers, found {t}")),
        })
    }

    fn elementwise(&self, kind: &OpKind) -> Checked {
        let out = self.results.first().copied();
        let result = || out.ok_or_else(|| "expected a result".to_owned());
        match kind {
            OpKind::Constant(elements) => self.constant(elements, result()?),
            OpKind::Poison => Ok(()),
            OpKind::ProgramId(_) | OpKind::NumPrograms(_) => self.same(&Type::scalar(Scalar::I32), result()?),
            OpKind::MakeRange { start, end } => {
                let extent = i64::from(*end) - i64::from(*start);
                match result()? {
                    Type::Tensor { shape, elem: Elem::Scalar(Scalar::I32) }
                        if shape.len() == 1 && shape[0] as i64 == extent =>
                    {
                        Ok(())
                    }
                    other => Err(format!("a range of {extent} elements does not have type {other}")),
                }
            }
            OpKind::Unary { op, x } => {
                let ty = self.ty(*x);
                match op {
                    UnaryOp::AbsI | UnaryOp::Ctlz | UnaryOp::Cttz | UnaryOp::Ctpop => self.int(ty)?,
                    _ => self.float(ty)?,
                }
                self.same(ty, result()?)
            }
            OpKind::Binary { op, a, b } => {
                let ty = self.ty(*a);
                if op.is_float() {
                    self.float(ty)?
                } else {
                    self.int(ty)?
                }
                if *op == BinaryOp::MulHiUI && self.scalar(ty)?.bits() > 64 {
                    return Err(format!("no upper half of a product of {ty}"));
                }
                self.same(ty, self.ty(*b))?;
                self.same(ty, result()?)
            }
            OpKind::CmpI { a, b, .. } => {
                self.int(self.ty(*a))?;
                self.same(self.ty(*a), self.ty(*b))?;
                self.bools_like(result()?, self.ty(*a))
            }
            OpKind::CmpF { a, b, .. } => {
                self.float(self.ty(*a))?;
                self.same(self.ty(*a), self.ty(*b))?;
                self.bools_like(result()?, self.ty(*a))
            }
            OpKind::Select { cond, then, otherwise } => {
                self.all_same(&[*then, *otherwise], result()?)?;
                let cond = self.ty(*cond);
                if *cond == Type::scalar(Scalar::BOOL) { Ok(()) } else { self.bools_like(cond, result()?) }
            }
            OpKind::Fma { a, b, c } | OpKind::Clamp { x: a, lo: b, hi: c, .. } => {
                self.float(result()?)?;
                self.all_same(&[*a, *b, *c], result()?)
            }
            OpKind::Cast { op, x } => self.cast(*op, self.ty(*x), result()?),
            OpKind::Extern { args, .. } | OpKind::InlineAsm { args, .. } => {
                let types: Vec<&Type> = args.iter().map(|a| self.ty(*a)).chain(self.results.iter().copied()).collect();
                self.shapes_agree(&types)
            }
            OpKind::Dot { a, b, acc, .. } => {
                self.same(self.ty(*acc), result()?)?;
                self.dot(self.ty(*a), self.ty(*b), self.ty(*acc))
            }
            OpKind::DotScaled { acc, .. } => {
                self.float(result()?)?;
                self.same(self.ty(*acc), result()?)
            }
            OpKind::Assert { cond, .. } | OpKind::Assume { cond } => self.int(self.ty(*cond)),
            _ => Ok(()),
        }
    }

    fn constant(&self, elements: &Elements, ty: &Type) -> Checked {
        let bits = self.scalar(ty)?.bits();
        let fits = |v: &u64| bits >= 64 || v >> bits == 0;
        let good = match elements {
            Elements::Splat(v) => fits(v),
            Elements::List(list) => list.len() == ty.len() && list.iter().all(fits),
        };
        if good { Ok(()) } else { Err(format!("the elements of this constant do not fit {ty}")) }
    }

    fn cast(&self, op: CastOp, from: &Type, to: &Type) -> Checked {
        self.shapes_agree(&[from, to])?;
        let (Some(a), Some(b)) = (from.elem(), to.elem()) else { return Err("expected numbers".into()) };
        let good = match (op, a, b) {
            (CastOp::Bitcast, Elem::Ptr { .. }, Elem::Ptr { .. }) => true,
            (CastOp::IntToPtr, Elem::Scalar(a), Elem::Ptr { .. }) => a.is_int(),
            (CastOp::PtrToInt, Elem::Ptr { .. }, Elem::Scalar(b)) => b.is_int(),
            (_, Elem::Scalar(a), Elem::Scalar(b)) => match op {
                CastOp::ExtSI | CastOp::ExtUI => a.is_int() && b.is_int() && a.bits() < b.bits(),
                CastOp::TruncI => a.is_int() && b.is_int() && a.bits() > b.bits(),
                CastOp::ExtF | CastOp::TruncF | CastOp::FpToFp(_) => a.is_float() && b.is_float(),
                CastOp::SIToFP | CastOp::UIToFP => a.is_int() && b.is_float(),
                CastOp::FPToSI | CastOp::FPToUI => a.is_float() && b.is_int(),
                CastOp::IndexCast | CastOp::IndexCastUI => a.is_int() && b.is_int(),
                CastOp::Bitcast => a.bits() == b.bits(),
                CastOp::IntToPtr | CastOp::PtrToInt => false,
            },
            _ => false,
        };
        if good { Ok(()) } else { Err(format!("no such conversion from {from} to {to}")) }
    }

    fn dot(&self, a: &Type, b: &Type, acc: &Type) -> Checked {
        let (x, y, z) = (a.shape(), b.shape(), acc.shape());
        let rank = z.len();
        let agree = matches!(rank, 2 | 3)
            && x.len() == rank
            && y.len() == rank
            && x[..rank - 2] == z[..rank - 2]
            && y[..rank - 2] == z[..rank - 2]
            && x[rank - 2] == z[rank - 2]
            && y[rank - 1] == z[rank - 1]
            && x[rank - 1] == y[rank - 2];
        if !agree {
            return Err(format!("the extents of {a}, {b} and {acc} do not make a matrix product"));
        }
        let kinds = [self.scalar(a)?, self.scalar(b)?, self.scalar(acc)?].map(Scalar::is_float);
        if kinds == [true; 3] || kinds == [false; 3] { Ok(()) } else { Err("floats and integers are mixed".into()) }
    }

    fn shape(&self, kind: &OpKind) -> Checked {
        let out = self.results[0];
        let mismatch = |x: &Type| Err(format!("{x} does not become {out}"));
        match kind {
            OpKind::Splat { x } => {
                let x = self.ty(*x);
                if !x.is_tensor() && out.is_tensor() && x.elem().is_some() && x.elem() == out.elem() {
                    Ok(())
                } else {
                    mismatch(x)
                }
            }
            OpKind::Broadcast { x } => {
                let x = self.ty(*x);
                let fits = x.shape().len() == out.shape().len()
                    && x.shape().iter().zip(out.shape()).all(|(a, b)| a == b || *a == 1);
                if x.is_tensor() && fits && x.elem() == out.elem() { Ok(()) } else { mismatch(x) }
            }
            OpKind::ExpandDims { x, axis } => {
                let x = self.ty(*x);
                let mut shape = x.shape().to_vec();
                if *axis > shape.len() || !x.is_tensor() {
                    return mismatch(x);
                }
                shape.insert(*axis, 1);
                if shape == out.shape() && x.elem() == out.elem() { Ok(()) } else { mismatch(x) }
            }
            OpKind::Trans { x, order } => {
                let x = self.ty(*x);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                let permutation = sorted.iter().copied().eq(0..x.shape().len());
                if permutation
                    && order.iter().map(|o| x.shape()[*o]).eq(out.shape().iter().copied())
                    && x.elem() == out.elem()
                {
                    Ok(())
                } else {
                    mismatch(x)
                }
            }
            OpKind::Reshape { x, .. } => {
                let x = self.ty(*x);
                if x.len() == out.len() && x.elem().is_some() && x.elem() == out.elem() { Ok(()) } else { mismatch(x) }
            }
            OpKind::Join { a, b } => {
                self.same(self.ty(*a), self.ty(*b))?;
                self.joined(self.ty(*a), out)
            }
            OpKind::Split { x } => {
                self.same(out, self.results[1])?;
                self.joined(out, self.ty(*x))
            }
            OpKind::Cat { a, b } => {
                let (x, y) = (self.ty(*a), self.ty(*b));
                let fits = match (x.shape().split_first(), y.shape().split_first(), out.shape().split_first()) {
                    (Some((n, r)), Some((m, s)), Some((k, t))) => n + m == *k && r == t && s == t,
                    _ => false,
                };
                if fits && x.elem() == out.elem() && y.elem() == out.elem() { Ok(()) } else { mismatch(x) }
            }
            OpKind::Gather { x, indices, axis } => self.gather(self.ty(*x), self.ty(*indices), *axis, out),
            OpKind::Histogram { x, mask } => {
                let x = self.ty(*x);
                self.int(x)?;
                self.int(out)?;
                if let Some(mask) = mask {
                    self.bools_like(self.ty(*mask), x)?;
                }
                if x.shape().len() == 1 && out.shape().len() == 1 { Ok(()) } else { mismatch(x) }
            }
            _ => Ok(()),
        }
    }

    fn joined(&self, half: &Type, whole: &Type) -> Checked {
        let mut shape = half.shape().to_vec();
        shape.push(2);
        if half.elem().is_some() && half.elem() == whole.elem() && shape == whole.shape() {
            return Ok(());
        }
        Err(format!("two of {half} do not make {whole}"))
    }

    fn gather(&self, x: &Type, indices: &Type, axis: usize, out: &Type) -> Checked {
        self.int(indices)?;
        let (a, b) = (x.shape(), indices.shape());
        let fits = a.len() == b.len() && axis < a.len() && (0..a.len()).all(|i| i == axis || a[i] == b[i]);
        if fits && b == out.shape() && x.elem().is_some() && x.elem() == out.elem() {
            return Ok(());
        }
        Err(format!("{x} cannot be gathered at {indices} into {out}"))
    }

    fn memory(&self, kind: &OpKind) -> Checked {
        let (OpKind::AddPtr { ptr, .. }
        | OpKind::Load { ptr, .. }
        | OpKind::Store { ptr, .. }
        | OpKind::AtomicRmw { ptr, .. }
        | OpKind::AtomicCas { ptr, .. }) = kind
        else {
            return Ok(());
        };
        let ptr = self.ty(*ptr);
        let pointee = ptr.pointee().ok_or_else(|| format!("expected a pointer, found {ptr}"))?;
        let data = ptr.with_elem(Elem::Scalar(pointee)).ok_or("expected a pointer")?;
        match kind {
            OpKind::AddPtr { offset, .. } => {
                self.int(self.ty(*offset))?;
                self.shapes_agree(&[ptr, self.ty(*offset)])?;
                self.same(ptr, self.results[0])
            }
            OpKind::Load { mask, other, .. } => {
                self.same(&data, self.results[0])?;
                mask.map_or(Ok(()), |m| self.bools_like(self.ty(m), ptr))?;
                other.map_or(Ok(()), |o| self.same(&data, self.ty(o)))
            }
            OpKind::Store { value, mask, .. } => {
                self.same(&data, self.ty(*value))?;
                mask.map_or(Ok(()), |m| self.bools_like(self.ty(m), ptr))
            }
            OpKind::AtomicRmw { op, value, mask, .. } => {
                match op {
                    AtomicOp::FAdd => self.float(&data)?,
                    AtomicOp::Exchange => {}
                    _ => self.int(&data)?,
                }
                self.same(&data, self.ty(*value))?;
                self.same(&data, self.results[0])?;
                mask.map_or(Ok(()), |m| self.bools_like(self.ty(m), ptr))
            }
            OpKind::AtomicCas { cmp, value, .. } => {
                self.all_same(&[*cmp, *value], &data)?;
                self.same(&data, self.results[0])
            }
            _ => Ok(()),
        }
    }

    fn descriptor(&self, kind: &OpKind) -> Checked {
        if let OpKind::MakeDesc { base, shape, strides, .. } = kind {
            let Type::Desc { block, elem } = self.results[0] else {
                return Err(format!("expected a descriptor, found {}", self.results[0]));
            };
            shape.iter().chain(strides).try_for_each(|v| self.one_int(*v))?;
            let base = self.ty(*base);
            let fits = shape.len() == block.len() && strides.len() == block.len() && !base.is_tensor();
            return if fits && base.pointee() == Some(*elem) {
                Ok(())
            } else {
                Err(format!("{base} does not make this descriptor"))
            };
        }
        let (desc, data, indices) = match kind {
            OpKind::DescLoad { desc, indices } => (*desc, self.results[0], indices.as_slice()),
            OpKind::DescStore { desc, value, indices } | OpKind::DescReduce { desc, value, indices, .. } => {
                (*desc, self.ty(*value), indices.as_slice())
            }
            OpKind::DescGather { desc, rows, column } => {
                return self.row_access(*desc, *rows, *column, self.results[0]);
            }
            OpKind::DescScatter { desc, rows, column, value } => {
                return self.row_access(*desc, *rows, *column, self.ty(*value));
            }
            _ => return Ok(()),
        };
        let Type::Desc { block, elem } = self.ty(desc) else {
            return Err(format!("expected a descriptor, found {}", self.ty(desc)));
        };
        indices.iter().try_for_each(|v| self.one_int(*v))?;
        let same_len = data.is_tensor() && data.len() == block.iter().product::<usize>();
        if indices.len() == block.len() && same_len && data.scalar_elem() == Some(*elem) {
            return Ok(());
        }
        Err(format!("{data} does not fit {}", self.ty(desc)))
    }

    fn row_access(&self, desc: Value, rows: Value, column: Value, data: &Type) -> Checked {
        self.one_int(column)?;
        self.int(self.ty(rows))?;
        match (self.ty(desc), self.ty(rows).shape(), data.shape()) {
            (Type::Desc { block, elem }, [n], [m, k])
                if n == m && block.len() == 2 && block[1] == *k && data.scalar_elem() == Some(*elem) =>
            {
                Ok(())
            }
            _ => Err(format!("{data} does not fit {} at {}", self.ty(desc), self.ty(rows))),
        }
    }

    fn control(&self, kind: &OpKind) -> Checked {
        let types = |values: &[Value]| values.iter().map(|v| self.ty(*v).clone()).collect::<Vec<_>>();
        let results: Vec<Type> = self.results.iter().map(|t| (*t).clone()).collect();
        let equal = |what: &str, a: &[Type], b: &[Type]| {
            let show = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            if a == b { Ok(()) } else { Err(format!("{what}: expected ({}), found ({})", show(a), show(b))) }
        };
        match kind {
            OpKind::For { lo, hi, step, inits, body, .. } => {
                self.one_int(*lo)?;
                self.all_same(&[*hi, *step], self.ty(*lo))?;
                let mut params = vec![self.ty(*lo).clone()];
                params.extend(types(inits));
                equal("the parameters of the loop body", &params, &types(&body.params))?;
                equal("what the loop body yields", &types(inits), &types(body.yields()))?;
                equal("the results of the loop", &types(inits), &results)
            }
            OpKind::If { cond, then, otherwise } => {
                self.same(&Type::scalar(Scalar::BOOL), self.ty(*cond))?;
                for block in [then, otherwise] {
                    equal("a branch takes no parameters", &[], &types(&block.params))?;
                    equal("what a branch yields", &results, &types(block.yields()))?;
                }
                Ok(())
            }
            OpKind::While { inits, before, after } => {
                equal("the parameters of the first region", &types(inits), &types(&before.params))?;
                let Terminator::Condition { cond, args } = &before.end else {
                    return Err("the first region ends in scf.condition".into());
                };
                self.same(&Type::scalar(Scalar::BOOL), self.ty(*cond))?;
                equal("what scf.condition passes", &results, &types(args))?;
                equal("the parameters of the second region", &results, &types(&after.params))?;
                equal("what the second region yields", &types(inits), &types(after.yields()))
            }
            OpKind::Reduce { args, axis, combiner } => self.combiner(args, *axis, combiner, true),
            OpKind::Scan { args, axis, combiner, .. } => self.combiner(args, *axis, combiner, false),
            _ => Ok(()),
        }
    }

    fn combiner(&self, args: &[Value], axis: usize, block: &Block, removes_axis: bool) -> Checked {
        let Some(first) = args.first().map(|a| self.ty(*a)) else { return Err("expected an operand".into()) };
        if axis >= first.shape().len() {
            return Err(format!("{first} has no axis {axis}"));
        }
        let mut elems = Vec::new();
        for (i, arg) in args.iter().enumerate() {
            let ty = self.ty(*arg);
            let Some(elem) = ty.elem().filter(|_| ty.shape() == first.shape()) else {
                return Err(format!("{ty} and {first} differ in shape"));
            };
            let mut shape = ty.shape().to_vec();
            let wanted = match (removes_axis, shape.len()) {
                (false, _) => ty.clone(),
                (true, 1) => Type::Elem(elem),
                (true, _) => {
                    shape.remove(axis);
                    Type::Tensor { shape, elem }
                }
            };
            let got = self.results.get(i).ok_or("expected a result for each operand")?;
            self.same(&wanted, got)?;
            elems.push(Type::Elem(elem));
        }
        let twice: Vec<&Type> = elems.iter().chain(&elems).collect();
        let params: Vec<&Type> = block.params.iter().map(|p| self.ty(*p)).collect();
        let yields: Vec<&Type> = block.yields().iter().map(|y| self.ty(*y)).collect();
        if self.results.len() == args.len() && params == twice && yields == elems.iter().collect::<Vec<_>>() {
            return Ok(());
        }
        Err("the combiner does not take two of each element and yield one".into())
    }

    fn call(&self, module: &Module, callee: &str, args: &[Value]) -> Checked {
        let Some(target) = module.function(callee) else { return Err(format!("there is no function @{callee}")) };
        let params: Vec<&Type> = target.params.iter().map(|p| target.ty(p.value)).collect();
        let given: Vec<&Type> = args.iter().map(|a| self.ty(*a)).collect();
        let results: Vec<&Type> = target.results.iter().collect();
        if params == given && results == self.results {
            return Ok(());
        }
        Err(format!("the call does not match the type of @{callee}"))
    }
}

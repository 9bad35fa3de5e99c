//! One program at a time: the values of each function call, the operations in order, budgets.

use super::desc::{self, Desc};
use super::value::Val;
use super::{Memory, Options, Trap, TrapKind, dot, lane, library, shape};
use crate::ir::{Axis, Block, Elements, Function, LocId, Module, Op, OpKind, Scalar, TextPos, Type, Value};
use std::rc::Rc;

/// A fault before its place is known.
pub(super) struct Fault {
    kind: TrapKind,
    message: String,
}

impl Fault {
    pub(super) fn memory(message: String) -> Fault {
        Fault { kind: TrapKind::Memory, message }
    }

    pub(super) fn unsupported(what: impl Into<String>) -> Fault {
        Fault { kind: TrapKind::Unsupported, message: format!("{} is not supported by the interpreter", what.into()) }
    }

    pub(super) fn budget(message: impl Into<String>) -> Fault {
        Fault { kind: TrapKind::Budget, message: message.into() }
    }

    fn assertion(message: impl Into<String>) -> Fault {
        Fault { kind: TrapKind::Assert, message: message.into() }
    }
}

/// What runs.
pub(super) struct Machine<'m> {
    pub(super) module: &'m Module,
    pub(super) memory: &'m mut Memory,
    pub(super) options: &'m Options,
    grid: [u32; 3],
    program: [u32; 3],
    steps: u64,
    live: usize,
    pub(super) calls: usize,
}

/// The values of one call of one function.
pub(super) struct Frame<'m> {
    pub(super) function: &'m Function,
    values: Vec<Val>,
}

impl Frame<'_> {
    pub(super) fn get(&self, value: Value) -> &Val {
        &self.values[value.0 as usize]
    }

    pub(super) fn ty(&self, value: Value) -> &Type {
        self.function.ty(value)
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.ty(value).scalar_elem().unwrap_or(Scalar::I64)
    }

    pub(super) fn int(&self, value: Value) -> i64 {
        lane::signed(self.get(value).lane(0), self.scalar(value).bits())
    }

    fn desc(&self, value: Value) -> Result<Rc<Desc>, Fault> {
        match self.get(value) {
            Val::Desc(desc) => Ok(Rc::clone(desc)),
            _ => Err(Fault::unsupported("this descriptor")),
        }
    }
}

impl<'m> Machine<'m> {
    pub(super) fn new(module: &'m Module, memory: &'m mut Memory, options: &'m Options, grid: [u32; 3]) -> Self {
        Machine { module, memory, options, grid, program: [0; 3], steps: 0, live: 0, calls: 0 }
    }

    /// Runs the program with the given number, x fastest.
    pub(super) fn program(&mut self, kernel: &'m Function, args: &[Val], linear: u64) -> Result<(), Trap> {
        let [x, y, _] = self.grid.map(u64::from);
        self.program = [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32];
        self.memory.instance = super::Instance { program: self.program, ..Default::default() };
        self.function(kernel, args.to_vec()).map(|_| ())
    }

    pub(super) fn trap(&self, fault: Fault, at: TextPos, loc: LocId) -> Trap {
        Trap { kind: fault.kind, message: fault.message, at, loc, program: self.program }
    }

    /// Accounts for `lanes` lane operations.
    pub(super) fn charge(&mut self, lanes: usize) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(lanes.max(1) as u64);
        if self.steps > self.options.max_steps {
            return Err(Fault::budget(format!("more than {} steps", self.options.max_steps)));
        }
        Ok(())
    }

    pub(super) fn frame(&self, function: &'m Function) -> Frame<'m> {
        Frame { function, values: vec![Val::Scalar(0); function.values.len()] }
    }

    /// Forgets the values of a call that ended.
    pub(super) fn release(&mut self, frame: &Frame<'m>) {
        let weight: usize = frame.values.iter().map(Val::weight).sum();
        self.live = self.live.saturating_sub(weight);
    }

    pub(super) fn set(&mut self, frame: &mut Frame<'m>, value: Value, new: Val) -> Result<(), Fault> {
        let slot = &mut frame.values[value.0 as usize];
        self.live = (self.live + new.weight()).saturating_sub(slot.weight());
        *slot = new;
        if self.live > self.options.max_live {
            return Err(Fault::budget(format!("more than {} tensor elements alive", self.options.max_live)));
        }
        Ok(())
    }

    /// Runs the operations of a block, its parameters set.
    pub(super) fn ops(&mut self, frame: &mut Frame<'m>, block: &'m Block) -> Result<(), Trap> {
        for op in &block.ops {
            let lanes = op.results.iter().map(|r| frame.ty(*r).len()).max().unwrap_or(1);
            self.charge(lanes).map_err(|f| self.trap(f, op.at, op.loc))?;
            if self.control(frame, op)? {
                continue;
            }
            self.memory.instance.at = op.at;
            let value = self.op(frame, op).map_err(|f| self.trap(f, op.at, op.loc))?;
            if let (Some(value), Some(result)) = (value, op.results.first()) {
                self.set(frame, *result, value).map_err(|f| self.trap(f, op.at, op.loc))?;
            }
        }
        Ok(())
    }

    /// An operation without regions; the value of its first result.
    fn op(&mut self, frame: &mut Frame<'m>, op: &'m Op) -> Result<Option<Val>, Fault> {
        let result = op.results.first().map(|r| frame.function.ty(*r));
        match &op.kind {
            OpKind::Store { .. } | OpKind::Load { .. } | OpKind::AddPtr { .. } => self.memory_op(frame, &op.kind),
            OpKind::AtomicRmw { .. } | OpKind::AtomicCas { .. } => self.atomic_op(frame, &op.kind),
            OpKind::MakeDesc { .. }
            | OpKind::DescLoad { .. }
            | OpKind::DescStore { .. }
            | OpKind::DescReduce { .. }
            | OpKind::DescGather { .. }
            | OpKind::DescScatter { .. } => self.desc_op(frame, op),
            OpKind::Assert { cond, message } => match frame.get(*cond).lanes().contains(&0) {
                true => Err(Fault::assertion(format!("assertion failed: {message}"))),
                false => Ok(None),
            },
            OpKind::Assume { cond } => match frame.get(*cond).lane(0) {
                0 => Err(Fault::assertion("an assumption of the kernel does not hold")),
                _ => Ok(None),
            },
            OpKind::Print { .. } | OpKind::Barrier => Ok(None),
            OpKind::Split { x } => {
                let half =
                    |odd: usize| Val::tensor(frame.get(*x).lanes().iter().skip(odd).step_by(2).copied().collect());
                let (even, odd) = (half(0), half(1));
                self.set(frame, op.results[1], odd)?;
                Ok(Some(even))
            }
            OpKind::Dot { .. } | OpKind::DotScaled { .. } => self.dot_op(frame, &op.kind).map(Some),
            kind => match (elementwise(frame, kind, result, self)?, result) {
                (Some(value), _) => Ok(Some(value)),
                (None, Some(ty)) => self.shape_op(frame, kind, ty).map(Some),
                (None, None) => Err(unknown(kind)),
            },
        }
    }

    pub(super) fn axis(&self, count: bool, axis: Axis) -> u64 {
        let triple = if count { self.grid } else { self.program };
        u64::from(triple[axis as usize])
    }

    fn memory_op(&mut self, frame: &Frame<'m>, kind: &OpKind) -> Result<Option<Val>, Fault> {
        match kind {
            OpKind::AddPtr { ptr, offset } => {
                let size = frame.ty(*ptr).pointee().map_or(1, |p| p.bytes()) as u64;
                let bits = frame.scalar(*offset).bits();
                let add = |p: u64, o: u64| p.wrapping_add((lane::signed(o, bits) as u64).wrapping_mul(size));
                Ok(Some(frame.get(*ptr).map2(frame.get(*offset), add)))
            }
            OpKind::Load { ptr, mask, other, .. } => {
                let pointee = frame.ty(*ptr).pointee().unwrap_or(Scalar::I64);
                let undefined = lane::cut(self.options.undefined, pointee.bits());
                let (ptr, mask) = (frame.get(*ptr), mask.map(|m| frame.get(m)));
                let mut out = Vec::with_capacity(ptr.len());
                for (i, address) in ptr.lanes().iter().enumerate() {
                    out.push(if mask.is_none_or(|m| m.lane(i) != 0) {
                        lane::cut(self.memory.load(*address, pointee.bytes()).map_err(Fault::memory)?, pointee.bits())
                    } else {
                        other.map_or(undefined, |o| frame.get(o).lane(i))
                    });
                }
                Ok(Some(like(ptr, out)))
            }
            OpKind::Store { ptr, value, mask } => {
                let size = frame.ty(*ptr).pointee().unwrap_or(Scalar::I64).bytes();
                let (ptr, value, mask) = (frame.get(*ptr), frame.get(*value), mask.map(|m| frame.get(m)));
                self.charge(ptr.len())?;
                for (i, address) in ptr.lanes().iter().enumerate() {
                    if mask.is_none_or(|m| m.lane(i) != 0) {
                        self.memory.instance.lane = i;
                        self.memory.store(*address, size, value.lane(i)).map_err(Fault::memory)?;
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn atomic_op(&mut self, frame: &Frame<'m>, kind: &OpKind) -> Result<Option<Val>, Fault> {
        let (OpKind::AtomicRmw { ptr, .. } | OpKind::AtomicCas { ptr, .. }) = kind else { return Ok(None) };
        let elem = frame.ty(*ptr).pointee().unwrap_or(Scalar::I64);
        let ptr = frame.get(*ptr);
        let mut out = Vec::with_capacity(ptr.len());
        for (i, address) in ptr.lanes().iter().enumerate() {
            let old = |m: &Memory| m.load(*address, elem.bytes()).map_err(Fault::memory);
            let new = match kind {
                OpKind::AtomicRmw { mask: Some(m), .. } if frame.get(*m).lane(i) == 0 => None,
                OpKind::AtomicRmw { op, value, .. } => {
                    Some(desc::atomic(*op, elem, old(self.memory)?, frame.get(*value).lane(i)))
                }
                OpKind::AtomicCas { cmp, value, .. } if old(self.memory)? == frame.get(*cmp).lane(i) => {
                    Some(frame.get(*value).lane(i))
                }
                _ => None,
            };
            let masked_off = matches!(kind, OpKind::AtomicRmw { .. }) && new.is_none();
            out.push(if masked_off { lane::cut(self.options.undefined, elem.bits()) } else { old(self.memory)? });
            if let Some(new) = new {
                self.memory.instance.lane = i;
                self.memory.store(*address, elem.bytes(), new).map_err(Fault::memory)?;
            }
        }
        Ok(Some(like(ptr, out)))
    }

    fn desc_op(&mut self, frame: &Frame<'m>, op: &Op) -> Result<Option<Val>, Fault> {
        let ints = |values: &[Value]| values.iter().map(|v| frame.int(*v)).collect::<Vec<i64>>();
        let block = |desc: Value| match frame.function.ty(desc) {
            Type::Desc { block, .. } => block.as_slice(),
            _ => &[],
        };
        match &op.kind {
            OpKind::MakeDesc { base, shape, strides, padding_nan } => {
                let elem = frame.ty(*base).pointee().unwrap_or(Scalar::I64);
                let (base, padding_nan) = (frame.get(*base).lane(0), *padding_nan);
                let desc = Desc { base, shape: ints(shape), strides: ints(strides), elem, padding_nan };
                Ok(Some(Val::Desc(desc.into())))
            }
            OpKind::DescLoad { desc, indices } => {
                let at = frame.desc(*desc)?.block(block(*desc), &ints(indices));
                self.desc_load(&*frame.desc(*desc)?, &at).map(Some)
            }
            OpKind::DescStore { desc, value, indices } => {
                let at = frame.desc(*desc)?.block(block(*desc), &ints(indices));
                self.charge(at.len())?;
                self.desc_store(&*frame.desc(*desc)?, &at, frame.get(*value)).map(|()| None)
            }
            OpKind::DescReduce { kind, desc, value, indices } => {
                let at = frame.desc(*desc)?.block(block(*desc), &ints(indices));
                self.charge(at.len())?;
                self.desc_reduce(*kind, &*frame.desc(*desc)?, &at, frame.get(*value)).map(|()| None)
            }
            OpKind::DescGather { desc, rows, column } | OpKind::DescScatter { desc, rows, column, .. } => {
                let bits = frame.scalar(*rows).bits();
                let rows: Vec<i64> = frame.get(*rows).lanes().iter().map(|r| lane::signed(*r, bits)).collect();
                let width = block(*desc).get(1).copied().unwrap_or(0);
                let desc = frame.desc(*desc)?;
                let at = desc.rows(&rows, frame.int(*column), width);
                self.charge(at.len())?;
                match &op.kind {
                    OpKind::DescScatter { value, .. } => self.desc_store(&desc, &at, frame.get(*value)).map(|()| None),
                    _ => self.desc_load(&desc, &at).map(Some),
                }
            }
            _ => Ok(None),
        }
    }

    fn dot_op(&mut self, frame: &Frame<'m>, kind: &OpKind) -> Result<Val, Fault> {
        match kind {
            OpKind::Dot { a, b, acc, precision, max_imprecise } => {
                let (x, z) = (frame.ty(*a).shape(), frame.ty(*acc).shape());
                let rank = z.len();
                let (m, n, k) = (z[rank - 2], z[rank - 1], x[rank - 1]);
                let batch = if rank == 3 { z[0] } else { 1 };
                self.charge(batch.saturating_mul(m).saturating_mul(n).saturating_mul(k))?;
                let arithmetic = self.options.arithmetic;
                let dot = dot::Dot { batch, m, n, k, arithmetic, precision: *precision, max_imprecise: *max_imprecise };
                let types = [*a, *b, *acc].map(|v| frame.scalar(v));
                Ok(Val::tensor(dot.run(types, frame.get(*a).lanes(), frame.get(*b).lanes(), frame.get(*acc).lanes())))
            }
            OpKind::DotScaled { a, b, acc, a_scale, b_scale, a_elem, b_elem, a_k_pack, b_k_pack, .. } => {
                let (&[m, packed], &[_, n]) = (frame.ty(*a).shape(), frame.ty(*acc).shape()) else {
                    return Err(Fault::unsupported("a batched tt.dot_scaled"));
                };
                let k = if *a_elem == crate::ir::ScaledElem::E2M1 { packed.saturating_mul(2) } else { packed };
                self.charge(m.saturating_mul(n).saturating_mul(k))?;
                let b_shape = frame.ty(*b).shape();
                let columns = match b_shape.len() {
                    2 => take(frame.get(*b), &shape::transpose(b_shape, &[1, 0])),
                    _ => return Err(Fault::unsupported("this tt.dot_scaled")),
                };
                let scale = |s: &Option<Value>| s.map(|v| frame.get(v).lanes());
                let left = dot::unpack_scaled(frame.get(*a).lanes(), *a_elem, m, k, scale(a_scale));
                let right = dot::unpack_scaled(columns.lanes(), *b_elem, n, k, scale(b_scale));
                match (left, right, frame.scalar(*acc)) {
                    (Some(left), Some(right), Scalar::Float(c)) if *a_k_pack && *b_k_pack => {
                        Ok(Val::tensor(dot::scaled(m, n, k, &left, &right, frame.get(*acc).lanes(), c)))
                    }
                    _ => Err(Fault::unsupported("this tt.dot_scaled")),
                }
            }
            _ => Err(unknown(kind)),
        }
    }

    fn shape_op(&mut self, frame: &Frame<'m>, kind: &OpKind, ty: &Type) -> Result<Val, Fault> {
        let from = |v: Value| frame.ty(v).shape();
        match kind {
            OpKind::Splat { x } => Ok(Val::tensor(vec![frame.get(*x).lane(0); ty.len()])),
            OpKind::Broadcast { x } => Ok(take(frame.get(*x), &shape::broadcast(from(*x), ty.shape()))),
            OpKind::Trans { x, order } => Ok(take(frame.get(*x), &shape::transpose(from(*x), order))),
            OpKind::ExpandDims { x, .. } => Ok(frame.get(*x).clone()),
            OpKind::Reshape { x, .. } => match ty.is_tensor() {
                true => Ok(Val::tensor(frame.get(*x).lanes().to_vec())),
                false => Ok(Val::Scalar(frame.get(*x).lane(0))),
            },
            OpKind::Join { a, b } => {
                let pairs = frame.get(*a).lanes().iter().zip(frame.get(*b).lanes());
                Ok(Val::tensor(pairs.flat_map(|(a, b)| [*a, *b]).collect()))
            }
            OpKind::Cat { a, b } => Ok(Val::tensor([frame.get(*a).lanes(), frame.get(*b).lanes()].concat())),
            OpKind::Gather { x, indices, axis } => self.gather(frame, *x, *indices, *axis),
            OpKind::Histogram { x, mask } => {
                let (bits, out_bits) = (frame.scalar(*x).bits(), ty.scalar_elem().map_or(32, Scalar::bits));
                let mut bins = vec![0u64; ty.len()];
                for (i, v) in frame.get(*x).lanes().iter().enumerate() {
                    let kept = mask.is_none_or(|m| frame.get(m).lane(i) != 0);
                    if let Some(bin) =
                        usize::try_from(lane::signed(*v, bits)).ok().and_then(|v| bins.get_mut(v)).filter(|_| kept)
                    {
                        *bin = lane::cut(*bin + 1, out_bits);
                    }
                }
                Ok(Val::tensor(bins))
            }
            _ => Err(unknown(kind)),
        }
    }

    fn gather(&self, frame: &Frame<'m>, x: Value, indices: Value, axis: usize) -> Result<Val, Fault> {
        let (_, extent, inner) = shape::around(frame.ty(x).shape(), axis);
        let (_, count, _) = shape::around(frame.ty(indices).shape(), axis);
        let bits = frame.scalar(indices).bits();
        let source = frame.get(x).lanes();
        let at = |(e, index): (usize, &u64)| {
            let index = usize::try_from(lane::signed(*index, bits)).ok().filter(|i| *i < extent);
            let index = index.ok_or_else(|| Fault::memory("tt.gather at an index outside its axis".into()))?;
            let (outer, rest) = (e / (count * inner), e % inner);
            Ok(source[(outer * extent + index) * inner + rest])
        };
        Ok(Val::tensor(frame.get(indices).lanes().iter().enumerate().map(at).collect::<Result<_, Fault>>()?))
    }
}

/// A value of the same kind as `model`.
fn like(model: &Val, lanes: Vec<u64>) -> Val {
    match model {
        Val::Tensor(_) => Val::tensor(lanes),
        _ => Val::Scalar(lanes.first().copied().unwrap_or(0)),
    }
}

pub(super) fn take(value: &Val, source: &[usize]) -> Val {
    Val::tensor(source.iter().map(|i| value.lane(*i)).collect())
}

pub(super) fn unknown(kind: &OpKind) -> Fault {
    match kind {
        OpKind::Unknown { name, .. } => Fault::unsupported(name.clone()),
        OpKind::InlineAsm { asm, .. } => Fault::unsupported(format!("the assembly `{asm}`")),
        OpKind::Extern { symbol, .. } => Fault::unsupported(format!("the library function {symbol}")),
        _ => Fault::unsupported("this operation"),
    }
}

/// Operations that work lane by lane, whatever the number of lanes: the combiner of a reduction runs over many elements at
/// once. `None` if the operation is of another kind.
fn elementwise(
    frame: &Frame<'_>,
    kind: &OpKind,
    result: Option<&Type>,
    machine: &Machine<'_>,
) -> Result<Option<Val>, Fault> {
    let get = |v: &Value| frame.get(*v);
    let elem = |v: &Value| frame.scalar(*v);
    let ints = |v: &Value| elem(v).bits();
    Ok(Some(match kind {
        OpKind::Constant(Elements::List(list)) => Val::tensor(list.clone()),
        OpKind::Constant(Elements::Splat(bits)) => splat(*bits, result),
        OpKind::Poison => {
            let bits = result.and_then(Type::scalar_elem).map_or(64, Scalar::bits);
            splat(lane::cut(machine.options.undefined, bits), result)
        }
        OpKind::ProgramId(axis) => Val::Scalar(machine.axis(false, *axis)),
        OpKind::NumPrograms(axis) => Val::Scalar(machine.axis(true, *axis)),
        OpKind::MakeRange { start, end } => Val::tensor((*start..*end).map(|i| u64::from(i as u32)).collect()),
        OpKind::Unary { op, x } => get(x).map(|v| lane::unary(*op, elem(x), v)),
        OpKind::Binary { op, a, b } => get(a).map2(get(b), |x, y| lane::binary(*op, elem(a), x, y)),
        OpKind::CmpI { pred, a, b } => get(a).map2(get(b), |x, y| lane::compare_int(*pred, ints(a), x, y)),
        OpKind::CmpF { pred, a, b } => match elem(a) {
            Scalar::Float(f) => get(a).map2(get(b), |x, y| lane::compare_float(*pred, f, x, y)),
            _ => return Err(unknown(kind)),
        },
        OpKind::Select { cond, then, otherwise } => match (get(cond), get(then), get(otherwise)) {
            (Val::Scalar(c), Val::Desc(a), Val::Desc(b)) => Val::Desc(Rc::clone(if *c != 0 { a } else { b })),
            (c, a, b) => c.map3(a, b, |c, a, b| if c != 0 { a } else { b }),
        },
        OpKind::Fma { a, b, c } => get(a).map3(get(b), get(c), |x, y, z| lane::fma(elem(a), x, y, z)),
        OpKind::Clamp { x, lo, hi, propagate_nan } => {
            get(x).map3(get(lo), get(hi), |v, l, h| lane::clamp(elem(x), *propagate_nan, v, l, h))
        }
        OpKind::Cast { op, x } => {
            let (Some(from), Some(to)) = (frame.ty(*x).elem(), result.and_then(Type::elem)) else {
                return Err(unknown(kind));
            };
            get(x).map(|v| lane::cast(*op, from, to, v))
        }
        OpKind::Extern { symbol, args, .. } => apply(frame, kind, library::symbol(symbol), args)?,
        OpKind::InlineAsm { asm, args, packed: 1, .. } => apply(frame, kind, library::instruction(asm), args)?,
        _ => return Ok(None),
    }))
}

fn splat(bits: u64, ty: Option<&Type>) -> Val {
    match ty {
        Some(ty) if ty.is_tensor() => Val::tensor(vec![bits; ty.len()]),
        _ => Val::Scalar(bits),
    }
}

fn apply(frame: &Frame<'_>, kind: &OpKind, function: Option<library::Function>, args: &[Value]) -> Result<Val, Fault> {
    let formats: Option<Vec<_>> = args
        .iter()
        .map(|a| match frame.scalar(*a) {
            Scalar::Float(f) => Some(f),
            _ => None,
        })
        .collect();
    let (Some(function), Some(formats)) = (function, formats) else { return Err(unknown(kind)) };
    let same = formats.windows(2).all(|w| w[0] == w[1]);
    if function.operands() != args.len() || !same {
        return Err(unknown(kind));
    }
    let n = args.iter().map(|a| frame.get(*a).len()).max().unwrap_or(1);
    let lanes = (0..n).map(|i| {
        let operands: Vec<u64> = args.iter().map(|a| frame.get(*a).lane(i)).collect();
        function.apply(formats[0], &operands)
    });
    let lanes: Vec<u64> = lanes.collect();
    Ok(match args.iter().all(|a| matches!(frame.get(*a), Val::Scalar(_))) {
        true => Val::Scalar(lanes[0]),
        false => Val::tensor(lanes),
    })
}

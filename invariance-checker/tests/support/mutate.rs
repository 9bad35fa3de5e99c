//! Mutants of a kernel: one change each, kept only if the result still is a well-formed module.

use super::Rng;
use invariance_checker::ir::{
    AtomicOp, Axis, BinaryOp, Block, CmpI, Elements, Function, LocId, MemOrder, Module, Op, OpKind, Scalar, Terminator,
    TextPos, Type, Value, ValueInfo, verify,
};

/// What was done, and the mutant.
pub struct Mutant {
    pub what: String,
    pub module: Module,
}

/// Up to `count` different mutants, the same for the same seed.
pub fn mutants(module: &Module, seed: u64, count: usize) -> Vec<Mutant> {
    let mut rng = Rng::new(seed);
    let mut out: Vec<Mutant> = Vec::new();
    for _ in 0..count * 20 {
        if out.len() == count {
            break;
        }
        let mut mutant = module.clone();
        let Some(kernel) = mutant.functions.iter_mut().find(|f| f.public) else { break };
        let Some(what) = mutate(kernel, &mut rng) else { continue };
        if mutant != *module && verify(&mutant).is_ok() && out.iter().all(|m| m.module != mutant) {
            out.push(Mutant { what, module: mutant });
        }
    }
    out
}

/// One random change; `None` if the operation drawn does not take the change drawn.
fn mutate(f: &mut Function, rng: &mut Rng) -> Option<String> {
    let ops = count(f);
    let at = rng.below(ops as u64) as usize;
    match rng.below(12) {
        0 | 1 => replace_operand(f, at, rng),
        2 => new_index(f, at, rng),
        3 | 4 => drop_mask(f, at, rng),
        5 | 6 => change_op(f, at, rng),
        7 | 8 => change_constant(f, at, rng),
        9 => change_axis(f, at, rng),
        10 => change_yield(f, rng),
        _ => change_order(f, at, rng),
    }
}

/// Calls `f` on every block of a function, nested ones too.
fn each_block(blocks: &mut [Block], f: &mut dyn FnMut(&mut Block)) {
    for block in blocks {
        f(block);
        for op in &mut block.ops {
            for inner in op.kind.blocks_mut() {
                each_block(std::slice::from_mut(inner), f);
            }
        }
    }
}

fn count(f: &Function) -> usize {
    fn in_block(block: &Block) -> usize {
        block.ops.iter().map(|o| 1 + o.kind.blocks().into_iter().map(in_block).sum::<usize>()).sum()
    }
    f.blocks.iter().map(in_block).sum::<usize>().max(1)
}

/// Calls `g` on operation number `at`, in no order that matters but always the same.
fn with_op<T>(f: &mut Function, at: usize, g: impl FnOnce(&mut Op) -> Option<T>) -> Option<T> {
    let mut n = 0;
    let mut g = Some(g);
    let mut out = None;
    each_block(&mut f.blocks, &mut |block| {
        for op in &mut block.ops {
            if n == at
                && let Some(g) = g.take()
            {
                out = g(op);
            }
            n += 1;
        }
    });
    out
}

/// Another value of the same type in place of an operand: a swapped bound, a neighbour's mask, a stale accumulator.
fn replace_operand(f: &mut Function, at: usize, rng: &mut Rng) -> Option<String> {
    let types: Vec<Type> = f.values.iter().map(|v| v.ty.clone()).collect();
    let params = f.params.len();
    with_op(f, at, |op| {
        let operands = op.kind.operands();
        let slot = rng.below(operands.len().max(1) as u64) as usize;
        let old = *operands.get(slot)?;
        let same = |v: &usize| types[*v] == types[old.0 as usize] && *v != old.0 as usize;
        // Arguments first: a bound that is the wrong argument is the classic mistake.
        let from_params: Vec<usize> = (0..params).filter(same).collect();
        let all: Vec<usize> = (0..types.len()).filter(same).collect();
        let pool = if !from_params.is_empty() && rng.below(2) == 0 { &from_params } else { &all };
        let new = *pool.get(rng.below(pool.len().max(1) as u64) as usize)?;
        let mut i = 0;
        op.kind.operands_mut(|v| {
            if i == slot {
                *v = Value(new as u32);
            }
            i += 1;
        });
        Some(format!("operand {slot} of operation {at}: value {} for {}", new, old.0))
    })
}

/// A program id or the grid size in place of a 32-bit operand.
fn new_index(f: &mut Function, at: usize, rng: &mut Rng) -> Option<String> {
    let value = Value(f.values.len() as u32);
    let types: Vec<Type> = f.values.iter().map(|v| v.ty.clone()).collect();
    let axis = [Axis::X, Axis::Y][rng.below(2) as usize];
    let kind = if rng.below(3) == 0 { OpKind::NumPrograms(axis) } else { OpKind::ProgramId(axis) };
    let what = with_op(f, at, |op| {
        let operands = op.kind.operands();
        let fits = |v: &Value| types[v.0 as usize] == Type::scalar(Scalar::I32);
        let slots: Vec<usize> = (0..operands.len()).filter(|s| fits(&operands[*s])).collect();
        let slot = *slots.get(rng.below(slots.len().max(1) as u64) as usize)?;
        let mut i = 0;
        op.kind.operands_mut(|v| {
            if i == slot {
                *v = value;
            }
            i += 1;
        });
        Some(format!("operand {slot} of operation {at}: {kind:?}"))
    })?;
    f.values.push(ValueInfo { ty: Type::scalar(Scalar::I32), name: None });
    let op = Op { kind, results: vec![value], attrs: Vec::new(), loc: LocId::UNKNOWN, at: TextPos::default() };
    f.blocks[0].ops.insert(0, op);
    Some(what)
}

fn drop_mask(f: &mut Function, at: usize, rng: &mut Rng) -> Option<String> {
    let keep_mask = rng.below(3) == 0;
    with_op(f, at, |op| {
        match &mut op.kind {
            OpKind::Load { mask, other, .. } if mask.is_some() => {
                other.take();
                if !keep_mask {
                    mask.take();
                }
            }
            OpKind::Store { mask, .. } | OpKind::AtomicRmw { mask, .. } if mask.is_some() => {
                mask.take();
            }
            OpKind::Select { then, otherwise, .. } => std::mem::swap(then, otherwise),
            _ => return None,
        }
        Some(format!("mask of operation {at} dropped{}", if keep_mask { " (only other)" } else { "" }))
    })
}

fn change_op(f: &mut Function, at: usize, rng: &mut Rng) -> Option<String> {
    let turn = rng.below(3) as usize;
    with_op(f, at, |op| {
        match &mut op.kind {
            OpKind::Binary { op: kind, a, b } if turn == 0 => {
                std::mem::swap(a, b);
                return Some(format!("operands of operation {at} ({kind:?}) swapped"));
            }
            OpKind::Binary { op: kind, .. } => {
                use BinaryOp::*;
                *kind = match kind {
                    AddI => [SubI, MulI][turn - 1],
                    SubI => AddI,
                    MulI => AddI,
                    DivSI => RemSI,
                    RemSI => DivSI,
                    MinSI => MaxSI,
                    MaxSI => MinSI,
                    AndI => OrI,
                    OrI => AndI,
                    AddF => [SubF, MaxNumF][turn - 1],
                    SubF => AddF,
                    MulF => AddF,
                    MaxNumF => [AddF, MinNumF][turn - 1],
                    _ => return None,
                };
            }
            OpKind::CmpI { pred, a, b } => match turn {
                0 => std::mem::swap(a, b),
                _ => {
                    *pred = match pred {
                        CmpI::Slt => [CmpI::Sle, CmpI::Ne][turn - 1],
                        CmpI::Sle => CmpI::Slt,
                        CmpI::Sgt => CmpI::Sge,
                        CmpI::Sge => CmpI::Sgt,
                        CmpI::Eq => CmpI::Ne,
                        _ => CmpI::Eq,
                    }
                }
            },
            OpKind::ProgramId(axis) => *axis = if *axis == Axis::X { Axis::Y } else { Axis::X },
            OpKind::If { then, otherwise, .. } => std::mem::swap(then, otherwise),
            OpKind::Store { ptr, value, mask } if op.results.is_empty() => {
                // A plain store becomes a float atomic, if its type allows.
                let order = MemOrder { sem: "relaxed".into(), scope: "gpu".into() };
                op.kind = OpKind::AtomicRmw { op: AtomicOp::FAdd, ptr: *ptr, value: *value, mask: *mask, order };
                return Some(format!("store {at} made atomic"));
            }
            _ => return None,
        }
        Some(format!("operation {at} became {:?}", op.kind).chars().take(80).collect())
    })
    .inspect(|_| give_atomics_results(f))
}

/// An atomic that was a store needs a result of the type it stores.
fn give_atomics_results(f: &mut Function) {
    let mut next = f.values.len() as u32;
    let mut new = Vec::new();
    let types: Vec<Type> = f.values.iter().map(|v| v.ty.clone()).collect();
    each_block(&mut f.blocks, &mut |block| {
        for op in &mut block.ops {
            if let OpKind::AtomicRmw { value, .. } = &op.kind
                && op.results.is_empty()
            {
                op.results.push(Value(next));
                next += 1;
                new.push(ValueInfo { ty: types[value.0 as usize].clone(), name: None });
            }
        }
    });
    f.values.extend(new);
}

fn change_constant(f: &mut Function, at: usize, rng: &mut Rng) -> Option<String> {
    let types: Vec<Type> = f.values.iter().map(|v| v.ty.clone()).collect();
    let turn = rng.below(4);
    with_op(f, at, |op| {
        let ty = &types[op.results.first()?.0 as usize];
        let scalar = ty.scalar_elem()?;
        let OpKind::Constant(Elements::Splat(bits)) = &mut op.kind else { return None };
        let mask = u64::MAX >> (64 - scalar.bits());
        *bits = match (scalar, turn) {
            (Scalar::Float(_), 0) => 0,
            (Scalar::Float(_), _) => *bits ^ (1 << (scalar.bits() - 2)),
            (_, 0) => bits.wrapping_add(1) & mask,
            (_, 1) => bits.wrapping_sub(1) & mask,
            (_, 2) => bits.wrapping_mul(2) & mask,
            _ => *bits / 2,
        };
        Some(format!("constant {at} became {bits:#x}"))
    })
}

fn change_axis(f: &mut Function, at: usize, rng: &mut Rng) -> Option<String> {
    let turn = rng.below(2);
    with_op(f, at, |op| {
        match &mut op.kind {
            OpKind::Reduce { axis, .. }
            | OpKind::Scan { axis, .. }
            | OpKind::Gather { axis, .. }
            | OpKind::ExpandDims { axis, .. } => {
                *axis = 1 - (*axis).min(1);
            }
            OpKind::Trans { order, .. } => order.reverse(),
            OpKind::Split { .. } => op.results.reverse(),
            OpKind::Join { a, b } | OpKind::Cat { a, b } => std::mem::swap(a, b),
            OpKind::MakeRange { start, end } => {
                let by = if turn == 0 { 1 } else { *end - *start };
                (*start, *end) = (*start + by, *end + by);
            }
            _ => return None,
        }
        Some(format!("axis or range of operation {at}"))
    })
}

/// What a loop or branch yields: a value that is not updated, or two exchanged.
fn change_yield(f: &mut Function, rng: &mut Rng) -> Option<String> {
    let types: Vec<Type> = f.values.iter().map(|v| v.ty.clone()).collect();
    let mut sites = 0;
    each_block(&mut f.blocks, &mut |b| sites += usize::from(matches!(&b.end, Terminator::Yield(v) if !v.is_empty())));
    let wanted = rng.below(sites.max(1) as u64) as usize;
    let mut n = 0;
    let mut what = None;
    each_block(&mut f.blocks, &mut |block| {
        let params = block.params.clone();
        if let Terminator::Yield(values) = &mut block.end
            && !values.is_empty()
        {
            if n == wanted {
                let slot = rng.below(values.len() as u64) as usize;
                let ty = &types[values[slot].0 as usize];
                let pool: Vec<Value> =
                    params.into_iter().chain(values.iter().copied()).filter(|v| types[v.0 as usize] == *ty).collect();
                let new = pool[rng.below(pool.len() as u64) as usize];
                what = Some(format!("yield {wanted}.{slot}: value {} for {}", new.0, values[slot].0));
                values[slot] = new;
            }
            n += 1;
        }
    });
    what
}

/// Two neighbouring operations change places: harmless unless both touch memory.
fn change_order(f: &mut Function, at: usize, rng: &mut Rng) -> Option<String> {
    let mut n = 0;
    let mut what = None;
    let far = 1 + rng.below(4) as usize;
    each_block(&mut f.blocks, &mut |block| {
        for i in 0..block.ops.len() {
            if n == at && i + far < block.ops.len() && what.is_none() {
                block.ops.swap(i, i + far);
                what = Some(format!("operations {at} and {far} later swapped"));
            }
            n += 1;
        }
    });
    what
}

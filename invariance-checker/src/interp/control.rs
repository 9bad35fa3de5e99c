//! Control flow: branches, loops, calls, reductions and scans.

use super::exec::{Fault, Frame, Machine, take};
use super::value::Val;
use super::{ReduceOrder, Trap, shape};
use crate::ir::{Block, Function, Op, OpKind, Target, Terminator, Value};

/// Deepest chain of calls. The parser has excluded recursion.
const MAX_CALLS: usize = 64;

impl<'m> Machine<'m> {
    /// Runs a function to its return.
    pub(super) fn function(&mut self, function: &'m Function, args: Vec<Val>) -> Result<Vec<Val>, Trap> {
        let mut frame = self.frame(function);
        let place = (function.at, function.loc);
        let fault = |m: &Self, f: Fault| m.trap(f, place.0, place.1);
        for (param, arg) in function.params.iter().zip(args) {
            self.set(&mut frame, param.value, arg).map_err(|f| fault(self, f))?;
        }
        let mut block = &function.blocks[0];
        let results = loop {
            self.charge(1).map_err(|f| fault(self, f))?;
            self.ops(&mut frame, block)?;
            let target = match &block.end {
                Terminator::Return(values) => break collect(&frame, values),
                Terminator::Branch(target) => target,
                Terminator::CondBranch { cond, then, otherwise } => {
                    if frame.get(*cond).lane(0) != 0 {
                        then
                    } else {
                        otherwise
                    }
                }
                Terminator::Unknown(op) => return Err(self.trap(super::exec::unknown(&op.kind), op.at, op.loc)),
                Terminator::Yield(_) | Terminator::Condition { .. } => {
                    return Err(fault(self, Fault::unsupported("this end of a block")));
                }
            };
            block = self.enter(&mut frame, target).map_err(|f| fault(self, f))?;
        };
        self.release(&frame);
        Ok(results)
    }

    fn enter(&mut self, frame: &mut Frame<'m>, target: &Target) -> Result<&'m Block, Fault> {
        let block = frame.function.block(target.block);
        let args = collect(frame, &target.args);
        self.params(frame, block, args)?;
        Ok(block)
    }

    fn params(&mut self, frame: &mut Frame<'m>, block: &Block, args: Vec<Val>) -> Result<(), Fault> {
        for (param, arg) in block.params.iter().zip(args) {
            self.set(frame, *param, arg)?;
        }
        Ok(())
    }

    /// Runs a nested block with the given parameters; what it yields.
    fn nested(&mut self, frame: &mut Frame<'m>, op: &Op, block: &'m Block, args: Vec<Val>) -> Result<Vec<Val>, Trap> {
        self.params(frame, block, args).map_err(|f| self.trap(f, op.at, op.loc))?;
        self.ops(frame, block)?;
        Ok(collect(frame, block.yields()))
    }

    /// Runs an operation with regions or a call; false if the operation is of another kind.
    pub(super) fn control(&mut self, frame: &mut Frame<'m>, op: &'m Op) -> Result<bool, Trap> {
        let results = match &op.kind {
            OpKind::For { .. } => self.for_loop(frame, op)?,
            OpKind::If { cond, then, otherwise } => {
                let block = if frame.get(*cond).lane(0) != 0 { then } else { otherwise };
                self.nested(frame, op, block, Vec::new())?
            }
            OpKind::While { inits, before, after } => {
                let mut carried = collect(frame, inits);
                loop {
                    self.charge(1).map_err(|f| self.trap(f, op.at, op.loc))?;
                    self.params(frame, before, carried).map_err(|f| self.trap(f, op.at, op.loc))?;
                    self.ops(frame, before)?;
                    let Terminator::Condition { cond, args } = &before.end else {
                        return Err(self.trap(Fault::unsupported("this scf.while"), op.at, op.loc));
                    };
                    let passed = collect(frame, args);
                    if frame.get(*cond).lane(0) == 0 {
                        break passed;
                    }
                    carried = self.nested(frame, op, after, passed)?;
                }
            }
            OpKind::Call { callee, args } => {
                let args = collect(frame, args);
                match self.module.function(callee) {
                    Some(function) if self.calls < MAX_CALLS => {
                        self.calls += 1;
                        let results = self.function(function, args)?;
                        self.calls -= 1;
                        results
                    }
                    _ => return Err(self.trap(Fault::budget("calls are nested too deeply"), op.at, op.loc)),
                }
            }
            OpKind::Reduce { args, axis, combiner } => self.reduce(frame, op, args, *axis, combiner)?,
            OpKind::Scan { args, axis, reverse, combiner } => {
                self.scan(frame, op, (args, *axis, *reverse), combiner)?
            }
            _ => return Ok(false),
        };
        for (result, value) in op.results.iter().zip(results) {
            self.set(frame, *result, value).map_err(|f| self.trap(f, op.at, op.loc))?;
        }
        Ok(true)
    }

    fn for_loop(&mut self, frame: &mut Frame<'m>, op: &'m Op) -> Result<Vec<Val>, Trap> {
        let OpKind::For { lo, hi, step, inits, body, unsigned } = &op.kind else { return Ok(Vec::new()) };
        let bits = frame.ty(*lo).scalar_elem().map_or(64, |s| s.bits());
        let number = |v: &Value| match unsigned {
            true => i128::from(frame.get(*v).lane(0)),
            false => i128::from(frame.int(*v)),
        };
        let (mut i, hi, step) = (number(lo), number(hi), number(step));
        let mut carried = collect(frame, inits);
        if step <= 0 && i < hi {
            return Err(self.trap(Fault::budget("a loop whose step is not positive does not end"), op.at, op.loc));
        }
        self.memory.instance.iterations.push(0);
        while i < hi {
            self.charge(1).map_err(|f| self.trap(f, op.at, op.loc))?;
            let mut args = vec![Val::Scalar(super::lane::cut(i as u64, bits))];
            args.append(&mut carried);
            carried = self.nested(frame, op, body, args)?;
            i += step;
            if let Some(n) = self.memory.instance.iterations.last_mut() {
                *n += 1;
            }
        }
        self.memory.instance.iterations.pop();
        Ok(carried)
    }

    /// Operands of a reduction or scan, cut into slices along the axis: `slices[k][operand]`, each over all other axes.
    fn slices(&self, frame: &Frame<'m>, args: &[Value], axis: usize) -> Vec<Vec<Val>> {
        let (outer, extent, inner) = shape::around(frame.ty(args[0]).shape(), axis);
        let slice = |k: usize| {
            let source: Vec<usize> =
                (0..outer).flat_map(|o| (0..inner).map(move |i| (o * extent + k) * inner + i)).collect();
            args.iter().map(|a| take(frame.get(*a), &source)).collect()
        };
        (0..extent).map(slice).collect()
    }

    fn reduce(
        &mut self,
        frame: &mut Frame<'m>,
        op: &'m Op,
        args: &[Value],
        axis: usize,
        combiner: &'m Block,
    ) -> Result<Vec<Val>, Trap> {
        let lanes = frame.ty(args[0]).len();
        self.charge(lanes.saturating_mul(combiner.ops.len() + 1)).map_err(|f| self.trap(f, op.at, op.loc))?;
        let mut slices = self.slices(frame, args, axis);
        let halves = self.options.reduce == ReduceOrder::Halves && slices.len().is_power_of_two();
        while slices.len() > 1 {
            if halves {
                let right = slices.split_off(slices.len() / 2);
                let parts = slices.len();
                let (a, b) = (join(&slices), join(&right));
                let combined = self.combine(frame, op, combiner, a, b)?;
                slices = cut_up(&combined, parts);
            } else {
                let rest = slices.split_off(1);
                let mut acc = slices.swap_remove(0);
                for next in rest {
                    acc = self.combine(frame, op, combiner, acc, next)?;
                }
                slices = vec![acc];
            }
        }
        let scalar = op.results.first().is_some_and(|r| !frame.ty(*r).is_tensor());
        let reduced = slices.pop().unwrap_or_default();
        Ok(reduced.into_iter().map(|v| if scalar { Val::Scalar(v.lane(0)) } else { v }).collect())
    }

    fn scan(
        &mut self,
        frame: &mut Frame<'m>,
        op: &'m Op,
        (args, axis, reverse): (&[Value], usize, bool),
        combiner: &'m Block,
    ) -> Result<Vec<Val>, Trap> {
        let lanes = frame.ty(args[0]).len();
        self.charge(lanes.saturating_mul(combiner.ops.len() + 1)).map_err(|f| self.trap(f, op.at, op.loc))?;
        let mut slices = self.slices(frame, args, axis);
        if reverse {
            slices.reverse();
        }
        for k in 1..slices.len() {
            slices[k] = self.combine(frame, op, combiner, slices[k - 1].clone(), slices[k].clone())?;
        }
        if reverse {
            slices.reverse();
        }
        let (outer, extent, inner) = shape::around(frame.ty(args[0]).shape(), axis);
        let element = |operand: usize, e: usize| {
            let (o, k, i) = (e / inner / extent, e / inner % extent, e % inner);
            slices[k][operand].lane(o * inner + i)
        };
        let n = outer * extent * inner;
        Ok((0..args.len()).map(|a| Val::tensor((0..n).map(|e| element(a, e)).collect())).collect())
    }

    /// The combiner on two slices, all lanes at once where its operations allow that.
    fn combine(
        &mut self,
        frame: &mut Frame<'m>,
        op: &'m Op,
        combiner: &'m Block,
        a: Vec<Val>,
        b: Vec<Val>,
    ) -> Result<Vec<Val>, Trap> {
        let lanes = a.first().map_or(0, Val::len);
        if combiner.ops.iter().all(|o| is_lanewise(&o.kind)) {
            let results = self.nested(frame, op, combiner, a.into_iter().chain(b).collect())?;
            // A combiner may yield a constant, which has one lane only.
            return Ok(results.into_iter().map(|v| Val::tensor((0..lanes).map(|i| v.lane(i)).collect())).collect());
        }
        let mut out = vec![Vec::with_capacity(lanes); a.len()];
        for i in 0..lanes {
            let params = a.iter().chain(&b).map(|v| Val::Scalar(v.lane(i))).collect();
            for (column, value) in out.iter_mut().zip(self.nested(frame, op, combiner, params)?) {
                column.push(value.lane(0));
            }
        }
        Ok(out.into_iter().map(Val::tensor).collect())
    }
}

fn collect(frame: &Frame<'_>, values: &[Value]) -> Vec<Val> {
    values.iter().map(|v| frame.get(*v).clone()).collect()
}

/// Slices one after the other, operand by operand.
fn join(slices: &[Vec<Val>]) -> Vec<Val> {
    let operands = slices.first().map_or(0, Vec::len);
    (0..operands).map(|a| Val::tensor(slices.iter().flat_map(|s| s[a].lanes()).copied().collect())).collect()
}

/// The reverse of [`join`].
fn cut_up(joined: &[Val], parts: usize) -> Vec<Vec<Val>> {
    let part = |k: usize| {
        let piece = |v: &Val| {
            let len = v.len() / parts;
            Val::tensor(v.lanes()[k * len..][..len].to_vec())
        };
        joined.iter().map(piece).collect()
    };
    (0..parts).map(part).collect()
}

fn is_lanewise(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Constant(_)
            | OpKind::Unary { .. }
            | OpKind::Binary { .. }
            | OpKind::CmpI { .. }
            | OpKind::CmpF { .. }
            | OpKind::Select { .. }
            | OpKind::Fma { .. }
            | OpKind::Clamp { .. }
            | OpKind::Cast { .. }
            | OpKind::Extern { .. }
    )
}

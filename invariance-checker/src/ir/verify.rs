//! What a reader of the typed form may rely on: every value is defined once, before it is used on every path; blocks end as
//! their owner expects; calls end; operand types agree (`types_of_op`).

use super::typecheck::check_types;
use super::{Block, Scalar};
use super::{BlockId, Function, Module, Op, OpKind, Target, Terminator, TextPos, Type, Value};

/// Why a module is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the text.
    pub at: TextPos,
    /// What was expected and what came.
    pub message: String,
}

/// Checks a whole module.
///
/// # Errors
/// The first fault in textual order of functions.
pub fn verify(module: &Module) -> Result<(), Fault> {
    for function in &module.functions {
        Checker { module, function, state: vec![State::Undefined; function.values.len()] }.function()?;
    }
    calls_end(module)
}

/// Refuses recursion: nothing that runs on a GPU here has it, and readers may then follow calls without a guard.
fn calls_end(module: &Module) -> Result<(), Fault> {
    let callees: Vec<Vec<usize>> = module
        .functions
        .iter()
        .map(|f| {
            let mut out = Vec::new();
            f.blocks.iter().for_each(|b| collect_calls(module, b, &mut out));
            out.sort_unstable();
            out.dedup();
            out
        })
        .collect();
    // Peel off functions that only call peeled ones; a cycle never peels.
    let mut done = vec![false; callees.len()];
    loop {
        let next = (0..done.len()).find(|i| !done[*i] && callees[*i].iter().all(|c| done[*c]));
        match next {
            Some(i) => done[i] = true,
            None => break,
        }
    }
    match done.iter().position(|d| !d) {
        Some(i) => {
            let f = &module.functions[i];
            Err(Fault { at: f.at, message: format!("@{} calls itself: recursion is not supported", f.name) })
        }
        None => Ok(()),
    }
}

fn collect_calls(module: &Module, block: &Block, out: &mut Vec<usize>) {
    for op in &block.ops {
        if let OpKind::Call { callee, .. } = &op.kind {
            out.extend(module.functions.iter().position(|f| f.name == *callee));
        }
        op.kind.blocks().into_iter().for_each(|b| collect_calls(module, b, out));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No definition met yet.
    Undefined,
    /// Defined, and dominates what is being looked at.
    Visible,
    /// Defined elsewhere.
    Hidden,
}

struct Checker<'m> {
    module: &'m Module,
    function: &'m Function,
    state: Vec<State>,
}

/// Which terminators a block may end in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Function,
    Yield,
    Condition,
    /// A region of an unknown operation.
    Any,
}

impl<'m> Checker<'m> {
    fn function(&mut self) -> Result<(), Fault> {
        let f = self.function;
        let fault = |message: String| Fault { at: f.at, message };
        if f.blocks.is_empty() || !f.blocks[0].params.is_empty() {
            return Err(fault(format!("@{} must start with a block without parameters", f.name)));
        }
        for param in &f.params {
            self.define(param.value, f.at)?;
        }
        let tree = dominator_tree(f);
        // Walk the dominator tree; what a block defines is visible in its children only.
        let mut stack = vec![(0usize, None::<Vec<Value>>)];
        while let Some((index, defined)) = stack.pop() {
            if let Some(defined) = defined {
                self.hide(&defined);
                continue;
            }
            let block = &f.blocks[index];
            let mut defined = Vec::new();
            self.block(block, Ending::Function, f.at, &mut defined)?;
            stack.push((index, Some(defined)));
            stack.extend(tree[index].iter().map(|child| (*child, None)));
        }
        Ok(())
    }

    fn define(&mut self, value: Value, at: TextPos) -> Result<(), Fault> {
        match self.state.get_mut(value.0 as usize) {
            Some(state @ State::Undefined) => {
                *state = State::Visible;
                Ok(())
            }
            Some(_) => Err(Fault { at, message: format!("value {} is defined twice", value.0) }),
            None => Err(Fault { at, message: format!("value {} is out of range", value.0) }),
        }
    }

    fn hide(&mut self, values: &[Value]) {
        for value in values {
            self.state[value.0 as usize] = State::Hidden;
        }
    }

    fn used(&self, value: Value, at: TextPos) -> Result<(), Fault> {
        if self.state.get(value.0 as usize) == Some(&State::Visible) {
            return Ok(());
        }
        let name = self.function.values.get(value.0 as usize).and_then(|v| v.name.as_deref()).unwrap_or("an operand");
        Err(Fault { at, message: format!("{name} (value {}) is used where it is not defined yet", value.0) })
    }

    /// Checks a block; `defined` collects what it makes visible.
    fn block(&mut self, block: &'m Block, ending: Ending, at: TextPos, defined: &mut Vec<Value>) -> Result<(), Fault> {
        for param in &block.params {
            self.define(*param, at)?;
            defined.push(*param);
        }
        let mut last = at;
        for op in &block.ops {
            self.op(op)?;
            for result in &op.results {
                self.define(*result, op.at)?;
                defined.push(*result);
            }
            last = op.at;
        }
        self.end(block, ending, last)
    }

    fn op(&mut self, op: &'m Op) -> Result<(), Fault> {
        for operand in op.kind.operands() {
            self.used(operand, op.at)?;
        }
        if let Some(out) = op.results.iter().find(|r| r.0 as usize >= self.state.len()) {
            return Err(Fault { at: op.at, message: format!("value {} is out of range", out.0) });
        }
        let endings: &[Ending] = match &op.kind {
            OpKind::While { .. } => &[Ending::Condition, Ending::Yield],
            OpKind::Unknown { .. } => &[Ending::Any],
            _ => &[Ending::Yield],
        };
        for (i, block) in op.kind.blocks().into_iter().enumerate() {
            let ending = *endings.get(i).unwrap_or(&endings[endings.len() - 1]);
            let mut defined = Vec::new();
            self.block(block, ending, op.at, &mut defined)?;
            self.hide(&defined);
        }
        check_types(self.module, self.function, op).map_err(|message| Fault { at: op.at, message })
    }

    fn end(&mut self, block: &'m Block, ending: Ending, at: TextPos) -> Result<(), Fault> {
        let fault = |message: String| Fault { at, message };
        let used: Vec<Value> = match &block.end {
            Terminator::Yield(values) | Terminator::Return(values) => values.clone(),
            Terminator::Condition { cond, args } => std::iter::once(cond).chain(args).copied().collect(),
            Terminator::Branch(target) => target.args.clone(),
            Terminator::CondBranch { cond, then, otherwise } => {
                std::iter::once(cond).chain(&then.args).chain(&otherwise.args).copied().collect()
            }
            Terminator::Unknown(op) => return self.op(op),
        };
        for value in used {
            self.used(value, at)?;
        }
        match (&block.end, ending) {
            (_, Ending::Any)
            | (Terminator::Yield(_), Ending::Yield)
            | (Terminator::Condition { .. }, Ending::Condition) => Ok(()),
            (Terminator::Return(values), Ending::Function) => {
                let types: Vec<&Type> = values.iter().map(|v| self.function.ty(*v)).collect();
                let same = types.len() == self.function.results.len()
                    && types.iter().zip(&self.function.results).all(|(a, b)| *a == b);
                if same { Ok(()) } else { Err(fault("the returns of this function differ in type".into())) }
            }
            (Terminator::Branch(target), Ending::Function) => self.target(target).map_err(fault),
            (Terminator::CondBranch { cond, then, otherwise }, Ending::Function) => {
                if *self.function.ty(*cond) != Type::scalar(Scalar::BOOL) {
                    return Err(fault(format!("a condition has type i1, not {}", self.function.ty(*cond))));
                }
                self.target(then).and_then(|()| self.target(otherwise)).map_err(fault)
            }
            _ => Err(fault("this block ends in an operation that does not belong there".into())),
        }
    }

    fn target(&self, target: &Target) -> Result<(), String> {
        let Some(block) = self.function.blocks.get(target.block.0 as usize).filter(|_| target.block != BlockId(0))
        else {
            return Err("the first block of a function cannot be branched to".into());
        };
        let types = |values: &[Value]| values.iter().map(|v| self.function.ty(*v).clone()).collect::<Vec<_>>();
        if block.params.iter().any(|p| p.0 as usize >= self.state.len()) {
            return Err("a block parameter is out of range".into());
        }
        if types(&block.params) == types(&target.args) {
            return Ok(());
        }
        Err("a branch does not pass what the block takes".into())
    }
}

/// Children of each block in the dominator tree; unreachable blocks hang under the entry.
fn dominator_tree(f: &Function) -> Vec<Vec<usize>> {
    let n = f.blocks.len();
    let successors = |i: usize| -> Vec<usize> {
        let targets: Vec<&Target> = match &f.blocks[i].end {
            Terminator::Branch(t) => vec![t],
            Terminator::CondBranch { then, otherwise, .. } => vec![then, otherwise],
            _ => Vec::new(),
        };
        targets.into_iter().map(|t| t.block.0 as usize).filter(|b| *b < n).collect()
    };
    let order = post_order(n, &successors);
    let mut number = vec![usize::MAX; n];
    order.iter().enumerate().for_each(|(i, b)| number[*b] = i);
    let mut predecessors = vec![Vec::new(); n];
    for block in &order {
        successors(*block).into_iter().for_each(|s| predecessors[s].push(*block));
    }
    let mut idom = vec![usize::MAX; n];
    idom[0] = 0;
    let mut changed = true;
    while changed {
        changed = false;
        for block in order.iter().rev().filter(|b| **b != 0) {
            let known = predecessors[*block].iter().copied().filter(|p| idom[*p] != usize::MAX);
            let new = known.reduce(|mut a, mut b| {
                while a != b {
                    while number[a] < number[b] {
                        a = idom[a];
                    }
                    while number[b] < number[a] {
                        b = idom[b];
                    }
                }
                a
            });
            if let Some(new) = new
                && idom[*block] != new
            {
                idom[*block] = new;
                changed = true;
            }
        }
    }
    let mut tree = vec![Vec::new(); n];
    for block in 1..n {
        tree[if idom[block] == usize::MAX { 0 } else { idom[block] }].push(block);
    }
    tree
}

/// Blocks reachable from the entry, each after everything it leads to (loops aside).
fn post_order(n: usize, successors: &dyn Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut seen = vec![false; n];
    let mut order = Vec::new();
    let mut stack = vec![(0, successors(0))];
    seen[0] = true;
    while let Some((block, next)) = stack.last_mut() {
        match next.pop() {
            Some(s) if !seen[s] => {
                seen[s] = true;
                stack.push((s, successors(s)));
            }
            Some(_) => {}
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order
}

//! Where every value of a function is defined, and which loop bodies enclose the definition.

use crate::ir::{Block, BlockId, Function, Module, Op, OpKind, Terminator, Value};
use crate::term::Map as HashMap;

/// How a value comes about.
#[derive(Clone, Copy, Debug)]
pub enum Def<'m> {
    /// A parameter of the function.
    Param(usize),
    /// A parameter of a block of the function's control-flow graph.
    BlockParam(BlockId, usize),
    /// The induction variable of a loop.
    Iv(LoopId),
    /// A carried value of an `scf.for`, or a parameter of the first region of an `scf.while`.
    Carried(LoopId, usize),
    /// A parameter of the second region of an `scf.while`.
    After(LoopId, usize),
    /// A parameter of a combiner: never evaluated on its own.
    Combiner,
    /// A result of an operation.
    Result(OpRef<'m>, usize),
}

/// An operation and its number, unique within the module.
#[derive(Clone, Copy, Debug)]
pub struct OpRef<'m> {
    /// The operation.
    pub op: &'m Op,
    /// Unique within the module.
    pub number: u32,
}

/// A loop body: 0 is "no loop" (the function's own region).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoopId(pub u32);

/// The tables of one function.
pub struct Defs<'m> {
    /// The function.
    pub function: &'m Function,
    /// By value: its definition and the innermost loop around it (`None` outside of loops).
    pub values: Vec<(Def<'m>, Option<LoopId>)>,
    /// Control-flow edges into each block: from, condition (value, polarity), arguments.
    pub preds: Vec<Vec<Edge<'m>>>,
    /// Blocks with `tt.return` and what they return.
    pub returns: Vec<(BlockId, &'m [Value])>,
    /// The graph of blocks has a cycle.
    pub cyclic: bool,
}

/// One control-flow edge.
#[derive(Clone, Copy, Debug)]
pub struct Edge<'m> {
    /// Where it starts.
    pub from: BlockId,
    /// Taken when this value has this truth value.
    pub cond: Option<(Value, bool)>,
    /// What it passes.
    pub args: &'m [Value],
}

/// The tables of a module.
pub struct Tables<'m> {
    /// By function, in the module's order.
    pub functions: Vec<Defs<'m>>,
    /// By loop: the operation that owns it and its number.
    pub loops: Vec<OpRef<'m>>,
    numbers: HashMap<*const Op, u32>,
}

impl<'m> Tables<'m> {
    /// Builds the tables.
    pub fn new(module: &'m Module) -> Tables<'m> {
        let mut t = Tables { functions: Vec::new(), loops: Vec::new(), numbers: HashMap::default() };
        for function in &module.functions {
            let mut defs = Defs {
                function,
                values: vec![(Def::Combiner, None); function.values.len()],
                preds: vec![Vec::new(); function.blocks.len()],
                returns: Vec::new(),
                cyclic: false,
            };
            for (i, p) in function.params.iter().enumerate() {
                defs.values[p.value.0 as usize] = (Def::Param(i), None);
            }
            for (i, block) in function.blocks.iter().enumerate() {
                let id = BlockId(i as u32);
                for (k, v) in block.params.iter().enumerate() {
                    defs.values[v.0 as usize] = (Def::BlockParam(id, k), None);
                }
                t.block(&mut defs, block, None);
                defs.edges(id, &block.end);
            }
            defs.cyclic = defs.in_order().len() < defs.preds.len();
            t.functions.push(defs);
        }
        t
    }

    /// The number of an operation.
    pub fn op_ref(&self, op: &'m Op) -> OpRef<'m> {
        OpRef { op, number: self.numbers[&std::ptr::from_ref(op)] }
    }

    fn block(&mut self, defs: &mut Defs<'m>, block: &'m Block, inside: Option<LoopId>) {
        for op in &block.ops {
            let number = self.numbers.len() as u32;
            self.numbers.insert(op, number);
            let op_ref = OpRef { op, number };
            for (k, v) in op.results.iter().enumerate() {
                defs.values[v.0 as usize] = (Def::Result(op_ref, k), inside);
            }
            match &op.kind {
                OpKind::For { body, .. } => {
                    let id = self.new_loop(op_ref);
                    for (k, v) in body.params.iter().enumerate() {
                        let def = if k == 0 { Def::Iv(id) } else { Def::Carried(id, k - 1) };
                        defs.values[v.0 as usize] = (def, Some(id));
                    }
                    self.block(defs, body, Some(id));
                }
                OpKind::While { before, after, .. } => {
                    let id = self.new_loop(op_ref);
                    for (k, v) in before.params.iter().enumerate() {
                        defs.values[v.0 as usize] = (Def::Carried(id, k), Some(id));
                    }
                    for (k, v) in after.params.iter().enumerate() {
                        defs.values[v.0 as usize] = (Def::After(id, k), Some(id));
                    }
                    self.block(defs, before, Some(id));
                    self.block(defs, after, Some(id));
                }
                _ => {
                    for b in op.kind.blocks() {
                        self.block(defs, b, inside);
                    }
                }
            }
        }
    }

    fn new_loop(&mut self, op: OpRef<'m>) -> LoopId {
        self.loops.push(op);
        LoopId(self.loops.len() as u32 - 1)
    }

    /// The loop that an operation owns.
    pub fn loop_of(&self, number: u32) -> Option<LoopId> {
        self.loops.iter().position(|l| l.number == number).map(|i| LoopId(i as u32))
    }

    /// The index of a function by name.
    pub fn function_index(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|d| d.function.name == name)
    }
}

impl<'m> Defs<'m> {
    /// The blocks in an order in which each comes after all from which control reaches it, which that of the text need not be. Blocks of a cycle are left out.
    pub fn in_order(&self) -> Vec<BlockId> {
        // Peel off blocks whose predecessors are all peeled off; one of a cycle never becomes free.
        let mut done = vec![false; self.preds.len()];
        let mut out = Vec::new();
        loop {
            let before = out.len();
            for i in 0..done.len() {
                if !done[i] && self.preds[i].iter().all(|e| done[e.from.0 as usize]) {
                    done[i] = true;
                    out.push(BlockId(i as u32));
                }
            }
            if out.len() == before {
                return out;
            }
        }
    }

    fn edges(&mut self, from: BlockId, end: &'m Terminator) {
        match end {
            Terminator::Branch(t) => {
                self.preds[t.block.0 as usize].push(Edge { from, cond: None, args: &t.args });
            }
            Terminator::CondBranch { cond, then, otherwise } => {
                for (t, taken) in [(then, true), (otherwise, false)] {
                    self.preds[t.block.0 as usize].push(Edge { from, cond: Some((*cond, taken)), args: &t.args });
                }
            }
            Terminator::Return(values) => self.returns.push((from, values)),
            _ => {}
        }
    }
}

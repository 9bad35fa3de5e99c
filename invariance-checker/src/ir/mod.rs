//! The typed form of a TTIR module: what the parser makes, and what the interpreter and the symbolic evaluation read.
//!
//! The pretty and the generic text of one kernel give the same value here (up to names and locations, which [`Module::strip`]
//! removes). Values are dense per function and numbered in textual order of definition: parameters first, then the results of an
//! operation before what its regions define. The parser has checked the operand types of every known operation, so a reader may
//! rely on shapes and element types agreeing; nothing of the kind holds for [`OpKind::Unknown`].

mod attr;
mod loc;
mod op;
mod typecheck;
mod types;
mod verify;
mod words;

pub use attr::{Attr, Attrs, attr};
pub use loc::{LocId, Location, Place};
pub use op::OpKind;
pub use types::{Elem, Float, Scalar, Type};
pub use verify::{Fault, verify};
pub use words::{
    AtomicOp, Axis, BinaryOp, CastOp, CmpF, CmpI, DotPrecision, Elements, MemOrder, ReduceKind, Rounding, ScaledElem,
    UnaryOp,
};

/// A value of one function: a parameter, a block parameter or a result. An index into [`Function::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// One block of a function, by its index in [`Function::blocks`]; the entry is block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Line and column in the TTIR text, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct TextPos {
    /// Line, from 1; 0 once stripped.
    pub line: u32,
    /// Column in characters, from 1; 0 once stripped.
    pub column: u32,
}

impl std::fmt::Display for TextPos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// In file order. The kernel is the public one; the others are called by it.
    pub functions: Vec<Function>,
    /// Attributes of the module itself.
    pub attrs: Attrs,
    /// Source locations that operations point at; entry 0 is unknown.
    pub locations: Vec<Location>,
}

/// `tt.func`.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Symbol name, without `@`.
    pub name: String,
    /// False for helpers that only `tt.call` reaches.
    pub public: bool,
    /// Parameters are values `0..params.len()`.
    pub params: Vec<Param>,
    /// Types of what `tt.return` hands back.
    pub results: Vec<Type>,
    /// Type and name of every value, indexed by [`Value`].
    pub values: Vec<ValueInfo>,
    /// The body: the entry is block 0 and takes no parameters of its own (the function's are used directly).
    pub blocks: Vec<Block>,
    /// Where the function stands in the text.
    pub at: TextPos,
    /// Where it came from.
    pub loc: LocId,
}

/// One parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// The value it defines.
    pub value: Value,
    /// Argument attributes such as `tt.divisibility = 16`.
    pub attrs: Attrs,
}

/// What is known of a value without looking at its definition.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its type.
    pub ty: Type,
    /// The name in the source, where the text has it (`%rm_5` at `loc("rm")` is `rm`).
    pub name: Option<String>,
}

/// A straight line of operations with one way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Values that whoever enters the block passes in.
    pub params: Vec<Value>,
    /// In program order.
    pub ops: Vec<Op>,
    /// How control leaves.
    pub end: Terminator,
    /// Where the terminator came from.
    pub end_loc: LocId,
}

/// How control leaves a block.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// `scf.yield`, `tt.reduce.return`, `tt.scan.return`: values handed to the enclosing operation (also the one that the pretty
    /// form leaves out).
    Yield(Vec<Value>),
    /// `scf.condition`: go round the `scf.while` again if `cond`, with `args`; else `args` are its results.
    Condition {
        /// An i1.
        cond: Value,
        /// Passed on.
        args: Vec<Value>,
    },
    /// `tt.return`.
    Return(Vec<Value>),
    /// `cf.br`.
    Branch(Target),
    /// `cf.cond_br`.
    CondBranch {
        /// An i1.
        cond: Value,
        /// Taken when true.
        then: Target,
        /// Taken when false.
        otherwise: Target,
    },
    /// Any other operation in last place.
    Unknown(Box<Op>),
}

/// A block and what it is entered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The block entered.
    pub block: BlockId,
    /// One value for each of its parameters.
    pub args: Vec<Value>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// What it does, with its operands.
    pub kind: OpKind,
    /// Values it defines.
    pub results: Vec<Value>,
    /// Attributes that do not change what is computed (`tt.num_stages`, `tt.divisibility` hints, cache policies, fast-math flags).
    pub attrs: Attrs,
    /// Where it came from in the source.
    pub loc: LocId,
    /// Where it stands in the TTIR text.
    pub at: TextPos,
}

impl Module {
    /// The kernel: the public function, or the only one. `None` if that names no single function.
    pub fn kernel(&self) -> Option<&Function> {
        let mut public = self.functions.iter().filter(|f| f.public);
        match (public.next(), public.next()) {
            (Some(f), None) => Some(f),
            (None, _) if self.functions.len() == 1 => self.functions.first(),
            _ => None,
        }
    }

    /// The function that a `tt.call` names.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// A location by its id.
    pub fn location(&self, id: LocId) -> &Location {
        &self.locations[id.0 as usize]
    }

    /// Removes names, source locations and text positions, so that two texts of one kernel compare equal.
    pub fn strip(&mut self) {
        self.locations = vec![Location::Unknown];
        for function in &mut self.functions {
            function.at = TextPos::default();
            function.loc = LocId::UNKNOWN;
            function.values.iter_mut().for_each(|v| v.name = None);
            function.blocks.iter_mut().for_each(strip_block);
        }
    }
}

impl Function {
    /// Type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value.0 as usize].ty
    }

    /// Source name of a value, if the text has one.
    pub fn name_of(&self, value: Value) -> Option<&str> {
        self.values[value.0 as usize].name.as_deref()
    }

    /// A block by its id.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }
}

impl Block {
    /// The values of a [`Terminator::Yield`]; empty for any other terminator.
    pub fn yields(&self) -> &[Value] {
        match &self.end {
            Terminator::Yield(values) => values,
            _ => &[],
        }
    }

    /// A block that does nothing: the missing `else` of an `scf.if`.
    pub fn empty() -> Block {
        Block { params: Vec::new(), ops: Vec::new(), end: Terminator::Yield(Vec::new()), end_loc: LocId::UNKNOWN }
    }
}

/// The walk is recursive; the parser has bounded the nesting of regions.
fn strip_block(block: &mut Block) {
    block.end_loc = LocId::UNKNOWN;
    block.ops.iter_mut().for_each(strip_op);
    if let Terminator::Unknown(op) = &mut block.end {
        strip_op(op);
    }
}

fn strip_op(op: &mut Op) {
    op.loc = LocId::UNKNOWN;
    op.at = TextPos::default();
    op.kind.blocks_mut().into_iter().for_each(strip_block);
}

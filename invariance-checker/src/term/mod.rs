//! Hash-consed terms: what a tensor element is, as a function of program ids, block-local indices, arguments and memory.
//!
//! Integers are polynomials over atoms, comparisons are `p >= 0` and `p = 0`, floating-point operations are uninterpreted: two
//! float terms are equal only if they are the same expression. Equal terms have equal ids within one [`Arena`]. Binders
//! ([`Node::Reduce`], [`Node::Fold`], [`Node::Chain`]) use variables that the arena made for them alone.

mod alike;
mod boolean;
mod build;
mod eliminate;
pub mod facts;
mod float;
mod int;
mod models;
mod poly;
mod print;
mod simplify;
pub mod smt;
mod subst;

pub use facts::Facts;
pub use poly::{Mono, Poly};

use Map as HashMap;
use std::rc::Rc;
use std::time::Duration;

/// A table whose order is the same in every run: the numbers of terms must not hang on chance.
pub type Map<K, V> = std::collections::HashMap<K, V, std::hash::BuildHasherDefault<ahash::AHasher>>;
/// A set, likewise.
pub type Set<K> = std::collections::HashSet<K, std::hash::BuildHasherDefault<ahash::AHasher>>;

/// A term: an index into its [`Arena`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TermId(pub u32);

/// A variable: an index into [`Arena::vars`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);

/// Interned text: operator names, types, element kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sym(pub u32);

/// What a term stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// A mathematical integer (of any width; see the no-overflow assumption).
    Int,
    /// A truth value.
    Bool,
    /// A float, a pointer, or anything not interpreted.
    Data,
}

/// Where a variable comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VarKind {
    /// `tt.get_program_id` on an axis.
    Pid(u8),
    /// A block-local index of a stored tensor: site, axis.
    Index(u32, u32),
    /// The iteration number (from 0) of a loop that encloses a store.
    Iter(u32),
    /// Bound by a fold, reduction, chain or scan.
    Bound,
    /// An output coordinate, by number.
    Coord(u32),
}

impl VarKind {
    /// True for variables that number the instances of a store within a launch.
    pub fn is_instance(self) -> bool {
        matches!(self, VarKind::Pid(_) | VarKind::Index(..) | VarKind::Iter(_))
    }
}

/// A variable with what is known of its range.
#[derive(Clone, Debug)]
pub struct Var {
    /// Its origin.
    pub kind: VarKind,
    /// For reports.
    pub name: String,
    /// Inclusive bounds.
    pub range: Range,
}

/// Inclusive constant bounds; `None` is unbounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Range {
    /// Lower bound.
    pub lo: Option<i128>,
    /// Upper bound.
    pub hi: Option<i128>,
}

/// A load from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// [`Node::ArgPtr`] or an opaque pointer.
    pub base: TermId,
    /// In elements.
    pub offset: TermId,
    /// A truth value; true when the load is not masked.
    pub mask: TermId,
    /// The value where the mask is false: [`Node::Undef`] if the kernel gave none.
    pub other: TermId,
    /// Element type.
    pub ty: Sym,
    /// Marked volatile.
    pub volatile: bool,
    /// 0 for memory that the kernel never writes; else 1 + the number of the load operation.
    pub epoch: u32,
}

/// A reduction or scan over `len` lanes, with a fixed order that TTIR does not say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// Normalised text of the combiner, with element types.
    pub combiner: Sym,
    /// The result does not depend on the order (integer and min/max combiners).
    pub order_free: bool,
    /// Shape of the operand and reduced axis: with the layout they fix the order.
    pub key: Sym,
    /// Lanes.
    pub len: u64,
    /// Runs over the lanes.
    pub binder: VarId,
    /// One body for each operand.
    pub bodies: Vec<TermId>,
    /// Which result.
    pub out: u32,
    /// For a scan: the lane whose prefix is taken.
    pub at: Option<TermId>,
}

/// `acc` followed by fused multiply-add steps over `k`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Element types, precision, `maxNumImpreciseAcc`.
    pub tag: Sym,
    /// The chain of k16 steps does not depend on the tile (bf16 and f16 into f32).
    pub flat: bool,
    /// Number of products.
    pub len: u64,
    /// Runs over the products.
    pub binder: VarId,
    /// Where the chain starts.
    pub acc: TermId,
    /// Left factor.
    pub a: TermId,
    /// Right factor.
    pub b: TermId,
}

/// One carried scalar of a fold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Which carried value of the loop.
    pub carried: u32,
    /// Before the first iteration.
    pub init: TermId,
    /// After an iteration, in terms of [`Node::Carry`].
    pub body: TermId,
}

/// A sequential loop over `0..trip` with the carried scalars that its result needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    /// The iteration number; also names the loop's [`Node::Carry`] terms.
    pub binder: VarId,
    /// Number of iterations (none if negative).
    pub trip: TermId,
    /// For `scf.while`: continue while this holds, in terms of carried values; `trip` is then 0 and unused.
    pub while_cond: Option<TermId>,
    /// Carried scalars; the result is the value of the first one.
    pub slots: Vec<Slot>,
}

/// One node of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A constant or a sum of products; never a single bare atom.
    Poly(Poly),
    /// A variable.
    Var(VarId),
    /// A scalar runtime argument by position.
    Arg(u32),
    /// `tt.get_num_programs` on an axis.
    NumPrograms(u8),
    /// Floor division.
    Div(TermId, TermId),
    /// `a - b * floor(a / b)`.
    Mod(TermId, TermId),
    /// Division that truncates towards zero.
    TDiv(TermId, TermId),
    /// Remainder with the sign of the dividend.
    TRem(TermId, TermId),
    /// Integer minimum.
    Min(TermId, TermId),
    /// Integer maximum.
    Max(TermId, TermId),
    /// True or false.
    Bool(bool),
    /// The integer is not negative.
    Ge0(TermId),
    /// The integer is zero.
    Eq0(TermId),
    /// Negation.
    Not(TermId),
    /// All hold.
    And(Vec<TermId>),
    /// At least one holds.
    Or(Vec<TermId>),
    /// If, then, else.
    Ite(TermId, TermId, TermId),
    /// A float constant: type, bits.
    Const(Sym, u64),
    /// An uninterpreted operation: name with attributes and types, operands.
    Op(Sym, Vec<TermId>),
    /// A pointer: base, offset in elements.
    Ptr(TermId, TermId),
    /// A pointer argument by position.
    ArgPtr(u32),
    /// A load.
    Load(Load),
    /// The undefined lanes of an operation.
    Undef(u32),
    /// A reduction or scan.
    Reduce(Box<Reduce>),
    /// A dot.
    Chain(Box<Chain>),
    /// A loop.
    Fold(Box<Fold>),
    /// Inside a fold's bodies: the value of a slot before this iteration. Loop, slot number. While a fold is being made, the
    /// number is that of the carried value and the terms say which element of it.
    Carry(VarId, u32, Vec<TermId>),
    /// Not understood: why, and what it depends on. The number keeps different occurrences apart.
    Opaque(Sym, u32, Vec<TermId>),
}

/// The store of all terms of one analysis.
pub struct Arena {
    nodes: Vec<Node>,
    sorts: Vec<Sort>,
    free: Vec<Rc<[VarId]>>,
    depths: Vec<u32>,
    index: HashMap<Node, TermId>,
    ranges: HashMap<TermId, Range>,
    /// All variables.
    pub vars: Vec<Var>,
    syms: Vec<String>,
    sym_index: HashMap<String, Sym>,
    /// Set when a limit was hit; the verdict is then UNKNOWN.
    pub exhausted: Option<String>,
    budget: Duration,
    started: cpu_time::ThreadTime,
    asked: u32,
    /// Asked where the other provers fail.
    pub solver: Option<smt::Solver>,
    /// Names of the rewrite rules that were used.
    pub rules: std::collections::BTreeSet<&'static str>,
    scopes: HashMap<(u64, TermId), u64>,
    proofs: HashMap<(u64, TermId), bool>,
    hard_proofs: HashMap<(u64, TermId), bool>,
    scope_memo: HashMap<(u64, TermId), TermId>,
    /// What the meaning of a division, minimum or maximum says about it.
    definitions: HashMap<TermId, Rc<[Poly]>>,
    parts: HashMap<(TermId, TermId), bool>,
    models: models::Values,
}

/// Terms beyond this end the analysis.
const NODES_MAX: usize = 400_000;

/// Terms that nest deeper end the analysis. Walks over terms are recursive, and the stack of an analysis (512 MiB) leaves 50 KiB for a
/// level; kernels of real packages nest a few hundred deep.
const DEPTH_MAX: u32 = 10_000;

impl Arena {
    /// An empty arena that gives up once its thread has computed for `budget`: other load on the machine must not change a verdict.
    pub fn new(budget: Duration) -> Arena {
        Arena {
            nodes: Vec::new(),
            sorts: Vec::new(),
            free: Vec::new(),
            depths: Vec::new(),
            index: HashMap::default(),
            ranges: HashMap::default(),
            vars: Vec::new(),
            syms: Vec::new(),
            sym_index: HashMap::default(),
            exhausted: None,
            budget,
            started: cpu_time::ThreadTime::now(),
            asked: 0,
            solver: None,
            rules: Default::default(),
            scopes: HashMap::default(),
            proofs: HashMap::default(),
            hard_proofs: HashMap::default(),
            scope_memo: HashMap::default(),
            definitions: HashMap::default(),
            parts: HashMap::default(),
            models: vec![HashMap::default(); models::MODELS],
        }
    }

    /// The node of a term.
    pub fn node(&self, t: TermId) -> &Node {
        &self.nodes[t.0 as usize]
    }

    /// The sort of a term.
    pub fn sort(&self, t: TermId) -> Sort {
        self.sorts[t.0 as usize]
    }

    /// The free variables of a term, ascending.
    pub fn free_vars(&self, t: TermId) -> &[VarId] {
        &self.free[t.0 as usize]
    }

    /// Number of terms.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True before the first term.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// True once a limit was hit; every answer from then on is worthless.
    pub fn stopped(&mut self) -> bool {
        // Asking for the time is a system call.
        self.asked = self.asked.wrapping_add(1);
        if self.exhausted.is_none() && self.asked.is_multiple_of(64) && self.started.elapsed() > self.budget {
            self.exhausted = Some("timeout".into());
        }
        self.exhausted.is_some()
    }

    /// [`Arena::stopped`], with a look at the clock in any case: before work that is long as a whole.
    pub fn stopped_now(&mut self) -> bool {
        self.asked = u32::MAX;
        self.stopped()
    }

    /// Time for making terms to show, after the last answer was given.
    pub fn more_time(&mut self, time: Duration) {
        self.budget = self.started.elapsed() + time;
        self.exhausted = None;
    }

    /// Interns text.
    pub fn sym(&mut self, text: &str) -> Sym {
        if let Some(&s) = self.sym_index.get(text) {
            return s;
        }
        let s = Sym(self.syms.len() as u32);
        self.syms.push(text.to_owned());
        self.sym_index.insert(text.to_owned(), s);
        s
    }

    /// The text of a symbol.
    pub fn text(&self, s: Sym) -> &str {
        &self.syms[s.0 as usize]
    }

    /// A fresh variable.
    pub fn var(&mut self, kind: VarKind, name: impl Into<String>, range: Range) -> VarId {
        self.vars.push(Var { kind, name: name.into(), range });
        VarId(self.vars.len() as u32 - 1)
    }

    /// The variable's term.
    pub fn var_term(&mut self, v: VarId) -> TermId {
        self.intern(Node::Var(v), Sort::Int)
    }

    /// Interns a node that is already in normal form.
    pub fn intern(&mut self, node: Node, sort: Sort) -> TermId {
        if let Some(&t) = self.index.get(&node) {
            return t;
        }
        if self.nodes.len() >= NODES_MAX {
            self.exhausted.get_or_insert_with(|| "more than 400,000 terms".into());
        }
        let mut depth = 0;
        children(&node, |c| depth = depth.max(1 + self.depths[c.0 as usize]));
        if depth > DEPTH_MAX {
            self.exhausted
                .get_or_insert_with(|| format!("a value that hangs on a chain of more than {DEPTH_MAX} operations"));
        }
        let free = self.compute_free(&node);
        let t = TermId(self.nodes.len() as u32);
        self.nodes.push(node.clone());
        self.sorts.push(sort);
        self.free.push(free);
        self.depths.push(depth);
        self.index.insert(node, t);
        t
    }

    fn compute_free(&self, node: &Node) -> Rc<[VarId]> {
        let mut out: Vec<VarId> = Vec::new();
        let mut bound: Vec<VarId> = Vec::new();
        match node {
            Node::Var(v) => out.push(*v),
            Node::Carry(v, ..) => out.push(*v),
            Node::Reduce(r) => bound.push(r.binder),
            Node::Chain(c) => bound.push(c.binder),
            Node::Fold(f) => bound.push(f.binder),
            _ => {}
        }
        // `acc`, `trip`, `at` and `init` do not contain the binder, so it may be taken from the whole node.
        children(node, |c| out.extend_from_slice(self.free_vars(c)));
        out.sort_unstable();
        out.dedup();
        out.retain(|v| !bound.contains(v));
        out.into()
    }

    /// True if the term depends on a variable of this launch's instances.
    pub fn has_instance(&self, t: TermId) -> bool {
        self.free_vars(t).iter().any(|v| self.vars[v.0 as usize].kind.is_instance())
    }

    /// True if `t` contains `v` free.
    pub fn contains_var(&self, t: TermId, v: VarId) -> bool {
        self.free_vars(t).binary_search(&v).is_ok()
    }

    /// Calls `f` on every subterm once, parents first.
    pub fn walk(&self, root: TermId, mut f: impl FnMut(TermId, &Node)) {
        let mut seen = Set::default();
        let mut stack = vec![root];
        while let Some(t) = stack.pop() {
            if seen.insert(t) {
                f(t, self.node(t));
                children(self.node(t), |c| stack.push(c));
            }
        }
    }

    /// The same, but what lies below a term for which `f` says false is left out.
    pub fn walk_while(&self, root: TermId, mut f: impl FnMut(TermId, &Node) -> bool) {
        let mut seen = Set::default();
        let mut stack = vec![root];
        while let Some(t) = stack.pop() {
            if seen.insert(t) && f(t, self.node(t)) {
                children(self.node(t), |c| stack.push(c));
            }
        }
    }

    /// True if some subterm satisfies `f`.
    pub fn any(&self, root: TermId, mut f: impl FnMut(&Node) -> bool) -> bool {
        let mut found = false;
        self.walk(root, |_, n| found |= f(n));
        found
    }
}

/// Calls `f` on the direct subterms.
pub fn children(node: &Node, mut f: impl FnMut(TermId)) {
    match node {
        Node::Poly(p) => p.terms.iter().flat_map(|(m, _)| m.iter()).for_each(|&t| f(t)),
        Node::Var(_) | Node::Arg(_) | Node::NumPrograms(_) | Node::Bool(_) | Node::Const(..) => {}
        Node::ArgPtr(_) | Node::Undef(_) => {}
        Node::Div(a, b) | Node::Mod(a, b) | Node::TDiv(a, b) | Node::TRem(a, b) => [*a, *b].into_iter().for_each(f),
        Node::Min(a, b) | Node::Max(a, b) | Node::Ptr(a, b) => [*a, *b].into_iter().for_each(f),
        Node::Ge0(a) | Node::Eq0(a) | Node::Not(a) => f(*a),
        Node::And(ts) | Node::Or(ts) | Node::Op(_, ts) | Node::Opaque(_, _, ts) => ts.iter().copied().for_each(f),
        Node::Ite(a, b, c) => [*a, *b, *c].into_iter().for_each(f),
        Node::Load(l) => [l.base, l.offset, l.mask, l.other].into_iter().for_each(f),
        Node::Reduce(r) => r.bodies.iter().chain(r.at.iter()).copied().for_each(f),
        Node::Chain(c) => [c.acc, c.a, c.b].into_iter().for_each(f),
        Node::Fold(fold) => {
            f(fold.trip);
            fold.while_cond.into_iter().for_each(&mut f);
            for s in &fold.slots {
                f(s.init);
                f(s.body);
            }
        }
        Node::Carry(_, _, at) => at.iter().copied().for_each(f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arena with a minute to go.
    pub fn arena() -> Arena {
        Arena::new(Duration::from_secs(60))
    }

    #[test]
    fn equal_terms_have_equal_ids() {
        let mut t = arena();
        let (x, y) = (t.intern(Node::Arg(0), Sort::Int), t.intern(Node::Arg(1), Sort::Int));
        let (a, b) = (t.add(x, y), t.add(y, x));
        assert_eq!(a, b);
        let back = t.sub(a, y);
        assert_eq!(back, x);
    }
}

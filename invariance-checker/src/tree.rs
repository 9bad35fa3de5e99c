//! From a proved value to a tree in the vocabulary of `reduction-tree`, whose digest names its bits.
//!
//! Leaves are (role, coordinates): an offset is taken apart by strides and the strides are dropped. A loop that passes one accumulator
//! through a chain of k16 steps is one chain, whatever the tile, and its zero padding past K is dropped: both factors are +0 there, and
//! a chain of steps that adds zero products returns its accumulator unchanged (it is never -0 after a step).

use crate::term::Map as HashMap;
use crate::term::{Arena, Fold, Node, TermId, VarId, VarKind};
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::tree::{ChainKind, Combiner, Op, Order, Tree, Var};

/// Trees of more nodes end the analysis. A node takes some hundred bytes.
const NODES_MAX: u64 = 1_000_000;

/// Converts terms of one kernel.
pub struct Trees<'a> {
    /// Terms.
    pub arena: &'a mut Arena,
    /// Name of an argument.
    pub name: &'a dyn Fn(u32) -> String,
    /// Names the layout that orders reductions, if it is known.
    pub layout: Option<String>,
    /// The tree hangs on an order that TTIR does not fix.
    pub layout_needed: bool,
    /// It has dots whose bits hang on the instruction that the compiler chooses.
    pub instruction_needed: bool,
    start: u64,
    memo: HashMap<TermId, Tree>,
    vars: HashMap<VarId, Var>,
    carries: HashMap<(VarId, u32), Var>,
}

impl<'a> Trees<'a> {
    /// An empty conversion.
    pub fn new(arena: &'a mut Arena, name: &'a dyn Fn(u32) -> String, layout: Option<String>) -> Trees<'a> {
        let (memo, vars, carries) = Default::default();
        let start = Tree::nodes_made();
        Trees { start, arena, name, layout, layout_needed: false, instruction_needed: false, memo, vars, carries }
    }

    fn var(&mut self, v: VarId) -> Var {
        *self.vars.entry(v).or_insert_with(Var::fresh)
    }

    fn all(&mut self, ts: &[TermId]) -> Vec<Tree> {
        ts.iter().map(|t| self.tree(*t)).collect()
    }

    /// The tree of a term.
    pub fn tree(&mut self, t: TermId) -> Tree {
        if let Some(tree) = self.memo.get(&t) {
            return tree.clone();
        }
        if Tree::nodes_made() - self.start > NODES_MAX {
            self.arena.exhausted.get_or_insert_with(|| "a tree too large to write down".into());
        }
        let tree = if self.arena.stopped() { Tree::opaque("stopped", []) } else { self.convert(t) };
        self.memo.insert(t, tree.clone());
        tree
    }

    fn convert(&mut self, t: TermId) -> Tree {
        match self.arena.node(t).clone() {
            Node::Poly(p) => {
                let mut sum = Tree::int(0);
                for (m, c) in &p.terms {
                    let mut part = Tree::int(i64::try_from(*c).unwrap_or(i64::MAX));
                    for &x in m {
                        part = part.times(&self.tree(x));
                    }
                    sum = sum.plus(&part);
                }
                sum
            }
            Node::Var(v) => match self.arena.vars[v.0 as usize].kind {
                VarKind::Coord(n) => Tree::coord(n),
                _ => Tree::var(self.var(v)),
            },
            Node::Arg(i) => Tree::arg(&(self.name)(i)),
            Node::NumPrograms(a) => Tree::arg(&format!("num_programs.{a}")),
            Node::Div(a, b) => self.tree(a).div(&self.tree(b)),
            Node::Mod(a, b) => self.tree(a).modulo(&self.tree(b)),
            Node::Min(a, b) => self.tree(a).min(&self.tree(b)),
            Node::Max(a, b) => self.tree(a).max(&self.tree(b)),
            Node::TDiv(a, b) => self.named("divsi", &[a, b]),
            Node::TRem(a, b) => self.named("remsi", &[a, b]),
            Node::Bool(b) => Tree::truth(b),
            Node::Ge0(a) => Tree::int(0).at_most(&self.tree(a)),
            Node::Eq0(a) => self.tree(a).equals(&Tree::int(0)),
            Node::Not(a) => self.tree(a).not(),
            Node::And(ts) => Tree::all(self.all(&ts)),
            Node::Or(ts) => Tree::any(self.all(&ts)),
            Node::Ite(c, a, b) => Tree::select(self.tree(c), self.tree(a), self.tree(b)),
            Node::Const(ty, bits) => match self.arena.text(ty) {
                "f32" => Tree::number(f32::from_bits(bits as u32)),
                ty => Tree::op(Op::Named(format!("const.{ty}.{bits:x}").into()), []),
            },
            Node::Op(name, args) => {
                let name = self.arena.text(name).to_owned();
                self.operation(&name, &args)
            }
            Node::Ptr(a, b) => self.named("ptr", &[a, b]),
            Node::ArgPtr(i) => Tree::op(Op::Named(format!("pointer.{}", (self.name)(i)).into()), []),
            Node::Load(l) => self.load(&l),
            Node::Undef(n) => Tree::opaque(&format!("undefined {n}"), []),
            Node::Reduce(r) => self.reduce(&r),
            Node::Chain(c) => {
                let k = self.var(c.binder);
                self.instruction_needed |= !c.flat;
                let kind = chain_kind(self.arena.text(c.tag), c.flat);
                let (acc, a, b) = (self.tree(c.acc), self.tree(c.a), self.tree(c.b));
                Tree::chain(kind, Tree::int(c.len as i64), acc, k, a, b)
            }
            Node::Fold(f) => self.fold(&f),
            Node::Carry(v, slot, _) => {
                let var = *self.carries.entry((v, slot)).or_insert_with(Var::fresh);
                Tree::var(var)
            }
            Node::Opaque(why, n, args) => {
                let why = format!("{} {n}", self.arena.text(why));
                Tree::opaque(&why, self.all(&args))
            }
        }
    }

    fn named(&mut self, name: &str, args: &[TermId]) -> Tree {
        let args = self.all(args);
        Tree::op(Op::Named(name.into()), args)
    }

    fn operation(&mut self, name: &str, args: &[TermId]) -> Tree {
        let op = match name {
            // A compiler that contracts makes one of the two products exact; which one hangs on their order.
            "addf f32" if args.iter().all(|t| self.is_product(*t)) => Op::Named("addf of products".into()),
            "addf f32" => Op::Add,
            "subf f32" => Op::Sub,
            "mulf f32" => Op::Mul,
            "precisedivf f32" => Op::Div,
            "fma f32" => Op::Fma,
            "precisesqrt f32" => Op::Sqrt,
            "negf f32" => Op::Neg,
            "truncf f32 bf16" => Op::RoundBf16,
            // bfloat16 values are binary32 values here, so widening them is nothing.
            "extf bf16 f32" => return self.tree(args[0]),
            _ => Op::Named(name.into()),
        };
        let commutes = matches!(
            name.split(' ').next(),
            Some("maxnumf" | "minnumf" | "maximumf" | "minimumf" | "mulhiui" | "xori" | "andi" | "ori" | "mulw")
        );
        let mut args = self.all(args);
        if commutes {
            // The vocabulary does not reorder named operations; these commute exactly.
            args.sort_by_cached_key(|t| {
                if t.is_closed() {
                    return t.digest().to_string();
                }
                // Variables under construction have numbers that mean nothing, and sums are sorted by them: only which words occur
                // is the same in every run.
                let text = t.text();
                let mut words: Vec<&str> = text.split(|c: char| !c.is_alphabetic()).collect();
                words.sort_unstable();
                words.join(" ")
            });
        }
        Tree::op(op, args)
    }

    /// A product of floats, or one with the sign changed.
    fn is_product(&self, t: TermId) -> bool {
        match self.arena.op_name(t) {
            Some(("mulf", _)) => true,
            Some(("negf", args)) => self.is_product(args[0]),
            _ => false,
        }
    }

    /// The condition of a store over coordinates, without what only says which program makes an element.
    pub fn condition(&mut self, guard: TermId) -> Tree {
        let parts = self.arena.conjuncts(guard);
        let parts: Vec<TermId> = parts.into_iter().filter(|c| !self.arena.has_instance(*c)).collect();
        Tree::all(self.all(&parts))
    }

    fn load(&mut self, l: &crate::term::Load) -> Tree {
        let role = match self.arena.node(l.base) {
            Node::ArgPtr(i) => (self.name)(*i),
            _ => format!("{:?}", self.tree(l.base).digest()),
        };
        let index = self.digits(l.offset);
        let ty = self.arena.text(l.ty).to_owned();
        let leaf = Tree::load(&role, &ty, index);
        if self.arena.as_bool(l.mask) == Some(true) {
            return leaf;
        }
        Tree::select(self.tree(l.mask), leaf, self.tree(l.other))
    }

    /// The logical coordinates of an offset: one for each stride, the strides themselves left out.
    fn digits(&mut self, offset: TermId) -> Vec<Tree> {
        let p = self.arena.poly(offset);
        let mut groups: Vec<(Vec<TermId>, Tree)> = Vec::new();
        for (m, c) in &p.terms {
            let (stride, index): (Vec<TermId>, Vec<TermId>) =
                m.iter().partition(|&&t| crate::analysis::usage::is_param(self.arena, t));
            let mut part = Tree::int(i64::try_from(*c).unwrap_or(i64::MAX));
            for t in index {
                part = part.times(&self.tree(t));
            }
            match groups.iter_mut().find(|g| g.0 == stride) {
                Some(g) => g.1 = g.1.plus(&part),
                None => groups.push((stride, part)),
            }
        }
        // By the names of the strides: the order in which terms were made must not decide which index is which.
        groups.sort_by_cached_key(|g| {
            let mut names: Vec<String> = g.0.iter().map(|t| self.arena.show(*t, self.name)).collect();
            names.sort_unstable();
            (std::cmp::Reverse(g.0.len()), names)
        });
        groups.into_iter().map(|g| g.1).collect()
    }

    fn reduce(&mut self, r: &crate::term::Reduce) -> Tree {
        let lane = self.var(r.binder);
        let bodies: Vec<Tree> = self.all(&r.bodies);
        let combiner = match self.arena.text(r.combiner) {
            "addf(%0,%1);->%2 f32" => Combiner::Add,
            text => Combiner::Named(text.into()),
        };
        let key = self.arena.text(r.key).to_owned();
        let order = if r.order_free {
            Order::Free
        } else {
            self.layout_needed = true;
            let layout = self.layout.clone().unwrap_or_else(|| "layout".into());
            Order::Named(format!("{layout} {key}").into())
        };
        let tree = Tree::reduce(combiner, order, r.len, lane, bodies, r.out);
        match r.at {
            None => tree,
            Some(at) => Tree::op(Op::Named("scan.at".into()), [tree, self.tree(at)]),
        }
    }

    fn fold(&mut self, f: &Fold) -> Tree {
        if let Some(chain) = self.flat_chain(f) {
            return chain;
        }
        let n = self.var(f.binder);
        let mut carried = Vec::new();
        for (i, s) in f.slots.iter().enumerate() {
            let v = *self.carries.entry((f.binder, i as u32)).or_insert_with(Var::fresh);
            carried.push((v, s.init, s.body));
        }
        let slots: Vec<(Var, Tree, Tree)> =
            carried.into_iter().map(|(v, init, body)| (v, self.tree(init), self.tree(body))).collect();
        match f.while_cond {
            None => Tree::fold(self.tree(f.trip), n, &slots, 0),
            Some(c) => {
                // The condition rides along as a value of each iteration.
                let cond = self.tree(c);
                let (v, init, body) = slots[0].clone();
                let guarded = Tree::op(Op::Named("while".into()), [cond, body]);
                let mut slots = slots;
                slots[0] = (v, init, guarded);
                Tree::fold(Tree::arg("while"), n, &slots, 0)
            }
        }
    }

    /// One chain over all of K, for a loop whose body is a chain that starts from the carried value.
    fn flat_chain(&mut self, f: &Fold) -> Option<Tree> {
        let [slot] = f.slots.as_slice() else { return None };
        let Node::Chain(c) = self.arena.node(slot.body).clone() else { return None };
        let acc = Node::Carry(f.binder, 0, vec![]);
        if !c.flat || f.while_cond.is_some() || *self.arena.node(c.acc) != acc || c.len % 16 != 0 {
            return None;
        }
        let (n, k) = (self.arena.var_term(f.binder), self.arena.var_term(c.binder));
        let whole = self.arena.var(VarKind::Bound, "kk", crate::term::Range { lo: Some(0), hi: None });
        let w = self.arena.var_term(whole);
        let tile = self.arena.scale(n, c.len as i128);
        let k_of = self.arena.sub(w, tile);
        let map = HashMap::from_iter([(k, k_of)]);
        let (mut a, mut b) = (self.arena.subst(c.a, &map), self.arena.subst(c.b, &map));
        if self.arena.contains_var(a, f.binder) || self.arena.contains_var(b, f.binder) {
            return None;
        }
        let mut len = self.arena.scale(f.trip, c.len as i128);
        if let Some((bound, x, y)) = self.zero_past(a, b, w) {
            let l = self.arena.int(c.len as i128);
            let tiles = self.arena.ceil_div(bound, l);
            if tiles == f.trip {
                self.arena.rules.insert("zero-padding-of-k");
                (len, a, b) = (bound, x, y);
            }
        }
        self.arena.rules.insert("flatten-chain");
        let kind = chain_kind(self.arena.text(c.tag), true);
        let var = self.var(whole);
        let (len, init, a, b) = (self.tree(len), self.tree(slot.init), self.tree(a), self.tree(b));
        Some(Tree::chain(kind, len, init, var, a, b))
    }

    /// Both factors are masked loads that are +0 from some bound on: the bound, and the loads without that mask.
    fn zero_past(&mut self, a: TermId, b: TermId, w: TermId) -> Option<(TermId, TermId, TermId)> {
        let mut out = Vec::new();
        let mut bound = None;
        for t in [a, b] {
            let Node::Load(l) = self.arena.node(t).clone() else { return None };
            if !matches!(self.arena.node(l.other), Node::Const(_, 0)) {
                return None;
            }
            let parts = self.arena.conjuncts(l.mask);
            let limit = parts.iter().copied().find_map(|c| {
                let Node::Ge0(p) = self.arena.node(c) else { return None };
                let p = *p;
                (self.arena.poly(p).coeff(&[w]) == -1).then_some((c, p))
            })?;
            let here = self.arena.add(limit.1, w);
            let here = self.arena.add_const(here, 1);
            if *bound.get_or_insert(here) != here || self.arena.contains_var(here, var_of(self.arena, w)?) {
                return None;
            }
            let mask = self.arena.and(parts.into_iter().filter(|c| *c != limit.0));
            let sort = self.arena.sort(t);
            out.push(self.arena.load(crate::term::Load { mask, ..l }, sort));
        }
        Some((bound?, out[0], out[1]))
    }
}

fn var_of(arena: &Arena, t: TermId) -> Option<VarId> {
    match arena.node(t) {
        Node::Var(v) => Some(*v),
        _ => None,
    }
}

fn chain_kind(tag: &str, flat: bool) -> ChainKind {
    match (flat, tag) {
        (true, t) if t.starts_with("bf16") => ChainKind::Bf16(Arithmetic::Sm90),
        (true, t) if t.starts_with("f16") => ChainKind::F16(Arithmetic::Sm90),
        (_, t) => ChainKind::Named(t.into()),
    }
}

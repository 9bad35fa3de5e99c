//! Data terms: uninterpreted operations, pointers, loads. Nothing here rounds, so nothing here may be reassociated.

use super::{Arena, Load, Node, Sort, Sym, TermId};

/// Operations whose operands may change places. IEEE addition and multiplication are commutative (a NaN result is canonical on the
/// machines considered), and so are the minima and maxima that Triton has.
const COMMUTATIVE: [&str; 11] =
    ["addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "andi", "ori", "xori", "mulhiui", "mulw"];

impl Arena {
    /// An uninterpreted operation. The name's first word (up to a space) is the operation, the rest types and attributes.
    pub fn op(&mut self, name: &str, mut args: Vec<TermId>, sort: Sort) -> TermId {
        let name = self.sym(name);
        if self.commutes(name) {
            args.sort_unstable();
        }
        self.intern(Node::Op(name, args), sort)
    }

    /// True if the operands of the operation may change places.
    pub fn commutes(&self, name: Sym) -> bool {
        COMMUTATIVE.contains(&self.text(name).split(' ').next().unwrap_or_default())
    }

    /// A float constant.
    pub fn float(&mut self, ty: &str, bits: u64) -> TermId {
        let ty = self.sym(ty);
        self.intern(Node::Const(ty, bits), Sort::Data)
    }

    /// The operation's name without types.
    pub fn op_name(&self, t: TermId) -> Option<(&str, &[TermId])> {
        match self.node(t) {
            Node::Op(name, args) => Some((self.text(*name).split(' ').next().unwrap_or(""), args)),
            _ => None,
        }
    }

    /// A pointer.
    pub fn ptr(&mut self, base: TermId, offset: TermId) -> TermId {
        self.intern(Node::Ptr(base, offset), Sort::Data)
    }

    /// A load; `where(false, ..)` is `other`.
    pub fn load(&mut self, load: Load, sort: Sort) -> TermId {
        match self.as_bool(load.mask) {
            Some(false) => load.other,
            Some(true) if !matches!(self.node(load.other), Node::Bool(true)) => {
                // `other` no longer matters; one placeholder keeps equal loads equal.
                let other = self.bool(true);
                self.intern(Node::Load(Load { other, ..load }), sort)
            }
            _ => self.intern(Node::Load(load), sort),
        }
    }

    /// Something that is not understood, kept apart from every other such thing by `number`.
    pub fn opaque(&mut self, why: &str, number: u32, args: Vec<TermId>, sort: Sort) -> TermId {
        let why: Sym = self.sym(why);
        self.intern(Node::Opaque(why, number, args), sort)
    }
}

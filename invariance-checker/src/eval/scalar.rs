//! Elementwise operations on evaluated operands.

use super::tensor::in_manner;
use super::{Ctx, Evaluator, scalar_sort};
use crate::ir::{BinaryOp, CastOp, CmpI, Elem, Op, Scalar, Value};
use crate::term::{Node, Sort, TermId};

/// Multipliers and addends from here on are taken as meant to wrap (random number generators, hashes).
const WRAPS_MUL: i128 = 1 << 24;
const WRAPS_ADD: i128 = 1 << 30;

impl<'m> Evaluator<'m> {
    /// A constant from its bits.
    pub(super) fn constant(&mut self, elem: Scalar, bits: u64) -> TermId {
        match elem {
            Scalar::Int(1) => self.arena.bool(bits & 1 == 1),
            Scalar::Int(w) => {
                let shift = 64 - w.clamp(1, 64);
                self.arena.int(i128::from(((bits << shift) as i64) >> shift))
            }
            Scalar::Index => self.arena.int(i128::from(bits as i64)),
            Scalar::Float(f) => self.arena.float(f.name(), bits),
        }
    }

    pub(super) fn binary(&mut self, ctx: Ctx, whole: &Op, op: BinaryOp, a: Value, b: Value, idx: &[TermId]) -> TermId {
        let elem = self.ty(ctx, a).elem();
        let (x, y) = (self.eval(ctx, a, idx), self.eval(ctx, b, idx));
        match elem {
            Some(Elem::Scalar(s)) if s == Scalar::BOOL => self.binary_bool(op, x, y),
            Some(Elem::Scalar(s)) if s.is_int() => {
                let t = self.binary_int(op, s, x, y);
                match self.fits(t, s) {
                    true => t,
                    false => self.arena.op(&format!("{op:?} {s}").to_lowercase(), vec![x, y], Sort::Int),
                }
            }
            Some(Elem::Scalar(s)) => {
                let name = format!("{} {s}", format!("{op:?}").to_lowercase());
                self.arena.op(&in_manner(&name, whole), vec![x, y], Sort::Data)
            }
            _ => self.arena.op(&format!("{op:?}").to_lowercase(), vec![x, y], Sort::Data),
        }
    }

    fn binary_bool(&mut self, op: BinaryOp, x: TermId, y: TermId) -> TermId {
        match op {
            BinaryOp::AndI | BinaryOp::MulI | BinaryOp::MinUI | BinaryOp::MaxSI => self.arena.and([x, y]),
            BinaryOp::OrI | BinaryOp::MaxUI | BinaryOp::MinSI => self.arena.or([x, y]),
            BinaryOp::XorI | BinaryOp::AddI | BinaryOp::SubI => {
                let n = self.arena.not(y);
                self.arena.ite(x, n, y)
            }
            _ => self.arena.op(&format!("{op:?} i1").to_lowercase(), vec![x, y], Sort::Bool),
        }
    }

    /// That an index does not wrap is assumed of 32 and 64 bits alone. A number of fewer bits soon wraps: there the mathematical result
    /// stands for the machine's only if its range is within the type. A constant must fit in any type.
    fn fits(&mut self, t: TermId, s: Scalar) -> bool {
        let w = match s {
            Scalar::Int(w) => w.clamp(1, 64),
            _ => 64,
        };
        if w >= 32 && self.arena.as_int(t).is_none() {
            return true;
        }
        let r = self.arena.range(t);
        r.lo.is_some_and(|lo| lo >= -(1 << (w - 1))) && r.hi.is_some_and(|hi| hi < 1 << (w - 1))
    }

    fn not_negative(&mut self, t: TermId) -> bool {
        self.arena.range(t).lo.is_some_and(|lo| lo >= 0)
    }

    fn positive(&mut self, t: TermId) -> bool {
        self.arena.range(t).lo.is_some_and(|lo| lo >= 1)
    }

    fn binary_int(&mut self, op: BinaryOp, s: Scalar, x: TermId, y: TermId) -> TermId {
        let constant = self.arena.as_int(y).or(self.arena.as_int(x)).unwrap_or(0).abs();
        let both = self.arena.as_int(x).is_some() && self.arena.as_int(y).is_some();
        let plain = self.not_negative(x) && self.not_negative(y);
        let divides = plain && self.positive(y);
        let positive = self.positive(y);
        let t = &mut self.arena;
        match op {
            BinaryOp::AddI if constant < WRAPS_ADD || both => return t.add(x, y),
            BinaryOp::SubI if constant < WRAPS_ADD || both => return t.sub(x, y),
            BinaryOp::MulI if constant < WRAPS_MUL => return t.mul(x, y),
            BinaryOp::MulI => return t.op(&format!("mulw {s}"), vec![x, y], Sort::Int),
            BinaryOp::DivSI => return t.tdiv(x, y),
            BinaryOp::RemSI => return t.trem(x, y),
            BinaryOp::FloorDivSI => return t.div(x, y),
            BinaryOp::DivUI if divides => return t.div(x, y),
            BinaryOp::RemUI if divides => return t.modulo(x, y),
            BinaryOp::CeilDivUI if divides => return t.ceil_div(x, y),
            BinaryOp::CeilDivSI if positive => return t.ceil_div(x, y),
            BinaryOp::MinSI => return t.min(x, y),
            BinaryOp::MaxSI => return t.max(x, y),
            BinaryOp::MinUI if plain => return t.min(x, y),
            BinaryOp::MaxUI if plain => return t.max(x, y),
            BinaryOp::ShlI | BinaryOp::ShrSI | BinaryOp::ShrUI => {
                if let Some(k) = self.arena.as_int(y)
                    && (0..24).contains(&k)
                {
                    let p = self.arena.int(1 << k);
                    match op {
                        BinaryOp::ShlI => return self.arena.mul(x, p),
                        BinaryOp::ShrSI => return self.arena.div(x, p),
                        _ if self.not_negative(x) => return self.arena.div(x, p),
                        _ => {}
                    }
                }
            }
            BinaryOp::AndI => {
                // Two's complement: x & (2^k - 1) is x mod 2^k for every x.
                for (v, m) in [(x, y), (y, x)] {
                    if let Some(m) = self.arena.as_int(m)
                        && m > 0
                        && (m + 1) & m == 0
                    {
                        let p = self.arena.int(m + 1);
                        return self.arena.modulo(v, p);
                    }
                }
            }
            _ => {}
        }
        self.arena.op(&format!("{op:?} {s}").to_lowercase(), vec![x, y], Sort::Int)
    }

    pub(super) fn cmpi(&mut self, ctx: Ctx, pred: CmpI, a: Value, b: Value, idx: &[TermId]) -> TermId {
        let elem = self.ty(ctx, a).elem();
        let (x, y) = (self.eval(ctx, a, idx), self.eval(ctx, b, idx));
        if elem == Some(Elem::Scalar(Scalar::BOOL)) {
            let same = {
                let n = self.arena.not(y);
                self.arena.ite(x, y, n)
            };
            return match pred {
                CmpI::Eq => same,
                CmpI::Ne => self.arena.not(same),
                _ => self.arena.op(&format!("cmpi {pred:?} i1"), vec![x, y], Sort::Bool),
            };
        }
        if self.arena.sort(x) != Sort::Int {
            return self.arena.op(&format!("cmpi {pred:?} ptr"), vec![x, y], Sort::Bool);
        }
        let plain = self.not_negative(x) && self.not_negative(y);
        let t = &mut self.arena;
        match pred {
            CmpI::Eq => t.eq(x, y),
            CmpI::Ne => {
                let e = t.eq(x, y);
                t.not(e)
            }
            CmpI::Slt => t.lt(x, y),
            CmpI::Sle => t.ge(y, x),
            CmpI::Sgt => t.lt(y, x),
            CmpI::Sge => t.ge(x, y),
            CmpI::Ult if plain => t.lt(x, y),
            CmpI::Ule if plain => t.ge(y, x),
            CmpI::Ugt if plain => t.lt(y, x),
            CmpI::Uge if plain => t.ge(x, y),
            _ => t.op(&format!("cmpi {pred:?}"), vec![x, y], Sort::Bool),
        }
    }

    pub(super) fn cast(&mut self, ctx: Ctx, whole: &Op, op: CastOp, x: Value, to: Elem, idx: &[TermId]) -> TermId {
        let from = self.ty(ctx, x).elem();
        let v = self.eval(ctx, x, idx);
        let (Some(from), sort) = (
            from,
            match to {
                Elem::Scalar(s) => scalar_sort(s),
                Elem::Ptr { .. } => Sort::Data,
            },
        ) else {
            return self.arena.op("cast", vec![v], Sort::Data);
        };
        let from_bool = from == Elem::Scalar(Scalar::BOOL);
        match op {
            CastOp::ExtUI | CastOp::ExtSI if from_bool => {
                let (yes, no) = (self.arena.int(if op == CastOp::ExtUI { 1 } else { -1 }), self.arena.int(0));
                return self.arena.ite(v, yes, no);
            }
            CastOp::ExtSI | CastOp::IndexCast => return v,
            CastOp::ExtUI | CastOp::IndexCastUI if self.not_negative(v) => return v,
            CastOp::TruncI => {
                if let Elem::Scalar(Scalar::Int(w)) = to
                    && w > 1
                    && let r = self.arena.range(v)
                    && r.lo.is_some_and(|lo| lo >= -(1 << (w - 1)))
                    && r.hi.is_some_and(|hi| hi < 1 << (w - 1))
                {
                    return v;
                }
            }
            CastOp::Bitcast => {
                if from == to {
                    return v;
                }
                if let (Elem::Ptr { pointee: p, .. }, Elem::Ptr { pointee: q, .. }) = (from, to) {
                    if p.bytes() == q.bytes() {
                        return v;
                    }
                    return self.arena.op(&format!("ptrcast {p} {q}"), vec![v], Sort::Data);
                }
            }
            _ => {}
        }
        let name = match op {
            CastOp::FpToFp(r) => format!("fptofp {from} {to} {r:?}"),
            _ => format!("{} {from} {to}", format!("{op:?}").to_lowercase()),
        };
        self.arena.op(&in_manner(&name, whole), vec![v], sort)
    }

    /// A float value's constant list entry; indices that are not constant give an uninterpreted choice.
    pub(super) fn pick(&mut self, elem: Scalar, list: &[u64], shape: &[usize], idx: &[TermId]) -> TermId {
        let mut flat = Some(0usize);
        for (d, &i) in idx.iter().enumerate() {
            flat = flat.zip(self.arena.as_int(i)).map(|(f, i)| f * shape[d] + i as usize);
        }
        match flat.and_then(|f| list.get(f)) {
            Some(&bits) => self.constant(elem, bits),
            None => {
                let mut name = format!("dense {elem}");
                list.iter().for_each(|b| name.push_str(&format!(",{b:x}")));
                self.arena.op(&name, idx.to_vec(), scalar_sort(elem))
            }
        }
    }

    /// True for terms that are neither interpreted nor constant.
    pub fn is_opaque(&self, t: TermId) -> bool {
        matches!(self.arena.node(t), Node::Opaque(..))
    }
}

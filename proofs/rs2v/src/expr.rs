//! Expressions. Each becomes a pure Coq term; what may panic, or call a function, first becomes a line of `do` notation.

use quote::ToTokens;
use syn::{BinOp, Expr, ExprBinary, ExprCall, ExprStruct, Lit, LitInt, Member, UnOp};

use crate::stmt::Body;
use crate::types::{Ty, lower};
use crate::{Result, refuse};

/// Numbers are unary in Coq; the subset has no use for large ones.
const LITERAL_MAX: u64 = 1000;

impl Body<'_> {
    /// A term and its type. Prelude lines go to `out`; `want` types literals and empty vectors.
    pub(crate) fn pure(&mut self, e: &Expr, want: Option<&Ty>, out: &mut Vec<String>) -> Result<(String, Ty)> {
        self.expr(e, want, out, false)
    }

    /// As [`Body::pure`], but the expression may itself be a call that mutates its arguments.
    pub(crate) fn expr(
        &mut self,
        e: &Expr,
        want: Option<&Ty>,
        out: &mut Vec<String>,
        may_mutate: bool,
    ) -> Result<(String, Ty)> {
        match e {
            Expr::Paren(p) => self.expr(&p.expr, want, out, may_mutate),
            Expr::Reference(r) if r.mutability.is_none() => self.pure(&r.expr, want, out),
            Expr::Lit(l) => match &l.lit {
                Lit::Bool(b) => Ok((b.value.to_string(), Ty::Bool)),
                Lit::Int(i) => integer(e, i, want),
                _ => refuse(e, "literal"),
            },
            Expr::Path(_) => {
                let Some(i) = self.path(e) else { return refuse(e, "path") };
                let name = lower(i)?;
                let t = self.var(e, &name)?;
                Ok((name, t))
            }
            Expr::Field(f) => {
                let (base, t) = self.pure(&f.base, None, out)?;
                let (projection, t) = self.items.field(e, &t, &f.member)?;
                Ok((format!("({projection} {base})"), t))
            }
            Expr::Index(i) => {
                let (base, t) = self.pure(&i.expr, None, out)?;
                let (k, kt) = self.pure(&i.index, Some(&Ty::U(64)), out)?;
                let Ty::Vec(t) = t else { return refuse(e, "index of a non-Vec") };
                if kt != Ty::U(64) {
                    return refuse(e, "index type");
                }
                let tmp = self.fresh();
                out.push(format!("do {tmp} <- get {base} {k};"));
                Ok((tmp, *t))
            }
            Expr::Unary(u) => {
                let (a, t) = self.pure(&u.expr, want, out)?;
                match (&u.op, &t) {
                    (UnOp::Not(_), Ty::Bool) => Ok((format!("(negb {a})"), t)),
                    _ => refuse(e, "operator"),
                }
            }
            Expr::Cast(c) => {
                let (a, t) = self.pure(&c.expr, None, out)?;
                match (&t, self.items.owned(&c.ty)?) {
                    (Ty::U(m), Ty::U(n)) if *m <= n => Ok((a, Ty::U(n))),
                    _ => refuse(e, "only widening casts"),
                }
            }
            Expr::Binary(b) => self.binary(e, b, want, out),
            Expr::Struct(s) => self.record(e, s, out),
            Expr::MethodCall(m) => {
                let (r, t) = self.pure(&m.receiver, None, out)?;
                match (m.method.to_string().as_str(), &t, m.args.len()) {
                    ("len", Ty::Vec(_), 0) => Ok((format!("(length {r})"), Ty::U(64))),
                    ("clone", _, 0) | ("to_vec", Ty::Vec(_), 0) => Ok((r, t)),
                    _ => refuse(e, "method"),
                }
            }
            Expr::Call(c) if c.func.to_token_stream().to_string() == "Vec :: new" && c.args.is_empty() => match want {
                Some(t @ Ty::Vec(_)) => Ok(("[]".into(), t.clone())),
                _ => refuse(e, "Vec::new of unknown type"),
            },
            Expr::Call(c) => self.call(e, c, out, may_mutate),
            _ => refuse(e, "expression"),
        }
    }

    fn record(&mut self, e: &Expr, s: &ExprStruct, out: &mut Vec<String>) -> Result<(String, Ty)> {
        let Some(name) = s.path.get_ident().map(|i| i.to_string()) else { return refuse(e, "path") };
        let items = self.items;
        let Some(fields) = items.structs.get(&name) else { return refuse(e, "struct") };
        if s.rest.is_some() || s.dot2_token.is_some() || s.fields.len() != fields.len() {
            return refuse(e, "struct literal must give every field");
        }
        let mut args = vec![String::new(); fields.len()];
        for value in &s.fields {
            let Member::Named(m) = &value.member else { return refuse(e, "field") };
            let Some(k) = fields.iter().position(|x| m == &x.0) else { return refuse(m, "field") };
            let (a, t) = self.pure(&value.expr, Some(&fields[k].1), out)?;
            if t != fields[k].1 {
                return refuse(&value.expr, "field type");
            }
            args[k] = a;
        }
        Ok((format!("(mk{name} {})", args.join(" ")), Ty::Named(name)))
    }

    /// `f(..)`: the values of its `&mut` arguments, and its result if it has one, are bound together.
    fn call(&mut self, e: &Expr, c: &ExprCall, out: &mut Vec<String>, may_mutate: bool) -> Result<(String, Ty)> {
        let Some((name, f)) = self.callee(c) else { return refuse(e, "call") };
        if c.args.len() != f.params.len() {
            return refuse(e, "arity");
        }
        let (mut args, mut outs) = (Vec::new(), Vec::new());
        for (a, p) in c.args.iter().zip(&f.params) {
            let (term, t) = if p.by_mut {
                if !may_mutate {
                    return refuse(e, "a call that mutates must be a statement, or the whole right side of one");
                }
                let inner = match a {
                    Expr::Reference(r) if r.mutability.is_some() => &*r.expr,
                    a => a,
                };
                let Some(i) = self.path(inner) else { return refuse(a, "&mut argument must be a variable") };
                let variable = lower(i)?;
                if outs.contains(&variable) {
                    return refuse(a, "aliased &mut");
                }
                outs.push(variable);
                self.pure(inner, None, out)?
            } else {
                self.pure(a, Some(&p.ty), out)?
            };
            if t != p.ty {
                return refuse(a, "argument type");
            }
            args.push(term);
        }
        let tmp = self.fresh();
        if f.ret != Ty::Unit {
            outs.push(tmp.clone());
        }
        out.push(format!("do {} <- {name} {};", pattern(&outs), args.join(" ")));
        Ok((if f.ret == Ty::Unit { "tt".into() } else { tmp }, f.ret.clone()))
    }

    fn binary(&mut self, e: &Expr, b: &ExprBinary, want: Option<&Ty>, out: &mut Vec<String>) -> Result<(String, Ty)> {
        if let BinOp::And(_) | BinOp::Or(_) = b.op {
            return self.lazy(e, b, out);
        }
        let arithmetic = matches!(b.op, BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_));
        let is_literal = |e: &Expr| matches!(e, Expr::Lit(_));
        let want = if arithmetic { want } else { None };
        let ((x, xt), (y, yt)) = if is_literal(&b.left) && !is_literal(&b.right) {
            // a literal takes the type of the other side; neither side has an effect, so their order is free
            let right = self.pure(&b.right, want, out)?;
            (self.pure(&b.left, Some(&right.1), out)?, right)
        } else {
            let left = self.pure(&b.left, want, out)?;
            let right = self.pure(&b.right, Some(&left.1), out)?;
            (left, right)
        };
        if xt != yt {
            return refuse(e, "operand types");
        }
        let term = match (&b.op, &xt) {
            (BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_), Ty::U(n)) => {
                let f = match b.op {
                    BinOp::Add(_) => "add_u",
                    BinOp::Sub(_) => "sub_u",
                    BinOp::Mul(_) => "mul_u",
                    _ => "div_u",
                };
                let tmp = self.fresh();
                out.push(format!("do {tmp} <- {f} {n} {x} {y};"));
                return Ok((tmp, xt));
            }
            (BinOp::Eq(_), Ty::U(_)) => format!("(Nat.eqb {x} {y})"),
            (BinOp::Ne(_), Ty::U(_)) => format!("(negb (Nat.eqb {x} {y}))"),
            (BinOp::Eq(_), Ty::Bool) => format!("(Bool.eqb {x} {y})"),
            (BinOp::Lt(_), Ty::U(_)) => format!("(Nat.ltb {x} {y})"),
            (BinOp::Le(_), Ty::U(_)) => format!("(Nat.leb {x} {y})"),
            (BinOp::Gt(_), Ty::U(_)) => format!("(Nat.ltb {y} {x})"),
            (BinOp::Ge(_), Ty::U(_)) => format!("(Nat.leb {y} {x})"),
            _ => return refuse(e, "operator"),
        };
        Ok((term, Ty::Bool))
    }

    /// `&&` and `||`: a right side that may panic is evaluated only when Rust evaluates it.
    fn lazy(&mut self, e: &Expr, b: &ExprBinary, out: &mut Vec<String>) -> Result<(String, Ty)> {
        let (x, xt) = self.pure(&b.left, None, out)?;
        let mut right = Vec::new();
        let (y, yt) = self.pure(&b.right, None, &mut right)?;
        if xt != Ty::Bool || yt != Ty::Bool {
            return refuse(e, "bool operator");
        }
        let or = matches!(b.op, BinOp::Or(_));
        if right.is_empty() {
            return Ok((format!("({} {x} {y})", if or { "orb" } else { "andb" }), Ty::Bool));
        }
        let right = format!("({} Some {y})", right.join(" "));
        let (yes, no) = if or { ("Some true".into(), right) } else { (right, "Some false".to_string()) };
        let tmp = self.fresh();
        out.push(format!("do {tmp} <- (if {x} then {yes} else {no});"));
        Ok((tmp, Ty::Bool))
    }

    /// `place := value`, functionally: the root variable is bound anew.
    pub(crate) fn assign(&mut self, place: &Expr, value: String, out: &mut Vec<String>) -> Result<()> {
        match place {
            Expr::Paren(p) => self.assign(&p.expr, value, out),
            Expr::Field(f) => {
                let (base, t) = self.pure(&f.base, None, out)?;
                let (projection, _) = self.items.field(place, &t, &f.member)?;
                self.assign(&f.base, format!("(set_{projection} {base} {value})"), out)
            }
            Expr::Index(i) => {
                let (base, _) = self.pure(&i.expr, None, out)?;
                let (k, _) = self.pure(&i.index, Some(&Ty::U(64)), out)?;
                let tmp = self.fresh();
                out.push(format!("do {tmp} <- put {base} {k} {value};"));
                self.assign(&i.expr, tmp, out)
            }
            _ => {
                let root = self.root(place)?;
                out.push(format!("let {root} := {value} in"));
                Ok(())
            }
        }
    }
}

fn integer(e: &Expr, i: &LitInt, want: Option<&Ty>) -> Result<(String, Ty)> {
    let t = match (i.suffix(), want) {
        ("", Some(Ty::U(n))) => Ty::U(*n),
        ("", _) => return refuse(e, "literal of unknown type"),
        ("u32", _) => Ty::U(32),
        ("u64" | "usize", _) => Ty::U(64),
        _ => return refuse(e, "literal type"),
    };
    match i.base10_parse::<u64>() {
        Ok(n) if n <= LITERAL_MAX => Ok((n.to_string(), t)),
        _ => refuse(e, "literal too large"),
    }
}

/// The tuple of some values, as a term.
pub(crate) fn tuple(names: &[String]) -> String {
    match names {
        [] => "tt".into(),
        [one] => one.clone(),
        many => format!("({})", many.join(", ")),
    }
}

/// The tuple of some variables, as a pattern.
pub(crate) fn pattern(names: &[String]) -> String {
    if names.is_empty() { "_".into() } else { tuple(names) }
}

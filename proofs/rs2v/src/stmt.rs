//! Statements. A block becomes a nest of `let` and `do`, and ends with the function's result or, inside `if`, `match` and
//! `for`, with the values of the variables that it assigned.

use quote::ToTokens;
use syn::{
    BinOp, Expr, ExprBinary, ExprCall, ExprForLoop, ExprIf, ExprMatch, ExprRange, Ident, Local, Pat, RangeLimits, Stmt,
    StmtMacro,
};

use crate::expr::{pattern, tuple};
use crate::types::{Fun, Items, Param, Ty, lower};
use crate::{Refusal, Result, refusal, refuse};

/// How a block ends.
#[derive(Clone)]
pub(crate) enum Tail {
    /// With the function's result.
    Function,
    /// With the values of these variables.
    Variables(Vec<String>),
}

/// The body of one function while it is translated.
pub(crate) struct Body<'a> {
    pub(crate) items: &'a Items,
    env: Vec<(String, Ty)>,
    muts: Vec<String>,
    ret: Ty,
    tmps: usize,
    name: String,
}

impl<'a> Body<'a> {
    pub(crate) fn new(items: &'a Items, name: &str, params: &[Param], ret: Ty) -> Body<'a> {
        let env = params.iter().map(|p| (p.name.clone(), p.ty.clone())).collect();
        let muts = params.iter().filter(|p| p.by_mut).map(|p| p.name.clone()).collect();
        Body { items, env, muts, ret, tmps: 0, name: name.into() }
    }

    pub(crate) fn fresh(&mut self) -> String {
        self.tmps += 1;
        format!("tmp{}", self.tmps)
    }

    pub(crate) fn var(&self, e: &Expr, name: &str) -> Result<Ty> {
        self.env.iter().rev().find(|v| v.0 == name).map(|v| v.1.clone()).ok_or_else(|| refusal(e, "unknown variable"))
    }

    pub(crate) fn path<'e>(&self, e: &'e Expr) -> Option<&'e Ident> {
        match e {
            Expr::Path(p) if p.attrs.is_empty() && p.qself.is_none() => p.path.get_ident(),
            _ => None,
        }
    }

    /// The variable that a place expression lives in.
    pub(crate) fn root(&self, e: &Expr) -> Result<String> {
        match e {
            Expr::Field(f) => self.root(&f.base),
            Expr::Index(i) => self.root(&i.expr),
            Expr::Paren(p) => self.root(&p.expr),
            Expr::Reference(r) => self.root(&r.expr),
            e => self.path(e).map_or_else(|| refuse(e, "place"), lower),
        }
    }

    pub(crate) fn callee(&self, c: &ExprCall) -> Option<(String, &'a Fun)> {
        let name = self.path(&c.func)?.to_string();
        let items = self.items;
        items.funs.get(&name).map(|f| (name, f))
    }

    /// A new variable. Shadowing is refused: a block hands assigned variables out by name.
    fn declare(&mut self, i: &Ident, t: Ty) -> Result<String> {
        let name = lower(i)?;
        if self.env.iter().any(|v| v.0 == name) {
            return refuse(i, "shadowing");
        }
        if self.items.funs.contains_key(&name) || name == self.name {
            return refuse(i, "a variable named like a function");
        }
        self.env.push((name.clone(), t));
        Ok(name)
    }

    fn binding<'p>(&self, p: &'p Pat, mutable: bool) -> Result<&'p Ident> {
        match p {
            Pat::Ident(i) if i.by_ref.is_none() && i.subpat.is_none() && (mutable || i.mutability.is_none()) => {
                Ok(&i.ident)
            }
            p => refuse(p, "pattern"),
        }
    }

    fn finish(&self, tail: &Tail, value: Option<String>) -> String {
        match tail {
            Tail::Variables(names) => format!("Some {}", tuple(names)),
            Tail::Function => {
                let mut all = self.muts.clone();
                all.extend(value);
                format!("Some {}", tuple(&all))
            }
        }
    }

    /// The function's result: `e`, or unit.
    fn result<T: ToTokens>(&mut self, e: Option<&Expr>, at: &T, ind: &str) -> Result<String> {
        let want = self.ret.clone();
        let Some(e) = e else {
            if want != Ty::Unit {
                return refuse(at, "missing result");
            }
            return Ok(format!("{ind}{}\n", self.finish(&Tail::Function, None)));
        };
        let mut out = Vec::new();
        let (v, t) = self.expr(e, Some(&want), &mut out, true)?;
        if t != want {
            return refuse(e, "result type");
        }
        out.push(self.finish(&Tail::Function, if want == Ty::Unit { None } else { Some(v) }));
        Ok(lines(&out, ind))
    }

    pub(crate) fn block(&mut self, stmts: &[Stmt], tail: &Tail, ind: &str) -> Result<String> {
        let depth = self.env.len();
        let r = self.rest(stmts, tail, ind);
        self.env.truncate(depth);
        r
    }

    fn rest(&mut self, stmts: &[Stmt], tail: &Tail, ind: &str) -> Result<String> {
        let Some((s, rest)) = stmts.split_first() else {
            if matches!(tail, Tail::Function) && self.ret != Ty::Unit {
                return Err(Refusal { line: 0, why: "block without result".into(), text: self.name.clone() });
            }
            return Ok(format!("{ind}{}\n", self.finish(tail, None)));
        };
        let mut out: Vec<String> = Vec::new();
        match s {
            Stmt::Local(l) => self.local(l, &mut out)?,
            Stmt::Macro(m) => self.assertion(m, &mut out)?,
            Stmt::Expr(Expr::Return(r), _) => {
                if !rest.is_empty() {
                    return refuse(r, "code after return");
                }
                if let Tail::Variables(_) = tail {
                    return refuse(r, "return only in guards: `if c { ..; return x; }` at the top level of a function");
                }
                return self.result(r.expr.as_deref(), r, ind);
            }
            Stmt::Expr(Expr::If(i), _) => return self.branch(i, rest, tail, ind),
            Stmt::Expr(Expr::ForLoop(f), _) => return self.counted_loop(f, rest, tail, ind),
            Stmt::Expr(Expr::Match(m), _) => return self.cases(m, rest, tail, ind),
            Stmt::Expr(Expr::Assign(a), Some(_)) => {
                // only the type of the place is needed here; `assign` checks its bounds, after the right side as in Rust
                let (_, place) = self.pure(&a.left, None, &mut Vec::new())?;
                let (v, t) = self.expr(&a.right, Some(&place), &mut out, true)?;
                if t != place {
                    return refuse(a, "assignment type");
                }
                self.assign(&a.left, v, &mut out)?;
            }
            Stmt::Expr(Expr::Binary(b), Some(_)) => self.compound(b, &mut out)?,
            Stmt::Expr(Expr::MethodCall(m), Some(_)) if m.method == "push" && m.args.len() == 1 => {
                let (r, t) = self.pure(&m.receiver, None, &mut out)?;
                let Ty::Vec(element) = t else { return refuse(m, "push on a non-Vec") };
                let (v, t) = self.pure(&m.args[0], Some(&element), &mut out)?;
                if t != *element {
                    return refuse(m, "element type");
                }
                self.assign(&m.receiver, format!("({r} ++ [{v}])"), &mut out)?;
            }
            Stmt::Expr(Expr::MethodCall(m), Some(_)) if m.method == "truncate" && m.args.len() == 1 => {
                let (r, t) = self.pure(&m.receiver, None, &mut out)?;
                let Ty::Vec(_) = t else { return refuse(m, "truncate on a non-Vec") };
                let (n, t) = self.pure(&m.args[0], Some(&Ty::U(64)), &mut out)?;
                if t != Ty::U(64) {
                    return refuse(m, "length type");
                }
                self.assign(&m.receiver, format!("(firstn {n} {r})"), &mut out)?;
            }
            Stmt::Expr(e @ Expr::Call(_), Some(_)) => {
                self.expr(e, None, &mut out, true)?;
            }
            Stmt::Expr(e, None) if rest.is_empty() && matches!(tail, Tail::Function) => {
                return self.result(Some(e), e, ind);
            }
            s => return refuse(s, "statement"),
        }
        Ok(lines(&out, ind) + &self.rest(rest, tail, ind)?)
    }

    fn local(&mut self, l: &Local, out: &mut Vec<String>) -> Result<()> {
        let (pat, want) = match &l.pat {
            Pat::Type(t) => (&*t.pat, Some(self.items.owned(&t.ty)?)),
            p => (p, None),
        };
        let name = self.binding(pat, true)?;
        let Some(init) = &l.init else { return refuse(l, "let without a value") };
        if init.diverge.is_some() {
            return refuse(l, "let else");
        }
        if let Some(i) = self.path(&init.expr)
            && self.muts.iter().any(|m| i == m)
        {
            return refuse(l, "a second name for a &mut parameter");
        }
        let (v, t) = self.expr(&init.expr, want.as_ref(), out, true)?;
        if want.is_some_and(|w| w != t) {
            return refuse(l, "type of the value");
        }
        let name = self.declare(name, t)?;
        out.push(format!("let {name} := {v} in"));
        Ok(())
    }

    /// `assert!(condition)`: a panic when it is false.
    fn assertion(&mut self, m: &StmtMacro, out: &mut Vec<String>) -> Result<()> {
        if !m.mac.path.is_ident("assert") {
            return refuse(m, "macro");
        }
        let Ok(condition) = m.mac.parse_body::<Expr>() else { return refuse(m, "assert with a message") };
        let (c, t) = self.pure(&condition, Some(&Ty::Bool), out)?;
        if t != Ty::Bool {
            return refuse(m, "condition");
        }
        out.push(format!("do _ <- assert_u {c};"));
        Ok(())
    }

    fn compound(&mut self, b: &ExprBinary, out: &mut Vec<String>) -> Result<()> {
        let f = match b.op {
            BinOp::AddAssign(_) => "add_u",
            BinOp::SubAssign(_) => "sub_u",
            BinOp::MulAssign(_) => "mul_u",
            _ => return refuse(b, "statement"),
        };
        let (x, t) = self.pure(&b.left, None, out)?;
        let Ty::U(n) = t else { return refuse(b, "operand types") };
        let (y, yt) = self.pure(&b.right, Some(&t), out)?;
        if yt != t {
            return refuse(b, "operand types");
        }
        let tmp = self.fresh();
        out.push(format!("do {tmp} <- {f} {n} {x} {y};"));
        self.assign(&b.left, tmp, out)
    }

    fn branch(&mut self, i: &ExprIf, rest: &[Stmt], tail: &Tail, ind: &str) -> Result<String> {
        let mut out = Vec::new();
        let deeper = format!("{ind}  ");
        let (c, t) = self.pure(&i.cond, Some(&Ty::Bool), &mut out)?;
        if t != Ty::Bool {
            return refuse(&i.cond, "condition");
        }
        let pre = lines(&out, ind);
        let then = &i.then_branch.stmts;
        let returns = matches!(then.last(), Some(Stmt::Expr(Expr::Return(_), _)));
        if returns && i.else_branch.is_none() {
            let a = self.block(then, tail, &deeper)?;
            let b = self.rest(rest, tail, ind)?;
            return Ok(format!("{pre}{ind}if {c} then\n{a}{ind}else\n{b}"));
        }
        let otherwise: &[Stmt] = match &i.else_branch {
            None => &[],
            Some((_, e)) => match &**e {
                Expr::Block(b) if b.label.is_none() => &b.block.stmts,
                e => return refuse(e, "else if: nest it"),
            },
        };
        if rest.is_empty() && matches!(tail, Tail::Function) && i.else_branch.is_some() {
            let a = self.block(then, tail, &deeper)?;
            let b = self.block(otherwise, tail, &deeper)?;
            return Ok(format!("{pre}{ind}if {c} then\n{a}{ind}else\n{b}"));
        }
        let mut names = Vec::new();
        self.assigned(then, &mut names)?;
        self.assigned(otherwise, &mut names)?;
        let names = self.sorted(names);
        let inner = Tail::Variables(names.clone());
        let a = self.block(then, &inner, &deeper)?;
        let b = self.block(otherwise, &inner, &deeper)?;
        let k = self.rest(rest, tail, ind)?;
        Ok(format!("{pre}{ind}do {} <- (if {c} then\n{a}{ind}else\n{b}{ind});\n{k}", pattern(&names)))
    }

    fn counted_loop(&mut self, f: &ExprForLoop, rest: &[Stmt], tail: &Tail, ind: &str) -> Result<String> {
        let mut out = Vec::new();
        if f.label.is_some() {
            return refuse(f, "label");
        }
        let variable = self.binding(&f.pat, false)?;
        let Expr::Range(ExprRange { start: Some(a), end: Some(b), limits: RangeLimits::HalfOpen(_), .. }) = &*f.expr
        else {
            return refuse(&f.expr, "loop range");
        };
        let (hi, ht) = self.pure(b, Some(&Ty::U(64)), &mut out)?;
        let (lo, lt) = self.pure(a, Some(&ht), &mut out)?;
        if lt != ht || !matches!(lt, Ty::U(_)) {
            return refuse(&f.expr, "range types");
        }
        let mut names = Vec::new();
        self.assigned(&f.body.stmts, &mut names)?;
        let names = self.sorted(names);
        let depth = self.env.len();
        let i = self.declare(variable, lt)?;
        let body = self.block(&f.body.stmts, &Tail::Variables(names.clone()), &format!("{ind}  "))?;
        self.env.truncate(depth);
        let k = self.rest(rest, tail, ind)?;
        let bind = if names.len() > 1 { format!("'{}", tuple(&names)) } else { pattern(&names) };
        let head = format!("do {} <- for_range {lo} {hi} {} (fun {i} {bind} =>", pattern(&names), tuple(&names));
        Ok(format!("{}{ind}{head}\n{body}{ind});\n{k}", lines(&out, ind)))
    }

    fn cases(&mut self, m: &ExprMatch, rest: &[Stmt], tail: &Tail, ind: &str) -> Result<String> {
        let mut out = Vec::new();
        let (v, t) = self.pure(&m.expr, None, &mut out)?;
        let Ty::Named(name) = &t else { return refuse(&m.expr, "match on a non-enum") };
        let items = self.items;
        let Some(variants) = items.enums.get(name) else { return refuse(&m.expr, "match on a non-enum") };
        let mut names = Vec::new();
        for a in &m.arms {
            self.assigned_by(&a.body, &mut names)?;
        }
        let names = self.sorted(names);
        let mut arms = String::new();
        for a in &m.arms {
            if a.guard.is_some() {
                return refuse(a, "guard");
            }
            let Pat::TupleStruct(ts) = &a.pat else { return refuse(&a.pat, "pattern") };
            let segments = &ts.path.segments;
            if segments.len() != 2 || segments[0].ident != *name {
                return refuse(&a.pat, "pattern");
            }
            let variant = segments[1].ident.to_string();
            let Some((_, tys)) = variants.iter().find(|x| x.0 == variant) else { return refuse(&a.pat, "variant") };
            if ts.elems.len() != tys.len() {
                return refuse(&a.pat, "arity");
            }
            let depth = self.env.len();
            let mut bound = Vec::new();
            for (p, t) in ts.elems.iter().zip(tys) {
                let i = self.binding(p, false)?;
                bound.push(self.declare(i, t.clone())?);
            }
            let Expr::Block(b) = &*a.body else { return refuse(&a.body, "arm must be a block") };
            let body = self.block(&b.block.stmts, &Tail::Variables(names.clone()), &format!("{ind}  "))?;
            self.env.truncate(depth);
            arms += &format!("{ind}| {name}_{variant} {} =>\n{body}", bound.join(" "));
        }
        let k = self.rest(rest, tail, ind)?;
        let pre = lines(&out, ind);
        Ok(format!("{pre}{ind}do {} <- (match {v} with\n{arms}{ind}end);\n{k}", pattern(&names)))
    }

    /// The variables, declared outside, that a block assigns.
    fn assigned(&self, stmts: &[Stmt], all: &mut Vec<String>) -> Result<()> {
        let mut local: Vec<String> = Vec::new();
        for s in stmts {
            let mut here = Vec::new();
            match s {
                Stmt::Local(l) => {
                    if let Some(i) = &l.init {
                        self.assigned_by(&i.expr, &mut here)?;
                    }
                    let pat = if let Pat::Type(t) = &l.pat { &*t.pat } else { &l.pat };
                    local.push(self.binding(pat, true)?.to_string());
                }
                Stmt::Expr(e, _) => self.assigned_by(e, &mut here)?,
                Stmt::Macro(_) => {}
                s => return refuse(s, "statement"),
            }
            for name in here {
                if !local.contains(&name) && !all.contains(&name) {
                    all.push(name);
                }
            }
        }
        Ok(())
    }

    fn assigned_by(&self, e: &Expr, all: &mut Vec<String>) -> Result<()> {
        match e {
            Expr::Assign(a) => {
                self.assigned_by(&a.right, all)?;
                all.push(self.root(&a.left)?);
            }
            Expr::Binary(b) if matches!(b.op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_)) => {
                all.push(self.root(&b.left)?);
            }
            Expr::MethodCall(m) if m.method == "push" || m.method == "truncate" => all.push(self.root(&m.receiver)?),
            Expr::Call(c) => {
                if let Some((_, f)) = self.callee(c) {
                    for (a, p) in c.args.iter().zip(&f.params) {
                        if p.by_mut {
                            all.push(self.root(a)?);
                        }
                    }
                }
            }
            Expr::If(i) => {
                self.assigned(&i.then_branch.stmts, all)?;
                if let Some((_, e)) = &i.else_branch {
                    self.assigned_by(e, all)?;
                }
            }
            Expr::Block(b) => self.assigned(&b.block.stmts, all)?,
            Expr::ForLoop(f) => self.assigned(&f.body.stmts, all)?,
            Expr::Match(m) => {
                for a in &m.arms {
                    self.assigned_by(&a.body, all)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Declaration order, so that the shape of proofs does not depend on the order of statements.
    fn sorted(&self, mut names: Vec<String>) -> Vec<String> {
        names.sort_by_key(|x| self.env.iter().rposition(|v| &v.0 == x));
        names.dedup();
        names
    }
}

fn lines(out: &[String], ind: &str) -> String {
    out.iter().map(|l| format!("{ind}{l}\n")).collect()
}

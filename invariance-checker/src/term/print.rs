//! Terms as text for reports, cut off where they grow long.

use super::{Arena, Node, TermId};
use std::fmt::Write;

impl Arena {
    /// The term as text, with argument names given by `arg`.
    pub fn show(&self, t: TermId, arg: &dyn Fn(u32) -> String) -> String {
        let mut out = String::new();
        self.write(t, arg, 0, &mut out);
        out
    }

    fn list(&self, ts: &[TermId], arg: &dyn Fn(u32) -> String, depth: u32, sep: &str, out: &mut String) {
        for (i, &t) in ts.iter().enumerate() {
            if i > 0 {
                out.push_str(sep);
            }
            self.write(t, arg, depth, out);
        }
    }

    fn write(&self, t: TermId, arg: &dyn Fn(u32) -> String, depth: u32, out: &mut String) {
        if depth > 12 || out.len() > 2000 {
            out.push('…');
            return;
        }
        let d = depth + 1;
        let call = |name: &str, ts: &[TermId], out: &mut String| {
            let _ = write!(out, "{name}(");
            self.list(ts, arg, d, ", ", out);
            out.push(')');
        };
        match self.node(t) {
            Node::Poly(p) => {
                if p.terms.is_empty() {
                    out.push('0');
                }
                for (i, (m, c)) in p.terms.iter().enumerate() {
                    let sign = match (i, *c < 0) {
                        (0, false) => "",
                        (0, true) => "-",
                        (_, false) => " + ",
                        (_, true) => " - ",
                    };
                    out.push_str(sign);
                    if m.is_empty() || c.abs() != 1 {
                        let _ = write!(out, "{}", c.abs());
                        if !m.is_empty() {
                            out.push('*');
                        }
                    }
                    self.list(m, arg, d, "*", out);
                }
            }
            Node::Var(v) => out.push_str(&self.vars[v.0 as usize].name),
            Node::Arg(i) | Node::ArgPtr(i) => out.push_str(&arg(*i)),
            Node::NumPrograms(a) => {
                let _ = write!(out, "num_programs({a})");
            }
            Node::Div(a, b) => call("div", &[*a, *b], out),
            Node::Mod(a, b) => call("mod", &[*a, *b], out),
            Node::TDiv(a, b) => call("tdiv", &[*a, *b], out),
            Node::TRem(a, b) => call("trem", &[*a, *b], out),
            Node::Min(a, b) => call("min", &[*a, *b], out),
            Node::Max(a, b) => call("max", &[*a, *b], out),
            Node::Bool(b) => {
                let _ = write!(out, "{b}");
            }
            Node::Ge0(a) => {
                self.write(*a, arg, d, out);
                out.push_str(" >= 0");
            }
            Node::Eq0(a) => {
                self.write(*a, arg, d, out);
                out.push_str(" == 0");
            }
            Node::Not(a) => call("not", &[*a], out),
            Node::And(ts) => self.list(ts, arg, d, " and ", out),
            Node::Or(ts) => {
                out.push('(');
                self.list(ts, arg, d, " or ", out);
                out.push(')');
            }
            Node::Ite(c, a, b) => call("if", &[*c, *a, *b], out),
            Node::Const(ty, bits) => {
                let _ = match self.text(*ty) {
                    "f32" => write!(out, "{:?}", f32::from_bits(*bits as u32)),
                    ty => write!(out, "{bits:#x}:{ty}"),
                };
            }
            Node::Op(name, args) => call(self.text(*name).split(' ').next().unwrap_or(""), args, out),
            Node::Ptr(b, o) => call("ptr", &[*b, *o], out),
            Node::Load(l) => {
                self.write(l.base, arg, d, out);
                out.push('[');
                self.write(l.offset, arg, d, out);
                if self.as_bool(l.mask) != Some(true) {
                    out.push_str(" | ");
                    self.write(l.mask, arg, d, out);
                }
                out.push(']');
            }
            Node::Undef(_) => out.push_str("undefined"),
            Node::Reduce(r) => {
                let name = if r.at.is_some() { "scan" } else { "reduce" };
                let _ = write!(
                    out,
                    "{name}<{}>({} < {}: ",
                    self.text(r.combiner),
                    self.vars[r.binder.0 as usize].name,
                    r.len
                );
                self.list(&r.bodies, arg, d, ", ", out);
                out.push(')');
            }
            Node::Chain(c) => {
                let _ = write!(out, "dot({} < {}: ", self.vars[c.binder.0 as usize].name, c.len);
                self.list(&[c.acc, c.a, c.b], arg, d, ", ", out);
                out.push(')');
            }
            Node::Fold(f) => {
                let _ = write!(out, "fold({} < ", self.vars[f.binder.0 as usize].name);
                match f.while_cond {
                    Some(c) => self.write(c, arg, d, out),
                    None => self.write(f.trip, arg, d, out),
                }
                for s in &f.slots {
                    let _ = write!(out, "; #{} := ", s.carried);
                    self.list(&[s.init, s.body], arg, d, " then ", out);
                }
                out.push(')');
            }
            Node::Carry(_, k, at) => call(&format!("#{k}"), at, out),
            Node::Opaque(why, _, args) => call(&format!("opaque[{}]", self.text(*why)), args, out),
        }
    }
}

//! Integer expressions: over a variant's constants, evaluated while compiling; with sizes that only a launch knows, turned
//! into checked arithmetic.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{BinOp, Expr, Ident, Lit, UnOp};

/// A variant's constants by name.
pub type Constants = BTreeMap<String, i64>;

fn unsupported(expr: &Expr) -> syn::Error {
    syn::Error::new_spanned(
        expr,
        "expected integers, constants, + - * / %, == < >, if/else, ceil(a, b), min(a, b) and max(a, b)",
    )
}

/// The value of an expression; comparisons give 0 and 1.
pub fn evaluate(expr: &Expr, constants: &Constants) -> syn::Result<i64> {
    let overflow = || syn::Error::new_spanned(expr, "the value overflows or divides by zero");
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(int) => int.base10_parse(),
            _ => Err(unsupported(expr)),
        },
        Expr::Paren(inner) => evaluate(&inner.expr, constants),
        Expr::Group(inner) => evaluate(&inner.expr, constants),
        Expr::Path(path) => {
            let name = path.path.get_ident().map(ToString::to_string).ok_or_else(|| unsupported(expr))?;
            constants.get(&name).copied().ok_or_else(|| {
                let known = constants.keys().cloned().collect::<Vec<_>>().join(", ");
                syn::Error::new_spanned(expr, format!("no constant `{name}` in this family; it has {known}"))
            })
        }
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
            evaluate(&unary.expr, constants)?.checked_neg().ok_or_else(overflow)
        }
        Expr::Binary(binary) => {
            let (a, b) = (evaluate(&binary.left, constants)?, evaluate(&binary.right, constants)?);
            let value = match binary.op {
                BinOp::Add(_) => a.checked_add(b),
                BinOp::Sub(_) => a.checked_sub(b),
                BinOp::Mul(_) => a.checked_mul(b),
                BinOp::Div(_) => a.checked_div(b),
                BinOp::Rem(_) => a.checked_rem(b),
                BinOp::Eq(_) => Some(i64::from(a == b)),
                BinOp::Gt(_) => Some(i64::from(a > b)),
                BinOp::Lt(_) => Some(i64::from(a < b)),
                _ => return Err(unsupported(expr)),
            };
            value.ok_or_else(overflow)
        }
        Expr::Call(call) => {
            let (function, a, b) = function(call)?;
            let (a, b) = (evaluate(a, constants)?, evaluate(b, constants)?);
            match function.as_str() {
                "min" => Ok(a.min(b)),
                "max" => Ok(a.max(b)),
                _ => {
                    let sum = b.checked_sub(1).and_then(|less| a.checked_add(less));
                    sum.and_then(|sum| sum.checked_div(b)).ok_or_else(overflow)
                }
            }
        }
        Expr::If(conditional) => {
            let branch = |block: &syn::Block| match &block.stmts[..] {
                [syn::Stmt::Expr(inner, None)] => evaluate(inner, constants),
                _ => Err(unsupported(expr)),
            };
            if evaluate(&conditional.cond, constants)? != 0 {
                return branch(&conditional.then_branch);
            }
            match &conditional.else_branch {
                Some((_, other)) => match &**other {
                    Expr::Block(block) => branch(&block.block),
                    other => evaluate(other, constants),
                },
                None => Err(unsupported(expr)),
            }
        }
        _ => Err(unsupported(expr)),
    }
}

/// Name and both arguments of `ceil(a, b)` (a / b, rounded up), `min(a, b)` or `max(a, b)`.
fn function(call: &syn::ExprCall) -> syn::Result<(String, &Expr, &Expr)> {
    let name = match &*call.func {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    };
    let name = name.filter(|name| matches!(name.as_str(), "ceil" | "min" | "max"));
    match (name, call.args.first(), call.args.get(1), call.args.len()) {
        (Some(name), Some(a), Some(b), 2) => Ok((name, a, b)),
        _ => Err(unsupported(&Expr::Call(call.clone()))),
    }
}

/// Whether an expression names one of the sizes.
pub fn names_a_size(expr: &Expr, sizes: &[Ident]) -> bool {
    match expr {
        Expr::Paren(inner) => names_a_size(&inner.expr, sizes),
        Expr::Group(inner) => names_a_size(&inner.expr, sizes),
        Expr::Path(path) => path.path.get_ident().is_some_and(|name| sizes.contains(name)),
        Expr::Binary(binary) => names_a_size(&binary.left, sizes) || names_a_size(&binary.right, sizes),
        Expr::Call(call) => call.args.iter().any(|a| names_a_size(a, sizes)),
        Expr::If(conditional) => {
            let statement = |s: &syn::Stmt| matches!(s, syn::Stmt::Expr(inner, _) if names_a_size(inner, sizes));
            let otherwise = |e: &Expr| match e {
                Expr::Block(block) => block.block.stmts.iter().any(statement),
                other => names_a_size(other, sizes),
            };
            names_a_size(&conditional.cond, sizes)
                || conditional.then_branch.stmts.iter().any(statement)
                || conditional.else_branch.as_ref().is_some_and(|(_, e)| otherwise(e))
        }
        _ => false,
    }
}

/// An expression as Rust of type `Option<u64>`: none where it overflows, falls below 0 or divides by 0. `fields` are the
/// variant's own constants, `globals` constants of the whole description.
pub fn checked(expr: &Expr, fields: &[String], globals: &Constants, sizes: &[Ident]) -> syn::Result<TokenStream> {
    let part = |e: &Expr| checked(e, fields, globals, sizes);
    match expr {
        Expr::Lit(_) => {
            let value = evaluate(expr, &Constants::new())? as u64;
            Ok(quote!(Some(#value)))
        }
        Expr::Paren(inner) => part(&inner.expr),
        Expr::Group(inner) => part(&inner.expr),
        Expr::Path(path) => {
            let name = path.path.get_ident().ok_or_else(|| unsupported(expr))?;
            let text = name.to_string();
            if sizes.contains(name) {
                Ok(quote!(u64::try_from(sizes.#name).ok()))
            } else if fields.contains(&text) {
                let field = format_ident!("{}", text.to_lowercase());
                Ok(quote!(Some(u64::from(self.#field))))
            } else if let Some(value) = globals.get(&text) {
                let value = *value as u64;
                Ok(quote!(Some(#value)))
            } else {
                let known = sizes.iter().map(ToString::to_string).chain(fields.iter().cloned());
                let known = known.chain(globals.keys().cloned()).collect::<Vec<_>>().join(", ");
                Err(syn::Error::new_spanned(expr, format!("no size or constant `{text}` here; there is {known}")))
            }
        }
        Expr::Binary(binary) => {
            let (a, b) = (part(&binary.left)?, part(&binary.right)?);
            let value = match binary.op {
                BinOp::Add(_) => quote!(a.checked_add(b)),
                BinOp::Sub(_) => quote!(a.checked_sub(b)),
                BinOp::Mul(_) => quote!(a.checked_mul(b)),
                BinOp::Div(_) => quote!(a.checked_div(b)),
                BinOp::Rem(_) => quote!(a.checked_rem(b)),
                BinOp::Eq(_) => quote!(Some(u64::from(a == b))),
                BinOp::Gt(_) => quote!(Some(u64::from(a > b))),
                BinOp::Lt(_) => quote!(Some(u64::from(a < b))),
                _ => return Err(unsupported(expr)),
            };
            Ok(quote!((#a).zip(#b).and_then(|(a, b): (u64, u64)| #value)))
        }
        Expr::Call(call) => {
            let (function, a, b) = function(call)?;
            let (a, b) = (part(a)?, part(b)?);
            let value = match function.as_str() {
                "min" => quote!(Some(a.min(b))),
                "max" => quote!(Some(a.max(b))),
                _ => quote!(b.checked_sub(1).and_then(|less| a.checked_add(less)).and_then(|sum| sum.checked_div(b))),
            };
            Ok(quote!((#a).zip(#b).and_then(|(a, b): (u64, u64)| #value)))
        }
        Expr::If(conditional) => {
            let branch = |block: &syn::Block| match &block.stmts[..] {
                [syn::Stmt::Expr(inner, None)] => part(inner),
                _ => Err(unsupported(expr)),
            };
            let (condition, then) = (part(&conditional.cond)?, branch(&conditional.then_branch)?);
            let otherwise = match &conditional.else_branch {
                Some((_, other)) => match &**other {
                    Expr::Block(block) => branch(&block.block)?,
                    other => part(other)?,
                },
                None => return Err(unsupported(expr)),
            };
            Ok(quote!((#condition).and_then(|condition: u64| if condition != 0 { #then } else { #otherwise })))
        }
        _ => Err(unsupported(expr)),
    }
}

/// Replaces every `{expression}` of a text by its value.
pub fn substitute(text: &syn::LitStr, constants: &Constants) -> syn::Result<String> {
    let (mut out, source) = (String::new(), text.value());
    let mut rest = source.as_str();
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').map(|close| open + close);
        let close = close.ok_or_else(|| syn::Error::new(text.span(), "a `{` without its `}`"))?;
        out.push_str(&rest[..open]);
        let expr: Expr = syn::parse_str(&rest[open + 1..close])
            .map_err(|e| syn::Error::new(text.span(), format!("in `{}`: {e}", &rest[open..=close])))?;
        let value = evaluate(&expr, constants).map_err(|e| syn::Error::new(text.span(), e.to_string()))?;
        out.push_str(&value.to_string());
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

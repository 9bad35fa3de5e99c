//! Integer expressions over a variant's constants, evaluated while compiling.

use std::collections::BTreeMap;

use syn::{BinOp, Expr, Lit, UnOp};

/// A variant's constants by name.
pub type Constants = BTreeMap<String, i64>;

fn unsupported(expr: &Expr) -> syn::Error {
    syn::Error::new_spanned(expr, "expected integers, the variant's constants, + - * / %, comparisons and if/else")
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

//! The rest of the ledger crate must not change what the translated file means, nor make or alter a claim by itself.

use quote::ToTokens;
use syn::{Item, Visibility};

use crate::{Result, parse, refuse};

fn attributes(attrs: &[syn::Attribute], known: &[&str]) -> Result<()> {
    for a in attrs {
        let text = a.meta.to_token_stream().to_string();
        if !a.path().is_ident("doc") && !known.contains(&text.as_str()) {
            return refuse(a, "attribute");
        }
    }
    Ok(())
}

/// The crate root may hold documentation, `forbid(unsafe_code)`, private modules in their own files, re-exports and
/// compile-time assertions: no macro, no other item, no attribute that could swap a file.
pub fn check_root(source: &str) -> Result<()> {
    let file = parse(source)?;
    attributes(&file.attrs, &["forbid (unsafe_code)"])?;
    if !file.attrs.iter().any(|a| a.path().is_ident("forbid")) {
        return refuse(&file.items.first(), "the root must forbid unsafe code");
    }
    for item in &file.items {
        match item {
            Item::Mod(m) => {
                attributes(&m.attrs, &[])?;
                let known = m.ident == "proved" || m.ident == "view";
                if !known || m.content.is_some() || !matches!(m.vis, Visibility::Inherited) {
                    return refuse(m, "module");
                }
            }
            Item::Use(u) => attributes(&u.attrs, &[])?,
            Item::Const(c) if c.ident == "_" => attributes(&c.attrs, &[])?,
            it => return refuse(it, "item"),
        }
    }
    Ok(())
}

/// The view may hold methods that take `&self`: the word `mut` is refused wherever it stands, and so is a struct
/// expression, since nothing here may build a ledger.
pub fn check_view(source: &str) -> Result<()> {
    let file = parse(source)?;
    attributes(&file.attrs, &[])?;
    for item in &file.items {
        match item {
            Item::Use(u) => attributes(&u.attrs, &[])?,
            Item::Impl(i) => {
                attributes(&i.attrs, &[])?;
                if i.trait_.is_some() {
                    return refuse(i, "implementation of a trait");
                }
                for f in &i.items {
                    let syn::ImplItem::Fn(f) = f else { return refuse(f, "item") };
                    attributes(&f.attrs, &[])?;
                    let by_ref = matches!(f.sig.receiver(), Some(r) if r.reference.is_some() && r.mutability.is_none());
                    let [syn::Stmt::Expr(body, None)] = &f.block.stmts[..] else { return refuse(f, "body") };
                    let body = if let syn::Expr::Reference(r) = body { &*r.expr } else { body };
                    let field = matches!(body, syn::Expr::Field(x) if x.base.to_token_stream().to_string() == "self");
                    if !by_ref || !field || f.to_token_stream().to_string().contains("mut") {
                        return refuse(f, "only `&self` methods that return a field, or a shared reference to one");
                    }
                }
            }
            it => return refuse(it, "item"),
        }
    }
    Ok(())
}

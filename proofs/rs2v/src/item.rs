//! Items: structs become records with one setter a field, enums inductive types, functions definitions.

use quote::ToTokens;
use syn::{Fields, FnArg, Item, ItemEnum, ItemFn, ItemStruct, Pat, ReturnType, Type, Visibility};

use crate::stmt::{Body, Tail};
use crate::types::{Fun, Items, Param, Ty, lower, upper};
use crate::{Result, parse, refuse};

/// The translation of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gallina {
    /// Records, setters and inductive types.
    pub types: String,
    /// One definition a function, in source order.
    pub fns: String,
}

/// Translate one Rust file, or say what stands in the way.
pub fn translate(source: &str) -> Result<Gallina> {
    let file = parse(source)?;
    only_harmless_attributes(file.to_token_stream())?;
    let mut items = Items::default();
    let mut out = Gallina { types: String::new(), fns: String::new() };
    for item in &file.items {
        match item {
            Item::Struct(s) => out.types += &record(&mut items, s)?,
            Item::Enum(e) => out.types += &inductive(&mut items, e)?,
            Item::Fn(f) => out.fns += &definition(&mut items, f)?,
            it => return refuse(it, "item"),
        }
    }
    Ok(out)
}

/// `#[cfg]` and friends would make the compiled text differ from the translated one.
fn only_harmless_attributes(tokens: proc_macro2::TokenStream) -> Result<()> {
    use proc_macro2::{Delimiter, TokenTree};
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |i: usize, s: &str| trees.get(i).is_some_and(|t| t.to_string() == s);
    for (i, tree) in trees.iter().enumerate() {
        let TokenTree::Group(g) = tree else { continue };
        let outer = i >= 1 && is(i - 1, "#");
        let inner = i >= 2 && is(i - 1, "!") && is(i - 2, "#");
        if g.delimiter() == Delimiter::Bracket && (outer || inner) {
            let name = g.stream().into_iter().next().map(|x| x.to_string()).unwrap_or_default();
            if !["doc", "derive", "allow"].contains(&name.as_str()) {
                return refuse(g, "attribute");
            }
        } else {
            only_harmless_attributes(g.stream())?;
        }
    }
    Ok(())
}

fn new_type(items: &Items, name: &syn::Ident) -> Result<String> {
    let n = upper(name)?;
    if items.structs.contains_key(&n) || items.enums.contains_key(&n) {
        return refuse(name, "name used twice");
    }
    Ok(n)
}

fn record(items: &mut Items, s: &ItemStruct) -> Result<String> {
    if !s.generics.params.is_empty() {
        return refuse(s, "generics");
    }
    let name = new_type(items, &s.ident)?;
    let Fields::Named(named) = &s.fields else { return refuse(s, "tuple struct") };
    let mut fields: Vec<(String, Ty)> = Vec::new();
    for f in &named.named {
        let Some(i) = &f.ident else { return refuse(f, "field") };
        fields.push((lower(i)?, items.owned(&f.ty)?));
    }
    let decl: Vec<_> = fields.iter().map(|(f, t)| format!("{name}_{f} : {}", t.coq())).collect();
    let mut out = format!("Record {name} := mk{name} {{ {} }}.\n", decl.join("; "));
    for (f, t) in &fields {
        let value = |g: &String| if f == g { "v".into() } else { format!("({name}_{g} x)") };
        let args: Vec<String> = fields.iter().map(|(g, _)| value(g)).collect();
        let sig = format!("set_{name}_{f} (x : {name}) (v : {}) : {name}", t.coq());
        out += &format!("Definition {sig} := mk{name} {}.\n", args.join(" "));
    }
    items.structs.insert(name, fields);
    Ok(out)
}

fn inductive(items: &mut Items, e: &ItemEnum) -> Result<String> {
    if !e.generics.params.is_empty() {
        return refuse(e, "generics");
    }
    let name = new_type(items, &e.ident)?;
    let mut variants: Vec<(String, Vec<Ty>)> = Vec::new();
    for v in &e.variants {
        let Fields::Unnamed(u) = &v.fields else { return refuse(v, "variant") };
        let tys: Vec<Ty> = u.unnamed.iter().map(|f| items.owned(&f.ty)).collect::<Result<_>>()?;
        variants.push((upper(&v.ident)?, tys));
    }
    let mut out = format!("Inductive {name} :=");
    for (v, tys) in &variants {
        out += &format!(" | {name}_{v}");
        for (i, t) in tys.iter().enumerate() {
            out += &format!(" (_{i} : {})", t.coq());
        }
    }
    items.enums.insert(name, variants);
    Ok(out + ".\n")
}

fn definition(items: &mut Items, f: &ItemFn) -> Result<String> {
    let s = &f.sig;
    let plain = s.unsafety.is_none() && s.asyncness.is_none() && s.constness.is_none() && s.abi.is_none();
    if !plain || !s.generics.params.is_empty() || s.generics.where_clause.is_some() || s.variadic.is_some() {
        return refuse(s, "signature");
    }
    if let Visibility::Restricted(r) = &f.vis {
        return refuse(r, "visibility");
    }
    let name = lower(&s.ident)?;
    if items.funs.contains_key(&name) {
        return refuse(&s.ident, "name used twice");
    }
    let mut params: Vec<Param> = Vec::new();
    for a in &s.inputs {
        let FnArg::Typed(p) = a else { return refuse(a, "parameter") };
        let Pat::Ident(i) = &*p.pat else { return refuse(p, "parameter") };
        if i.mutability.is_some() || i.by_ref.is_some() || i.subpat.is_some() {
            return refuse(p, "parameter");
        }
        let (ty, by_mut) = items.ty(&p.ty)?;
        let name = lower(&i.ident)?;
        if items.funs.contains_key(&name) {
            return refuse(&i.ident, "a variable named like a function");
        }
        params.push(Param { name, ty, by_mut });
    }
    let ret = match &s.output {
        ReturnType::Default => Ty::Unit,
        ReturnType::Type(_, t) if matches!(&**t, Type::Reference(_)) => return refuse(t, "returned reference"),
        ReturnType::Type(_, t) => items.owned(t)?,
    };
    let mut outs: Vec<String> = params.iter().filter(|p| p.by_mut).map(|p| p.ty.coq()).collect();
    if ret != Ty::Unit || outs.is_empty() {
        outs.push(ret.coq());
    }
    let body = Body::new(items, &name, &params, ret.clone()).block(&f.block.stmts, &Tail::Function, "  ")?;
    let list: Vec<_> = params.iter().map(|p| format!("({} : {})", p.name, p.ty.coq())).collect();
    let head = format!("Definition {name} {} : option ({})", list.join(" "), outs.join(" * "));
    items.funs.insert(name, Fun { params, ret });
    Ok(format!("{head} :=\n{}.\n\n", body.trim_end()))
}

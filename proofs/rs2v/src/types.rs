//! Types, names, and what is known about the items seen so far.

use std::collections::BTreeMap;

use syn::{Expr, GenericArgument, Ident, Member, PathArguments, Type};

use crate::{Result, refuse};

/// A type of the subset. References are looked through: a shared one is its value, a mutable one is a parameter mode.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ty {
    /// Unsigned integer of that many bits. `usize` has 64; the ledger asserts it at compile time.
    U(u32),
    Bool,
    Unit,
    /// `Vec<T>` and `[T]` behind a reference.
    Vec(Box<Ty>),
    Named(String),
}

impl Ty {
    pub(crate) fn coq(&self) -> String {
        match self {
            Ty::U(_) => "nat".into(),
            Ty::Bool => "bool".into(),
            Ty::Unit => "unit".into(),
            Ty::Vec(t) => format!("(list {})", t.coq()),
            Ty::Named(n) => n.clone(),
        }
    }
}

/// One parameter: its name, its type, and whether it is `&mut`.
#[derive(Clone)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) by_mut: bool,
}

pub(crate) struct Fun {
    pub(crate) params: Vec<Param>,
    pub(crate) ret: Ty,
}

/// All items above the one being translated. An item can use only what stands above it, so there is no recursion.
#[derive(Default)]
pub(crate) struct Items {
    pub(crate) structs: BTreeMap<String, Vec<(String, Ty)>>,
    pub(crate) enums: BTreeMap<String, Vec<(String, Vec<Ty>)>>,
    pub(crate) funs: BTreeMap<String, Fun>,
}

/// Keywords of Coq, and lower-case names that the generated text itself uses.
const RESERVED: &str = "end at by fix fun using where with exists exists2 forall cofix then let in if else match return as for \
    length get put add_u sub_u mul_u div_u firstn fits assert_u bind for_range for_n negb andb orb nat list bool option unit tt app";

/// The name of a variable, function or field. Lower case only, so that it cannot be a constructor or a projection.
pub(crate) fn lower(i: &Ident) -> Result<String> {
    let s = i.to_string();
    let plain = s.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let ours = s.starts_with("tmp")
        || s.starts_with("set_")
        || s.starts_with("mk")
        || RESERVED.split_whitespace().any(|w| w == s);
    if !plain || ours || s == "_" {
        return refuse(i, "reserved name, or not lower case");
    }
    Ok(s)
}

/// The name of a type or variant: letters and digits, no underscore, so that `Type_field` is never ambiguous.
pub(crate) fn upper(i: &Ident) -> Result<String> {
    let s = i.to_string();
    let plain = s.starts_with(|c: char| c.is_ascii_uppercase()) && s.chars().all(|c| c.is_ascii_alphanumeric());
    if !plain || ["Vec", "Some", "None", "Nat", "Bool", "List", "S", "O", "Set", "Type", "Prop"].contains(&s.as_str()) {
        return refuse(i, "reserved name, or not in camel case");
    }
    Ok(s)
}

impl Items {
    /// The type, and whether it was behind `&mut`.
    pub(crate) fn ty(&self, t: &Type) -> Result<(Ty, bool)> {
        match t {
            Type::Reference(r) => {
                if let Type::Slice(s) = &*r.elem {
                    if r.mutability.is_some() {
                        return refuse(t, "mutable slice");
                    }
                    return Ok((Ty::Vec(Box::new(self.owned(&s.elem)?)), false));
                }
                Ok((self.owned(&r.elem)?, r.mutability.is_some()))
            }
            t => Ok((self.owned(t)?, false)),
        }
    }

    /// A type without a reference in it.
    pub(crate) fn owned(&self, t: &Type) -> Result<Ty> {
        let Type::Path(p) = t else { return refuse(t, "type") };
        if p.qself.is_some() || p.path.segments.len() != 1 {
            return refuse(t, "type");
        }
        let s = &p.path.segments[0];
        Ok(match (s.ident.to_string().as_str(), &s.arguments) {
            ("u32", PathArguments::None) => Ty::U(32),
            ("u64" | "usize", PathArguments::None) => Ty::U(64),
            ("bool", PathArguments::None) => Ty::Bool,
            ("Vec", PathArguments::AngleBracketed(a)) if a.args.len() == 1 => match &a.args[0] {
                GenericArgument::Type(x) => Ty::Vec(Box::new(self.owned(x)?)),
                x => return refuse(x, "type"),
            },
            (n, PathArguments::None) if self.structs.contains_key(n) || self.enums.contains_key(n) => {
                Ty::Named(n.into())
            }
            _ => return refuse(t, "type"),
        })
    }

    /// The Coq projection and the type of a field.
    pub(crate) fn field(&self, e: &Expr, t: &Ty, m: &Member) -> Result<(String, Ty)> {
        if let (Ty::Named(s), Member::Named(f)) = (t, m)
            && let Some(fields) = self.structs.get(s)
            && let Some((n, ty)) = fields.iter().find(|x| f == &x.0)
        {
            return Ok((format!("{s}_{n}"), ty.clone()));
        }
        refuse(e, "field")
    }
}

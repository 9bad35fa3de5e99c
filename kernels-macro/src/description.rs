//! The input of `kernels!`, parsed.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Ident, LitInt, LitStr, Token, Type, braced, parenthesized};

mod keyword {
    syn::custom_keyword!(source);
    syn::custom_keyword!(inline_source);
    syn::custom_keyword!(family);
    syn::custom_keyword!(dispatch);
    syn::custom_keyword!(of);
    syn::custom_keyword!(by);
    syn::custom_keyword!(tokens);
    syn::custom_keyword!(tree);
    syn::custom_keyword!(threads);
    syn::custom_keyword!(shared_min);
    syn::custom_keyword!(symbol);
}

/// The whole input.
pub struct Description {
    /// The CUDA source: a path relative to the crate that invokes the macro, or the text itself.
    pub source: LitStr,
    /// `inline_source` was given: `source` is the text.
    pub inline: bool,
    /// Families in order.
    pub families: Vec<FamilyDescription>,
    /// Dispatch functions in order.
    pub dispatches: Vec<Dispatch>,
}

/// `family Name = DEFINE(argument: Type, ..) { .. }`.
pub struct FamilyDescription {
    pub attributes: Vec<Attribute>,
    pub name: Ident,
    pub define: Ident,
    pub arguments: Vec<(Ident, Type)>,
    /// Canonical text of the tree with `{expression}` places.
    pub tree: LitStr,
    pub threads: Expr,
    /// The smallest dynamic shared memory that a launch uses, in bytes.
    pub shared_min: Expr,
    /// Numbers for arguments of the `#define` that are no integers.
    pub symbols: Vec<(LitStr, LitInt)>,
}

/// `dispatch name of Family by tokens { a..=b => variant, .. }`.
pub struct Dispatch {
    pub attributes: Vec<Attribute>,
    pub name: Ident,
    pub family: Ident,
    pub arms: Vec<(LitInt, LitInt, Ident)>,
}

impl Parse for Description {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let inline = input.peek(keyword::inline_source);
        if inline {
            input.parse::<keyword::inline_source>()?;
        } else {
            input.parse::<keyword::source>()?;
        }
        input.parse::<Token![=]>()?;
        let source = input.parse()?;
        input.parse::<Token![;]>()?;
        let (mut families, mut dispatches) = (Vec::new(), Vec::new());
        while !input.is_empty() {
            let attributes = input.call(Attribute::parse_outer)?;
            if input.peek(keyword::family) {
                families.push(family(input, attributes)?);
            } else if input.peek(keyword::dispatch) {
                dispatches.push(dispatch(input, attributes)?);
            } else {
                return Err(input.error("expected `family` or `dispatch`"));
            }
        }
        Ok(Self { source, inline, families, dispatches })
    }
}

struct Argument(Ident, Type);

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self(name, input.parse()?))
    }
}

fn family(input: ParseStream<'_>, attributes: Vec<Attribute>) -> syn::Result<FamilyDescription> {
    input.parse::<keyword::family>()?;
    let name: Ident = input.parse()?;
    input.parse::<Token![=]>()?;
    let define = input.parse()?;
    let (inside, body);
    parenthesized!(inside in input);
    let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(&inside)?;
    let arguments = arguments.into_iter().map(|Argument(name, ty)| (name, ty)).collect();
    braced!(body in input);
    let (mut tree, mut threads, mut shared_min, mut symbols) = (None, None, None, Vec::new());
    while !body.is_empty() {
        if body.peek(keyword::symbol) {
            body.parse::<keyword::symbol>()?;
            let text = body.parse()?;
            body.parse::<Token![=]>()?;
            symbols.push((text, body.parse()?));
        } else if body.peek(keyword::tree) {
            body.parse::<keyword::tree>()?;
            body.parse::<Token![=]>()?;
            tree = Some(body.parse()?);
        } else if body.peek(keyword::threads) {
            body.parse::<keyword::threads>()?;
            body.parse::<Token![=]>()?;
            threads = Some(body.parse()?);
        } else if body.peek(keyword::shared_min) {
            body.parse::<keyword::shared_min>()?;
            body.parse::<Token![=]>()?;
            shared_min = Some(body.parse()?);
        } else {
            return Err(body.error("expected `tree`, `threads`, `shared_min` or `symbol`"));
        }
        body.parse::<Token![;]>()?;
    }
    let missing = |what: &str| syn::Error::new(name.span(), format!("family `{name}` has no `{what}`"));
    Ok(FamilyDescription {
        tree: tree.ok_or_else(|| missing("tree"))?,
        threads: threads.ok_or_else(|| missing("threads"))?,
        shared_min: shared_min.ok_or_else(|| missing("shared_min"))?,
        attributes,
        name,
        define,
        arguments,
        symbols,
    })
}

fn dispatch(input: ParseStream<'_>, attributes: Vec<Attribute>) -> syn::Result<Dispatch> {
    input.parse::<keyword::dispatch>()?;
    let name = input.parse()?;
    input.parse::<keyword::of>()?;
    let family = input.parse()?;
    input.parse::<keyword::by>()?;
    input.parse::<keyword::tokens>()?;
    let body;
    braced!(body in input);
    let mut arms = Vec::new();
    while !body.is_empty() {
        let first = body.parse()?;
        body.parse::<Token![..=]>()?;
        let last = body.parse()?;
        body.parse::<Token![=>]>()?;
        arms.push((first, last, body.parse()?));
        if !body.is_empty() {
            body.parse::<Token![,]>()?;
        }
    }
    Ok(Dispatch { attributes, name, family, arms })
}

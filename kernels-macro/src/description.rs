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
    syn::custom_keyword!(shared);
    syn::custom_keyword!(grid);
    syn::custom_keyword!(sizes);
    syn::custom_keyword!(kernel);
    syn::custom_keyword!(constant);
    syn::custom_keyword!(symbol);
}

/// The whole input.
pub struct Description {
    /// The CUDA source: a path relative to the crate that invokes the macro, or the text itself.
    pub source: LitStr,
    /// `inline_source` was given: `source` is the text.
    pub inline: bool,
    /// Constants that are read from other files, for expressions and for Rust.
    pub constants: Vec<ConstantDescription>,
    /// Families in order.
    pub families: Vec<FamilyDescription>,
    /// Dispatch functions in order.
    pub dispatches: Vec<Dispatch>,
}

/// `constant NAME = "path";`.
pub struct ConstantDescription {
    pub attributes: Vec<Attribute>,
    pub name: Ident,
    pub path: LitStr,
}

/// `family Name = DEFINE(argument: Type, ..) { .. }` or `kernel Name = function(argument: Type, ..) { .. }`.
pub struct FamilyDescription {
    pub attributes: Vec<Attribute>,
    pub name: Ident,
    /// `define` names a kernel that stands alone, not a `#define`.
    pub alone: bool,
    pub define: Ident,
    pub arguments: Vec<(Ident, Type)>,
    /// Canonical text of the tree with `{expression}` places.
    pub tree: LitStr,
    pub threads: Expr,
    /// Numbers known only at run time, for `grid` and `shared`.
    pub sizes: Vec<Ident>,
    /// Blocks of a launch.
    pub grid: Expr,
    /// Dynamic shared memory of a launch, in bytes; none where it is absent.
    pub shared: Option<Expr>,
    /// The smallest dynamic shared memory that a launch uses, where `shared` depends on sizes.
    pub shared_min: Option<Expr>,
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
        let (mut constants, mut families, mut dispatches) = (Vec::new(), Vec::new(), Vec::new());
        while !input.is_empty() {
            let attributes = input.call(Attribute::parse_outer)?;
            if input.peek(keyword::family) {
                input.parse::<keyword::family>()?;
                families.push(family(input, attributes, false)?);
            } else if input.peek(keyword::kernel) {
                input.parse::<keyword::kernel>()?;
                families.push(family(input, attributes, true)?);
            } else if input.peek(keyword::constant) {
                constants.push(constant(input, attributes)?);
            } else if input.peek(keyword::dispatch) {
                dispatches.push(dispatch(input, attributes)?);
            } else {
                return Err(input.error("expected `family`, `kernel`, `constant` or `dispatch`"));
            }
        }
        Ok(Self { source, inline, constants, families, dispatches })
    }
}

fn constant(input: ParseStream<'_>, attributes: Vec<Attribute>) -> syn::Result<ConstantDescription> {
    input.parse::<keyword::constant>()?;
    let name = input.parse()?;
    input.parse::<Token![=]>()?;
    let path = input.parse()?;
    input.parse::<Token![;]>()?;
    Ok(ConstantDescription { attributes, name, path })
}

struct Argument(Ident, Type);

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self(name, input.parse()?))
    }
}

/// `keyword = value;` of which the keyword was seen.
fn value<K: Parse, T: Parse>(body: ParseStream<'_>) -> syn::Result<T> {
    body.parse::<K>()?;
    body.parse::<Token![=]>()?;
    body.parse()
}

fn family(input: ParseStream<'_>, attributes: Vec<Attribute>, alone: bool) -> syn::Result<FamilyDescription> {
    let name: Ident = input.parse()?;
    input.parse::<Token![=]>()?;
    let define = input.parse()?;
    let (inside, body);
    parenthesized!(inside in input);
    let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(&inside)?;
    let arguments = arguments.into_iter().map(|Argument(name, ty)| (name, ty)).collect();
    braced!(body in input);
    let (mut tree, mut threads, mut grid, mut shared, mut shared_min) = (None, None, None, None, None);
    let (mut sizes, mut symbols) = (Vec::new(), Vec::new());
    while !body.is_empty() {
        if body.peek(keyword::symbol) {
            body.parse::<keyword::symbol>()?;
            let text = body.parse()?;
            body.parse::<Token![=]>()?;
            symbols.push((text, body.parse()?));
        } else if body.peek(keyword::tree) {
            tree = Some(value::<keyword::tree, _>(&body)?);
        } else if body.peek(keyword::threads) {
            threads = Some(value::<keyword::threads, _>(&body)?);
        } else if body.peek(keyword::grid) {
            grid = Some(value::<keyword::grid, _>(&body)?);
        } else if body.peek(keyword::shared) {
            shared = Some(value::<keyword::shared, _>(&body)?);
        } else if body.peek(keyword::shared_min) {
            shared_min = Some(value::<keyword::shared_min, _>(&body)?);
        } else if body.peek(keyword::sizes) {
            body.parse::<keyword::sizes>()?;
            let names;
            parenthesized!(names in body);
            sizes = Punctuated::<Ident, Token![,]>::parse_terminated(&names)?.into_iter().collect();
        } else {
            return Err(body.error("expected `tree`, `threads`, `sizes`, `grid`, `shared`, `shared_min` or `symbol`"));
        }
        body.parse::<Token![;]>()?;
    }
    let missing = |what: &str| syn::Error::new(name.span(), format!("`{name}` has no `{what}`"));
    Ok(FamilyDescription {
        tree: tree.ok_or_else(|| missing("tree"))?,
        threads: threads.ok_or_else(|| missing("threads"))?,
        grid: grid.ok_or_else(|| missing("grid"))?,
        attributes,
        name,
        alone,
        define,
        arguments,
        sizes,
        shared,
        shared_min,
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

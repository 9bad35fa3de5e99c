//! From a description and its CUDA source to Rust.

use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Ident, Type};

use crate::cuda_source::{self, Family, Parameter};
use crate::description::{ConstantDescription, Description, Dispatch, FamilyDescription};
use crate::number::{Constants, checked, evaluate, names_a_size, substitute};

/// Threads that a block may have.
const THREADS_MAX: i64 = 1024;
/// Shared memory that a block may have on Hopper, in bytes.
const SHARED_BYTES_MAX: i64 = 232_448;

/// One kernel with everything that is known of it while compiling.
struct Variant {
    name: String,
    constants: Constants,
    threads: i64,
    digest: String,
}

/// Collects errors, so that one build shows them all.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|e| self.push(e)).ok()
    }
}

/// The macro's output.
pub fn expand(description: &Description) -> syn::Result<TokenStream> {
    let path = if description.inline { None } else { Some(source_path(&description.source)?) };
    let text = match &path {
        None => description.source.value(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Error::new(description.source.span(), format!("{}: {e}", description.source.value())))?,
    };
    let mut errors = Errors::default();
    let (mut output, mut families, mut globals) = (TokenStream::new(), Vec::new(), Constants::new());
    for constant in &description.constants {
        if let Some((value, tokens)) = errors.take(constant_tokens(constant)) {
            globals.insert(constant.name.to_string(), value);
            output.extend(tokens);
        }
    }
    for family in &description.families {
        let name = family.define.to_string();
        let read = if family.alone { cuda_source::kernel(&text, &name) } else { cuda_source::family(&text, &name) };
        let read = read.map_err(|e| Error::new(family.define.span(), e));
        let Some(read) = errors.take(read) else { continue };
        check_arguments(family, &read, &mut errors);
        let variants = variants(family, &read, &globals, &mut errors);
        if let Some(tokens) = errors.take(family_tokens(family, &read, &globals, &variants)) {
            output.extend(tokens);
        }
        families.push((&family.name, variants));
    }
    for dispatch in &description.dispatches {
        match families.iter().find(|(name, _)| **name == dispatch.family) {
            Some((name, variants)) => output.extend(dispatch_tokens(dispatch, name, variants, &mut errors)),
            None => errors.push(Error::new(dispatch.family.span(), format!("no family `{}` here", dispatch.family))),
        }
    }
    // The compiler looks at the source again when it changes.
    if let Some(path) = path.map(|path| path.display().to_string()) {
        output.extend(quote! { const _: &str = include_str!(#path); });
    }
    errors.0.map_or(Ok(output), Err)
}

fn source_path(source: &syn::LitStr) -> syn::Result<PathBuf> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR");
    let root = root.ok_or_else(|| Error::new(source.span(), "CARGO_MANIFEST_DIR is not set"))?;
    Ok(Path::new(&root).join(source.value()))
}

/// A constant of another file: its value, and the same for Rust.
fn constant_tokens(constant: &ConstantDescription) -> syn::Result<(i64, TokenStream)> {
    let path = source_path(&constant.path)?;
    let wrong = |e: String| Error::new(constant.path.span(), format!("{}: {e}", constant.path.value()));
    let text = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
    let value = cuda_source::constant(&text, &constant.name.to_string())
        .map_err(|e| Error::new(constant.name.span(), format!("{}: {e}", constant.path.value())))?;
    let (attributes, name, path) = (&constant.attributes, &constant.name, path.display().to_string());
    let number = u32::try_from(value).map_err(|_| wrong(format!("{value} is no u32")))?;
    Ok((value, quote! { #(#attributes)* pub const #name: u32 = #number; const _: &str = include_str!(#path); }))
}

/// The Rust type that a C parameter is passed as.
fn rust_type(ctype: &str) -> &str {
    match ctype {
        "CUtensorMap" => "TensorMap",
        "unsigned" | "uint32_t" => "u32",
        "int" => "i32",
        "size_t" => "usize",
        "float" => "f32",
        pointer if pointer.ends_with('*') => "u64",
        other => other,
    }
}

fn check_arguments(family: &FamilyDescription, read: &Family, errors: &mut Errors) {
    if family.arguments.len() != read.parameters.len() {
        let (got, wanted) = (family.arguments.len(), read.parameters.len());
        errors
            .push(Error::new(family.define.span(), format!("the kernel takes {wanted} arguments, {got} are declared")));
    }
    for ((name, ty), Parameter { ctype, name: cname }) in family.arguments.iter().zip(&read.parameters) {
        let got = match ty {
            Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        if got.as_deref() != Some(rust_type(ctype)) {
            let message = format!(
                "argument `{name}`: the kernel's `{cname}` is `{ctype}`, which is passed as `{}`",
                rust_type(ctype)
            );
            errors.push(Error::new_spanned(ty, message));
        }
    }
}

fn constant(family: &FamilyDescription, text: &str) -> syn::Result<i64> {
    if let Some((_, number)) = family.symbols.iter().find(|(symbol, _)| symbol.value() == text) {
        return number.base10_parse();
    }
    match text {
        "true" => Ok(1),
        "false" => Ok(0),
        _ => text.parse().map_err(|_| {
            Error::new(
                family.define.span(),
                format!("`{text}` in the source is no integer; give it one: symbol \"{text}\" = ..;"),
            )
        }),
    }
}

/// The smallest dynamic shared memory of a variant.
fn shared_min(family: &FamilyDescription, constants: &Constants) -> syn::Result<i64> {
    match (&family.shared, &family.shared_min) {
        (_, Some(least)) => evaluate(least, constants),
        (Some(shared), None) if names_a_size(shared, &family.sizes) => {
            let message = "this depends on sizes, so `shared_min` must say what a launch uses at least";
            Err(Error::new_spanned(shared, message))
        }
        (Some(shared), None) => evaluate(shared, constants),
        (None, None) => Ok(0),
    }
}

fn variants(family: &FamilyDescription, read: &Family, globals: &Constants, errors: &mut Errors) -> Vec<Variant> {
    let mut found = Vec::new();
    for (name, values) in &read.variants {
        let constants: syn::Result<Constants> =
            read.constants.iter().cloned().zip(values).map(|(key, text)| Ok((key, constant(family, text)?))).collect();
        let Some(constants) = errors.take(constants) else { return found };
        let known: Constants = globals.clone().into_iter().chain(constants.clone()).collect();
        let threads = errors.take(evaluate(&family.threads, &known));
        let shared = errors.take(shared_min(family, &known));
        let tree = errors.take(substitute(&family.tree, &known));
        let (Some(threads), Some(shared), Some(tree)) = (threads, shared, tree) else { return found };
        if !(1..=THREADS_MAX).contains(&threads) {
            let message = format!("{name}: {threads} threads, a block has 1 to {THREADS_MAX}");
            errors.push(Error::new_spanned(&family.threads, message));
        }
        if read.launch_bound.is_some_and(|bound| bound != threads) {
            let bound = read.launch_bound.unwrap_or_default();
            let message = format!("{name}: {threads} threads, but its __launch_bounds__ says {bound}");
            errors.push(Error::new_spanned(&family.threads, message));
        }
        if shared > SHARED_BYTES_MAX {
            let message = format!("{name}: at least {shared} bytes of shared memory, a block has {SHARED_BYTES_MAX}");
            let place = family.shared_min.as_ref().or(family.shared.as_ref()).unwrap_or(&family.threads);
            errors.push(Error::new_spanned(place, message));
        }
        let digest = blake3::hash(tree.as_bytes()).to_hex().to_string();
        found.push(Variant { name: name.clone(), constants, threads, digest });
    }
    found
}

fn constant_name(name: &str) -> Ident {
    format_ident!("{}", name.to_uppercase())
}

fn family_tokens(
    family: &FamilyDescription,
    read: &Family,
    globals: &Constants,
    variants: &[Variant],
) -> syn::Result<TokenStream> {
    let (name, attributes) = (&family.name, &family.attributes);
    let sizes_name = format_ident!("{name}Sizes");
    let sizes = &family.sizes;
    let (sizes_type, sizes_argument) = if sizes.is_empty() {
        (TokenStream::new(), TokenStream::new())
    } else {
        let doc = format!("What a launch of [`{name}`] knows only at run time.");
        let fields = quote! { #(#[allow(missing_docs)] pub #sizes: usize),* };
        (
            quote! { #[doc = #doc] #[derive(Clone, Copy, Debug)] pub struct #sizes_name { #fields } },
            quote! { sizes: #sizes_name, },
        )
    };
    let blocks = checked(&family.grid, &read.constants, globals, sizes)?;
    let shared = family.shared.as_ref().map(|e| checked(e, &read.constants, globals, sizes)).transpose()?;
    let shared = shared.unwrap_or_else(|| quote!(Some(0)));
    let fields: Vec<Ident> = read.constants.iter().map(|c| format_ident!("{}", c.to_lowercase())).collect();
    let field_docs = read.constants.iter().map(|c| format!("`{c}` of the source."));
    let values = variants.iter().map(|v| {
        let (name, threads, digest) = (&v.name, v.threads as u32, &v.digest);
        let numbers = read.constants.iter().map(|c| v.constants[c] as u32);
        quote! { Self { name: #name, threads: #threads, tree: #digest, #(#fields: #numbers),* } }
    });
    let names: Vec<Ident> = variants.iter().map(|v| constant_name(&v.name)).collect();
    let docs = variants.iter().map(|v| format!("`{}`.", v.name));
    let table = doc_table(read, variants);
    let (arguments, types): (Vec<_>, Vec<_>) = family.arguments.iter().cloned().unzip();
    Ok(quote! {
        #sizes_type

        #(#attributes)*
        #[doc = #table]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct #name {
            /// Name of the kernel.
            pub name: &'static str,
            /// Threads of a block.
            pub threads: u32,
            /// Digest of the tree that the kernel realises, up to the sizes of the weight.
            pub tree: &'static str,
            #(#[doc = #field_docs] pub #fields: u32,)*
        }

        impl #name {
            #(#[doc = #docs] pub const #names: Self = #values;)*
            /// Every variant, in the order of the source.
            pub const ALL: &'static [Self] = &[#(Self::#names),*];

            /// Launches this variant. A grid or shared memory that cannot be launched is refused.
            ///
            /// # Safety
            /// Every device address in the arguments belongs to memory that is large enough for what the kernel reads and
            /// writes with these sizes.
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn launch(
                &self,
                device: &Device,
                operation: &'static str,
                #sizes_argument
                #(#arguments: &#types),*
            ) -> Result<()> {
                let grid = Grid::checked(operation, #blocks, self.threads, #shared)?;
                let arguments = &mut [#(::std::ptr::from_ref(#arguments).cast_mut().cast::<::std::ffi::c_void>()),*];
                // SAFETY: the arguments have the types of the kernel's signature, which this macro read; the caller vouches
                // for the addresses in them.
                unsafe { device.launch(operation, device.function(self.name)?, grid, arguments) }
            }
        }
    })
}

/// A table of the variants for the documentation.
fn doc_table(read: &Family, variants: &[Variant]) -> String {
    let mut table = format!(
        "\n\n| variant | threads | {} | tree |\n|---|---|{}---|\n",
        read.constants.join(" | "),
        "---|".repeat(read.constants.len())
    );
    for v in variants {
        let numbers: Vec<String> = read.constants.iter().map(|c| v.constants[c].to_string()).collect();
        table.push_str(&format!("| `{}` | {} | {} | {} |\n", v.name, v.threads, numbers.join(" | "), &v.digest[..12]));
    }
    table
}

fn dispatch_tokens(dispatch: &Dispatch, family: &Ident, variants: &[Variant], errors: &mut Errors) -> TokenStream {
    let mut digest: Option<(&str, &str)> = None;
    let mut next = None;
    let mut arms = Vec::new();
    for (first, last, name) in &dispatch.arms {
        let Some((from, to)) = errors.take(first.base10_parse::<u32>()).zip(errors.take(last.base10_parse::<u32>()))
        else {
            continue;
        };
        if to < from {
            errors.push(Error::new(last.span(), format!("{from}..={to} is empty")));
        }
        if next.is_some_and(|next| next != from) {
            let message = format!(
                "token counts must follow without gap or overlap: expected {}, got {from}",
                next.unwrap_or_default()
            );
            errors.push(Error::new(first.span(), message));
        }
        next = to.checked_add(1);
        let Some(variant) = variants.iter().find(|v| *name == v.name.as_str()) else {
            errors.push(Error::new(name.span(), format!("`{family}` has no variant `{name}`")));
            continue;
        };
        match digest {
            Some((tree, of)) if tree != variant.digest => {
                let message = format!(
                    "`{name}` realises another tree than `{of}`: {} and {}",
                    &variant.digest[..12],
                    &tree[..12]
                );
                errors.push(Error::new(name.span(), message));
            }
            Some(_) => {}
            None => digest = Some((&variant.digest, &variant.name)),
        }
        if variant.constants.get("TOKENS").is_some_and(|&tokens| i64::from(to) > tokens) {
            let message =
                format!("`{name}` takes at most {} tokens, {to} are given to it", variant.constants["TOKENS"]);
            errors.push(Error::new(last.span(), message));
        }
        let constant = constant_name(&variant.name);
        arms.push(quote! { #from..=#to => Some(&#family::#constant) });
    }
    let (name, attributes) = (&dispatch.name, &dispatch.attributes);
    quote! {
        #(#attributes)*
        pub fn #name(tokens: u32) -> Option<&'static #family> {
            match tokens {
                #(#arms,)*
                _ => None,
            }
        }
    }
}

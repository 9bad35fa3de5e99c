//! Attributes: the ones on operations that the typed form keeps but does not interpret.

use super::Type;

/// Attributes in ascending order of name.
pub type Attrs = Vec<(String, Attr)>;

/// One attribute value.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// Present without a value.
    Unit,
    /// `true` or `false`.
    Bool(bool),
    /// `16 : i32`; the type is i64 when not printed.
    Int(i128, Type),
    /// `1.0e+00 : f32`, as the bits of its type.
    Float(u64, Type),
    /// `"text"`.
    Str(String),
    /// `@name`.
    Symbol(String),
    /// `[a, b]`.
    Array(Vec<Attr>),
    /// `{a = 1 : i32, b}`.
    Dict(Attrs),
    /// `array<i32: 1, 0>`; booleans are 0 and 1, floats their bits.
    Dense(Vec<i64>),
    /// `dense<..> : tensor<..>`: bits of the elements (one entry for a splat), and the type.
    Elements(super::Elements, Type),
    /// A type.
    Type(Type),
    /// Anything else (`#tt.cache_policy<..>`, affine maps, function types), by its text without spaces.
    Other(String),
}

impl Attr {
    /// The value of an integer or boolean attribute.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Attr::Int(value, _) => i64::try_from(*value).ok(),
            Attr::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// The text of a string or symbol attribute.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Attr::Str(s) | Attr::Symbol(s) => Some(s),
            _ => None,
        }
    }
}

/// Looks an attribute up by name.
pub fn attr<'a>(attrs: &'a Attrs, name: &str) -> Option<&'a Attr> {
    attrs.iter().find(|(n, _)| n == name).map(|(_, a)| a)
}

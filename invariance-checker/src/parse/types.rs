//! Types, as the parser reads them.

use super::MAX_TENSOR_LEN;
use super::cursor::{Cursor, Result};
use crate::ir::{Elem, Float, Scalar, Type};

impl Cursor<'_> {
    /// Any type of a value.
    pub(super) fn ty(&mut self) -> Result<Type> {
        self.nested(|c| c.ty_inner())
    }

    fn ty_inner(&mut self) -> Result<Type> {
        let start = {
            self.skip_space();
            self.at
        };
        if self.eat("!") {
            let name = self.suffix("a type name after `!`")?;
            return match name {
                "tt.ptr" => self.ptr_args(),
                "tt.tensordesc" => self.desc_args(),
                _ => {
                    let args = if self.rest().starts_with('<') { self.balanced()? } else { String::new() };
                    Ok(Type::Other(format!("!{name}{args}")))
                }
            };
        }
        let word = self.peek_word();
        if word == "tensor" {
            self.at += word.len();
            return self.tensor_args();
        }
        if let Some(scalar) = scalar(word) {
            self.at += word.len();
            return Ok(Type::scalar(scalar));
        }
        match word {
            "vector" | "memref" | "tuple" | "none" | "complex" => {
                self.at += word.len();
                let args = if self.rest().starts_with('<') { self.balanced()? } else { String::new() };
                Ok(Type::Other(format!("{word}{args}")))
            }
            _ => Err(self.error_at(start, format!("expected a type, found {}", self.found()))),
        }
    }

    /// `<f16>` or `<f16, 3>` after `!tt.ptr`; the pretty form of some operations prints only this part.
    pub(super) fn ptr_args(&mut self) -> Result<Type> {
        let start = self.at;
        self.expect("<")?;
        if let Some(pointee) = scalar(self.peek_word()) {
            self.word("a type")?;
            let space = if self.eat(",") { self.natural("an address space")? } else { 1 };
            self.expect(">")?;
            let space = u32::try_from(space).map_err(|_| self.error("the address space is out of range"))?;
            return Ok(Type::Elem(Elem::Ptr { pointee, space }));
        }
        self.at = start;
        Ok(Type::Other(format!("!tt.ptr{}", self.balanced()?)))
    }

    /// `<64x64xf16>` or `<tensor<64x64xf16>>` after `!tt.tensordesc`.
    pub(super) fn desc_args(&mut self) -> Result<Type> {
        let start = self.at;
        self.expect("<")?;
        let wrapped = self.eat_word("tensor");
        if wrapped {
            self.expect("<")?;
        }
        let block = self.dimensions()?;
        let word = self.peek_word();
        self.at += word.len();
        if let Some(elem) = scalar(word)
            && (!wrapped || self.eat(">"))
            && self.eat(">")
        {
            return Ok(Type::Desc { block, elem });
        }
        self.at = start;
        Ok(Type::Other(format!("!tt.tensordesc{}", self.balanced()?)))
    }

    /// `<2x64xf32>` after `tensor`.
    fn tensor_args(&mut self) -> Result<Type> {
        self.expect("<")?;
        let shape = self.dimensions()?;
        let elem = match self.ty()? {
            Type::Elem(elem) => elem,
            other => return Err(self.error(format!("a tensor of {other} is not TTIR"))),
        };
        if self.peek(",") {
            return Err(self
                .error("this tensor type has a layout: the file is TTGIR, not TTIR")
                .with_help("give the .ttir file of the kernel: it lies beside this one in Triton's cache folder"));
        }
        self.expect(">")?;
        Ok(Type::Tensor { shape, elem })
    }

    /// `2x64x`: the extents before an element type.
    fn dimensions(&mut self) -> Result<Vec<usize>> {
        let mut shape = Vec::new();
        let mut len: usize = 1;
        loop {
            self.skip_space();
            if self.rest().starts_with(['?', '*']) {
                return Err(self.error("a tensor of dynamic shape is not TTIR: expected an extent"));
            }
            let digits = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
            if digits == 0 || self.rest().as_bytes().get(digits) != Some(&b'x') {
                return Ok(shape);
            }
            let extent = self.rest()[..digits].parse::<usize>().ok().filter(|e| *e > 0);
            let longer = extent.and_then(|e| len.checked_mul(e)).filter(|n| *n <= MAX_TENSOR_LEN);
            let (Some(extent), Some(longer)) = (extent, longer) else {
                return Err(self.error(format!("expected a tensor of 1 to {MAX_TENSOR_LEN} elements")));
            };
            if shape.len() == 32 {
                return Err(self.error("a tensor has at most 32 axes"));
            }
            len = longer;
            shape.push(extent);
            self.at += digits + 1;
        }
    }

    /// `T` or `(T, U)`, as results are typed.
    pub(super) fn result_types(&mut self) -> Result<Vec<Type>> {
        if self.eat("(") { self.list(")", Cursor::ty) } else { Ok(vec![self.ty()?]) }
    }

    /// `T, U, ..`, at least one.
    pub(super) fn type_list(&mut self) -> Result<Vec<Type>> {
        let mut out = vec![self.ty()?];
        while self.eat(",") {
            out.push(self.ty()?);
        }
        Ok(out)
    }
}

/// `i32`, `f16`, `index`, ..
pub(super) fn scalar(word: &str) -> Option<Scalar> {
    if word == "index" {
        return Some(Scalar::Index);
    }
    if let Some(float) = Float::parse(word) {
        return Some(Scalar::Float(float));
    }
    let bits = word.strip_prefix('i').or_else(|| word.strip_prefix("si")).or_else(|| word.strip_prefix("ui"))?;
    if !bits.bytes().all(|b| b.is_ascii_digit()) || bits.len() > 2 {
        return None;
    }
    bits.parse().ok().filter(|b| (1..=64).contains(b)).map(Scalar::Int)
}

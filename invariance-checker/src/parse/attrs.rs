//! Attributes, as the parser reads them.

use super::MAX_DEPTH;
use super::cursor::{Cursor, Result, is_word};
use crate::float::{self, Round};
use crate::ir::{Attr, Attrs, Elements, Float, Scalar, Type};

impl Cursor<'_> {
    /// `{name = value, name}` or the same between `<{` and `}>`; empty when neither is next.
    pub(super) fn attr_dict(&mut self) -> Result<Attrs> {
        let mut out = Attrs::new();
        if self.eat("<{") {
            out = self.attr_entries()?;
            self.expect(">")?;
        }
        if self.eat("{") {
            out.extend(self.attr_entries()?);
        }
        Ok(out)
    }

    /// The entries after `{`, up to `}`.
    pub(super) fn attr_entries(&mut self) -> Result<Attrs> {
        self.nested(|c| {
            c.list("}", |c| {
                let name = if c.peek("\"") { c.string()? } else { c.word("an attribute name")?.to_owned() };
                let value = if c.eat("=") { c.attr()? } else { Attr::Unit };
                Ok((name, value))
            })
        })
    }

    /// Any attribute value.
    pub(super) fn attr(&mut self) -> Result<Attr> {
        self.nested(|c| c.attr_inner())
    }

    fn attr_inner(&mut self) -> Result<Attr> {
        self.skip_space();
        match self.rest().bytes().next() {
            Some(b'"') => {
                let text = self.string()?;
                if self.eat(":") {
                    self.ty()?;
                }
                Ok(Attr::Str(text))
            }
            Some(b'[') => {
                self.at += 1;
                Ok(Attr::Array(self.list("]", Cursor::attr)?))
            }
            Some(b'{') => {
                self.at += 1;
                Ok(Attr::Dict(self.attr_entries()?))
            }
            Some(b'@') => self.symbol_attr(),
            Some(b'#') => {
                self.at += 1;
                let name = self.suffix("an attribute name after `#`")?;
                let args = if self.rest().starts_with('<') { self.balanced()? } else { String::new() };
                Ok(Attr::Other(format!("#{name}{args}")))
            }
            Some(b'(') => self.function_type(),
            Some(b'!') => Ok(Attr::Type(self.ty()?)),
            _ if self.peek_number() => self.number_attr(),
            _ => self.word_attr(),
        }
    }

    fn symbol_attr(&mut self) -> Result<Attr> {
        self.at += 1;
        let mut name = self.symbol()?;
        while self.rest().starts_with("::@") {
            self.at += 3;
            name = format!("{name}::{}", self.symbol()?);
        }
        Ok(Attr::Symbol(name))
    }

    /// `(T, U) -> V`, kept as text: what a function takes is read from its block, what it returns from its `tt.return`.
    fn function_type(&mut self) -> Result<Attr> {
        let mut text = self.balanced()?;
        if self.eat("->") {
            let types = self.result_types()?;
            text.push_str("->");
            types.iter().for_each(|t| text.push_str(&t.to_string()));
        }
        Ok(Attr::Other(text))
    }

    fn number_attr(&mut self) -> Result<Attr> {
        let start = self.at;
        let text = self.number()?;
        let real = !text.contains('x') && text.contains(['.', 'e', 'E']);
        let ty = match (self.eat(":"), real) {
            (true, _) => self.ty()?,
            (false, true) => Type::scalar(Scalar::Float(Float::F64)),
            (false, false) => Type::scalar(Scalar::I64),
        };
        let Some(scalar) = ty.scalar_elem().filter(|_| !ty.is_tensor()) else {
            return Err(self.error_at(start, format!("expected the type of a number, found {ty}")));
        };
        let bits = self.number_bits(start, text, scalar)?;
        Ok(match scalar {
            Scalar::Float(_) => Attr::Float(bits, ty),
            _ => Attr::Int(sign_extend(bits, scalar.bits()).into(), ty),
        })
    }

    /// The bits of a printed number in its type.
    fn number_bits(&self, start: usize, text: &str, scalar: Scalar) -> Result<u64> {
        let fault = || self.error_at(start, format!("`{text}` is not a value of type {scalar}"));
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
        let width = scalar.bits();
        let mask = u64::MAX >> (64 - width.clamp(1, 64));
        if let (Some(hex), Scalar::Float(_)) = (digits.strip_prefix("0x"), scalar) {
            return u64::from_str_radix(hex, 16).ok().filter(|b| b & !mask == 0 && !negative).ok_or_else(fault);
        }
        match scalar {
            Scalar::Float(Float::F32) => Ok(u64::from(text.parse::<f32>().map_err(|_| fault())?.to_bits())),
            Scalar::Float(format) => {
                let value = text.parse::<f64>().map_err(|_| fault())?;
                Ok(float::encode(value, format, Round::Nearest, false))
            }
            _ => {
                let magnitude = match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => digits.parse(),
                };
                let value = i128::from(magnitude.map_err(|_| fault())?) * if negative { -1 } else { 1 };
                let fits = value >= -(1i128 << (width - 1)) && value <= i128::from(mask);
                if fits { Ok(value as u64 & mask) } else { Err(fault()) }
            }
        }
    }

    fn word_attr(&mut self) -> Result<Attr> {
        let start = self.at;
        let word = self.peek_word();
        match word {
            "true" | "false" => {
                self.at += word.len();
                Ok(Attr::Bool(word == "true"))
            }
            "unit" => {
                self.at += word.len();
                Ok(Attr::Unit)
            }
            "dense" => {
                self.at += word.len();
                self.dense_attr(start)
            }
            "array" => {
                self.at += word.len();
                self.array_attr()
            }
            "" => Err(self.expected("an attribute")),
            _ if word == "tensor" || word == "none" || super::types::scalar(word).is_some() => {
                Ok(Attr::Type(self.ty()?))
            }
            _ => {
                self.at += word.len();
                let args = if self.rest().starts_with(['<', '(']) { self.balanced()? } else { String::new() };
                Ok(Attr::Other(format!("{word}{args}")))
            }
        }
    }

    /// `array<i32: 1, 0>` after `array`.
    fn array_attr(&mut self) -> Result<Attr> {
        self.expect("<")?;
        let ty = self.ty()?;
        let Some(scalar) = ty.scalar_elem().filter(|_| !ty.is_tensor()) else {
            return Err(self.expected("a scalar element type"));
        };
        if self.eat(">") {
            return Ok(Attr::Dense(Vec::new()));
        }
        self.expect(":")?;
        let values = self.list(">", |c| {
            let bits = c.element(scalar)?;
            Ok(if scalar.is_int() && scalar != Scalar::BOOL { sign_extend(bits, scalar.bits()) } else { bits as i64 })
        })?;
        Ok(Attr::Dense(values))
    }

    /// One element of a dense constant.
    fn element(&mut self, scalar: Scalar) -> Result<u64> {
        if self.eat_word("true") {
            return Ok(1);
        }
        if self.eat_word("false") {
            return Ok(0);
        }
        let start = {
            self.skip_space();
            self.at
        };
        let text = self.number()?;
        self.number_bits(start, text, scalar)
    }

    /// `dense<...> : tensor<...>` after `dense`. The type comes last, so the elements are read twice.
    fn dense_attr(&mut self, start: usize) -> Result<Attr> {
        let mut ahead = *self;
        ahead.balanced()?;
        ahead.expect(":")?;
        let ty = ahead.ty()?;
        let Some(scalar) = ty.scalar_elem() else {
            return Err(self.error_at(start, format!("a constant of type {ty} is not supported")));
        };
        self.expect("<")?;
        let elements = if self.peek("\"") {
            self.hex_elements(start, &ty, scalar)?
        } else if self.peek(">") && ty.is_empty() {
            Elements::List(Vec::new())
        } else if self.peek("[") {
            let mut list = Vec::new();
            self.nested_elements(ty.shape(), scalar, &mut list)?;
            splat_or_list(list)
        } else {
            Elements::Splat(self.element(scalar)?)
        };
        self.expect(">")?;
        *self = ahead;
        Ok(Attr::Elements(elements, ty))
    }

    /// `[[1, 2], [3, 4]]`, checked against the shape; the depth is that of the shape.
    fn nested_elements(&mut self, shape: &[usize], scalar: Scalar, out: &mut Vec<u64>) -> Result<()> {
        let Some((extent, inner)) = shape.split_first() else {
            out.push(self.element(scalar)?);
            return Ok(());
        };
        let start = self.at;
        self.expect("[")?;
        let parts = self.list("]", |c| c.nested_elements(inner, scalar, out))?;
        if parts.len() == *extent {
            return Ok(());
        }
        Err(self.error_at(start, format!("expected {extent} elements, found {}", parts.len())))
    }

    /// `"0x0102.."`: little-endian bytes of the elements.
    fn hex_elements(&mut self, start: usize, ty: &Type, scalar: Scalar) -> Result<Elements> {
        let text = self.string()?;
        let digits = text.strip_prefix("0x").unwrap_or(&text).as_bytes();
        let size = scalar.bytes() * 2;
        let fault = || self.error_at(start, "these bytes do not fill the constant");
        if !digits.len().is_multiple_of(size) || ![size, size * ty.len()].contains(&digits.len()) {
            return Err(fault());
        }
        let value = |chunk: &[u8]| {
            let bytes = chunk.chunks_exact(2).rev();
            bytes.into_iter().try_fold(0u64, |acc, pair| {
                let byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
                Some(acc << 8 | u64::from(byte))
            })
        };
        let list = digits.chunks_exact(size).map(value).collect::<Option<Vec<u64>>>().ok_or_else(fault)?;
        Ok(splat_or_list(list))
    }

    /// Skips whatever an operation of unknown syntax prints up to the end of its line, brackets and regions included.
    /// Hands back each `%name` or `%name#1` in it that stands outside braces.
    pub(super) fn skip_unknown(&mut self) -> Result<Vec<(usize, usize)>> {
        let mut names = Vec::new();
        let mut open: Vec<char> = Vec::new();
        loop {
            let Some(c) = self.rest().chars().next() else { return Ok(names) };
            match c {
                '\n' if open.is_empty() => return Ok(names),
                '}' | ')' | ']' if open.is_empty() => return Ok(names),
                '"' => {
                    self.string()?;
                    continue;
                }
                '/' if self.rest().starts_with("//") => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                    continue;
                }
                '(' => open.push(')'),
                '[' => open.push(']'),
                '{' => open.push('}'),
                ')' | ']' | '}' if open.pop() != Some(c) => return Err(self.error(format!("`{c}` closes nothing"))),
                'l' if open.is_empty() && self.peek_word() == "loc" && self.rest()[3..].starts_with('(') => {
                    return Ok(names);
                }
                '%' if !open.contains(&'}') => {
                    let start = self.at;
                    self.at += 1;
                    self.suffix("a value name")?;
                    names.push((start, self.at));
                    continue;
                }
                c if is_word(c) => {
                    self.at += self.rest().find(|c| !is_word(c)).unwrap_or(self.rest().len());
                    continue;
                }
                _ => {}
            }
            if open.len() > MAX_DEPTH {
                return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
            }
            self.at += c.len_utf8();
        }
    }
}

fn splat_or_list(list: Vec<u64>) -> Elements {
    match list.split_first() {
        Some((first, rest)) if rest.iter().all(|e| e == first) => Elements::Splat(*first),
        _ => Elements::List(list),
    }
}

/// The signed value of the low `bits` bits.
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits.clamp(1, 64);
    ((value << shift) as i64) >> shift
}

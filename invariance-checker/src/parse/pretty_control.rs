//! The custom forms of what has regions or leaves a block: modules, functions, loops, branches.

use super::cursor::{Cursor, Result};
use super::locs::RawLoc;
use super::pretty::{keyword, values};
use super::raw::{self, RawBlock, RawOp, param, region, successor, value};
use crate::ir::{Attr, Scalar, Type};

/// `module attributes {..} { functions }`.
pub(super) fn module<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    op.name = "builtin.module".into();
    if c.eat("@") {
        let name = c.symbol()?;
        op.set("sym_name", Attr::Str(name));
    }
    if c.eat_word("attributes") {
        op.attrs.extend(c.attr_dict()?);
    }
    op.regions.push(region(c)?);
    Ok(())
}

/// `tt.func public @name(params) -> (results) attributes {..} { body }`.
pub(super) fn function<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    for visibility in ["public", "private", "nested"] {
        if c.eat_word(visibility) {
            op.set("sym_visibility", Attr::Str(visibility.into()));
        }
    }
    c.expect("@")?;
    let name = c.symbol()?;
    op.set("sym_name", Attr::Str(name));
    c.expect("(")?;
    let params = c.list(")", param)?;
    if c.eat("->") {
        if c.eat("(") {
            c.list(")", |c| {
                c.ty()?;
                c.attr_dict()
            })?;
        } else {
            c.ty()?;
        }
    }
    if c.eat_word("attributes") {
        op.attrs.extend(c.attr_dict()?);
    }
    if !c.peek("{") {
        return Err(c.expected("the body of the function"));
    }
    let mut body = region(c)?;
    if body.is_empty() {
        body.push(RawBlock { at: op.at, ..RawBlock::default() });
    }
    let entry = &mut body[0];
    if !entry.params.is_empty() {
        return Err(c.error_at(entry.at, "the first block of a function takes no parameters of its own"));
    }
    entry.params = params;
    op.regions.push(body);
    Ok(())
}

/// `[unsigned] %i = %lo to %hi step %s [iter_args(%a = %x, ..) -> (T, ..)] [: i32] { body } [attrs]`.
pub(super) fn scf_for<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    if c.eat_word("unsigned") {
        op.set("unsignedCmp", Attr::Unit);
    }
    let iv = binding(c)?;
    op.operands.push(value(c)?);
    keyword(c, "to")?;
    op.operands.push(value(c)?);
    keyword(c, "step")?;
    op.operands.push(value(c)?);
    let mut names = vec![iv];
    if c.eat_word("iter_args") {
        carried(c, op, &mut names)?;
        c.expect("->")?;
        op.result_types = c.result_types()?;
    }
    let iv_type = if c.eat(":") { c.ty()? } else { Type::scalar(Scalar::Index) };
    let mut params = vec![iv_type];
    params.extend(op.result_types.iter().cloned());
    let body = structured_region(c, names, params)?;
    op.regions.push(body);
    op.attrs.extend(c.attr_dict()?);
    Ok(())
}

/// `(%a = %x, ..)`: names for the region, operands for the operation.
fn carried<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>, names: &mut Vec<&'a str>) -> Result<()> {
    c.expect("(")?;
    let pairs = c.list(")", |c| {
        let name = binding(c)?;
        Ok((name, value(c)?))
    })?;
    for (name, init) in pairs {
        names.push(name);
        op.operands.push(init);
    }
    Ok(())
}

/// `%name =`.
fn binding<'a>(c: &mut Cursor<'a>) -> Result<&'a str> {
    c.expect("%")?;
    let name = c.suffix("a value name")?;
    c.expect("=")?;
    Ok(name)
}

/// A region whose block parameters are declared by the operation.
fn structured_region<'a>(c: &mut Cursor<'a>, names: Vec<&'a str>, types: Vec<Type>) -> Result<raw::RawRegion<'a>> {
    let at = c.at;
    if names.len() != types.len() {
        return Err(c.error(format!("{} carried values, {} types", names.len(), types.len())));
    }
    let mut blocks = region(c)?;
    if blocks.is_empty() {
        blocks.push(RawBlock { at, ..RawBlock::default() });
    }
    let params = names.into_iter().zip(types);
    blocks[0].params = params
        .map(|(name, ty)| raw::RawParam { name, ty, first: 0, attrs: Vec::new(), loc: RawLoc::Unknown })
        .collect();
    Ok(blocks)
}

/// `%cond [-> (T, ..)] { .. } [else { .. }] [attrs]`.
pub(super) fn scf_if<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    op.operands.push(value(c)?);
    if c.eat("->") {
        op.result_types = c.result_types()?;
    }
    op.regions.push(region(c)?);
    op.regions.push(if c.eat_word("else") { region(c)? } else { Vec::new() });
    op.attrs.extend(c.attr_dict()?);
    Ok(())
}

/// `(%a = %x, ..) : (T, ..) -> (U, ..) { before } do { after } [attributes {..}]`.
pub(super) fn scf_while<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    let mut names = Vec::new();
    if c.peek("(") {
        carried(c, op, &mut names)?;
    }
    c.expect(":")?;
    c.expect("(")?;
    let types = c.list(")", Cursor::ty)?;
    c.expect("->")?;
    op.result_types = c.result_types()?;
    op.regions.push(structured_region(c, names, types)?);
    keyword(c, "do")?;
    op.regions.push(region(c)?);
    if c.eat_word("attributes") {
        op.attrs.extend(c.attr_dict()?);
    }
    Ok(())
}

/// `(%cond) %a, %b : T, U`.
pub(super) fn condition<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    c.expect("(")?;
    op.operands.push(value(c)?);
    c.expect(")")?;
    let args = values(c)?;
    if !args.is_empty() {
        c.expect(":")?;
        c.type_list()?;
    }
    op.operands.extend(args);
    Ok(())
}

/// `^bb1(%a : T)` or `%cond, ^bb1, ^bb2(%a, %b : T, U)`.
pub(super) fn branch<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    let conditional = op.name == "cf.cond_br";
    if conditional {
        op.operands.push(value(c)?);
        if c.peek_word() == "weights" {
            c.word("weights")?;
            c.balanced()?;
        }
        c.expect(",")?;
    }
    let mut segments = vec![1];
    loop {
        op.successors.push(successor(c)?);
        let args = if c.eat("(") {
            let args = values(c)?;
            c.expect(":")?;
            c.type_list()?;
            c.expect(")")?;
            args
        } else {
            Vec::new()
        };
        segments.push(args.len() as i64);
        op.operands.extend(args);
        if !conditional || op.successors.len() == 2 {
            break;
        }
        c.expect(",")?;
    }
    if conditional {
        op.set("operandSegmentSizes", Attr::Dense(segments));
    }
    op.attrs.extend(c.attr_dict()?);
    Ok(())
}

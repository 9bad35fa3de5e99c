//! Raw operations: names, operands, attributes, regions and types as MLIR's generic form has them, before anything is
//! given a meaning. The custom forms of `pretty` produce the same.

use super::cursor::{Cursor, Result};
use super::locs::RawLoc;
use super::{MAX_BLOCKS, pretty};
use crate::ir::{Attr, Attrs, Type};
use std::collections::HashMap;

/// A use of a value: `%name` or `%name#1`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use<'a> {
    pub(super) name: &'a str,
    /// Which result of the operation that defines the name.
    pub(super) index: usize,
    pub(super) at: usize,
}

/// What one name on the left of `=` defines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Def<'a> {
    pub(super) name: &'a str,
    pub(super) count: usize,
}

/// One operation in generic form.
#[derive(Clone, Debug)]
pub(super) struct RawOp<'a> {
    pub(super) name: String,
    pub(super) at: usize,
    pub(super) defs: Vec<Def<'a>>,
    pub(super) operands: Vec<Use<'a>>,
    /// Types the text gives the operands; `None` where the form leaves them out.
    pub(super) operand_types: Option<Vec<Type>>,
    pub(super) result_types: Vec<Type>,
    /// Number of the first result, once numbered.
    pub(super) first: u32,
    pub(super) attrs: Attrs,
    pub(super) successors: Vec<(&'a str, usize)>,
    pub(super) regions: Vec<RawRegion<'a>>,
    pub(super) loc: RawLoc<'a>,
}

/// Blocks of a region; the first may have no label.
pub(super) type RawRegion<'a> = Vec<RawBlock<'a>>;

/// One block.
#[derive(Clone, Debug, Default)]
pub(super) struct RawBlock<'a> {
    pub(super) label: Option<&'a str>,
    pub(super) at: usize,
    pub(super) params: Vec<RawParam<'a>>,
    pub(super) ops: Vec<RawOp<'a>>,
}

/// A block or function parameter.
#[derive(Clone, Debug)]
pub(super) struct RawParam<'a> {
    pub(super) name: &'a str,
    pub(super) ty: Type,
    /// Its number, once numbered.
    pub(super) first: u32,
    pub(super) attrs: Attrs,
    pub(super) loc: RawLoc<'a>,
}

/// A whole file.
pub(super) struct RawFile<'a> {
    pub(super) module: RawOp<'a>,
    pub(super) locs: HashMap<&'a str, RawLoc<'a>>,
}

impl<'a> RawOp<'a> {
    pub(super) fn new(name: impl Into<String>, at: usize) -> Self {
        RawOp {
            name: name.into(),
            at,
            defs: Vec::new(),
            operands: Vec::new(),
            operand_types: None,
            result_types: Vec::new(),
            first: 0,
            attrs: Vec::new(),
            successors: Vec::new(),
            regions: Vec::new(),
            loc: RawLoc::Unknown,
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Attr) {
        self.attrs.push((name.to_owned(), value));
    }
}

/// Reads aliases, then the module, then aliases.
pub(super) fn parse_file(text: &str) -> Result<RawFile<'_>> {
    let mut c = Cursor::new(text);
    let mut locs = HashMap::new();
    let mut module = None;
    while !c.at_end() {
        if c.peek("#") || c.peek("!") {
            alias(&mut c, &mut locs)?;
        } else if c.peek("{-#") {
            return Err(c.error("file metadata (`{-# .. #-}`) is not supported"));
        } else if module.is_some() {
            return Err(c.expected("the end of the file after the module"));
        } else if c.peek_word() == "module" || c.peek("\"builtin.module\"") {
            module = Some(op(&mut c)?);
        } else if c.peek_word() == "tt.func" || c.peek("\"tt.func\"") {
            // A bare function is a module of one.
            let mut wrapper = RawOp::new("builtin.module", c.at);
            let mut block = RawBlock { at: c.at, ..RawBlock::default() };
            while c.peek_word() == "tt.func" || c.peek("\"tt.func\"") {
                block.ops.push(op(&mut c)?);
            }
            wrapper.regions = vec![vec![block]];
            module = Some(wrapper);
        } else {
            return Err(c.expected("a TTIR module (`module {` or `\"builtin.module\"`)"));
        }
    }
    match module {
        Some(module) => Ok(RawFile { module, locs }),
        None => Err(c.error("expected a TTIR module, found the end of the file")),
    }
}

/// `#loc3 = loc(..)`. Layout aliases give TTGIR away.
fn alias<'a>(c: &mut Cursor<'a>, locs: &mut HashMap<&'a str, RawLoc<'a>>) -> Result<()> {
    let start = c.at;
    let is_type = c.eat("!");
    if !is_type {
        c.expect("#")?;
    }
    let name = c.suffix("an alias name")?;
    c.expect("=")?;
    if !is_type && c.peek_word() == "loc" {
        let loc = c.trailing_loc()?;
        if locs.insert(name, loc).is_some() {
            return Err(c.error_at(start, format!("the alias #{name} is defined twice")));
        }
        return Ok(());
    }
    c.skip_space();
    if c.rest().starts_with("#ttg.") || c.rest().starts_with("#triton_gpu.") || c.rest().starts_with("#ttng.") {
        return Err(c
            .error_at(start, "expected TTIR, found a layout: the file is TTGIR")
            .with_help("give the .ttir file of the kernel: it lies beside this one in Triton's cache folder"));
    }
    Err(c.error_at(start, format!("the alias `{name}` is not a location: not supported")))
}

/// One operation with its results and location, in either form.
pub(super) fn op<'a>(c: &mut Cursor<'a>) -> Result<RawOp<'a>> {
    c.nested(op_inner)
}

fn op_inner<'a>(c: &mut Cursor<'a>) -> Result<RawOp<'a>> {
    let start = {
        c.skip_space();
        c.at
    };
    let defs = results(c)?;
    let mut op = if c.peek("\"") { generic(c)? } else { pretty::op(c, &defs)? };
    if op.regions.is_empty() || op.name != "builtin.module" {
        op.at = start;
    }
    op.loc = match c.trailing_loc()? {
        RawLoc::Unknown => op.loc,
        loc => loc,
    };
    let named: usize = defs.iter().fold(0, |n: usize, d| n.saturating_add(d.count));
    if !defs.is_empty() && named != op.result_types.len() {
        let message = format!("{} has {} results, {named} are named", op.name, op.result_types.len());
        return Err(c.error_at(start, message));
    }
    op.defs = defs;
    Ok(op)
}

/// `%a, %b:2 =`, or nothing.
fn results<'a>(c: &mut Cursor<'a>) -> Result<Vec<Def<'a>>> {
    let mut defs = Vec::new();
    while c.eat("%") {
        let name = c.suffix("a value name")?;
        let count = if c.rest().starts_with(':') {
            c.at += 1;
            usize::try_from(c.natural("a number of results")?).unwrap_or(usize::MAX)
        } else {
            1
        };
        defs.push(Def { name, count });
        if !c.eat(",") {
            c.expect("=")?;
            return Ok(defs);
        }
    }
    if defs.is_empty() { Ok(defs) } else { Err(c.expected("a value name")) }
}

/// `%name` or `%name#1`.
pub(super) fn value<'a>(c: &mut Cursor<'a>) -> Result<Use<'a>> {
    let at = {
        c.skip_space();
        c.at
    };
    if !c.eat("%") {
        return Err(c.expected("a value such as `%0`"));
    }
    let name = c.suffix("a value name")?;
    let index = if c.rest().starts_with('#') {
        c.at += 1;
        usize::try_from(c.natural("a result number")?).unwrap_or(usize::MAX)
    } else {
        0
    };
    Ok(Use { name, index, at })
}

/// `"dialect.op"(operands)[successors] <{properties}> (regions) {attributes} : (types) -> types`.
fn generic<'a>(c: &mut Cursor<'a>) -> Result<RawOp<'a>> {
    let at = c.at;
    let mut op = RawOp::new(c.string()?, at);
    c.expect("(")?;
    op.operands = c.list(")", value)?;
    if c.eat("[") {
        op.successors = c.list("]", successor)?;
    }
    if c.eat("<{") {
        op.attrs = c.attr_entries()?;
        c.expect(">")?;
    }
    if c.eat("(") {
        op.regions = c.list(")", region)?;
    }
    if c.eat("{") {
        op.attrs.extend(c.attr_entries()?);
    }
    c.expect(":")?;
    c.expect("(")?;
    let types = c.list(")", Cursor::ty)?;
    c.expect("->")?;
    op.result_types = c.result_types()?;
    if types.len() != op.operands.len() {
        let message = format!("{} operands, {} operand types", op.operands.len(), types.len());
        return Err(c.error_at(at, message));
    }
    op.operand_types = Some(types);
    Ok(op)
}

/// `^bb1`.
pub(super) fn successor<'a>(c: &mut Cursor<'a>) -> Result<(&'a str, usize)> {
    let at = {
        c.skip_space();
        c.at
    };
    c.expect("^")?;
    Ok((c.suffix("a block name")?, at))
}

/// `{ ops and labelled blocks }`.
pub(super) fn region<'a>(c: &mut Cursor<'a>) -> Result<RawRegion<'a>> {
    c.expect("{")?;
    let mut blocks = vec![RawBlock { at: c.at, ..RawBlock::default() }];
    while !c.eat("}") {
        if c.at_end() {
            return Err(c.expected("`}` at the end of this region"));
        }
        if c.peek("^") {
            let block = block_label(c)?;
            let first = &blocks[0];
            if blocks.len() == 1 && first.label.is_none() && first.ops.is_empty() {
                blocks.clear();
            }
            blocks.push(block);
            if blocks.len() > MAX_BLOCKS {
                return Err(c.error(format!("more than {MAX_BLOCKS} blocks in one region")));
            }
        } else if let Some(block) = blocks.last_mut() {
            block.ops.push(op(c)?);
        }
    }
    if blocks.len() == 1 && blocks[0].label.is_none() && blocks[0].ops.is_empty() {
        blocks.clear();
    }
    Ok(blocks)
}

/// `^bb1(%a: i32 loc(..), %b: f32):`.
fn block_label<'a>(c: &mut Cursor<'a>) -> Result<RawBlock<'a>> {
    let (label, at) = successor(c)?;
    let params = if c.eat("(") { c.list(")", param)? } else { Vec::new() };
    c.expect(":")?;
    Ok(RawBlock { label: Some(label), at, params, ops: Vec::new() })
}

/// `%a: type {attrs} loc(..)`.
pub(super) fn param<'a>(c: &mut Cursor<'a>) -> Result<RawParam<'a>> {
    if !c.eat("%") {
        return Err(c.expected("a parameter such as `%arg0`"));
    }
    let name = c.suffix("a parameter name")?;
    c.expect(":")?;
    let ty = c.ty()?;
    let attrs = if c.eat("{") { c.attr_entries()? } else { Attrs::new() };
    let loc = c.trailing_loc()?;
    Ok(RawParam { name, ty, first: 0, attrs, loc })
}

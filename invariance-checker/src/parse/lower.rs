//! From raw operations to the typed form: numbers values, resolves names, blocks and locations.

use super::cursor::Result;
use super::error::{ParseError, Positions};
use super::locs::{LocTable, RawLoc};
use super::lower_op::{self, Parts};
use super::raw::{RawBlock, RawFile, RawOp, RawParam, RawRegion, Use};
use super::{MAX_FUNCTIONS, MAX_NAME_BYTES};
use crate::ir::{
    Attr, Attrs, Block, BlockId, Function, LocId, Module, Op, Param, Target, Terminator, TextPos, Type, Value,
    ValueInfo,
};
use std::collections::HashMap;

/// Lowers a file.
pub(super) fn lower<'a>(text: &'a str, file: RawFile<'a>) -> Result<Module> {
    let mut locs = LocTable::new(text, file.locs);
    let mut positions = Positions::new(text);
    let mut module = file.module;
    if lower_op::TTGIR_ATTRS.iter().any(|name| module.attrs.iter().any(|(n, _)| n == name)) {
        let message = "expected TTIR, found a module with a number of warps: the file is TTGIR";
        return Err(ParseError::new(text, module.at, message)
            .with_help("give the .ttir file of the kernel: it lies beside this one in Triton's cache folder"));
    }
    let mut functions: Vec<Function> = Vec::new();
    for mut op in module.regions.drain(..).flatten().flat_map(|b| b.ops) {
        if op.name != "tt.func" {
            let message = format!("expected tt.func in the module, found {}", op.name);
            return Err(ParseError::new(text, op.at, message));
        }
        let mut lowerer =
            Lowerer { text, locs: &mut locs, positions: &mut positions, values: Vec::new(), scopes: Vec::new() };
        let function = lowerer.function(&mut op)?;
        if functions.iter().any(|f| f.name == function.name) {
            return Err(ParseError::new(text, op.at, format!("the function @{} is defined twice", function.name)));
        }
        if let Some(kernel) = functions.iter().find(|f| f.public && function.public) {
            let message =
                format!("expected one public function, the kernel, found @{} and @{}", kernel.name, function.name);
            return Err(ParseError::new(text, op.at, message));
        }
        functions.push(function);
        if functions.len() > MAX_FUNCTIONS {
            return Err(ParseError::new(text, op.at, format!("more than {MAX_FUNCTIONS} functions in one module")));
        }
    }
    if functions.is_empty() {
        return Err(ParseError::new(text, module.at, "expected a kernel in the module, found no function"));
    }
    if functions.len() > 1 && !functions.iter().any(|f| f.public) {
        return Err(ParseError::new(
            text,
            module.at,
            "expected a public function, the kernel, found only private ones",
        ));
    }
    let attrs = sorted(module.attrs);
    Ok(Module { functions, attrs, locations: locs.locations })
}

/// Attributes in order of name, the last of several with one name.
fn sorted(mut attrs: Attrs) -> Attrs {
    attrs.sort_by(|a, b| a.0.cmp(&b.0));
    attrs.dedup_by(|a, b| a.0 == b.0);
    attrs
}

/// State while one function is lowered.
struct Lowerer<'t, 'a> {
    text: &'a str,
    locs: &'t mut LocTable<'a>,
    positions: &'t mut Positions<'a>,
    values: Vec<ValueInfo>,
    /// Names that are visible: first value and how many, innermost region last.
    scopes: Vec<HashMap<&'a str, (u32, usize)>>,
}

impl<'a> Lowerer<'_, 'a> {
    fn error(&self, at: usize, message: impl Into<String>) -> ParseError {
        ParseError::new(self.text, at, message)
    }

    fn function(&mut self, op: &mut RawOp<'a>) -> Result<Function> {
        let at = self.positions.of(op.at);
        let loc = self.locs.resolve(&op.loc)?;
        let name = match find(&op.attrs, "sym_name") {
            Some(Attr::Str(name) | Attr::Symbol(name)) => name.clone(),
            _ => return Err(self.error(op.at, "this function has no name")),
        };
        let public = !matches!(find(&op.attrs, "sym_visibility"), Some(Attr::Str(v)) if v != "public");
        let Some(mut region) = op.regions.pop().filter(|r| !r.is_empty() && op.regions.is_empty()) else {
            return Err(self.error(op.at, format!("expected the body of @{name}")));
        };
        self.number_region(&mut region)?;
        let params = self.params(op, &region);
        let blocks = self.region(&region, Place::Function)?;
        let results = match blocks.iter().find_map(|b| if let Terminator::Return(v) = &b.end { Some(v) } else { None })
        {
            Some(values) => values.iter().map(|v| self.values[v.0 as usize].ty.clone()).collect(),
            None => Vec::new(),
        };
        let values = std::mem::take(&mut self.values);
        Ok(Function { name, public, params, results, values, blocks, at, loc })
    }

    /// The parameters of a function are those of its entry block; attributes stand there or in `arg_attrs`.
    fn params(&self, op: &RawOp<'a>, region: &RawRegion<'a>) -> Vec<Param> {
        let listed = match find(&op.attrs, "arg_attrs") {
            Some(Attr::Array(list)) => list.as_slice(),
            _ => &[],
        };
        let entry = &region[0];
        let params = entry.params.iter().enumerate().map(|(i, p)| {
            let mut attrs = p.attrs.clone();
            if let Some(Attr::Dict(more)) = listed.get(i) {
                attrs.extend(more.iter().cloned());
            }
            Param { value: Value(p.first), attrs: sorted(attrs) }
        });
        params.collect()
    }

    /// Gives every parameter and result below its number, in textual order.
    fn number_region(&mut self, region: &mut RawRegion<'a>) -> Result<()> {
        for block in region {
            for param in &mut block.params {
                param.first = self.new_value(&param.ty, param.name, &param.loc)?;
            }
            for op in &mut block.ops {
                op.first = self.values.len() as u32;
                for (i, ty) in op.result_types.iter().enumerate() {
                    let name = if op.defs.len() == op.result_types.len() { op.defs.get(i) } else { op.defs.first() };
                    self.new_value(ty, name.map_or("", |d| d.name), &op.loc)?;
                }
                for inner in &mut op.regions {
                    self.number_region(inner)?;
                }
            }
        }
        Ok(())
    }

    fn new_value(&mut self, ty: &Type, ssa: &str, loc: &RawLoc<'a>) -> Result<u32> {
        let id = self.locs.resolve(loc)?;
        let name = self.name_in(id).or_else(|| ssa_name(ssa)).filter(|n| n.len() <= MAX_NAME_BYTES);
        self.values.push(ValueInfo { ty: ty.clone(), name });
        Ok(self.values.len() as u32 - 1)
    }

    /// The name a location carries, looking through call sites.
    fn name_in(&self, mut id: LocId) -> Option<String> {
        use crate::ir::Location;
        loop {
            match &self.locs.locations[id.0 as usize] {
                Location::Name(name, _) if name.len() <= MAX_NAME_BYTES => return Some(name.clone()),
                Location::CallSite { callee, .. } => id = *callee,
                _ => return None,
            }
        }
    }

    /// Lowers the blocks of one region in a scope of its own.
    fn region(&mut self, region: &RawRegion<'a>, place: Place) -> Result<Vec<Block>> {
        let mut scope = HashMap::new();
        let mut labels = HashMap::new();
        for (i, block) in region.iter().enumerate() {
            for param in &block.params {
                self.define(&mut scope, param.name, param.first, 1, block.at)?;
            }
            for op in &block.ops {
                let mut first = op.first;
                for def in &op.defs {
                    self.define(&mut scope, def.name, first, def.count, op.at)?;
                    first += def.count as u32;
                }
            }
            if let Some(label) = block.label
                && labels.insert(label, BlockId(i as u32)).is_some()
            {
                return Err(self.error(block.at, format!("the block ^{label} is defined twice")));
            }
        }
        self.scopes.push(scope);
        let blocks = region.iter().enumerate().map(|(i, b)| self.block(b, &labels, place, i)).collect();
        self.scopes.pop();
        blocks
    }

    fn define(
        &self,
        scope: &mut HashMap<&'a str, (u32, usize)>,
        name: &'a str,
        first: u32,
        count: usize,
        at: usize,
    ) -> Result<()> {
        match scope.insert(name, (first, count)) {
            None => Ok(()),
            Some(_) => Err(self.error(at, format!("the value %{name} is defined twice"))),
        }
    }

    fn block(
        &mut self,
        raw: &RawBlock<'a>,
        labels: &HashMap<&'a str, BlockId>,
        place: Place,
        index: usize,
    ) -> Result<Block> {
        let params = match (place, index) {
            (Place::Function, 0) => Vec::new(),
            _ => raw.params.iter().map(|p: &RawParam<'a>| Value(p.first)).collect(),
        };
        let (last, body) = match raw.ops.split_last() {
            Some((last, body)) if lower_op::is_terminator(&last.name) || place == Place::Function => (Some(last), body),
            _ => (None, raw.ops.as_slice()),
        };
        let mut ops = Vec::with_capacity(body.len());
        for op in body {
            if lower_op::is_terminator(&op.name) {
                return Err(self.error(op.at, format!("{} must be the last operation of its block", op.name)));
            }
            ops.push(self.op(op)?);
        }
        let (end, end_loc) = match last {
            Some(op) => (self.terminator(op, labels)?, self.locs.resolve(&op.loc)?),
            None if place == Place::Function => {
                return Err(self.error(raw.at, "this block has no operation that leaves it"));
            }
            None => (Terminator::Yield(Vec::new()), LocId::UNKNOWN),
        };
        Ok(Block { params, ops, end, end_loc })
    }

    fn terminator(&mut self, op: &RawOp<'a>, labels: &HashMap<&'a str, BlockId>) -> Result<Terminator> {
        if !lower_op::is_terminator(&op.name) {
            return Ok(Terminator::Unknown(Box::new(self.op(op)?)));
        }
        let mut args = self.uses(op)?;
        let mut targets = Vec::new();
        for (label, at) in &op.successors {
            match labels.get(label) {
                Some(id) => targets.push(*id),
                None => return Err(self.error(*at, format!("the block ^{label} is not defined in this region"))),
            }
        }
        match (op.name.as_str(), targets.as_slice()) {
            (name, []) if lower_op::is_yield(name) => Ok(Terminator::Yield(args)),
            ("tt.return", []) => Ok(Terminator::Return(args)),
            ("scf.condition", []) if !args.is_empty() => {
                let cond = args.remove(0);
                Ok(Terminator::Condition { cond, args })
            }
            ("cf.br", [block]) => Ok(Terminator::Branch(Target { block: *block, args })),
            ("cf.cond_br", [then, otherwise]) => {
                let segments = match find(&op.attrs, "operandSegmentSizes") {
                    Some(Attr::Dense(s)) => s.clone(),
                    _ => vec![1, args.len() as i64 - 1, 0],
                };
                let [1, n, m] = segments[..] else { return Err(self.error(op.at, "cf.cond_br takes one condition")) };
                if args.is_empty() || n < 0 || m < 0 || n.checked_add(m) != Some(args.len() as i64 - 1) {
                    return Err(self.error(op.at, "the operands of cf.cond_br do not match its segment sizes"));
                }
                let rest = args.split_off(1 + n as usize);
                let cond = args.remove(0);
                let then = Target { block: *then, args };
                let otherwise = Target { block: *otherwise, args: rest };
                Ok(Terminator::CondBranch { cond, then, otherwise })
            }
            (name, _) => Err(self.error(op.at, format!("{name} has the wrong number of operands or successors"))),
        }
    }

    fn op(&mut self, raw: &RawOp<'a>) -> Result<Op> {
        let at: TextPos = self.positions.of(raw.at);
        let loc = self.locs.resolve(&raw.loc)?;
        let args = self.uses(raw)?;
        if !raw.successors.is_empty() {
            return Err(self.error(raw.at, format!("{} with successor blocks is not supported here", raw.name)));
        }
        let mut regions = Vec::new();
        for region in &raw.regions {
            regions.push(self.region(region, Place::Nested)?);
        }
        let attrs = sorted(raw.attrs.clone());
        let parts = Parts { name: &raw.name, args, attrs, regions, results: &raw.result_types };
        let (kind, attrs) = lower_op::kind(parts).map_err(|m| self.error(raw.at, format!("{}: {m}", raw.name)))?;
        let results = (0..raw.result_types.len() as u32).map(|i| Value(raw.first + i)).collect();
        Ok(Op { kind, results, attrs, loc, at })
    }

    /// Resolves operands and checks them against the types that the text gives.
    fn uses(&self, op: &RawOp<'a>) -> Result<Vec<Value>> {
        let values = op.operands.iter().map(|u| self.value(u)).collect::<Result<Vec<Value>>>()?;
        let Some(types) = &op.operand_types else { return Ok(values) };
        if types.len() != values.len() {
            let message = format!("{} has {} operands, {} types", op.name, values.len(), types.len());
            return Err(self.error(op.at, message));
        }
        for ((value, given), used) in values.iter().zip(types).zip(&op.operands) {
            let ty = &self.values[value.0 as usize].ty;
            if ty != given {
                return Err(self.error(used.at, format!("%{} has type {ty}, not {given}", used.name)));
            }
        }
        Ok(values)
    }

    fn value(&self, used: &Use<'a>) -> Result<Value> {
        match self.scopes.iter().rev().find_map(|s| s.get(used.name)) {
            Some((first, count)) if used.index < *count => Ok(Value(first + used.index as u32)),
            Some((_, count)) => {
                let message = format!("%{} has {count} results, number {} is used", used.name, used.index);
                Err(self.error(used.at, message))
            }
            None => Err(self.error(used.at, format!("the value %{} is not defined here", used.name))),
        }
    }
}

/// Where a region stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Function,
    Nested,
}

fn find<'o>(attrs: &'o Attrs, name: &str) -> Option<&'o Attr> {
    crate::ir::attr(attrs, name)
}

/// A name worth showing: not a number, not one that MLIR made up (`arg0`, `cst_1`, `c0_i32`).
fn ssa_name(ssa: &str) -> Option<String> {
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let base = match ssa.rsplit_once('_') {
        Some((base, tail)) if !base.is_empty() && digits(tail) => base,
        _ => ssa,
    };
    let made_up = digits(base)
        || base == "cst"
        || base == "true"
        || base == "false"
        || base.strip_prefix("arg").is_some_and(digits)
        || (base.starts_with('c') && base[1..].starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    (!made_up).then(|| base.to_owned())
}

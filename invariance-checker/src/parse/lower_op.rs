//! Gives raw operations their meaning: names, attributes and operand lists become [`OpKind`]s.

use super::names::{ATOMICS, CMP_F, CMP_I, DOT_PRECISIONS, REDUCE_KINDS, SCALED_ELEMS, binary, cast, pick, unary};
use crate::ir::{Attr, Attrs, Axis, Block, CastOp, DotPrecision, Elements, MemOrder, OpKind, Rounding, Type, Value};

/// Module attributes that only TTGIR has.
pub(super) const TTGIR_ATTRS: [&str; 3] = ["ttg.num-warps", "ttg.threads-per-warp", "triton_gpu.num-warps"];

/// Attributes that neither change what is computed nor tell a reader anything: memory hints, printing details, and sizes
/// that the operands show already.
const DROPPED: [&str; 17] = [
    "operandSegmentSizes",
    "resultSegmentSizes",
    "cache",
    "evict",
    "cacheModifier",
    "evictionPolicy",
    "cachePolicy",
    "boundaryCheck",
    "hex",
    "isSigned",
    "efficient_layout",
    "addrSpace",
    "libname",
    "libpath",
    "operand_segment_sizes",
    "result_segment_sizes",
    "op_bundle_sizes",
];

/// What an operation is made of.
pub(super) struct Parts<'a> {
    pub(super) name: &'a str,
    pub(super) args: Vec<Value>,
    pub(super) attrs: Attrs,
    pub(super) regions: Vec<Vec<Block>>,
    pub(super) results: &'a [Type],
}

pub(super) type Made<T> = Result<T, String>;

pub(super) fn is_terminator(name: &str) -> bool {
    is_yield(name) || matches!(name, "scf.condition" | "tt.return" | "cf.br" | "cf.cond_br")
}

/// Terminators that hand values to the enclosing operation.
pub(super) fn is_yield(name: &str) -> bool {
    matches!(name, "scf.yield" | "tt.reduce.return" | "tt.scan.return" | "tt.map_elementwise.return")
}

/// Operations printed as `operands : T`, where operands and result have that type.
pub(super) fn is_same_type(name: &str) -> bool {
    unary(name).is_some() || binary(name).is_some() || name == "math.fma"
}

/// Operations printed as `operands : types -> T` or `to T`.
pub(super) fn is_conversion(name: &str) -> bool {
    cast(name).is_some()
        || matches!(
            name,
            "tt.splat"
                | "tt.broadcast"
                | "tt.expand_dims"
                | "tt.trans"
                | "tt.reshape"
                | "tt.join"
                | "tt.cat"
                | "tt.histogram"
                | "tt.fp_to_fp"
        )
}

/// The number MLIR gives a comparison.
pub(super) fn predicate_number(op: &str, word: &str) -> Option<i64> {
    let names: &[&str] = match op {
        "arith.cmpi" => &["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"],
        _ => &[
            "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno",
            "true",
        ],
    };
    names.iter().position(|n| *n == word).map(|i| i as i64)
}

const ATOMIC_OPS: [&str; 10] = ["and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "exch"];
const SEMS: [&str; 4] = ["relaxed", "acquire", "release", "acq_rel"];
const SCOPES: [&str; 3] = ["gpu", "cta", "sys"];
const PRECISIONS: [&str; 5] = ["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"];
const SCALED: [&str; 7] = ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "bf16", "fp16"];
const REDUCTIONS: [&str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];

/// The number that the generic form has for a keyword of the pretty form.
pub(super) fn keyword_number(field: &str, word: &str) -> Option<i64> {
    let (names, base): (&[&str], i64) = match field {
        "atomic_rmw_op" => (&ATOMIC_OPS, 1),
        "sem" => (&SEMS, 1),
        "scope" => (&SCOPES, 1),
        "inputPrecision" => (&PRECISIONS, 0),
        "a_elem_type" | "b_elem_type" => (&SCALED, 0),
        "kind" => (&REDUCTIONS, 1),
        "rounding" => (&["rtz", "rtne"], 0),
        "propagateNan" => match word {
            "none" => return Some(0),
            "all" => return Some(0xffff),
            _ => return None,
        },
        _ => return None,
    };
    names.iter().position(|n| *n == word).map(|i| i as i64 + base)
}

/// The typed operation and the attributes left over.
pub(super) fn kind(mut p: Parts<'_>) -> Made<(OpKind, Attrs)> {
    let kind = match p.name {
        "arith.constant" => constant(&mut p)?,
        "ub.poison" => p.exactly::<0>().map(|_| OpKind::Poison)?,
        "arith.cmpi" => {
            let pred = *pick(&CMP_I, p.int("predicate")?, 0, "comparison")?;
            let [a, b] = p.exactly()?;
            OpKind::CmpI { pred, a, b }
        }
        "arith.cmpf" => {
            let pred = *pick(&CMP_F, p.int("predicate")?, 0, "comparison")?;
            let [a, b] = p.exactly()?;
            OpKind::CmpF { pred, a, b }
        }
        "arith.select" => p.exactly().map(|[cond, then, otherwise]| OpKind::Select { cond, then, otherwise })?,
        "math.fma" => p.exactly().map(|[a, b, c]| OpKind::Fma { a, b, c })?,
        "llvm.intr.assume" => p.exactly().map(|[cond]| OpKind::Assume { cond })?,
        "gpu.barrier"
        | "ttg.barrier"
        | "ttg.local_barrier"
        | "tt.grid_dependency_wait"
        | "tt.grid_dependency_launch_dependents" => p.exactly::<0>().map(|_| OpKind::Barrier)?,
        "scf.for" | "scf.if" | "scf.while" => control(&mut p)?,
        name if unary(name).is_some() => {
            let op = unary(name).ok_or("")?;
            p.exactly().map(|[x]| OpKind::Unary { op, x })?
        }
        name if binary(name).is_some() => {
            let op = binary(name).ok_or("")?;
            p.exactly().map(|[a, b]| OpKind::Binary { op, a, b })?
        }
        name if cast(name).is_some() => {
            let op = cast(name).ok_or("")?;
            p.exactly().map(|[x]| OpKind::Cast { op, x })?
        }
        name if name.starts_with("tt.") => match triton(&mut p)? {
            Some(kind) => kind,
            None => unknown(&mut p),
        },
        _ => unknown(&mut p),
    };
    if !p.regions.is_empty() {
        return Err("unexpected region".into());
    }
    p.attrs.retain(|(name, value)| !DROPPED.contains(&name.as_str()) && !is_default(name, value));
    Ok((kind, p.attrs))
}

/// Values that the pretty form leaves out.
fn is_default(name: &str, value: &Attr) -> bool {
    match (name, value) {
        ("overflowFlags", Attr::Other(text)) => text == "#arith.overflow<none>",
        ("fastmath", Attr::Other(text)) => text == "#arith.fastmath<none>",
        _ => false,
    }
}

fn unknown(p: &mut Parts<'_>) -> OpKind {
    OpKind::Unknown {
        name: p.name.to_owned(),
        args: std::mem::take(&mut p.args),
        attrs: std::mem::take(&mut p.attrs),
        regions: std::mem::take(&mut p.regions),
    }
}

fn constant(p: &mut Parts<'_>) -> Made<OpKind> {
    p.exactly::<0>()?;
    let value = p.take("value").ok_or("no value")?;
    let (elements, ty) = match value {
        Attr::Bool(b) => (Elements::Splat(u64::from(b)), None),
        Attr::Int(v, ty) => {
            let bits = ty.scalar_elem().map_or(64, |s| s.bits());
            (Elements::Splat(v as u64 & (u64::MAX >> (64 - bits))), Some(ty))
        }
        Attr::Float(bits, ty) => (Elements::Splat(bits), Some(ty)),
        Attr::Elements(elements, ty) => (elements, Some(ty)),
        _ => return Err("the value is not a number".into()),
    };
    match (ty, p.results) {
        (Some(ty), [result]) if ty != *result => Err(format!("a value of type {ty} for a result of type {result}")),
        _ => Ok(OpKind::Constant(elements)),
    }
}

fn control(p: &mut Parts<'_>) -> Made<OpKind> {
    match p.name {
        "scf.for" => {
            if p.args.len() < 3 {
                return Err("expected bounds and a step".into());
            }
            let inits = p.args.split_off(3);
            let [lo, hi, step] = p.exactly()?;
            let unsigned = p.flag("unsignedCmp");
            Ok(OpKind::For { lo, hi, step, inits, body: p.one_block()?, unsigned })
        }
        "scf.if" => {
            let otherwise = match p.regions.len() {
                2 if p.regions[1].is_empty() => p.regions.pop().map(|_| Block::empty()),
                2 => Some(p.one_block()?),
                1 => Some(Block::empty()),
                n => return Err(format!("expected one or two regions, found {n}")),
            };
            let then = p.one_block()?;
            let [cond] = p.exactly()?;
            Ok(OpKind::If { cond, then, otherwise: otherwise.unwrap_or_else(Block::empty) })
        }
        _ => {
            let after = p.one_block()?;
            let before = p.one_block()?;
            Ok(OpKind::While { inits: std::mem::take(&mut p.args), before, after })
        }
    }
}

/// The operations of the `tt` dialect; `None` for one that is not known.
fn triton(p: &mut Parts<'_>) -> Made<Option<OpKind>> {
    Ok(Some(match p.name {
        "tt.get_program_id" | "tt.get_num_programs" => {
            let axis = *pick(&[Axis::X, Axis::Y, Axis::Z], p.int("axis")?, 0, "axis")?;
            p.exactly::<0>()?;
            if p.name == "tt.get_program_id" { OpKind::ProgramId(axis) } else { OpKind::NumPrograms(axis) }
        }
        "tt.make_range" => {
            p.exactly::<0>()?;
            OpKind::MakeRange { start: p.narrow("start")?, end: p.narrow("end")? }
        }
        "tt.fp_to_fp" => {
            let op = CastOp::FpToFp(match p.take("rounding").map(|a| a.as_int()) {
                None => Rounding::Exact,
                Some(Some(0)) => Rounding::TowardZero,
                Some(Some(1)) => Rounding::Nearest,
                Some(_) => return Err("unknown rounding".into()),
            });
            p.exactly().map(|[x]| OpKind::Cast { op, x })?
        }
        "tt.clampf" => {
            let propagate_nan = p.int("propagateNan")? != 0;
            p.exactly().map(|[x, lo, hi]| OpKind::Clamp { x, lo, hi, propagate_nan })?
        }
        "tt.elementwise_inline_asm" => OpKind::InlineAsm {
            asm: p.text("asm_string")?,
            constraints: p.text("constraints")?,
            packed: p.narrow("packed_element")?,
            pure: p.flag("pure"),
            args: std::mem::take(&mut p.args),
        },
        "tt.extern_elementwise" => {
            OpKind::Extern { symbol: p.text("symbol")?, pure: p.flag("pure"), args: std::mem::take(&mut p.args) }
        }
        "tt.call" => OpKind::Call { callee: p.text("callee")?, args: std::mem::take(&mut p.args) },
        "tt.assert" => {
            let message = p.text("message")?;
            p.exactly().map(|[cond]| OpKind::Assert { cond, message })?
        }
        "tt.print" => OpKind::Print { prefix: p.text("prefix")?, args: std::mem::take(&mut p.args) },
        "tt.dot" | "tt.dot_scaled" | "tt.reduce" | "tt.scan" => contraction(p)?,
        name if name.starts_with("tt.descriptor_") || name == "tt.make_tensor_descriptor" => return descriptor(p),
        "tt.load" | "tt.store" | "tt.addptr" | "tt.atomic_rmw" | "tt.atomic_cas" => return memory(p),
        _ => return shape(p),
    }))
}

/// Operations that only move elements.
fn shape(p: &mut Parts<'_>) -> Made<Option<OpKind>> {
    Ok(Some(match p.name {
        "tt.splat" => p.exactly().map(|[x]| OpKind::Splat { x })?,
        "tt.broadcast" => p.exactly().map(|[x]| OpKind::Broadcast { x })?,
        "tt.split" => p.exactly().map(|[x]| OpKind::Split { x })?,
        "tt.join" => p.exactly().map(|[a, b]| OpKind::Join { a, b })?,
        "tt.cat" => p.exactly().map(|[a, b]| OpKind::Cat { a, b })?,
        "tt.expand_dims" => {
            let axis = p.narrow("axis")?;
            p.exactly().map(|[x]| OpKind::ExpandDims { x, axis })?
        }
        "tt.trans" => {
            let Some(Attr::Dense(order)) = p.take("order") else { return Err("no order".into()) };
            let order = order.into_iter().map(usize::try_from).collect::<Result<_, _>>();
            let order = order.map_err(|_| "a negative axis")?;
            p.exactly().map(|[x]| OpKind::Trans { x, order })?
        }
        "tt.reshape" => {
            let allow_reorder = p.flag("allow_reorder");
            p.exactly().map(|[x]| OpKind::Reshape { x, allow_reorder })?
        }
        "tt.gather" => {
            let axis = p.narrow("axis")?;
            p.exactly().map(|[x, indices]| OpKind::Gather { x, indices, axis })?
        }
        "tt.histogram" => {
            let mask = if p.args.len() == 2 { p.args.pop() } else { None };
            p.exactly().map(|[x]| OpKind::Histogram { x, mask })?
        }
        _ => return Ok(None),
    }))
}

fn memory(p: &mut Parts<'_>) -> Made<Option<OpKind>> {
    Ok(Some(match p.name {
        "tt.addptr" => p.exactly().map(|[ptr, offset]| OpKind::AddPtr { ptr, offset })?,
        "tt.load" => {
            // A load through a pointer to a tensor may check its bounds: not modelled.
            if p.attrs.iter().any(|(n, v)| n == "boundaryCheck" && !matches!(v, Attr::Dense(axes) if axes.is_empty())) {
                return Ok(None);
            }
            p.take("padding");
            let other = if p.args.len() == 3 { p.args.pop() } else { None };
            let mask = if p.args.len() == 2 { p.args.pop() } else { None };
            let volatile = p.flag("isVolatile");
            p.exactly().map(|[ptr]| OpKind::Load { ptr, mask, other, volatile })?
        }
        "tt.store" => {
            let mask = if p.args.len() == 3 { p.args.pop() } else { None };
            p.exactly().map(|[ptr, value]| OpKind::Store { ptr, value, mask })?
        }
        "tt.atomic_rmw" => {
            let op = *pick(&ATOMICS, p.int("atomic_rmw_op")?, 1, "atomic operation")?;
            let order = mem_order(p)?;
            let mask = if p.args.len() == 3 { p.args.pop() } else { None };
            p.exactly().map(|[ptr, value]| OpKind::AtomicRmw { op, ptr, value, mask, order })?
        }
        _ => {
            let order = mem_order(p)?;
            p.exactly().map(|[ptr, cmp, value]| OpKind::AtomicCas { ptr, cmp, value, order })?
        }
    }))
}

fn mem_order(p: &mut Parts<'_>) -> Made<MemOrder> {
    let sem = pick(&SEMS, p.int("sem")?, 1, "memory order")?.to_string();
    let scope = pick(&SCOPES, p.int("scope")?, 1, "memory scope")?.to_string();
    Ok(MemOrder { sem, scope })
}

fn descriptor(p: &mut Parts<'_>) -> Made<Option<OpKind>> {
    let wanted = match p.name {
        "tt.make_tensor_descriptor" => 1,
        "tt.descriptor_store" | "tt.descriptor_reduce" => 2,
        _ => 1,
    };
    if p.args.len() < wanted {
        return Err(format!("expected at least {wanted} operands"));
    }
    let fixed = [p.args[0], *p.args.get(1).unwrap_or(&p.args[0])];
    Ok(Some(match p.name {
        "tt.make_tensor_descriptor" => {
            let shape = p.args[1..].to_vec();
            if !shape.len().is_multiple_of(2) {
                return Err("as many strides as extents are expected".into());
            }
            let (shape, strides) = shape.split_at(shape.len() / 2);
            let (shape, strides) = (shape.to_vec(), strides.to_vec());
            let padding_nan = p.take("padding").and_then(|a| a.as_int()) == Some(2);
            p.args.clear();
            OpKind::MakeDesc { base: fixed[0], shape, strides, padding_nan }
        }
        "tt.descriptor_load" => OpKind::DescLoad { desc: fixed[0], indices: p.drain(1) },
        "tt.descriptor_store" => OpKind::DescStore { desc: fixed[0], value: fixed[1], indices: p.drain(2) },
        "tt.descriptor_reduce" => {
            let kind = *pick(&REDUCE_KINDS, p.int("kind")?, 1, "reduction")?;
            OpKind::DescReduce { kind, desc: fixed[0], value: fixed[1], indices: p.drain(2) }
        }
        "tt.descriptor_gather" => p.exactly().map(|[desc, rows, column]| OpKind::DescGather { desc, rows, column })?,
        "tt.descriptor_scatter" => {
            p.exactly().map(|[desc, rows, column, value]| OpKind::DescScatter { desc, rows, column, value })?
        }
        _ => return Ok(None),
    }))
}

fn contraction(p: &mut Parts<'_>) -> Made<OpKind> {
    match p.name {
        "tt.dot" => {
            let precision = match p.take("inputPrecision") {
                None => DotPrecision::Ieee,
                Some(a) => *pick(&DOT_PRECISIONS, a.as_int().ok_or("inputPrecision is not a number")?, 0, "precision")?,
            };
            let max_imprecise = match p.take("maxNumImpreciseAcc") {
                None => 0,
                Some(a) => {
                    let value = a.as_int().and_then(|v| u32::try_from(v).ok());
                    value.ok_or("maxNumImpreciseAcc is out of range")?
                }
            };
            p.exactly().map(|[a, b, acc]| OpKind::Dot { a, b, acc, precision, max_imprecise })
        }
        "tt.dot_scaled" => dot_scaled(p),
        _ => {
            let axis = p.narrow("axis")?;
            let args = std::mem::take(&mut p.args);
            let combiner = p.one_block()?;
            let reverse = p.name == "tt.scan" && p.flag("reverse");
            Ok(match p.name {
                "tt.scan" => OpKind::Scan { args, axis, reverse, combiner },
                _ => OpKind::Reduce { args, axis, combiner },
            })
        }
    }
}

fn dot_scaled(p: &mut Parts<'_>) -> Made<OpKind> {
    let segments = match p.take("operandSegmentSizes") {
        Some(Attr::Dense(s)) => s,
        _ => return Err("no operand segment sizes".into()),
    };
    let mut args = std::mem::take(&mut p.args).into_iter();
    let [1, 1, 1, has_a @ (0 | 1), has_b @ (0 | 1)] = segments[..] else {
        return Err("unexpected operand segment sizes".into());
    };
    if args.len() as i64 != 3 + has_a + has_b {
        return Err("the operands do not match the segment sizes".into());
    }
    let mut next = || args.next().ok_or("missing operand");
    let (a, b, acc) = (next()?, next()?, next()?);
    let a_scale = if has_a == 1 { Some(next()?) } else { None };
    let b_scale = if has_b == 1 { Some(next()?) } else { None };
    Ok(OpKind::DotScaled {
        a,
        b,
        acc,
        a_scale,
        b_scale,
        a_elem: *pick(&SCALED_ELEMS, p.int("a_elem_type")?, 0, "element format")?,
        b_elem: *pick(&SCALED_ELEMS, p.int("b_elem_type")?, 0, "element format")?,
        fast_math: p.flag("fastMath"),
        a_k_pack: p.flag_or("lhs_k_pack", true),
        b_k_pack: p.flag_or("rhs_k_pack", true),
    })
}

impl Parts<'_> {
    fn take(&mut self, name: &str) -> Option<Attr> {
        let i = self.attrs.iter().position(|(n, _)| n == name)?;
        Some(self.attrs.remove(i).1)
    }

    fn int(&mut self, name: &str) -> Made<i64> {
        let attr = self.take(name).ok_or_else(|| format!("no attribute {name}"))?;
        attr.as_int().ok_or_else(|| format!("the attribute {name} is not a number"))
    }

    /// An integer attribute of whatever width is wanted.
    fn narrow<T: TryFrom<i64>>(&mut self, name: &str) -> Made<T> {
        T::try_from(self.int(name)?).map_err(|_| format!("the attribute {name} is out of range"))
    }

    fn text(&mut self, name: &str) -> Made<String> {
        let attr = self.take(name).ok_or_else(|| format!("no attribute {name}"))?;
        attr.as_str().map(str::to_owned).ok_or_else(|| format!("the attribute {name} is not a string"))
    }

    fn flag(&mut self, name: &str) -> bool {
        self.flag_or(name, false)
    }

    fn flag_or(&mut self, name: &str, default: bool) -> bool {
        match self.take(name) {
            None => default,
            Some(Attr::Bool(b)) => b,
            Some(_) => true,
        }
    }

    /// All operands, if there are `N`.
    fn exactly<const N: usize>(&mut self) -> Made<[Value; N]> {
        let args = std::mem::take(&mut self.args);
        args.try_into().map_err(|a: Vec<Value>| format!("expected {N} operands, found {}", a.len()))
    }

    /// The operands after the first `n`; the rest are taken to be read already.
    fn drain(&mut self, n: usize) -> Vec<Value> {
        std::mem::take(&mut self.args).split_off(n)
    }

    /// The last region, which must be one block.
    fn one_block(&mut self) -> Made<Block> {
        let mut region = self.regions.pop().ok_or("a region is missing")?;
        match (region.pop(), region.len()) {
            (Some(block), 0) => Ok(block),
            (None, _) => Ok(Block::empty()),
            (Some(_), n) => Err(format!("expected a region of one block, found {}", n + 1)),
        }
    }
}

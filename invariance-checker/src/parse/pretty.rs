//! The custom forms of operations, turned into the generic form. An operation that is not listed is read up to the end of
//! its line: its `%names` become operands, the types after its last colon or arrow the results.

use super::cursor::{Cursor, Result};
use super::raw::{Def, RawOp, Use, value};
use super::{lower_op, pretty_control as control};
use crate::ir::{Attr, Elem, Scalar, Type};

/// Reads one operation in custom form, after `%results =`.
pub(super) fn op<'a>(c: &mut Cursor<'a>, defs: &[Def<'a>]) -> Result<RawOp<'a>> {
    let at = {
        c.skip_space();
        c.at
    };
    let name = c.peek_word();
    if name.is_empty() {
        return Err(c.expected("an operation"));
    }
    if !name.contains('.') && name != "module" {
        return Err(c.error(format!("expected an operation, found `{name}`")));
    }
    c.at += name.len();
    let mut op = RawOp::new(name, at);
    match name {
        "module" => control::module(c, &mut op)?,
        "tt.func" => control::function(c, &mut op)?,
        "arith.constant" => constant(c, &mut op)?,
        "arith.select" => select(c, &mut op)?,
        "arith.cmpi" | "arith.cmpf" => compare(c, &mut op)?,
        "scf.for" => control::scf_for(c, &mut op)?,
        "scf.if" => control::scf_if(c, &mut op)?,
        "scf.while" => control::scf_while(c, &mut op)?,
        "scf.condition" => control::condition(c, &mut op)?,
        "cf.br" | "cf.cond_br" => control::branch(c, &mut op)?,
        "tt.get_program_id" | "tt.get_num_programs" => program_axis(c, &mut op)?,
        "tt.addptr" => add_ptr(c, &mut op)?,
        "tt.load" => load(c, &mut op)?,
        "tt.store" => store(c, &mut op)?,
        "tt.atomic_rmw" | "tt.atomic_cas" => atomic(c, &mut op)?,
        "tt.dot" => dot(c, &mut op)?,
        "tt.dot_scaled" => dot_scaled(c, &mut op)?,
        "tt.gather" => gather(c, &mut op)?,
        "tt.call" => call(c, &mut op)?,
        "tt.extern_elementwise" => {
            op.operands = values(c)?;
            op.attrs.extend(c.attr_dict()?);
            signature(c, &mut op)?;
        }
        "tt.elementwise_inline_asm" => inline_asm(c, &mut op)?,
        "tt.assert" | "tt.print" => message(c, &mut op)?,
        "tt.make_tensor_descriptor" => make_desc(c, &mut op)?,
        "tt.descriptor_load"
        | "tt.descriptor_store"
        | "tt.descriptor_reduce"
        | "tt.descriptor_gather"
        | "tt.descriptor_scatter" => descriptor(c, &mut op)?,
        "tt.split" => {
            operands_then(c, &mut op)?;
            op.operand_types = Some(vec![c.ty()?]);
            c.expect("->")?;
            let half = c.ty()?;
            op.result_types = vec![half.clone(), half];
        }
        "tt.clampf" => clamp(c, &mut op)?,
        "tt.make_range" | "ub.poison" => {
            op.attrs.extend(c.attr_dict()?);
            c.expect(":")?;
            op.result_types = vec![c.ty()?];
        }
        "gpu.barrier"
        | "ttg.barrier"
        | "ttg.local_barrier"
        | "tt.grid_dependency_wait"
        | "tt.grid_dependency_launch_dependents" => {
            if name == "ttg.barrier" {
                op.set("addrSpace", Attr::Str(c.peek_word().to_owned()));
                let len = c.peek_word().len();
                c.at += len;
            }
            op.attrs.extend(c.attr_dict()?);
        }
        _ if lower_op::is_yield(name) || name == "llvm.intr.assume" || name == "tt.return" => yield_like(c, &mut op)?,
        _ if lower_op::is_same_type(name) => same_type(c, &mut op)?,
        _ if lower_op::is_conversion(name) => conversion(c, &mut op)?,
        _ => unknown(c, &mut op, defs)?,
    }
    Ok(op)
}

/// `true`, `1 : i32`, `dense<..> : tensor<..>`.
fn constant<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    op.attrs.extend(c.attr_dict()?);
    let at = c.at;
    let value = c.attr()?;
    let ty = match &value {
        Attr::Bool(_) => Type::scalar(Scalar::BOOL),
        Attr::Int(_, ty) | Attr::Float(_, ty) | Attr::Elements(_, ty) => ty.clone(),
        _ => return Err(c.error_at(at, "expected a number or `dense<..>`")),
    };
    op.set("value", value);
    op.result_types = vec![ty];
    Ok(())
}

/// `%cond, %a, %b : T` or `%cond, %a, %b : C, T`.
fn select<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    let types = c.type_list()?;
    if let [cond, ty] = types.as_slice() {
        op.operand_types = Some(vec![cond.clone(), ty.clone(), ty.clone()]);
    }
    op.result_types = types.last().cloned().into_iter().collect();
    Ok(())
}

/// `slt, %a, %b : T`.
fn compare<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    let predicate = c.word("a comparison")?;
    let Some(number) = lower_op::predicate_number(&op.name, predicate) else {
        return Err(c.error(format!("`{predicate}` is not a comparison of {}", op.name)));
    };
    op.set("predicate", number_attr(number));
    c.expect(",")?;
    operands_then(c, op)?;
    let ty = c.ty()?;
    let bools = ty.with_elem(Elem::Scalar(Scalar::BOOL)).ok_or_else(|| c.error(format!("{ty} has no order")))?;
    op.operand_types = Some(vec![ty.clone(), ty]);
    op.result_types = vec![bools];
    Ok(())
}

/// `x : i32`.
fn program_axis<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    let axis = match c.word("`x`, `y` or `z`")? {
        "x" => 0,
        "y" => 1,
        "z" => 2,
        other => return Err(c.error(format!("expected `x`, `y` or `z`, found `{other}`"))),
    };
    op.set("axis", number_attr(axis));
    op.attrs.extend(c.attr_dict()?);
    c.expect(":")?;
    op.result_types = vec![c.ty()?];
    Ok(())
}

/// `%p, %o : P, O`.
fn add_ptr<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    let types = c.type_list()?;
    op.result_types = types.first().cloned().into_iter().collect();
    op.operand_types = Some(types);
    Ok(())
}

/// `%p[, %mask[, %other]] [cacheModifier = ..] {..} : P`.
fn load<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    let ptr = c.ty()?;
    let Some(pointee) = ptr.pointee() else {
        // A pointer to a tensor: the result is that tensor.
        let Type::Other(text) = &ptr else { return Err(c.error(format!("expected a pointer, found {ptr}"))) };
        let inner = text.strip_prefix("!tt.ptr<").and_then(|t| t.strip_suffix('>')).unwrap_or_default().to_owned();
        let mut inside = Cursor::new(&inner);
        op.result_types = vec![inside.ty().map_err(|_| c.error(format!("expected a pointer, found {ptr}")))?];
        return Ok(());
    };
    op.result_types = ptr.with_elem(Elem::Scalar(pointee)).into_iter().collect();
    Ok(())
}

/// `%p, %v[, %mask] {..} : P`.
fn store<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    c.ty()?;
    Ok(())
}

/// `add, acq_rel, gpu, %p, %v, %m : (..) -> T`.
fn atomic<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    let mut fields = vec!["sem", "scope"];
    if op.name == "tt.atomic_rmw" {
        fields.insert(0, "atomic_rmw_op");
    }
    for field in fields {
        let word = c.word("a keyword of the atomic")?;
        let Some(number) = lower_op::keyword_number(field, word) else {
            return Err(c.error(format!("`{word}` is not a value of {field}")));
        };
        op.set(field, number_attr(number));
        c.expect(",")?;
    }
    op.operands = values(c)?;
    op.attrs.extend(c.attr_dict()?);
    signature(c, op)
}

/// `%a, %b, %acc[, inputPrecision = tf32] {..} : A * B -> C`.
fn dot<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    let a = c.ty()?;
    c.expect("*")?;
    let b = c.ty()?;
    c.expect("->")?;
    let acc = c.ty()?;
    op.operand_types = Some(vec![a, b, acc.clone()]);
    op.result_types = vec![acc];
    Ok(())
}

/// `%a [scale %sa], %b [scale %sb], %acc lhs = e4m3 rhs = e4m3 {..} : A[, SA] * B[, SB] -> C`.
fn dot_scaled<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    let mut scales = Vec::new();
    let mut segments = vec![1, 1, 1];
    for _ in 0..2 {
        op.operands.push(value(c)?);
        let scaled = c.eat_word("scale");
        if scaled {
            scales.push(value(c)?);
        }
        segments.push(i64::from(scaled));
        c.expect(",")?;
    }
    op.operands.push(value(c)?);
    op.operands.extend(scales);
    for (side, field) in [("lhs", "a_elem_type"), ("rhs", "b_elem_type")] {
        keyword(c, side)?;
        c.expect("=")?;
        let word = c.word("an element format")?;
        let Some(number) = lower_op::keyword_number(field, word) else {
            return Err(c.error(format!("`{word}` is not a format of tt.dot_scaled")));
        };
        op.set(field, number_attr(number));
    }
    op.set("operandSegmentSizes", Attr::Dense(segments));
    op.attrs.extend(c.attr_dict()?);
    c.expect(":")?;
    c.type_list()?;
    c.expect("*")?;
    c.type_list()?;
    c.expect("->")?;
    op.result_types = vec![c.ty()?];
    Ok(())
}

/// `%x[%indices] {axis = 0 : i32} : (X, I) -> T`.
fn gather<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    op.operands.push(value(c)?);
    c.expect("[")?;
    op.operands.push(value(c)?);
    c.expect("]")?;
    op.attrs.extend(c.attr_dict()?);
    signature(c, op)
}

/// `@callee(%a, ..) : (..) -> T`.
fn call<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    c.expect("@")?;
    let callee = c.symbol()?;
    op.set("callee", Attr::Symbol(callee));
    c.expect("(")?;
    op.operands = c.list(")", value)?;
    op.attrs.extend(c.attr_dict()?);
    signature(c, op)
}

/// `"asm" {..} %a, %b : T, U -> R`; without operands `"asm" {..} -> R`.
fn inline_asm<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    let asm = c.string()?;
    op.set("asm_string", Attr::Str(asm));
    op.attrs.extend(c.attr_dict()?);
    if !c.peek("->") {
        op.operands = values(c)?;
        c.expect(":")?;
        if !c.peek("->") {
            op.operand_types = Some(c.type_list()?);
        }
    }
    c.expect("->")?;
    op.result_types = c.type_list()?;
    Ok(())
}

/// `%cond, "message" : T` or `"prefix" {..} : %a, %b : T, U`.
fn message<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    if op.name == "tt.assert" {
        op.operands.push(value(c)?);
        c.expect(",")?;
        let text = c.string()?;
        op.set("message", Attr::Str(text));
        op.attrs.extend(c.attr_dict()?);
        c.expect(":")?;
        op.operand_types = Some(vec![c.ty()?]);
        return Ok(());
    }
    let text = c.string()?;
    op.set("prefix", Attr::Str(text));
    op.attrs.extend(c.attr_dict()?);
    if c.eat(":") {
        op.operands = values(c)?;
        c.expect(":")?;
        op.operand_types = Some(c.type_list()?);
    }
    Ok(())
}

/// `%base, [%n, ..], [%s, ..] {..} : <f16>, <64x64xf16>`; both types may have lost their prefix.
fn make_desc<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    op.operands.push(value(c)?);
    for _ in 0..2 {
        c.expect(",")?;
        c.expect("[")?;
        op.operands.extend(c.list("]", value)?);
    }
    op.attrs.extend(c.attr_dict()?);
    c.expect(":")?;
    if c.peek("<") {
        c.ptr_args()?;
    } else {
        c.ty()?;
    }
    c.expect(",")?;
    op.result_types = vec![if c.peek("<") { c.desc_args()? } else { c.ty()? }];
    Ok(())
}

/// `[add,] %desc[%i, %j][, %value] {..} : types`, in the order of the generic form.
fn descriptor<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    if op.name == "tt.descriptor_reduce" {
        let word = c.word("a reduction")?;
        let Some(number) = lower_op::keyword_number("kind", word) else {
            return Err(c.error(format!("`{word}` is not a descriptor reduction")));
        };
        op.set("kind", number_attr(number));
        c.expect(",")?;
    }
    let desc = value(c)?;
    c.expect("[")?;
    let indices = c.list("]", value)?;
    let stored = if c.eat(",") { Some(value(c)?) } else { None };
    op.operands.push(desc);
    if op.name == "tt.descriptor_scatter" {
        op.operands.extend(indices);
        op.operands.extend(stored);
    } else {
        op.operands.extend(stored);
        op.operands.extend(indices);
    }
    loose_attrs(c, op)?;
    c.expect(":")?;
    if c.eat("(") {
        c.list(")", Cursor::ty)?;
    } else {
        c.type_list()?;
    }
    if c.eat("->") {
        op.result_types = c.result_types()?;
    }
    Ok(())
}

/// `%x, %lo, %hi, propagateNan = none : T`.
fn clamp<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    let ty = c.ty()?;
    op.operand_types = Some(vec![ty.clone(); op.operands.len()]);
    op.result_types = vec![ty];
    Ok(())
}

/// `%a, %b : T, U` or nothing, without results.
fn yield_like<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    op.operands = values(c)?;
    op.attrs.extend(c.attr_dict()?);
    if !op.operands.is_empty() {
        c.expect(":")?;
        op.operand_types = Some(c.type_list()?);
    }
    Ok(())
}

/// `%a, %b [fastmath<..>] {..} : T`, where operands and result share the type.
fn same_type<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    let ty = c.ty()?;
    op.operand_types = Some(vec![ty.clone(); op.operands.len()]);
    op.result_types = vec![ty];
    Ok(())
}

/// `%a, .. {..} : T, .. to U` or `-> U`.
fn conversion<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    operands_then(c, op)?;
    let types = c.type_list()?;
    if types.len() == op.operands.len() {
        op.operand_types = Some(types);
    }
    if !c.eat("->") {
        keyword(c, "to")?;
    }
    op.result_types = vec![c.ty()?];
    Ok(())
}

/// Reads an operation of unknown syntax up to the end of its line.
fn unknown<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>, defs: &[Def<'a>]) -> Result<()> {
    if op.name.starts_with("ttg.") || op.name.starts_with("ttng.") || op.name.starts_with("triton_gpu.") {
        let message = format!("expected TTIR, found the operation {}: the file is TTGIR", op.name);
        return Err(c.error_at(op.at, message));
    }
    let start = c.at;
    for (from, _) in c.skip_unknown()? {
        let mut at = *c;
        at.at = from;
        op.operands.push(value(&mut at)?);
    }
    let text = &c.text[start..c.at];
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if !text.is_empty() {
        op.set("text", Attr::Str(text));
    }
    let wanted = defs.iter().fold(0usize, |n, d| n.saturating_add(d.count));
    op.result_types = match (wanted, trailing_types(c, start)) {
        (0, _) => Vec::new(),
        (n, Some(types)) if types.len() == n => types,
        (n, Some(types)) if types.len() == 1 && n <= 16 => vec![types[0].clone(); n],
        _ => {
            let message = format!("{} is not known here, and its result types are not printed", op.name);
            return Err(c.error_at(op.at, message));
        }
    };
    Ok(())
}

/// The types after the last `->`, ` to ` or `:` of an operation's text.
fn trailing_types(c: &Cursor<'_>, start: usize) -> Option<Vec<Type>> {
    let text = &c.text[start..c.at];
    let after = |mark: &str| text.rfind(mark).map(|i| start + i + mark.len());
    let from = [after("->"), after(" to "), after(":")].into_iter().flatten().max()?;
    let mut at = *c;
    at.at = from;
    let types = if at.peek("(") {
        at.result_types().ok()?
    } else if at.peek("<") {
        vec![at.ptr_args().ok()?]
    } else {
        at.type_list().ok()?
    };
    // Reading a type also skips the blanks behind it, which are no longer the operation's.
    (at.at <= c.at || c.text[c.at..at.at].trim().is_empty()).then_some(types)
}

/// `: (T, ..) -> R`.
fn signature<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    c.expect(":")?;
    c.expect("(")?;
    op.operand_types = Some(c.list(")", Cursor::ty)?);
    c.expect("->")?;
    op.result_types = c.result_types()?;
    Ok(())
}

/// `%a, %b`, possibly none.
pub(super) fn values<'a>(c: &mut Cursor<'a>) -> Result<Vec<Use<'a>>> {
    let mut out = Vec::new();
    while c.peek("%") {
        out.push(value(c)?);
        let mut ahead = *c;
        if !(ahead.eat(",") && ahead.peek("%")) {
            break;
        }
        c.expect(",")?;
    }
    Ok(out)
}

/// Operands, loose attributes, `:`.
fn operands_then<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    op.operands = values(c)?;
    loose_attrs(c, op)?;
    c.expect(":")
}

/// `overflow<nsw>`, `, rounding = rtne`, `allow_reorder`, `{axis = 0 : i32}` in any order.
fn loose_attrs<'a>(c: &mut Cursor<'a>, op: &mut RawOp<'a>) -> Result<()> {
    loop {
        if c.peek("{") || c.peek("<{") {
            op.attrs.extend(c.attr_dict()?);
            continue;
        }
        let comma = c.eat(",");
        let word = c.peek_word();
        if word.is_empty() {
            return if comma { Err(c.expected("an attribute after `,`")) } else { Ok(()) };
        }
        c.at += word.len();
        if c.eat("=") {
            let keyword = c.word("a keyword")?;
            let value = match lower_op::keyword_number(word, keyword) {
                Some(number) => number_attr(number),
                None => Attr::Str(keyword.to_owned()),
            };
            op.set(word, value);
        } else if c.rest().starts_with('<') {
            let args = c.balanced()?;
            let name = match word {
                "overflow" => "overflowFlags",
                other => other,
            };
            op.set(name, Attr::Other(format!("#arith.{word}{args}")));
        } else {
            op.set(word, Attr::Unit);
        }
    }
}

pub(super) fn keyword(c: &mut Cursor<'_>, word: &str) -> Result<()> {
    if c.eat_word(word) { Ok(()) } else { Err(c.expected(&format!("`{word}`"))) }
}

fn number_attr(value: i64) -> Attr {
    Attr::Int(value.into(), Type::scalar(Scalar::I32))
}

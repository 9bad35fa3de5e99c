//! Whether inline PTX computes a function of its operands, lane by lane.
//!
//! `pure` is a promise of the kernel's author that the compiler takes on trust; here it is not enough: pure assembly may still read the
//! number of its multiprocessor, a clock, memory, or a neighbouring lane. So only arithmetic on registers that were written before is accepted.

use std::collections::BTreeSet;

/// Instructions whose results hang on their operands alone (PTX ISA, the arithmetic, comparison, logic and conversion instructions, and
/// `mov` between registers). Not among them: what reads memory, other lanes, special registers or the carry flag.
const FUNCTIONS: &str = "abs add and bfe bfi bfind bmsk brev clz cnot copysign cos cvt div dp2a dp4a ex2 fma lg2 lop3 mad mad24 max min mov \
                         mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub szext tanh testp xor";

/// True if every instruction of `asm` is arithmetic on operands and on registers that it has written itself. `constraints` are LLVM's:
/// outputs first, each with `=`.
pub(super) fn is_function(asm: &str, constraints: &str) -> bool {
    let parts: Vec<&str> = constraints.split(',').map(str::trim).collect();
    let outputs = parts.iter().filter(|c| c.starts_with('=')).count();
    let inputs = parts.iter().filter(|c| !c.starts_with(['=', '~']));
    // An input tied to an output arrives in the output's register.
    let tied = inputs.clone().filter_map(|c| c.parse::<usize>().ok()).map(|n| format!("${n}"));
    let mut written: BTreeSet<String> = tied.collect();
    written.extend((0..inputs.count()).map(|i| format!("${}", outputs + i)));
    let Some(text) = without_comments(asm) else { return false };
    let body = text.trim();
    let body = body.strip_prefix('{').and_then(|b| b.strip_suffix('}')).unwrap_or(body);
    body.split(';').all(|statement| is_arithmetic(statement.trim(), &mut written))
}

/// One statement: a declaration, or an instruction that reads only what is written and adds what it writes.
fn is_arithmetic(statement: &str, written: &mut BTreeSet<String>) -> bool {
    if statement.is_empty() || statement.starts_with(".reg") {
        return true;
    }
    // A predicated instruction may leave its result as it was, so what it writes counts as written only if it was before.
    let (guard, statement) = match statement.strip_prefix('@') {
        Some(rest) => match rest.split_once(char::is_whitespace) {
            Some((guard, rest)) => (Some(guard.trim_start_matches('!')), rest.trim_start()),
            None => return false,
        },
        None => (None, statement),
    };
    let Some((opcode, operands)) = statement.split_once(char::is_whitespace) else { return false };
    let name = opcode.split('.').next().unwrap_or_default();
    let carry = opcode.split('.').any(|part| part == "cc");
    if carry || !FUNCTIONS.split_whitespace().any(|f| f == name) {
        return false;
    }
    let mut list = split_operands(operands).into_iter();
    let Some(result) = list.next() else { return false };
    let known = |operand: &str| registers(operand).all(|r| is_number(r) || written.contains(r));
    let results: Vec<String> = registers(result).map(str::to_owned).collect();
    let reads = list.all(known) && guard.is_none_or(known);
    let kept = guard.is_none() || known(result);
    written.extend(results);
    reads && kept
}

/// Operands between commas that are not within braces.
fn split_operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut out) = (0usize, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

/// The registers and numbers of one operand: `x`, `-x`, `!p`, `p|q`, `{lo, hi}`.
fn registers(operand: &str) -> impl Iterator<Item = &str> {
    operand.split(|c: char| c.is_whitespace() || "{},|!-".contains(c)).filter(|r| !r.is_empty() && *r != "_")
}

/// A literal: PTX writes binary32 as `0f3F800000`.
fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '+')
}

/// `None` if a comment does not end.
fn without_comments(asm: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = asm;
    loop {
        let line = rest.find("//");
        let block = rest.find("/*");
        let (at, end, len) = match (line, block) {
            (None, None) => break,
            (Some(l), b) if b.is_none_or(|b| l < b) => (l, rest[l..].find('\n').map_or(rest.len(), |e| l + e), 0),
            (_, Some(b)) => (b, b + 2 + rest[b + 2..].find("*/")?, 2),
            (Some(_), None) => break,
        };
        out.push_str(&rest[..at]);
        out.push(' ');
        rest = &rest[end + len..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::is_function;

    #[test]
    fn arithmetic_on_operands_is_a_function() {
        for (asm, constraints) in [
            ("ex2.approx.ftz.f32 $0, $1;", "=f,f"),
            ("{ .reg .b32 t; // a copy\n mul.f32 t, $1, $2; fma.rn.f32 $0, t, t, 0f3F800000; }", "=f,f,f"),
            ("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "=h,f,f"),
            ("{ .reg .pred p; setp.lt.f32 p, $1, $2; selp.f32 $0, $1, $2, p; }", "=f,f,f"),
            ("mov.b64 {$0, $1}, $2;", "=r,=r,l"),
            ("{ .reg .pred p; setp.lt.f32 p, $1, $2; mov.f32 $0, $1; @!p mov.f32 $0, $2; }", "=f,f,f"),
            ("add.f32 $0, $0, $2;", "=f,0,f"),
        ] {
            assert!(is_function(asm, constraints), "{asm}");
        }
    }

    #[test]
    fn all_else_is_not() {
        for (asm, constraints) in [
            ("mov.u32 $0, %smid;", "=r,r"),
            ("mov.u64 $0, %globaltimer;", "=l"),
            ("mov.u32 $0, %laneid; // $1", "=r,r"),
            ("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "=r,r"),
            ("ld.global.f32 $0, [$1];", "=f,l"),
            ("mov.u64 $0, buffer;", "=l"),
            ("vote.sync.any.pred $0, $1, -1;", "=r,r"),
            ("atom.global.add.f32 $0, [$1], $2;", "=f,l,f"),
            ("{ .reg .b32 t; add.s32 $0, $1, t; }", "=r,r"),
            ("add.s32 $0, $0, $1;", "=r,r"),
            ("addc.s32 $0, $1, $2;", "=r,r,r"),
            ("add.cc.s32 $0, $1, $2;", "=r,r,r"),
            ("{ .reg .pred p; setp.lt.f32 p, $1, $2; @p mov.f32 $0, $1; }", "=f,f,f"),
            ("@q mov.f32 $0, $1;", "=f,f"),
            ("bra there;", "=f,f"),
            ("there: mov.f32 $0, $1;", "=f,f"),
            ("mov.f32 $0, $1; /* open", "=f,f"),
            ("ex2.approx.f32", "=f,f"),
        ] {
            assert!(!is_function(asm, constraints), "{asm}");
        }
    }
}

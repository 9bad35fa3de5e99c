//! What the compiler left beside a `.ttir`: the layouts that order its reductions, and how it was compiled.
//!
//! TTIR does not fix the order inside `tt.reduce` and `tt.scan`. The sibling `.ttgir` does: the operand of every reduction there has an
//! encoding, and encoding, shape, axis, warps, target and compiler decide the order. So the name of an order is the list of all
//! reductions of the kernel with their encodings. The cache's `.json` alone names no layout; its hash stands for one compilation, so
//! that only copies of one compiled kernel share it.

use std::fmt::Write;
use std::path::Path;

/// Largest file that is read.
const BYTES_MAX: u64 = 16 << 20;

/// What is known of a compiled kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// Names the order inside its reductions.
    pub order: Option<String>,
    /// The reductions of the `.ttgir` with their layouts, for people.
    pub reductions: Vec<String>,
    /// The MMA instructions of the `.ttgir`: version and shape.
    pub instructions: Option<Vec<String>>,
    /// Such as `cuda:90`.
    pub target: Option<String>,
    /// Version of Triton.
    pub version: Option<String>,
    /// False if the compiler was told not to contract `a * b + c`.
    pub fusion: Option<bool>,
}

/// Reads the `.ttgir` and the `.json` beside a TTIR file whose kernel has this name; `None` if there is neither.
///
/// # Errors
/// A sibling that cannot be read, or that belongs to another kernel: it must not vouch for this one.
pub fn beside(ttir: &Path, kernel: &str) -> Result<Option<Compiled>, String> {
    let (ttgir, json) = (ttir.with_extension("ttgir"), ttir.with_extension("json"));
    let (ttgir_text, json_text) = (read(&ttgir)?, read(&json)?);
    let mut out = Compiled::default();
    if let Some(text) = &json_text {
        of_json(text, kernel, &mut out).map_err(|e| format!("{}: {e}", json.display()))?;
    }
    if let Some(text) = &ttgir_text {
        of_ttgir(text, kernel, &mut out).map_err(|e| format!("{}: {e}", ttgir.display()))?;
    }
    Ok((ttgir_text.is_some() || json_text.is_some()).then_some(out))
}

fn read(path: &Path) -> Result<Option<String>, String> {
    let fault = |e: std::io::Error| format!("{}: {e}", path.display());
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fault(e)),
        Ok(m) if m.len() > BYTES_MAX => {
            return Err(format!("{}: {} bytes, at most {BYTES_MAX} are read", path.display(), m.len()));
        }
        Ok(_) => {}
    }
    std::fs::read_to_string(path).map(Some).map_err(fault)
}

/// The metadata of Triton's cache.
fn of_json(text: &str, kernel: &str, out: &mut Compiled) -> Result<(), String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let word = |key: &str| value.get(key).and_then(|v| v.as_str()).map(str::to_owned);
    if let Some(name) = word("name")
        && name != kernel
    {
        return Err(format!("expected the metadata of {kernel}, got that of {name}"));
    }
    if let Some(target) = value.get("target") {
        let part = |key: &str| target.get(key).map(|v| v.to_string().trim_matches('"').to_owned());
        out.target = part("backend").zip(part("arch")).map(|(backend, arch)| format!("{backend}:{arch}"));
    }
    out.version = word("triton_version");
    out.fusion = value.get("enable_fp_fusion").and_then(serde_json::Value::as_bool);
    out.order = word("hash").map(|hash| format!("compilation {hash}"));
    Ok(())
}

/// The reductions in TTGIR text, each with its attributes and the types of its operands, encodings written out.
fn of_ttgir(text: &str, kernel: &str, out: &mut Compiled) -> Result<(), String> {
    let mut aliases: Vec<(&str, &str)> = Vec::new();
    let mut module = None;
    let mut named = None;
    let mut open: Vec<&str> = Vec::new();
    let mut found: Vec<(String, &str)> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some((name, body)) = line.split_once(" = ").filter(|(n, _)| n.starts_with('#') && !n.starts_with("#loc"))
        {
            aliases.push((name, body.trim()));
        }
        if trimmed.starts_with("module") {
            module = module.or(Some(trimmed));
        }
        if let Some(rest) = trimmed.strip_prefix("tt.func public @") {
            named = named.or(rest.split('(').next());
        }
        if let Some(at) = line.find("\"tt.reduce\"(").or_else(|| line.find("\"tt.scan\"(")) {
            open.push(&line[at..]);
        }
        if trimmed.starts_with("}) :")
            && let Some(start) = open.pop()
        {
            let word = start.split('(').next().unwrap_or("").trim_matches('"');
            let attributes = start.find("<{").and_then(|i| Some(&start[i..i + start[i..].find("}>")? + 2]));
            let types = trimmed[4..].split("->").next().unwrap_or("").trim();
            found.push((format!("{word} {} of", attributes.unwrap_or("")), types));
        }
    }
    let module = module.filter(|m| m.contains("ttg.")).ok_or("expected a TTGIR module, with ttg attributes")?;
    let named = named.ok_or("expected a public function")?;
    if named != kernel {
        return Err(format!("expected the TTGIR of {kernel}, got that of {named}"));
    }
    // Longest names first, so that #blocked1 is not taken for #blocked; twice, because an encoding may name another.
    aliases.sort_by_key(|(n, _)| std::cmp::Reverse(n.len()));
    let expand = |text: &str| (0..2).fold(text.to_owned(), |t, _| aliases.iter().fold(t, |t, (n, b)| t.replace(n, b)));
    out.reductions = found.iter().map(|(what, types)| format!("{what} {}", expand(types))).collect();
    let bare: Vec<String> = found.iter().map(|(what, types)| format!("{what} {}", shapes(types))).collect();
    let mut instructions: Vec<String> = aliases.iter().filter_map(|(_, body)| instruction(body)).collect();
    instructions.sort();
    instructions.dedup();
    out.instructions = Some(instructions);
    let setting = |key: &str| {
        let at = module.find(key)? + key.len();
        Some(module[at..].trim_start_matches([' ', '=']).split([',', '}', ' ']).next()?.trim_matches('"').to_owned())
    };
    let target = setting("ttg.target");
    if let (Some(a), Some(b)) = (&out.target, &target)
        && a != b
    {
        return Err(format!("the .json beside it was made for {a}, this for {b}"));
    }
    out.target = target.or(out.target.take());
    let mut order = String::new();
    for (name, key) in
        [("warps", "\"ttg.num-warps\""), ("ctas", "\"ttg.num-ctas\""), ("threads", "\"ttg.threads-per-warp\"")]
    {
        let _ = write!(order, "{name}={} ", setting(key).ok_or_else(|| format!("expected {key} in the module"))?);
    }
    let version = out.version.as_deref().unwrap_or("?");
    let _ = write!(order, "target={} triton={version} ", out.target.as_deref().unwrap_or("?"));
    order += &out.reductions.join(" | ");
    // Where two reductions of one shape have two layouts, this does not say which of a tree's reductions is which: only copies are alike.
    let alike = |i: usize, k: usize| bare[i] == bare[k] && out.reductions[i] != out.reductions[k];
    if (0..bare.len()).any(|i| (0..i).any(|k| alike(i, k))) {
        let _ = write!(order, " in {}", blake3::hash(text.as_bytes()));
    }
    out.order = Some(order);
    Ok(())
}

/// The types of operands without their encodings.
fn shapes(types: &str) -> String {
    let part = |t: &str| t.split(", #").next().unwrap_or_default().to_owned();
    types.split("tensor<").map(part).collect::<Vec<_>>().join(" ")
}

/// Version and shape in the encoding of a matrix product: how warps share the tile changes no element.
fn instruction(encoding: &str) -> Option<String> {
    let (kind, rest) = encoding.split_once("mma<{")?;
    let field = |key: &str| {
        let at = rest.find(key)?;
        let end = rest[at..].find([']', '}']).map_or(rest.len(), |e| at + e);
        Some(if key.contains('[') { &rest[at..end] } else { rest[at..end].split(',').next().unwrap_or_default() })
    };
    let parts = ["versionMajor = ", "instrShape = ["].map(|k| field(k).unwrap_or_default());
    Some(format!("{kind}mma {} {}", parts[0], parts[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTGIR: &str = "#blocked = #ttg.blocked<{sizePerThread = [4]}>\n#blocked1 = #ttg.blocked<{sizePerThread = [1]}>\n\
        module attributes {\"ttg.num-ctas\" = 1 : i32, \"ttg.num-warps\" = 4 : i32, ttg.target = \"cuda:90\", \"ttg.threads-per-warp\" = 32 : i32} {\n\
        tt.func public @k(%x: i32) {\n    %1 = \"tt.reduce\"(%0) <{axis = 0 : i32}> ({\n    \
        }) : (tensor<1024xf32, #ttg.slice<{dim = 1, parent = #blocked1}>>) -> f32\n}\n}\n";

    fn ttgir(text: &str, kernel: &str) -> Result<Compiled, String> {
        let mut out = Compiled::default();
        of_ttgir(text, kernel, &mut out).map(|()| out)
    }

    #[test]
    fn the_encoding_of_a_reduction_is_its_order() {
        let order = ttgir(TTGIR, "k").expect("TTGIR").order.expect("an order");
        assert!(order.contains("warps=4") && order.contains("parent = #ttg.blocked<{sizePerThread = [1]}>"), "{order}");
        assert!(!order.contains("[4]"), "{order}");
        assert_ne!(ttgir(&TTGIR.replace("[1]", "[2]"), "k").expect("TTGIR").order, Some(order.clone()));
        assert_ne!(ttgir(&TTGIR.replace("axis = 0", "axis = 1"), "k").expect("TTGIR").order, Some(order));
    }

    #[test]
    fn two_layouts_of_one_shape_are_those_of_one_text() {
        let start = TTGIR.find("    %1").expect("a reduction");
        let end = TTGIR.find("}\n}\n").expect("an end");
        let one = &TTGIR[start..end];
        let of = |first: &str, second: &str| {
            let text = format!("{}{first}{second}{}", &TTGIR[..start], &TTGIR[end..]);
            ttgir(&text, "k").expect("TTGIR").order.expect("an order")
        };
        let renamed = one.replace("%1", "%2");
        // Of one layout: names do not matter.
        assert_eq!(of(one, one), of(&renamed, one));
        // Of two: the first may be the sum of x here and that of y there.
        let other = one.replace("#blocked1", "#blocked");
        assert_eq!(of(one, &other), of(one, &other));
        assert_ne!(of(one, &other), of(&renamed, &other));
        // Of two shapes: each is told by its shape.
        let wide = other.replace("1024", "2048");
        assert_eq!(of(one, &wide), of(&renamed, &wide));
    }

    #[test]
    fn a_sibling_of_another_kernel_is_refused() {
        let e = ttgir(TTGIR, "other").expect_err("another kernel");
        assert_eq!(e, "expected the TTGIR of other, got that of k");
        assert!(ttgir("module {\n}\n", "k").is_err());
        let e = of_json("{\"name\": \"f\"}", "k", &mut Compiled::default()).expect_err("another kernel");
        assert_eq!(e, "expected the metadata of k, got that of f");
        assert!(of_json("[", "k", &mut Compiled::default()).is_err());
    }

    #[test]
    fn metadata_alone_is_one_compilation() {
        let mut out = Compiled::default();
        let text = "{\"hash\": \"ab\", \"target\": {\"backend\": \"cuda\", \"arch\": 90}, \"enable_fp_fusion\": true}";
        of_json(text, "k", &mut out).expect("metadata");
        assert_eq!((out.order.as_deref(), out.target.as_deref()), (Some("compilation ab"), Some("cuda:90")));
        assert_eq!(out.fusion, Some(true));
    }
}

//! The compiled layout of reductions, from what the compiler leaves beside the TTIR.
//!
//! TTIR does not fix the order inside `tt.reduce` and `tt.scan`. The sibling `.ttgir` does: every reduction there has an operand type with
//! an encoding. The layout's name is the list of encodings of its reductions, with the number of warps. The cache's `.json` names only
//! warps, target and version; together with the same argument specialisation that is a weaker key, used when there is no `.ttgir`.

use std::path::Path;

/// A name for the layouts of all reductions of a compiled kernel, and what was read.
pub fn beside(ttir: &Path) -> Option<String> {
    let ttgir = ttir.with_extension("ttgir");
    if let Some(text) = read(&ttgir) {
        return Some(of_ttgir(&text));
    }
    let json = read(&ttir.with_extension("json"))?;
    let value: serde_json::Value = serde_json::from_str(&json).ok()?;
    let mut parts = Vec::new();
    for key in ["num_warps", "num_ctas", "target", "enable_fp_fusion", "triton_version", "ptx_version"] {
        if let Some(v) = value.get(key) {
            parts.push(format!("{key}={v}"));
        }
    }
    // Two variants with equal options may still be specialised differently: the hash of the source keeps them apart.
    if let Some(v) = value.get("hash") {
        parts.push(format!("hash={v}"));
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// At most 16 MiB of a text file.
fn read(path: &Path) -> Option<String> {
    let size = std::fs::metadata(path).ok()?.len();
    if size > 16 << 20 {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

/// The layouts of the reductions in TTGIR text: encodings of the operands of `tt.reduce` and `tt.scan`, in order.
pub fn of_ttgir(text: &str) -> String {
    let mut aliases: Vec<(&str, &str)> = Vec::new();
    let mut warps = "?";
    let mut out = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some((name, body)) = line.split_once(" = ").filter(|(n, _)| n.starts_with('#') && !n.starts_with("#loc"))
        {
            aliases.push((name, body.trim()));
        }
        if let Some(at) = line.find("\"ttg.num-warps\" = ") {
            warps = line[at + 18..].split([' ', ',', '}']).next().unwrap_or("?");
        }
        inside |= line.contains("\"tt.reduce\"") || line.contains("\"tt.scan\"");
        if inside && line.trim_start().starts_with("}) :") {
            inside = false;
            let types = line.split("->").next().unwrap_or("");
            let mut layout = types[types.find('(').unwrap_or(0)..].trim().to_owned();
            if let Some(end) = layout.rfind(')') {
                layout.truncate(end + 1);
            }
            // Longest names first, so that #blocked1 is not taken for #blocked.
            let mut sorted = aliases.clone();
            sorted.sort_by_key(|(n, _)| std::cmp::Reverse(n.len()));
            for (name, body) in sorted {
                layout = layout.replace(name, body);
            }
            out.push(layout);
        }
    }
    format!("warps={warps} {}", out.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_of_a_reduction_is_its_layout() {
        let text = "#blocked = #ttg.blocked<{sizePerThread = [4]}>\n#blocked1 = #ttg.blocked<{sizePerThread = [1]}>\n\
                    module attributes {\"ttg.num-warps\" = 4 : i32} {\n    %1 = \"tt.reduce\"(%0) <{axis = 0 : i32}> ({\n    \
                    }) : (tensor<1024xf32, #blocked1>) -> f32\n}\n";
        let layout = of_ttgir(text);
        assert!(layout.contains("warps=4") && layout.contains("sizePerThread = [1]"), "{layout}");
        assert!(!layout.contains("[4]"), "{layout}");
    }
}

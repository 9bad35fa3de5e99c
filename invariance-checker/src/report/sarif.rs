//! SARIF 2.1.0, for code scanning in CI: a result for every kernel that is not INVARIANT.

use crate::check::{Report, Verdict};
use serde_json::{Value, json};
use std::path::Path;

/// What a result can be, and what to do about it.
const RULES: [(&str, &str, &str); 3] = [
    (
        "variant",
        "Two launches store different bits for one row",
        "Run with --explain to see both launches and where their trees part. What orders the additions must not hang on the batch.",
    ),
    (
        "unknown",
        "Batch invariance is neither proved nor refuted",
        "Run with --explain to see what was not understood. --batch-args and --fixed-args say which arguments differ between batches.",
    ),
    (
        "under",
        "Batch invariant only under conditions",
        "Where a condition holds for every launch, accept it by name with --allow or in a contract.",
    ),
];

/// The log of a run over several files.
pub fn log(reports: &[(&str, &Report)]) -> Value {
    let rule = |(id, text, help): &(&str, &str, &str)| json!({"id": id, "shortDescription": {"text": text}, "fullDescription": {"text": text}, "help": {"text": help}});
    let rules: Vec<Value> = RULES.iter().map(rule).collect();
    let results: Vec<Value> = reports.iter().filter_map(|(file, r)| result(file, r)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "invariance-checker", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    })
}

fn result(file: &str, r: &Report) -> Option<Value> {
    let (rule, level) = match r.verdict {
        Verdict::Invariant => return None,
        Verdict::Variant => ("variant", "error"),
        Verdict::Unknown => ("unknown", "warning"),
        Verdict::Under => ("under", "note"),
    };
    let mut text = format!("{}: {}", r.kernel, r.verdict.text());
    for reason in &r.reasons {
        text.push_str(&format!("; {}", reason.text));
    }
    if let Some(w) = &r.witness {
        text.push_str(&format!("; {}: {} is {} or {}", w.change, w.element, w.bits[0], w.bits[1]));
    }
    for c in r.conditions.iter().filter(|c| !c.layout && !c.allowed) {
        text.push_str(&format!("; {}: {}", c.name, c.text));
    }
    let line =
        r.reasons.iter().map(|x| x.line).find(|l| *l > 0).or_else(|| r.outputs.first().map(|o| o.line)).unwrap_or(1);
    let mut locations = vec![location(file, line)];
    let source =
        r.reasons.iter().find_map(|x| x.source.clone()).or_else(|| r.outputs.iter().find_map(|o| o.source.clone()));
    if let Some((path, line)) = source.as_deref().and_then(split_place) {
        locations.insert(0, location(path, line));
    }
    Some(json!({
        "ruleId": rule,
        "ruleIndex": RULES.iter().position(|(id, ..)| *id == rule),
        "level": level,
        "message": {"text": text},
        "locations": locations,
        // Ties the alerts of two runs together; the message names launches, which another run may choose differently.
        "partialFingerprints": {"kernel/v1": format!("{rule} {}", r.kernel)},
    }))
}

fn location(path: &str, line: u32) -> Value {
    let uri = uri(path, std::env::current_dir().ok().as_deref());
    json!({"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line.max(1)}}})
}

/// `file:line:column`.
fn split_place(place: &str) -> Option<(&str, u32)> {
    let (rest, _column) = place.rsplit_once(':')?;
    let (path, line) = rest.rsplit_once(':')?;
    Some((path, line.parse().ok()?))
}

/// A path as a URI reference: relative to the folder of the run, since Triton writes whole paths and code scanning knows those of the
/// repository.
fn uri(path: &str, here: Option<&Path>) -> String {
    let inside = here.and_then(|h| Path::new(path).strip_prefix(h).ok()).and_then(Path::to_str);
    let path = inside.unwrap_or(path);
    let mut out = String::from(if Path::new(path).is_absolute() { "file://" } else { "" });
    for byte in path.replace('\\', "/").bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_uri() {
        assert_eq!(uri("a dir/k#1.ttir", None), "a%20dir/k%231.ttir");
        assert_eq!(uri("sub\\k.ttir", None), "sub/k.ttir");
    }

    #[cfg(unix)]
    #[test]
    fn a_whole_path_becomes_one_of_the_repository() {
        let here = Some(Path::new("/home/a b/repo"));
        assert_eq!(uri("/home/a b/repo/ops/k.py", here), "ops/k.py");
        assert_eq!(uri("/home/a b/repository/k.py", here), "file:///home/a%20b/repository/k.py");
    }
}

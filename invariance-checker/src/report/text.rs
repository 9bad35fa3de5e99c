//! Reports for people.

use crate::check::{Report, Verdict};
use ariadne::{Color, Config, Label, Report as Diagnostic, ReportKind, Source};
use std::fmt::Write;

/// The line of a kernel: verdict, kernel, digest, milliseconds.
pub fn line(r: &Report, colour: bool) -> String {
    let code = match r.verdict {
        Verdict::Invariant => "32",
        Verdict::Under => "33",
        Verdict::Variant => "31",
        Verdict::Unknown => "35",
    };
    let verdict = format!("{:<15}", r.verdict.text());
    let verdict = if colour { format!("\x1b[{code}m{verdict}\x1b[0m") } else { verdict };
    let digest = r.digest.as_deref().map_or("-", |d| &d[..12]);
    let mut out = format!("{verdict} {:<34} {digest:<12} {:>8.1} ms", r.kernel, r.millis);
    match r.verdict {
        Verdict::Invariant | Verdict::Under => {
            if !r.given.is_empty() {
                let _ = write!(out, "  given {{{}}}", r.given.join(", "));
            }
            let open: Vec<&str> = r.conditions.iter().filter(|c| !c.layout).map(|c| c.name.as_str()).collect();
            if !open.is_empty() {
                let _ = write!(out, "  under {{{}}}", open.join(", "));
            }
        }
        Verdict::Variant => {
            if let Some(w) = &r.witness {
                let _ = write!(out, "  {}", w.shows);
            }
        }
        Verdict::Unknown => {
            let suspected = r.reasons.first().map_or("", |x| x.text.as_str());
            let _ = write!(out, "  {suspected}");
        }
    }
    out
}

/// The whole story of a kernel.
pub fn explain(r: &Report, file: &str, source: &str, colour: bool) -> String {
    let mut out = String::new();
    let mut section = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            let _ = writeln!(out, "  {title}");
            for l in lines {
                let _ = writeln!(out, "    {l}");
            }
        }
    };
    let args = r.args.iter().map(|a| {
        let batch = if a.batch { ", may differ between batches" } else { "" };
        let given = if a.given { ", in S" } else { "" };
        format!("{}: {}{batch}{given}", a.name, a.role)
    });
    section("arguments", &args.collect::<Vec<_>>());
    let outputs = r.outputs.iter().map(|o| {
        let packed = o.packed.map_or(String::new(), |p| format!("; a row is {p} outputs"));
        format!("{}: {}; rows {}{packed}", o.pointer, o.coordinates.join(", "), o.rows.join(", "))
    });
    section("outputs", &outputs.collect::<Vec<_>>());
    let conditions = |layout: bool| {
        let list = r.conditions.iter().filter(move |c| c.layout == layout);
        list.map(|c| format!("{}: {}{}", c.name, c.text, if c.allowed { " (allowed)" } else { "" })).collect::<Vec<_>>()
    };
    section("conditions", &conditions(false));
    section("layout", &conditions(true));
    section("views", &r.views);
    section("rules used", &[r.rules.join(", ")]);
    if r.layout_needed {
        let note = format!(
            "TTIR leaves the order inside tt.reduce and tt.scan to the compiled layout: the bits may differ between specialisations \
             (divisibility or value 1 of {}; num_warps), and the digest names the order only as \"layout\"",
            r.specialises.join(", ")
        );
        section("what TTIR cannot show", &[note]);
    }
    section("assumed", &r.assumptions.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
    if let Some(w) = &r.witness {
        let lines = [
            w.change.clone(),
            format!("first launch:  {}", w.launches[0]),
            format!("second launch: {}", w.launches[1]),
            format!("{}: {} against {}", w.element, w.bits[0], w.bits[1]),
            format!("shows: {}", w.shows),
        ];
        section("witness", &lines);
    }
    for o in &r.outputs {
        if !o.tree.is_empty() {
            let lines: Vec<String> = o.tree.lines().take(60).map(str::to_owned).collect();
            section(&format!("tree of {}", o.pointer), &lines);
        }
    }
    for reason in &r.reasons {
        out.push_str(&diagnostic(reason.line, &reason.text, reason.source.as_deref(), file, source, colour));
    }
    out
}

fn diagnostic(line: u32, text: &str, place: Option<&str>, file: &str, source: &str, colour: bool) -> String {
    let start = source.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(str::len).sum::<usize>();
    let body = source[start.min(source.len())..].lines().next().unwrap_or("");
    let indent = body.len() - body.trim_start().len();
    let span = start + indent..start + body.len().max(indent + 1);
    if line == 0 || span.end > source.len() {
        return format!("  reason: {text}\n");
    }
    let mut builder = Diagnostic::build(ReportKind::Custom("reason", Color::Yellow), (file, span.clone()))
        .with_config(Config::default().with_color(colour).with_index_type(ariadne::IndexType::Byte))
        .with_message(text)
        .with_label(Label::new((file, span)).with_message("stored here"));
    if let Some(place) = place {
        builder = builder.with_note(format!("in the source at {place}"));
    }
    let mut bytes = Vec::new();
    match builder.finish().write((file, Source::from(source)), &mut bytes) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => format!("  reason: {text}\n"),
    }
}

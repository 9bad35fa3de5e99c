//! Reports for people.

use super::paired;
use crate::check::{Reason, Report, Verdict};
use crate::classes::{Agreement, Classes};
use anstream::adapter::strip_str;
use ariadne::{CharSet, Color, Config, IndexType, Label, Report as Diagnostic, ReportKind, Source};
use std::fmt::Write;

/// Columns of a report.
const WIDTH: usize = 100;

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
    let batch: Vec<&str> = r.args.iter().filter(|a| a.batch).map(|a| a.name.as_str()).collect();
    if !batch.is_empty() {
        let _ = write!(out, "  batch {{{}}}", batch.join(", "));
    }
    match r.verdict {
        Verdict::Invariant | Verdict::Under => {
            if !r.given.is_empty() {
                let _ = write!(out, "  given {{{}}}", r.given.join(", "));
            }
            // Several inequalities on one pointer have one name.
            let mut open: Vec<&str> = r.conditions.iter().filter(|c| !c.layout).map(|c| c.name.as_str()).collect();
            open.sort_unstable();
            open.dedup();
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
        section("the two trees", &paired::text(&w.trees[0], &w.trees[1], WIDTH - 4, colour));
        section("marks", &w.legend);
    }
    for o in r.outputs.iter().filter(|_| r.witness.is_none()) {
        if !o.tree.is_empty() {
            let lines: Vec<String> = o.tree.lines().take(60).map(str::to_owned).collect();
            section(&format!("tree of {}", o.pointer), &lines);
        }
    }
    // One drawing for each place, however many reasons lie there.
    let mut places: Vec<(u32, Vec<&Reason>)> = Vec::new();
    for reason in &r.reasons {
        match places.iter_mut().find(|(line, _)| *line == reason.line && reason.line > 0) {
            Some((_, list)) => list.push(reason),
            None => places.push((reason.line, vec![reason])),
        }
    }
    for (line, reasons) in places {
        out.push_str(&diagnostic(line, &reasons, file, source, colour));
    }
    out
}

/// The classes of a set of variants, with what one class means.
pub fn classes(c: &Classes) -> String {
    let files = c.classes.iter().map(|x| x.files.len()).sum::<usize>() + c.open.len();
    let mut out = format!("{}, {}\n", plural(files, "variant"), plural(c.classes.len(), "class"));
    for class in &c.classes {
        let target = class.target.as_deref().map_or(String::new(), |t| format!(" on {t}"));
        let _ = writeln!(out, "  class {}{target}: {}", &class.digest[..12], class.files.join(", "));
        if class.files.len() > 1 {
            let _ = writeln!(
                out,
                "    one tree: each of these {} may run in place of another, whatever makes the host choose, and no bit changes",
                class.files.len()
            );
        }
    }
    if c.agreement == Agreement::Several {
        out.push_str(
            "  between two classes bits may differ: choosing by anything that a batch decides is not invariant\n",
        );
    }
    for o in &c.open {
        let _ = writeln!(out, "  no class: {}\n    {}", o.file, o.why);
    }
    let mut section = |title: &str, list: &[String]| {
        if !list.is_empty() {
            let _ = writeln!(out, "  {title}");
            list.iter().for_each(|l| out.push_str(&format!("    {l}\n")));
        }
    };
    section("given", &c.given);
    let lines = |list: &[(String, Vec<String>)]| -> Vec<String> {
        list.iter().map(|(what, files)| format!("{what}: {}", files.join(", "))).collect()
    };
    section("orders of reductions", &lines(&c.orders));
    if c.agreement != Agreement::One {
        section("specialised only in some", &lines(&c.specialised));
    }
    out
}

fn plural(n: usize, word: &str) -> String {
    let end = match (n, word.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{n} {word}{end}")
}

fn diagnostic(line: u32, reasons: &[&Reason], file: &str, source: &str, colour: bool) -> String {
    let plain = || reasons.iter().map(|r| format!("  reason: {}\n", r.text)).collect::<String>();
    let start = source.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(str::len).sum::<usize>();
    let body = source[start.min(source.len())..].lines().next().unwrap_or("");
    let indent = body.len() - body.trim_start().len();
    // The types behind the operands say nothing here and make the line long.
    let shown = body.find(" : ").map_or(body.len(), |i| i.max(indent + 1));
    let span = start + indent..start + shown;
    if line == 0 || span.end > source.len() {
        return plain();
    }
    let charset = if colour { CharSet::Unicode } else { CharSet::Ascii };
    let config = Config::default().with_color(colour).with_char_set(charset).with_index_type(IndexType::Byte);
    let mut builder = Diagnostic::build(ReportKind::Custom("reason", Color::Yellow), (file, span.clone()))
        .with_config(config)
        .with_message(&reasons[0].text)
        .with_label(Label::new((file, span)).with_message("stored here"));
    for also in &reasons[1..] {
        builder = builder.with_note(format!("also: {}", also.text));
    }
    if let Some(place) = &reasons[0].source {
        builder = builder.with_note(format!("in the source at {place}"));
    }
    let mut bytes = Vec::new();
    match builder.finish().write((file, Source::from(source)), &mut bytes) {
        // A kind of one's own is coloured whatever the configuration says.
        Ok(()) if !colour => strip_str(&String::from_utf8_lossy(&bytes)).to_string(),
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => plain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{SOURCE, refuted};

    #[test]
    fn the_story_of_a_refutation() {
        insta::assert_snapshot!(explain(&refuted(), "splits.ttir", SOURCE, false));
    }

    #[test]
    fn the_line_of_a_refutation() {
        insta::assert_snapshot!(line(&refuted(), false));
    }
}

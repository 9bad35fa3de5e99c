//! Trees as pictures: the indented text of a tree drawn as boxes on a page.

use crate::check::Report;
use std::fmt::Write;

const LINE: usize = 18;
const CHAR: usize = 8;
const LINES_MAX: usize = 400;

/// A page with the trees of all outputs.
pub fn page(r: &Report) -> String {
    let mut lines: Vec<String> = vec![format!("{}: {}", r.kernel, r.verdict.text())];
    for o in &r.outputs {
        lines.push(format!("{} ({})", o.pointer, o.coordinates.join(", ")));
        lines.extend(o.tree.lines().map(|l| format!("  {l}")));
    }
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} lines more"));
    }
    let width = lines.iter().map(|l| l.chars().count()).max().unwrap_or(1) * CHAR + 20;
    let height = lines.len() * LINE + 20;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (i, l) in lines.iter().enumerate() {
        let depth = l.chars().take_while(|c| " |`+-".contains(*c)).count();
        let (guide, body): (String, String) = (l.chars().take(depth).collect(), l.chars().skip(depth).collect());
        let y = 10 + (i + 1) * LINE;
        let x = 10 + depth * CHAR;
        let _ =
            writeln!(out, "<text x=\"10\" y=\"{y}\" fill=\"#999\" xml:space=\"preserve\">{}</text>", escape(&guide));
        let w = body.chars().count() * CHAR + 6;
        let fill = if body.contains('[') { "#e7f2e7" } else { "#eaf0fb" };
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{w}\" height=\"{}\" rx=\"3\" fill=\"{fill}\"/>",
            x - 3,
            y - 13,
            LINE - 2
        );
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" xml:space=\"preserve\">{}</text>", escape(&body));
    }
    out.push_str("</svg>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

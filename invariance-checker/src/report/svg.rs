//! Trees as pictures: the indented text of a tree drawn as boxes on a page, the two trees of a witness beside each other.

use super::paired::{Mark, elide, rows, split};
use crate::check::Report;
use std::fmt::Write;

const LINE: usize = 18;
const CHAR: usize = 8;
const LINES_MAX: usize = 400;

/// Widest line that is drawn whole.
const WIDTH_MAX: usize = 90;

/// A page: both trees of a witness beside each other, or the trees of all outputs.
pub fn page(r: &Report) -> String {
    let mut left: Vec<(String, Fill)> = vec![(format!("{}: {}", r.kernel, r.verdict.text()), Fill::None)];
    let mut right: Vec<(String, Fill)> = Vec::new();
    match &r.witness {
        Some(w) => {
            let change = format!("{}; {}: {} against {}", w.change, w.element, w.bits[0], w.bits[1]);
            left.push((change, Fill::None));
            left.extend(w.legend.iter().map(|l| (l.clone(), Fill::None)));
            right = vec![(String::new(), Fill::None); left.len()];
            left.push(("first launch".into(), Fill::None));
            right.push(("second launch".into(), Fill::None));
            for row in elide(rows(&w.trees[0], &w.trees[1])) {
                let fill = |text: &str| match row.mark {
                    _ if text.is_empty() => Fill::None,
                    Mark::Same => Fill::of(text),
                    Mark::Skipped(_) => Fill::None,
                    _ => Fill::Apart,
                };
                let (l, r) = match row.mark {
                    Mark::Skipped(n) => (format!("{}{n} lines alike", split(&row.left).0), String::new()),
                    _ => (row.left.clone(), row.right.clone()),
                };
                left.push((l.clone(), fill(&l)));
                right.push((r.clone(), fill(&r)));
            }
        }
        None => {
            for o in &r.outputs {
                left.push((format!("{} ({})", o.pointer, o.coordinates.join(", ")), Fill::None));
                left.extend(o.tree.lines().map(|l| (format!("  {l}"), Fill::of(l))));
            }
        }
    }
    for column in [&mut left, &mut right] {
        if column.len() > LINES_MAX {
            let more = column.len() - LINES_MAX;
            column.truncate(LINES_MAX);
            column.push((format!("and {more} lines more"), Fill::None));
        }
    }
    let columns = |list: &[(String, Fill)]| {
        list.iter()
            .map(|(l, f)| if *f == Fill::None && !right.is_empty() { 0 } else { l.chars().count().min(WIDTH_MAX) })
            .max()
    };
    let (a, b) = (columns(&left).unwrap_or(1).max(30), columns(&right).unwrap_or(0));
    let title = left.iter().map(|(l, _)| l.chars().count()).max().unwrap_or(1);
    let second = (a + 4) * CHAR;
    let width = if right.is_empty() { title * CHAR + 20 } else { (second + (b + 2) * CHAR).max(title * CHAR + 20) };
    let height = left.len() * LINE + 20;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    left.iter().enumerate().for_each(|(i, l)| line(&mut out, 10, i, l));
    right.iter().enumerate().for_each(|(i, l)| line(&mut out, 10 + second, i, l));
    out.push_str("</svg>\n");
    out
}

/// The background of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    None,
    Leaf,
    Operation,
    /// Where two trees part.
    Apart,
}

impl Fill {
    fn of(line: &str) -> Fill {
        // A reduction names its layout in brackets too.
        let leaf = line.contains('[') && !split(line).1.starts_with("reduce");
        if leaf { Fill::Leaf } else { Fill::Operation }
    }

    fn colour(self) -> Option<&'static str> {
        match self {
            Fill::None => None,
            Fill::Leaf => Some("#e7f2e7"),
            Fill::Operation => Some("#eaf0fb"),
            Fill::Apart => Some("#fbd9d3"),
        }
    }
}

/// One line of a drawn tree at a row of the page.
fn line(out: &mut String, left: usize, row: usize, (text, fill): &(String, Fill)) {
    let (guides, body) = split(text);
    let mut body = body.to_owned();
    if *fill != Fill::None && text.chars().count() > WIDTH_MAX {
        body = body.chars().take(WIDTH_MAX.saturating_sub(guides.len() + 2)).collect::<String>() + "..";
    }
    let y = 10 + (row + 1) * LINE;
    let x = left + guides.len() * CHAR;
    if !guides.is_empty() {
        let _ = writeln!(
            out,
            "<text x=\"{left}\" y=\"{y}\" fill=\"#999\" xml:space=\"preserve\">{}</text>",
            escape(guides)
        );
    }
    if let Some(colour) = fill.colour() {
        let (w, h) = (body.chars().count() * CHAR + 6, LINE - 2);
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{w}\" height=\"{h}\" rx=\"3\" fill=\"{colour}\"/>",
            x - 3,
            y - 13
        );
    }
    if !body.is_empty() {
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" xml:space=\"preserve\">{}</text>", escape(&body));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_of_a_refutation() {
        insta::assert_snapshot!(page(&crate::report::fixture::refuted()));
    }
}

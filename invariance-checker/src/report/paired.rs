//! Two trees side by side: what is equal stands on one line, where they part is marked, long stretches that are equal are left out.

use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::HashMap;
use std::fmt::Write;

/// Equal lines that are kept on each side of a difference.
const CONTEXT: usize = 2;

/// How the halves of a row compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Equal.
    Same,
    /// Both there, different.
    Changed,
    /// Only in the first tree.
    Left,
    /// Only in the second tree.
    Right,
    /// So many equal rows are left out.
    Skipped(usize),
}

/// One row of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// A line of the first tree; empty if there is none.
    pub left: String,
    /// A line of the second tree.
    pub right: String,
    /// How they compare.
    pub mark: Mark,
}

/// Splits a line of a drawn tree into its guides and its text.
pub fn split(line: &str) -> (&str, &str) {
    let guides = line.find(|c| !" |`+-".contains(c)).unwrap_or(line.len());
    // A minus sign belongs to the number behind it, guides end in a blank.
    let end = line[..guides].rfind(' ').map_or(0, |i| i + 1);
    line.split_at(end)
}

/// Aligns two drawn trees. Lines are compared without their guides, so that a part that moved to another depth is still equal;
/// operands that commute stand in the order of the first tree.
pub fn rows(left: &str, right: &str) -> Vec<Row> {
    let (first, mut second) = (forest(left), forest(right));
    first.iter().zip(&mut second).for_each(|(a, b)| follow(a, b));
    let (a, b) = (draw(&first), draw(&second));
    let bodies = |lines: &[String]| lines.iter().map(|l| split(l).1.to_owned()).collect::<Vec<_>>();
    let (x, y) = (bodies(&a), bodies(&b));
    let mut out = Vec::new();
    let row = |i: Option<usize>, j: Option<usize>, mark| {
        let text = |lines: &[String], at: Option<usize>| at.map_or(String::new(), |n| lines[n].clone());
        Row { left: text(&a, i), right: text(&b, j), mark }
    };
    for op in capture_diff_slices(Algorithm::Myers, &x, &y) {
        match op {
            DiffOp::Equal { old_index, new_index, len } => {
                out.extend((0..len).map(|n| row(Some(old_index + n), Some(new_index + n), Mark::Same)));
            }
            DiffOp::Delete { old_index, old_len, .. } => {
                out.extend((0..old_len).map(|n| row(Some(old_index + n), None, Mark::Left)));
            }
            DiffOp::Insert { new_index, new_len, .. } => {
                out.extend((0..new_len).map(|n| row(None, Some(new_index + n), Mark::Right)));
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                for n in 0..old_len.max(new_len) {
                    let (i, j) = (n < old_len, n < new_len);
                    let mark = match (i, j) {
                        (true, true) => Mark::Changed,
                        (true, false) => Mark::Left,
                        _ => Mark::Right,
                    };
                    out.push(row(i.then_some(old_index + n), j.then_some(new_index + n), mark));
                }
            }
        }
    }
    out
}

/// A line of a drawn tree with what hangs below it.
struct Branch {
    body: String,
    below: Vec<Branch>,
}

/// The label of a chain's second factor belongs to the place, not to what stands there.
const TIMES: &str = "times ";

/// Reads a drawing back. A part that is drawn once and referred to later may end up before its drawing, so a reference says only
/// that the part is there again.
fn forest(text: &str) -> Vec<Branch> {
    let mut open: Vec<(usize, Branch)> = Vec::new();
    let mut out = Vec::new();
    let close = |open: &mut Vec<(usize, Branch)>, out: &mut Vec<Branch>, depth: usize| {
        while open.last().is_some_and(|(d, _)| *d >= depth) {
            let Some((_, done)) = open.pop() else { break };
            match open.last_mut() {
                Some((_, parent)) => parent.below.push(done),
                None => out.push(done),
            }
        }
    };
    for line in text.lines() {
        let (guides, body) = split(line);
        let body = body.strip_prefix(TIMES).unwrap_or(body).replace(" (as above)", " (again)");
        close(&mut open, &mut out, guides.len());
        open.push((guides.len(), Branch { body, below: vec![] }));
    }
    close(&mut open, &mut out, 0);
    out
}

/// The words that two branches have in common, counted with their number of times.
fn likeness(a: &Branch, b: &Branch) -> usize {
    fn count(b: &Branch, words: &mut HashMap<String, usize>) {
        let mut stack = vec![b];
        while let Some(b) = stack.pop() {
            *words.entry(b.body.clone()).or_default() += 1;
            let head: String = b.body.chars().take_while(|c| *c != '[' && *c != ' ').collect();
            *words.entry(head).or_default() += 1;
            stack.extend(&b.below);
        }
    }
    let (mut x, mut y) = (HashMap::new(), HashMap::new());
    count(a, &mut x);
    count(b, &mut y);
    x.iter().map(|(word, n)| y.get(word).map_or(0, |m| *n.min(m))).sum()
}

/// Puts operands that commute in the order of the first tree.
fn follow(a: &Branch, b: &mut Branch) {
    let word = |b: &Branch| b.body.split(' ').next().unwrap_or("").trim_matches('"').to_owned();
    let commutes = ["add", "mul", "fma", "chain", "addf", "mulf", "maxnumf", "minnumf", "maximumf", "minimumf"];
    if word(a) == word(b) && commutes.contains(&word(a).as_str()) && a.below.len() == b.below.len() {
        // A chain may have its start first, a fused multiply-add its addend last.
        let at = if word(a) == "chain" { a.below.len().wrapping_sub(2) } else { 0 };
        if let (Some([p, q]), Some([r, s])) = (a.below.get(at..at + 2), b.below.get(at..at + 2))
            && likeness(p, s) + likeness(q, r) > likeness(p, r) + likeness(q, s)
        {
            b.below.swap(at, at + 1);
        }
    }
    if let (Some(x), Some(y)) = (coefficients(a), coefficients(b)) {
        let (mut x, mut y) = (x, y);
        x.sort_unstable();
        y.sort_unstable();
        if x == y {
            follow_sum(a, b);
        }
    }
    a.below.iter().zip(&mut b.below).for_each(|(a, b)| follow(a, b));
}

/// The terms of an integer sum that stands over several lines, one operand each: `sum 64*1+1*1` over two operands.
fn coefficients(b: &Branch) -> Option<Vec<String>> {
    let terms: Vec<String> = b.body.strip_prefix("sum ")?.split('+').map(str::to_owned).collect();
    // A product of several operands, or a constant, would shift the rest.
    (terms.len() == b.below.len() && terms.iter().all(|t| t.ends_with("*1"))).then_some(terms)
}

/// Puts the terms of a sum in the order of the first tree: for each the most alike with its coefficient.
fn follow_sum(a: &Branch, b: &mut Branch) {
    let (Some(wanted), Some(there)) = (coefficients(a), coefficients(b)) else { return };
    let mut left: Vec<(String, Branch)> = there.into_iter().zip(b.below.drain(..)).collect();
    for (coefficient, operand) in wanted.iter().zip(&a.below) {
        let fits = left.iter().enumerate().filter(|(_, (c, _))| c == coefficient);
        let Some((best, _)) = fits.max_by_key(|(i, (_, x))| (likeness(operand, x), usize::MAX - i)) else { continue };
        b.below.push(left.remove(best).1);
    }
    b.body.clone_from(&a.body);
}

/// The lines of a drawing.
fn draw(forest: &[Branch]) -> Vec<String> {
    fn line(b: &Branch, own: &str, label: &str, guides: &str, out: &mut Vec<String>) {
        out.push(format!("{own}{label}{}", b.body));
        let chain = b.body.starts_with("chain ");
        for (i, c) in b.below.iter().enumerate() {
            let last = i + 1 == b.below.len();
            let (branch, rest) = if last { ("`- ", "   ") } else { ("+- ", "|  ") };
            let label = if chain && last { TIMES } else { "" };
            line(c, &format!("{guides}{branch}"), label, &format!("{guides}{rest}"), out);
        }
    }
    let mut out = Vec::new();
    forest.iter().for_each(|b| line(b, "", "", "", &mut out));
    out
}

/// Leaves out equal rows that are neither near a difference nor above one in the tree.
pub fn elide(rows: Vec<Row>) -> Vec<Row> {
    let mut keep = vec![false; rows.len()];
    let depth = |r: &Row| split(if r.left.is_empty() { &r.right } else { &r.left }).0.len();
    for (i, r) in rows.iter().enumerate() {
        if r.mark == Mark::Same {
            continue;
        }
        let near = i.saturating_sub(CONTEXT)..(i + CONTEXT + 1).min(rows.len());
        keep[near].fill(true);
        let mut least = depth(r);
        for (j, above) in rows[..i].iter().enumerate().rev() {
            if depth(above) < least {
                (keep[j], least) = (true, depth(above));
            }
        }
    }
    if !keep.contains(&true) {
        // Nothing differs: the head of the tree says what it is.
        keep.iter_mut().take(16).for_each(|k| *k = true);
    }
    let mut out: Vec<Row> = Vec::new();
    for (r, k) in rows.into_iter().zip(keep) {
        match out.last_mut() {
            _ if k => out.push(r),
            Some(Row { mark: Mark::Skipped(n), .. }) => *n += 1,
            _ => out.push(Row { mark: Mark::Skipped(1), ..r }),
        }
    }
    // One line left out is no shorter than the line.
    for r in &mut out {
        if r.mark == Mark::Skipped(1) {
            r.mark = Mark::Same;
        }
    }
    out
}

/// The comparison as text of at most `width` columns. Rows that differ carry a mark between the halves.
pub fn text(left: &str, right: &str, width: usize, colour: bool) -> Vec<String> {
    let half = width.saturating_sub(3) / 2;
    let mut out = vec![pad("first launch", half) + " | second launch"];
    for r in elide(rows(left, right)) {
        let (sign, code) = match r.mark {
            Mark::Skipped(n) => {
                let guides = split(&r.left).0;
                let indent: String = guides.chars().map(|c| if c == '|' { '|' } else { ' ' }).collect();
                out.push(format!("{}..   {n} lines alike", pad(&format!("{indent}.."), half + 3)));
                continue;
            }
            Mark::Same => (' ', ""),
            Mark::Changed => ('*', "33"),
            Mark::Left => ('<', "31"),
            Mark::Right => ('>', "32"),
        };
        let (l, rr) = cut(&r.left, &r.right, half);
        let line = format!("{} {sign} {rr}", pad(&l, half));
        let line = line.trim_end();
        out.push(if colour && !code.is_empty() { format!("\x1b[{code}m{line}\x1b[0m") } else { line.to_owned() });
    }
    out
}

/// Both lines cut to `width`; if they first differ further right, what lies between their guides and there is left out.
fn cut(left: &str, right: &str, width: usize) -> (String, String) {
    let ((gl, l), (gr, r)) = (split(left), split(right));
    let common = l.chars().zip(r.chars()).take_while(|(a, b)| a == b).count();
    let room = width.saturating_sub(gl.len().max(gr.len()));
    let longest = l.chars().count().max(r.chars().count());
    // Some of what comes before the difference stays, so that it can be read.
    let from = if l != r && longest > room && common > room / 2 { common - room / 4 } else { 0 };
    let part = |guides: &str, body: &str| {
        let mut text = guides.to_owned();
        if from > 0 && !body.is_empty() {
            text.push_str("..");
        }
        text.extend(body.chars().skip(from));
        if text.chars().count() > width {
            text = text.chars().take(width.saturating_sub(2)).collect();
            text.push_str("..");
        }
        text
    };
    (part(gl, l), part(gr, r))
}

fn pad(text: &str, width: usize) -> String {
    let mut out = text.to_owned();
    let _ = write!(out, "{}", " ".repeat(width.saturating_sub(text.chars().count())));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_moved_deeper_is_still_equal() {
        let marks: Vec<Mark> =
            rows("+\n+- a\n`- b\n", "neg\n`- +\n   +- a\n   `- b\n").iter().map(|r| r.mark).collect();
        assert_eq!(marks, [Mark::Right, Mark::Same, Mark::Same, Mark::Same]);
    }

    #[test]
    fn operands_that_commute_are_paired() {
        let (a, b) = ("mul\n+- x[c0]\n`- sqrt\n   `- M\n", "mul\n+- sqrt\n|  `- 5\n`- x[c0]\n");
        let marks: Vec<Mark> = rows(a, b).iter().map(|r| r.mark).collect();
        assert_eq!(marks, [Mark::Same, Mark::Same, Mark::Same, Mark::Changed]);
        let (a, b) = ("sub\n+- x\n`- y\n", "sub\n+- y\n`- x\n");
        assert!(rows(a, b).iter().any(|r| r.mark != Mark::Same), "a difference does not commute");
        let (a, b) = ("chain for k < K\n+- x[k]\n`- times w[k, 1]\n", "chain for k < K\n+- w[k, 2]\n`- times x[k]\n");
        let drawn = rows(a, b);
        assert_eq!(drawn[1].mark, Mark::Same);
        assert_eq!(drawn[2].right, "`- times w[k, 2]");
    }

    #[test]
    fn terms_of_a_sum_are_paired_with_their_coefficients() {
        let (a, b) =
            ("sum 1*1+64*1\n+- c1\n`- reduce max\n   `- k[M]\n", "sum 64*1+1*1\n+- reduce max\n|  `- k[5]\n`- c1\n");
        let marks: Vec<Mark> = rows(a, b).iter().map(|r| r.mark).collect();
        assert_eq!(marks, [Mark::Same, Mark::Same, Mark::Same, Mark::Changed]);
        let (a, b) = ("sum 1*1+64*1\n+- x\n`- y\n", "sum 1*1+32*1\n+- x\n`- y\n");
        assert_eq!(rows(a, b)[0].mark, Mark::Changed);
    }

    #[test]
    fn what_lies_above_a_difference_is_kept() {
        let tree = |leaf: &str| format!("root\n+- far\n{}`- near\n   `- {leaf}\n", "|  `- same\n".repeat(20));
        let drawn = text(&tree("x"), &tree("y"), 60, false);
        assert!(drawn.iter().any(|l| l.starts_with("root")), "{drawn:#?}");
        assert!(drawn.iter().any(|l| l.contains("lines alike")), "{drawn:#?}");
        assert!(drawn.iter().any(|l| l.contains("x  ") && l.contains("* ") && l.ends_with('y')), "{drawn:#?}");
        assert!(drawn.len() < 10, "{drawn:#?}");
    }

    #[test]
    fn no_line_is_wider_than_asked_and_the_difference_is_in_sight() {
        let long = |end: &str| format!("x[{}{end}]", "abcdefgh, ".repeat(30));
        for line in text(&long("1"), &long("2"), 100, false) {
            assert!(line.chars().count() <= 100, "{line}");
        }
        let drawn = text(&long("1"), &long("2"), 100, false).join("\n");
        assert!(drawn.contains("1]") && drawn.contains("2]"), "{drawn}");
    }
}

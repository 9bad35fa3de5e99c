//! Which of several files may stand in for one another: those whose value is one tree.
//!
//! A class says that at run time any member may be chosen (by batch size, alignment, load) and no bit changes. So a file is in a class
//! only if it is proved, and if the order inside its reductions is named by what the compiler left beside it, or does not matter.

use crate::check::Report;
use crate::layout::Compiled;
use serde::Serialize;
use std::collections::BTreeMap;

/// One file of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// As given.
    pub file: &'a str,
    /// What was found.
    pub report: &'a Report,
    /// What lies beside it.
    pub compiled: Option<&'a Compiled>,
    /// Attributes by which the JIT specialised its arguments: `x tt.divisibility = 16`.
    pub special: &'a [String],
}

/// What all members say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// One tree.
    One,
    /// Several trees.
    Several,
    /// Some file is in no class.
    Open,
}

/// Files with one tree.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// Of the tree.
    pub digest: String,
    /// The GPU that all were compiled for, if their siblings say so.
    pub target: Option<String>,
    /// Its members.
    pub files: Vec<String>,
}

/// A file without a class.
#[derive(Clone, Debug, Serialize)]
pub struct Open {
    /// Which.
    pub file: String,
    /// Why.
    pub why: String,
}

/// The classes of a set of files.
#[derive(Clone, Debug, Serialize)]
pub struct Classes {
    /// The answer in one word.
    pub agreement: Agreement,
    /// By digest.
    pub classes: Vec<Class>,
    /// Files that are in none.
    pub open: Vec<Open>,
    /// What one class means here beyond equal trees.
    pub given: Vec<String>,
    /// Attributes of arguments that not all files have: the attribute, the files that have it.
    pub specialised: Vec<(String, Vec<String>)>,
    /// Orders of reductions, with the files that have them.
    pub orders: Vec<(String, Vec<String>)>,
}

impl Classes {
    /// Puts files into classes.
    pub fn of(members: &[Member<'_>]) -> Classes {
        // Specialisation to a constant takes an argument away and moves the others, so variants of one kernel go by names.
        let first = members.first().map(|m| m.report.kernel.as_str());
        let by_name =
            members.iter().all(|m| Some(m.report.kernel.as_str()) == first && m.report.digest_by_name.is_some());
        type Key = (String, Option<String>, Option<Vec<String>>);
        let mut classes: BTreeMap<Key, Vec<String>> = BTreeMap::new();
        let mut open = Vec::new();
        for m in members {
            let digest = if by_name { &m.report.digest_by_name } else { &m.report.digest };
            match (digest, missing(m, members.len())) {
                (Some(d), None) => {
                    let target = m.compiled.and_then(|c| c.target.clone());
                    classes.entry((d.clone(), target, instructions(m))).or_default().push(m.file.to_owned());
                }
                (_, Some(why)) => open.push(Open { file: m.file.to_owned(), why }),
                (None, None) => {
                    let why = "it is not proved, so it has no tree to compare".to_owned();
                    open.push(Open { file: m.file.to_owned(), why });
                }
            }
        }
        let agreement = match (classes.len(), open.is_empty()) {
            (0 | 1, true) => Agreement::One,
            (0 | 1, false) => Agreement::Open,
            _ => Agreement::Several,
        };
        let classes = classes.into_iter().map(|((digest, target, _), files)| Class { digest, target, files }).collect();
        Classes {
            agreement,
            classes,
            open,
            given: given(members),
            specialised: specialised(members),
            orders: orders(members),
        }
    }
}

/// Why the order inside the reductions of a file is not known, if it matters.
fn missing(m: &Member<'_>, members: usize) -> Option<String> {
    if !m.report.layout_needed || members == 1 {
        return None;
    }
    let hangs = format!(
        "the order of its reductions hangs on the compiled layout, so on num_warps and on how {} are specialised (divisible by 16, equal to 1)",
        m.report.specialises.join(", ")
    );
    match m.compiled {
        Some(c)
            if c.order.is_some()
                && (!c.reductions.is_empty() || c.order.as_ref().is_some_and(|o| o.starts_with("compilation"))) =>
        {
            None
        }
        Some(c) if c.order.is_some() => Some(format!("{hangs}; the .ttgir beside it has no reduction")),
        Some(_) => Some(format!("{hangs}; the .json beside it has no hash, and there is no .ttgir")),
        None => Some(format!("{hangs}; put the .ttgir beside it")),
    }
}

/// The instructions that its dots became, where that matters and the compiler left it beside the file.
fn instructions(m: &Member<'_>) -> Option<Vec<String>> {
    m.compiled.filter(|_| m.report.instruction_needed).and_then(|c| c.instructions.clone())
}

/// What a class takes for granted, as far as it applies.
fn given(members: &[Member<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    let known = |m: &Member<'_>| m.compiled.is_some_and(|c| c.target.is_some());
    if !members.iter().all(known) {
        out.push("all members run on one GPU architecture".to_owned());
    }
    let ordered = members.iter().any(|m| m.report.layout_needed);
    if ordered && !members.iter().all(|m| m.compiled.is_some_and(|c| c.version.is_some())) {
        out.push("one version of Triton compiled all members".to_owned());
    }
    if members.len() > 1 && members.iter().any(|m| m.report.instruction_needed && instructions(m).is_none()) {
        out.push(
            "the compiler makes one kind of MMA instruction of each tt.dot of operands other than 16-bit floats in all members (it hangs on num_warps)"
                .to_owned(),
        );
    }
    let stored = |m: &Member<'_>| m.report.outputs.iter().map(|o| o.stored.clone()).collect::<Vec<_>>();
    if members.iter().any(|m| stored(m) != stored(&members[0])) {
        out.push("every member stores the same elements (the conditions of their stores differ)".to_owned());
    }
    let strict = |m: &Member<'_>| m.compiled.is_some_and(|c| c.fusion == Some(false));
    let contracts = members.iter().any(|m| m.report.outputs.iter().any(|o| contractable(&o.tree)));
    if contracts && !members.iter().all(strict) {
        out.push(
            "the compiler contracts a*b + c to one rounding in all members or in none (no member was compiled with enable_fp_fusion=False throughout)"
                .to_owned(),
        );
    }
    out
}

/// True if a product is added somewhere in a drawn tree, so that the compiler may contract it.
fn contractable(tree: &str) -> bool {
    let mut above: Vec<(usize, bool)> = Vec::new();
    for line in tree.lines() {
        let (guides, body) = crate::report::paired::split(line);
        let body = body.trim_matches('"');
        above.retain(|(depth, _)| *depth < guides.len());
        let word = |w: &str| body == w || body.starts_with(&format!("{w}f ")) || body.starts_with(&format!("{w} "));
        // A line that was cut off may hide anything.
        if body == "..." || word("mul") && above.last().is_some_and(|(_, adds)| *adds) {
            return true;
        }
        let passes = word("neg") && above.last().is_some_and(|(_, adds)| *adds);
        above.push((
            guides.len(),
            passes
                || ["add", "sub", "reduce"].iter().any(|w| word(w))
                || body.ends_with("= add")
                || body.ends_with("= sub"),
        ));
    }
    false
}

fn specialised(members: &[Member<'_>]) -> Vec<(String, Vec<String>)> {
    let mut by_attribute: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for m in members {
        for s in m.special {
            by_attribute.entry(s).or_default().push(m.file.to_owned());
        }
    }
    let some = |(s, files): (&str, Vec<String>)| (files.len() < members.len()).then(|| (s.to_owned(), files));
    by_attribute.into_iter().filter_map(some).collect()
}

fn orders(members: &[Member<'_>]) -> Vec<(String, Vec<String>)> {
    let mut out: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for m in members.iter().filter(|m| m.report.layout_needed) {
        if let Some(order) = m.compiled.and_then(|c| c.order.as_deref()) {
            out.entry(order).or_default().push(m.file.to_owned());
        }
    }
    out.into_iter().map(|(o, files)| (o.to_owned(), files)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_under_a_sum_may_be_contracted() {
        assert!(contractable("add\n+- c\n`- mul\n   +- a\n   `- b\n"));
        assert!(contractable("sub\n+- neg\n|  `- mul\n|     +- a\n|     `- b\n`- c\n"));
        assert!(contractable("\"addf f16\"\n+- \"mulf f16\"\n|  +- a\n|  `- b\n`- c\n"));
        assert!(contractable("reduce add (layout) for j < 64\n`- mul\n   +- a\n   `- b\n"));
        assert!(!contractable("mul\n+- add\n|  +- a\n|  `- b\n`- c\n"));
        assert!(!contractable("add\n+- sqrt\n|  `- mul\n|     +- a\n|     `- b\n`- c\n"));
    }
}

//! A tree for people: one operation a line, operands indented below it, index arithmetic written out.

use std::collections::HashSet;
use std::fmt::Write;

use super::{Chain, Fold, IntOp, Node, Reduce, Tree};

/// Lines beyond this are left out.
const LINES_MAX: usize = 2000;

impl Tree {
    /// An ASCII drawing. A subtree that occurs twice under the same binders is drawn once and referred to by the line
    /// number in brackets.
    pub fn pretty(&self) -> String {
        let mut printer =
            Printer { text: String::new(), lines: 0, names: vec![], drawn: HashSet::new(), counts: [0; 3] };
        printer.draw(self, "", "", "");
        printer.text
    }
}

struct Printer {
    text: String,
    lines: usize,
    /// The names of the enclosing binders' slots, innermost last.
    names: Vec<Vec<String>>,
    drawn: HashSet<([u8; 32], Vec<Vec<String>>)>,
    /// Chains, reductions and folds so far: their variables are numbered.
    counts: [usize; 3],
}

impl Printer {
    fn line(&mut self, prefix: &str, label: &str, text: &str) {
        self.lines += 1;
        let _ = writeln!(self.text, "{prefix}{label}{text}");
    }

    /// Draws `tree` behind `prefix`; its operands are drawn behind `below`.
    fn draw(&mut self, tree: &Tree, prefix: &str, label: &str, below: &str) {
        if self.lines >= LINES_MAX {
            if self.lines == LINES_MAX {
                self.line(prefix, "", "...");
            }
            return;
        }
        if let Some(text) = self.inline(tree) {
            return self.line(prefix, label, &text);
        }
        let scope = self.scope(tree);
        if !self.drawn.insert((tree.id(), scope)) {
            let name = self.title(tree.node());
            return self.line(prefix, label, &format!("{name} (as above)"));
        }
        match tree.node() {
            Node::Chain(chain) => self.chain(chain, prefix, label, below),
            Node::Reduce(reduce) => self.reduce(reduce, prefix, label, below),
            Node::Fold(fold) => self.fold(fold, prefix, label, below),
            node => {
                let title = self.title(node);
                self.line(prefix, label, &title);
                let operands: Vec<(&str, &Tree)> = match node {
                    Node::Select(condition, then, otherwise) => {
                        let text = self.inline(condition);
                        match text {
                            Some(_) => vec![("", then), ("else ", otherwise)],
                            None => vec![("if ", condition), ("then ", then), ("else ", otherwise)],
                        }
                    }
                    node => super::rewrite::children(node).into_iter().map(|(t, _)| ("", t)).collect(),
                };
                self.operands(&operands, below);
            }
        }
    }

    fn operands(&mut self, operands: &[(&str, &Tree)], below: &str) {
        for (i, (label, tree)) in operands.iter().enumerate() {
            let last = i + 1 == operands.len();
            let (branch, rest) = if last { ("`- ", "   ") } else { ("+- ", "|  ") };
            self.draw(tree, &format!("{below}{branch}"), label, &format!("{below}{rest}"));
        }
    }

    /// The binders that a tree depends on.
    fn scope(&self, tree: &Tree) -> Vec<Vec<String>> {
        let depth = self.names.len().saturating_sub(tree.openness() as usize);
        self.names[depth..].to_vec()
    }

    fn name(&mut self, which: usize, stem: &str) -> String {
        self.counts[which] += 1;
        if self.counts[which] == 1 { stem.to_owned() } else { format!("{stem}{}", self.counts[which]) }
    }

    fn chain(&mut self, chain: &Chain, prefix: &str, label: &str, below: &str) {
        let k = self.name(0, "k");
        let len = self.value(&chain.len);
        let init = self.inline(&chain.init);
        let from = init.as_ref().map_or(String::new(), |init| format!(" from {init}"));
        self.line(prefix, label, &format!("chain {} for {k} < {len}{from}", chain.kind.name()));
        if init.is_none() {
            self.draw(&chain.init, &format!("{below}+- "), "from ", &format!("{below}|  "));
        }
        self.names.push(vec![k]);
        self.operands(&[("", &chain.a), ("times ", &chain.b)], below);
        self.names.pop();
    }

    fn reduce(&mut self, reduce: &Reduce, prefix: &str, label: &str, below: &str) {
        let lane = self.name(1, "j");
        let (combiner, order) = (reduce.combiner.name(), reduce.order.name());
        let out = if reduce.bodies.len() > 1 { format!(", component {}", reduce.out) } else { String::new() };
        self.line(prefix, label, &format!("reduce {combiner} ({order}) for {lane} < {}{out}", reduce.len));
        self.names.push(vec![lane]);
        let bodies: Vec<(&str, &Tree)> = reduce.bodies.iter().map(|body| ("", body)).collect();
        self.operands(&bodies, below);
        self.names.pop();
    }

    fn fold(&mut self, fold: &Fold, prefix: &str, label: &str, below: &str) {
        let i = self.name(2, "i");
        let trip = self.value(&fold.trip);
        self.line(prefix, label, &format!("fold for {i} < {trip}"));
        let carried: Vec<String> =
            (0..fold.slots.len()).map(|s| format!("{i}.{}", (b'a' + s as u8 % 26) as char)).collect();
        let mut names = vec![i];
        names.extend(carried.clone());
        for (s, slot) in fold.slots.iter().enumerate() {
            let last = s + 1 == fold.slots.len();
            let init = format!("{} from ", carried[s]);
            self.draw(&slot.init, &format!("{below}+- "), &init, &format!("{below}|  "));
            self.names.push(names.clone());
            let (branch, rest) = if last { ("`- ", "   ") } else { ("+- ", "|  ") };
            let label = format!("{} = ", carried[s]);
            self.draw(&slot.body, &format!("{below}{branch}"), &label, &format!("{below}{rest}"));
            self.names.pop();
        }
    }

    fn title(&self, node: &Node) -> String {
        match node {
            Node::Op(op, _) => op.name(),
            Node::Select(condition, ..) => match self.inline(condition) {
                Some(text) => format!("if {text}"),
                None => "select".into(),
            },
            Node::Chain(_) => "chain".into(),
            Node::Reduce(_) => "reduce".into(),
            Node::Fold(_) => "fold".into(),
            Node::Opaque(description, _) => format!("opaque {description}"),
            Node::Load { role, .. } => role.to_string(),
            Node::Int(op, ..) => op.name().into(),
            node => super::text::head(node),
        }
    }

    fn value(&self, tree: &Tree) -> String {
        self.inline(tree).unwrap_or_else(|| "..".into())
    }

    /// Index arithmetic, constants and leaves on one line; `None` for what deserves lines of its own.
    fn inline(&self, tree: &Tree) -> Option<String> {
        self.inline_within(tree, 12)
    }

    fn inline_within(&self, tree: &Tree, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let inner = |t: &Tree| self.inline_within(t, depth);
        let list = |parts: &[Tree], with: &str| Some(parts.iter().map(inner).collect::<Option<Vec<_>>>()?.join(with));
        match tree.node() {
            Node::Sum(terms) => self.inline_sum(terms, depth),
            Node::Coord(n) => Some(format!("c{n}")),
            Node::Bound { level, slot } => {
                let names = self.names.iter().rev().nth(*level as usize);
                Some(names.and_then(|names| names.get(*slot as usize).cloned()).unwrap_or_else(|| "?".into()))
            }
            Node::Var(_) => Some("?".into()),
            Node::Arg(name) => Some(name.to_string()),
            Node::Int(IntOp::FloorDiv, a, b) => Some(format!("({} div {})", inner(a)?, inner(b)?)),
            Node::Int(IntOp::FloorMod, a, b) => Some(format!("({} mod {})", inner(a)?, inner(b)?)),
            Node::Int(op, a, b) => Some(format!("{}({}, {})", op.name(), inner(a)?, inner(b)?)),
            Node::Bool(value) => Some(value.to_string()),
            Node::AtLeastZero(a) => Some(format!("{} >= 0", inner(a)?)),
            Node::IsZero(a) => Some(format!("{} = 0", inner(a)?)),
            Node::Not(a) => Some(format!("not ({})", inner(a)?)),
            Node::And(parts) => list(parts, " and "),
            Node::Or(parts) => Some(format!("({})", list(parts, " or ")?)),
            Node::Const(bits) => Some(format!("{:?}", f32::from_bits(*bits))),
            Node::Load { role, index, .. } => Some(format!("{role}[{}]", list(index, ", ")?)),
            _ => None,
        }
    }

    fn inline_sum(&self, terms: &[(Vec<Tree>, i64)], depth: usize) -> Option<String> {
        if terms.is_empty() {
            return Some("0".into());
        }
        let mut text = String::new();
        // The constant comes last, where people look for it.
        let (constants, products): (Vec<_>, Vec<_>) = terms.iter().partition(|(factors, _)| factors.is_empty());
        for (factors, c) in products.into_iter().chain(constants) {
            let sign = match (*c < 0, text.is_empty()) {
                (true, true) => "-",
                (true, false) => " - ",
                (false, true) => "",
                (false, false) => " + ",
            };
            let mut product = factors.iter().map(|t| self.inline_within(t, depth)).collect::<Option<Vec<_>>>()?;
            if c.unsigned_abs() != 1 || factors.is_empty() {
                product.insert(0, c.unsigned_abs().to_string());
            }
            text += &format!("{sign}{}", product.join("*"));
        }
        Some(text)
    }
}

//! Index arithmetic that neither the search nor elimination decides, asked of an SMT solver.
//!
//! The solver is another program (z3, or anything that speaks SMT-LIB 2 on its standard input), driven through `easy-smt`. A question is
//! "do the facts and the negated goal have a model?"; only `unsat` counts, so a solver that runs out of time, dies or says `unknown` proves
//! nothing. Integers are mathematical ones, under the assumption that every report prints: indices do not wrap. What the kernel means to
//! wrap was left uninterpreted by the evaluator and is a constant without properties here, as are loaded numbers and whatever else is not
//! integer arithmetic. Division by something that is not positive is such a constant too. Unlike the other provers, the solver sees
//! alternatives (a mask that is an `or`, an index chosen by a condition) and products of unknowns.

use super::{Arena, Facts, Map, Node, Poly, Sort, TermId};
use easy_smt::{Context, ContextBuilder, Response, SExpr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time for one question.
const QUESTION_MS: u32 = 400;
/// Longest time for all questions of one kernel.
const TOTAL: Duration = Duration::from_secs(4);
/// Longest time until a solver answers its first question.
const START: Duration = Duration::from_secs(10);
/// Most questions for one kernel.
const QUESTIONS_MAX: u32 = 120;
/// Terms of one question.
const TERMS_MAX: usize = 4000;

/// A running solver.
pub struct Solver {
    context: Context,
    /// Questions so far.
    pub asked: u32,
    /// Those that were answered by a proof.
    pub proved: u32,
    spent: Duration,
}

impl Solver {
    /// Starts a solver.
    ///
    /// # Errors
    /// The program cannot be started, or does not answer as a solver does, or not in time.
    pub fn start(program: &Path) -> Result<Solver, String> {
        let path = program.to_owned();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Nobody listens any more once the time is up.
            let _ = sender.send(begin(&path));
        });
        let answer = receiver.recv_timeout(START).unwrap_or_else(|_| Err(format!("no answer within {START:?}")));
        let context = answer.map_err(|e| {
            format!(
                "the solver {} cannot be used: expected a program that speaks SMT-LIB 2, got: {e}",
                program.display()
            )
        })?;
        Ok(Solver { context, asked: 0, proved: 0, spent: Duration::ZERO })
    }

    /// The solver called `z3` on the search path, if there is one.
    pub fn on_path() -> Option<Solver> {
        Solver::start(Path::new("z3")).ok()
    }

    /// True if `facts` imply `goal >= 0`.
    pub fn implies(&mut self, arena: &mut Arena, facts: &Facts, goal: TermId) -> bool {
        if self.asked >= QUESTIONS_MAX || self.spent > TOTAL {
            return false;
        }
        self.asked += 1;
        let start = Instant::now();
        let answer = self.ask(arena, facts, goal);
        self.spent += start.elapsed();
        let proved = answer.unwrap_or_else(|_| {
            // A solver that fell over is not asked again.
            self.asked = QUESTIONS_MAX;
            false
        });
        self.proved += u32::from(proved);
        proved
    }

    fn ask(&mut self, arena: &mut Arena, facts: &Facts, goal: TermId) -> std::io::Result<bool> {
        self.context.push()?;
        let mut question = Question { context: &mut self.context, memo: Map::default(), too_long: false };
        for p in facts.inequalities() {
            let p = question.sum(arena, p)?;
            let zero = question.context.numeral(0);
            let c = question.call(">=", [p, zero]);
            question.context.assert(c)?;
        }
        for t in facts.truths() {
            let t = question.term(arena, t)?;
            question.context.assert(t)?;
        }
        let goal = question.term(arena, goal)?;
        let zero = question.context.numeral(0);
        let not = question.call("<", [goal, zero]);
        question.context.assert(not)?;
        let too_long = question.too_long;
        let answer = if too_long { Response::Unknown } else { self.context.check()? };
        self.context.pop()?;
        Ok(answer == Response::Unsat)
    }
}

/// A running solver that has answered one question: a program of another kind is found out here.
fn begin(program: &Path) -> Result<Context, String> {
    let stem = program.file_stem().map(|s| s.to_string_lossy().to_lowercase()).unwrap_or_default();
    let args: Vec<String> = if stem.contains("cvc5") {
        vec!["--lang=smt2".into(), "--incremental".into(), format!("--tlimit-per={QUESTION_MS}")]
    } else {
        vec!["-smt2".into(), "-in".into(), format!("-t:{QUESTION_MS}"), "-memory:1024".into()]
    };
    let failed = |e: std::io::Error| e.to_string();
    let mut context = ContextBuilder::new().solver(program).solver_args(args).build().map_err(failed)?;
    match context.check().map_err(failed)? {
        Response::Sat => Ok(context),
        other => Err(format!("{other:?} to an empty question")),
    }
}

/// One question under construction.
struct Question<'a> {
    context: &'a mut Context,
    memo: Map<TermId, SExpr>,
    too_long: bool,
}

impl Question<'_> {
    fn call<const N: usize>(&self, name: &str, args: [SExpr; N]) -> SExpr {
        let mut list = vec![self.context.atom(name)];
        list.extend(args);
        self.context.list(list)
    }

    fn number(&self, n: i128) -> SExpr {
        let size = self.context.numeral(n.unsigned_abs());
        if n < 0 { self.call("-", [size]) } else { size }
    }

    /// A constant of which only the range is known.
    fn unknown(&mut self, arena: &mut Arena, t: TermId, label: &str) -> std::io::Result<SExpr> {
        let sort = if arena.sort(t) == Sort::Bool { self.context.bool_sort() } else { self.context.int_sort() };
        let x = self.context.declare_const(format!("{label}{}", t.0), sort)?;
        if arena.sort(t) != Sort::Bool {
            let r = arena.range(t);
            for (bound, op) in [(r.lo, ">="), (r.hi, "<=")] {
                if let Some(b) = bound {
                    let b = self.number(b);
                    let c = self.call(op, [x, b]);
                    self.context.assert(c)?;
                }
            }
        }
        Ok(x)
    }

    fn term(&mut self, arena: &mut Arena, t: TermId) -> std::io::Result<SExpr> {
        if let Some(x) = self.memo.get(&t) {
            return Ok(*x);
        }
        if self.memo.len() > TERMS_MAX {
            self.too_long = true;
        }
        let x = if self.too_long { self.number(0) } else { self.encode(arena, t)? };
        self.memo.insert(t, x);
        Ok(x)
    }

    fn sum(&mut self, arena: &mut Arena, p: &Poly) -> std::io::Result<SExpr> {
        let mut parts = vec![self.context.atom("+"), self.number(0), self.number(0)];
        for (m, c) in &p.terms {
            let mut product = vec![self.context.atom("*"), self.number(*c), self.number(1)];
            for t in m {
                product.push(self.term(arena, *t)?);
            }
            parts.push(self.context.list(product));
        }
        Ok(self.context.list(parts))
    }

    fn encode(&mut self, arena: &mut Arena, t: TermId) -> std::io::Result<SExpr> {
        let node = arena.node(t).clone();
        Ok(match node {
            Node::Poly(p) => self.sum(arena, &p)?,
            Node::Bool(b) => self.context.atom(if b { "true" } else { "false" }),
            Node::Ge0(a) => {
                let a = self.term(arena, a)?;
                self.call(">=", [a, self.number(0)])
            }
            Node::Eq0(a) => {
                let a = self.term(arena, a)?;
                self.call("=", [a, self.number(0)])
            }
            Node::Not(a) => {
                let a = self.term(arena, a)?;
                self.call("not", [a])
            }
            Node::And(ts) | Node::Or(ts) => {
                let and = matches!(arena.node(t), Node::And(_));
                let mut list = vec![self.context.atom(if and { "and" } else { "or" })];
                for x in ts {
                    list.push(self.term(arena, x)?);
                }
                self.context.list(list)
            }
            Node::Ite(c, a, b) if arena.sort(t) != Sort::Data => {
                let (c, a, b) = (self.term(arena, c)?, self.term(arena, a)?, self.term(arena, b)?);
                self.call("ite", [c, a, b])
            }
            Node::Min(a, b) | Node::Max(a, b) => {
                let min = matches!(arena.node(t), Node::Min(..));
                let (a, b) = (self.term(arena, a)?, self.term(arena, b)?);
                let c = self.call(if min { "<=" } else { ">=" }, [a, b]);
                self.call("ite", [c, a, b])
            }
            Node::Div(a, b) | Node::Mod(a, b) | Node::TDiv(a, b) | Node::TRem(a, b) => self.division(arena, t, a, b)?,
            _ => self.unknown(arena, t, "t")?,
        })
    }

    /// For a positive divisor SMT-LIB's `div` and `mod` are floor division and its remainder; for any other the result is unknown.
    fn division(&mut self, arena: &mut Arena, t: TermId, a: TermId, b: TermId) -> std::io::Result<SExpr> {
        let (x, y) = (self.term(arena, a)?, self.term(arena, b)?);
        let zero = self.number(0);
        let floor = self.call("div", [x, y]);
        let rest = self.call("mod", [x, y]);
        let below = self.call("<", [x, zero]);
        let value = match arena.node(t) {
            Node::Div(..) => floor,
            Node::Mod(..) => rest,
            truncating => {
                // Towards zero: -((-x) div y) for a negative x.
                let minus = self.call("-", [x]);
                let (d, r) = (self.call("div", [minus, y]), self.call("mod", [minus, y]));
                let (up, down) = if matches!(truncating, Node::TDiv(..)) { (floor, d) } else { (rest, r) };
                let negated = self.call("-", [down]);
                self.call("ite", [below, negated, up])
            }
        };
        let positive = self.call(">", [y, zero]);
        let open = self.unknown(arena, t, "d")?;
        Ok(self.call("ite", [positive, value, open]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Range, VarKind, tests::arena};
    use super::*;

    /// Counted as ignored where there is no solver: the tests are `#[ignore]`d and `.ci/run` asks for them where z3 is installed.
    fn solver() -> Solver {
        Solver::on_path().expect("z3 on the search path")
    }

    #[test]
    #[ignore = "needs the z3 program"]
    fn alternatives_are_decided() {
        let mut t = arena();
        let i = t.var(VarKind::Bound, "i", Range { lo: Some(0), hi: None });
        let i = t.var_term(i);
        let (a, b, n) =
            (t.intern(Node::Arg(0), Sort::Int), t.intern(Node::Arg(1), Sort::Int), t.intern(Node::Arg(2), Sort::Int));
        let mut facts = Facts::default();
        // (i < a or i < b), a <= n, b <= n: i < n.
        let (x, y) = (t.lt(i, a), t.lt(i, b));
        let either = t.or([x, y]);
        let (an, bn) = (t.ge(n, a), t.ge(n, b));
        for c in [either, an, bn] {
            facts.assume(&mut t, c);
        }
        let room = t.sub(n, i);
        let room = t.add_const(room, -1);
        assert!(!facts.proves_hard(&mut t, room), "the other provers do not look at alternatives");
        let mut s = solver();
        assert!(s.implies(&mut t, &facts, room));
        let less = t.add_const(room, -1);
        assert!(!s.implies(&mut t, &facts, less));
        assert_eq!((s.asked, s.proved), (2, 1));
    }

    #[test]
    #[ignore = "needs the z3 program"]
    fn truncating_division_is_encoded_as_the_kernel_divides() {
        let mut t = arena();
        let n = t.intern(Node::Arg(0), Sort::Int);
        let eight = t.int(8);
        let (q, r) = (t.tdiv(n, eight), t.trem(n, eight));
        let mut facts = Facts::default();
        let minus = t.scale(n, -1);
        let minus = t.add_const(minus, -1);
        let negative = t.ge0(minus);
        facts.assume(&mut t, negative);
        let mut s = solver();
        // n < 0: the remainder is not positive, and n <= 8*q.
        let up = t.scale(r, -1);
        assert!(s.implies(&mut t, &facts, up));
        let q8 = t.scale(q, 8);
        let d = t.sub(q8, n);
        assert!(s.implies(&mut t, &facts, d));
        assert!(!s.implies(&mut t, &facts, r), "-1 is a remainder");
    }

    #[test]
    fn a_program_that_is_no_solver_is_refused() {
        for program in ["/nonexistent/z3", "/bin/true"] {
            let e = Solver::start(Path::new(program)).err().expect("refused");
            assert!(e.contains(program) && e.contains("SMT-LIB"), "{e}");
        }
    }
}

//! Output coordinates: the address of a store, split by strides into the numbers that name an element.
//!
//! `(pid_m*64 + i)*stride + pid_n*32 + j` has the coordinates `c0 = pid_m*64 + i` and `c1 = pid_n*32 + j`. How a program id was
//! computed does not matter: the block-local index is solved for, `i = c0 - pid_m*64`, and the program id cancels in whatever depends
//! on the row alone. Where it does not cancel, a coordinate can be split into digits, `c0 = 64*p + i` with `0 <= i < 64`; the row is
//! then a block of outputs, and the report says how many.

use super::verdict::Condition;
use crate::term::Map as HashMap;
use crate::term::{Arena, Facts, Mono, Node, Poly, Range, TermId, VarId, VarKind};

/// A digit that lies above others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Where it was split off, in steps of the coordinate before the split.
    pub at: i128,
    /// The same in strides of the coordinate: how many outputs (or, with a stride, how many rows of that stride) lie below one step of it.
    pub outputs: i128,
}

/// One output coordinate.
#[derive(Clone, Debug)]
pub struct Coord {
    /// Stands for it in the value.
    pub var: VarId,
    /// Its term.
    pub term: TermId,
    /// Product of arguments it is multiplied with in the address (empty: 1).
    pub stride: Mono,
    /// Constant factor beside `stride`.
    pub factor: i128,
    /// A constant that is added to the stride: rows of `n + 1` elements have 1.
    pub also: i128,
    /// What it is, over instance variables.
    pub definition: TermId,
    /// What was split off below, if this one is a digit.
    pub packed: Option<Packed>,
    /// The block-local index or program id that was solved for.
    pub solved: Option<TermId>,
    /// The remainder of a division in the value: a column only if nothing says that it is a row.
    pub remainder: bool,
    /// Numbers the places of a list of rows (`out[slots[t]]` is row t), or is a digit of such a number.
    pub listed: bool,
}

/// A group of address terms with one stride.
#[derive(Clone, Debug)]
struct Group {
    stride: Mono,
    factor: i128,
    expr: Poly,
    packed: Option<Packed>,
    listed: bool,
    also: i128,
}

/// The coordinates of one site and how instance variables follow from them.
#[derive(Clone, Debug)]
pub struct Coords {
    /// Outermost first.
    pub list: Vec<Coord>,
    /// Instance term to its expression in coordinates (and in instance variables that were not solved for).
    pub solution: HashMap<TermId, TermId>,
    /// What the ranges of the solved variables say.
    pub range_facts: Vec<TermId>,
    /// The part of the address without instance variables.
    pub rest: TermId,
    /// Bounds on grid axes that a split relied on: axis, most programs.
    pub grid_bounds: Vec<(u8, i128)>,
    groups: Vec<Group>,
}

impl Coords {
    /// Splits an address.
    pub fn of_address(arena: &mut Arena, offset: TermId) -> Coords {
        let p = arena.poly(offset);
        let mut groups: Vec<Group> = Vec::new();
        let mut rest = Poly::default();
        let strides = tensor_strides(arena, &p);
        let shared = shared_strides(arena, &p, &strides);
        for (m, c) in &p.terms {
            let (mut inst, mut stride): (Mono, Mono) = m.iter().partition(|&&t| counts(arena, t));
            if !m.iter().any(|&t| arena.has_instance(t)) {
                rest.terms.push((m.clone(), *c));
                continue;
            }
            if let Some((_, part)) = shared.iter().find(|(whole, _)| *whole == stride) {
                inst = without(m, part);
                stride.clone_from(part);
            }
            let common = shared.iter().any(|(_, part)| *part == stride);
            if counts_iterations(arena, &inst) && !strides.contains(&stride) && !common {
                // How far an iteration moves the address is not the layout of a tensor: an element's number is the whole
                // product, and what depends on the iteration alone depends on the step.
                let kept = strides.iter().filter(|s| includes(&stride, s)).max_by_key(|s| s.len()).cloned();
                let kept = kept.unwrap_or_default();
                inst = without(m, &kept);
                stride = kept;
            }
            let at = groups.iter().position(|g| g.stride == stride).unwrap_or_else(|| {
                groups.push(Group { stride, factor: 1, expr: Poly::default(), packed: None, listed: false, also: 0 });
                groups.len() - 1
            });
            let part = Poly { terms: vec![(inst, *c)] };
            groups[at].expr = groups[at].expr.add_scaled(&part, 1).unwrap_or_default();
        }
        longer_strides(arena, &mut groups);
        // A constant number of strides belongs to the coordinate.
        for g in &mut groups {
            let c = rest.coeff(&g.stride);
            g.expr = g.expr.add_scaled(&Poly::constant(c), 1).unwrap_or_default();
            rest.terms.retain(|(m, _)| *m != g.stride);
        }
        for g in &mut groups {
            normalise(g, &mut rest);
        }
        sort(&mut groups, true);
        let rest = arena.from_poly(rest);
        let mut out = Coords {
            list: Vec::new(),
            solution: HashMap::default(),
            range_facts: Vec::new(),
            rest,
            grid_bounds: Vec::new(),
            groups,
        };
        out.solve(arena);
        out
    }

    fn solve(&mut self, arena: &mut Arena) {
        self.list.clear();
        self.solution.clear();
        self.range_facts.clear();
        let groups = self.groups.clone();
        for g in groups {
            let definition = arena.from_poly(g.expr.clone());
            let now = arena.subst(definition, &self.solution);
            if !arena.has_instance(now) {
                // Follows from the coordinates so far (the same index in two places of the address).
                continue;
            }
            let number = self.list.len() as u32;
            let name = format!("c{number}");
            // No range: two sites may share the coordinate. Its bounds are facts of the site.
            let var = arena.var(VarKind::Coord(number), name, Range::default());
            let term = arena.var_term(var);
            let solved = self.solve_one(arena, now, term);
            self.list.push(Coord {
                var,
                term,
                stride: g.stride,
                factor: g.factor,
                also: g.also,
                definition,
                packed: g.packed,
                solved,
                remainder: false,
                listed: g.listed,
            });
        }
        self.join_digits(arena);
    }

    /// Both digits of a block-local index are coordinates, `i div k` and `i mod k`: then `i = k * (i div k) + i mod k` follows, by the
    /// definition of floor division.
    fn join_digits(&mut self, arena: &mut Arena) {
        let highs: Vec<(TermId, TermId)> = self.solution.iter().map(|(t, x)| (*t, *x)).collect();
        for (high, q) in highs {
            let Node::Div(i, k) = *arena.node(high) else { continue };
            let low = arena.modulo(i, k);
            let index =
                matches!(arena.node(i), Node::Var(v) if matches!(arena.vars[v.0 as usize].kind, VarKind::Index(..)));
            let (Some(&d), Some(k), false) = (self.solution.get(&low), arena.as_int(k), self.solution.contains_key(&i))
            else {
                continue;
            };
            if !index {
                continue;
            }
            let q = arena.scale(q, k);
            let whole = arena.add(q, d);
            arena.rules.insert("join-digits");
            self.bound(arena, i, whole);
            self.solution.insert(i, whole);
        }
    }

    /// What the range of an atom says of what it was solved to.
    fn bound(&mut self, arena: &mut Arena, atom: TermId, value: TermId) {
        let r = arena.range(atom);
        for (bound, sign) in [(r.lo, 1), (r.hi, -1)] {
            if let Some(b) = bound {
                let d = arena.add_const(value, -b);
                let d = arena.scale(d, sign);
                let fact = arena.ge0(d);
                self.range_facts.push(fact);
            }
        }
    }

    /// Solves `now = c` for the best atom with coefficient one.
    fn solve_one(&mut self, arena: &mut Arena, now: TermId, c: TermId) -> Option<TermId> {
        let p = arena.poly(now);
        let mut best: Option<(u32, TermId, i128)> = None;
        for (m, k) in &p.terms {
            let [atom] = m.as_slice() else { continue };
            if k.abs() != 1 || !arena.has_instance(*atom) {
                continue;
            }
            let rank = match arena.node(*atom) {
                Node::Var(v) => match arena.vars[v.0 as usize].kind {
                    VarKind::Index(..) => 0,
                    VarKind::Iter(_) => 1,
                    VarKind::Pid(_) => 2,
                    _ => continue,
                },
                _ => 3,
            };
            // Solving needs the atom to occur nowhere else in the address part.
            let elsewhere = p.terms.iter().any(|(n, _)| n != m && n.iter().any(|&t| occurs(arena, t, *atom)));
            if !elsewhere && best.is_none_or(|b| rank < b.0) {
                best = Some((rank, *atom, *k));
            }
        }
        let (_, atom, k) = best?;
        let without = arena.add_scaled(now, atom, -k);
        let diff = arena.sub(c, without);
        let value = arena.scale(diff, k);
        self.bound(arena, atom, value);
        let map = HashMap::from_iter([(atom, value)]);
        for v in self.solution.values_mut() {
            *v = arena.subst(*v, &map);
        }
        self.solution.insert(atom, value);
        Some(atom)
    }

    /// Splits the coordinate of a stride as another store to the same memory was.
    pub fn split_at(&mut self, arena: &mut Arena, facts: &Facts, (stride, factor): &(Mono, i128)) -> bool {
        (0..self.groups.len()).any(|i| self.groups[i].stride == *stride && self.split_group(arena, facts, i, *factor))
    }

    /// Where the address follows from one loaded integer (a slot, a page, a token), its index is the row instead: `out[slots[t]]` is row
    /// t. Two rows must not have one slot, and the address must tell slots apart.
    pub fn scatter(&mut self, arena: &mut Arena, left: &[VarId], conditions: &mut Vec<Condition>) -> bool {
        for i in 0..self.groups.len() {
            let expr = arena.from_poly(self.groups[i].expr.clone());
            let Some(load) = scatter_load(arena, expr) else { continue };
            let Node::Load(slot) = *arena.node(load) else { continue };
            if !left.iter().any(|v| arena.contains_var(slot.offset, *v)) {
                continue;
            }
            // All groups that are functions of the same load give way to its index.
            let (mut kept, mut given): (Vec<Group>, Vec<Poly>) = Default::default();
            for (k, g) in self.groups.clone().into_iter().enumerate() {
                let t = arena.from_poly(g.expr.clone());
                if k == i {
                    let expr = arena.poly(slot.offset);
                    let mut group = Group { expr, packed: None, listed: true, also: 0, ..g.clone() };
                    normalise(&mut group, &mut Poly::default());
                    kept.push(group);
                }
                if scatter_load(arena, t) == Some(load) {
                    given.push(g.expr);
                } else if k != i {
                    kept.push(g);
                }
            }
            if !tells_apart(arena, &given, load) {
                continue;
            }
            sort(&mut kept, false);
            self.groups = kept;
            conditions.push(Condition::Distinct { base: slot.base });
            arena.rules.insert("scatter-by-slot");
            self.solve(arena);
            return true;
        }
        false
    }

    /// That no coordinate is negative: an address is within its buffer, and what lies below a stride does not reach the row before. Not
    /// claimed where something else is added to the address or a coordinate counts down.
    pub fn not_negative(&self, arena: &mut Arena) -> TermId {
        let plain = arena.as_int(self.rest) == Some(0);
        let up = |arena: &Arena, c: &Coord| arena.poly(c.definition).terms.iter().all(|(_, k)| *k > 0);
        let list: Vec<TermId> = self.list.iter().filter(|c| plain && up(arena, c)).map(|c| c.term).collect();
        let parts: Vec<TermId> = list.into_iter().map(|t| arena.ge0(t)).collect();
        arena.and(parts)
    }

    /// Strides, factors and what is listed: two sites can be joined only if these agree.
    pub fn shape(&self) -> Vec<(Mono, i128, i128, bool)> {
        self.list.iter().map(|c| (c.stride.clone(), c.factor, c.also, c.listed)).collect()
    }

    /// The digits that were split off: stride of the coordinate, and where.
    pub fn splits(&self) -> Vec<(Mono, i128)> {
        self.groups.iter().filter_map(|g| Some((g.stride.clone(), g.packed?.at))).collect()
    }

    /// Splits a coordinate whose definition contains one of `left` (instance variables that are still in the value) into digits.
    /// False if none can be split.
    pub fn split(&mut self, arena: &mut Arena, facts: &Facts, left: &[VarId]) -> bool {
        // What lies about the list of rows belongs to its places.
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order.sort_by_key(|i| !self.groups[*i].listed);
        for i in order {
            let g = self.groups[i].clone();
            for factor in digit_factors(arena, &g.expr, left) {
                if self.split_group(arena, facts, i, factor) {
                    return true;
                }
            }
        }
        false
    }

    /// Splits every coordinate that is variables above numbers that were read (`16*row + x[i]`) between the two. False if none was.
    pub fn split_data(&mut self, arena: &mut Arena, facts: &Facts) -> bool {
        for i in 0..self.groups.len() {
            let is_var =
                |arena: &Arena, m: &Mono| matches!(m.as_slice(), [t] if matches!(arena.node(*t), Node::Var(_)));
            let terms = &self.groups[i].expr.terms;
            let data = terms.iter().any(|(m, _)| !m.is_empty() && !is_var(arena, m));
            let step = terms.iter().filter(|(m, _)| is_var(arena, m)).fold(0, |g, (_, c)| gcd(g, c.abs()));
            if data && step > 1 && self.split_group(arena, facts, i, step) {
                return true;
            }
        }
        false
    }

    fn split_group(&mut self, arena: &mut Arena, facts: &Facts, i: usize, factor: i128) -> bool {
        let g = self.groups[i].clone();
        let (mut high, mut low) = (Poly::default(), Poly::default());
        for (m, c) in &g.expr.terms {
            let part = if c % factor == 0 { &mut high } else { &mut low };
            part.terms.push((m.clone(), *c));
        }
        let constant = |p: &Poly| p.as_const().is_some();
        if constant(&high) || constant(&low) {
            return false;
        }
        let low_term = arena.from_poly(low.clone());
        let Some(bounds) = self.digit_bounds(arena, facts, low_term, factor) else { return false };
        let mut rest = Poly::default();
        let packed = Packed { at: factor, outputs: factor * g.factor };
        let mut upper = Group { expr: high, packed: Some(packed), ..g.clone() };
        let mut lower = Group { expr: low, ..g };
        normalise(&mut upper, &mut rest);
        normalise(&mut lower, &mut rest);
        if !rest.terms.is_empty() {
            return false;
        }
        arena.rules.insert("split-digits");
        self.grid_bounds.extend(bounds);
        self.groups.splice(i..=i, [upper, lower]);
        sort(&mut self.groups, false);
        self.solve(arena);
        true
    }

    /// Shows `0 <= low < factor`, with at most a bound on one grid axis taken on trust (and reported).
    fn digit_bounds(&self, arena: &mut Arena, facts: &Facts, low: TermId, factor: i128) -> Option<Vec<(u8, i128)>> {
        let room = arena.scale(low, -1);
        let room = arena.add_const(room, factor - 1);
        if !facts.proves(arena, low) {
            return None;
        }
        if facts.proves(arena, room) {
            return Some(vec![]);
        }
        let p = arena.poly(low);
        for (m, c) in &p.terms {
            if let [atom] = m.as_slice()
                && let Node::Var(v) = *arena.node(*atom)
                && let VarKind::Pid(axis) = arena.vars[v.0 as usize].kind
                && *c > 0
                && factor % c == 0
            {
                // With pid <= factor/c - 1 the rest must be below c.
                let others = arena.add_scaled(low, *atom, -c);
                let room = arena.scale(others, -1);
                let room = arena.add_const(room, c - 1);
                if facts.proves(arena, room) && facts.proves(arena, others) {
                    return Some(vec![(axis, factor / c)]);
                }
            }
        }
        None
    }
}

/// The one load that carries all instance variables of `expr`, read from a pointer argument and not masked.
fn scatter_load(arena: &Arena, expr: TermId) -> Option<TermId> {
    let (mut found, mut other) = (None, false);
    arena.walk_while(expr, |t, n| match n {
        _ if !arena.has_instance(t) => false,
        Node::Load(l) if matches!(arena.node(l.base), Node::ArgPtr(_)) && arena.as_bool(l.mask) == Some(true) => {
            other |= found.is_some_and(|f| f != t);
            found = Some(t);
            false
        }
        Node::Var(_) | Node::Load(_) | Node::Opaque(..) | Node::Fold(_) => {
            other = true;
            false
        }
        _ => true,
    });
    found.filter(|_| !other)
}

/// True if the parts of an address determine the loaded number in them: one is a multiple of it plus what no instance changes (or of its
/// digits put together again), or both of its digits to one base each stand alone.
fn tells_apart(arena: &mut Arena, parts: &[Poly], load: TermId) -> bool {
    let mut alone = Vec::new();
    for p in parts {
        let moving: Vec<(TermId, i128)> = p
            .terms
            .iter()
            .filter(|(m, _)| m.iter().any(|&t| arena.has_instance(t)))
            .map(|(m, c)| if let [t] = m.as_slice() { (*t, *c) } else { (load, 0) })
            .collect();
        match moving.as_slice() {
            [(t, c)] if *c != 0 => alone.push(*t),
            [(t, c), (u, d)] => {
                for (high, c, low, d) in [(t, c, u, d), (u, d, t, c)] {
                    let base = low_digit(arena, *high, load)
                        .filter(|(mod_k, _)| mod_k == low)
                        .and_then(|(_, k)| arena.as_int(k));
                    if base.is_some_and(|k| *d != 0 && *c == d * k) {
                        return true;
                    }
                }
            }
            _ => {}
        }
    }
    alone.iter().any(|&t| t == load || low_digit(arena, t, load).is_some_and(|(low, _)| alone.contains(&low)))
}

/// For the high digit of `x` to some base, the low one and the base.
fn low_digit(arena: &mut Arena, t: TermId, x: TermId) -> Option<(TermId, TermId)> {
    match *arena.node(t) {
        Node::Div(y, k) if x == y => Some((arena.modulo(x, k), k)),
        Node::TDiv(y, k) if x == y => Some((arena.trem(x, k), k)),
        _ => None,
    }
}

fn occurs(arena: &Arena, inside: TermId, atom: TermId) -> bool {
    let mut found = false;
    arena.walk(inside, |t, _| found |= t == atom);
    found
}

/// A factor that numbers elements: of an instance, or a share of the work that is computed from the size of the grid, which is no stride of a tensor.
fn counts(arena: &Arena, t: TermId) -> bool {
    let share =
        || !matches!(arena.node(t), Node::NumPrograms(_)) && arena.any(t, |n| matches!(n, Node::NumPrograms(_)));
    arena.has_instance(t) || share()
}

/// Products of arguments that multiply something else than a number of iterations: the strides of a tensor.
fn tensor_strides(arena: &Arena, p: &Poly) -> Vec<Mono> {
    let mut out: Vec<Mono> = Vec::new();
    for (m, _) in &p.terms {
        let (inst, stride): (Mono, Mono) = m.iter().partition(|&&t| counts(arena, t));
        if !inst.is_empty() && !counts_iterations(arena, &inst) && !out.contains(&stride) {
            out.push(stride);
        }
    }
    out
}

/// A step of an iteration that divides the stride of a program (`pid*rows*S + n*S`): then S is the stride, and rows are numbered through.
/// Pairs of the larger and the smaller one.
fn shared_strides(arena: &Arena, p: &Poly, strides: &[Mono]) -> Vec<(Mono, Mono)> {
    let mut out: Vec<(Mono, Mono)> = Vec::new();
    for (m, _) in &p.terms {
        let (inst, step): (Mono, Mono) = m.iter().partition(|&&t| counts(arena, t));
        if inst.is_empty() || step.is_empty() || !counts_iterations(arena, &inst) || strides.contains(&step) {
            continue;
        }
        for whole in strides.iter().filter(|s| s.len() > step.len() && includes(s, &step)) {
            if !out.iter().any(|(w, _)| w == whole) {
                out.push((whole.clone(), step.clone()));
            }
        }
    }
    out
}

/// True for a product with the number of an iteration.
fn counts_iterations(arena: &Arena, inst: &Mono) -> bool {
    inst.iter()
        .any(|t| matches!(arena.node(*t), Node::Var(v) if matches!(arena.vars[v.0 as usize].kind, VarKind::Iter(_))))
}

/// True if every factor of `part` is one of `whole`, as often.
fn includes(whole: &Mono, part: &Mono) -> bool {
    without(whole, part).len() + part.len() == whole.len()
}

/// `whole` without the factors of `part`.
fn without(whole: &Mono, part: &Mono) -> Mono {
    let mut out = whole.clone();
    for t in part {
        if let Some(i) = out.iter().position(|u| u == t) {
            out.remove(i);
        }
    }
    out
}

/// `p*n + p*k + rest` with a program id p is row p of rows of `n + k` elements.
fn longer_strides(arena: &Arena, groups: &mut [Group]) {
    let Some(near) = groups.iter().position(|g| g.stride.is_empty()) else { return };
    for i in 0..groups.len() {
        let ([(m, 1)], [stride]) = (groups[i].expr.terms.as_slice(), groups[i].stride.as_slice()) else { continue };
        let program = matches!(m.as_slice(), [t] if matches!(arena.node(*t), Node::Var(v)
            if matches!(arena.vars[v.0 as usize].kind, VarKind::Pid(_))));
        let (m, k) = (m.clone(), groups[near].expr.coeff(m));
        if program && k > 0 && matches!(arena.node(*stride), Node::Arg(_)) && groups[near].expr.terms.len() > 1 {
            groups[near].expr.terms.retain(|(n, _)| *n != m);
            groups[i].also = k;
        }
    }
}

/// Outermost first: more strides before fewer, a larger factor of a stride before a smaller one. How different strides compare is not known: at
/// first the larger factor goes first, else the order of the arguments; a stride whose index is split stays where it was, since the factor of
/// its high digit says nothing about other strides.
fn sort(groups: &mut [Group], fresh: bool) {
    let mut order: Vec<Mono> = Vec::new();
    if fresh {
        groups.sort_by_key(|g| std::cmp::Reverse((g.stride.len(), g.factor)));
    }
    for g in groups.iter() {
        if !order.contains(&g.stride) {
            order.push(g.stride.clone());
        }
    }
    let place = |g: &Group| order.iter().position(|s| *s == g.stride);
    groups.sort_by_key(|g| (std::cmp::Reverse(g.stride.len()), place(g), std::cmp::Reverse(g.factor)));
}

/// Divides out the common factor; what it does not divide of the constant goes to `rest`.
fn normalise(g: &mut Group, rest: &mut Poly) {
    let f = g.expr.terms.iter().filter(|(m, _)| !m.is_empty()).fold(0i128, |f, (_, c)| gcd(f, c.abs())).max(1);
    let mut terms = Vec::new();
    for (m, c) in &g.expr.terms {
        let (q, r) = (c.div_euclid(f), c.rem_euclid(f));
        if q != 0 {
            terms.push((m.clone(), q));
        }
        if r != 0 {
            rest.terms.push((m.clone(), r));
        }
    }
    g.expr = Poly { terms };
    g.factor *= f;
    g.also *= f;
}

/// Coefficients of the variables in question, largest first: where a digit may begin.
fn digit_factors(arena: &Arena, p: &Poly, left: &[VarId]) -> Vec<i128> {
    let mut out: Vec<i128> = Vec::new();
    for (m, c) in &p.terms {
        let wanted = m.iter().any(|&t| left.iter().any(|v| arena.contains_var(t, *v)));
        if wanted && c.abs() > 1 {
            out.push(c.abs());
        }
    }
    // A variable below: split above it.
    let below =
        p.terms.iter().any(|(m, c)| c.abs() == 1 && m.iter().any(|&t| left.iter().any(|v| arena.contains_var(t, *v))));
    if below {
        out.extend(p.terms.iter().filter(|(m, c)| !m.is_empty() && c.abs() > 1).map(|(_, c)| c.abs()));
    }
    out.sort_unstable();
    out.dedup();
    out.reverse();
    out
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

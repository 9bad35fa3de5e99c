//! Arguments and memory of a trial launch, guessed from the roles that the analysis found.

use crate::analysis::measure::Numbers;
use crate::analysis::{Analysis, Condition, Problem};
use crate::eval::Evaluator;
use crate::interp::{Arg, Buffer, Launch, Memory, Options};
use crate::ir::{Elem, Float, Scalar, Type};
use crate::term::{Node, Sort, TermId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Elements of every buffer.
pub const LEN: usize = 1 << 17;

/// What kind of argument a parameter is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// An extent or count.
    Size,
    /// Only a stride.
    Stride,
    /// A float.
    Float,
    /// A pointer to data.
    Data(Scalar),
    /// A pointer to integers below this bound, from this one.
    Ints(Scalar, i64, i64),
    /// Prefix sums of small lengths.
    Prefix(Scalar),
    /// A permutation.
    Perm(Scalar),
    /// Integers that start at zero: counters, locks.
    Zero(Scalar),
    /// A host descriptor.
    Desc(Scalar, usize),
}

/// What is common to all trials of a kernel.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By argument.
    pub kinds: Vec<Kind>,
    /// Names of arguments.
    pub names: Vec<String>,
    /// Written pointers.
    pub outputs: Vec<u32>,
    /// Grid axes in use.
    pub axes: [bool; 3],
    /// Most programs of an axis that the layout has room for.
    pub grid_max: [u32; 3],
    /// A row's length is limited by an argument, so rows may lie as close as that.
    pub tight: bool,
    /// Pointers to floats.
    pub floats: HashMap<u32, Scalar>,
    /// How far out a stride lies among the strides of its pointers: 0 is the innermost of a pointer all of whose indices have one.
    pub tiers: HashMap<u32, u32>,
}

/// How data pointers are filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fill {
    /// Every element by itself.
    Random,
    /// The element at `i` is that of `i mod n`.
    Period(u64),
    /// One value everywhere.
    Constant,
}

/// One launch to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Integer arguments.
    pub ints: BTreeMap<u32, i64>,
    /// Grid.
    pub grid: [u32; 3],
    /// Seed of memory.
    pub seed: u64,
    /// By pointer argument; random if absent.
    pub fill: BTreeMap<u32, Fill>,
    /// Cells of a pointer outside of this range come from another seed.
    pub disturb: BTreeMap<u32, (u64, u64)>,
    /// Pointers whose whole content comes from another seed.
    pub replaced: Vec<u32>,
}

impl Trial {
    /// What conditions are measured with.
    pub fn numbers(&self) -> Numbers {
        Numbers { ints: self.ints.iter().map(|(i, v)| (*i, *v)).collect(), grid: self.grid }
    }
}

/// A mixer for seeds.
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Plan {
    /// Reads the roles off the analysis.
    pub fn new(e: &mut Evaluator<'_>, a: &Analysis<'_>) -> Option<Plan> {
        let f = e.module.kernel()?;
        let outputs: Vec<u32> = e.written.iter().copied().collect();
        let mut kinds = Vec::new();
        let mut names = Vec::new();
        let mut floats = HashMap::new();
        for (i, p) in f.params.iter().enumerate() {
            let i = i as u32;
            names.push(crate::analysis::judge::arg_name(e, i));
            let role = a.args.get(i as usize).map_or("", |r| r.role);
            let kind = match f.ty(p.value) {
                Type::Elem(Elem::Ptr { pointee, .. }) if pointee.is_int() && outputs.contains(&i) => {
                    Kind::Zero(*pointee)
                }
                Type::Elem(Elem::Ptr { pointee, .. }) if pointee.is_int() => int_content(e, a, i, *pointee),
                Type::Elem(Elem::Ptr { pointee, .. }) => Kind::Data(*pointee),
                Type::Elem(Elem::Scalar(s)) if s.is_float() => Kind::Float,
                Type::Elem(Elem::Scalar(_)) => {
                    let in_guard = a.effects.sites.iter().any(|s| e.arena.any(s.guard, |n| *n == Node::Arg(i)));
                    let moves = role == "moves what is read" && multiplies(e, a, i);
                    let stride = (role == "masks or addresses only" || moves) && !in_guard;
                    if stride { Kind::Stride } else { Kind::Size }
                }
                Type::Desc { block, elem } => Kind::Desc(*elem, block.len()),
                _ => return None,
            };
            if let Kind::Data(s) = kind {
                floats.insert(i, s);
            }
            kinds.push(kind);
        }
        let mut axes = [false; 3];
        for (axis, _) in e.pids_used() {
            axes[axis as usize] = true;
        }
        let mut grid_max = [u32::MAX; 3];
        for c in &a.conditions {
            if let Condition::Grid { axis, max } = c {
                grid_max[*axis as usize] = u32::try_from(*max).unwrap_or(u32::MAX);
            }
        }
        let tight =
            !a.sites.is_empty() && a.sites.iter().all(|j| crate::analysis::rows::inner_guarded(&e.arena, &j.solved));
        let tiers = tiers(e, a, &kinds);
        Some(Plan { kinds, names, outputs, axes, grid_max, tight, floats, tiers })
    }

    /// A launch to start from.
    pub fn trial(&self, seed: u64) -> Trial {
        let all = [3i64, 5, 6, 8, 33, 40, 64, 70, 100, 130, 200, 300, 600, 1100];
        // Lengths of sequences are below 64: an extent of the batch is not less than any of them.
        let lengths = self.kinds.iter().any(|k| matches!(k, Kind::Ints(_, 1, 60)));
        // Nested strides leave room for small extents only.
        let nested = self.tiers.values().any(|t| *t > 1);
        let sizes = match (lengths, nested) {
            (true, _) => &all[6..],
            (_, true) => &all[..10],
            _ => &all[..],
        };
        let mut state = mix(seed);
        let mut next = move |n: usize| {
            state = mix(state);
            (state % n as u64) as usize
        };
        let mut ints = BTreeMap::new();
        let mut largest = 1;
        for (i, k) in self.kinds.iter().enumerate() {
            if *k == Kind::Size {
                let v = sizes[next(sizes.len())];
                largest = largest.max(v);
                ints.insert(i as u32, v);
            }
        }
        let wide = [512, 1024, 640][next(3)];
        let stride = if self.tight && next(2) == 0 { largest } else { wide.max(largest) };
        for (i, k) in self.kinds.iter().enumerate() {
            if *k == Kind::Stride {
                let outer = if nested { 256 } else { stride };
                let value = match self.tiers.get(&(i as u32)).copied().unwrap_or(1) {
                    0 => 1,
                    1 => outer,
                    2 => outer * 16,
                    _ => outer * 128,
                };
                ints.insert(i as u32, value);
            }
        }
        let mut grid = [1u32; 3];
        for (axis, used) in self.axes.iter().enumerate() {
            if *used {
                grid[axis] = [1, 2, 3, 4, 6, 8][next(6)].min(self.grid_max[axis]);
            }
        }
        Trial { ints, grid, seed, fill: BTreeMap::new(), disturb: BTreeMap::new(), replaced: vec![] }
    }

    /// Makes every stride but the innermost four times as long.
    pub fn widen(&self, t: &mut Trial) {
        for (i, k) in self.kinds.iter().enumerate() {
            let i = i as u32;
            if *k == Kind::Stride
                && self.tiers.get(&i) != Some(&0)
                && let Some(v) = t.ints.get_mut(&i)
            {
                *v = v.saturating_mul(4);
            }
        }
    }

    /// The launch as data.
    pub fn recipe(&self, t: &Trial, options: &Options) -> super::Recipe {
        super::Recipe {
            kinds: self.kinds.clone(),
            outputs: self.outputs.clone(),
            trial: t.clone(),
            order: options.order.clone(),
            undefined: options.undefined,
        }
    }

    /// The launch as text.
    pub fn describe(&self, t: &Trial, options: &Options) -> String {
        let mut args: Vec<String> = Vec::new();
        for (i, name) in self.names.iter().enumerate() {
            if let Some(v) = t.ints.get(&(i as u32)) {
                args.push(format!("{name}={v}"));
            }
        }
        for (i, (lo, hi)) in &t.disturb {
            args.push(format!("{} outside of {lo}..{hi} from another seed", self.names[*i as usize]));
        }
        for i in &t.replaced {
            args.push(format!("{} from another seed", self.names[*i as usize]));
        }
        let [x, y, z] = t.grid;
        format!("grid ({x}, {y}, {z}), {}, memory seed {}, programs {:?}", args.join(", "), t.seed, options.order)
    }

    /// NaNs of different payload are one value.
    pub fn both_nan(&self, pointer: u32, a: u64, b: u64) -> bool {
        match self.floats.get(&pointer) {
            Some(Scalar::Float(f)) => crate::float::decode(a, *f).is_nan() && crate::float::decode(b, *f).is_nan(),
            _ => false,
        }
    }
}

/// Offsets into a pointer, of loads and stores.
fn offsets(e: &Evaluator<'_>, a: &Analysis<'_>) -> Vec<(TermId, TermId)> {
    let mut out: Vec<(TermId, TermId)> = a.effects.sites.iter().map(|s| (s.base, s.offset)).collect();
    out.extend(a.sites.iter().flat_map(|j| &j.usage.loads).map(|u| (u.load.base, u.load.offset)));
    out.retain(|(b, _)| matches!(e.arena.node(*b), Node::ArgPtr(_)));
    out
}

/// The argument multiplies an index somewhere.
fn multiplies(e: &Evaluator<'_>, a: &Analysis<'_>, i: u32) -> bool {
    let is = |t: &TermId| *e.arena.node(*t) == Node::Arg(i);
    offsets(e, a)
        .iter()
        .any(|(_, o)| e.arena.poly(*o).terms.iter().any(|(m, c)| m.iter().any(is) && (m.len() > 1 || *c > 1)))
}

/// Strides of one pointer are nested, the last argument innermost; below the innermost lie the indices without a stride, if there are any.
fn tiers(e: &Evaluator<'_>, a: &Analysis<'_>, kinds: &[Kind]) -> HashMap<u32, u32> {
    let mut by_pointer: HashMap<TermId, (BTreeSet<u32>, bool)> = HashMap::new();
    for (base, offset) in offsets(e, a) {
        let (strides, near) = by_pointer.entry(base).or_default();
        for (m, _) in &e.arena.poly(offset).terms {
            let mut plain = !m.is_empty();
            for t in m {
                if let Node::Arg(i) = *e.arena.node(*t) {
                    plain = false;
                    if kinds[i as usize] == Kind::Stride {
                        strides.insert(i);
                    }
                }
            }
            *near |= plain;
        }
    }
    let mut out: HashMap<u32, u32> = HashMap::new();
    for (strides, near) in by_pointer.into_values() {
        for (rank, i) in strides.into_iter().rev().enumerate() {
            let tier = rank as u32 + u32::from(near);
            let known = out.entry(i).or_insert(tier);
            *known = tier.max(*known);
        }
    }
    out
}

fn int_content(e: &Evaluator<'_>, a: &Analysis<'_>, i: u32, s: Scalar) -> Kind {
    let base = |t| *e.arena.node(t) == Node::ArgPtr(i);
    // Where atomics are suspected, rows that meet are the point.
    let meets = a.sites.iter().flat_map(|j| &j.problems).any(|p| matches!(p, Problem::Schedule { .. }));
    for c in &a.conditions {
        match c {
            Condition::PrefixSum { base: b } if base(*b) => return Kind::Prefix(s),
            Condition::Distinct { base: b } if base(*b) && !meets => return Kind::Perm(s),
            _ => {}
        }
    }
    if s.bits() == 8 {
        return Kind::Data(s);
    }
    let uses: Vec<_> = a.sites.iter().flat_map(|j| &j.usage.loads).filter(|u| base(u.load.base)).collect();
    let tree = uses.iter().any(|u| u.in_tree && e.arena.sort(u.term) == Sort::Int);
    let address = uses.iter().any(|u| u.in_address);
    match (tree, address) {
        (true, false) => Kind::Ints(s, 1, 60),
        (true, true) => Kind::Ints(s, 1, 6),
        _ => Kind::Ints(s, 0, 6),
    }
}

/// A float whose order of addition shows: a random significand, exponents from 2^-3 to 2^3.
fn float_value(h: u64) -> f64 {
    let m = 1.0 + (h >> 12) as f64 / (1u64 << 52) as f64;
    let e = ((h & 0xfff) % 7) as i32 - 3;
    let sign = if h & 0x800 == 0 { 1.0 } else { -1.0 };
    sign * m * f64::from(e).exp2()
}

/// The same in the bits of a type; the common ones without a conversion, since most of a search is filling memory.
fn float_bits(h: u64, s: Scalar) -> u64 {
    let exponent = (h & 0xfff) % 7;
    let negative = u64::from(h & 0x800 != 0);
    match s {
        Scalar::Float(Float::F32) => negative << 31 | (124 + exponent) << 23 | h >> 41,
        Scalar::Float(Float::Bf16) => negative << 15 | (124 + exponent) << 7 | h >> 57,
        Scalar::Float(Float::F16) => negative << 15 | (12 + exponent) << 10 | h >> 54,
        Scalar::Float(f) => crate::float::encode(float_value(h), f, crate::float::Round::Nearest, true),
        _ => h % 120,
    }
}

/// Builds memory and launch.
pub fn build(kinds: &[Kind], outputs: &[u32], t: &Trial, memory: &mut Memory) -> (Launch, HashMap<u32, Buffer>) {
    let mut args = Vec::new();
    let mut buffers = HashMap::new();
    for (i, kind) in kinds.iter().enumerate() {
        let i = i as u32;
        let arg = match kind {
            Kind::Size | Kind::Stride => Arg::Int(t.ints.get(&i).copied().unwrap_or_default()),
            Kind::Float => Arg::Float(0.375 + f64::from(i) / 64.0),
            kind => {
                let b = buffer(outputs, t, i, kind, memory);
                buffers.insert(i, b);
                match kind {
                    Kind::Desc(_, rank) => {
                        let mut shape = vec![4i64; *rank];
                        let mut strides = vec![1i64; *rank];
                        shape[rank - 1] = 64;
                        for d in (0..rank - 1).rev() {
                            shape[d] = 256;
                            strides[d] = strides[d + 1] * if d + 2 == *rank { 64 } else { 256 };
                        }
                        Arg::Desc { buffer: b, shape, strides }
                    }
                    _ => Arg::Ptr(b),
                }
            }
        };
        args.push(arg);
    }
    (Launch { grid: t.grid, args }, buffers)
}

fn buffer(outputs: &[u32], t: &Trial, i: u32, kind: &Kind, memory: &mut Memory) -> Buffer {
    let seed = |other: bool| mix(t.seed ^ (u64::from(i) << 32) ^ if other { 0x5eed_0000_0000 } else { 0 });
    let hash = |at: u64| {
        let away = t.replaced.contains(&i) || t.disturb.get(&i).is_some_and(|(lo, hi)| at < *lo || at >= *hi);
        let at = match t.fill.get(&i) {
            Some(Fill::Period(n)) => at % n.max(&1),
            Some(Fill::Constant) => 0,
            _ => at,
        };
        mix(seed(away) ^ at)
    };
    match kind {
        Kind::Data(s) | Kind::Desc(s, _) => {
            let untouched = outputs.contains(&i) && !t.fill.contains_key(&i) && !t.disturb.contains_key(&i);
            match s {
                // Something that no kernel computes by chance, so that an untouched cell is told apart.
                s if untouched => memory.add_with(*s, LEN, |at| float_bits(mix(seed(false) ^ at), *s)),
                Scalar::Float(_) => memory.add_with(*s, LEN, |at| float_bits(hash(at), *s)),
                _ => memory.add_with(*s, LEN, |at| hash(at) % 120),
            }
        }
        Kind::Ints(s, lo, hi) => {
            // Lengths that are also addresses: small ones stay in bounds, large ones make several tiles.
            let hi = if (*lo, *hi) == (1, 6) && mix(t.seed) % 2 == 1 { &60 } else { hi };
            memory.add_with(*s, LEN, |at| (lo + (hash(at) % (hi - lo + 1) as u64) as i64) as u64)
        }
        Kind::Prefix(s) => {
            let mut sum = 0i64;
            let values: Vec<i64> = (0..4096u64)
                .map(|at| {
                    let now = sum;
                    sum += 1 + (hash(at) % 30) as i64;
                    now
                })
                .collect();
            memory.add_ints(*s, &values)
        }
        Kind::Perm(s) => {
            let values: Vec<i64> = (0..256i64).map(|v| v ^ 1).collect();
            memory.add_ints(*s, &values)
        }
        Kind::Zero(s) => memory.zeros(*s, LEN),
        Kind::Size | Kind::Stride | Kind::Float => memory.zeros(Scalar::I32, 0),
    }
}

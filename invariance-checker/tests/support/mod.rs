//! Two launches of one kernel that hold the same logical row, and the search for a pair that stores different bits for it.
//!
//! How a kernel is launched is written beside it in an `index.tsv`; `adversarial/kernels.py` explains the words.

#![allow(dead_code, reason = "each test crate uses its own part")]

mod host;
pub mod mutate;

use host::Host;
use invariance_checker::analysis::measure::Numbers;
use invariance_checker::float::{Round, encode};
use invariance_checker::interp::{Arg, Buffer, Launch, Memory, Options, ProgramOrder, TrapKind, run};
use invariance_checker::ir::{Float, Function, Module, Scalar};
use std::path::Path;

/// One line of an index.
pub struct Case {
    pub file: String,
    pub verdict: String,
    pub batch_args: String,
    pub spec: Spec,
    pub why: String,
}

/// The `index.tsv` of a folder.
pub fn read_index(folder: &Path) -> Vec<Case> {
    read_index_file(&folder.join("index.tsv"))
}

/// Reads an index with the columns file, verdict, batch_args, args, grid, why.
pub fn read_index_file(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).expect("an index");
    let lines = text.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [file, verdict, batch_args, args, grid, why] = cells[..] else { panic!("six cells: {line}") };
        let [file, verdict, batch_args, why] = [file, verdict, batch_args, why].map(str::to_owned);
        Case { file, verdict, batch_args, spec: Spec::parse(args, grid), why }
    });
    lines.collect()
}

/// How a kernel is launched.
#[derive(Clone, Debug)]
pub struct Spec {
    args: Vec<(String, Word)>,
    grid: Vec<Axis>,
}

#[derive(Clone, Debug)]
enum Word {
    Rows(usize),
    Cols(usize),
    Out(usize),
    OutTransposed(usize),
    InOut(usize),
    Shared(usize),
    VarBuf(usize),
    RowInt(i64, i64),
    Perm,
    Scratch(usize),
    /// Pages of so many elements, addressed through the tables.
    Pool(usize),
    /// So many pages for each item.
    Table(usize),
    /// Prefix sums of the items' lengths: where each begins, and where the last ends.
    Begins,
    /// Where each item ends.
    Ends,
    /// Rows of so many elements for every token of every item.
    Packed(usize),
    PackedOut(usize),
    /// The items by owner, in blocks of so many places.
    List(usize),
    /// The owner of each block of the list.
    BlockOwner(usize),
    /// How many places the list has.
    ListLen(usize),
    /// Of each group of the list with blocks of one: first place, number of places, owner.
    Group(usize),
    Batch,
    Flat(i64),
    Vary(i64, i64),
    Number(f64),
}

#[derive(Clone, Debug)]
enum Axis {
    Scaled(u32, u32),
    Fixed(u32),
    Vary(u32, u32),
}

impl Spec {
    /// False for a kernel whose launch the words cannot say.
    pub fn is_given(&self) -> bool {
        !self.args.is_empty()
    }

    /// Names of the arguments whose value, or what they point to, differs between two launches.
    pub fn varying(&self) -> Vec<&str> {
        let differs = |word: &Word| !matches!(word, Word::Shared(_) | Word::Scratch(_) | Word::Number(_));
        self.args.iter().filter(|(_, w)| differs(w)).map(|(n, _)| n.as_str()).collect()
    }

    /// Integer arguments by position, and the grid, of one launch of a pair.
    pub fn numbers(&self, batch: usize, side: usize) -> Numbers {
        let number = |word: &Word| match word {
            Word::Batch => Some(batch as i64),
            Word::Flat(times) => Some(batch as i64 * times),
            Word::Vary(a, b) => Some([*a, *b][side]),
            Word::Number(n) if n.fract() == 0.0 => Some(*n as i64),
            _ => None,
        };
        let ints = self.args.iter().enumerate().filter_map(|(i, (_, w))| Some((i as u32, number(w)?))).collect();
        Numbers { ints, grid: grid_of(&self.grid, batch, side) }
    }

    /// Elements between two rows of a pointer, and in one row; `None` for what has no rows.
    pub fn row_of(&self, position: usize) -> Option<(i64, i64)> {
        match self.args.get(position)?.1 {
            Word::Rows(len) | Word::InOut(len) | Word::Out(len) => Some((len as i64, len as i64)),
            Word::Cols(len) | Word::OutTransposed(len) => Some((1, len as i64)),
            Word::RowInt(..) => Some((1, 1)),
            Word::Table(n) => Some((n as i64, n as i64)),
            _ => None,
        }
    }

    /// The rows of a pointer have different numbers in it.
    pub fn is_permutation(&self, position: usize) -> bool {
        matches!(self.args.get(position), Some((_, Word::Perm)))
    }

    /// Largest integer that a row brings along.
    pub fn loaded_max(&self) -> i64 {
        self.args.iter().map(|(_, w)| if let Word::RowInt(_, b) = w { *b } else { 0 }).max().unwrap_or(0)
    }

    /// Axes with more than one program.
    pub fn wide_axes(&self) -> Vec<usize> {
        (0..self.grid.len()).filter(|i| !matches!(self.grid[*i], Axis::Fixed(1))).collect()
    }

    pub fn parse(args: &str, grid: &str) -> Spec {
        let word = |text: &str| -> Word {
            let parts: Vec<&str> = text.split(':').collect();
            let n = |i: usize| parts[i].parse::<i64>().expect("a number");
            let len = |i: usize| n(i) as usize;
            match parts[0] {
                "rows" => Word::Rows(len(1)),
                "cols" => Word::Cols(len(1)),
                "out" => Word::Out(len(1)),
                "outT" => Word::OutTransposed(len(1)),
                "inout" => Word::InOut(len(1)),
                "shared" => Word::Shared(len(1)),
                "varbuf" => Word::VarBuf(len(1)),
                "rowint" => Word::RowInt(n(1), n(2)),
                "perm" => Word::Perm,
                "scratch" => Word::Scratch(len(1)),
                "pool" => Word::Pool(len(1)),
                "table" => Word::Table(len(1)),
                "begins" => Word::Begins,
                "ends" => Word::Ends,
                "packed" => Word::Packed(len(1)),
                "packedout" => Word::PackedOut(len(1)),
                "list" => Word::List(len(1)),
                "blockowner" => Word::BlockOwner(len(1)),
                "listlen" => Word::ListLen(len(1)),
                "group" => Word::Group(len(1)),
                "batch" => Word::Batch,
                "flat" => Word::Flat(n(1)),
                "vary" => Word::Vary(n(1), n(2)),
                number => Word::Number(number.parse().expect("a known word or a number")),
            }
        };
        let pair = |part: &str| {
            let (name, text) = part.split_once('=').expect("name=word");
            (name.to_owned(), word(text))
        };
        Spec { args: args.split_whitespace().map(pair).collect(), grid: grid.split_whitespace().map(axis).collect() }
    }
}

fn grid_of(axes: &[Axis], batch: usize, side: usize) -> [u32; 3] {
    let mut grid = [1; 3];
    for (g, axis) in grid.iter_mut().zip(axes) {
        *g = match axis {
            Axis::Fixed(n) => *n,
            Axis::Vary(a, b) => [*a, *b][side],
            Axis::Scaled(times, over) => (batch as u32 * times).div_ceil(*over),
        };
    }
    grid
}

fn axis(text: &str) -> Axis {
    let n = |t: &str| t.parse::<u32>().expect("a number");
    if let Some(rest) = text.strip_prefix("vary:") {
        let (a, b) = rest.split_once(':').expect("two numbers");
        return Axis::Vary(n(a), n(b));
    }
    let Some(rest) = text.strip_prefix('M') else { return Axis::Fixed(n(text)) };
    let (times, over) = rest.split_once('/').unwrap_or((rest, "1"));
    Axis::Scaled(times.strip_prefix('*').map_or(1, n), n(over))
}

/// Deterministic random numbers.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn between(&mut self, lo: i64, hi: i64) -> i64 {
        lo + self.below((hi - lo + 1) as u64) as i64
    }

    /// One element with a wide exponent, so that the order of additions shows; with `special` sometimes not finite.
    pub fn element(&mut self, scalar: Scalar, special: bool) -> u64 {
        let Scalar::Float(f) = scalar else { return self.below(1000) };
        match self.below(40) {
            0 => return 0,
            1 => return encode(-0.0, f, Round::Nearest, false),
            2 if special => return encode(f64::INFINITY, f, Round::Nearest, false),
            3 if special => return encode(f64::NAN, f, Round::Nearest, false),
            _ => {}
        }
        let spread = if matches!(f, Float::F32 | Float::F64 | Float::Bf16) { 10 } else { 4 };
        let fraction = 1.0 + self.below(1 << 24) as f64 / f64::from(1 << 24);
        let sign = if self.below(2) == 0 { 1.0 } else { -1.0 };
        let exponent = self.between(-spread, spread) as i32;
        encode(sign * fraction * 2f64.powi(exponent), f, Round::Nearest, true)
    }

    fn elements(&mut self, scalar: Scalar, len: usize, special: bool) -> Vec<u64> {
        (0..len).map(|_| self.element(scalar, special)).collect()
    }

    fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            all.swap(i, self.below(i as u64 + 1) as usize);
        }
        all
    }
}

/// Two launches that store different bits for one row.
#[derive(Clone, Debug)]
pub struct Finding {
    pub seed: u64,
    /// Batch sizes and places of the row.
    pub batches: [usize; 2],
    pub rows: [usize; 2],
    pub param: String,
    pub element: usize,
    pub bits: [u64; 2],
    /// True if the data held infinities or NaNs.
    pub special: bool,
}

/// What a search came to.
#[derive(Clone, Debug)]
pub enum Outcome {
    Differ(Box<Finding>),
    /// So many pairs ran to their end and agreed.
    Same(usize),
}

/// What the search may vary.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub trials: u64,
    /// Keep the row's number: for values that depend on it openly.
    pub same_row: bool,
    /// Infinities and NaNs in every second trial.
    pub special: bool,
    /// Compare only what both launches store. What a launch leaves alone is a matter of its guards and its grid.
    pub stored_only: bool,
}

/// What outputs hold before a launch of which only stores count.
fn sentinel(elem: Scalar) -> u64 {
    match elem.bits() {
        64 => 0x3fa5_a5a5_a5a5_a5a5,
        32 => 0x3fa5_a5a5,
        16 => 0x3ca5,
        bits => 0x25 & ((1 << bits) - 1),
    }
}

/// Looks for two launches that differ.
pub fn search(module: &Module, spec: &Spec, how: Search) -> Outcome {
    let kernel = module.kernel().expect("a kernel");
    let mut agreed = 0;
    for seed in 0..how.trials {
        match trial(module, kernel, spec, how, seed) {
            Some(Some(finding)) => return Outcome::Differ(Box::new(finding)),
            Some(None) => agreed += 1,
            None => {}
        }
    }
    Outcome::Same(agreed)
}

/// One pair of launches: `None` if one of them did not run to its end.
fn trial(module: &Module, kernel: &Function, spec: &Spec, how: Search, seed: u64) -> Option<Option<Finding>> {
    let mut rng = Rng::new(seed);
    let special = how.special && seed % 2 == 1;
    let batches = [rng.between(4, 7) as usize, rng.between(4, 9) as usize];
    let first = rng.below(batches[0].min(batches[1]) as u64) as usize;
    let rows = [first, if how.same_row { first } else { rng.below(batches[1] as u64) as usize }];
    let own = rng.next();
    let mut sides = Vec::new();
    for side in 0..2 {
        let setup = Setup {
            kernel,
            spec,
            own,
            shared: own ^ 0x5555,
            batch: batches[side],
            row: rows[side],
            side,
            special,
            stored_only: how.stored_only,
        };
        sides.push(setup.run(module, &mut rng)?);
    }
    for ((param, a, unset), (_, b, _)) in sides[0].iter().zip(&sides[1]) {
        let counts = |x: &u64| !how.stored_only || x != unset;
        if let Some(element) = a.iter().zip(b).position(|(x, y)| x != y && counts(x) && counts(y)) {
            let bits = [a[element], b[element]];
            return Some(Some(Finding { seed, batches, rows, param: param.clone(), element, bits, special }));
        }
    }
    Some(None)
}

/// Which elements of each output a launch stores: two kernels with one footprint lay their rows out alike. `None` on a trap.
pub fn footprint(module: &Module, spec: &Spec) -> Option<Vec<Vec<usize>>> {
    let kernel = module.kernel().expect("a kernel");
    let setup = Setup { kernel, spec, own: 1, shared: 2, batch: 6, row: 3, side: 0, special: false, stored_only: true };
    let (memory, outputs) = setup.launch(module, &mut Rng::new(0))?;
    let stored = |o: Output| {
        let unset = sentinel(memory.elem(o.buffer));
        let bits = memory.bits(o.buffer);
        (0..bits.len()).filter(|i| bits[*i] != unset).collect()
    };
    Some(outputs.into_iter().map(stored).collect())
}

/// True if the order of programs shows in a launch of `batch` items: without atomics that is only where two programs write one element, so
/// that rows overlap.
pub fn races(module: &Module, spec: &Spec, batch: usize) -> bool {
    let kernel = module.kernel().expect("a kernel");
    let setup = Setup { kernel, spec, own: 1, shared: 2, batch, row: 0, side: 0, special: false, stored_only: true };
    let stored = |order| {
        let (memory, outputs) = setup.launch_in(module, &mut Rng::new(0), order)?;
        Some(outputs.iter().map(|o| memory.bits(o.buffer).to_vec()).collect::<Vec<_>>())
    };
    stored(ProgramOrder::Ascending) != stored(ProgramOrder::Descending)
}

/// One launch of a pair.
struct Setup<'a> {
    kernel: &'a Function,
    spec: &'a Spec,
    /// Seeds of what both launches hold in common: the row, and what every launch shares.
    own: u64,
    shared: u64,
    batch: usize,
    row: usize,
    side: usize,
    special: bool,
    stored_only: bool,
}

/// Where the compared elements lie.
struct Output {
    param: String,
    buffer: Buffer,
    at: Vec<usize>,
}

impl Setup<'_> {
    /// Memory after the launch, and where the row's outputs lie; `None` on a trap.
    fn launch(&self, module: &Module, rng: &mut Rng) -> Option<(Memory, Vec<Output>)> {
        let order = if self.side == 0 { ProgramOrder::Ascending } else { ProgramOrder::Shuffled(rng.next()) };
        self.launch_in(module, rng, order)
    }

    fn launch_in(&self, module: &Module, rng: &mut Rng, order: ProgramOrder) -> Option<(Memory, Vec<Output>)> {
        let mut memory = Memory::new();
        let mut outputs = Vec::new();
        let pages = self.pages(rng);
        let host = self.host(rng);
        let mut args = Vec::new();
        for (i, (param, (name, word))) in self.kernel.params.iter().zip(&self.spec.args).enumerate() {
            let ty = self.kernel.ty(param.value);
            args.push(match ty.pointee() {
                Some(elem) => {
                    self.buffer(&mut memory, rng, (i, name, word), elem, (&pages, host.as_ref()), &mut outputs)
                }
                None => self.number(word, ty.scalar_elem().is_some_and(Scalar::is_float)),
            });
        }
        assert_eq!(args.len(), self.kernel.params.len(), "@{}: a word for each parameter", self.kernel.name);
        let grid = grid_of(&self.spec.grid, self.batch, self.side);
        let undefined = if self.side == 0 { 0 } else { 0x3fc0_3fc0 };
        let options = Options { order, undefined, max_steps: 20_000_000, ..Options::default() };
        match run(module, &Launch { grid, args }, &mut memory, &options) {
            Ok(()) => Some((memory, outputs)),
            Err(trap) if trap.kind == TrapKind::BadLaunch => panic!("{trap}"),
            Err(_) => None,
        }
    }

    /// Bits of the row in each output; `None` on a trap.
    fn run(&self, module: &Module, rng: &mut Rng) -> Option<Vec<(String, Vec<u64>, u64)>> {
        let (memory, outputs) = self.launch(module, rng)?;
        let read = |o: Output| {
            let bits = memory.bits(o.buffer);
            (o.param, o.at.iter().map(|i| bits[*i]).collect(), sentinel(memory.elem(o.buffer)))
        };
        Some(outputs.into_iter().map(read).collect())
    }

    /// How the host lays out the batch, where the kernel needs to know.
    fn host(&self, rng: &mut Rng) -> Option<Host> {
        use Word::{Begins, BlockOwner, Ends, Group, List, ListLen, Packed, PackedOut};
        let asks = |(_, w): &(String, Word)| {
            matches!(w, Begins | Ends | Packed(_) | PackedOut(_) | List(_) | BlockOwner(_) | ListLen(_) | Group(_))
        };
        self.spec.args.iter().any(asks).then(|| Host::new(self.batch, self.row, self.own, rng))
    }

    /// Physical pages of every item, where the kernel has page tables.
    fn pages(&self, rng: &mut Rng) -> Vec<Vec<usize>> {
        let each =
            self.spec.args.iter().find_map(|(_, w)| if let Word::Table(n) = w { Some(*n) } else { None }).unwrap_or(0);
        let all = rng.permutation(self.batch * each + 3);
        (0..self.batch).map(|i| all[i * each..][..each].to_vec()).collect()
    }

    fn number(&self, word: &Word, float: bool) -> Arg {
        let value = match word {
            Word::Batch => self.batch as f64,
            Word::Flat(times) => (self.batch as i64 * times) as f64,
            Word::Vary(a, b) => [*a, *b][self.side] as f64,
            Word::Number(n) => *n,
            other => panic!("{other:?} is not a number"),
        };
        if float { Arg::Float(value) } else { Arg::Int(value as i64) }
    }

    fn buffer(
        &self,
        memory: &mut Memory,
        rng: &mut Rng,
        (index, name, word): (usize, &str, &Word),
        elem: Scalar,
        (pages, host): (&[Vec<usize>], Option<&Host>),
        outputs: &mut Vec<Output>,
    ) -> Arg {
        let mut own = Rng::new(self.own.wrapping_add(index as u64));
        let mut shared = Rng::new(self.shared.wrapping_add(index as u64));
        // Some garbage behind the last row, so that reading past it shows instead of trapping.
        let slack = 160;
        let at = |len: usize, transposed: bool| -> Vec<usize> {
            (0..len).map(|c| if transposed { c * self.batch + self.row } else { self.row * len + c }).collect()
        };
        let random = |rng: &mut Rng, len: usize| rng.elements(elem, len, self.special);
        let bits = match word {
            Word::Rows(len) | Word::InOut(len) | Word::Cols(len) => {
                let mut bits = random(rng, self.batch * len + slack);
                let row = random(&mut own, *len);
                for (place, value) in at(*len, matches!(word, Word::Cols(_))).into_iter().zip(row) {
                    bits[place] = value;
                }
                bits
            }
            Word::Out(len) | Word::OutTransposed(len) => {
                vec![if self.stored_only { sentinel(elem) } else { 0 }; self.batch * len + slack]
            }
            Word::Shared(len) => random(&mut shared, *len),
            Word::VarBuf(len) => match elem {
                Scalar::Float(_) => random(rng, *len),
                _ => vec![self.side as u64 + 1; *len],
            },
            Word::RowInt(lo, hi) => {
                let mut bits: Vec<u64> = (0..self.batch + 8).map(|_| rng.between(*lo, *hi) as u64).collect();
                bits[self.row] = own.between(*lo, *hi) as u64;
                bits
            }
            Word::Perm => rng.permutation(self.batch).into_iter().map(|p| p as u64).collect(),
            Word::Scratch(len) => vec![0; *len],
            Word::Pool(len) => {
                let count = pages.iter().map(Vec::len).sum::<usize>() + 3;
                let mut bits = random(rng, count * len);
                for page in &pages[self.row] {
                    bits[page * len..][..*len].copy_from_slice(&random(&mut own, *len));
                }
                bits
            }
            Word::Table(_) => pages.iter().flatten().map(|p| *p as u64).collect(),
            other => {
                let (host, fill) = (host.unwrap_or_else(|| panic!("{other:?} is not a buffer")), self.batch as u64);
                let more = |mut bits: Vec<u64>, fill: u64| {
                    bits.extend([fill; 16]);
                    bits
                };
                let tokens = host.begins[self.batch];
                match other {
                    Word::Begins => host.begins.iter().map(|b| *b as u64).chain([tokens as u64 + 2; 8]).collect(),
                    Word::Ends => host.begins[1..].iter().map(|b| *b as u64).chain([tokens as u64 + 2; 8]).collect(),
                    Word::Packed(len) => {
                        let mut bits = random(rng, tokens * len + slack);
                        let (from, to) = (host.begins[self.row] * len, host.begins[self.row + 1] * len);
                        bits[from..to].copy_from_slice(&random(&mut own, to - from));
                        bits
                    }
                    Word::PackedOut(len) => {
                        vec![if self.stored_only { sentinel(elem) } else { 0 }; tokens * len + slack]
                    }
                    Word::List(block) => more(host.list(*block), fill),
                    Word::BlockOwner(block) => more(host.owners_of_blocks(*block), 0),
                    Word::ListLen(block) => vec![host.list(*block).len() as u64],
                    Word::Group(what) => host.groups().iter().map(|g| g[*what]).collect(),
                    other => panic!("{other:?} is not a buffer"),
                }
            }
        };
        let buffer = memory.add_bits(elem, &bits);
        if let Word::Out(len) | Word::InOut(len) | Word::OutTransposed(len) = word {
            let at = at(*len, matches!(word, Word::OutTransposed(_)));
            outputs.push(Output { param: name.to_owned(), buffer, at });
        }
        if let (Word::PackedOut(len), Some(host)) = (word, host) {
            let at = (host.begins[self.row] * len..host.begins[self.row + 1] * len).collect();
            outputs.push(Output { param: name.to_owned(), buffer, at });
        }
        Arg::Ptr(buffer)
    }
}

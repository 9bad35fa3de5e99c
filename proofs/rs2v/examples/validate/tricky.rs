//! Every construct of the subset, in the combinations where a translator is most likely to go wrong. This file is both
//! compiled and translated; `validate` states what the compiled functions return about the translated ones.

#[derive(Clone)]
pub struct Store {
    pub a: u32,
    pub v: Vec<u32>,
    pub w: Vec<Vec<u32>>,
}
pub enum Kind {
    A(u32),
    B(usize, u32),
}

/// Assignment in both arms of an `if` in a loop, and a variable of the inner block.
pub fn inner(s: &mut Store, n: usize) -> u32 {
    let mut t = 0u32;
    for i in 0..n {
        let k = s.v[i];
        if k > 2 {
            let m = k - 1;
            s.a += m;
            t += m;
        } else {
            s.v[i] = k + 10;
        }
    }
    t
}

/// Nested loops whose inner bound depends on the outer variable; nested places.
pub fn nested(s: &mut Store) {
    for i in 0..s.w.len() {
        for j in 0..s.w[i].len() {
            s.w[i][j] += s.a;
            s.a += 1;
        }
    }
}

pub fn bump(s: &mut Store, more: u32) -> u32 {
    s.a += more;
    s.a
}

/// Calls that mutate and return, with a result that is used, passed on, and dropped.
pub fn calls(s: &mut Store) -> u32 {
    let x = bump(s, 2);
    let y = bump(s, x);
    bump(s, 1);
    y
}

pub fn swap(s: &mut Store, t: &mut Store) {
    let a = s.a;
    s.a = t.a;
    t.a = a;
}

/// The order of two `&mut` arguments.
pub fn swapped(s: &mut Store, t: &mut Store) {
    swap(t, s);
    t.a += 100;
}

/// A right side that would panic if it were evaluated.
pub fn lazy(v: &[u32], i: usize) -> bool {
    i < v.len() && v[i] == 7 || i == 9
}

pub fn guarded(a: usize, b: usize) -> usize {
    if a < b {
        return 0;
    }
    a - b
}

pub fn under(a: usize, b: usize) -> usize {
    a - b
}

pub fn over(a: u32, b: u32) -> u32 {
    a + b * 2
}

/// Division, by zero too; rounding down.
pub fn over_both(a: usize, b: usize) -> usize {
    let c = a / b;
    c * 10 + a / 2
}

/// Cutting a vector inside a vector, shorter, to its length and beyond.
pub fn cut(s: &mut Store, i: usize, n: usize) -> usize {
    if n < 9 {
        s.w[i].truncate(n);
    }
    s.v.truncate(s.w.len());
    s.w[i].len()
}

/// Widening; the multiplication is in 64 bits.
pub fn wide(a: u32) -> u64 {
    let b = a as u64;
    b * 2
}

/// All comparisons, a literal on the left.
pub fn compare(a: u32, b: u32) -> u32 {
    let mut n = 0u32;
    if a < b {
        n += 1;
    }
    if a <= b {
        n += 2;
    }
    if a > b {
        n += 4;
    }
    if a >= b {
        n += 8;
    }
    if a == b {
        n += 16;
    }
    if a != b {
        n += 32;
    }
    if 5 > a && !(a == b) {
        n += 64;
    }
    n
}

/// `match` with bindings of both variants, assigning different variables.
pub fn arms(s: &mut Store, e: &[Kind]) {
    let mut a = 1u32;
    for i in 0..e.len() {
        match e[i] {
            Kind::A(x) => {
                a += x;
            }
            Kind::B(k, x) => {
                s.v[k] = x + a;
            }
        }
    }
    s.a = a;
}

/// A clone is a value of its own; `push` on a place inside a place.
pub fn value(s: &mut Store) -> usize {
    let z = s.v.clone();
    s.v.push(1);
    s.w[0].push(2);
    let y = z.to_vec();
    y.len() + s.v.len() + s.w[0].len()
}

/// The bound of a loop is evaluated once, before the loop.
pub fn growing(s: &mut Store) {
    for _i in 0..s.v.len() {
        s.v.push(0);
    }
}

/// An empty range, and one that starts late.
pub fn ranges(a: usize, b: usize) -> usize {
    let mut n = 0usize;
    for i in a..b {
        n += i;
    }
    n
}

pub fn checked(a: u32, b: u32) -> u32 {
    assert!(a > b);
    a - b
}

/// A struct literal with its fields out of order, an empty vector, and a value moved out of `else`.
pub fn build(a: u32) -> Store {
    let w: Vec<Vec<u32>> = Vec::new();
    if a == 0 { Store { w, v: Vec::new(), a: 1 } } else { Store { v: Vec::new(), a, w } }
}

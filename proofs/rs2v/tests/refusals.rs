//! Every rule that refuses: one text that breaks it, and the words of the refusal. A translator that silently accepted one
//! of these would break the link between the proofs and the program.

use rs2v::{check_root, check_view, translate};

const TYPES: &str = "pub struct Store { pub a: u32, pub v: Vec<u32>, pub w: Vec<Vec<u32>> }
pub enum Kind { A(u32), B(usize, u32) }
pub fn bump(s: &mut Store, more: u32) -> u32 { s.a += more; s.a }
pub fn two(s: &mut Store, t: &mut Store) { s.a += t.a; }
";

fn refused(text: &str, why: &str) {
    match translate(&format!("{TYPES}{text}")) {
        Ok(_) => panic!("accepted: {text}"),
        Err(e) => assert!(e.to_string().contains(why), "{text}: refused, but with: {e}"),
    }
}

fn refused_in_body(body: &str, why: &str) {
    refused(&format!("pub fn f(s: &mut Store, t: &mut Store, v: &[u32], e: &Kind, n: usize) {{ {body} }}"), why);
}

#[test]
fn texts_that_are_not_in_the_subset_at_all() {
    refused("fn (", "does not parse");
    refused("use std::mem;", "item");
    refused("mod inner { }", "item");
    refused("impl Store { }", "item");
    refused("const K: usize = 3;", "item");
    refused("static K: usize = 3;", "item");
    refused("type T = u32;", "item");
    refused("trait T { }", "item");
    refused("macro_rules! assert { ($e:expr) => {} }", "item");
}

#[test]
fn attributes_that_could_change_the_compiled_text() {
    refused("#[cfg(test)] pub fn f() { }", "attribute");
    refused("#[cfg_attr(test, allow(x))] pub fn f() { }", "attribute");
    refused("#[path = \"x.rs\"] pub fn f() { }", "attribute");
    refused("#[repr(C)] pub struct T { pub a: u32 }", "attribute");
    refused_in_body("#[cfg(test)] s.a += 1;", "attribute");
    refused_in_body("assert!({ #[cfg(test)] true });", "attribute");
    assert!(translate(&format!("#![cfg(test)]\n{TYPES}")).is_err());
}

#[test]
fn types_and_items() {
    refused("pub struct T(u32);", "tuple struct");
    refused("pub struct T<A> { pub a: A }", "generics");
    refused("pub enum T<A> { X(A) }", "generics");
    refused("pub struct T { pub a: i32 }", "type");
    refused("pub struct T { pub a: u8 }", "type");
    refused("pub struct T { pub a: f32 }", "type");
    refused("pub struct T { pub a: Option<u32> }", "type");
    refused("pub struct T { pub a: Vec<&'static u32> }", "type");
    refused("pub struct T { pub a: std::vec::Vec<u32> }", "type");
    refused("pub struct T { pub a: &'static u32 }", "type");
    refused("pub struct T { pub a: [u32; 3] }", "type");
    refused("pub struct T { pub a: Undeclared }", "type");
    refused("pub struct Store { pub a: u32 }", "name used twice");
    refused("pub enum Store { A(u32) }", "name used twice");
    refused("pub enum T { X { a: u32 } }", "variant");
    refused("pub enum T { X }", "variant");
    refused("pub struct Bad_name { pub a: u32 }", "camel case");
    refused("pub struct Vec { pub a: u32 }", "camel case");
    refused("pub struct T { pub set_a: u32 }", "reserved name");
}

#[test]
fn signatures() {
    refused("pub unsafe fn f() { }", "signature");
    refused("pub async fn f() { }", "signature");
    refused("pub const fn f() { }", "signature");
    refused("pub extern \"C\" fn f() { }", "signature");
    refused("pub fn f<A>(a: A) { }", "signature");
    refused("pub fn f() where u32: Copy { }", "signature");
    refused("pub fn f(mut a: u32) { }", "parameter");
    refused("pub fn f((a, b): (u32, u32)) { }", "parameter");
    refused("pub fn f(self) { }", "parameter");
    refused("pub fn f(a: &mut [u32]) { }", "mutable slice");
    refused("pub fn f(a: &Store) -> &Store { a }", "returned reference");
    refused("pub fn bump(a: u32) { }", "name used twice");
    refused("pub fn f(bump: u32) { }", "named like a function");
    refused("pub fn f(tmp1: u32) { }", "reserved name");
    refused("pub fn f(mk: u32) { }", "reserved name");
    refused("pub fn f(length: u32) { }", "reserved name");
    refused("pub fn f(firstn: u32) { }", "reserved name");
    refused("pub fn f(div_u: u32) { }", "reserved name");
    refused("pub fn f(forall: u32) { }", "reserved name");
    refused("pub fn f(Upper: u32) { }", "reserved name");
    refused("pub fn f(a: u32) -> u32 { }", "block without result");
    refused("pub fn f(a: u32) -> u32 { f(a) }", "call");
    refused("pub fn f(a: u32) -> u32 { later(a) } pub fn later(a: u32) -> u32 { a }", "call");
    refused("pub fn f(a: u64) -> u32 { a }", "result type");
    refused("pub fn f(a: bool) -> u32 { return; }", "missing result");
}

#[test]
fn expressions() {
    refused_in_body("let x = 5;", "literal of unknown type");
    refused_in_body("let x = 5u8;", "literal type");
    refused_in_body("let x = 'c';", "literal");
    refused_in_body("let x = 1001u64;", "literal too large");
    refused_in_body("let x = unknown;", "unknown variable");
    refused_in_body("let x = std::u32::MAX;", "path");
    refused_in_body("let x = s.z;", "field");
    refused_in_body("let x = n.a;", "field");
    refused_in_body("let x = s[0];", "index of a non-Vec");
    refused_in_body("let x = v[s.a];", "index type");
    refused_in_body("let x = -n;", "operator");
    refused_in_body("let x = *n;", "operator");
    refused_in_body("let x = n as u32;", "only widening casts");
    refused_in_body("let x = n as i64;", "type");
    refused_in_body("let x = n / s.a;", "operand types");
    refused_in_body("let x = n / true;", "operand types");
    refused_in_body("let x = n % 2;", "operator");
    refused_in_body("let x = n << 2;", "operator");
    refused_in_body("let x = n & 2;", "operator");
    refused_in_body("let x = n + s.a;", "operand types");
    refused_in_body("let x = v == v;", "operator");
    refused_in_body("let x = n && true;", "bool operator");
    refused_in_body("let x = (n, n);", "expression");
    refused_in_body("let x = |y: u32| y;", "expression");
    refused_in_body("let x = &mut s.a;", "expression");
    refused_in_body("let x = loop { break 1; };", "expression");
    refused_in_body("let x = if n == 0 { 1 } else { 2 };", "expression");
    refused_in_body("let x = vec![1];", "expression");
    refused_in_body("let x = v.first();", "method");
    refused_in_body("let x = n.wrapping_add(1);", "method");
    refused_in_body("let x = n.len();", "method");
    refused_in_body("let x = Vec::new();", "unknown type");
    refused_in_body("let x = drop(n);", "call");
    refused_in_body("let x = Store { a: 1, ..s.clone() };", "every field");
    refused_in_body("let x = Store { a: 1 };", "every field");
    refused_in_body("let x = Unknown { a: 1 };", "struct");
    refused_in_body("let x = Store { a: n, v: Vec::new(), w: Vec::new() };", "field type");
    refused_in_body("bump(s);", "arity");
    refused_in_body("bump(s, n);", "argument type");
    refused_in_body("two(s, s);", "aliased");
    refused_in_body("bump(v[0], 1);", "must be a variable");
    refused_in_body("let x = bump(s, 1) + 1;", "a call that mutates");
    refused_in_body("if bump(s, 1) == 1 { }", "a call that mutates");
    refused_in_body("s.v[0] = bump(s, 1) + 1;", "a call that mutates");
}

#[test]
fn statements() {
    refused_in_body("let n: usize = 3;", "shadowing");
    refused_in_body("if n == 0 { let n: usize = 3; }", "shadowing");
    refused_in_body("for n in 0..3 { }", "shadowing");
    refused_in_body("match e { Kind::A(n) => { } Kind::B(i, x) => { } }", "shadowing");
    refused_in_body("let bump: u32 = 3;", "named like a function");
    refused_in_body("let f: u32 = 3;", "named like a function");
    refused_in_body("let m = s;", "second name");
    refused_in_body("let x: u32;", "let without a value");
    refused_in_body("let (x, y) = n;", "pattern");
    refused_in_body("let ref x = n;", "pattern");
    refused_in_body("let x: u64 = n == 0;", "type of the value");
    refused_in_body("let Store { a, .. } = s.clone();", "pattern");
    refused_in_body("let x = n else { return; };", "let else");
    refused_in_body("if n { }", "condition");
    refused_in_body("if let Kind::A(x) = e { }", "expression");
    refused_in_body("if n == 0 { } else if n == 1 { }", "nest it");
    refused_in_body("for i in 0..n { if i == 2 { return; } }", "return only in guards");
    refused_in_body("return; s.a += 1;", "code after return");
    refused_in_body("while n == 0 { }", "expression");
    refused_in_body("loop { }", "expression");
    refused_in_body("for i in 0..=n { }", "loop range");
    refused_in_body("for i in 0.. { }", "loop range");
    refused_in_body("for x in v.iter() { }", "loop range");
    refused_in_body("'a: for i in 0..n { }", "label");
    refused_in_body("for (i, j) in 0..n { }", "pattern");
    refused_in_body("for mut i in 0..n { }", "pattern");
    refused_in_body("for i in s.a..n { }", "range types");
    refused_in_body("for i in 0..n { break; }", "statement");
    refused_in_body("for i in 0..n { continue; }", "statement");
    refused_in_body("match n { 0 => { } _ => { } }", "non-enum");
    refused_in_body("match s.clone() { x => { } }", "non-enum");
    refused_in_body("match e { Kind::A(x) if true => { } }", "guard");
    refused_in_body("match e { _ => { } }", "pattern");
    refused_in_body("match e { Kind::A(_) => { } }", "pattern");
    refused_in_body("match e { A(x) => { } }", "pattern");
    refused_in_body("match e { Kind::C(x) => { } }", "variant");
    refused_in_body("match e { Kind::A(x, y) => { } }", "arity");
    refused_in_body("match e { Kind::A(x) => s.a += x, }", "block");
    refused_in_body("s.a = n;", "assignment type");
    refused_in_body("s.a /= 2;", "statement");
    refused_in_body("s.a |= 2;", "statement");
    refused_in_body("n.push(1);", "push on a non-Vec");
    refused_in_body("s.v.push(n);", "element type");
    refused_in_body("s.v.pop();", "statement");
    refused_in_body("n.truncate(1);", "truncate on a non-Vec");
    refused_in_body("s.v.truncate(s.a);", "length type");
    refused_in_body("s.v.truncate();", "statement");
    refused_in_body("let x = s.v.truncate(1);", "method");
    refused_in_body("s.v.clear();", "statement");
    refused_in_body("{ s.a += 1; }", "expression");
    refused_in_body("println!();", "macro");
    refused_in_body("debug_assert!(true);", "macro");
    refused_in_body("assert!(true, \"why\");", "assert with a message");
    refused_in_body("assert!(n);", "condition");
    refused_in_body("fn inner() { }", "statement");
    refused_in_body("use std::mem;", "statement");
}

#[test]
fn the_rest_of_the_crate_cannot_touch_a_claim() {
    let root = "#![forbid(unsafe_code)]\nmod proved;\nmod view;\npub use proved::Ledger;\nconst _: () = assert!(true);";
    assert_eq!(check_root(root), Ok(()));
    let no = |text: &str| check_root(&format!("{root}\n{text}")).is_err();
    assert!(check_root("mod proved;").is_err());
    assert!(no("macro_rules! assert { () => {} }"));
    assert!(no("pub fn f() {}"));
    assert!(no("mod other;"));
    assert!(no("pub mod proved;"));
    assert!(no("mod view { }"));
    assert!(no("#[path = \"x.rs\"] mod view;"));
    assert!(no("#[cfg(test)] use x::y;"));
    assert!(no("#[macro_use] extern crate x;"));
    assert!(no("const X: u32 = 1;"));

    let view = "use crate::L;\nimpl L { pub fn a(&self) -> &[u32] { &self.a }\n pub fn b(&self) -> u32 { self.b } }";
    assert_eq!(check_view(view), Ok(()));
    for bad in [
        "impl L { pub fn a(&mut self) -> u32 { self.a } }",
        "impl L { pub fn a(self) -> L { self } }",
        "impl L { pub fn new() -> L { L { a: 1 } } }",
        "impl L { pub fn a(&self) -> u32 { x(); self.a } }",
        "impl L { pub fn a(&self) -> u32 { f(self.a) } }",
        "impl Clone for L { fn clone(&self) -> L { L { a: 1 } } }",
        "pub fn a(l: &mut L) { }",
        "impl L { #[cfg(test)] pub fn b(&self) -> u32 { self.b } }",
    ] {
        assert!(check_view(bad).is_err(), "accepted: {bad}");
    }
}

#[test]
fn a_refusal_names_its_line() {
    let e = translate("pub fn f(n: usize) {\n    assert!(n > 0);\n    loop {}\n}").unwrap_err();
    assert_eq!((e.line, e.why.as_str()), (3, "expression"));
}

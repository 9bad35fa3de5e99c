//! What build.rs makes of the bindings: an assertion for every struct, and a refusal of what it does not understand.

#[path = "../layout.rs"]
mod layout;

#[test]
fn every_struct_and_constant_is_checked() {
    let bindings = include_str!("../src/params.rs");
    let text = layout::checks(bindings).expect("bindings.sh wrote them");
    for line in bindings.lines() {
        if let Some(name) = line.strip_prefix("pub struct ") {
            let name = name.trim_end_matches(" {");
            assert!(text.contains(&format!("static_assert(sizeof(Bound{name}) == sizeof({name})")), "{name}");
        }
        if let Some((name, _)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(':')) {
            assert!(text.contains(&format!("static_assert({name} == ")), "{name}");
        }
    }
}

#[test]
fn what_it_does_not_understand_is_refused() {
    assert!(layout::checks("").is_err());
    assert!(layout::checks("pub struct A {\n    pub x: Option<u32>,\n}").is_err());
}

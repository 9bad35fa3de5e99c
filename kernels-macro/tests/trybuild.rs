//! What `kernels!` accepts and, message by message, what it refuses.

#[test]
fn accepted() {
    trybuild::TestCases::new().pass("tests/accepted/*.rs");
}

#[test]
fn refused() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}

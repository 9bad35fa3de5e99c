//! The command line of the checker.

fn main() {}

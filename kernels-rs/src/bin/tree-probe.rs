//! `tree-probe BACKEND K K_SPLIT ROWS`: finds the summation tree of a linear layer from its results alone and compares it with
//! the declared one. BACKEND is `cpu` (arithmetic sm90) or `cuda`. Exit code 0 if they agree, 1 if not, 2 on bad input.

use std::process::ExitCode;

use kernels_rs::backend::Backend;
use kernels_rs::cpu::Cpu;
use kernels_rs::probe;
use reduction_tree::arithmetic::Arithmetic;
use reduction_tree::operator::{Epilogue, LinearTree, Store};

/// K that a probe can enumerate all pairs of in reasonable time.
const K_MAX: usize = 1024;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("tree-probe: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<bool, String> {
    let [backend, numbers @ ..] = arguments else { return Err("expected BACKEND K K_SPLIT ROWS".into()) };
    let numbers: Result<Vec<usize>, String> =
        numbers.iter().map(|n| n.parse().map_err(|_| format!("expected a number, got {n}"))).collect();
    let [k, k_split, rows] = numbers?[..] else { return Err("expected BACKEND K K_SPLIT ROWS".into()) };
    if !(2..=K_MAX).contains(&k) || k_split == 0 || !(1..=4096).contains(&rows) {
        return Err(format!(
            "expected K in 2..={K_MAX}, K_SPLIT above 0 and ROWS in 1..=4096, got {k} {k_split} {rows}"
        ));
    }
    let tree = LinearTree { n: 8, k, k_split, epilogue: Epilogue::None, store: Store::F32 };
    match backend.as_str() {
        "cpu" => compare(&Cpu::new(Arithmetic::Sm90, 0).map_err(|e| e.to_string())?, tree, rows),
        #[cfg(feature = "cuda")]
        "cuda" => compare(&kernels_rs::cuda::Cuda::new(0).map_err(|e| e.to_string())?, tree, rows),
        #[cfg(not(feature = "cuda"))]
        "cuda" => Err("this build has no cuda feature".into()),
        other => Err(format!("expected cpu or cuda, got {other}")),
    }
}

fn compare<B: Backend>(b: &B, tree: LinearTree, rows: usize) -> Result<bool, String> {
    let found = probe::linear(b, tree, rows).map_err(|e| e.to_string())?;
    let declared = probe::declared(&tree, b.arithmetic());
    println!("{} {:?}, {rows} rows a call", b.name(), b.arithmetic());
    println!("found    {found}");
    println!("declared {declared}");
    println!("{}", if found == declared { "they agree" } else { "THEY DIFFER" });
    Ok(found == declared)
}

//! Any bytes parse or are refused at a place inside them; what parses runs within its budget or traps.
//!
//! `cargo +nightly fuzz run parse ../tests/corpus/v390 ../tests/corpus/v360`

#![no_main]

use invariance_checker::interp::{Arg, Launch, Memory, Options, run};
use invariance_checker::ir::{Scalar, Type};
use invariance_checker::parse::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let module = match parse(bytes) {
        Ok(module) => module,
        Err(e) => {
            assert!(e.offset() <= bytes.len());
            return;
        }
    };
    let Some(kernel) = module.kernel() else { return };
    let mut memory = Memory::new();
    let arg = |memory: &mut Memory, ty: &Type| match (ty, ty.pointee(), ty.scalar_elem()) {
        (Type::Desc { elem, .. }, ..) => {
            Arg::Desc { buffer: memory.zeros(*elem, 4096), shape: vec![64, 64], strides: vec![64, 1] }
        }
        (_, Some(pointee), _) => Arg::Ptr(memory.zeros(pointee, 1 << 12)),
        (_, _, Some(Scalar::Float(_))) => Arg::Float(0.5),
        _ => Arg::Int(17),
    };
    let args = kernel.params.iter().map(|p| arg(&mut memory, kernel.ty(p.value))).collect();
    let options = Options { max_steps: 100_000, max_live: 1 << 18, ..Options::default() };
    let _ = run(&module, &Launch { grid: [2, 1, 1], args }, &mut memory, &options);
});

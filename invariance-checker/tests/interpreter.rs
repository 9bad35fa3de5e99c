//! The interpreter against results worked out here, on kernels of the corpus.

use half::{bf16, f16};
use invariance_checker::interp::{Arg, Launch, Memory, Options, ProgramOrder, ReduceOrder, Trap, TrapKind, run};
use invariance_checker::ir::{Float, Module, Scalar};
use invariance_checker::parse::parse;
use reduction_tree::arithmetic::{Arithmetic, chain};
use std::path::Path;

const F16: Scalar = Scalar::Float(Float::F16);
const BF16: Scalar = Scalar::Float(Float::Bf16);

fn kernel(version: &str, name: &str) -> Module {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/{version}/{name}.ttir"));
    parse(&std::fs::read(&path).expect("readable")).expect("parses")
}

/// Numbers in [-1, 1) from a fixed generator.
fn noise(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn launch(module: &Module, grid: [u32; 3], args: Vec<Arg>, memory: &mut Memory, options: &Options) -> Result<(), Trap> {
    run(module, &Launch { grid, args }, memory, options)
}

fn close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * w.abs().max(1.0), "element {i}: {g} against {w}");
    }
}

#[test]
fn softmax_of_rows() {
    for version in ["v360", "v390"] {
        let (rows, n, stride) = (3, 700, 720);
        let x = noise(1, rows * stride);
        let mut memory = Memory::new();
        let (px, py) = (memory.add_floats(Scalar::F32, &x), memory.zeros(Scalar::F32, rows * stride));
        let args = vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Int(stride as i64), Arg::Int(n as i64)];
        launch(&kernel(version, "softmax_row"), [rows as u32, 1, 1], args, &mut memory, &Options::default())
            .expect("runs");
        for row in 0..rows {
            let x = &x[row * stride..][..n];
            let sum: f64 = x.iter().map(|v| v.exp()).sum();
            let want: Vec<f64> = x.iter().map(|v| v.exp() / sum).collect();
            close(&memory.floats(py)[row * stride..][..n], &want, 1e-6);
            assert_eq!(memory.floats(py)[row * stride + n..][..stride - n], vec![0.0; stride - n], "past the row");
        }
    }
}

#[test]
fn rmsnorm_of_half_precision_rows() {
    let (rows, n) = (2, 600);
    let x: Vec<f64> = noise(2, rows * n).into_iter().map(|v| f16::from_f64(v).to_f64()).collect();
    let w: Vec<f64> = noise(3, n).into_iter().map(|v| f16::from_f64(v).to_f64()).collect();
    let mut memory = Memory::new();
    let (px, pw, py) = (memory.add_floats(F16, &x), memory.add_floats(F16, &w), memory.zeros(F16, rows * n));
    let args = vec![Arg::Ptr(px), Arg::Ptr(pw), Arg::Ptr(py), Arg::Int(n as i64), Arg::Int(n as i64), Arg::Float(1e-5)];
    launch(&kernel("v390", "rmsnorm_row"), [2, 1, 1], args, &mut memory, &Options::default()).expect("runs");
    let mut want = Vec::new();
    for row in x.chunks(n) {
        let mean: f64 = row.iter().map(|v| v * v).sum::<f64>() / n as f64;
        want.extend(row.iter().zip(&w).map(|(v, g)| v * g / (mean + 1e-5).sqrt()));
    }
    close(&memory.floats(py), &want, 1e-3);
}

#[test]
fn matmul_is_the_chain_of_k16_steps_bit_for_bit() {
    let (m, n, k) = (70usize, 66, 80);
    let a: Vec<f16> = noise(4, m * k).into_iter().map(f16::from_f64).collect();
    let b: Vec<f16> = noise(5, k * n).into_iter().map(f16::from_f64).collect();
    let wide = |v: &[f16]| v.iter().map(|x| x.to_f64()).collect::<Vec<_>>();
    for arithmetic in Arithmetic::ALL {
        let mut memory = Memory::new();
        let (pa, pb) = (memory.add_floats(F16, &wide(&a)), memory.add_floats(F16, &wide(&b)));
        let pc = memory.zeros(F16, m * n);
        let [m_, n_, k_] = [m, n, k].map(|v| Arg::Int(v as i64));
        let args = vec![Arg::Ptr(pa), Arg::Ptr(pb), Arg::Ptr(pc), m_, n_.clone(), k_.clone(), k_, n_.clone(), n_];
        let options = Options { arithmetic, ..Options::default() };
        launch(&kernel("v390", "matmul_persistent"), [132, 1, 1], args, &mut memory, &options).expect("runs");
        for (i, got) in memory.bits(pc).into_iter().enumerate() {
            let column: Vec<f16> = (0..k).map(|p| b[p * n + i % n]).collect();
            let want = f16::from_f32(chain(arithmetic, 0.0, &a[i / n * k..][..k], &column));
            assert_eq!(got, u64::from(want.to_bits()), "{arithmetic:?} element {i}");
        }
    }
}

#[test]
fn argmax_takes_the_first_of_equals() {
    let n = 900;
    let mut x = noise(6, 2 * n);
    for at in [17, 400, 899] {
        x[at] = 2.0;
    }
    x[n + 5] = 3.0;
    for reduce in [ReduceOrder::Halves, ReduceOrder::Left] {
        let mut memory = Memory::new();
        let (px, py) = (memory.add_floats(Scalar::F32, &x), memory.zeros(Scalar::I64, 2));
        let args = vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Int(n as i64), Arg::Int(n as i64)];
        let options = Options { reduce, ..Options::default() };
        launch(&kernel("v390", "argmax_row"), [2, 1, 1], args, &mut memory, &options).expect("runs");
        assert_eq!(memory.ints(py), [17, 5], "{reduce:?}");
    }
}

#[test]
fn scans_run_along_the_row() {
    let module = kernel("v390", "assoc_scan_row");
    let n = 256;
    let x: Vec<f64> = (0..n).map(|i| f64::from(i % 7)).collect();
    let mut memory = Memory::new();
    let px = memory.add_floats(Scalar::F32, &x);
    let (py, pz) = (memory.zeros(Scalar::F32, n as usize), memory.zeros(Scalar::F32, n as usize));
    let args = vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Ptr(pz), Arg::Int(i64::from(n))];
    launch(&module, [1, 1, 1], args, &mut memory, &Options::default()).expect("runs");
    let mut sum = 0.0;
    let prefix: Vec<f64> = x
        .iter()
        .map(|v| {
            sum += v;
            sum
        })
        .collect();
    assert_eq!(memory.floats(py), prefix, "small integers: every partial sum is exact");
    // b(i) = x(i) + sigmoid(x(i)) * b(i + 1), from the right.
    let mut carried = 0.0;
    let mut want: Vec<f64> = x
        .iter()
        .rev()
        .map(|v| {
            carried = v + carried / (1.0 + (-v).exp());
            carried
        })
        .collect();
    want.reverse();
    close(&memory.floats(pz), &want, 1e-5);
}

#[test]
fn rows_are_gathered_by_token_id() {
    let (tokens, d) = (3usize, 1500usize);
    let table: Vec<f64> = noise(8, 10 * d).into_iter().map(|v| bf16::from_f64(v).to_f64()).collect();
    let ids = [7i64, 0, 9];
    let mut memory = Memory::new();
    let pi = memory.add_ints(Scalar::I64, &ids);
    let (pw, py) = (memory.add_floats(BF16, &table), memory.zeros(BF16, tokens * d));
    let args = vec![Arg::Ptr(pi), Arg::Ptr(pw), Arg::Ptr(py), Arg::Int(d as i64)];
    launch(&kernel("v390", "embedding_gather"), [3, 2, 1], args, &mut memory, &Options::default()).expect("runs");
    let want: Vec<f64> = ids.iter().flat_map(|id| table[*id as usize * d..][..d].to_vec()).collect();
    assert_eq!(memory.floats(py), want);
}

#[test]
fn float_atomics_show_the_order_of_programs() {
    let module = kernel("v390", "matmul_splitk_atomic");
    let (m, n, k) = (32usize, 64, 256);
    let a: Vec<f64> = noise(9, m * k).iter().enumerate().map(|(i, v)| v * 2f64.powi((i % 9) as i32)).collect();
    let b = noise(10, k * n);
    let result = |order: ProgramOrder| {
        let mut memory = Memory::new();
        let (pa, pb) = (memory.add_floats(F16, &a), memory.add_floats(F16, &b));
        let pc = memory.zeros(Scalar::F32, m * n);
        let ints = [m, n, k, k, n].map(|v| Arg::Int(v as i64));
        let args = [vec![Arg::Ptr(pa), Arg::Ptr(pb), Arg::Ptr(pc)], ints.to_vec()].concat();
        let options = Options { order, ..Options::default() };
        launch(&module, [1, 1, 4], args, &mut memory, &options).expect("runs");
        memory.bits(pc)
    };
    let ascending = result(ProgramOrder::Ascending);
    assert_eq!(ascending, result(ProgramOrder::Ascending));
    assert_ne!(ascending, result(ProgramOrder::Descending));
}

#[test]
fn a_spin_lock_runs_and_shows_the_order() {
    let module = kernel("v390", "lock_accumulate");
    let n = 256;
    let x: Vec<f64> = noise(11, 8 * n).iter().enumerate().map(|(i, v)| v * 2f64.powi((i / n) as i32 * 3)).collect();
    let result = |order: ProgramOrder| {
        let mut memory = Memory::new();
        let px = memory.add_floats(Scalar::F32, &x);
        let (py, lock) = (memory.zeros(Scalar::F32, n), memory.zeros(Scalar::I32, 1));
        let args = vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Ptr(lock), Arg::Int(n as i64)];
        launch(&module, [8, 1, 1], args, &mut memory, &Options { order, ..Options::default() }).expect("runs");
        memory.bits(py)
    };
    assert_ne!(result(ProgramOrder::Ascending), result(ProgramOrder::Shuffled(3)));
}

#[test]
fn branches_loops_and_early_returns() {
    let module = kernel("v390", "cov_control_flow");
    let x: Vec<f64> = (0..128).map(f64::from).collect();
    let mut memory = Memory::new();
    let px = memory.add_floats(Scalar::F32, &x);
    let py = memory.add_floats(Scalar::F32, &[9.0; 64 * 5]);
    let idx = memory.add_ints(Scalar::I32, &[-1, 0, 2, 4, 9]);
    let args = vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Ptr(idx), Arg::Int(64)];
    launch(&module, [5, 1, 1], args, &mut memory, &Options::default()).expect("runs");
    let y = memory.floats(py);
    // e = -1 stores zero and returns; e = 0 neither loops nor loads; e = 2 loads the second half and halves twice;
    // e = 4 loads the first half and halves three times; e = 9 halves four times and keeps the sign.
    let want = |row: usize, i: usize| match row {
        0 => 0.0,
        1 => -0.0,
        2 => -x[64 + i] / 4.0,
        3 => -x[i] / 8.0,
        _ => x[i] / 16.0,
    };
    for row in 0..5 {
        for i in 0..64 {
            assert_eq!(y[row * 64 + i].to_bits(), want(row, i).to_bits(), "row {row} element {i}");
        }
    }
}

#[test]
fn descriptors_pad_with_zero_and_do_not_store_outside() {
    let (m, n, k) = (65usize, 70, 96);
    let (a, b) = (noise(12, m * k), noise(13, n * k));
    let mut memory = Memory::new();
    let (pa, pb, pc) = (memory.add_floats(F16, &a), memory.add_floats(F16, &b), memory.zeros(F16, m * n));
    let ints = [m, n, k].map(|v| Arg::Int(v as i64));
    let args = [vec![Arg::Ptr(pa), Arg::Ptr(pb), Arg::Ptr(pc)], ints.to_vec()].concat();
    launch(&kernel("v390", "cov_tensor_desc"), [2, 2, 1], args, &mut memory, &Options::default()).expect("runs");
    let h = |v: f64| f16::from_f64(v).to_f64();
    let want: Vec<f64> = (0..m * n).map(|i| (0..k).map(|p| h(a[i / n * k + p]) * h(b[i % n * k + p])).sum()).collect();
    close(&memory.floats(pc), &want, 2e-3);
}

#[test]
fn undefined_lanes_hold_what_the_options_say() {
    let module = kernel("v390", "rmsnorm_row");
    let mut memory = Memory::new();
    let bufs = [256, 256, 256].map(|n| memory.zeros(F16, n));
    let [x, w, y] = bufs.map(Arg::Ptr);
    let args = vec![x, w, y, Arg::Int(256), Arg::Int(100), Arg::Float(1.0)];
    launch(&module, [1, 1, 1], args, &mut memory, &Options { undefined: 0xffff, ..Options::default() })
        .expect("the undefined lanes of w are not stored");
}

#[test]
fn faults_are_traps_with_a_place() {
    let module = kernel("v390", "softmax_row");
    let mut memory = Memory::new();
    let (px, py) = (memory.zeros(Scalar::F32, 10), memory.zeros(Scalar::F32, 10));
    let args = |n| vec![Arg::Ptr(px), Arg::Ptr(py), Arg::Int(0), Arg::Int(n)];
    let trap =
        launch(&module, [1, 1, 1], args(11), &mut memory.clone(), &Options::default()).expect_err("past the end");
    assert_eq!(trap.kind, TrapKind::Memory);
    assert_eq!(trap.message, "access of 4 bytes at byte 40 of buffer 0, which has 40 bytes");
    assert_eq!(module.place(trap.loc).expect("a place").line, 42);
    let few = Options { max_steps: 1000, ..Options::default() };
    let trap = launch(&module, [1, 1, 1], args(10), &mut memory, &few).expect_err("too many steps");
    assert_eq!(trap.kind, TrapKind::Budget);
    let short = launch(&module, [1, 1, 1], vec![], &mut memory, &few).expect_err("no arguments");
    assert_eq!(short.to_string(), "line 0, program (0, 0, 0): @softmax_row takes 4 arguments, 0 are given");
}

#[test]
fn every_kernel_of_the_corpus_runs_or_says_what_is_missing() {
    let mut unsupported = Vec::new();
    for version in ["v360", "v390"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(version);
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if !path.to_string_lossy().ends_with(".generic.mlir") {
                continue;
            }
            let module = parse(&std::fs::read(&path).expect("readable")).expect("parses");
            let kernel = module.kernel().expect("a kernel");
            let mut memory = Memory::new();
            let mut args = Vec::new();
            for param in &kernel.params {
                let ty = kernel.ty(param.value);
                args.push(match (ty, ty.pointee(), ty.scalar_elem()) {
                    (invariance_checker::ir::Type::Desc { elem, .. }, ..) => {
                        let buffer = memory.zeros(*elem, 1 << 14);
                        Arg::Desc { buffer, shape: vec![64, 64], strides: vec![64, 1] }
                    }
                    (_, Some(pointee), _) => Arg::Ptr(memory.zeros(pointee, 1 << 19)),
                    (_, _, Some(Scalar::Float(_))) => Arg::Float(0.5),
                    _ => Arg::Int(64),
                });
            }
            match run(&module, &Launch { grid: [1, 1, 1], args }, &mut memory, &Options::default()) {
                Ok(()) => {}
                Err(trap) if trap.kind == TrapKind::Unsupported => {
                    unsupported.push(format!("{}: {trap}", path.display()))
                }
                Err(trap) => panic!("{}: {trap}", path.display()),
            }
        }
    }
    assert_eq!(unsupported, Vec::<String>::new());
}

//! GPU kernels: time of one call inside a replayed graph, with weights rotated so that the L2 cache does not help, against
//! the limit max(bytes / 4.27 TB/s, flops / 790 TFLOP/s) of an H200 and against cuBLAS in the same run.
//!
//! `cargo bench -p benches --features cuda --bench gpu_kernels [-- FILTER]`. With `SAMETREE_TABLE` set only the table is
//! printed; with `SAMETREE_VARIANTS` every variant of a linear layer is timed and its bits compared with the portable kernel's.

#[cfg(feature = "cuda")]
mod gpu;

#[cfg(feature = "cuda")]
fn main() {
    gpu::main();
}

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("skipped: all GPU benchmarks (built without the cuda feature)");
}

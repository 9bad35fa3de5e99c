//! What the benchmarks share: CPU time as criterion's measurement, and a table of what was measured.
//!
//! The kernels themselves and the list of shapes are in `benches/`.

pub mod cpu_time;
pub mod table;

//! CPU time of the calling thread as criterion's measurement.
//!
//! A shared machine makes wall time noisy; a kernel that runs on one thread costs the same CPU time whoever else is there.

use cpu_time::ThreadTime;
use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter};
use std::time::Duration;

/// Thread CPU time, shown in microseconds and in 10^9 elements (multiply-accumulates) a second.
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = ThreadTime;
    type Value = Duration;

    fn start(&self) -> ThreadTime {
        ThreadTime::now()
    }
    fn end(&self, start: ThreadTime) -> Duration {
        start.elapsed()
    }
    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }
    fn zero(&self) -> Duration {
        Duration::ZERO
    }
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        &Formatter
    }
}

struct Formatter;

impl ValueFormatter for Formatter {
    fn scale_values(&self, _typical: f64, values: &mut [f64]) -> &'static str {
        values.iter_mut().for_each(|ns| *ns /= 1e3);
        "µs CPU"
    }
    fn scale_throughputs(&self, _typical: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        let amount = match *throughput {
            Throughput::Elements(n) | Throughput::Bytes(n) | Throughput::BytesDecimal(n) => n as f64,
            _ => 1.0,
        };
        values.iter_mut().for_each(|ns| *ns = amount / *ns);
        "G/s a core"
    }
    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "ns"
    }
}

//! Captured launches that are replayed as one, and the timing of replays.

use std::sync::PoisonError;

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};

use super::Cuda;
use super::device::{Device, Kept, driver};
use crate::backend::{Error, Result};

/// A sequence of operators captured once. It keeps the memory alive that they used.
pub struct Graph {
    graph: CudaGraph,
    _kept: Kept,
}
// SAFETY: the driver allows a graph to be used from any thread, one at a time; no method is given a shared reference from two
// threads, since `Graph` is not `Sync`.
unsafe impl Send for Graph {}

impl Device {
    /// Captures what `f` launches. Nothing runs yet; operators that allocate, upload or download cannot be captured.
    pub fn capture(&self, f: impl FnOnce() -> Result<()>) -> Result<Graph> {
        const OP: &str = "capture";
        let captured = || self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(driver(OP))?;
        *captured() = Some(Kept::new());
        let launched = f();
        let kept = captured().take().unwrap_or_default();
        let graph = self.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        launched?;
        let graph = graph.map_err(driver(OP))?;
        graph.map(|graph| Graph { graph, _kept: kept }).ok_or_else(|| Error::new(OP, "at least one launch", "none"))
    }
}

impl Graph {
    /// Launches it on the stream that it was captured on.
    pub fn replay(&self) -> Result<()> {
        self.graph.launch().map_err(driver("replay"))
    }
}

impl Cuda {
    /// Captures what `f` launches. Nothing runs yet; operators that allocate, upload or download cannot be captured.
    pub fn capture(&self, f: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.device.capture(f)
    }

    /// Launches a captured graph.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        graph.replay()
    }

    /// Seconds that each of `count` replays takes on the device.
    pub fn time(&self, graph: &Graph, count: usize) -> Result<Vec<f64>> {
        const OP: &str = "time";
        let event = || self.device.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(driver(OP));
        let (start, end) = (event()?, event()?);
        let mut seconds = Vec::with_capacity(count);
        for _ in 0..count {
            start.record(&self.device.stream).map_err(driver(OP))?;
            self.replay(graph)?;
            end.record(&self.device.stream).map_err(driver(OP))?;
            end.synchronize().map_err(driver(OP))?;
            seconds.push(f64::from(start.elapsed_ms(&end).map_err(driver(OP))?) / 1e3);
        }
        Ok(seconds)
    }
}

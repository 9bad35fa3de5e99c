//! Launches that are repeated: the graphs of the classes of steps, and the memory that the steps of one engine share.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::CudaSlice;

use super::device::{Device, driver};
use super::graph::Graph;
use super::landing::Landing;
use super::step::{Class, DECODE_COLUMNS, Draft, Group, Step, class};
use crate::backend::{KvShape, Result, StepRows, Wanted};

/// Graphs that are kept; beyond, all are made anew.
const GRAPHS_MAX: usize = 256;
/// Words that the shared memory begins with.
const WORDS_MIN: usize = 1 << 16;

/// What one engine keeps from step to step.
pub struct Replays {
    group: usize,
    record: bool,
    memory: Option<Arc<CudaSlice<u32>>>,
    /// What uploads pass through: this step's and the last one's, which may still be on its way.
    uploads: [Option<Landing>; 2],
    lease: Arc<()>,
    /// A class that was met once is there without a graph: its first step ran launch by launch, which made the scratch memory
    /// that the graph needs.
    graphs: HashMap<Class, Option<Graph>>,
    replayed: u64,
}

impl Replays {
    /// Nothing recorded yet. `group` is the number of query heads a KV head; without `record` every step is launched anew.
    pub fn new(group: usize, record: bool) -> Self {
        let record = record && group <= DECODE_COLUMNS;
        let (uploads, lease) = ([None, None], Arc::new(()));
        Self { group, record, memory: None, uploads, lease, graphs: HashMap::new(), replayed: 0 }
    }

    /// Steps that were replayed so far.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// A step in the memory that these steps share; everything on the one before it must have been launched.
    pub fn step(&mut self, device: &Device, rows: &StepRows, wanted: &Wanted<'_>, shape: KvShape) -> Result<Step> {
        const OP: &str = "step";
        let class = if self.record { class(rows, wanted) } else { None };
        let group = Group { size: self.group, one_variant: device.one_variant };
        let draft = Draft::new(rows, wanted, shape, class, Some(group))?;
        let in_use = Arc::strong_count(&self.lease) > 1;
        let memory = match self.memory.take().filter(|memory| memory.len() >= draft.words.len() && !in_use) {
            Some(memory) => memory,
            None => {
                // The graphs read the old memory.
                self.forget_graphs(device)?;
                self.lease = Arc::new(());
                let len = draft.words.len().next_power_of_two().max(WORDS_MIN);
                Arc::new(device.stream.alloc_zeros::<u32>(len).map_err(driver(OP))?)
            }
        };
        self.uploads.swap(0, 1);
        let mut landing = match self.uploads[0].take().filter(|landing| landing.len() >= draft.words.len()) {
            Some(landing) => landing,
            None => Landing::new(device, OP, draft.words.len())?,
        };
        // SAFETY: the memory is large enough, and what was launched on the step that lies in it comes first in the stream.
        unsafe { landing.send(device, OP, device.address(&memory), &draft.words)? };
        self.uploads[0] = Some(landing);
        self.memory = Some(memory.clone());
        Ok(draft.placed(memory, self.lease.clone()))
    }

    /// Drops the graphs, none of which may still run.
    fn forget_graphs(&mut self, device: &Device) -> Result<()> {
        if !self.graphs.is_empty() {
            device.stream.synchronize().map_err(driver("step"))?;
            self.graphs.clear();
        }
        Ok(())
    }

    /// Runs `operators`, or replays what they launched for an earlier step of the same class.
    pub fn launch(&mut self, device: &Device, step: &Step, operators: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let Some(class) = step.class.filter(|_| Arc::ptr_eq(&step.lease, &self.lease)) else { return operators() };
        if self.graphs.len() >= GRAPHS_MAX && !self.graphs.contains_key(&class) {
            self.forget_graphs(device)?;
        }
        let graph = match self.graphs.remove(&class) {
            None => {
                operators()?;
                self.graphs.insert(class, None);
                return Ok(());
            }
            Some(None) => device.capture(operators)?,
            Some(Some(graph)) => graph,
        };
        graph.replay()?;
        self.replayed += 1;
        self.graphs.insert(class, Some(graph));
        Ok(())
    }
}

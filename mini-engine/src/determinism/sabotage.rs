//! Negative controls: deliberate faults that the comparison must catch. A harness that passes with one of them switched on
//! checks nothing.

use kernels_rs::backend::{SampleParams, Sampled, StepRows};
use ledger::{Ledger, Op};

use crate::engine::core::Tamper;
use crate::engine::scheduler::Plan;
use crate::engine::{RowModel, StepOutcome, Want};
use crate::model;

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// The LM head's chunk count follows the number of rows of the step
    #[value(name = "k-split-by-batch")]
    KSplit,
    /// The attention tile follows the number of rows of the step
    #[value(name = "kv-split-by-batch")]
    KvSplit,
    /// The scheduler puts another request's page into a block table; the ledger must refuse
    WrongPage,
    /// The prefix cache offers a page without comparing its tokens; the ledger must refuse
    StalePage,
    /// A table is changed behind the ledger's back, between its check and the kernels
    UncheckedPage,
    /// Sampling noise is keyed by the index in the batch
    SampleIndex,
    /// Fault flags are dropped, so that a request goes on with zeroed keys and values
    IgnoredFault,
    /// The pool of the preemption relation is so large that nothing is preempted
    NoPressure,
}

impl Break {
    /// The part of the fault that is put in when the model is loaded.
    pub fn at_load(self) -> Option<model::Break> {
        match self {
            Self::KSplit => Some(model::Break::KSplit),
            Self::KvSplit => Some(model::Break::KvSplit),
            _ => None,
        }
    }

    /// The part of the fault that sits between scheduler and ledger.
    pub fn in_plans(self) -> Option<Tamper> {
        let change: fn(&mut Plan, &Ledger) -> bool = match self {
            Self::WrongPage => wrong_page,
            Self::StalePage => stale_page,
            _ => return None,
        };
        // Once an engine, since a scheduler that is always wrong gets nothing done.
        let mut done = false;
        Some(Box::new(move |plan, ledger| {
            if !done {
                done = change(plan, ledger);
            }
        }))
    }
}

/// Lets a request grow by a page that another request holds.
fn wrong_page(plan: &mut Plan, ledger: &Ledger) -> bool {
    let mut held: Vec<(usize, u32)> = ledger
        .reqs()
        .iter()
        .enumerate()
        .flat_map(|(book, req)| req.table.iter().map(move |&page| (book, page)))
        .collect();
    for op in &mut plan.ops {
        match op {
            Op::Grow(book, page) => {
                if let Some(&(_, other)) = held.iter().find(|(owner, _)| owner != book) {
                    *page = other;
                    return true;
                }
                held.push((*book, *page));
            }
            Op::Attach(book, page) => held.push((*book, *page)),
            Op::Fill(..) | Op::Adopt(..) => {}
        }
    }
    false
}

/// Attaches a page that continues the right chain with other tokens, as a cache would that trusts a hash.
fn stale_page(plan: &mut Plan, ledger: &Ledger) -> bool {
    for at in 0..plan.ops.len() {
        let Op::Grow(book, _) = plan.ops[at] else { continue };
        let before = &plan.ops[..at];
        if before.iter().any(|op| matches!(op, Op::Fill(owner, _) if *owner == book)) {
            continue;
        }
        let attached = before.iter().rev().find_map(|op| match op {
            Op::Attach(owner, page) if *owner == book => Some(*page),
            _ => None,
        });
        let tail = match attached {
            Some(page) => ledger.pages()[page as usize].cid,
            None => ledger::tail_cid(ledger, book),
        };
        let full =
            |page: &ledger::Page| page.toks.len() == ledger.page_size() && page.parent == tail && page.cid != tail;
        if let Some(page) = ledger.pages().iter().position(full) {
            plan.ops[at] = Op::Attach(book, page as u32);
            return true;
        }
    }
    false
}

/// A model with the rest of the faults: those between the ledger and the kernels, and in the sampler.
pub struct Sabotaged<M> {
    inner: M,
    kind: Option<Break>,
    page_tokens: usize,
}

impl<M> Sabotaged<M> {
    /// Wraps a model; without a kind it is left as it is.
    pub fn new(inner: M, kind: Option<Break>, page_tokens: usize) -> Self {
        Self { inner, kind, page_tokens }
    }

    /// The wrapped model.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// One finished page of one sequence becomes a page of another.
    fn swap_page(&self, rows: &mut StepRows) {
        let starts_late = |sequence: usize| {
            let first = rows.sequences.iter().position(|&owner| owner as usize == sequence);
            first.is_some_and(|row| rows.positions[row] as usize >= self.page_tokens)
        };
        let Some(victim) = (0..rows.tables.len()).find(|&sequence| starts_late(sequence)) else { return };
        let own = rows.tables[victim][0];
        if let Some(other) = rows.tables.iter().map(|table| table[0]).find(|&page| page != own) {
            rows.tables[victim][0] = other;
        }
    }
}

impl<M: RowModel> RowModel for Sabotaged<M> {
    type Error = M::Error;
    type Flight = M::Flight;

    fn vocab(&self) -> usize {
        self.inner.vocab()
    }

    fn context_max(&self) -> usize {
        self.inner.context_max()
    }

    fn choose(&mut self, rows: &[f32], params: &[SampleParams]) -> Result<Vec<Sampled>, M::Error> {
        if !matches!(self.kind, Some(Break::SampleIndex)) {
            return self.inner.choose(rows, params);
        }
        let mut params = params.to_vec();
        params.iter_mut().enumerate().for_each(|(index, params)| params.seed ^= index as u64);
        self.inner.choose(rows, &params)
    }

    fn launch(&mut self, mut rows: StepRows, wants: &[Want]) -> Result<M::Flight, M::Error> {
        let mut wants = wants.to_vec();
        match self.kind {
            Some(Break::UncheckedPage) => self.swap_page(&mut rows),
            Some(Break::SampleIndex) => {
                for (index, params) in wants.iter_mut().filter_map(|want| want.sample.as_mut()).enumerate() {
                    params.seed ^= index as u64;
                }
            }
            _ => {}
        }
        self.inner.launch(rows, &wants)
    }

    fn collect(&mut self, flight: M::Flight) -> Result<StepOutcome, M::Error> {
        let mut outcome = self.inner.collect(flight)?;
        if matches!(self.kind, Some(Break::IgnoredFault)) {
            outcome.faults.fill(false);
        }
        Ok(outcome)
    }
}

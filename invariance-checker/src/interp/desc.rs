//! Tensor descriptors: blocks of a strided tensor, with zero (or NaN) outside its extents.

use super::exec::{Fault, Machine};
use super::lane;
use super::value::Val;
use crate::ir::{AtomicOp, BinaryOp, Float, ReduceKind, Scalar};

/// A descriptor at run time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desc {
    pub(super) base: u64,
    pub(super) shape: Vec<i64>,
    /// In elements.
    pub(super) strides: Vec<i64>,
    pub(super) elem: Scalar,
    pub(super) padding_nan: bool,
}

impl Desc {
    /// Address of an element; `None` outside the tensor.
    fn address(&self, index: impl Iterator<Item = i64>) -> Option<u64> {
        let mut offset = 0i64;
        for ((i, extent), stride) in index.zip(&self.shape).zip(&self.strides) {
            if i < 0 || i >= *extent {
                return None;
            }
            offset = offset.wrapping_add(i.wrapping_mul(*stride));
        }
        Some(self.base.wrapping_add_signed(offset.wrapping_mul(self.elem.bytes() as i64)))
    }

    /// Addresses of a block at an origin, row-major.
    pub(super) fn block(&self, block: &[usize], origin: &[i64]) -> Vec<Option<u64>> {
        let count = block.iter().product();
        let steps = super::shape::strides(block);
        let at = |e: usize| {
            let index = (0..block.len()).map(|a| origin[a].wrapping_add((e / steps[a] % block[a]) as i64));
            self.address(index)
        };
        (0..count).map(at).collect()
    }

    /// Addresses of `width` columns from `column` in each of the rows.
    pub(super) fn rows(&self, rows: &[i64], column: i64, width: usize) -> Vec<Option<u64>> {
        let each = rows.iter().flat_map(|row| (0..width as i64).map(move |j| [*row, column.wrapping_add(j)]));
        each.map(|index| self.address(index.into_iter())).collect()
    }

    fn padding(&self) -> u64 {
        match self.elem {
            Scalar::Float(f) if self.padding_nan => lane::round(f64::NAN, f),
            _ => 0,
        }
    }
}

impl Machine<'_> {
    pub(super) fn desc_load(&mut self, desc: &Desc, at: &[Option<u64>]) -> Result<Val, Fault> {
        let size = desc.elem.bytes();
        let padding = desc.padding();
        let load = |a: &Option<u64>| a.map_or(Ok(padding), |a| self.memory.load(a, size));
        Ok(Val::tensor(at.iter().map(load).collect::<Result<_, String>>().map_err(Fault::memory)?))
    }

    pub(super) fn desc_store(&mut self, desc: &Desc, at: &[Option<u64>], value: &Val) -> Result<(), Fault> {
        let size = desc.elem.bytes();
        for (lane, (address, value)) in at.iter().zip(value.lanes()).enumerate() {
            if let Some(address) = address {
                self.memory.instance.lane = lane;
                self.memory.store(*address, size, *value).map_err(Fault::memory)?;
            }
        }
        Ok(())
    }

    pub(super) fn desc_reduce(
        &mut self,
        kind: ReduceKind,
        desc: &Desc,
        at: &[Option<u64>],
        value: &Val,
    ) -> Result<(), Fault> {
        let size = desc.elem.bytes();
        for (lane, (address, value)) in at.iter().zip(value.lanes()).enumerate() {
            if let Some(address) = address {
                self.memory.instance.lane = lane;
                let old = self.memory.load(*address, size).map_err(Fault::memory)?;
                let new = reduce(kind, desc.elem, old, *value)?;
                self.memory.store(*address, size, new).map_err(Fault::memory)?;
            }
        }
        Ok(())
    }
}

fn reduce(kind: ReduceKind, elem: Scalar, old: u64, value: u64) -> Result<u64, Fault> {
    let float = elem.is_float();
    let op = match kind {
        ReduceKind::Add => {
            if float {
                BinaryOp::AddF
            } else {
                BinaryOp::AddI
            }
        }
        ReduceKind::Min => {
            if float {
                BinaryOp::MinNumF
            } else {
                BinaryOp::MinSI
            }
        }
        ReduceKind::Max => {
            if float {
                BinaryOp::MaxNumF
            } else {
                BinaryOp::MaxSI
            }
        }
        ReduceKind::And => BinaryOp::AndI,
        ReduceKind::Or => BinaryOp::OrI,
        ReduceKind::Xor => BinaryOp::XorI,
        ReduceKind::Inc | ReduceKind::Dec => return Err(Fault::unsupported("an inc or dec reduction")),
    };
    Ok(lane::binary(op, elem, old, value))
}

/// What an atomic stores over `old`.
pub(super) fn atomic(op: AtomicOp, elem: Scalar, old: u64, value: u64) -> u64 {
    let op = match op {
        AtomicOp::Exchange => return value,
        AtomicOp::And => BinaryOp::AndI,
        AtomicOp::Or => BinaryOp::OrI,
        AtomicOp::Xor => BinaryOp::XorI,
        AtomicOp::Add => BinaryOp::AddI,
        AtomicOp::FAdd => BinaryOp::AddF,
        AtomicOp::Max => BinaryOp::MaxSI,
        AtomicOp::Min => BinaryOp::MinSI,
        AtomicOp::UMax => BinaryOp::MaxUI,
        AtomicOp::UMin => BinaryOp::MinUI,
    };
    match elem {
        // Integer operations on a float's bits are how Triton spells a float maximum.
        Scalar::Float(f) if op != BinaryOp::AddF => lane::binary(op, Scalar::Int(Float::bits(f)), old, value),
        _ => lane::binary(op, elem, old, value),
    }
}

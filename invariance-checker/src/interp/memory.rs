//! The memory of a launch: buffers that know their bounds. A pointer is a number, as on a GPU, but buffers lie so far apart
//! that a wrong offset cannot reach the next one unnoticed.

use crate::float::{self, Round};
use crate::ir::{Scalar, TextPos};
use std::collections::HashMap;

/// A buffer of a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(u32);

/// Distance between the starts of neighbouring buffers.
const SPACING_LOG2: u32 = 44;

/// Buffers of bytes, with the element type they were made with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    buffers: Vec<(Scalar, Vec<u8>)>,
    watched: HashMap<u64, (Buffer, usize)>,
    writes: Vec<Write>,
    /// What is running, for the log of writes.
    pub(super) instance: Instance,
}

/// Which instance of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// The program.
    pub program: [u32; 3],
    /// The operation, in the TTIR text.
    pub at: TextPos,
    /// Which lane of its tensor, row-major.
    pub lane: usize,
    /// The iterations of the `scf.for` around it, each from 0, outermost first.
    pub iterations: Vec<u64>,
}

/// One write to a watched element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub buffer: Buffer,
    /// Which element of it.
    pub element: usize,
    /// What wrote.
    pub by: Instance,
    /// What the element held then.
    pub bits: u64,
}

/// Writes beyond these are not logged.
const WRITES_MAX: usize = 4096;

impl Memory {
    /// Memory without buffers.
    pub fn new() -> Self {
        Memory::default()
    }

    /// Adds a buffer of `len` zero elements.
    pub fn zeros(&mut self, elem: Scalar, len: usize) -> Buffer {
        self.buffers.push((elem, vec![0; len * elem.bytes()]));
        Buffer(self.buffers.len() as u32 - 1)
    }

    /// Adds a buffer of the given bit patterns.
    pub fn add_bits(&mut self, elem: Scalar, bits: &[u64]) -> Buffer {
        let buffer = self.zeros(elem, bits.len());
        let size = elem.bytes();
        for (chunk, value) in self.buffers[buffer.0 as usize].1.chunks_exact_mut(size).zip(bits) {
            chunk.copy_from_slice(&value.to_le_bytes()[..size]);
        }
        buffer
    }

    /// Adds a buffer whose elements are computed from their places.
    pub fn add_with(&mut self, elem: Scalar, len: usize, bits: impl Fn(u64) -> u64) -> Buffer {
        let buffer = self.zeros(elem, len);
        let size = elem.bytes();
        for (at, chunk) in self.buffers[buffer.0 as usize].1.chunks_exact_mut(size).enumerate() {
            chunk.copy_from_slice(&bits(at as u64).to_le_bytes()[..size]);
        }
        buffer
    }

    /// The bit pattern of one element.
    pub fn bits_at(&self, buffer: Buffer, element: usize) -> Option<u64> {
        let (elem, bytes) = &self.buffers[buffer.0 as usize];
        let start = element.checked_mul(elem.bytes())?;
        Some(read(bytes.get(start..start.checked_add(elem.bytes())?)?))
    }

    /// One element of a buffer of integers, as signed; `None` if there is no such element or it is a float.
    pub fn int_at(&self, buffer: Buffer, element: usize) -> Option<i64> {
        let elem = self.elem(buffer);
        let bits = self.bits_at(buffer, element)?;
        elem.is_int().then(|| crate::interp::lane::signed(bits, elem.bits()))
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, buffer: Buffer) -> &[u8] {
        &self.buffers[buffer.0 as usize].1
    }

    /// Adds a buffer of floats, rounded to nearest even to `elem`; integers are truncated.
    pub fn add_floats(&mut self, elem: Scalar, values: &[f64]) -> Buffer {
        let bits: Vec<u64> = values
            .iter()
            .map(|v| match elem {
                Scalar::Float(f) => float::encode(*v, f, Round::Nearest, false),
                _ => *v as i64 as u64,
            })
            .collect();
        self.add_bits(elem, &bits)
    }

    /// Adds a buffer of integers.
    pub fn add_ints(&mut self, elem: Scalar, values: &[i64]) -> Buffer {
        let bits: Vec<u64> = values.iter().map(|v| *v as u64).collect();
        self.add_bits(elem, &bits)
    }

    /// The bit patterns of a buffer.
    pub fn bits(&self, buffer: Buffer) -> Vec<u64> {
        let (elem, bytes) = &self.buffers[buffer.0 as usize];
        bytes.chunks_exact(elem.bytes()).map(read).collect()
    }

    /// The floats of a buffer; integers are converted as signed.
    pub fn floats(&self, buffer: Buffer) -> Vec<f64> {
        let elem = self.elem(buffer);
        let value = |bits: u64| match elem {
            Scalar::Float(f) => float::decode(bits, f),
            _ => crate::interp::lane::signed(bits, elem.bits()) as f64,
        };
        self.bits(buffer).into_iter().map(value).collect()
    }

    /// The integers of a buffer, as signed.
    pub fn ints(&self, buffer: Buffer) -> Vec<i64> {
        let bits = self.elem(buffer).bits();
        self.bits(buffer).into_iter().map(|v| crate::interp::lane::signed(v, bits)).collect()
    }

    /// Element type of a buffer.
    pub fn elem(&self, buffer: Buffer) -> Scalar {
        self.buffers[buffer.0 as usize].0
    }

    /// The bytes of a buffer.
    pub fn bytes_mut(&mut self, buffer: Buffer) -> &mut [u8] {
        &mut self.buffers[buffer.0 as usize].1
    }

    /// Logs every write to an element from now on, as to others that are watched.
    pub fn watch(&mut self, buffer: Buffer, element: usize) {
        let address = self.address(buffer) + (element * self.elem(buffer).bytes()) as u64;
        self.watched.insert(address, (buffer, element));
    }

    /// The writes to watched elements, in order.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// True if there may have been writes to watched elements that are not among [`Memory::writes`].
    pub fn log_is_full(&self) -> bool {
        self.writes.len() >= WRITES_MAX
    }

    /// True if the buffer is one of this memory.
    pub fn contains(&self, buffer: Buffer) -> bool {
        (buffer.0 as usize) < self.buffers.len()
    }

    /// Where a buffer starts.
    pub(super) fn address(&self, buffer: Buffer) -> u64 {
        (u64::from(buffer.0) + 1) << SPACING_LOG2
    }

    pub(super) fn load(&self, address: u64, size: usize) -> Result<u64, String> {
        let (buffer, offset) = self.locate(address, size)?;
        Ok(read(&self.buffers[buffer].1[offset..offset + size]))
    }

    pub(super) fn store(&mut self, address: u64, size: usize, value: u64) -> Result<(), String> {
        let (buffer, offset) = self.locate(address, size)?;
        self.buffers[buffer].1[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
        if !self.watched.is_empty()
            && let Some(&(buffer, element)) = self.watched.get(&address)
            && self.writes.len() < WRITES_MAX
        {
            self.writes.push(Write { buffer, element, by: self.instance.clone(), bits: value });
        }
        Ok(())
    }

    fn locate(&self, address: u64, size: usize) -> Result<(usize, usize), String> {
        let half = 1u64 << (SPACING_LOG2 - 1);
        let index = (address.wrapping_add(half) >> SPACING_LOG2) as usize;
        let Some((_, bytes)) = index.checked_sub(1).and_then(|i| self.buffers.get(i)) else {
            return Err(format!("access at {address:#x}, which is in no buffer"));
        };
        let offset = address.wrapping_sub((index as u64) << SPACING_LOG2) as i64;
        let start = usize::try_from(offset).ok().filter(|o| o + size <= bytes.len());
        match start {
            Some(start) if start.is_multiple_of(size) => Ok((index - 1, start)),
            Some(start) => {
                Err(format!("access of {size} bytes at byte {start} of buffer {}, which is not aligned", index - 1))
            }
            None => {
                let len = bytes.len();
                Err(format!("access of {size} bytes at byte {offset} of buffer {}, which has {len} bytes", index - 1))
            }
        }
    }
}

fn read(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

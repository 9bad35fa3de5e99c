//! Page-locked memory that copies pass through while the host goes on: words on their way down, and on their way up.

use std::sync::PoisonError;

use cudarc::driver::{CudaEvent, PinnedHostSlice};

use super::device::{Device, driver};
use crate::backend::{Error, Result};

/// Landings that are kept for later: two steps are on their way at most, each with one.
const KEPT_MAX: usize = 3;
/// Words that one begins with.
const WORDS_MIN: usize = 4096;

/// Page-locked memory, and the copy that last used it.
pub struct Landing {
    pinned: PinnedHostSlice<u32>,
    done: CudaEvent,
}

impl Drop for Landing {
    fn drop(&mut self) {
        // The memory must outlive a copy that is still on its way. A device that fails has no copies left.
        let _ = self.done.synchronize();
    }
}

impl Landing {
    /// Room for `words` words.
    pub fn new(device: &Device, operation: &'static str, words: usize) -> Result<Self> {
        let failed = driver(operation);
        let len = words.next_power_of_two().max(WORDS_MIN);
        let done = device.context.new_event(None).map_err(&failed)?;
        // SAFETY: nothing is read that was not written before.
        let pinned = unsafe { device.context.alloc_pinned_with_flags(len, 0) }.map_err(&failed)?;
        Ok(Self { pinned, done })
    }

    /// Words that it has room for.
    pub fn len(&self) -> usize {
        self.pinned.len()
    }

    /// Copies `words` to device memory in stream order, once the last copy through this memory is done.
    ///
    /// # Safety
    /// `address` has room for the words and belongs to an allocation of this backend.
    pub unsafe fn send(&mut self, device: &Device, operation: &'static str, address: u64, words: &[u32]) -> Result<()> {
        let failed = driver(operation);
        if words.len() > self.len() {
            return Err(Error::new(operation, format!("at most {} words", self.len()), words.len().to_string()));
        }
        self.done.synchronize().map_err(&failed)?;
        let start: *mut u32 = self.pinned.as_mut_ptr().map_err(&failed)?;
        // SAFETY: the memory is large enough, and no copy uses it; the caller vouches for the address.
        unsafe {
            let from = std::slice::from_raw_parts_mut(start, words.len());
            from.copy_from_slice(words);
            cudarc::driver::result::memcpy_htod_async(address, from, device.stream.cu_stream()).map_err(&failed)?;
        }
        self.done.record(&device.stream).map_err(&failed)
    }
}

/// Words that are on their way to the host.
pub struct Reading {
    landing: Landing,
    /// Words of each part, one after another.
    lens: Vec<usize>,
}

impl Device {
    /// Begins to read words from several places of device memory, in stream order.
    ///
    /// # Safety
    /// Each address holds so many words and belongs to an allocation of this backend.
    pub unsafe fn read_later(&self, operation: &'static str, parts: &[(u64, usize)]) -> Result<Reading> {
        let failed = driver(operation);
        self.context.bind_to_thread().map_err(&failed)?;
        let total: usize = parts.iter().map(|part| part.1).sum();
        let mut landings = self.landings.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = landings.iter().position(|landing| landing.len() >= total);
        let kept = fits.map(|index| landings.swap_remove(index));
        drop(landings);
        let mut landing = kept.map_or_else(|| Landing::new(self, operation, total), Ok)?;
        let start: *mut u32 = landing.pinned.as_mut_ptr().map_err(&failed)?;
        let mut at = 0;
        for &(address, len) in parts.iter().filter(|part| part.1 > 0) {
            // SAFETY: the parts lie one after another in the memory, which is large enough for all and which nobody else uses; the
            // caller vouches for the addresses.
            unsafe {
                let to = std::slice::from_raw_parts_mut(start.add(at), len);
                cudarc::driver::result::memcpy_dtoh_async(to, address, self.stream.cu_stream()).map_err(&failed)?;
            }
            at += len;
        }
        landing.done.record(&self.stream).map_err(&failed)?;
        Ok(Reading { landing, lens: parts.iter().map(|part| part.1).collect() })
    }

    /// Waits for the words of each part.
    pub fn read(&self, operation: &'static str, reading: Reading) -> Result<Vec<Vec<u32>>> {
        let failed = driver(operation);
        let Reading { landing, lens } = reading;
        landing.done.synchronize().map_err(&failed)?;
        let start: *const u32 = landing.pinned.as_ptr().map_err(&failed)?;
        let mut at = 0;
        let mut words = Vec::with_capacity(lens.len());
        for len in lens {
            // SAFETY: these words were written by the copies, which are done.
            words.push(unsafe { std::slice::from_raw_parts(start.add(at), len) }.to_vec());
            at += len;
        }
        let mut landings = self.landings.lock().unwrap_or_else(PoisonError::into_inner);
        landings.push(landing);
        // The largest are kept: a step that reads much will come again.
        landings.sort_by_key(|landing| std::cmp::Reverse(landing.len()));
        landings.truncate(KEPT_MAX);
        Ok(words)
    }
}

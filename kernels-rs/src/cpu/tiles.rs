//! Memory for tiles: zeroed, aligned, and on huge pages where the system offers them.
//!
//! A single row streams every weight once, and with 4 KiB pages it then waits for address translation more than for memory.

use crate::backend::{Error, Result};
use crate::cpu::chain::StepTile;
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};

/// A fixed number of tiles.
pub struct Tiles(MmapMut);

impl Tiles {
    /// `count` tiles of zeros, at least one.
    pub fn zeroed(operation: &'static str, count: usize) -> Result<Self> {
        let refuse = |got: String| Error::new(operation, format!("memory for {count} KiB of tiles"), got);
        let bytes = count.max(1).checked_mul(size_of::<StepTile>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or_else(|| refuse("more than can be addressed".into()))?;
        let map = MmapMut::map_anon(bytes).map_err(|e| refuse(e.to_string()))?;
        // Only advice: a system that does not take it gives the same memory in small pages.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self(map))
    }
}

impl Deref for Tiles {
    type Target = [StepTile];
    fn deref(&self) -> &[StepTile] {
        bytemuck::cast_slice(&self.0)
    }
}

impl DerefMut for Tiles {
    fn deref_mut(&mut self) -> &mut [StepTile] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

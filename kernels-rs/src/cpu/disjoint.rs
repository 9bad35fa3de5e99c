//! One output slice written by many workers, each its own elements.

use std::marker::PhantomData;

/// A mutable slice that hands out runs of itself from behind a shared reference.
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: every access goes through `run`, whose callers promise that no two live runs overlap; a run is then like an
// exclusive reference, which may be sent to another thread when T may.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Borrows the slice for as long as runs may be taken.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Elements `start..start + len`.
    ///
    /// # Safety
    /// No other run that is alive at the same time may overlap this one.
    ///
    /// # Panics
    /// When the run passes the end of the slice.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn run(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the run lies within the slice borrowed by `new`, and the caller keeps runs disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

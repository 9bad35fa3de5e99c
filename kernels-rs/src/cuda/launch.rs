//! Launching: grid, cluster, shared memory and dependent launch, and the tensor maps of Hopper's copy engine.

use std::ffi::c_void;

use cudarc::driver::sys::{
    self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use super::device::{Device, Function, SHARED_BYTES_MAX, driver};
use crate::backend::{Error, Result};

/// Where and how large a launch is.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads a block.
    pub threads: u32,
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: u32,
}

impl Grid {
    /// A grid whose sizes fit a launch; `None` stands for arithmetic that overflowed.
    pub fn checked(
        operation: &'static str,
        blocks: Option<u64>,
        threads: u32,
        shared_bytes: Option<u64>,
    ) -> Result<Self> {
        let shown = |value: Option<u64>| value.map_or("an overflow".to_string(), |v| v.to_string());
        let fits = |value: Option<u64>, max: u32| value.and_then(|v| u32::try_from(v).ok()).filter(|&v| v <= max);
        let grid = fits(blocks, i32::MAX as u32);
        let grid = grid.ok_or_else(|| Error::new(operation, "at most 2^31 - 1 blocks", shown(blocks)))?;
        let shared = fits(shared_bytes, SHARED_BYTES_MAX);
        let shared = shared.ok_or_else(|| {
            Error::new(operation, format!("at most {SHARED_BYTES_MAX} bytes of shared memory"), shown(shared_bytes))
        })?;
        Ok(Self { blocks: grid, threads, shared_bytes: shared })
    }
}

/// A size as the kernels' 32-bit parameters take it.
pub fn size(operation: &'static str, what: &str, value: usize) -> Result<u32> {
    let fits = u32::try_from(value).ok().filter(|&v| v <= i32::MAX as u32);
    fits.ok_or_else(|| Error::new(operation, format!("{what} below 2^31"), value.to_string()))
}

impl Device {
    /// Launches `function` on the backend's stream, allowed to start before its predecessor ends: every kernel waits for it
    /// itself.
    ///
    /// # Safety
    /// `arguments` point to values of the types of the kernel's parameters, in order; every device address in them belongs
    /// to an allocation of this backend that is large enough for what the kernel reads and writes with these sizes.
    pub unsafe fn launch(
        &self,
        operation: &'static str,
        function: Function,
        grid: Grid,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        if grid.blocks == 0 {
            return Ok(());
        }
        self.context.bind_to_thread().map_err(driver(operation))?;
        // SAFETY: a launch attribute is plain data for which zero is a valid value.
        let mut value: CUlaunchAttributeValue = unsafe { std::mem::zeroed() };
        value.programmaticStreamSerializationAllowed = i32::from(self.capability >= 90);
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value,
        };
        let config = CUlaunchConfig {
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes,
            hStream: self.stream.cu_stream(),
            attrs: &mut attribute,
            numAttrs: u32::from(self.capability >= 90),
        };
        // SAFETY: the caller vouches for the arguments; the configuration and the attribute outlive the call, which copies
        // them; the stream belongs to the bound context.
        unsafe { sys::cuLaunchKernelEx(&config, function.0, arguments.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .map_err(driver(operation))
    }
}

/// A tensor map as a kernel parameter: 128 bytes, 64-byte aligned.
pub type TensorMap = CUtensorMap;

/// A tensor of bf16 in memory and the box of it that one copy of the copy engine moves, innermost dimension first. What lies
/// outside reads as zero and is not written.
#[derive(Clone, Copy, Debug)]
pub struct Boxes<const RANK: usize> {
    sizes: [u32; RANK],
    /// Elements from one step of the dimension to the next; that of the innermost is 1.
    steps: [u32; RANK],
    part: [u32; RANK],
    swizzle: CUtensorMapSwizzle,
}

/// Elements of K that one stage of a ring holds: a row of 128 bytes.
const BLOCK: u32 = 64;

impl Boxes<2> {
    /// `part` rows by one block of K of an operand [rows, k].
    pub fn operand([rows, k]: [u32; 2], pitch: u32, part: u32) -> Self {
        let swizzle = CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
        Self { sizes: [k, rows], steps: [1, pitch], part: [BLOCK, part], swizzle }
    }

    /// A part of an output [rows, columns]: 64 rows by 32 elements, 64 bytes a row.
    pub fn output([rows, columns]: [u32; 2]) -> Self {
        let swizzle = CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B;
        Self { sizes: [columns, rows], steps: [1, columns], part: [32, 64], swizzle }
    }
}

impl Boxes<3> {
    /// `part` rows by `blocks` blocks of K, one after the other, of an operand [rows, pitch] whose pitch is a multiple of 64.
    pub fn blocks(rows: u32, pitch: u32, part: u32, blocks: u32) -> Self {
        let swizzle = CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
        Self { sizes: [BLOCK, rows, pitch / BLOCK], steps: [1, pitch, BLOCK], part: [BLOCK, part, blocks], swizzle }
    }
}

/// The copy engine's description of a tensor at `address`.
pub fn tensor_map<const RANK: usize>(operation: &'static str, address: u64, boxes: Boxes<RANK>) -> Result<TensorMap> {
    let sizes = boxes.sizes.map(u64::from);
    let strides = boxes.steps.map(|step| u64::from(step) * 2);
    let ones = [1; RANK];
    // SAFETY: a tensor map is plain data that the driver fills.
    let mut map: CUtensorMap = unsafe { std::mem::zeroed() };
    // SAFETY: the arrays have RANK elements, of the strides all but the first are read, and they outlive the call; the driver
    // checks alignment and sizes.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            RANK as u32,
            address as *mut c_void,
            sizes.as_ptr(),
            strides[1..].as_ptr(),
            boxes.part.as_ptr(),
            ones.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            boxes.swizzle,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
    .result()
    .map_err(driver(operation))?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_launched_are_refused() {
        let checked = |blocks, shared| Grid::checked("test", blocks, 128, shared).map_err(|e| e.to_string());
        assert!(checked(Some(u64::from(i32::MAX as u32)), Some(u64::from(SHARED_BYTES_MAX))).is_ok());
        for (blocks, shared, told) in [
            (Some(1 << 31), Some(0), "2^31 - 1 blocks, got 2147483648"),
            (None, Some(0), "2^31 - 1 blocks, got an overflow"),
            (Some(1), Some(u64::from(SHARED_BYTES_MAX) + 1), "232448 bytes of shared memory, got 232449"),
            (Some(1), None, "bytes of shared memory, got an overflow"),
        ] {
            let error = checked(blocks, shared).expect_err("refused");
            assert!(error.contains(told), "{error}");
        }
    }
}

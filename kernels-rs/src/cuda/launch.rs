//! Launching: grid, cluster, shared memory and dependent launch, and the tensor maps of Hopper's copy engine.

use std::ffi::c_void;

use cudarc::driver::sys::{
    self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use super::device::{Device, Function, driver};
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

/// A grid dimension from a product that may not fit.
pub fn grid_size(operation: &'static str, blocks: usize) -> Result<u32> {
    let fits = u32::try_from(blocks).ok().filter(|&b| b <= i32::MAX as u32);
    fits.ok_or_else(|| Error::new(operation, "at most 2^31 - 1 blocks", blocks.to_string()))
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

/// The map of a row-major bf16 matrix [rows, k] with `pitch` elements a row, read in boxes of `box_rows` rows by 64
/// elements with the 128-byte swizzle. What lies outside reads as zero.
pub fn tensor_map(
    operation: &'static str,
    address: u64,
    rows: u32,
    k: u32,
    pitch: u32,
    box_rows: u32,
) -> Result<TensorMap> {
    let sizes = [u64::from(k), u64::from(rows)];
    let strides = [u64::from(pitch) * 2];
    let (boxes, steps) = ([64, box_rows], [1, 1]);
    // SAFETY: a tensor map is plain data that the driver fills.
    let mut map: CUtensorMap = unsafe { std::mem::zeroed() };
    // SAFETY: the arrays have the lengths that rank 2 asks for and outlive the call; the driver checks alignment and sizes.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            address as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
    .result()
    .map_err(driver(operation))?;
    Ok(map)
}

/// Pointers to kernel arguments, in order.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        &mut [$(std::ptr::from_ref(&$value).cast_mut().cast::<std::ffi::c_void>()),*]
    };
}
pub(crate) use arguments;

//! One GPU: its context and stream, the loaded kernels, and memory that grows and is reused.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute, CUmodule, CUresult};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError};

use super::landing::Landing;
use crate::backend::{Error, Result};

/// Shared memory that a block may have on Hopper, in bytes.
pub const SHARED_BYTES_MAX: u32 = 232_448;

/// A driver failure as a backend error.
pub fn driver(operation: &'static str) -> impl Fn(DriverError) -> Error {
    move |e| {
        let expected = match e.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => "enough device memory",
            CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE => "a working device",
            _ => "the CUDA driver to succeed",
        };
        Error::new(operation, expected, format!("{e:?}"))
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Copy)]
pub struct Function(pub sys::CUfunction);
// SAFETY: a function handle is an opaque pointer that the driver allows every thread of the process to use; its module is
// never unloaded.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Scratch memory whose contents do not outlive an operator. Old blocks are kept, since a captured graph may hold their
/// addresses.
#[derive(Default)]
struct Workspace {
    blocks: HashMap<&'static str, Vec<Arc<CudaSlice<u8>>>>,
}

/// Memory whose addresses a captured graph may hold.
pub type Kept = Vec<Arc<dyn Any + Send + Sync>>;

/// One GPU.
pub struct Device {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    functions: HashMap<String, Function>,
    workspace: Mutex<Workspace>,
    /// What the capture in progress has used so far; `None` outside of captures.
    pub captured: Mutex<Option<Kept>>,
    /// Page-locked memory that downloads pass through, those that are not in use.
    pub landings: Mutex<Vec<Landing>>,
    /// Held by an operator whose launches hand scratch memory to each other.
    pub exclusive: Mutex<()>,
    /// Streaming multiprocessors.
    pub processors: u32,
    /// The card runs the Hopper kernels.
    pub hopper: bool,
    /// One kernel for each operator, whatever the number of rows: for measuring what the choice is worth.
    pub one_variant: bool,
    /// Name and compute capability.
    pub label: String,
    /// Compute capability times ten.
    pub capability: u32,
}

impl Device {
    /// Loads every embedded kernel that the card can run.
    pub fn open(ordinal: usize) -> Result<Self> {
        if kernels_cuda::IMAGES.is_empty() {
            return Err(Error::new("cuda", "a build with nvcc", "a build without CUDA kernels"));
        }
        // SAFETY: only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new("cuda", "the CUDA driver library (libcuda)", "none on this machine"));
        }
        let failed = driver("cuda");
        let context = CudaContext::new(ordinal).map_err(&failed)?;
        // SAFETY: every buffer of this backend is used on its one stream, so no event between streams is needed.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(&failed)?;
        let (major, minor) = context.compute_capability().map_err(&failed)?;
        if major < 8 {
            return Err(Error::new("cuda", "compute capability 8.0 or later", format!("{major}.{minor}")));
        }
        let processors = context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(&failed)? as u32;
        let label = context.name().map_err(&failed)?;
        let hopper = (major, minor) == (9, 0);
        let mut functions = HashMap::new();
        for (stem, image) in kernels_cuda::IMAGES {
            if hopper || !stem.starts_with("sm90_") {
                load_module(image, &mut functions).map_err(&failed)?;
            }
        }
        let capability = (major * 10 + minor) as u32;
        Ok(Self {
            context,
            stream,
            functions,
            workspace: Mutex::default(),
            captured: Mutex::default(),
            landings: Mutex::default(),
            exclusive: Mutex::default(),
            processors,
            hopper,
            one_variant: false,
            label,
            capability,
        })
    }

    /// A kernel by the name that its launcher was made for.
    pub fn function(&self, name: &str) -> Result<Function> {
        let missing = || Error::new("cuda", format!("kernel {name} in the embedded images"), "no such kernel");
        self.functions.get(name).copied().ok_or_else(missing)
    }

    /// At least `bytes` of scratch memory under a name; its contents are what the last user left. New memory is zero.
    pub fn workspace(&self, operation: &'static str, name: &'static str, bytes: usize) -> Result<u64> {
        let mut workspace: MutexGuard<'_, Workspace> = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = workspace.blocks.entry(name).or_default();
        if blocks.last().is_none_or(|block| block.len() < bytes) {
            let grown = bytes.next_power_of_two().max(1 << 16);
            blocks.push(Arc::new(self.stream.alloc_zeros::<u8>(grown).map_err(driver(operation))?));
        }
        blocks.last().map(|block| self.address(block)).ok_or_else(|| Error::new(operation, "workspace", "none"))
    }

    /// Copies `host` to device memory, in stream order; the slice may change once this returns.
    ///
    /// # Safety
    /// `address` has room for the slice and belongs to an allocation of this backend.
    pub unsafe fn write<T: bytemuck::Pod>(&self, operation: &'static str, address: u64, host: &[T]) -> Result<()> {
        if host.is_empty() {
            return Ok(());
        }
        self.context.bind_to_thread().map_err(driver(operation))?;
        let bytes: &[u8] = bytemuck::cast_slice(host);
        // SAFETY: the caller vouches for the memory. The driver has read pageable memory when it returns.
        unsafe { cudarc::driver::result::memcpy_htod_async(address, bytes, self.stream.cu_stream()) }
            .map_err(driver(operation))
    }

    /// Device address of an allocation, which a capture in progress keeps alive for its graph.
    pub fn address<T: 'static>(&self, slice: &Arc<CudaSlice<T>>) -> u64 {
        let mut captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &mut *captured {
            kept.push(slice.clone());
        }
        slice.device_ptr(&self.stream).0
    }
}

/// Loads a fatbin and lists its kernels, each allowed all the shared memory that the card gives.
fn load_module(image: &[u8], functions: &mut HashMap<String, Function>) -> std::result::Result<(), DriverError> {
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: the image is a whole fatbin; the driver copies it.
    unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast::<c_void>()) }.result()?;
    let mut count = 0;
    // SAFETY: `module` was just loaded; `count` outlives the call.
    unsafe { sys::cuModuleGetFunctionCount(&mut count, module) }.result()?;
    let mut handles = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: `handles` has room for `count` handles.
    unsafe { sys::cuModuleEnumerateFunctions(handles.as_mut_ptr(), count, module) }.result()?;
    for handle in handles {
        let mut name = std::ptr::null();
        // SAFETY: the driver returns a string that lives as long as the module, which is never unloaded.
        let name = unsafe {
            sys::cuFuncGetName(&mut name, handle).result()?;
            CString::from(std::ffi::CStr::from_ptr(name))
        };
        let mut fixed = 0;
        let shared = CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: `handle` is a function of a loaded module.
        unsafe {
            sys::cuFuncGetAttribute(&mut fixed, shared, handle).result()?;
            // A card with less shared memory refuses; its kernels ask for less when they are launched.
            let _ = sys::cuFuncSetAttribute(handle, dynamic, SHARED_BYTES_MAX as i32 - fixed).result();
        }
        functions.insert(name.to_string_lossy().into_owned(), Function(handle));
    }
    Ok(())
}

//! cuBLAS as the peer: bf16 in, f32 accumulate, its own choice of algorithm.

use cudarc::cublas::{CudaBlas, sys};
use kernels_rs::cuda::Cuda;

/// cuBLAS on the backend's stream, with a workspace so that calls can be captured.
pub struct Cublas {
    blas: CudaBlas,
    _workspace: cudarc::driver::CudaSlice<u8>,
}

impl Cublas {
    /// `None`, after saying why, where the library is missing.
    pub fn new(cuda: &Cuda) -> Option<Self> {
        // SAFETY: only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            println!("skipped: comparison with cuBLAS (no libcublas)");
            return None;
        }
        let blas = CudaBlas::new(cuda.stream().clone()).ok()?;
        let bytes = 32 << 20;
        let workspace = cuda.stream().alloc_zeros::<u8>(bytes).ok()?;
        let address = cudarc::driver::DevicePtr::device_ptr(&workspace, cuda.stream()).0;
        // SAFETY: the workspace lives as long as the handle.
        unsafe { sys::cublasSetWorkspace_v2(*blas.handle(), address as *mut _, bytes) }.result().ok()?;
        Some(Self { blas, _workspace: workspace })
    }

    /// y [m, n] = x [m, k] · w [n, k]ᵀ, y in bf16 or f32.
    ///
    /// # Safety
    /// The addresses hold matrices of these sizes.
    pub unsafe fn linear(&self, (m, n, k): (usize, usize, usize), x: u64, w: u64, y: u64, f32_out: bool) -> bool {
        let (one, zero) = (1.0f32, 0.0f32);
        let bf = sys::cudaDataType_t::CUDA_R_16BF;
        // SAFETY: the caller vouches for the matrices; the scalars outlive the call.
        unsafe {
            sys::cublasGemmEx(
                *self.blas.handle(),
                sys::cublasOperation_t::CUBLAS_OP_T,
                sys::cublasOperation_t::CUBLAS_OP_N,
                n as i32,
                m as i32,
                k as i32,
                std::ptr::from_ref(&one).cast(),
                w as *const _,
                bf,
                k as i32,
                x as *const _,
                bf,
                k as i32,
                std::ptr::from_ref(&zero).cast(),
                y as *mut _,
                if f32_out { sys::cudaDataType_t::CUDA_R_32F } else { bf },
                n as i32,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .result()
        .is_ok()
    }
}

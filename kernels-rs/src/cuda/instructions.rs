//! Single warpgroup products on the device, for tests of the tensor-core model.

use half::bf16;

use super::device::Device;
use super::launch::Grid;
use super::{Buffer, Cuda, check_len};
use crate::backend::{Backend, Error, Result};

kernels_macro::kernels! {
    source = "../kernels-cuda/kernels/sm90_instructions.cu";
    /// One product of a 64-row matrix, with A from shared memory or from registers.
    family Product = INSTRUCTION_VARIANT(a: u64, b: u64, out: u64, k: u32) {
        tree = "one chain of k16 steps from +0";
        threads = 128;
        grid = 1;
        // a and b, 256 of k each, and the swizzle's alignment.
        shared = 1024 + (64 + 256) * 256 * 2;
    }
}

/// Name, columns, and whether A comes from registers, of every product kernel.
pub fn wgmma_kernels() -> impl Iterator<Item = (&'static str, usize, bool)> {
    Product::ALL.iter().map(|v| (v.name, v.n as usize, v.registers == 1))
}

impl Cuda {
    /// out [64, n] = a [64, k] · b [n, k]ᵀ as one chain of the named kernel of [`wgmma_kernels`]; k is a multiple of 64 up to 256.
    pub fn wgmma(&self, name: &str, a: &[bf16], b: &[bf16], k: usize) -> Result<Vec<f32>> {
        const OP: &str = "wgmma";
        let kernel = Product::ALL.iter().find(|kernel| kernel.name == name);
        let kernel = kernel.ok_or_else(|| Error::new(OP, "a kernel of the list", name.to_string()))?;
        let n = kernel.n as usize;
        if k == 0 || k > 256 || !k.is_multiple_of(64) {
            return Err(Error::new(OP, "k a multiple of 64 up to 256", k.to_string()));
        }
        check_len(OP, "a", a.len(), 64, k)?;
        check_len(OP, "b", b.len(), n, k)?;
        let (a, b, out): (_, _, Buffer<f32>) = (self.upload(a)?, self.upload(b)?, self.alloc(64 * n)?);
        let (from_a, from_b, to, k) = (self.at(&a), self.at(&b), self.at(&out), k as u32);
        // SAFETY: the lengths were checked.
        unsafe { kernel.launch(&self.device, OP, &from_a, &from_b, &to, &k)? };
        self.download(&out, 64 * n)
    }
}

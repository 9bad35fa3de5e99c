//! Single warpgroup products on the device, for tests of the tensor-core model.

use half::bf16;

use super::launch::{Grid, arguments};
use super::{Buffer, Cuda, check_len};
use crate::backend::{Backend, Error, Result};

/// Columns, and whether A comes from registers, of every product kernel.
pub const WGMMA: &[(&str, usize, bool)] = &[
    ("wgmma_n8", 8, false),
    ("wgmma_n16", 16, false),
    ("wgmma_n32", 32, false),
    ("wgmma_n48", 48, false),
    ("wgmma_n64", 64, false),
    ("wgmma_n96", 96, false),
    ("wgmma_n112", 112, false),
    ("wgmma_n128", 128, false),
    ("wgmma_n160", 160, false),
    ("wgmma_n192", 192, false),
    ("wgmma_n224", 224, false),
    ("wgmma_n256", 256, false),
    ("wgmma_n64_registers", 64, true),
    ("wgmma_n128_registers", 128, true),
    ("wgmma_n192_registers", 192, true),
    ("wgmma_n256_registers", 256, true),
];

impl Cuda {
    /// out [64, n] = a [64, k] · b [n, k]ᵀ as one chain of the named kernel of [`WGMMA`]; k is a multiple of 64 up to 256.
    pub fn wgmma(&self, name: &str, a: &[bf16], b: &[bf16], k: usize) -> Result<Vec<f32>> {
        const OP: &str = "wgmma";
        let kernel = WGMMA.iter().find(|kernel| kernel.0 == name);
        let (name, n, _) = *kernel.ok_or_else(|| Error::new(OP, "a kernel of the list", name.to_string()))?;
        if k == 0 || k > 256 || !k.is_multiple_of(64) {
            return Err(Error::new(OP, "k a multiple of 64 up to 256", k.to_string()));
        }
        check_len(OP, "a", a.len(), 64, k)?;
        check_len(OP, "b", b.len(), n, k)?;
        let (a, b, out): (_, _, Buffer<f32>) = (self.upload(a)?, self.upload(b)?, self.alloc(64 * n)?);
        let (from_a, from_b, to, k) = (self.at(&a), self.at(&b), self.at(&out), k as u32);
        let grid = Grid { blocks: 1, threads: 128, shared_bytes: 1024 + (64 + 256) * 256 * 2 };
        // SAFETY: the kernel takes three addresses and k; the lengths were checked.
        unsafe { self.device.launch(OP, self.device.function(name)?, grid, arguments![from_a, from_b, to, k])? };
        self.download(&out, 64 * n)
    }
}

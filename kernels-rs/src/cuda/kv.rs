//! The paged KV memory on the device.

use std::sync::Arc;

use cudarc::driver::CudaSlice;
use kernels_cuda::params::KvLayer;

use super::device::{Device, driver};
use super::launch::size;
use super::step::PADDING_MAX;
use crate::backend::{Error, KvShape, Result};
use crate::cpu::kv::check_shape;

/// The KV memory of all layers. Cells are padded to 64 or 128 elements a head. Beyond the pages of the shape each layer has a
/// few that only rows write and read which pad a step to its class.
pub struct KvPool {
    pub(super) shape: KvShape,
    pub(super) memory: Arc<CudaSlice<u16>>,
    layer_elements: usize,
}

/// 64-element halves of a padded head.
pub fn halves(operation: &'static str, head_dim: usize) -> Result<u32> {
    match head_dim {
        1..=64 if head_dim.is_multiple_of(16) => Ok(1),
        65..=128 if head_dim.is_multiple_of(16) => Ok(2),
        _ => Err(Error::new(operation, "a head_dim that is a multiple of 16 up to 128", head_dim.to_string())),
    }
}

/// Elements of a layer and of all layers.
pub fn elements(shape: &KvShape) -> Result<(usize, usize)> {
    const OP: &str = "kv_pool";
    check_shape(OP, shape)?;
    let halves = halves(OP, shape.head_dim)? as usize;
    let product = |factors: &[usize]| factors.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
    let pages = shape.pages.checked_add(PADDING_MAX.div_ceil(shape.page_tokens));
    let layer = product(&[pages.unwrap_or(usize::MAX), shape.kv_heads, 2 * halves, shape.page_tokens, 64]);
    let total = layer.and_then(|layer| layer.checked_mul(shape.layers)).filter(|t| t.checked_mul(2).is_some());
    let refused = || Error::new(OP, "sizes above 0 whose product can be addressed", format!("{shape:?}"));
    layer.zip(total).ok_or_else(refused)
}

impl KvPool {
    /// A zeroed pool.
    pub fn new(device: &Device, shape: KvShape) -> Result<Self> {
        const OP: &str = "kv_pool";
        let (layer_elements, total) = elements(&shape)?;
        let memory = Arc::new(device.stream.alloc_zeros(total).map_err(driver(OP))?);
        Ok(Self { shape, memory, layer_elements })
    }

    /// One layer as the kernels take it.
    pub fn layer(&self, device: &Device, operation: &'static str, layer: usize) -> Result<KvLayer> {
        let shape = &self.shape;
        if layer >= shape.layers {
            return Err(Error::new(operation, format!("a layer below {}", shape.layers), layer.to_string()));
        }
        Ok(KvLayer {
            base: (device.address(&self.memory) + (layer * self.layer_elements * 2) as u64) as *mut u16,
            pages: size(operation, "pages", shape.pages + PADDING_MAX.div_ceil(shape.page_tokens))?,
            page_tokens: size(operation, "page_tokens", shape.page_tokens)?,
            kv_heads: size(operation, "kv_heads", shape.kv_heads)?,
            head_dim: size(operation, "head_dim", shape.head_dim)?,
            halves: halves(operation, shape.head_dim)?,
        })
    }
}

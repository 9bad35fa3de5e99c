//! The embedded CUDA kernels: one fatbin a file of `kernels/`, compiled by build.rs when nvcc is there. How they are
//! launched is in `kernels-rs`; no engine type is known here.

pub mod params;

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The fatbin of a kernel file, if this build has it.
pub fn image(stem: &str) -> Option<&'static [u8]> {
    IMAGES.iter().find(|(name, _)| *name == stem).map(|(_, image)| *image)
}

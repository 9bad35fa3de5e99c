//! `kernels!`: from a `.cu` file and one description, typed launchers whose constants are read from the CUDA source, and
//! dispatch by token count that compiles only if all its variants realise one tree.
//!
//! ```text
//! kernels! {
//!     source = "../kernels-cuda/kernels/sm90_linear_stream.cu";
//!     /// Read from the file; usable below, and a constant for Rust.
//!     constant KV_TILE = "../kernels-cuda/include/attention.cuh";
//!     /// Few tokens: the weights are streamed once.
//!     family Stream = STREAM_VARIANT(weight: TensorMap, x: TensorMap, p: LinearParams) {
//!         tree = "linear: chunks of k16 chains, left to right; chunks = {LOCAL * CLUSTER}";
//!         threads = LOCAL * ROWS / 16 * 32 + 64;
//!         sizes(n, stages);
//!         grid = ceil(n, ROWS) * CLUSTER;
//!         shared = 1024 + stages * LOCAL * STEP * (ROWS + TOKENS) * 128;
//!         shared_min = 1024 + 2 * LOCAL * STEP * (ROWS + TOKENS) * 128;
//!     }
//!     kernel PadRows = pad_rows(x: u64, out: u64, rows: u32, k: u32, pitch: u32) { .. }
//!     dispatch two_chunks of Stream by tokens {
//!         1..=8 => linear_mma_r32_t8_c2,
//!         9..=16 => linear_mma_r32_t16_c2,
//!     }
//! }
//! ```
//!
//! A family is a `#define NAME(..)` of the source whose text holds one `extern "C" __global__` signature; its variants are
//! the uses of that name. A `kernel` stands alone in the source and is a family of one. From it come a struct with one `u32`
//! field per parameter of the `#define`, the table of variants with name, threads and tree digest, a struct of the `sizes`
//! that only a launch knows, and an `unsafe fn launch` that takes the arguments of the signature, computes grid and shared
//! memory in checked arithmetic and refuses what cannot be launched. Nothing about a variant is written on the Rust side.
//!
//! What is checked while compiling, each with the place of the mistake: that the declared argument types are those of the
//! signature; that expressions name constants of the source or declared sizes; that threads are at most 1024 and equal the
//! kernel's launch bounds where these are a number; that the smallest shared memory fits a block; that a dispatch names
//! existing variants, covers its range without gap or overlap, gives no variant more tokens than its TOKENS, and stays inside
//! one digest.
//!
//! The code that is generated expects `Device`, `Grid` and `Result` in scope.

mod cuda_source;
mod description;
mod generate;
mod number;

use proc_macro::TokenStream;

/// See the crate's documentation.
#[proc_macro]
pub fn kernels(input: TokenStream) -> TokenStream {
    let description = syn::parse_macro_input!(input as description::Description);
    match generate::expand(&description) {
        Ok(tokens) => tokens.into(),
        Err(error) => error.into_compile_error().into(),
    }
}

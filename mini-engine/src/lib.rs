//! A reference LLM engine whose logits are the same, bit for bit, whatever else the server does.

pub mod bench;
pub mod determinism;
pub mod device_model;
pub mod engine;
pub mod model;
pub mod receipt;
pub mod server;
pub mod showroom;
pub mod soak;
pub mod stop;

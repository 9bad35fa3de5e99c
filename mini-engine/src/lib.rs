//! A reference LLM engine whose logits are the same, bit for bit, whatever else the server does.

pub mod determinism;
pub mod device_model;
pub mod engine;
pub mod model;
<<<<<<< HEAD
pub mod receipt;
=======
pub mod server;
>>>>>>> c6ac2c4 (mini-engine: an OpenAI-compatible server; penalties and bias as row functions of the request)
pub mod stop;

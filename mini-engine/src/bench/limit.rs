//! How fast a step can be at best: every weight and every key and value is read once, every product takes its time.

use serde::Serialize;

use crate::model::Config;

/// Rates of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Bytes a second from memory.
    pub bytes_per_second: f64,
    /// Floating-point operations a second of matrix products.
    pub flops_per_second: f64,
}

/// What an H200 was measured to reach: a stream of weights, and a large product in bfloat16.
pub const H200: Limit = Limit { bytes_per_second: 4.27e12, flops_per_second: 790e12 };

/// Work of a step or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Bytes that must be read: weights, keys and values.
    pub bytes: f64,
    /// Floating-point operations of matrix products.
    pub flops: f64,
}

impl Limit {
    /// Seconds that the work takes at least.
    pub fn seconds(&self, work: Work) -> f64 {
        (work.bytes / self.bytes_per_second).max(work.flops / self.flops_per_second)
    }
}

/// Elements of the matrices of all layers.
fn layer_weights(config: &Config) -> f64 {
    let q = config.q_heads * config.head_dim;
    let layer = config.hidden * (config.qkv_rows() + q + 3 * config.ffn);
    config.layers as f64 * layer as f64
}

/// Keys and values of one position in all layers, in bytes.
fn kv_bytes(config: &Config) -> f64 {
    (config.layers * config.kv_heads * config.head_dim * 4) as f64
}

/// One step in which `batch` sequences of `context` positions each get one token.
pub fn decode_step(config: &Config, batch: usize, context: usize) -> Work {
    let (weights, head) = (layer_weights(config), (config.hidden * config.vocab) as f64);
    let attention = (4 * config.layers * config.q_heads * config.head_dim) as f64 * context as f64;
    Work {
        bytes: 2.0 * (weights + head) + batch as f64 * context as f64 * kv_bytes(config),
        flops: batch as f64 * (2.0 * (weights + head) + attention),
    }
}

/// The prefill of `batch` prompts of `length` tokens: products of all rows, causal attention, one row of logits a prompt.
pub fn prefill(config: &Config, batch: usize, length: usize) -> Work {
    let (weights, head) = (layer_weights(config), (config.hidden * config.vocab) as f64);
    let pairs = length as f64 * (length as f64 + 1.0) / 2.0;
    let attention = (4 * config.layers * config.q_heads * config.head_dim) as f64 * pairs;
    Work {
        bytes: 2.0 * (weights + head) + batch as f64 * length as f64 * kv_bytes(config),
        flops: batch as f64 * (2.0 * (weights * length as f64 + head) + attention),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RandomModel;

    #[test]
    fn an_8b_step_is_bound_by_its_weights_and_a_long_prefill_by_products() {
        let config = RandomModel::parse("llama-3.1-8b").unwrap().config;
        // 7.5e9 weights without the embedding, two bytes each: 3.5 ms.
        let decode = H200.seconds(decode_step(&config, 1, 1024));
        assert!((3.4e-3..3.6e-3).contains(&decode), "{decode}");
        let work = prefill(&config, 1, 8192);
        assert!(work.flops / H200.flops_per_second > work.bytes / H200.bytes_per_second);
        assert!((0.14..0.18).contains(&H200.seconds(work)));
    }
}

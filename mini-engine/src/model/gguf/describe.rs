//! A model's shape from GGUF metadata.

use reduction_tree::operator::RopePairing;

use super::blocks::Quantisation;
use super::container::Container;
use super::{ROPE_DIVISORS, name};
use crate::model::config::{Config, Family, Rope, RopeScaling};
use crate::model::error::{Error, Result};
use crate::model::tensor::{LayerTensor, Tensor};

/// Reads the shape; the caller checks it.
pub(super) fn config(container: &Container<'_>) -> Result<Config> {
    let architecture = container.text("general.architecture")?;
    let family = match architecture {
        "llama" => Family::Llama,
        "qwen2" => Family::Qwen2,
        "qwen3" => Family::Qwen3,
        _ => return Err(container.wrong("general.architecture", "llama, qwen2 or qwen3")),
    };
    let key = |suffix: &str| format!("{architecture}.{suffix}");
    refuse_variants(container, architecture)?;
    let layers = container.count(&key("block_count"))?;
    let hidden = container.count(&key("embedding_length"))?;
    let q_heads = container.count(&key("attention.head_count"))?;
    let kv_heads = container.count_or_none(&key("attention.head_count_kv"))?.unwrap_or(q_heads);
    let head_dim = match container.count_or_none(&key("attention.key_length"))? {
        Some(head_dim) => head_dim,
        None => {
            hidden.checked_div(q_heads).ok_or_else(|| container.wrong(&key("attention.head_count"), "at least 1"))?
        }
    };
    for same in ["attention.value_length", "rope.dimension_count"] {
        if container.count_or_none(&key(same))?.is_some_and(|value| value != head_dim) {
            return Err(container.wrong(&key(same), &format!("the head size {head_dim}")));
        }
    }
    let vocab = match container.tensors().get(name(Tensor::Embedding).as_str()) {
        Some(info) => info.shape[0],
        None => return Err(Error::input(name(Tensor::Embedding), "an embedding table", "nothing")),
    };
    let eps_key = key("attention.layer_norm_rms_epsilon");
    let eps = container.float_or_none(&eps_key)?.ok_or_else(|| container.wrong(&eps_key, "a number"))?;
    let has = |tensor| container.tensors().contains_key(name(tensor).as_str());
    Ok(Config {
        family,
        layers,
        hidden,
        q_heads,
        kv_heads,
        head_dim,
        ffn: container.count(&key("feed_forward_length"))?,
        vocab,
        context: container.count(&key("context_length"))?,
        eps: eps as f32,
        rope: Rope {
            theta: container.float_or_none(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            scaling: rope_scaling(container, architecture)?,
            // Files of Llama models store the rows of q and k in an order that puts the halves of a pair side by side.
            pairing: if family == Family::Llama { RopePairing::Interleaved } else { RopePairing::Half },
        },
        qkv_bias: has(Tensor::Layer(0, LayerTensor::QBias)),
        qk_norm: family == Family::Qwen3,
        tied: !has(Tensor::Head),
        // The layers are bounded by `Config::check`, which comes later: bound the allocation here.
        windows: vec![None; layers.min(crate::model::config::limits::LAYERS_MAX)],
        bos: token(container, "tokenizer.ggml.bos_token_id")?,
        eos: end_tokens(container)?,
    })
}

/// Refuses what a file of a known architecture can still ask for and the engine does not do.
fn refuse_variants(container: &Container<'_>, architecture: &str) -> Result<()> {
    for absent in ["expert_count", "attention.sliding_window"] {
        let key = format!("{architecture}.{absent}");
        if container.count_or_none(&key)?.is_some_and(|value| value != 0) {
            return Err(container.wrong(&key, "0 or nothing"));
        }
    }
    if container.count_or_none("split.count")?.is_some_and(|count| count > 1) {
        return Err(container.wrong("split.count", "a model in one file"));
    }
    Ok(())
}

fn rope_scaling(container: &Container<'_>, architecture: &str) -> Result<RopeScaling> {
    let kind_key = format!("{architecture}.rope.scaling.type");
    let factor_key = format!("{architecture}.rope.scaling.factor");
    let scaling = match container.text_or_none(&kind_key)? {
        None | Some("none") => RopeScaling::None,
        Some("linear") => {
            let factor =
                container.float_or_none(&factor_key)?.ok_or_else(|| container.wrong(&factor_key, "a number"))?;
            RopeScaling::Linear { factor }
        }
        Some(_) => return Err(container.wrong(&kind_key, "none or linear")),
    };
    match rope_divisors(container)? {
        None => Ok(scaling),
        Some(divisors) if scaling == RopeScaling::None => Ok(RopeScaling::Divisors(divisors)),
        Some(_) => Err(Error::input(ROPE_DIVISORS, "no frequency divisors beside linear scaling", "both")),
    }
}

/// The divisors are small, but they are tensor data: the container must have been parsed from the whole file.
fn rope_divisors(container: &Container<'_>) -> Result<Option<Vec<f32>>> {
    let Some(info) = container.tensors().get(ROPE_DIVISORS) else { return Ok(None) };
    if info.quantisation != Quantisation::F32 || info.shape.len() != 1 {
        return Err(Error::input(
            ROPE_DIVISORS,
            "one row of F32",
            format!("{:?} of shape {:?}", info.quantisation, info.shape),
        ));
    }
    let bytes = container.data(info);
    Ok(Some(bytes.chunks_exact(4).map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]])).collect()))
}

fn token(container: &Container<'_>, key: &str) -> Result<Option<u32>> {
    container
        .count_or_none(key)?
        .map(|value| u32::try_from(value).map_err(|_| container.wrong(key, "a token")))
        .transpose()
}

/// The end of a turn and of a message end an answer just as the end of the text does.
fn end_tokens(container: &Container<'_>) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        if let Some(token) = token(container, key)?
            && !tokens.contains(&token)
        {
            tokens.push(token);
        }
    }
    Ok(tokens)
}

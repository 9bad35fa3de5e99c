//! A model's shape from `config.json`, as written by any version of the usual library.

use reduction_tree::operator::RopePairing;
use serde_json::Value;

use super::json::Object;
use crate::model::GenerationDefaults;
use crate::model::config::{Config, Family, Rope, RopeScaling, limits};
use crate::model::error::{Error, Result};

/// Parses and checks a `config.json`.
pub fn parse(bytes: &[u8]) -> Result<Config> {
    let document: Value = document(bytes)?;
    let root = Object::root(&document)?;
    let family = match root.text_or_none("model_type")? {
        Some("llama") => Family::Llama,
        Some("qwen2") => Family::Qwen2,
        Some("qwen3") => Family::Qwen3,
        _ => return Err(root.wrong("model_type", "llama, qwen2 or qwen3")),
    };
    refuse_variants(&root)?;
    let hidden = root.count("hidden_size")?;
    let q_heads = root.count("num_attention_heads")?;
    let head_dim = match root.count_or_none("head_dim")? {
        Some(head_dim) => head_dim,
        None if family == Family::Qwen3 => 128,
        None => hidden.checked_div(q_heads).ok_or_else(|| root.wrong("num_attention_heads", "at least 1"))?,
    };
    let layers = root.count("num_hidden_layers")?;
    let config = Config {
        family,
        layers,
        hidden,
        q_heads,
        kv_heads: root.count_or_none("num_key_value_heads")?.unwrap_or(q_heads),
        head_dim,
        ffn: root.count("intermediate_size")?,
        vocab: root.count("vocab_size")?,
        context: root.count("max_position_embeddings")?,
        eps: root.number_or_none("rms_norm_eps")?.unwrap_or(1e-6) as f32,
        rope: rope(&root)?,
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
        tied: root.flag("tie_word_embeddings")?,
        windows: windows(&root, layers)?,
        bos: root.tokens("bos_token_id")?.first().copied(),
        eos: root.tokens("eos_token_id")?,
    };
    config.check()?;
    Ok(config)
}

/// What `generation_config.json` adds: recommended sampling, and tokens that end an answer.
pub fn parse_generation(bytes: &[u8]) -> Result<(GenerationDefaults, Vec<u32>)> {
    let document = document(bytes)?;
    let root = Object::root(&document)?;
    let number = |key| Ok::<_, Error>(root.number_or_none(key)?.map(|value| value as f32));
    let greedy = root.get("do_sample").is_some_and(|value| value == &Value::Bool(false));
    let defaults = GenerationDefaults {
        temperature: if greedy { Some(0.0) } else { number("temperature")? },
        top_k: root.count_or_none("top_k")?.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0),
        top_p: number("top_p")?,
        min_p: number("min_p")?,
    };
    Ok((defaults, root.tokens("eos_token_id")?))
}

/// Parses JSON; the parser itself bounds nesting.
pub(super) fn document(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|error| Error::input("document", "JSON", error.to_string()))
}

/// Refuses what a known architecture can still ask for and the engine does not do.
fn refuse_variants(root: &Object<'_>) -> Result<()> {
    if root.text_or_none("hidden_act")?.is_some_and(|act| act != "silu") {
        return Err(root.wrong("hidden_act", "silu"));
    }
    for key in ["attention_bias", "mlp_bias"] {
        if root.flag(key)? {
            return Err(root.wrong(key, "false"));
        }
    }
    for key in ["quantization_config", "num_experts", "num_local_experts"] {
        if root.get(key).is_some() {
            return Err(root.wrong(key, "nothing: only dense models in bf16, f16 or f32"));
        }
    }
    if root.number_or_none("partial_rotary_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(root.wrong("partial_rotary_factor", "1"));
    }
    Ok(())
}

/// Older files have `rope_theta` and `rope_scaling`, newer ones both in `rope_parameters`.
fn rope(root: &Object<'_>) -> Result<Rope> {
    let parameters = match root.object_or_none("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => root.object_or_none("rope_scaling")?,
    };
    let inner_theta = parameters.map(|inner| inner.number_or_none("rope_theta")).transpose()?.flatten();
    let theta = match inner_theta {
        Some(theta) => theta,
        None => root.number_or_none("rope_theta")?.unwrap_or(10_000.0),
    };
    let scaling = match parameters {
        None => RopeScaling::None,
        Some(inner) => rope_scaling(root, &inner)?,
    };
    Ok(Rope { theta, scaling, pairing: RopePairing::Half })
}

fn rope_scaling(root: &Object<'_>, inner: &Object<'_>) -> Result<RopeScaling> {
    let kind = match inner.text_or_none("rope_type")? {
        Some(kind) => Some(kind),
        None => inner.text_or_none("type")?,
    };
    match kind {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: inner.number("factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: inner.number("factor")?,
            low_freq_factor: inner.number("low_freq_factor")?,
            high_freq_factor: inner.number("high_freq_factor")?,
            original_context: match inner.number_or_none("original_max_position_embeddings")? {
                Some(context) => context,
                None => root.number("max_position_embeddings")?,
            },
        }),
        Some(_) => Err(inner.wrong("rope_type", "default, linear or llama3")),
    }
}

/// `[layers]` sliding windows. Qwen2 and Qwen3 limit the layers from `max_window_layers` on, or those that `layer_types` names,
/// when `use_sliding_window` is set.
fn windows(root: &Object<'_>, layers: usize) -> Result<Vec<Option<usize>>> {
    // The layers are bounded by `Config::check`, which comes later: bound the allocation here.
    let mut windows = vec![None; layers.min(limits::LAYERS_MAX)];
    if !root.flag("use_sliding_window")? {
        return Ok(windows);
    }
    let window = Some(root.count("sliding_window")?);
    match root.get("layer_types") {
        None => {
            let first = root.count_or_none("max_window_layers")?.unwrap_or(28).min(windows.len());
            windows[first..].fill(window);
        }
        Some(types) => {
            let types = types.as_array().filter(|types| types.len() == windows.len());
            let types =
                types.ok_or_else(|| root.wrong("layer_types", format!("one type for each of {layers} layers")))?;
            for (slot, kind) in windows.iter_mut().zip(types) {
                *slot = match kind.as_str() {
                    Some("full_attention") => None,
                    Some("sliding_attention") => window,
                    _ => return Err(root.wrong("layer_types", "full_attention or sliding_attention in every place")),
                };
            }
        }
    }
    Ok(windows)
}

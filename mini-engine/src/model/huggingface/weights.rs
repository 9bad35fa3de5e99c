//! Weights from one safetensors file or from shards with an index.

use std::collections::BTreeMap;
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors};

use super::json::Object;
use crate::model::config::Config;
use crate::model::error::{Error, Result};
use crate::model::mapped::{MappedFile, read_small};
use crate::model::tensor::{LayerTensor, Tensor, TensorSource};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Where one tensor lies in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Bytes from the start of the file.
    range: std::ops::Range<u64>,
}

/// Reads the header of a safetensors file from the bytes of the whole file.
pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, TensorInfo>> {
    let invalid = |error: safetensors::SafeTensorError| {
        Error::input("header", "a safetensors header that fits the file", error.to_string())
    };
    // `deserialize` also checks that the tensors fill the file exactly.
    SafeTensors::deserialize(bytes).map_err(invalid)?;
    let (header_len, metadata) = SafeTensors::read_metadata(bytes).map_err(invalid)?;
    // Eight bytes of length come before the header.
    let data_start = header_len as u64 + 8;
    let place = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (start, end) = info.data_offsets;
        (
            name,
            TensorInfo {
                dtype: info.dtype,
                shape: info.shape.clone(),
                range: data_start + start as u64..data_start + end as u64,
            },
        )
    };
    Ok(metadata.tensors().into_iter().map(place).collect())
}

/// The weights of a Hugging Face folder.
pub(super) struct FolderTensors {
    shards: Vec<MappedFile>,
    /// Shard and place of every tensor.
    tensors: BTreeMap<String, (usize, TensorInfo)>,
}

impl FolderTensors {
    /// Opens every shard, reads the headers and checks names and shapes against the config.
    pub(super) fn open(folder: &Path, config: &Config) -> Result<Self> {
        let mut this = Self { shards: Vec::new(), tensors: BTreeMap::new() };
        if folder.join(SINGLE).exists() {
            this.add_shard(&folder.join(SINGLE), None)?;
        } else if folder.join(INDEX).exists() {
            this.add_index(folder)?;
        } else {
            return Err(Error::input("weights", format!("{SINGLE} or {INDEX}"), "neither").in_file(folder.display()));
        }
        this.check(config).map_err(|error| error.in_file(folder.display()))?;
        Ok(this)
    }

    fn add_index(&mut self, folder: &Path) -> Result<()> {
        let path = folder.join(INDEX);
        let bytes = read_small(&path, INDEX_BYTES_MAX)?;
        let shards = parse_index(&bytes).map_err(|error| error.in_file(path.display()))?;
        for (shard, names) in shards {
            self.add_shard(&folder.join(shard), Some(&names))?;
        }
        Ok(())
    }

    /// Takes the tensors of one file: all of them, or those that the index says it has.
    fn add_shard(&mut self, path: &Path, names: Option<&[String]>) -> Result<()> {
        let file = MappedFile::open(path)?;
        let mut found = {
            let map = file.map_all()?;
            parse(&map).map_err(|error| error.in_file(path.display()))?
        };
        let shard = self.shards.len();
        if let Some(names) = names {
            if let Some(missing) = names.iter().find(|name| !found.contains_key(*name)) {
                return Err(Error::input(missing, "a tensor, as the index says", "nothing").in_file(path.display()));
            }
            found.retain(|name, _| names.contains(name));
        }
        self.tensors.extend(found.into_iter().map(|(name, info)| (name, (shard, info))));
        self.shards.push(file);
        Ok(())
    }

    /// Every tensor that the engine reads is there with its shape and a known type, and none that it would ignore.
    fn check(&self, config: &Config) -> Result<()> {
        let mut known = std::collections::BTreeSet::new();
        for tensor in config.tensors() {
            let (name, shape) = (name(tensor), config.shape(tensor));
            let (_, info) =
                self.tensors.get(&name).ok_or_else(|| Error::input(&name, format!("shape {shape:?}"), "nothing"))?;
            if info.shape != shape {
                return Err(Error::input(name, format!("shape {shape:?}"), format!("shape {:?}", info.shape)));
            }
            if !matches!(info.dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32) {
                return Err(Error::input(name, "BF16, F16 or F32", format!("{:?}", info.dtype)));
            }
            known.insert(name);
        }
        // A tied head stored once more, and tables that older writers stored, change nothing.
        let harmless = |name: &str| (config.tied && name == "lm_head.weight") || name.ends_with("rotary_emb.inv_freq");
        let unknown: Vec<_> =
            self.tensors.keys().filter(|name| !known.contains(*name) && !harmless(name)).take(4).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(Error::input("tensors", format!("only those of a {:?} model", config.family), format!("also {unknown:?}")))
    }
}

/// The tensors of each shard, from an index.
pub fn parse_index(bytes: &[u8]) -> Result<BTreeMap<String, Vec<String>>> {
    let document = super::config::document(bytes)?;
    let root = Object::root(&document)?;
    let map =
        root.get("weight_map").and_then(|map| map.as_object()).ok_or_else(|| root.wrong("weight_map", "an object"))?;
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, shard) in map {
        // A plain file name, so that an index cannot make the engine read outside its folder.
        let plain = shard
            .as_str()
            .filter(|shard| !shard.is_empty() && !shard.contains(['/', '\\', ':', '\0']) && !shard.starts_with('.'));
        let shard = plain.ok_or_else(|| {
            Error::input(format!("weight_map.{name}"), "a file name in the same folder", shard.to_string())
        })?;
        shards.entry(shard.to_owned()).or_default().push(name.clone());
    }
    Ok(shards)
}

impl TensorSource for FolderTensors {
    fn append(&self, tensor: Tensor, shape: &[usize], out: &mut Vec<bf16>) -> Result<()> {
        let name = name(tensor);
        let Some((shard, info)) = self.tensors.get(&name).filter(|(_, info)| info.shape == shape) else {
            return Err(Error::input(name, format!("shape {shape:?}"), "nothing of this shape").in_file("weights"));
        };
        let map = self.shards[*shard].map(info.range.clone())?;
        match info.dtype {
            Dtype::BF16 => out.extend(map.chunks_exact(2).map(|value| bf16::from_le_bytes([value[0], value[1]]))),
            Dtype::F16 => out.extend(
                map.chunks_exact(2).map(|value| bf16::from_f32(f16::from_le_bytes([value[0], value[1]]).to_f32())),
            ),
            Dtype::F32 => out.extend(
                map.chunks_exact(4)
                    .map(|value| bf16::from_f32(f32::from_le_bytes([value[0], value[1], value[2], value[3]]))),
            ),
            other => return Err(Error::input(name, "BF16, F16 or F32", format!("{other:?}"))),
        }
        Ok(())
    }

    fn files(&self) -> Vec<&std::fs::File> {
        self.shards.iter().map(MappedFile::file).collect()
    }
}

/// The usual library's name of a tensor.
pub fn name(tensor: Tensor) -> String {
    match tensor {
        Tensor::Embedding => "model.embed_tokens.weight".to_owned(),
        Tensor::Head => "lm_head.weight".to_owned(),
        Tensor::FinalNorm => "model.norm.weight".to_owned(),
        Tensor::Layer(layer, part) => {
            let part = match part {
                LayerTensor::AttentionNorm => "input_layernorm.weight",
                LayerTensor::Q => "self_attn.q_proj.weight",
                LayerTensor::K => "self_attn.k_proj.weight",
                LayerTensor::V => "self_attn.v_proj.weight",
                LayerTensor::QBias => "self_attn.q_proj.bias",
                LayerTensor::KBias => "self_attn.k_proj.bias",
                LayerTensor::VBias => "self_attn.v_proj.bias",
                LayerTensor::QNorm => "self_attn.q_norm.weight",
                LayerTensor::KNorm => "self_attn.k_norm.weight",
                LayerTensor::O => "self_attn.o_proj.weight",
                LayerTensor::FfnNorm => "post_attention_layernorm.weight",
                LayerTensor::Gate => "mlp.gate_proj.weight",
                LayerTensor::Up => "mlp.up_proj.weight",
                LayerTensor::Down => "mlp.down_proj.weight",
            };
            format!("model.layers.{layer}.{part}")
        }
    }
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::{TensorView, serialize};

    use super::*;
    use crate::model::{Family, Tiny};

    #[test]
    fn every_stored_type_is_rounded_to_nearest_bf16() {
        let tiny = Tiny::new(Family::Qwen2, 3);
        for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
            let stored: Vec<(String, Vec<usize>, Vec<u8>)> = tiny
                .config
                .tensors()
                .map(|tensor| {
                    let (shape, mut values) = (tiny.config.shape(tensor), Vec::new());
                    tiny.append(tensor, &shape, &mut values).unwrap();
                    let bytes = values.iter().flat_map(|value| match dtype {
                        Dtype::BF16 => value.to_le_bytes().to_vec(),
                        Dtype::F16 => f16::from_f32(value.to_f32()).to_le_bytes().to_vec(),
                        // A quarter of a bf16 step above: rounds back down.
                        _ => f32::from_bits(value.to_f32().to_bits() | 0x4000).to_le_bytes().to_vec(),
                    });
                    (name(tensor), shape, bytes.collect())
                })
                .collect();
            let views =
                stored.iter().map(|(name, shape, bytes)| (name, TensorView::new(dtype, shape.clone(), bytes).unwrap()));
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(SINGLE), serialize(views, None).unwrap()).unwrap();
            let read = FolderTensors::open(folder.path(), &tiny.config).unwrap();
            for tensor in tiny.config.tensors() {
                let shape = tiny.config.shape(tensor);
                let (mut expected, mut found) = (Vec::new(), Vec::new());
                tiny.append(tensor, &shape, &mut expected).unwrap();
                read.append(tensor, &shape, &mut found).unwrap();
                if dtype == Dtype::F16 {
                    expected
                        .iter_mut()
                        .for_each(|value| *value = bf16::from_f32(f16::from_f32(value.to_f32()).to_f32()));
                }
                assert!(found == expected, "{dtype:?} {tensor:?}");
            }
        }
    }
}

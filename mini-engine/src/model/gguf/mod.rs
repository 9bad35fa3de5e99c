//! Models in one GGUF file: shapes, vocabulary and chat template from its metadata, weights dequantised once to bfloat16.

pub mod blocks;
pub mod container;

mod describe;
mod vocabulary;

use std::collections::HashMap;
use std::path::Path;

use half::bf16;

use self::container::{Container, TensorInfo};
use super::error::{Error, Result};
use super::mapped::MappedFile;
use super::tensor::{LayerTensor, Tensor, TensorSource};
use super::{ChatTemplate, Checkpoint, Config, GenerationDefaults};

/// Opens a GGUF file.
pub fn open(path: &Path) -> Result<Checkpoint> {
    let name = path.display().to_string();
    let file = MappedFile::open(path)?;
    let (description, tensors) = {
        let map = file.map_all()?;
        let container = Container::parse(&map).map_err(|error| error.in_file(&name))?;
        let description = Description::read(&container).map_err(|error| error.in_file(&name))?;
        let tensors = container.tensors().iter().map(|(name, info)| ((*name).to_owned(), info.clone())).collect();
        (description, tensors)
    };
    let Description { config, tokenizer, chat } = description;
    let tensors = Box::new(GgufTensors { file, tensors });
    Ok(Checkpoint { name, config, tokenizer, chat, defaults: GenerationDefaults::default(), tensors })
}

/// What the header says about the model: everything but the weights' values.
pub struct Description {
    /// Shape.
    pub config: Config,
    /// Vocabulary.
    pub tokenizer: super::Tokenizer,
    /// Chat template.
    pub chat: Option<ChatTemplate>,
}

impl Description {
    /// Reads and checks the metadata, and that the file holds exactly the tensors that the metadata ask for.
    pub fn read(container: &Container<'_>) -> Result<Self> {
        let config = describe::config(container)?;
        config.check()?;
        check_tensors(container, &config)?;
        let tokenizer = vocabulary::tokenizer(container, config.vocab)?;
        let chat = vocabulary::chat_template(container, &config)?;
        Ok(Self { config, tokenizer, chat })
    }
}

/// The weights of an open GGUF file.
struct GgufTensors {
    file: MappedFile,
    tensors: HashMap<String, TensorInfo>,
}

impl TensorSource for GgufTensors {
    fn append(&self, tensor: Tensor, shape: &[usize], out: &mut Vec<bf16>) -> Result<()> {
        let name = name(tensor);
        let info = self.tensors.get(&name).filter(|info| info.shape == shape);
        let found = || self.tensors.get(&name).map_or("nothing".to_owned(), |info| format!("shape {:?}", info.shape));
        let info = info.ok_or_else(|| {
            Error::input(&name, format!("shape {shape:?}"), found()).in_file(self.file.path().display())
        })?;
        let map = self.file.map(info.range.clone())?;
        info.quantisation.append(&map, out);
        Ok(())
    }

    fn files(&self) -> Vec<&std::fs::File> {
        vec![self.file.file()]
    }
}

/// Every tensor that the engine reads is there with its shape, and none is there that the engine would ignore: an ignored
/// bias or norm would make every answer wrong.
fn check_tensors(container: &Container<'_>, config: &Config) -> Result<()> {
    let mut expected = 0;
    for tensor in config.tensors() {
        let (name, shape) = (name(tensor), config.shape(tensor));
        match container.tensors().get(name.as_str()) {
            Some(info) if info.shape == shape => expected += 1,
            Some(info) => {
                return Err(Error::input(name, format!("shape {shape:?}"), format!("shape {:?}", info.shape)));
            }
            None => return Err(Error::input(name, format!("shape {shape:?}"), "nothing")),
        }
    }
    let extra = usize::from(container.tensors().contains_key(ROPE_DIVISORS));
    if container.tensors().len() == expected + extra {
        return Ok(());
    }
    let known: std::collections::HashSet<String> = config.tensors().map(name).collect();
    let mut unknown: Vec<_> =
        container.tensors().keys().filter(|name| **name != ROPE_DIVISORS && !known.contains(**name)).collect();
    unknown.sort();
    Err(Error::input(
        "tensors",
        format!("only those of a {:?} model", config.family),
        format!("also {:?}", unknown.iter().take(4).collect::<Vec<_>>()),
    ))
}

/// Frequency divisors of Llama 3's rotary scaling.
const ROPE_DIVISORS: &str = "rope_freqs.weight";

/// The format's name of a tensor.
fn name(tensor: Tensor) -> String {
    match tensor {
        Tensor::Embedding => "token_embd.weight".to_owned(),
        Tensor::Head => "output.weight".to_owned(),
        Tensor::FinalNorm => "output_norm.weight".to_owned(),
        Tensor::Layer(layer, part) => {
            let part = match part {
                LayerTensor::AttentionNorm => "attn_norm.weight",
                LayerTensor::Q => "attn_q.weight",
                LayerTensor::K => "attn_k.weight",
                LayerTensor::V => "attn_v.weight",
                LayerTensor::QBias => "attn_q.bias",
                LayerTensor::KBias => "attn_k.bias",
                LayerTensor::VBias => "attn_v.bias",
                LayerTensor::QNorm => "attn_q_norm.weight",
                LayerTensor::KNorm => "attn_k_norm.weight",
                LayerTensor::O => "attn_output.weight",
                LayerTensor::FfnNorm => "ffn_norm.weight",
                LayerTensor::Gate => "ffn_gate.weight",
                LayerTensor::Up => "ffn_up.weight",
                LayerTensor::Down => "ffn_down.weight",
            };
            format!("blk.{layer}.{part}")
        }
    }
}

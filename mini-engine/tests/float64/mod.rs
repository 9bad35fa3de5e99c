//! A forward pass in double precision, written from the published description of the architectures and not from the
//! engine: no cache, no batch, no fused weights, no reduction tree. Only the checkpoint's reader is shared.

use mini_engine::model::config::RopeScaling;
use mini_engine::model::tensor::{LayerTensor, Tensor};
use mini_engine::model::{Checkpoint, Config};
use reduction_tree::operator::RopePairing;

/// [tokens, vocab] logits of one sequence.
pub fn logits(checkpoint: &Checkpoint, tokens: &[u32]) -> Vec<Vec<f64>> {
    let config = &checkpoint.config;
    let read = |tensor: Tensor| -> Vec<f64> {
        let mut out = Vec::new();
        checkpoint.tensors.append(tensor, &config.shape(tensor), &mut out).expect("a checked tensor");
        out.iter().map(|value| value.to_f64()).collect()
    };
    let table = read(Tensor::Embedding);
    let d = config.hidden;
    let mut hidden: Vec<Vec<f64>> = tokens.iter().map(|token| table[*token as usize * d..][..d].to_vec()).collect();
    for layer in 0..config.layers {
        let part = |part| read(Tensor::Layer(layer, part));
        attention(config, layer, &part, &mut hidden);
        let (norm, gate, up, down) =
            (part(LayerTensor::FfnNorm), part(LayerTensor::Gate), part(LayerTensor::Up), part(LayerTensor::Down));
        for row in &mut hidden {
            let normed = rms_norm(row, &norm, config.eps);
            let (gate, up) = (matvec(&gate, &normed), matvec(&up, &normed));
            let gated: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(row, &matvec(&down, &gated));
        }
    }
    let norm = read(Tensor::FinalNorm);
    let head = if config.tied { table } else { read(Tensor::Head) };
    hidden.iter().map(|row| matvec(&head, &rms_norm(row, &norm, config.eps))).collect()
}

fn attention(config: &Config, layer: usize, part: &dyn Fn(LayerTensor) -> Vec<f64>, hidden: &mut [Vec<f64>]) {
    let (head_dim, group) = (config.head_dim, config.q_heads / config.kv_heads);
    let norm = part(LayerTensor::AttentionNorm);
    let project = |weight: LayerTensor, bias: LayerTensor, rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let weight = part(weight);
        let bias = if config.qkv_bias { part(bias) } else { vec![0.0; weight.len() / config.hidden] };
        rows.iter().map(|row| matvec(&weight, row).iter().zip(&bias).map(|(y, b)| y + b).collect()).collect()
    };
    let normed: Vec<Vec<f64>> = hidden.iter().map(|row| rms_norm(row, &norm, config.eps)).collect();
    let mut q = project(LayerTensor::Q, LayerTensor::QBias, &normed);
    let mut k = project(LayerTensor::K, LayerTensor::KBias, &normed);
    let v = project(LayerTensor::V, LayerTensor::VBias, &normed);
    for (rows, norm) in [(&mut q, LayerTensor::QNorm), (&mut k, LayerTensor::KNorm)] {
        let norm = config.qk_norm.then(|| part(norm));
        for (position, row) in rows.iter_mut().enumerate() {
            for head in row.chunks_exact_mut(head_dim) {
                if let Some(norm) = &norm {
                    head.copy_from_slice(&rms_norm(head, norm, config.eps));
                }
                rotate(config, position, head);
            }
        }
    }
    let out = part(LayerTensor::O);
    for position in 0..hidden.len() {
        let first = config.windows[layer].map_or(0, |window| (position + 1).saturating_sub(window));
        let mut attended = Vec::new();
        for (head, query) in q[position].chunks_exact(head_dim).enumerate() {
            let at = head / group * head_dim;
            let scores: Vec<f64> = (first..=position)
                .map(|key| dot(query, &k[key][at..at + head_dim]) / (head_dim as f64).sqrt())
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            attended.extend(
                (at..at + head_dim)
                    .map(|i| (first..=position).map(|key| weights[key - first] * v[key][i]).sum::<f64>() / total),
            );
        }
        add(&mut hidden[position], &matvec(&out, &attended));
    }
}

fn rotate(config: &Config, position: usize, head: &mut [f64]) {
    let half = head.len() / 2;
    for pair in 0..half {
        let plain = config.rope.theta.powf(-(pair as f64) / half as f64);
        let frequency = match &config.rope.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain / factor,
            RopeScaling::Divisors(divisors) => plain / f64::from(divisors[pair]),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let wavelength = std::f64::consts::TAU / plain;
                if wavelength > original_context / low_freq_factor {
                    plain / factor
                } else if wavelength < original_context / high_freq_factor {
                    plain
                } else {
                    let smooth =
                        (original_context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    (1.0 - smooth) * plain / factor + smooth * plain
                }
            }
        };
        let (a, b) = match config.rope.pairing {
            RopePairing::Half => (pair, pair + half),
            RopePairing::Interleaved => (2 * pair, 2 * pair + 1),
        };
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
    }
}

fn rms_norm(row: &[f64], weight: &[f64], eps: f32) -> Vec<f64> {
    let scale = 1.0 / (dot(row, row) / row.len() as f64 + f64::from(eps)).sqrt();
    row.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
}

fn matvec(weight: &[f64], x: &[f64]) -> Vec<f64> {
    weight.chunks_exact(x.len()).map(|row| dot(row, x)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(row: &mut [f64], other: &[f64]) {
    row.iter_mut().zip(other).for_each(|(x, y)| *x += y);
}

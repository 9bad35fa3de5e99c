//! Choosing one token a row.

use crate::backend::{Error, Result, SampleParams, Sampled};
use crate::cpu::{Context, check_len};
use reduction_tree::scalar::{LN_2, LOG2_E, canonical, exp2, log2};

/// The backend's `sample`.
pub fn sample(cx: &Context, vocab: usize, logits: &[f32], params: &[SampleParams]) -> Result<Vec<Sampled>> {
    if vocab == 0 {
        return Err(Error::new("sample", "a vocabulary above 0", "0"));
    }
    let logits = check_len("sample", "logits", logits, params.len(), vocab)?;
    let mut items: Vec<_> = logits.chunks(vocab).zip(params).map(|(row, params)| (row, params, None)).collect();
    cx.pool.each_mut(&mut items, 1, |(row, params, sampled)| *sampled = Some(choose(row, params)));
    Ok(items.into_iter().filter_map(|item| item.2).collect())
}

fn choose(logits: &[f32], _params: &SampleParams) -> Sampled {
    let mut token = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[token] {
            token = i;
        }
    }
    let m = logits[token];
    let sum: f32 = logits.iter().map(|x| exp2(x.mul_add(LOG2_E, -(m * LOG2_E)))).sum();
    Sampled { token: token as u32, logprob: canonical(logits[token] - log2(sum).mul_add(LN_2, m)) }
}

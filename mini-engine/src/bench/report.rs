//! Runs workloads twice and writes down what came of it.

use std::fmt::Write as _;
use std::sync::Arc;

use kernels_rs::backend::Backend;
use serde::Serialize;

use super::limit::{self, Limit};
use super::load::{Flown, Trouble, percentile, run};
use super::workload::Workload;
use crate::device_model::DeviceModel;
use crate::engine::{Engine, EngineConfig};
use crate::model::Model;

/// Three percentiles, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of the values lie below.
    pub p50: f64,
    /// Nine tenths.
    pub p90: f64,
    /// Ninety-nine hundredths.
    pub p99: f64,
}

/// One workload's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its sizes.
    pub workload: Workload,
    /// Prompt tokens, repeated ones of later turns included.
    pub prompt_tokens: usize,
    /// Generated tokens.
    pub generated_tokens: usize,
    /// Prompt positions that the prefix cache answered.
    pub cached_tokens: u64,
    /// Requests that gave their pages back.
    pub preemptions: u64,
    /// From the start to the last token.
    pub seconds: f64,
    /// Prompt and generated tokens over that time.
    pub tokens_per_second: f64,
    /// Median of the steps that decode everything, of a decode workload.
    pub step_ms: Option<f64>,
    /// What the machine's rates allow for a step, or for the whole of a prefill.
    pub limit_ms: Option<f64>,
    /// Limit over time.
    pub share_of_limit: Option<f64>,
    /// From due to the first token.
    pub ttft_ms: Percentiles,
    /// Between tokens, the mean of each request.
    pub tpot_ms: Percentiles,
    /// Logits rows under the digest.
    pub logits_rows: usize,
    /// BLAKE3 over the digests of all logits rows that a token was chosen from.
    pub logits_digest: String,
    /// The timed run chose the tokens of the run that was digested.
    pub tokens_equal: bool,
}

/// All workloads of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The backend, and the card where there is one.
    pub machine: String,
    /// What was loaded.
    pub model: String,
    /// BLAKE3 of the weights, or of how they are made.
    pub model_digest: String,
    /// The determinism domain.
    pub plan_digest: String,
    /// Seed of all prompts and arrivals.
    pub seed: u64,
    /// Rates that limits are computed from.
    pub limit: Option<Limit>,
    /// One a workload.
    pub lines: Vec<Line>,
}

/// How workloads are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Tokens of a page, pages, and rows of a step.
    pub config: EngineConfig,
    /// Rates of the machine, where known.
    pub limit: Option<Limit>,
    /// Seed of prompts and arrivals.
    pub seed: u64,
}

/// Runs one workload: first with digests, which also warms everything up, then timed.
pub fn measure<B: Backend>(
    model: &Arc<Model<B>>,
    workload: &Workload,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Line, Trouble> {
    let arrivals = workload.arrivals(model.config().vocab, options.seed);
    let config = fitted(&options.config, workload);
    let mut engine = Engine::new(DeviceModel::for_tokens(model.clone(), &config)?, config.clone())?;
    let all = 2 * arrivals.len();
    let proof = run(&mut engine, &arrivals, true, &mut |over| progress(over, all))?;
    // The same memory and recorded launches, an empty cache.
    let mut engine = Engine::new(engine.into_model(), config)?;
    let timed = run(&mut engine, &arrivals, false, &mut |over| progress(arrivals.len() + over, all))?;
    Ok(line(model, workload, options.limit, &proof, &timed))
}

/// A pool no larger than the workload can use.
fn fitted(config: &EngineConfig, workload: &Workload) -> EngineConfig {
    let each = workload.positions_max().div_ceil(config.page_tokens.max(1));
    let pages = config.pages.min(each.saturating_mul(workload.sequences()));
    EngineConfig { pages, running_max: config.running_max.max(workload.sequences()), ..config.clone() }
}

fn line<B: Backend>(model: &Model<B>, workload: &Workload, limit: Option<Limit>, proof: &Flown, timed: &Flown) -> Line {
    let (prompt_tokens, generated_tokens) = timed.tokens();
    let seconds = timed.elapsed.as_secs_f64();
    let step_ms = match workload {
        Workload::Decode { batch, .. } => {
            let decodes = timed.steps.iter().filter(|(_, rows)| rows == batch);
            percentile(&mut decodes.map(|(time, _)| time.as_secs_f64() * 1e3).collect::<Vec<_>>(), 0.5)
        }
        _ => None,
    };
    let limit_ms = limit.and_then(|limit| {
        let work = match *workload {
            Workload::Decode { batch, context, steps } => {
                limit::decode_step(model.config(), batch, context + steps / 2)
            }
            Workload::Prefill { batch, length } => limit::prefill(model.config(), batch, length),
            _ => return None,
        };
        Some(limit.seconds(work) * 1e3)
    });
    let time_ms = step_ms.unwrap_or(seconds * 1e3);
    let percentiles = |value: fn(&super::load::Flight) -> Option<std::time::Duration>| {
        let mut values: Vec<f64> =
            timed.flights.iter().filter_map(value).map(|time| time.as_secs_f64() * 1e3).collect();
        let mut at = |share| percentile(&mut values, share).unwrap_or(0.0);
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    };
    Line {
        name: workload.name(),
        workload: workload.clone(),
        prompt_tokens,
        generated_tokens,
        cached_tokens: timed.stats.policy.attached_tokens,
        preemptions: timed.stats.policy.preemptions,
        seconds,
        tokens_per_second: (prompt_tokens + generated_tokens) as f64 / seconds.max(1e-9),
        step_ms,
        limit_ms,
        share_of_limit: limit_ms.map(|limit| limit / time_ms.max(1e-9)),
        ttft_ms: percentiles(super::load::Flight::first_token),
        tpot_ms: percentiles(super::load::Flight::token_interval),
        logits_rows: proof.flights.iter().map(|flight| flight.digests.len()).sum(),
        logits_digest: proof.digest().to_hex().to_string(),
        tokens_equal: proof.flights.iter().zip(&timed.flights).all(|(a, b)| a.tokens == b.tokens),
    }
}

impl Report {
    /// The heading of the table.
    pub fn heading() -> String {
        format!(
            "{:<24} {:>10} {:>9} {:>9} {:>7} {:>21} {:>21} {:>7}  logits",
            "workload",
            "tokens/s",
            "ms/step",
            "limit ms",
            "share",
            "TTFT p50/p90/p99 ms",
            "TPOT p50/p90/p99 ms",
            "cached"
        )
    }

    /// BLAKE3 over the plan and the digests of all lines.
    pub fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.plan_digest.as_bytes());
        self.lines.iter().for_each(|line| {
            hasher.update(line.logits_digest.as_bytes());
        });
        hasher.finalize()
    }

    /// Compares the digests with those of an earlier run's JSON: how many workloads were run by both, and the names of those whose
    /// digests differ. An error when the other run was of another model, plan or seed, or shares no workload.
    pub fn against(&self, earlier: &serde_json::Value) -> Result<(usize, Vec<String>), String> {
        let domain = [
            ("model_digest", serde_json::json!(self.model_digest)),
            ("plan_digest", serde_json::json!(self.plan_digest)),
            ("seed", serde_json::json!(self.seed)),
        ];
        for (field, own) in domain {
            if earlier[field] != own {
                return Err(format!("expected {field} {own}, got {}", earlier[field]));
            }
        }
        let lines = earlier["lines"].as_array().ok_or("expected a list of lines, got none")?;
        let (mut shared, mut different) = (0, Vec::new());
        for line in &self.lines {
            let workload = serde_json::json!(line.workload);
            for other in lines.iter().filter(|other| other["workload"] == workload) {
                shared += 1;
                if other["logits_digest"] != serde_json::json!(line.logits_digest) {
                    different.push(line.name.clone());
                }
            }
        }
        if shared == 0 { Err("expected a workload of this run, got none".into()) } else { Ok((shared, different)) }
    }

    /// Every timed run chose the tokens of its digested run.
    pub fn proves_itself(&self) -> bool {
        self.lines.iter().all(|line| line.tokens_equal)
    }
}

impl Line {
    /// Its row of the table.
    pub fn row(&self) -> String {
        let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
        let three = |p: &Percentiles| format!("{:.1}/{:.1}/{:.1}", p.p50, p.p90, p.p99);
        let mut row = format!(
            "{:<24} {:>10.0} {:>9} {:>9} {:>7} {:>21} {:>21} {:>7}  {}",
            self.name,
            self.tokens_per_second,
            number(self.step_ms, 3),
            number(self.limit_ms, 3),
            number(self.share_of_limit.map(|share| share * 100.0), 1)
                + if self.share_of_limit.is_some() { "%" } else { "" },
            three(&self.ttft_ms),
            three(&self.tpot_ms),
            self.cached_tokens,
            &self.logits_digest[..16],
        );
        if !self.tokens_equal {
            let _ = write!(row, "\n    NOT equal: the timed run chose other tokens than the digested one");
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(digest: &str, batch: usize) -> Report {
        let workload = Workload::Prefill { batch, length: 8 };
        let line = Line {
            name: workload.name(),
            workload,
            prompt_tokens: 8,
            generated_tokens: 1,
            cached_tokens: 0,
            preemptions: 0,
            seconds: 1.0,
            tokens_per_second: 9.0,
            step_ms: None,
            limit_ms: None,
            share_of_limit: None,
            ttft_ms: Percentiles::default(),
            tpot_ms: Percentiles::default(),
            logits_rows: 1,
            logits_digest: digest.into(),
            tokens_equal: true,
        };
        let digest = String::from("d");
        Report {
            machine: "m".into(),
            model: "m".into(),
            model_digest: digest.clone(),
            plan_digest: digest,
            seed: 0,
            limit: None,
            lines: vec![line],
        }
    }

    #[test]
    fn only_equal_work_is_compared() {
        let earlier = serde_json::json!(report("a", 2));
        assert_eq!(report("a", 2).against(&earlier), Ok((1, Vec::new())));
        assert_eq!(report("b", 2).against(&earlier), Ok((1, vec!["prefill 2x8".to_owned()])));
        assert!(report("a", 3).against(&earlier).unwrap_err().contains("a workload of this run"));
        let seeded = Report { seed: 1, ..report("a", 2) };
        assert_eq!(seeded.against(&earlier).unwrap_err(), "expected seed 1, got 0");
        assert!(report("a", 2).against(&serde_json::json!({})).unwrap_err().contains("model_digest"));
    }
}

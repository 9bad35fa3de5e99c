//! What the server counts, and how Prometheus reads it.

use metrics::{Counter, Gauge, Histogram, Key, Level, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::app::App;
use super::run::Answer;

/// Upper edges of the buckets of durations, in seconds.
const SECONDS: &[f64] = &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// Handles of everything that is counted. Each server has its own recorder, so that two in one process do not mix.
pub struct Metrics {
    handle: PrometheusHandle,
    /// Requests for an answer that were taken.
    pub requests: Counter,
    /// Requests that were turned away because the queue was full.
    pub rejected: Counter,
    /// Answers that came to their end.
    pub answers: Counter,
    /// Answers that failed.
    pub failures: Counter,
    /// Tokens of prompts of finished answers.
    pub prompt_tokens: Counter,
    /// Those that the prefix cache answered.
    pub cached_tokens: Counter,
    /// Tokens of finished answers.
    pub completion_tokens: Counter,
    /// Seconds to the first token.
    pub first_token_seconds: Histogram,
    /// Seconds to the end of an answer.
    pub answer_seconds: Histogram,
    /// Open connections.
    pub connections: Gauge,
    in_flight: Gauge,
    live: Gauge,
    steps: Counter,
    rows: Counter,
    steps_ahead: Counter,
    rows_dropped: Counter,
    preemptions: Counter,
    evictions: Counter,
    recomputed: Counter,
    refused_plans: Counter,
}

impl Metrics {
    /// Everything at zero.
    pub fn at_zero() -> Self {
        let builder = PrometheusBuilder::new().set_buckets(SECONDS).expect("the list of buckets is not empty");
        let recorder = builder.build_recorder();
        let counter = |name, text| counter(&recorder, name, text);
        let gauge = |name, text| gauge(&recorder, name, text);
        let histogram = |name, text| histogram(&recorder, name, text);
        Self {
            handle: recorder.handle(),
            requests: counter("sametree_requests_total", "requests for an answer that were taken"),
            rejected: counter("sametree_rejected_total", "requests turned away because the queue was full"),
            answers: counter("sametree_answers_total", "answers that came to their end"),
            failures: counter("sametree_failures_total", "answers that failed"),
            prompt_tokens: counter("sametree_prompt_tokens_total", "tokens of prompts"),
            cached_tokens: counter("sametree_cached_tokens_total", "tokens of prompts that the prefix cache answered"),
            completion_tokens: counter("sametree_completion_tokens_total", "tokens of answers"),
            first_token_seconds: histogram("sametree_first_token_seconds", "time to the first token"),
            answer_seconds: histogram("sametree_answer_seconds", "time to the end of an answer"),
            connections: gauge("sametree_connections", "open connections"),
            in_flight: gauge("sametree_in_flight", "answers that wait, run or are being delivered"),
            live: gauge("sametree_engine_live", "requests in the engine"),
            steps: counter("sametree_engine_steps_total", "accepted steps of the engine"),
            rows: counter("sametree_engine_rows_total", "rows computed"),
            steps_ahead: counter("sametree_engine_steps_ahead_total", "steps launched while the one before ran"),
            rows_dropped: counter("sametree_engine_rows_dropped_total", "rows computed for requests that had ended"),
            preemptions: counter("sametree_engine_preemptions_total", "requests that gave their pages back"),
            evictions: counter("sametree_engine_evictions_total", "cached pages given to another use"),
            recomputed: counter("sametree_engine_recomputed_tokens_total", "positions computed again"),
            refused_plans: counter("sametree_engine_refused_plans_total", "plans that the ledger refused"),
        }
    }

    /// Counts a finished answer.
    pub fn answered(&self, answer: &Answer) {
        self.answers.increment(1);
        self.prompt_tokens.increment(answer.request.prompt.len() as u64);
        self.cached_tokens.increment(answer.cached_tokens as u64);
        self.completion_tokens.increment(answer.tokens.len() as u64);
        self.answer_seconds.record(answer.started.elapsed());
    }

    /// The text that Prometheus reads.
    pub fn render(&self, app: &App) -> String {
        let stats = app.worker.stats();
        self.in_flight.set(app.in_flight() as f64);
        self.live.set(app.worker.live() as f64);
        self.steps.absolute(stats.steps);
        self.rows.absolute(stats.rows);
        self.steps_ahead.absolute(stats.steps_ahead);
        self.rows_dropped.absolute(stats.rows_dropped);
        self.preemptions.absolute(stats.policy.preemptions);
        self.evictions.absolute(stats.policy.evictions);
        self.recomputed.absolute(stats.recomputed_tokens);
        self.refused_plans.absolute(stats.refused_plans);
        self.handle.render()
    }

    /// Moves raw samples into their buckets; to be called now and then, or they pile up.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

const METADATA: Metadata<'static> = Metadata::new("mini_engine::server", Level::INFO, None);

fn counter(recorder: &PrometheusRecorder, name: &'static str, text: &'static str) -> Counter {
    recorder.describe_counter(name.into(), None, SharedString::const_str(text));
    recorder.register_counter(&Key::from_static_name(name), &METADATA)
}

fn gauge(recorder: &PrometheusRecorder, name: &'static str, text: &'static str) -> Gauge {
    recorder.describe_gauge(name.into(), None, SharedString::const_str(text));
    recorder.register_gauge(&Key::from_static_name(name), &METADATA)
}

fn histogram(recorder: &PrometheusRecorder, name: &'static str, text: &'static str) -> Histogram {
    recorder.describe_histogram(name.into(), Some(Unit::Seconds), SharedString::const_str(text));
    recorder.register_histogram(&Key::from_static_name(name), &METADATA)
}

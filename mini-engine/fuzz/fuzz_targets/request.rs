//! Any bytes are a request whose every field passed its check, or are refused with a message and the right status.
//!
//! `cargo +nightly fuzz run request CORPUS`

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use mini_engine::engine::fake::FakeModel;
use mini_engine::engine::{Engine, EngineConfig};
use mini_engine::model::{ChatTemplate, Source};
use mini_engine::server::worker::Worker;
use mini_engine::server::{App, Options, Served, chat, completions, tokenize};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}\n{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}";

fn app() -> &'static App {
    static APP: OnceLock<App> = OnceLock::new();
    APP.get_or_init(|| {
        let config = EngineConfig::default();
        let engine = Engine::new(FakeModel::new(config.pages, config.page_tokens, 1), config.clone()).unwrap();
        let worker = Worker::start(engine).unwrap();
        let mut checkpoint = Source::parse("tiny").unwrap().open().unwrap();
        checkpoint.chat = Some(ChatTemplate::new(TEMPLATE, "", "").unwrap());
        App::new(Served::new(checkpoint, None, String::new()), worker, config.running_max, Options::default())
    })
}

fuzz_target!(|bytes: &[u8]| {
    let app = app();
    for read in [completions::read, chat::read] {
        match read(app, bytes) {
            Ok(job) => {
                assert!(!job.prompts.is_empty() && job.tokens_max >= 1 && job.shared.n >= 1);
                assert!(job.shared.sampling.temperature <= 2.0 && job.shared.sampling.top_p > 0.0);
            }
            Err(error) => {
                assert!(matches!(error.status().as_u16(), 400 | 404), "{error:?}");
                assert!(error.body()["error"]["message"].as_str().is_some_and(|text| text.len() < 1000), "{error:?}");
            }
        }
    }
    let _ = tokenize::read(app, bytes);
});

//! The parser of requests on mutated bodies, without sockets: it refuses with a short message and a field, or what it accepts is
//! within every bound. `fuzz/fuzz_targets/request.rs` does the same without end.

use std::sync::LazyLock;

use mini_engine::engine::fake::FakeModel;
use mini_engine::engine::{Engine, EngineConfig};
use mini_engine::model::{ChatTemplate, Source};
use mini_engine::server::worker::Worker;
use mini_engine::server::{App, Options, Served, chat, completions, tokenize};
use proptest::prelude::*;
use serde_json::{Value, json};

static APP: LazyLock<App> = LazyLock::new(|| {
    let config = EngineConfig::default();
    let engine = Engine::new(FakeModel::new(config.pages, config.page_tokens, 1), config.clone()).unwrap();
    let worker = Worker::start(engine).unwrap();
    let mut checkpoint = Source::parse("tiny").unwrap().open().unwrap();
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}";
    checkpoint.chat = Some(ChatTemplate::new(template, "", "").unwrap());
    App::new(Served::new(checkpoint, None, String::new()), worker, config.running_max, Options::default())
});

fn valid() -> [Value; 2] {
    [
        json!({
            "model": "tiny", "prompt": ["the cat", "sat"], "max_tokens": 9, "n": 2, "seed": 7, "temperature": 0.7, "top_p": 0.9,
            "top_k": 5, "min_p": 0.1, "stop": ["x", "yy"], "stop_token_ids": [3], "logprobs": 2, "echo": true,
            "frequency_penalty": 0.5, "presence_penalty": -0.5, "repetition_penalty": 1.2, "logit_bias": { "5": -3.5 },
            "stream": true, "stream_options": { "include_usage": true }, "user": "u", "best_of": 1,
        }),
        json!({
            "messages": [
                { "role": "system", "content": "s" },
                { "role": "user", "content": [{ "type": "text", "text": "a" }] },
                { "role": "assistant", "content": null, "tool_calls": [{ "id": "1" }] },
            ],
            "max_completion_tokens": 5, "logprobs": true, "top_logprobs": 3, "tools": [], "tool_choice": "auto",
            "response_format": { "type": "text" }, "store": false, "metadata": {},
        }),
    ]
}

fn check(body: &[u8]) {
    for read in [completions::read, chat::read] {
        match read(&APP, body) {
            Ok(job) => {
                let sampling = &job.shared.sampling;
                assert!(
                    (0.0..=2.0).contains(&sampling.temperature) && sampling.top_p > 0.0 && sampling.top_k != Some(0)
                );
                assert!(job.tokens_max >= 1 && !job.prompts.is_empty() && (1..=128).contains(&job.shared.n));
                assert!(job.shared.stops.iter().all(|stop| !stop.is_empty()));
            }
            Err(error) => {
                assert!(matches!(error.status().as_u16(), 400 | 404), "{error:?}");
                assert!(error.body()["error"]["message"].as_str().unwrap().len() < 1000, "{error:?}");
            }
        }
    }
    let _ = tokenize::read(&APP, body);
}

/// A JSON value of any kind, small.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![0i64, 1, -1, 2, 17, 320, 1 << 40]).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z0-9_]{0,6}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

#[test]
fn the_bodies_that_are_mutated_are_valid() {
    let [completion, conversation] = valid();
    completions::read(&APP, completion.to_string().as_bytes()).unwrap();
    chat::read(&APP, conversation.to_string().as_bytes()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// One field of a valid body becomes anything.
    #[test]
    fn any_value_of_a_field(chat_body in any::<bool>(), field in any::<prop::sample::Index>(), value in any_value()) {
        let mut body = valid()[usize::from(chat_body)].take();
        let names: Vec<String> = body.as_object().unwrap().keys().cloned().collect();
        body[field.get(&names)] = value;
        check(body.to_string().as_bytes());
    }

    /// Bytes of a valid body are overwritten, dropped and doubled.
    #[test]
    fn any_bytes(chat_body in any::<bool>(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6)) {
        let mut body = valid()[usize::from(chat_body)].to_string().into_bytes();
        for (place, byte, kind) in edits {
            let index = place.index(body.len());
            match kind {
                0 => body[index] = byte,
                1 => drop(body.remove(index)),
                _ => body.extend_from_within(index..),
            }
        }
        check(&body);
    }
}

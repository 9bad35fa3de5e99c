//! The tables of fields, the parsers and `docs/openai.md` say the same.

mod http;

use http::TestServer;
use mini_engine::server::chat::CHAT_FIELDS;
use mini_engine::server::common::SHARED_FIELDS;
use mini_engine::server::completions::COMPLETION_FIELDS;
use mini_engine::server::fields::{Field, Treatment};
use mini_engine::server::tokenize::TOKENIZE_FIELDS;
use serde_json::{Value, json};

const DOCS: &str = include_str!("../docs/openai.md");

/// A body that is accepted, and what must stand beside a field for it to be accepted.
fn body(path: &str, field: &Field) -> Value {
    let messages = json!([{ "role": "user", "content": "x" }]);
    let mut body = match path {
        "/v1/chat/completions" => json!({ "messages": messages, "max_tokens": 2 }),
        "/v1/completions" => json!({ "prompt": "x", "max_tokens": 2 }),
        _ if field.name == "messages" || field.name == "tools" => json!({ "messages": messages }),
        _ => json!({ "prompt": "x" }),
    };
    match field.name {
        "top_logprobs" => body["logprobs"] = json!(true),
        "stream_options" => body["stream"] = json!(true),
        "max_completion_tokens" => drop(body.as_object_mut().unwrap().remove("max_tokens")),
        _ => {}
    }
    body
}

/// A value that a supported field accepts, and one that it refuses.
fn values(path: &str, name: &str) -> (Value, Value) {
    match name {
        "model" => (json!("tiny"), json!(1)),
        "prompt" => (json!("x"), json!(1)),
        "messages" => (json!([{ "role": "user", "content": "x" }]), json!(1)),
        "logprobs" if path == "/v1/chat/completions" => (json!(true), json!(1)),
        "stream" | "echo" | "ignore_eos" | "receipt" => (json!(true), json!(1)),
        "stop" => (json!(["a", "b"]), json!([1])),
        "stop_token_ids" => (json!([1]), json!([-1])),
        "logit_bias" => (json!({ "1": 1 }), json!({ "x": 1 })),
        "stream_options" => (json!({ "include_usage": true }), json!({ "x": 1 })),
        "response_format" => (json!({ "type": "json_object" }), json!({ "type": "xml" })),
        "tools" => (json!([]), json!([1])),
        "tool_choice" => (json!("auto"), json!("required")),
        _ => (json!(1), json!("x")),
    }
}

fn check(server: &TestServer, path: &str, field: &Field) {
    let send = |value: Value| {
        let mut body = body(path, field);
        body[field.name] = value;
        server.post(path, &body)
    };
    assert_eq!(
        send(Value::Null).status,
        if matches!(field.name, "prompt" | "messages") { 400 } else { 200 },
        "{field:?}"
    );
    match field.treatment {
        Treatment::Supported | Treatment::Extension => {
            let (good, bad) = values(path, field.name);
            let reply = send(good);
            assert_eq!(reply.status, 200, "{field:?}: {}", reply.text());
            let (status, param) = send(bad).refusal();
            assert!(status == 400 && param.unwrap().starts_with(field.name), "{field:?}");
        }
        Treatment::Ignored => {
            for value in [json!(1), json!("x"), json!({ "x": [1] })] {
                assert_eq!(send(value).status, 200, "{field:?}");
            }
        }
        Treatment::Refused(unless) => {
            assert_eq!(send(json!("something else")).refusal(), (400, Some(field.name.into())), "{field:?}");
            for value in unless {
                let reply = send(serde_json::from_str(value).unwrap());
                assert_eq!(reply.status, 200, "{field:?} {value}: {}", reply.text());
            }
        }
    }
}

#[test]
fn every_field_is_treated_as_its_table_says() {
    let server = TestServer::start();
    for (path, tables) in [
        ("/v1/completions", [SHARED_FIELDS, COMPLETION_FIELDS]),
        ("/v1/chat/completions", [SHARED_FIELDS, CHAT_FIELDS]),
        ("/v1/tokenize", [TOKENIZE_FIELDS, &[]]),
    ] {
        tables.into_iter().flatten().for_each(|field| check(&server, path, field));
    }
}

#[test]
fn the_documentation_has_the_tables() {
    for (title, table) in [
        ("Both endpoints", SHARED_FIELDS),
        ("`/v1/completions`", COMPLETION_FIELDS),
        ("`/v1/chat/completions`", CHAT_FIELDS),
        ("`/v1/tokenize`", TOKENIZE_FIELDS),
    ] {
        let lines: Vec<String> = table.iter().map(Field::documented).collect();
        let expected = format!("### {title}\n\n| field | treatment | |\n|---|---|---|\n{}\n", lines.join("\n"));
        assert!(DOCS.contains(&expected), "docs/openai.md should have\n\n{expected}");
    }
}

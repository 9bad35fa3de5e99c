//! The server's answers, over a real socket: shapes, streams, stop strings, log-probabilities, echo, penalties.

mod http;

use http::{TestServer, hot};
use serde_json::{Value, json};

fn text(reply: &Value, choice: usize) -> &str {
    reply["choices"][choice]["text"].as_str().unwrap()
}

#[test]
fn a_completion_has_every_part_of_the_shape() {
    let server = TestServer::start();
    let reply = server.complete(hot("the ", 1, 12)).ok();
    assert!(reply["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(reply["object"], "text_completion");
    assert_eq!(reply["model"], "tiny");
    assert_eq!(reply["system_fingerprint"], server.app.served.fingerprint.as_str());
    let choice = &reply["choices"][0];
    assert_eq!(
        (&choice["index"], &choice["finish_reason"], &choice["logprobs"]),
        (&json!(0), &json!("length"), &Value::Null)
    );
    let usage = &reply["usage"];
    assert_eq!(usage["completion_tokens"], 12);
    assert_eq!(usage["total_tokens"].as_u64(), Some(12 + usage["prompt_tokens"].as_u64().unwrap()));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    let models = server.get("/v1/models").ok();
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!(server.get("/v1/models/tiny").ok()["object"], "model");
    assert_eq!(server.get("/v1/models/gpt").refusal(), (404, Some("model".into())));
}

#[test]
fn a_seed_fixes_the_answer_and_its_absence_does_not() {
    let server = TestServer::start();
    let once = server.complete(hot("the ", 7, 24)).ok();
    assert_eq!(text(&once, 0), text(&server.complete(hot("the ", 7, 24)).ok(), 0));
    assert_ne!(text(&once, 0), text(&server.complete(hot("the ", 8, 24)).ok(), 0));
    let mut unseeded = hot("the ", 0, 24);
    unseeded.as_object_mut().unwrap().remove("seed");
    assert_ne!(text(&server.complete(unseeded.clone()).ok(), 0), text(&server.complete(unseeded).ok(), 0));
}

#[test]
fn answer_i_is_what_seed_plus_i_gives_and_a_prompt_counts_once() {
    let server = TestServer::start();
    let mut body = hot("the ", 20, 10);
    body["n"] = json!(3);
    let many = server.complete(body.clone()).ok();
    let mut prompt_tokens = Value::Null;
    for index in 0..3 {
        let one = server.complete(hot("the ", 20 + index, 10)).ok();
        assert_eq!(text(&many, index as usize), text(&one, 0));
        prompt_tokens = one["usage"]["prompt_tokens"].clone();
    }
    assert_eq!(many["usage"]["prompt_tokens"], prompt_tokens);
    assert_eq!(many["usage"]["completion_tokens"], 30);
    body["prompt"] = json!(["the ", "a "]);
    let two = server.complete(body).ok();
    assert_eq!(two["choices"].as_array().unwrap().len(), 6);
    assert_eq!(text(&two, 1), text(&many, 1));
    assert_eq!(text(&two, 3), text(&server.complete(hot("a ", 20, 10)).ok(), 0));
}

/// Joins the pieces of a stream by answer.
fn joined(events: &[Value], path: &str) -> Vec<String> {
    let mut texts = vec![String::new(); 4];
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let index = choice["index"].as_u64().unwrap() as usize;
        texts[index] += choice.pointer(path).and_then(Value::as_str).unwrap_or_default();
    }
    texts
}

#[test]
fn a_stream_is_the_whole_answer_in_pieces() {
    let server = TestServer::start();
    let mut body = hot("héllo 🐕 ", 3, 40);
    body["n"] = json!(2);
    let whole = server.complete(body.clone()).ok();
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let reply = server.complete(body);
    assert!(reply.head.to_ascii_lowercase().contains("content-type: text/event-stream"));
    let events = reply.events();
    let texts = joined(&events, "/text");
    assert_eq!((texts[0].as_str(), texts[1].as_str()), (text(&whole, 0), text(&whole, 1)));
    let (usage, rest) = events.split_last().unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    assert_eq!(usage["choices"], json!([]));
    assert!(rest.iter().all(|event| event["usage"].is_null() && event.get("usage").is_some()));
    assert_eq!(rest.iter().filter(|event| event["choices"][0]["finish_reason"] == "length").count(), 2);
}

#[test]
fn a_chat_goes_through_the_template() {
    let server = TestServer::start();
    let messages = json!([
        { "role": "system", "content": "the" },
        { "role": "user", "content": [{ "type": "text", "text": "th" }, { "type": "text", "text": "is" }] },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "1", "content": "that" },
    ]);
    let rendered = "<|start|>system: the<|end|><|start|>user: this<|end|><|start|>assistant: <|end|><|start|>tool: that<|end|><|start|>assistant:";
    let tokens = server.post("/v1/tokenize", &json!({ "messages": messages })).ok();
    let expected = server.app.served.tokenizer.encode(rendered).unwrap();
    assert_eq!(tokens["tokens"], json!(expected));
    let body = json!({ "messages": messages, "seed": 5, "temperature": 1.5, "max_completion_tokens": 20 });
    let reply = server.chat(body.clone()).ok();
    assert_eq!(
        (&reply["object"], &reply["choices"][0]["message"]["role"]),
        (&json!("chat.completion"), &json!("assistant"))
    );
    assert_eq!(reply["usage"]["prompt_tokens"], expected.len());
    // The same tokens as a plain prompt give the same text.
    let mut plain = hot("", 5, 20);
    plain["prompt"] = json!(expected);
    plain["ignore_eos"] = json!(false);
    assert_eq!(reply["choices"][0]["message"]["content"], server.complete(plain).ok()["choices"][0]["text"]);
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let events = server.chat(streamed).events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[0]["object"], "chat.completion.chunk");
    assert_eq!(joined(&events, "/delta/content")[0], reply["choices"][0]["message"]["content"].as_str().unwrap());
}

#[test]
fn stop_strings_end_an_answer_wherever_token_borders_lie() {
    let server = TestServer::start();
    let whole = server.complete(hot("the ", 11, 60)).ok();
    let whole = text(&whole, 0).to_owned();
    let starts: Vec<usize> = whole.char_indices().map(|(index, _)| index).collect();
    let mut cut = 0;
    for window in starts.windows(4).skip(2).step_by(5) {
        let stop = &whole[window[0]..window[3]];
        let mut body = hot("the ", 11, 60);
        body["stop"] = json!([stop]);
        let reply = server.complete(body.clone()).ok();
        assert_eq!(text(&reply, 0), &whole[..whole.find(stop).unwrap()], "{stop:?}");
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
        body["stream"] = json!(true);
        let events = server.complete(body).events();
        assert_eq!(joined(&events, "/text")[0], text(&reply, 0));
        cut += 1;
    }
    assert!(cut > 3);
    // A stop token of the caller's own.
    let mut body = hot("the ", 11, 60);
    body["stop_token_ids"] = (0..320).step_by(5).collect();
    let reply = server.complete(body).ok();
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    let stopped = text(&reply, 0).trim_end_matches('\u{fffd}');
    assert!(whole.starts_with(stopped) && stopped.len() < whole.len());
    server.wait_idle();
}

#[test]
fn log_probabilities_are_those_of_the_rows() {
    let server = TestServer::start();
    let mut body = json!({ "prompt": "the cat", "max_tokens": 6, "temperature": 0, "logprobs": 3, "ignore_eos": true });
    let reply = server.complete(body.clone()).ok();
    let logprobs = &reply["choices"][0]["logprobs"];
    let column = |name: &str| logprobs[name].as_array().unwrap();
    assert_eq!([column("tokens").len(), column("token_logprobs").len(), column("top_logprobs").len()], [6; 3]);
    for index in 0..6 {
        let (token, logprob) = (column("tokens")[index].as_str().unwrap(), &column("token_logprobs")[index]);
        let top = column("top_logprobs")[index].as_object().unwrap();
        // Greedy: the chosen token leads.
        assert_eq!(top.iter().next().unwrap(), (&token.to_owned(), logprob));
        assert!(top.len() <= 3 && logprob.as_f64().unwrap() < 0.0);
    }
    assert_eq!(column("text_offset")[0], 0);
    let chat = json!({ "messages": [{ "role": "user", "content": "the" }], "max_tokens": 5, "temperature": 0, "logprobs": true, "top_logprobs": 2 });
    let reply = server.chat(chat.clone()).ok();
    let content = reply["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    let joined: String = content.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert!(joined.contains("bytes:") || joined == reply["choices"][0]["message"]["content"]);
    for entry in &content {
        assert_eq!(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 2);
    }
    let mut streamed = chat;
    streamed["stream"] = json!(true);
    let events = server.chat(streamed).events();
    let pieces = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(pieces.flatten().collect::<Vec<_>>(), content.iter().collect::<Vec<_>>());
    body["logprobs"] = json!(0);
    assert_eq!(server.complete(body).ok()["choices"][0]["logprobs"]["top_logprobs"][0], json!({}));
}

#[test]
fn echo_scores_the_prompt_with_the_rows_that_an_answer_would_have() {
    let server = TestServer::start();
    let answer = server
        .complete(json!({ "prompt": "the cat", "max_tokens": 8, "temperature": 0, "logprobs": 2, "ignore_eos": true }))
        .ok();
    let whole = format!("the cat{}", text(&answer, 0));
    let prompt = server.post("/v1/tokenize", &json!({ "prompt": "the cat" })).ok();
    let prompt = prompt["tokens"].as_array().unwrap();
    // The answer's tokens as a prompt: every token is scored as when it was chosen, whatever the cache holds by now.
    let body = json!({ "prompt": "the cat", "max_tokens": 8, "temperature": 0, "logprobs": 2, "echo": true, "ignore_eos": true });
    let echoed = server.complete(body).ok();
    assert_eq!(text(&echoed, 0), whole);
    assert_eq!(echoed["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let column = |reply: &Value, name: &str| reply["choices"][0]["logprobs"][name].as_array().unwrap().clone();
    assert_eq!(column(&echoed, "token_logprobs")[0], Value::Null);
    assert_eq!(column(&echoed, "token_logprobs")[prompt.len()..], column(&answer, "token_logprobs")[..]);
    assert_eq!(column(&echoed, "tokens").len(), prompt.len() + 8);
    assert_eq!(column(&echoed, "text_offset")[prompt.len()], "the cat".len());
    let scored = server.complete(json!({ "prompt": "the cat", "max_tokens": 0, "echo": true, "logprobs": 2 })).ok();
    assert_eq!(text(&scored, 0), "the cat");
    assert_eq!(column(&scored, "token_logprobs")[..], column(&echoed, "token_logprobs")[..prompt.len()]);
    assert_eq!(scored["usage"]["completion_tokens"], 0);
}

#[test]
fn penalties_and_bias_act_and_do_not_depend_on_company() {
    let server = TestServer::start();
    // Cold enough for tokens to come back.
    let cold = || {
        let mut body = hot("the the the ", 4, 60);
        body["temperature"] = json!(0.1);
        body
    };
    let plain = server.complete(cold()).ok();
    let t = server.app.served.tokenizer.encode("t").unwrap()[0];
    let settings = [
        json!({ "frequency_penalty": 2.0 }),
        json!({ "presence_penalty": 1.5 }),
        json!({ "repetition_penalty": 1.8 }),
        json!({ "logit_bias": { t.to_string(): 100 } }),
    ];
    let bodies: Vec<Value> = settings
        .iter()
        .map(|setting| {
            let mut body = cold();
            body.as_object_mut().unwrap().extend(setting.as_object().unwrap().clone());
            body
        })
        .collect();
    let alone: Vec<Value> = bodies.iter().map(|body| server.complete(body.clone()).ok()).collect();
    for (reply, setting) in alone.iter().zip(&settings) {
        assert_ne!(text(reply, 0), text(&plain, 0), "{setting}");
    }
    // A bias of 100 leaves nothing else.
    assert_eq!(text(&alone[3], 0), "t".repeat(60));
    let together: Vec<Value> = std::thread::scope(|scope| {
        let server = &server;
        let threads: Vec<_> =
            bodies.iter().map(|body| scope.spawn(move || server.complete(body.clone()).ok())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (alone, together) in alone.iter().zip(&together) {
        assert_eq!(text(alone, 0), text(together, 0));
    }
}

#[test]
fn json_follows_its_schema_and_is_the_same_in_company() {
    let server = TestServer::start();
    let schema = json!({
        "type": "object",
        "properties": {
            "kind": { "enum": ["cat", "dog"] },
            "legs": { "type": "integer", "minimum": 0, "maximum": 9 },
            "tail": { "type": "boolean" },
        },
        "required": ["kind", "legs", "tail"],
        "additionalProperties": false,
    });
    let body = |seed: u64| {
        json!({
            "messages": [{ "role": "user", "content": "the cat" }],
            "response_format": { "type": "json_schema", "json_schema": { "name": "pet", "schema": schema } },
            "seed": seed, "temperature": 0.9, "max_tokens": 600,
        })
    };
    let alone: Vec<Value> = (0..6).map(|seed| server.chat(body(seed)).ok()["choices"].take()).collect();
    let mut complete = 0;
    for choices in &alone {
        // Noise may put space between tokens without end.
        if choices[0]["finish_reason"] == "stop" {
            let text = choices[0]["message"]["content"].as_str().unwrap();
            let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
            assert!(value["tail"].is_boolean() && value["legs"].as_u64().unwrap() <= 9, "{text}");
            assert!(value["kind"] == "cat" || value["kind"] == "dog", "{text}");
            assert_eq!(value.as_object().unwrap().len(), 3);
            complete += 1;
        }
    }
    assert!(complete > 0, "{alone:?}");
    std::thread::scope(|scope| {
        for (seed, expected) in alone.iter().enumerate() {
            let (server, body) = (&server, &body);
            scope.spawn(move || assert_eq!(server.chat(body(seed as u64)).ok()["choices"], *expected));
        }
        // `n` answers have a grammar each.
        let mut many = body(0);
        many["n"] = json!(6);
        let many = server.chat(many).ok();
        for (index, choices) in alone.iter().enumerate() {
            assert_eq!(many["choices"][index]["message"], choices[0]["message"]);
        }
    });
}

#[test]
fn a_repeated_prompt_is_answered_from_the_cache_with_the_same_answer() {
    let server = TestServer::start();
    let prompt = "the cat sat on the mat ".repeat(8);
    let first = server.complete(hot(&prompt, 9, 16)).ok();
    let second = server.complete(hot(&prompt, 9, 16)).ok();
    assert_eq!(text(&first, 0), text(&second, 0));
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached >= 64 && cached.is_multiple_of(64), "{cached}");
}

#[test]
fn the_counters_count() {
    let server = TestServer::start();
    server.complete(hot("the ", 1, 12)).ok();
    assert_eq!(server.get("/health").ok()["status"], "ok");
    let reply = server.get("/metrics");
    for line in ["sametree_answers_total 1", "sametree_completion_tokens_total 12", "sametree_answer_seconds_count 1"] {
        assert!(reply.text().contains(line), "{line} is not in {}", reply.text());
    }
}

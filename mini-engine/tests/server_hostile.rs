//! What clients must not be able to do to a server: every request gets the right status, and the others their answers.

mod http;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use http::{Reply, TestServer, hot, options, post};
use mini_engine::engine::EngineConfig;
use mini_engine::server::Options;
use serde_json::{Value, json};

/// The answer that must not change, and a check that it did not.
struct Witness {
    expected: Value,
}

impl Witness {
    fn new(server: &TestServer) -> Self {
        Self { expected: server.complete(hot("a witness ", 5, 8)).ok()["choices"].take() }
    }

    #[track_caller]
    fn check(&self, server: &TestServer) {
        assert_eq!(server.complete(hot("a witness ", 5, 8)).ok()["choices"], self.expected);
    }
}

#[test]
fn a_bad_body_is_refused_by_status_and_field() {
    let server = TestServer::start();
    let witness = Witness::new(&server);
    let with = |name: &str, value: Value| {
        let mut body = hot("x", 1, 2);
        body[name] = value;
        body
    };
    let cases: Vec<(Value, u16, Option<&str>)> = vec![
        (json!([]), 400, None),
        (json!("x"), 400, None),
        (json!({}), 400, Some("prompt")),
        (with("prompt", json!(1)), 400, Some("prompt")),
        (with("prompt", json!([])), 400, Some("prompt")),
        (with("prompt", json!([[]])), 400, Some("prompt")),
        (with("prompt", json!([1, "x"])), 400, Some("prompt")),
        (with("prompt", json!([-1])), 400, Some("prompt")),
        (with("prompt", json!([1e9])), 400, Some("prompt")),
        (with("prompt", json!([320])), 400, Some("prompt")),
        (with("prompt", json!([1.5])), 400, Some("prompt")),
        (with("prompt", json!(vec![1; 100_000])), 400, Some("prompt")),
        (with("prompt", json!("the ".repeat(100_000))), 400, Some("prompt")),
        (with("max_tokens", json!(0)), 400, Some("max_tokens")),
        (with("max_tokens", json!(-1)), 400, Some("max_tokens")),
        (with("max_tokens", json!("2")), 400, Some("max_tokens")),
        (with("max_tokens", json!(u64::MAX)), 400, Some("max_tokens")),
        (with("max_tokens", json!(4_000_000_000u64)), 400, Some("max_tokens")),
        (with("n", json!(0)), 400, Some("n")),
        (with("n", json!(129)), 400, Some("n")),
        (with("temperature", json!(-0.1)), 400, Some("temperature")),
        (with("temperature", json!(2.1)), 400, Some("temperature")),
        (with("temperature", json!(1e300)), 400, Some("temperature")),
        (with("temperature", json!(true)), 400, Some("temperature")),
        (with("top_p", json!(0)), 400, Some("top_p")),
        (with("top_p", json!(1e-60)), 400, Some("top_p")),
        (with("top_p", json!(1.1)), 400, Some("top_p")),
        (with("top_k", json!(-2)), 400, Some("top_k")),
        (with("top_k", json!(1e20)), 400, Some("top_k")),
        (with("min_p", json!(-1)), 400, Some("min_p")),
        (with("seed", json!(1.5)), 400, Some("seed")),
        (with("seed", json!("1")), 400, Some("seed")),
        (with("stop", json!("")), 400, Some("stop")),
        (with("stop", json!(["a", 1])), 400, Some("stop")),
        (with("stop", json!(vec!["a"; 17])), 400, Some("stop")),
        (with("stop", json!("a".repeat(1025))), 400, Some("stop")),
        (with("stop_token_ids", json!([320])), 400, Some("stop_token_ids")),
        (with("stop_token_ids", json!(vec![1; 65])), 400, Some("stop_token_ids")),
        (with("logprobs", json!(21)), 400, Some("logprobs")),
        (with("logprobs", json!(true)), 400, Some("logprobs")),
        (json!({ "prompt": "x", "max_tokens": 4000, "n": 128, "logprobs": 20 }), 400, Some("logprobs")),
        (with("presence_penalty", json!(2.5)), 400, Some("presence_penalty")),
        (with("frequency_penalty", json!(-2.5)), 400, Some("frequency_penalty")),
        (with("repetition_penalty", json!(0)), 400, Some("repetition_penalty")),
        (with("logit_bias", json!({ "320": 1 })), 400, Some("logit_bias")),
        (with("logit_bias", json!({ "-1": 1 })), 400, Some("logit_bias")),
        (with("logit_bias", json!({ "1": 101 })), 400, Some("logit_bias")),
        (with("logit_bias", json!({ "1": null })), 400, Some("logit_bias")),
        (with("logit_bias", json!([1])), 400, Some("logit_bias")),
        (with("stream", json!("yes")), 400, Some("stream")),
        (with("stream_options", json!({ "include_usage": true })), 400, Some("stream_options")),
        (with("echo", json!(1)), 400, Some("echo")),
        (with("best_of", json!(2)), 400, Some("best_of")),
        (with("suffix", json!("x")), 400, Some("suffix")),
        (with("model", json!("gpt-5")), 404, Some("model")),
        (with("model", json!(7)), 400, Some("model")),
        (with("temprature", json!(1)), 400, Some("temprature")),
        (with("\u{1f415}", json!(1)), 400, Some("\u{1f415}")),
    ];
    for (body, status, param) in cases {
        let reply = server.complete(body.clone());
        let shown: String = body.to_string().chars().take(200).collect();
        assert_eq!(reply.refusal(), (status, param.map(str::to_owned)), "{shown}: {}", reply.text());
        assert!(reply.body.len() < 1000, "{}", reply.text());
    }
    witness.check(&server);
    server.wait_idle();
}

#[test]
fn a_bad_chat_is_refused_by_field() {
    let server = TestServer::start();
    let with = |name: &str, value: Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 2 });
        body[name] = value;
        body
    };
    let cases = [
        (with("messages", json!([])), "messages"),
        (with("messages", json!("x")), "messages"),
        (with("messages", json!([1])), "messages[0]"),
        (with("messages", json!([{ "content": "x" }])), "messages[0].role"),
        (with("messages", json!([{ "role": 1, "content": "x" }])), "messages[0].role"),
        (with("messages", json!([{ "role": "user" }])), "messages[0].content"),
        (with("messages", json!([{ "role": "user", "content": 1 }])), "messages[0].content"),
        (
            with(
                "messages",
                json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "x" } }] }]),
            ),
            "messages[0].content[0]",
        ),
        (with("messages", json!([{ "role": "user", "content": "the ".repeat(100_000) }])), "prompt"),
        (with("top_logprobs", json!(3)), "top_logprobs"),
        (with("max_completion_tokens", json!(3)), "max_tokens"),
        (with("tools", json!([{ "type": "function" }])), "tools"),
        (with("tool_choice", json!("required")), "tool_choice"),
        (with("response_format", json!({ "type": "xml" })), "response_format"),
        (with("response_format", json!({ "type": "json_schema" })), "response_format"),
        (
            with(
                "response_format",
                json!({ "type": "json_schema", "json_schema": { "schema": { "type": "no such type" } } }),
            ),
            "response_format",
        ),
        (
            with(
                "response_format",
                json!({ "type": "json_schema", "json_schema": { "schema": { "type": "string", "pattern": "(a|b)*[^".repeat(9) } } }),
            ),
            "response_format",
        ),
        (
            with(
                "response_format",
                json!({ "type": "json_schema", "json_schema": { "schema": { "$ref": "http://127.0.0.1:1/x" } } }),
            ),
            "response_format",
        ),
        (with("functions", json!([])), "functions"),
        (with("store", json!(true)), "store"),
        (with("audio", json!({})), "audio"),
        (with("prompt", json!("x")), "prompt"),
    ];
    for (body, param) in cases {
        let reply = server.chat(body);
        assert_eq!(reply.refusal(), (400, Some(param.to_owned())), "{}", reply.text());
    }
    let harmless = with("response_format", json!({ "type": "text" }));
    assert_eq!(server.chat(harmless).status, 200);
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let server = TestServer::start();
    let witness = Witness::new(&server);
    let body_status = |body: &[u8]| server.post_bytes("/v1/completions", body).refusal().0;
    assert_eq!(body_status(b""), 400);
    assert_eq!(body_status(b"{"), 400);
    assert_eq!(body_status(b"{\"prompt\": \"\xff\xfe\"}"), 400);
    assert_eq!(body_status(br#"{"prompt": "\ud800"}"#), 400);
    assert_eq!(body_status(br#"{"prompt": "\udc00\ud800"}"#), 400);
    assert_eq!(body_status("[".repeat(1 << 20).as_bytes()), 400);
    assert_eq!(body_status(br#"{"prompt": "x", "temperature": 1e999}"#), 400);
    assert_eq!(body_status(br#"{"prompt": "x", "max_tokens": NaN}"#), 400);
    // A whole surrogate pair is a character.
    assert_eq!(server.post_bytes("/v1/completions", br#"{"prompt": "\ud83d\udc15", "max_tokens": 2}"#).status, 200);
    let no_type = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    assert_eq!(server.raw(no_type).refusal().0, 415);
    assert_eq!(server.get("/v1/completions").refusal().0, 405);
    assert_eq!(server.get("/nowhere").refusal().0, 404);
    assert_eq!(server.get("/v1/models/%ff").refusal().0, 400);
    assert_eq!(server.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").status, 400);
    assert_eq!(server.raw(b"GET /health\r\n\r\n").status, 400);
    let long = format!("GET /health HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(200_000));
    assert!(matches!(server.raw(long.as_bytes()).status, 400 | 431 | 0));
    let many: String = (0..1000).map(|index| format!("H{index}: x\r\n")).collect();
    assert!(matches!(server.raw(format!("GET /health HTTP/1.1\r\n{many}\r\n").as_bytes()).status, 400 | 431 | 0));
    let smuggled = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n";
    assert_eq!(server.raw(smuggled).status, 400);
    witness.check(&server);
}

#[test]
fn a_body_has_bounds_in_size_and_time() {
    let bounded = Options {
        body_bytes_max: 2000,
        body_timeout: Duration::from_millis(300),
        head_timeout: Duration::from_millis(300),
        ..options()
    };
    let server = TestServer::with(bounded, EngineConfig::default(), None);
    let witness = Witness::new(&server);
    assert_eq!(server.complete(json!({ "prompt": "x".repeat(3000) })).refusal().0, 413);
    // A body that does not say how long it is.
    let chunk = format!("800\r\n{}\r\n", "x".repeat(0x800));
    let endless = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{chunk}{chunk}"
    );
    assert_eq!(server.raw(endless.as_bytes()).refusal().0, 413);
    // One that never comes, while others are served.
    let mut stalled: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{").unwrap();
            stream
        })
        .collect();
    witness.check(&server);
    for stream in &mut stalled {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(Reply::read(stream).refusal().0, 408);
    }
    // Heads that come byte by byte are cut off, as are connections that say nothing.
    let started = Instant::now();
    let mut drip = server.connect();
    for byte in b"GET /health HTTP/1.1\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy".iter().cycle() {
        if drip.write_all(&[*byte]).is_err() || started.elapsed() > Duration::from_secs(20) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(started.elapsed() < Duration::from_secs(20), "a slow head held its connection");
    let mut silent = server.connect();
    assert!(matches!(silent.read(&mut [0; 64]), Ok(0) | Err(_)), "a silent connection was answered");
    assert!(started.elapsed() < Duration::from_secs(30));
    witness.check(&server);
    server.wait_idle();
}

#[test]
fn thousands_of_open_connections_hold_nobody_up() {
    let server = TestServer::start();
    let witness = Witness::new(&server);
    // Each takes two handles of this process.
    let idle: Vec<_> = (0..2000).map(|_| server.connect()).collect();
    witness.check(&server);
    let half: Vec<_> = idle
        .iter()
        .take(1000)
        .map(|mut stream| stream.write_all(b"POST /v1/completions HTTP/1.1\r\nHost").unwrap())
        .collect();
    witness.check(&server);
    drop((idle, half));
    witness.check(&server);
}

#[test]
fn more_connections_than_the_server_takes_wait_until_one_is_free() {
    let few = Options { connections_max: 2, head_timeout: Duration::from_millis(400), ..options() };
    let server = TestServer::with(few, EngineConfig::default(), None);
    let idle: Vec<_> = (0..20).map(|_| server.connect()).collect();
    // The idle ones are cut off, two at a time.
    Witness::new(&server).check(&server);
    drop(idle);
}

#[test]
fn a_full_queue_turns_away_and_loses_nothing() {
    let config = EngineConfig { running_max: 2, ..EngineConfig::default() };
    let server = TestServer::with(Options { queue_max: 2, ..options() }, config, None);
    let expected = server.complete(hot("the ", 1, 200)).ok();
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let server = &server;
        let threads: Vec<_> = (0..24).map(|_| scope.spawn(move || server.complete(hot("the ", 1, 200)))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut served, mut turned_away) = (0, 0);
    for reply in &replies {
        if reply.status == 200 {
            assert_eq!(reply.json()["choices"], expected["choices"]);
            served += 1;
        } else {
            assert_eq!(reply.refusal(), (429, None));
            assert!(reply.head.to_ascii_lowercase().contains("retry-after: "), "{}", reply.head);
            turned_away += 1;
        }
    }
    assert!(served >= 4 && turned_away >= 1, "{served} served, {turned_away} turned away");
    let mut many = hot("x", 1, 1);
    many["n"] = json!(5);
    assert_eq!(server.complete(many).refusal(), (400, Some("n".into())));
    server.wait_idle();
}

#[test]
fn a_client_that_leaves_is_cancelled() {
    let server = TestServer::start();
    let long = |stream: bool| {
        let mut body = hot("the ", 1, 400);
        body["stream"] = json!(stream);
        post("/v1/completions", body.to_string().as_bytes(), "")
    };
    for stream in [false, true] {
        let before = server.app.worker.stats().cancelled;
        let mut client = server.connect();
        client.write_all(&long(stream)).unwrap();
        while server.app.worker.live() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(client);
        server.wait_idle();
        assert_eq!(server.app.worker.stats().cancelled, before + 1, "stream: {stream}");
    }
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let server = TestServer::with(
        Options { stall_timeout: Duration::from_millis(300), ..options() },
        EngineConfig { pages: 2048, ..EngineConfig::default() },
        None,
    );
    let witness = Witness::new(&server);
    let mut body = hot("the ", 1, 400);
    body["stream"] = json!(true);
    body["n"] = json!(64);
    body["logprobs"] = json!(20);
    let mut client = server.connect();
    client.write_all(&post("/v1/completions", body.to_string().as_bytes(), "")).unwrap();
    // The buffers of the system fill; then every answer waits for the client, and gives up.
    server.wait_idle();
    witness.check(&server);
}

#[test]
fn a_fault_ends_only_its_own_request() {
    let server = TestServer::with(options(), EngineConfig::default(), Some(319));
    let witness = Witness::new(&server);
    let tokens: Vec<u32> = (40..80).chain([319]).chain(40..60).collect();
    let poisoned = json!({ "prompt": tokens, "max_tokens": 4 });
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            for _ in 0..10 {
                witness.check(&server);
            }
        });
        for _ in 0..5 {
            let reply = server.complete(poisoned.clone());
            assert_eq!(reply.refusal().0, 500, "{}", reply.text());
            assert!(reply.text().contains("non-finite key or value at position 40"), "{}", reply.text());
            let mut streamed = poisoned.clone();
            streamed["stream"] = json!(true);
            let reply = server.complete(streamed);
            assert!(reply.text().contains("\"error\"") && !reply.text().contains("[DONE]"), "{}", reply.text());
        }
        neighbour.join().unwrap();
    });
    server.wait_idle();
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_key_is_asked_for_everywhere_but_at_health() {
    let server =
        TestServer::with(Options { api_key: Some("secret".into()), ..options() }, EngineConfig::default(), None);
    for path in ["/", "/metrics", "/v1/models", "/v1/models/tiny", "/v1/receipts/0", "/demo", "/demo/run", "/nowhere"] {
        assert_eq!(server.get(path).refusal().0, 401, "{path}");
    }
    let health = server.get("/health");
    assert_eq!(health.status, 200);
    let body = hot("x", 1, 1).to_string();
    let with = |header: &str| server.raw(&post("/v1/completions", body.as_bytes(), header)).status;
    for header in [
        "",
        "Authorization: secret\r\n",
        "Authorization: Bearer secre\r\n",
        "Authorization: Bearer secrets\r\n",
        "Authorization: Basic secret\r\n",
        // secret, me:secrets and secret:
        "Authorization: Basic c2VjcmV0\r\n",
        "Authorization: Basic bWU6c2VjcmV0cw==\r\n",
        "Authorization: Basic c2VjcmV0Og==\r\n",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer \u{e9}\r\n",
    ] {
        assert_eq!(with(header), 401, "{header}");
    }
    assert_eq!(with("Authorization: Bearer secret\r\n"), 200);
    assert_eq!(with("authorization: bearer secret\r\n"), 200);
    // A browser is asked for a password, and sends me:secret and me:a:b.
    assert!(server.get("/").head.contains("www-authenticate: Basic realm="));
    assert_eq!(with("Authorization: Basic bWU6c2VjcmV0\r\n"), 200);
    assert_eq!(with("Authorization: Basic bWU6YTpi\r\n"), 401);
    assert_eq!(server.complete(hot("x", 1, 1)).refusal().0, 401);
}

#[test]
fn shutting_down_finishes_what_has_begun() {
    let mut server = TestServer::start();
    let expected = server.complete(hot("the ", 1, 300)).ok();
    let address = server.address;
    let clients: Vec<_> = [false, true]
        .into_iter()
        .map(|stream| {
            let mut body = hot("the ", 1, 300);
            body["stream"] = json!(stream);
            let mut client = server.connect();
            client.write_all(&post("/v1/completions", body.to_string().as_bytes(), "")).unwrap();
            client
        })
        .collect();
    while server.app.worker.live() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.stop();
    let [mut whole, mut streamed] = <[_; 2]>::try_from(clients).unwrap();
    assert_eq!(Reply::read(&mut whole).ok()["choices"], expected["choices"]);
    assert_eq!(Reply::read(&mut streamed).events().last().unwrap()["choices"][0]["finish_reason"], "length");
    assert!(std::net::TcpStream::connect(address).is_err());
}

//! Receipts over HTTP: the same request has one receipt whatever the load, every receipt passes the audit, and the page's
//! experiment gives equal digests, and different ones when it is broken on purpose.

mod http;

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{TestServer, options, post};
use mini_engine::engine::EngineConfig;
use mini_engine::engine::noise::Noise;
use mini_engine::receipt::{Auditor, Receipt, parse};
use serde_json::{Value, json};

fn kept(server: &TestServer, digest: &str) -> Receipt {
    let reply = server.get(&format!("/v1/receipts/{digest}"));
    assert_eq!(reply.status, 200, "{digest}");
    let receipt = parse(&reply.body).unwrap();
    assert_eq!(receipt.digest.to_string(), digest);
    receipt
}

fn digests(reply: &Value) -> Vec<String> {
    let choices = reply["choices"].as_array().unwrap();
    choices.iter().map(|choice| choice["receipt"].as_str().unwrap().to_owned()).collect()
}

/// The request whose answer must not change.
fn recurring() -> Value {
    json!({ "prompt": "the cat sat on the ", "max_tokens": 16, "seed": 9, "receipt": true, "stop": ["never said"] })
}

/// Some other request, with every field that shapes tokens now and then.
fn random(noise: &mut Noise) -> Value {
    let prompt = ["the cat sat on ", "the ", "a"][noise.below(3)].repeat(1 + noise.below(8));
    let mut body = json!({
        "prompt": prompt,
        "max_tokens": 1 + noise.below(24), "seed": noise.next_u64(), "receipt": true, "n": 1 + noise.below(2),
        "temperature": noise.below(3) as f32 * 0.7,
    });
    if noise.one_in(2) {
        (body["top_p"], body["top_k"], body["min_p"]) = (json!(0.9), json!(40), json!(0.001));
    }
    if noise.one_in(2) {
        (body["presence_penalty"], body["frequency_penalty"]) = (json!(1.5), json!(0.25));
        (body["repetition_penalty"], body["logit_bias"]) = (json!(1.2), json!({ "65": -5, "100": 3.5 }));
    }
    if noise.one_in(2) {
        (body["stop"], body["logprobs"], body["echo"]) = (json!(["e", "th"]), json!(2), json!(true));
    }
    if noise.one_in(4) {
        body["prompt"] = json!([65, 66, 67]);
    }
    body
}

#[test]
fn receipts_taken_under_load_pass_and_one_request_has_one_receipt() {
    let config = EngineConfig { page_tokens: 8, pages: 60, step_rows_max: 32, ..EngineConfig::default() };
    let server = TestServer::with(options(), config, None);
    let (found, same) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::new()));
    let cancelled = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..12 {
            let (server, found, same, cancelled) = (&server, &found, &same, &cancelled);
            scope.spawn(move || {
                let mut noise = Noise::new(client);
                for round in 0..6 {
                    if round % 3 == 2 {
                        let body = json!({ "prompt": "the ", "max_tokens": 400, "stream": true, "receipt": true, "ignore_eos": true });
                        let mut stream = server.connect();
                        stream.write_all(&post("/v1/completions", body.to_string().as_bytes(), "")).unwrap();
                        std::thread::sleep(std::time::Duration::from_millis(noise.below(60) as u64));
                        // Gone in the midst of its answer.
                        drop(stream);
                        cancelled.fetch_add(1, Ordering::Relaxed);
                    } else {
                        found.lock().unwrap().extend(digests(&server.complete(random(&mut noise)).ok()));
                    }
                    if round % 3 != 0 {
                        same.lock().unwrap().extend(digests(&server.complete(recurring()).ok()));
                    }
                }
            });
        }
    });
    let (found, same) = (found.into_inner().unwrap(), same.into_inner().unwrap());
    assert!(found.len() >= 50 && same.len() >= 20 && cancelled.into_inner() == 24, "{} {}", found.len(), same.len());
    assert_eq!(same.iter().collect::<BTreeSet<_>>().len(), 1, "one request has several receipts: {same:?}");
    let auditor = Auditor::new(&server.model, &server.app.served.tokenizer);
    for digest in found.iter().chain(&same[..1]) {
        let audit = auditor.audit(&kept(&server, digest)).unwrap();
        assert!(audit.equal, "{audit:#?}");
    }
    server.wait_idle();
    assert_eq!(digests(&server.complete(recurring()).ok()), same[..1]);
    // Nothing is kept but what was asked for, whole, under its own name.
    for file in std::fs::read_dir(server.receipts.path()).unwrap() {
        let path = file.unwrap().path();
        let receipt = parse(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str().unwrap(), receipt.receipt.digest().to_string());
    }
}

#[test]
fn chats_and_streams_carry_the_digest() {
    let server = TestServer::start();
    let body =
        json!({ "messages": [{ "role": "user", "content": "the cat" }], "max_tokens": 9, "seed": 3, "receipt": true });
    let whole = digests(&server.chat(body.clone()).ok());
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let reply = String::from_utf8(server.chat(streamed).body).unwrap();
    assert_eq!(reply.matches("\"receipt\"").count(), 1, "{reply}");
    assert!(reply.contains(&format!("\"receipt\":\"{}\"", whole[0])), "{reply}");
    let receipt = kept(&server, &whole[0]);
    assert_eq!(receipt.receipt.prompt.text.as_deref(), Some("<|start|>user: the cat<|end|><|start|>assistant:"));
    assert!(Auditor::new(&server.model, &server.app.served.tokenizer).audit(&receipt).unwrap().equal);
    // Unasked, none is written.
    let before = std::fs::read_dir(server.receipts.path()).unwrap().count();
    let plain = server.complete(json!({ "prompt": "the", "seed": 4 })).ok();
    assert!(plain["choices"][0].get("receipt").is_none());
    assert_eq!(std::fs::read_dir(server.receipts.path()).unwrap().count(), before);
}

#[test]
fn wrong_names_and_wishes_are_refused() {
    let server = TestServer::start();
    for name in ["..%2F..%2Fetc%2Fpasswd", "0", &"a".repeat(64), &"A".repeat(64), "%00"] {
        assert_eq!(server.get(&format!("/v1/receipts/{name}")).status, 404, "{name}");
    }
    let (status, param) =
        server.complete(json!({ "prompt": "x", "max_tokens": 0, "echo": true, "receipt": true })).refusal();
    assert_eq!((status, param.as_deref()), (400, Some("receipt")));
    let body = json!({ "messages": [{ "role": "user", "content": "x" }], "response_format": { "type": "json_object" }, "receipt": true });
    let (status, param) = server.chat(body).refusal();
    assert_eq!((status, param.as_deref()), (400, Some("receipt")));
}

fn ask(broken: bool) -> Value {
    json!({
        "prompt": "what does a tree of additions look like?", "max_tokens": 12, "temperature": 1, "seed": 7, "crowds": 2,
        "others": 7, "crowd_seed": 1, "broken": broken,
    })
}

fn lines(body: &[u8]) -> Vec<Value> {
    std::str::from_utf8(body).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lane(lines: &[Value], lane: u64) -> Vec<String> {
    let own = lines.iter().filter(|line| line["lane"] == lane && line["token"].is_object());
    own.map(|line| line["token"]["logits"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_page_shows_equal_digests_and_different_ones_when_broken() {
    let server = TestServer::start();
    let page = server.get("/");
    let html = String::from_utf8(page.body).unwrap();
    assert!(page.status == 200 && page.head.contains("text/html") && page.head.contains("default-src 'none'"));
    assert!(
        !html.contains("http://")
            || html.matches("http://").count() == html.matches("http://www.w3.org/2000/svg").count()
    );
    assert!(!html.contains("https://"), "the page refers to another place");
    let about: Value = serde_json::from_slice(&server.get("/demo").body).unwrap();
    assert_eq!((&about["model"], &about["arithmetic"], &about["open"]), (&json!("tiny"), &json!("sm90"), &json!(true)));

    let sound = lines(&server.post("/demo/run", &ask(false)).body);
    let alone = lane(&sound, 0);
    assert!(!alone.is_empty());
    assert_eq!((lane(&sound, 1), lane(&sound, 2)), (alone.clone(), alone.clone()));
    let receipt = parse(sound.last().unwrap()["receipt"].to_string().as_bytes()).unwrap();
    let auditor = Auditor::new(&server.model, &server.app.served.tokenizer);
    assert!(auditor.audit(&receipt).unwrap().equal);

    let broken = lines(&server.post("/demo/run", &ask(true)).body);
    assert_ne!(lane(&broken, 0), lane(&broken, 1));
    let receipt = parse(broken.last().unwrap()["receipt"].to_string().as_bytes()).unwrap();
    assert!(!auditor.audit(&receipt).unwrap().equal);
    // Whoever uses the interface meets the sound engine all the while.
    let again = lines(&server.post("/demo/run", &ask(false)).body);
    assert_eq!(lane(&again, 2), alone);
}

#[test]
fn absurd_visits_are_refused() {
    let server = TestServer::start();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut body = ask(false);
        change(&mut body);
        server.post("/demo/run", &body).refusal().0
    };
    assert_eq!(refused(&|body| body["prompt"] = json!("")), 400);
    assert_eq!(refused(&|body| body["max_tokens"] = json!(100_000)), 400);
    assert_eq!(refused(&|body| body["temperature"] = json!(-1)), 400);
    assert_eq!(refused(&|body| body["extra"] = json!(1)), 400);
    assert_eq!(refused(&|body| *body = json!([])), 400);
    // One visitor at a time; the place is free again when a visitor goes away.
    let mut long = ask(false);
    (long["max_tokens"], long["crowds"], long["others"]) = (json!(64), json!(4), json!(16));
    let mut first = server.connect();
    first.write_all(&post("/demo/run", long.to_string().as_bytes(), "")).unwrap();
    let busy = (0..500).any(|_| server.post("/demo/run", &ask(false)).status == 429);
    assert!(busy, "two visitors at the same time");
    drop(first);
    let free = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        server.post("/demo/run", &ask(false)).status == 200
    });
    assert!(free, "the place of a visitor who left is not given back");
}

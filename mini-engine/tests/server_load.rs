//! Company changes no answer: many clients at once, some of which leave, and every finished answer is the one that the request
//! gets alone.

mod http;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{TestServer, hot, options, post};
use mini_engine::engine::noise::Noise;
use mini_engine::engine::{Engine, EngineConfig};
use reduction_tree::evaluate::log_sum_exp;
use reduction_tree::operator::LogSumExpTree;
use serde_json::{Value, json};

const CLIENTS: usize = 64;
const REQUESTS_EACH: usize = 4;
/// Distinct requests; each is sent again and again by different clients.
const BODIES: usize = 48;

/// Answers of the one body that by itself is more than the pool holds.
const CROWD: u64 = 64;

/// Requests that differ in everything that a request can ask for.
fn bodies() -> Vec<Value> {
    let mut noise = Noise::new(64);
    let words = ["the ", "cat ", "sat on ", "a mat ", "é", "🐕 ", "and "];
    (0..BODIES)
        .map(|index| {
            // Half of the prompts share a beginning, so that the cache has something to give.
            let mut prompt =
                if index % 2 == 0 { "a shared beginning of some length ".repeat(3) } else { String::new() };
            for _ in 0..=noise.below(20) {
                prompt += words[noise.below(words.len())];
            }
            let mut body = hot(&prompt, index as u64, 4 + noise.below(28));
            let extras = [
                json!({}),
                json!({ "temperature": 0 }),
                json!({ "top_k": 20, "top_p": 0.8, "min_p": 0.01 }),
                json!({ "frequency_penalty": 0.7, "presence_penalty": -0.3 }),
                json!({ "repetition_penalty": 1.2, "logit_bias": { "97": 2.5, "98": -100 } }),
                json!({ "logprobs": 3 }),
                json!({ "stop": ["a", "\u{fffd}\u{fffd}"] }),
                json!({ "n": 2 }),
                json!({ "logprobs": 1, "echo": true }),
            ];
            body.as_object_mut().unwrap().extend(extras[index % extras.len()].as_object().unwrap().clone());
            body
        })
        .collect()
}

/// What must be equal: everything about the choices of a streamed answer.
fn content(events: &[Value]) -> BTreeMap<u64, Vec<Value>> {
    let mut answers: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap().clone()) {
        answers.entry(choice["index"].as_u64().unwrap()).or_default().push(choice);
    }
    answers
}

fn streamed(server: &TestServer, body: &Value) -> BTreeMap<u64, Vec<Value>> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    content(&server.complete(body).events())
}

/// The texts of a body's answers, in their order.
fn texts(server: &TestServer, body: &Value) -> Vec<String> {
    let text = |pieces: Vec<Value>| pieces.iter().map(|piece| piece["text"].as_str().unwrap()).collect();
    streamed(server, body).into_values().map(text).collect()
}

/// Sends a request and leaves after a few bytes of the answer.
fn leave_early(server: &TestServer, body: &Value, bytes: usize) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut client = server.connect();
    client.write_all(&post("/v1/completions", body.to_string().as_bytes(), "")).unwrap();
    let _ = client.read_exact(&mut vec![0; bytes]);
}

#[test]
fn sixty_four_clients_get_what_each_would_get_alone() {
    let bodies = bodies();
    // Alone: one request at a time, no cache, each in an engine step of its own.
    let cold = TestServer::with(options(), EngineConfig { prefix_cache: false, ..EngineConfig::default() }, None);
    let alone: Vec<_> = bodies.iter().map(|body| streamed(&cold, body)).collect();
    let crowd_alone: Vec<_> = (0..CROWD).flat_map(|index| texts(&cold, &hot("a crowd", 100 + index, 40))).collect();

    // A pool that is too small for all of them, and steps that cut prompts.
    let config =
        EngineConfig { page_tokens: 16, pages: 72, step_rows_max: 48, run_ahead: true, ..EngineConfig::default() };
    let server = TestServer::with(options(), config, None);
    let (compared, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, bodies, alone, compared, left) = (&server, &bodies, &alone, &compared, &left);
            scope.spawn(move || {
                let mut noise = Noise::new(client as u64);
                for _ in 0..REQUESTS_EACH {
                    let index = noise.below(BODIES);
                    if noise.one_in(3) {
                        leave_early(server, &bodies[index], noise.below(4000));
                        left.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_eq!(streamed(server, &bodies[index]), alone[index], "{}", bodies[index]);
                        compared.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Meanwhile one request twenty times: one answer.
        let (server, bodies, alone) = (&server, &bodies, &alone);
        scope.spawn(move || (0..20).for_each(|_| assert_eq!(streamed(server, &bodies[4]), alone[4])));
        // And one that is a crowd, so that requests meet and are preempted however slowly the other clients come.
        let mut crowd = hot("a crowd", 100, 40);
        crowd["n"] = json!(CROWD);
        scope.spawn(move || assert_eq!(texts(server, &crowd), crowd_alone));
    });
    server.wait_idle();
    let stats = server.app.worker.stats();
    assert!(compared.load(Ordering::Relaxed) > 120 && left.load(Ordering::Relaxed) > 50);
    // It was a load: requests met in steps, pages were shared, taken back and used again.
    assert!(stats.step_requests_peak >= 16, "{stats:?}");
    assert!(
        stats.policy.attached_tokens > 0 && stats.policy.preemptions > 0 && stats.policy.evictions > 0,
        "{stats:?}"
    );
    assert!(stats.cancelled > 0 && stats.refused_plans == 0 && stats.failures == 0, "{stats:?}");
}

/// The engine itself, without a server: what adjusts a row reads the request's own tokens and nothing else.
#[test]
fn penalties_and_bias_in_a_batch_are_those_alone() {
    use mini_engine::device_model::DeviceModel;
    use mini_engine::engine::{Adjust, Event, Request, Sampling};

    let checkpoint = http::checkpoint();
    let model = http::model(&checkpoint);
    let config = EngineConfig { page_tokens: 16, pages: 14, step_rows_max: 24, ..EngineConfig::default() };
    let request = |index: u32| Request {
        prompt: (0..5 + 3 * index).map(|position| (position * 7 + index) % 200).collect(),
        sampling: Sampling {
            temperature: if index.is_multiple_of(3) { 0.0 } else { 1.2 },
            seed: u64::from(index),
            adjust: Adjust {
                repetition_penalty: [1.0, 1.4, 0.8][index as usize % 3],
                frequency_penalty: [0.0, 2.0][index as usize % 2],
                presence_penalty: [0.5, 0.0, -0.5][index as usize % 3],
                logit_bias: (0..index).map(|token| (token * 3, 4.0 - token as f32 * 0.3)).collect(),
            },
            ..Sampling::default()
        },
        tokens_max: 24,
        digest_logits: true,
        logits_from: Some(0),
        ..Request::default()
    };
    let run = |requests: Vec<Request>| {
        let device = DeviceModel::new(model.clone(), &config).unwrap();
        let mut engine = Engine::new(device, config.clone()).unwrap();
        let ids: Vec<_> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
        let (mut tokens, mut rows) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
        while engine.live() > 0 {
            for event in engine.step().unwrap() {
                match event {
                    Event::Logits { id, row, .. } => drop(rows.insert(id, row)),
                    Event::Token { id, sampled, logits_digest, .. } => {
                        // The row is the model's own, and the log-probability is its.
                        let sums = log_sum_exp(&LogSumExpTree { n: rows[&id].len() }, &rows[&id]);
                        assert_eq!(
                            sampled.logprob.to_bits(),
                            sums.logprob(rows[&id][sampled.token as usize]).to_bits()
                        );
                        tokens.entry(id).or_default().push((sampled.token, sampled.logprob.to_bits(), logits_digest));
                    }
                    _ => {}
                }
            }
        }
        (ids.iter().map(|id| tokens[id].clone()).collect::<Vec<_>>(), engine.stats())
    };
    let alone: Vec<_> = (0..12).map(|index| run(vec![request(index)]).0.remove(0)).collect();
    let (together, stats) = run((0..12).map(request).collect());
    assert_eq!(together, alone);
    assert!(stats.step_requests_peak >= 8 && stats.policy.preemptions > 0, "{stats:?}");
    // They do something: without them many of the answers are others.
    let plain = |index| {
        let request = request(index);
        Request { sampling: Sampling { adjust: Adjust::default(), ..request.sampling.clone() }, ..request }
    };
    let changed = (0..12).filter(|&index| run(vec![plain(index)]).0[0] != alone[index as usize]).count();
    assert!(changed >= 4, "{changed} of 12 answers differ");
}

//! A server's memory does not grow with what it has served or refused. The only test of its process: it counts allocations.

mod http;

use std::alloc::System;
use std::io::{Read, Write};

use cap::Cap;
use http::{TestServer, hot, options, post};
use mini_engine::engine::EngineConfig;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What may be left behind by one round of about forty requests, most of which carry far more.
const ROUND_BYTES_MAX: isize = 200_000;

fn round(server: &TestServer) {
    for index in 0..8 {
        server.complete(hot("the same prompt", index, 10)).ok();
        let mut streamed = hot("the same prompt", index, 10);
        streamed["stream"] = json!(true);
        streamed["logprobs"] = json!(20);
        server.complete(streamed).events();
    }
    for _ in 0..2 {
        assert_eq!(server.complete(json!({ "prompt": "x".repeat(1 << 20) })).status, 400);
        assert_eq!(server.complete(json!({ "prompt": vec![1; 100_000] })).status, 400);
        assert_eq!(server.post_bytes("/v1/completions", &vec![b'['; 5 << 20]).status, 413);
        assert_eq!(server.post_bytes("/v1/completions", "{\"x\":".repeat(50_000).as_bytes()).status, 400);
    }
    for index in 0..10 {
        let mut body = hot("the same prompt", index, 2000);
        body["stream"] = json!(true);
        let mut client = server.connect();
        client.write_all(&post("/v1/completions", body.to_string().as_bytes(), "")).unwrap();
        let _ = client.read(&mut [0; 100]);
        server.connect().write_all(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\nxxx").unwrap();
    }
    server.wait_idle();
    server.app.metrics.upkeep();
    // Connections end a moment after their clients.
    std::thread::sleep(std::time::Duration::from_millis(200));
}

#[test]
fn memory_stays_where_it_was() {
    let server = TestServer::with(options(), EngineConfig { pages: 128, ..EngineConfig::default() }, None);
    // The first rounds fill the prefix cache and the pools of the runtime.
    round(&server);
    round(&server);
    let before = ALLOCATOR.allocated() as isize;
    for _ in 0..3 {
        round(&server);
    }
    let grown = ALLOCATOR.allocated() as isize - before;
    assert!(grown < ROUND_BYTES_MAX, "{grown} bytes more after three rounds");
}

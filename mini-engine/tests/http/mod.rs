//! A server on a real socket in this process, and a client that can also misbehave.

#![allow(dead_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kernels_rs::cpu::Cpu;
use mini_engine::device_model::DeviceModel;
use mini_engine::engine::{Engine, EngineConfig};
use mini_engine::model::{Checkpoint, LoadOptions, Model, Source};
use mini_engine::receipt::Identity;
use mini_engine::server::receipts::Receipts;
use mini_engine::server::{App, Options, Served, Server};
use mini_engine::showroom::Showroom;
use reduction_tree::arithmetic::Arithmetic;
use serde_json::{Value, json};

/// A small random model, whose choices at temperature 1 are noise, with a trained vocabulary and a chat template. The
/// vocabulary has 272 entries, the model 320: tokens without text occur, as in models whose embedding is padded.
pub fn checkpoint() -> Checkpoint {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/llama");
    let Checkpoint { tokenizer, chat, .. } = Source::Path(folder).open().unwrap();
    let tiny = Source::parse("tiny:qwen3:3").unwrap().open().unwrap();
    Checkpoint { name: "some/folder/tiny/".into(), tokenizer, chat, ..tiny }
}

pub fn model(checkpoint: &Checkpoint) -> Arc<Model<Cpu>> {
    let backend = Arc::new(Cpu::new(Arithmetic::Sm90, 1).unwrap());
    Arc::new(Model::load(checkpoint, backend, LoadOptions::default(), &mut |_| ()).unwrap())
}

pub fn options() -> Options {
    Options { address: "127.0.0.1:0".parse().unwrap(), ..Options::default() }
}

pub struct TestServer {
    pub model: Arc<Model<Cpu>>,
    pub receipts: tempfile::TempDir,
    pub address: SocketAddr,
    pub app: Arc<App>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(options(), EngineConfig::default(), None)
    }

    /// `poison` is a token whose keys and values are made NaN.
    pub fn with(options: Options, config: EngineConfig, poison: Option<u32>) -> Self {
        let checkpoint = checkpoint();
        let model = model(&checkpoint);
        let fingerprint = model.plan().digest().to_string();
        let weights = model.clone();
        let mut device = DeviceModel::new(model, &config).unwrap();
        if let Some(token) = poison {
            device.poison(token);
        }
        let engine = Engine::new(device, config.clone()).unwrap();
        let mut served = Served::new(checkpoint, None, fingerprint);
        let receipts = tempfile::tempdir().unwrap();
        let identity = Arc::new(Identity::of(&weights, &served.tokenizer));
        served.receipts = Some(Receipts { identity: identity.clone(), folder: receipts.path().to_owned() });
        served.stage = Some(Box::new(Showroom::new(weights.clone(), identity)));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(Server::bind(engine, &config, served, options)).unwrap();
        let (address, app) = (server.address().unwrap(), server.app().clone());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(server.run(async { drop(stopped.await) }));
        });
        Self { model: weights, receipts, address, app, stop: Some(stop), thread: Some(thread) }
    }

    /// Shuts down as a signal would; returns when all answers are out.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Sends bytes and reads until the server closes.
    pub fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // A server that refuses early may close before all is sent.
        let _ = stream.write_all(bytes);
        Reply::read(&mut stream)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> Reply {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.raw(&post(path, body.to_string().as_bytes(), ""))
    }

    pub fn post_bytes(&self, path: &str, body: &[u8]) -> Reply {
        self.raw(&post(path, body, ""))
    }

    pub fn complete(&self, body: Value) -> Reply {
        self.post("/v1/completions", &body)
    }

    pub fn chat(&self, body: Value) -> Reply {
        self.post("/v1/chat/completions", &body)
    }

    /// Waits until nothing is in the engine or on its way.
    pub fn wait_idle(&self) {
        for _ in 0..3000 {
            if self.app.in_flight() == 0 && self.app.worker.live() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("in flight: {}, live: {}", self.app.in_flight(), self.app.worker.live());
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// The bytes of a POST.
pub fn post(path: &str, body: &[u8], headers: &str) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let mut buffer = [0; 1 << 16];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&buffer[..read]),
                // A refusal of a body that was not read to its end.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
            }
        }
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let Some(end) = end else { return Self { status: 0, head: String::new(), body: bytes.to_vec() } };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = &bytes[end + 4..];
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Self { status, head, body: if chunked { unchunked(body) } else { body.to_vec() } }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    /// The body of a successful reply.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// An error's status and the field it names, after a look at its shape.
    #[track_caller]
    pub fn refusal(&self) -> (u16, Option<String>) {
        let error = &self.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        (self.status, error["param"].as_str().map(str::to_owned))
    }

    /// Events of a stream.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        let lines = self.text().split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let mut events: Vec<&str> = lines.collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let Some(chunk) = bytes.get(end + 2..end + 2 + size) else { break };
        body.extend_from_slice(chunk);
        bytes = bytes.get(end + 4 + size..).unwrap_or_default();
    }
    body
}

/// A request for a completion of noise, which this random model continues with noise.
pub fn hot(prompt: &str, seed: u64, tokens: usize) -> Value {
    json!({ "prompt": prompt, "max_tokens": tokens, "temperature": 1.5, "seed": seed, "ignore_eos": true })
}

//! Real clients against the real binary: OpenAI's Python package (`clients/openai_client.py`) and curl, and signals.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `serve` in a process of its own.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("mini-engine"))
            .args(["serve", "--threads", "1", "--port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once(" at http://").unwrap_or_else(|| panic!("{line:?}")).1.to_owned();
        Self { child, address }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reference_model() -> String {
    format!("{}/tests/reference/qwen3", env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out.into_owned()
}

#[test]
fn curl_gets_an_answer_and_a_signal_ends_the_server_in_order() {
    let mut served = Served::start(&["--model", "tiny"]);
    let url = |path: &str| format!("http://{}{path}", served.address);
    let body = r#"{"prompt": "Same tree", "max_tokens": 300, "seed": 1, "ignore_eos": true}"#;
    let curl = |args: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--max-time", "60"]).args(args);
        curl
    };
    assert!(run(&mut curl(&[&url("/health")])).contains("\"ok\""));
    let json = "Content-Type: application/json";
    let expected = run(&mut curl(&["-H", json, "-d", body, &url("/v1/completions")]));
    let text = |reply: &str| serde_json::from_str::<serde_json::Value>(reply).unwrap()["choices"].clone();
    // The signal comes while an answer is on its way.
    let stream = body.replace("{", "{\"stream\": true, ");
    let mut streaming =
        curl(&["-N", "-H", json, "-d", &stream, &url("/v1/completions")]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(streaming.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    served.signal("-TERM");
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(streaming.wait().unwrap().success());
    assert_eq!(rest.iter().rev().find(|line| !line.is_empty()).unwrap(), "data: [DONE]");
    let events = std::iter::once(&first).chain(&rest).filter_map(|line| line.strip_prefix("data: {"));
    let joined: String =
        events.map(|event| text(&format!("{{{event}"))[0]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(joined, text(&expected)[0]["text"]);
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn bad_arguments_are_refused_with_code_2() {
    let refused = |args: &[&str], message: &str| {
        let output =
            Command::new(assert_cmd::cargo::cargo_bin!("mini-engine")).arg("serve").args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(message), "{err}");
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["--model", "tiny", "--port", &port], "in use");
    refused(&["--model", "tiny", "--port", "70000"], "70000");
    refused(&["--model", "tiny", "--api-key", ""], "--api-key: expected at least one character");
    refused(&["--model", "tiny", "--max-running", "0"], "running_max must be at least 1, got 0");
    refused(&["--model", "tiny", "--chunk", "0"], "step_rows_max must be at least 1, got 0");
    refused(&["--model", "tiny", "--page-tokens", "0"], "--page-tokens: expected at least 1, got 0");
    refused(&["--model", "tiny", "--max-connections", "0"], "--max-connections: expected 1 to");
    refused(&["--model", "tiny", "--kv-tokens", "0"], "pages must be at least 1, got 0");
}

#[test]
#[ignore = "needs the network, to install a Python package"]
fn the_openai_package_works_unchanged() {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openai");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    run(Command::new(venv.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet", "-r"])
        .arg(clients.join("requirements.txt")));
    let model = std::env::var("SAMETREE_CLIENT_MODEL").unwrap_or_else(|_| reference_model());
    let served = Served::start(&["--model", &model, "--api-key", "secret"]);
    let out = run(Command::new(venv.join("bin/python"))
        .arg(clients.join("openai_client.py"))
        .args([&format!("http://{}/v1", served.address), "secret"]));
    println!("{out}");
    assert!(out.ends_with("ok\n"), "{out}");
}

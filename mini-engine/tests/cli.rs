//! The command line, on the random model that needs neither files nor network.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn run_with<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, stdin: &[u8]) -> Ran {
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("mini-engine");
    let output = command.args(args).write_stdin(stdin).output().unwrap();
    Ran {
        code: output.status.code().expect("no signal"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(args: &[&str]) -> Ran {
    run_with(args, b"")
}

fn tiny(args: &[&str]) -> Ran {
    run(&[&["generate", "--model", "tiny", "--threads", "1"], args].concat())
}

/// Exit code 2, nothing on standard output, and one line that says what was expected and what came.
#[track_caller]
fn refused(ran: Ran, message: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.contains(message), "expected {message:?} in {:?}", ran.err);
    assert!(!ran.err.contains("panicked"));
}

#[test]
fn one_command_gives_one_text() {
    let args = ["--prompt", "Same tree, ", "--max-tokens", "20", "--temperature", "9", "--seed", "7", "--logprobs"];
    let once = tiny(&args);
    assert_eq!(once.code, 0, "{}", once.err);
    assert!(once.err.contains("end: length"), "{}", once.err);
    let tokens =
        |ran: &Ran| ran.err.lines().filter(|line| !line.contains("tokens")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(tokens(&once).len(), 20);
    for cut in [&["--chunk", "1"][..], &["--chunk", "3", "--page-tokens", "5"], &["--pages", "40"]] {
        let again = tiny(&[&args[..], cut].concat());
        assert_eq!((&again.out, tokens(&again)), (&once.out, tokens(&once)));
    }
    let other =
        tiny(&["--prompt", "Same tree, ", "--max-tokens", "20", "--temperature", "9", "--seed", "8", "--logprobs"]);
    assert_ne!(tokens(&other), tokens(&once));
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let args = ["generate", "--model", "tiny", "--threads", "1", "--max-tokens", "5", "--prompt"];
    let direct = run(&[&args[..], &["héllo"]].concat());
    let piped = run_with([&args[..], &["-"]].concat(), "héllo".as_bytes());
    assert_eq!((piped.code, piped.out), (0, direct.out));
    let broken = run_with([&args[..], &["-"]].concat(), b"ab\xffcd");
    refused(broken, "expected UTF-8, got an invalid sequence at byte 2 of standard input");
}

#[test]
fn bad_input_is_refused_with_code_2() {
    refused(tiny(&["--prompt", ""]), "prompt: expected at least one character, got none");
    refused(tiny(&["--prompt", &"x".repeat(5000)]), "prompt: expected fewer than 4096 tokens, the model's context");
    refused(tiny(&["--prompt", "x", "--max-tokens", "0"]), "max tokens: expected at least 1, got 0");
    refused(
        tiny(&["--prompt", "x", "--max-tokens", "500", "--pages", "2"]),
        "pool too small: 501 tokens of context need 8 pages of 64 tokens, the pool has 2",
    );
    refused(tiny(&["--prompt", "x", "--page-tokens", "0"]), "page_tokens must be at least 1, got 0");
    refused(tiny(&["--prompt", "x", "--chunk", "0"]), "step_rows_max must be at least 1, got 0");
    refused(tiny(&["--prompt", "x", "--pages", "18446744073709551615"]), "pages must be such that");
    refused(tiny(&["--prompt", "x", "--temperature=-1"]), "temperature must be a finite number of at least 0, got -1");
    refused(tiny(&["--prompt", "x", "--top-p", "NaN"]), "top_p must be above 0 and at most 1, got NaN");
    refused(tiny(&["--prompt", "x", "--chat"]), "has no chat template");
    refused(run(&["generate", "--model", "tiny", "--prompt", "x", "--threads", "1000000"]), "expected at most 1024");
    refused(run(&["generate", "--model", "no/such/model", "--prompt", "x"]), "no/such/model");
    refused(tiny(&["--prompt", "x", "--backend", "tpu"]), "cuda");
    refused(run(&["generate", "--model", "tiny:mamba", "--prompt", "x"]), "tiny:llama");
    refused(
        run(&["determinism", "--model", "tiny", "--json", "/no/such/folder/report.json"]),
        "/no/such/folder/report.json",
    );
    refused(run(&["determinism", "--model", "tiny", "--break", "luck"]), "k-split-by-batch");
    let args =
        ["generate".as_ref(), "--model".as_ref(), "tiny".as_ref(), "--prompt".as_ref(), OsStr::from_bytes(b"\xff")];
    refused(run_with(args, b""), "invalid UTF-8");
}

#[test]
fn extreme_numbers_are_harmless() {
    for extreme in [
        &["--temperature", "1e-40"][..],
        &["--temperature", "3e38"],
        &["--temperature", "1", "--top-k", "4294967295"],
        &["--temperature", "1", "--top-p", "1e-30"],
        &["--temperature", "1", "--min-p", "1"],
        &["--chunk", "18446744073709551615"],
        &["--page-tokens", "100000"],
        &["--seed", "18446744073709551615"],
    ] {
        let ran = tiny(&[&["--prompt", "x", "--max-tokens", "4"], extreme].concat());
        assert_eq!(ran.code, 0, "{extreme:?}: {}", ran.err);
    }
    // The continuation ends with the model's context, whatever was asked for.
    let ran = tiny(&["--prompt", &"x".repeat(4090), "--max-tokens", "18446744073709551615", "--ignore-eos"]);
    assert!(ran.code == 0 && ran.err.contains("generated: 5 tokens"), "{}", ran.err);
    // More memory than any machine has.
    let ran = tiny(&["--prompt", "x", "--max-tokens", "1", "--pages", "60000000"]);
    assert!(ran.code == 1 && !ran.err.contains("panicked"), "{} {}", ran.code, ran.err);
}

#[test]
fn a_stop_string_ends_the_text() {
    let free = tiny(&["--prompt", "abc", "--max-tokens", "12", "--temperature", "1", "--ignore-eos"]);
    assert_eq!(free.code, 0);
    let text = free.out.trim_end_matches('\n');
    let stop: String = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let stopped =
        tiny(&["--prompt", "abc", "--max-tokens", "12", "--temperature", "1", "--ignore-eos", "--stop", &stop]);
    assert_eq!(stopped.out.trim_end_matches('\n'), &text[..text.find(&stop).unwrap()]);
}

#[test]
fn determinism_holds_and_writes_a_report() {
    for (model, arithmetic) in [("tiny:qwen2", "sm90"), ("tiny:llama", "sm80"), ("tiny:qwen3", "ieee")] {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("report.json");
        let args = ["determinism", "--quick", "--threads", "2", "--model", model, "--arithmetic", arithmetic, "--json"];
        let ran = run(&[&args[..], &[json.to_str().unwrap()]].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        assert!(ran.out.ends_with("all equal\n"), "{}", ran.out);
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        let relations = report.as_array().unwrap();
        assert!(relations.len() > 20);
        for relation in relations {
            let keys: Vec<&str> = relation.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["relation", "pairs", "equal", "different", "invalid"]);
            assert!(relation["pairs"].as_u64().unwrap() > 0);
            assert_eq!(relation["pairs"], relation["equal"]);
        }
    }
}

#[test]
fn every_deliberate_fault_is_caught_and_named() {
    for (kind, relation) in [
        ("k-split-by-batch", "prefill or decode"),
        ("kv-split-by-batch", "prefill or decode"),
        ("wrong-page", "batch of 8"),
        ("stale-page", "cache, another suffix"),
        ("unchecked-page", "preemption"),
        ("sample-index", "neighbours' sampling"),
        ("ignored-fault", "a neighbour's NaN"),
        ("no-pressure", "preemption"),
    ] {
        let ran = run(&["determinism", "--model", "tiny", "--quick", "--threads", "1", "--break", kind]);
        assert_eq!(ran.code, 1, "{kind} was not caught: {}{}", ran.out, ran.err);
        let verdict = ran.out.lines().last().unwrap();
        assert!(verdict.starts_with("NOT equal: ") && verdict.contains(relation), "{kind}: {verdict}");
    }
}

#[test]
fn the_demo_ends_with_all_equal() {
    let ran = run(&["demo", "--model", "tiny:qwen3", "--threads", "2"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("> The capital of France is") && ran.out.ends_with("all equal\n"));
}

#[test]
fn a_bench_proves_itself_and_arrivals_change_no_logits() {
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("bench.json"), folder.path().join("bench.svg"));
    let args = ["bench", "--model", "tiny:qwen3", "--threads", "1", "--prefill", "2x40", "--decode", "1x20,3x20"];
    let more = ["--steps", "4", "--bandwidth", "1e10", "--rate", "300", "--kv-memory", "64MiB"];
    let files = ["--json", json.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let ran = run(&[&args[..], &more, &files].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let lines = report["lines"].as_array().unwrap();
    let names: Vec<&str> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
    let expected =
        ["prefill 2x40", "decode 1x20", "decode 3x20", "sessions 2 x 2 turns", "mixed 4, at once", "mixed 4, 300/s"];
    assert_eq!(names, expected);
    assert!(lines.iter().all(|line| line["tokens_equal"] == true && line["seconds"].as_f64().unwrap() > 0.0));
    assert_eq!(lines[4]["logits_digest"], lines[5]["logits_digest"]);
    assert_eq!(lines[2]["generated_tokens"], 15);
    assert!(lines[3]["cached_tokens"].as_u64().unwrap() >= 64 && lines[1]["share_of_limit"].as_f64().unwrap() > 0.0);
    assert!(std::fs::read_to_string(svg).unwrap().trim_end().ends_with("</svg>"));
    refused(run(&["bench", "--model", "tiny", "--prefill", "3"]), "two numbers such as 8x1024");
    refused(run(&["bench", "--model", "tiny", "--decode", "1x5000"]), "expected at most 4096 positions");
    refused(run(&["bench", "--model", "tiny", "--kv-memory", "1TB"]), "expected a share between 0 and 1 or a size");
}

#[test]
fn a_short_soak_is_sound() {
    let args =
        ["soak", "--model", "tiny:qwen2", "--threads", "1", "--seconds", "3", "--prompt", "200", "--pages", "12"];
    let ran = run(&args);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains(" 0 different") && ran.out.ends_with("sound\n"), "{}", ran.out);
    refused(run(&["soak", "--model", "tiny", "--pages", "2"]), "--pages: expected at least 11, one request, got 2");
    refused(run(&["soak", "--model", "tiny", "--live", "0"]), "--live: expected at least 1, got 0");
}

#[test]
fn random_models_of_published_shapes_run() {
    let ran = run(&["generate", "--model", "random:qwen2.5-0.5b,layers=1", "--prompt", "x", "--max-tokens", "2"]);
    assert!(ran.code == 0 && ran.err.contains("generated: 2 tokens"), "{}", ran.err);
    refused(run(&["generate", "--model", "random:gpt", "--prompt", "x"]), "llama-3.1-8b, qwen3-8b");
}

/// A machine with a GPU and a driver passes the other tests of `--backend cuda`; here the message counts.
#[test]
fn a_missing_gpu_is_an_error_in_words() {
    let ran = tiny(&["--prompt", "x", "--max-tokens", "1", "--backend", "cuda"]);
    if cfg!(not(feature = "cuda")) {
        refused(ran, "build with `cargo build --release -p mini-engine --features cuda`");
    } else if ran.code != 0 {
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(ran.err.starts_with("error: cuda: expected ") && !ran.err.contains("panicked"), "{}", ran.err);
    }
}

#[test]
fn trust_names_the_theorems_and_what_is_trusted() {
    let ran = run(&["trust"]);
    assert_eq!(ran.code, 0);
    assert_eq!(ran.out.trim_end(), include_str!("../../proofs/trust.txt").trim_end());
    // The page about the proofs says the same: every theorem, and every line count.
    let page = include_str!("../../proofs/README.md");
    let indented = || ran.out.lines().filter_map(|line| line.strip_prefix("  "));
    let theorems: Vec<&str> =
        indented().filter_map(|line| line.split_whitespace().next()).filter(|word| word.contains('_')).collect();
    assert!(theorems.len() >= 11, "{theorems:?}");
    for name in theorems {
        assert!(page.contains(&format!("`{name}`")) || page.contains(&format!(".{name}`")), "{name}");
    }
    let counted: Vec<&str> = indented().filter_map(|line| line.split_once(" lines)")).map(|(what, _)| what).collect();
    assert_eq!(counted.len(), 7);
    for what in counted {
        assert!(page.contains(&format!("{what} lines)")), "{what}");
    }
}

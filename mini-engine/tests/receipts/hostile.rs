//! Files that are no receipts, and receipts that no engine wrote: a message each, never a panic, bounded work.

use std::path::Path;

use mini_engine::receipt::{RECEIPT_BYTES_MAX, Receipt, parse};
use proptest::prelude::*;
use reduction_tree::arithmetic::Arithmetic;

use super::{Lab, Question};

fn original() -> String {
    Lab::new("tiny:qwen3", Arithmetic::Sm90).ask(&Question::warm("Same tree, ", 7)).to_json()
}

#[track_caller]
fn refused(bytes: &[u8], message: &str) {
    let error = parse(bytes).unwrap_err().to_string();
    assert!(error.contains(message), "expected {message:?} in {error:?}");
}

#[test]
fn every_truncation_is_refused() {
    let original = original();
    let whole = original.trim_end();
    for len in 0..whole.len() {
        assert!(parse(&whole.as_bytes()[..len]).is_err(), "{len} bytes of {} are a receipt", whole.len());
    }
    assert!(parse(whole.as_bytes()).is_ok());
}

#[test]
fn what_is_no_receipt_is_refused_with_the_reason() {
    let original = original();
    let with = |from: &str, to: &str| {
        assert!(original.contains(from), "{from}");
        original.replacen(from, to, 1).into_bytes()
    };
    refused(b"", "EOF while parsing");
    refused(b"\x89PNG\r\n\x1a\n\0\0", "expected UTF-8, got an invalid sequence at byte 0");
    refused(&[original.as_bytes(), b"\xff"].concat(), "expected UTF-8");
    refused(&[original.as_bytes(), b"{}"].concat(), "trailing characters");
    refused(b"null", "expected a receipt");
    refused(b"{}", "missing field `receipt`");
    refused("[".repeat(1_000_000).as_bytes(), "expected a receipt");
    refused(format!("{{\"receipt\":{{\"x\":{}", "[".repeat(1_000_000)).as_bytes(), "EOF while parsing a list");
    refused(&vec![b' '; RECEIPT_BYTES_MAX as usize + 1], "expected at most 16777216 bytes");
    refused(&with("\"version\": 1", "\"version\": 2"), "receipt.version: expected 1, got 2");
    refused(&with("\"version\": 1", "\"version\": -1"), "receipt.version: expected a receipt: invalid value");
    refused(&with("\"version\": 1,", ""), "missing field `version`");
    refused(&with("\"version\": 1,", "\"version\": 1, \"version\": 1,"), "duplicate field `version`");
    refused(&with("\"top_k\"", "\"topk\""), "receipt.sampling.topk: expected a receipt: unknown field `topk`");
    refused(&with("\"top_k\": 200,", ""), "receipt.sampling: expected a receipt: missing field `top_k`");
    refused(&with("\"top_k\": 200", "\"top_k\": 1099511627776"), "receipt.sampling.top_k: expected a receipt");
    refused(&with("\"top_p\": 0.99", "\"top_p\": 0.990000001"), "expected the shortest decimal of a finite binary32");
    refused(&with("\"temperature\": 40.0", "\"temperature\": 1e300"), "expected the shortest decimal");
    refused(&with("\"temperature\": 40.0", "\"temperature\": -0.0"), "expected the shortest decimal");
    refused(&with("\"temperature\": 40.0", "\"temperature\": 1e999"), "number out of range");
    refused(&with("\"seed\": \"7\"", "\"seed\": 7"), "receipt.sampling.seed");
    refused(&with("\"seed\": \"7\"", "\"seed\": \"07\""), "digits of a 64-bit seed in quotes, got \"07\"");
    refused(&with("\"seed\": \"7\"", "\"seed\": \"18446744073709551616\""), "digits of a 64-bit seed");
    refused(&with("\"max_tokens\": 10", "\"max_tokens\": 1099511627776"), "receipt.sampling.max_tokens");
    refused(
        &with("\"end\": \"length\"", "\"end\": \"bored\""),
        "receipt.output.end: expected a receipt: unknown variant",
    );
    refused(&with("\"source\": \"text\"", "\"source\": \"\\ud800\""), "receipt.prompt.source");
    let receipt: Receipt = parse(original.as_bytes()).unwrap();
    let digest = receipt.digest.to_string();
    refused(&with(&digest, &digest.to_uppercase()), "digest: expected a receipt: expected 64 lowercase hexadecimal");
    refused(&with(&digest, "ff"), "expected 64 lowercase hexadecimal digits, got \"ff\"");
}

#[test]
fn well_formed_nonsense_is_audited_without_harm() {
    let lab = Lab::new("tiny:qwen3", Arithmetic::Sm90);
    let original = lab.ask(&Question::warm("Same tree, ", 7));
    let auditor = lab.auditor();
    let found = |change: &dyn Fn(&mut mini_engine::receipt::Body)| {
        let mut body = original.receipt.clone();
        change(&mut body);
        let audit = auditor.audit(&Receipt::seal(body.clone())).unwrap();
        assert!(!audit.equal, "{body:?}");
        let finding = &audit.findings[0];
        format!("{}: {}", finding.field, finding.message)
    };
    insta::assert_snapshot!(
        [
            found(&|body| body.prompt.tokens = vec![u32::MAX; 20]),
            found(&|body| body.prompt.tokens.clear()),
            found(&|body| body.prompt.tokens = vec![1; 1_000_000]),
            found(&|body| body.output.tokens.clear()),
            found(&|body| body.output.tokens[9] = 320),
            found(&|body| {
                body.output.tokens = vec![1; 100_000];
                body.output.logits = vec![body.digest(); 100_000];
            }),
            found(&|body| body.output.logits.clear()),
            found(&|body| body.sampling.max_tokens = 0),
            found(&|body| body.sampling.max_tokens = u32::MAX),
            found(&|body| body.sampling.temperature = -1.0),
            found(&|body| body.sampling.top_k = Some(0)),
            found(&|body| body.sampling.top_p = 0.0),
            found(&|body| body.sampling.min_p = 2.0),
            found(&|body| body.sampling.repetition_penalty = 0.0),
            found(&|body| body.sampling.logit_bias.reverse()),
            found(&|body| body.sampling.logit_bias[1].token = 400),
            found(&|body| body.sampling.logit_bias[1].bias = f32::MAX),
            found(&|body| body.sampling.stop_tokens = vec![3, 3]),
            found(&|body| body.sampling.stop_tokens = vec![400]),
            found(&|body| body.sampling.stop_strings = vec![String::new()]),
            found(&|body| body.sampling.stop_strings = vec!["x".into(); 5000]),
            found(&|body| body.prompt.text = None),
            found(&|body| body.prompt.source = mini_engine::receipt::PromptSource::Tokens),
            found(&|body| body.prompt.source = mini_engine::receipt::PromptSource::Template),
            found(&|body| body.plan.operators.clear()),
        ]
        .join("\n")
    );
}

fn audit(args: &[&Path]) -> (i32, String, String) {
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("mini-engine");
    let output = command.args(["audit", "--model", "tiny:qwen3", "--threads", "1"]).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_has_a_code_for_equal_different_and_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let original = original();
    std::fs::write(path("good.json"), &original).unwrap();
    std::fs::write(path("bad.json"), original.replacen("\"seed\": \"7\"", "\"seed\": \"8\"", 1)).unwrap();
    std::fs::write(path("broken.json"), "{").unwrap();
    let (code, out, err) = audit(&[&path("good.json")]);
    assert!(code == 0 && out.contains("good.json: equal: 10 of 10 positions by bits"), "{out}{err}");
    let (code, out, _) = audit(&[&path("good.json"), &path("bad.json")]);
    assert!(code == 1 && out.contains("good.json: equal") && out.contains("  sampling: expected settings"), "{out}");
    let (code, out, err) = audit(&[&path("broken.json"), &path("good.json"), &path("none.json")]);
    assert!(code == 2 && out.contains("good.json: equal"), "{out}{err}");
    assert!(err.contains("broken.json: expected a receipt") && err.contains("none.json: No such file"), "{err}");
    assert_eq!(audit(&[]).0, 2);
    let (code, out, _) = audit(&[Path::new("--json"), &path("bad.json")]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report[0]["equal"].as_bool(), report[0]["positions"].as_u64()), (1, Some(false), Some(10)));
    assert_eq!(report[0]["findings"][0]["field"], "digest");
}

proptest! {
    /// One byte of a receipt is replaced, or a piece of it repeated: refused, or different, or the same record.
    #[test]
    fn no_edit_of_the_bytes_passes(at in 0usize..4000, byte in any::<u8>(), len in 0usize..40) {
        thread_local! {
            static LAB: (Lab, Receipt, String) = {
                let lab = Lab::new("tiny:qwen3", Arithmetic::Sm90);
                let receipt = lab.ask(&Question { tokens_max: 2, ..Question::warm("ab", 7) });
                let json = receipt.to_json();
                (lab, receipt, json)
            };
        }
        LAB.with(|(lab, receipt, json)| {
            let mut bytes = json.clone().into_bytes();
            let at = at % bytes.len();
            if len == 0 {
                bytes[at] = byte;
            } else {
                let piece = bytes[at..(at + len).min(json.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            if let Ok(changed) = parse(&bytes) {
                prop_assert_eq!(changed == *receipt, lab.audit(&changed).equal);
            }
            Ok(())
        })?;
    }
}

#[test]
fn text_that_the_tokens_cannot_hold_is_not_cut_into_tokens() {
    let lab = Lab::new("tiny:qwen3", Arithmetic::Sm90);
    let mut body = lab.ask(&Question::warm("Same tree, ", 7)).receipt;
    body.prompt.text = Some("tree ".repeat(1 << 20));
    let audit = lab.audit(&Receipt::seal(body));
    let fields: Vec<&str> = audit.findings.iter().map(|finding| finding.field.as_str()).collect();
    assert_eq!(fields, ["prompt.text"]);
    assert!(audit.findings[0].message.contains("5242880 bytes"), "{:?}", audit.findings);
}

//! Every field of a receipt is changed, once as a careless editor would, once with the digest made again over the change.

use std::collections::{BTreeMap, BTreeSet};

use kernels_rs::cpu::Cpu;
use mini_engine::engine::Sampling;
use mini_engine::receipt::{Audit, Auditor, Body, Digest, Receipt, parse};
use reduction_tree::arithmetic::Arithmetic;
use serde_json::Value;

use super::{Lab, Question};

/// A receipt in which every optional field has a value, and in which the settings matter.
fn specimen(lab: &Lab) -> Receipt {
    let question = Question { stops: vec!["never said".into()], ..Question::warm("Same tree, ", 7) };
    lab.ask(&question)
}

/// Where a value is in a document, such as `/receipt/output/tokens/3`.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| pointers(value, &format!("{at}/{name}"), out)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| pointers(value, &format!("{at}/{index}"), out));
        }
        _ => {}
    }
}

/// Changed values in place of one: of the same kind, so that the document stays a receipt where that is possible.
fn changes(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![Value::from("x"), Value::from(1), serde_json::json!([0, 1])],
        Value::Bool(flag) => vec![Value::from(!flag)],
        Value::Number(number) => match number.as_u64() {
            Some(whole) => vec![Value::from(whole + 1), Value::from(whole.saturating_sub(1)), Value::from(u32::MAX)],
            // Exact in binary32, so that they are receipts.
            None => [0.5, 0.25, 0.0, 100.0, 3000.0].map(Value::from).to_vec(),
        },
        Value::String(text) => {
            let flipped: String = text.chars().rev().collect();
            let digit = text.replacen(['1', '2', '3'], "4", 1);
            let names = ["sm80", "ieee", "length", "stop-token", "stop-string", "tokens", "template", "text"];
            let others = names.into_iter().filter(|_| names.contains(&text.as_str()) || text == "sm90");
            let number = text.parse().map_or(text.clone(), |number: u64| (number ^ 1).to_string());
            let edits = [flipped, number, digit, format!("{text}x"), String::new()].into_iter();
            edits.chain(others.map(str::to_owned)).map(Value::from).collect()
        }
        Value::Array(items) => {
            let last = items.last().into_iter().cloned();
            let mut lists = vec![items.iter().cloned().chain(last).collect(), items.iter().rev().cloned().collect()];
            lists.extend(items.len().checked_sub(1).map(|fewer| items[..fewer].to_vec()));
            lists.into_iter().map(Value::Array).collect()
        }
        Value::Object(fields) => {
            let mut extra = fields.clone();
            extra.insert("extra".into(), Value::Null);
            let removed = fields.keys().map(|name| {
                let mut fewer = fields.clone();
                fewer.remove(name);
                fewer
            });
            std::iter::once(extra).chain(removed).map(Value::Object).collect()
        }
    }
}

/// The name of a field with every index replaced.
fn generic(pointer: &str) -> String {
    let parts = pointer.trim_start_matches('/').split('/');
    parts.map(|part| if part.parse::<usize>().is_ok() { "*" } else { part }).collect::<Vec<_>>().join(".")
}

fn resigned(changed: &Receipt) -> Receipt {
    Receipt::seal(changed.receipt.clone())
}

fn fields(audit: &Audit) -> Vec<&str> {
    audit.findings.iter().map(|finding| finding.field.as_str()).collect()
}

#[test]
fn every_field_is_covered() {
    let lab = Lab::new("tiny:qwen3", Arithmetic::Sm90);
    let original = specimen(&lab);
    let auditor = lab.auditor();
    super::assert_equal(&auditor.audit(&original).unwrap());
    let document = serde_json::to_value(&original).unwrap();
    let mut all = Vec::new();
    pointers(&document, "", &mut all);
    let mut how: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for pointer in all {
        for change in changes(document.pointer(&pointer).unwrap()) {
            let mut changed = document.clone();
            *changed.pointer_mut(&pointer).unwrap() = change.clone();
            if changed == document {
                continue;
            }
            let noticed = how.entry(generic(&pointer)).or_default();
            let Ok(changed) = parse(changed.to_string().as_bytes()) else {
                noticed.insert("is no receipt");
                continue;
            };
            let audit = auditor.audit(&changed).unwrap();
            assert!(fields(&audit).contains(&"digest"), "{pointer} = {change}: {:?}", audit.findings);
            if pointer.starts_with("/receipt") {
                let audit = auditor.audit(&resigned(&changed)).unwrap();
                assert!(!fields(&audit).contains(&"digest"));
                noticed.insert(if audit.equal { "digest only" } else { "run again" });
            }
        }
    }
    let table: Vec<String> = how
        .into_iter()
        .map(|(field, noticed)| format!("{field}: {}", noticed.into_iter().collect::<Vec<_>>().join(", ")))
        .collect();
    // `digest only` are changes that leave the output as it is: the changed receipt is true as well.
    insta::assert_snapshot!(table.join("\n"));
}

#[track_caller]
fn named(auditor: &Auditor<'_, Cpu>, original: &Receipt, field: &str, change: impl FnOnce(&mut Body)) {
    let mut changed = original.clone();
    change(&mut changed.receipt);
    assert_ne!(changed.receipt, original.receipt);
    let careless = auditor.audit(&changed).unwrap();
    assert!(fields(&careless).contains(&"digest"));
    let audit = auditor.audit(&Receipt::seal(changed.receipt)).unwrap();
    assert!(!audit.equal);
    let first = &audit.findings[0];
    assert_eq!(first.field, field, "{:#?}", audit.findings);
    assert!(first.message.contains("expected"), "{first:?}");
}

/// The digest is made again after each change, so it is the audit's run that names the field.
#[test]
fn every_forgery_is_named() {
    let lab = Lab::new("tiny:qwen3", Arithmetic::Sm90);
    let (original, auditor) = (specimen(&lab), lab.auditor());
    let other = Digest::parse(&"5".repeat(64)).unwrap();
    let (last, vocab) = (original.receipt.output.tokens.len() - 1, 320);
    let named = |field: &str, change: &dyn Fn(&mut Body)| named(&auditor, &original, field, change);
    named("model", &|body| body.model = other);
    named("tokenizer", &|body| body.tokenizer = other);
    named("arithmetic", &|body| body.arithmetic = "sm80".into());
    named("arithmetic", &|body| body.arithmetic = "tf32".into());
    named("plan.digest", &|body| body.plan.digest = other);
    named("plan.operators[3].tree", &|body| body.plan.operators[3].tree = other);
    named("plan.operators[4].name", &|body| body.plan.operators[4].name = "qkv".into());
    named("plan.operators[5].layers", &|body| body.plan.operators[5].layers = Some([0, 1]));
    named("plan.operators", &|body| body.plan.operators.truncate(3));
    named("prompt.tokens[4]", &|body| body.prompt.text = Some("Sam tree, ".into()));
    named("prompt.tokens[2]", &|body| body.prompt.tokens[2] = 66);
    named("prompt.tokens", &|body| {
        // Nothing is left that says what the tokens should be but their logits.
        body.prompt.source = mini_engine::receipt::PromptSource::Tokens;
        body.prompt.text = None;
        body.prompt.tokens[2] = 66;
    });
    named("prompt.tokens[3]", &|body| body.prompt.tokens[3] = vocab);
    named("sampling", &|body| body.sampling.seed ^= 1);
    named("sampling", &|body| body.sampling.temperature = 1.0);
    named("sampling", &|body| body.sampling.logit_bias[1].bias = 5000.0);
    named("sampling.top_p", &|body| body.sampling.top_p = 1.5);
    named("output.end", &|body| body.sampling.max_tokens += 1);
    named("output.tokens", &|body| body.sampling.max_tokens -= 1);
    named("output.text", &|body| body.output.text = body.output.text.replacen(|_| true, "?", 1));
    named("output.end", &|body| body.output.end = mini_engine::receipt::End::StopToken);
    named("output.logits[4]", &|body| body.output.logits[4] = other);
    named(&format!("output.logits[{last}]"), &|body| body.output.logits[last] = other);
    named("output.logits", &|body| body.output.logits.truncate(3));
    // With its text, so that only the choice is wrong.
    for index in [3, last] {
        named(&format!("output.tokens[{index}]"), &|body| {
            body.output.tokens[index] ^= 1;
            body.output.text = lab.tokenizer.decode(&body.output.tokens);
        });
    }
}

/// What a receipt cannot say: a setting without effect may have been another. The receipt is as true with it.
#[test]
fn a_setting_without_effect_is_not_noticed_once_the_digest_is_made_again() {
    let lab = Lab::new("tiny:qwen3", Arithmetic::Sm90);
    let greedy = lab.ask(&Question { sampling: Sampling::default(), ..Question::warm("abc", 0) });
    let mut changed = greedy.clone();
    changed.receipt.sampling.seed = 99;
    assert!(!lab.audit(&changed).equal);
    let resealed = resigned(&changed);
    super::assert_equal(&lab.audit(&resealed));
    let really =
        lab.ask(&Question { sampling: Sampling { seed: 99, ..Sampling::default() }, ..Question::warm("abc", 0) });
    assert_eq!(resealed, really);
}

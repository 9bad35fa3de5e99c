//! From what was computed again to the field that must have been changed. A row depends on every token before it, so the
//! pattern of equal and different rows says where a change lies.

use super::audit::Finding;
use super::schema::Body;

/// What became of each output position.
#[derive(Debug)]
pub(super) struct Positions {
    /// Whether the row's digest is the receipt's.
    pub logits_equal: Vec<bool>,
    /// What the sampling chooses from the row; `None` where no row was computed.
    pub chosen: Vec<Option<u32>>,
    /// Why the model could not compute the rows.
    pub failure: Option<String>,
}

impl Positions {
    pub(super) fn new(count: usize) -> Self {
        Self { logits_equal: vec![false; count], chosen: vec![None; count], failure: None }
    }
}

/// The fields that differ. `explained` says that a cause of different logits is already known.
pub(super) fn blame(body: &Body, positions: &Positions, explained: bool) -> Vec<Finding> {
    if let Some(failure) = &positions.failure {
        return vec![finding("output", format!("expected finite values, got: {failure}"))];
    }
    let different: Vec<usize> =
        positions.logits_equal.iter().enumerate().filter(|(_, equal)| !**equal).map(|(index, _)| index).collect();
    match different.first() {
        // With other weights, trees or a known change of the prompt nothing more can be said.
        Some(&first) if explained => {
            let count = format!("{} of {} positions differ", different.len(), body.output.tokens.len());
            vec![finding(format!("output.logits[{first}]"), format!("{count}, as the fields above let expect"))]
        }
        Some(&first) => blame_logits(body, positions, first),
        None => blame_choice(body, positions).into_iter().collect(),
    }
}

/// The first different row, where model, plan and the prompt's text are not at fault.
fn blame_logits(body: &Body, positions: &Positions, first: usize) -> Vec<Finding> {
    let last = body.output.tokens.len() - 1;
    // A later row is right, so every token before it is, and only a digest can be wrong.
    let tokens_right = first < last && positions.logits_equal[first + 1..].contains(&true);
    let mut findings = Vec::new();
    if tokens_right {
        let digest = body.output.logits[first];
        findings.push(finding(
            format!("output.logits[{first}]"),
            format!("expected another digest, got {digest}; later rows are equal, so the tokens are right"),
        ));
        findings.extend(blame_choice(body, positions));
        return findings;
    }
    // The token before the first different row, if the sampling would not choose it.
    let before = first.checked_sub(1).filter(|&before| positions.chosen[before] != Some(body.output.tokens[before]));
    match before {
        Some(index) => findings.push(wrong_token(body, positions, index, "and all logits after it differ")),
        None if first == 0 && last > 0 => findings.push(finding(
            "prompt.tokens",
            "expected the tokens that these logits are of; every position differs, so the prompt's tokens or every digest in output.logits was changed",
        )),
        None => findings.push(finding(
            format!("output.logits[{first}]"),
            format!("expected another digest, got {}; this digest was changed{}", body.output.logits[first], if first == 0 { ", or prompt.tokens" } else { "" }),
        )),
    }
    findings
}

/// The first token that the sampling would not choose.
fn blame_choice(body: &Body, positions: &Positions) -> Option<Finding> {
    let tokens = &body.output.tokens;
    let index = (0..tokens.len()).find(|&index| positions.chosen[index] != Some(tokens[index]))?;
    if index + 1 == tokens.len() {
        return Some(wrong_token(body, positions, index, "so this last token or a field of sampling was changed"));
    }
    let message = format!(
        "expected settings that choose token {} at output position {index}, whose successors have the right logits; these choose {}",
        tokens[index],
        shown(positions.chosen[index])
    );
    Some(finding("sampling", message))
}

fn wrong_token(body: &Body, positions: &Positions, index: usize, consequence: &str) -> Finding {
    let message = format!(
        "expected {}, which the logits and the sampling give, got {}, {consequence}",
        shown(positions.chosen[index]),
        body.output.tokens[index]
    );
    finding(format!("output.tokens[{index}]"), message)
}

fn shown(token: Option<u32>) -> String {
    token.map_or("nothing".to_owned(), |token| token.to_string())
}

fn finding(field: impl Into<String>, message: impl Into<String>) -> Finding {
    Finding { field: field.into(), message: message.into() }
}

//! The page's experiment: alone and in crowds one answer, and with the broken engine not.

use std::sync::Arc;

use kernels_rs::cpu::Cpu;
use mini_engine::model::{Checkpoint, LoadOptions, Model, Source};
use mini_engine::receipt::{Auditor, Identity, Receipt};
use mini_engine::showroom::{Ask, Line, Showroom, Stage, Token, Voice};
use reduction_tree::arithmetic::Arithmetic;

struct Lab {
    checkpoint: Checkpoint,
    model: Arc<Model<Cpu>>,
    showroom: Showroom<Cpu>,
}

/// What a visitor sees.
#[derive(Default)]
struct Seen {
    lanes: Vec<Vec<Token>>,
    receipts: Vec<String>,
    receipt: Option<Receipt>,
    strangers: usize,
    late: usize,
    left: usize,
}

impl Lab {
    fn new(source: &str) -> Self {
        let checkpoint = Source::parse(source).unwrap().open().unwrap();
        let backend = Arc::new(Cpu::new(Arithmetic::Sm90, 1).unwrap());
        let model = Arc::new(Model::load(&checkpoint, backend, LoadOptions::default(), &mut |_| {}).unwrap());
        let identity = Arc::new(Identity::of(&model, &checkpoint.tokenizer));
        Self { showroom: Showroom::new(model.clone(), identity), checkpoint, model }
    }

    fn visit(&self, ask: &Ask) -> Seen {
        ask.check().unwrap();
        let voice = Voice {
            tokenizer: &self.checkpoint.tokenizer,
            chat: self.checkpoint.chat.as_ref(),
            eos: &self.checkpoint.config.eos,
        };
        let mut seen = Seen::default();
        let mut emit = |line: Line| {
            match line {
                Line::Token { lane, token } => {
                    seen.lanes.resize(seen.lanes.len().max(lane + 1), Vec::new());
                    seen.lanes[lane].push(token);
                }
                Line::End { end, .. } => {
                    seen.receipts.push(end.receipt.to_string());
                    seen.strangers += end.strangers;
                    seen.late += end.late;
                    seen.left += end.left;
                }
                Line::Receipt { receipt } => seen.receipt = Some(*receipt),
            }
            true
        };
        self.showroom.run(voice, ask, &mut emit).unwrap();
        seen
    }
}

fn ask(broken: bool) -> Ask {
    Ask {
        prompt: "What does a tree of additions look like?".into(),
        max_tokens: 24,
        temperature: 2.0,
        seed: 5,
        crowds: 3,
        others: 9,
        crowd_seed: 77,
        broken,
    }
}

fn logits(lane: &[Token]) -> Vec<String> {
    lane.iter().map(|token| token.logits.to_string()).collect()
}

#[test]
fn crowds_change_nothing() {
    for source in ["tiny:llama", "tiny:qwen3"] {
        let lab = Lab::new(source);
        let seen = lab.visit(&ask(false));
        assert_eq!((seen.lanes.len(), seen.receipts.len()), (4, 4));
        for lane in &seen.lanes[1..] {
            assert_eq!(logits(lane), logits(&seen.lanes[0]));
            assert!(lane.iter().all(|token| token.others > 0), "a token was computed alone");
        }
        let receipt = seen.receipt.unwrap();
        assert!(seen.receipts.iter().all(|digest| *digest == receipt.digest.to_string()));
        assert!(seen.strangers > 20 && seen.late > 0 && seen.left > 0);
        assert!(Auditor::new(&lab.model, &lab.checkpoint.tokenizer).audit(&receipt).unwrap().equal);
    }
}

#[test]
fn the_broken_engine_is_seen_to_be_broken() {
    for source in ["tiny:llama", "tiny:qwen3"] {
        let lab = Lab::new(source);
        let seen = lab.visit(&ask(true));
        for lane in &seen.lanes[1..] {
            assert_ne!(logits(lane), logits(&seen.lanes[0]));
        }
        let audit = Auditor::new(&lab.model, &lab.checkpoint.tokenizer).audit(&seen.receipt.unwrap()).unwrap();
        assert!(!audit.equal && audit.first_different.is_some());
        // The weights are shared, and the sound engine is as sound as before.
        let again = lab.visit(&ask(false));
        assert_eq!(logits(&again.lanes[1]), logits(&again.lanes[0]));
    }
}

#[test]
fn a_visitor_who_leaves_ends_the_work_and_absurd_wishes_are_refused() {
    let lab = Lab::new("tiny");
    let voice = Voice { tokenizer: &lab.checkpoint.tokenizer, chat: None, eos: &[] };
    let mut lines = 0;
    let mut emit = |_| {
        lines += 1;
        lines < 3
    };
    lab.showroom.run(voice, &ask(false), &mut emit).unwrap();
    assert_eq!(lines, 3);
    let refused = |change: &dyn Fn(&mut Ask)| {
        let mut ask = ask(false);
        change(&mut ask);
        ask.check().unwrap_err().to_string()
    };
    assert_eq!(refused(&|ask| ask.prompt.clear()), "prompt: expected 1 to 4000 bytes, got 0 bytes");
    assert_eq!(refused(&|ask| ask.prompt = "x".repeat(9000)), "prompt: expected 1 to 4000 bytes, got 9000 bytes");
    assert_eq!(refused(&|ask| ask.max_tokens = 0), "max_tokens: expected 1 to 64, got 0");
    assert_eq!(
        refused(&|ask| ask.max_tokens = usize::MAX),
        format!("max_tokens: expected 1 to 64, got {}", usize::MAX)
    );
    assert_eq!(refused(&|ask| ask.crowds = 5), "crowds: expected 0 to 4, got 5");
    assert_eq!(refused(&|ask| ask.others = 0), "others: expected 1 to 16, got 0");
    assert_eq!(refused(&|ask| ask.temperature = f32::NAN), "temperature: expected 0 to 2, got NaN");
}

//! Receipts and their audit, on random models: what is equal passes, whatever is changed is noticed, whatever is no receipt
//! is refused.

mod hostile;
mod load;
mod tampering;

use std::sync::Arc;

use kernels_rs::cpu::Cpu;
use mini_engine::device_model::DeviceModel;
use mini_engine::engine::adjust::Adjust;
use mini_engine::engine::{Engine, EngineConfig, Event, Finish, Request, RequestId, Sampling};
use mini_engine::model::{LoadOptions, Model, Source, StreamDecoder, Tokenizer};
use mini_engine::receipt::{Audit, Auditor, End, Identity, PromptSource, Receipt, Recorder};
use mini_engine::stop::StopMatcher;
use reduction_tree::arithmetic::Arithmetic;

/// A loaded random model with what receipts need of it.
struct Lab {
    model: Arc<Model<Cpu>>,
    tokenizer: Tokenizer,
    identity: Arc<Identity>,
    context: usize,
}

impl Lab {
    fn new(source: &str, arithmetic: Arithmetic) -> Self {
        let checkpoint = Source::parse(source).unwrap().open().unwrap();
        let backend = Arc::new(Cpu::new(arithmetic, 1).unwrap());
        let model = Arc::new(Model::load(&checkpoint, backend, LoadOptions::default(), &mut |_| {}).unwrap());
        let identity = Arc::new(Identity::of(&model, &checkpoint.tokenizer));
        Self { model, tokenizer: checkpoint.tokenizer, identity, context: checkpoint.config.context }
    }

    fn engine(&self, config: EngineConfig) -> Engine<DeviceModel<Cpu>> {
        Engine::new(DeviceModel::new(self.model.clone(), &config).unwrap(), config).unwrap()
    }

    /// The receipt of a question asked alone.
    fn ask(&self, question: &Question) -> Receipt {
        let mut engine = self.engine(EngineConfig { pages: 64, ..EngineConfig::default() });
        let mut answer = Answer::new(self, question);
        let id = engine.submit(answer.request.clone()).unwrap();
        loop {
            for event in engine.step().unwrap() {
                if let Some(receipt) = answer.take(event, || assert!(engine.cancel(id))) {
                    return receipt;
                }
            }
        }
    }

    fn audit(&self, receipt: &Receipt) -> Audit {
        self.auditor().audit(receipt).unwrap()
    }

    fn auditor(&self) -> Auditor<'_, Cpu> {
        Auditor::new(&self.model, &self.tokenizer)
    }
}

/// What a client asks.
#[derive(Clone, Debug)]
struct Question {
    text: String,
    sampling: Sampling,
    stops: Vec<String>,
    tokens_max: usize,
}

impl Question {
    /// Random enough that neighbouring tokens differ; the random models repeat themselves at low temperatures.
    fn warm(text: &str, seed: u64) -> Self {
        let adjust = Adjust {
            repetition_penalty: 1.5,
            frequency_penalty: 20.0,
            presence_penalty: 7.5,
            logit_bias: [(101, -30.0), (120, 25.0)].into(),
        };
        let sampling = Sampling { temperature: 40.0, top_k: Some(200), top_p: 0.99, min_p: 0.001, seed, adjust };
        Self { text: text.into(), sampling, stops: Vec::new(), tokens_max: 10 }
    }
}

/// A question on its way through an engine, with its receipt growing.
struct Answer<'a> {
    request: Request,
    recorder: Option<Recorder>,
    decoder: Option<StreamDecoder<'a>>,
    stops: StopMatcher,
    text: String,
}

impl<'a> Answer<'a> {
    fn new(lab: &'a Lab, question: &Question) -> Self {
        let request = Request {
            prompt: lab.tokenizer.encode_prompt(&question.text).unwrap(),
            sampling: question.sampling.clone(),
            stop_tokens: lab.model.config().eos.clone(),
            tokens_max: question.tokens_max,
            digest_logits: true,
            ..Request::default()
        };
        let text = Some(question.text.clone());
        let recorder =
            Recorder::new(lab.identity.clone(), &request, PromptSource::Text, text, &question.stops, lab.context);
        Self {
            request,
            recorder: Some(recorder),
            decoder: Some(lab.tokenizer.stream()),
            stops: StopMatcher::new(question.stops.iter().cloned()),
            text: String::new(),
        }
    }

    /// Takes an event of this request; `cancel` ends it in the engine. Returns the receipt when the answer is over.
    fn take(&mut self, event: Event, cancel: impl FnOnce()) -> Option<Receipt> {
        match event {
            Event::Token { committed, logits_digest, .. } => {
                self.recorder.as_mut()?.token(committed, logits_digest.unwrap());
                if self.request.stop_tokens.contains(&committed) {
                    return None;
                }
                let released = self.stops.push(&self.decoder.as_mut()?.push(committed));
                self.text += &released.text;
                released.stopped.then(|| {
                    cancel();
                    self.finish(End::StopString)
                })
            }
            Event::Finished { reason, .. } => {
                let released = self.stops.push(&self.decoder.take()?.finish());
                self.text += &released.text;
                if !released.stopped {
                    self.text += &std::mem::take(&mut self.stops).finish();
                }
                Some(self.finish(match reason {
                    Finish::Stop => End::StopToken,
                    Finish::Length if released.stopped => End::StopString,
                    Finish::Length => End::Length,
                }))
            }
            Event::Failed { failure, .. } => panic!("{failure}"),
            Event::Logits { .. } => None,
        }
    }

    fn finish(&mut self, end: End) -> Receipt {
        self.decoder = None;
        self.recorder.take().unwrap().finish(std::mem::take(&mut self.text), end)
    }
}

#[track_caller]
fn assert_equal(audit: &Audit) {
    assert!(audit.equal && audit.findings.is_empty(), "{audit:#?}");
    assert_eq!((audit.positions_equal, audit.first_different), (audit.positions, None));
}

type Live<'a> = std::collections::BTreeMap<RequestId, Answer<'a>>;

#[test]
fn every_family_and_arithmetic_passes_and_no_other_does() {
    let labs: Vec<Lab> =
        [("tiny:llama", Arithmetic::Sm90), ("tiny:qwen2", Arithmetic::Sm80), ("tiny:qwen3:5", Arithmetic::Ieee)]
            .into_iter()
            .map(|(source, arithmetic)| Lab::new(source, arithmetic))
            .collect();
    let receipts: Vec<Receipt> = labs.iter().map(|lab| lab.ask(&Question::warm("Same tree, ", 3))).collect();
    for (own, receipt) in receipts.iter().enumerate() {
        for (index, lab) in labs.iter().enumerate() {
            let audit = lab.audit(receipt);
            if index == own {
                assert_equal(&audit);
            } else {
                let fields: Vec<&str> = audit.findings.iter().map(|finding| finding.field.as_str()).collect();
                assert!(!audit.equal && fields.contains(&"model") && fields.contains(&"arithmetic"), "{fields:?}");
                assert_eq!(audit.first_different, Some(0));
            }
        }
    }
}

#[test]
fn stop_strings_stop_tokens_and_the_context_are_replayed() {
    let lab = Lab::new("tiny:qwen3", Arithmetic::Sm90);
    let free = lab.ask(&Question::warm("abc", 11));
    assert_eq!(free.receipt.output.end, End::Length);
    // The second and third character of the answer end it the next time.
    let stop: String = free.receipt.output.text.chars().skip(1).take(2).collect();
    let stopped = lab.ask(&Question { stops: vec!["\u{1}none".into(), stop], ..Question::warm("abc", 11) });
    assert_eq!(stopped.receipt.output.end, End::StopString);
    assert_eq!(stopped.receipt.output.text.chars().count(), 1);
    assert_equal(&lab.audit(&stopped));
    // Somewhere a warm model chooses its end token.
    let ended = (0..200).map(|seed| lab.ask(&Question::warm("abc", seed)));
    let ended = ended.into_iter().find(|receipt| receipt.receipt.output.end == End::StopToken).expect("one of 200");
    assert_equal(&lab.audit(&ended));
    // The context leaves room for four tokens.
    let long = Question { tokens_max: usize::MAX, ..Question::warm(&"x".repeat(lab.context - 5), 1) };
    let full = lab.ask(&long);
    assert_eq!((full.receipt.sampling.max_tokens, full.receipt.output.tokens.len()), (4, 4));
    assert_equal(&lab.audit(&full));
}

#[test]
fn greedy_extreme_and_broken_characters_pass() {
    let lab = Lab::new("tiny:qwen2", Arithmetic::Sm90);
    let greedy = Sampling { seed: u64::MAX, ..Sampling::default() };
    let extreme = Sampling {
        temperature: f32::MAX,
        top_k: Some(u32::MAX),
        top_p: f32::MIN_POSITIVE,
        min_p: 1.0,
        seed: 1,
        ..Sampling::default()
    };
    let minus_zero = Sampling { temperature: -0.0, min_p: -0.0, ..Sampling::default() };
    for sampling in [greedy, extreme, minus_zero] {
        let question = Question { sampling, tokens_max: 3, ..Question::warm("é\u{1F600}\0\n\"\\", 0) };
        let receipt = lab.ask(&question);
        assert_equal(&lab.audit(&receipt));
        let stored = mini_engine::receipt::parse(receipt.to_json().as_bytes()).unwrap();
        assert_eq!(stored.digest, stored.receipt.digest());
        assert_equal(&lab.audit(&stored));
    }
}

//! One lane: the visitor's request on a fresh engine, alone or in a crowd.

use std::sync::Arc;

use kernels_rs::backend::Backend;

use super::crowd::Crowd;
use super::{Ask, Emit, LaneEnd, Line, Token, Trouble, Voice};
use crate::determinism::PASSAGE;
use crate::device_model::DeviceModel;
use crate::engine::{Engine, EngineConfig, Event, Finish, Request};
use crate::model::{Error, Model};
use crate::receipt::{Digest, End, Identity, PromptSource, Receipt, Recorder};

/// A lane that has not begun.
pub(super) struct Lane<'a, B: Backend> {
    /// 0 for the answer computed alone.
    pub index: usize,
    pub ask: &'a Ask,
    pub voice: Voice<'a>,
    pub model: &'a Arc<Model<B>>,
    pub request: &'a Request,
}

impl<B: Backend> Lane<'_, B> {
    /// What writes the receipt of this lane.
    pub fn recorder(&self, identity: Arc<Identity>, source: PromptSource, text: &str) -> Recorder {
        Recorder::new(identity, self.request, source, Some(text.to_owned()), &[], self.model.config().context)
    }

    /// Runs to the end of the answer. `None` when nobody listens any more.
    pub fn run(&self, mut recorder: Recorder, emit: Emit<'_>) -> Result<Option<Receipt>, Trouble> {
        let config = self.model.config();
        let tokens = self.request.tokens_total_max(config.context);
        let mut crowd = match self.index {
            0 => None,
            lane => {
                let seed = self.ask.crowd_seed.wrapping_add(lane as u64);
                let passage = self.voice.tokenizer.encode(PASSAGE)?;
                Some(Crowd::new(seed, self.ask.others, passage, config.vocab))
            }
        };
        let engine_config = match &mut crowd {
            Some(crowd) => crowd.config(tokens),
            None => alone(tokens),
        };
        let mut engine = self.engine(engine_config)?;
        let mut wait = crowd.as_mut().map_or(0, Crowd::head_start);
        let mut subject = None;
        let (mut decoder, mut said) = (self.voice.tokenizer.stream(), String::new());
        loop {
            if let Some(crowd) = &mut crowd {
                crowd.mingle(&mut engine, subject.is_some());
            }
            if wait == 0 && subject.is_none() {
                subject = Some(engine.submit(self.request.clone())?);
            }
            wait = wait.saturating_sub(1);
            let others = engine.live() - usize::from(subject.is_some());
            for event in engine.step()? {
                match event {
                    Event::Token { id, committed, logits_digest: Some(digest), .. } if Some(id) == subject => {
                        let logits = Digest::from(digest);
                        recorder.token(committed, logits);
                        let stop = self.request.stop_tokens.contains(&committed);
                        let text = if stop { String::new() } else { decoder.push(committed) };
                        said += &text;
                        let token = Token { text, stop, logits, others };
                        if !emit(Line::Token { lane: self.index, token }) {
                            return Ok(None);
                        }
                    }
                    Event::Finished { id, reason } if Some(id) == subject => {
                        said += &decoder.finish();
                        let end = if reason == Finish::Stop { End::StopToken } else { End::Length };
                        let receipt = recorder.finish(said, end);
                        let listened = emit(Line::End { lane: self.index, end: lane_end(&receipt, crowd.as_ref()) });
                        return Ok(listened.then_some(receipt));
                    }
                    Event::Failed { id, failure } if Some(id) == subject => return Err(failure.into()),
                    _ => {}
                }
            }
        }
    }

    fn engine(&self, config: EngineConfig) -> Result<Engine<DeviceModel<B>>, Error> {
        let model = DeviceModel::new(self.model.clone(), &config)?;
        Engine::new(model, config)
            .map_err(|error| Error::input("engine configuration", "one that an engine can run with", error.to_string()))
    }
}

/// An engine that nobody else uses.
fn alone(tokens: usize) -> EngineConfig {
    let default = EngineConfig::default();
    EngineConfig { pages: tokens.div_ceil(default.page_tokens), step_rows_max: tokens.min(128), ..default }
}

fn lane_end(receipt: &Receipt, crowd: Option<&Crowd>) -> LaneEnd {
    let (strangers, late, left) = crowd.map_or((0, 0, 0), |crowd| (crowd.strangers, crowd.late, crowd.left));
    LaneEnd { text: receipt.receipt.output.text.clone(), receipt: receipt.digest, strangers, late, left }
}

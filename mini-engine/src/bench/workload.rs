//! Who asks for what, and when. Everything comes from one seed, so that two runs of a workload are one workload.

use std::time::Duration;

use serde::Serialize;

use crate::engine::noise::Noise;
use crate::engine::{Request, Sampling};

/// A workload by its sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Workload {
    /// Prompts that arrive together; one token each.
    Prefill {
        /// Prompts.
        batch: usize,
        /// Tokens of each.
        length: usize,
    },
    /// Sequences that decode together.
    Decode {
        /// Sequences.
        batch: usize,
        /// Positions of each before the first timed step.
        context: usize,
        /// Timed steps.
        steps: usize,
    },
    /// Requests of many lengths.
    Mixed {
        /// Requests.
        requests: usize,
        /// Shortest and longest prompt; lengths are spread evenly.
        prompts: (usize, usize),
        /// Tokens of each answer.
        answer: usize,
        /// Mean arrivals a second, as a Poisson process; all at once without.
        rate: Option<f64>,
    },
    /// Conversations that share a first prompt: every turn continues the one before.
    Sessions {
        /// Conversations.
        sessions: usize,
        /// Turns of each.
        turns: usize,
        /// Tokens that all conversations begin with.
        shared: usize,
        /// Tokens that a turn adds to the prompt.
        question: usize,
        /// Tokens of each answer.
        answer: usize,
    },
}

/// A request and when it comes.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Since the start.
    pub at: Duration,
    /// The request.
    pub request: Request,
    /// The arrival whose answer, with its prompt, comes before this prompt; this one comes once that is over.
    pub after: Option<usize>,
}

impl Workload {
    /// Its name in tables.
    pub fn name(&self) -> String {
        match self {
            Self::Prefill { batch, length } => format!("prefill {batch}x{length}"),
            Self::Decode { batch, context, .. } => format!("decode {batch}x{context}"),
            Self::Mixed { requests, rate: None, .. } => format!("mixed {requests}, at once"),
            Self::Mixed { requests, rate: Some(rate), .. } => format!("mixed {requests}, {rate}/s"),
            Self::Sessions { sessions, turns, .. } => format!("sessions {sessions} x {turns} turns"),
        }
    }

    /// Positions of the longest sequence.
    pub fn positions_max(&self) -> usize {
        match *self {
            Self::Prefill { length, .. } => length + 1,
            Self::Decode { context, steps, .. } => context + steps + 1,
            Self::Mixed { prompts, answer, .. } => prompts.1 + answer,
            Self::Sessions { turns, shared, question, answer, .. } => shared + turns * (question + answer),
        }
    }

    /// Sequences that can be there at one time.
    pub fn sequences(&self) -> usize {
        match *self {
            Self::Prefill { batch, .. } | Self::Decode { batch, .. } => batch,
            Self::Mixed { requests, .. } => requests,
            Self::Sessions { sessions, .. } => sessions,
        }
    }

    /// The requests over a vocabulary, those that come first in front.
    pub fn arrivals(&self, vocab: usize, seed: u64) -> Vec<Arrival> {
        let mut noise = Noise::new(seed);
        let mut tokens = |count: usize| (0..count).map(|_| noise.below(vocab) as u32).collect::<Vec<u32>>();
        match *self {
            Self::Prefill { batch, length } => (0..batch).map(|_| arrival(tokens(length), 1)).collect(),
            Self::Decode { batch, context, steps } => (0..batch).map(|_| arrival(tokens(context), steps + 1)).collect(),
            Self::Mixed { requests, prompts: (shortest, longest), answer, rate } => {
                let mut at = 0.0;
                // Lengths and gaps apart: with and without a rate, the requests are the same.
                let (mut lengths, mut gaps) = (Noise::new(seed ^ 1), Noise::new(seed ^ 2));
                (0..requests)
                    .map(|_| {
                        let length = shortest + lengths.below(longest - shortest + 1);
                        if let Some(rate) = rate {
                            // Times between arrivals of a Poisson process are exponential.
                            let unit = (gaps.below(1 << 24) as f64 + 1.0) / f64::from(1 << 24);
                            at -= unit.ln() / rate;
                        }
                        Arrival { at: Duration::from_secs_f64(at), ..arrival(tokens(length), answer) }
                    })
                    .collect()
            }
            Self::Sessions { sessions, turns, shared, question, answer } => {
                let stem = tokens(shared);
                let mut all = Vec::new();
                for turn in 0..turns {
                    for _ in 0..sessions {
                        let added = tokens(question);
                        let prompt = if turn == 0 { [&stem[..], &added].concat() } else { added };
                        let after = (turn > 0).then(|| all.len() - sessions);
                        all.push(Arrival { after, ..arrival(prompt, answer) });
                    }
                }
                all
            }
        }
    }
}

fn arrival(prompt: Vec<u32>, tokens_max: usize) -> Arrival {
    let request = Request { prompt, tokens_max, sampling: Sampling::default(), ..Request::default() };
    Arrival { at: Duration::ZERO, request, after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_a_workload_and_poisson_arrivals_have_the_rate() {
        let mixed = Workload::Mixed { requests: 2000, prompts: (3, 9), answer: 2, rate: Some(50.0) };
        let (once, again) = (mixed.arrivals(100, 4), mixed.arrivals(100, 4));
        assert!(once.iter().zip(&again).all(|(a, b)| a.at == b.at && a.request == b.request));
        assert!(once.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let seconds = once[1999].at.as_secs_f64();
        assert!((36.0..44.0).contains(&seconds), "{seconds}");
        let lengths: Vec<usize> = once.iter().map(|arrival| arrival.request.prompt.len()).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&3), Some(&9)));
    }

    #[test]
    fn a_rate_changes_when_and_not_what() {
        let mixed = |rate| Workload::Mixed { requests: 20, prompts: (3, 9), answer: 2, rate }.arrivals(100, 4);
        assert!(mixed(None).iter().zip(mixed(Some(3.0))).all(|(a, b)| a.request == b.request && a.at <= b.at));
    }

    #[test]
    fn turns_follow_their_own_conversation() {
        let sessions = Workload::Sessions { sessions: 3, turns: 2, shared: 5, question: 2, answer: 4 };
        let arrivals = sessions.arrivals(10, 0);
        assert_eq!(arrivals.iter().map(|a| a.after).collect::<Vec<_>>(), [None, None, None, Some(0), Some(1), Some(2)]);
        assert_eq!(arrivals[0].request.prompt[..5], arrivals[2].request.prompt[..5]);
        assert_eq!((arrivals[0].request.prompt.len(), arrivals[3].request.prompt.len()), (7, 2));
        assert_eq!(sessions.positions_max(), 17);
    }
}

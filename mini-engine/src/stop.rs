//! Stop strings over streamed text. A stop string may begin in one piece and end in a later one, so text that could still
//! become one is held back.

/// Watches a stream for the first of several strings.
#[derive(Clone, Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

/// What a piece of text led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Text that is certainly before any stop string.
    pub text: String,
    /// A stop string was completed; it and what follows are dropped.
    pub stopped: bool,
}

impl StopMatcher {
    /// Empty strings are ignored: they would stop everything.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        Self { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) -> Released {
        self.held.push_str(piece);
        if let Some(start) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(start);
            return Released { text: std::mem::take(&mut self.held), stopped: true };
        }
        let rest = self.held.split_off(self.held.len() - self.undecided());
        Released { text: std::mem::replace(&mut self.held, rest), stopped: false }
    }

    /// The stream is over: what was held back is plain text.
    pub fn finish(self) -> String {
        self.held
    }

    /// Bytes at the end of the held text that could begin a stop string.
    fn undecided(&self) -> usize {
        let begins = |stop: &String| {
            let longest = (stop.len() - 1).min(self.held.len());
            (1..=longest).rev().find(|&len| stop.is_char_boundary(len) && self.held.ends_with(&stop[..len]))
        };
        self.stops.iter().filter_map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stop_string_across_pieces() {
        let mut matcher = StopMatcher::new(["END".into(), "é!".into(), String::new()]);
        assert_eq!(matcher.push("the E"), Released { text: "the ".into(), stopped: false });
        assert_eq!(matcher.push("N"), Released { text: String::new(), stopped: false });
        assert_eq!(matcher.push("é"), Released { text: "EN".into(), stopped: false });
        assert_eq!(matcher.push("! more"), Released { text: String::new(), stopped: true });
    }

    #[test]
    fn held_text_comes_out_at_the_end() {
        let mut matcher = StopMatcher::new(["ab".into()]);
        assert_eq!(matcher.push("xa").text, "x");
        assert_eq!(matcher.finish(), "a");
    }

    proptest! {
        /// Cutting the text elsewhere never changes what comes out.
        #[test]
        fn pieces_do_not_matter(text in "[abé]{0,24}", stops in prop::collection::vec("[abé]{1,4}", 0..4), cuts in prop::collection::vec(0usize..48, 0..6)) {
            let mut matcher = StopMatcher::new(stops.clone());
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut.min(text.len()))).map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let (mut out, mut stopped) = (String::new(), false);
            for pair in cuts.windows(2) {
                if !stopped {
                    let released = matcher.push(&text[pair[0]..pair[1]]);
                    out.push_str(&released.text);
                    stopped = released.stopped;
                }
            }
            if !stopped {
                out.push_str(&matcher.finish());
            }
            // The first stop string to be completed, not the first to begin, ends a stream.
            let end = (0..=text.len()).filter(|&end| text.is_char_boundary(end)).find(|&end| stops.iter().any(|stop| text[..end].ends_with(stop.as_str())));
            let expected = match end {
                Some(end) => {
                    let longest = stops.iter().filter(|stop| text[..end].ends_with(stop.as_str())).map(String::len).max().unwrap();
                    (&text[..end - longest], true)
                }
                None => (&text[..], false),
            };
            // Within one piece an earlier beginning wins over an earlier end; both are prefixes of one another.
            prop_assert_eq!(stopped, expected.1);
            prop_assert!(expected.0.starts_with(&out) || out.starts_with(expected.0));
            prop_assert!(stops.iter().all(|stop| !out.contains(stop.as_str())));
        }
    }
}

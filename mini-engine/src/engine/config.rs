//! What an engine is built with, and the limits that its parts rely on. Nothing here can change a logit.

/// Tokens of a page unless the caller says otherwise.
pub const PAGE_TOKENS_DEFAULT: usize = 64;

/// Size and policy of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Tokens of a KV page.
    pub page_tokens: usize,
    /// Physical pages of the pool.
    pub pages: usize,
    /// Rows a step may compute: the chunk budget of prefill and the limit on decodes together.
    pub step_rows_max: usize,
    /// Requests that may hold pages at the same time.
    pub running_max: usize,
    /// Whether full pages of finished work are offered to later requests.
    pub prefix_cache: bool,
    /// Order in which untouched pages are handed out: `None` ascends, a seed permutes.
    pub page_order: Option<u64>,
    /// Whether the next step is planned and launched while one runs. Worth it where launches return before they are done; it
    /// costs the rows of requests that turn out to have ended.
    pub run_ahead: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            page_tokens: PAGE_TOKENS_DEFAULT,
            pages: 128,
            step_rows_max: 256,
            running_max: 64,
            prefix_cache: true,
            page_order: None,
            run_ahead: false,
        }
    }
}

/// A configuration that no engine can run with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("engine configuration: {field} must be {expected}, got {got}")]
pub struct ConfigError {
    field: &'static str,
    expected: &'static str,
    got: usize,
}

impl EngineConfig {
    /// Checks every bound that the engine's parts take for granted.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (field, got) in [
            ("page_tokens", self.page_tokens),
            ("pages", self.pages),
            ("step_rows_max", self.step_rows_max),
            ("running_max", self.running_max),
        ] {
            if got == 0 {
                return Err(ConfigError { field, expected: "at least 1", got });
            }
        }
        // Slots are u32 on every backend.
        if self.pages.checked_mul(self.page_tokens).is_none_or(|slots| slots > u32::MAX as usize) {
            return Err(ConfigError {
                field: "pages",
                expected: "such that pages * page_tokens fits 32 bits",
                got: self.pages,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_overflow_are_refused() {
        assert!(EngineConfig::default().check().is_ok());
        for field in 0..4 {
            let mut config = EngineConfig::default();
            *[&mut config.page_tokens, &mut config.pages, &mut config.step_rows_max, &mut config.running_max][field] =
                0;
            assert!(config.check().unwrap_err().to_string().contains("at least 1, got 0"));
        }
        let config = EngineConfig { pages: usize::MAX, ..EngineConfig::default() };
        assert!(config.check().is_err());
    }
}

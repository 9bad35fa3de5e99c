//! Why a command ended early, and with which exit code.

use std::error::Error;
use std::process::ExitCode;

use mini_engine::engine::Refusal;
use mini_engine::engine::config::ConfigError;

/// The end of a command.
#[derive(Debug)]
pub enum Failure {
    /// The user's input is at fault.
    Input(Box<dyn Error + Send + Sync>),
    /// The machine is.
    Machine(Box<dyn Error + Send + Sync>),
    /// The comparison found a difference, which has been reported.
    Different,
    /// Whoever read the output went away; nothing to say.
    OutputClosed,
}

impl Failure {
    /// Bad input in words.
    pub fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into().into())
    }

    /// Tells the user, and gives the exit code.
    pub fn report(self) -> ExitCode {
        let (error, code) = match self {
            Self::Input(error) => (error, 2),
            Self::Machine(error) => (error, 1),
            Self::Different => return ExitCode::from(1),
            Self::OutputClosed => return ExitCode::SUCCESS,
        };
        eprintln!("error: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            eprintln!("  caused by: {cause}");
            source = cause.source();
        }
        ExitCode::from(code)
    }
}

impl From<mini_engine::model::Error> for Failure {
    fn from(error: mini_engine::model::Error) -> Self {
        if error.is_input() { Self::Input(error.into()) } else { Self::Machine(error.into()) }
    }
}

impl From<kernels_rs::backend::Error> for Failure {
    fn from(error: kernels_rs::backend::Error) -> Self {
        Self::Machine(error.into())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Input(refusal.into())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Input(error.into())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Machine(error.into()),
        }
    }
}

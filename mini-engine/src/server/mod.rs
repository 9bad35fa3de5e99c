//! An OpenAI-compatible HTTP server over the engine.
//!
//! ```text
//! listener -> routes -> auth -> body -> completions | chat (read and check: fields, common) -> Job
//! Job -> queue -> Run (one an answer) <-> worker (the engine's thread)
//! Run -> choice (tokens to text) -> shape (JSON) -> whole body or events
//! ```
//!
//! [`run::Answer`] is the complete record of a finished answer, and [`app::App::answered`] the one place that sees them all.
//! What is not here: how an answer is computed. The engine core has no clock and no threads; what this module adds around it
//! (arrival, order, cancellation) cannot change a bit.

pub mod app;
pub mod chat;
pub mod choice;
pub mod common;
pub mod completions;
pub mod error;
pub mod fields;
pub mod grammar;
pub mod job;
pub mod metrics;
pub mod page;
pub mod receipts;
pub mod row;
pub mod run;
pub mod shape;
pub mod tokenize;
pub mod worker;

mod auth;
mod body;
mod listener;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

pub use app::{App, Options, Served};

use crate::engine::{Engine, EngineConfig, RowModel};
use worker::Worker;

/// A server that listens and can be run.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
}

impl Server {
    /// Starts the engine's thread and listens. Port 0 takes any free one.
    pub async fn bind<M: RowModel + Send + 'static>(
        engine: Engine<M>,
        config: &EngineConfig,
        served: Served,
        options: Options,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(options.address).await?;
        let worker = Worker::start(engine)?;
        let app = Arc::new(App::new(served, worker, config.running_max, options));
        Ok(Self { app, listener })
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Its state.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until `shutdown` is done and the answers on their way have finished.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        listener::serve(self.app.clone(), routes::routes(self.app), self.listener, shutdown).await;
    }
}

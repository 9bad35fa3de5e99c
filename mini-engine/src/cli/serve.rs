//! `serve`: the HTTP server on a loaded model.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use kernels_rs::backend::Backend;
use mini_engine::device_model::DeviceModel;
use mini_engine::engine::{Engine, EngineConfig};
use mini_engine::model::{Checkpoint, Model, Source};
use mini_engine::receipt::Identity;
use mini_engine::server::receipts::Receipts;
use mini_engine::server::{Options, Served, Server};
use mini_engine::showroom::Showroom;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::session::{BackendName, Device, KvArgs, ModelArgs, on_backend};

/// Most tokens of the KV pool on a CPU unless the arguments say otherwise: its memory is not the server's alone.
const KV_TOKENS_CPU: usize = 65_536;

/// Serve a model over HTTP, as OpenAI's clients expect it
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    model: ModelArgs,
    /// Address to listen on; only this machine reaches the default
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Key that clients must send on every path but /health
    #[arg(long, env = "SAMETREE_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Name of the model for clients; the last part of its path, unless given
    #[arg(long)]
    served_name: Option<String>,
    /// Answers that may wait beside those that run; further ones get status 429
    #[arg(long, default_value_t = Options::default().queue_max)]
    max_queue: usize,
    /// Answers that may run at the same time
    #[arg(long, default_value_t = EngineConfig::default().running_max)]
    max_running: usize,
    /// Tokens that one step may compute
    #[arg(long, default_value_t = EngineConfig::default().step_rows_max)]
    chunk: usize,
    #[command(flatten)]
    kv: KvArgs,
    /// Most tokens of the KV pool; on a CPU 65536 unless given
    #[arg(long)]
    kv_tokens: Option<usize>,
    /// Keep a receipt of each answer whose request asks for one with `"receipt": true`
    #[arg(long, value_name = "DIR")]
    receipts: Option<PathBuf>,
    /// Compute every prompt in full
    #[arg(long)]
    no_prefix_cache: bool,
    /// Open connections; further ones wait
    #[arg(long, default_value_t = Options::default().connections_max)]
    max_connections: usize,
    /// Largest body, in bytes
    #[arg(long, default_value_t = Options::default().body_bytes_max)]
    max_body_bytes: usize,
}

impl Serve {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        let options = self.options()?;
        let checkpoint = Source::parse(&self.model.model)?.open()?;
        on_backend!(self.model.compute, |device| self.run_on(device, checkpoint, options))
    }

    fn options(&self) -> Result<Options, Failure> {
        if self.api_key.as_ref().is_some_and(|key| key.is_empty()) {
            return Err(Failure::input("--api-key: expected at least one character, got none"));
        }
        for (name, value) in [("--max-connections", self.max_connections), ("--max-body-bytes", self.max_body_bytes)] {
            if !(1..=1 << 30).contains(&value) {
                return Err(Failure::input(format!("{name}: expected 1 to {}, got {value}", 1 << 30)));
            }
        }
        Ok(Options {
            address: SocketAddr::new(self.host, self.port),
            api_key: self.api_key.clone(),
            queue_max: self.max_queue,
            connections_max: self.max_connections,
            body_bytes_max: self.max_body_bytes,
            ..Options::default()
        })
    }

    /// A model that is known by a name, and not by a path, keeps it.
    fn name(&self) -> Option<String> {
        let known = !matches!(Source::parse(&self.model.model), Ok(Source::Path(_)));
        self.served_name.clone().or_else(|| known.then(|| self.model.model.clone()))
    }

    fn config<B: Backend>(&self, device: &Device<B>, model: &Model<B>) -> Result<EngineConfig, Failure> {
        let on_cpu = self.model.compute.backend == BackendName::Cpu;
        let tokens_max = self.kv_tokens.unwrap_or(if on_cpu { KV_TOKENS_CPU } else { usize::MAX });
        let config = EngineConfig {
            page_tokens: self.kv.page_tokens,
            pages: self.kv.pages(model)?.min(tokens_max.div_ceil(self.kv.page_tokens)),
            step_rows_max: self.chunk,
            running_max: self.max_running,
            prefix_cache: !self.no_prefix_cache,
            run_ahead: device.run_ahead,
            ..EngineConfig::default()
        };
        config.check()?;
        Ok(config)
    }

    fn run_on<B: Backend>(&self, device: Device<B>, checkpoint: Checkpoint, options: Options) -> Result<(), Failure> {
        if let Some(folder) = &self.receipts {
            // An answer should not be lost to a folder that cannot be written.
            let tried = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
            tried.map_err(|error| Failure::input(format!("--receipts {}: {error}", folder.display())))?;
        }
        let model = device.load_known(&checkpoint)?;
        let config = self.config(&device, &model)?;
        let mut served = Served::new(checkpoint, self.name(), model.plan().digest().to_string());
        let identity = Arc::new(Identity::of(&model, &served.tokenizer));
        served.receipts = self.receipts.clone().map(|folder| Receipts { identity: identity.clone(), folder });
        served.stage = Some(Box::new(Showroom::new(model.clone(), identity)));
        let engine = Engine::new(DeviceModel::new(model, &config)?, config.clone())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let name = served.model_name.clone();
            let server = Server::bind(engine, &config, served, options)
                .await
                .map_err(|error| Failure::input(format!("--host {} --port {}: {error}", self.host, self.port)))?;
            let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            // On standard output, so that a script can wait for it and read the port.
            println!("serving {name} at http://{}", server.address()?);
            std::io::stdout().flush()?;
            let shutdown = async move {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                eprintln!("shutting down; a second interrupt ends at once");
                // The drain is cut short by whoever asks twice.
                tokio::spawn(async move {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    std::process::exit(130);
                });
            };
            server.run(shutdown).await;
            Ok(())
        })
    }
}

//! Accepting connections, bounding what each may do, and shutting down without losing an answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::app::App;

/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long to wait when the system gives no connection, as when it has no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often samples of the counters are put in order.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// Serves until `shutdown` is done; then accepts no more, and waits for the answers on their way.
pub async fn serve(app: Arc<App>, routes: Router, listener: TcpListener, shutdown: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(app.options.connections_max));
    let mut upkeep = tokio::time::interval(UPKEEP_PERIOD);
    tokio::pin!(shutdown);
    loop {
        let accept = async {
            // Never closed, so there is always a place sooner or later.
            let place = places.clone().acquire_owned().await.ok()?;
            Some((place, listener.accept().await))
        };
        tokio::select! {
            () = &mut shutdown => break,
            _ = upkeep.tick() => app.metrics.upkeep(),
            accepted = accept => match accepted {
                Some((place, Ok((stream, _)))) => {
                    let connection = graceful.watch(connection(&app, routes.clone(), stream));
                    let app = app.clone();
                    tokio::spawn(async move {
                        app.metrics.connections.increment(1.0);
                        // A connection that breaks concerns nobody else.
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "connection");
                        }
                        app.metrics.connections.decrement(1.0);
                        drop(place);
                    });
                }
                Some((_, Err(error))) => {
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                None => break,
            },
        }
    }
    drop(listener);
    tracing::info!(in_flight = app.in_flight(), "draining");
    if tokio::time::timeout(app.options.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!(in_flight = app.in_flight(), "answers did not finish in time");
    }
}

fn connection(
    app: &App,
    routes: Router,
    stream: TcpStream,
) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    // Tokens are small and should not wait for one another.
    let _ = stream.set_nodelay(true);
    // What a client does not read is in memory; the system gives up one that reads nothing for too long.
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(app.options.stall_timeout));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
}

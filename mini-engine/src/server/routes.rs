//! Every address of the server. What answers is registered here and nowhere else.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::error::ApiError;
use super::{auth, chat, completions, page, receipts, tokenize};

/// The routes over a server's state.
pub fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/demo", get(page::about))
        .route("/demo/run", post(page::run))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/receipts/{digest}", get(receipts::kept))
        .route("/v1/tokenize", post(tokenize::tokenize))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), auth::require_key))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

/// A fault of the server must not take the connection with it.
fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    ApiError::failed("a fault of the server").into_response()
}

async fn unknown_path(request: Request) -> ApiError {
    ApiError::unknown_path(request.uri().path())
}

async fn wrong_method() -> ApiError {
    ApiError::wrong_method()
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let healthy = app.worker.is_healthy();
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if healthy { "ok" } else { "the engine computes no steps" };
    (status, Json(json!({ "status": word, "live": app.worker.live(), "in_flight": app.in_flight() }))).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render(&app))
}

fn describe(app: &App) -> Value {
    json!({
        "id": app.served.model_name,
        "object": "model",
        "created": app.started(),
        "owned_by": "sametree",
        "max_model_len": app.worker.limits().context_max,
        "plan": app.served.fingerprint,
    })
}

async fn models(State(app): State<Arc<App>>) -> impl IntoResponse {
    Json(json!({ "object": "list", "data": [describe(&app)] }))
}

async fn model(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::bad_request(error.to_string()))?;
    if name == app.served.model_name {
        Ok(Json(describe(&app)))
    } else {
        Err(ApiError::unknown_model(&name, &app.served.model_name))
    }
}

//! What comes back.

use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::de::DeserializeOwned;

use super::ClientError;
use crate::ProblemDocument;

/// The body of an answer, wherever it comes from.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// An answer that says yes. One that says no is an error.
pub async fn succeeded(answer: Response<Body>) -> Result<Response<Body>, ClientError> {
    if answer.status().is_success() { Ok(answer) } else { Err(problem_of(answer).await) }
}

/// The whole of an answer.
pub async fn bytes_of(answer: Response<Body>) -> Result<Bytes, ClientError> {
    let body = answer.into_body().collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| ClientError::Unreachable {
        url: "the server".to_owned(),
        cause: format!("the answer broke off: {error}"),
    })
}

/// What an answer says.
pub fn json_of<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|error| ClientError::Strange(error.to_string()))
}

async fn problem_of(answer: Response<Body>) -> ClientError {
    let status = answer.status();
    let bytes = match bytes_of(answer).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    match serde_json::from_slice::<ProblemDocument>(&bytes) {
        Ok(problem) => ClientError::Problem(Box::new(problem)),
        Err(_) => ClientError::Strange(unknown(status, &bytes)),
    }
}

fn unknown(status: StatusCode, bytes: &Bytes) -> String {
    let text = String::from_utf8_lossy(bytes);
    let first: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
    format!("status {status} with {first:?}; is this a Tidemill server?")
}

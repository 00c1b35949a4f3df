//! The style and the script, compiled in. Their addresses hold a digest, so that browsers may keep them for ever.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::http::{Response, StatusCode};
use sha2::{Digest, Sha256};

use crate::problem::Problem;
use crate::route::raw;

const STYLE: &str = include_str!("dashboard.css");
const SCRIPT: &str = include_str!("dashboard.js");

/// The addresses of both.
pub(super) struct Addresses {
    pub(super) style: String,
    pub(super) script: String,
}

pub(super) static ADDRESSES: LazyLock<Addresses> = LazyLock::new(|| Addresses {
    style: format!("/assets/{}.css", version(STYLE)),
    script: format!("/assets/{}.js", version(SCRIPT)),
});

fn version(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let first = digest.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    format!("{first:016x}")
}

/// The asset with this file name.
pub(super) fn find(name: &str) -> Result<Response<Body>, Problem> {
    let is = |address: &str| address.rsplit('/').next() == Some(name);
    let (media, text) = if is(&ADDRESSES.style) {
        ("text/css; charset=utf-8", STYLE)
    } else if is(&ADDRESSES.script) {
        ("text/javascript; charset=utf-8", SCRIPT)
    } else {
        return Err(Problem::no_such_route());
    };
    let mut response = raw(StatusCode::OK, media, text);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, forever);
    Ok(response)
}

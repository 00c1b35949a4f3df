//! What tasks leave behind: logs, artifacts, traces.

use axum::http::header::{CONTENT_DISPOSITION, HeaderValue};
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::tasks::{GROUP, key_of};
use crate::admission::caller::Welcome;
use crate::api::{Artifact, Page};
use crate::problem::Problem;
use crate::request::list_cursor;
use crate::request::param::Kind;
use crate::route::{Call, READ, Reply, Route, json, page_size, raw};
use crate::stream::{channel, follow_log};

const TEXT: &str = "text/plain; charset=utf-8";
const ATTEMPTS: Kind = Kind::Integer { least: 1, most: u32::MAX as u64 };

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/v1/tasks/{requestId}/logs", READ, [GROUP, "getTaskLogs", "Read what a task printed"], logs)
            .about(
                "Of the last attempt, or of the one that is named. With `follow`, what a running task prints comes as \
                 it is printed, until its run is over.",
            )
            .request_id()
            .query("follow", Kind::Flag, "Stay and listen.")
            .query("run", ATTEMPTS, "The run; the newest when absent.")
            .query("attempt", ATTEMPTS, "The attempt within the run; the last when absent.")
            .gives_raw(200, "Standard output and standard error, as they came.", TEXT),
        Route::new(Method::GET, "/v1/tasks/{requestId}/artifacts", READ, [GROUP, "listArtifacts", "List a task's files"], list)
            .about("The logs, artifacts and traces of all its attempts.")
            .request_id()
            .paged()
            .gives::<Page<Artifact>>(200, "A page of files."),
        Route::new(
            Method::GET,
            "/v1/tasks/{requestId}/artifacts/{*path}",
            READ,
            [GROUP, "getArtifact", "Download a file of a task"],
            download,
        )
        .about("Of one attempt; without `r{run}-a{attempt}/` the file of the newest attempt that left one of that name.")
        .request_id()
        .part("path", Kind::File, "As the list gives it, or without the folder of its attempt: `traces/session_trace.json`.")
        .gives_raw(200, "The file.", "application/octet-stream"),
    ]
}

async fn logs(call: Call) -> Reply {
    let key = key_of(&call)?;
    let engine = call.app.engine();
    let Some(detail) = engine.task_detail(key.clone()).await? else {
        return Err(Problem::not_found("task", key.request.as_str()));
    };
    let is_over = detail.task.head.as_ref().is_some_and(|head| head.outcome().is_some());
    if call.inputs.flag("follow") && !is_over {
        let permit = call.app.streams().take(&call.caller)?;
        let (outlet, body) = channel(call.app.config().write_timeout);
        let welcome = Welcome::of(&call.app, &call.caller);
        tokio::spawn(follow_log(call.app.clone(), key, outlet, (call.peer, welcome), permit));
        return Ok(raw(StatusCode::OK, TEXT, body));
    }
    let number = |name: &str| call.inputs.number(name).and_then(|number| u32::try_from(number).ok());
    let run = number("run").unwrap_or(detail.run);
    let attempt = number("attempt").unwrap_or(detail.attempt);
    if let Some(bytes) = engine.task_file(&key, &format!("r{run}-a{attempt}/logs/output.log")).await? {
        return Ok(raw(StatusCode::OK, TEXT, bytes));
    }
    let live = engine.live_logs().read(&key, 0);
    let is_same = (live.run, live.attempt) == (run, attempt);
    Ok(raw(StatusCode::OK, TEXT, if is_same { live.bytes } else { Vec::new() }))
}

async fn list(call: Call) -> Reply {
    let key = key_of(&call)?;
    let engine = call.app.engine();
    if engine.task(key.clone()).await?.is_none() {
        return Err(Problem::not_found("task", key.request.as_str()));
    }
    let after = call.inputs.text("cursor").map(path_of_cursor).transpose()?;
    let files = engine.task_files(&key).await?;
    let limit = page_size(&call.inputs);
    let mut items: Vec<Artifact> = files
        .into_iter()
        .map(|file| Artifact { path: file.path, size_bytes: file.size_bytes })
        .filter(|file| after.as_ref().is_none_or(|after| file.path > *after))
        .take(limit + 1)
        .collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|file| cursor_of_path(&file.path));
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// A place in a list of files. Paths hold what no other parameter may.
fn cursor_of_path(path: &str) -> String {
    list_cursor::write("file", &URL_SAFE_NO_PAD.encode(path))
}

fn path_of_cursor(cursor: &str) -> Result<String, Problem> {
    let path = URL_SAFE_NO_PAD.decode(list_cursor::read("file", cursor)?);
    path.ok().and_then(|path| String::from_utf8(path).ok()).ok_or_else(list_cursor::refuse)
}

async fn download(call: Call) -> Reply {
    let key = key_of(&call)?;
    let path = call.inputs.part("path");
    let engine = call.app.engine();
    // Only what an attempt left: no other blob lies below such a folder.
    let found = if attempt_of(path).is_some() {
        engine.task_file(&key, path).await?
    } else {
        let files = engine.task_files(&key).await?;
        let newest = files.iter().filter_map(|file| {
            let (attempt, name) = attempt_of(&file.path)?;
            (name == path).then_some((attempt, &file.path))
        });
        match newest.max() {
            Some((_, path)) => engine.task_file(&key, path).await?,
            None => None,
        }
    };
    let bytes = found.ok_or_else(|| Problem::not_found("file", path))?;
    let mut response = raw(StatusCode::OK, "application/octet-stream", bytes);
    // Never shown in place: what a task wrote is not a page of ours.
    response.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

/// Run and attempt of a file, and its name below their folder: `r1-a2/logs/output.log`.
fn attempt_of(path: &str) -> Option<((u32, u32), &str)> {
    let (folder, name) = path.split_once('/')?;
    let (run, attempt) = folder.strip_prefix('r')?.split_once("-a")?;
    Some(((run.parse().ok()?, attempt.parse().ok()?), name))
}

//! Slow, broken and too many clients: the others are answered all the same.

use std::time::Duration;

use serde_json::json;
use tidemill_engine::policy::Policy;
use tidemill_model::Role;
use tidemill_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::lab::{Answer, Client, LONG, Lab};

async fn connect(client: &Client) -> TcpStream {
    TcpStream::connect(client.address).await.unwrap()
}

/// What comes until the server closes. A reset is a close.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut bytes)).await;
    let _ = read.expect("the server closes the connection");
    bytes
}

fn quick() -> ServerConfig {
    ServerConfig {
        head_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        ..ServerConfig::default()
    }
}

#[tokio::test]
async fn heads_and_bodies_that_never_end_are_given_up() {
    let lab = Lab::with(quick(), Policy::default()).await;
    let client = lab.local();
    let mut silent = connect(&client).await;
    let mut head = connect(&client).await;
    head.write_all(b"GET /v1/jobs HTTP/1.1\r\nHost: ").await.unwrap();
    let mut body = connect(&client).await;
    let request = client.head("POST", "/v1/jobs", &[("Content-Type", "application/json")], "HTTP/1.1");
    body.write_all(format!("{request}Content-Length: 100\r\n\r\n{{\"tasks\"").as_bytes()).await.unwrap();
    client.get("/v1/jobs").await.expect(200);
    assert_eq!(rest(&mut silent).await, b"");
    assert_eq!(rest(&mut head).await, b"");
    let answer = Answer::parse(&rest(&mut body).await).expect("a slow body is told why");
    assert_eq!((answer.status, answer.code().as_str()), (408, "BODY_TOO_SLOW"));
    client.get("/v1/jobs").await.expect(200);
}

#[tokio::test]
async fn a_head_that_trickles_does_not_live_longer() {
    let lab = Lab::with(quick(), Policy::default()).await;
    let client = lab.local();
    let mut stream = connect(&client).await;
    let trickle = async {
        for byte in b"GET /v1/jobs HTTP/1.1\r\nX-Padding: ".iter().chain(std::iter::repeat(&b'x')) {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, trickle).await.expect("the server gives up on it");
    client.get("/v1/jobs").await.expect(200);
}

#[tokio::test]
async fn a_client_that_only_listens_gets_its_answer() {
    let lab = Lab::start().await;
    let client = lab.local();
    let mut stream = connect(&client).await;
    let request = client.head("GET", "/v1/jobs", &[], "HTTP/1.1");
    stream.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = Answer::parse(&rest(&mut stream).await).expect("it is answered");
    assert_eq!(answer.status, 200);
    // One that leaves in the middle of its request is nobody's loss.
    for part in [
        "GET",
        "GET /v1/jobs HTTP/1.1\r\nHost: x\r\n",
        "POST /v1/jobs HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
    ] {
        let mut stream = connect(&client).await;
        stream.write_all(part.as_bytes()).await.unwrap();
        drop(stream);
    }
    for nonsense in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"\0\0\0\0",
        b"HELO\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        &vec![b'x'; 100_000],
    ] {
        let mut stream = connect(&client).await;
        let _ = stream.write_all(nonsense).await;
        let _ = stream.shutdown().await;
        let bytes = rest(&mut stream).await;
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&bytes));
    }
    let many = "X-Header: 1\r\n".repeat(200);
    let mut stream = connect(&client).await;
    stream.write_all(format!("{request}{many}\r\n").as_bytes()).await.unwrap();
    assert!(rest(&mut stream).await.starts_with(b"HTTP/1.1 431"));
    client.get("/v1/jobs").await.expect(200);
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let lab = Lab::start().await;
    let client = lab.local();
    let mut stream = connect(&client).await;
    let request = client.head("GET", "/healthz", &[], "HTTP/1.1") + "\r\n";
    let mut heard = Vec::new();
    for count in 1..=50 {
        stream.write_all(request.as_bytes()).await.unwrap();
        while String::from_utf8_lossy(&heard).matches("{\"status\":\"ok\"}").count() < count {
            assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
        }
    }
}

#[tokio::test]
async fn when_all_are_busy_one_more_is_told_so() {
    let config = ServerConfig { connections_max: 3, ..ServerConfig::default() };
    let lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    let mut busy = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&client).await;
        let request = client.head("GET", "/v1/stream", &[], "HTTP/1.0") + "\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b": connected\n\n") {
            assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
        }
        busy.push(stream);
    }
    let mut one_more = connect(&client).await;
    let answer = Answer::parse(&rest(&mut one_more).await).expect("it is told why");
    assert_eq!((answer.status, answer.code().as_str()), (503, "TOO_MANY_CONNECTIONS"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
    // What it had sent already does not take the answer away.
    let request = client.head("POST", "/v1/jobs", &[("Content-Type", "application/json")], "HTTP/1.1");
    let mut talkative = connect(&client).await;
    let _ = talkative
        .write_all(format!("{request}Content-Length: 50000\r\n\r\n{}", "x".repeat(50_000)).as_bytes())
        .await;
    let answer = Answer::parse(&rest(&mut talkative).await).expect("it is told why as well");
    assert_eq!(answer.code(), "TOO_MANY_CONNECTIONS");
    drop(busy);
    let free = async {
        loop {
            let mut stream = connect(&client).await;
            let request = client.head("GET", "/healthz", &[], "HTTP/1.0") + "\r\n";
            let _ = stream.write_all(request.as_bytes()).await;
            if Answer::parse(&rest(&mut stream).await).is_some_and(|answer| answer.status == 200) {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, free).await.expect("places come free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_keep_nobody_out() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(40_000).min(40_000);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    // Both ends are in this process, and the store needs some files too.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(40_000).saturating_sub(1_000);
    let count = usize::try_from(files / 2).unwrap().min(10_000);
    let lab =
        Lab::with(ServerConfig { connections_max: 1_000, ..ServerConfig::default() }, Policy::default())
            .await;
    let client = lab.local();
    let mut idle = Vec::with_capacity(count);
    for number in 0..count {
        let mut stream = connect(&client).await;
        match number % 3 {
            0 => {}
            1 => drop(stream.write_all(b"GET /v1/jobs HT").await),
            _ => drop(stream.write_all(b"POST /v1/jobs HTTP/1.1\r\nContent-Len").await),
        }
        idle.push(stream);
        if number % 500 == 0 {
            client.get("/v1/jobs").await.expect(200);
        }
    }
    client.get("/v1/jobs").await.expect(200);
    client.define("work").await;
    client.submit(&[("a", &[])]).await;
    let first = rest(&mut idle[0]).await;
    // It was told why, unless very many were at that moment.
    assert!(first.is_empty() || first.starts_with(b"HTTP/1.1 503 "), "the longest idle went first");
}

#[tokio::test]
async fn a_server_that_stops_finishes_what_it_began() {
    let mut lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    let mut idle = connect(&client).await;
    let wait = json!({"workerId": "w", "waitMs": 30_000}).to_string();
    let mut waiting = connect(&client).await;
    let head = client.head("POST", "/v1/worker/claim", &[("Content-Type", "application/json")], "HTTP/1.1");
    let request = format!("{head}Content-Length: {}\r\n\r\n{wait}", wait.len());
    waiting.write_all(request.as_bytes()).await.unwrap();
    // A request of which the body is still to come.
    let file = json!({"tasks": [{"taskId": "a", "name": "work"}]}).to_string();
    let mut slow = connect(&client).await;
    let head = client.head("POST", "/v1/jobs", &[("Content-Type", "application/json")], "HTTP/1.1");
    slow.write_all(format!("{head}Content-Length: {}\r\n\r\n", file.len()).as_bytes()).await.unwrap();
    client.get("/healthz").await.expect(200);
    lab.ask_to_stop();
    let claimed = Answer::parse(&rest(&mut waiting).await).expect("a long poll ends with an answer");
    assert_eq!(claimed.expect(200)["tasks"], json!([]));
    assert_eq!(rest(&mut idle).await, b"");
    slow.write_all(file.as_bytes()).await.unwrap();
    let created = Answer::parse(&rest(&mut slow).await).expect("what had begun is finished");
    assert_eq!(created.status, 201);
    let address = client.address;
    lab.shut_down().await;
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_connection_in_use_outlives_the_time_of_a_head() {
    let config = ServerConfig { idle_timeout: LONG, ..quick() };
    let lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    let mut stream = connect(&client).await;
    let request = client.head("GET", "/healthz", &[], "HTTP/1.1") + "\r\n";
    // More requests than fit into the time of one head, each answered before the next: none is cut off.
    let until = tokio::time::Instant::now() + 4 * Duration::from_millis(200);
    while tokio::time::Instant::now() < until {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        while Answer::parse(&heard).is_none_or(|answer| answer.body.is_empty()) {
            let count = tokio::time::timeout(LONG, stream.read_buf(&mut heard)).await.unwrap().unwrap();
            assert_ne!(count, 0, "the server closed a connection that is in use");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_head_has_up_to_64_kib_and_100_fields() {
    let lab = Lab::start().await;
    let client = lab.local();
    let base = client.head("GET", "/healthz", &[], "HTTP/1.1") + "Connection: close\r\n";
    // A head of this many bytes, in several fields.
    let sized = |bytes: usize| {
        let mut head = base.clone();
        while head.len() + 2 < bytes {
            let room = bytes - head.len() - 2;
            let field = room.min(8_000);
            // What is left must be long enough for a field of its own.
            let field = if room > field && room - field < 10 { field - 10 } else { field };
            head.extend(["X: ", &"x".repeat(field - 5), "\r\n"]);
        }
        head + "\r\n"
    };
    let fields = |count: usize| {
        let given = base.matches("\r\n").count() - 1;
        format!("{base}{}\r\n", "X: 1\r\n".repeat(count - given))
    };
    for (what, head, expected) in [
        ("64 KiB", sized(64 * 1024), 200),
        ("a byte more", sized(64 * 1024 + 1), 431),
        ("100 KiB", sized(100 * 1024), 431),
        ("130 KiB", sized(130 * 1024), 431),
        ("100 fields", fields(100), 200),
        ("101 fields", fields(101), 431),
    ] {
        let mut stream = connect(&client).await;
        // A server that refuses need not read all.
        let _ = stream.write_all(head.as_bytes()).await;
        let answer = Answer::parse(&rest(&mut stream).await).unwrap_or_else(|| panic!("no answer to {what}"));
        assert_eq!(answer.status, expected, "{what}, {} bytes: {}", head.len(), answer.text());
        if !answer.body.is_empty() && expected == 431 {
            assert_eq!(answer.code(), "HEAD_TOO_LARGE", "{what}");
        }
    }
}

#[tokio::test]
async fn a_tenant_holds_its_share_of_the_bodies_and_no_more() {
    let config = ServerConfig {
        body_bytes_max: 16 * 1024,
        blob_bytes_max: 16 * 1024,
        bodies_bytes_max: 64 * 1024,
        ..ServerConfig::default()
    };
    let lab = Lab::with(config, Policy::default()).await;
    let (one, other) = (lab.key("acme", Role::Producer).await, lab.key("globex", Role::Producer).await);
    let media = [("Content-Type", "application/json")];
    let mut sent = JoinSet::new();
    for _ in 0..6 {
        let client = one.clone();
        sent.spawn(async move {
            let mut stream = connect(&client).await;
            let head = client.head("POST", "/v1/jobs", &media, "HTTP/1.1");
            let begun = format!("{head}Content-Length: 16384\r\n\r\n{}", " ".repeat(12 * 1024));
            stream.write_all(begun.as_bytes()).await.unwrap();
            Answer::parse(&rest(&mut stream).await).expect("an answer")
        });
    }
    // One of them has room, and waits for what never comes.
    for _ in 0..5 {
        let answer = sent.join_next().await.unwrap().unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (429, "TENANT_TOO_MANY_BODIES"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    let body = format!("{}[]", " ".repeat(12 * 1024));
    for _ in 0..3 {
        let answer = other.send("POST", "/v1/jobs", &media, body.as_bytes()).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    sent.abort_all();
}

//! The live stream: server-sent events.

use serde_json::{Value, json};
use tidemill_engine::policy::Policy;
use tidemill_model::Role;
use tidemill_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{Client, LONG, Lab};

/// A reader of a stream. HTTP/1.0 keeps the bytes free of chunk marks.
struct Reader {
    stream: TcpStream,
    heard: String,
}

impl Reader {
    async fn open(client: &Client, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = TcpStream::connect(client.address).await.unwrap();
        let head = client.head("GET", &format!("/v1/stream{query}"), headers, "HTTP/1.0") + "\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reader = Self { stream, heard: String::new() };
        reader.until(": connected\n\n").await;
        assert!(reader.heard.contains("content-type: text/event-stream"), "{}", reader.heard);
        reader
    }

    /// Reads until `mark` was heard.
    async fn until(&mut self, mark: &str) {
        let read = async {
            while !self.heard.contains(mark) {
                let mut bytes = [0; 4_096];
                let count = self.stream.read(&mut bytes).await.unwrap();
                assert_ne!(count, 0, "the stream ended: {}", self.heard);
                self.heard += std::str::from_utf8(&bytes[..count]).unwrap();
            }
        };
        tokio::time::timeout(LONG, read).await.unwrap_or_else(|_| panic!("{mark:?} never came"));
    }

    /// Reads to the end of the stream.
    async fn rest(mut self) -> String {
        let read = self.stream.read_to_string(&mut self.heard);
        tokio::time::timeout(LONG, read).await.expect("the stream ends").unwrap();
        self.heard
    }

    /// The events so far: number and content.
    fn events(&self) -> Vec<(u64, Value)> {
        let (_, body) = self.heard.split_once("\r\n\r\n").unwrap();
        let blocks = body.split("\n\n").filter(|block| block.contains("data: "));
        let events = blocks.map(|block| {
            let field = |name: &str| {
                let lines = block.lines().filter_map(|line| line.strip_prefix(name));
                lines.collect::<Vec<_>>().join("\n")
            };
            (field("id: ").parse().unwrap(), serde_json::from_str(&field("data: ")).unwrap())
        });
        events.collect()
    }
}

async fn publish(client: &Client, number: u64) {
    let body = format!("{{\"eventType\": \"tick\",\n \"properties\": {{\"number\":\n {number}}}}}");
    let headers = [("Content-Type", "application/json")];
    client.send("POST", "/v1/events", &headers, body.as_bytes()).await.expect(202);
}

fn numbers(events: &[(u64, Value)]) -> Vec<u64> {
    events.iter().filter_map(|(_, event)| event["properties"]["number"].as_u64()).collect()
}

#[tokio::test]
async fn events_come_as_they_happen_and_a_reader_can_come_back() {
    let lab = Lab::start().await;
    let client = lab.local();
    publish(&client, 0).await;
    let mut reader = Reader::open(&client, "?type=tick", &[]).await;
    for number in 1..=3 {
        publish(&client, number).await;
    }
    reader.until(" 3}").await;
    reader.until("\n\n").await;
    let events = reader.events();
    assert_eq!(numbers(&events), [1, 2, 3], "nothing from before it came");
    assert!(events.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let second = events[1].0.to_string();
    drop(reader);
    for number in 4..=5 {
        publish(&client, number).await;
    }
    let mut reader = Reader::open(&client, "?type=tick", &[("Last-Event-ID", &second)]).await;
    reader.until(" 5}").await;
    assert_eq!(numbers(&reader.events()), [3, 4, 5], "nothing is missed and nothing comes twice");
    let mut reader = Reader::open(&client, "?after=0&type=tick", &[]).await;
    reader.until(" 5}").await;
    assert_eq!(numbers(&reader.events()), [0, 1, 2, 3, 4, 5]);
    let mut reader = Reader::open(&client, "?after=99999999", &[]).await;
    publish(&client, 6).await;
    reader.until(" 6}").await;
}

#[tokio::test]
async fn a_reader_hears_its_tenant_and_what_it_asked_for() {
    let lab = Lab::start().await;
    let acme = lab.key("acme", Role::Admin).await;
    let other = lab.key("other", Role::Admin).await;
    for client in [&acme, &other] {
        client.define("work").await;
    }
    let mut of_tenant = Reader::open(&acme, "", &[]).await;
    other.submit(&[("a", &[])]).await;
    let first = acme.submit(&[("a", &[]), ("b", &["a"])]).await;
    let second = acme.submit(&[("a", &[])]).await;
    acme.post("/v1/events", &json!({"eventType": "the.end"})).await.expect(202);
    of_tenant.until("the.end").await;
    let events = of_tenant.events();
    assert!(events.iter().all(|(_, event)| event["tenantId"] == "acme"));
    assert_eq!(events.len(), 5);
    let mut of_job = Reader::open(&acme, &format!("?after=0&job={first}"), &[]).await;
    let mut of_task = Reader::open(&acme, &format!("?after=0&task={second}_a"), &[]).await;
    let worker = lab.key("acme", Role::Worker).await;
    for task in worker.claim(5).await {
        worker.complete(&task, &json!({})).await;
    }
    of_job.until(&format!("{first}_b")).await;
    let names: Vec<_> =
        of_job.events().into_iter().map(|(_, event)| event["eventType"].to_string()).collect();
    assert!(
        of_job.events().iter().all(|(_, event)| event["entityId"].as_str().unwrap().starts_with(&first)),
        "{names:?}"
    );
    of_task.until("Task Completed").await;
    assert!(of_task.events().iter().all(|(_, event)| event["entityId"] == format!("{second}_a")));
}

#[tokio::test]
async fn a_quiet_stream_says_that_it_is_alive_and_how_far_it_is() {
    let heartbeat = std::time::Duration::from_millis(20);
    let config = ServerConfig { stream_heartbeat: heartbeat, ..ServerConfig::default() };
    let lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    let mut reader = Reader::open(&client, "?type=never", &[]).await;
    publish(&client, 1).await;
    let newest = tidemill_engine::backend::Backend::newest(lab.engine.backend());
    reader.until(&format!(": heartbeat\nid: {newest}\n\n")).await;
    assert_eq!(reader.events(), []);
}

#[tokio::test]
async fn streams_are_limited_per_key_and_end_with_the_server() {
    let config = ServerConfig { streams_per_key_max: 2, ..ServerConfig::default() };
    let mut lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    let first = Reader::open(&client, "", &[]).await;
    let second = Reader::open(&client, "", &[]).await;
    let refused = client.get("/v1/stream").await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "TOO_MANY_STREAMS"));
    drop(first);
    let freed = async {
        loop {
            // The place is free once the server has seen that the reader is gone.
            let mut stream = TcpStream::connect(client.address).await.unwrap();
            let head = client.head("GET", "/v1/stream", &[], "HTTP/1.0") + "\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).await.unwrap();
            if start.ends_with(b"200") {
                return stream;
            }
        }
    };
    let third = tokio::time::timeout(LONG, freed).await.expect("the place comes free");
    lab.ask_to_stop();
    assert!(second.rest().await.ends_with(": the server closes\n\n"));
    drop(third);
    lab.shut_down().await;
}

#[tokio::test]
async fn a_reader_who_does_not_read_is_dropped() {
    let config =
        ServerConfig { write_timeout: std::time::Duration::from_millis(100), ..ServerConfig::default() };
    let lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    let reader = Reader::open(&client, "", &[]).await;
    let big = json!({"eventType": "big", "properties": {"text": "x".repeat(150_000)}});
    // Enough to fill every buffer on the way.
    for _ in 0..200 {
        client.post("/v1/events", &big).await.expect(202);
    }
    let mut heard = Vec::new();
    let Reader { mut stream, .. } = reader;
    let ended = tokio::time::timeout(LONG, stream.read_to_end(&mut heard)).await.expect("the server gave up");
    assert!(ended.is_err() || heard.len() < 200 * 150_000, "it was not kept for ever");
    client.get("/v1/jobs").await.expect(200);
}

#[tokio::test]
async fn a_stream_ends_with_its_key() {
    let lab = Lab::start().await;
    let (admin, reader) = (lab.key("acme", Role::Admin).await, lab.key("acme", Role::Reader).await);
    let mut stream = Reader::open(&reader, "", &[]).await;
    admin.post("/v1/events", &json!({"eventType": "a.b"})).await.expect(202);
    stream.until("a.b").await;
    let id = reader.token.as_ref().unwrap()[3..15].to_owned();
    admin.delete(&format!("/v1/keys/{id}")).await.expect(200);
    assert!(stream.rest().await.ends_with(": the key was revoked\n\n"));
}

#[tokio::test]
async fn a_stream_without_a_key_ends_with_the_first_key() {
    let lab = Lab::start().await;
    let local = lab.local();
    let stream = Reader::open(&local, "", &[]).await;
    local.post("/v1/keys", &json!({"role": "admin"})).await.expect(201);
    assert!(stream.rest().await.ends_with(": the key was revoked\n\n"));
}

#[tokio::test]
async fn followers_of_busy_tenants_miss_nothing_and_hear_nothing_of_others() {
    let lab = Lab::start().await;
    let acme = lab.key("acme", Role::Admin).await;
    let other = lab.key("other", Role::Admin).await;
    let idle = lab.key("idle", Role::Admin).await;
    let mut readers = Vec::new();
    for client in [&acme, &acme, &other] {
        readers.push((client.clone(), Reader::open(client, "?type=tick", &[]).await));
    }
    let mut still = Reader::open(&idle, "", &[]).await;
    // More at a time than wait for a follower.
    let batch = |from: u64| {
        (from..from + 500).map(|number| json!({"eventType": "tick", "properties": {"number": number}}))
    };
    for from in [0, 500, 1_000] {
        for client in [&acme, &other] {
            client.post("/v1/events", &json!({"events": batch(from).collect::<Vec<_>>()})).await.expect(202);
        }
    }
    for (client, reader) in &mut readers {
        reader.until("{\"number\":1499}").await;
        reader.until("\n\n").await;
        let events = reader.events();
        assert_eq!(numbers(&events), (0..1_500).collect::<Vec<_>>(), "{client:?}");
        assert!(events.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
    publish(&idle, 7).await;
    still.until(" 7}").await;
    assert_eq!(numbers(&still.events()), [7], "what others do is not heard");
}

#[tokio::test]
async fn all_keys_of_a_tenant_share_a_number_of_streams() {
    let config = ServerConfig { streams_per_tenant_max: Some(2), ..ServerConfig::default() };
    let lab = Lab::with(config, Policy::default()).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(Reader::open(&lab.key("acme", Role::Reader).await, "", &[]).await);
    }
    let refused = lab.key("acme", Role::Reader).await.get("/v1/stream").await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "TENANT_TOO_MANY_STREAMS"));
    let _other = Reader::open(&lab.key("globex", Role::Reader).await, "", &[]).await;
}

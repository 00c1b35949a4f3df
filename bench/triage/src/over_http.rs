//! The same load through a server and its sockets, with a client that does as little as possible.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_server::{App, ServerConfig, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{BATCH, Host, STEP, cpu, occurrence, tenant};

/// Sends events in lists over connections that stay open, and says what it took. Client and server share the cores.
pub(crate) async fn measure(engine: &Host, first: u64, producers: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let config = ServerConfig { tenant: tenant(), ..ServerConfig::default() };
    let app = App::with_compiler(engine, config, None);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move { serve(listener, app, async { drop(stopped.await) }).await });
    let bodies: Vec<String> = (first..first + STEP)
        .step_by(BATCH as usize)
        .map(|first| format!("[{}]", (first..first + BATCH).map(occurrence).collect::<Vec<_>>().join(",")))
        .collect();
    let bodies = Arc::new(bodies);
    let (started, before) = (Instant::now(), cpu());
    let running: Vec<_> = (0..producers)
        .map(|producer| {
            let bodies = Arc::clone(&bodies);
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                stream.set_nodelay(true).expect("it is open");
                let mut worst = Duration::ZERO;
                for body in bodies.iter().skip(producer as usize).step_by(producers as usize) {
                    let sent = Instant::now();
                    post(&mut stream, address, body).await;
                    worst = worst.max(sent.elapsed());
                }
                worst
            })
        })
        .collect();
    let mut worst = Duration::ZERO;
    for producer in running {
        worst = worst.max(producer.await.expect("it ends well"));
    }
    let (wall, used) = (started.elapsed(), cpu() - before);
    println!(
        "over HTTP, client included: {:.0} events/s, {:.1} us of CPU an event, the slowest call {:.0} ms",
        STEP as f64 / wall.as_secs_f64(),
        used.as_secs_f64() * 1e6 / STEP as f64,
        worst.as_secs_f64() * 1e3,
    );
    drop(stop);
    serving.await.expect("it ends well").expect("it served");
}

async fn post(stream: &mut TcpStream, address: SocketAddr, body: &str) {
    let head = format!(
        "POST /v1/workflow-events HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("it is open");
    stream.write_all(body.as_bytes()).await.expect("it is open");
    let mut answer = Vec::with_capacity(16 << 10);
    loop {
        let read = stream.read_buf(&mut answer).await.expect("it is open");
        assert!(read > 0, "the server closed: {}", String::from_utf8_lossy(&answer));
        let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        assert!(head.starts_with("http/1.1 202"), "{}", String::from_utf8_lossy(&answer));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).expect("it says how long it is");
        if answer.len() >= end + 4 + length {
            return;
        }
    }
}

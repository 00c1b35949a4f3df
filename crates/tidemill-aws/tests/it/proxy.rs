//! A proxy between the backend and the double that does what networks and services do at their worst.
//!
//! It takes one request per connection, forwards it and gives the answer back, unless its plan says otherwise.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tidemill_engine::notice::Notice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How long a request may take before it counts as arrived.
const ARRIVAL: Duration = Duration::from_millis(500);

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Forward,
    /// It is not forwarded, and the answer says that there were too many.
    Throttle,
    /// It is not forwarded, and the answer is an error of this name.
    Refuse(&'static str),
    /// It arrives, and its answer is lost.
    LoseAnswer,
    /// It is taken, and nothing comes of it while the connection stays.
    Hang,
    /// It is lost on the way.
    LoseRequest,
    /// It arrives twice; the second answer is given.
    Double,
    /// It arrives, its answer is lost, and nothing comes through any more.
    LastToArrive,
    /// It is lost, and so is all after it.
    CutBefore,
    /// Of a batch the first part does not arrive, and the answer says so.
    Part,
    /// It is not forwarded, and the answer is this.
    Answer(&'static str),
}

pub(crate) struct Proxy {
    pub(crate) endpoint: String,
    plan: Arc<Plan>,
    accepting: JoinHandle<()>,
}

/// What becomes of the request with this number and operation.
type Fates = Box<dyn Fn(u64, &str) -> Fate + Send + Sync>;

struct Plan {
    upstream: String,
    fate: Fates,
    requests: AtomicU64,
    /// What was asked for, with the bodies.
    heard: Mutex<Vec<(String, Vec<u8>)>>,
    is_cut: std::sync::atomic::AtomicBool,
    cut: Notice,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// A proxy to the double at `upstream`. The plan is asked with the number of a request, from 1, and its operation.
    pub(crate) async fn start(
        upstream: &str,
        fate: impl Fn(u64, &str) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let plan = Arc::new(Plan {
            upstream: upstream.trim_start_matches("http://").to_owned(),
            fate: Box::new(fate),
            requests: AtomicU64::new(0),
            heard: Mutex::default(),
            is_cut: false.into(),
            cut: Notice::default(),
        });
        let accepted = Arc::clone(&plan);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let plan = Arc::clone(&accepted);
                // A connection that breaks is what this is about.
                tokio::spawn(async move { drop(plan.serve(client).await) });
            }
        });
        Self { endpoint, plan, accepting }
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> u64 {
        self.plan.requests.load(Ordering::SeqCst)
    }

    /// What was asked for since this was called last, by operation, with the bodies.
    pub(crate) fn take_requests(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.plan.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until nothing comes through any more.
    pub(crate) async fn is_cut(&self) {
        loop {
            let cut = self.plan.cut.listen();
            if self.plan.is_cut.load(Ordering::SeqCst) {
                return;
            }
            cut.await;
        }
    }
}

impl Plan {
    async fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let request = read_request(&mut client).await?;
        if self.is_cut.load(Ordering::SeqCst) {
            return Ok(());
        }
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let operation = operation(&request);
        let body = request[find(&request, b"\r\n\r\n").map_or(request.len(), |end| end + 4)..].to_vec();
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push((operation.clone(), body));
        match (self.fate)(number, &operation) {
            Fate::Forward => client.write_all(&self.forward(&request).await?).await,
            Fate::Double => {
                self.forward(&request).await?;
                client.write_all(&self.forward(&request).await?).await
            }
            Fate::LoseAnswer => self.forward(&request).await.map(drop),
            Fate::LoseRequest => Ok(()),
            // Until the other side gives up.
            Fate::Hang => client.read(&mut [0]).await.map(drop),
            Fate::Throttle => client.write_all(&refusal("ThrottlingException")).await,
            Fate::Refuse(name) => client.write_all(&refusal(name)).await,
            Fate::Answer(body) => client.write_all(&answer_of(body.as_bytes())).await,
            Fate::Part => {
                let body = self.forward_part(&request).await?;
                client.write_all(&answer_of(body.to_string().as_bytes())).await
            }
            Fate::LastToArrive => {
                self.is_cut.store(true, Ordering::SeqCst);
                let mut arriving = std::pin::pin!(self.forward(&request));
                let arrived = tokio::time::timeout(ARRIVAL, &mut arriving).await;
                self.cut.ring();
                match arrived {
                    Ok(arrived) => arrived.map(drop),
                    // A question that waits for its answer has arrived all the same, and is not taken back.
                    Err(_) => arriving.await.map(drop),
                }
            }
            Fate::CutBefore => {
                self.is_cut.store(true, Ordering::SeqCst);
                self.cut.ring();
                Ok(())
            }
        }
    }

    /// Forwards a batch without its first part, and adds to the answer that this failed.
    async fn forward_part(&self, request: &[u8]) -> std::io::Result<Value> {
        let head_end = find(request, b"\r\n\r\n").unwrap_or(request.len());
        let mut body: Value = serde_json::from_slice(&request[head_end + 4..])?;
        let operation = operation(request);
        let is_get = operation == "BatchGetItem";
        let list = if is_get {
            let tables = body["RequestItems"].as_object_mut().expect("tables are named");
            &mut tables.values_mut().next().expect("one is")["Keys"]
        } else {
            &mut body["Entries"]
        };
        let list = list.as_array_mut().expect("it is a batch");
        let first = list.remove(0);
        let is_empty = list.is_empty();
        let mut answer = if is_empty {
            serde_json::json!({ "Entries": [], "Successful": [], "Responses": {} })
        } else {
            let answer = self.forward(&with_body(request, &body)).await?;
            let start = find(&answer, b"\r\n\r\n").unwrap_or(answer.len());
            serde_json::from_slice(&answer[start + 4..])?
        };
        match operation.as_str() {
            "PutEvents" => {
                let failed =
                    serde_json::json!({ "ErrorCode": "InternalFailure", "ErrorMessage": "try again" });
                answer["Entries"].as_array_mut().expect("each is answered").insert(0, failed);
                answer["FailedEntryCount"] = 1.into();
            }
            "SendMessageBatch" => {
                let failed =
                    serde_json::json!({ "Id": first["Id"], "SenderFault": false, "Code": "InternalError" });
                answer["Failed"] = Value::Array(vec![failed]);
            }
            _ => {
                let (table, asked) = body["RequestItems"]
                    .as_object()
                    .and_then(|tables| tables.iter().next())
                    .expect("a table");
                let mut asked = asked.clone();
                asked["Keys"] = Value::Array(vec![first]);
                answer["UnprocessedKeys"] = serde_json::json!({ table: asked });
            }
        }
        Ok(answer)
    }

    async fn forward(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(&self.upstream).await?;
        // The answer ends where the connection does.
        let head_end = find(request, b"\r\n").unwrap_or(0);
        server.write_all(&request[..head_end]).await?;
        server.write_all(b"\r\nconnection: close").await?;
        server.write_all(&request[head_end..]).await?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

/// The request with another body.
fn with_body(request: &[u8], body: &Value) -> Vec<u8> {
    let head_end = find(request, b"\r\n\r\n").unwrap_or(request.len());
    let head = String::from_utf8_lossy(&request[..head_end]).into_owned();
    let body = body.to_string();
    let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
    let mut out = lines.fold(String::new(), |out, line| out + line + "\r\n");
    for part in ["content-length: ", &body.len().to_string(), "\r\n\r\n", &body] {
        out.push_str(part);
    }
    out.into_bytes()
}

fn answer_of(body: &[u8]) -> Vec<u8> {
    answer_with("200 OK", body)
}

fn refusal(name: &str) -> Vec<u8> {
    let body =
        format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{name}","message":"as the test says"}}"#);
    answer_with("400 Bad Request", body.as_bytes())
}

fn answer_with(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// What a request asks for: `PutItem`, or the method and path of an object.
fn operation(request: &[u8]) -> String {
    let head =
        String::from_utf8_lossy(&request[..find(request, b"\r\n\r\n").unwrap_or(request.len())]).into_owned();
    let target = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-amz-target")
            .then(|| value.trim().rsplit('.').next().unwrap_or_default().to_owned())
    });
    target.unwrap_or_else(|| head.lines().next().unwrap_or_default().to_owned())
}

async fn read_request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if client.read_buf(&mut request).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let Some(head_end) = find(&request, b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..head_end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let whole = head_end + 4 + length.unwrap_or(0);
        if head.contains("expect: 100-continue") && request.len() == head_end + 4 {
            client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        while request.len() < whole {
            if client.read_buf(&mut request).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        return Ok(request);
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

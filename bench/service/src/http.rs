//! A plain HTTP/1.1 client on one connection that is kept open.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

pub struct Connection {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body of an answer that must be a success.
    pub fn good(self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert!(self.status < 300, "the server answered {}: {text}", self.status);
        self.json()
    }
}

impl Connection {
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { address, stream: BufReader::new(stream) })
    }

    pub fn get(&mut self, path: &str) -> std::io::Result<Response> {
        self.send("GET", path, &[])
    }

    pub fn post(&mut self, path: &str, body: &Value) -> std::io::Result<Response> {
        self.send("POST", path, &serde_json::to_vec(body).expect("a value is JSON"))
    }

    pub fn send(&mut self, method: &str, path: &str, body: &[u8]) -> std::io::Result<Response> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address).into_bytes();
        if !body.is_empty() {
            write!(request, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())?;
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request)?;
        self.receive()
    }

    fn receive(&mut self) -> std::io::Result<Response> {
        let broken = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| broken(&format!("no status in {first:?}")))?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(|_| broken("a bad length"))?,
                "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
                _ => {}
            }
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let size =
                    usize::from_str_radix(self.line()?.trim(), 16).map_err(|_| broken("a bad chunk"))?;
                self.take(size, &mut body)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.take(length, &mut body)?;
        }
        Ok(Response { status, body })
    }

    fn take(&mut self, size: usize, body: &mut Vec<u8>) -> std::io::Result<()> {
        let start = body.len();
        body.resize(start + size, 0);
        self.stream.read_exact(&mut body[start..])
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

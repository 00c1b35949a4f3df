//! The model server of the tests as a program: `stub_model [--port PORT] [--rules FILE]`.
//!
//! It prints its address for `ANTHROPIC_BASE_URL` and answers until it is ended.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use tidemill_agent::stub_model::{StubModel, StubRule};

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("stub_model: {message}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the address is what the program tells")]
fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut port, mut rules) = (0, Vec::new());
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
        match argument.as_str() {
            "--port" => port = value.parse().map_err(|_| format!("{value} is no port"))?,
            "--rules" => {
                let text = std::fs::read_to_string(&value).map_err(|error| format!("{value}: {error}"))?;
                rules = serde_json::from_str::<Vec<StubRule>>(&text)
                    .map_err(|error| format!("{value}: {error}"))?;
            }
            _ => return Err(format!("{argument} is unknown; use --port and --rules")),
        }
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stub = StubModel::start_at(address, rules).map_err(|error| format!("port {port}: {error}"))?;
    println!("{}", stub.url());
    loop {
        std::thread::park();
    }
}

//! The loop of a host.

use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use super::confine;
use super::programs::Programs;
use crate::engine::compiler::compile_script;
use crate::engine::machine::{Machine, Task};
use crate::limits::{INPUT_BYTES_CEILING, SOURCE_BYTES_MAX, STACK_BYTES};
use crate::script_source::{CompileError, ScriptSource};
use crate::wire::{Answer, Execute, FrameBuffer, Order, Setup};

/// The longest order: an input and a source, and some numbers.
const ORDER_BYTES_MAX: usize = INPUT_BYTES_CEILING + SOURCE_BYTES_MAX + 64 * 1024;

/// Runs this process as a script host until its socket, which it has as standard input, closes.
///
/// The process must have been started for this by a `Pool`, and must have one thread.
pub fn host_main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // Only a person who wants to know why hosts do not start reads standard error.
        Err(error) => {
            let _ = writeln!(io::stderr(), "script host: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    confine::follow_parent()?;
    // Never closed by hand: the end of the process does it, and the filter need not allow it.
    let mut socket = ManuallyDrop::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?));
    let mut buffer = FrameBuffer::default();
    let setup = match next_order(&mut socket, &mut buffer)? {
        None => return Ok(()),
        Some(body) => match Order::decode(body).map_err(io::Error::other)? {
            Order::Setup(setup) => setup,
            _ => return Err(io::Error::other("the first order is no setup")),
        },
    };
    buffer.next();
    let memory_bytes = usize::try_from(setup.memory_bytes).map_err(io::Error::other)?;
    confine::limit(&setup)?;
    let machine = Machine::build(memory_bytes, STACK_BYTES)?;
    let note = confine::seal();
    socket.write_all(&Answer::Ready { note }.encode())?;
    let mut host = Host { machine, programs: Programs::default(), setup };
    while let Some(body) = next_order(&mut socket, &mut buffer)? {
        let order = Order::decode(body).map_err(io::Error::other)?;
        let answer = host.answer(order)?.encode();
        buffer.next();
        match socket.write_all(&answer) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    Ok(())
}

/// Waits for the next order. `None` when the other side has closed.
fn next_order<'a>(socket: &mut UnixStream, buffer: &'a mut FrameBuffer) -> io::Result<Option<&'a [u8]>> {
    while buffer.frame(ORDER_BYTES_MAX).map_err(io::Error::other)?.is_none() {
        match socket.read(buffer.room()) {
            Ok(0) => return Ok(None),
            Ok(count) => buffer.filled(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    buffer.frame(ORDER_BYTES_MAX).map_err(io::Error::other)
}

struct Host {
    machine: Machine,
    programs: Programs,
    setup: Setup,
}

impl Host {
    fn answer(&mut self, order: Order<'_>) -> io::Result<Answer> {
        match order {
            Order::Setup(_) => Err(io::Error::other("a second setup")),
            Order::Compile { name, source } => Ok(match self.compile(name, source) {
                Ok(_) => Answer::Compiled,
                Err(error) => Answer::Refused(error),
            }),
            Order::Execute(execute) => Ok(self.execute(&execute)),
        }
    }

    fn compile(
        &mut self,
        name: &str,
        source: &str,
    ) -> Result<std::rc::Rc<crate::engine::compiler::Program>, CompileError> {
        let script = ScriptSource::new(name, source)?;
        let program = compile_script(&script)?;
        Ok(self.programs.put(script.version(), program))
    }

    fn execute(&mut self, execute: &Execute<'_>) -> Answer {
        let program = match (self.programs.get(execute.version), execute.script) {
            (Some(program), _) => program,
            (None, None) => return Answer::ScriptWanted,
            (None, Some((name, source))) => match self.compile(name, source) {
                Ok(program) => program,
                Err(error) => return Answer::Refused(error),
            },
        };
        let ended = self.machine.run(
            &program,
            &Task {
                execution: execute.execution,
                now: execute.now,
                grants: execute.grants,
                limits: execute.limits.clamped(),
                context: execute.context,
            },
        );
        let worn = confine::cpu_secs() >= self.setup.cpu_secs;
        Answer::Ended { ended, worn }
    }
}

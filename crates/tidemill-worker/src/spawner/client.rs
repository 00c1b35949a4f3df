//! The server's side of the spawner.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::sync::{Notify, mpsc};

use super::child_pipe::ChildPipe;
use super::frame::{Inbox, Outbox, Received};
use super::message::{Answer, ChildExit, CommandLine, Request, RunAs, SpawnError};
use crate::leftovers::kill_orphans;
use crate::moment::Moment;

/// How a spawner is started and what its children carry.
#[derive(Debug, Clone)]
pub struct SpawnerConfig {
    /// The program that calls `spawner::serve`, usually this very one.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Names the data directory on this machine, for the mark in the environment of every child. No dots.
    pub data_id: String,
    /// The life of the data directory.
    pub generation: u64,
    /// The user that children run as; `None` for this process's own.
    pub run_as: Option<RunAs>,
}

impl SpawnerConfig {
    /// Starts this program again as `<program> spawner`.
    pub fn new(data_id: impl Into<String>, generation: u64) -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            arguments: vec!["spawner".into()],
            data_id: data_id.into(),
            generation,
            run_as: None,
        })
    }
}

/// Starts child processes by way of the spawner process. Clones share it; with the last one everything that it started
/// is killed.
#[derive(Debug, Clone)]
pub struct Spawner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: SpawnerConfig,
    next: AtomicU64,
    /// One process per core, started when those before it are busy: each waits while a child becomes another program.
    links: Mutex<Vec<Arc<Link>>>,
    links_max: usize,
}

/// How long a spawner may take to start a child. One that takes longer hangs, and is replaced.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// The processes of one spawner. A child's number tells which of them started it.
const LINKS_MAX: u64 = 4;

/// What happens to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildEvent {
    /// The child itself ended. What it started may live on for a moment.
    Exited(ChildExit),
    /// Nothing of it is left. `forced`: it took SIGKILL. `expired`: at its deadline. `survivors` could not be killed.
    Gone { forced: bool, expired: bool, survivors: Vec<u32> },
    /// The spawner died, and everything with it.
    Lost,
}

/// A child process.
#[derive(Debug)]
pub struct Child {
    pub pid: u32,
    pub stdout: ChildPipe,
    pub stderr: ChildPipe,
    pub watch: ChildWatch,
}

/// A child that was asked for. It may run already. Dropped, it is ended.
#[derive(Debug)]
pub struct Starting {
    stdout: ChildPipe,
    stderr: ChildPipe,
    watch: ChildWatch,
}

/// Tells what happens to a child. Dropped before the child is gone, it kills it with everything that it started.
#[derive(Debug)]
pub struct ChildWatch {
    handle: ChildHandle,
    answers: mpsc::UnboundedReceiver<Answer>,
    is_over: bool,
}

/// What others may ask of a child while somebody waits for it.
#[derive(Debug, Clone)]
pub struct ChildHandle {
    id: u64,
    link: Arc<Link>,
}

impl Spawner {
    /// Starts the spawner process. Needs a tokio runtime.
    pub fn start(config: SpawnerConfig) -> io::Result<Self> {
        let links = Mutex::new(vec![Link::start(&config, 0)?]);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let links_max = cores.min(usize::try_from(LINKS_MAX).unwrap_or(1));
        Ok(Self { inner: Arc::new(Inner { config, next: AtomicU64::new(0), links, links_max }) })
    }

    /// The processes that start children now.
    pub fn pids(&self) -> Vec<u32> {
        lock(&self.inner.links).iter().map(|link| link.pid).collect()
    }

    /// The user that children run as.
    pub fn run_as(&self) -> Option<RunAs> {
        self.inner.config.run_as
    }

    /// Starts a child. If the spawner died, a new one is started first.
    pub async fn spawn(&self, command: CommandLine) -> Result<Child, SpawnError> {
        self.spawn_until(command, None).await
    }

    /// Starts a child that the spawner kills by itself at `deadline`, with everything that it started, whatever this process
    /// is doing then. It is not started after it.
    pub async fn spawn_until(
        &self,
        command: CommandLine,
        deadline: Option<Moment>,
    ) -> Result<Child, SpawnError> {
        self.begin(command, deadline)?.child().await
    }

    /// Asks for a child. The spawner may have started it before it answers.
    pub fn begin(&self, command: CommandLine, deadline: Option<Moment>) -> Result<Starting, SpawnError> {
        let link = self.link().map_err(|error| SpawnError::Gone(error.to_string()))?;
        let id = (self.inner.next.fetch_add(1, Ordering::Relaxed) + 1) * LINKS_MAX + link.index;
        let SpawnerConfig { data_id, generation, run_as, .. } = &self.inner.config;
        let mark = OsString::from(format!("{data_id}.{generation}.{id}"));
        let (stdout, stdout_end) = ChildPipe::new()?;
        let (stderr, stderr_end) = ChildPipe::new()?;
        let request = Request::Spawn { id, line: command, mark, run_as: *run_as, deadline }.encode();
        if request.len() > super::message::FRAME_BYTES_MAX {
            return Err(SpawnError::Refused { errno: rustix::io::Errno::TOOBIG.raw_os_error() });
        }
        let (sender, answers) = mpsc::unbounded_channel();
        link.expect(id, sender)?;
        link.starting.fetch_add(1, Ordering::Relaxed);
        link.send(request, vec![stdout_end, stderr_end]);
        let watch = ChildWatch { handle: ChildHandle { id, link }, answers, is_over: false };
        Ok(Starting { stdout, stderr, watch })
    }

    /// Whether children can be started: a spawner is there, a new one if it has to be, and answers.
    pub(crate) async fn answers(&self) -> Result<(), SpawnError> {
        let link = self.link().map_err(|error| SpawnError::Gone(error.to_string()))?;
        let id = (self.inner.next.fetch_add(1, Ordering::Relaxed) + 1) * LINKS_MAX + link.index;
        let answer = link.ask(id).ok_or_else(|| SpawnError::Gone("it ended".to_owned()))?;
        match tokio::time::timeout(ANSWER_WAIT, answer).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(SpawnError::Gone("it ended before it answered".to_owned())),
            Err(_) => {
                link.kill();
                Err(SpawnError::Gone("it did not answer and was killed".to_owned()))
            }
        }
    }

    /// A process that is free to start a child, a new one, or the least busy.
    fn link(&self) -> io::Result<Arc<Link>> {
        let Inner { config, links, links_max, .. } = &*self.inner;
        let mut links = lock(links);
        for link in links.iter_mut().filter(|link| link.is_dead()) {
            *link = Link::start(config, link.index)?;
        }
        let starting = |link: &&Arc<Link>| link.starting.load(Ordering::Relaxed);
        let least = links.iter().min_by_key(starting).cloned();
        match least {
            Some(link) if starting(&&link) == 0 || links.len() >= *links_max => Ok(link),
            least => {
                let index = u64::try_from(links.len()).unwrap_or(0);
                match (Link::start(config, index), least) {
                    (Ok(link), _) => {
                        links.push(Arc::clone(&link));
                        Ok(link)
                    }
                    // One process too few is better than none.
                    (Err(_), Some(link)) => Ok(link),
                    (Err(error), None) => Err(error),
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for link in lock(&self.links).iter() {
            // It kills what runs and ends.
            let _ = rustix::net::shutdown(&link.stream, rustix::net::Shutdown::Write);
        }
    }
}

impl Starting {
    /// The child, once the spawner says that it started it. A spawner that says nothing for too long is killed, and everything
    /// that it started is gone when this returns.
    pub async fn child(mut self) -> Result<Child, SpawnError> {
        let pid = self.answered().await?;
        Ok(self.into_child(pid))
    }

    pub(crate) fn into_child(self, pid: u32) -> Child {
        let Self { stdout, stderr, watch } = self;
        Child { pid, stdout, stderr, watch }
    }

    /// Waits for the process id of the child.
    pub async fn answered(&mut self) -> Result<u32, SpawnError> {
        let watch = &mut self.watch;
        let Ok(answer) = tokio::time::timeout(ANSWER_WAIT, watch.answers.recv()).await else {
            watch.handle.kill_spawner();
            // The caller may give the task to another worker at once.
            while watch.answers.recv().await.is_some() {}
            return Err(SpawnError::Died("it did not answer and was killed"));
        };
        match answer {
            Some(Answer::Started { pid, .. }) => Ok(pid),
            Some(Answer::Failed { errno, .. }) => {
                watch.note_gone();
                Err(SpawnError::Refused { errno })
            }
            Some(Answer::TooLate { .. }) => {
                watch.note_gone();
                Err(SpawnError::TooLate)
            }
            Some(_) | None => Err(SpawnError::Died("it ended before it answered")),
        }
    }

    /// Ends the child, which may run although its spawner never said so. A spawner that hangs is killed after `wait`, and the
    /// child dies with it.
    pub async fn abandon(self, wait: Duration) {
        let handle = self.watch.handle();
        drop(self);
        if handle.clone().hangs(wait).await {
            handle.kill_spawner();
        }
    }
}

impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::Refused { errno },
            None => Self::Gone(error.to_string()),
        }
    }
}

impl ChildWatch {
    /// What happens next. After `Gone` or `Lost` nothing more does.
    pub async fn event(&mut self) -> ChildEvent {
        loop {
            match self.answers.recv().await {
                Some(Answer::Exited { exit, .. }) => return ChildEvent::Exited(exit),
                Some(Answer::Gone { forced, expired, survivors, .. }) => {
                    self.note_gone();
                    return ChildEvent::Gone { forced, expired, survivors };
                }
                Some(_) => {}
                None => {
                    self.is_over = true;
                    return ChildEvent::Lost;
                }
            }
        }
    }

    pub fn handle(&self) -> ChildHandle {
        self.handle.clone()
    }

    /// Nothing of the child is left, or there never was one.
    fn note_gone(&mut self) {
        self.is_over = true;
        self.handle.link.forget(self.handle.id);
    }

    /// Whether there is an event that was not asked for yet.
    pub(crate) fn has_news(&self) -> bool {
        !self.answers.is_empty()
    }
}

impl Drop for ChildWatch {
    fn drop(&mut self) {
        if !self.is_over {
            self.handle.end(Duration::ZERO);
            self.handle.link.forget(self.handle.id);
        }
    }
}

impl ChildHandle {
    /// Asks the child and everything that it started to end, and kills what is left after `grace`.
    pub fn end(&self, grace: Duration) {
        let grace_millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.link.send(Request::End { id: self.id, grace_millis }.encode(), Vec::new());
    }

    /// Moves the moment at which the spawner kills the child.
    pub fn extend(&self, deadline: Moment) {
        self.link.send(Request::Extend { id: self.id, deadline }.encode(), Vec::new());
    }

    /// Kills the spawner of the child, and with it the child and all others of that spawner. For one that does not
    /// answer any more.
    pub fn kill_spawner(&self) {
        self.link.kill();
    }

    /// Resident bytes of the child and everything that it started; 0 when that is unknown.
    pub async fn rss(&self) -> u64 {
        let Some(answer) = self.link.measure(self.id) else { return 0 };
        answer.await.unwrap_or(0)
    }

    /// Whether the spawner of the child is silent for this long. One that is gone does not hang.
    pub(crate) async fn hangs(self, wait: Duration) -> bool {
        match self.link.ask(self.id) {
            Some(answer) => tokio::time::timeout(wait, answer).await.is_err(),
            None => false,
        }
    }
}

/// The connection to one spawner process.
#[derive(Debug)]
struct Link {
    index: u64,
    pid: u32,
    /// Children that were asked for and not answered yet.
    starting: AtomicUsize,
    /// Watched only for what it says: watching for room as well would wake us each time the spawner reads.
    stream: AsyncFd<UnixStream>,
    out: Mutex<Outbox>,
    /// Rings when the outbox could not be emptied at once.
    blocked: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_dead: bool,
    /// The number of the child that was asked for last.
    newest: u64,
    children: HashMap<u64, mpsc::UnboundedSender<Answer>>,
    measures: HashMap<u64, Vec<tokio::sync::oneshot::Sender<u64>>>,
}

impl Link {
    fn start(config: &SpawnerConfig, index: u64) -> io::Result<Arc<Self>> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // Without code between fork and exec the library spawns without copying this process.
        let process = Command::new(&config.program)
            .args(&config.arguments)
            // Children can read the environment of their parent.
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let link = Arc::new(Self {
            index,
            pid: process.id(),
            starting: AtomicUsize::new(0),
            stream: watched(ours)?,
            out: Mutex::default(),
            blocked: Notify::new(),
            state: Mutex::default(),
        });
        tokio::spawn(attend(Arc::clone(&link), process, config.clone()));
        Ok(link)
    }

    fn is_dead(&self) -> bool {
        lock(&self.state).is_dead
    }

    /// The reader then sees its end.
    fn kill(&self) {
        if let (false, Some(pid)) = (self.is_dead(), rustix::process::Pid::from_raw(self.pid.cast_signed())) {
            // It is a child of this process that nobody has waited for yet, so the number is still its own.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    fn expect(&self, id: u64, sender: mpsc::UnboundedSender<Answer>) -> Result<(), SpawnError> {
        let mut state = lock(&self.state);
        if state.is_dead {
            return Err(SpawnError::Gone("it ended".to_owned()));
        }
        state.newest = state.newest.max(id);
        state.children.insert(id, sender);
        Ok(())
    }

    fn forget(&self, id: u64) {
        lock(&self.state).children.remove(&id);
    }

    fn measure(&self, id: u64) -> Option<tokio::sync::oneshot::Receiver<u64>> {
        if !lock(&self.state).children.contains_key(&id) {
            return None;
        }
        self.ask(id)
    }

    /// Asks for the memory of something, which may not be there; `None` without a spawner.
    fn ask(&self, id: u64) -> Option<tokio::sync::oneshot::Receiver<u64>> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut state = lock(&self.state);
        if state.is_dead {
            return None;
        }
        let waiting = state.measures.entry(id).or_default();
        // A spawner that hangs is asked once.
        let is_asked = !waiting.is_empty();
        waiting.retain(|waiting| !waiting.is_closed());
        waiting.push(sender);
        drop(state);
        if !is_asked {
            self.send(Request::Measure { id }.encode(), Vec::new());
        }
        Some(receiver)
    }

    /// Sends at once what the socket takes. The rest follows when it can; nobody waits here.
    fn send(&self, frame: Vec<u8>, fds: Vec<OwnedFd>) {
        let mut out = lock(&self.out);
        out.push(frame, fds);
        // The reader notices a spawner that is gone.
        let _ = out.flush(&self.stream);
        if !out.is_empty() {
            self.blocked.notify_one();
        }
    }

    /// Hands answers to their waiters.
    fn take(&self, answer: Answer) {
        if let Answer::Started { .. } | Answer::Failed { .. } | Answer::TooLate { .. } = answer {
            self.starting.fetch_sub(1, Ordering::Relaxed);
        }
        let mut state = lock(&self.state);
        if let Answer::Measured { id, rss } = answer {
            for waiting in state.measures.remove(&id).unwrap_or_default() {
                // The caller may have gone.
                let _ = waiting.send(rss);
            }
            return;
        }
        if let Some(sender) = state.children.get(&answer.id()) {
            let _ = sender.send(answer);
        }
    }
}

/// A socket that the runtime watches for what it says only.
#[expect(
    unsafe_code,
    reason = "its number stays the same until it is dropped, and it is dropped with the registration"
)]
fn watched(socket: UnixStream) -> io::Result<AsyncFd<UnixStream>> {
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

/// Reads a spawner's answers until it ends, and cleans up after it.
async fn attend(link: Arc<Link>, mut process: std::process::Child, config: SpawnerConfig) {
    let mut inbox = Inbox::default();
    let mut sending = pin!(send_rests(&link));
    loop {
        let is_alive = tokio::select! {
            ready = link.stream.readable() => ready.is_ok_and(|ready| receive(&link, &mut inbox, ready)),
            _ = &mut sending => false,
        };
        if !is_alive {
            break;
        }
    }
    end(&link, config).await;
    // Its socket is closed, so it ends by itself; nobody has to wait for that here.
    tokio::task::spawn_blocking(move || process.wait());
}

/// Sends what the socket did not take at once, each time that happens. Returns when the spawner is gone.
async fn send_rests(link: &Link) -> io::Error {
    loop {
        link.blocked.notified().await;
        if let Err(error) = send_rest(link).await {
            return error;
        }
    }
}

async fn send_rest(link: &Link) -> io::Result<()> {
    // Under a number of its own, and for as long as it is needed.
    let room = tokio::net::UnixStream::from_std(link.stream.get_ref().try_clone()?)?;
    loop {
        room.writable().await?;
        match room.try_io(Interest::WRITABLE, || flush(link)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            flushed => return flushed,
        }
    }
}

fn flush(link: &Link) -> io::Result<()> {
    let mut out = lock(&link.out);
    out.flush(&link.stream)?;
    if out.is_empty() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// Takes what there is. False when the spawner is gone.
fn receive(link: &Link, inbox: &mut Inbox, mut ready: AsyncFdReadyGuard<'_, UnixStream>) -> bool {
    let received = inbox.receive(&link.stream);
    if !matches!(received, Ok(Received::Full)) {
        // All was taken: what comes next rings again.
        ready.clear_ready();
    }
    if matches!(received, Ok(Received::End) | Err(_)) {
        return false;
    }
    loop {
        match inbox.frame() {
            Ok(Some(body)) => match Answer::decode(body) {
                Ok(answer) => link.take(answer),
                Err(_) => return false,
            },
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// The spawner died: its children died with it, and the rest is killed before any caller learns of it.
async fn end(link: &Link, config: SpawnerConfig) {
    let newest = {
        let mut state = lock(&link.state);
        state.is_dead = true;
        state.newest
    };
    let index = link.index;
    let is_its = move |number: u64| number % LINKS_MAX == index && number <= newest;
    let kill = move || kill_orphans(&config.data_id, config.generation, is_its);
    // A join error would mean that the runtime ends, and this with it.
    let _ = tokio::task::spawn_blocking(kill).await;
    let mut state = lock(&link.state);
    state.children.clear();
    state.measures.clear();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

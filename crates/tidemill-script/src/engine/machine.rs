//! A machine that runs compiled scripts, one after another, each in an engine that nothing happened to before.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Function, Object, Persistent, Promise, Runtime, Value, context::intrinsic};
use serde::{Deserialize, Serialize};
use tidemill_model::{EventId, Timestamp};

use super::arena::Arena;
use super::bytecode::load;
use super::compiler::{OWN_FILE, Program, compile_own, place_in};
use super::session::{Session, Traces};
use crate::call::{Grants, RawCall};
use crate::execution::{ScriptLogLine, Stats};
use crate::failure::ErrorClass;
use crate::limits::{self, CALLS_MAX, LOG_LINES_CEILING, Limits};
use crate::wire::short_list;

const PRELUDE: &str = include_str!("prelude.js");

/// Cycles are looked for when this much is in use: most executions never get there.
const COLLECT_FROM_BYTES: usize = 8 * 1024 * 1024;

/// What scripts can use of the language. There is no compiler, no clock of high resolution and no weak reference.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// What is to be run, besides the program.
#[derive(Debug, Clone)]
pub(crate) struct Task<'a> {
    pub(crate) execution: EventId,
    pub(crate) now: Timestamp,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    /// The fields of `ctx` as a JSON object.
    pub(crate) context: &'a str,
}

/// How it ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) outcome: Result<Finished, Broken>,
    #[serde(deserialize_with = "short_list::<LOG_LINES_CEILING, _, _>")]
    pub(crate) logs: Vec<ScriptLogLine>,
    pub(crate) logs_truncated: bool,
    pub(crate) stats: Stats,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finished {
    pub(crate) result: String,
    #[serde(deserialize_with = "short_list::<CALLS_MAX, _, _>")]
    pub(crate) calls: Vec<RawCall>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Broken {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    pub(crate) stack: String,
    pub(crate) place: Option<(u32, u32)>,
}

/// The functions of the prelude, kept from when it was evaluated.
struct Entrances {
    begin: Persistent<Function<'static>>,
    finish: Persistent<Function<'static>>,
    tell: Persistent<Function<'static>>,
}

// The order of the fields is the order in which they are dropped: values, context, runtime, memory.
pub(crate) struct Machine {
    entrances: Entrances,
    context: Context,
    #[expect(dead_code, reason = "kept for its drop")]
    runtime: Runtime,
    session: Rc<Session>,
    arena: Arena,
}

impl Machine {
    /// Builds an engine in `memory_bytes` of memory, with a stack for scripts of `stack_bytes`.
    pub(crate) fn build(memory_bytes: usize, stack_bytes: usize) -> io::Result<Self> {
        let arena = Arena::reserve(memory_bytes)?;
        let broken =
            |error: rquickjs::Error| io::Error::other(format!("the engine cannot be built: {error}"));
        let runtime = Runtime::new_with_alloc(arena.clone()).map_err(broken)?;
        runtime.set_max_stack_size(stack_bytes);
        runtime.set_gc_threshold(COLLECT_FROM_BYTES);
        let session = Rc::new(Session::new());
        let (watched, memory) = (Rc::clone(&session), arena.clone());
        // Being refused memory ends a script like running out of time. It could catch the error and go on, but in an
        // engine of which every part may lack something.
        runtime.set_interrupt_handler(Some(Box::new(move || memory.has_refused() || watched.is_over())));
        let rejections = Rc::clone(&session);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |_, _, _, handled| {
            rejections.count_rejection(handled);
        })));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(broken)?;
        let prelude = compile_own(PRELUDE).map_err(|error| io::Error::other(error.to_string()))?;
        let entrances = context.with(|ctx| {
            let set_up = || -> rquickjs::Result<Entrances> {
                let prelude: Function = load(&ctx, &prelude)?.get()?;
                let made: Object = prelude.call((
                    emitter(&ctx, Rc::clone(&session))?,
                    enterer(&ctx, Rc::clone(&session))?,
                    bounds(&ctx)?,
                ))?;
                let entrance =
                    |name: &str| made.get(name).map(|found: Function| Persistent::save(&ctx, found));
                Ok(Entrances {
                    begin: entrance("begin")?,
                    finish: entrance("finish")?,
                    tell: entrance("tell")?,
                })
            };
            set_up().map_err(|error| {
                let thrown = ctx.catch();
                let message = thrown.as_exception().map(ToString::to_string).unwrap_or_default();
                io::Error::other(format!("the prelude failed: {error} {message}"))
            })
        })?;
        runtime.run_gc();
        if !arena.keep() {
            return Err(io::Error::other("the engine has blocks that cannot be kept"));
        }
        Ok(Self { entrances, context, runtime, session, arena })
    }

    /// Runs a program. Whatever it does, the machine is as new afterwards.
    pub(crate) fn run(&mut self, program: &Program, task: &Task<'_>) -> Ended {
        let started = Instant::now();
        let cpu = cpu_micros();
        self.session.begin(task.execution, &task.limits, started);
        self.arena.begin(task.limits.memory_bytes);
        let outcome = self.context.with(|ctx| self.run_in(&ctx, program, task));
        let Traces { logs, logs_truncated, calls } = self.session.end();
        let outcome = outcome.map(|result| Finished { result, calls });
        let peak_memory_bytes = self.arena.peak() as u64;
        self.set_back();
        let wall_micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let cpu_micros = cpu_micros().saturating_sub(cpu);
        Ended { outcome, logs, logs_truncated, stats: Stats { wall_micros, cpu_micros, peak_memory_bytes } }
    }

    #[expect(unsafe_code, reason = "`run_in` has returned and what it made was dropped with its closure")]
    fn set_back(&mut self) {
        unsafe { self.arena.set_back() };
    }

    fn run_in(&self, ctx: &Ctx<'_>, program: &Program, task: &Task<'_>) -> Result<String, Broken> {
        let settled = self.settle(ctx, program, task);
        self.check_limits(&task.limits)?;
        let outcome = match settled {
            Ok(value) => self.write_result(ctx, value, &task.limits),
            Err(Stop::Thrown(thrown)) => Err(self.broken_by(ctx, &thrown)),
            Err(Stop::Broken(broken)) => Err(broken),
        };
        self.check_limits(&task.limits)?;
        outcome
    }

    /// Whether the script was stopped. What it made of that is of no interest: it may look like an error of its own.
    fn check_limits(&self, limits: &Limits) -> Result<(), Broken> {
        if self.arena.has_refused() {
            let message = format!("the script needs more than {} bytes of memory", limits.memory_bytes);
            return Err(Broken::new(ErrorClass::Memory, message));
        }
        if self.session.is_over() {
            let message = format!("the script ran longer than {} ms", limits.wall.as_millis());
            return Err(Broken::new(ErrorClass::Timeout, message));
        }
        Ok(())
    }

    /// Runs the script until nothing of it is left to run.
    fn settle<'js>(
        &self,
        ctx: &Ctx<'js>,
        program: &Program,
        task: &Task<'_>,
    ) -> Result<Value<'js>, Stop<'js>> {
        let caught = |_| Stop::Thrown(ctx.catch());
        let begin = self.entrances.begin.clone().restore(ctx).map_err(caught)?;
        let bits = task.execution.as_u128();
        let (first, second, third) = (low_bits(bits), low_bits(bits >> 32), low_bits(bits >> 64));
        #[expect(clippy::cast_precision_loss, reason = "13 digits fit")]
        let now = task.now.millis() as f64;
        let grants = i32::from(task.grants.bits());
        begin.call::<_, ()>((now, first, second, third, grants, task.context)).map_err(caught)?;
        let main: Function = load(ctx, &program.main).and_then(|value| value.get()).map_err(caught)?;
        let promise: Promise = main.call(()).map_err(caught)?;
        // Its memory comes back all at once. Taking it apart first would only cost time.
        std::mem::forget(main);
        while !self.session.is_over() && !self.arena.has_refused() && ctx.execute_pending_job() {}
        match promise.state() {
            PromiseState::Resolved => {
                self.session.warn_about_rejections();
                promise.result::<Value>().unwrap_or(Err(rquickjs::Error::Unknown)).map_err(caught)
            }
            PromiseState::Rejected => match promise.result::<Value>() {
                Some(Ok(value)) => Ok(value),
                // It throws what the promise was rejected with.
                _ => Err(Stop::Thrown(ctx.catch())),
            },
            PromiseState::Pending => Err(Stop::Broken(Broken::new(
                ErrorClass::Script,
                "the script waits for a promise that nothing will ever settle",
            ))),
        }
    }

    fn write_result<'js>(
        &self,
        ctx: &Ctx<'js>,
        value: Value<'js>,
        limits: &Limits,
    ) -> Result<String, Broken> {
        let finish = self.entrances.finish.clone().restore(ctx);
        let chars = i32::try_from(limits.result_bytes).unwrap_or(i32::MAX);
        let written = finish.and_then(|finish| finish.call::<_, Value>((value, chars)));
        let too_large = |size: usize| {
            let limit = limits.result_bytes;
            Broken::new(
                ErrorClass::Output,
                format!("the result has {size} bytes as JSON; the limit is {limit}"),
            )
        };
        let Ok(written) = written else {
            let mut broken = self.broken_by(ctx, &ctx.catch());
            if broken.class == ErrorClass::Script {
                broken.class = ErrorClass::Output;
                broken.message = format!("the result cannot be written as JSON: {}", broken.message);
            }
            return Err(broken);
        };
        match written.as_string().map(rquickjs::String::to_string) {
            Some(Ok(json)) if json.len() > limits.result_bytes => Err(too_large(json.len())),
            Some(Ok(json)) => Ok(json),
            Some(Err(error)) => {
                Err(Broken::new(ErrorClass::Output, format!("the result cannot be read: {error}")))
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
            None => Err(too_large(written.as_number().unwrap_or_default() as usize)),
        }
    }

    /// What a thrown value is, in texts.
    fn describe<'js>(&self, ctx: &Ctx<'js>, thrown: &Value<'js>) -> rquickjs::Result<Told> {
        let told: Object = self.entrances.tell.clone().restore(ctx)?.call((thrown.clone(),))?;
        Ok(Told { name: told.get("name")?, text: told.get("text")?, stack: told.get("stack")? })
    }

    /// What a thrown value means.
    fn broken_by<'js>(&self, ctx: &Ctx<'js>, thrown: &Value<'js>) -> Broken {
        let Ok(Told { name, text, stack }) = self.describe(ctx, thrown) else {
            drop(ctx.catch());
            return Broken::new(ErrorClass::Script, "the script threw something that cannot be described");
        };
        let stack = own_frames_removed(&stack);
        let class = match name.as_str() {
            "PermissionError" => ErrorClass::Permission,
            "ValidationError" => ErrorClass::Validation,
            _ => ErrorClass::Script,
        };
        let message = if text.is_empty() { "the script threw an empty text".to_owned() } else { text };
        Broken { class, message, place: place_in(&stack), stack }
    }
}

/// Why a script has no result.
enum Stop<'js> {
    Thrown(Value<'js>),
    Broken(Broken),
}

impl Broken {
    pub(crate) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), stack: String::new(), place: None }
    }
}

/// What the prelude tells of a thrown value.
struct Told {
    name: String,
    text: String,
    stack: String,
}

/// A stack without our own functions and those of the engine.
fn own_frames_removed(stack: &str) -> String {
    let mut kept = String::with_capacity(stack.len());
    let frames =
        stack.lines().filter(|line| !line.contains(OWN_FILE) && !line.trim_end().ends_with("(native)"));
    for frame in frames.take(limits::STACK_FRAMES_MAX) {
        if !kept.is_empty() {
            kept.push('\n');
        }
        kept.push_str(frame.trim_end());
    }
    kept
}

#[expect(clippy::cast_possible_truncation, reason = "only these bits are wanted")]
fn low_bits(bits: u128) -> i32 {
    (bits as u32).cast_signed()
}

fn emitter<'js>(ctx: &Ctx<'js>, session: Rc<Session>) -> rquickjs::Result<Function<'js>> {
    Function::new(ctx.clone(), move |level: i32, text: String, cut: bool| session.emit(level, text, cut))
}

fn enterer<'js>(ctx: &Ctx<'js>, session: Rc<Session>) -> rquickjs::Result<Function<'js>> {
    Function::new(ctx.clone(), move |kind: i32, subject: Option<String>, json: Option<String>| {
        session.enter(kind, subject, json)
    })
}

/// The limits that the prelude keeps by itself.
fn bounds<'js>(ctx: &Ctx<'js>) -> rquickjs::Result<Object<'js>> {
    let bounds = Object::new(ctx.clone())?;
    for (name, chars) in [
        ("callChars", limits::CALL_BYTES_MAX),
        ("lineChars", limits::LOG_LINE_CHARS_MAX),
        ("messageChars", limits::MESSAGE_CHARS_MAX),
        ("nameChars", limits::ERROR_NAME_CHARS_MAX),
        ("stackChars", limits::STACK_CHARS_MAX),
        ("subjectChars", limits::CALL_SUBJECT_CHARS_MAX),
    ] {
        bounds.set(name, i32::try_from(chars).expect("limits are small"))?;
    }
    Ok(bounds)
}

fn cpu_micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::compiler::compile_script;
    use crate::script_source::ScriptSource;

    const CONTEXT: &str = r#"{"event":{"id":"e","type":"user.created","timestamp":5,"data":{"n":[1,{"x":"y"}]}},
        "tenant":{"id":"t","tenantID":"t"}}"#;

    fn machine() -> Machine {
        Machine::build(64 << 20, limits::STACK_BYTES).unwrap()
    }

    fn run(machine: &mut Machine, source: &str) -> Ended {
        run_with(machine, source, Grants::ALL, Limits { wall: Duration::from_secs(20), ..Limits::default() })
    }

    fn run_with(machine: &mut Machine, source: &str, grants: Grants, limits: Limits) -> Ended {
        let program = compile_script(&ScriptSource::new("test", source).unwrap()).unwrap();
        let task = Task {
            execution: EventId::from_u128(0x0193_2c07_5a5a_7abc_9def_0123_4567_89ab),
            now: Timestamp::clamped(1_700_000_000_123),
            grants,
            limits,
            context: CONTEXT,
        };
        machine.run(&program, &task)
    }

    fn result(machine: &mut Machine, source: &str) -> String {
        run(machine, source)
            .outcome
            .map_or_else(|broken| format!("{}: {}", broken.class, broken.message), |done| done.result)
    }

    #[test]
    fn scripts_return_throw_and_wait() {
        let mut machine = machine();
        for (source, expected) in [
            ("return 1 + 1", "2"),
            ("", "null"),
            ("return undefined", "null"),
            ("return { a: [1, 'x', null], b: undefined }", r#"{"a":[1,"x",null]}"#),
            ("return await Promise.resolve(ctx.event.type)", r#""user.created""#),
            (
                "return ctx.event.data.n[1].x + ctx.tenant.id + ctx.tenant.tenantID + ctx.event.timestamp",
                r#""ytt5""#,
            ),
            ("const f = async (n) => n ? n + await f(n - 1) : 0; return f(10)", "55"),
            ("throw new Error('boom')", "script: Error: boom"),
            ("throw new TypeError('bad')", "script: TypeError: bad"),
            ("throw 'text'", "script: text"),
            ("throw null", "script: null"),
            ("throw undefined", "script: undefined"),
            ("throw { code: 7 }", r#"script: {"code":7}"#),
            ("throw Symbol('s')", "script: Symbol(s)"),
            ("await Promise.reject(new RangeError('late'))", "script: RangeError: late"),
            (
                "await new Promise(() => {})",
                "script: the script waits for a promise that nothing will ever settle",
            ),
            ("throw new ValidationError('no')", "validation: ValidationError: no"),
            (
                "return 10n",
                "output: the result cannot be written as JSON: TypeError: BigInt are forbidden in JSON.stringify",
            ),
            ("ctx.event.data.n.push(2)", "script: TypeError: object is not extensible"),
            ("ctx.event = 1", "script: TypeError: 'event' is read-only"),
            ("ctx = 1", "script: TypeError: 'ctx' is read-only"),
        ] {
            assert_eq!(result(&mut machine, source), expected, "{source}");
        }
    }

    #[test]
    fn nothing_of_an_execution_is_left_for_the_next() {
        let mut machine = machine();
        let pollute = "globalThis.leak = 1; Object.prototype.leak = 2; Array.prototype.map = null; JSON.stringify = () => '9';
            Date.now = () => 1; Math.random = () => 7; console.log = null; class A {}; Promise.prototype.then = null;
            Symbol.for('x').y; const held = []; for (let i = 0; i < 50000; i++) held.push({ i }); globalThis.held = held";
        for _ in 0..3 {
            result(&mut machine, pollute);
            let clean = "return [typeof leak, ({}).leak, [1].map((x) => x + 1), Date.now(), typeof held, Math.random() < 1]";
            assert_eq!(
                result(&mut machine, clean),
                r#"["undefined",null,[2],1700000000123,"undefined",true]"#
            );
        }
    }

    #[test]
    fn the_same_execution_has_the_same_dice_and_a_clock_that_stands_still() {
        let mut machine = machine();
        let source = "return [Math.random(), Math.random(), Date.now(), new Date().getTime(), new Date(7).toISOString(),
            new Date().getTimezoneOffset(), Date.UTC(2020, 1), new Date(2020, 0, 1, 12).toISOString(), Date().slice(0, 15),
            new Date() instanceof Date, new Date().constructor === Date, Object.getPrototypeOf(new Date(1)) === Date.prototype]";
        let first = result(&mut machine, source);
        assert_eq!(result(&mut machine, source), first);
        let found: Vec<serde_json::Value> = serde_json::from_str(&first).unwrap();
        assert!(found[..2].iter().all(|dice| (0.0..1.0).contains(&dice.as_f64().unwrap())), "{first}");
        assert_ne!(found[0], found[1]);
        assert_eq!(
            found[2..4],
            [serde_json::json!(1_700_000_000_123_i64), serde_json::json!(1_700_000_000_123_i64)]
        );
        assert_eq!(found[9..], [true, true, true]);
    }

    #[test]
    fn an_error_has_the_line_and_column_of_the_script() {
        let mut machine = machine();
        let broken = run(&mut machine, "const a = 1;\nfunction f() {\n    throw new Error('x');\n}\nf();")
            .outcome
            .unwrap_err();
        assert_eq!(broken.place, Some((3, 15)), "{}", broken.stack);
        assert_eq!(broken.stack, "    at f (test:3:15)\n    at main (test:5:1)");
        let broken = run(&mut machine, "throw new Error('x')").outcome.unwrap_err();
        assert_eq!(broken.place, Some((1, 11)), "{}", broken.stack);
        let broken = run(&mut machine, "\nctx.publish(1, {})").outcome.unwrap_err();
        assert_eq!(broken.stack, "    at main (test:2:5)", "our own frames are not shown");
    }

    #[test]
    fn calls_are_kept_until_the_end_and_refused_without_a_grant() {
        let mut machine = machine();
        let ended = run(
            &mut machine,
            "const id = ctx.publish('a.b', { x: 1 }); const job = ctx.submitJob({ tasks: [] });
            await ctx.resolveError({ errorCode: '01256' }); return [id, job]",
        );
        let done = ended.outcome.unwrap();
        let kinds: Vec<_> = done
            .calls
            .iter()
            .map(|call| (call.kind.grant(), call.subject.as_str(), call.json.as_str()))
            .collect();
        assert_eq!(
            kinds,
            [
                ("publish", "a.b", r#"{"x":1}"#),
                ("submitJob", "", r#"{"tasks":[]}"#),
                ("resolveError", "", r#"{"errorCode":"01256"}"#)
            ]
        );
        let ids: Vec<String> = serde_json::from_str(&done.result).unwrap();
        assert!(ids[0].starts_with("01932c07-5a5a-7") && ids[1].starts_with("job-01932c075a5a7"), "{ids:?}");

        for (source, class, message) in [
            (
                "ctx.submitJob({})",
                ErrorClass::Permission,
                "PermissionError: ctx.submitJob: this script has no grant `submitJob`",
            ),
            (
                "ctx.publish('', {})",
                ErrorClass::Validation,
                "ValidationError: ctx.publish: type: eventType is empty",
            ),
            (
                "ctx.publish('a', 1)",
                ErrorClass::Validation,
                "ValidationError: ctx.publish: the data must be an object",
            ),
            (
                "ctx.publish('a')",
                ErrorClass::Validation,
                "ValidationError: ctx.publish: the data must be an object",
            ),
            (
                "for (let i = 0; i < 101; i++) ctx.publish('a', {})",
                ErrorClass::Validation,
                "ValidationError: ctx.publish: more than 100 calls in one execution",
            ),
        ] {
            let broken = run_with(
                &mut machine,
                source,
                Grants::NONE.with(crate::CallKind::Publish),
                Limits::default(),
            )
            .outcome
            .unwrap_err();
            assert_eq!((broken.class, broken.message.as_str()), (class, message), "{source}");
        }
        assert_eq!(
            result(
                &mut machine,
                "try { ctx.publish('', {}) } catch (e) { return [e instanceof ValidationError, e.name] }"
            ),
            r#"[true,"ValidationError"]"#
        );
    }

    #[test]
    fn the_log_is_bounded() {
        let mut machine = machine();
        let ended = run(&mut machine, "console.log('a', 1, { b: [2] }, null, undefined, 3n, Symbol('s'), () => 1); console.warn('w');
            log('l'); console.error(new Error('boom')); console.debug(); console.log({ toJSON() { throw 1 } }, { toString() { throw 1 } })");
        let lines: Vec<_> = ended.logs.iter().map(|line| (line.level.as_str(), line.text.as_str())).collect();
        assert_eq!(
            lines[..3],
            [
                ("info", r#"a 1 {"b":[2]} null undefined 3 Symbol(s) [function]"#),
                ("warn", "w"),
                ("info", "l")
            ]
        );
        assert_eq!(lines[3], ("error", "Error: boom\n    at main (test:2:41)\n"));
        assert_eq!(lines[4..], [("debug", ""), ("info", "[unprintable] {}")]);
        assert!(!ended.logs_truncated);

        let ended = run(
            &mut machine,
            "Promise.reject(1); Promise.reject(2).catch(() => {}); (async () => { throw 3 })(); return 4",
        );
        let lines: Vec<_> = ended.logs.iter().map(|line| (line.level.as_str(), line.text.as_str())).collect();
        assert_eq!(lines, [("warn", "2 promises were rejected and nobody waited for them")]);

        let limits = Limits { log_lines: 3, log_bytes: 100, ..Limits::default() };
        let ended =
            run_with(&mut machine, "for (let i = 0; i < 1e5; i++) console.log(i)", Grants::NONE, limits);
        assert_eq!((ended.logs.len(), ended.logs_truncated), (3, true));
        let ended =
            run_with(&mut machine, "console.log('x'.repeat(101)); console.log('y')", Grants::NONE, limits);
        assert_eq!((ended.logs.len(), ended.logs_truncated), (0, true));
        let ended = run(&mut machine, "console.log('x'.repeat(1e6)); console.log('y')");
        assert_eq!(
            ended.logs.iter().map(|line| line.text.len()).collect::<Vec<_>>(),
            [limits::LOG_LINE_CHARS_MAX, 1]
        );
        assert!(ended.logs_truncated);
    }

    #[test]
    fn time_memory_and_output_are_limited() {
        let mut machine = machine();
        let limits = Limits { wall: Duration::from_millis(50), ..Limits::default() };
        for source in [
            "for (;;) {}",
            "while (true) await null",
            "try { for (;;) {} } catch {} finally { for (;;) {} }",
            "/(a+)+$/.test('a'.repeat(40) + 'b')",
        ] {
            assert_eq!(
                run_with(&mut machine, source, Grants::NONE, limits).outcome.unwrap_err().class,
                ErrorClass::Timeout,
                "{source}"
            );
        }
        for source in [
            "const a = []; for (;;) a.push(new Array(100).fill(a.length))",
            "return new Array(1e8).fill('x').join('')",
            "return 'xy'.repeat(5e8).split('')",
            "throw new Array(3e7).fill(1)",
        ] {
            let broken = run(&mut machine, source).outcome.unwrap_err();
            assert_eq!(broken.class, ErrorClass::Memory, "{source}: {broken:?}");
        }
        let broken = run(&mut machine, "return 'x'.repeat(300000)").outcome.unwrap_err();
        assert_eq!(broken.message, "the result has 300002 bytes as JSON; the limit is 262144");
        assert_eq!(
            result(&mut machine, "const f = () => f() + 1; f()"),
            "script: RangeError: Maximum call stack size exceeded"
        );
        assert_eq!(result(&mut machine, "return 1"), "1", "as good as new");
    }

    #[test]
    fn what_a_script_cannot_see() {
        let mut machine = machine();
        for name in [
            "eval",
            "SharedArrayBuffer",
            "Atomics",
            "performance",
            "WeakRef",
            "FinalizationRegistry",
            "setTimeout",
            "setInterval",
            "require",
            "process",
            "fetch",
            "XMLHttpRequest",
            "module",
            "std",
            "os",
            "scriptArgs",
            "print",
            "gc",
            "navigator",
        ] {
            assert_eq!(result(&mut machine, &format!("return typeof {name}")), r#""undefined""#, "{name}");
        }
        for source in [
            "Function('return 1')()",
            "(() => {}).constructor('return 1')()",
            "(async () => {}).constructor('return 1')()",
            "(function* () {}).constructor('yield 1')()",
            "new Function('a', 'return a')",
        ] {
            assert_eq!(result(&mut machine, source), "script: TypeError: eval is not supported", "{source}");
        }
        let names = result(&mut machine, "return Object.getOwnPropertyNames(globalThis).sort().join(' ')");
        assert_eq!(names, GLOBALS);
    }

    const GLOBALS: &str = "\"AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array BigUint64Array Boolean \
        DataView Date DisposableStack Error EvalError Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array \
        Int8Array InternalError Iterator JSON Map Math NaN Number Object PermissionError Promise Proxy RangeError ReferenceError \
        Reflect RegExp Set String SuppressedError Symbol SyntaxError TypeError URIError Uint16Array Uint32Array Uint8Array \
        Uint8ClampedArray ValidationError WeakMap WeakSet console ctx decodeURI decodeURIComponent encodeURI encodeURIComponent \
        escape globalThis isFinite isNaN log parseFloat parseInt queueMicrotask undefined unescape\"";
}

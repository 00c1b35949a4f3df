//! The bare engine, as it would run in the server itself: a fresh runtime and context for each execution, with a memory
//! limit and an interrupt handler, bytecode compiled once.

use std::ffi::CString;
use std::time::{Duration, Instant};

use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Function, Object, Promise, Runtime, Value, qjs};

use crate::machine::cpu;
use crate::round::{Round, on_threads};
use crate::{EVENT, HANDLER};

pub fn compile() -> Vec<u8> {
    let runtime = Runtime::new().expect("a runtime");
    let context = Context::full(&runtime).expect("a context");
    let source = CString::new(format!("(async function main() {{\n{HANDLER}\n}})")).expect("no NUL");
    context.with(|ctx| {
        let raw = ctx.as_raw().as_ptr();
        let flags = qjs::JS_EVAL_TYPE_GLOBAL | qjs::JS_EVAL_FLAG_STRICT | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
        unsafe {
            let length = source.as_bytes().len() as u64;
            let code = qjs::JS_Eval(raw, source.as_ptr(), length, c"handler".as_ptr(), flags.cast_signed());
            assert!(!qjs::JS_IsException(code));
            let mut size = 0;
            let flags = qjs::JS_WRITE_OBJ_BYTECODE | qjs::JS_WRITE_OBJ_STRIP_SOURCE;
            let bytes = qjs::JS_WriteObject(raw, &raw mut size, code, flags.cast_signed());
            assert!(!bytes.is_null());
            let bytecode = std::slice::from_raw_parts(bytes, usize::try_from(size).expect("small")).to_vec();
            qjs::js_free(raw, bytes.cast());
            qjs::JS_FreeValue(raw, code);
            bytecode
        }
    })
}

/// One execution: its result as JSON.
pub fn once(bytecode: &[u8]) -> String {
    let runtime = Runtime::new().expect("a runtime");
    runtime.set_memory_limit(128 << 20);
    let deadline = Instant::now() + Duration::from_secs(30);
    runtime.set_interrupt_handler(Some(Box::new(move || Instant::now() > deadline)));
    let context = Context::full(&runtime).expect("a context");
    context.with(|ctx| {
        let given = Object::new(ctx.clone()).expect("an object");
        let event = Object::new(ctx.clone()).expect("an object");
        event.set("type", "order.placed").expect("set");
        event.set("data", ctx.json_parse(EVENT).expect("JSON")).expect("set");
        given.set("event", event).expect("set");
        ctx.globals().set("ctx", given).expect("set");
        let main: Function = load(&ctx, bytecode).get().expect("a function");
        let promise: Promise = main.call(()).expect("a promise");
        while ctx.execute_pending_job() {}
        assert_eq!(promise.state(), PromiseState::Resolved);
        let value: Value = promise.result().expect("settled").expect("resolved");
        ctx.json_stringify(value).expect("JSON").expect("a value").to_string().expect("text")
    })
}

fn load<'js>(ctx: &Ctx<'js>, bytecode: &[u8]) -> Value<'js> {
    let raw = ctx.as_raw().as_ptr();
    unsafe {
        let flags = qjs::JS_READ_OBJ_BYTECODE.cast_signed();
        let read = qjs::JS_ReadObject(raw, bytecode.as_ptr(), bytecode.len() as u64, flags);
        let value = qjs::JS_EvalFunction(raw, read);
        assert!(!qjs::JS_IsException(value));
        Value::from_raw(ctx.clone(), value)
    }
}

pub fn round(bytecode: &[u8], threads: usize, span: Duration) -> Round {
    let before = cpu();
    let (count, wall) = on_threads(threads, span, || drop(once(bytecode)));
    Round::of(count, wall, cpu() - before)
}

//! The three calls of the engine that its safe bindings lack: compiling without running, and bytecode to and from bytes.

use std::ffi::CStr;

use rquickjs::{Ctx, Error, Result, Value, qjs};

/// Compiled code as bytes. Only `compile` makes it, and only in this process: the engine runs it unchecked.
#[derive(Debug)]
pub(super) struct Bytecode(Vec<u8>);

impl Bytecode {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Compiles a strict script without running it. Its first line has the number `line`.
#[expect(unsafe_code, reason = "the texts outlive the call, and each value is freed once")]
pub(super) fn compile(ctx: &Ctx<'_>, name: &CStr, source: &CStr, line: i32) -> Result<Bytecode> {
    let flags = qjs::JS_EVAL_TYPE_GLOBAL | qjs::JS_EVAL_FLAG_STRICT | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
    let mut options = qjs::JSEvalOptions {
        version: 1,
        eval_flags: i32::try_from(flags).expect("flags are small"),
        filename: name.as_ptr(),
        line_num: line,
    };
    let raw = ctx.as_raw().as_ptr();
    unsafe {
        let length = source.to_bytes().len() as qjs::size_t;
        let compiled = qjs::JS_Eval2(raw, source.as_ptr(), length, &raw mut options);
        if qjs::JS_IsException(compiled) {
            return Err(Error::Exception);
        }
        let mut size: qjs::size_t = 0;
        let flags = (qjs::JS_WRITE_OBJ_BYTECODE | qjs::JS_WRITE_OBJ_STRIP_SOURCE).cast_signed();
        let bytes = qjs::JS_WriteObject(raw, &raw mut size, compiled, flags);
        qjs::JS_FreeValue(raw, compiled);
        if bytes.is_null() {
            return Err(Error::Exception);
        }
        let length = usize::try_from(size).expect("it is in memory");
        let bytecode = Bytecode(std::slice::from_raw_parts(bytes, length).to_vec());
        qjs::js_free(raw, bytes.cast());
        Ok(bytecode)
    }
}

/// Loads compiled code into a context and runs it: the value of its last expression.
#[expect(unsafe_code, reason = "the bytes were written by this process's own engine, see `Bytecode`")]
pub(super) fn load<'js>(ctx: &Ctx<'js>, code: &Bytecode) -> Result<Value<'js>> {
    let raw = ctx.as_raw().as_ptr();
    unsafe {
        let flags = qjs::JS_READ_OBJ_BYTECODE.cast_signed();
        let read = qjs::JS_ReadObject(raw, code.0.as_ptr(), code.0.len() as qjs::size_t, flags);
        if qjs::JS_IsException(read) {
            return Err(Error::Exception);
        }
        // It takes the value and frees it.
        let value = qjs::JS_EvalFunction(raw, read);
        if qjs::JS_IsException(value) {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

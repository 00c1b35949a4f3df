//! From source to bytecode.
//!
//! A script is the body of an async function. Nothing of it runs here, and the machine that runs it has no compiler.

use std::ffi::CString;
use std::fmt::Write as _;

use rquickjs::{Context, Ctx, Runtime, Value, context::intrinsic};

use super::bytecode::{Bytecode, compile};
use crate::script_source::{CompileError, ScriptSource};

/// What the compiler may allocate. Sources are small, but a hostile one may grow while it is compiled.
const COMPILER_BYTES_MAX: usize = 64 * 1024 * 1024;
const STACK_BYTES_MAX: usize = 512 * 1024;

/// The stack of the function that a script is the body of names this file for what is ours.
pub(super) const OWN_FILE: &str = "<tidemill>";

/// A compiled script.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) main: Bytecode,
}

impl Program {
    pub(crate) fn bytes(&self) -> usize {
        self.main.len()
    }
}

/// Compiles a script, or says where it is wrong.
pub(crate) fn compile_script(script: &ScriptSource) -> Result<Program, CompileError> {
    let body = script.source();
    with_compiler(|ctx| {
        // The body begins at line 1. What stands before it is on line 0, because the engine takes a first line of 0 for
        // none: so it is preceded by an empty one.
        let wrapped = |before: &str, after: &str| {
            let mut text = String::with_capacity(before.len() + body.len() + after.len() + 3);
            let _ = write!(text, "\n{before}\n{body}\n{after}");
            CString::new(text)
        };
        let name = CString::new(script.name()).map_err(|_| CompileError::unplaced("the name holds a NUL"))?;
        let compile_as = |before: &str, after: &str| {
            let text = wrapped(before, after)
                .map_err(|_| CompileError::unplaced("the source holds a NUL character"))?;
            compile(ctx, &name, &text, -1).map_err(|_| error_of(ctx, &ctx.catch(), script))
        };
        let main = compile_as("(async function main() {", "})")?;
        // A body that closes the function and opens another one would compile as well. After the brace that ends it, a
        // statement must follow in the first of these and a comma or a brace in the second; nothing is both.
        for (before, after) in [("async function main() {", "}"), ("({ async main() {", "} })")] {
            if compile_as(before, after).is_err() {
                return Err(CompileError::unplaced("there is a closing brace without an opening one"));
            }
        }
        Ok(Program { main })
    })
}

/// Compiles our own code.
pub(super) fn compile_own(source: &str) -> Result<Bytecode, CompileError> {
    with_compiler(|ctx| {
        let name = CString::new(OWN_FILE).expect("it holds no NUL");
        let source = CString::new(source).expect("it holds no NUL");
        compile(ctx, &name, &source, 1).map_err(|_| {
            let thrown = ctx.catch();
            CompileError::unplaced(&text_of(&thrown, "message").unwrap_or_default())
        })
    })
}

/// A compiler of its own for each use, so that none can be worn out.
fn with_compiler<T>(use_it: impl FnOnce(&Ctx<'_>) -> Result<T, CompileError>) -> Result<T, CompileError> {
    let broken = |_| CompileError::unplaced("the compiler has no memory");
    let runtime = Runtime::new().map_err(broken)?;
    runtime.set_memory_limit(COMPILER_BYTES_MAX);
    runtime.set_max_stack_size(STACK_BYTES_MAX);
    let context =
        Context::custom::<(intrinsic::Eval, intrinsic::RegExpCompiler, intrinsic::RegExp)>(&runtime)
            .map_err(broken)?;
    context.with(|ctx| use_it(&ctx))
}

/// What the compiler complained of, in the lines and columns of the script's own source.
fn error_of(_: &Ctx<'_>, thrown: &Value<'_>, script: &ScriptSource) -> CompileError {
    let Some(message) = text_of(thrown, "message") else {
        // Out of memory leaves nothing behind.
        return CompileError::unplaced("the script is too large to compile");
    };
    let place = text_of(thrown, "stack").and_then(|stack| place_in(&stack));
    let Some((line, column)) = place else { return CompileError::unplaced(&message) };
    let lines = u32::try_from(script.source().lines().count().max(1)).unwrap_or(u32::MAX);
    if line > lines {
        let last = script.source().lines().last().unwrap_or_default().chars().count();
        let column = u32::try_from(last).unwrap_or(u32::MAX).saturating_add(1);
        return CompileError { message: "the script ends too early".to_owned(), line: lines, column };
    }
    CompileError { message, line: line.max(1), column }
}

fn text_of(thrown: &Value<'_>, name: &str) -> Option<String> {
    thrown.as_object()?.get::<_, Option<String>>(name).ok().flatten()
}

/// The line and column in the first line of a stack: `    at name:3:14`, or in brackets.
pub(super) fn place_in(stack: &str) -> Option<(u32, u32)> {
    let first = stack.lines().next()?.trim_end().trim_end_matches(')');
    let mut parts = first.rsplitn(3, ':');
    let column = parts.next()?.parse().ok()?;
    let line = parts.next()?.parse().ok()?;
    Some((line, column))
}

//! Compiling, in this process and in a host.

use tidemill_model::TenantId;
use tidemill_script::{ErrorClass, compile};

use crate::lab;

#[test]
fn errors_are_placed_in_the_script_itself() {
    for (source, place, message) in [
        ("return 1 +", (1, 11), "too early"),
        ("const a = 1;\nconst b = ;\n", (2, 11), "unexpected token"),
        ("\n\n  let x = 1; let x = 2", (3, 0), "redefinition"),
        ("if (true) {", (1, 12), "too early"),
        ("with (ctx) {}", (1, 0), "with"),
        ("return 'abc", (1, 0), "string"),
        ("x = 08", (1, 0), "Octal"),
        ("import x from 'y'", (1, 0), ""),
        ("export const a = 1", (1, 0), ""),
        ("/(/", (1, 0), ""),
        ("const ctxx = 1;\n}\nasync function other() {", (3, 0), ""),
        ("}); (async function () {", (1, 0), ""),
        ("}, function () {", (1, 1), "closing brace"),
        ("}(1), function () {", (1, 1), "closing brace"),
        ("}, x, function () {", (1, 1), "closing brace"),
        ("}[1] = function () {", (1, 1), "closing brace"),
        ("a\0b", (1, 1), "NUL"),
    ] {
        let error = compile("s", source).expect_err(source);
        assert_eq!(error.line, place.0, "{source}: {error}");
        if place.1 > 0 {
            assert_eq!(error.column, place.1, "{source}: {error}");
        }
        assert!(error.message.contains(message), "{source}: {error}");
    }
}

#[test]
fn what_a_function_body_may_hold_compiles() {
    for source in [
        "",
        "return",
        "// a comment at the end",
        "/* }); */ return '})'",
        "await null; for await (const x of []) {}; return await 1",
        "function f() { return 1 }\nclass A { #x = 1; static { } }\nreturn f()",
        "label: for (;;) { break label }",
        "const re = /[{}]/u; return `${'}'}`",
        "if (ctx) { return 1 } else throw new Error('x')",
    ] {
        compile("s", source).unwrap_or_else(|error| panic!("{source}: {error}"));
    }
}

#[test]
fn names_and_sizes_are_limited() {
    for name in ["", "a\nb", &"x".repeat(129)] {
        assert!(compile(name, "return 1").unwrap_err().message.contains("name"), "{name:?}");
    }
    let long = format!("return '{}'", "x".repeat(256 * 1024));
    assert!(compile("s", &long).unwrap_err().message.contains("the limit is 262144"));
    let deep = format!("return {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    compile("s", &deep).expect_err("too deep for the parser");
}

#[tokio::test]
async fn a_host_compiles_too_and_a_script_that_does_not_is_a_permanent_failure() {
    let pool = lab::pool(1);
    let tenant = TenantId::new("a").unwrap();
    let script = pool.compile(&tenant, "good", "return 1").await.unwrap().unwrap();
    assert_eq!(script.name(), "good");
    let error = pool.compile(&tenant, "bad", "\nreturn )").await.unwrap().unwrap_err();
    assert_eq!((error.line, error.column), (2, 8), "{error}");

    let failure = lab::run(&pool, &lab::request("a", "let 1")).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Syntax);
    assert!(!failure.class.is_transient());
    assert_eq!(failure.place, Some((1, 5)));
    assert_eq!(failure.stack, "    at test:1:5");
    assert_eq!(pool.status().hosts_lost, 0);
    pool.end().await;
}

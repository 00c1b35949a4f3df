use proptest::prelude::*;
use serde_json::json;

use super::*;

fn yaml(text: &str) -> Result<Value, String> {
    read(Form::Yaml, text)
}

fn read(form: Form, text: &str) -> Result<Value, String> {
    let read = SourceFile::read("f", form, text.as_bytes());
    read.map(|document| document.to_value()).map_err(|problems| problems.to_string())
}

#[test]
fn yaml_and_json_give_the_same_value() {
    let value =
        json!({"name": "a", "tasks": [{"taskId": "x", "input": {"n": 1, "f": 1.5, "yes": "no", "z": null}}]});
    let text = "name: a\ntasks:\n- taskId: x\n  input: {n: 1, f: 1.5, yes: no, z: }\n";
    assert_eq!(yaml(text).unwrap(), value);
    assert_eq!(yaml(&value.to_string()).unwrap(), value);
    assert_eq!(read(Form::Json, &value.to_string()).unwrap(), value);
    assert_eq!(read(Form::Json, &serde_json::to_string_pretty(&value).unwrap()).unwrap(), value);
}

#[test]
fn anchors_work_within_bounds() {
    assert_eq!(yaml("a: &x [1, 2]\nb: *x\n").unwrap(), json!({"a": [1, 2], "b": [1, 2]}));
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let before = level - 1;
        let many = vec![format!("*a{before}"); 10].join(", ");
        bomb += &["a", &level.to_string(), ": &a", &level.to_string(), " [", &many, "]\n"].concat();
    }
    let problem = yaml(&bomb).unwrap_err();
    assert!(problem.contains("more than 1048576 bytes"), "{problem}");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (text, expected) in [
        ("", "f:1:1: the file is empty"),
        ("# nothing\n", "f:1:1: the file is empty"),
        (
            "a: 1\na: 2\nb: {c: 1, c: 2}\n",
            "f:2:1: the key a is given twice\nf:3:11: the key c is given twice",
        ),
        ("a: 1\n---\nb: 2\n", "f:2:1: a second document begins here; a file holds one"),
        ("1: a\n", "f:1:1: a key must be text; write \"1\" if that is meant"),
        ("true: a\n", "f:1:1: a key must be text; write \"true\" if that is meant"),
        ("? [a]\n: b\n", "f:1:3: a key must be text, not a list or a map"),
        ("a:\n\tb: 1\n", "f:2:1: a tab cannot indent; use spaces"),
        ("a:\n  b: 1\n  \tc: 1\n", "f:3:3: a tab cannot indent; use spaces"),
        ("a: &x [*x]\n", "f:1:8: an alias may not stand inside of what it stands for"),
        ("a: !secret b\n", "f:1:4: the tag !secret is unknown"),
        ("a: !!int b\n", "f:1:4: the tag !!int does not fit this value"),
        ("a: .inf\n", "f:1:4: .inf is no number that JSON has; quote it if it is text"),
        ("a: \u{0}\n", "f:1:4: the control character U+0000 may not be in a file"),
    ] {
        assert_eq!(yaml(text).unwrap_err(), expected, "{text:?}");
    }
    for (text, place) in
        [("a: [1, 2\n", "f:2:1: "), ("a: 'b\n", "f:"), ("a: *none\n", "f:1:4: "), ("- a\nb: 1\n", "f:2:1: ")]
    {
        let problem = yaml(text).unwrap_err();
        assert!(problem.starts_with(place), "{text:?}: {problem}");
    }
    for (text, expected) in [
        ("", "f:1:1: the file is empty"),
        ("{\"a\": 1,\n \"a\": 2}", "f:2:2: the key a is given twice"),
        ("{\"ä\": \"ö\", x}", "f:1:12: a key in quotes is missing"),
        ("{\"a\": 1 \"b\": 2}", "f:1:9: a comma or } is missing"),
        ("[1,]", "f:1:4: a value is missing: text in quotes, a number, true, false, null, a list or a map"),
        ("[1 2]", "f:1:4: a comma or ] is missing"),
        ("{\"a\" 1}", "f:1:6: a colon is missing after the key"),
        ("[01]", "f:1:2: 01 is not a number"),
        (
            "[123456789012345678901]",
            "f:1:2: 123456789012345678901 is too large for a number; quote it if it is text",
        ),
        ("[\"a]", "f:1:2: the closing quote is missing"),
        ("[\"\\q\"]", "f:1:2: the text holds a control character or an escape that JSON does not have"),
        ("[1] x", "f:1:5: nothing may follow the value"),
        ("[", "f:1:2: a value is missing at the end"),
        ("nul", "f:1:1: a value is missing: text in quotes, a number, true, false, null, a list or a map"),
    ] {
        assert_eq!(read(Form::Json, text).unwrap_err(), expected, "{text:?}");
    }
    let bad = SourceFile::read("f", Form::Yaml, b"a: b\nc: \xff\n").unwrap_err().to_string();
    assert_eq!(bad, "f:2:4: the file is not UTF-8 from here on");
    let deep = "[".repeat(10_000);
    for form in [Form::Yaml, Form::Json] {
        let problem = read(form, &deep).unwrap_err();
        assert!(problem.ends_with("nested deeper than 100 levels"), "{problem}");
    }
    let large = vec![b' '; FILE_BYTES_MAX + 1];
    let problem = SourceFile::read("f", Form::Yaml, &large).unwrap_err().to_string();
    assert_eq!(problem, "f:1:1: the file has 16777217 bytes; the limit is 16777216");
}

#[test]
fn a_path_finds_its_place() {
    let text = "name: a\ntasks:\n  - taskId: x\n    env:\n      a.b: 1\n      a: {b: 2}\n  - taskId: y\n";
    let document = SourceFile::read("f", Form::Yaml, text.as_bytes()).unwrap();
    for (path, expected) in [
        ("", (1, 1)),
        ("name", (1, 7)),
        ("tasks[1].taskId", (7, 13)),
        ("tasks[1].timeout", (7, 5)),
        ("tasks[0].env.a.b", (5, 12)),
        ("tasks[7].taskId", (3, 3)),
        ("nothing", (1, 1)),
    ] {
        let place = document.root.place_of(path);
        assert_eq!((place.line, place.column), expected, "{path}");
    }
    let problem = document.problem("tasks[1].taskId", "is wrong").to_string();
    assert_eq!(problem, "f:7:13: tasks[1].taskId: is wrong");
}

#[test]
fn the_form_is_told_by_name_or_beginning() {
    for (name, bytes, expected) in [
        ("a.json", &b"a: 1"[..], Form::Json),
        ("a.YML", b"{}", Form::Yaml),
        ("-", b" \n{\"a\": 1}", Form::Json),
        ("job", b"name: a", Form::Yaml),
    ] {
        assert_eq!(Form::of(name.as_ref(), bytes), expected, "{name}");
    }
}

/// Text that looks like YAML or JSON more often than bytes would.
fn likely() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "b: ",
        "- ",
        "\n",
        "  ",
        "    ",
        "\t",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "\"",
        "'",
        "|",
        ">",
        "&a ",
        "*a",
        "!t ",
        "!!str ",
        "#",
        "---",
        "...",
        "%YAML 1.2\n",
        "1",
        "-1.5e3",
        "null",
        "true",
        "\\u00e9",
        "ä",
        "?",
        "<<",
        "\r\n",
        "@",
        "`",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..60)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = SourceFile::read("f", Form::Yaml, &bytes);
        let _ = SourceFile::read("f", Form::Json, &bytes);
    }

    #[test]
    fn any_likely_text_is_read_or_refused(text in likely()) {
        for form in [Form::Yaml, Form::Json] {
            if let Err(problems) = SourceFile::read("f", form, text.as_bytes()) {
                prop_assert!(!problems.0.is_empty());
            }
        }
    }

    /// What one library writes, this one reads, and it refuses what that one refuses.
    #[test]
    fn json_is_what_the_library_says(text in likely()) {
        let theirs: Result<Value, _> = serde_json::from_str(&text);
        let ours = read(Form::Json, &text);
        match (theirs, ours) {
            (Ok(theirs), Ok(ours)) => prop_assert_eq!(theirs, ours),
            // Keys given twice, and tabs and line ends of other systems, are seen differently on purpose.
            (Ok(_), Err(problem)) => prop_assert!(problem.contains("given twice"), "{}", problem),
            (Err(_), Ok(value)) => prop_assert!(false, "{} was read", value),
            (Err(_), Err(_)) => {}
        }
    }
}

//! The OpenAPI document as a page for people: no script, nothing from elsewhere.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("docs_page.css");

/// The page's policy: this very style and nothing else.
pub(crate) fn policy() -> String {
    let digest = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    format!("default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'; base-uri 'none'")
}

/// A page with a title.
pub(crate) fn frame(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>",
        escaped(title)
    )
}

/// The page about every route.
pub(crate) fn render(document: &Value) -> String {
    let mut body = String::from("<h1>Tidemill HTTP API</h1>");
    let about = text(&document["info"]["description"]);
    for paragraph in about.split("\n\n") {
        let _ = write!(body, "<p>{}</p>", prose(paragraph));
    }
    body += "<p><a href=\"/openapi.json\">openapi.json</a> is this page for programs.</p>";
    body += "<p>Put ids in place of the words in capitals. Calls that would change something as they stand are comments: \
             take the <code>#</code> away to make them.</p><nav>";
    let groups = document["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    for group in groups {
        let name = text(&group["name"]);
        let _ = write!(body, "<a href=\"#{}\">{}</a>", anchor(name), escaped(name));
    }
    body += "<a href=\"#schemas\">Schemas</a></nav>";
    for group in groups {
        let name = text(&group["name"]);
        let _ = write!(
            body,
            "<h2 id=\"{}\">{}</h2><p class=\"faint\">{}</p>",
            anchor(name),
            escaped(name),
            prose(text(&group["description"]))
        );
        for (path, method, operation) in operations(document) {
            if operation["tags"][0] == group["name"] {
                body += &route(path, method, operation, document);
            }
        }
    }
    body += "<h2 id=\"schemas\">Schemas</h2>";
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let _ = write!(
            body,
            "<details id=\"schema-{0}\"><summary><code>{0}</code><span class=\"faint\">{1}</span></summary><div>{2}</div></details>",
            escaped(name),
            prose(text(&schema["description"])),
            fields(schema)
        );
    }
    frame("Tidemill HTTP API", &body)
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    document["paths"].as_object().into_iter().flatten().flat_map(|(path, operations)| {
        let operations = operations.as_object().into_iter().flatten();
        operations.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

fn route(path: &str, method: &str, operation: &Value, document: &Value) -> String {
    let mut html = format!(
        "<details id=\"{}\"><summary><span class=\"verb {method}\">{}</span><code>{}</code><span>{}</span></summary><div><p>{}</p>",
        escaped(text(&operation["operationId"])),
        method.to_ascii_uppercase(),
        escaped(path),
        prose(text(&operation["summary"])),
        prose(text(&operation["description"])),
    );
    let params = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !params.is_empty() {
        html += "<h4>Parameters</h4><div class=\"wrap\"><table><tr><th>name</th><th>in</th><th>type</th><th></th></tr>";
        for param in params {
            let _ = write!(
                html,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(text(&param["name"])),
                escaped(text(&param["in"])),
                kind(&param["schema"]),
                prose(text(&param["description"]))
            );
        }
        html += "</table></div>";
    }
    if let Some(content) = operation["requestBody"]["content"].as_object() {
        for (media, body) in content {
            let _ =
                write!(html, "<h4>Body</h4><p><code>{}</code> {}</p>", escaped(media), kind(&body["schema"]));
        }
    }
    html += "<h4>Answers</h4><div class=\"wrap\"><table>";
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        let shape = answer["content"].as_object().and_then(|content| content.iter().next());
        let shape = shape.map_or(String::new(), |(media, body)| {
            format!("<code>{}</code> {}", escaped(media), kind(&body["schema"]))
        });
        let _ = write!(
            html,
            "<tr><td><code>{status}</code></td><td>{}</td><td>{shape}</td></tr>",
            prose(text(&answer["description"]))
        );
    }
    let _ = write!(
        html,
        "</table></div><h4>Example</h4><pre>{}</pre></div></details>",
        curl(path, method, operation, document)
    );
    html
}

/// Stands in the page where each reader finds the address of the server.
pub(crate) const ORIGIN: &str = "http://{origin}";

/// A command line that calls the route, and does no harm if it is pasted as it stands: what it is about is a word in
/// capitals that nothing is called by, or a body that hits nothing. Where there is neither, it is a comment.
fn curl(path: &str, method: &str, operation: &Value, document: &Value) -> String {
    let mut line = String::from("curl");
    if method != "get" {
        let _ = write!(line, " -X {}", method.to_ascii_uppercase());
    }
    if operation["security"].as_array().is_some_and(|needed| !needed.is_empty()) {
        line += " -H \"Authorization: Bearer $TIDEMILL_API_KEY\"";
    }
    let content = &operation["requestBody"]["content"];
    let given = content["application/json"].get("example");
    if let Some(body) = content.get("application/json") {
        let example = given.or_else(|| body.get("x-sample"));
        let example = example.cloned().unwrap_or_else(|| sample(&body["schema"], document, 0));
        let _ = write!(line, " -H 'Content-Type: application/json' \\\n  -d '{example}'");
    } else if content.is_object() {
        line += " --data-binary @FILE";
    }
    let needed = operation["parameters"].as_array().into_iter().flatten();
    let needed: Vec<_> = needed
        .filter_map(|param| Some(format!("{}={}", param["name"].as_str()?, param["example"].as_str()?)))
        .collect();
    let query = if needed.is_empty() { String::new() } else { format!("?{}", needed.join("&")) };
    let _ = write!(line, " \\\n  {ORIGIN}{}{query}", named(path));
    let is_safe = method == "get" || given.is_some() || path.contains('{');
    let line = if is_safe { line } else { format!("# {}", line.replace('\n', "\n# ")) };
    escaped(&line)
}

/// A path with a word in capitals for each part that the reader has to fill in.
fn named(path: &str) -> String {
    let mut text = String::new();
    let mut is_part = false;
    for c in path.chars() {
        match c {
            '{' | '}' => is_part = c == '{',
            c if is_part => {
                if c.is_ascii_uppercase() {
                    text.push('_');
                }
                text.push(c.to_ascii_uppercase());
            }
            c => text.push(c),
        }
    }
    text
}

/// The smallest value that a schema describes: what is required, and no more.
fn sample(schema: &Value, document: &Value, depth: usize) -> Value {
    if depth > 6 {
        return Value::Null;
    }
    if let Some(target) =
        schema["$ref"].as_str().and_then(|path| document.pointer(path.trim_start_matches('#')))
    {
        return sample(target, document, depth + 1);
    }
    if let Some(choices) = schema["enum"].as_array() {
        return choices.first().cloned().unwrap_or_default();
    }
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    for alternatives in ["oneOf", "anyOf"] {
        let first = schema[alternatives].as_array().and_then(|list| list.first());
        if let Some(first) = first.filter(|_| schema.get("properties").is_none()) {
            return sample(first, document, depth + 1);
        }
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten();
            let one_of = schema["oneOf"][0]["required"].as_array().into_iter().flatten();
            let names = required.chain(one_of).filter_map(Value::as_str);
            names
                .map(|name| (name.to_owned(), sample(&schema["properties"][name], document, depth + 1)))
                .collect()
        }
        Some("array") => Value::Array(vec![sample(&schema["items"], document, depth + 1)]),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
        Some("boolean") => true.into(),
        Some("string") => "example".into(),
        _ => Value::Object(serde_json::Map::new()),
    }
}

/// The fields of an object, as a table.
fn fields(schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return format!("<p>{}</p>", kind(schema));
    };
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|list| list.iter().any(|own| own == name));
    let mut html = String::from("<div class=\"wrap\"><table>");
    for (name, field) in properties {
        let _ = write!(
            html,
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(name),
            if required(name) { "" } else { " <span class=\"faint\">optional</span>" },
            kind(field),
            prose(text(&field["description"]))
        );
    }
    html + "</table></div>"
}

/// A schema in a few words, with links to those that have a name.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let name = escaped(name);
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<_> = choices.iter().map(|choice| escaped(text(choice))).collect();
        return choices.join(" | ");
    }
    if let Some(constant) = schema.get("const") {
        return escaped(text(constant));
    }
    for alternatives in ["oneOf", "anyOf"] {
        if let Some(list) = schema[alternatives].as_array().filter(|_| schema.get("properties").is_none()) {
            return list.iter().map(kind).collect::<Vec<_>>().join(" | ");
        }
    }
    let names = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return "any".to_owned(),
    };
    let mut words = names.join(" | ").replace("array", &format!("list of {}", kind(&schema["items"])));
    for (bound, sign) in [("minimum", "≥"), ("maximum", "≤"), ("maxLength", "length ≤")] {
        if let Some(value) = schema.get(bound) {
            let _ = write!(words, ", {sign} {value}");
        }
    }
    words
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn anchor(name: &str) -> String {
    escaped(&name.to_ascii_lowercase().replace(' ', "-"))
}

/// A sentence with its code marked.
fn prose(text: &str) -> String {
    let mut html = String::new();
    for (place, part) in text.split('`').enumerate() {
        let part = escaped(part);
        if place % 2 == 1 {
            let _ = write!(html, "<code>{part}</code>");
        } else {
            html += &part;
        }
    }
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

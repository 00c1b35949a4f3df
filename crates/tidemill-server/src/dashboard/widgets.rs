//! Small parts that all pages are made of.

use maud::{Markup, PreEscaped, html};
use tidemill_model::{Day, Json, MicroUsd};

use super::door::{TOKEN_FIELD, Viewer};

/// The bytes of a value that is shown in a page; more is a download.
const SHOWN_BYTES_MAX: usize = 64 * 1024;
/// The characters of a task's own id behind a short id of its job.
const TASK_CHARS_MAX: usize = 24;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Where something stands, by colour, shape and word.
pub(super) fn state(name: &str) -> Markup {
    let word = if name == "dead_letter" { "dead letter" } else { name };
    html! { span class="state" data-state=(name) { (word) } }
}

/// A moment: how long ago for the eye, exactly for the pointer.
pub(super) fn moment(now: u64, millis: u64) -> Markup {
    html! { time datetime=(iso(millis)) title=(exact(millis)) data-at=(millis) { (ago(now, millis)) } }
}

/// A moment that may not have come.
pub(super) fn maybe_moment(now: u64, millis: Option<u64>) -> Markup {
    if let Some(millis) = millis {
        moment(now, millis)
    } else {
        html! { span class="faint" { "–" } }
    }
}

/// How long ago, or in how long.
pub(super) fn ago(now: u64, millis: u64) -> String {
    if millis > now + SECOND {
        return format!("in {}", coarse(millis - now));
    }
    let since = now.saturating_sub(millis);
    if since < 2 * SECOND { "just now".to_owned() } else { format!("{} ago", coarse(since)) }
}

fn coarse(millis: u64) -> String {
    match millis {
        0..MINUTE => format!("{} s", millis / SECOND),
        MINUTE..HOUR => format!("{} min", millis / MINUTE),
        HOUR..DAY => format!("{} h", millis / HOUR),
        _ => format!("{} d", millis / DAY),
    }
}

/// How long something took.
pub(super) fn span(millis: u64) -> String {
    let tenths = |millis: u64| format!("{}.{} s", millis / SECOND, millis % SECOND / 100);
    match millis {
        0..SECOND => format!("{millis} ms"),
        SECOND..MINUTE => tenths(millis),
        MINUTE..HOUR => format!("{} min {} s", millis / MINUTE, millis % MINUTE / SECOND),
        HOUR..DAY => format!("{} h {} min", millis / HOUR, millis % HOUR / MINUTE),
        _ => format!("{} d {} h", millis / DAY, millis % DAY / HOUR),
    }
}

fn clock(millis: u64) -> (Day, u64, u64, u64, u64) {
    let of_day = millis % DAY;
    let (hour, minute) = (of_day / HOUR, of_day % HOUR / MINUTE);
    (Day::of_millis(millis), hour, minute, of_day % MINUTE / SECOND, of_day % SECOND)
}

pub(super) fn exact(millis: u64) -> String {
    let (day, hour, minute, second, milli) = clock(millis);
    format!("{day} {hour:02}:{minute:02}:{second:02}.{milli:03} UTC")
}

fn iso(millis: u64) -> String {
    let (day, hour, minute, second, milli) = clock(millis);
    format!("{day}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// An id that can be copied. `shown` may be shorter.
pub(super) fn id(full: &str, shown: &str) -> Markup {
    html! {
        span class="id" {
            code title=(full) { (shown) }
            button type="button" class="copy" data-copy=(full) aria-label={ "Copy " (full) } title="Copy" hidden {}
        }
    }
}

/// An id, short enough for a table, that leads to what it names.
pub(super) fn id_link(address: &str, full: &str) -> Markup {
    html! {
        span class="id" {
            a href=(address) { code title=(full) { (shortened(full)) } }
            button type="button" class="copy" data-copy=(full) aria-label={ "Copy " (full) } title="Copy" hidden {}
        }
    }
}

/// An id, short enough for a table.
pub(super) fn short_id(full: &str) -> Markup {
    id(full, &shortened(full))
}

/// A text whose ids of jobs and tasks are short, each with the whole one behind it.
pub(super) fn with_short_ids(text: &str) -> Markup {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_id = |word: &str| {
        let (job, _) = word.split_once('_').unwrap_or((word, ""));
        tidemill_model::JobId::new(job).is_ok()
    };
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let inside = rest.starts_with(is_part);
        let end = rest.find(|c| is_part(c) != inside).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
    }
    html! {
        @for word in words {
            @if is_id(word) { span title=(word) { (shortened(word)) } } @else { (word) }
        }
    }
}

pub(super) fn shortened(full: &str) -> String {
    // A task of a job has the job's id before its own, and its own is what people know it by.
    if let Some((job, task)) = full.split_once('_')
        && tidemill_model::JobId::new(job).is_ok()
    {
        let short: String = task.chars().take(TASK_CHARS_MAX).collect();
        let rest = if short.len() < task.len() { "…" } else { "" };
        return format!("{}_{short}{rest}", shortened(job));
    }
    let count = full.chars().count();
    if count <= 18 {
        return full.to_owned();
    }
    let (head, tail): (String, String) =
        (full.chars().take(8).collect(), full.chars().skip(count - 6).collect());
    format!("{head}…{tail}")
}

/// The end of a long id, which is what tells ids of one family apart; whole for the pointer.
pub(super) fn tail(full: &str, most: usize) -> Markup {
    let count = full.chars().count();
    if count <= most {
        return html! { (full) };
    }
    let end: String = full.chars().skip(count - most).collect();
    html! { span title=(full) { "…" (end) } }
}

/// A text cut to `most` characters, whole for the pointer.
pub(super) fn cut(text: &str, most: usize) -> Markup {
    if text.chars().count() <= most {
        return html! { (text) };
    }
    let short: String = text.chars().take(most).collect();
    html! { span title=(text.chars().take(1_000).collect::<String>()) { (short) "…" } }
}

/// JSON, laid out.
pub(super) fn json(value: &Json) -> Markup {
    json_text(value.as_str())
}

pub(super) fn json_text(text: &str) -> Markup {
    let parsed: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let pretty = parsed.and_then(|value| serde_json::to_string_pretty(&value).ok());
    let mut shown = pretty.unwrap_or_else(|| text.to_owned());
    let whole = shown.len();
    if whole > SHOWN_BYTES_MAX {
        let end = (0..=SHOWN_BYTES_MAX).rev().find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
        shown.truncate(end);
    }
    html! {
        pre class="json" tabindex="0" { (shown) }
        @if whole > SHOWN_BYTES_MAX {
            p class="faint" { "The first 64 KiB of " (bytes(whole as u64)) "; the API gives all of it." }
        }
    }
}

pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} B"),
        1_024..1_048_576 => format!("{}.{} KiB", count / 1_024, count % 1_024 * 10 / 1_024),
        1_048_576..1_073_741_824 => format!("{}.{} MiB", count >> 20, ((count & 0xf_ffff) * 10) >> 20),
        _ => format!("{}.{} GiB", count >> 30, ((count & 0x3fff_ffff) * 10) >> 30),
    }
}

/// A number with its thousands apart.
pub(super) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(super) fn dollars(micros: u64) -> String {
    let exact = MicroUsd(micros).to_string();
    let (_, decimals) = exact.split_once('.').unwrap_or((&exact, "00"));
    format!("${}.{decimals}", number(micros / 1_000_000))
}

/// A noun as it stands beside a count: `step` or `steps`.
pub(super) fn noun(count: u64, one: &str) -> String {
    format!("{one}{}", if count == 1 { "" } else { "s" })
}

/// A count with its noun: `1 step`, `1,200 steps`.
pub(super) fn counted(count: u64, one: &str) -> String {
    format!("{} {}", number(count), noun(count, one))
}

/// A count with its noun and verb: `1 task was`, `2 tasks were`.
pub(super) fn counted_do(count: u64, noun: &str, one: &str, many: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { one } else { many })
}

/// A list without anything in it, and what to do about that.
pub(super) fn empty(title: &str, hint: &Markup) -> Markup {
    html! { div class="empty" { p class="empty-title" { (title) } p { (hint) } } }
}

/// The way to the next page, and back to the first.
pub(super) fn pager(first: Option<String>, next: Option<String>) -> Markup {
    if first.is_none() && next.is_none() {
        return html! {};
    }
    html! {
        nav class="pager" aria-label="Pages" {
            @if let Some(first) = first { a class="button" href=(first) { "First page" } }
            @if let Some(next) = next { a class="button" rel="next" href=(next) { "Next page" } }
        }
    }
}

/// The hidden field that makes a form ours.
pub(super) fn token(viewer: &Viewer) -> Markup {
    html! { input type="hidden" name=(TOKEN_FIELD) value=(viewer.token); }
}

/// A form that is one button.
pub(super) fn button(viewer: &Viewer, action: &str, label: &str, class: &str) -> Markup {
    html! {
        form method="post" action=(action) class="inline" {
            (token(viewer))
            button type="submit" class=(class) { (label) }
        }
    }
}

/// A form behind a button that asks first.
pub(super) fn confirm(viewer: &Viewer, action: &str, label: &str, class: &str, inner: &Markup) -> Markup {
    html! {
        details class="confirm" {
            summary class={ "button " (class) } { (label) "…" }
            form method="post" action=(action) class="sheet" { (token(viewer)) (inner) }
        }
    }
}

/// A titled box.
pub(super) fn card(title: &str, aside: &Markup, body: &Markup) -> Markup {
    html! {
        section class="card" {
            header { h2 { (title) } div class="aside" { (aside) } }
            (body)
        }
    }
}

/// One figure with its name.
pub(super) fn figure(name: &str, value: &str, tone: &str, link: Option<&str>) -> Markup {
    let inner = html! { span class="figure-value" { (value) } span class="figure-name" { (name) } };
    html! {
        @if let Some(link) = link { a class="figure" data-tone=(tone) href=(link) { (inner) } }
        @else { div class="figure" data-tone=(tone) { (inner) } }
    }
}

pub(super) fn nothing() -> Markup {
    PreEscaped(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_a_text_are_short_and_the_rest_is_as_it_was() {
        let job = "job-01a1b2c3d4e5f60718293a4b5c6d7e8f";
        let text = format!("1 job failed: nightly <b> ({job}), {job}_load…");
        let shown = with_short_ids(&text).into_string();
        let short = shortened(job);
        assert_eq!(
            shown,
            format!(
                "1 job failed: nightly &lt;b&gt; (<span title=\"{job}\">{short}</span>), \
                 <span title=\"{job}_load\">{short}_load</span>…"
            )
        );
        for plain in ["", "job-12", "3 tasks wait", "é job_"] {
            assert_eq!(with_short_ids(plain).into_string(), plain);
        }
    }

    #[test]
    fn times_read_well() {
        let now = 1_763_238_912_345;
        for (millis, expected) in [
            (now, "just now"),
            (now - 5_000, "5 s ago"),
            (now - 200_000, "3 min ago"),
            (now - 7_200_000, "2 h ago"),
            (now - 3 * DAY, "3 d ago"),
            (now + 90_000, "in 1 min"),
        ] {
            assert_eq!(ago(now, millis), expected);
        }
        assert_eq!(exact(now), "2025-11-15 20:35:12.345 UTC");
        for (millis, expected) in [
            (820, "820 ms"),
            (4_250, "4.2 s"),
            (192_000, "3 min 12 s"),
            (7_500_000, "2 h 5 min"),
            (90 * HOUR, "3 d 18 h"),
        ] {
            assert_eq!(span(millis), expected);
        }
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(
            (number(7), number(1_000), number(1_234_567)),
            ("7".into(), "1,000".into(), "1,234,567".into())
        );
        assert_eq!(
            (bytes(12), bytes(1_536), bytes(5 << 20)),
            ("12 B".into(), "1.5 KiB".into(), "5.0 MiB".into())
        );
        assert_eq!((dollars(1_230_000), dollars(1_200)), ("$1.23".into(), "$0.0012".into()));
        assert_eq!((dollars(1_350), dollars(1_234_567_800)), ("$0.00135".into(), "$1,234.5678".into()));
        assert_eq!((dollars(0), dollars(500_000)), ("$0.00".into(), "$0.50".into()));
        for (count, expected) in [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1_200, "1,200 steps")] {
            assert_eq!(counted(count, "step"), expected);
        }
        let job = "job-0123456789abcdef0123456789abcdef";
        assert_eq!(shortened(job), "job-0123…abcdef");
        assert_eq!(shortened(&format!("{job}_load")), "job-0123…abcdef_load");
        let long = "x".repeat(30);
        assert_eq!(shortened(&format!("{job}_{long}")), format!("job-0123…abcdef_{}…", "x".repeat(24)));
    }

    #[test]
    fn texts_are_escaped_everywhere() {
        let bad = "<script>alert(1)</script>\"'";
        let viewer = Viewer {
            caller: crate::admission::caller::Caller::local(tidemill_model::TenantId::trusted("t")),
            token: bad.to_owned(),
            session: None,
        };
        for markup in [
            state(bad),
            id(bad, bad),
            short_id(bad),
            cut(bad, 5),
            tail(bad, 40),
            tail(bad, 5),
            json_text(bad),
            json_text(&serde_json::to_string(bad).unwrap()),
            token(&viewer),
            button(&viewer, bad, bad, bad),
            figure(bad, bad, bad, Some(bad)),
        ] {
            assert!(!markup.0.contains("<script>") && !markup.0.contains("\"'"), "{}", markup.0);
        }
    }
}

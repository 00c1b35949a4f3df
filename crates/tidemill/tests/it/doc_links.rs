//! Links in README.md, the other pages of the root and `docs/` lead somewhere, and the table of contents has every page.
//!
//! Nothing is asked over the network: links to other sites are not followed. An anchor is the text of a heading as forges and
//! mdbook write it, or the id of an `<a id="…">`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Pages below `folder`, by their paths from the root of the repository.
fn pages_below(folder: &str) -> Vec<String> {
    let (mut pages, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap().map(Result::unwrap) {
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(name);
            } else if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                pages.push(name);
            }
        }
    }
    pages.sort();
    pages
}

fn all_pages() -> Vec<String> {
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "bench/README.md",
        "deploy/README.md",
    ];
    others.map(str::to_owned).into_iter().chain(pages_below("docs")).collect()
}

/// The lines of a page outside of code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let outside = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    outside.map(|(at, line)| (at + 1, line)).collect()
}

/// The targets of `[text](target)` and `![text](target)`.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.match_indices("](").map(|(at, found)| &line[at + found.len()..]);
    ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// A heading without the targets of its links.
fn plain(heading: &str) -> String {
    let mut plain = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain + rest
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut seen = BTreeMap::<String, u32>::new();
    for (_, line) in prose(text) {
        let ids = line.match_indices("<a id=\"").map(|(at, found)| &line[at + found.len()..]);
        anchors.extend(ids.filter_map(|rest| rest.split_once('"')).map(|(id, _)| id.to_owned()));
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let slug: String = plain(heading.trim())
                .to_lowercase()
                .chars()
                .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect();
            let earlier = seen.entry(slug.clone()).or_default();
            anchors.insert(if *earlier == 0 { slug } else { format!("{slug}-{earlier}") });
            *earlier += 1;
        }
    }
    anchors
}

/// The path that `target` on `page` means, from the root; `None` above it.
fn resolved(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::ParentDir => _ = parts.pop()?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// What is wrong with a link, if anything is.
fn problem(page: &str, text: &str, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(place) = (if path.is_empty() { Some(page.to_owned()) } else { resolved(page, path) }) else {
        return Some("leaves the repository".to_owned());
    };
    let file = root().join(&place);
    if !file.exists() {
        return Some(format!("there is no {place}"));
    }
    let other =
        if path.is_empty() { text.to_owned() } else { std::fs::read_to_string(&file).unwrap_or_default() };
    let is_there = anchor.is_empty() || anchors(&other).contains(anchor);
    (!is_there).then(|| format!("{place} has no heading #{anchor}"))
}

#[test]
fn every_link_leads_somewhere() {
    let mut problems = Vec::new();
    let mut links = 0;
    for page in all_pages() {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        for (line, content) in prose(&text) {
            for target in targets(content) {
                links += 1;
                problems.extend(
                    problem(&page, &text, target).map(|what| format!("{page}:{line}: {target}: {what}")),
                );
            }
        }
    }
    assert!(links > 100, "the links were not found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed: Vec<_> =
        summary.lines().flat_map(targets).map(|target| format!("docs/{target}")).collect();
    listed.sort();
    let pages: Vec<_> = pages_below("docs").into_iter().filter(|page| page != "docs/SUMMARY.md").collect();
    assert_eq!(listed, pages);
}

#[test]
fn links_and_headings_are_read_as_forges_read_them() {
    let page = "# One [two](three.md)\n\n```text\n# no heading\n```\n## What's `this`, then?\n## Again\n## Again\n<a id=\"by-hand\"></a>";
    let expected = ["one-two", "whats-this-then", "again", "again-1", "by-hand"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
    assert_eq!(targets("see [a](b.md#c) and ![d](e.png)."), ["b.md#c", "e.png"]);
    assert_eq!(resolved("docs/how-to/watch.md", "../reference/x.md").as_deref(), Some("docs/reference/x.md"));
    assert_eq!(resolved("README.md", "../other"), None);
    assert_eq!(problem("README.md", "# Here", "#here"), None);
    assert_eq!(problem("README.md", "# Here", "#there").as_deref(), Some("README.md has no heading #there"));
    assert_eq!(problem("README.md", "", "docs/none.md").as_deref(), Some("there is no docs/none.md"));
}

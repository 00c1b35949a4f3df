"""Reads a page: a command task. Its output is what the agents are asked about."""

import json
import os
import pathlib
from html.parser import HTMLParser


class Page(HTMLParser):
    """The title, the headings, the links with their texts, and all text."""

    def __init__(self):
        super().__init__()
        self.title, self.headings, self.links, self.text, self.styles = "", [], [], [], []
        self.open = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "a":
            self.links.append({"href": attributes.get("href", ""), "text": ""})
        if tag == "link" and attributes.get("rel") == "stylesheet":
            self.styles.append(attributes["href"])
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        data = " ".join(data.split())
        if not data:
            return
        if "title" in self.open:
            self.title += data
            return
        if "a" in self.open:
            self.links[-1]["text"] += data
        if {"h1", "h2", "h3"} & set(self.open):
            self.headings.append(data)
        self.text.append(data)


work = json.load(open(os.environ["INPUT_FILE"]))
file = pathlib.Path(work["page"]).resolve()
page = Page()
page.feed(file.read_text())
stylesheet = file.parent / page.styles[0]
print(f"read {file.name}: {len(page.links)} links, {len(stylesheet.read_text().splitlines())} lines of CSS")
print(json.dumps({
    "title": page.title,
    "headings": page.headings,
    "links": page.links,
    "text": " ".join(page.text),
    "stylesheet": str(stylesheet),
}))

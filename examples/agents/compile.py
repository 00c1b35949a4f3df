"""Puts what the page says and what the agents found into one report: a command task."""

import json
import os
import pathlib

found = json.load(open(os.environ["INPUT_FILE"]))["dependencyOutputs"]
page, tags, fonts = found["scrape"], found["tags"]["tags"], found["fonts"]["fonts"]
lines = [f"# {page['title']}", "", "Tags: " + ", ".join(tags), "", "| font | used for |", "| --- | --- |"]
lines += [f"| {font['name']} | {font['usedFor']} |" for font in fonts]
lines += ["", "Links:"] + [f"- {link['text']}: {link['href']}" for link in page["links"]]
report = pathlib.Path(os.environ["TIDEMILL_OUTPUT_DIR"], "artifacts", "report.md")
report.write_text("\n".join(lines) + "\n")
print(f"wrote {report.name}: {len(lines)} lines")
print(json.dumps({"title": page["title"], "tags": tags, "fonts": [font["name"] for font in fonts], "report": report.name}))

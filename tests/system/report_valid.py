#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report_valid.py FLEET F8CTL: reads the page of f8ctl report and the drawings of f8ctl history.

The page is HTML whose elements nest, which refers to nothing but itself, allows its own script
alone, and has hostile names as text; the drawings are XML. FLEET is ctl_fleet, F8CTL the program.
Where tidy is, it is asked too.
"""
import base64
import hashlib
import html.parser
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom

HOSTILE = ("<script>alert('name')</script>",
    '"><img src=http://example.invalid/x onerror=alert(1)>',
    "</svg></table></style><!-- & &amp; ]]>",
    "bad \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd utf-8 \ufffd[31m\ufffd\ufffd",
    "right\ufffdto\ufffdleft")
VOID = {"meta", "input", "br", "link"}
CELLS = {"td"}  # may be ended by what follows
CELL_ENDS = {"td", "tr"}
SHAPES = {"path", "rect", "text", "title", "tspan"}
ELSEWHERE = ("src", "srcset", "action", "formaction", "data", "poster", "background", "xlink:href")


class Page(html.parser.HTMLParser):
    """Elements, texts and references of a page; ends the test if elements do not nest."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.scripts = [], [], [], []
        self.cells, self.captions, self.policy, self.elements = [], [], "", {}
        self.feed(text)
        self.close()
        check("elements are open at the end", not self.open, self.open)

    def handle_starttag(self, tag, attrs):
        if tag in CELL_ENDS and self.open and self.open[-1] in CELLS:
            self.open.pop()
        self.elements[tag] = self.elements.get(tag, 0) + 1
        names = [name for name, _ in attrs]
        check(f"an attribute of {tag} is there twice", len(names) == len(set(names)), attrs)
        check(f"{tag} calls a script", not any(name.startswith("on") for name in names), attrs)
        check(f"{tag} loads something", not set(names) & set(ELSEWHERE), attrs)
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if "href" in attrs else []
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag == "td":
            self.cells.append("")
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        check(f"<{tag}/> is no HTML", tag in SHAPES, tag)
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        if tag == "tr" and self.open[-1] in CELLS:
            self.open.pop()
        check(f"</{tag}> at {self.getpos()} ends something else", self.open[-1:] == [tag],
            self.open)
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data
        elif self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open[-2:] == ["figcaption", "b"]:
            self.captions.append(data)

    def handle_comment(self, data):
        check("there is a comment", False, data)


def check(what, is_so, seen=None):
    """Ends the test unless it is so."""
    if not is_so:
        sys.exit(f"{what}: {seen!r}" if seen is not None else what)


def run(fleet, weights, *command):
    """The output of f8ctl with such a fleet."""
    done = subprocess.run([fleet, str(weights), *command], stdout=subprocess.PIPE, check=False)
    check(f"{command}: status", done.returncode == 0, done.returncode)
    return done.stdout.decode()  # which must be UTF-8


def check_page(text, weights, plots):
    """One page."""
    page = Page(text)
    check("it does not begin as HTML does", text.startswith("<!DOCTYPE html>\n<html lang="))
    check("an id is there twice", len(page.ids) == len(set(page.ids)), page.ids)
    for link in page.links:
        check("a link leads elsewhere", link[:1] == "#" and link[1:] in page.ids, link)
    check("there is more than one script", len(page.scripts) == 1)
    digest = base64.b64encode(hashlib.sha256(page.scripts[0].encode()).digest()).decode()
    check(f"the policy does not allow the script: {digest}",
        f"script-src 'sha256-{digest}'" in page.policy and "default-src 'none'" in page.policy,
        page.policy)
    check("plots", page.elements.get("figure", 0) == plots, page.elements.get("figure"))
    for name in HOSTILE[:weights]:
        check(f"{name!r} is in no cell", name in page.cells)
    if plots:
        check("the worst is not drawn first", page.captions[0] == HOSTILE[0], page.captions)
    check("viewport", '<meta name="viewport" content="width=device-width' in text)
    check("a number is written by a locale", "nan.000" not in text)


def check_tidy(path):
    """What HTML Tidy says, where it is."""
    if shutil.which("tidy"):
        done = subprocess.run(["tidy", "-q", "-e", "--show-warnings", "no", str(path)],
            capture_output=True, text=True, check=False)
        check("tidy", done.returncode < 2, done.stderr)


def main(fleet, f8ctl):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "page.html"
        for weights, top, plots in ((0, "5", 0), (1, "5", 1), (12, "5", 5), (700, "9", 9)):
            run(fleet, weights, f8ctl, "report", "--top", top, "--html", str(file), "--force")
            check_page(file.read_text(encoding="utf-8"), weights, plots)
            check_tidy(file)
        check("a page is too large",
            len(run(fleet, 10000, f8ctl, "report", "--html", "-")) < 6 << 20)
        report = json.loads(run(fleet, 700, f8ctl, "report", "--json", "--top", "3"))["report"]
        check("weights of the object", len(report["weights"]) == 700, len(report["weights"]))
        check("histories of the object", len(report["histories"]) == 3)
        for name in HOSTILE[:3] + ("model.layers.0.mlp.weight",):
            drawing = run(fleet, 700, f8ctl, "history", name, "--svg", "-")
            root = xml.dom.minidom.parseString(drawing).documentElement
            texts = [node.firstChild.data for node in root.getElementsByTagName("text")
                if node.firstChild]
            check("the drawing has no such name", any(text.startswith(name) for text in texts),
                texts)
            check("the drawing has a script", not root.getElementsByTagName("script"))
    print("pages and drawings are well formed, and their own")


if __name__ == "__main__":
    main(*sys.argv[1:])

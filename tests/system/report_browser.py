#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report_browser.py FLEET F8CTL [FOLDER]: looks at the page of f8ctl report with a real browser.

On a telephone and on a desk, light and dark: nothing is asked of any network, the console is
empty, the page does not scroll sideways, hostile names are text, and tables can be sorted,
filtered and unfolded. FLEET is ctl_fleet, F8CTL the program. With a folder, it leaves screenshots
there. Exit status 77 (skip) where there is no Chromium; CHROMIUM names one.

The browser is driven by its own protocol over a pipe, so that nothing need be added to the page.
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 240  # seconds for an answer: a sanitized build on a busy machine is slow
WEIGHTS = 10000
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
DESK = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
HOSTILE = "<script>alert('name')</script>"


class Browser:
    """A Chromium with one page. Messages are JSON that ends with a zero byte."""

    def __init__(self, program, folder):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        arguments = [program, "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
            "--disable-component-update", "--hide-scrollbars", f"--user-data-dir={folder}",
            "--remote-debugging-pipe", "about:blank"]
        # The browser reads descriptor 3 and writes descriptor 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(["sh", "-c", shell, "sh", *arguments],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read, self.write = ours_in, ours_out
        self.buffer, self.number, self.session = b"", 0, None
        self.events = []

    def receive(self):
        """The next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0, end - time.monotonic()))[0]:
                sys.exit("the browser does not answer")
            more = os.read(self.read, 1 << 20)
            if not more:
                sys.exit("the browser has ended")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **parameters):
        """The answer to a command; what happens meanwhile is kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, method):
        """Until that has happened."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive())

    def open(self, shape, scheme, url):
        """Shows a page anew, and forgets what came before."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target,
            flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", **shape)
        self.ask("Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events = []
        self.ask("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def close_page(self):
        self.ask("Page.close")
        self.session = None

    def evaluate(self, expression):
        """The value of an expression of the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            sys.exit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screenshot(self, path, whole):
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def end(self):
        os.close(self.write)
        os.close(self.read)
        self.process.terminate()
        self.process.wait()


def check(what, is_so, seen=None):
    """Ends the test unless it is so."""
    if not is_so:
        sys.exit(f"{what}: {seen!r}" if seen is not None else what)


def check_quiet(browser, url):
    """Nothing was loaded but the page, and nobody complained."""
    asked = [event["params"]["request"]["url"] for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"]
    check("other things than the page were asked for", asked == [url], asked)
    said = [event for event in browser.events if event.get("method") in (
        "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown",
        "Page.javascriptDialogOpening")]
    check("the console is not empty", not said, said)


def check_shape(browser, shape):
    """Nothing sticks out sideways; what is wide scrolls in a box of its own."""
    inner = browser.evaluate("innerWidth")
    check("the telephone widens the page to show it", inner == shape["width"], inner)
    width = browser.evaluate("document.documentElement.scrollWidth")
    check("the page scrolls sideways", width <= inner, (width, inner))
    small = browser.evaluate("[...document.querySelectorAll('svg text')].filter(text => "
        "text.getBoundingClientRect().height < 8 && !text.closest('tspan')).length")
    check("texts of plots are too small to read", small == 0, small)


def check_names(browser):
    """Hostile names are text, and have made no elements."""
    names = browser.evaluate("[...document.querySelectorAll('#weights td:first-child')]"
        ".map(cell => cell.textContent)")
    check("not every weight is there", len(names) == WEIGHTS, len(names))
    check("the hostile name is no text", HOSTILE in names, names[:8])
    check("a name made an image", browser.evaluate("document.images.length") == 0)
    check("a name made a script", browser.evaluate("document.scripts.length") == 1)
    check("a name closed a section", browser.evaluate("document.body.children.length") == 3)
    check("a name made something bold",
        browser.evaluate("document.querySelectorAll('td b').length") == 0)


# The cells of a column of the weights that are shown.
CELLS = ("[...document.querySelectorAll('#weights tbody:not([hidden]) tr')]"
    ".map(row => row.cells[%d].textContent)")
HEADS = "[...document.querySelectorAll('#weights th')]"


def column(browser, title):
    """The number of a column, and a click on its heading."""
    index = browser.evaluate(f"{HEADS}.findIndex(head => head.textContent === '{title}')")
    check(f"no column {title}", index >= 0)
    browser.evaluate(f"{HEADS}[{index}].querySelector('button').click()")
    return index


def check_tables(browser):
    """Sorting, filtering and unfolding of the weights."""
    shown = browser.evaluate(CELLS % 0)
    check("ten thousand rows are shown at once", len(shown) == 200, len(shown))
    index = column(browser, "Saturated")
    counts = [int(text) for text in browser.evaluate(CELLS % index)]
    check("numbers are not sorted", counts == sorted(counts, reverse=True) and counts[0] > 9e6,
        counts[:5])
    column(browser, "Saturated")
    counts = [int(text) for text in browser.evaluate(CELLS % index)]
    check("a second click does not turn them round", counts[0] == 0, counts[:5])
    column(browser, "Since sync")
    known = browser.evaluate(CELLS % column(browser, "Since sync"))
    check("the unknown is not at the end", "-" not in known, known[:5])
    column(browser, "Name")
    browser.evaluate("(() => { const input = document.querySelector('#weights input');"
        "input.value = 'LAYERS.77.'; input.dispatchEvent(new Event('input')); })()")
    found = browser.evaluate(CELLS % 0)
    check("the filter finds something else", found == ["model.layers.77.mlp.weight"], found)
    browser.evaluate("(() => { const input = document.querySelector('#weights input');"
        "input.value = ''; input.dispatchEvent(new Event('input')); })()")
    browser.evaluate("document.querySelector('#weights .tools button').click()")
    names = browser.evaluate(CELLS % 0)
    check("not all rows are unfolded", len(names) == WEIGHTS, len(names))
    layers = [name for name in names if name.startswith("model.")]
    check("names are not sorted by their numbers",
        layers[:3] == [f"model.layers.{i}.mlp.weight" for i in range(3)], layers[:3])


def look(browser, url, shape, scheme, shots):
    """One page on one screen."""
    browser.open(shape, scheme, url)
    check_shape(browser, shape)
    check_names(browser)
    dark = browser.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    check("the colours do not follow", (dark != "rgb(255, 255, 255)") == (scheme == "dark"), dark)
    if shots:
        name = f"report-{'phone' if shape['mobile'] else 'desk'}-{scheme}"
        browser.screenshot(shots / f"{name}.png", False)
        browser.screenshot(shots / f"{name}-whole.png", True)
    if scheme == "light":
        check_tables(browser)
        check_shape(browser, shape)
    check_quiet(browser, url)
    browser.close_page()


def main(fleet, f8ctl, shots=None):
    names = (os.environ["CHROMIUM"],) if "CHROMIUM" in os.environ else BROWSERS
    program = next((path for path in map(shutil.which, names) if path), None)
    if not program:
        print("skipped: there is no Chromium here (apt-get install chromium)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="f8-report-", ignore_cleanup_errors=True) as folder:
        page = pathlib.Path(folder) / "page.html"
        subprocess.run([fleet, str(WEIGHTS), f8ctl, "report", "--html", str(page)], check=True)
        browser = Browser(program, f"{folder}/profile")
        try:
            for shape in (PHONE, DESK):
                for scheme in ("light", "dark"):
                    look(browser, page.as_uri(), shape, scheme,
                        pathlib.Path(shots) if shots else None)
        finally:
            browser.end()
    print("the page is well on a telephone and on a desk, light and dark")


if __name__ == "__main__":
    main(*sys.argv[1:])

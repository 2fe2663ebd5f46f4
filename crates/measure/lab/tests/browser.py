# SPDX-License-Identifier: MIT OR Apache-2.0
"""Drives Locust's page in a real Chromium: starts a run, sees charts and our tab, stops, takes the report.

arguments: the page's address, a folder, Chromium
"""

import json
import subprocess
import sys
import time
import urllib.request

import websocket

PAGE, FOLDER, CHROMIUM = sys.argv[1:]
# Looks at the page, 0.2 s apart, before a test has waited in vain: at least 120 s.
LOOKS_MAX = 600


def until(what, holds):
    for _ in range(LOOKS_MAX):
        found = holds()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"not seen: {what}: {tab.text()[-3000:]}")


class Tab:
    """A tab of the browser, over its protocol."""

    def __init__(self):
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command += [f"--user-data-dir={FOLDER}/chromium", "--remote-allow-origins=*", "--window-size=1400,1400"]
        self.browser = subprocess.Popen([*command, "about:blank"], stderr=subprocess.PIPE, text=True)
        for line in self.browser.stderr:
            if "DevTools listening on" in line:
                port = line.split("127.0.0.1:")[1].split("/")[0]
                break
        else:
            raise AssertionError("Chromium has ended")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            pages = [one for one in json.load(answer) if one["type"] == "page"]
        self.socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=30)
        self.number = 0

    def ask(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self.socket.recv())
            if told.get("id") == self.number:
                assert "error" not in told, told
                return told["result"]

    def run(self, script):
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def go(self, address):
        self.ask("Page.navigate", url=address)

    def text(self):
        return self.run("document.body ? document.body.innerText : ''") or ""

    def picture(self, name):
        import base64

        data = self.ask("Page.captureScreenshot", format="png")["data"]
        with open(f"{FOLDER}/{name}.png", "wb") as file:
            file.write(base64.b64decode(data))


def field(name, value):
    """As if it were typed: React looks at the native setter's event."""
    tab.run(
        f"""(() => {{ const field = document.querySelector('input[name="{name}"]');
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, "{value}");
        field.dispatchEvent(new Event("input", {{bubbles: true}})); }})()"""
    )


def press(word):
    return tab.run(
        f"""(() => {{ const all = [...document.querySelectorAll("button")];
        const one = all.find((one) => one.innerText.trim().toLowerCase() === "{word}");
        if (one) one.click(); return Boolean(one); }})()"""
    )


def requests():
    with urllib.request.urlopen(f"{PAGE}stats/requests") as answer:
        return json.load(answer)


tab = Tab()
try:
    until("two workers", lambda: requests().get("workers") and len(requests()["workers"]) == 2)
    tab.go(PAGE)
    until("the form", lambda: tab.run('Boolean(document.querySelector(\'input[name="userCount"]\'))'))
    field("userCount", 4)
    field("spawnRate", 4)
    until("a button to start", lambda: press("start"))
    until("requests in the table", lambda: "LDAP bind" in tab.text() and "Binds" in tab.text())
    tab.go(f"{PAGE}?tab=charts")
    until("charts", lambda: tab.run('document.querySelectorAll("canvas").length') >= 3)
    tab.go(f"{PAGE}?tab=roster-lab")
    until("our table", lambda: "99.9 %" in tab.text() and "Binds LDAP bind" in tab.text())
    inside = 'document.getElementById("roster-lab").contentDocument'
    until("a curve", lambda: tab.run(f'(() => {{ try {{ return {inside}.querySelectorAll("path.curve").length }} catch {{ return 0 }} }})()') == 1)
    told = until("what the server works", lambda: "the server works" in (tab.run(f"{inside}.body.innerText") or "") and tab.run(f"{inside}.body.innerText"))
    assert "Binds, cache:" not in told, told
    tab.picture("tab")
    until("a button to stop", lambda: press("stop"))
    until("the end", lambda: requests()["state"] == "stopped")
    after = requests()["stats"][-1]["num_requests"]
    time.sleep(2)
    assert requests()["stats"][-1]["num_requests"] == after, "counts stand still"
    report = tab.run('fetch("./stats/report?download=1").then((answer) => answer.text())')
    assert "LDAP bind" in report and "<html" in report, report[:500]
    tab.go(f"{PAGE}?tab=roster-lab")
    print(after)
finally:
    tab.browser.kill()
    tab.browser.wait()

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Drives Locust's page in a real Chromium: starts a run, sees charts and our tab, stops, takes the report.

arguments: the page's address, a directory, Chromium
"""

import json
import sys
import time
import urllib.request

from browser_tab import Tab

PAGE, DIRECTORY, CHROMIUM = sys.argv[1:]
# Looks at the page, 0.2 s apart, before a test has waited in vain: at least 120 s.
LOOKS_MAX = 600


def until(what, holds):
    for _ in range(LOOKS_MAX):
        found = holds()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"not seen: {what}: {tab.text()[-3000:]}")


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


tab = Tab(CHROMIUM, DIRECTORY)
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
    tab.close()

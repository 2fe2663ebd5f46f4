# SPDX-License-Identifier: MIT OR Apache-2.0
"""A tab of Locust's page: percentile curves, warnings about the figures, and the cost of a request on the processors of
server and workers. The figures are those of Locust's master."""

import json
from typing import Any, Dict, List

from flask import Blueprint, Response, jsonify, request
from locust.stats import calculate_response_time_percentile

KEY = "roster-lab"
SHARES = [0.5, 0.9, 0.99, 0.999, 1.0]
#: Shares of a curve: nine steps to each nine.
CURVE = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85] + [
    1 - (1 - step / 10) / 10**nines for nines in range(1, 5) for step in (0, 2, 4, 6, 8, 9)
]


def add(web_ui: Any, lab: Any) -> None:
    """Adds the tab to a master's page."""
    ours = Blueprint("roster_lab", __name__)

    @ours.route("/roster-lab/")
    @web_ui.auth_required_if_enabled
    def show() -> Response:
        return Response(PAGE, mimetype="text/html")

    @ours.route("/roster-lab/data")
    @web_ui.auth_required_if_enabled
    def data() -> Response:
        return jsonify(state(lab))

    @ours.route("/roster-lab/check", methods=["POST"])
    @web_ui.auth_required_if_enabled
    def check() -> Response:
        lab.start_check()
        return jsonify({"idle": lab.is_idle()})

    @ours.route("/roster-lab/tab.js")
    def tab() -> Response:
        return Response(TAB, mimetype="text/javascript")

    web_ui.app.register_blueprint(ours)
    web_ui.template_args["extended_tabs"] = [
        *web_ui.template_args.get("extended_tabs", []),
        {"title": "Lab", "key": KEY},
    ]
    columns = [("name", "Name"), ("p50", "50 %"), ("p90", "90 %"), ("p99", "99 %"), ("p999", "99.9 %")]
    columns += [("max", "Max"), ("server", "Server CPU µs"), ("warnings", "Warnings")]
    web_ui.template_args["extended_tables"] = [
        *web_ui.template_args.get("extended_tables", []),
        {"key": KEY, "structure": [{"key": key, "title": title} for key, title in columns]},
    ]

    @web_ui.app.after_request
    def extend(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.is_json:
            told = response.get_json()
            told["extended_stats"] = [
                *told.get("extended_stats", []),
                {"key": KEY, "data": rows(lab)},
            ]
            response.set_data(json.dumps(told))
        elif request.endpoint and request.endpoint.endswith("index") and response.mimetype == "text/html":
            script = '<script src="./roster-lab/tab.js" defer></script></body>'
            response.set_data(response.get_data(as_text=True).replace("</body>", script, 1))
        return response


def rows(lab: Any) -> List[Dict[str, Any]]:
    """The table: a line for each kind of requests."""
    warnings = lab.warnings()
    server = lab.server_cpu_us()
    table = []
    for (name, method), entry in sorted(lab.environment.stats.entries.items()):
        row: Dict[str, Any] = {"name": "%s %s" % (name, method)}
        for key, share in zip(("p50", "p90", "p99", "p999", "max"), SHARES):
            row[key] = "%.3g" % (entry.get_response_time_percentile(share) or 0)
        row["server"] = "%.1f" % server[name] if name in server else ""
        row["warnings"] = ", ".join(sorted(one["kind"] for one in warnings if one["name"] == name))
        table.append(row)
    return table


def state(lab: Any) -> Dict[str, Any]:
    """All that the page shows."""
    curves = []
    for (name, method), entry in sorted(lab.environment.stats.entries.items()):
        times, count = dict(entry.response_times), entry.num_requests - entry.num_none_requests
        points = [[share, calculate_response_time_percentile(times, count, share)] for share in CURVE]
        curves.append({"name": "%s %s" % (name, method), "requests": entry.num_requests, "points": points})
    return {
        "curves": curves,
        "warnings": lab.warnings(),
        "server_cpu_us": lab.server_cpu_us(),
        "client_cpu_us": lab.client_cpu_us(),
        "workers": len(lab.workers),
        "idle": lab.is_idle(),
    }


#: Puts our page below the table of our tab.
TAB = """
setInterval(() => {
  const here = new URLSearchParams(location.search).get("tab") === "%s";
  let frame = document.getElementById("roster-lab");
  if (!here) { frame && frame.remove(); return; }
  const table = document.querySelector("table");
  if (frame || !table) return;
  frame = document.createElement("iframe");
  frame.id = "roster-lab";
  frame.src = "./roster-lab/";
  frame.title = "Lab";
  frame.style = "width:100%%;height:640px;border:0;margin-top:16px";
  (table.closest(".MuiPaper-root") || table).after(frame);
}, 500);
""" % KEY

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Lab</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; --ink: light-dark(#1b1f24, #e6e8eb); --faint: light-dark(#d4d8dd, #3c4148);
  --0: light-dark(#0b62c4, #6cb2ff); --1: light-dark(#b3490c, #ffa366); --2: light-dark(#13754a, #6ed6a4);
  --3: light-dark(#8a2a8f, #e39be7); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); margin: 1rem; }
svg { width: 100%; max-width: 900px; height: auto; }
svg text { font-size: 12px; fill: currentColor; }
svg path.grid { stroke: var(--faint); }
svg path.curve { fill: none; stroke-width: 2; }
li { max-width: 80ch; }
button { font: inherit; }
</style>
<h2>Latency by percentile</h2><div id="curves">No requests yet.</div>
<p id="cost"></p>
<h2>Warnings about these figures</h2><ul id="warnings"></ul>
<p><button id="check">Check again</button></p>
<script>
const esc = (text) => String(text).replace(/[&<>"]/g, (c) => "&#" + c.charCodeAt(0) + ";");
const W = 900, H = 360, L = 70, B = 40;
function chart(curves) {
  const all = curves.flatMap((c) => c.points.map((p) => p[1])).filter((v) => v > 0);
  if (!all.length) return "No requests yet.";
  const low = Math.floor(Math.log10(Math.min(...all))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...all))));
  const y = (v) => H - B - (Math.log10(Math.max(v, 10 ** low)) - low) / (high - low) * (H - B - 15);
  const x = (s) => L + Math.min(-Math.log10(1 - Math.min(s, 0.99999)), 5) / 5 * (W - L - 15);
  let out = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="Latency by percentile">`;
  for (let e = low; e <= high; e++)
    out += `<path class="grid" d="M${L},${y(10 ** e)}H${W - 15}"/><text x="${L - 8}" y="${y(10 ** e) + 4}" text-anchor="end">${10 ** e >= 1 ? 10 ** e : (10 ** e).toPrecision(1)} ms</text>`;
  for (const s of [0, 0.9, 0.99, 0.999, 0.9999])
    out += `<path class="grid" d="M${x(s)},15V${H - B}"/><text x="${x(s)}" y="${H - B + 18}" text-anchor="middle">${+(s * 100).toFixed(2)} %</text>`;
  curves.forEach((c, i) => {
    const d = c.points.map((p, k) => (k ? "L" : "M") + x(p[0]).toFixed(1) + "," + y(p[1]).toFixed(1)).join("");
    out += `<path class="curve" style="stroke:var(--${i % 4})" d="${d}"/>`;
    out += `<text x="${L + 12}" y="${28 + 17 * i}" style="fill:var(--${i % 4})">${esc(c.name)}: ${c.requests} requests</text>`;
  });
  return out + "</svg>";
}
async function show() {
  const told = await (await fetch("./data")).json();
  document.getElementById("curves").innerHTML = chart(told.curves);
  const costs = Object.entries(told.server_cpu_us).map(([name, us]) => `${name}: the server works ${us.toFixed(1)} µs for each request.`);
  if (told.client_cpu_us !== null) costs.push(`The ${told.workers} workers of roster-lab work ${told.client_cpu_us.toFixed(1)} µs for each.`);
  document.getElementById("cost").textContent = costs.join(" ");
  const code = (w) => w.code ? ` [${esc(w.code)}]` : "";
  const items = told.warnings.map((w) => `<li><b>${esc(w.name)}, ${esc(w.kind)}:</b> ${esc(w.text)}${code(w)}</li>`);
  document.getElementById("warnings").innerHTML = items.join("") || "<li>No problems found.</li>";
  document.getElementById("check").disabled = !told.idle;
}
document.getElementById("check").onclick = () => fetch("./check", { method: "POST" }).then(show);
show(); setInterval(show, 2000);
</script></html>
"""

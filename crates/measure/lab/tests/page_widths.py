# SPDX-License-Identifier: MIT OR Apache-2.0
"""Looks at pages in a real Chromium at several widths: nothing is cut at the right edge, and no texts overlap.

Prints each mistake, and exits with 1 after mistakes.

arguments: Chromium, a directory, pages...
"""

import sys

from browser_tab import Tab

CHROMIUM, FOLDER, *PAGES = sys.argv[1:]
WIDTHS = [360, 768, 1200, 1600]

# Rectangles of texts: each line of a text node in HTML, each text element in SVG. A text inside a scrollable box (a
# plan as JSON) counts as far as it is shown.
SCRIPT = """
(() => {
  for (const closed of document.querySelectorAll("details")) closed.open = true;
  const wide = document.documentElement.clientWidth, mistakes = [], texts = [];
  if (document.documentElement.scrollWidth > wide)
    mistakes.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  for (const box of document.querySelectorAll("table, .wide, figure, svg, section")) {
    const {left, right} = box.getBoundingClientRect();
    if (left < 0 || right > wide + 0.5) mistakes.push(`${box.tagName} from ${left} to ${right} px is cut`);
    if (box.scrollWidth > box.clientWidth + 1 && box.tagName !== "svg" && box.clientWidth)
      mistakes.push(`${box.tagName} ${box.className} hides ${box.scrollWidth - box.clientWidth} px`);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest("pre, style, script, title")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const {left, right, top, bottom} of range.getClientRects())
      if (right - left > 1) texts.push({left, right, top, bottom, text: node.data.trim().slice(0, 40), parent});
  }
  for (const one of texts)
    if (one.left < -0.5 || one.right > wide + 0.5) mistakes.push(`"${one.text}" ends at ${one.right} px`);
  texts.sort((one, other) => one.left - other.left);
  for (let i = 0; i < texts.length; i++)
    for (let k = i + 1; k < texts.length && texts[k].left < texts[i].right; k++) {
      const one = texts[i], other = texts[k];
      const across = Math.min(one.right, other.right) - other.left;
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      // Line boxes are taller than letters: lines of one paragraph may touch.
      const least = Math.min(one.bottom - one.top, other.bottom - other.top);
      if (across > 1 && down > least * 0.4) mistakes.push(`"${one.text}" and "${other.text}" overlap`);
    }
  return {mistakes, texts: texts.length};
})()
"""


tab = Tab(CHROMIUM, FOLDER)
mistakes = 0
try:
    tab.send("Page.enable")
    for page in PAGES:
        for width in WIDTHS:
            tab.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            tab.send("Page.navigate", url=f"file://{page}")
            tab.message_where(lambda message: message.get("method") == "Page.loadEventFired")
            seen = tab.run(SCRIPT)
            assert seen["texts"] > 20, f"{page}: {seen}"
            for mistake in seen["mistakes"]:
                mistakes += 1
                print(f"{page} at {width} px: {mistake}")
finally:
    tab.close()
print(f"{len(PAGES)} pages at {WIDTHS} px, {mistakes} mistakes")
sys.exit(mistakes != 0)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""A tab of a real Chromium, over its protocol."""

import base64
import json
import subprocess
import urllib.request

import websocket


class Tab:
    """Starts a browser. Its profile and pictures are below `folder`."""

    def __init__(self, chromium, folder):
        self.folder = folder
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command += [f"--user-data-dir={folder}/chromium", "--remote-allow-origins=*", "--window-size=1400,1400"]
        self.browser = subprocess.Popen([*command, "about:blank"], stderr=subprocess.PIPE, text=True)
        for line in self.browser.stderr:
            if "DevTools listening on" in line:
                port = line.split("127.0.0.1:")[1].split("/")[0]
                break
        else:
            raise AssertionError("Chromium ended")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as reply:
            pages = [page for page in json.load(reply) if page["type"] == "page"]
        self.socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=60)
        self.number = 0

    def send(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        return self.message_where(lambda message: message.get("id") == self.number).get("result")

    def message_where(self, matches):
        while True:
            message = json.loads(self.socket.recv())
            if matches(message):
                assert "error" not in message, message
                return message

    def run(self, script):
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def go(self, address):
        self.send("Page.navigate", url=address)

    def text(self):
        return self.run("document.body ? document.body.innerText : ''") or ""

    def picture(self, name):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(f"{self.folder}/{name}.png", "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.browser.kill()
        self.browser.wait()

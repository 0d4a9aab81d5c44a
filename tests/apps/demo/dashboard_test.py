#!/usr/bin/env python3
"""The dashboard works in a real browser while `kvcast demo --serve` runs. It loads, updates, filters
events and explains decisions. The test covers desktop and phone size, light and dark mode, and the
keyboard. The dashboard logs no error to the console and sends no request to another host. The
screenshots are for manual inspection.
usage: dashboard_test.py KVCAST SCREENSHOT_FOLDER
# SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

sys.dont_write_bytecode = True  # keeps the source tree clean
from browser import browser, check, finish, one, texts, until  # skips the test without a browser
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

KVCAST, FOLDER = sys.argv[1], sys.argv[2]
os.makedirs(FOLDER, exist_ok=True)


def refreshed(driver):
    return int(driver.execute_script("return document.body.dataset.refreshed || 0"))


# The next two functions use no element reference: the page can replace the focused element between two calls.
def press(driver, key):
    ActionChains(driver).send_keys(key).perform()


def focused_number(driver):
    return driver.execute_script("return document.activeElement.dataset.number")


demo = subprocess.Popen([KVCAST, "demo", "--serve", "127.0.0.1:0", "--requests", "150", "--speed", "8",
                         "--cpu-blocks", "20000"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
url = None
for line in demo.stderr:
    if match := re.search(r"dashboard on (http://\S+)", line):
        url = match.group(1)
        break
check("the demo prints the address of its dashboard", url)
driver = browser(1280, 900, dark=False)
try:
    driver.get(url + "/")
    until("all workers are synced", lambda: "4 of 4 workers synced" in one(driver, "#status").text)
    check("the table lists the workers by name",
          [t.split(" ")[0] for t in texts(driver, "#workers tbody td:first-child")] ==
          [f"engine-{i}" for i in range(4)])
    # The page updates without a reload.
    before, batches = refreshed(driver), texts(driver, "#workers tbody td:nth-child(4)")
    until("the page sends requests again", lambda: refreshed(driver) >= before + 3)
    until("the shown values change", lambda: texts(driver, "#workers tbody td:nth-child(4)") != batches)
    until("the page shows the held blocks by tier and group", lambda: all(
        f"{tier} group {group}" in (one(driver, "#held").get_attribute("aria-label") or "")
        for tier in ("GPU", "CPU") for group in range(4)))
    until("the page shows the evicted blocks by kind of group", lambda: "sliding window" in
          (one(driver, "#evicted").get_attribute("aria-label") or ""))
    until("hits are shown", lambda: "miss" in (one(driver, "#hits").get_attribute("aria-label") or ""))
    # For each worker, the page shows the share of the held blocks that can be reused, or that there is not enough data.
    until("the reuse of each worker is diagnosed", lambda: all(
        re.search(r"usable|not enough data", text) for text in texts(driver, "#workers tbody td:nth-child(10)")) and
          any(re.match(r"\d+ % usable$", text) for text in texts(driver, "#workers tbody td:nth-child(10)")))
    # Filters: the page shows only the selected entries.
    def choose(name, value):
        Select(one(driver, f"#filters [name={name}]")).select_by_visible_text(value)

    def column(number):
        return set(texts(driver, f"#events tbody td:nth-child({number})"))

    def unfiltered():
        with urllib.request.urlopen(f"{url}/v1/events?limit=100") as reply:
            return {event["worker"] for event in json.load(reply)["events"]}

    until("the page shows the events of all workers that have events", lambda: column(2) and column(2) == unfiltered())
    # Some engines may have got no request: the router decides by the times that it measures.
    shown = texts(driver, "#events tbody td:nth-child(2)")
    chosen = max(sorted(set(shown)), key=shown.count)
    choose("worker", chosen)
    until("the page shows only the events of the chosen worker", lambda: column(2) == {chosen})
    rows = driver.execute_script("return [...document.querySelectorAll('#events tbody tr')].map("
                                 "row => [row.cells[2].textContent, row.cells[4].textContent])")
    kind, group = next(row for row in rows if row[1].isdigit())
    choose("group", group)
    choose("type", kind)
    until("all filters work together", lambda: column(2) == {chosen} and column(5) == {group} and
          column(3) == {kind})
    choose("type", "all")
    choose("group", "all")
    choose("worker", "all")
    until("the page shows all events again", lambda: column(2) == unfiltered())
    # The explanation of one request opens by keyboard.
    until("requests are listed", lambda: len(texts(driver, "#decisions button")) > 3)
    # One call does all steps, because the page makes the list again when a request was routed.
    label = driver.execute_script(
        "const first = document.querySelector('#decisions li:first-child button'); first.focus();"
        "return first.querySelector('span').textContent")
    request, worker = label.split(" → ")
    press(driver, Keys.ENTER)
    until("the request is explained", lambda: texts(driver, "#explained h3") and
          texts(driver, "#explained h3")[0].startswith(request))
    check("the chosen worker is marked", texts(driver, "#explained tr.chosen td:first-child") == [worker])
    check("every worker is compared", len(texts(driver, "#explained tbody tr")) == 4)
    check("the page shows the reason", "tokens reusable" in texts(driver, "#explained p")[0])
    number = focused_number(driver)
    check("the button of the request has the focus", number)
    before = refreshed(driver)
    until("the page updates again", lambda: refreshed(driver) >= before + 3)
    check("the focus does not move while the page updates", focused_number(driver) == number)
    driver.execute_script("scrollTo(0, 0)")
    before = refreshed(driver)
    until("the charts of the screenshots have data", lambda: refreshed(driver) >= before + 3)
    # Tab reaches the skip link, the pause button, the tables and the filters.
    driver.execute_script("document.activeElement.blur()")
    reached = set()
    for _ in range(80):
        press(driver, Keys.TAB)
        reached.add(driver.execute_script(
            "const e = document.activeElement; return e.id || e.name || e.className || e.tagName"))
    check("skip link, pause, tables and filters are reached by Tab",
          {"skip", "pause", "scroll", "worker", "type", "tier", "group"} <= reached, reached)
    check("controls have names", driver.execute_script(
        "return [...document.querySelectorAll('select, button, canvas, [role=region]')].every("
        "e => (e.labels && e.labels.length) || e.textContent.trim() || e.getAttribute('aria-label'))"))

    # Returns the texts whose contrast with the background is below 4.5 (formula of WCAG).
    contrast = """
      const lum = c => { const v = c.map(x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
                         return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
      const rgb = s => s.match(/[\\d.]+/g).map(Number);
      const back = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
                          if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
      return [...document.querySelectorAll('h1,h2,h3,th,dt,dd,.tag,label,button,p')].map(e => {
        const a = lum(rgb(getComputedStyle(e).color)), b = lum(back(e));
        return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent]; }).filter(x => x[0] < 4.5)"""

    def picture(name, width, dark):
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        driver.execute_script("document.activeElement.blur(); scrollTo(0, 0);"
                              "document.querySelector('#decisions').scrollTo(0, 0)")
        seen = refreshed(driver)
        until("the page is drawn again", lambda: refreshed(driver) >= seen + 2)
        overflow = driver.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        check(f"no element is wider than the page: {name}", overflow <= 0, overflow)
        low = driver.execute_script(contrast)
        check(f"the contrast of all texts is high enough: {name}", low == [], low[:5])
        full = driver.execute_script("return document.documentElement.scrollHeight")
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": full, "deviceScaleFactor": 1, "mobile": width < 600})
        driver.execute_async_script(  # until the page is painted with the new height
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        driver.save_screenshot(os.path.join(FOLDER, f"dashboard-{name}.png"))

    for name, width, dark in (("desk-light", 1280, False), ("desk-dark", 1280, True),
                              ("phone-light", 390, False), ("phone-dark", 390, True)):
        picture(name, width, dark)
    # Pause stops the polling: the timer of the page expires, and the page sends no request. A refresh that has begun
    # completes before the page starts the next timer.
    driver.execute_script("""
      const [wait, send] = [window.setTimeout, window.fetch];
      window.expired = window.sent = 0;
      window.setTimeout = (call, ms) => wait(() => { window.expired += 1; call(); }, ms);
      window.fetch = (...request) => { window.sent += 1; return send(...request); };""")

    def counted(name):
        return driver.execute_script(f"return window.{name}")

    until("the page sends a counted request", lambda: counted("sent") > 0)
    one(driver, "#pause").click()
    expired = counted("expired")
    until("the timer of the paused page expires", lambda: counted("expired") > expired)
    expired, sent, before = counted("expired"), counted("sent"), refreshed(driver)
    until("the timer expires again", lambda: counted("expired") >= expired + 2)
    check("a paused page sends no request", counted("sent") == sent and refreshed(driver) == before)
    one(driver, "#pause").click()
    until("the page updates again after the pause", lambda: refreshed(driver) > before)
    errors = [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    check("the console contains no error", errors == [], errors)
    hosts = set()
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            hosts.add(re.sub(r"^(\w+://[^/]+).*", r"\1", message["params"]["request"]["url"]))
    hosts = {host for host in hosts if not host.startswith("data:")}
    check("the page sends requests only to its own host", hosts == {url}, hosts)
    # If the service ends, the page shows that the service does not answer.
    demo.send_signal(signal.SIGINT)
    demo.wait(timeout=60)
    until("the page shows that the service does not answer", lambda: "does not answer" in one(driver, "#status").text)
finally:
    driver.quit()
    if demo.poll() is None:
        demo.send_signal(signal.SIGINT)
        demo.wait(timeout=60)
finish()

#!/usr/bin/env python3
"""The dashboard of a router with tokens asks for a token, and keeps it only in the memory of the page.
usage: dashboard_token_test.py KVCAST
# SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # keeps the source tree clean
from browser import browser, check, finish, one, until  # skips the test without a browser

KVCAST = sys.argv[1]


def send_token(driver, token):
    one(driver, "#token").send_keys(token)
    one(driver, "#login button").click()


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "tokens")
    with open(path, "w", encoding="utf-8") as file:
        file.write("query asks\nobserve sees\n")
    os.chmod(path, 0o600)
    router = subprocess.Popen([KVCAST, "router", "--http", "127.0.0.1:0", "--token-file", path],
                              stderr=subprocess.PIPE, text=True)
    for line in router.stderr:
        if match := re.search(r"http_listening .*(http://\S+)", line):
            break
    url = match.group(1)
    driver = browser()
    try:
        driver.get(url + "/")
        until("the page asks for a token", lambda: one(driver, "#login").is_displayed())
        check("the page shows the reason", "token with the role observe" in one(driver, "#status").text)
        check("there is no error yet", one(driver, "#refused").text == "")
        send_token(driver, "wrong")
        until("a wrong token is refused", lambda: "valid bearer token" in one(driver, "#refused").text)
        check("the field is empty again", one(driver, "#token").get_attribute("value") == "")
        send_token(driver, "asks")
        until("a token of another role is refused", lambda: "role" in one(driver, "#refused").text)
        send_token(driver, "sees")
        until("the page shows the fleet", lambda: "no workers are followed" in one(driver, "#status").text)
        check("the form is hidden", not one(driver, "#login").is_displayed())
        stored = driver.execute_script(
            "return [localStorage.length, sessionStorage.length, document.cookie, location.href]")
        check("the token is stored nowhere", stored[:3] == [0, 0, ""] and "sees" not in stored[3], stored)
        driver.refresh()
        until("a new page asks again", lambda: one(driver, "#login").is_displayed())
    finally:
        driver.quit()
        router.send_signal(signal.SIGTERM)
        router.wait(timeout=20)
finish()

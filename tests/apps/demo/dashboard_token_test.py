#!/usr/bin/env python3
"""The dashboard of a router with tokens asks for a token, and keeps it only in the memory of the page.
usage: dashboard_token_test.py KVCAST
# SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
except ImportError:
    print("python3-selenium is not installed")
    sys.exit(77)
if not shutil.which("chromium") or not shutil.which("chromedriver"):
    print("chromium and chromium-driver are not installed")
    sys.exit(77)

KVCAST = sys.argv[1]
failures = 0


def check(what, condition, detail=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what} {detail}")


def until(what, condition, seconds=60):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: did not become true within {seconds} s")


def browser():
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


def one(driver, selector):
    return driver.find_element(By.CSS_SELECTOR, selector)


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
    url = re.search(r"http://\S+", router.stderr.readline()).group(0)
    driver = browser()
    try:
        driver.get(url + "/")
        until("the page asks for a token", lambda: one(driver, "#login").is_displayed())
        check("the page says why", "token with the role observe" in one(driver, "#status").text)
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
print("all checks passed" if failures == 0 else f"{failures} checks failed")
sys.exit(failures > 0)

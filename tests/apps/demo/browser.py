"""A headless browser for the tests of the dashboard. If the browser or its driver is not installed, the import of this
file ends the program with exit code 77.
SPDX-License-Identifier: Apache-2.0
"""
import shutil
import sys
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

failures = 0


def check(claim, condition, detail=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {claim} {detail}")


def until(claim, condition, seconds=60):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if condition():
            return
        time.sleep(0.1)
    # The following checks need this condition, so the test stops here.
    raise AssertionError(f"{claim}: did not become true within {seconds} s")


def browser(width=1280, height=900, dark=False):
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    return driver


def one(driver, selector):
    return driver.find_element(By.CSS_SELECTOR, selector)


def texts(driver, selector):
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)


def finish():
    """Prints the result, and ends the program."""
    print("all checks passed" if failures == 0 else f"{failures} checks failed")
    sys.exit(failures > 0)

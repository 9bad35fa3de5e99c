"""Drives the server's page in headless Chromium: asks, compares, breaks, downloads, and takes a picture of each state.

    pip install playwright            # the library only; it drives the Chromium of the system
    apt-get install chromium
    python mini-engine/tests/page/page.py target/release/mini-engine PICTURES [MODEL]

Exits with 1 if the page does not show what it should. The pictures are for a person to look at.
"""

import json
import pathlib
import re
import subprocess
import sys

from playwright.sync_api import sync_playwright

KEY = "open sesame"


def serve(binary, model, *arguments):
    server = subprocess.Popen(
        [binary, "serve", "--model", model, "--port", "0", "--kv-memory", "512MiB", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = server.stdout.readline()
    return server, re.search(r"http://\S+", line).group()


def ask(page, broken, prompt=None, tokens="24"):
    if prompt:
        page.fill("#prompt", prompt)
    page.select_option("#length", tokens)
    page.set_checked("#broken", broken)
    page.click("#run")
    page.wait_for_selector("#receipt:not([hidden])", timeout=900_000)
    kind = page.get_attribute("#verdict", "class")
    expected = "bad" if broken else "good"
    assert kind == expected, f"expected a {expected} verdict, got {kind}: {page.inner_text('#verdict')}"
    same, differs = page.locator("td.same").count(), page.locator("td.differs").count()
    assert (differs > 0) == broken and (broken or same > 0), (same, differs)
    assert page.locator(".begin").count() == (3 if broken else 0) or broken and page.locator(".begin").count() > 0
    # Nothing may stick out sideways.
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, f"{overflow} pixels too wide"
    return page.inner_text("#verdict")


def main(binary, folder, model="smollm2"):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    server, address = serve(binary, model)
    locked, locked_address = serve(binary, "tiny", "--api-key", KEY)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            for name, width, scheme in [("light", 1200, "light"), ("dark", 1200, "dark"), ("phone", 390, "light"), ("phone-dark", 360, "dark")]:
                context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
                page = context.new_page()
                faults = []
                page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
                page.on("pageerror", lambda error: faults.append(str(error)))
                page.on("request", lambda request: faults.append(request.url) if not request.url.startswith((address, "data:", "blob:")) else None)
                page.goto(address)
                page.wait_for_function("document.querySelector('#about').textContent.includes('plan')")
                page.screenshot(path=folder / f"{name}-start.png", full_page=True)
                print(f"{name}: {ask(page, broken=False)}")
                page.screenshot(path=folder / f"{name}-equal.png", full_page=True)
                with page.expect_download() as download:
                    page.click("#download")
                receipt = folder / "receipt.json"
                download.value.save_as(receipt)
                audit = [binary, "audit", receipt, "--model", model]
                if name == "light":
                    assert subprocess.run(audit).returncode == 0, "the downloaded receipt does not pass"
                    assert json.loads(receipt.read_text())["digest"] == page.inner_text("#receipt-digest")
                print(f"{name}: {ask(page, broken=True)}")
                page.screenshot(path=folder / f"{name}-broken.png", full_page=True)
                if name == "light":
                    with page.expect_download() as download:
                        page.click("#download")
                    download.value.save_as(receipt)
                    assert subprocess.run(audit, stdout=subprocess.DEVNULL).returncode == 1, "a broken receipt passes"
                assert not faults, faults
                context.close()
            page = browser.new_page()
            page.goto(locked_address)
            page.fill("#secret", "wrong")
            page.click("#key button")
            page.wait_for_function("document.querySelector('#key-fault').textContent !== ''")
            page.screenshot(path=folder / "key.png", full_page=True)
            page.fill("#secret", KEY)
            page.click("#key button")
            page.wait_for_selector("#ask:not([hidden])")
            print("key:", ask(page, broken=False, prompt="abc", tokens="16"))
            browser.close()
    finally:
        server.terminate()
        locked.terminate()
        server.wait()
        locked.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])

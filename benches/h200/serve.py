#!/usr/bin/env python3
"""Starts `serve --backend cuda`, streams an answer with curl, fetches its receipt over HTTP and audits it on the CPU.

  python3 benches/h200/serve.py ENGINE MODEL FOLDER [BACKEND]

A chat, or the completion of a text where the model has no chat template (random weights). Fails unless the stream ends
properly, its text is what the same request gives without streaming, and every position of the receipt is reproduced.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

QUESTION = "Why does the order of additions change a sum of floating-point numbers?"


def curl(address, body=None):
    if shutil.which("curl") is None:
        print("no curl here: asking with urllib")
        request = urllib.request.Request(address, body and body.encode(), {"content-type": "application/json"})
        return urllib.request.urlopen(request).read().decode()
    data = ["-H", "content-type: application/json", "-d", body] if body else []
    done = subprocess.run(["curl", "-sS", "--fail-with-body", "-N", *data, address], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"curl {address}: {done.stdout}{done.stderr}")
    return done.stdout


def ask(address, chat, stream):
    asked = {"messages": [{"role": "user", "content": QUESTION}]} if chat else {"prompt": QUESTION}
    body = asked | {"max_tokens": 48, "temperature": 0.8, "seed": 7, "ignore_eos": True, "stream": stream, "receipt": True}
    path = "chat/completions" if chat else "completions"
    return curl(f"{address}/v1/{path}", json.dumps(body))


def text_of(choice):
    """The text of a whole answer or of a chunk, of a chat or of a completion."""
    return (choice.get("delta") or choice.get("message") or {}).get("content") or choice.get("text") or ""


def found(value, key):
    """The first value of a key anywhere in parsed JSON."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if isinstance(value, dict) and value.get(key):
        return value[key]
    return next((got for part in parts if (got := found(part, key))), None)


def main():
    engine, model, folder = sys.argv[1:4]
    backend = sys.argv[4] if len(sys.argv) > 4 else "cuda"
    chat = not model.startswith("random:")
    receipts = tempfile.mkdtemp()
    command = [engine, "serve", "--backend", backend, "--model", model, "--port", "0", "--receipts", receipts]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        ready = server.stdout.readline()
        print(ready, end="")
        address = ready.split(" at ")[1].strip()
        lines = [line[6:] for line in ask(address, chat, True).splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]", lines[-1]
        chunks = [json.loads(line) for line in lines[:-1]]
        text = "".join(text_of(choice) for chunk in chunks for choice in chunk["choices"])
        whole = json.loads(ask(address, chat, False))
        assert text_of(whole["choices"][0]) == text, "the streamed text is another one"
        digest = found(chunks, "receipt")
        assert digest and digest == found(whole, "receipt"), "the two answers have different receipts"
        print(f"streamed {len(chunks)} chunks, {len(text)} characters, receipt {digest}")
        file = Path(folder) / "served.json"
        file.write_text(curl(f"{address}/v1/receipts/{digest}"))
    finally:
        server.terminate()
        server.wait(30)
    sys.stdout.flush()
    subprocess.run([engine, "audit", "--model", model, str(file)], check=True)


if __name__ == "__main__":
    main()

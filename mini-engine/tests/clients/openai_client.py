"""OpenAI's own client, unchanged, against a running server.

    python openai_client.py http://127.0.0.1:8000/v1 KEY
"""

import json
import re
import sys
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
from openai import OpenAI
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

base_url, key = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=120)
served = client.models.list().data[0]
model = served.id
messages = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": [{"type": "text", "text": "What is the capital of France?"}]},
]


def chat(**settings):
    settings = {"model": model, "messages": messages, "max_completion_tokens": 12, "seed": 7, **settings}
    return client.chat.completions.create(**settings)


def complete(**settings):
    settings = {"model": model, "prompt": "The cat sat on the", "max_tokens": 12, "seed": 7, **settings}
    return client.completions.create(**settings)


def refused(kind, param, call):
    try:
        call()
    except kind as error:
        assert error.param == param, (error.param, param)
        print(f"  {type(error).__name__}: {error.body['message']}")
        return
    raise AssertionError(f"{kind.__name__} about {param} expected")


def section(title):
    print(f"* {title}")


section("chat")
answer = chat()
text = answer.choices[0].message.content
print(f"  {text!r}, {answer.usage.completion_tokens} tokens, fingerprint {answer.system_fingerprint[:12]}")
assert answer.choices[0].message.role == "assistant" and answer.choices[0].finish_reason in ("stop", "length")
assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
assert answer.usage.prompt_tokens_details.cached_tokens >= 0

section("seed: twenty times at once, one answer")
with ThreadPoolExecutor(20) as pool:
    answers = {answer.choices[0].message.content for answer in pool.map(lambda _: chat(temperature=0.9), range(20))}
assert len(answers) == 1, answers

section("streaming")
chunks = list(chat(stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
print(f"  {len(chunks)} chunks")
with client.chat.completions.stream(model=model, messages=messages, max_tokens=12, seed=7) as stream:
    assert "".join(event.delta for event in stream if event.type == "content.delta") == text

section("logprobs")
entries = chat(logprobs=True, top_logprobs=3, temperature=0).choices[0].logprobs.content
assert entries and all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in entries)
assert all(entry.top_logprobs[0].token == entry.token for entry in entries)
print("  " + " ".join(f"{entry.token!r}:{entry.logprob:.3f}" for entry in entries[:6]))
legacy = complete(logprobs=2, echo=True, temperature=0).choices[0]
assert legacy.text.startswith("The cat sat on the") and legacy.logprobs.token_logprobs[0] is None
assert len(legacy.logprobs.tokens) == len(legacy.logprobs.text_offset)

section("n, stop, penalties, bias, extensions")
several = complete(n=3, temperature=1)
assert [choice.index for choice in several.choices] == [0, 1, 2]
assert several.choices[1].text == complete(seed=8, temperature=1).choices[0].text
plain = complete(temperature=0).choices[0].text
stop = plain[3:6]
assert complete(temperature=0, stop=[stop]).choices[0].text == plain[: plain.index(stop)]
complete(frequency_penalty=1, presence_penalty=0.5, logit_bias={"5": -100}, top_p=0.9)
complete(extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True})
streamed = "".join(chunk.choices[0].text for chunk in complete(temperature=0, stream=True) if chunk.choices)
assert streamed == plain

section("JSON of a schema")
schema = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}
format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
room = min(60, served.max_model_len - answer.usage.prompt_tokens)
choice = chat(response_format=format, max_completion_tokens=room, temperature=0).choices[0]
print(f"  {choice.message.content!r}, {choice.finish_reason}")
if choice.finish_reason == "stop":
    value = json.loads(choice.message.content)
    assert set(value) == {"city", "capital"} and isinstance(value["capital"], bool), value

section("refusals are OpenAI's exceptions")
refused(openai.BadRequestError, "temperature", lambda: chat(temperature=1.9e9))
refused(openai.BadRequestError, "response_format", lambda: chat(response_format={"type": "xml"}))
refused(openai.BadRequestError, "no_such_field", lambda: chat(extra_body={"no_such_field": 1}))
refused(openai.BadRequestError, "messages[0].content[0]", lambda: chat(messages=[
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]))
refused(openai.NotFoundError, "model", lambda: chat(model="gpt-5"))
stranger = OpenAI(base_url=base_url, api_key="another", max_retries=0)
refused(openai.AuthenticationError, None, lambda: stranger.models.list())

section("every field of the package stands in docs/openai.md")
documented = set(re.findall(r"^\| `([a-z_]+)` \|", (Path(__file__).parents[2] / "docs/openai.md").read_text(), re.M))
for params in (completion_create_params, chat_create_params):
    missing = set(typing.get_type_hints(params.CompletionCreateParamsStreaming)) - documented
    assert not missing, missing

print("ok")

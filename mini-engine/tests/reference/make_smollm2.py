#!/usr/bin/env python3
"""Makes the reference numbers of the default model that tests/reference.rs reads.

Needs: pip install numpy torch transformers accelerate gguf
Run:   python3 make_smollm2.py FILE.gguf    (the file that `mini-engine` keeps in its cache)

`transformers` reads the GGUF file itself: its own dequantisation, order of rows, tokenizer and forward pass. Weights are
rounded to bfloat16, as the engine rounds them, and run in float64. Kept are tokens, the best token after the prompt, and
every 64th logit of the last row.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
STRIDE = 64
PROMPTS = [
    "The capital of France is",
    "<|im_start|>user\nName 3 primes above 1024.<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Ä quick brøwn 狐狸 jumps 1234567 times — over the lazy dog's 🐕 back,\t\tand  then",
]


def main():
    path = pathlib.Path(sys.argv[1]).resolve()
    source = dict(pretrained_model_name_or_path=str(path.parent), gguf_file=path.name)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    frequencies = model.model.rotary_emb.inv_freq.clone()
    model = model.double()
    assert torch.equal(model.model.rotary_emb.inv_freq.float(), frequencies)
    out = []
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1]
        rms = float((logits ** 2).mean().sqrt())
        out.append(dict(prompt=prompt, tokens=tokens, best=int(logits.argmax()), rms=round(rms, 6),
                        logits=[round(float(value), 5) for value in logits[::STRIDE]]))
        print(repr(tokenizer.decode([out[-1]["best"]])), len(tokens), rms)
    (HERE / "smollm2.json").write_text(json.dumps(dict(stride=STRIDE, prompts=out), ensure_ascii=False))


if __name__ == "__main__":
    main()

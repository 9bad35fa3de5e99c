#!/usr/bin/env python3
"""Makes the reference numbers of the default model that tests/right.rs reads.

Needs: pip install numpy torch transformers accelerate gguf
Run:   python3 make_smollm2.py FILE.gguf    (the file that `mini-engine` keeps in its cache)

`transformers` reads the GGUF file itself: its own dequantisation, order of rows, tokenizer and forward pass. Weights are
rounded to bfloat16, as the engine rounds them, and run in float64. Kept are tokens, the best token after the prompt, and
every 64th logit of the last row; and, as a measure of what bfloat16 costs, how far the same library is from that when it
runs in bfloat16: the largest difference in units of a row's root mean square, over all rows and for what is kept of the last.
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
    rounded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16, attn_implementation="eager")
    out = []
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            rows = model(torch.tensor([tokens])).logits[0]
            off = (rounded(torch.tensor([tokens])).logits[0].double() - rows).abs()
        logits, rms = rows[-1], (rows ** 2).mean(dim=1).sqrt()
        out.append(dict(prompt=prompt, tokens=tokens, best=int(logits.argmax()), rms=round(float(rms[-1]), 6),
                        bf16_distance=round(float((off.amax(dim=1) / rms).max()), 4),
                        bf16_distance_last=round(float(off[-1, ::STRIDE].max() / rms[-1]), 4),
                        logits=[round(float(value), 5) for value in logits[::STRIDE]]))
        print(repr(tokenizer.decode([out[-1]["best"]])), {key: out[-1][key] for key in out[-1] if key not in ("prompt", "logits")})
    (HERE / "smollm2.json").write_text(json.dumps(dict(stride=STRIDE, prompts=out), ensure_ascii=False))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Our kernels beside whatever else is installed, on the same shapes: PyTorch (cuBLAS, cuDNN), vLLM's batch-invariant Triton
kernels, vLLM itself. Peers are imported, never copied; what is missing is named and left out.

  python3 benches/peers/compare.py [--ours TABLE] [--vllm-source FOLDER] [--rows 1,64,4096] [--end-to-end]

--ours         output of `SAMETREE_TABLE=1 cargo bench -p benches --features cuda --bench gpu_kernels`
--vllm-source  an unpacked vLLM wheel, for a machine where vLLM is not installed: only its Triton matrix product is loaded
               pip download --no-deps vllm==0.33.0 && unzip -q vllm-*.whl 'vllm/model_executor/determinism/*' -d FOLDER
--end-to-end   vLLM serves a Llama-3.1-8B shape with dummy weights (needs vLLM)

Each figure is the median time of one call inside a replayed CUDA graph, with weights rotated so that the L2 cache does not
help. `x limit` divides by max(bytes / 4.27 TB/s, flops / 790 TFLOP/s), what an H200 was measured to reach. `row 0` says
whether the bits of the first row, computed alone, are those of the first row of the batch.
"""

import argparse
import importlib.util
import re
import sys
import types
from pathlib import Path

BYTES_PER_SECOND, FLOPS_PER_SECOND = 4.27e12, 790e12
ROTATED_BYTES = 400 << 20
# Llama-3.1-8B: (name, N, K).
LINEAR = [("qkv", 6144, 4096), ("o", 4096, 4096), ("gate_up", 28672, 4096), ("down", 4096, 14336)]
ROWS = [1, 8, 64, 128, 512, 4096]
ATTENTION = [("prefill", 1, 2048), ("prefill", 1, 8192), ("decode", 1, 8192), ("decode", 1, 32768), ("decode", 32, 8192)]
Q_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128


def limit(bytes_moved, flops):
    return max(bytes_moved / BYTES_PER_SECOND, flops / FLOPS_PER_SECOND)


def seconds(torch, call, count):
    """Median seconds of one of `count` calls inside a graph; `call(i)` is the i-th."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            call(i)
    times = []
    for _ in range(9):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / count)
    return sorted(times[2:])[len(times[2:]) // 2]


def linear_peers(torch, source):
    """Name to function of (x [M, K], w [N, K])."""
    peers = {"cuBLAS": torch.nn.functional.linear}
    invariant = vllm_invariant(source)
    if invariant:
        peers["vLLM invariant"] = invariant
    return peers


def vllm_invariant(source):
    try:
        from vllm.model_executor.determinism.batch_invariant import linear_batch_invariant
        return linear_batch_invariant
    except ImportError as missing:
        if source is None:
            print(f"left out: vLLM's batch-invariant kernels ({missing}); see --vllm-source")
            return None
    try:
        return load_alone(Path(source))
    except Exception as error:  # whatever another version needs is no failure of this script
        print(f"left out: vLLM's batch-invariant kernels from {source} ({type(error).__name__}: {error})")
        return None


def load_alone(source):
    """The module of an unpacked wheel, with the few names it takes from the rest of vLLM given from here."""
    import torch
    import triton
    import triton.language as tl

    properties = torch.cuda.get_device_properties(0)
    platform = types.SimpleNamespace(
        is_cuda=lambda: True,
        is_rocm=lambda: False,
        is_xpu=lambda: False,
        is_cuda_alike=lambda: True,
        device_type="cuda",
        get_device_name=lambda *_: properties.name,
        get_device_capability=lambda *_: types.SimpleNamespace(major=properties.major, minor=properties.minor),
        has_device_capability=lambda wanted, *_: (properties.major * 10 + properties.minor)
        >= (wanted if isinstance(wanted, int) else wanted[0] * 10 + wanted[1]),
        is_device_capability_family=lambda wanted, *_: properties.major == wanted // 10,
        is_device_capability=lambda wanted, *_: properties.major * 10 + properties.minor == wanted,
    )
    shared = properties.shared_memory_per_block_optin
    given = {
        "vllm.envs": {"VLLM_BATCH_INVARIANT": True},
        "vllm.platforms": {"current_platform": platform},
        "vllm.platforms.interface": {"DeviceCapability": types.SimpleNamespace},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.utils.mem_utils": {"get_max_shared_memory_bytes": lambda *_: shared},
        "vllm.utils.nccl": {"pin_nccl_env": lambda *_: None},
        "vllm.utils.platform_utils": {"num_compute_units": lambda *_: properties.multi_processor_count},
        "vllm.utils.torch_utils": {"is_torch_equal_or_newer": lambda *_: True},
    }
    for name in ["vllm", "vllm.utils", "vllm.model_executor", "vllm.model_executor.determinism"]:
        module = types.ModuleType(name)
        module.__path__ = [str(source.joinpath(*name.split(".")))]
        sys.modules[name] = module
    for name, values in given.items():
        module = types.ModuleType(name)
        module.__dict__.update(values)
        sys.modules[name] = module
        parent, child = name.rsplit(".", 1)
        setattr(sys.modules[parent], child, module)
    from vllm.model_executor.determinism.batch_invariant import linear_batch_invariant

    return linear_batch_invariant


def ours(path):
    """Microseconds by name, from the table that the bench prints."""
    if path is None:
        return {}
    found = re.findall(r"^((?:linear|attention)/\S+)\s+([\d.]+) us", Path(path).read_text(), re.M)
    return {name: float(us) for name, us in found}


def compare_linear(torch, peers, own, rows):
    columns = "".join(f" | {name} µs | x limit | row 0" for name in peers)
    print(f"\n| linear | M | limit µs | ours µs | x limit{columns} |\n|---|---|---|---|---|{'---|---|---|' * len(peers)}")
    for name, n, k in LINEAR:
        weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(max(2, min(16, ROTATED_BYTES // (n * k * 2))))]
        for m in rows:
            x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
            floor = limit(2.0 * (n * k + m * k + m * n), 2.0 * m * n * k)
            mine = own.get(f"linear/{name}/{m}")
            row = f"| {name} | {m} | {floor * 1e6:.1f} | {f'{mine:.1f} | {mine / floor / 1e6:.2f}' if mine else '- | -'}"
            for peer in peers.values():
                try:
                    time = seconds(torch, lambda i: peer(x, weights[i % len(weights)]), 2 * len(weights))
                    alone, among = peer(x[:1].contiguous(), weights[0]), peer(x, weights[0])[:1]
                    same = torch.equal(alone.view(torch.int16), among.contiguous().view(torch.int16))
                    row += f" | {time * 1e6:.1f} | {time / floor:.2f} | {'same' if same else 'DIFFERS'}"
                except Exception as error:
                    row += f" | {type(error).__name__} | - | -"
            print(row + " |", flush=True)
        del weights


def compare_attention(torch, own):
    print("\n| attention | limit µs | ours µs | x limit | PyTorch SDPA µs | x limit |\n|---|---|---|---|---|---|")
    for kind, batch, context in ATTENTION:
        rows = context if kind == "prefill" else 1
        copies = max(2, min(8, ROTATED_BYTES // (batch * context * KV_HEADS * HEAD_DIM * 4)))
        make = lambda heads, length: torch.randn(batch, heads, length, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
        q, kv = make(Q_HEADS, rows), [(make(KV_HEADS, context), make(KV_HEADS, context)) for _ in range(copies)]
        causal = kind == "prefill"
        pairs = batch * context * context / 2 if causal else batch * context
        floor = limit(batch * context * KV_HEADS * HEAD_DIM * 4.0, 4.0 * Q_HEADS * HEAD_DIM * pairs)
        call = lambda i: torch.nn.functional.scaled_dot_product_attention(
            q, *kv[i % copies], is_causal=causal, enable_gqa=True
        )
        mine = own.get(f"attention/{kind}/{batch}x{context}")
        row = f"| {kind} {batch}x{context} | {floor * 1e6:.1f} | {f'{mine:.1f} | {mine / floor / 1e6:.2f}' if mine else '- | -'}"
        try:
            time = seconds(torch, call, 2 * copies)
            row += f" | {time * 1e6:.1f} | {time / floor:.2f}"
        except Exception as error:
            row += f" | {type(error).__name__} | -"
        print(row + " |", flush=True)


def end_to_end():
    """Decode and prefill of vLLM on a Llama-3.1-8B shape with dummy weights, as its offline interface gives them."""
    import time

    try:
        from vllm import LLM, SamplingParams
    except ImportError as missing:
        print(f"\nleft out: vLLM end to end ({missing})")
        return
    llm = LLM("meta-llama/Llama-3.1-8B", load_format="dummy", skip_tokenizer_init=True, enable_prefix_caching=False)
    print("\n| vLLM | tokens/s | ms/step |\n|---|---|---|")
    for batch, length, answer in [(1, 8192, 1), (16, 1024, 1), (1, 1024, 64), (8, 1024, 64), (64, 1024, 64)]:
        prompts = [{"prompt_token_ids": [(7 * i + s) % 1000 for i in range(length)]} for s in range(batch)]
        run = lambda tokens: llm.generate(prompts, SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False), use_tqdm=False)
        run(2)
        start = time.perf_counter()
        run(1)
        prefill = time.perf_counter() - start
        if answer == 1:
            print(f"| prefill {batch}x{length} | {batch * length / prefill:.0f} | - |")
            continue
        start = time.perf_counter()
        run(1 + answer)
        step = (time.perf_counter() - start - prefill) / answer
        print(f"| decode {batch}x{length} | {batch / step:.0f} | {step * 1e3:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", metavar="TABLE")
    parser.add_argument("--vllm-source", metavar="FOLDER")
    parser.add_argument("--rows", type=lambda text: [int(part) for part in text.split(",")], default=ROWS)
    parser.add_argument("--end-to-end", action="store_true")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        sys.exit("nothing to compare with: PyTorch is not installed")
    import torch

    if not torch.cuda.is_available():
        sys.exit("nothing to compare with: PyTorch sees no GPU")
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}")
    own = ours(options.ours)
    with torch.inference_mode():
        compare_linear(torch, linear_peers(torch, options.vllm_source), own, options.rows)
        compare_attention(torch, own)
    if options.end_to_end:
        end_to_end()


if __name__ == "__main__":
    main()

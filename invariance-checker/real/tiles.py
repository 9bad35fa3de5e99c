"""Tiles of vLLM's kernels: which constants leave the tree alone, and which are in it.

vLLM's persistent matmul at BLOCK_K 32, 64, 128 and BLOCK_M 16, 128 must be one class of the checker; its matmul of 8-bit floats with a scale for
each tile of K must be one class for each tile of K. The kernels are those of tiles.jsonl. Their code is vLLM's, so it is fetched and compiled
anew each time, and only the digests are kept here.

    python3 -m venv v && v/bin/pip install triton==3.9.0 setuptools packaging
    v/bin/python tiles.py WORK PATH/TO/invariance-checker

WORK is a folder outside of the repository. Exit code 1 if the classes or the digests are others.
"""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Name of the kernel: what is allowed, and the digest of each class with the constants of its members.
EXPECTED = {
    "matmul_kernel_persistent": ("", [("ed3214016e50", ["m128_k128", "m128_k32", "m128_k64", "m16_k128", "m16_k32", "m16_k64"])]),
    "w8a8_triton_block_scaled_mm": ("padded", [("0e36203202f4", ["k64"]), ("deb1ad965b2d", ["k128"])]),
}


def compiled(work):
    out = pathlib.Path(work) / "tiles"
    if not (out / "index.tsv").exists():
        subprocess.run([HERE / "get_sources.sh", work], check=True)
        environment = {**os.environ, "REAL_KERNELS": work, "TRITON_CACHE_DIR": f"{work}/cache"}
        command = [sys.executable, HERE / "extract.py", "curated", out, HERE / "tiles.jsonl"]
        subprocess.run(command, check=True, env=environment)
    return out


def classes(binary, files, allowed):
    """Digest and members of every class, as the checker reports them."""
    command = [binary, "--json", "--variants", "--batch-args", "M"]
    command += ["--allow", allowed] if allowed else []
    done = subprocess.run(command + [str(f) for f in files], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    found = json.loads(done.stdout)["classes"]["classes"]
    variant = lambda file: pathlib.Path(file).stem.rsplit("__", 1)[1]
    return sorted((one["digest"][:12], sorted(map(variant, one["files"]))) for one in found), done.returncode


def main():
    work, binary = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
    out, wrong = compiled(work), 0
    for kernel, (allowed, expected) in EXPECTED.items():
        found, code = classes(binary, sorted(out.glob(f"*__{kernel}__*.ttir")), allowed)
        print(f"{kernel}: {len(found)} class{'' if len(found) == 1 else 'es'}, exit code {code}")
        for digest, members in found:
            print(f"  {digest}  {' '.join(members)}")
        if found != expected or code != (len(expected) > 1):
            print(f"  expected {expected}")
            wrong += 1
    sys.exit(wrong > 0)


main()

"""Compiles the variants of kernels.py with Triton 3.9.0, without a GPU and without torch, and keeps what Triton's cache keeps:
.ttir, .ttgir and .json of each.

    python3 -m venv v && v/bin/pip install triton==3.9.0 setuptools packaging
    v/bin/python make.py
"""

import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
CACHE = tempfile.mkdtemp()
os.environ["TRITON_CACHE_DIR"] = CACHE
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
os.chdir(HERE)
sys.path.insert(0, str(HERE.parent / "corpus"))

import kernels  # noqa: E402
import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from ttir_dump import portable  # noqa: E402

SIGNATURE = {"x": "*fp32", "y": "*fp32", "M": "i32", "N": "i32", "stride": "i32", "BLOCK": "constexpr"}
ALIGNED = ["x", "y", "N", "stride"]
# name: kernel, constants, arguments that are multiples of 16, warps
VARIANTS = {
    "row_sum_4_warps": ("row_sum", {"BLOCK": 1024}, ALIGNED, 4),
    "row_sum_1_warp": ("row_sum", {"BLOCK": 1024}, ALIGNED, 1),
    "row_sum_many_rows": ("row_sum", {"BLOCK": 1024}, [*ALIGNED, "M"], 4),
    "row_sum_one_row": ("row_sum", {"BLOCK": 1024, "M": 1}, ALIGNED, 4),
    "row_sum_unaligned": ("row_sum", {"BLOCK": 1024}, ["y", "N", "stride"], 4),
    "row_max_4_warps": ("row_max", {"BLOCK": 1024}, ALIGNED, 4),
    "row_max_1_warp": ("row_max", {"BLOCK": 1024}, ALIGNED, 1),
}


def main():
    for name, (kernel, constants, multiples, warps) in VARIANTS.items():
        fn = getattr(kernels, kernel)
        signature = {k: "constexpr" if k in constants else v for k, v in SIGNATURE.items()}
        attributes = {(fn.arg_names.index(a),): [["tt.divisibility", 16]] for a in multiples}
        source = ASTSource(fn, signature, constants, attributes)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
        for kind in ["ttir", "ttgir"]:
            (HERE / f"{name}.{kind}").write_text(portable(made.asm[kind]))
        found = [p.read_text() for p in pathlib.Path(CACHE).rglob(f"{kernel}.json") if made.hash in p.read_text()]
        (HERE / f"{name}.json").write_text(portable(found[0]) + "\n")
    shutil.rmtree(CACHE)


main()

"""Compiles the kernels of this folder to TTIR, without a GPU.

    pip install triton==3.9.0 setuptools packaging
    PYTHONPATH=PATH/TO/sametree/invariance-checker/tests/corpus python dump_kernels.py OUT
"""

import pathlib
import sys

from ttir_dump import dump

import kernels

BF16, I32 = "*bf16", "i32"


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    dump(kernels.softmax, {"x": BF16, "y": BF16, "n_rows": I32, "stride": I32}, {"N": 1000, "BLOCK": 1024}, out=out / "softmax.ttir")
    # What a dispatcher may choose from by the number of rows.
    for bm in (16, 64, 128):
        signature = {"a": BF16, "b": BF16, "c": BF16, "M": I32, "N": I32, "K": I32}
        dump(kernels.matmul, signature, {"BM": bm, "BN": 64, "BK": 64}, out=out / f"matmul_m{bm}.ttir")


main()

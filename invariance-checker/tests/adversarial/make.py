"""Compiles the kernels of this folder to TTIR without a GPU, and writes index.tsv.

    python3 -m venv v && v/bin/pip install triton==3.9.0 setuptools packaging
    cd this folder && TRITON_DEFAULT_FP_FUSION=1 ../path/to/v/bin/python make.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "corpus"))
from ttir_dump import make_source, portable, to_ir  # noqa: E402
import hidden  # noqa: E402, F401
import kernels  # noqa: E402
import attention  # noqa: E402, F401
import launches  # noqa: E402, F401
import lists  # noqa: E402, F401
import claims  # noqa: E402, F401


def main():
    rows = ["file\tverdict\tbatch_args\targs\tgrid\twhy"]
    for case in kernels.CASES:
        name = case["fn"].__name__
        module = to_ir(make_source(case["fn"], case["sig"], case["ce"]))
        (HERE / f"{name}.ttir").write_text(portable(module.str(), "(?:hidden|kernels|attention|launches|lists|claims)"))
        args = " ".join(f"{k}={v}" for k, v in case["launch"].items())
        rows.append("\t".join([f"{name}.ttir", case["verdict"], case["batch"], args, case["grid"], case["why"]]))
    (HERE / "index.tsv").write_text("\n".join(rows) + "\n")
    print(len(rows) - 1, "kernels")


main()

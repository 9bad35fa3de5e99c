"""Compiles corpus.py to TTIR without a GPU, and writes index.tsv.

    python make.py OUT    # with the Triton whose corpus it is: OUT/NAME.ttir, .nodebug.ttir, .generic.mlir and .raw.ttir
"""
import os
import pathlib
import runpy
import sys

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
from ttir_dump import generic, make_source, portable, to_ir  # noqa: E402

# Helpers that are not inlined are named after their module; in the fixtures it was the main one.
CASES = runpy.run_path(str(pathlib.Path(__file__).parent / "corpus.py"), run_name="__main__")["CASES"]


def compiled(c, **how):
    return to_ir(make_source(c["fn"], c["sig"], c["ce"], c["divisible"]), options=c["opts"], **how)


def main(out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    rows = ["file\tkernel\tverdict\twhy\tbatch_args\tsignature\tconstexprs"]
    for c in CASES:
        name, kernel = c["name"], c["fn"].__name__
        try:
            m = compiled(c)
            (out / f"{name}.ttir").write_text(portable(m.str(), "corpus"))
            (out / f"{name}.nodebug.ttir").write_text(m.str_nodebug())
            (out / f"{name}.generic.mlir").write_text(generic(m))
            (out / f"{name}.raw.ttir").write_text(compiled(c, raw=True).str_nodebug())
        except Exception as e:
            print("FAIL", name, type(e).__name__, str(e)[:600].replace("\n", " | "))
            continue
        rows.append("\t".join([f"{name}.ttir", kernel, c["verdict"], c["why"], ",".join(c["batch"]), repr(c["sig"]), repr(c["ce"])]))
    (out / "index.tsv").write_text("\n".join(rows) + "\n")
    print(len(rows) - 1, "kernels")


main(sys.argv[1])

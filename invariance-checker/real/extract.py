#!/usr/bin/env python3
"""Compiles Triton kernels of third-party packages to TTIR without a GPU and without torch.

    REAL_KERNELS=WORK python extract.py curated OUT [SPECS]  # the kernels of specs.jsonl (or of SPECS), and OUT/index.tsv
    REAL_KERNELS=WORK python extract.py bulk    OUT [PKG..]  # every kernel of the packages, with guessed signatures, constants and alignments

The sources lie in WORK/src (get_sources.sh). What comes out is other people's code: OUT is a folder outside of the repository.
A module that is neither the standard library, Triton nor one of those packages is replaced by a stub that hands out stubs; a
module of a package that fails half-way keeps what it had defined.
"""

import os
import pathlib
import sys
import warnings

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("VLLM_BATCH_INVARIANT", "1")
warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "corpus")]


def main():
    command, out, *more = sys.argv[1:]
    if command == "curated":
        from curated import curated

        curated(out, *more)
    elif command == "bulk":
        from bulk import bulk
        from packages import PKG

        bulk(out, more or list(PKG))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

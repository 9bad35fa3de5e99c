"""The packages whose kernels are compiled: unpacked by get_sources.sh under REAL_KERNELS/src."""

import os
import pathlib
import re
import sys

SRC = pathlib.Path(os.environ["REAL_KERNELS"]).resolve() / "src"

# package name -> (dir under src, import root, version)
PKG = {}
for d in sorted(SRC.iterdir()):
    if not d.is_dir():
        continue
    meta = sorted(d.glob("*.dist-info/METADATA")) or sorted(d.glob("*/PKG-INFO"))
    ver = re.search(r"^Version: (.*)$", meta[0].read_text(errors="replace"), re.M).group(1) if meta else "?"
    root = d if list(d.glob("*.dist-info")) else next((x for x in d.iterdir() if x.is_dir()), d)
    PKG[d.name] = (root, ver)
    sys.path.append(str(root))

# top-level module -> import root
LOCAL = {}
for n, (root, v) in PKG.items():
    for p in root.iterdir():
        if p.is_dir() and not p.name.endswith(("-info", ".data")) and any(p.rglob("*.py")):
            LOCAL[p.name] = root
        elif p.suffix == ".py":
            LOCAL[p.stem] = root
LOCAL.pop("test", None)
LOCAL.pop("tests", None)
LOCAL.pop("setup", None)
LOCAL.pop("examples", None)
LOCAL.pop("torch", None)

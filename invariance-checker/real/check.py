"""Checks the kernels of specs.jsonl and compares the verdicts with ../docs/real-kernels.tsv.

Each line of specs.jsonl is a kernel of vLLM or Liger with its signature, constants and batch arguments, and a label from reading its source: INV,
NOT, or COND (invariant only under the stated condition on how the host launches it). A label is a judgement; the table's last column reviews it.

    python3 -m venv v && v/bin/pip install triton==3.9.0 setuptools packaging
    v/bin/python check.py WORK PATH/TO/invariance-checker [--write]

WORK is a folder outside of the repository: it gets the sources and the TTIR of other people's kernels. --write renews the columns of the
table that the checker fills; what a reviewer wrote stays. Exit code 1 if a verdict is not that of the table.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parent / "docs" / "real-kernels.tsv"
COLUMNS = ["kernel", "package", "version", "batch arguments", "verdict", "given", "conditions", "label", "review"]
WORDS = {"invariant": "INVARIANT", "under": "INVARIANT UNDER", "variant": "VARIANT", "unknown": "UNKNOWN"}


def read(path):
    with open(path) as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def checked(binary, path, batch):
    command = [binary, "--json", "--witness-seconds", "10", path]
    if batch:
        command += ["--batch-args", batch]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1, 2):
        sys.exit(f"{path}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)["kernels"][0]["report"]


def main():
    work, binary = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
    out = pathlib.Path(work) / "ttir"
    if not (out / "index.tsv").exists():
        subprocess.run([HERE / "get_sources.sh", work], check=True)
        environment = {**os.environ, "REAL_KERNELS": work, "TRITON_CACHE_DIR": f"{work}/cache"}
        subprocess.run([sys.executable, HERE / "extract.py", "curated", out], check=True, env=environment)
    known = {row["kernel"]: row for row in read(TABLE)} if TABLE.exists() else {}
    rows, wrong = [], 0
    for spec in read(out / "index.tsv"):
        report = checked(binary, str(out / spec["file"]), spec["batch_args"])
        name = spec["file"].removesuffix(".ttir")
        old = known.get(name, {})
        conditions = sorted({c["name"] for c in report["conditions"] if not c["layout"]})
        row = {
            "kernel": name,
            "package": spec["package"],
            "version": spec["version"],
            "batch arguments": spec["batch_args"],
            "verdict": WORDS[report["verdict"]],
            "given": ", ".join(report["given"]),
            "conditions": ", ".join(conditions),
            "label": spec["verdict"],
            "review": old.get("review", ""),
        }
        rows.append(row)
        change = "" if old.get("verdict", row["verdict"]) == row["verdict"] else f" (table: {old['verdict']})"
        wrong += bool(change)
        print(f"{row['verdict']:<16} {row['label']:<5} {name}{change}", flush=True)
    if "--write" in sys.argv:
        with open(TABLE, "w") as file:
            file.write("\n".join(["\t".join(COLUMNS), *("\t".join(r[c] for c in COLUMNS) for r in rows)]) + "\n")
    print(f"{len(rows)} kernels, {sum(r['verdict'] != 'UNKNOWN' for r in rows)} decided, {wrong} not as in the table")
    sys.exit(wrong > 0)


main()

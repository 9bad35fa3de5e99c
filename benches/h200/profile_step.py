#!/usr/bin/env python3
"""Where the time of a decode step goes: every kernel of one step, one after another, by Nsight Compute.

  python3 benches/h200/profile_step.py ENGINE FOLDER BATCH...

Each kernel is timed alone (ncu lets them not overlap), on the clock as it is and with the caches as the kernel before left them.
In the engine they overlap at their ends (dependent launch), so that a step can take less than the sum.
"""

import collections
import csv
import io
import subprocess
import sys
from pathlib import Path

METRIC = "gpu__time_duration.sum"


def kernels(engine, batch):
    """(name, microseconds) of every launch of a short bench, in order: all prompts in one step, then two decodes, all of it twice."""
    work = ["bench", "--backend", "cuda", "--model", "random:llama-3.1-8b", "--prefill", "0x0", "--decode", f"{batch}x1024",
            "--chunk", str(batch * 1024), "--steps", "2", "--mixed", "0", "--rate", "0", "--sessions", "0x0"]
    profiler = ["ncu", "--csv", "--metrics", METRIC, "--clock-control", "none", "--cache-control", "none",
                "--graph-profiling", "node", "--kernel-name", "regex:^(?!random|fill).*"]
    done = subprocess.run([*profiler, engine, *work], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    header = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        sys.exit(f"ncu gave no table: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    rows = csv.DictReader(io.StringIO("\n".join(lines[header:])))
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
    return [(row["Kernel Name"].split("(")[0], float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]])
            for row in rows if row["Metric Name"] == METRIC]


def steps(launches):
    """Launches cut behind each sampler."""
    step = []
    for launch in launches:
        step.append(launch)
        if launch[0].startswith("sample_rows"):
            yield step
            step = []


def decode_step(launches):
    """The median of the steps that decode for everybody: those without a prefill that take longest, and launch what it launches."""
    decodes = [step for step in steps(launches) if not any("prefill" in name for name, _ in step)]
    total = lambda step: sum(us for _, us in step)
    names = lambda step: sorted(name for name, _ in step)
    longest = max(decodes, key=total)
    alike = sorted((step for step in decodes if names(step) == names(longest)), key=total)
    return alike[len(alike) // 2]


def main():
    engine, folder = sys.argv[1:3]
    for batch in map(int, sys.argv[3:]):
        launches = kernels(engine, batch)
        Path(folder, f"profile_{batch}.csv").write_text("".join(f"{name},{us:.3f}\n" for name, us in launches))
        step = decode_step(launches)
        total = sum(us for _, us in step)
        sums = collections.defaultdict(lambda: [0, 0.0])
        for name, us in step:
            sums[name][0] += 1
            sums[name][1] += us
        print(f"\nbatch {batch}: {len(step)} kernels, {total / 1e3:.3f} ms one after another\n")
        print("| kernel | launches | µs | share |\n|---|---|---|---|")
        for name, (count, us) in sorted(sums.items(), key=lambda item: -item[1][1]):
            print(f"| `{name}` | {count} | {us:.1f} | {us / total:.1%} |")


if __name__ == "__main__":
    main()

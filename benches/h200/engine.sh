#!/bin/bash
# What RESULTS.md says of the engine on a GPU, step by step. Each step writes OUT/STEP.txt and prints its end.
# Usage: benches/h200/engine.sh ENGINE OUT [STEP...]
#   ENGINE  mini-engine, built with `cargo build --release -p mini-engine --features cuda`
#   STEP    bits speed overlap tax qwen smollm2 llama soak serve profile; all of them unless given
# SOAK_SECONDS (600) is how long the soak runs. A step that fails does not stop the others; the exit status says whether one did.
set -uo pipefail
engine=$(realpath "$1") out=$2
shift 2
mkdir -p "$out"
out=$(realpath "$out")
here=$(cd "$(dirname "$0")" && pwd)
llama=random:llama-3.1-8b
failed=

bits() { "$engine" determinism --backend cuda --model random:qwen3-0.6b --json "$out/bits.json"; }
speed() { "$engine" bench --backend cuda --model $llama --json "$out/speed.json" --svg "$out/speed.svg"; }
# The same without planning ahead: the same digests.
overlap() {
  [ -s "$out/speed.json" ] || "$engine" bench --backend cuda --model $llama --json "$out/speed.json" || return
  "$engine" bench --backend cuda --model $llama --no-overlap --sessions 0x0 --rate 0 --against "$out/speed.json"
}
# One variant a kernel, equal work: the same digests.
tax() {
  [ -s "$out/speed.json" ] || "$engine" bench --backend cuda --model $llama --json "$out/speed.json" || return
  "$engine" bench --backend cuda --model $llama --one-variant --prefill 1x8192 --decode 1x1024,64x1024 --mixed 0 --rate 0 \
    --sessions 0x0 --against "$out/speed.json"
}
qwen() {
  "$engine" bench --backend cuda --model random:qwen3-8b --prefill 1x8192 --decode 1x1024,8x1024,64x1024 --mixed 0 --rate 0 \
    --sessions 0x0 --steps 32 && "$engine" determinism --backend cuda --model random:qwen3-8b --quick
}
smollm2() { "$engine" determinism --backend cuda --model "${SMOLLM2:-smollm2}" --against cpu --quick; }
llama() { "$engine" determinism --backend cuda --model $llama,layers=2 --against cpu --quick; }
soak() { "$engine" soak --backend cuda --model random:qwen3-0.6b --seconds "${SOAK_SECONDS:-600}"; }
# A streamed chat over HTTP, its receipt, and the receipt's audit on the CPU.
serve() { python3 "$here/serve.py" "$engine" "${SERVED:-random:qwen3-0.6b}" "$out"; }
profile() { python3 "$here/profile_step.py" "$engine" "$out" 1 64; }

steps=${*:-bits speed overlap tax qwen smollm2 llama soak serve profile}
for step in $steps; do
  start=$SECONDS
  "$step" >"$out/$step.txt" 2>&1 || failed="$failed $step"
  echo "=== $step, $((SECONDS - start)) s"
  tail -n "${TAIL:-14}" "$out/$step.txt"
done
[ -z "$failed" ] || { echo "FAILED:$failed"; exit 1; }

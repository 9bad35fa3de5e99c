#!/bin/bash
# What RESULTS.md says of the kernels on a GPU: bits, racecheck, memcheck, the table and criterion. The GPU's machine need not
# have Rust.
# Usage: benches/h200/kernels.sh build FOLDER   with cargo and nvcc (NVCC, CUDA_HOME or PATH): puts the test binary, the benchmark
#                                               and this script into FOLDER, to be copied to the machine with the GPU
#        FOLDER/kernels.sh run OUT [STEP...]    there; a step writes OUT/STEP.txt
#   STEP  bits racecheck memcheck table criterion; all of them unless given. Three minutes on an H200.
# A step that fails does not stop the others; the exit status says whether one did.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

build() {
  mkdir -p "$1" || return
  local folder list name path
  folder=$(realpath "$1")
  cd "$here/../.." || return
  list=$(cargo bench --locked --no-run -p kernels-rs -p benches --features kernels-rs/cuda,benches/cuda --test cuda --bench gpu_kernels \
    --message-format json-render-diagnostics) || return
  for name in cuda gpu_kernels; do
    path=$(sed -n "s/.*\"executable\":\"\([^\"]*\/$name-[0-9a-f]*\)\".*/\1/p" <<<"$list" | tail -n 1)
    [ -n "$path" ] || { echo "cargo named no executable $name" >&2; return 1; }
    strip -o "$folder/$name" "$path" || return
  done
  cp "$here/kernels.sh" "$folder/"
}

bits() { "$here/cuda"; }
racecheck() { SAMETREE_FEW=200 compute-sanitizer --error-exitcode 9 --tool racecheck "$here/cuda" --test-threads 1; }
memcheck() { SAMETREE_FEW=100 compute-sanitizer --error-exitcode 9 --tool memcheck "$here/cuda" --test-threads 4; }
table() { SAMETREE_TABLE=1 "$here/gpu_kernels"; }
criterion() { CRITERION_HOME=$out/criterion "$here/gpu_kernels"; }

run() {
  mkdir -p "$1" || return
  local steps step start failed=
  out=$(realpath "$1")
  shift
  steps=${*:-bits racecheck memcheck table criterion}
  # cuBLAS, the peer of the linear layers, is loaded at run time.
  local folder
  for folder in /usr/local/cuda*/targets/*/lib /usr/local/cuda*/lib64; do
    [ -e "$folder" ] && export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
  # Without a GPU the tests would count as ignored.
  export SAMETREE_REQUIRE_GPU=1
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  for step in $steps; do
    start=$SECONDS
    "$step" >"$out/$step.txt" 2>&1 || failed="$failed $step"
    echo "=== $step, $((SECONDS - start)) s"
    grep -E '^test result|SUMMARY|^error|FAILED|skipped' "$out/$step.txt"
    [ "$step" != table ] || cat "$out/table.txt"
  done
  [ -z "$failed" ] || { echo "FAILED:$failed"; return 1; }
}

case "${1:-} $#" in
  'build 2') build "$2" ;;
  run\ [2-9]) run "${@:2}" ;;
  *) sed -n '2,8p' "$0" && exit 2 ;;
esac

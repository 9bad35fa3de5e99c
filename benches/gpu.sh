#!/bin/sh
# The GPU tests and benchmarks on a machine that need not have Rust.
#
#   benches/gpu.sh build FOLDER   here, with cargo and nvcc (NVCC, CUDA_HOME or PATH): puts the test binary, the benchmark and
#                                 this script into FOLDER, to be copied to the machine with the GPU
#   FOLDER/gpu.sh run [OUT]       there: bits, racecheck, memcheck, then the benchmarks with criterion; logs go to OUT
#
# OUT is `logs` beside the script unless named. The exit status is 0 only if everything passed. About four minutes on an H200.
set -u
here=$(cd "$(dirname "$0")" && pwd)

build() {
  folder=$1
  mkdir -p "$folder" || exit 1
  cd "$here/.." || exit 1
  list=$(cargo bench --locked --no-run -p kernels-rs -p benches --features kernels-rs/cuda,benches/cuda --test cuda --bench gpu_kernels \
    --message-format json-render-diagnostics) || exit 1
  for name in cuda gpu_kernels; do
    path=$(printf '%s\n' "$list" | sed -n "s/.*\"executable\":\"\([^\"]*\/$name-[0-9a-f]*\)\".*/\1/p" | tail -n 1)
    [ -n "$path" ] || { echo "cargo named no executable $name" >&2; exit 1; }
    strip -o "$folder/$name" "$path" || exit 1
  done
  cp "$here/gpu.sh" "$folder/"
}

# What failed is told at the end.
failed=
step() {
  name=$1
  shift
  start=$(date +%s)
  "$@" > "$out/$name.log" 2>&1
  status=$?
  grep -E 'test result|ERROR SUMMARY|RACECHECK SUMMARY|^error|FAILED|skipped' "$out/$name.log"
  echo "$name: exit $status, $(($(date +%s) - start)) s"
  [ $status = 0 ] || failed="$failed $name"
}

run() {
  out=${1:-$here/logs}
  mkdir -p "$out" || exit 1
  # cuBLAS is the peer of the linear layers; it is loaded at run time.
  for folder in /usr/local/cuda*/targets/*/lib /usr/local/cuda*/lib64; do
    [ -e "$folder" ] && LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
  export LD_LIBRARY_PATH SAMETREE_REQUIRE_GPU=1
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  step bits "$here/cuda"
  SAMETREE_FEW=200 step racecheck compute-sanitizer --error-exitcode 9 --tool racecheck "$here/cuda" --test-threads 1
  SAMETREE_FEW=100 step memcheck compute-sanitizer --error-exitcode 9 --tool memcheck "$here/cuda" --test-threads 4
  step table env SAMETREE_TABLE=1 "$here/gpu_kernels"
  CRITERION_HOME=$out/criterion step criterion "$here/gpu_kernels"
  cat "$out/table.log"
  [ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
}

case "${1:-}" in
  build) [ $# = 2 ] || { sed -n '2,9p' "$0"; exit 2; }; build "$2" ;;
  run) run "${2:-}" ;;
  *) sed -n '2,9p' "$0"; exit 2 ;;
esac

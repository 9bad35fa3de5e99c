#!/usr/bin/env bash
# Unpacks the Python sources of packages into WORK/src, without installing them.
# usage: get_sources.sh WORK [name==version ...]
set -euo pipefail
mkdir -p "$1/src"
cd "$1"
shift
[ $# -gt 0 ] || set -- vllm==0.33.0 liger-kernel==0.8.5
for spec in "$@"; do
  name=${spec%%==*}
  name=${name//-/_}
  [ -d "src/$name" ] && continue
  tmp=$(mktemp -d)
  python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp --abi abi3 --abi cp312 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any -d "$tmp" "$spec"
  mkdir -p "src/$name"
  unzip -q -o "$tmp"/*.whl '*.py' '*/METADATA' -d "src/$name"
  rm -rf "$tmp"
done

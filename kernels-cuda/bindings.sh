#!/bin/sh
# Regenerates src/params.rs from include/params.h. Needs bindgen-cli 0.73.0 and libclang. With --check it compares instead
# and fails on a difference, which is how CI holds the committed bindings to the header.
set -eu
cd "$(dirname "$0")"
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
bindgen --allowlist-file '.*params\.h' --default-enum-style consts --no-prepend-enum-name --no-layout-tests --use-core \
  --disable-header-comment --merge-extern-blocks --no-doc-comments \
  --raw-line '//! Parameter structs of the kernels, made from include/params.h by bindings.sh. Do not edit.' \
  --raw-line '#![allow(missing_docs, non_camel_case_types, non_upper_case_globals)]' include/params.h > "$fresh"
if [ "${1:-}" = --check ]; then diff -u src/params.rs "$fresh"; else cp "$fresh" src/params.rs; fi

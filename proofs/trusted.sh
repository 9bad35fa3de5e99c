#!/bin/bash
# What has to be believed, with line counts, as proofs/README.md and `mini-engine trust` state it. Fails when they state
# other numbers than the files have. Usage: proofs/trusted.sh
set -euo pipefail
cd "$(dirname "$0")/.."
lines() { cat "$@" | wc -l; }
stated() { grep -qF "$1" "$2" || { echo "proofs/trusted.sh: $2 should say: $1" >&2; exit 1; }; }
say() { # NAME LINES: prints, and looks it up where it is stated
  printf '%-36s %6d lines\n' "$1" "$2"
  stated "$1 ($2 lines)" proofs/README.md
  stated "$1 ($2 lines)" proofs/trust.txt
}
say 'the statement: Reference.v, Spec.v' "$(lines proofs/theories/Reference.v proofs/theories/Spec.v)"
say 'the meaning of the subset: Prims.v' "$(lines proofs/theories/Prims.v)"
say 'the translator: rs2v' "$(lines proofs/rs2v/src/*.rs)"
say 'the runner: runner.rs' "$(sed '/^#\[cfg(test)\]/,$d' mini-engine/src/engine/runner.rs | wc -l)"
say 'names and their tokens: ahead.rs' "$(sed '/^#\[cfg(test)\]/,$d' mini-engine/src/engine/ahead.rs | wc -l)"
say 'the ledger itself: proved.rs' "$(lines proofs/ledger/src/proved.rs)"
say 'proofs, checked by Coq' "$(lines proofs/theories/*.v)"

#!/bin/bash
# The link between the ledger that runs and the theorems: translate it anew, compare, compile every theory, list what the
# theorems assume, check the compiled files with Coq's independent checker, validate the translator by running it, and
# compare the ledger with the slot-level specification on many runs.
# Usage: proofs/check.sh [--fast]   (--fast stops after the theorems' assumptions)
set -euo pipefail
cd "$(dirname "$0")/.."
theories=proofs/theories
work=target/proofs
fail() { echo "proofs/check.sh: $*" >&2; exit 1; }
say() { printf '%-12s %s\n' "$1" "$2"; }

if ! command -v coqc >/dev/null; then
  say install "Coq is missing; installing it with apt"
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq >/dev/null
  $sudo apt-get install -y -qq --no-install-recommends coq >/dev/null
fi
say coq "$(coqc --version | head -1)"
proofs/trusted.sh >/dev/null || fail "the lines of trusted parts in proofs/README.md and proofs/trust.txt are not those of the files"

rm -rf "$work"
mkdir -p "$work/fresh" "$work/theories" "$work/validate"

cargo run -q -p rs2v -- proofs/ledger/src "$work/fresh"
for generated in LedgerTypes.v LedgerFns.v; do
  diff -u "$theories/$generated" "$work/fresh/$generated" ||
    fail "$generated is not the translation of proofs/ledger/src/proved.rs; run: cargo run -p rs2v -- proofs/ledger/src $theories"
done
say translated "LedgerTypes.v and LedgerFns.v are the translation of proofs/ledger/src/proved.rs"

# Comments may say these words; code may not.
forbidden='\b(Admitted|Axioms?|Parameters?|Conjectures?|Abort|bypass_check|Unset|Guard Checking|Universe Checking|native_compute)\b'
for file in "$theories"/*.v; do
  perl -0pe '1 while s/\(\*(?:(?!\(\*|\*\)).)*\*\)//gs' "$file" | grep -nE "$forbidden" && fail "$file: a word that proofs here may not use"
done

cp "$theories"/*.v "$work/theories/"
cd "$work/theories"
order=$(coqdep -Q . Sametree -sort All.v | tr ' ' '\n' | sed 's|^\./||' | grep '\.v$')
for file in *.v; do
  grep -qx "$file" <<<"$order" || fail "$file is not reached from All.v"
done
# Names that Coq makes up are replaced by others, so that a script that relies on one does not compile.
for file in $order; do
  coqc -Q . Sametree -w -abstract-large-number -mangle-names made_up_ "$file" >"${file%.v}.out" || fail "$file does not compile"
done
say compiled "$(wc -w <<<"$order") theories, $(cat *.v | wc -l) lines, every file reached from All.v, no script relies on an automatic name"

asked=$(grep -c '^Print Assumptions' All.v)
closed=$(grep -c '^Closed under the global context$' All.out || true)
[ "$asked" = "$closed" ] && ! grep -q 'Axioms:' All.out || { cat All.out; fail "a theorem assumes something"; }
paste -d ' ' <(grep '^Print Assumptions' All.v | sed 's/Print Assumptions //; s/\.$//') All.out | awk '{ n = $1; $1 = ""; printf "  %-40s%s\n", n, $0 }'
say assumptions "$closed of $asked theorems are closed under the global context"
cd - >/dev/null

if [ "${1:-}" != --fast ]; then
  coqchk -silent -o -Q "$work/theories" Sametree Sametree.All >"$work/coqchk.out" 2>&1 || { cat "$work/coqchk.out"; fail "coqchk"; }
  grep -A1 '^\* Axioms' "$work/coqchk.out" | grep -q '<none>' || { cat "$work/coqchk.out"; fail "coqchk found an axiom"; }
  say coqchk "no axioms, no unchecked fixpoints or universes"
  summary=$(cargo run -q -p rs2v --example validate -- "$work/validate")
  for file in Tricky TrickyEqs LedgerEqs; do
    coqc -Q "$work/theories" Sametree -Q "$work/validate" Check "$work/validate/$file.v" || fail "the translation disagrees with rustc: $file.v"
  done
  say validated "$(grep -c '^Goal' "$work/validate/TrickyEqs.v") runs of tricky constructs, $summary"

  mkdir -p "$work/differential"
  cp proofs/differential/* "$work/differential/"
  (cd "$work/differential" && coqc -Q ../theories Sametree Extract.v && ocamlopt -w -a spec.mli spec.ml oracle.ml -o oracle)
  cargo build -q --release -p ledger --example differential
  runs=${CARGO_TARGET_DIR:-target}/release/examples/differential
  for kind in "random 150000" exhaustive; do
    # shellcheck disable=SC2086
    summary=$("$runs" $kind | "$work/differential/oracle") || { echo "$summary"; fail "the ledger and the slot-level specification disagree"; }
    say differential "${kind%% *}: $summary"
  done
fi
echo "proofs/check.sh: all checks passed"

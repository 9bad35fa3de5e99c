#!/bin/bash
# Seed each fault of proofs/mutants.txt into a copy of the ledger, and see whether the differential test and the proofs
# notice. A fault that neither notices fails the run. Usage: proofs/mutants.sh [--both] [NAME...]
# Without --both the proofs are compiled only for faults that the quick differential test does not notice.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
both=false
[ "${1:-}" = --both ] && { both=true; shift; }
work=$root/target/mutants
theories=$root/target/proofs/theories
runs=$root/target/proofs/differential/oracle
[ -f "$theories/All.vo" ] && [ -x "$runs" ] || { echo "run proofs/check.sh first"; exit 1; }
rm -rf "$work"
mkdir -p "$work/src"
cargo build -q -p rs2v || exit 1
rs2v=$root/${CARGO_TARGET_DIR:-target}/debug/rs2v
# What depends on the translated functions; no fault of the list changes a type. Statements are compiled in this order, the
# proofs then in an order that finds a failure soon.
generated="LedgerFns Spec FnsOk EndToEnd NoPanic Main Progress Serve Names"
proved="FnsOk NoPanic Serve EndToEnd Progress Names Main"

# Prints what the proofs say: "holds", or the first theory that no longer compiles.
proofs() {
  rm -rf "$work/coq"
  mkdir "$work/coq"
  cp -p "$theories"/*.v "$theories"/*.vo "$theories"/*.vos "$work/coq/"
  "$rs2v" "$work/src" "$work/coq" >"$work/rs2v.out" 2>&1 || { echo "not translated"; return; }
  cmp -s "$work/coq/LedgerTypes.v" "$theories/LedgerTypes.v" || { echo "not translated"; return; }
  for theory in $generated; do rm -f "$work/coq/$theory".vo "$work/coq/$theory".vos; done
  for task in $(printf -- '-vos:%s ' $generated) $(printf -- '-vok:%s ' $proved); do
    (cd "$work/coq" && coqc "${task%:*}" -Q . Sametree -w -abstract-large-number -mangle-names made_up_ "${task#*:}.v" >"$work/coq.out" 2>&1) && continue
    if grep -q '^Error' "$work/coq.out"; then echo "${task#*:}"; else echo undecided; fi
    return
  done
  echo holds
}

# Prints what a differential run of the given kind says: "agrees", or how it failed. Only a difference that the oracle
# names, or a panic of the ledger, counts as noticed.
differential() {
  # shellcheck disable=SC2086
  "$work/differential" $1 2>"$work/panic.out" | "$runs" >"$work/oracle.out" && { echo agrees; return; }
  if grep -q '^line' "$work/oracle.out"; then echo "${1%% *}"; elif grep -q panicked "$work/panic.out"; then echo panic; else echo undecided; fi
}

build() {
  rustc --edition 2024 -C overflow-checks=on -C opt-level=0 --crate-type rlib --crate-name ledger "$work/src/lib.rs" -o "$work/libledger.rlib" &&
    rustc --edition 2024 -C overflow-checks=on -C opt-level=0 --extern ledger="$work/libledger.rlib" \
      proofs/ledger/examples/differential.rs -o "$work/differential"
} >"$work/rustc.out" 2>&1

# The control: without a fault, both must be content.
cp proofs/ledger/src/*.rs "$work/src/"
build || { cat "$work/rustc.out"; exit 1; }
control="$(differential "random 5000") $(proofs)"
[ "$control" = "agrees holds" ] || { echo "without a fault: $control"; exit 1; }

total=0 caught=0
printf '%-32s %-16s %s\n' fault "by test" "by proof (the first theory that fails)"
while IFS= read -r line; do
  case $line in '#'* | '') continue ;; esac
  name=$(sed 's/ *@.*//; s/ *|.*//' <<<"${line%% | *}")
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  cp proofs/ledger/src/*.rs "$work/src/"
  LINE=$line perl -0pi -e '
    BEGIN {
      ($name, $old, $new) = map { s/^ +| +$//gr } split / \| /, $ENV{LINE} =~ s/\\\|/\x01/gr, 3;
      $nth = $name =~ /@(\d+)/ ? $1 : 0;
      for ($old, $new) { s/\x01/|/g; s/\\n/\n/g }
    }
    my $count = () = /\Q$old\E/g;
    die "the text occurs $count times\n" unless $nth ? $count >= $nth : $count == 1;
    my $seen = 0;
    s/\Q$old\E/++$seen == ($nth || 1) ? $new : $old/ge;
  ' "$work/src/proved.rs" 2>"$work/perl.out" || { echo "$name: $(cat "$work/perl.out")"; exit 1; }
  build || { cat "$work/rustc.out"; exit 1; }
  by_test=$(differential "random 5000") by_proof=-
  if $both || [ "$by_test" = agrees ]; then by_proof=$(proofs); fi
  if [ "$by_test $by_proof" = "agrees holds" ]; then by_test=$(differential exhaustive); fi
  total=$((total + 1))
  if [ "$by_test $by_proof" != "agrees holds" ]; then caught=$((caught + 1)); fi
  printf '%-32s %-16s %s\n' "$name" "$by_test" "$by_proof"
  case "$by_test $by_proof" in *undecided*) exit 1 ;; esac
  [ "$by_proof" != "not translated" ] || { cat "$work/rs2v.out"; exit 1; }
done <proofs/mutants.txt
echo "$caught of $total faults are caught"
[ "$caught" = "$total" ]

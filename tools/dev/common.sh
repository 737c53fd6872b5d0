# What every verb of ./dev shares: where things are, how to talk, how to count. Sourced, never run.

VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
TENSORFLOW_PYTHON="$VENV/tensorflow/bin/python"

# Compilations are the same in every checkout of this repository, wherever it lies: let ccache see them so.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$ROOT}" CCACHE_NOHASHDIR=1

say() { printf '%s\n' "dev: $*" >&2; }

die() {
  printf '%s\n' "dev: $*" >&2
  exit 1
}

# True when a person could answer a question: no CI, and a terminal on both sides.
interactive() { [[ "${CI:-}" != true && -t 0 && -t 1 ]]; }

# One hash over the contents of the files named, for stamps that say "this was done for exactly these inputs".
hash_of() { cat -- "$@" | sha256sum | cut -d' ' -f1; }

# How many compilers at once: one per core, but no more than memory allows (a file with libtorch's headers takes 2 GB).
jobs_at_once() {
  local cores memory_gb jobs
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  jobs=$((memory_gb / 2 < cores ? memory_gb / 2 : cores))
  echo $((jobs > 0 ? jobs : 1))
}

# The tally: every verb that checks something adds lines "NAME PASSED FAILED LEFT_OUT" to one file; whoever opened the file prints the
# sum at its end. That is how .ci/run and a plain ./dev test end with the same single line.
open_tally() {
  if [[ -n "${GYRE_DEV_TALLY:-}" ]]; then
    TALLY_IS_OURS=false
  else
    GYRE_DEV_TALLY=$(mktemp)
    export GYRE_DEV_TALLY
    TALLY_IS_OURS=true
    trap 'rm -f -- "$GYRE_DEV_TALLY" "$GYRE_DEV_TALLY.said"' EXIT
  fi
}

# count NAME PASSED FAILED [LEFT_OUT]
count() { printf '%s %s %s %s\n' "$1" "$2" "$3" "${4:-0}" >>"$GYRE_DEV_TALLY"; }

# Runs a command as one check: check NAME COMMAND...
check() {
  local name=$1 started=$SECONDS
  shift
  if "$@"; then
    say "ok      $name ($((SECONDS - started)) s)"
    count "$name" 1 0
  else
    say "FAILED  $name ($((SECONDS - started)) s)"
    count "$name" 0 1
  fi
}

# Prints the sum when the tally is ours; fails when anything failed or nothing passed.
close_tally() {
  local passed failed left_out
  read -r passed failed left_out < <(
    awk '{ passed += $2; failed += $3; left_out += $4 } END { print passed + 0, failed + 0, left_out + 0 }' "$GYRE_DEV_TALLY"
  )
  if [[ "$TALLY_IS_OURS" == true ]]; then
    # Again, after all the output: the tests of every language by their names.
    if [[ -s "$GYRE_DEV_TALLY.said" ]]; then cat -- "$GYRE_DEV_TALLY.said" >&2; fi
    awk '$3 > 0 { printf "dev: %s: %d failed\n", $1, $3 }' "$GYRE_DEV_TALLY" >&2
    if ((left_out > 0)); then
      say "$left_out tests need root and were left out"
      echo "$passed passed, $failed failed, $left_out skipped"
    else
      echo "$passed passed, $failed failed"
    fi
  fi
  ((failed == 0 && passed > 0))
}

# ./dev test [PRESET]: builds, then runs every C++ test of the preset and, for release and debug, every Python test.
# ./dev test wheel, ./dev test torch VERSION: the places in test_places.sh.

# Adds the counts of a JUnit file; a file that is missing or empty counts as a failure, so that a crash or "no tests" never passes.
count_junit() { count "$1" $("$PYTHON" "$ROOT/tools/dev/junit_counts.py" "$2"); }

run_cpp_tests() {
  local preset=$1 report="$ROOT/build/$1/ctest.xml"
  rm -f -- "$report"
  (cd "$ROOT" && ctest --preset "$preset" -j "$(nproc)" --output-junit "$report") || say "ctest: some C++ tests of $preset failed"
  count_junit "ctest-$preset" "$report"
}

# Tests wait as often as they compute: one process per core, but each may start four ranks, which must fit into memory.
test_processes() {
  local cores
  cores=$(nproc)
  echo $((cores < 4 ? cores : 4))
}

run_python_tests() {
  local preset=$1 report="$ROOT/build/$1/pytest.xml"
  rm -f -- "$report"
  # This checkout's package and programs first, whatever .venv holds.
  (cd "$ROOT" && PYTHONPATH="$ROOT/python${PYTHONPATH:+:$PYTHONPATH}" PATH="$ROOT/build/$preset/bin:$VENV/bin:$PATH" \
    "$PYTHON" -m pytest -q -n "$(test_processes)" --junitxml "$report") || say "pytest: some Python tests failed"
  count_junit pytest "$report"
}

run_tests() {
  local preset=${1:-release}
  open_tally
  case "$preset" in
    wheel | torch)
      "test_in_$preset" "${@:2}"
      close_tally
      return
      ;;
  esac
  if ! build "$preset"; then
    say "FAILED  building $preset"
    count "build-$preset" 0 1
    close_tally
    return 1
  fi
  run_cpp_tests "$preset"
  case "$preset" in release | debug) run_python_tests "$preset" ;; esac
  close_tally
}

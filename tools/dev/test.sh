# ./dev test [PRESET] [NAME...] [-k WORD] [--long] [--durations]: builds, then runs the C++ tests of the preset and, for release and debug, the Python
# tests. ./dev test --changed [--far] [BASE]: those that a change can reach (tools/changed_tests.py).
# ./dev test wheel, ./dev test torch VERSION, ./dev test tensorflow VERSION: see test_places.sh.

# Of a test's name, and of its file's or folder's in Python: only such tests run. Set by choose_tests.
WORD=""
# Whether the slowest tests are listed at the end.
DURATIONS=false

# Adds the counts of a JUnit file; a file that is missing or empty counts as a failure, so that a crash or "no tests" never passes.
count_junit() {
  local said
  said=$(mktemp)
  count "$1" $("$PYTHON" "$ROOT/tools/dev/junit_counts.py" "$2" 2>"$said")
  cat -- "$said" >&2
  cat -- "$said" >>"$GYRE_DEV_TALLY.said"
  rm -f -- "$said"
}

# pattern_of [ROOM...]: the regular expression of the C++ tests of the rooms, or of all, that have WORD in either case.
pattern_of() {
  local rooms="" word
  (($# == 0)) || rooms="^($(IFS='|'; echo "$*"))\\."
  word=$(sed 's/[A-Za-z]/[\u&\l&]/g' <<<"$WORD")
  rooms+=${word:+.*$word}
  echo "${rooms:-.}"  # CTest finds nothing by an empty pattern.
}

# run_cpp_tests PRESET [ROOM...]: all of them, or those of the rooms.
run_cpp_tests() {
  local preset=$1 report="$ROOT/build/$1/ctest.xml" chosen
  chosen=$(pattern_of "${@:2}")
  rm -f -- "$report"
  if [[ -n "$WORD" ]] && (cd "$ROOT" && ctest --preset "$preset" -N -R "$chosen") | grep -q '^Total Tests: 0$'; then
    say "no C++ test has '$WORD' in its name"
    return
  fi
  (cd "$ROOT" && ctest --preset "$preset" -j "$(nproc)" -R "$chosen" --output-junit "$report") ||
    say "ctest: some C++ tests of $preset failed"
  count_junit "ctest-$preset" "$report"
}

# processes_for [PATH...]: pytest's options. Tests wait as often as they compute, so one process per core, but each may start four
# ranks, which must fit into memory. Fewer files need fewer; all tests have one more process, for those that mostly wait.
processes_for() {
  local most path files=0
  most=$(nproc)
  ((most < 4)) || most=4
  for path in "$@"; do
    case "$path" in
      tests) echo "-n $((most + 1)) --waiting-process" && return ;;
      *.py) files=$((files + 1)) ;;
      *) files=$((files + most)) ;;
    esac
  done
  echo "-n $((files < most ? files : most))"
}

# run_python_tests PRESET [PATH...]: all of them, or those of the files and folders.
run_python_tests() {
  local preset=$1 path ours=() with_tensorflow=()
  shift
  (($# > 0)) || set -- tests python tests/tensorflow
  for path in "$@"; do
    if [[ "$path" == tests/tensorflow* ]]; then with_tensorflow+=("$path"); else ours+=("$path"); fi
  done
  ((${#ours[@]} == 0)) || run_pytest "$preset" pytest "$PYTHON" "${ours[@]}"
  ((${#with_tensorflow[@]} == 0)) || run_pytest "$preset" pytest-tensorflow "$TENSORFLOW_PYTHON" "${with_tensorflow[@]}"
}

# run_pytest PRESET NAME PYTHON PATH...: NAME is that of its report and of its count.
run_pytest() {
  local preset=$1 name=$2 python=$3 report="$ROOT/build/$1/$2.xml" status
  shift 3
  rm -f -- "$report"
  # This checkout's package and programs first, whatever the Python's own folder holds.
  (cd "$ROOT" && PYTHONPATH="$ROOT/python${PYTHONPATH:+:$PYTHONPATH}" PATH="$ROOT/build/$preset/bin:$VENV/bin:$PATH" \
    "$python" -m pytest -q $(processes_for "$@") --junitxml "$report" -k "$WORD" "$@")
  status=$?
  if [[ -n "$WORD" ]] && ((status == 5)); then
    say "$name: no Python test has '$WORD' in its name"
    return
  fi
  ((status == 0)) || say "$name: some Python tests failed"
  count_junit "$name" "$report"
}

# A NAME of ./dev test: a room (a folder of gyre/, workloads/ or tests/ with C++ tests; its target is gyre_NAME_test), a folder of
# tests/ or python/gyre, or a test file.
# `train` stands for train_torch as well.
cpp_rooms() { sed -n 's/^ *gyre_test(\([a-z0-9_]*\).*/\1/p' $(git -C "$ROOT" ls-files '*CMakeLists.txt' | sed "s|^|$ROOT/|"); }

cpp_rooms_of() { cpp_rooms | grep -Ex -- "$1(_.*)?"; }

python_tests_of() {
  local path
  for path in "$1" "tests/$1" "python/gyre/$1"; do
    if [[ ("$path" == tests/* || "$path" == python/*) && -n "$(find "$ROOT/$path" -name '*_test.py' -print -quit 2>/dev/null)" ]]; then
      echo "$path"
    fi
  done
}

# Sets PRESET, ROOMS (C++ tests), TARGETS (of the build) and PATHS (Python tests) from the arguments; a word that names nothing ends the run.
choose_tests() {
  local word room rooms paths
  PRESET=release ROOMS=() TARGETS=() PATHS=() WORD="" DURATIONS=false
  while (($# > 0)); do
    word=$1
    shift
    case "$word" in
      -k)
        WORD=${1:-}
        [[ "$WORD" =~ ^[a-zA-Z0-9_]+$ ]] || die "-k takes a word of tests' names: letters, digits and _"
        shift
        continue
        ;;
      release | debug | asan | tsan | ubsan)
        PRESET=$word
        continue
        ;;
      --durations)
        DURATIONS=true
        continue
        ;;
      --long)
        export GYRE_TEST_LONG=1
        continue
        ;;
    esac
    [[ "$word" =~ ^[a-zA-Z0-9_./]+$ ]] || die "'$word' is not the name of tests"
    rooms=$(cpp_rooms_of "$word") paths=$(python_tests_of "${word%/}")
    for room in $rooms; do
      ROOMS+=("$room")
      TARGETS+=("gyre_${room}_test")
    done
    if [[ -z "$rooms$paths" ]]; then
      die "no tests are called '$word'; there are: $(cpp_rooms | tr '\n' ' ')$(cd "$ROOT" && ls -d tests/*/ | tr '\n' ' ')and single test files"
    fi
    [[ -z "$paths" ]] || mapfile -t -O "${#PATHS[@]}" PATHS <<<"$paths"
  done
}

# choose_changed [--far] [BASE]: sets what choose_tests sets, to what a change can reach. Nothing reached ends the run, and well.
choose_changed() {
  local lines word line
  PRESET=release ROOMS=() TARGETS=() PATHS=()
  setup test
  [[ ! -f "$ROOT/build/release/build.ninja" ]] || cmake --build "$ROOT/build/release" --target build.ninja >&2 || die "configuring failed"
  lines=$("$PYTHON" "$ROOT/tools/changed_tests.py" "$@") || exit 1
  [[ "$lines" != everything ]] || return 0
  while read -r word line; do
    case "$word" in
      rooms) read -ra ROOMS <<<"$line" ;;
      targets) read -ra TARGETS <<<"$line" ;;
      paths) read -ra PATHS <<<"$line" ;;
    esac
  done <<<"$lines"
  if ((${#ROOMS[@]} + ${#PATHS[@]} == 0)); then
    say "the change reaches no test"
    exit 0
  fi
}

run_tests() {
  open_tally
  case "${1:-}" in
    wheel | torch | tensorflow)
      "test_in_$1" "${@:2}"
      close_tally
      return
      ;;
  esac
  CHANGED=false
  if [[ "${1:-}" == --changed ]]; then
    CHANGED=true
    choose_changed "${@:2}"
  else
    choose_tests "$@"
    case "$PRESET" in
      release | debug) setup test ;;
      *) PATHS=() ;;
    esac
    # Python tests run programs and the extension module: any of them needs the whole build.
    ((${#PATHS[@]} == 0)) || TARGETS=()
  fi
  ((${#TARGETS[@]} > 0)) || TARGETS=(all)
  if ! build "$PRESET" "${TARGETS[@]}"; then
    say "FAILED  building $PRESET"
    count "build-$PRESET" 0 1
    close_tally
    return 1
  fi
  # Only this run's reports.
  rm -f -- "$ROOT/build/$PRESET"/{ctest,pytest,pytest-tensorflow}.xml
  run_chosen_tests
  if $DURATIONS; then
    "$PYTHON" "$ROOT/tools/dev/durations.py" "$ROOT/build/$PRESET"/{ctest,pytest,pytest-tensorflow}.xml >&2
  fi
  close_tally
}

# run_side_by_side: few tests of both languages, which wait at different times. What the Python tests say comes last.
run_side_by_side() {
  local output
  output=$(mktemp)
  run_python_tests "$PRESET" "${PATHS[@]}" >"$output" 2>&1 &
  run_cpp_tests "$PRESET" "${ROOMS[@]}"
  wait $!
  cat -- "$output"
  rm -f -- "$output"
}

run_chosen_tests() {
  local all=false
  ((${#ROOMS[@]} + ${#PATHS[@]} > 0)) || all=true
  # A seed of its own each day, the same all day long: a failure can be repeated, and no two days try the same cases.
  export GYRE_TEST_SEED="${GYRE_TEST_SEED:-$(date -u +%Y%m%d)}"
  say "random tests begin at GYRE_TEST_SEED=$GYRE_TEST_SEED"
  if $CHANGED && ((${#ROOMS[@]} > 0 && ${#PATHS[@]} > 0)); then
    run_side_by_side
    return
  fi
  if $all || ((${#ROOMS[@]} > 0)); then run_cpp_tests "$PRESET" "${ROOMS[@]}"; fi
  case "$PRESET" in
    release | debug) if $all || ((${#PATHS[@]} > 0)); then run_python_tests "$PRESET" "${PATHS[@]}"; fi ;;
  esac
}

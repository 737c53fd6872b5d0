# ./dev nightly PART: what takes too long for CI. A part is made of pieces. What a piece has counted is kept under build/nightly for this state of
# the checkout, so a part that was stopped, or whose time was up, goes on where it was. docs/testing.md names the last complete run of each part.
#
# asan, tsan, ubsan  the C++ tests under sanitizers; a piece is a room. ubsan includes what is built on libtorch.
# fuzz               every fuzz target: 10^6 executions or 4 minutes, from the seeds in fuzz/corpus and what earlier nights have found
# peers              the wheel in a clean Debian, other versions of torch and TensorFlow, every benchmark beside its peers, with tiny sizes, and
#                    Prometheus's checker on what we write for it
# long               random and kill tests, repeated as often as ./dev test --long does

kNightlyParts="asan tsan ubsan fuzz peers long"
# How long pieces are begun. A piece may end later.
NIGHTLY_SECONDS=${GYRE_DEV_NIGHTLY_SECONDS:-5000}
kFuzzExecutions=1000000
kFuzzSeconds=240
kOtherTorch=2.14.1
kOtherTensorFlow=2.16.2

# The commit, and what differs from it.
state_of_checkout() {
  local commit changes
  commit=$(git -C "$ROOT" rev-parse --short=8 HEAD)
  changes=$(git -C "$ROOT" diff HEAD -- . ':!docs/testing.md' | sha256sum | cut -c1-8)
  if git -C "$ROOT" diff --quiet HEAD -- . ':!docs/testing.md'; then echo "$commit"; else echo "$commit+$changes"; fi
}

# prepare_part PART: what all its pieces need.
prepare_part() {
  case "$1" in
    asan | tsan | ubsan) build "$1" ;;
    # shellcheck disable=SC2046  # A word for each target.
    fuzz) build fuzz $(fuzz_names | sed 's/$/_fuzz/') ;;
    *)
      setup test && build release all
      # An image of a Debian, and the tree in which the wheel is tried.
      [[ -n "${GYRE_DEV_SKIP_PACKAGES:-}" ]] || install_packages "$ROOT/tools/dev/apt-wheel.txt"
      ;;
  esac
}

# pieces_of PART: a line for each.
pieces_of() {
  case "$1" in
    asan | tsan | ubsan)
      (cd "$ROOT" && ctest --preset "$1" -N) | sed -n 's/^ *Test *#[0-9]*: *\([a-z0-9_]*\)\..*/\1/p' | sort -u
      ;;
    fuzz) fuzz_names ;;
    peers) printf '%s\n' wheel "torch-$kOtherTorch" "tensorflow-$kOtherTensorFlow" benches promtool ;;
    long)
      git -C "$ROOT" grep -lE "GYRE_TEST_LONG|is_long_test" -- 'gyre/*_test.cc' | sed 's|^gyre/||; s|/[^/]*$||; s|/internal.*||; s|/|_|g' | sort -u
      git -C "$ROOT" grep -lE 'GYRE_TEST_LONG|effort import' -- 'tests/*_test.py' ':!tests/tools'
      ;;
  esac
}

fuzz_names() { sed -n 's/^ *gyre_fuzzer(\([a-z0-9_]*\).*/\1/p' "$ROOT/fuzz/CMakeLists.txt"; }

# pieces_at_once PART: CTest and pytest keep all cores busy by themselves.
pieces_at_once() { if [[ "$1" == fuzz ]]; then nproc; else echo 1; fi; }

# run_piece PART PIECE: counts what has passed and failed.
run_piece() {
  case "$1" in
    asan | tsan | ubsan) run_cpp_tests "$1" "$2" ;;
    fuzz) fuzz_piece "$2" ;;
    peers) peers_piece "$2" ;;
    long)
      export GYRE_TEST_LONG=1
      if [[ "$2" == tests/* ]]; then run_python_tests release "$2"; else run_cpp_tests release "$2"; fi
      ;;
  esac
}

peers_piece() {
  case "$1" in
    wheel) test_in_wheel ;;
    torch-*) test_in_torch "${1#torch-}" ;;
    tensorflow-*) test_in_tensorflow "${1#tensorflow-}" ;;
    benches) check benches "$ROOT/dev" bench all --quick --json "$ROOT/build/nightly/benches" ;;
    promtool) check promtool check_with_promtool ;;
  esac
}

# Prometheus's own checker reads what a job of two ranks has logged. The package is only unpacked: it is large, and would start a server.
check_with_promtool() {
  local folder="$ROOT/build/nightly/promtool" gyre="$ROOT/build/release/bin/gyre"
  mkdir -p -- "$folder"
  if [[ ! -x "$folder/usr/bin/promtool" ]]; then
    (cd "$folder" && rm -f prometheus_*.deb && apt-get download prometheus && dpkg -x prometheus_*.deb .) || return 1
  fi
  rm -f -- "$folder/run.metrics"
  PYTHONPATH="$ROOT/python" "$gyre" run -n 2 --metrics "$folder/run.metrics" -- "$PYTHON" -c '
import gyre
for step in range(10):
    gyre.log({"train/loss": 1 / (1 + step), "lr": 0.1}, step=step, every_rank=True)' || return 1
  "$gyre" metrics export "$folder/run.metrics" --format prometheus >"$folder/metrics.prom" || return 1
  [[ -s "$folder/metrics.prom" ]] && "$folder/usr/bin/promtool" check metrics <"$folder/metrics.prom"
}

# fuzz_piece TARGET: what it finds is kept in build/nightly/found, its log in build/nightly/logs.
fuzz_piece() {
  local name=$1 program="$ROOT/build/fuzz/fuzz/$1_fuzz" folder="$ROOT/build/nightly" corpora log executions
  mkdir -p -- "$folder/found" "$folder/logs" "$folder/corpus/$name"
  log="$folder/logs/fuzz-$name" corpora=("$folder/corpus/$name")
  if [[ -d "$ROOT/fuzz/corpus/$name" ]]; then corpora+=("$ROOT/fuzz/corpus/$name"); fi
  if ! "$program" -runs=$kFuzzExecutions -max_total_time=$kFuzzSeconds -print_final_stats=1 -artifact_prefix="$folder/found/$name-" \
    "${corpora[@]}" >"$log" 2>&1; then
    say "fuzz: $name failed; the input is in build/nightly/found, and build/nightly/logs/fuzz-$name ends with:"
    tail -n 30 -- "$log" >&2
    count "$name" 0 1
    return
  fi
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  say "fuzz: $name, $executions executions"
  keep_corpus_small "$program" "$folder/corpus/$name"
  count "$name" 1 0
}

# Of the inputs that reach the same code one is enough.
keep_corpus_small() {
  local program=$1 corpus=$2
  rm -rf -- "$corpus.small"
  mkdir -- "$corpus.small"
  if "$program" -merge=1 "$corpus.small" "$corpus" >/dev/null 2>&1; then
    rm -rf -- "$corpus"
    mv -- "$corpus.small" "$corpus"
  fi
}

# do_piece PART PIECE: runs it, and keeps what it has counted.
do_piece() {
  local record status
  record=$(record_of "$2")
  rm -f -- "$record.running" "$record.running.said"
  # shellcheck disable=SC2030  # Of this piece alone.
  (
    GYRE_DEV_TALLY="$record.running"
    run_piece "$1" "$2"
  )
  status=$?
  if [[ ! -s "$record.running" ]] || ((status != 0 && $(failures_in "$record.running") == 0)); then
    GYRE_DEV_TALLY="$record.running" count "$1-$2" 0 1
  fi
  if [[ -f "$record.running.said" ]]; then mv -- "$record.running.said" "$record.said"; fi
  mv -- "$record.running" "$record"
}

record_of() { echo "$NIGHTLY/$(tr / - <<<"$1")"; }

failures_in() { awk '{ failed += $3 } END { print failed + 0 }' "$1"; }

nightly() {
  local part=${1:-} pieces=() left=() piece at_once
  if [[ ! "$part" =~ ^[a-z]+$ || " $kNightlyParts " != *" $part "* ]]; then
    say "which part? There are: $kNightlyParts"
    exit 2
  fi
  open_tally
  if ! prepare_part "$part"; then
    count "building-$part" 0 1
    close_tally
    return 1
  fi
  NIGHTLY="$ROOT/build/nightly/$part/$(state_of_checkout)"
  mkdir -p -- "$NIGHTLY"
  mapfile -t pieces < <(pieces_of "$part")
  at_once=$(pieces_at_once "$part")
  for piece in "${pieces[@]}"; do
    if [[ -f "$(record_of "$piece")" ]]; then
      say "$part: $piece was done before"
    elif ((SECONDS >= NIGHTLY_SECONDS)); then
      left+=("$piece")
    else
      while (($(jobs -rp | wc -l) >= at_once)); do wait -n; done
      say "$part: $piece"
      do_piece "$part" "$piece" &
    fi
  done
  wait
  sum_up_part "$part" "${#left[@]}" "${pieces[@]}"
  close_tally
}

# sum_up_part PART LEFT PIECE...: adds up what the pieces have counted, and records a complete run.
sum_up_part() {
  local part=$1 left=$2 piece record passed failed found
  shift 2
  for piece in "$@"; do
    record=$(record_of "$piece")
    [[ -f "$record" ]] || continue
    cat -- "$record" >>"$GYRE_DEV_TALLY"
    if [[ -f "$record.said" ]]; then cat -- "$record.said" >>"$GYRE_DEV_TALLY.said"; fi
  done
  if ((left > 0)); then
    say "$part: the time is up, and $left of $# pieces are left; \`./dev nightly $part\` goes on with them"
    count "$part-not-begun" 0 "$left"
    return
  fi
  read -r passed failed < <(awk '{ passed += $2; failed += $3 } END { print passed + 0, failed + 0 }' "$GYRE_DEV_TALLY")
  found=$(awk '$3 > 0 { print $1 }' "$GYRE_DEV_TALLY" | tr '\n' ' ')
  record_run "$part" "$passed passed, $failed failed" "${found:-nothing}"
}

# record_run PART COUNTS FOUND: the part's row in docs/testing.md.
record_run() {
  local page="$ROOT/docs/testing.md" row rows
  row="| \`$1\` | $(date -u +%F) | \`$(state_of_checkout)\` | $2 | ${3% } |"
  rows=$(awk -v part="| \`$1\` |" -v row="$row" 'index($0, part) == 1 { print row; next } { print }' "$page")
  printf '%s\n' "$rows" >"$page"
}

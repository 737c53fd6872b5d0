# ./dev bench NAME [ARGUMENT...]: runs a verb of `gyre bench`, or bench/NAME.py, against the release build.

kBenchVerbs="allreduce messages moves exchange step ps jobs loader stage store"

list_benches() {
  local file name
  for name in $kBenchVerbs; do echo "$name"; done
  for file in "$ROOT"/bench/*.py; do
    [[ -f "$file" && "$(basename "$file")" != _* ]] && basename "$file" .py
  done
}

bench() {
  local name=${1:-}
  if [[ -z "$name" || ! "$name" =~ ^[a-z0-9_]+$ ]] || ! grep -qx -- "$name" <<<"$(list_benches)"; then
    say "which benchmark? There are:"
    list_benches >&2
    exit 2
  fi
  shift
  setup test
  build release all || die "the build failed; see above"
  cd "$ROOT" || exit 1
  export PYTHONPATH="$ROOT/python:$ROOT/tools${PYTHONPATH:+:$PYTHONPATH}" PATH="$ROOT/build/release/bin:$VENV/bin:$PATH"
  if [[ -f "bench/$name.py" ]]; then exec "$PYTHON" "bench/$name.py" "$@"; fi
  GYRE_PYTHON="$PYTHON" exec "$ROOT/build/release/bin/gyre" bench "$name" "$@"
}

# ./dev bench NAME [ARGUMENT...]: runs bench/NAME.py against the release build.

list_benches() {
  local file
  for file in "$ROOT"/bench/*.py; do
    [[ -f "$file" && "$(basename "$file")" != _* ]] && basename "$file" .py
  done
}

bench() {
  local name=${1:-}
  if [[ -z "$name" || ! "$name" =~ ^[a-z0-9_]+$ || ! -f "$ROOT/bench/$name.py" ]]; then
    say "which benchmark? There are:"
    list_benches >&2
    exit 2
  fi
  shift
  build release || die "the build failed; see above"
  cd "$ROOT" || exit 1
  PYTHONPATH="$ROOT/python:$ROOT/tools${PYTHONPATH:+:$PYTHONPATH}" PATH="$ROOT/build/release/bin:$VENV/bin:$PATH" exec "$PYTHON" "bench/$name.py" "$@"
}

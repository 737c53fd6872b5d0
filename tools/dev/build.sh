# ./dev build [PRESET [TARGET...]]: configures when needed, builds, and links the results into .venv. Of the release, what is installed.

kPresets="release debug asan tsan ubsan fuzz"

setup_for_preset() {
  case "$1" in
    release | debug) setup build ;;
    asan | tsan | ubsan | fuzz | lint) setup check ;;
    *) die "no preset '$1'; there are: $kPresets" ;;
  esac
}

# Ninja notices changed CMake files by itself, but not a changed preset or another torch; the stamp does.
configure() {
  local preset=$1 folder="$ROOT/build/$1" inputs
  inputs=$(hash_of "$ROOT/CMakePresets.json" "$ROOT/requirements.txt")
  if [[ -f "$folder/build.ninja" && "$(cat "$folder/.configured" 2>/dev/null)" == "$inputs" ]]; then return; fi
  say "configuring build/$preset"
  (cd "$ROOT" && cmake --preset "$preset" >&2) || die "cmake --preset $preset failed; see above"
  echo "$inputs" >"$folder/.configured"
}

build() {
  local preset=${1:-release} targets=()
  setup_for_preset "$preset"
  configure "$preset"
  if (($# > 1)); then
    targets=(--target "${@:2}")
  elif [[ "$preset" == release ]]; then
    targets=(--target gyre_product)
  fi
  cmake --build "$ROOT/build/$preset" -j "$(jobs_at_once)" "${targets[@]}" >&2 || return 1
  if [[ "$preset" == release ]]; then link_into_venv; fi
}

# After this, the programs in .venv/bin are the ones just built, `import gyre` is python/gyre of this checkout, and
# torch knows the backend as where the wheel is installed. A .venv that is itself a link belongs to another checkout and is left alone.
link_into_venv() {
  [[ -L "$VENV" ]] && return
  local program
  for program in gyre gyre-cifar10 gyre-cosmoflow gyre-resnet50; do
    local target="$ROOT/build/release/bin/$program"
    if [[ -x "$target" && "$(readlink "$VENV/bin/$program")" != "$target" ]]; then ln -sfn "$target" "$VENV/bin/$program"; fi
  done
  "$VENV/bin/python" "$ROOT/tools/dev/register_checkout.py" "$ROOT" "$(echo "$VENV"/lib/python3.*/site-packages)"
}

# ./dev lint [--all]: every rule of the house that a machine can check. ./dev fmt: mends what a machine can mend.

cpp_files() { git -C "$ROOT" ls-files --cached --others --exclude-standard -- '*.cc' '*.h' | (cd "$ROOT" && xargs -r ls -d 2>/dev/null); }

check_cpp_format() { (cd "$ROOT" && cpp_files | xargs -r clang-format-19 --dry-run --Werror); }

check_types() {
  local folders=(tools)
  [[ -d python/gyre ]] && folders+=(python/gyre)
  "$PYTHON" -m mypy "${folders[@]}"
}

lint() {
  open_tally
  setup check
  cd "$ROOT" || exit 1
  check clang-format check_cpp_format
  check layers "$PYTHON" tools/check_layers.py
  check sizes "$PYTHON" tools/check_sizes.py
  check range-loops "$PYTHON" tools/check_range_loops.py
  check ruff "$PYTHON" -m ruff check --quiet .
  check ruff-format "$PYTHON" -m ruff format --check --quiet .
  check mypy check_types
  configure lint
  check thread-safety "$PYTHON" tools/lint_cpp.py compile -j "$(jobs_at_once)"
  check clang-tidy "$PYTHON" tools/lint_cpp.py tidy -j "$(jobs_at_once)" "$@"
  close_tally
}

fmt() {
  setup check
  cd "$ROOT" || exit 1
  cpp_files | xargs -r clang-format-19 -i
  "$PYTHON" -m ruff check --quiet --fix . || say "ruff: some findings need a person"
  "$PYTHON" -m ruff format --quiet .
}

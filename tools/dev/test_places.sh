# Tests in places that take long to make, and so are no part of CI: a clean Debian, another torch or TensorFlow. Each place is made once
# and kept under build/.

# Counts the tests of one run: pytest_in NAME COMMAND...
pytest_in() {
  local name=$1 report="$ROOT/build/$1.xml"
  shift
  rm -f -- "$report"
  "$@" --junitxml "$report" || say "pytest: some tests of $name failed"
  count_junit "$name" "$report"
}

# ./dev test wheel: the wheel, installed by plain pip in a Debian 12 that has only python3, pip and torch. Root. The first
# time it needs a Debian mirror and takes minutes.
test_in_wheel() {
  local base torch
  setup test
  [[ -n "${GYRE_DEV_SKIP_PACKAGES:-}" ]] || install_packages "$ROOT/tools/dev/apt-wheel.txt"
  torch=$(sed -n 's/^torch==//p' "$ROOT/requirements.txt")
  base=$("$PYTHON" "$ROOT/tools/clean_tree.py" make "$ROOT/build/clean-tree" "$torch") || die "no clean tree; see above"
  cd "$ROOT" && pytest_in wheel "$PYTHON" -m pytest -q tests/e2e/wheel_test.py --clean-tree "$base"
}

# ./dev test torch VERSION: the Python face with another version of torch, in a venv of its own that pip fills from where it
# takes everything. A build for accelerators works (its libraries are gigabytes); the tests use the CPU.
test_in_torch() {
  local version=${1:-} place
  [[ -n "$version" ]] || die "which version? ./dev test torch 2.14.1"
  setup test
  build release all || die "the build failed; see above"
  place="$ROOT/build/torch/$version"
  if [[ "$(cat "$place/.gyre-made-for" 2>/dev/null)" != "$version" ]]; then
    say "installing torch $version in build/torch/$version"
    "$PYTHON" -m venv "$place" && PIP_DISABLE_PIP_VERSION_CHECK=1 "$place/bin/python" -m pip install --quiet "torch==$version" \
      $(grep -E '^(numpy|pytest|pytest-xdist)==' "$ROOT/requirements.txt" "$ROOT/tests/requirements.txt" -h) >&2 ||
      die "pip could not install it; see above"
    echo "$version" >"$place/.gyre-made-for"
  fi
  cd "$ROOT" && PYTHONPATH="$ROOT/python" PATH="$place/bin:$ROOT/build/release/bin:$PATH" \
    pytest_in "torch-$version" "$place/bin/python" -m pytest -q $(processes_for tests/python) tests/python
}

# ./dev test tensorflow VERSION [KERAS]: gyre.keras and gyre.tensorflow with another TensorFlow, and another Keras than the
# newest that pip finds for it, in a venv of its own as above.
test_in_tensorflow() {
  local version=${1:-} keras=${2:-} place packages
  [[ -n "$version" ]] || die "which version? ./dev test tensorflow 2.16.2"
  setup test
  build release all || die "the build failed; see above"
  place="$ROOT/build/tensorflow/$version${keras:+-keras-$keras}"
  [[ "$(uname -m)" == x86_64 ]] && packages="tensorflow-cpu==$version" || packages="tensorflow==$version"
  packages+=" keras${keras:+==$keras} $(grep -E '^(cloudpickle|pytest|pytest-xdist)==' "$ROOT/tests/tensorflow.txt" | tr '\n' ' ')"
  if [[ "$(cat "$place/.gyre-made-for" 2>/dev/null)" != "$packages" ]]; then
    say "installing TensorFlow $version in ${place#"$ROOT/"}"
    rm -rf -- "$place"
    # shellcheck disable=SC2086  # One word per package.
    "$PYTHON" -m venv "$place" && PIP_DISABLE_PIP_VERSION_CHECK=1 "$place/bin/python" -m pip install --quiet $packages >&2 ||
      die "pip could not install it; see above"
    echo "$packages" >"$place/.gyre-made-for"
  fi
  cd "$ROOT" && PYTHONPATH="$ROOT/python" PATH="$place/bin:$ROOT/build/release/bin:$VENV/bin:$PATH" \
    pytest_in "tensorflow-$version" "$place/bin/python" -m pytest -q $(processes_for tests/tensorflow) tests/tensorflow
}

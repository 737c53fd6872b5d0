# ./dev setup: system packages, then .venv. Does nothing, and needs no network, when all is in place.

# The packages of a list that are not installed, one per line. Of `a | b` one is enough; the first that the distribution knows is named.
missing_packages() {
  local line choice alternatives
  while IFS= read -r line; do
    line=${line%%#*}
    [[ -n "${line// /}" ]] || continue
    IFS='|' read -ra alternatives <<<"${line// /}"
    for choice in "${alternatives[@]}"; do
      package_installed "$choice" && continue 2
    done
    for choice in "${alternatives[@]}"; do
      if apt-cache show "$choice" >/dev/null 2>&1; then
        echo "$choice"
        continue 2
      fi
    done
    echo "${alternatives[0]}"
  done < <(cat -- "$@")
}

package_installed() { [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]; }

am_root() { ((EUID == 0)); }

may_install() { am_root || { command -v sudo >/dev/null && { interactive || sudo -n true 2>/dev/null; }; }; }

# install_packages LIST...: as root, else through sudo, else says what to run.
install_packages() {
  command -v dpkg-query >/dev/null || die "this set-up knows Debian 12 and Ubuntu 24.04 (dpkg-query not found); install what" \
    "$* name with your own package manager, then set GYRE_DEV_SKIP_PACKAGES=1"
  [[ -z "$(missing_packages "$@")" ]] && return
  local as_root=()
  if ! may_install; then
    die "system packages are missing; run this as root, then try again:
  apt-get update && apt-get install -y --no-install-recommends $(missing_packages "$@" | tr '\n' ' ')"
  fi
  am_root || as_root=(sudo)
  say "installing system packages: $(missing_packages "$@" | tr '\n' ' ')"
  "${as_root[@]}" apt-get update -q >&2 || die "apt-get update failed; see above"
  # Asked again: only now does apt-cache know which of the alternatives this distribution has.
  local packages
  mapfile -t packages < <(missing_packages "$@")
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" >&2 ||
    die "apt-get install failed; see above"
}

# make_venv LIST...: makes .venv and installs the pinned packages of the lists that it does not have yet. A stamp for each list
# inside says for which content that was done.
make_venv() {
  local list stamp arguments=()
  if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    [[ -L "$VENV" ]] && die ".venv is a link to a place without a working Python: $(readlink "$VENV"); remove the link and try again"
    say "making .venv"
    rm -rf -- "$VENV"
    python3 -m venv "$VENV" || die "python3 -m venv failed; is python3-venv installed?"
  fi
  for list in "$@"; do
    [[ "$(cat "$(venv_stamp "$list")" 2>/dev/null)" == "$(hash_of "$ROOT/$list")" ]] || arguments+=(-r "$ROOT/$list")
  done
  ((${#arguments[@]} > 0)) || return 0
  say "installing into .venv:" "${arguments[@]}"
  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 "$PYTHON" -m pip install --quiet "${arguments[@]}" >&2 ||
    die "pip could not install them; see above (pip's own configuration decides where packages come from)"
  for list in "$@"; do
    stamp=$(venv_stamp "$list")
    hash_of "$ROOT/$list" >"$stamp"
  done
}

venv_stamp() { echo "$VENV/.gyre-$(tr / - <<<"$1")"; }

# Into a folder of its own, because its mpirun and libmpi are not for everybody who uses .venv. Not with --target, which
# leaves the wheel's lib/ out.
install_intel_mpi() {
  local list=tests/intel_mpi.txt stamp
  stamp=$(venv_stamp "$list")
  [[ "$(uname -m)" == x86_64 && "$(cat "$stamp" 2>/dev/null)" != "$(hash_of "$ROOT/$list")" ]] || return 0
  say "installing into .venv/intel-mpi: $list"
  rm -rf -- "$VENV/intel-mpi"
  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 "$PYTHON" -m pip install --quiet --no-deps --ignore-installed --no-warn-script-location \
    --prefix "$VENV/intel-mpi" -r "$ROOT/$list" >&2 || die "pip could not install Intel MPI; see above"
  hash_of "$ROOT/$list" >"$stamp"
}

# Into a venv of its own: it must not have torch, and its packages are not .venv's.
install_tensorflow() {
  local list=tests/tensorflow.txt stamp
  stamp=$(venv_stamp "$list")
  [[ "$(cat "$stamp" 2>/dev/null)" != "$(hash_of "$ROOT/$list")" ]] || return 0
  say "installing into .venv/tensorflow: $list"
  rm -rf -- "$VENV/tensorflow"
  "$PYTHON" -m venv "$VENV/tensorflow" || die "python3 -m venv failed; is python3-venv installed?"
  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 "$TENSORFLOW_PYTHON" -m pip install --quiet -r "$ROOT/$list" >&2 ||
    die "pip could not install TensorFlow; see above"
  hash_of "$ROOT/$list" >"$stamp"
}

# A stand-in for S3, which is not for everybody who uses .venv either.
install_moto() {
  local list=tests/moto.txt stamp
  stamp=$(venv_stamp "$list")
  [[ "$(cat "$stamp" 2>/dev/null)" != "$(hash_of "$ROOT/$list")" ]] || return 0
  say "installing into .venv/moto: $list"
  rm -rf -- "$VENV/moto"
  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 "$PYTHON" -m pip install --quiet --target "$VENV/moto" -r "$ROOT/$list" >&2 ||
    die "pip could not install moto; see above"
  hash_of "$ROOT/$list" >"$stamp"
}

# Packages of npm's for the tests, tests/NAME/package.json into .venv/NAME: azurite is Azure Blob Storage, browser drives
# Chromium. Without a lock file, which would name a registry; the versions are exact.
install_from_npm() {
  local name=$1 list=tests/$1/package.json stamp
  stamp=$(venv_stamp "$list")
  command -v npm >/dev/null && [[ "$(cat "$stamp" 2>/dev/null)" != "$(hash_of "$ROOT/$list")" ]] || return 0
  say "installing into .venv/$name: $list"
  rm -rf -- "${VENV:?}/$name"
  mkdir -p -- "$VENV/$name"
  cp -- "$ROOT/$list" "$VENV/$name/"
  npm install --prefix "$VENV/$name" --no-package-lock --no-audit --no-fund --loglevel=error >&2 ||
    die "npm could not install $list; see above (npm's own configuration decides where packages come from)"
  hash_of "$ROOT/$list" >"$stamp"
}

# setup build: what building and running need. setup test: what the tests and benchmarks need as well. setup check: what the
# linters and sanitizers need on top of building.
setup() {
  local packages=("$ROOT/tools/dev/apt-build.txt") requirements=(requirements.txt)
  if [[ "${1:-build}" == check ]]; then packages+=("$ROOT/tools/dev/apt-check.txt"); fi
  [[ -n "${GYRE_DEV_SKIP_PACKAGES:-}" ]] || install_packages "${packages[@]}"
  if [[ "${1:-build}" == test ]]; then
    [[ -n "${GYRE_DEV_SKIP_PACKAGES:-}" ]] || install_test_packages
    requirements+=(tests/requirements.txt)
  fi
  make_venv "${requirements[@]}"
  if [[ "${1:-build}" == test ]]; then
    install_intel_mpi
    install_tensorflow
    install_moto
    install_from_npm azurite
    install_from_npm browser
  fi
}

# Without the right to install them, the tests that need these packages are left out, and counted as such.
install_test_packages() {
  local list="$ROOT/tools/dev/apt-test.txt" missing
  if ! am_root && command -v dpkg-query >/dev/null; then
    missing=$(missing_packages "$list" | tr '\n' ' ')
    if [[ -n "$missing" ]] && ! may_install; then
      say "not installed, and only root can install them: $missing(tests that need them are left out)"
      return 0
    fi
  fi
  install_packages "$list"
}

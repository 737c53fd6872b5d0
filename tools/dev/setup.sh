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

# install_packages LIST...: as root, else through sudo, else says what to run.
install_packages() {
  command -v dpkg-query >/dev/null || die "this set-up knows Debian 12 and Ubuntu 24.04 (dpkg-query not found); install what" \
    "$* name with your own package manager, then set GYRE_SKIP_PACKAGES=1"
  [[ -z "$(missing_packages "$@")" ]] && return
  local as_root=()
  if ! am_root; then
    if command -v sudo >/dev/null && { interactive || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      die "system packages are missing; run this as root, then try again:
  apt-get update && apt-get install -y --no-install-recommends $(missing_packages "$@" | tr '\n' ' ')"
    fi
  fi
  say "installing system packages: $(missing_packages "$@" | tr '\n' ' ')"
  "${as_root[@]}" apt-get update -q >&2 || die "apt-get update failed; see above"
  # Asked again: only now does apt-cache know which of the alternatives this distribution has.
  local packages
  mapfile -t packages < <(missing_packages "$@")
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" >&2 ||
    die "apt-get install failed; see above"
}

# Makes .venv and installs the pinned requirements. The stamp inside says for which list that was done.
make_venv() {
  local stamp="$VENV/.gyre-requirements" wanted
  wanted=$(hash_of "$ROOT/requirements.txt" "$ROOT/tests/requirements.txt")
  if [[ -x "$PYTHON" && "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then return; fi
  if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    [[ -L "$VENV" ]] && die ".venv is a link to a place without a working Python: $(readlink "$VENV"); remove the link and try again"
    say "making .venv"
    rm -rf -- "$VENV"
    python3 -m venv "$VENV" || die "python3 -m venv failed; is python3-venv installed?"
  fi
  say "installing requirements.txt and tests/requirements.txt into .venv"
  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 "$PYTHON" -m pip install --quiet -r "$ROOT/requirements.txt" \
    -r "$ROOT/tests/requirements.txt" >&2 || die "pip could not install them; see above (pip's own configuration decides where packages come from)"
  echo "$wanted" >"$stamp"
}

# setup build: what building and running need. setup check: the linters and sanitizers as well.
setup() {
  local lists=("$ROOT/tools/dev/apt-build.txt")
  [[ "${1:-build}" == check ]] && lists+=("$ROOT/tools/dev/apt-check.txt")
  [[ -n "${GYRE_SKIP_PACKAGES:-}" ]] || install_packages "${lists[@]}"
  make_venv
}

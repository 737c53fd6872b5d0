# ./dev doctor: what this machine has, what it lacks, and the command that mends it. Changes nothing.

# report NAME VALUE [REMEDY]: an empty VALUE is a fault that REMEDY mends.
report() {
  if [[ -n "$2" ]]; then
    printf 'ok       %-14s %s\n' "$1" "$2"
  else
    printf 'missing  %-14s mend: %s\n' "$1" "$3"
    FAULTS=$((FAULTS + 1))
  fi
}

note() { printf '%-8s %-14s %s\n' "$1" "$2" "$3"; }

first_line() { "$@" 2>/dev/null | head -n 1; }

doctor_machine() {
  local shm_mb
  note ok system "$(. /etc/os-release && echo "$PRETTY_NAME"), $(uname -sr)"
  note ok cores "$(nproc)"
  note ok memory "$(awk '/^MemTotal:/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo)"
  shm_mb=$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1 | tr -d ' ')
  if ((${shm_mb:-0} >= 1024)); then
    note ok /dev/shm "$shm_mb MiB free"
  else
    note small /dev/shm "${shm_mb:-0} MiB free; DistributedDataParallel's buckets want 1024: mount -o remount,size=4g /dev/shm"
  fi
}

doctor_tools() {
  local program
  report compiler "$(first_line g++ --version)" "./dev setup"
  report cmake "$(first_line cmake --version)" "./dev setup"
  report ninja "$(first_line ninja --version)" "./dev setup"
  report python "$(first_line python3 --version)" "./dev setup"
  report clang "$(first_line clang++-19 --version)" "./dev setup"
  report clang-format "$(first_line clang-format-19 --version)" "./dev setup"
  report clang-tidy "$(clang-tidy-19 --version 2>/dev/null | grep -o 'LLVM version.*')" "./dev setup"
  report "Open MPI" "$(first_line mpirun --version)" "./dev setup"
  for program in ccache mold llvm-symbolizer-19; do
    if command -v "$program" >/dev/null; then note ok "$program" "$(command -v "$program")"; else note absent "$program" "optional"; fi
  done
}

doctor_checkout() {
  local packages module
  packages=$(missing_packages "$ROOT"/tools/dev/apt-{build,test,check}.txt | tr '\n' ' ')
  if [[ -z "$packages" ]]; then
    note ok packages "all of tools/dev/apt-*.txt"
  else
    report packages "" "apt-get install -y --no-install-recommends $packages"
  fi
  for module in torch numpy nanobind mpi4py; do
    report "$module" "$("$PYTHON" -c "import importlib.metadata as m; print(m.version('$module'))" 2>/dev/null)" "./dev setup"
  done
  report gyre "$([[ -x "$ROOT/build/release/bin/gyre" ]] && echo build/release/bin/gyre)" "./dev build"
  report gyre-cifar10 "$([[ -x "$ROOT/build/release/bin/gyre-cifar10" ]] && echo build/release/bin/gyre-cifar10)" "./dev build"
  report gyre.torch "$(PYTHONPATH="$ROOT/python" "$PYTHON" -c 'import gyre.torch as t; print(t.__file__)' 2>/dev/null)" "./dev build"
}

doctor() {
  FAULTS=0
  doctor_machine
  doctor_tools
  doctor_checkout
  if ((FAULTS > 0)); then
    echo "$FAULTS missing"
    return 1
  fi
  echo "nothing missing"
}

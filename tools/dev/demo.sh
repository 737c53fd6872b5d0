# ./dev demo: from nothing to a network trained by four ranks, and where to look at what happened.

kDemoRanks=4
kDemoFolder=out/demo

make_digits() {
  [[ -f out/digits/.complete ]] && return
  say "making the digits data set in out/digits"
  PYTHONPATH="$ROOT/python" "$PYTHON" -m gyre.datasets digits --out out/digits && touch out/digits/.complete
}

train_digits() {
  rm -rf -- "$kDemoFolder"
  mkdir -p -- "$kDemoFolder"
  build/release/bin/gyre-run run -n "$kDemoRanks" --timeline "$kDemoFolder/timeline.json" --log-dir "$kDemoFolder/logs" -- \
    build/release/bin/gyre-cifar10-demo --data-dir out/digits --checkpoint-dir "$kDemoFolder/checkpoints" \
    --tensorboard-dir "$kDemoFolder/tensorboard" --batch-size 16 --lr 0.001 --epochs 12 --target-accuracy 0.95 "$@"
}

demo() {
  # Programs of its own, which need half as much as gyre and gyre-cifar10 (docs/adr/0116).
  build release gyre_run gyre_cifar10_demo || die "the build failed; see above"
  cd "$ROOT" || exit 1
  make_digits || die "could not make the digits data set; see above"
  train_digits "$@" || exit
  cat <<EOF

timeline      $kDemoFolder/timeline.json   (open it in chrome://tracing or Perfetto)
TensorBoard   .venv/bin/tensorboard --logdir $kDemoFolder/tensorboard
checkpoints   $kDemoFolder/checkpoints
rank logs     $kDemoFolder/logs
in Python     ./dev build, then: .venv/bin/python -c 'import gyre.torch'
EOF
}

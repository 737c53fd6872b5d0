// gyre-cifar10-demo, which `./dev demo` trains with: gyre-cifar10 without the libraries that read data sets which rest
// elsewhere (docs/adr/0116-the-demo-has-programs-of-its-own.md).
#include "workloads/cifar10/options.h"
#include "workloads/cifar10/training.h"
#include "workloads/training/rank_program.h"

int main(int argc, char** argv) {
  gyre::cifar10::Options options;
  if (const auto exit_code = gyre::cifar10::parse_options(argc, argv, options)) return *exit_code;
  return gyre::training::run_as_rank(
      options, [&](gyre::train::GradientExchange& exchange) { return gyre::cifar10::run_training(options, exchange); });
}

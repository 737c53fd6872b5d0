// gyre-cifar10: the CIFAR-10 network on one rank or many. Parse, join the other ranks, train.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "gyre/train/gradient_exchange.h"
#include "workloads/cifar10/options.h"
#include "workloads/cifar10/training.h"

namespace {

constexpr int kFailed = 1;
constexpr int kTargetMissed = 3;

int run(const gyre::cifar10::Options& options) {
  gyre::cifar10::configure_libtorch_from_environment();
  gyre::train::LocalExchange exchange;
  const gyre::cifar10::Outcome outcome = gyre::cifar10::run_training(options, exchange);
  return options.target_accuracy && !outcome.target_reached ? kTargetMissed : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const gyre::cifar10::ParsedOptions parsed = gyre::cifar10::parse_options(argc, argv);
  if (!parsed.options) return parsed.exit_code;
  try {
    return run(*parsed.options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gyre-cifar10: {}\n", error.what());
    return kFailed;
  }
}

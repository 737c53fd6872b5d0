// gyre-cifar10: the CIFAR-10 network on one rank or many. Parse, join the other ranks, train.
#include <fmt/format.h>

#include <cstdio>

#include "workloads/cifar10/options.h"
#include "workloads/cifar10/training.h"
#include "workloads/training/rank_program.h"

namespace {

constexpr int kTargetMissed = 3;

/// Rank 0 answers for all: nothing is wrong with the others, which have found the same.
int exit_code_of(const gyre::training::Outcome& outcome, const gyre::cifar10::Options& options, int rank) {
  if (!options.target_accuracy || outcome.target_reached || rank != 0) return 0;
  if (options.verbose == 0) {  // Training has said nothing.
    fmt::print(stderr, "gyre-cifar10: test accuracy {:.4f} after {} epochs: the target {} was not reached\n",
               outcome.test.at(gyre::cifar10::kAccuracy), outcome.epochs, *options.target_accuracy);
  }
  return kTargetMissed;
}

}  // namespace

int main(int argc, char** argv) {
  const gyre::cifar10::ParsedOptions parsed = gyre::cifar10::parse_options(argc, argv);
  if (!parsed.options) return parsed.exit_code;
  return gyre::training::run_as_rank(
      "gyre-cifar10", parsed.options->consistency, [&](gyre::train::GradientExchange& exchange) {
        const gyre::training::Outcome outcome = gyre::cifar10::run_training(*parsed.options, exchange);
        return exit_code_of(outcome, *parsed.options, exchange.rank());
      });
}

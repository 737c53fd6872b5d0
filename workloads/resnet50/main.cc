// gyre-resnet50: ResNet-50 and its relatives on one rank or many. Parse, join the other ranks, train or measure.
#include <fmt/format.h>

#include <cstdio>

#include "workloads/resnet50/options.h"
#include "workloads/resnet50/resnet50.h"
#include "workloads/training/rank_program.h"

namespace {

constexpr int kTargetMissed = 3;

/// Rank 0 answers for all: nothing is wrong with the others, which have found the same.
int exit_code_of(const gyre::training::Outcome& outcome, const gyre::resnet50::Options& options, int rank) {
  if (!options.target_accuracy || outcome.target_reached || rank != 0) return 0;
  if (options.verbose == 0) {  // Training has said nothing.
    fmt::print(stderr, "gyre-resnet50: validation accuracy {:.4f} after {} epochs: the target {} was not reached\n",
               outcome.test.at(gyre::resnet50::kAccuracy), outcome.epochs, *options.target_accuracy);
  }
  return kTargetMissed;
}

}  // namespace

int main(int argc, char** argv) {
  const gyre::resnet50::ParsedOptions parsed = gyre::resnet50::parse_options(argc, argv);
  if (!parsed.options) return parsed.exit_code;
  const gyre::resnet50::Options& options = *parsed.options;
  return gyre::training::run_as_rank(
      "gyre-resnet50", options.consistency, [&](gyre::train::GradientExchange& exchange) {
        if (options.synthetic) {
          gyre::resnet50::run_benchmark(options, exchange);
          return 0;
        }
        return exit_code_of(gyre::resnet50::run_training(options, exchange), options, exchange.rank());
      });
}

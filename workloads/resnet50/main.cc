// gyre-resnet50: ResNet-50 and its relatives on one rank or many. Parse, join the other ranks, train or measure.
#include "workloads/resnet50/options.h"
#include "workloads/resnet50/resnet50.h"
#include "workloads/training/rank_program.h"

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
        const gyre::training::Outcome outcome = gyre::resnet50::run_training(options, exchange);
        return gyre::training::exit_code_of(outcome, "gyre-resnet50", options.verbose, exchange.rank());
      });
}

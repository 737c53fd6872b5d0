// gyre-cosmoflow: the CosmoFlow network on one rank or many. Parse, join the other ranks, train.
#include <fmt/format.h>

#include <cstdio>

#include "workloads/cosmoflow/cosmoflow.h"
#include "workloads/cosmoflow/options.h"
#include "workloads/training/rank_program.h"

namespace {

constexpr int kTargetMissed = 3;

/// Rank 0 answers for all: nothing is wrong with the others, which have found the same.
int exit_code_of(const gyre::training::Outcome& outcome, const gyre::cosmoflow::Recipe& recipe, int rank) {
  if (!recipe.target_mae || outcome.target_reached || rank != 0) return 0;
  if (recipe.verbose == 0) {  // Training has said nothing.
    fmt::print(stderr, "gyre-cosmoflow: validation MAE {:.4f} after {} epochs: the target {} was not reached\n",
               outcome.test.at(gyre::cosmoflow::kMae), outcome.epochs, *recipe.target_mae);
  }
  return kTargetMissed;
}

}  // namespace

int main(int argc, char** argv) {
  const gyre::cosmoflow::ParsedOptions parsed = gyre::cosmoflow::parse_options(argc, argv);
  if (!parsed.recipe) return parsed.exit_code;
  return gyre::training::run_as_rank(
      "gyre-cosmoflow", parsed.recipe->consistency, [&](gyre::train::GradientExchange& exchange) {
        return exit_code_of(gyre::cosmoflow::run_training(*parsed.recipe, exchange), *parsed.recipe, exchange.rank());
      });
}

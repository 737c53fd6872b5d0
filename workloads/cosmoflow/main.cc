// gyre-cosmoflow: the CosmoFlow network on one rank or many. Parse, join the other ranks, train.
#include "workloads/cosmoflow/cosmoflow.h"
#include "workloads/cosmoflow/options.h"
#include "workloads/training/rank_program.h"

int main(int argc, char** argv) {
  const gyre::cosmoflow::ParsedOptions parsed = gyre::cosmoflow::parse_options(argc, argv);
  if (!parsed.recipe) return parsed.exit_code;
  return gyre::training::run_as_rank(
      "gyre-cosmoflow", parsed.recipe->consistency, [&](gyre::train::GradientExchange& exchange) {
        const gyre::training::Outcome outcome = gyre::cosmoflow::run_training(*parsed.recipe, exchange);
        return gyre::training::exit_code_of(outcome, "gyre-cosmoflow", parsed.recipe->verbose, exchange.rank());
      });
}

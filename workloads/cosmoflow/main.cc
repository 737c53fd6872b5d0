// gyre-cosmoflow: the CosmoFlow network on one rank or many. Parse, join the other ranks, train.
#include "workloads/cosmoflow/cosmoflow.h"
#include "workloads/cosmoflow/options.h"
#include "workloads/training/data_sources.h"
#include "workloads/training/rank_program.h"

int main(int argc, char** argv) {
  gyre::cosmoflow::Recipe recipe;
  recipe.open_data = gyre::training::open_data_anywhere;
  if (const auto exit_code = gyre::cosmoflow::parse_options(argc, argv, recipe)) return *exit_code;
  return gyre::training::run_as_rank(
      recipe, [&](gyre::train::GradientExchange& exchange) { return gyre::cosmoflow::run_training(recipe, exchange); });
}

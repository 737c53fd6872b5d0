// gyre-cifar10: the CIFAR-10 network on one rank or many. Parse, join the other ranks, train.
#include "workloads/cifar10/options.h"
#include "workloads/cifar10/training.h"
#include "workloads/training/rank_program.h"

int main(int argc, char** argv) {
  const gyre::cifar10::ParsedOptions parsed = gyre::cifar10::parse_options(argc, argv);
  if (!parsed.options) return parsed.exit_code;
  return gyre::training::run_as_rank(
      "gyre-cifar10", parsed.options->consistency, [&](gyre::train::GradientExchange& exchange) {
        const gyre::training::Outcome outcome = gyre::cifar10::run_training(*parsed.options, exchange);
        return gyre::training::exit_code_of(outcome, "gyre-cifar10", parsed.options->verbose, exchange.rank());
      });
}

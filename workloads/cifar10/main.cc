// gyre-cifar10: the CIFAR-10 network on one rank or many. Parse, join the other ranks, train.
#include "workloads/cifar10/options.h"
#include "workloads/cifar10/training.h"
#include "workloads/training/data_sources.h"
#include "workloads/training/rank_program.h"

int main(int argc, char** argv) {
  gyre::cifar10::Options options;
  options.open_data = gyre::training::open_data_anywhere;
  if (const auto exit_code = gyre::cifar10::parse_options(argc, argv, options)) return *exit_code;
  return gyre::training::run_as_rank(
      options, [&](gyre::train::GradientExchange& exchange) { return gyre::cifar10::run_training(options, exchange); });
}

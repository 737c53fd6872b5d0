// gyre-resnet50: ResNet-50 and its relatives on one rank or many. Parse, join the other ranks, train or measure.
#include "workloads/resnet50/options.h"
#include "workloads/resnet50/resnet50.h"
#include "workloads/training/data_sources.h"
#include "workloads/training/rank_program.h"

int main(int argc, char** argv) {
  gyre::resnet50::Options options;
  options.open_data = gyre::training::open_data_anywhere;
  if (const auto exit_code = gyre::resnet50::parse_options(argc, argv, options)) return *exit_code;
  return gyre::training::run_as_rank(options, [&](gyre::train::GradientExchange& exchange) {
    return options.synthetic ? gyre::resnet50::run_benchmark(options, exchange)
                             : gyre::resnet50::run_training(options, exchange);
  });
}

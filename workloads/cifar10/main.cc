// gyre-cifar10: the CIFAR-10 network on one rank or many. Parse, join the other ranks, train.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "gyre/base/error.h"
#include "gyre/engine/runtime.h"
#include "gyre/train/engine_exchange.h"
#include "gyre/train/libtorch_version.h"
#include "workloads/cifar10/options.h"
#include "workloads/cifar10/training.h"

namespace {

constexpr int kFailed = 1;
constexpr int kTargetMissed = 3;

/// A job of one needs no exchange: gradients stay where autograd puts them.
std::unique_ptr<gyre::train::GradientExchange> make_exchange(gyre::engine::Runtime& runtime) {
  if (runtime.size() == 1) return std::make_unique<gyre::train::LocalExchange>();
  return std::make_unique<gyre::train::EngineExchange>(runtime);
}

/// Rank 0 answers for all: nothing is wrong with the others, which have found the same.
int exit_code_of(const gyre::cifar10::Outcome& outcome, const gyre::cifar10::Options& options, int rank) {
  if (!options.target_accuracy || outcome.target_reached || rank != 0) return 0;
  if (options.verbose == 0) {  // Training has said nothing.
    fmt::print(stderr, "gyre-cifar10: test accuracy {:.4f} after {} epochs: the target {} is not reached\n",
               outcome.test_accuracy, outcome.epochs, *options.target_accuracy);
  }
  return kTargetMissed;
}

int run(const gyre::cifar10::Options& options) {
  gyre::train::check_libtorch_version();
  gyre::cifar10::configure_libtorch_from_environment();
  const auto runtime = gyre::engine::Runtime::start_from_environment();
  try {
    const auto exchange = make_exchange(*runtime);
    const gyre::cifar10::Outcome outcome = gyre::cifar10::run_training(options, *exchange);
    return exit_code_of(outcome, options, runtime->rank());
  } catch (const std::exception& error) {
    // The other ranks learn the reason, not only that this one is gone.
    runtime->group().abort(
        gyre::Error(gyre::ErrorCode::kAborted, fmt::format("rank {} failed: {}", runtime->rank(), error.what())));
    throw;
  }
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

#pragma once

#include <functional>
#include <string_view>

#include "gyre/train/gradient_exchange.h"
#include "workloads/training/trainer.h"

namespace gyre::training {

/// What a rank does with the exchange that its job has; returns its exit code.
using Work = std::function<int(train::GradientExchange& exchange)>;

/// Runs a libtorch program as this process's part of a job, alone or as `gyre run` has started it, and returns its exit
/// code: what `work` returns, or 1 after an error, which has been printed and told to the other ranks. Edge: libtorch
/// uses as many threads as OMP_NUM_THREADS says, and only operations whose results repeat.
/// `consistency`: see params::parse_consistency().
int run_as_rank(std::string_view program, std::string_view consistency, const Work& work);

/// Of a rank whose training has ended: 3 if its target was missed, which is printed where training said nothing
/// (`verbose` 0), else 0. Rank 0 answers for all: nothing is wrong with the others, which have found the same.
int exit_code_of(const Outcome& outcome, std::string_view program, int verbose, int rank);

}  // namespace gyre::training

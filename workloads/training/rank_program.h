#pragma once

#include <functional>

#include "gyre/train/gradient_exchange.h"
#include "workloads/training/program_options.h"
#include "workloads/training/trainer.h"

namespace gyre::training {

/// What a rank does with the exchange that its job has.
using Work = std::function<Outcome(train::GradientExchange& exchange)>;

/// Runs a libtorch program as this process's part of a job, alone or as `gyre run` has started it, and returns its exit
/// code: 0; 1 after an error, which has been printed and told to the other ranks; 3 if the target was missed, which is
/// printed where training said nothing (`options.verbose` 0). Rank 0 answers for all: nothing is wrong with the others,
/// which have found the same. Edge: libtorch uses as many threads as OMP_NUM_THREADS says, and only operations whose
/// results repeat.
int run_as_rank(const ProgramOptions& options, const Work& work);

}  // namespace gyre::training

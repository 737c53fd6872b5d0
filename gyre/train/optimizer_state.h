#pragma once

#include "gyre/engine/runtime.h"

namespace torch::optim {
class Optimizer;
}

namespace gyre::train {

/// Makes every rank's optimizer what rank 0's is: the state of every parameter (momentum, moments, step counts) and the
/// options of every group (learning rates), whatever state there is on the other ranks, or none. For the optimizers of
/// torch::optim, and for others that implement save() and load().
///
/// Collective. Error(kMismatch) on every rank, and no state is changed, where an optimizer is of another class than
/// rank 0's, or has groups of other sizes; Error(kUnsupported) on every rank where one cannot be saved or loaded.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, engine::Runtime& runtime);

/// The first half of it: only compares. Collective.
void check_same_optimizers(const torch::optim::Optimizer& optimizer, engine::Runtime& runtime);

}  // namespace gyre::train

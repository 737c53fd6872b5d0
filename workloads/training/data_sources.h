#pragma once

#include "workloads/training/program_options.h"

namespace gyre::training {

/// `OpenData` for folders of this machine, for URLs of data sets that rest elsewhere, with the credentials of this
/// process's environment, and for stores of this node. A library of its own, gyre_training_sources.
void open_data_anywhere(ProgramOptions& options);

}  // namespace gyre::training

#include "workloads/training/data_sources.h"

#include "gyre/store/node/data_files.h"
#include "gyre/store/reading/data_files.h"

namespace gyre::training {

void open_data_anywhere(ProgramOptions& options) {
  const store::DataFiles files = store::node::data_files_from_environment(options.memory_budget_bytes);
  options.data_dir = files.add(options.data_dir.string());
  options.files = files.opener();
  options.read_ahead_bytes = store::read_ahead_bytes(options.files, options.memory_budget_bytes);
}

}  // namespace gyre::training

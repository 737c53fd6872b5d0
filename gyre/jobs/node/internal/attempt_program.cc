#include "gyre/jobs/node/internal/attempt_program.h"

#include <unistd.h>

#include <filesystem>

namespace gyre::jobs::node::internal {

std::string attempt_program(const std::string& gyre_program) {
  const std::string beside = std::filesystem::path(gyre_program).replace_filename("gyre-node").string();
  return ::access(beside.c_str(), X_OK) == 0 ? beside : gyre_program;
}

}  // namespace gyre::jobs::node::internal

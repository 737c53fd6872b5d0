// The program `gyre-node-contained`: `gyre-node` for containers, where it is $GYRE_PROGRAM too, so that jobs whose
// program `gyre run` starts need no Gyre in their image
// (docs/adr/0130-a-jobs-container-is-held-by-a-program-of-ours.md).

#include <string_view>

#include "apps/gyre/node_program.h"
#include "apps/gyre/parameter_server_command.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/run_program.h"

int main(int argc, char** argv) {
  gyre::app::ensure_standard_descriptors();
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const bool launches = verb == "run" || verb == gyre::app::ParameterServerCommand::kName;
  return launches ? gyre::app::run_program("gyre", {argv + 1, argv + argc}) : gyre::app::node_program(argc, argv);
}

// The program `gyre-node`, for the nodes of jobs. `gyre` itself loads the libraries of all its verbs, which takes
// longer than everything that such a process does (docs/adr/0103-attempts-start-a-small-program.md).

#include "apps/gyre/node_program.h"
#include "apps/gyre/program_start.h"

int main(int argc, char** argv) {
  gyre::app::ensure_standard_descriptors();
  return gyre::app::node_program(argc, argv);
}

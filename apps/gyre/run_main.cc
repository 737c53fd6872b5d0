// The program `gyre-run`: the launcher alone. `./dev demo` builds it in place of `gyre`, which needs twice as many
// files (docs/adr/0116-the-demo-has-programs-of-its-own.md).

#include "apps/gyre/program_start.h"
#include "apps/gyre/run_program.h"

int main(int argc, char** argv) {
  gyre::app::ensure_standard_descriptors();
  return gyre::app::run_program("gyre-run", {argv + (argc > 0 ? 1 : 0), argv + argc});
}

#pragma once

#include <string>
#include <vector>

namespace gyre::app {

/// The environment ("NAME=VALUE") with the folder in PYTHONPATH from which `import horovod` finds Gyre (see
/// python/gyre/horovod.py). Error(kNotFound) when this program does not stand where its Python package is.
std::vector<std::string> with_horovod_compat(std::vector<std::string> environment);

}  // namespace gyre::app

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyre::app {

/// Folders of Gyre's Python package that give scripts modules under other names.
/// `import horovod` finds Gyre there: python/gyre/horovod.py.
inline constexpr std::string_view kHorovodShim = "_horovod_shim";
/// Keras and TensorFlow have the names of 2018: python/gyre/keras_2018.
inline constexpr std::string_view kKeras2018Shim = "_keras_2018_shim";

/// The environment ("NAME=VALUE") with one of these folders first in PYTHONPATH. Error(kNotFound), which names
/// `option`, when this program does not stand where its Python package is.
std::vector<std::string> with_shim(std::vector<std::string> environment, std::string_view shim,
                                   std::string_view option);

}  // namespace gyre::app

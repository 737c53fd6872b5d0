#include "gyre/train/libtorch_version.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <string_view>

#include "gyre/base/error.h"

namespace gyre::train {
namespace {

/// "2.13" of "2.13.0".
std::string_view without_patch(std::string_view version) { return version.substr(0, version.rfind('.')); }

}  // namespace

void check_libtorch_version() { check_libtorch_version(at::show_config(), TORCH_VERSION); }

void check_libtorch_version(const std::string& description, const std::string& compiled_for) {
  constexpr std::string_view kLabel = "TORCH_VERSION=";
  const std::size_t label = description.find(kLabel);
  if (label == std::string::npos) return;
  const std::size_t begin = label + kLabel.size();
  const std::string found = description.substr(begin, description.find_first_of(", \n", begin) - begin);
  if (without_patch(found) == without_patch(compiled_for)) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("this program was built for torch {0}, and torch {1} is installed here: its C++ interfaces "
                          "differ. Python scripts work with it all the same; for this program: pip install torch=={0}",
                          compiled_for, found));
}

}  // namespace gyre::train

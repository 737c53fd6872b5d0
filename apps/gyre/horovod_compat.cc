#include "apps/gyre/horovod_compat.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string_view>

#include "gyre/base/error.h"

namespace gyre::app {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "gyre/_horovod_shim";
constexpr std::string_view kVariable = "PYTHONPATH=";

/// From where this program stands: in a folder beside the package (a wheel of ./dev wheel), in the `bin` of what the
/// package is installed in, or in the build tree of its sources.
std::optional<fs::path> find_folder() {
  std::error_code failure;
  const fs::path here = fs::read_symlink("/proc/self/exe", failure).parent_path();
  if (failure) return std::nullopt;
  std::vector<fs::path> roots = {here.parent_path(), here.parent_path().parent_path().parent_path() / "python"};
  for (const auto& entry : fs::directory_iterator(here.parent_path() / "lib", failure)) {
    if (!entry.path().filename().string().starts_with("python")) continue;
    roots.push_back(entry.path() / "site-packages");
    roots.push_back(entry.path() / "dist-packages");  // Debian's own Python.
  }
  for (const fs::path& root : roots) {
    if (fs::is_directory(root / kFolder, failure)) return root / kFolder;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> with_horovod_compat(std::vector<std::string> environment) {
  const auto folder = find_folder();
  if (!folder) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("--horovod-compat: the folder {} of Gyre's Python package was not found next to this "
                            "program; in the script, `import gyre.horovod; gyre.horovod.install()` does the same",
                            kFolder));
  }
  for (std::string& entry : environment) {
    if (!entry.starts_with(kVariable)) continue;
    entry = fmt::format("{}{}:{}", kVariable, folder->string(), entry.substr(kVariable.size()));
    return environment;
  }
  environment.push_back(fmt::format("{}{}", kVariable, folder->string()));
  return environment;
}

}  // namespace gyre::app

#include "apps/gyre/python_shims.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/jobs/containers/program_files.h"

namespace gyre::app {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVariable = "PYTHONPATH=";

fs::path own_folder() {
  std::error_code failure;
  return fs::read_symlink("/proc/self/exe", failure).parent_path();
}

/// A node has put this program into the container of a job, whose image may have the package, as any other.
bool is_in_container() { return own_folder() == fs::path(jobs::containers::kProgramInContainer).parent_path(); }

/// From where this program stands: in a folder beside the package (a wheel of ./dev wheel), in the `bin` of what the
/// package is installed in, or in the build tree of its sources.
std::optional<fs::path> find_folder(std::string_view shim) {
  const fs::path folder = fs::path("gyre") / shim;
  const fs::path here = own_folder();
  if (here.empty()) return std::nullopt;
  std::vector<fs::path> libraries = {here.parent_path() / "lib"};
  if (is_in_container()) libraries = {"/usr/local/lib", "/usr/lib"};
  std::vector<fs::path> roots = {here.parent_path(), here.parent_path().parent_path().parent_path() / "python"};
  std::error_code failure;
  for (const fs::path& library : libraries) {
    for (const auto& entry : fs::directory_iterator(library, failure)) {
      if (!entry.path().filename().string().starts_with("python")) continue;
      roots.push_back(entry.path() / "site-packages");
      roots.push_back(entry.path() / "dist-packages");  // Debian's own Python.
    }
  }
  for (const fs::path& root : roots) {
    if (fs::is_directory(root / folder, failure)) return root / folder;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> with_shim(std::vector<std::string> environment, std::string_view shim,
                                   std::string_view option) {
  const auto folder = find_folder(shim);
  if (!folder && is_in_container()) return environment;  // Then no program there uses it.
  if (!folder) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: the folder gyre/{} of Gyre's Python package was not found next to this program; add "
                            "it to PYTHONPATH yourself",
                            option, shim));
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

#include "gyre/data/internal/parquet_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::data::internal {
namespace {

constexpr const char* kLibrary = "libgyre_parquet.so";

std::string last_problem() {
  const char* const problem = ::dlerror();
  return problem == nullptr ? "" : problem;
}

Error missing_pyarrow(std::string_view problem) {
  return {ErrorCode::kUnsupported,
          fmt::format("Parquet files are read with the Python package pyarrow {}, which was not found: pip install "
                      "'gyre-train[parquet]'; where it stands elsewhere, GYRE_PYARROW names its folder ({})",
                      GYRE_PYARROW_VERSION, problem)};
}

/// Arrow's libraries from a folder of the user's choice; the plugin then finds them by their names.
void load_arrow(const std::string& folder) {
  for (const char* name : {"libarrow.so." GYRE_ARROW_SONAME, "libparquet.so." GYRE_ARROW_SONAME}) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) throw missing_pyarrow(last_problem());
  }
}

const parquet::Interface& load(const std::string& pyarrow_folder) {
  if (std::string_view(GYRE_ARROW_SONAME).empty()) {
    throw Error(ErrorCode::kUnsupported,
                "this build of Gyre reads no Parquet files, because pyarrow was missing when it was built; install "
                "pyarrow and build it again");
  }
  if (!pyarrow_folder.empty()) load_arrow(pyarrow_folder);
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string problem = last_problem();
    if (problem.starts_with("libarrow") || problem.starts_with("libparquet")) throw missing_pyarrow(problem);
    throw Error(ErrorCode::kUnsupported,
                fmt::format("cannot load {}, which reads Parquet files: {}", kLibrary, problem));
  }
  const auto entry = reinterpret_cast<parquet::Entry>(::dlsym(library, parquet::kEntry));
  const parquet::Interface* const found = entry == nullptr ? nullptr : entry();
  if (found == nullptr || found->version != parquet::kInterfaceVersion) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} is of another build of Gyre; install the whole of it again", kLibrary));
  }
  return *found;
}

}  // namespace

const parquet::Interface& parquet_library(const std::string& pyarrow_folder) {
  static Mutex mutex;
  static const parquet::Interface* loaded = nullptr;
  const MutexLock lock(mutex);
  if (loaded == nullptr) loaded = &load(pyarrow_folder);
  return *loaded;
}

}  // namespace gyre::data::internal

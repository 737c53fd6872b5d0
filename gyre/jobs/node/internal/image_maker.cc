#include "gyre/jobs/node/internal/image_maker.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/containers/dockerfile.h"
#include "gyre/jobs/node/code.h"
#include "gyre/jobs/node/container.h"
#include "gyre/jobs/node/internal/job_limits.h"
#include "gyre/jobs/node/internal/python_environment.h"

namespace gyre::jobs::node::internal {

using containers::Dockerfile;
using containers::Image;
using containers::ImageName;

namespace {

namespace fs = std::filesystem;

constexpr const char* kRequirements = "gyre-requirements.txt";
/// An archive whose one entry is its top: it gives / to the container's root. Podman 4.3 does not where a build has a
/// user namespace.
constexpr const char* kTop = ".gyre-top.tar";

/// A Dockerfile, and what it may read.
struct Recipe {
  Dockerfile file;
  std::string what;          ///< For people.
  std::string requirements;  ///< In place of the job's code.
};

Recipe recipe_of_file(const std::string& name, int code) {
  const std::optional<CodeContent> content = code < 0 ? std::nullopt : std::optional<CodeContent>(code);
  const CodeContent::Entry* entry = content ? content->file(name) : nullptr;
  if (entry == nullptr) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("its code {} {}, which containerSettings.build names",
                            content ? "has no file" : "is missing (--code DIR), and with it", name));
  }
  try {
    return {Dockerfile(as_text(entry->content)), name, {}};
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}, {}", name, error.what()));
  }
}

/// Of pip in the image, for all of its Python.
Recipe recipe_of_requirements(const spec::ContainerSettings& settings, std::string requirements) {
  const std::string line = fmt::format(
      "p=$(command -v python3 || command -v python) || {{ echo the image has no Python >&2; exit 1; }}; "
      "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore $p -m pip install --no-cache-dir "
      "--disable-pip-version-check --no-input -r /tmp/{}",
      kRequirements);
  const std::string shell = settings.read_bashrc ? "SHELL [\"/bin/bash\", \"-ic\"]\n" : "";
  return {
      Dockerfile(fmt::format("FROM {}\nUSER 0\nCOPY {} /tmp/\n{}RUN {}\n", settings.image, kRequirements, shell, line)),
      fmt::format("{} and its requirements", settings.image), std::move(requirements)};
}

Recipe recipe_of(const spec::ContainerSettings& settings, int code) {
  const spec::ImageBuild& build = *settings.build;
  if (!build.requirements) return recipe_of_file(build.dockerfile, code);
  std::string requirements = requirements_text(*build.requirements, code);
  return recipe_of_requirements(settings, requirements.empty() ? "\n" : std::move(requirements));
}

std::string hash_of_context(const Recipe& recipe, int code) {
  if (!recipe.requirements.empty()) return hex(sha256(as_bytes(recipe.requirements)));
  auto sources = recipe.file.sources();
  if (sources && sources->empty()) return "";
  if (sources) sources->insert(sources->end(), {".dockerignore", ".containerignore"});
  return digest_of_code(code, sources);
}

/// The job names one of them, with its registry and its password, and the service may have asked for its digest.
ImageName name_of(const std::string& image, const spec::ContainerSettings& settings) {
  return image == settings.image ? image_of(settings)
                                 : ImageName{.image = image, .server = {}, .user = {}, .password = {}, .digest = {}};
}

/// ustar: one folder, "./", of account 0 and mode 0755, and the end.
std::string archive_of_top() {
  constexpr std::size_t kBlock = 512;
  std::string header(kBlock, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, "./");
  put(100, "0000755");
  put(108, "0000000");
  put(116, "0000000");
  put(124, "00000000000");
  put(136, "00000000000");
  put(148, "        ");
  put(156, "5");
  put(257, std::string("ustar\0"
                       "00",
                       8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + std::string(2 * kBlock, '\0');
}

/// In what the job says that its Dockerfile does not read. A builder would follow a link out of the code.
void unignore_top(const fs::path& file) {
  const UniqueFd opened(::open(file.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  if (!opened && errno != ENOENT) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} of its code is not a file", file.filename().string()));
  }
  if (opened) write_all(opened.get(), as_bytes(fmt::format("\n!{}\n", kTop)), file.string());
}

/// It goes with this object.
class Context {
 public:
  Context(const Recipe& recipe, const ImageMaking& making) : folder_(making.scratch) {
    fs::remove_all(folder_);
    if (recipe.requirements.empty() && making.code >= 0) {
      unpack_code(making.code, making.order.code_sha256, folder_);
    } else {
      fs::create_directories(folder_);
      if (!recipe.requirements.empty()) write_file_atomically(folder_ / kRequirements, as_bytes(recipe.requirements));
    }
    try {
      const std::string top = archive_of_top();
      write_file_atomically(folder_ / kTop, as_bytes(top));
      for (const char* ignored : {".dockerignore", ".containerignore"}) unignore_top(folder_ / ignored);
    } catch (const Error&) {
      remove();
      throw;
    }
  }
  ~Context() { remove(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const fs::path& folder() const { return folder_; }

 private:
  void remove() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_;
};

}  // namespace

Image made_image(containers::ContainerRuntime& runtime, const ImageMaking& making,
                 const containers::Interruption& interruption, const std::function<void(const std::string&)>& say,
                 const std::function<void(const std::string&)>& log) {
  const spec::ContainerSettings& settings = *making.order.job.container_settings;
  const std::string& node = making.order.here().id;
  const Recipe recipe = recipe_of(settings, making.code);
  std::map<std::string, std::string> ids;
  containers::ImageBuild build;
  for (const std::string& image : recipe.file.images()) {
    const Image base = runtime.fetch(name_of(image, settings), interruption);
    ids[image] = base.id;
    build.bases.push_back(base.id);
  }
  build.dockerfile =
      recipe.file.text(ids, fmt::format("LABEL gyre.account=\"{}\"\nADD {} /\n", making.account.user, kTop));
  build.name =
      containers::kBuiltImages + hex(sha256(as_bytes(build.dockerfile + hash_of_context(recipe, making.code))));
  if (auto found = runtime.built(build.name)) {
    say(fmt::format("node {}: the image of {} is there", node, recipe.what));
    return *std::move(found);
  }
  say(fmt::format("node {}: builds the image of {}", node, recipe.what));
  const Context context(recipe, making);
  build.context = context.folder();
  build.root = making.account;
  const LimitsWanted limits = limits_of(making.order.job);
  build.cores = limits.cores;
  build.memory_bytes = limits.memory_bytes;
  try {
    return runtime.build(build, interruption, log);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(error.code(),
                fmt::format("the image of {} cannot be built: {} (execution.log has more)", recipe.what, error.what()));
  }
}

}  // namespace gyre::jobs::node::internal

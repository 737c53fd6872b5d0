#include "gyre/jobs/service/backup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/service/internal/code_store.h"

namespace gyre::jobs::service {

namespace {

namespace fs = std::filesystem;

/// One that was ended in the middle must not look like a backup.
fs::path draft_of(const fs::path& file) {
  std::error_code failure;
  if (fs::exists(fs::symlink_status(file, failure))) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} exists; name a new file for the backup", file.string()));
  }
  return fmt::format("{}.{}.part", file.string(), ::getpid());
}

void give_name(const fs::path& draft, const fs::path& file) {
  if (::rename(draft.c_str(), file.c_str()) != 0) {
    throw system_error(fmt::format("cannot write {}", file.string()), errno);
  }
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot, and keep the name all the same.
  if (opened) ::fsync(opened.get());
}

}  // namespace

catalog::BackedUpCode back_up(const std::filesystem::path& folder, const std::filesystem::path& file) {
  const std::filesystem::path draft = draft_of(file);
  catalog::Catalog::back_up(folder / "catalog.db", draft);
  const CodeStore store(folder / "code");
  try {
    const catalog::BackedUpCode code = catalog::Catalog::add_code(
        draft, [&](const catalog::CodeKey& key) { return store.path(key.workspace, key.sha256); });
    give_name(draft, file);
    return code;
  } catch (...) {
    std::error_code ignored;
    for (const char* part : {"", "-wal", "-shm", "-journal"}) fs::remove(draft.string() + part, ignored);
    throw;
  }
}

}  // namespace gyre::jobs::service

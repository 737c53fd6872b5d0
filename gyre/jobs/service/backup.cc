#include "gyre/jobs/service/backup.h"

#include "gyre/base/error.h"
#include "gyre/jobs/service/internal/code_store.h"

namespace gyre::jobs::service {

catalog::BackedUpCode back_up(const std::filesystem::path& folder, const std::filesystem::path& file) {
  catalog::Catalog::back_up(folder / "catalog.db", file);
  const CodeStore store(folder / "code");
  try {
    return catalog::Catalog::add_code(
        file, [&](const catalog::CodeKey& code) { return store.path(code.workspace, code.sha256); });
  } catch (const Error&) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    throw;
  }
}

}  // namespace gyre::jobs::service

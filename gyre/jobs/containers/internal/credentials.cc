#include "gyre/jobs/containers/internal/credentials.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/containers/internal/podman_commands.h"

namespace gyre::jobs::containers::internal {

namespace fs = std::filesystem;

Credentials::Credentials(const fs::path& folder, const ImageName& name, const std::string& registry) {
  if (name.user.empty()) return;
  std::string made = (folder / "credentials-XXXXXX").string();
  if (::mkdtemp(made.data()) == nullptr) throw system_error(fmt::format("cannot make {}", made), errno);
  folder_ = made;
  write_file_atomically(file(), as_bytes(credentials_file(registry, name.user, name.password)));
}

Credentials::~Credentials() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string Credentials::file() const { return folder_.empty() ? "" : folder_ + "/config.json"; }

}  // namespace gyre::jobs::containers::internal

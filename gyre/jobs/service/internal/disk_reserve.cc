#include "gyre/jobs/service/internal/disk_reserve.h"

#include <fmt/format.h>

#include <system_error>

#include "gyre/jobs/resources/service_error.h"

namespace gyre::jobs::service {

void check_reserve(const std::filesystem::path& folder, std::uint64_t bytes, std::uint64_t reserve,
                   const std::string& refused, const std::string& remedy) {
  if (reserve == 0) return;
  std::error_code failure;
  const std::filesystem::space_info space = std::filesystem::space(folder, failure);
  if (failure || space.available >= reserve + bytes) return;
  throw resources::ServiceError(
      resources::ServiceError::Kind::kNoRoom, "DiskReserve",
      fmt::format("the server's disk has {} bytes free, of which it keeps {} for the jobs that it has (`gyre server "
                  "--keep-free`), so it takes {} now; ask an administrator to free some space in {}{}",
                  space.available, reserve, refused, folder.string(), remedy));
}

}  // namespace gyre::jobs::service

#include "gyre/group/internal/ended_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "gyre/base/launch_contract.h"

namespace gyre::group {

std::shared_ptr<UniqueFd> inherited_ended(int descriptor) {
  // Only a file in memory has seals: a program between the launcher and us may have put another file in its place.
  if (::fcntl(descriptor, F_GET_SEALS) < 0) return nullptr;
  UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error(launch_contract::kEndedDescriptor, errno);
  return std::make_shared<UniqueFd>(std::move(copy));
}

std::optional<Error> reason_not_to_wait(const Job& job) {
  if (!job.ended) return std::nullopt;
  constexpr std::size_t kLongestLine = 512;
  std::array<char, kLongestLine> text;
  // pread: the ranks share the descriptor's position.
  const ssize_t count = ::pread(job.ended->get(), text.data(), text.size(), 0);
  if (count <= 0) return std::nullopt;
  const std::string_view notes(text.data(), static_cast<std::size_t>(count));
  const std::size_t end = notes.find('\n');
  if (!notes.starts_with("rank ") || end == std::string_view::npos) return std::nullopt;
  return Error(ErrorCode::kPeerLost,
               fmt::format("{} and can no longer join, so the {} ranks of this job can never gather; every rank's "
                           "program must call init() before it ends",
                           notes.substr(0, end), job.size));
}

}  // namespace gyre::group

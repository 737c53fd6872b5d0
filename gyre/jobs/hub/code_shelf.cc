#include "gyre/jobs/hub/code_shelf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>

#include "gyre/base/file.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::hub {

namespace {

using orders::CodeRequest;

CodeShelf::Answer refusal(const CodeRequest& request, const std::string& why) {
  const std::string text = encode(orders::CodeRefusal{request.sha256, why});
  const auto bytes = as_bytes(text);
  return {orders::message_type::kCodeRefused, Bytes(bytes.begin(), bytes.end())};
}

/// May be shorter where the file ends. Negative: errno says why.
ssize_t read_at(int file, std::span<std::byte> bytes, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return count;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

void CodeShelf::expect(const orders::WorkOrder& order) {
  if (order.code_sha256.empty()) return;
  Archive& archive = archives_[order.attempt];
  archive = {.sha256 = order.code_sha256, .file = order.code_archive, .nodes = {}};
  for (const orders::NodePlace& node : order.nodes) archive.nodes.insert(node.registered_name());
}

CodeShelf::Answer CodeShelf::answer(const std::string& node, const CodeRequest& request) const {
  const auto found = archives_.find(request.attempt);
  const bool may_have =
      found != archives_.end() && found->second.sha256 == request.sha256 && found->second.nodes.contains(node);
  if (!may_have) {
    return refusal(request, fmt::format("attempt {} of the service on node {} has no such code ({})", request.attempt,
                                        node, request.sha256));
  }
  const UniqueFd file(::open(found->second.file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) {
    return refusal(request, fmt::format("the service does not have the archive {} any more", request.sha256));
  }
  struct stat status{};
  Bytes bytes(request.bytes);
  ssize_t count = -1;
  if (file && ::fstat(file.get(), &status) == 0) count = read_at(file.get(), bytes, request.offset);
  if (count < 0) {
    return refusal(request, fmt::format("the service cannot read the archive {}: {}", request.sha256,
                                        std::generic_category().message(errno)));
  }
  return {orders::message_type::kCodeBytes,
          encode(orders::CodePiece{.sha256 = request.sha256,
                                   .offset = request.offset,
                                   .total = static_cast<std::uint64_t>(status.st_size),
                                   .bytes = std::span(bytes).first(static_cast<std::size_t>(count))})};
}

}  // namespace gyre::jobs::hub

#include "gyre/jobs/hub/code_shelf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "gyre/base/file.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::hub {

namespace {

using orders::CodeRequest;

net::SharedMessage refusal(const CodeRequest& request, const std::string& why) {
  return net::share_message(orders::message_type::kCodeRefused,
                            as_bytes(encode(orders::CodeRefusal{request.sha256, why})));
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

net::SharedMessage CodeShelf::answer(const std::string& node, const CodeRequest& request) const {
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
  const bool is_open = file && ::fstat(file.get(), &status) == 0;
  const std::string head = orders::encode_head({.sha256 = request.sha256,
                                                .offset = request.offset,
                                                .total = static_cast<std::uint64_t>(status.st_size),
                                                .bytes = {}});
  // Where it is sent from: each copy of all bytes for every node counts.
  const std::size_t before = net::kMessageHeaderBytes + head.size();
  Bytes message(before + request.bytes);
  std::ranges::copy(as_bytes(head), message.begin() + net::kMessageHeaderBytes);
  const ssize_t count = is_open ? read_at(file.get(), std::span(message).subspan(before), request.offset) : -1;
  if (count < 0) {
    return refusal(request, fmt::format("the service cannot read the archive {}: {}", request.sha256,
                                        std::generic_category().message(errno)));
  }
  message.resize(before + static_cast<std::size_t>(count));
  return std::make_shared<const Bytes>(
      net::encode_message_in_place(orders::message_type::kCodeBytes, std::move(message)));
}

}  // namespace gyre::jobs::hub

#include "gyre/net/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::net {
namespace {

/// From here on huge pages can pay; smaller segments would only waste memory.
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

Bytes read_if_there(const char* path) {
  constexpr std::uint64_t kLongestFileBytes = 65'536;
  try {
    return read_file(path, kLongestFileBytes);
  } catch (const Error&) {
    return {};  // A container may hide /proc.
  }
}

/// What MemAvailable in /proc/meminfo says: the kernel's estimate of what can be had without swapping.
std::optional<std::uint64_t> available_memory_bytes() {
  constexpr std::string_view kName = "MemAvailable:";
  const Bytes file = read_if_there("/proc/meminfo");
  const std::string_view text = as_text(file);
  const std::size_t start = text.find(kName);
  if (start == std::string_view::npos) return std::nullopt;
  const std::size_t digits = text.find_first_not_of(' ', start + kName.size());
  if (digits == std::string_view::npos) return std::nullopt;
  std::uint64_t kilobytes = 0;
  std::from_chars(text.data() + digits, text.data() + text.size(), kilobytes);
  return kilobytes * 1024;
}

/// Before anything is reserved: the kernel would grant an impossible request page by page, and end by killing
/// processes of its choice to find the rest.
void check_available(std::size_t size_bytes) {
  const auto available = available_memory_bytes();
  if (!available || size_bytes <= *available) return;
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("{} of shared memory cannot be had: this host has {} available; use smaller buffers or fewer "
                          "ranks on this host",
                          format_bytes(size_bytes), format_bytes(*available)));
}

std::span<std::byte> map_shared(int descriptor, std::size_t size_bytes) {
  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) {
    throw system_error(fmt::format("mapping {} of shared memory", format_bytes(size_bytes)), errno);
  }
  // A wish: kernels without huge pages for shared memory refuse it, and nothing is lost.
  if (size_bytes >= kHugePageBytes) ::madvise(address, size_bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(address), size_bytes};
}

}  // namespace

Segment::Segment(UniqueFd descriptor, std::span<std::byte> bytes)
    : descriptor_(std::move(descriptor)), bytes_(bytes), in_forks_(bytes, descriptor_.get(), 0) {
  close_in_forks(descriptor_.get());
}

Segment::~Segment() {
  in_forks_.end();
  ::munmap(bytes_.data(), bytes_.size());
}

std::shared_ptr<Segment> Segment::create(std::size_t size_bytes) {
  if (size_bytes == 0) throw Error(ErrorCode::kInvalidArgument, "a segment of shared memory needs at least one byte");
  check_available(size_bytes);
  UniqueFd descriptor(::memfd_create("gyre", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) throw system_error("memfd_create", errno);
  int failure = EINTR;
  while (failure == EINTR) failure = ::posix_fallocate(descriptor.get(), 0, static_cast<off_t>(size_bytes));
  if (failure != 0) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} of shared memory cannot be had ({}); free memory, raise the memory limit of the "
                            "container, or use smaller buffers",
                            format_bytes(size_bytes), system_error("posix_fallocate", failure).what()));
  }
  // Nobody may shrink it under a reader's feet (that would be a SIGBUS) or lift this promise.
  if (::fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw system_error("sealing a segment of shared memory", errno);
  }
  const std::span<std::byte> bytes = map_shared(descriptor.get(), size_bytes);
  return std::shared_ptr<Segment>(new Segment(std::move(descriptor), bytes));
}

std::shared_ptr<Segment> Segment::map(UniqueFd descriptor, std::size_t size_bytes) {
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) throw system_error("looking at a received segment", errno);
  if (size_bytes == 0 || status.st_size < 0 || static_cast<std::size_t>(status.st_size) < size_bytes) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("a received segment has {} bytes, {} are needed", status.st_size, size_bytes));
  }
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorCode::kProtocol, "a received segment may still shrink; it was not made by Gyre");
  }
  const std::span<std::byte> bytes = map_shared(descriptor.get(), size_bytes);
  return std::shared_ptr<Segment>(new Segment(std::move(descriptor), bytes));
}

}  // namespace gyre::net

#include "gyre/net/window.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::net {
namespace {

std::size_t page_bytes() {
  static const auto kSize = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return kSize;
}

Error refused(std::size_t size_bytes, const char* call, int number) {
  return {ErrorCode::kResourceExhausted,
          fmt::format("keeping a gradient of {} apart from the next step's was refused ({}); keep fewer views of old "
                      "gradients, or clones of them, or raise the limit vm.max_map_count",
                      format_bytes(size_bytes), system_error(call, number).what())};
}

}  // namespace

std::shared_ptr<Window> Window::over(std::span<std::byte> shared) {
  if (shared.empty()) return std::shared_ptr<Window>(new Window({}, {}, {}));
  const std::size_t page = page_bytes();
  const std::size_t before = reinterpret_cast<std::uintptr_t>(shared.data()) % page;
  const std::size_t size = (before + shared.size() + page - 1) / page * page;
  // An old size of 0 asks for a second mapping of the same shared pages.
  void* address = ::mremap(shared.data() - before, 0, size, MREMAP_MAYMOVE);
  if (address == MAP_FAILED) throw refused(shared.size(), "mremap", errno);
  auto* first = static_cast<std::byte*>(address);
  return std::shared_ptr<Window>(new Window({first, size}, {first + before, shared.size()},
                                            PrivateInForks::alias({first, size}, {shared.data() - before, size})));
}

Window::~Window() {
  in_forks_.end();
  if (!pages_.empty()) ::munmap(pages_.data(), pages_.size());
}

void Window::keep_values() {
  if (pages_.empty()) return;
  void* address = ::mmap(nullptr, pages_.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw refused(bytes_.size(), "mmap", errno);
  auto* copy = static_cast<std::byte*>(address);
  std::memcpy(copy + (bytes_.data() - pages_.data()), bytes_.data(), bytes_.size());
  // In one step for every other thread: it sees the shared pages until then, and these from then on.
  const bool kept = in_forks_.end_if([&] {
    constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
    return ::mremap(copy, pages_.size(), pages_.size(), kFlags, pages_.data()) != MAP_FAILED;
  });
  if (!kept) {
    const int number = errno;
    ::munmap(copy, pages_.size());
    throw refused(bytes_.size(), "mremap", number);
  }
}

}  // namespace gyre::net

#include "gyre/store/reading/object_ranges.h"

#include <fmt/format.h>

#include <utility>

#include "gyre/base/error.h"
#include "gyre/store/staging/fetch.h"

namespace gyre::store {

std::unique_ptr<ObjectReader> ObjectRanges::take_reader() {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      auto reader = std::move(idle_.back());
      idle_.pop_back();
      return reader;
    }
  }
  return source_.reader(limits_);
}

void ObjectRanges::read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) {
  auto reader = take_reader();
  const FetchShared shared{.limit = limit_,
                           .read_bytes = read_bytes_,
                           .setbacks = setbacks_,
                           .patience = patience_,
                           .notice = limits_.notice};
  fetch(shared, source_.name(), *reader, object, offset_bytes, into, limits_.stop, [this] {
    if (!limits_.stop.stop_requested()) return true;
    throw Error(ErrorCode::kAborted, fmt::format("reading from {} was stopped", source_.name()));
  });
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(reader));
}

}  // namespace gyre::store

#include "gyre/store/staging/fetch.h"

#include <fmt/format.h>

#include "gyre/base/error.h"
#include "gyre/store/sources/backoff.h"

namespace gyre::store {

namespace {

ReadOutcome read_some(const FetchShared& shared, ObjectReader& reader, const Object& object, std::uint64_t offset_bytes,
                      std::span<std::byte> into, const std::stop_token& stop) {
  if (!shared.limit.begin(stop)) throw Error(ErrorCode::kAborted, "reading was stopped");
  struct End {
    TransferLimit& limit;
    ~End() { limit.end(); }
  } const end{shared.limit};
  return reader.read(object, offset_bytes, into);
}

}  // namespace

bool fetch(const FetchShared& shared, const std::string& source, ObjectReader& reader, const Object& object,
           std::uint64_t offset_bytes, std::span<std::byte> into, const std::stop_token& stop,
           const std::function<bool()>& wanted) {
  Backoff backoff(shared.patience);
  while (!into.empty()) {
    if (!wanted()) return false;
    const ReadOutcome outcome = read_some(shared, reader, object, offset_bytes, into, stop);
    into = into.subspan(outcome.bytes);
    offset_bytes += outcome.bytes;
    shared.read_bytes += outcome.bytes;
    if (outcome.bytes > 0) backoff.progress();
    if (!outcome.setback) {
      shared.limit.succeeded();
      continue;
    }
    ++shared.setbacks;
    if (outcome.setback->overloaded) shared.limit.overloaded();
    const auto long_wait = [&] {
      if (shared.notice != nullptr)
        shared.notice->waits(fmt::format("nothing of {} arrives from {}: {}; trying again for up to {} s", object.name,
                                         source, outcome.setback->reason, shared.patience.count() / 1'000));
    };
    if (!backoff.wait(*outcome.setback, stop, long_wait) && !stop.stop_requested()) {
      throw Error(ErrorCode::kTimeout, fmt::format("nothing of {} has arrived from {} for {} s: {}", object.name,
                                                   source, shared.patience.count() / 1'000, outcome.setback->reason));
    }
  }
  return true;
}

}  // namespace gyre::store

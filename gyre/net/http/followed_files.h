#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/http/message.h"

namespace gyre::net::http {

/// Whether the writer of a followed file has ended: it writes nothing more.
using WriterEnded = std::function<bool()>;

namespace internal {
class SharedEnd;
}

/// Sends files while they grow. Followers of one file share what one of them has read or asked, for some milliseconds:
/// a thousand who follow one log then cost little more than their bytes. Thread-safe.
class FollowedFiles {
 public:
  /// For so long a look at the end of a file is as good as another one.
  explicit FollowedFiles(std::chrono::milliseconds fresh = std::chrono::milliseconds(25)) : fresh_(fresh) {}

  /// Sends a regular file from byte `offset` on and then what is appended, until `ended()` holds and the last byte is
  /// sent. Asks for both often while bytes come and less often while none do; `ended` runs on the pool's threads.
  /// `writer` is whom it asks about: followers share only where both that and the file are the same. Give it to a
  /// Response as its source. A file that shrinks below what was sent ends the connection. Error(kIo).
  std::shared_ptr<BodySource> follow(UniqueFd file, std::uint64_t offset, const std::string& writer, WriterEnded ended);

 private:
  using Key = std::tuple<std::string, std::uint64_t, std::uint64_t>;  // The writer, the file's device and inode.

  const std::chrono::milliseconds fresh_;
  Mutex mutex_;
  std::map<Key, std::weak_ptr<internal::SharedEnd>> ends_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::net::http

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/data/readable_file.h"
#include "gyre/net/stream.h"
#include "gyre/store/node/catalog.h"
#include "gyre/store/node/chunk_file.h"
#include "gyre/store/node/chunk_files.h"
#include "gyre/store/node/members.h"

namespace gyre::store::node {

/// A program's way into the store of its node. Chunks that lie on this node are read from their files, without the
/// daemon, and compared with their checksums; others through the daemon. A daemon that is started anew is found again;
/// while it is away, only what lies on this node is read. Thread-safe.
class Client : public std::enable_shared_from_this<Client> {
 public:
  /// `folder`: DIR/JOB, of this account's daemon. Waits for it as long as `limit`. Error(kNotFound, kTimeout).
  static std::shared_ptr<Client> open(const std::filesystem::path& folder, std::chrono::milliseconds limit);

  const Catalog& catalog() const { return *catalog_; }
  /// Fills `into` with bytes of an entry of the catalog, which has them. Error: kPeerLost, kTimeout, kNotFound and
  /// kShutDown where the daemon is away, kMismatch where it now serves another data set, kResourceExhausted where it
  /// has had too many connections for as long as open()'s limit; what made the reading fail.
  void read(std::size_t entry, std::uint64_t offset_bytes, std::span<std::byte> into);
  /// A file of the data set; it keeps the client. Error(kNotFound).
  std::unique_ptr<const data::ReadableFile> open_file(const std::string& name);

  /// See Node::status().
  std::string status();
  /// The members of now, which those of the next epoch replace: returns what they are then, which is something else
  /// where another one was faster. Error.
  Members members();
  Members change_members(const Members& members);

 private:
  explicit Client(ChunkFolder folder, std::chrono::milliseconds limit) : folder_(std::move(folder)), limit_(limit) {}

  void read_chunk(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into);
  bool read_from_disk(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into);
  void read_catalog();
  void read_secret();

  /// Runs one request and its reply over a connection of its own; over a new one where the daemon was started anew.
  void with_connection(const std::function<void(net::Stream&)>& use) GYRE_EXCLUDES(mutex_);
  std::unique_ptr<net::Stream> take_idle() GYRE_EXCLUDES(mutex_);
  std::unique_ptr<net::Stream> connect() GYRE_EXCLUDES(mutex_);
  std::unique_ptr<net::Stream> connect_within(std::chrono::milliseconds limit) const;
  void note_daemon(bool lives) GYRE_EXCLUDES(mutex_);

  const ChunkFolder folder_;
  std::unique_ptr<ChunkFiles> chunks_{};  ///< Of open(), as the catalog.
  const std::chrono::milliseconds limit_;
  std::unique_ptr<const Catalog> catalog_;
  Mutex mutex_;
  std::vector<std::unique_ptr<net::Stream>> idle_ GYRE_GUARDED_BY(mutex_);
  bool was_there_ GYRE_GUARDED_BY(mutex_) = false;
  std::chrono::milliseconds away_for_ GYRE_GUARDED_BY(mutex_){0};  ///< The daemon is left alone for so long …
  SteadyClock::time_point away_until_ GYRE_GUARDED_BY(mutex_){};   ///< … until then.
};

}  // namespace gyre::store::node

#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/data/readable_file.h"
#include "gyre/net/stream.h"
#include "gyre/store/node/catalog.h"
#include "gyre/store/node/chunk_file.h"
#include "gyre/store/node/members.h"

namespace gyre::store::node {

/// A program's way into the store of its node. Chunks that lie on this node are read from their files, without the
/// daemon, and compared with their checksums; others through the daemon. A daemon that is started anew is found again.
/// Thread-safe.
class Client : public std::enable_shared_from_this<Client> {
 public:
  /// `folder`: DIR/JOB, of this account's daemon. Waits for it as long as `limit`. Error(kNotFound, kTimeout).
  static std::shared_ptr<Client> open(const std::filesystem::path& folder, std::chrono::milliseconds limit);

  const Catalog& catalog() const { return *catalog_; }
  /// A file of the data set; it keeps the client. Error(kNotFound).
  std::unique_ptr<const data::ReadableFile> open_file(const std::string& name);

  /// See Node::status().
  std::string status();
  /// The members of now; those of a later epoch replace them. Error.
  Members members();
  Members change_members(const Members& members);

 private:
  friend class StoreFile;
  explicit Client(ChunkFolder folder, std::chrono::milliseconds limit) : folder_(std::move(folder)), limit_(limit) {}

  void read(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into);
  bool read_from_disk(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into);
  void read_catalog();

  /// Runs one request and its reply over a connection of its own; over a new one where the daemon was started anew.
  void with_connection(const std::function<void(net::Stream&)>& use) GYRE_EXCLUDES(mutex_);
  std::unique_ptr<net::Stream> take_idle() GYRE_EXCLUDES(mutex_);
  std::unique_ptr<net::Stream> connect() const;

  const ChunkFolder folder_;
  const std::chrono::milliseconds limit_;
  std::unique_ptr<const Catalog> catalog_;
  Mutex mutex_;
  std::vector<std::unique_ptr<net::Stream>> idle_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::store::node

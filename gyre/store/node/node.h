#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/job_key.h"
#include "gyre/store/node/catalog.h"
#include "gyre/store/node/chunk_file.h"
#include "gyre/store/node/chunk_files.h"
#include "gyre/store/node/flights.h"
#include "gyre/store/node/members.h"
#include "gyre/store/node/peers.h"
#include "gyre/store/node/reading.h"
#include "gyre/store/node/unkept_chunks.h"
#include "gyre/store/sources/source.h"
#include "gyre/store/staging/transfer_limit.h"

namespace gyre::store::node {

struct NodeOptions {
  std::uint32_t id = 0;
  Members members{};
  net::JobKey key{};
  int connections = 16;  ///< Chunks that are fetched at once, at most.
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::uint64_t bytes_per_second = 0;  ///< From the sources; 0: no limit.
  std::chrono::milliseconds patience{300'000};
  bool ahead = true;  ///< Fetch what this node owns before anybody reads it.
  Logger logger = null_logger();
};

/// What a node has done since it was started.
struct NodeCounts {
  std::atomic<std::uint64_t> source_bytes{0};
  std::atomic<std::uint64_t> source_chunks{0};
  std::atomic<std::uint64_t> setbacks{0};
  std::atomic<std::uint64_t> peer_chunks{0};    ///< Taken over from other nodes, to keep.
  std::atomic<std::uint64_t> relayed_bytes{0};  ///< Read from other nodes for clients of this one.
  std::atomic<std::uint64_t> local_bytes{0};    ///< Read here for clients of this node.
  std::atomic<std::uint64_t> served_bytes{0};   ///< Read here for other nodes.
  std::atomic<std::uint64_t> damaged_chunks{0};
  std::atomic<std::uint64_t> unkept_chunks{0};  ///< Fetched, and not kept: the disk was full.
  std::atomic<std::uint64_t> checked_md5{0};    ///< Chunks from the sources whose objects' MD5 agreed.
  std::atomic<std::uint64_t> unchecked_md5{0};  ///< Those of objects of several chunks, which have one MD5 together.
};

/// One node of a store, without its doors: where a chunk's bytes come from. What it knows of other nodes may be wrong
/// or old; that costs time, or one more reading from a source, and never a wrong byte. Thread-safe.
class Node {
 public:
  /// `sources` belong to the catalog, were listed, and outlive the node; `folder` was taken.
  Node(Catalog catalog, const std::vector<std::unique_ptr<Source>>& sources, ChunkFolder folder, NodeOptions options);

  const Catalog& catalog() const { return catalog_; }
  const ChunkFolder& folder() const { return folder_; }
  const NodeOptions& options() const { return options_; }
  Membership& membership() { return membership_; }
  const NodeCounts& counts() const { return counts_; }

  /// For a client of this node: from the disk, else from the chunk's owner, else from those who follow in its order;
  /// a node that comes to itself there fetches the chunk. Error, possibly after some of the bytes; ReaderGone.
  void read(const Piece& chunk, Reading& reading);
  /// For another node: from the disk, else the chunk is fetched; or false where only what is present is wanted, and
  /// some of it is not. Error as read().
  bool serve(const Piece& chunk, Reading& reading, bool only_if_present);

  /// Another node's list replaces the current one if it is later.
  void learn_members(Members members);
  /// A person's change: replaces the current members if it is of the next epoch, and is announced to all nodes,
  /// including those that leave. Ignored if it was made from a list that has been replaced meanwhile.
  void change_members(Members members);

  /// Another node has connected to this one.
  void lives(std::uint32_t node) { peers_.lives(node); }

  /// Facts and counts, as JSON.
  std::string status() const;
  void stop() { flights_.stop(); }

 private:
  /// Or from what the disk had no room for. False where it is not there, or damaged there: then it has been removed.
  bool read_from_disk(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into);
  /// The same for what is left of `reading`.
  bool hand_on_from_disk(const Piece& chunk, Reading& reading);
  void read_here(const Piece& chunk, Reading& reading);
  void log(const OtherKey& trouble) const;
  /// A small range alone, where its chunk could not be kept; false where that is not so, or it did not arrive at once.
  bool read_range_from_source(const Piece& chunk, Reading& reading);

  void fetch_chunk(const Piece& chunk, std::span<std::byte> into, const std::stop_token& stop);
  bool fetch_from_peers(const Piece& chunk, std::span<std::byte> into);
  void fetch_from_source(const Piece& chunk, std::span<std::byte> into, const std::stop_token& stop);
  void keep(const Piece& chunk, std::span<const std::byte> bytes);
  Flights::Step look_ahead() GYRE_EXCLUDES(mutex_);
  std::optional<Piece> next_in_catalog() GYRE_EXCLUDES(mutex_);
  void begin_ahead() GYRE_EXCLUDES(mutex_);

  std::unique_ptr<ObjectReader> take_reader(std::size_t source, const std::stop_token& stop) GYRE_EXCLUDES(mutex_);
  void give_back(std::size_t source, std::unique_ptr<ObjectReader> reader) GYRE_EXCLUDES(mutex_);

  const Catalog catalog_;
  const std::vector<std::unique_ptr<Source>>& sources_;
  const ChunkFolder folder_;
  ChunkFiles chunks_;
  const NodeOptions options_;
  Membership membership_;
  Peers peers_;
  NodeCounts counts_;
  TransferLimit limit_;
  RateLimit rate_;
  WaitNotice notice_;
  std::atomic<bool> disk_was_full_{false};
  UnkeptChunks unkept_;
  Mutex mutex_;
  std::size_t ahead_entry_ GYRE_GUARDED_BY(mutex_) = 0;  ///< Of the next chunk that may have to be fetched ahead.
  std::uint32_t ahead_chunk_ GYRE_GUARDED_BY(mutex_) = 0;
  std::map<std::size_t, std::vector<std::unique_ptr<ObjectReader>>> readers_ GYRE_GUARDED_BY(mutex_);
  Flights flights_;  // Last: its threads use the rest.
};

}  // namespace gyre::store::node

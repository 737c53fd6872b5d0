#include "gyre/store/node/node.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/store/sources/md5.h"
#include "gyre/store/staging/fetch.h"

namespace gyre::store::node {

namespace {

/// Before a node reads a chunk from the source, it asks so many others, in the chunk's order: its owner of before.
constexpr std::size_t kAskedFirst = 2;
/// Of one step of the search for chunks to fetch ahead.
constexpr int kChunksAtOnce = 64;
/// More is read with its chunk, whatever room there is.
constexpr std::uint64_t kMostRangeBytes = std::uint64_t{256} << 10;

}  // namespace

Node::Node(Catalog catalog, const std::vector<std::unique_ptr<Source>>& sources, ChunkFolder folder,
           NodeOptions options)
    : catalog_(std::move(catalog)),
      sources_(sources),
      folder_(std::move(folder)),
      chunks_(folder_),
      options_(std::move(options)),
      membership_(options_.members, [this] { begin_ahead(); }),
      peers_(options_.id, options_.key, catalog_.fingerprint(), membership_),
      limit_(options_.connections),
      rate_(options_.bytes_per_second),
      notice_([this](const std::string& what) { options_.logger->warn("{}", what); }),
      flights_(
          options_.connections, options_.memory_bytes,
          [this](const Piece& chunk, std::span<std::byte> into, const std::stop_token& stop) {
            fetch_chunk(chunk, into, stop);
          },
          [this] { return look_ahead(); }) {}

bool Node::read_from_disk(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const ChunkKey key = catalog_.key(chunk);
  try {
    return chunks_.read(key, chunk.size_bytes, offset_bytes, into) || unkept_.read(chunk, offset_bytes, into);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) {
      options_.logger->warn("{}; it is read elsewhere", error.what());
      return false;
    }
    options_.logger->warn("{}; it is fetched again", error.what());
    ++counts_.damaged_chunks;
    folder_.remove(key);
    return false;
  }
}

bool Node::hand_on_from_disk(const Piece& chunk, Reading& reading) {
  while (reading.left_bytes() > 0) {
    const auto piece = reading.next();
    if (!read_from_disk(chunk, reading.offset_bytes(), piece)) return false;
    reading.arrived(piece);
  }
  return true;
}

void Node::read_here(const Piece& chunk, Reading& reading) {
  if (hand_on_from_disk(chunk, reading) || read_range_from_source(chunk, reading)) return;
  const auto bytes = flights_.demand(chunk, [&] { reading.still_waiting(); });
  reading.arrived(std::span(*bytes).subspan(reading.offset_bytes(), reading.left_bytes()));
}

bool Node::read_range_from_source(const Piece& chunk, Reading& reading) {
  if (!disk_was_full_ || reading.left_bytes() > kMostRangeBytes) return false;
  const ManifestEntry& entry = catalog_.manifest().entries[chunk.entry];
  Bytes bytes(reading.left_bytes());
  auto reader = take_reader(entry.source, flights_.stop_token());
  const std::uint64_t begin = chunk.offset_bytes + reading.offset_bytes();
  const ReadOutcome outcome = reader->read(entry.object, begin, bytes);
  give_back(entry.source, std::move(reader));
  counts_.source_bytes += outcome.bytes;
  if (outcome.bytes < bytes.size()) return false;
  reading.arrived(bytes);
  return true;
}

void Node::read(const Piece& chunk, Reading& reading) {
  const std::uint64_t wanted_bytes = reading.left_bytes();
  if (hand_on_from_disk(chunk, reading)) {
    counts_.local_bytes += wanted_bytes;
    return;
  }
  const ReadRequest request{.fingerprint = catalog_.fingerprint(), .entry = chunk.entry, .chunk = chunk.number};
  for (const std::uint32_t node : membership_.now()->order(catalog_.key(chunk))) {
    if (node == options_.id) break;
    if (peers_.is_suspect(node)) continue;
    const std::uint64_t left_bytes = reading.left_bytes();
    try {
      const bool found = peers_.read(node, request, reading);
      counts_.relayed_bytes += left_bytes - reading.left_bytes();
      if (found) return;
    } catch (const ReaderGone&) {
      throw;
    } catch (const OtherKey& error) {
      log(error);
      reading.still_waiting();
    } catch (const Error& error) {
      counts_.relayed_bytes += left_bytes - reading.left_bytes();
      options_.logger->warn("node {} cannot give {}: {}", node, catalog_.manifest().entries[chunk.entry].target,
                            error.what());
      reading.still_waiting();
    }
  }
  const std::uint64_t left_bytes = reading.left_bytes();
  read_here(chunk, reading);
  counts_.local_bytes += left_bytes;
}

void Node::log(const OtherKey& trouble) const {
  options_.logger->log(trouble.is_news() ? spdlog::level::warn : spdlog::level::debug, "{}", trouble.what());
}

bool Node::serve(const Piece& chunk, Reading& reading, bool only_if_present) {
  const std::uint64_t wanted_bytes = reading.left_bytes();
  if (only_if_present) {
    if (!hand_on_from_disk(chunk, reading)) return false;
  } else {
    read_here(chunk, reading);
  }
  counts_.served_bytes += wanted_bytes;
  return true;
}

void Node::fetch_chunk(const Piece& chunk, std::span<std::byte> into, const std::stop_token& stop) {
  // Between the reader's look and this one another flight may have brought it.
  if (read_from_disk(chunk, 0, into)) return;
  try {
    if (fetch_from_peers(chunk, into)) {
      ++counts_.peer_chunks;
    } else {
      fetch_from_source(chunk, into, stop);
      ++counts_.source_chunks;
    }
  } catch (const Error& error) {
    if (!stop.stop_requested()) options_.logger->warn("{}", error.what());
    throw;
  }
  keep(chunk, into);
}

bool Node::fetch_from_peers(const Piece& chunk, std::span<std::byte> into) {
  std::size_t asked = 0;
  for (const std::uint32_t node : membership_.now()->order(catalog_.key(chunk))) {
    if (node == options_.id || peers_.is_suspect(node)) continue;
    if (asked++ == kAskedFirst) break;
    const WaitingReader nobody{.still_waiting = [] {}, .arrived = [](std::span<const std::byte>) {}};
    Reading reading(0, into.size(), into, nobody);
    const ReadRequest request{
        .fingerprint = catalog_.fingerprint(), .entry = chunk.entry, .chunk = chunk.number, .only_if_present = true};
    try {
      if (peers_.read(node, request, reading)) return true;
    } catch (const OtherKey& error) {
      log(error);
    } catch (const Error& error) {
      options_.logger->debug("node {} was asked for a chunk: {}", node, error.what());
    }
  }
  return false;
}

void Node::fetch_from_source(const Piece& chunk, std::span<std::byte> into, const std::stop_token& stop) {
  const ManifestEntry& entry = catalog_.manifest().entries[chunk.entry];
  const std::string& source = catalog_.manifest().sources[entry.source];
  auto reader = take_reader(entry.source, stop);
  const FetchShared shared{.limit = limit_,
                           .read_bytes = counts_.source_bytes,
                           .setbacks = counts_.setbacks,
                           .patience = options_.patience,
                           .notice = &notice_};
  fetch(shared, source, *reader, entry.object, chunk.offset_bytes, into, stop, [] { return true; });
  give_back(entry.source, std::move(reader));
  if (!entry.object.md5) return;
  if (into.size() != entry.object.size_bytes) {
    ++counts_.unchecked_md5;
    return;
  }
  Md5Sum sum;
  sum.add(into);
  if (sum.result() == *entry.object.md5) {
    ++counts_.checked_md5;
    return;
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("{} of {} is damaged: its MD5 is not the one that the source names",
                                                   entry.object.name, source));
}

void Node::keep(const Piece& chunk, std::span<const std::byte> bytes) {
  try {
    folder_.write(catalog_.key(chunk), bytes);
  } catch (const Error& error) {
    // It is handed on from memory all the same.
    ++counts_.unkept_chunks;
    unkept_.keep(chunk, bytes);
    if (!disk_was_full_.exchange(true)) {
      options_.logger->warn(
          "{}; nothing more is fetched ahead, and what cannot be kept is read from its source when it is needed",
          error.what());
    }
  }
}

Flights::Step Node::look_ahead() {
  if (!options_.ahead || disk_was_full_) return {.is_last = true};
  const auto members = membership_.now();
  for (int i = 0; i < kChunksAtOnce; ++i) {
    const auto chunk = next_in_catalog();
    if (!chunk) return {.is_last = true};
    const ChunkKey key = catalog_.key(*chunk);
    if (members->owned_by(options_.id, key) && ::access(folder_.file_of(key).c_str(), F_OK) != 0) {
      return {.chunk = chunk};
    }
  }
  return {};
}

std::optional<Piece> Node::next_in_catalog() {
  const MutexLock lock(mutex_);
  if (ahead_entry_ == catalog_.manifest().entries.size()) return std::nullopt;
  const Piece chunk = catalog_.chunk(ahead_entry_, ahead_chunk_++);
  if (ahead_chunk_ == catalog_.chunks_of(ahead_entry_)) {
    ++ahead_entry_;
    ahead_chunk_ = 0;
  }
  return chunk;
}

void Node::begin_ahead() {
  {
    const MutexLock lock(mutex_);
    ahead_entry_ = 0;
    ahead_chunk_ = 0;
  }
  flights_.look_ahead();
}

std::unique_ptr<ObjectReader> Node::take_reader(std::size_t source, const std::stop_token& stop) {
  const MutexLock lock(mutex_);
  auto& idle = readers_[source];
  if (idle.empty()) return sources_[source]->reader({.stop = stop, .rate = &rate_});
  auto reader = std::move(idle.back());
  idle.pop_back();
  return reader;
}

void Node::give_back(std::size_t source, std::unique_ptr<ObjectReader> reader) {
  const MutexLock lock(mutex_);
  readers_[source].push_back(std::move(reader));
}

void Node::learn_members(Members members) {
  if (!membership_.adopt(std::move(members))) return;
  const auto now = membership_.now();
  options_.logger->info("the members of epoch {}: {}", now->epoch, to_string(*now));
}

void Node::change_members(Members members) {
  const auto before = membership_.now();
  if (!membership_.adopt_next(std::move(members))) return;
  const auto now = membership_.now();
  options_.logger->info("the members of epoch {}: {}", now->epoch, to_string(*now));
  std::vector<Member> all = now->nodes;
  for (const Member& node : before->nodes) {
    if (!now->has(node.id)) all.push_back(node);
  }
  for (const Member& node : all) {
    if (node.id == options_.id) continue;
    try {
      peers_.announce(node);
    } catch (const Error& error) {
      // It hears of them with the first request.
      options_.logger->warn("node {} was not informed of the new members: {}", node.id, error.what());
    }
  }
}

std::string Node::status() const {
  const auto members = membership_.now();
  const ChunkFolder::Usage usage = folder_.usage();
  const nlohmann::json status{{"node", options_.id},
                              {"epoch", members->epoch},
                              {"members", to_string(*members)},
                              {"files", catalog_.manifest().entries.size()},
                              {"bytes", catalog_.manifest().stored_bytes()},
                              {"encrypted", folder_.secret() != nullptr},
                              {"kept_chunks", usage.chunks},
                              {"kept_bytes", usage.bytes},
                              {"fetching_ahead", !flights_.ahead_is_done()},
                              {"source_bytes", counts_.source_bytes.load()},
                              {"source_chunks", counts_.source_chunks.load()},
                              {"peer_chunks", counts_.peer_chunks.load()},
                              {"relayed_bytes", counts_.relayed_bytes.load()},
                              {"local_bytes", counts_.local_bytes.load()},
                              {"served_bytes", counts_.served_bytes.load()},
                              {"damaged_chunks", counts_.damaged_chunks.load()},
                              {"unkept_chunks", counts_.unkept_chunks.load()},
                              {"checked_md5", counts_.checked_md5.load()},
                              {"unchecked_md5", counts_.unchecked_md5.load()},
                              {"setbacks", counts_.setbacks.load()}};
  return status.dump(2) + "\n";
}

}  // namespace gyre::store::node

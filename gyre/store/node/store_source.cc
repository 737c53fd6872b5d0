#include "gyre/store/node/store_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/node/client.h"
#include "gyre/store/sources/text.h"

namespace gyre::store::node {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kDaemonLimit{3'000};
/// Between two looks whether to stop.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

/// Whether the daemon cannot read, whatever the source holds.
bool is_of_daemon(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kPeerLost:
    case ErrorCode::kTimeout:
    case ErrorCode::kNotFound:
    case ErrorCode::kShutDown:
    case ErrorCode::kMismatch: return true;
    default: return false;
  }
}

/// Where a store's set comes from, for a reader that has to do without the daemon. Thread-safe.
class Origins {
 public:
  Origins(std::vector<std::string> names, Credentials credentials)
      : names_(std::move(names)), credentials_(std::move(credentials)) {}

  /// Lists the source when it is first needed. Error.
  std::unique_ptr<ObjectReader> reader(std::size_t source, const ReadLimits& limits) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::unique_ptr<Source>& known = sources_[source];
    if (!known) {
      auto opened = open_source(names_.at(source), credentials_);
      static_cast<void>(opened->list({.stop = limits.stop}, kDaemonLimit));
      known = std::move(opened);
    }
    return known->reader(limits);
  }

 private:
  const std::vector<std::string> names_;
  const Credentials credentials_;
  Mutex mutex_;
  std::map<std::size_t, std::unique_ptr<Source>> sources_ GYRE_GUARDED_BY(mutex_);
};

class StoreReader : public ObjectReader {
 public:
  /// `prefix`: what an object's name lacks.
  StoreReader(std::shared_ptr<Client> client, std::shared_ptr<Origins> origins, std::string prefix, ReadLimits limits)
      : client_(std::move(client)),
        origins_(std::move(origins)),
        prefix_(std::move(prefix)),
        limits_(std::move(limits)) {}

  ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const auto entry = client_->catalog().find(prefix_ + object.name);
    const ManifestEntry known = entry ? client_->catalog().manifest().entries[*entry] : ManifestEntry();
    if (!entry || known.object.version != object.version || known.object.size_bytes != object.size_bytes) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("cannot read {}: it has changed since it was listed", object.name));
    }
    for (std::size_t done = 0; done < into.size();) {
      if (limits_.stop.stop_requested()) throw Error(ErrorCode::kAborted, "reading " + object.name + " was stopped");
      const auto piece = into.subspan(done, std::min(into.size() - done, kPieceBytes));
      if (limits_.rate != nullptr) limits_.rate->pass(piece.size(), limits_.stop);
      try {
        client_->read(*entry, offset_bytes + done, piece);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kResourceExhausted)  // It has too many connections.
          return {.bytes = done, .setback = Setback{.reason = error.what()}};
        if (!is_of_daemon(error)) throw;
        const ReadOutcome outcome = read_from_origin(known, offset_bytes + done, piece, error);
        if (outcome.setback) return {.bytes = done + outcome.bytes, .setback = outcome.setback};
      }
      done += piece.size();
    }
    return {.bytes = into.size()};
  }

 private:
  /// `cause`: why the daemon did not do it.
  ReadOutcome read_from_origin(const ManifestEntry& entry, std::uint64_t offset_bytes, std::span<std::byte> into,
                               const Error& cause) {
    std::unique_ptr<ObjectReader>& reader = readers_[entry.source];
    try {
      // The rate's share was taken.
      if (!reader) reader = origins_->reader(entry.source, {.stop = limits_.stop, .stall = limits_.stall});
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kAborted) throw;
      // The daemon may come back.
      return {.setback = Setback{.reason = fmt::format("{}; and without it, {}", cause.what(), error.what())}};
    }
    return reader->read(entry.object, offset_bytes, into);
  }

  std::shared_ptr<Client> client_;
  std::shared_ptr<Origins> origins_;
  std::string prefix_;
  ReadLimits limits_;
  std::map<std::size_t, std::unique_ptr<ObjectReader>> readers_;
};

class StoreSource : public Source {
 public:
  StoreSource(fs::path path, Credentials credentials)
      : path_(std::move(path)),
        name_(fmt::format("{}://{}", kStoreScheme, path_.string())),
        credentials_(std::move(credentials)) {}

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits&, std::chrono::milliseconds patience) override {
    const auto [folder, within] = parts();
    try {
      client_ = Client::open(folder, std::min(patience, kDaemonLimit));
    } catch (const Error& error) {
      // To a reader of folders, kNotFound would be a file that the set does not have.
      if (error.code() != ErrorCode::kNotFound) throw;
      throw Error(ErrorCode::kPeerLost, error.what());
    }
    origins_ = std::make_shared<Origins>(client_->catalog().manifest().sources, credentials_);
    return objects_below(within);
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<StoreReader>(client_, origins_, prefix_, limits);
  }

 private:
  /// The store's folder, and what of its set is meant: "" for all of it.
  std::pair<fs::path, std::string> parts() const {
    for (fs::path folder = path_; folder.has_relative_path(); folder = folder.parent_path()) {
      if (!ChunkFolder(folder).exists()) continue;
      return {folder, folder == path_ ? "" : path_.lexically_relative(folder).string()};
    }
    return {path_, ""};
  }

  std::vector<Object> objects_below(const std::string& within) {
    const auto& entries = client_->catalog().manifest().entries;
    const auto file = client_->catalog().find(within);
    // A file is named by its last part, as in every source.
    prefix_ = file ? within.substr(0, within.rfind('/') + 1) : within.empty() ? "" : within + "/";
    std::vector<Object> objects;
    for (const ManifestEntry& entry : entries) {
      if (file ? entry.target != within : !entry.target.starts_with(prefix_)) continue;
      objects.push_back(entry.object);
      objects.back().name = entry.target.substr(prefix_.size());
    }
    if (objects.empty()) throw Error(ErrorCode::kNotFound, fmt::format("{} holds no files", name_));
    return objects;
  }

  const fs::path path_;
  const std::string name_;
  const Credentials credentials_;
  std::shared_ptr<Client> client_;  ///< Of list(), as what follows.
  std::shared_ptr<Origins> origins_;
  std::string prefix_;
};

}  // namespace

std::unique_ptr<Source> open_source_or_store(const std::string& name, const Credentials& credentials) {
  const auto url = split_url(name);
  if (!url || url->scheme != kStoreScheme) return open_source(name, credentials);
  fs::path path = fs::path(url->path).lexically_normal();
  if (!url->authority.empty() || !path.is_absolute()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' names no store; write it like store:///scratch/store/JOB, with the whole path of the "
                            "store's folder",
                            name));
  }
  if (path.filename().empty() && path.has_relative_path()) path = path.parent_path();
  return std::make_unique<StoreSource>(std::move(path), credentials);
}

}  // namespace gyre::store::node

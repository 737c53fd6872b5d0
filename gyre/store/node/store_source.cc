#include "gyre/store/node/store_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/store/node/client.h"

namespace gyre::store::node {

namespace {

constexpr std::chrono::milliseconds kDaemonLimit{10'000};
/// Between two looks whether to stop.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

class StoreReader : public ObjectReader {
 public:
  StoreReader(std::shared_ptr<Client> client, ReadLimits limits)
      : client_(std::move(client)), limits_(std::move(limits)) {}

  ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const auto file = client_->open_file(object.name);
    if (file->version() != object.version || file->size_bytes() != object.size_bytes) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("cannot read {}: it has changed since it was listed", object.name));
    }
    for (std::size_t done = 0; done < into.size();) {
      if (limits_.stop.stop_requested()) throw Error(ErrorCode::kAborted, "reading " + object.name + " was stopped");
      const auto piece = into.subspan(done, std::min(into.size() - done, kPieceBytes));
      if (limits_.rate != nullptr) limits_.rate->pass(piece.size(), limits_.stop);
      try {
        file->read_at(offset_bytes + done, piece);
      } catch (const Error& error) {
        // The daemon is gone, or is being started anew.
        if (error.code() != ErrorCode::kPeerLost && error.code() != ErrorCode::kTimeout) throw;
        return {.bytes = done, .setback = Setback{.reason = error.what()}};
      }
      done += piece.size();
    }
    return {.bytes = into.size()};
  }

 private:
  std::shared_ptr<Client> client_;
  ReadLimits limits_;
};

class StoreSource : public Source {
 public:
  explicit StoreSource(std::filesystem::path folder)
      : folder_(std::move(folder)), name_(kStoreScheme + folder_.string()) {}

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits&, std::chrono::milliseconds patience) override {
    client_ = Client::open(folder_, std::min(patience, kDaemonLimit));
    std::vector<Object> objects;
    for (const ManifestEntry& entry : client_->catalog().manifest().entries) {
      objects.push_back(entry.object);
      objects.back().name = entry.target;
    }
    return objects;
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<StoreReader>(client_, limits);
  }

 private:
  std::filesystem::path folder_;
  std::string name_;
  std::shared_ptr<Client> client_;  ///< Of list().
};

}  // namespace

std::unique_ptr<Source> open_store_source(const std::string& name) {
  const std::filesystem::path folder = name.substr(std::string_view(kStoreScheme).size());
  if (!folder.is_absolute()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' names no store; write it like store:///scratch/store/JOB, with the whole path of the "
                            "store's folder",
                            name));
  }
  return std::make_unique<StoreSource>(folder.lexically_normal());
}

}  // namespace gyre::store::node

#include "gyre/store/node/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/secret_key.h"
#include "gyre/net/message.h"
#include "gyre/net/socket.h"
#include "gyre/store/node/reading.h"
#include "gyre/store/node/wire.h"
#include "gyre/store/sources/backoff.h"

namespace gyre::store::node {

namespace {

/// The daemon gives a sign every second while it fetches; between two nodes that it tries, several pass.
constexpr std::chrono::milliseconds kSilenceLimit{30'000};
/// A daemon that has been there and is not there now: so long is it waited for, once, …
constexpr std::chrono::milliseconds kRestartLimit{2'000};
/// … then it is tried again from time to time.
constexpr std::chrono::milliseconds kProbeLimit{50};
constexpr std::chrono::milliseconds kFirstAway{1'000};
constexpr std::chrono::milliseconds kLongestAway{30'000};
constexpr std::size_t kMostCatalogBytes = std::size_t{4} << 30;
constexpr std::size_t kMostIdle = 64;

Deadline soon() { return Deadline::after(kSilenceLimit); }

/// What the daemon says, the connection being sound.
class DaemonFailure : public Error {
 public:
  explicit DaemonFailure(const Error& cause) : Error(cause) {}
};

/// The daemon has too many connections.
class DaemonBusy : public Error {
 public:
  explicit DaemonBusy(std::uint32_t connections)
      : Error(
            ErrorCode::kResourceExhausted,
            fmt::format("the store's daemon has {} connections, and takes no more; it was asked several times. Does a "
                        "program on this node open the store over and over?",
                        connections)) {}
};

net::Message reply_of(net::Stream& stream, std::uint16_t wanted) {
  net::Message reply = net::receive_message(stream, soon());
  while (reply.type == message_type::kPatience) reply = net::receive_message(stream, soon());
  if (reply.type == message_type::kBusy) throw DaemonBusy(ByteReader(reply.payload, "a daemon's refusal").u32());
  if (reply.type == message_type::kFailure) throw DaemonFailure(decode_failure(reply.payload));
  if (reply.type != wanted) throw Error(ErrorCode::kProtocol, "the store's daemon sent something else than a reply");
  return reply;
}

}  // namespace

/// A file of a store, as the readers of gyre/data take it.
class StoreFile : public data::ReadableFile {
 public:
  StoreFile(std::shared_ptr<Client> client, std::size_t entry, std::string name)
      : client_(std::move(client)),
        entry_(entry),
        object_(client_->catalog().manifest().entries[entry_].object),
        name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size_bytes() const override { return object_.size_bytes; }
  std::string version() const override { return object_.version; }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    if (offset_bytes > size_bytes() || into.size() > size_bytes() - offset_bytes) {
      throw Error(ErrorCode::kCorruptData, fmt::format("{} ends after {} bytes; {} from {} on were to be read", name_,
                                                       size_bytes(), into.size(), offset_bytes));
    }
    try {
      client_->read(entry_, offset_bytes, into);
    } catch (Error& error) {
      error.add_context("cannot read " + name_);
      throw;
    }
  }

 private:
  std::shared_ptr<Client> client_;
  std::size_t entry_;
  Object object_;
  std::string name_;
};

std::shared_ptr<Client> Client::open(const std::filesystem::path& folder, std::chrono::milliseconds limit) {
  std::shared_ptr<Client> client(new Client(ChunkFolder(folder), limit));
  client->read_catalog();
  client->read_secret();
  return client;
}

std::unique_ptr<const data::ReadableFile> Client::open_file(const std::string& name) {
  const auto entry = catalog_->find(name);
  if (!entry) {
    throw Error(ErrorCode::kNotFound, fmt::format("the store in {} has no file {}", folder_.root().string(), name));
  }
  return std::make_unique<StoreFile>(shared_from_this(), *entry, name);
}

void Client::note_daemon(bool lives) {
  const MutexLock lock(mutex_);
  if (lives) {
    was_there_ = true;
    away_for_ = std::chrono::milliseconds{0};
  } else if (SteadyClock::now() >= away_until_) {
    away_for_ = std::clamp(away_for_ * 2, kFirstAway, kLongestAway);
    away_until_ = SteadyClock::now() + away_for_;
  }
}

std::unique_ptr<net::Stream> Client::connect() {
  std::chrono::milliseconds limit = limit_;
  {
    const MutexLock lock(mutex_);
    if (was_there_) limit = std::min(limit, away_for_.count() == 0 ? kRestartLimit : kProbeLimit);
    if (was_there_ && SteadyClock::now() < away_until_) {
      throw Error(ErrorCode::kPeerLost, fmt::format("the store's daemon in {} is away", folder_.root().string()));
    }
  }
  return connect_within(limit);
}

std::unique_ptr<net::Stream> Client::connect_within(std::chrono::milliseconds limit) const {
  const std::string path = folder_.socket().string();
  try {
    return net::make_socket_stream(
        net::connect_to({.kind = net::Endpoint::Kind::kUnix, .host = path}, Deadline::after(limit)),
        "the store's daemon at " + path);
  } catch (const Error& error) {
    // A killed daemon has left its socket, at which nobody listens.
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(ErrorCode::kNotFound,
                fmt::format("no daemon of a store runs in {}; `gyre store serve` starts one", folder_.root().string()));
  }
}

std::unique_ptr<net::Stream> Client::take_idle() {
  const MutexLock lock(mutex_);
  if (idle_.empty()) return nullptr;
  auto stream = std::move(idle_.back());
  idle_.pop_back();
  return stream;
}

void Client::with_connection(const std::function<void(net::Stream&)>& use) {
  std::optional<Backoff> backoff;
  for (;;) {
    auto stream = take_idle();
    const bool reused = stream != nullptr;
    std::optional<Error> refused;
    try {
      if (!reused) stream = connect();
      use(*stream);
    } catch (const DaemonFailure& failure) {
      refused = failure;
    } catch (const DaemonBusy& busy) {
      if (!backoff) backoff.emplace(limit_);
      if (backoff->wait({.reason = busy.what()}, {})) continue;
      throw;
    } catch (const Error& error) {
      if (reused && error.code() == ErrorCode::kPeerLost) continue;
      note_daemon(false);
      throw;
    }
    note_daemon(true);
    {
      const MutexLock lock(mutex_);
      if (idle_.size() < kMostIdle) idle_.push_back(std::move(stream));
    }
    if (refused) throw Error(*refused);
    return;
  }
}

bool Client::read_from_disk(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into) {
  try {
    return chunks_->read(catalog_->key(chunk), chunk.size_bytes, offset_bytes, into);
  } catch (const Error&) {
    return false;  // The daemon finds the same, and fetches it again.
  }
}

void Client::read(std::size_t entry, std::uint64_t offset_bytes, std::span<std::byte> into) {
  while (!into.empty()) {
    const Piece chunk = catalog_->chunk_at(entry, offset_bytes);
    const std::uint64_t within = offset_bytes - chunk.offset_bytes;
    const auto part = into.first(std::min<std::uint64_t>(into.size(), chunk.size_bytes - within));
    read_chunk(chunk, within, part);
    into = into.subspan(part.size());
    offset_bytes += part.size();
  }
}

void Client::read_chunk(const Piece& chunk, std::uint64_t offset_bytes, std::span<std::byte> into) {
  if (read_from_disk(chunk, offset_bytes, into)) return;
  while (!into.empty()) {
    const auto part = into.first(std::min<std::size_t>(into.size(), kMostReadBytes));
    const ReadRequest request{.fingerprint = catalog_->fingerprint(),
                              .entry = chunk.entry,
                              .chunk = chunk.number,
                              .offset_bytes = static_cast<std::uint32_t>(offset_bytes),
                              .size_bytes = static_cast<std::uint32_t>(part.size())};
    with_connection([&](net::Stream& stream) {
      net::send_message(stream, message_type::kRead, request.encode(), soon());
      const DataReply reply = DataReply::decode(reply_of(stream, message_type::kData).payload);
      if (reply.size_bytes != part.size()) {
        throw Error(ErrorCode::kProtocol, "the store's daemon sent another number of bytes than it was asked for");
      }
      for (auto left = part; !left.empty();) {
        const auto piece = left.first(std::min(left.size(), Reading::kPieceBytes));
        net::read_exactly(stream, piece, soon());
        left = left.subspan(piece.size());
      }
    });
    into = into.subspan(part.size());
    offset_bytes += part.size();
  }
}

void Client::read_catalog() {
  with_connection([&](net::Stream& stream) {
    Bytes bytes;
    net::send_message(stream, message_type::kGetCatalog, {}, soon());
    for (;;) {
      const net::Message part = reply_of(stream, message_type::kCatalogPart);
      if (part.payload.empty()) break;
      if (bytes.size() + part.payload.size() > kMostCatalogBytes) {
        throw Error(ErrorCode::kResourceExhausted, "the catalog of the store is larger than 4 GB");
      }
      bytes.insert(bytes.end(), part.payload.begin(), part.payload.end());
    }
    catalog_ = std::make_unique<const Catalog>(Catalog::decode(bytes));
  });
}

void Client::read_secret() {
  std::shared_ptr<const ChunkSecret> secret;
  with_connection([&](net::Stream& stream) {
    net::send_message(stream, message_type::kGetSecret, {}, soon());
    net::Message reply = reply_of(stream, message_type::kSecret);
    const WipedAtEnd wiped(reply.payload);
    if (reply.payload.empty()) return;
    if (reply.payload.size() != SecretKey::kBytes)
      throw Error(ErrorCode::kProtocol, "the store's daemon sent a secret of another length");
    secret = std::make_shared<const ChunkSecret>(
        SecretKey(std::span<const std::byte, SecretKey::kBytes>(reply.payload.data(), SecretKey::kBytes)));
  });
  chunks_ = std::make_unique<ChunkFiles>(ChunkFolder(folder_.root(), std::move(secret)));
}

std::string Client::status() {
  std::string status;
  with_connection([&](net::Stream& stream) {
    net::send_message(stream, message_type::kGetStatus, {}, soon());
    status = as_text(reply_of(stream, message_type::kStatus).payload);
  });
  return status;
}

Members Client::members() {
  Members members;
  with_connection([&](net::Stream& stream) {
    net::send_message(stream, message_type::kGetMembers, {}, soon());
    members = Members::decode(reply_of(stream, message_type::kMembers).payload);
  });
  return members;
}

Members Client::change_members(const Members& members) {
  Members now;
  with_connection([&](net::Stream& stream) {
    net::send_message(stream, message_type::kSetMembers, members.encode(), soon());
    now = Members::decode(reply_of(stream, message_type::kMembers).payload);
  });
  return now;
}

}  // namespace gyre::store::node

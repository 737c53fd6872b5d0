#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "gyre/store/sources/rate_limit.h"
#include "gyre/store/sources/wait_notice.h"

namespace gyre::store {

using Md5 = std::array<std::byte, 16>;

/// One object of a source, as its listing gives it.
struct Object {
  std::string name;              ///< Below the source's root, parts divided by '/': see check_object_name().
  std::uint64_t size_bytes = 0;  ///< As it is stored, compressed or not.
  std::string version{};         ///< Another one when the object has changed; empty where the source has none.
  std::string encoding{};        ///< HTTP's Content-Encoding; empty where there is none.
  std::optional<Md5> md5{};      ///< Of the stored bytes, where the source keeps it.

  friend bool operator==(const Object&, const Object&) = default;
};

/// A reading that failed, and may succeed when it is tried again.
struct Setback {
  std::string reason;                 ///< For messages: "503 Server Busy".
  bool overloaded = false;            ///< The source asks for fewer requests.
  std::chrono::milliseconds wait{0};  ///< How long it asks us to wait.
  bool unreachable = false;           ///< No connection came about.
};

/// How far a reading came: all of it, or less and why.
struct ReadOutcome {
  std::size_t bytes = 0;
  std::optional<Setback> setback{};
};

/// What readings are bound by.
struct ReadLimits {
  std::stop_token stop{};                   ///< Ends what is under way with Error(kAborted).
  RateLimit* rate = nullptr;                ///< Shared by all readers; not owned.
  WaitNotice* notice = nullptr;             ///< Hears of readings that wait; not owned, may be null.
  std::chrono::milliseconds stall{20'000};  ///< Without a byte for as long, a connection is given up: a Setback.
};

/// Reads the objects of one source, one after the other. Not thread-safe: one per thread.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;

  /// Reads `into.size()` bytes from `offset_bytes` on; what arrived before a setback is in the front of `into`.
  /// Error: what trying again does not help (kNotFound, kAuthentication), kCorruptData where the object is no longer
  /// the one that was listed; kAborted.
  virtual ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) = 0;
};

class ObjectPutter;

/// Where data rests: a folder of this machine, a web server, a container of Azure Blob Storage.
class Source {
 public:
  virtual ~Source() = default;

  /// For messages and receipts: without a secret.
  virtual const std::string& name() const = 0;
  /// All objects, by name. Tries again for as long as `patience`; then, or where that is no use, Error.
  virtual std::vector<Object> list(const ReadLimits& limits, std::chrono::milliseconds patience) = 0;
  virtual std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const = 0;
  /// For putting objects below what the source names, which need not have any. Error(kUnsupported) where that cannot be
  /// written to; kAuthentication, as far as it can be seen before.
  virtual std::unique_ptr<ObjectPutter> putter(const ReadLimits& limits, std::chrono::milliseconds patience) const;
};

/// Error(kInvalidArgument) for a name that could lead out of a folder, or names no file in one: empty parts, "." and
/// "..", control characters, more than 255 bytes in a part or 4,000 in all. `source` is named.
void check_object_name(const std::string& name, const std::string& source);

}  // namespace gyre::store

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre::data {

/// A file larger than this is refused before it is parsed; CIFAR-10's largest has 31 MB.
inline constexpr std::uint64_t kMostPickleBytes = std::uint64_t{1} << 28;
/// Objects (numbers, strings, lists, …) that one pickle may create; CIFAR-10's batches create about 20,000.
inline constexpr std::size_t kMostPickleObjects = std::size_t{1} << 22;

/// One object of a pickle. Objects refer to each other by their index in PickleDocument::objects.
struct PickleObject {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInteger,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,
    kGlobal,
    kDtype,
    kArray
  };

  Kind kind = Kind::kNone;
  std::int64_t integer = 0;            ///< kBool (0 or 1), kInteger.
  std::string_view text{};             ///< kText, kBytes; kGlobal: "module\nname"; kArray: its raw bytes.
  std::vector<std::uint32_t> items{};  ///< kTuple, kList; kDict: key, value, key, value, …
  std::vector<std::uint64_t> shape{};  ///< kArray. Its type is always uint8, in C order.
};

/// The objects of one pickle. Views point into the parsed bytes or into `decoded`, so the bytes must outlive it.
struct PickleDocument {
  std::vector<PickleObject> objects;
  std::vector<Bytes> decoded;  ///< Strings that had to be rewritten (bytes that Python 3 stored as Latin-1 text).
  std::uint32_t root = 0;

  /// The value of `key` (text or bytes, both are met) in the dict `dict`; nullptr when it is not there.
  const PickleObject* find(const PickleObject& dict, std::string_view key) const;
};

/// Parses the part of pickle protocol 0-2 that CIFAR-10's batches and their like use: dicts, lists, tuples, numbers,
/// strings and uint8 numpy arrays, as Python 2 and Python 3 (protocol=2) write them. Nothing is executed: the only
/// callables known are the four that build an array or bytes, and they are interpreted here.
/// `name` stands in messages. Error(kCorruptData) or Error(kUnsupported) names file, offset and opcode.
/// Source of the format: CPython, Lib/pickletools.py. Pure; thread-safe.
PickleDocument parse_pickle(std::span<const std::byte> bytes, std::string_view name);

}  // namespace gyre::data

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/data/formats/inflate.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

/// One object and the file that it becomes.
struct ManifestEntry {
  std::size_t source = 0;  ///< Its number.
  Object object{};
  std::string target{};  ///< Below the folder, parts divided by '/'. Of an object that is decompressed without its .gz.
  data::Compression compression = data::Compression::kNone;  ///< What is taken off; kNone: nothing.

  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
};

/// Entries by their numbers, packed: a set of millions of objects is held by every node and program that reads it. Of
/// each text only what differs from the entry before is kept, but for every sixteenth, at which reading begins. An
/// entry is therefore a copy, and takes about a microsecond. Thread-safe where it is not changed.
class EntryTable {
 public:
  class Iterator;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  void push_back(const ManifestEntry& entry);
  /// Gives back what was set aside for more entries.
  void shrink_to_fit();

  /// `number` is less than size().
  ManifestEntry operator[](std::size_t number) const;
  /// Of entries that were added in the order of their targets: the first one whose target is not less; size() where
  /// there is none.
  std::size_t lower_bound(std::string_view target) const;

  Iterator begin() const;
  Iterator end() const;

 private:
  static constexpr std::size_t kGroup = 16;  ///< Entries that are read together.

  /// The first entry of a group.
  ManifestEntry first_of(std::size_t group) const;

  Bytes packed_{};
  std::vector<std::uint64_t> groups_{};  ///< Where each begins.
  std::size_t size_ = 0;
  ManifestEntry last_{};
};

/// Goes through all entries in the order of their numbers, without reading a group twice.
class EntryTable::Iterator {
 public:
  using value_type = ManifestEntry;
  using difference_type = std::ptrdiff_t;

  Iterator() = default;
  Iterator(const EntryTable& table, std::size_t number);

  const ManifestEntry& operator*() const { return entry_; }
  const ManifestEntry* operator->() const { return &entry_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(const Iterator& other) const { return number_ == other.number_; }

 private:
  void read();

  const EntryTable* table_ = nullptr;
  std::size_t number_ = 0;
  std::size_t offset_ = 0;  ///< Behind entry_.
  ManifestEntry entry_{};
};

}  // namespace gyre::store

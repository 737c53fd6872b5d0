#include "gyre/store/staging/entry_table.h"

#include <algorithm>
#include <utility>

namespace gyre::store {

namespace {

// An entry: its flags (u8), source, size, name, version and encoding, the target where it is another than the name, and
// the MD5 where there is one. A text is the number of bytes that it shares with the same text of the entry before, the
// number of those behind them, and these. Numbers are LEB128.

constexpr std::uint8_t kTargetIsName = 1;
constexpr std::uint8_t kHasMd5 = 2;
constexpr unsigned kCompressionShift = 2;

constexpr unsigned kDigitBits = 7;
constexpr std::uint8_t kMoreDigits = 1 << kDigitBits;

void put_number(ByteWriter& writer, std::uint64_t number) {
  for (; number >= kMoreDigits; number >>= kDigitBits) {
    writer.u8(static_cast<std::uint8_t>(number | kMoreDigits));
  }
  writer.u8(static_cast<std::uint8_t>(number));
}

std::uint64_t get_number(ByteReader& reader) {
  std::uint64_t number = 0;
  for (unsigned shift = 0;; shift += kDigitBits) {
    const std::uint8_t digit = reader.u8();
    number |= static_cast<std::uint64_t>(digit & (kMoreDigits - 1U)) << shift;
    if (digit < kMoreDigits) return number;
  }
}

void put_text(ByteWriter& writer, const std::string& before, const std::string& text) {
  const auto shared = static_cast<std::size_t>(std::ranges::mismatch(before, text).in2 - text.begin());
  put_number(writer, shared);
  put_number(writer, text.size() - shared);
  writer.text(std::string_view(text).substr(shared));
}

/// `text` is that of the entry before.
void get_text(ByteReader& reader, std::string& text) {
  text.resize(static_cast<std::size_t>(get_number(reader)));
  text += reader.text(static_cast<std::size_t>(get_number(reader)));
}

void put_entry(ByteWriter& writer, const ManifestEntry& before, const ManifestEntry& entry) {
  const Object& object = entry.object;
  const bool target_is_name = entry.target == object.name;
  writer.u8(static_cast<std::uint8_t>((target_is_name ? kTargetIsName : 0) | (object.md5 ? kHasMd5 : 0) |
                                      static_cast<unsigned>(entry.compression) << kCompressionShift));
  put_number(writer, entry.source);
  put_number(writer, object.size_bytes);
  put_text(writer, before.object.name, object.name);
  put_text(writer, before.object.version, object.version);
  put_text(writer, before.object.encoding, object.encoding);
  if (!target_is_name) put_text(writer, before.target, entry.target);
  if (object.md5) writer.bytes(*object.md5);
}

/// `entry` is the one before.
void get_entry(ByteReader& reader, ManifestEntry& entry) {
  Object& object = entry.object;
  const std::uint8_t flags = reader.u8();
  entry.compression = static_cast<data::Compression>(flags >> kCompressionShift);
  entry.source = static_cast<std::size_t>(get_number(reader));
  object.size_bytes = get_number(reader);
  get_text(reader, object.name);
  get_text(reader, object.version);
  get_text(reader, object.encoding);
  if ((flags & kTargetIsName) != 0) {
    entry.target = object.name;
  } else {
    get_text(reader, entry.target);
  }
  object.md5.reset();
  if ((flags & kHasMd5) != 0) std::ranges::copy(reader.bytes(sizeof(Md5)), object.md5.emplace().begin());
}

ByteReader reader_at(const Bytes& packed, std::size_t offset) { return {std::span(packed).subspan(offset), "entries"}; }

}  // namespace

void EntryTable::push_back(const ManifestEntry& entry) {
  if (size_ % kGroup == 0) {
    groups_.push_back(packed_.size());
    last_ = {};
  }
  ByteWriter writer;
  put_entry(writer, last_, entry);
  packed_.insert(packed_.end(), writer.result().begin(), writer.result().end());
  last_ = entry;
  ++size_;
}

void EntryTable::shrink_to_fit() {
  packed_.shrink_to_fit();
  groups_.shrink_to_fit();
}

ManifestEntry EntryTable::operator[](std::size_t number) const {
  ByteReader reader = reader_at(packed_, groups_.at(number / kGroup));
  ManifestEntry entry;
  for (std::size_t i = 0; i <= number % kGroup; ++i) get_entry(reader, entry);
  return entry;
}

ManifestEntry EntryTable::first_of(std::size_t group) const { return (*this)[group * kGroup]; }

std::size_t EntryTable::lower_bound(std::string_view target) const {
  std::size_t first = 0;  // Of the groups whose first entry is not less.
  for (std::size_t left = groups_.size(); left > 0;) {
    const std::size_t middle = first + left / 2;
    if (first_of(middle).target < target) {
      first = middle + 1;
      left -= left / 2 + 1;
    } else {
      left /= 2;
    }
  }
  if (first == 0) return 0;
  std::size_t number = (first - 1) * kGroup;
  for (Iterator entry(*this, number); number < std::min(first * kGroup, size_); ++number, ++entry) {
    if (entry->target >= target) break;
  }
  return number;
}

EntryTable::Iterator EntryTable::begin() const { return {*this, 0}; }
EntryTable::Iterator EntryTable::end() const { return {*this, size_}; }

EntryTable::Iterator::Iterator(const EntryTable& table, std::size_t number) : table_(&table), number_(number) {
  if (number_ == table_->size_) return;
  offset_ = table_->groups_[number_ / kGroup];
  const std::size_t within = number_ % kGroup;
  number_ -= within;
  read();
  for (std::size_t i = 0; i < within; ++i) ++*this;
}

EntryTable::Iterator& EntryTable::Iterator::operator++() {
  if (++number_ < table_->size_) read();
  return *this;
}

void EntryTable::Iterator::read() {
  if (number_ % kGroup == 0) entry_ = {};
  ByteReader reader = reader_at(table_->packed_, offset_);
  get_entry(reader, entry_);
  offset_ += reader.offset();
}

}  // namespace gyre::store

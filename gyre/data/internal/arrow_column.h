#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gyre/data/formats/example.h"
#include "gyre/data/parquet/plugin.h"

namespace gyre::data::internal {

/// How Arrow lays out the values of a column that we read: numbers or byte strings, in lists or alone.
struct ArrowColumn {
  enum class Around { kStruct, kList, kLargeList, kFixedList };
  struct Level {
    Around kind = Around::kList;
    std::uint64_t length = 0;  ///< Of each kFixedList.
  };
  enum class Values { kNumbers, kBits, kHalfFloats, kStrings, kLargeStrings, kFixedStrings };

  std::vector<Level> levels{};  ///< From outside; structs come first.
  Values values = Values::kNumbers;
  NumberType number = NumberType::kInt64;  ///< Of kNumbers.
  std::uint64_t string_bytes = 0;          ///< Of each of kFixedStrings.
  std::optional<NumberType> index{};       ///< Values stand in a dictionary, and these are their places there.
};

/// A column as a schema lists it. `path`: its name, within structs "outer.inner". Lists have the name of their column.
struct ListedColumn {
  std::string path;
  std::uint64_t leaf = 0;             ///< Its number among the columns that hold values, depth first.
  std::optional<ArrowColumn> type{};  ///< Nothing where we do not read it …
  std::string type_name{};            ///< … and what it is then.
};

/// The columns of a schema, and the number of its leaves.
struct ListedColumns {
  std::vector<ListedColumn> columns;
  std::uint64_t leaves = 0;
};
ListedColumns list_columns(const ArrowSchema& schema);

/// Error(kCorruptData) where a part of a column is not laid out as its type says.
void check_layout(const ArrowArray& part, const ArrowColumn& type);

/// The values of one row of a part that check_layout() has accepted. Error(kCorruptData) where one is null.
class ArrowRow {
 public:
  ArrowRow(const ArrowArray& part, const ArrowColumn& type, std::uint64_t row);

  /// Of memory that copy_to() needs.
  std::size_t bytes() const { return bytes_; }
  /// Copies the values to `into`, which has bytes(); the feature refers to that.
  Feature copy_to(std::span<std::byte> into) const;

 private:
  void descend(const ArrowColumn::Level& level);
  void measure();
  std::span<const std::byte> string_at(std::uint64_t index) const;
  Feature copy_strings(std::span<std::byte> into) const;

  const ArrowColumn& type_;
  const ArrowArray* array_;
  std::uint64_t first_;  // Of the values in array_, without its offset.
  std::uint64_t count_ = 1;
  std::vector<std::uint64_t> extents_;
  std::size_t bytes_ = 0;
};

}  // namespace gyre::data::internal
